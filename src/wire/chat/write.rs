//! Parts of an answer that a stream and a whole completion share.

use bytes::{BufMut, BytesMut};

use crate::canonical::{Citation, Sealed, Start, Usage};
use crate::json::{EscapedString, JsonStr, Writer};
use crate::wire::codec::{ReplyOptions, bare_id, make_id};

/// `"id","object","created","model"`, in an object that is open.
pub(super) fn head(json: &mut Writer<'_, BytesMut>, object: &str, start: &Start<'_>, reply: &ReplyOptions) {
    // The provider's, or one of the gateway's; either has nothing in it to escape.
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

/// The same for a stream whose beginning came from its provider as it was.
pub(super) fn head_as(json: &mut Writer<'_, BytesMut>, start: &Start<'_>, reply: &ReplyOptions) {
    json.key("id").paste(start.id).key("object").string("chat.completion.chunk");
    json.key("created").number(start.created.unwrap_or(reply.created));
    json.key("model").paste(model(&reply.model));
}

fn model(model: &EscapedString) -> JsonStr<'_> {
    model.as_json_str()
}

/// A usage object. Details that the provider did not give are left out; a zero that it gave stays.
pub(super) fn usage(json: &mut Writer<'_, BytesMut>, usage: &Usage) {
    let (input, output) = (usage.input.unwrap_or(0), usage.output.unwrap_or(0));
    json.begin_object();
    json.key("prompt_tokens").number(input);
    json.key("completion_tokens").number(output);
    json.key("total_tokens").number(input.saturating_add(output));
    let written = match (usage.cache_write, usage.cache_write_1h) {
        (None, None) => None,
        (short, long) => Some(short.unwrap_or(0).saturating_add(long.unwrap_or(0))),
    };
    details(
        json,
        "prompt_tokens_details",
        [
            ("cached_tokens", usage.cached),
            ("cache_write_tokens", written),
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

/// One annotation. `span` is what is cited where the provider does not say it.
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

/// What of an answer a seal belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum SealOf<'a> {
    /// A reasoning block, with its text where that must be said again.
    Reasoning(Option<JsonStr<'a>>),
    /// A reasoning block that has no text.
    Hidden,
    /// The text.
    Text,
    /// The image of this number.
    Image(u32),
    /// The call of this id, which was written before the seal was known.
    Call(&'a str),
}

/// One element of `reasoning_details`: a seal in its envelope, or a text that must be kept apart from others. `index`
/// is its place in the list of the whole answer; SDKs join the elements of several chunks by it.
pub(super) fn detail(json: &mut Writer<'_, BytesMut>, of: SealOf<'_>, index: u32, seal: Option<Sealed<'_>>) {
    json.begin_object();
    let (kind, opaque) = match of {
        SealOf::Reasoning(_) => ("reasoning.text", "signature"),
        _ => ("reasoning.encrypted", "data"),
    };
    json.key("type").string(kind);
    match of {
        SealOf::Reasoning(Some(text)) => json.key("text").paste(text),
        SealOf::Reasoning(None) | SealOf::Hidden => json,
        SealOf::Text => json.key("id").string("text"),
        SealOf::Image(number) => json.key("id").string(&format!("image_{number}")),
        SealOf::Call(id) => json.key("id").paste(JsonStr::from_escaped(id)),
    };
    envelope(json, opaque, seal);
    json.key("index").number(index);
    json.end_object();
}

fn envelope(json: &mut Writer<'_, BytesMut>, name: &str, seal: Option<Sealed<'_>>) {
    if let Some(seal) = seal {
        let mut text = Vec::with_capacity(seal.text.escaped().len() * 4 / 3 + 32);
        seal.write(&mut text);
        // An envelope is plain ASCII.
        let text = String::from_utf8(text).unwrap_or_default();
        json.key(name).paste(JsonStr::from_escaped(&text));
    }
}

/// `data:<mime>;base64,<data>` as the inside of a JSON string.
pub(super) fn data_url(out: &mut impl BufMut, mime: &str, data: &str) {
    out.put_slice(b"data:");
    out.put_slice(mime.as_bytes());
    out.put_slice(b";base64,");
    out.put_slice(data.as_bytes());
}
