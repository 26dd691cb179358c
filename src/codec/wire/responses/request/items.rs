//! Decoder of `input`: converts items to canonical turns.

use super::super::text::SEAL_OF_TEXT;
use super::piece::{InputMembers, parts, since};
use super::{Fault, Path};
use crate::canonical::content::TYPICAL_TURNS;
use crate::canonical::seal::SignedCallId;
use crate::canonical::{Block, Input, MediaSource, ProviderSignature, Role, ToolKind, Turn};
use crate::wire::codec::means_no_arguments;
use json::{Cursor, JsonStr, RawJson, ValueKind};

/// Types of items that stand for no call and no result (openai 3.57.0, `ResponseInputItemParam`; Codex).
const ITEMS: [&str; 17] = [
    "additional_tools",
    "agent_message",
    "compaction",
    "compaction_summary",
    "compaction_trigger",
    "configuration_update",
    "context_compaction",
    "ghost_snapshot",
    "item_reference",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_list_tools",
    "message",
    "program",
    "reasoning",
    "web_search",
    "file_search",
];

/// Returns whether a type is one of an item. Providers add calls and results of tools, so that their names are open.
fn is_item(kind: &str) -> bool {
    let is_own = kind.contains(':') || ["_call", "_output", "_result"].iter().any(|end| kind.ends_with(end));
    is_own || ITEMS.contains(&kind)
}

/// Item with the result of a search over tools.
const TOOL_SEARCH_OUTPUT: &str = "tool_search_output";

/// Conversation decoder.
#[derive(Default)]
pub(super) struct Items<'a> {
    pub turns: Vec<Turn<'a>>,
    /// Tool lists of items, in their order. They extend the tools of the request, or are all of them: Codex sends no other
    /// list for some models.
    pub tools: Vec<ToolsOfItem<'a>>,
    /// Whether the last turn consists of parts in place of items. A further such part joins it.
    bare: bool,
    seen: Seen,
}

/// Tools that an item adds to those of the request.
pub(super) struct ToolsOfItem<'a> {
    pub item: Path,
    pub list: RawJson<'a>,
    /// Whether a search has loaded them (`tool_search_output`); otherwise the client adds them (`additional_tools`).
    pub loaded: bool,
}

/// Summary of the last turn's blocks. Each block is inspected once, so that a long turn does not take quadratic time.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Number of turns when the summary was made. A different number invalidates it.
    turns: usize,
    /// Number of blocks of the last turn that have been inspected.
    blocks: usize,
    spoke: bool,
    called: bool,
    /// Whether there is a block other than tool results and opaque blocks.
    other: bool,
}

impl<'a> Items<'a> {
    /// Reads `input`: a string, or an array of items.
    pub(super) fn read(&mut self, json: &mut Cursor<'a>, body: &'a str) -> Result<(), Fault> {
        match json.kind()? {
            ValueKind::String => {
                let text = Block::text(json.string()?);
                self.turns.push(Turn::new(Role::User, vec![text]));
            }
            ValueKind::Array => {
                self.turns.reserve(TYPICAL_TURNS);
                json.begin_array()?;
                let mut number = 0;
                while json.next_element()? {
                    let path = Path::item(number);
                    number += 1;
                    if json.kind()? == ValueKind::String {
                        self.turns.push(Turn::new(Role::User, parts(json, body, path)?));
                        continue;
                    }
                    let from = json.offset();
                    let piece = InputMembers::item(json, body, path)?;
                    let raw = since(body, from, json);
                    self.item(piece, raw, path)?;
                }
            }
            ValueKind::Null => json.skip()?,
            _ => return Err(Fault::at("input", "a string or an array of items")),
        }
        Ok(())
    }

    fn item(&mut self, piece: InputMembers<'a>, raw: RawJson<'a>, path: Path) -> Result<(), Fault> {
        // Any other item ends a run of parts without a message.
        let bare = std::mem::take(&mut self.bare);
        match piece.kind.escaped() {
            "" | "message" if !piece.role.is_empty() => self.message(piece, path)?,
            "message" => return Err(Fault::missing(format!("{path}.role"))),
            "function_call" => self.call(piece, ToolKind::Function, path)?,
            "custom_tool_call" => self.call(piece, ToolKind::Custom, path)?,
            "function_call_output" => self.result(piece, ToolKind::Function, path)?,
            "custom_tool_call_output" => self.result(piece, ToolKind::Custom, path)?,
            "reasoning" => self.reasoning(piece),
            "image_generation_call" if !piece.result.is_empty() => self.image(&piece),
            "additional_tools" => {
                let list = piece.tools.ok_or_else(|| Fault::missing(format!("{path}.tools")))?;
                self.tools.push(ToolsOfItem { item: path, list, loaded: false });
            }
            _ if piece.is_bare_part() => {
                let block = piece.part(raw, path)?;
                match self.turns.last_mut().filter(|_| bare) {
                    Some(turn) => turn.blocks.push(block),
                    None => self.turns.push(Turn::new(Role::User, vec![block])),
                }
                self.bare = true;
            }
            "" if piece.id.is_empty() => return Err(Fault::missing(format!("{path}.type"))),
            kind if !kind.is_empty() && !is_item(kind) => {
                return Err(Fault::at(
                    format!("{path}.type"),
                    &format!("a type of an input item, not '{kind}'"),
                ));
            }
            kind => {
                // An item reference may omit its type.
                let name = if kind.is_empty() { "item_reference" } else { kind };
                let block = Block::Opaque { name: JsonStr::from_escaped(name), raw };
                // The model has searched for these tools, and calls them from here on.
                if name == TOOL_SEARCH_OUTPUT
                    && let Some(list) = piece.tools.filter(|list| list.text().starts_with('['))
                {
                    self.tools.push(ToolsOfItem { item: path, list, loaded: true });
                }
                // Results belong to the user's turn, all other items to the assistant's.
                if name.ends_with("_output") || name == "mcp_approval_response" {
                    self.results().blocks.push(block);
                } else {
                    self.answer(false).blocks.push(block);
                }
            }
        }
        Ok(())
    }

    fn message(&mut self, piece: InputMembers<'a>, path: Path) -> Result<(), Fault> {
        let role = match piece.role.escaped() {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            "developer" => Role::Developer,
            _ => {
                return Err(Fault::at(
                    format!("{path}.role"),
                    "one of 'user', 'assistant', 'system' and 'developer'",
                ));
            }
        };
        if role != Role::Assistant && !piece.has_content {
            return Err(Fault::missing(format!("{path}.content")));
        }
        if role == Role::Assistant {
            let seen = self.look();
            // A turn has one phase: a message of another phase starts a new turn.
            let same_phase = self.turns.last().is_some_and(|turn| !seen.spoke || turn.phase == piece.phase);
            let turn = if same_phase { self.answer(true) } else { self.turn(Role::Assistant, false) };
            turn.blocks.extend(piece.content);
            turn.phase = piece.phase;
        } else {
            let turn = Turn { phase: piece.phase, name: piece.name, ..Turn::new(role, piece.content) };
            self.turns.push(turn);
        }
        Ok(())
    }

    /// Returns the assistant turn that the next block belongs to: the last turn if it continues, otherwise a new one.
    /// With `text`, the block is the start of a response: after text, a new turn starts unless the last turn has
    /// called tools.
    fn answer(&mut self, text: bool) -> &mut Turn<'a> {
        let seen = self.look();
        let goes_on = self
            .turns
            .last()
            .is_some_and(|turn| turn.role == Role::Assistant && (!text || seen.called || !seen.spoke));
        self.turn(Role::Assistant, goes_on)
    }

    /// Returns the user turn that the next tool result belongs to: the last turn if it has only results, otherwise a
    /// new one.
    fn results(&mut self) -> &mut Turn<'a> {
        let seen = self.look();
        let goes_on = self
            .turns
            .last()
            .is_some_and(|turn| turn.role == Role::User && !turn.blocks.is_empty() && !seen.other);
        self.turn(Role::User, goes_on)
    }

    /// Updates and returns the summary of the last turn's blocks. Blocks are only appended: they are never removed or
    /// changed to another kind.
    fn look(&mut self) -> Seen {
        if self.seen.turns != self.turns.len() {
            self.seen = Seen { turns: self.turns.len(), ..Seen::default() };
        }
        let seen = &mut self.seen;
        let blocks = self.turns.last().and_then(|turn| turn.blocks.get(seen.blocks..)).unwrap_or_default();
        for block in blocks {
            seen.blocks += 1;
            match block {
                Block::Text { .. } | Block::Refusal { .. } => (seen.spoke, seen.other) = (true, true),
                Block::ToolUse { .. } => (seen.called, seen.other) = (true, true),
                Block::ToolResult { .. } | Block::Opaque { .. } => {}
                _ => seen.other = true,
            }
        }
        *seen
    }

    fn turn(&mut self, role: Role, goes_on: bool) -> &mut Turn<'a> {
        if !goes_on {
            self.turns.push(Turn::new(role, Vec::new()));
        }
        let last = self.turns.len() - 1;
        // `goes_on` is true only if there is a turn; otherwise one has just been pushed.
        #[expect(clippy::indexing_slicing)]
        &mut self.turns[last]
    }

    fn call(&mut self, piece: InputMembers<'a>, kind: ToolKind, path: Path) -> Result<(), Fault> {
        if piece.name.is_empty() {
            return Err(Fault::missing(format!("{path}.name")));
        }
        let carried = SignedCallId::read(call_id(&piece, path)?);
        let input = match piece.input {
            Some(Input::Text(text)) if kind == ToolKind::Function && means_no_arguments(text) => None,
            input => input,
        };
        let block = Block::ToolUse {
            id: carried.id,
            name: piece.name,
            input: input.unwrap_or(Input::Text(JsonStr::default())),
            kind,
            namespace: piece.namespace,
            signature: carried.signature,
            cache: None,
        };
        self.answer(false).blocks.push(block);
        Ok(())
    }

    fn result(&mut self, piece: InputMembers<'a>, kind: ToolKind, path: Path) -> Result<(), Fault> {
        let block = Block::ToolResult {
            id: SignedCallId::read(call_id(&piece, path)?).id,
            name: piece.name,
            content: piece.output,
            object: piece.output_object,
            error: false,
            kind,
            cache: None,
        };
        self.results().blocks.push(block);
        Ok(())
    }

    fn reasoning(&mut self, piece: InputMembers<'a>) {
        let seal = ProviderSignature::read(piece.encrypted);
        // The summary, or the reasoning text if there is no summary.
        let list = if piece.summary.is_empty() { piece.content } else { piece.summary };
        let text: Vec<JsonStr<'a>> = list.into_iter().filter_map(words).collect();
        let hidden = text.is_empty();
        if hidden && piece.id.escaped().starts_with(SEAL_OF_TEXT) && self.seal_text(&seal) {
            return;
        }
        // Without text and signature only an id is left, which is meaningful only to a provider that stores the item.
        if !hidden || seal.is_some() {
            self.answer(true).blocks.push(Block::Reasoning { text, signature: seal, hidden });
        }
    }

    /// Restores a provider signature on the text that it was issued with. Returns false if that text is missing.
    fn seal_text(&mut self, carried: &Option<ProviderSignature<'a>>) -> bool {
        let turn = self.turns.last_mut().filter(|turn| turn.role == Role::Assistant);
        match turn {
            Some(turn) => match turn.blocks.last_mut() {
                Some(Block::Text { signature: seal, .. }) if seal.is_none() => {
                    seal.clone_from(carried);
                    true
                }
                Some(_) => {
                    let text = JsonStr::default();
                    turn.blocks.push(Block::Text { text, cache: None, signature: carried.clone() });
                    true
                }
                None => false,
            },
            None => false,
        }
    }

    /// Reads an image that the model made. Its provider signature is encoded in its id.
    fn image(&mut self, piece: &InputMembers<'a>) {
        let mime = match piece.output_format.escaped() {
            "jpeg" | "jpg" => "image/jpeg",
            "webp" => "image/webp",
            _ => "image/png",
        };
        let source = MediaSource::Base64 { mime: JsonStr::from_escaped(mime), data: piece.result };
        let seal = SignedCallId::read(piece.id).signature;
        let block = Block::Image { source, detail: JsonStr::default(), cache: None, signature: seal };
        self.answer(false).blocks.push(block);
    }
}

fn call_id<'a>(piece: &InputMembers<'a>, path: Path) -> Result<JsonStr<'a>, Fault> {
    [piece.call_id, piece.id]
        .into_iter()
        .find(|id| !id.is_empty())
        .ok_or_else(|| Fault::missing(format!("{path}.call_id")))
}

/// Returns the text of a reasoning part; `None` if it has no text.
fn words<'a>(block: Block<'a>) -> Option<JsonStr<'a>> {
    match block {
        Block::Reasoning { text, .. } => text.into_iter().next(),
        Block::Text { text, .. } => Some(text),
        _ => None,
    }
    .filter(|text| !text.is_empty())
}
