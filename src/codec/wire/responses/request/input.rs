//! Encoder of a conversation: the members `instructions` and `input` of a request.

use base64_simd::STANDARD;

use super::super::text::put_as_string;
use crate::canonical::{Block, Dialect, Input, MediaSource, Request, ResultObject, Role, ToolKind, Turn};
use crate::wire::Format;
use crate::wire::codec::{LossNotes, make_id};
use json::{JsonStr, RawJson, RopeBuilder, Sink, Writer};

type Json<'o> = Writer<'o, RopeBuilder>;

/// Maximum length of a call id at OpenAI, in bytes.
const MAX_CALL_ID: usize = 64;

/// Writes `instructions` and `input`.
pub(super) fn put(request: &Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes, json: &mut Json<'_>) {
    let is_text = |block: &Block<'_>| matches!(block, Block::Text { .. });
    let is_instruction = |turn: &&Turn<'_>| turn.role.is_system() && turn.blocks.iter().all(is_text);
    let leading = request.turns.iter().take_while(is_instruction).count();
    // The format requires at least one item: if all turns are instructions, write them as items.
    let leading = if leading == request.turns.len() && request.previous.is_none() { 0 } else { leading };
    let (instructions, rest) = request.turns.split_at(leading);
    put_instructions(instructions, notes, json);
    json.key("input").begin_array();
    let mut items = Items { dialect, notes, json };
    for turn in rest {
        items.turn(turn);
    }
    json.end_array();
}

/// Writes the texts of the leading instructions as one string, joined with blank lines.
fn put_instructions(turns: &[Turn<'_>], notes: &mut LossNotes, json: &mut Json<'_>) {
    let mut joined = String::new();
    for block in turns.iter().flat_map(|turn| &turn.blocks) {
        let Block::Text { text, cache, .. } = block else { continue };
        if text.is_empty() {
            continue;
        }
        if cache.is_some() {
            notes.lose("cache_control");
        }
        if !joined.is_empty() {
            joined.push_str("\\n\\n");
        }
        joined.push_str(text.escaped());
    }
    if !joined.is_empty() {
        json.key("instructions").paste(JsonStr::from_escaped(&joined));
    }
}

/// Writer of the items of `input`.
struct Items<'i, 'o, 'd> {
    dialect: &'i Dialect<'d>,
    notes: &'i mut LossNotes,
    json: &'i mut Json<'o>,
}

impl Items<'_, '_, '_> {
    fn turn(&mut self, turn: &Turn<'_>) {
        if !turn.name.is_empty() {
            self.notes.lose("name");
        }
        if turn.prefix {
            self.notes.lose("prefill");
        }
        let role = match turn.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::System if !self.dialect.developer_role => "system",
            Role::System | Role::Developer => "developer",
        };
        let mut parts: Vec<&Block<'_>> = Vec::new();
        for block in &turn.blocks {
            if self.is_part(block, turn.role) {
                parts.push(block);
            } else {
                self.message(role, turn, &mut parts);
                self.item(block, turn.role);
            }
        }
        self.message(role, turn, &mut parts);
    }

    /// Returns whether a block is a part of a message of this role. Other blocks are items of their own.
    fn is_part(&self, block: &Block<'_>, role: Role) -> bool {
        match block {
            Block::Text { .. } | Block::Refusal { .. } => true,
            // Assistant messages can contain only text and refusals.
            Block::Image { .. } | Block::File { .. } | Block::Audio { .. } | Block::Video { .. } => {
                role != Role::Assistant
            }
            Block::Opaque { name, .. } => name.escaped().starts_with("input_"),
            _ => false,
        }
    }

    /// Writes the collected parts as one message. Empty texts are left out; without any part, nothing is written.
    fn message(&mut self, role: &str, turn: &Turn<'_>, parts: &mut Vec<&Block<'_>>) {
        parts.retain(|block| !matches!(block, Block::Text { text, .. } if text.is_empty()));
        if parts.is_empty() {
            return;
        }
        self.json.begin_object().key("role").string(role);
        self.json.key("content");
        match parts.as_slice() {
            [Block::Text { text, cache, .. }] if cache.is_none() || !self.keeps_marks() => {
                if cache.is_some() {
                    self.notes.lose("cache_control");
                }
                self.json.paste(*text);
            }
            blocks => {
                self.json.begin_array();
                for block in blocks {
                    self.part(block, turn.role);
                }
                self.json.end_array();
            }
        }
        if !turn.phase.is_empty() {
            self.json.key("phase").paste(turn.phase);
        }
        self.json.end_object();
        parts.clear();
    }

    /// Returns whether cache marks and opaque blocks are written. They are valid only if the client uses this format
    /// too: those of another format refer to another provider.
    fn keeps_marks(&self) -> bool {
        self.notes.from() == Format::Responses
    }

    fn part(&mut self, block: &Block<'_>, role: Role) {
        match block {
            Block::Text { text, cache, .. } => {
                let kind = if role == Role::Assistant { "output_text" } else { "input_text" };
                self.json.begin_object().key("type").string(kind).key("text").paste(*text);
                self.mark(cache.is_some());
                self.json.end_object();
            }
            Block::Refusal { text } if role == Role::Assistant => {
                self.json
                    .begin_object()
                    .key("type")
                    .string("refusal")
                    .key("refusal")
                    .paste(*text)
                    .end_object();
            }
            Block::Refusal { text } => {
                self.json
                    .begin_object()
                    .key("type")
                    .string("input_text")
                    .key("text")
                    .paste(*text)
                    .end_object();
            }
            Block::Image { source, detail, cache, .. } => self.image(source, *detail, cache.is_some()),
            Block::File { source, name, cache } => self.file(source, *name, cache.is_some()),
            Block::Audio { source } => self.audio(source),
            Block::Video { source } => self.video(source),
            Block::Opaque { raw, .. } if self.keeps_marks() => {
                self.json.raw(*raw);
            }
            Block::Opaque { .. } => self.notes.lose("server_tool_block"),
            // Search results are texts by now.
            Block::SearchResult(_)
            | Block::Reasoning { .. }
            | Block::ToolUse { .. }
            | Block::ToolResult { .. } => {}
        }
    }

    fn mark(&mut self, marked: bool) {
        if marked && self.keeps_marks() {
            self.json.key("prompt_cache_breakpoint").begin_object();
            self.json.key("mode").string("explicit").end_object();
        } else if marked {
            self.notes.lose("cache_control");
        }
    }

    fn image(&mut self, source: &MediaSource<'_>, detail: JsonStr<'_>, marked: bool) {
        self.json.begin_object().key("type").string("input_image");
        match source {
            MediaSource::Base64 { mime, data } => self.data_url("image_url", *mime, data.escaped()),
            MediaSource::Url { url, .. } => {
                self.json.key("image_url").paste(*url);
            }
            MediaSource::Id { id } => self.file_id(*id),
            // An image has no text source.
            MediaSource::Text { .. } => self.notes.lose("image_url"),
        }
        // The official SDK's types require `detail`.
        let detail = match detail.is_empty() {
            true if self.notes.from() != Format::Responses => JsonStr::from_escaped("auto"),
            _ => detail,
        };
        if !detail.is_empty() {
            self.json.key("detail").paste(detail);
        }
        self.mark(marked);
        self.json.end_object();
    }

    fn file(&mut self, source: &MediaSource<'_>, name: JsonStr<'_>, marked: bool) {
        self.json.begin_object().key("type").string("input_file");
        match source {
            MediaSource::Base64 { mime, data } => {
                let unnamed = if mime.is("application/pdf") { "document.pdf" } else { "document" };
                self.filename(name, unnamed);
                self.data_url("file_data", *mime, data.escaped());
            }
            MediaSource::Text { text } => {
                self.filename(name, "document.txt");
                let data = STANDARD.encode_to_string(text.decode().as_bytes());
                self.data_url("file_data", JsonStr::from_escaped("text/plain"), &data);
            }
            MediaSource::Url { url, .. } => {
                self.json.key("file_url").paste(*url);
            }
            MediaSource::Id { id } => self.file_id(*id),
        }
        self.mark(marked);
        self.json.end_object();
    }

    fn filename(&mut self, name: JsonStr<'_>, unnamed: &'static str) {
        let name = if name.is_empty() { JsonStr::from_escaped(unnamed) } else { name };
        self.json.key("filename").paste(name);
    }

    /// Writes a file id. It is valid only at the provider that issued it, so an id from another format is recorded as
    /// a loss.
    fn file_id(&mut self, id: JsonStr<'_>) {
        if self.notes.from() != Format::Responses {
            self.notes.lose("file_id");
        }
        self.json.key("file_id").paste(id);
    }

    /// Writes a data URL without an intermediate buffer: the media bytes are copied once.
    fn data_url(&mut self, member: &str, mime: JsonStr<'_>, data: &str) {
        self.json.key(member).pasted(|out| {
            for piece in ["data:", mime.escaped(), ";base64,", data] {
                out.put_slice(piece.as_bytes());
            }
        });
    }

    fn audio(&mut self, source: &MediaSource<'_>) {
        let MediaSource::Base64 { mime, data } = source else {
            self.notes.lose("audio");
            return;
        };
        if !self.dialect.supports("input_audio") {
            self.notes.lose("audio");
        }
        let format = match mime.escaped() {
            "audio/mp3" | "audio/mpeg" => "mp3",
            "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
            other => other.strip_prefix("audio/").unwrap_or(other),
        };
        self.json.begin_object().key("type").string("input_audio").key("input_audio").begin_object();
        self.json.key("data").paste(*data).key("format").paste(JsonStr::from_escaped(format));
        self.json.end_object().end_object();
    }

    fn video(&mut self, source: &MediaSource<'_>) {
        if !self.dialect.supports("input_video") {
            self.notes.lose("video");
        }
        self.json.begin_object().key("type").string("input_video");
        match source {
            MediaSource::Base64 { mime, data } => self.data_url("video_url", *mime, data.escaped()),
            MediaSource::Url { url, .. } => {
                self.json.key("video_url").paste(*url);
            }
            MediaSource::Id { id } => self.file_id(*id),
            MediaSource::Text { .. } => {}
        }
        self.json.end_object();
    }

    /// Writes a block that is an item of its own.
    fn item(&mut self, block: &Block<'_>, role: Role) {
        match block {
            Block::ToolUse { id, name, input, kind, namespace, signature: seal, cache } => {
                if seal.is_some() {
                    self.notes.lose("thinking_signature");
                }
                if cache.is_some() {
                    self.notes.lose("cache_control");
                }
                self.call(*id, *name, *input, *kind, *namespace);
            }
            Block::ToolResult { id, content, object, kind, cache, .. } => {
                if cache.is_some() {
                    self.notes.lose("cache_control");
                }
                self.result(*id, content, *object, *kind);
            }
            Block::Reasoning { text, signature: seal, .. } => {
                self.reasoning(text, seal.as_ref().map(|seal| &*seal.text));
            }
            Block::Opaque { raw, .. } if self.keeps_marks() => {
                self.json.raw(*raw);
            }
            Block::Opaque { .. } => self.notes.lose("server_tool_block"),
            Block::Image { source, detail, .. } => self.made_image(source, *detail),
            // Other media that the model produced is returned to it as a user message: assistant messages contain
            // text only.
            other => {
                self.json.begin_object().key("role").string("user").key("content").begin_array();
                self.part(other, if role == Role::Assistant { Role::User } else { role });
                self.json.end_array().end_object();
            }
        }
    }

    fn call(
        &mut self,
        id: JsonStr<'_>,
        name: JsonStr<'_>,
        input: Input<'_>,
        kind: ToolKind,
        namespace: JsonStr<'_>,
    ) {
        let (item, member) = match kind {
            ToolKind::Function => ("function_call", "arguments"),
            ToolKind::Custom => ("custom_tool_call", "input"),
        };
        self.json.begin_object().key("type").string(item);
        self.call_id(id);
        self.json.key("name").paste(name).key(member);
        match input {
            Input::Text(text) if text.is_empty() && kind == ToolKind::Function => {
                self.json.string("{}");
            }
            Input::Text(text) => {
                self.json.paste(text);
            }
            Input::Object(object) => self.as_string(object),
        }
        if !namespace.is_empty() {
            self.json.key("namespace").paste(namespace);
        }
        self.json.end_object();
    }

    fn call_id(&mut self, id: JsonStr<'_>) {
        self.json.key("call_id");
        if id.escaped().len() > MAX_CALL_ID {
            // Derived from the id alone, so that the call and its result get the same one.
            self.json.string(&make_id("call_", id.escaped(), 0));
        } else {
            self.json.paste(id);
        }
    }

    fn as_string(&mut self, value: RawJson<'_>) {
        let mut text = Vec::with_capacity(value.text().len() + 16);
        put_as_string(&mut text, value.text());
        self.json.paste(super::super::text::as_text(&text));
    }

    /// Writes a tool result that is an object as text. An object that only wraps a text is replaced by that text.
    fn object(&mut self, object: ResultObject<'_>) {
        match object.wrapped_text() {
            Some(text) => {
                self.json.paste(text);
            }
            None => self.as_string(object.raw()),
        }
    }

    fn result(
        &mut self,
        id: JsonStr<'_>,
        content: &[Block<'_>],
        object: Option<ResultObject<'_>>,
        kind: ToolKind,
    ) {
        self.json.begin_object().key("type").string(match kind {
            ToolKind::Function => "function_call_output",
            ToolKind::Custom => "custom_tool_call_output",
        });
        self.call_id(id);
        self.json.key("output");
        match (content, object) {
            ([], Some(object)) => self.object(object),
            ([], None) => {
                self.json.string("");
            }
            ([Block::Text { text, cache: None, .. }], None) => {
                self.json.paste(*text);
            }
            (blocks, object) => {
                self.json.begin_array();
                if let Some(object) = object {
                    self.json.begin_object().key("type").string("input_text").key("text");
                    self.object(object);
                    self.json.end_object();
                }
                for block in blocks {
                    self.part(block, Role::User);
                }
                self.json.end_array();
            }
        }
        self.json.end_object();
    }

    fn reasoning(&mut self, text: &[JsonStr<'_>], seal: Option<&str>) {
        // OpenAI rejects reasoning that it did not sign. Models that show their reasoning accept it unsigned.
        if seal.is_none() && (text.is_empty() || !self.dialect.reasoning_replay) {
            self.notes.lose("thinking_block");
            return;
        }
        let (member, part) = match seal {
            Some(_) => ("summary", "summary_text"),
            None => ("content", "reasoning_text"),
        };
        self.json.begin_object().key("type").string("reasoning");
        if member == "content" {
            self.json.key("summary").begin_array().end_array();
        }
        self.json.key(member).begin_array();
        for text in text {
            self.json.begin_object().key("type").string(part).key("text").paste(*text).end_object();
        }
        self.json.end_array();
        if let Some(seal) = seal {
            self.json.key("encrypted_content").paste(JsonStr::from_escaped(seal));
        }
        self.json.end_object();
    }

    /// Writes an image that the model made: as the item `image_generation_call` if the client uses this format too,
    /// otherwise as an image in a user message.
    fn made_image(&mut self, source: &MediaSource<'_>, detail: JsonStr<'_>) {
        let own = self.notes.from() == Format::Responses;
        let (MediaSource::Base64 { mime, data }, true) = (source, own) else {
            self.json.begin_object().key("role").string("user").key("content").begin_array();
            self.image(source, detail, false);
            self.json.end_array().end_object();
            return;
        };
        // The length and the first 64 base64 characters give a stable id without hashing megabytes of image data.
        let sample = data.escaped().get(..64).unwrap_or(data.escaped());
        self.json.begin_object().key("type").string("image_generation_call");
        self.json.key("id").string(&make_id("ig_", sample, data.escaped().len() as u64));
        self.json.key("status").string("completed").key("result").paste(*data);
        if let Some(format) = mime.escaped().strip_prefix("image/").filter(|format| *format != "png") {
            self.json.key("output_format").paste(JsonStr::from_escaped(format));
        }
        self.json.end_object();
    }
}
