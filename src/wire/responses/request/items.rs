//! The items of an input, as turns.

use super::super::text::SEAL_OF_TEXT;
use super::piece::{Piece, parts, since};
use super::{Fault, Path};
use crate::canonical::seal::Carried;
use crate::canonical::{Block, Input, Role, Seal, Source, ToolKind, Turn};
use crate::json::{Cursor, JsonStr, Kind, RawJson};

/// A conversation while it is read.
#[derive(Default)]
pub(super) struct Items<'a> {
    pub turns: Vec<Turn<'a>>,
    /// Tools that are offered in the middle of the conversation.
    pub tools: Vec<RawJson<'a>>,
    /// The last turn consists of parts that stood where items should.
    bare: bool,
    seen: Seen,
}

/// What is known of the blocks of the last turn, as far as they were looked at: each is looked at once.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// How many turns there were.
    turns: usize,
    /// How many of the last one's blocks were looked at.
    blocks: usize,
    spoke: bool,
    called: bool,
    /// Something was there that is no result.
    other: bool,
}

impl<'a> Items<'a> {
    /// Reads `input`: a string, or items.
    pub(super) fn read(&mut self, json: &mut Cursor<'a>, body: &'a str) -> Result<(), Fault> {
        match json.kind()? {
            Kind::String => {
                let text = Block::text(json.string()?);
                self.turns.push(Turn::new(Role::User, vec![text]));
            }
            Kind::Array => {
                json.begin_array()?;
                let mut number = 0;
                while json.next_element()? {
                    let path = Path::item(number);
                    number += 1;
                    if json.kind()? == Kind::String {
                        self.turns.push(Turn::new(Role::User, parts(json, body, path)?));
                        continue;
                    }
                    let from = json.offset();
                    let piece = Piece::item(json, body, path)?;
                    let raw = since(body, from, json);
                    self.item(piece, raw, path)?;
                }
            }
            Kind::Null => json.skip()?,
            _ => return Err(Fault::at("input", "a string or an array of items")),
        }
        Ok(())
    }

    fn item(&mut self, piece: Piece<'a>, raw: RawJson<'a>, path: Path) -> Result<(), Fault> {
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
            "additional_tools" => self.tools.extend(piece.tools),
            _ if piece.is_bare_part() => {
                let block = piece.part(raw, path)?;
                match self.turns.last_mut().filter(|_| bare) {
                    Some(turn) => turn.blocks.push(block),
                    None => self.turns.push(Turn::new(Role::User, vec![block])),
                }
                self.bare = true;
            }
            "" if piece.id.is_empty() => return Err(Fault::missing(format!("{path}.type"))),
            kind => {
                // A reference may come without a type.
                let name = if kind.is_empty() { "item_reference" } else { kind };
                let block = Block::Opaque { name: JsonStr::from_escaped(name), raw };
                if name.ends_with("_output") || name == "mcp_approval_response" {
                    self.results().blocks.push(block);
                } else {
                    self.answer(false).blocks.push(block);
                }
            }
        }
        Ok(())
    }

    fn message(&mut self, piece: Piece<'a>, path: Path) -> Result<(), Fault> {
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
        if role == Role::Assistant {
            let turn = self.answer(true);
            turn.blocks.extend(piece.content);
            turn.phase = piece.phase;
        } else {
            let turn = Turn { phase: piece.phase, name: piece.name, ..Turn::new(role, piece.content) };
            self.turns.push(turn);
        }
        Ok(())
    }

    /// The turn of the model that goes on, or a new one. `text`: what follows begins an answer, unless one that called
    /// tools goes on.
    fn answer(&mut self, text: bool) -> &mut Turn<'a> {
        let seen = self.look();
        let goes_on = self
            .turns
            .last()
            .is_some_and(|turn| turn.role == Role::Assistant && (!text || seen.called || !seen.spoke));
        self.turn(Role::Assistant, goes_on)
    }

    /// The turn of results that goes on, or a new one.
    fn results(&mut self) -> &mut Turn<'a> {
        let seen = self.look();
        let goes_on = self
            .turns
            .last()
            .is_some_and(|turn| turn.role == Role::User && !turn.blocks.is_empty() && !seen.other);
        self.turn(Role::User, goes_on)
    }

    /// Looks at what has come to the last turn. Blocks are appended, never taken out or made another kind.
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
        // A turn goes on only where there is one.
        #[expect(clippy::indexing_slicing)]
        &mut self.turns[last]
    }

    fn call(&mut self, piece: Piece<'a>, kind: ToolKind, path: Path) -> Result<(), Fault> {
        if piece.name.is_empty() {
            return Err(Fault::missing(format!("{path}.name")));
        }
        let carried = Carried::read(call_id(&piece, path)?);
        let block = Block::ToolUse {
            id: carried.id,
            name: piece.name,
            input: piece.input.unwrap_or(Input::Text(JsonStr::default())),
            kind,
            namespace: piece.namespace,
            seal: carried.seal,
            cache: None,
        };
        self.answer(false).blocks.push(block);
        Ok(())
    }

    fn result(&mut self, piece: Piece<'a>, kind: ToolKind, path: Path) -> Result<(), Fault> {
        let block = Block::ToolResult {
            id: Carried::read(call_id(&piece, path)?).id,
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

    fn reasoning(&mut self, piece: Piece<'a>) {
        let seal = Seal::read(piece.encrypted);
        // The summary, or the reasoning itself where there is none.
        let list = if piece.summary.is_empty() { piece.content } else { piece.summary };
        let text: Vec<JsonStr<'a>> = list.into_iter().filter_map(words).collect();
        let hidden = text.is_empty();
        if hidden && piece.id.escaped().starts_with(SEAL_OF_TEXT) && self.seal_text(&seal) {
            return;
        }
        // Without text and seal there is nothing left of it but an id, which means something to the provider alone
        // that keeps the item.
        if !hidden || seal.is_some() {
            self.answer(true).blocks.push(Block::Reasoning { text, seal, hidden });
        }
    }

    /// Puts a seal back on the text that it came with. False where that text is gone.
    fn seal_text(&mut self, carried: &Option<Seal<'a>>) -> bool {
        let turn = self.turns.last_mut().filter(|turn| turn.role == Role::Assistant);
        match turn {
            Some(turn) => match turn.blocks.last_mut() {
                Some(Block::Text { seal, .. }) if seal.is_none() => {
                    seal.clone_from(carried);
                    true
                }
                Some(_) => {
                    let text = JsonStr::default();
                    turn.blocks.push(Block::Text { text, cache: None, seal: carried.clone() });
                    true
                }
                None => false,
            },
            None => false,
        }
    }

    /// An image that the model made. What it carries stands in its id.
    fn image(&mut self, piece: &Piece<'a>) {
        let mime = match piece.output_format.escaped() {
            "jpeg" | "jpg" => "image/jpeg",
            "webp" => "image/webp",
            _ => "image/png",
        };
        let source = Source::Base64 { mime: JsonStr::from_escaped(mime), data: piece.result };
        let seal = Carried::read(piece.id).seal;
        let block = Block::Image { source, detail: JsonStr::default(), cache: None, seal };
        self.answer(false).blocks.push(block);
    }
}

fn call_id<'a>(piece: &Piece<'a>, path: Path) -> Result<JsonStr<'a>, Fault> {
    [piece.call_id, piece.id]
        .into_iter()
        .find(|id| !id.is_empty())
        .ok_or_else(|| Fault::missing(format!("{path}.call_id")))
}

/// The words of a part of reasoning.
fn words<'a>(block: Block<'a>) -> Option<JsonStr<'a>> {
    match block {
        Block::Reasoning { text, .. } => text.into_iter().next(),
        Block::Text { text, .. } => Some(text),
        _ => None,
    }
    .filter(|text| !text.is_empty())
}
