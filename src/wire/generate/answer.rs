//! Whole answers: the events of a stream, all in one document.

use bytes::BytesMut;

use super::grounding::Grounding;
use super::offsets::Offsets;
use super::stream::Decoder;
use super::{finish, logprobs, part, usage};
use crate::canonical::answer::{AnswerBlock, AnswerBlockKind, AnswerChoice};
use crate::canonical::{Answer, Event};
use crate::json::{Cursor, JsonError, JsonStr, RawJson, Writer};
use crate::wire::codec::{CutText, ReplyOptions};
use crate::wire::watch::elements;

/// Reads one whole answer, or the elements of a stream that came as one array.
///
/// # Errors
/// It is not JSON, or no answer of this format.
pub fn decode(body: &str, seed: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
    let mut decoder = Decoder::new(seed);
    let mut json = Cursor::new(body);
    if json.kind()? == crate::json::Kind::Array {
        elements(&mut json, |json| decoder.frame(json.raw()?.text(), sink))?;
        json.end()?;
    } else {
        decoder.frame(body, sink)?;
    }
    if decoder.is_over() {
        return Ok(());
    }
    let failed = JsonError { at: 0, what: "no answer of this format" };
    if !decoder.has_started() {
        return Err(failed);
    }
    decoder.is_whole();
    decoder.finish(sink).map_err(|CutText| failed)
}

/// Writes one whole answer.
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
        grounding.settle(start, offsets.chars());
        logprobs::join(RawJson::from_text(&format!("[{}]", block.logprobs)), &mut tokens);
        refused |= block.kind == AnswerBlockKind::Refusal;
        any |= write_part(block, reply, json);
    }
    if !any {
        // Clients take content without parts for a broken answer.
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

/// Writes a block as a part; tells whether it is one here.
fn write_part(block: &AnswerBlock, reply: &ReplyOptions, json: &mut Writer<'_, BytesMut>) -> bool {
    let text = JsonStr::from_escaped(&block.text);
    let sealed = !block.seal.is_empty();
    match &block.kind {
        AnswerBlockKind::Text | AnswerBlockKind::Refusal if text.is_empty() && !sealed => return false,
        AnswerBlockKind::Text | AnswerBlockKind::Refusal => part::begin_text(json, text, false),
        AnswerBlockKind::Reasoning if reply.show_thinking && (sealed || !text.is_empty()) => {
            part::begin_text(json, text, true);
        }
        // The text is not asked for, but the provider will want to see its seal again.
        AnswerBlockKind::Reasoning if sealed => part::begin_text(json, JsonStr::default(), true),
        AnswerBlockKind::HiddenReasoning if sealed => {
            json.begin_object().key("thought").boolean(true);
        }
        AnswerBlockKind::Reasoning | AnswerBlockKind::HiddenReasoning => return false,
        AnswerBlockKind::ToolUse { id, name, kind, .. } => {
            let call = part::Call {
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
    part::end(json, &block.seal, &reply.issuer);
    true
}
