//! Whole (non-streamed) responses, decoded to and encoded from the events of a stream.

use bytes::BytesMut;

use super::stream::{Decoder, Encoder};
use crate::canonical::answer::{AnswerBlock, AnswerBlockKind};
use crate::canonical::{Answer, BlockKind, Delta, Event, Finish, Start};
use crate::wire::codec::ReplyOptions;
use json::{JsonError, JsonStr, RawJson};

pub use super::shell::{echo, repeated};

/// Decodes one whole response body into the events of a stream. Ids that the provider omits are derived from `seed`.
///
/// # Errors
/// Returns [`JsonError`] if the body is not JSON, or is neither a response object nor an error.
pub fn decode(body: &str, seed: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
    Decoder::new(seed).whole(body, sink)
}

/// Writes one whole response body, or the compacted conversation that the client requested instead. A collected error
/// becomes a response object with the status `failed`.
pub fn encode(answer: &Answer, reply: &ReplyOptions, out: &mut BytesMut) {
    if let Some(messages) = reply.compaction.as_ref().and_then(|compaction| compaction.messages.as_deref()) {
        super::compaction::encode(answer, messages, reply, out);
        return;
    }
    let mut encoder = Encoder::collecting(reply);
    let id = JsonStr::from_escaped(&answer.id);
    let model = JsonStr::from_escaped(&answer.model);
    encoder.event(&Event::Start(Start { id, model, created: answer.created }), out);
    for (index, block) in (0..).zip(&answer.blocks) {
        replay(&mut encoder, index, block, out);
    }
    encoder.event(&Event::Usage(answer.usage), out);
    if let Some(error) = &answer.error {
        encoder.event(&Event::Error(RawJson::from_text(error)), out);
        return;
    }
    let unsaid = Finish::Other(JsonStr::default());
    let finish = answer.finish_of(0).map_or(unsaid, |finish| finish.borrow());
    encoder.event(&Event::Finish { choice: 0, finish }, out);
    encoder.event(&Event::End, out);
}

/// Replays one collected block as stream events. The provider signature of a call precedes its arguments, because the
/// encoder puts it into the call's id; any other signature follows the content.
fn replay(encoder: &mut Encoder, index: u32, block: &AnswerBlock, out: &mut BytesMut) {
    let text = JsonStr::from_escaped(&block.text);
    let is_call = matches!(block.kind, AnswerBlockKind::ToolUse { .. });
    let seal = Some(Delta::Signature(JsonStr::from_escaped(&block.signature)))
        .filter(|_| !block.signature.is_empty());
    let list;
    let content = match &block.kind {
        _ if block.text.is_empty() && block.object.is_none() && block.url.is_none() => None,
        AnswerBlockKind::ToolUse { .. } => Some(match &block.object {
            Some(object) => Delta::Object(RawJson::from_text(object)),
            None => Delta::Arguments(text),
        }),
        AnswerBlockKind::Media { .. } => Some(match &block.url {
            Some(url) => Delta::Url(JsonStr::from_escaped(url)),
            None => Delta::Data(text),
        }),
        AnswerBlockKind::Text | AnswerBlockKind::Refusal | AnswerBlockKind::Reasoning => {
            Some(Delta::Text(text))
        }
        AnswerBlockKind::HiddenReasoning | AnswerBlockKind::Opaque { .. } => None,
    };
    encoder.event(&Event::BlockStart { index, choice: block.choice, kind: kind_of(&block.kind) }, out);
    let mut say = |delta| encoder.event(&Event::Delta { index, delta }, out);
    if let Some(seal) = seal.filter(|_| is_call) {
        say(seal);
    }
    if let Some(content) = content {
        say(content);
    }
    if !block.logprobs.is_empty() {
        list = format!("[{}]", block.logprobs);
        say(Delta::Logprobs(RawJson::from_text(&list)));
    }
    for citation in &block.citations {
        say(Delta::Citation(citation.borrow()));
    }
    if let Some(seal) = seal.filter(|_| !is_call) {
        say(seal);
    }
    encoder.event(&Event::BlockStop { index }, out);
}

fn kind_of(kind: &AnswerBlockKind) -> BlockKind<'_> {
    match kind {
        AnswerBlockKind::Text => BlockKind::Text,
        AnswerBlockKind::Refusal => BlockKind::Refusal,
        AnswerBlockKind::Reasoning => BlockKind::Reasoning,
        AnswerBlockKind::HiddenReasoning => BlockKind::HiddenReasoning,
        AnswerBlockKind::ToolUse { id, name, kind, namespace } => BlockKind::ToolUse {
            id: JsonStr::from_escaped(id),
            name: JsonStr::from_escaped(name),
            kind: *kind,
            namespace: JsonStr::from_escaped(namespace),
        },
        AnswerBlockKind::Media { mime } => BlockKind::Media { mime: JsonStr::from_escaped(mime) },
        AnswerBlockKind::Opaque { name, raw } => {
            BlockKind::Opaque { name: JsonStr::from_escaped(name), raw: RawJson::from_text(raw) }
        }
    }
}
