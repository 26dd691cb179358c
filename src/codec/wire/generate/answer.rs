//! Whole (non-streamed) responses, decoded to and encoded from the events of a stream.

use bytes::BytesMut;

use super::grounding::Grounding;
use super::offsets::Offsets;
use super::stream::Decoder;
use super::{finish, logprobs, part, usage};
use crate::canonical::answer::{AnswerBlock, AnswerBlockKind, AnswerChoice};
use crate::canonical::{Answer, Event};
use crate::wire::codec::{CutText, ReplyOptions};
use crate::wire::watch::elements;
use json::{Cursor, JsonError, JsonStr, RawJson, Writer};

/// Decodes one whole response body, or the elements of a stream that arrived as one array. Ids that the provider
/// omits are derived from `seed`.
///
/// # Errors
/// Returns [`JsonError`] if the body is not JSON, or is not a response of this format.
pub fn decode(body: &str, seed: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
    let mut decoder = Decoder::new(seed);
    let mut json = Cursor::new(body);
    if json.kind()? == json::ValueKind::Array {
        elements(&mut json, |json| decoder.frame(json.raw()?.text(), sink))?;
        json.end()?;
    } else {
        decoder.frame(body, sink)?;
    }
    if decoder.is_over() {
        return Ok(());
    }
    let failed = JsonError { at: 0, what: "not a response of this format" };
    if !decoder.has_started() {
        return Err(failed);
    }
    // A whole response may omit its finish reasons; a stream without them is truncated.
    decoder.is_whole();
    decoder.finish(sink).map_err(|CutText| failed)
}

/// Writes one whole response body.
pub fn encode(answer: &Answer, reply: &ReplyOptions, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object().key("candidates").begin_array();
    for (index, choice) in (0..).zip(answer.by_choice()) {
        candidate(index, &choice, reply, &mut json);
    }
    json.end_array();
    usage::write(&answer.usage, &mut json);
    part::names(&answer.id, reply, &mut json);
    json.end_object();
}

fn candidate(index: u32, choice: &AnswerChoice<'_>, reply: &ReplyOptions, json: &mut Writer<'_, BytesMut>) {
    let mut offsets = Offsets::default();
    let mut grounding = Grounding::default();
    let (mut tokens, mut refused, mut any) = (String::new(), false, false);
    json.begin_object().key("content").begin_object();
    json.key("parts").begin_array();
    for block in &choice.blocks {
        let start = offsets.chars();
        if matches!(block.kind, AnswerBlockKind::Text | AnswerBlockKind::Refusal) {
            offsets.push(JsonStr::from_escaped(&block.text));
        }
        block.citations.iter().for_each(|citation| grounding.add(citation.borrow()));
        grounding.complete_block(start, offsets.chars());
        logprobs::join(RawJson::from_text(&format!("[{}]", block.logprobs)), &mut tokens);
        refused |= block.kind == AnswerBlockKind::Refusal;
        any |= write_part(block, reply, json);
    }
    if !any {
        // Clients treat content without parts as a broken response.
        part::begin_text(json, JsonStr::default(), false);
        json.end_object();
    }
    json.end_array();
    json.key("role").string("model").end_object();
    if let Some(reason) = choice.finish {
        json.key("finishReason").string(finish::write(reason.borrow(), refused));
    }
    json.key("index").number(index);
    grounding.write(&offsets, json);
    logprobs::write(&tokens, json);
    json.end_object();
}

/// Writes a block as a part. Returns false, and writes nothing, if the block has no part in this format.
fn write_part(block: &AnswerBlock, reply: &ReplyOptions, json: &mut Writer<'_, BytesMut>) -> bool {
    let text = JsonStr::from_escaped(&block.text);
    let sealed = !block.signature.is_empty();
    match &block.kind {
        AnswerBlockKind::Text | AnswerBlockKind::Refusal if text.is_empty() && !sealed => return false,
        AnswerBlockKind::Text | AnswerBlockKind::Refusal => part::begin_text(json, text, false),
        AnswerBlockKind::Reasoning if reply.show_thinking && (sealed || !text.is_empty()) => {
            part::begin_text(json, text, true);
        }
        // The client did not ask for reasoning text, but must send the signature back.
        AnswerBlockKind::Reasoning | AnswerBlockKind::HiddenReasoning if sealed => {
            part::begin_text(json, JsonStr::default(), true);
        }
        AnswerBlockKind::Reasoning | AnswerBlockKind::HiddenReasoning => return false,
        AnswerBlockKind::ToolUse { id, name, kind, .. } => {
            let call = part::CompleteCall {
                id: JsonStr::from_escaped(id),
                name: JsonStr::from_escaped(name),
                kind: *kind,
                text,
                object: block.object.as_deref().map(RawJson::from_text),
            };
            part::begin_call(json, &call);
        }
        AnswerBlockKind::Media { mime } => {
            let mime = JsonStr::from_escaped(mime);
            match &block.url {
                Some(url) => part::begin_file(json, mime, JsonStr::from_escaped(url), JsonStr::default()),
                None => part::begin_inline(json, mime, text, JsonStr::default()),
            }
        }
        AnswerBlockKind::Opaque { name, raw } => {
            if !part::is_own(JsonStr::from_escaped(name)) {
                return false;
            }
            part::paste(RawJson::from_text(raw), json);
            return true;
        }
    }
    let hidden = block.kind == AnswerBlockKind::HiddenReasoning;
    part::end(json, &block.signature, &reply.issuer, hidden);
    true
}
