//! Encoder of the conversation: turns to messages.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::media::{PartsEncoder, document_text};
use crate::canonical::{
    Block, Input, ProviderSignature, Request, ResultObject, Role, Thinking, ToolKind, Turn,
};
use crate::wire::chat::details::write_again;
use json::{JsonStr, RopeBuilder, Sink, Writer, push_escaped};

/// Text of a tool result that consists only of an image or a file, which follows in a separate user message.
const SEE_BELOW: &str = "The result is in the next message.";

/// Encodes `messages`.
pub(super) fn write(
    json: &mut Writer<'_, RopeBuilder>,
    request: &Request<'_>,
    parts: &mut PartsEncoder<'_, '_>,
) {
    let is_on = request.thinking != Thinking::Off || parts.dialect.reasons(Thinking::Off);
    let reasons = parts.dialect.quirks.calls_need_reasoning && is_on;
    let mut writer = Conversation { json, parts, media: SmallVec::new(), reasons, after_results: false };
    writer.json.key("messages").begin_array();
    let in_middle = writer.parts.dialect.system_in_middle;
    if !in_middle {
        request.turns.iter().filter(|turn| turn.role.is_system()).for_each(|turn| writer.plain(turn));
    }
    let mut rest = request.turns.as_slice();
    while let Some(first) = rest.first() {
        let run = |role: Role| rest.iter().take_while(|turn| turn.role == role).count();
        let count = match first.role {
            Role::User => run(Role::User),
            // Formats with items instead of messages split one assistant message into several turns; join them.
            Role::Assistant if !writer.parts.same_format() => run(Role::Assistant),
            _ => 1,
        };
        let (turns, behind) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        match first.role {
            Role::System | Role::Developer if in_middle => writer.plain(first),
            Role::System | Role::Developer => {}
            Role::User => writer.users(turns),
            Role::Assistant => writer.assistant(turns, behind.is_empty()),
        }
        rest = behind;
    }
    writer.flush();
    writer.json.end_array();
}

/// Text of the message of the model between tool messages and a user message, for a provider that requires one.
const BRIDGE: &str = "OK.";

/// Separator between texts that were separate parts, as the inside of a JSON string.
const APART: &str = r"\n\n";

struct Conversation<'w, 'o, 'p, 'r, 'd, 'b, 'a> {
    json: &'w mut Writer<'o, RopeBuilder>,
    parts: &'p mut PartsEncoder<'r, 'd>,
    /// Media that cannot be in the message where they occurred. They follow in the next user message.
    media: SmallVec<[&'b Block<'a>; 2]>,
    /// Whether the provider requires reasoning in a message with tool calls.
    reasons: bool,
    /// Whether the last message is a result.
    after_results: bool,
}

/// Returns whether a block of a user's turn becomes a content part.
fn is_part(block: &Block<'_>) -> bool {
    !matches!(block, Block::ToolResult { .. } | Block::Reasoning { .. } | Block::ToolUse { .. })
}

/// Returns the text of a block as the inside of a JSON string. `None` if the block is not text or a text document.
fn text_of<'t>(block: &Block<'t>, same_format: bool) -> Option<Cow<'t, str>> {
    match block {
        Block::Text { text, .. } => Some(Cow::Borrowed(text.escaped())),
        Block::File { source, name, .. } => document_text(source, *name, same_format),
        _ => None,
    }
}

/// Returns whether a block can be part of a tool message: text and text documents.
fn says(block: &Block<'_>, same_format: bool) -> bool {
    match block {
        Block::File { source, name, .. } => document_text(source, *name, same_format).is_some(),
        block => !is_media(block),
    }
}

fn is_media(block: &Block<'_>) -> bool {
    matches!(block, Block::Image { .. } | Block::File { .. } | Block::Audio { .. } | Block::Video { .. })
}

impl<'b, 'a> Conversation<'_, '_, '_, '_, '_, 'b, 'a> {
    fn role(&self, role: Role) -> &'static str {
        match role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::System | Role::Developer if self.parts.dialect.developer_role => "developer",
            Role::System | Role::Developer => "system",
        }
    }

    /// Writes a message with text and other content parts.
    fn plain(&mut self, turn: &'b Turn<'a>) {
        self.message(turn.role, turn.name, turn.blocks.iter().filter(|block| is_part(block)));
    }

    fn message(
        &mut self,
        role: Role,
        name: JsonStr<'_>,
        blocks: impl Iterator<Item = &'b Block<'a>> + Clone,
    ) {
        // Providers refuse messages without content. Messages of the same format pass as the client wrote them.
        let nothing = blocks.clone().next().is_none() && (role != Role::User || self.media.is_empty());
        if nothing && !self.parts.same_format() {
            return;
        }
        let role_name = self.role(role);
        self.json.begin_object();
        self.json.key("role").string(role_name);
        if !name.is_empty() {
            self.json.key("name").paste(name);
        }
        self.json.key("content");
        let media = if role == Role::User { std::mem::take(&mut self.media) } else { SmallVec::new() };
        self.content(media.iter().copied().chain(blocks), APART);
        self.json.end_object();
    }

    /// Writes the content: a single text as a string, which every provider accepts, anything else as a list of parts.
    /// `between` separates texts that are joined to one string.
    fn content(&mut self, blocks: impl Iterator<Item = &'b Block<'a>> + Clone, between: &str) {
        let mut alone = blocks.clone();
        let same_format = self.parts.same_format();
        match (alone.next(), alone.next()) {
            (None, _) => {
                self.json.string("");
            }
            (Some(Block::Text { text, cache, .. }), None) if !self.parts.writes_cache_mark(*cache) => {
                self.json.paste(*text);
                if cache.is_some() {
                    self.parts.notes.lose(super::media::CACHE_CONTROL);
                }
            }
            _ if self.joins(blocks.clone()) => {
                self.json.pasted(|out| {
                    for (at, text) in blocks.filter_map(|block| text_of(block, same_format)).enumerate() {
                        if at > 0 {
                            out.put_slice(between.as_bytes());
                        }
                        out.put_slice(text.as_bytes());
                    }
                });
            }
            _ => {
                self.json.begin_array();
                blocks.for_each(|block| self.parts.part(self.json, block));
                self.json.end_array();
            }
        }
    }

    /// Returns whether the blocks are texts that the provider requires as one string.
    fn joins(&self, mut blocks: impl Iterator<Item = &'b Block<'a>>) -> bool {
        self.parts.dialect.quirks.joins_texts
            && blocks.all(|block| match block {
                Block::Text { cache, .. } | Block::File { cache, .. } => {
                    !self.parts.writes_cache_mark(*cache)
                        && text_of(block, self.parts.same_format()).is_some()
                }
                _ => false,
            })
    }

    /// Writes user turns. Tool results come first, because nothing may stand between calls and their results.
    fn users(&mut self, turns: &'b [Turn<'a>]) {
        for block in turns.iter().flat_map(|turn| &turn.blocks) {
            self.result(block);
        }
        // Instructions between a result and the user's next message may have moved to the beginning.
        let results =
            self.after_results || turns.iter().flat_map(|turn| &turn.blocks).any(|block| !is_part(block));
        let follows = !self.media.is_empty() || turns.iter().flat_map(|turn| &turn.blocks).any(is_part);
        if results && follows && self.parts.dialect.quirks.bridges_results {
            // The provider refuses a user message behind tool messages.
            self.json.begin_object().key("role").string("assistant").key("content").string(BRIDGE);
            self.json.end_object();
        }
        for turn in turns {
            let only_results = !turn.blocks.is_empty() && !turn.blocks.iter().any(is_part);
            if !only_results {
                self.plain(turn);
            }
        }
        self.flush();
        self.after_results = results && !follows;
    }

    /// Writes media that no user message has included.
    fn flush(&mut self) {
        if !self.media.is_empty() {
            self.message(Role::User, JsonStr::default(), std::iter::empty());
        }
    }

    fn result(&mut self, block: &'b Block<'a>) {
        let Block::ToolResult { id, name, content, object, cache, .. } = block else { return };
        self.json.begin_object();
        self.json.key("role").string("tool");
        self.json.key("tool_call_id").paste(*id);
        // Mistral expects the name of the tool; OpenAI has no such member.
        if !name.is_empty() && super::encode::supports_extension(self.parts.dialect, "tool_name") {
            self.json.key("name").paste(*name);
        }
        self.json.key("content");
        let keeps_media = super::encode::supports_extension(self.parts.dialect, "tool_media");
        if !keeps_media {
            let same_format = self.parts.same_format();
            self.media.extend(content.iter().filter(|block| !says(block, same_format)));
        }
        let same_format = self.parts.same_format();
        let said = || content.iter().filter(move |block| keeps_media || says(block, same_format));
        let marked = self.parts.writes_cache_mark(*cache);
        if cache.is_some() && !marked {
            self.parts.notes.lose(super::media::CACHE_CONTROL);
        }
        match (said().next(), object) {
            (None, Some(object)) => self.object(*object),
            (None, None) if !content.is_empty() => {
                self.json.string(SEE_BELOW);
            }
            // Most providers accept only strings as tool results.
            (Some(file @ Block::File { cache: None, .. }), _)
                if let (1, Some(text)) = (said().take(2).count(), text_of(file, same_format)) =>
            {
                self.json.paste(JsonStr::from_escaped(&text));
            }
            _ => self.content(said(), APART),
        }
        if marked {
            self.parts.write_cache_mark(self.json, *cache);
        }
        self.json.end_object();
    }

    /// Writes a result that is an object, as text. An object that only wraps a text is unwrapped.
    fn object(&mut self, object: ResultObject<'_>) {
        match object.wrapped_text() {
            Some(text) => {
                self.json.paste(text);
            }
            None => self.json.pasted(|out| push_escaped(out, object.raw().text())),
        }
    }

    fn assistant(&mut self, turns: &'b [Turn<'a>], is_last: bool) {
        let blocks = || turns.iter().flat_map(|turn| &turn.blocks);
        let texts = || blocks().filter(|block| matches!(block, Block::Text { text, .. } if !text.is_empty()));
        let has = |wanted: fn(&Block<'_>) -> bool| blocks().any(wanted);
        let called = has(|block| matches!(block, Block::ToolUse { .. }));
        if !self.parts.same_format() {
            let reasons = has(|block| matches!(block, Block::Reasoning { .. }));
            let refuses = has(|block| matches!(block, Block::Refusal { .. }));
            let media = has(is_media);
            if !called && !reasons && !refuses && !media && texts().next().is_none() {
                return;
            }
        }
        self.after_results = false;
        self.json.begin_object();
        self.json.key("role").string("assistant");
        if let Some(turn) = turns.iter().find(|turn| !turn.name.is_empty()) {
            self.json.key("name").paste(turn.name);
        }
        if turns.iter().any(|turn| !turn.phase.is_empty()) {
            self.parts.notes.lose("phase");
        }
        self.json.key("content");
        if called && texts().next().is_none() {
            // OpenAI's own form of a message that only calls tools.
            self.json.null();
        } else {
            // Text that the model produced in several pieces is one text, so no separator.
            self.content(texts(), "");
        }
        self.refusal(blocks());
        self.thoughts(blocks());
        let told = |block: &Block<'_>| matches!(block, Block::Reasoning { text, .. } if !text.is_empty());
        if called && self.reasons && !blocks().any(told) {
            // The provider rejects calls without reasoning, but a client that does not know the member cannot send it.
            self.json.key(self.parts.dialect.quirks.member("reasoning_content")).string(" ");
        }
        self.calls(blocks());
        self.signature(blocks());
        for block in blocks() {
            if let (Block::Opaque { name, raw }, true) = (block, self.parts.same_format())
                && name.is("audio")
            {
                self.json.key("audio").raw(*raw);
            }
        }
        self.images(blocks());
        let marked = turns.iter().any(|turn| turn.prefix);
        let is_unmarked = self.parts.same_format() && !self.parts.dialect.quirks.needs_prefill_mark;
        if marked || (is_last && !called && !is_unmarked) {
            self.prefix();
        }
        self.json.end_object();
    }

    fn refusal(&mut self, blocks: impl Iterator<Item = &'b Block<'a>>) {
        let refusal = |block: &'b Block<'a>| match block {
            Block::Refusal { text } => Some(*text),
            _ => None,
        };
        let mut refusals = blocks.filter_map(refusal).peekable();
        if refusals.peek().is_some() {
            self.json.key("refusal").pasted(|out| {
                refusals.for_each(|text| out.put_slice(text.escaped().as_bytes()));
            });
        }
    }

    /// Writes reasoning: its text if the provider wants it back, and its provider signatures.
    fn thoughts(&mut self, blocks: impl Iterator<Item = &'b Block<'a>> + Clone) {
        let thoughts = blocks.filter_map(|block| match block {
            Block::Reasoning { text, signature: seal, .. } => Some((text, seal.as_ref())),
            _ => None,
        });
        let mut texts = thoughts.clone().flat_map(|(text, _)| text).peekable();
        if texts.peek().is_some() {
            if self.parts.dialect.reasoning_replay {
                self.json.key(self.parts.dialect.quirks.member("reasoning_content")).pasted(|out| {
                    texts.for_each(|text| out.put_slice(text.escaped().as_bytes()));
                });
            // Signed reasoning is sent in `reasoning_details` below and is not lost.
            } else if thoughts.clone().any(|(_, seal)| seal.is_none()) {
                self.parts.notes.lose("thinking_block");
            }
        }
        if thoughts.clone().all(|(_, seal)| seal.is_none()) {
            return;
        }
        self.json.key("reasoning_details").begin_array();
        for (text, seal) in thoughts {
            match seal {
                Some(seal) => write_again(self.json, text, &seal.text),
                None => write_again(self.json, text, ""),
            }
        }
        self.json.end_array();
    }

    fn calls(&mut self, blocks: impl Iterator<Item = &'b Block<'a>>) {
        let mut open = false;
        for block in blocks {
            let Block::ToolUse { id, name, input, kind, signature: seal, cache, .. } = block else {
                continue;
            };
            if !std::mem::replace(&mut open, true) {
                self.json.key("tool_calls").begin_array();
            }
            let (word, member) = match kind {
                ToolKind::Function => ("function", "arguments"),
                ToolKind::Custom => ("custom", "input"),
            };
            self.json.begin_object();
            self.json.key("id").paste(*id);
            self.json.key("type").string(word);
            self.json.key(word).begin_object();
            self.json.key("name").paste(*name);
            self.json.key(member);
            match *input {
                Input::Text(text) if text.is_empty() && *kind == ToolKind::Function => {
                    self.json.string("{}");
                }
                Input::Text(text) => {
                    self.json.paste(text);
                }
                Input::Object(object) => self.json.pasted(|out| push_escaped(out, object.text())),
            }
            self.json.end_object();
            if let Some(seal) = seal {
                self.extra_content(seal);
            }
            self.parts.write_cache_mark(self.json, *cache);
            self.json.end_object();
        }
        if open {
            self.json.end_array();
        }
    }

    /// Writes the provider signature of a text, which belongs to the message in this format.
    fn signature(&mut self, mut blocks: impl Iterator<Item = &'b Block<'a>>) {
        let seal = blocks.find_map(|block| match block {
            Block::Text { signature: seal, .. } => seal.as_ref(),
            _ => None,
        });
        if let Some(seal) = seal {
            self.extra_content(seal);
        }
    }

    fn extra_content(&mut self, seal: &ProviderSignature<'_>) {
        self.json.key("extra_content").begin_object().key("google").begin_object();
        self.json.key("thought_signature").paste(JsonStr::from_escaped(&seal.text));
        self.json.end_object().end_object();
    }

    /// Writes images that the model produced: in the `images` member if the provider has it, otherwise in the next user
    /// message.
    fn images(&mut self, blocks: impl Iterator<Item = &'b Block<'a>> + Clone) {
        if !blocks.clone().any(is_media) {
            return;
        }
        if self.parts.supports_extension("images") {
            self.json.key("images").begin_array();
            blocks
                .filter(|block| matches!(block, Block::Image { .. }))
                .for_each(|block| self.parts.part(self.json, block));
            self.json.end_array();
        } else {
            self.media.extend(blocks.filter(|block| is_media(block)));
        }
    }

    /// Marks the message as the prefill of the response, for providers that require a marker.
    fn prefix(&mut self) {
        if !self.parts.dialect.prefill {
            return;
        }
        self.parts.has_prefill = true;
        if super::encode::supports_extension(self.parts.dialect, "partial") {
            self.json.key("partial").boolean(true);
        } else if self.parts.supports_extension("prefix") {
            self.json.key("prefix").boolean(true);
        }
    }
}
