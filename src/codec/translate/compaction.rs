//! Compaction for providers without it: the request asks for a summary, and the text of the response becomes one sealed
//! item.

use bytes::Bytes;

use super::CompactionOptions;
use super::synthetic_error::error_body;
use crate::canonical::{
    Block, BlockKind, Delta, Event, Finish, Index, IndexKey, OutputFormat, Request, Role, ToolChoice, Turn,
};
use crate::wire::codec::{CompactionReply, ReplyOptions, Sealer, make_id};
use crate::wire::responses::compaction as wire;
use json::{JsonStr, RawJson};

/// Text that ends a summary which the output limit cut off.
const CUT: &str = "\n\n[The summary was cut off here, at the output limit of the model.]";

/// Asks for a summary instead of a continuation. Tools stay, because earlier turns have calls and the prompt cache
/// holds their definitions, but none may be called.
pub(super) fn request_summary(request: &mut Request<'_>) {
    let instruction = Block::text(JsonStr::from_escaped(wire::INSTRUCTION));
    request.turns.push(Turn::new(Role::User, vec![instruction]));
    request.tool_choice = Some(ToolChoice::None);
    request.search = None;
    request.output = OutputFormat::Text;
    request.stop.clear();
    request.logprobs = None;
    request.show_thinking = Some(false);
}

/// Returns the reply options of a compaction. `body` is the request with the conversation that it continues.
pub(super) fn reply(options: &CompactionOptions, body: &str, seed: &str) -> CompactionReply {
    let messages = options.conversation.then(|| {
        // The request was decoded before, so its text is valid.
        wire::user_messages(body, seed).unwrap_or_default().into_boxed_str()
    });
    CompactionReply { seal: options.seal.clone(), messages }
}

/// Collects the text of a response, and writes the compaction item at its end.
#[derive(Debug)]
pub(super) struct Compactor {
    seal: Sealer,
    /// Id of the item.
    id: String,
    /// Indexes of the blocks of text.
    texts: Index,
    /// Collected text, as the inside of a JSON string.
    text: String,
    /// Block that the last text belongs to.
    last: u32,
    refused: bool,
    ended: bool,
}

impl Compactor {
    /// Creates the compactor of a response. `None` if the response is no compaction.
    pub(super) fn of(reply: &ReplyOptions) -> Option<Box<Self>> {
        let compaction = reply.compaction.as_deref()?;
        Some(Box::new(Compactor {
            seal: compaction.seal.clone(),
            id: make_id("cmp_", &reply.seed, 1),
            texts: Index::default(),
            text: String::new(),
            last: 0,
            refused: false,
            ended: false,
        }))
    }

    /// Passes an event on if the client's response has it too. Returns the error of a response that is no summary, as
    /// JSON text.
    pub(super) fn event(&mut self, event: &Event<'_>, write: &mut impl FnMut(&Event<'_>)) -> Option<Bytes> {
        match *event {
            Event::BlockStart { index, choice: 0, kind } => {
                self.refused |= kind == BlockKind::Refusal;
                if kind == BlockKind::Text {
                    self.texts.push(IndexKey::of(u64::from(index)));
                }
                None
            }
            Event::Delta { index, delta: Delta::Text(text) }
                if self.texts.has(IndexKey::of(u64::from(index))) =>
            {
                if self.last != index && !self.text.is_empty() {
                    self.text.push_str("\\n\\n");
                }
                self.last = index;
                self.text.push_str(text.escaped());
                None
            }
            Event::BlockStart { .. } | Event::Delta { .. } | Event::BlockStop { .. } => None,
            Event::Finish { choice: 0, finish } => self.finish(finish, write),
            Event::Finish { .. } => None,
            Event::End if !self.ended => self.finish(Finish::Stop, write).or_else(|| {
                write(event);
                None
            }),
            _ => {
                write(event);
                None
            }
        }
    }

    fn finish(&mut self, finish: Finish<'_>, write: &mut impl FnMut(&Event<'_>)) -> Option<Bytes> {
        if std::mem::replace(&mut self.ended, true) {
            return None;
        }
        let summary = JsonStr::from_escaped(&self.text);
        let summary = summary.decode();
        let mut summary = summary.trim().to_owned();
        if summary.is_empty() || self.refused || finish == Finish::ContentFilter {
            return Some(failure("The model returned no summary of the conversation; please try again."));
        }
        if matches!(finish, Finish::Length | Finish::ContextFull) {
            summary.push_str(CUT);
        }
        let Some(sealed) = self.seal.seal(&summary) else {
            return Some(failure("The summary of the conversation cannot be encrypted."));
        };
        let mut item = Vec::with_capacity(sealed.len() + 96);
        wire::put_item(&self.id, &sealed, &mut item);
        let item = RawJson::from_text(std::str::from_utf8(&item).unwrap_or("{}"));
        let kind = BlockKind::Opaque { name: JsonStr::from_escaped(wire::ITEM), raw: item };
        write(&Event::BlockStart { index: 0, choice: 0, kind });
        write(&Event::BlockStop { index: 0 });
        write(&Event::Finish { choice: 0, finish: Finish::Stop });
        None
    }
}

/// Returns an error of the provider, as JSON text: another target is tried, and the client may retry.
fn failure(message: &str) -> Bytes {
    error_body("server_error", &[message])
}
