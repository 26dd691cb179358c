//! Encoder of `contents`: one content for each run of the same role; function results have contents of their own.

use std::borrow::Cow;

use base64_simd::STANDARD;

use super::decode::VIDEO;
use crate::canonical::{
    Block, CacheBreakpoint, Dialect, Index, IndexKey, Input, MediaSource, ProviderSignature, Request,
    ResultObject, Role, Turn,
};
use crate::wire::Format;
use crate::wire::codec::{LossNotes, is_object};
use crate::wire::generate::{part, signature};
use json::{JsonStr, RawJson, RopeBuilder, Writer, with_whole_characters};

/// Text of a part that the format requires and the conversation does not have.
const FILLER: JsonStr<'static> = JsonStr::from_escaped(" ");

/// Kind of a content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    User,
    Model,
    /// Function results. A text part beside them is rejected.
    Results,
}

/// Writes `contents`.
pub(super) fn write(
    request: &Request<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
    json: &mut Writer<'_, RopeBuilder>,
) {
    json.key("contents").begin_array();
    let mut contents = Contents {
        own: notes.from() == Format::Generate,
        requires_signatures: dialect.signed_calls,
        takes_files_in_responses: dialect.signed_calls,
        dialect,
        notes,
        json,
        group: None,
        calls: 0,
        later: Vec::new(),
        videos: request.extra.iter().filter(|extra| extra.name == VIDEO).map(|extra| extra.value).collect(),
        video: 0,
        names: Vec::new(),
        ids: Index::default(),
    };
    // Turns between two of the model. Those of instructions are written elsewhere.
    for turns in
        request.turns.chunk_by(|one, next| one.role != Role::Assistant && next.role != Role::Assistant)
    {
        contents.turns(turns);
    }
    contents.finish(request.turns.is_empty());
    json.end_array();
}

struct Contents<'w, 'b, 'r> {
    own: bool,
    /// Capabilities that follow from the model's name, which is parsed once.
    requires_signatures: bool,
    takes_files_in_responses: bool,
    dialect: &'w Dialect<'w>,
    notes: &'w mut LossNotes,
    json: &'w mut Writer<'b, RopeBuilder>,
    group: Option<Group>,
    /// Number of calls in the current model content.
    calls: usize,
    /// Files of function results, to be written in a content of their own after the results.
    later: Vec<&'r Block<'r>>,
    videos: Vec<RawJson<'r>>,
    video: usize,
    /// Names of the calls so far, and an index of them by call id.
    names: Vec<JsonStr<'r>>,
    ids: Index,
}

impl<'r> Contents<'_, '_, 'r> {
    /// Writes adjacent turns of one role. The provider requires the results of all calls in one content, directly behind
    /// them, so that what clients write between results follows.
    fn turns(&mut self, turns: &'r [Turn<'r>]) {
        let turns = turns.iter().filter(|turn| !turn.role.is_system());
        for turn in turns.clone() {
            if !turn.name.is_empty() {
                self.notes.lose("name");
            }
            if !turn.phase.is_empty() {
                self.notes.lose("phase");
            }
        }
        let blocks = turns.flat_map(|turn| turn.blocks.iter().map(|block| (block, turn.role)));
        let is_result = |block: &Block<'_>| matches!(block, Block::ToolResult { .. });
        // Nearly always the results come first.
        let is_mixed =
            blocks.clone().skip_while(|(block, _)| is_result(block)).any(|(block, _)| is_result(block));
        if self.own || !is_mixed {
            return blocks.for_each(|(block, role)| self.block(block, role));
        }
        let mut results: Vec<_> = blocks.clone().filter(|(block, _)| is_result(block)).collect();
        results.sort_by_cached_key(|(block, _)| match block {
            Block::ToolResult { id, .. } => self.ids.last(IndexKey::of(*id)).unwrap_or(usize::MAX),
            _ => usize::MAX,
        });
        results.into_iter().for_each(|(block, role)| self.block(block, role));
        blocks.filter(|(block, _)| !is_result(block)).for_each(|(block, role)| self.block(block, role));
    }

    fn enter(&mut self, group: Group) {
        if self.group == Some(group) {
            return;
        }
        // Some models reject a conversation that starts with the model.
        if self.group.is_none() && group == Group::Model && !self.own {
            self.enter(Group::User);
            self.text(FILLER, false, None);
        }
        self.leave();
        // Models before generation 3 take the files of results only in a user content behind all results of the turn.
        if group != Group::Results && !self.later.is_empty() {
            let later = std::mem::take(&mut self.later);
            self.enter(Group::User);
            later.into_iter().for_each(|block| self.media(block));
            if group == Group::User {
                return;
            }
            self.leave();
        }
        self.group = Some(group);
        self.calls = 0;
        let role = if group == Group::Model { "model" } else { "user" };
        self.json.begin_object().key("role").paste(JsonStr::from_escaped(role));
        self.json.key("parts").begin_array();
    }

    fn leave(&mut self) {
        if self.group.take().is_some() {
            self.json.end_array().end_object();
        }
    }

    fn finish(&mut self, empty: bool) {
        if !self.later.is_empty() {
            self.enter(Group::User);
        }
        let model_last = self.group == Some(Group::Model) && !self.dialect.prefill;
        if model_last {
            self.notes.lose("prefill");
        }
        if empty {
            self.notes.refuse("contents", "The conversation is empty.");
        }
        // Without prefill support, the conversation must end with a user content.
        if model_last || self.group.is_none() {
            self.enter(Group::User);
            self.text(FILLER, false, None);
        }
        self.leave();
    }

    fn block(&mut self, block: &'r Block<'r>, role: Role) {
        let group = if role == Role::Assistant { Group::Model } else { Group::User };
        match block {
            Block::Text { text, cache, signature: seal } => {
                self.cached(*cache);
                if !text.is_empty() || seal.is_some() || self.own {
                    self.enter(group);
                    self.text(*text, false, seal.as_ref());
                }
            }
            Block::Refusal { text } if !text.is_empty() => {
                self.enter(group);
                self.text(*text, false, None);
            }
            // Search results are texts by now.
            Block::Refusal { .. } | Block::SearchResult(_) => {}
            Block::Reasoning { text, signature: seal, .. } => self.thought(text, seal.as_ref()),
            Block::Image { .. } | Block::File { .. } | Block::Audio { .. } | Block::Video { .. } => {
                // Check first: media that is not written must not leave an empty content.
                if self.carries(block) {
                    self.enter(group);
                    self.media(block);
                }
            }
            Block::ToolUse { id, name, input, kind, signature: seal, cache, .. } => {
                self.cached(*cache);
                self.enter(Group::Model);
                let (text, object) = match input {
                    Input::Text(text) => (*text, None),
                    Input::Object(object) => (JsonStr::default(), Some(*object)),
                };
                self.names.push(*name);
                self.ids.push(IndexKey::of(*id));
                let id = if self.dialect.call_ids { *id } else { JsonStr::default() };
                part::begin_call(
                    self.json,
                    &part::CompleteCall { id, name: *name, kind: *kind, text, object },
                );
                let first = self.calls == 0;
                self.calls += 1;
                match seal {
                    Some(seal) => self.signature(seal),
                    // The provider signs only the first of parallel calls.
                    None if first && self.requires_signatures => {
                        self.json.key("thoughtSignature").string(signature::SKIP);
                    }
                    None => {}
                }
                self.json.end_object();
            }
            Block::ToolResult { id, name, content, object, error, cache, .. } => {
                self.cached(*cache);
                self.enter(Group::Results);
                self.result(*id, *name, content, *object, *error);
            }
            Block::Opaque { name, raw } if part::is_own(*name) => {
                self.enter(group);
                self.json.raw(*raw);
            }
            Block::Opaque { .. } => self.notes.lose("server_tool_block"),
        }
    }

    fn cached(&mut self, mark: Option<CacheBreakpoint>) {
        if mark.is_some() {
            self.notes.lose("cache_control");
        }
    }

    fn text(&mut self, text: JsonStr<'_>, thought: bool, seal: Option<&ProviderSignature<'_>>) {
        part::begin_text(self.json, text, thought);
        if let Some(seal) = seal {
            self.signature(seal);
        }
        self.json.end_object();
    }

    fn signature(&mut self, seal: &ProviderSignature<'_>) {
        self.json.key("thoughtSignature").paste(JsonStr::from_escaped(&seal.text));
    }

    /// Writes a thought. Without a signature it is of no value to the provider, so it is lost unless the client uses
    /// this format too.
    fn thought(&mut self, text: &[JsonStr<'_>], seal: Option<&ProviderSignature<'_>>) {
        if seal.is_none() && !self.own {
            self.notes.lose("thinking_block");
            return;
        }
        self.enter(Group::Model);
        let (last, before) = match text.split_last() {
            Some((last, before)) => (Some(*last), before),
            None => (None, text),
        };
        for text in before {
            self.text(*text, true, None);
        }
        // Hidden reasoning has an empty text: a part without data is refused.
        self.text(last.unwrap_or_default(), true, seal);
    }

    fn result(
        &mut self,
        id: JsonStr<'r>,
        name: JsonStr<'r>,
        content: &'r [Block<'r>],
        object: Option<ResultObject<'_>>,
        error: bool,
    ) {
        // Other formats identify the call by its id only; this format needs the function's name.
        let known = self.ids.last(IndexKey::of(id)).and_then(|at| self.names.get(at)).copied();
        let name = if name.is_empty() { known.unwrap_or_default() } else { name };
        if name.is_empty() {
            self.notes.refuse("contents", "A tool result does not belong to a call of the conversation.");
        }
        self.json.begin_object().key("functionResponse").begin_object();
        if self.dialect.call_ids && !id.is_empty() {
            self.json.key("id").paste(id);
        }
        self.json.key("name").paste(name).key("response");
        self.response(content, object, error);
        let files: Vec<_> = content.iter().filter(|block| self.carries(block)).collect();
        if !self.takes_files_in_responses {
            self.later.extend(files);
        } else if !files.is_empty() {
            self.json.key("parts").begin_array();
            files.into_iter().for_each(|block| self.media(block));
            self.json.end_array();
        }
        self.json.end_object().end_object();
        for block in content {
            match block {
                Block::Text { cache, .. } => self.cached(*cache),
                Block::Opaque { .. } => self.notes.lose("server_tool_block"),
                _ => {}
            }
        }
    }

    /// Writes the response of a tool, which must be an object: an object is written unchanged, anything else is
    /// wrapped.
    fn response(&mut self, content: &[Block<'_>], object: Option<ResultObject<'_>>, error: bool) {
        if let Some(value) = object.map(ResultObject::raw) {
            if value.text().starts_with('{') {
                self.json.raw(value);
            } else {
                self.json.begin_object().key("output");
                self.json.raw(value);
                self.json.end_object();
            }
            return;
        }
        let text = joined(content);
        let text = JsonStr::from_escaped(&text);
        // Results are long, and most of them are plain text: only what may be an object is decoded.
        if !error && text.may_be_object() {
            let plain = text.decode();
            if is_object(&plain) {
                self.json.raw(RawJson::from_text(&with_whole_characters(plain.trim())));
                return;
            }
        }
        let name = if error { "error" } else { "output" };
        self.json.begin_object().key(name).paste(text).end_object();
    }

    /// Returns whether media can be written. Records a loss if not.
    fn carries(&mut self, block: &Block<'_>) -> bool {
        let (source, element) = match block {
            Block::Image { source, .. } => (source, "image_url"),
            Block::Audio { source } => (source, "audio"),
            Block::Video { source } => (source, "video"),
            Block::File { source, .. } => (source, "file_url"),
            _ => return false,
        };
        match source {
            MediaSource::Base64 { .. } | MediaSource::Text { .. } => true,
            MediaSource::Url { url, .. } if self.own || self.dialect.media_urls || is_video_page(*url) => {
                true
            }
            MediaSource::Id { .. } if self.own => true,
            MediaSource::Url { .. } => {
                self.notes.lose(element);
                false
            }
            MediaSource::Id { .. } => {
                self.notes.lose("file_id");
                false
            }
        }
    }

    fn media(&mut self, block: &Block<'_>) {
        let (source, name, cache) = match block {
            Block::Image { source, cache, .. } => (source, JsonStr::default(), *cache),
            Block::File { source, name, cache } => (source, *name, *cache),
            Block::Audio { source } | Block::Video { source } => (source, JsonStr::default(), None),
            _ => return,
        };
        self.cached(cache);
        // Only Vertex AI accepts display names; a client of this format knows which API it uses.
        let name = if self.own { name } else { JsonStr::default() };
        match *source {
            MediaSource::Base64 { mime, data } => {
                part::begin_inline(self.json, mime_of(mime), data, name);
            }
            MediaSource::Text { text } => {
                let data = STANDARD.encode_to_string(text.decode().as_bytes());
                let mime = JsonStr::from_escaped("text/plain");
                part::begin_inline(self.json, mime, JsonStr::from_escaped(&data), name);
            }
            MediaSource::Url { url, mime } => {
                let mime = if mime.is_empty() { guess(url, block) } else { mime };
                part::begin_file(self.json, mime, url, name);
            }
            MediaSource::Id { id } => part::begin_file(self.json, JsonStr::default(), id, name),
        }
        match block {
            Block::Image { detail, signature: seal, .. } => {
                if let Some(seal) = seal {
                    self.signature(seal);
                }
                self.detail(*detail);
            }
            Block::Video { .. } => {
                let said = self.videos.get(self.video).filter(|said| !said.is_null());
                self.video += 1;
                if let Some(said) = said {
                    self.json.key("videoMetadata").raw(*said);
                }
            }
            _ => {}
        }
        self.json.end_object();
    }

    fn detail(&mut self, detail: JsonStr<'_>) {
        let level = match detail.escaped() {
            "low" => "MEDIA_RESOLUTION_LOW",
            "high" => "MEDIA_RESOLUTION_HIGH",
            "original" => "MEDIA_RESOLUTION_ULTRA_HIGH",
            _ => return,
        };
        if self.takes_files_in_responses {
            self.json.key("mediaResolution").begin_object().key("level").string(level).end_object();
        } else {
            self.notes.lose("image_detail");
        }
    }
}

/// Joins the texts of a result with line breaks.
fn joined<'c>(content: &[Block<'c>]) -> Cow<'c, str> {
    let mut texts = content.iter().filter_map(|block| match block {
        Block::Text { text, .. } | Block::Refusal { text } => Some(text.escaped()),
        _ => None,
    });
    let first = texts.next().unwrap_or_default();
    let Some(second) = texts.next() else { return Cow::Borrowed(first) };
    let mut all = first.to_owned();
    for text in std::iter::once(second).chain(texts) {
        all.push_str("\\n");
        all.push_str(text);
    }
    Cow::Owned(all)
}

/// Returns whether a URL is a YouTube page: the provider fetches those videos itself.
pub(super) fn is_video_page(url: JsonStr<'_>) -> bool {
    let url = url.decode();
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or_default();
    let host = rest.split('/').next().unwrap_or_default();
    host == "youtu.be" || host == "youtube.com" || host.ends_with(".youtube.com")
}

fn mime_of(mime: JsonStr<'_>) -> JsonStr<'_> {
    // An unregistered media type that many programs use.
    if mime.is("image/jpg") { JsonStr::from_escaped("image/jpeg") } else { mime }
}

/// Guesses the media type from a URL's extension; empty if unknown, `application/pdf` for a file.
fn guess(url: JsonStr<'_>, block: &Block<'_>) -> JsonStr<'static> {
    let url = url.decode();
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let end = path.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    JsonStr::from_escaped(match (end.as_str(), block) {
        ("png", _) => "image/png",
        ("jpg" | "jpeg", _) => "image/jpeg",
        ("webp", _) => "image/webp",
        ("gif", _) => "image/gif",
        ("heic", _) => "image/heic",
        ("txt" | "md", _) => "text/plain",
        ("csv", _) => "text/csv",
        ("html" | "htm", _) => "text/html",
        ("mp3", _) => "audio/mpeg",
        ("wav", _) => "audio/wav",
        ("mp4", _) => "video/mp4",
        ("webm", _) => "video/webm",
        ("mov", _) => "video/quicktime",
        (_, Block::File { .. }) => "application/pdf",
        _ => "",
    })
}
