//! Writers for the parts of a response that chunks and whole completions share.

use bytes::BytesMut;

use crate::canonical::{Citation, SealedSignature, Start, Usage};
use crate::wire::codec::{ReplyOptions, bare_id, make_id};
use crate::wire::tier_words::TierWords;
use json::{EscapedString, JsonStr, Sink, Writer};

/// Writes `id`, `object`, `created` and `model` into an open object.
pub(super) fn head(json: &mut Writer<'_, BytesMut>, object: &str, start: &Start<'_>, reply: &ReplyOptions) {
    // A provider's id without prefix, or a generated one. Neither contains a character that needs an escape.
    json.key("id").pasted(|out| match &*bare_id(start.id.escaped()) {
        "" => out.put_slice(make_id("chatcmpl-", &reply.seed, 0).as_bytes()),
        id => {
            out.put_slice(b"chatcmpl-");
            out.put_slice(id.as_bytes());
        }
    });
    json.key("object").string(object);
    json.key("created").number(start.created.unwrap_or(reply.created));
    json.key("model").paste(model(&reply.model));
}

/// Writes the same members for a stream that continues another provider's stream: with that stream's id, unchanged.
pub(super) fn head_as(json: &mut Writer<'_, BytesMut>, start: &Start<'_>, reply: &ReplyOptions) {
    json.key("id").paste(start.id).key("object").string("chat.completion.chunk");
    json.key("created").number(start.created.unwrap_or(reply.created));
    json.key("model").paste(model(&reply.model));
}

fn model(model: &EscapedString) -> JsonStr<'_> {
    model.as_json_str()
}

/// Writes a usage object. Details that the provider did not report are omitted; a reported zero is written.
pub(super) fn usage(json: &mut Writer<'_, BytesMut>, usage: &Usage) {
    let (input, output) = (usage.input.unwrap_or(0), usage.output.unwrap_or(0));
    json.begin_object();
    json.key("prompt_tokens").number(input);
    json.key("completion_tokens").number(output);
    json.key("total_tokens").number(input.saturating_add(output));
    details(
        json,
        "prompt_tokens_details",
        [
            ("cached_tokens", usage.cached),
            ("cache_write_tokens", usage.cache_writes()),
            ("audio_tokens", usage.audio_input),
        ],
    );
    details(
        json,
        "completion_tokens_details",
        [
            ("reasoning_tokens", usage.reasoning),
            ("audio_tokens", usage.audio_output),
            ("image_tokens", usage.image_output),
        ],
    );
    json.end_object();
}

/// Writes the end of the choices of a chunk, and the service tier behind it, if it is known and the format has a word for it.
pub(super) fn end_choices(end: &[u8], usage: &Usage, out: &mut BytesMut) {
    out.put_slice(end);
    if let Some(word) = usage.tier.and_then(|tier| TierWords::OpenAi.word(tier)) {
        out.put_slice(b",\"service_tier\":\"");
        out.put_slice(word.as_bytes());
        out.put_slice(b"\"");
    }
}

/// Writes the end of a chunk without choices that has usage.
pub(super) fn end_with_usage(used: &Usage, out: &mut BytesMut) {
    end_choices(b"]", used, out);
    out.put_slice(b",\"usage\":");
    usage(&mut Writer::new(out), used);
    out.put_slice(b"}\n\n");
}

fn details(json: &mut Writer<'_, BytesMut>, name: &str, figures: [(&str, Option<u64>); 3]) {
    if figures.iter().all(|(_, figure)| figure.is_none()) {
        return;
    }
    json.key(name).begin_object();
    for (name, figure) in figures {
        if let Some(figure) = figure {
            json.key(name).number(figure);
        }
    }
    json.end_object();
}

/// Writes one annotation: a citation of a web page, the only kind in this format. `span` is the cited range, in
/// characters, for citations that have none of their own.
pub(super) fn annotation(json: &mut Writer<'_, BytesMut>, citation: &Citation<'_>, span: (u64, u64)) {
    let (start, end) = citation.span.unwrap_or(span);
    json.begin_object();
    json.key("type").string("url_citation");
    json.key("url_citation").begin_object();
    json.key("start_index").number(start);
    json.key("end_index").number(end);
    json.key("title").paste(citation.title);
    json.key("url").paste(citation.url);
    json.end_object().end_object();
}

/// Part of a response that a provider signature belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum SignatureOwner<'a> {
    /// A reasoning block, with its text if the element must repeat it.
    Reasoning(Option<JsonStr<'a>>),
    /// A reasoning block without text.
    Hidden,
    /// The text of the message.
    Text,
    /// The image with this number.
    Image(u32),
    /// The tool call with this id. Its id was written before the signature arrived.
    Call(&'a str),
}

/// Writes one element of `reasoning_details`: a provider signature in its envelope, or a text that must stay separate
/// from others. `index` counts the elements of the whole response; SDKs use it to join the elements of several chunks.
pub(super) fn detail(
    json: &mut Writer<'_, BytesMut>,
    of: SignatureOwner<'_>,
    index: u32,
    seal: Option<SealedSignature<'_>>,
) {
    json.begin_object();
    let (kind, opaque) = match of {
        SignatureOwner::Reasoning(_) => ("reasoning.text", "signature"),
        _ => ("reasoning.encrypted", "data"),
    };
    json.key("type").string(kind);
    match of {
        SignatureOwner::Reasoning(Some(text)) => json.key("text").paste(text),
        SignatureOwner::Reasoning(None) | SignatureOwner::Hidden => json,
        SignatureOwner::Text => json.key("id").string("text"),
        SignatureOwner::Image(number) => json.key("id").string(&format!("image_{number}")),
        SignatureOwner::Call(id) => json.key("id").paste(JsonStr::from_escaped(id)),
    };
    envelope(json, opaque, seal);
    json.key("index").number(index);
    json.end_object();
}

fn envelope(json: &mut Writer<'_, BytesMut>, name: &str, seal: Option<SealedSignature<'_>>) {
    if let Some(seal) = seal {
        let mut text = Vec::with_capacity(seal.text.escaped().len() * 4 / 3 + 32);
        seal.write(&mut text);
        // An envelope is plain ASCII, so this cannot fail.
        let text = String::from_utf8(text).unwrap_or_default();
        json.key(name).paste(JsonStr::from_escaped(&text));
    }
}

/// Writes `data:<mime>;base64,<data>` as the inside of a JSON string.
pub(super) fn data_url(out: &mut impl Sink, mime: &str, data: &str) {
    out.put_slice(b"data:");
    out.put_slice(mime.as_bytes());
    out.put_slice(b";base64,");
    out.put_slice(data.as_bytes());
}
