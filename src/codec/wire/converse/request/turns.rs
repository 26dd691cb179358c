//! Encoder of system prompt and messages.

use std::borrow::Cow;

use base64_simd::STANDARD;

use super::document::DocumentContent;
use super::encode::RequestWriter;
use super::plan::{Message, Plan, check_result_block, image_format, media_format};
use crate::canonical::{
    Block, CacheBreakpoint, Input, MediaSource, RequestFeatures, ResultObject, Role, SearchResult, ToolKind,
};
use crate::wire::Format;
use crate::wire::automatic_marks::is_blank;
use crate::wire::codec::make_id;
use crate::wire::converse::media::MediaKind;
use crate::wire::converse::stream::put_input;
use json::JsonStr;

/// Maximum length of the id of a call.
const MAX_CALL_ID: usize = 60;

/// Text beside a document that came without one: the service requires a text in the same message.
const DOCUMENT_TEXT: &str = "See the document.";

impl RequestWriter<'_, '_, '_> {
    /// Writes `system` and `messages`.
    pub(super) fn conversation(&mut self, plan: &Plan<'_, '_>) {
        self.begin_prompt();
        if !plan.system.is_empty() {
            self.json.key("system").begin_array();
            for block in &plan.system {
                self.block(block);
            }
            self.json.end_array();
        }
        self.json.key("messages").begin_array();
        let last = plan.messages.len().saturating_sub(1);
        for (index, message) in plan.messages.iter().enumerate() {
            self.message(message, plan.prefill && index == last);
        }
        self.json.end_array();
    }

    fn message(&mut self, message: &Message<'_, '_>, prefill: bool) {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::System | Role::Developer => "system",
        };
        self.json.begin_object().key("role").string(role).key("content").begin_array();
        if message.blocks.is_empty() {
            // A filler turn: the service refuses empty content and text of white space only.
            self.text(JsonStr::from_escaped("."));
        }
        let last = message.blocks.len().saturating_sub(1);
        for (index, block) in message.blocks.iter().enumerate() {
            match block {
                // The service refuses a prefill that ends in white space.
                Block::Text { text, cache, .. } if prefill && index == last => {
                    let text = text.decode();
                    self.json.begin_object().key("text").string(text.trim_end()).end_object();
                    self.client_point(*cache);
                }
                _ => self.block(block),
            }
        }
        let has_text = message.blocks.iter().any(|block| matches!(block, Block::Text { .. }));
        let has_document = message.blocks.iter().any(|block| matches!(block, Block::File { .. }));
        if has_document && !has_text && message.role == Role::User {
            self.text(JsonStr::from_escaped(DOCUMENT_TEXT));
        }
        self.json.end_array().end_object();
    }

    fn text(&mut self, text: JsonStr<'_>) {
        self.json.begin_object().key("text").paste(text).end_object();
    }

    /// Notes where the prompt begins.
    pub(super) fn begin_prompt(&mut self) {
        self.prompt_start.get_or_insert(self.json.written());
    }

    /// Writes the client's cache point behind an element, or the automatic one if there is one and the prompt is long
    /// enough.
    pub(super) fn cache_point(&mut self, mark: Option<CacheBreakpoint>, automatic: Option<CacheBreakpoint>) {
        let Some(start) = self.prompt_start.filter(|_| automatic.is_some() && mark.is_none()) else {
            return self.client_point(mark);
        };
        if let Some(lifetime) = automatic
            && self.automatic.may_cache(self.json.written() - start)
        {
            self.notes.count_breakpoint();
            self.write_point(lifetime);
        }
    }

    /// Writes a client's cache point, unless the maximum is exceeded or the service refuses it for the model.
    pub(super) fn client_point(&mut self, mark: Option<CacheBreakpoint>) {
        let Some(mark) = mark else { return };
        if self.surplus_marks > 0 {
            // Drop the first points: a later one covers the same prefix.
            self.surplus_marks -= 1;
            self.notes.lose("cache_control");
            return;
        }
        match self.dialect.breakpoints {
            // A client of this format knows its model, unless the gateway chose it.
            _ if self.notes.from() == Format::Converse
                && !self.dialect.refuses.intersects(RequestFeatures::CACHE_MARK) =>
            {
                self.write_point(mark);
            }
            Some(support) if support.long => self.write_point(mark),
            Some(_) => self.write_point(CacheBreakpoint::Short),
            None => self.notes.lose("cache_control"),
        }
    }

    fn write_point(&mut self, mark: CacheBreakpoint) {
        self.json.begin_object().key("cachePoint").begin_object().key("type").string("default");
        if mark == CacheBreakpoint::Long {
            self.json.key("ttl").string("1h");
        }
        self.json.end_object().end_object();
    }

    fn block(&mut self, block: &Block<'_>) {
        let automatic = self.automatic.of_block(block);
        match block {
            Block::Text { text, cache, .. } => {
                self.text(*text);
                self.cache_point(*cache, automatic);
            }
            Block::Refusal { text } => self.text(*text),
            Block::Image { source, cache, .. } => {
                self.image(*source);
                self.cache_point(*cache, automatic);
            }
            Block::File { source, name, cache } => {
                self.document(*source, *name);
                self.cache_point(*cache, automatic);
            }
            Block::SearchResult(result) => {
                self.search_result(result);
                self.cache_point(result.cache, automatic);
            }
            Block::Audio { source } => self.media(MediaKind::Audio, *source),
            Block::Video { source } => self.media(MediaKind::Video, *source),
            Block::Reasoning { text, signature, hidden } => {
                let signature = signature.as_ref().map(|seal| JsonStr::from_escaped(&seal.text));
                if signature.is_none() && self.dialect.refuses.intersects(RequestFeatures::BARE_REASONING) {
                    self.notes.lose("thinking_block");
                    return;
                }
                self.reasoning(text, signature, *hidden);
            }
            Block::ToolUse { id, name, input, cache, .. } => {
                self.json.begin_object().key("toolUse").begin_object();
                let id = self.ids.call(call_id(*id));
                self.json.key("toolUseId").string(&id).key("name").paste(*name).key("input");
                match input {
                    Input::Object(object) if object.text().starts_with('{') => {
                        self.json.raw(*object);
                    }
                    Input::Object(other) => {
                        self.json.begin_object().key("_value").raw(*other).end_object();
                    }
                    Input::Text(text) => {
                        put_input(ToolKind::Function, text.escaped(), None, &mut self.json);
                    }
                }
                self.json.end_object().end_object();
                self.client_point(*cache);
            }
            Block::ToolResult { id, content, object, error, cache, .. } => {
                let id = self.ids.result(call_id(*id)).into_owned();
                self.result(&id, content, *object, *error);
                self.cache_point(*cache, automatic);
            }
            Block::Opaque { raw, .. } => {
                self.json.raw(*raw);
            }
        }
    }

    fn reasoning(&mut self, text: &[JsonStr<'_>], signature: Option<JsonStr<'_>>, hidden: bool) {
        self.json.begin_object().key("reasoningContent").begin_object();
        match signature.filter(|_| hidden) {
            Some(blob) => {
                self.json.key("redactedContent").paste(blob);
            }
            None => {
                self.json.key("reasoningText").begin_object().key("text");
                let whole: String = text.iter().map(|part| part.escaped()).collect();
                self.json.paste(JsonStr::from_escaped(&whole));
                if let Some(signature) = signature {
                    self.json.key("signature").paste(signature);
                }
                self.json.end_object();
            }
        }
        self.json.end_object().end_object();
    }

    fn image(&mut self, source: MediaSource<'_>) {
        let format = match source {
            MediaSource::Base64 { mime, data } => image_format(mime, data),
            MediaSource::Url { url, mime } => {
                let extension = url.decode().rsplit_once('.').map(|(_, extension)| extension.to_owned());
                let named = extension.map(|extension| MediaKind::Image.media_type(&extension));
                MediaKind::Image
                    .format(&mime.decode())
                    .or_else(|| MediaKind::Image.format(named.unwrap_or_default()))
            }
            MediaSource::Id { .. } | MediaSource::Text { .. } => None,
        };
        self.media_block(MediaKind::Image, format.unwrap_or("png"), source);
    }

    fn media(&mut self, kind: MediaKind, source: MediaSource<'_>) {
        if let Some(format) = media_format(kind, source) {
            self.media_block(kind, format, source);
        }
    }

    fn media_block(&mut self, kind: MediaKind, format: &str, source: MediaSource<'_>) {
        self.json.begin_object().key(kind.member()).begin_object().key("format").string(format);
        self.source(source);
        self.json.end_object().end_object();
    }

    fn source(&mut self, source: MediaSource<'_>) {
        self.json.key("source").begin_object();
        match source {
            MediaSource::Base64 { data, .. } => {
                self.json.key("bytes").paste(data);
            }
            MediaSource::Url { url, .. } => {
                self.json.key("s3Location").begin_object().key("uri").paste(url).end_object();
            }
            MediaSource::Text { text } => {
                let text = text.decode();
                self.json.key("bytes").string(&STANDARD.encode_to_string(text.as_bytes()));
            }
            MediaSource::Id { .. } => {}
        }
        self.json.end_object();
    }

    fn document(&mut self, source: MediaSource<'_>, name: JsonStr<'_>) {
        let Some(form) = DocumentContent::of(source, name) else { return };
        let (format, text) = match form {
            DocumentContent::Image(format, _) => return self.media_block(MediaKind::Image, format, source),
            DocumentContent::Bytes(format, _) | DocumentContent::Stored(format, _) => (format, None),
            DocumentContent::Text(text) => ("txt", Some(text)),
            DocumentContent::Unknown => return,
        };
        // A client of this format has named its documents itself.
        let own = self.notes.from() == Format::Converse;
        let name = if own { name.decode().into_owned() } else { self.names.unique(name) };
        self.json.begin_object().key("document").begin_object();
        self.json.key("format").string(format).key("name").string(&name);
        // Citations refer to places of a text, which the service reads only in this form.
        match text.filter(|_| self.cites) {
            Some(text) => {
                self.json.key("source").begin_object().key("text").paste(text).end_object();
            }
            None => self.source(source),
        }
        if self.cites {
            self.json.key("citations").begin_object().key("enabled").boolean(true).end_object();
        }
        self.json.end_object().end_object();
    }

    fn search_result(&mut self, result: &SearchResult<'_>) {
        self.json.begin_object().key("searchResult").begin_object();
        self.json.key("source").paste(result.source).key("title").paste(result.title);
        self.json.key("content").begin_array();
        result.texts.iter().for_each(|text| self.text(*text));
        self.json.end_array().key("citations").begin_object().key("enabled").boolean(result.cites);
        self.json.end_object().end_object().end_object();
    }

    fn result(&mut self, id: &str, content: &[Block<'_>], object: Option<ResultObject<'_>>, error: bool) {
        self.json.begin_object().key("toolResult").begin_object();
        self.json.key("toolUseId").string(id).key("content").begin_array();
        let (dialect, own) = (self.dialect, self.notes.from() == Format::Converse);
        let (mut failed, mut is_empty) = (error, true);
        if let Some(object) = object {
            is_empty = false;
            match object.wrapped_text().filter(|_| !own) {
                Some(text) => {
                    failed |= object.wraps_error();
                    // The service refuses a blank text.
                    is_empty = is_blank(text);
                    if !is_empty {
                        self.text(text);
                    }
                }
                None => {
                    self.json.begin_object().key("json").raw(object.raw()).end_object();
                }
            }
        }
        for block in content.iter().filter(|block| check_result_block(block, dialect, own).is_ok()) {
            is_empty = false;
            self.result_block(block);
        }
        if failed && is_empty {
            // The service requires content of a failed call.
            self.text(JsonStr::from_escaped("error"));
        }
        self.json.end_array();
        if failed {
            self.json.key("status").string("error");
        }
        self.json.end_object().end_object();
    }

    /// Writes a block of a tool result, in which cache points are not allowed.
    fn result_block(&mut self, block: &Block<'_>) {
        match block {
            Block::Text { text, .. } => self.text(*text),
            Block::Image { source, .. } => self.image(*source),
            Block::File { source, name, .. } => self.document(*source, *name),
            Block::SearchResult(result) => self.search_result(result),
            block => self.block(block),
        }
    }
}

/// Returns a call's id with every character that this format does not allow replaced, and a long one by an id that is
/// made from it. The result is the same for the call and for its tool result.
pub(super) fn call_id(id: JsonStr<'_>) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    let plain = id.decode();
    if plain.is_empty() {
        return Cow::Borrowed("tooluse_0");
    }
    if plain.len() > MAX_CALL_ID {
        return Cow::Owned(make_id("tooluse_", &plain, 0));
    }
    if plain.chars().all(fits) {
        return plain;
    }
    Cow::Owned(plain.chars().map(|c| if fits(c) { c } else { '_' }).collect())
}
