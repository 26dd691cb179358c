//! Encoder of system prompt and turns.

use super::encode::RequestWriter;
use super::own;
use super::plan::{DocumentForm, Message, Plan, call_id, check_result_block, image_type, trimmed};
use crate::canonical::{Block, CacheBreakpoint, Input, MediaSource, ResultObject, Role, SearchResult};
use crate::wire::Format;
use crate::wire::automatic_marks::is_blank;
use crate::wire::encoded_twice::object_in;
use crate::wire::messages::arguments;
use crate::wire::watch::members;
use json::{Cursor, JsonStr, RawJson, with_whole_characters};

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
            // A filler turn: the provider refuses empty content and text of white space only.
            self.text(JsonStr::from_escaped("."), None, None);
        }
        let last = message.blocks.len().saturating_sub(1);
        for (index, block) in message.blocks.iter().enumerate() {
            match block {
                // The provider refuses a prefill that ends in white space.
                Block::Text { text, cache, .. } if prefill && index == last => {
                    self.text(trimmed(*text), *cache, None);
                }
                _ => self.block(block),
            }
        }
        self.json.end_array().end_object();
    }

    /// Notes where the prompt begins.
    pub(super) fn begin_prompt(&mut self) {
        self.prompt_start.get_or_insert(self.json.written());
    }

    /// Writes the client's cache mark of an element, or the automatic one if there is one and the prompt is long
    /// enough.
    pub(super) fn write_mark(&mut self, mark: Option<CacheBreakpoint>, automatic: Option<CacheBreakpoint>) {
        self.write_own_mark(mark, automatic, None);
    }

    /// Same as [`write_mark`](Self::write_mark), for an element that the client wrote in this format.
    pub(super) fn write_own_mark(
        &mut self,
        mark: Option<CacheBreakpoint>,
        automatic: Option<CacheBreakpoint>,
        element: Option<RawJson<'_>>,
    ) {
        let Some(start) = self.prompt_start.filter(|_| automatic.is_some() && mark.is_none()) else {
            return self.write_breakpoint(mark, element);
        };
        if self.automatic.may_cache(self.json.written() - start) {
            self.notes.count_breakpoint();
            self.write_breakpoint(automatic, None);
        }
    }

    /// Writes a cache mark, unless the maximum is exceeded.
    fn write_breakpoint(&mut self, mark: Option<CacheBreakpoint>, element: Option<RawJson<'_>>) {
        let Some(mark) = mark else { return };
        if self.surplus_marks > 0 {
            // Drop the first marks: a later mark covers the same prefix.
            self.surplus_marks -= 1;
            self.notes.lose("cache_control");
            return;
        }
        if let Some(own) = element.and_then(|element| self.own_mark(element)) {
            self.json.key("cache_control").raw(own);
            return;
        }
        self.json.key("cache_control").begin_object().key("type").string("ephemeral");
        if mark == CacheBreakpoint::Long {
            self.json.key("ttl").string("1h");
        }
        self.json.end_object();
    }

    fn text(&mut self, text: JsonStr<'_>, mark: Option<CacheBreakpoint>, automatic: Option<CacheBreakpoint>) {
        let element = self.element(text.escaped(), &["text"]);
        self.json.begin_object().key("type").string("text").key("text").paste(text);
        self.write_own_mark(mark, automatic, element);
        self.rest(element, own::TEXT);
        self.json.end_object();
    }

    fn block(&mut self, block: &Block<'_>) {
        let automatic = self.automatic.of_block(block);
        match block {
            Block::Text { text, cache, .. } => self.text(*text, *cache, automatic),
            Block::Refusal { text } => self.text(*text, None, None),
            Block::Image { source, cache, .. } => {
                let element = self.element(place_of(source), &["image"]);
                self.json.begin_object().key("type").string("image");
                self.source(*source);
                self.write_own_mark(*cache, automatic, element);
                self.rest(element, own::IMAGE);
                self.json.end_object();
            }
            Block::SearchResult(result) => self.search_result(result, automatic),
            Block::File { source, name, cache } => self.file(*source, *name, (*cache, automatic)),
            Block::Reasoning { .. } if let Some(own) = self.own_reasoning(block) => {
                self.json.raw(own);
            }
            Block::Reasoning { text, signature, hidden }
                if signature.is_some() || self.dialect.own_envelopes && !hidden =>
            {
                let seal =
                    signature.as_ref().map(|seal| JsonStr::from_escaped(&seal.text)).unwrap_or_default();
                self.json.begin_object().key("type");
                if *hidden {
                    self.json.string("redacted_thinking").key("data").paste(seal);
                } else {
                    self.json.string("thinking").key("thinking");
                    match text.as_slice() {
                        [text] => self.json.paste(*text),
                        parts => {
                            let whole: String = parts.iter().map(|part| part.escaped()).collect();
                            self.json.paste(JsonStr::from_escaped(&whole))
                        }
                    };
                    self.json.key("signature").paste(seal);
                }
                self.json.end_object();
            }
            Block::ToolUse { id, name, input, cache, .. } => {
                self.json.begin_object().key("type").string("tool_use");
                let id = self.ids.call(call_id(*id));
                self.json.key("id").string(&id).key("name").paste(*name).key("input");
                self.input(*input);
                let part = if let Input::Object(object) = input { object.text() } else { name.escaped() };
                let element = self.element(part, &["tool_use"]);
                self.write_breakpoint(*cache, element);
                self.rest(element, own::TOOL_USE);
                self.json.end_object();
            }
            Block::ToolResult { id, content, object, error, cache, .. } => {
                self.json.begin_object().key("type").string("tool_result");
                let element = self.element(id.escaped(), &["tool_result"]);
                let id = self.ids.result(call_id(*id));
                self.json.key("tool_use_id").string(&id);
                let failed = match object {
                    Some(object) if content.is_empty() => {
                        self.json.key("content");
                        self.object_result(*object)
                    }
                    Some(object) => self.object_and_more(*object, content),
                    None => self.result(content),
                };
                if *error || failed {
                    self.json.key("is_error").boolean(true);
                }
                self.write_own_mark(*cache, automatic, element);
                self.rest(element, own::TOOL_RESULT);
                self.json.end_object();
            }
            Block::Opaque { raw, .. } => {
                self.json.raw(*raw);
            }
            Block::Reasoning { .. } | Block::Audio { .. } | Block::Video { .. } => {}
        }
    }

    /// Returns the client's cache mark of an element, if the platform takes it as it is.
    fn own_mark<'e>(&self, element: RawJson<'e>) -> Option<RawJson<'e>> {
        let mut own = None;
        members(&mut Cursor::new(element.text()), |key, json| {
            let value = json.raw()?;
            if key.is("cache_control") {
                own = Some(value);
            }
            Ok(())
        })
        .ok()?;
        let is_usual = |mark: &RawJson<'_>| {
            !mark.text().contains("persistent") && !self.dialect.quirks.lacks("cache_control.scope")
        };
        own.filter(is_usual)
    }

    fn source(&mut self, source: MediaSource<'_>) {
        self.json.key("source").begin_object().key("type");
        match source {
            MediaSource::Base64 { mime, data } => {
                // Clients of this format state the correct type already.
                let own = self.notes.from() == Format::Messages;
                let mime = if own { mime.escaped() } else { image_type(mime, data) };
                self.json.string("base64").key("media_type").paste(JsonStr::from_escaped(mime));
                self.json.key("data").paste(data);
            }
            MediaSource::Url { url, .. } => {
                self.json.string("url").key("url").paste(url);
            }
            MediaSource::Id { id } => {
                self.json.string("file").key("file_id").paste(id);
            }
            MediaSource::Text { text } => {
                self.json.string("text").key("media_type").string("text/plain").key("data").paste(text);
            }
        }
        self.json.end_object();
    }

    fn file(
        &mut self,
        source: MediaSource<'_>,
        name: JsonStr<'_>,
        (mark, automatic): (Option<CacheBreakpoint>, Option<CacheBreakpoint>),
    ) {
        let document = match source {
            MediaSource::Base64 { mime, data } => Some((DocumentForm::of(mime, data), data)),
            _ => None,
        };
        let image = matches!(document, Some((DocumentForm::Image(_), _)));
        self.json.begin_object().key("type").string(if image { "image" } else { "document" });
        match document {
            None | Some((DocumentForm::Image(_), _)) => self.source(source),
            Some((DocumentForm::Text(text), _)) => {
                self.json.key("source").begin_object().key("type").string("text");
                self.json.key("media_type").string("text/plain").key("data").string(&text).end_object();
            }
            Some((DocumentForm::Pdf | DocumentForm::Unknown, data)) => {
                self.json.key("source").begin_object().key("type").string("base64");
                self.json.key("media_type").string("application/pdf").key("data").paste(data).end_object();
            }
        }
        if !image {
            if !name.is_empty() {
                self.json.key("title").paste(name);
            }
            if let Some(citations) = self.citations {
                self.json.key("citations").raw(citations);
            }
        }
        self.write_mark(mark, automatic);
        self.json.end_object();
    }

    fn search_result(&mut self, result: &SearchResult<'_>, automatic: Option<CacheBreakpoint>) {
        self.json.begin_object().key("type").string("search_result");
        self.json.key("source").paste(result.source).key("title").paste(result.title);
        self.json.key("content").begin_array();
        result.texts.iter().for_each(|text| self.text(*text, None, None));
        self.json
            .end_array()
            .key("citations")
            .begin_object()
            .key("enabled")
            .boolean(result.cites)
            .end_object();
        self.write_mark(result.cache, automatic);
        self.json.end_object();
    }

    fn input(&mut self, input: Input<'_>) {
        match input {
            Input::Object(object) if object.text().starts_with('{') => {
                self.json.raw(object);
            }
            Input::Object(other) => {
                self.json.begin_object().key("_raw").string(other.text()).end_object();
            }
            Input::Text(text) => {
                if let Some(object) = arguments::object_of(text) {
                    self.json.raw(RawJson::from_text(&with_whole_characters(object.trim())));
                    return;
                }
                if let Some(object) = object_in(text.escaped()) {
                    self.json.raw(RawJson::from_text(&object));
                    return;
                }
                self.json.begin_object();
                if !is_blank(text) {
                    // Models do produce invalid arguments, and the history must show them.
                    self.json.key("_raw").paste(text);
                }
                self.json.end_object();
            }
        }
    }

    /// Writes the content of a tool result. Returns whether it reports a failure: always false for blocks.
    fn result(&mut self, content: &[Block<'_>]) -> bool {
        let (dialect, from) = (self.dialect, self.notes.from());
        let mut blocks =
            content.iter().filter(|block| check_result_block(block, dialect, from).is_ok()).peekable();
        let Some(first) = blocks.next() else { return false };
        self.json.key("content");
        match first {
            Block::Text { text, cache: None, .. } if blocks.peek().is_none() => {
                self.json.paste(*text);
            }
            _ => {
                self.json.begin_array();
                for block in std::iter::once(first).chain(blocks) {
                    self.block(block);
                }
                self.json.end_array();
            }
        }
        false
    }

    /// Writes an object and the media that came with it. Returns whether the object reports a failure.
    fn object_and_more(&mut self, object: ResultObject<'_>, content: &[Block<'_>]) -> bool {
        let (dialect, from) = (self.dialect, self.notes.from());
        self.json.key("content").begin_array();
        self.json.begin_object().key("type").string("text").key("text");
        let failed = self.object_result(object);
        self.json.end_object();
        for block in content.iter().filter(|block| check_result_block(block, dialect, from).is_ok()) {
            self.block(block);
        }
        self.json.end_array();
        failed
    }

    /// Writes a tool result that is an object, as text. An object that only wraps a text is unwrapped. Returns whether
    /// it reports a failure.
    fn object_result(&mut self, object: ResultObject<'_>) -> bool {
        match object.wrapped_text() {
            Some(text) => self.json.paste(text),
            None => self.json.string(object.raw().text()),
        };
        object.wraps_error()
    }
}

/// Returns the part of the request where media is.
fn place_of<'a>(source: &MediaSource<'a>) -> &'a str {
    match source {
        MediaSource::Base64 { data: part, .. }
        | MediaSource::Url { url: part, .. }
        | MediaSource::Id { id: part }
        | MediaSource::Text { text: part } => part.escaped(),
    }
}
