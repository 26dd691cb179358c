//! Decoder and encoder of whole messages. A whole response is decoded to the same events as a stream, and encoded from
//! the response that the events add up to.

use bytes::BytesMut;

use super::stream::Decoder;
use super::{arguments::ArgumentsRepair, citation, content, finish, usage};
use crate::canonical::answer::{AnswerBlock, AnswerBlockKind, CitationOwned};
use crate::canonical::seal::UNSIGNED;
use crate::canonical::{Answer, Event, Finish, Start, ToolKind};
use crate::wire::codec::{ReplyOptions, bare_id, make_id};
use crate::wire::watch::elements;
use json::{Cursor, JsonError, JsonStr, RawJson, Writer};

/// Decodes a whole response into events.
///
/// # Errors
/// Returns [`JsonError`] if the body is not JSON, or is neither a message nor an error.
pub fn decode(body: &str, seed: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
    let mut decoder = Decoder::new(seed);
    let (mut start, mut kind) = (Start::default(), JsonStr::default());
    let (mut error, mut blocks, mut usage) = (None, None, None);
    let mut json = Cursor::new(body);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key.escaped() {
            "type" => kind = json.raw()?.as_str().unwrap_or_default(),
            "id" => start.id = json.raw()?.as_str().unwrap_or_default(),
            "model" => start.model = json.raw()?.as_str().unwrap_or_default(),
            "content" => blocks = Some(json.raw()?),
            "usage" => usage = Some(json.raw()?),
            "error" => error = Some(json.raw()?).filter(|error| !error.is_null()),
            _ => decoder.stop_member(key, &mut json)?,
        }
    }
    json.end()?;
    if kind.escaped() == "error" || (error.is_some() && blocks.is_none()) {
        decoder.error(error.unwrap_or(RawJson::from_text(body.trim_ascii())), sink);
        return Ok(());
    }
    if blocks.is_none() && !kind.is("message") {
        return Err(JsonError { at: 0, what: "not a response of this format" });
    }
    decoder.start(start, sink);
    if let Some(blocks) = blocks {
        let mut index = 0;
        elements(&mut Cursor::new(blocks.text()), |json| {
            // A whole block passes through the same code as a block of a stream, so that both give the same events.
            decoder.block_start(index, json.raw()?, sink)?;
            decoder.block_stop(index, sink);
            index += 1;
            Ok(())
        })?;
    }
    decoder.usage(usage, sink)?;
    decoder.end(sink);
    Ok(())
}

/// Encodes a whole response.
pub fn encode(answer: &Answer, reply: &ReplyOptions, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object();
    let id = match bare_id(&answer.id) {
        id if id.is_empty() => make_id("", &reply.seed, 0).into(),
        id => id,
    };
    json.key("id").pasted(|out| {
        out.extend_from_slice(b"msg_");
        out.extend_from_slice(id.as_bytes());
    });
    json.key("type").string("message").key("role").string("assistant");
    json.key("model").paste(reply.model.as_json_str()).key("content").begin_array();
    let (mut called, mut refused) = (false, false);
    let finish = answer.finish_of(0).map_or(Finish::Other(JsonStr::default()), |finish| finish.borrow());
    let cut = matches!(finish, Finish::Length | Finish::ContextFull);
    for block in answer.blocks_of(0) {
        called |= matches!(block.kind, AnswerBlockKind::ToolUse { .. });
        refused |= block.kind == AnswerBlockKind::Refusal;
        encode_block(block, cut, reply, &mut json);
    }
    json.end_array();
    let (reason, sequence) = finish::encode(finish, called, refused);
    json.key("stop_reason").string(reason).key("stop_sequence");
    match sequence {
        Some(sequence) => json.paste(sequence),
        None => json.null(),
    };
    json.key("usage");
    usage::write_whole(&answer.usage, &mut json);
    json.end_object();
}

fn encode_block(block: &AnswerBlock, cut: bool, reply: &ReplyOptions, json: &mut Writer<'_, BytesMut>) {
    let text = JsonStr::from_escaped(&block.text);
    match &block.kind {
        // Anthropic refuses empty text blocks when the client sends them back.
        AnswerBlockKind::Text | AnswerBlockKind::Refusal if !text.is_empty() => {
            json.begin_object().key("type").string("text").key("text").paste(text);
            let mut cited =
                block.citations.iter().map(CitationOwned::borrow).filter(citation::has_form).peekable();
            if cited.peek().is_some() {
                json.key("citations").begin_array();
                for citation in cited {
                    citation::write(&citation, json);
                }
                json.end_array();
            }
            json.end_object();
        }
        AnswerBlockKind::Reasoning
            if reply.show_thinking && !(text.is_empty() && block.signature.is_empty()) =>
        {
            json.begin_object().key("type").string("thinking").key("thinking").paste(text).key("signature");
            if block.signature.is_empty() {
                json.string(UNSIGNED);
            } else {
                json.string(&content::envelope(&block.signature, reply));
            }
            json.end_object();
        }
        AnswerBlockKind::HiddenReasoning if reply.show_thinking && !block.signature.is_empty() => {
            json.begin_object().key("type").string("redacted_thinking");
            json.key("data").string(&content::envelope(&block.signature, reply)).end_object();
        }
        AnswerBlockKind::ToolUse { id, name, kind, .. } => {
            let id = content::call_id(id, &block.signature, reply);
            json.begin_object().key("type").string("tool_use").key("id").paste(JsonStr::from_escaped(&id));
            json.key("name").paste(JsonStr::from_escaped(name)).key("input");
            match &block.object {
                Some(object) if object.starts_with('{') => json.raw(RawJson::from_text(object)),
                Some(other) => json.raw(RawJson::from_text(&input(&content::escaped(other), *kind, cut))),
                None => json.raw(RawJson::from_text(&input(&block.text, *kind, cut))),
            };
            json.end_object();
        }
        AnswerBlockKind::Opaque { name, raw } if content::is_own(JsonStr::from_escaped(name)) => {
            json.raw(RawJson::from_text(raw));
        }
        _ => {}
    }
}

/// Returns the input object for the arguments of a call, repaired as in a stream.
fn input(text: &str, kind: ToolKind, cut: bool) -> String {
    let mut arguments = match kind {
        ToolKind::Function => ArgumentsRepair::new(),
        ToolKind::Custom => ArgumentsRepair::free(),
    };
    let mut escaped = Vec::with_capacity(text.len() + 2);
    arguments.push(text, &mut escaped);
    arguments.close(cut, &mut escaped);
    let escaped = String::from_utf8(escaped).unwrap_or_default();
    match JsonStr::from_escaped(&escaped).decode() {
        object if object.is_empty() => "{}".to_owned(),
        object => object.into_owned(),
    }
}
