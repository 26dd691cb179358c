//! The conversation as the format wants it: instructions apart, turns that alternate, results of tools before anything
//! else, and nothing in it that the provider refuses.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::canonical::dialect::CacheMarks;
use crate::canonical::{Block, Dialect, Request, Role, Source, Turn};
use crate::json::JsonStr;
use crate::wire::Format;
use crate::wire::codec::LossNotes;

/// What is written.
#[derive(Debug, Default)]
pub(super) struct Plan<'r, 'a> {
    /// The instructions.
    pub(super) system: Vec<&'r Block<'a>>,
    /// The turns.
    pub(super) messages: Vec<Message<'r, 'a>>,
    /// The last turn is the beginning of the answer: it must not end in white space.
    pub(super) prefill: bool,
}

/// A turn; one without blocks is a filler, where the format wants a turn and the client has nothing to say.
#[derive(Debug)]
pub(super) struct Message<'r, 'a> {
    pub(super) role: Role,
    pub(super) blocks: Vec<&'r Block<'a>>,
    /// Results of tools, which come before everything else, until the turn is complete.
    results: Vec<&'r Block<'a>>,
}

impl<'r, 'a> Message<'r, 'a> {
    fn new(role: Role, blocks: Vec<&'r Block<'a>>) -> Self {
        Message { role, blocks, results: Vec::new() }
    }

    fn filler() -> Self {
        Message::new(Role::User, Vec::new())
    }

    fn calls(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block, Block::ToolUse { .. }))
    }
}

impl<'r, 'a> Plan<'r, 'a> {
    /// Plans the request's conversation.
    pub(super) fn new(request: &'r Request<'a>, dialect: &Dialect<'_>, notes: &mut LossNotes) -> Self {
        let mut plan = Plan::default();
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
        for message in plan.messages.iter_mut().filter(|message| !message.results.is_empty()) {
            message.results.append(&mut message.blocks);
            message.blocks = std::mem::take(&mut message.results);
        }
        if plan.messages.is_empty() {
            // Instructions alone are no conversation.
            let blocks = std::mem::take(&mut plan.system);
            plan.messages.push(Message::new(Role::User, blocks));
        }
        plan.close(request, dialect, notes);
        // Some providers of the format insist on it; a client of the format knows its provider.
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
                    if carried(block, dialect, notes.from()).is_ok() {
                        blocks.push(block);
                    }
                }
                Block::Opaque { .. } if in_middle && notes.from() == Format::Messages => blocks.push(block),
                _ => notes.lose("system_content"),
            }
        }
        if in_middle && !blocks.is_empty() {
            self.messages.push(Message::new(Role::System, blocks));
        } else {
            self.system.append(&mut blocks);
        }
    }

    fn turn(&mut self, turn: &'r Turn<'a>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
        for block in &turn.blocks {
            match carried(block, dialect, notes.from()) {
                Ok(()) => {}
                Err(lost) => {
                    lost.note(notes);
                    continue;
                }
            }
            let media = matches!(block, Block::Image { .. } | Block::File { .. });
            if media && turn.role == Role::Assistant && notes.from() != Format::Messages {
                // What the model has made cannot be shown to it as its own words.
                notes.lose("assistant_media");
                continue;
            }
            let is_result = matches!(block, Block::ToolResult { .. });
            if let Block::ToolResult { content, .. } = block {
                for part in content {
                    if let Err(lost) = carried_in_result(part, dialect, notes.from()) {
                        lost.note(notes);
                    }
                }
            }
            if let Block::Image { detail, .. } = block
                && !matches!(detail.escaped(), "" | "auto")
            {
                notes.lose("image_detail");
            }
            let role = if is_result { Role::User } else { turn.role };
            let joins = self.messages.last().is_some_and(|last| last.role == role);
            if !joins {
                self.messages.push(Message::new(role, Vec::new()));
            }
            let Some(last) = self.messages.last_mut() else { continue };
            if is_result {
                last.results.push(block);
            } else {
                last.blocks.push(block);
            }
        }
    }

    /// What to do about a conversation that ends with the model's words.
    fn close(&mut self, request: &Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
        let words = |block: &&Block<'_>| {
            matches!(block, Block::Text { .. } | Block::Refusal { .. } | Block::Reasoning { .. })
        };
        // A turn that ends otherwise is one that the provider paused, or a call that waits for its result.
        let ends_open = self
            .messages
            .last()
            .is_some_and(|last| last.role == Role::Assistant && last.blocks.iter().all(words));
        if !ends_open {
            return;
        }
        let own = notes.from() == Format::Messages;
        let told = dialect.reasoning.tell(request.thinking);
        let reasons = matches!(told, CacheMarks::Budget(_) | CacheMarks::Adaptive(_));
        // A model that reasons begins its answers itself.
        if dialect.prefill && (own || !reasons) {
            self.prefill = true;
            return;
        }
        notes.lose("prefill");
        let prefixed = request.turns.last().is_some_and(|turn| turn.prefix);
        if (prefixed || own) && self.messages.len() > 1 {
            self.messages.pop();
        } else {
            // To other formats it is a turn like any other, and its words are worth more than its place.
            self.messages.push(Message::filler());
        }
    }

    /// The last turn of the model calls tools and shows no reasoning before: the provider would miss it.
    pub(super) fn lacks_reasoning(&self) -> bool {
        let last = self.messages.iter().rev().find(|message| message.role == Role::Assistant);
        last.is_some_and(|last| last.calls() && !matches!(last.blocks.first(), Some(Block::Reasoning { .. })))
    }
}

/// Why a block is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// It says nothing.
    Empty,
    /// The format has no place for it.
    Element(&'static str),
    /// The format has no place for a file of this kind.
    Kind,
}

impl Lost {
    fn note(self, notes: &mut LossNotes) {
        match self {
            Lost::Empty => {}
            Lost::Element(element) => notes.lose(element),
            Lost::Kind => {
                notes.refuse("file", "This model takes PDF, image and plain text files only.");
            }
        }
    }
}

/// Whether a block can be written.
pub(super) fn carried(block: &Block<'_>, dialect: &Dialect<'_>, from: Format) -> Result<(), Lost> {
    let own = from == Format::Messages;
    let only = |can: bool, element| if can { Ok(()) } else { Err(Lost::Element(element)) };
    match block {
        Block::Text { text, .. } | Block::Refusal { text } => {
            if is_blank(*text) {
                Err(Lost::Empty)
            } else {
                Ok(())
            }
        }
        Block::Image { source, .. } => match source {
            Source::Base64 { .. } => Ok(()),
            Source::Url { .. } => only(dialect.media_urls, "image_url"),
            Source::Id { .. } => only(own, "file_id"),
            Source::Text { .. } => Err(Lost::Element("image_url")),
        },
        Block::File { source, .. } => match *source {
            Source::Base64 { mime, data } => match Document::of(mime, data) {
                Document::Unknown => Err(Lost::Kind),
                _ => Ok(()),
            },
            Source::Url { .. } => only(dialect.media_urls, "file_url"),
            Source::Id { .. } => only(own, "file_id"),
            Source::Text { text } if is_blank(text) => Err(Lost::Empty),
            Source::Text { .. } => Ok(()),
        },
        Block::Audio { .. } => Err(Lost::Element("audio")),
        Block::Video { .. } => Err(Lost::Element("video")),
        // The provider takes only what it has signed.
        Block::Reasoning { seal, .. } => only(seal.is_some(), "thinking_block"),
        Block::ToolUse { .. } | Block::ToolResult { .. } => Ok(()),
        Block::Opaque { .. } => only(own, "server_tool_block"),
    }
}

/// Whether a block can stand in the result of a tool.
pub(super) fn carried_in_result(block: &Block<'_>, dialect: &Dialect<'_>, from: Format) -> Result<(), Lost> {
    match block {
        Block::Reasoning { .. } | Block::ToolUse { .. } | Block::ToolResult { .. } => {
            Err(Lost::Element("tool_result_content"))
        }
        _ => carried(block, dialect, from),
    }
}

/// What a file in base64 is to this format.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Document<'a> {
    /// A PDF.
    Pdf,
    /// An image, of this type.
    Image(&'a str),
    /// Text.
    Text(String),
    /// Nothing that it takes.
    Unknown,
}

impl<'a> Document<'a> {
    /// Judges by the first bytes, then by what the client says.
    pub(super) fn of(mime: JsonStr<'a>, data: JsonStr<'a>) -> Self {
        let start = data.escaped().get(..32).unwrap_or(data.escaped()).replace("\\/", "/");
        if start.starts_with("JVBERi0") || mime.is("application/pdf") {
            return Document::Pdf;
        }
        if let Some(mime) = image_type(mime, data).strip_prefix("image/") {
            return Document::Image(mime);
        }
        match STANDARD.decode(data.decode().as_bytes()).map(String::from_utf8) {
            Ok(Ok(text)) if !text.contains('\0') => Document::Text(text),
            _ => Document::Unknown,
        }
    }
}

/// The type of an image. The provider refuses one that its bytes belie, so the bytes are asked first.
pub(super) fn image_type<'a>(mime: JsonStr<'a>, data: JsonStr<'a>) -> &'a str {
    const KNOWN: [(&str, &str); 5] = [
        ("iVBORw0KGgo", "image/png"),
        ("/9j/", "image/jpeg"),
        ("\\/9j\\/", "image/jpeg"),
        ("R0lGOD", "image/gif"),
        ("UklGR", "image/webp"),
    ];
    let seen = KNOWN.iter().find(|(start, _)| data.escaped().starts_with(start)).map(|(_, mime)| *mime);
    // The beginning of a WebP image is that of a sound as well.
    match seen {
        Some("image/webp") if !mime.escaped().starts_with("image") => mime.escaped(),
        Some(seen) => seen,
        None if mime.escaped().eq_ignore_ascii_case("image/jpg") => "image/jpeg",
        None => mime.escaped(),
    }
}

/// Nothing but white space, which the provider takes for nothing.
pub(super) fn is_blank(text: JsonStr<'_>) -> bool {
    let mut rest = text.escaped();
    loop {
        rest = rest.trim_start();
        match rest.as_bytes() {
            [b'\\', b'n' | b't' | b'r', ..] => rest = rest.get(2..).unwrap_or_default(),
            left => return left.is_empty(),
        }
    }
}

/// The text without the white space at its end.
pub(super) fn trimmed(text: JsonStr<'_>) -> JsonStr<'_> {
    let mut rest = text.escaped();
    loop {
        rest = rest.trim_end();
        let Some(before) = rest.strip_suffix(['n', 't', 'r']) else { break };
        // An escape, unless its backslash is one half of another.
        let slashes = before.bytes().rev().take_while(|&byte| byte == b'\\').count();
        if slashes % 2 == 0 {
            break;
        }
        rest = before.strip_suffix('\\').unwrap_or(before);
    }
    JsonStr::from_escaped(rest)
}

/// A call's id in the characters that the format allows, the same for the call and for its result.
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
