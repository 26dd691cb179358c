//! Decoder and encoder of whole chat completions.

use bytes::BytesMut;

use super::enums::finish_word;
use super::stream::Decoder;
use super::stream::pending::image;
use super::write::{self, SignatureOwner};
use crate::canonical::answer::{AnswerBlock, AnswerBlockKind, AnswerChoice, CitationOwned};
use crate::canonical::seal::SignedCallId;
use crate::canonical::{Answer, Event, Finish, SealedSignature, Start, ToolKind};
use crate::wire::codec::{ReplyOptions, make_id};
use crate::wire::tier_words::TierWords;
use json::{JsonError, JsonStr, RawJson, Writer};

/// Lifetime of audio in a response, in seconds. The gateway stores no audio, but SDKs require `expires_at`.
const SOUND_EXPIRES: u64 = 3_600;

/// Decodes a completion into events. With `tagged`, its text may begin with reasoning between `<think>` and `</think>`.
///
/// # Errors
/// Returns [`JsonError`] if the body is not JSON, or contains neither a choice nor an error.
pub fn decode(
    body: &str,
    seed: &str,
    tagged: bool,
    sink: &mut impl FnMut(Event<'_>),
) -> Result<(), JsonError> {
    let mut decoder = Decoder::whole(seed).with_tags(tagged);
    decoder.document(body, sink)?;
    decoder.end(sink);
    if decoder.is_over() { Ok(()) } else { Err(JsonError { at: 0, what: "a response without a choice" }) }
}

/// Encodes a completion.
pub fn encode(answer: &Answer, reply: &ReplyOptions, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object();
    let start = Start { id: JsonStr::from_escaped(&answer.id), created: answer.created, ..Start::default() };
    write::head(&mut json, "chat.completion", &start, reply);
    json.key("choices").begin_array();
    for (index, said) in (0..).zip(answer.by_choice()) {
        choice(&mut json, answer, index, &said, reply);
    }
    json.end_array();
    if answer.usage.is_known() {
        json.key("usage");
        write::usage(&mut json, &answer.usage);
    }
    if let Some(word) = answer.usage.tier.and_then(|tier| TierWords::OpenAi.word(tier)) {
        json.key("service_tier").string(word);
    }
    json.end_object();
}

fn choice(
    json: &mut Writer<'_, BytesMut>,
    answer: &Answer,
    index: u32,
    said: &AnswerChoice<'_>,
    reply: &ReplyOptions,
) {
    let blocks = || said.blocks.iter().copied();
    json.begin_object();
    json.key("index").number(index);
    json.key("message").begin_object();
    json.key("role").string("assistant");
    joined(json, "content", blocks().filter(|block| block.kind == AnswerBlockKind::Text));
    joined(json, "refusal", blocks().filter(|block| block.kind == AnswerBlockKind::Refusal));
    if reply.show_thinking {
        let thoughts =
            || blocks().filter(|block| block.kind == AnswerBlockKind::Reasoning && !block.text.is_empty());
        if thoughts().next().is_some() {
            joined(json, "reasoning_content", thoughts());
        }
    }
    details(json, blocks, reply);
    calls(json, blocks, reply);
    annotations(json, blocks);
    media(json, answer, index, blocks, reply);
    json.end_object();
    logprobs(json, blocks);
    let called = blocks().any(|block| matches!(block.kind, AnswerBlockKind::ToolUse { .. }));
    // SDKs require a reason for every choice of a complete response.
    let finish = said.finish.map_or(Finish::Stop, |finish| finish.borrow());
    let (word, native) = finish_word(finish, called);
    json.key("finish_reason").string(word);
    if let Some(native) = native {
        json.key("native_finish_reason").paste(native);
    }
    json.end_object();
}

/// Writes a member with the joined texts of the blocks. Null if there is no block.
fn joined<'a>(json: &mut Writer<'_, BytesMut>, name: &str, blocks: impl Iterator<Item = &'a AnswerBlock>) {
    let mut blocks = blocks.peekable();
    json.key(name);
    let Some(first) = blocks.next() else {
        json.null();
        return;
    };
    if blocks.peek().is_none() {
        json.paste(JsonStr::from_escaped(&first.text));
        return;
    }
    let mut text = first.text.clone();
    blocks.for_each(|block| text.push_str(&block.text));
    json.paste(JsonStr::from_escaped(&text));
}

/// Writes `reasoning_details`. If one block has a provider signature, all reasoning blocks are listed with their texts,
/// so that a client that returns the message returns each text with its own signature.
fn details<'a, I: Iterator<Item = &'a AnswerBlock>>(
    json: &mut Writer<'_, BytesMut>,
    blocks: impl Fn() -> I,
    reply: &ReplyOptions,
) {
    let sealed = |block: &&AnswerBlock| {
        // A signature without its visible text cannot be returned by the client.
        let hidden =
            !reply.show_thinking && block.kind == AnswerBlockKind::Reasoning && !block.text.is_empty();
        !block.signature.is_empty() && !hidden && !matches!(block.kind, AnswerBlockKind::ToolUse { .. })
    };
    if blocks().find(sealed).is_none() {
        return;
    }
    json.key("reasoning_details").begin_array();
    let (mut place, mut images) = (0, 0);
    for block in blocks() {
        let text = Some(JsonStr::from_escaped(&block.text)).filter(|text| !text.is_empty());
        let seal = (!block.signature.is_empty()).then(|| SealedSignature {
            issuer: &reply.issuer,
            text: JsonStr::from_escaped(&block.signature),
        });
        let of = match block.kind {
            AnswerBlockKind::Reasoning | AnswerBlockKind::HiddenReasoning => match text {
                Some(_) if !reply.show_thinking => continue,
                Some(_) => SignatureOwner::Reasoning(text),
                None => SignatureOwner::Hidden,
            },
            AnswerBlockKind::Media { .. } => {
                images += 1;
                SignatureOwner::Image(images - 1)
            }
            AnswerBlockKind::Text => SignatureOwner::Text,
            _ => continue,
        };
        if seal.is_some() || matches!(of, SignatureOwner::Reasoning(_)) {
            write::detail(json, of, place, seal);
            place += 1;
        }
    }
    json.end_array();
}

fn calls<'a, I: Iterator<Item = &'a AnswerBlock>>(
    json: &mut Writer<'_, BytesMut>,
    blocks: impl Fn() -> I,
    reply: &ReplyOptions,
) {
    let mut open = false;
    for block in blocks() {
        let AnswerBlockKind::ToolUse { id, name, kind, .. } = &block.kind else { continue };
        if !std::mem::replace(&mut open, true) {
            json.key("tool_calls").begin_array();
        }
        json.begin_object();
        json.key("id");
        if block.signature.is_empty() {
            json.paste(JsonStr::from_escaped(id));
        } else {
            let mut carrier = id.clone().into_bytes();
            let sealed =
                SealedSignature { issuer: &reply.issuer, text: JsonStr::from_escaped(&block.signature) };
            SignedCallId::write(sealed, &mut carrier);
            json.paste(JsonStr::from_escaped(&String::from_utf8(carrier).unwrap_or_default()));
        }
        let (word, member) = match kind {
            ToolKind::Function => ("function", "arguments"),
            ToolKind::Custom => ("custom", "input"),
        };
        json.key("type").string(word);
        json.key(word).begin_object();
        json.key("name").paste(JsonStr::from_escaped(name));
        json.key(member);
        match &block.object {
            Some(object) => {
                json.string(object);
            }
            None if block.text.is_empty() && *kind == ToolKind::Function => {
                json.string("{}");
            }
            None => {
                json.paste(JsonStr::from_escaped(&block.text));
            }
        }
        json.end_object().end_object();
    }
    if open {
        json.end_array();
    }
}

fn annotations<'a, I: Iterator<Item = &'a AnswerBlock>>(
    json: &mut Writer<'_, BytesMut>,
    blocks: impl Fn() -> I,
) {
    // The format cites web pages only.
    let has_address = |citation: &&CitationOwned| !citation.url.is_empty();
    if !blocks().any(|block| block.citations.iter().any(|citation| has_address(&citation))) {
        return;
    }
    json.key("annotations").begin_array();
    let mut from = 0;
    for block in blocks().filter(|block| block.kind == AnswerBlockKind::Text) {
        let to = from + JsonStr::from_escaped(&block.text).char_count();
        for citation in block.citations.iter().filter(has_address) {
            write::annotation(json, &citation.borrow(), (from, to));
        }
        from = to;
    }
    json.end_array();
}

fn media<'a, I: Iterator<Item = &'a AnswerBlock>>(
    json: &mut Writer<'_, BytesMut>,
    answer: &Answer,
    index: u32,
    blocks: impl Fn() -> I,
    reply: &ReplyOptions,
) {
    let media = || {
        blocks().filter_map(|block| match &block.kind {
            AnswerBlockKind::Media { mime } => Some((mime.as_str(), block)),
            _ => None,
        })
    };
    let is_sound = |mime: &str, block: &AnswerBlock| mime.starts_with("audio/") && block.url.is_none();
    // A message has at most one audio object in this format.
    if let Some((_, sound)) = media().find(|(mime, block)| is_sound(mime, block)) {
        json.key("audio").begin_object();
        json.key("id").string(&make_id("audio_", &reply.seed, index.into()));
        json.key("data").paste(JsonStr::from_escaped(&sound.text));
        json.key("expires_at").number(answer.created.unwrap_or(reply.created).saturating_add(SOUND_EXPIRES));
        json.key("transcript").string("");
        json.end_object();
    }
    let mut open = false;
    for (mime, block) in media().filter(|(mime, block)| !is_sound(mime, block)) {
        if !std::mem::replace(&mut open, true) {
            json.key("images").begin_array();
        }
        image(json, mime, &block.text, block.url.as_deref().unwrap_or_default(), None);
    }
    if open {
        json.end_array();
    }
}

fn logprobs<'a, I: Iterator<Item = &'a AnswerBlock>>(
    json: &mut Writer<'_, BytesMut>,
    blocks: impl Fn() -> I,
) {
    json.key("logprobs");
    if blocks().all(|block| block.logprobs.is_empty()) {
        json.null();
        return;
    }
    json.begin_object();
    for (name, kind) in [("content", AnswerBlockKind::Text), ("refusal", AnswerBlockKind::Refusal)] {
        let mut list = Vec::from(*b"[");
        for block in blocks().filter(|block| block.kind == kind && !block.logprobs.is_empty()) {
            if list.len() > 1 {
                list.push(b',');
            }
            list.extend_from_slice(block.logprobs.as_bytes());
        }
        list.push(b']');
        json.key(name);
        match std::str::from_utf8(&list) {
            Ok(list) if list.len() > 2 => json.raw(RawJson::from_text(list)),
            _ => json.null(),
        };
    }
    json.end_object();
}
