//! Conversation plan: the client's turns in the order that this format requires. System instructions are separate,
//! turns alternate, tool results come first in their turn, and blocks that the provider refuses are removed.

use std::borrow::Cow;

use base64_simd::STANDARD;
use smallvec::SmallVec;

use crate::canonical::dialect::ReasoningParameter;
use crate::canonical::{Block, Dialect, MediaSource, Request, Role, Turn};
use crate::wire::Format;
use crate::wire::automatic_marks::is_blank;
use crate::wire::codec::LossNotes;
use json::JsonStr;

/// Planned conversation.
#[derive(Debug, Default)]
pub(super) struct Plan<'r, 'a> {
    /// Blocks of the system prompt.
    pub(super) system: Vec<&'r Block<'a>>,
    /// Turns.
    pub(super) messages: Vec<Message<'r, 'a>>,
    /// Whether the last turn is a prefill of the response. It must not end in white space.
    pub(super) prefill: bool,
    /// Instructions that wait for a place behind a turn of the user.
    later: Vec<&'r Block<'a>>,
}

/// Blocks of a turn. Most turns have one or two, which need no allocation.
type TurnBlocks<'r, 'a> = SmallVec<[&'r Block<'a>; 2]>;

/// Planned turn. One without blocks is a filler, where the format requires a turn that the client did not send.
#[derive(Debug)]
pub(super) struct Message<'r, 'a> {
    pub(super) role: Role,
    pub(super) blocks: TurnBlocks<'r, 'a>,
    /// Tool results, collected separately until the turn is complete because they must come first.
    results: TurnBlocks<'r, 'a>,
}

impl<'r, 'a> Message<'r, 'a> {
    fn new(role: Role, blocks: TurnBlocks<'r, 'a>) -> Self {
        Message { role, blocks, results: SmallVec::new() }
    }

    fn filler() -> Self {
        Message::new(Role::User, SmallVec::new())
    }

    fn calls(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block, Block::ToolUse { .. }))
    }
}

impl<'r, 'a> Plan<'r, 'a> {
    /// Plans the conversation of a request. Blocks that cannot be carried are recorded in `notes`.
    pub(super) fn new(request: &'r Request<'a>, dialect: &Dialect<'_>, notes: &mut LossNotes) -> Self {
        // One message for each turn and a filler.
        let mut plan = Plan { messages: Vec::with_capacity(request.turns.len() + 1), ..Plan::default() };
        for turn in &request.turns {
            if !turn.name.is_empty() {
                notes.lose("name");
            }
            if !turn.phase.is_empty() {
                notes.lose("phase");
            }
            if turn.role.is_system() {
                plan.instruct(turn, dialect, notes);
            } else {
                plan.turn(turn, dialect, notes);
            }
        }
        plan.place_before(Role::Assistant);
        // Without a place, they precede the conversation.
        let left = std::mem::take(&mut plan.later);
        plan.system.extend(left);
        for message in plan.messages.iter_mut().filter(|message| !message.results.is_empty()) {
            message.results.append(&mut message.blocks);
            message.blocks = std::mem::take(&mut message.results);
        }
        if plan.messages.is_empty() {
            // The provider requires a message; send the instructions as one.
            let blocks = std::mem::take(&mut plan.system);
            plan.messages.push(Message::new(Role::User, blocks.into()));
        }
        plan.close(request, dialect, notes);
        // Some providers of this format require that a user turn comes first. Clients of this format comply already.
        let begun = plan.messages.first().is_some_and(|first| first.role == Role::Assistant);
        if begun && notes.from() != Format::Messages {
            plan.messages.insert(0, Message::filler());
        }
        plan
    }

    fn instruct(&mut self, turn: &'r Turn<'a>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
        let in_middle = dialect.system_in_middle && !self.messages.is_empty();
        let mut blocks = Vec::with_capacity(turn.blocks.len());
        for block in &turn.blocks {
            match block {
                Block::Text { .. } | Block::Refusal { .. } => {
                    if check_block(block, dialect, notes.from()).is_ok() {
                        blocks.push(block);
                    }
                }
                Block::Opaque { .. } if in_middle && notes.from() == Format::Messages => blocks.push(block),
                _ => notes.lose("system_content"),
            }
        }
        if in_middle && dialect.system_follows_user {
            self.later.append(&mut blocks);
        } else if in_middle && !blocks.is_empty() {
            self.messages.push(Message::new(Role::System, blocks.into()));
        } else {
            self.system.append(&mut blocks);
        }
    }

    /// Places instructions that must follow a turn of the user, before a turn of this role.
    fn place_before(&mut self, role: Role) {
        let follows_user = self.messages.last().is_some_and(|last| last.role == Role::User);
        if role == Role::Assistant && follows_user && !self.later.is_empty() {
            let blocks = std::mem::take(&mut self.later);
            self.messages.push(Message::new(Role::System, blocks.into()));
        }
    }

    fn turn(&mut self, turn: &'r Turn<'a>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
        for block in &turn.blocks {
            match check_block(block, dialect, notes.from()) {
                Ok(()) => {}
                Err(lost) => {
                    lost.note(notes);
                    continue;
                }
            }
            let media = matches!(block, Block::Image { .. } | Block::File { .. });
            if media && turn.role == Role::Assistant && notes.from() != Format::Messages {
                // The provider does not accept media in assistant turns.
                notes.lose("assistant_media");
                continue;
            }
            let is_result = matches!(block, Block::ToolResult { .. });
            if let Block::ToolResult { content, .. } = block {
                for part in content {
                    if let Err(lost) = check_result_block(part, dialect, notes.from()) {
                        lost.note(notes);
                    }
                }
            }
            if let Block::Image { detail, .. } = block
                && !matches!(detail.escaped(), "" | "auto")
            {
                notes.lose("image_detail");
            }
            // Adjacent turns of one role are joined, because roles must alternate.
            let role = if is_result { Role::User } else { turn.role };
            let joins = self.messages.last().is_some_and(|last| last.role == role);
            if !joins {
                self.place_before(role);
                self.messages.push(Message::new(role, SmallVec::new()));
            }
            let Some(last) = self.messages.last_mut() else { continue };
            if is_result {
                last.results.push(block);
            } else {
                last.blocks.push(block);
            }
        }
    }

    /// Decides about a conversation that ends with text of the model: prefill, removal or an additional user turn.
    fn close(&mut self, request: &Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
        let words = |block: &&Block<'_>| {
            matches!(block, Block::Text { .. } | Block::Refusal { .. } | Block::Reasoning { .. })
        };
        // Other endings are valid: a turn that the provider paused, or a call whose result follows.
        let ends_open = self
            .messages
            .last()
            .is_some_and(|last| last.role == Role::Assistant && last.blocks.iter().all(words));
        if !ends_open {
            return;
        }
        let own = notes.from() == Format::Messages;
        let told = dialect.reasoning.reasoning_parameter(request.thinking);
        let reasons = matches!(told, ReasoningParameter::Budget(_) | ReasoningParameter::Adaptive(_));
        // The provider refuses a prefill together with reasoning.
        if dialect.prefill && (own || !reasons) {
            self.prefill = true;
            return;
        }
        notes.lose("prefill");
        let prefixed = request.turns.last().is_some_and(|turn| turn.prefix);
        if (prefixed || own) && self.messages.len() > 1 {
            self.messages.pop();
        } else {
            // In other formats the last turn is not a prefill; keep its text and add a user turn.
            self.messages.push(Message::filler());
        }
    }

    /// Returns whether the last assistant turn calls tools without a reasoning block before. The provider refuses such
    /// a turn while reasoning is on.
    pub(super) fn lacks_reasoning(&self) -> bool {
        let last = self.messages.iter().rev().find(|message| message.role == Role::Assistant);
        last.is_some_and(|last| last.calls() && !matches!(last.blocks.first(), Some(Block::Reasoning { .. })))
    }
}

/// Reason why a block is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockLoss {
    /// The block is empty.
    Empty,
    /// The format cannot carry this element.
    Element(&'static str),
    /// The format cannot carry a file of this type.
    Kind,
}

impl BlockLoss {
    fn note(self, notes: &mut LossNotes) {
        match self {
            BlockLoss::Empty => {}
            BlockLoss::Element(element) => notes.lose(element),
            BlockLoss::Kind => {
                notes.refuse("file", "This model accepts PDF, image and plain text files only.");
            }
        }
    }
}

/// Returns whether a block can be written, or the reason why not.
pub(super) fn check_block(block: &Block<'_>, dialect: &Dialect<'_>, from: Format) -> Result<(), BlockLoss> {
    let own = from == Format::Messages;
    let only = |can: bool, element| if can { Ok(()) } else { Err(BlockLoss::Element(element)) };
    match block {
        Block::Text { text, .. } | Block::Refusal { text } => {
            if is_blank(*text) {
                Err(BlockLoss::Empty)
            } else {
                Ok(())
            }
        }
        Block::Image { source, .. } => match source {
            MediaSource::Base64 { .. } => Ok(()),
            MediaSource::Url { .. } => only(dialect.media_urls, "image_url"),
            MediaSource::Id { .. } => only(own, "file_id"),
            MediaSource::Text { .. } => Err(BlockLoss::Element("image_url")),
        },
        Block::File { source, .. } => match *source {
            MediaSource::Base64 { mime, data } => match DocumentForm::of(mime, data) {
                DocumentForm::Unknown => Err(BlockLoss::Kind),
                _ => Ok(()),
            },
            MediaSource::Url { .. } => only(dialect.media_urls, "file_url"),
            MediaSource::Id { .. } => only(own, "file_id"),
            MediaSource::Text { text } if is_blank(text) => Err(BlockLoss::Empty),
            MediaSource::Text { .. } => Ok(()),
        },
        Block::Audio { .. } => Err(BlockLoss::Element("audio")),
        Block::Video { .. } => Err(BlockLoss::Element("video")),
        // The provider accepts only reasoning that it has signed.
        Block::Reasoning { signature: seal, hidden, .. } => {
            only(seal.is_some() || dialect.own_envelopes && !hidden, "thinking_block")
        }
        Block::SearchResult(_) | Block::ToolUse { .. } | Block::ToolResult { .. } => Ok(()),
        Block::Opaque { .. } => only(own, "server_tool_block"),
    }
}

/// Returns whether a block can be part of a tool result, or the reason why not.
pub(super) fn check_result_block(
    block: &Block<'_>,
    dialect: &Dialect<'_>,
    from: Format,
) -> Result<(), BlockLoss> {
    match block {
        Block::Reasoning { .. } | Block::ToolUse { .. } | Block::ToolResult { .. } => {
            Err(BlockLoss::Element("tool_result_content"))
        }
        _ => check_block(block, dialect, from),
    }
}

/// Type of a base64 file in this format.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DocumentForm<'a> {
    /// PDF document.
    Pdf,
    /// Image with this subtype of `image/`.
    Image(&'a str),
    /// Text document.
    Text(String),
    /// A type that this format does not support.
    Unknown,
}

impl<'a> DocumentForm<'a> {
    /// Detects the type by the first bytes, then by the client's media type, then by whether the data is UTF-8 text.
    pub(super) fn of(mime: JsonStr<'a>, data: JsonStr<'a>) -> Self {
        let start = data.escaped().get(..32).unwrap_or(data.escaped()).replace("\\/", "/");
        if start.starts_with("JVBERi0") || mime.is("application/pdf") {
            return DocumentForm::Pdf;
        }
        if let Some(mime) = image_type(mime, data).strip_prefix("image/") {
            return DocumentForm::Image(mime);
        }
        match STANDARD.decode_to_vec(data.decode().as_bytes()).map(String::from_utf8) {
            Ok(Ok(text)) if !text.contains('\0') => DocumentForm::Text(text),
            _ => DocumentForm::Unknown,
        }
    }
}

/// Returns the media type of an image. The first bytes take precedence over the client's type, because the provider
/// refuses an image whose type does not match its bytes.
pub(super) fn image_type<'a>(mime: JsonStr<'a>, data: JsonStr<'a>) -> &'a str {
    const KNOWN: [(&str, &str); 5] = [
        ("iVBORw0KGgo", "image/png"),
        ("/9j/", "image/jpeg"),
        ("\\/9j\\/", "image/jpeg"),
        ("R0lGOD", "image/gif"),
        ("UklGR", "image/webp"),
    ];
    let seen = KNOWN.iter().find(|(start, _)| data.escaped().starts_with(start)).map(|(_, mime)| *mime);
    // WebP and WAV begin with the same bytes (RIFF).
    match seen {
        Some("image/webp") if !mime.escaped().starts_with("image") => mime.escaped(),
        Some(seen) => seen,
        None if mime.escaped().eq_ignore_ascii_case("image/jpg") => "image/jpeg",
        None => mime.escaped(),
    }
}

/// Returns the text without trailing white space.
pub(super) fn trimmed(text: JsonStr<'_>) -> JsonStr<'_> {
    let mut rest = text.escaped();
    loop {
        rest = rest.trim_end();
        let Some(before) = rest.strip_suffix(['n', 't', 'r']) else { break };
        // An escape, unless its backslash belongs to another escape.
        let slashes = before.bytes().rev().take_while(|&byte| byte == b'\\').count();
        if slashes % 2 == 0 {
            break;
        }
        rest = before.strip_suffix('\\').unwrap_or(before);
    }
    JsonStr::from_escaped(rest)
}

/// Returns a call's id with every character that this format does not allow replaced by `_`. The result is the same for
/// the call and for its tool result.
pub(super) fn call_id(id: JsonStr<'_>) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let plain = id.decode();
    if plain.is_empty() {
        return Cow::Borrowed("toolu_0");
    }
    if plain.chars().all(fits) {
        return plain;
    }
    Cow::Owned(plain.chars().map(|c| if fits(c) { c } else { '_' }).collect())
}
