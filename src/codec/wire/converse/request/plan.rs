//! Conversation plan: the client's turns in the order that this format requires. Instructions are separate, turns
//! alternate and begin with the user, tool results come first in their turn, and blocks that the service refuses are
//! removed.

use smallvec::SmallVec;

use super::document::{DocumentContent, is_stored};
use crate::canonical::dialect::ReasoningParameter;
use crate::canonical::{Block, Dialect, MediaSource, Request, Role, Turn};
use crate::wire::Format;
use crate::wire::automatic_marks::is_blank;
use crate::wire::codec::LossNotes;
use crate::wire::converse::media::{self, MediaKind};
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

    fn has_calls(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block, Block::ToolUse { .. }))
    }
}

impl<'r, 'a> Plan<'r, 'a> {
    /// Plans the conversation of a request. Blocks that cannot be carried are recorded in `notes`.
    pub(super) fn new(request: &'r Request<'a>, dialect: &Dialect<'_>, notes: &mut LossNotes) -> Self {
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
        for message in plan.messages.iter_mut().filter(|message| !message.results.is_empty()) {
            message.results.append(&mut message.blocks);
            message.blocks = std::mem::take(&mut message.results);
        }
        if plan.messages.is_empty() {
            // The service requires a message; send the instructions as one.
            let blocks = std::mem::take(&mut plan.system);
            plan.messages.push(Message::new(Role::User, blocks.into()));
        }
        plan.close(request, dialect, notes);
        // Some models require that a user turn comes first. Clients of this format know their model.
        let begins_with_answer = plan.messages.first().is_some_and(|first| first.role == Role::Assistant);
        if begins_with_answer && notes.from() != Format::Converse {
            plan.messages.insert(0, Message::filler());
        }
        plan
    }

    fn instruct(&mut self, turn: &'r Turn<'a>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
        let in_middle = dialect.system_in_middle && !self.messages.is_empty();
        let own = notes.from() == Format::Converse;
        let mut blocks = Vec::with_capacity(turn.blocks.len());
        for block in &turn.blocks {
            match block {
                Block::Text { text, .. } | Block::Refusal { text } => {
                    if !is_blank(*text) {
                        blocks.push(block);
                    }
                }
                Block::Opaque { .. } if own && in_middle => blocks.push(block),
                _ => notes.lose("system_content"),
            }
        }
        if in_middle && !blocks.is_empty() {
            self.messages.push(Message::new(Role::System, blocks.into()));
        } else {
            self.system.append(&mut blocks);
        }
    }

    fn turn(&mut self, turn: &'r Turn<'a>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
        let own = notes.from() == Format::Converse;
        for block in &turn.blocks {
            if let Err(lost) = check_block(block, dialect, own) {
                lost.note(notes);
                continue;
            }
            let is_media = matches!(
                block,
                Block::Image { .. } | Block::File { .. } | Block::Audio { .. } | Block::Video { .. }
            );
            if is_media && turn.role == Role::Assistant && !own {
                notes.lose("assistant_media");
                continue;
            }
            let is_result = matches!(block, Block::ToolResult { .. });
            if let Block::ToolResult { content, .. } = block {
                for part in content {
                    if let Err(lost) = check_result_block(part, dialect, own) {
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
            if !self.messages.last().is_some_and(|last| last.role == role) {
                self.messages.push(Message::new(role, SmallVec::new()));
            }
            let Some(last) = self.messages.last_mut() else { continue };
            if is_result { &mut last.results } else { &mut last.blocks }.push(block);
        }
    }

    /// Decides about a conversation that ends with text of the model: prefill, removal or an additional user turn.
    fn close(&mut self, request: &Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
        let is_text = |block: &&Block<'_>| {
            matches!(block, Block::Text { .. } | Block::Refusal { .. } | Block::Reasoning { .. })
        };
        let ends_open = self
            .messages
            .last()
            .is_some_and(|last| last.role == Role::Assistant && last.blocks.iter().all(is_text));
        if !ends_open {
            return;
        }
        let own = notes.from() == Format::Converse;
        let parameter = dialect.reasoning.reasoning_parameter(request.thinking);
        let reasons = matches!(parameter, ReasoningParameter::Budget(_) | ReasoningParameter::Adaptive(_));
        if dialect.prefill && (own || !reasons) {
            self.prefill = true;
            return;
        }
        notes.lose("prefill");
        let is_prefix = request.turns.last().is_some_and(|turn| turn.prefix);
        if (is_prefix || own) && self.messages.len() > 1 {
            self.messages.pop();
        } else {
            // In other formats the last turn is not a prefill; keep its text and add a user turn.
            self.messages.push(Message::filler());
        }
    }

    /// Returns whether the last assistant turn calls tools without a reasoning block before. Models with signed
    /// reasoning refuse such a turn while reasoning is on.
    pub(super) fn lacks_reasoning(&self) -> bool {
        let last = self.messages.iter().rev().find(|message| message.role == Role::Assistant);
        last.is_some_and(|last| {
            last.has_calls() && !matches!(last.blocks.first(), Some(Block::Reasoning { .. }))
        })
    }

    /// Returns whether the conversation has calls or results of tools.
    pub(super) fn has_tools(&self) -> bool {
        let is_tool = |block: &&&Block<'_>| matches!(block, Block::ToolUse { .. } | Block::ToolResult { .. });
        self.messages.iter().flat_map(|message| &message.blocks).any(|block| is_tool(&block))
    }
}

/// Reason why a block is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockLoss {
    /// The block is empty.
    Empty,
    /// The format cannot carry this element.
    Element(&'static str),
    /// The format has no name for the type of this image.
    ImageType,
    /// The format cannot carry a file of this type.
    FileType,
}

impl BlockLoss {
    fn note(self, notes: &mut LossNotes) {
        match self {
            BlockLoss::Empty => {}
            BlockLoss::Element(element) => notes.lose(element),
            BlockLoss::ImageType => {
                notes.refuse("image", "This model accepts PNG, JPEG, GIF and WebP images only.");
            }
            BlockLoss::FileType => {
                notes.refuse(
                    "file",
                    "This model accepts PDF, Office, HTML, Markdown, CSV, text and image files only.",
                );
            }
        }
    }
}

/// Returns whether a block can be written, or the reason why not. `own` is whether the client speaks this format.
pub(super) fn check_block(block: &Block<'_>, dialect: &Dialect<'_>, own: bool) -> Result<(), BlockLoss> {
    let only = |can: bool, element| if can { Ok(()) } else { Err(BlockLoss::Element(element)) };
    match block {
        Block::Text { text, .. } | Block::Refusal { text } => {
            if is_blank(*text) {
                Err(BlockLoss::Empty)
            } else {
                Ok(())
            }
        }
        Block::Image { source, .. } => match *source {
            MediaSource::Base64 { mime, data } => {
                image_format(mime, data).map(|_| ()).ok_or(BlockLoss::ImageType)
            }
            MediaSource::Url { url, .. } => only(is_stored(url), "image_url"),
            MediaSource::Id { .. } => Err(BlockLoss::Element("file_id")),
            MediaSource::Text { .. } => Err(BlockLoss::Element("image_url")),
        },
        Block::File { source, name, .. } => match *source {
            MediaSource::Text { text } if is_blank(text) => Err(BlockLoss::Empty),
            MediaSource::Id { .. } => Err(BlockLoss::Element("file_id")),
            source => match DocumentContent::of(source, *name) {
                Some(DocumentContent::Unknown) => Err(BlockLoss::FileType),
                Some(_) => Ok(()),
                None => Err(BlockLoss::Element("file_url")),
            },
        },
        Block::Audio { source } => {
            let takes = own || dialect.supports("audio");
            only(takes && media_format(MediaKind::Audio, *source).is_some(), "audio")
        }
        Block::Video { source } => {
            let takes = own || dialect.supports("video");
            only(takes && media_format(MediaKind::Video, *source).is_some(), "video")
        }
        // Models that sign their reasoning refuse any that they have not signed.
        Block::Reasoning { signature, .. } => {
            let shows = own && !dialect.signs;
            only(signature.is_some() || shows || dialect.reasoning_replay, "thinking_block")
        }
        Block::SearchResult(_) | Block::ToolUse { .. } | Block::ToolResult { .. } => Ok(()),
        Block::Opaque { .. } => only(own, "server_tool_block"),
    }
}

/// Returns whether a block can be part of a tool result, or the reason why not.
pub(super) fn check_result_block(
    block: &Block<'_>,
    dialect: &Dialect<'_>,
    own: bool,
) -> Result<(), BlockLoss> {
    match block {
        Block::Reasoning { .. } | Block::ToolUse { .. } | Block::ToolResult { .. } | Block::Audio { .. } => {
            Err(BlockLoss::Element("tool_result_content"))
        }
        _ => check_block(block, dialect, own),
    }
}

/// Returns the format of an image. Its first bytes take precedence over the client's type, because the service refuses
/// an image whose type does not match its bytes.
pub(super) fn image_format(mime: JsonStr<'_>, data: JsonStr<'_>) -> Option<&'static str> {
    let by_bytes = media::format_of_bytes(data.escaped());
    by_bytes.or_else(|| MediaKind::Image.format(&mime.decode()))
}

/// Returns the format of audio or video; `None` if the format has no name for it, or cannot read the source.
pub(super) fn media_format(kind: MediaKind, source: MediaSource<'_>) -> Option<&'static str> {
    match source {
        MediaSource::Base64 { mime, .. } => kind.format(&mime.decode()),
        MediaSource::Url { url, mime } if is_stored(url) => kind.format(&mime.decode()).or_else(|| {
            let url = url.decode();
            let (_, extension) = url.rsplit_once('.')?;
            kind.format(kind.media_type(extension))
        }),
        _ => None,
    }
}
