//! Decoder and encoder of whole Converse responses. A whole response is decoded to the same events as a stream, and
//! encoded from the response that the events add up to.

use bytes::BytesMut;

use super::stream::{Decoder, blob, envelope, envelope_of_call, put_input};
use super::{citation, content, finish, media, usage};
use crate::canonical::answer::{AnswerBlock, AnswerBlockKind};
use crate::canonical::seal::UNSIGNED;
use crate::canonical::{Answer, Event, Finish};
use crate::wire::codec::ReplyOptions;
use crate::wire::watch::{elements, members};
use json::{Cursor, JsonError, JsonStr, RawJson, Writer};

/// Decodes a whole response into events.
///
/// # Errors
/// Returns [`JsonError`] if the body is not JSON or not an object.
pub fn decode(body: &str, seed: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
    let mut decoder = Decoder::new(seed);
    let (mut blocks, mut usage, mut tier, mut error, mut has_reason) = (None, None, None, false, false);
    let mut json = Cursor::new(body);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key.escaped() {
            "output" => members(&mut json, |key, json| {
                if !key.is("message") {
                    return json.skip();
                }
                members(json, |key, json| {
                    let value = json.raw()?;
                    if key.is("content") {
                        blocks = Some(value);
                    }
                    Ok(())
                })
            })?,
            "usage" => usage = Some(json.raw()?),
            "serviceTier" => tier = usage::tier(json.raw()?)?,
            "stopReason" => {
                has_reason = true;
                json.skip()?;
            }
            "message" | "__type" | "Output" => {
                error = true;
                json.skip()?;
            }
            _ => json.skip()?,
        }
    }
    json.end()?;
    let whole = RawJson::from_text(body.trim_ascii());
    if blocks.is_none() && !has_reason {
        if error {
            decoder.error(whole, sink);
            return Ok(());
        }
        return Err(JsonError { at: 0, what: "not a response of this format" });
    }
    decoder.start(sink);
    if let Some(blocks) = blocks {
        elements(&mut Cursor::new(blocks.text()), |json| decoder.whole_block(json.raw()?, sink))?;
    }
    decoder.usage(usage, tier, sink)?;
    decoder.stop(whole, sink)?;
    decoder.end(sink);
    Ok(())
}

/// Encodes a whole response.
pub fn encode(answer: &Answer, reply: &ReplyOptions, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object().key("output").begin_object().key("message").begin_object();
    json.key("role").string("assistant").key("content").begin_array();
    let (mut called, mut refused, mut any) = (false, false, false);
    for block in answer.blocks_of(0) {
        called |= matches!(block.kind, AnswerBlockKind::ToolUse { .. });
        refused |= block.kind == AnswerBlockKind::Refusal;
        any |= encode_block(block, reply, &mut json);
    }
    if !any {
        // Applications access the first block without checking that it exists.
        json.begin_object().key("text").string("").end_object();
    }
    json.end_array().end_object().end_object();
    let end = answer.finish_of(0).map_or(Finish::Other(JsonStr::default()), |finish| finish.borrow());
    json.key("stopReason").string(finish::encode(end, called, refused));
    json.key("usage");
    usage::write(&answer.usage, &mut json);
    usage::write_metrics(reply, &mut json);
    usage::write_tier(&answer.usage, &mut json);
    finish::write_fields(end, &mut json);
    json.end_object();
}

/// Writes a block. Returns false, and writes nothing, if the format has none for it.
fn encode_block(block: &AnswerBlock, reply: &ReplyOptions, json: &mut Writer<'_, BytesMut>) -> bool {
    let text = JsonStr::from_escaped(&block.text);
    let sealed = !block.signature.is_empty();
    match &block.kind {
        AnswerBlockKind::Text | AnswerBlockKind::Refusal => {
            if text.is_empty() && block.citations.is_empty() {
                return false;
            }
            cited_text(block, json);
        }
        AnswerBlockKind::Reasoning if reply.show_thinking && (sealed || !text.is_empty()) => {
            json.begin_object().key("reasoningContent").begin_object().key("reasoningText").begin_object();
            json.key("text").paste(text);
            match sealed {
                true => json.key("signature").string(&envelope(&block.signature, reply)),
                false => json.key("signature").string(UNSIGNED),
            };
            json.end_object().end_object().end_object();
        }
        AnswerBlockKind::HiddenReasoning if reply.show_thinking && sealed => {
            json.begin_object().key("reasoningContent").begin_object();
            json.key("redactedContent").string(&blob(&block.signature, reply));
            json.end_object().end_object();
        }
        AnswerBlockKind::ToolUse { id, name, kind, .. } => {
            if sealed {
                json.begin_object().key("reasoningContent").begin_object();
                json.key("reasoningText").begin_object().key("text").string("");
                json.key("signature").string(&envelope_of_call(&block.signature, reply));
                json.end_object().end_object().end_object();
            }
            json.begin_object().key("toolUse").begin_object();
            json.key("toolUseId").paste(JsonStr::from_escaped(id));
            json.key("name").paste(JsonStr::from_escaped(name)).key("input");
            put_input(*kind, &block.text, block.object.as_deref(), json);
            json.end_object().end_object();
        }
        AnswerBlockKind::Media { mime } => {
            let mime = JsonStr::from_escaped(mime).decode();
            let Some(format) = media::MediaKind::Image.format(&mime).filter(|_| !text.is_empty()) else {
                return false;
            };
            json.begin_object().key("image").begin_object().key("format").string(format);
            json.key("source").begin_object().key("bytes").paste(text);
            json.end_object().end_object().end_object();
        }
        AnswerBlockKind::Opaque { name, raw } if content::is_own(name) => {
            json.raw(RawJson::from_text(raw));
        }
        _ => return false,
    }
    true
}

/// Writes a text, as a cited one if it has citations.
fn cited_text(block: &AnswerBlock, json: &mut Writer<'_, BytesMut>) {
    let text = JsonStr::from_escaped(&block.text);
    if block.citations.is_empty() {
        json.begin_object().key("text").paste(text).end_object();
        return;
    }
    json.begin_object().key("citationsContent").begin_object().key("content").begin_array();
    json.begin_object().key("text").paste(text).end_object();
    json.end_array().key("citations").begin_array();
    for citation in &block.citations {
        citation::write(&citation.borrow(), json);
    }
    json.end_array().end_object().end_object();
}
