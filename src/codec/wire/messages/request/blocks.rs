//! Decoder of a client's conversation: turns and their content blocks.

use std::fmt::{self, Display, Formatter};

use super::decode::{each_in, object, object_in, raw, text, wrong};
use crate::canonical::content::TYPICAL_TURNS;
use crate::canonical::request::Extra;
use crate::canonical::seal::SignedCallId;
use crate::canonical::{
    Block, CacheBreakpoint, Input, MediaSource, ProviderSignature, Role, SearchResult, ToolKind, Turn,
};
use crate::error::ApiError;
use json::{Cursor, JsonStr, RawJson, ValueKind};

/// Decodes `messages`.
pub(super) fn turns<'a>(
    json: &mut Cursor<'a>,
    turns: &mut Vec<Turn<'a>>,
    extra: &mut Vec<Extra<'a>>,
) -> Result<(), ApiError> {
    turns.reserve(TYPICAL_TURNS);
    each_in(json, "messages", |index, json| {
        let (mut role, mut content) = (JsonStr::default(), None);
        object_in(json, format_args!("messages[{index}]"), |key, json| {
            match key {
                "role" => role = text(format_args!("messages[{index}].role"), raw(json)?)?,
                "content" => {
                    let place = Place { message: Some(index), ..Place::default() };
                    content = Some(content_in(json, place, extra)?);
                }
                _ => {
                    raw(json)?;
                }
            }
            Ok(())
        })?;
        let role = match role.escaped() {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            _ => return Err(wrong(format_args!("messages[{index}].role"), "user, assistant or system")),
        };
        let Some(blocks) = content else {
            return Err(wrong(format_args!("messages[{index}].content"), "given"));
        };
        if role == Role::User && blocks.is_empty() {
            return Err(wrong(format_args!("messages[{index}].content"), "an array that is not empty"));
        }
        turns.push(Turn::new(role, blocks));
        Ok(())
    })?;
    if turns.is_empty() {
        return Err(wrong("messages", "an array that is not empty"));
    }
    Ok(())
}

/// Decodes `system`.
pub(super) fn system<'a>(value: RawJson<'a>, extra: &mut Vec<Extra<'a>>) -> Result<Vec<Block<'a>>, ApiError> {
    content_of(value, Place::default(), extra)
}

/// Path of a block, for error messages.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Index of the message. `None` for the system prompt.
    message: Option<usize>,
    block: Option<usize>,
    /// Number of lists of blocks around it.
    depth: u32,
}

/// Lists of blocks within each other that are read: a text in a document in the result of a tool is in the third. A
/// block whose type follows its content is scanned once more at each level.
const MAX_DEPTH: u32 = 8;

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.message, self.block) {
            (None, None) => f.write_str("system"),
            (None, Some(block)) => write!(f, "system[{block}]"),
            (Some(message), None) => write!(f, "messages[{message}].content"),
            (Some(message), Some(block)) => write!(f, "messages[{message}].content[{block}]"),
        }
    }
}

impl Place {
    fn wrong(self, member: &str, must_be: &str) -> ApiError {
        wrong(format_args!("{self}{member}"), must_be)
    }
}

/// Decodes content: a string or an array of blocks.
fn content_of<'a>(
    value: RawJson<'a>,
    place: Place,
    extra: &mut Vec<Extra<'a>>,
) -> Result<Vec<Block<'a>>, ApiError> {
    content_in(&mut Cursor::new(value.text()), place, extra)
}

/// Decodes content at the position of the cursor.
fn content_in<'a>(
    json: &mut Cursor<'a>,
    place: Place,
    extra: &mut Vec<Extra<'a>>,
) -> Result<Vec<Block<'a>>, ApiError> {
    match json.kind() {
        Ok(ValueKind::String) => return Ok(raw(json)?.as_str().map(Block::text).into_iter().collect()),
        Ok(ValueKind::Array) => {}
        _ => return Err(place.wrong("", "a string or an array of blocks")),
    }
    if place.depth >= MAX_DEPTH {
        return Err(place.wrong("", "nested less deeply"));
    }
    let mut blocks = Vec::new();
    each_in(json, "", |index, json| {
        // Errors name the outermost block, also for nested content.
        let place = Place { block: Some(place.block.unwrap_or(index)), depth: place.depth + 1, ..place };
        Members::read(json, place, extra)?.block(place, extra, &mut blocks)
    })?;
    Ok(blocks)
}

/// Members of a block, not interpreted yet.
#[derive(Default)]
struct Members<'a> {
    /// Text of the whole block. `None` if it is a string.
    raw: Option<RawJson<'a>>,
    kind: JsonStr<'a>,
    text: Option<RawJson<'a>>,
    source: Option<RawJson<'a>>,
    title: Option<RawJson<'a>>,
    context: Option<RawJson<'a>>,
    content: Option<RawJson<'a>>,
    /// Content of a tool result, if it was decoded directly.
    inside: Option<Vec<Block<'a>>>,
    citations: Option<RawJson<'a>>,
    cache: Option<CacheBreakpoint>,
    id: Option<RawJson<'a>>,
    name: Option<RawJson<'a>>,
    input: Option<RawJson<'a>>,
    error: bool,
    thinking: Option<RawJson<'a>>,
    seal: Option<RawJson<'a>>,
}

impl<'a> Members<'a> {
    fn read(json: &mut Cursor<'a>, place: Place, extra: &mut Vec<Extra<'a>>) -> Result<Self, ApiError> {
        let mut block = Members::default();
        // Some clients write a text block as a plain string.
        if json.kind() == Ok(ValueKind::String) {
            block.kind = JsonStr::from_escaped("text");
            block.text = Some(raw(json)?);
            return Ok(block);
        }
        let from = json.offset();
        object_in(json, place, |key, json| {
            // Tool results are long. Decode them in place instead of skipping them first; `type` nearly always precedes
            // them.
            if key == "content" && block.kind.escaped() == "tool_result" {
                block.inside = Some(content_in(json, place, extra)?);
                return Ok(());
            }
            let value = raw(json)?;
            match key {
                "type" => block.kind = value.as_str().unwrap_or_default(),
                "text" => block.text = Some(value),
                "source" => block.source = Some(value),
                "title" => block.title = Some(value),
                "context" => block.context = Some(value),
                "content" => block.content = Some(value),
                "citations" => block.citations = Some(value),
                "cache_control" => block.cache = Some(cache_mark(value)),
                "id" | "tool_use_id" => block.id = Some(value),
                "name" => block.name = Some(value),
                "input" => block.input = Some(value),
                "is_error" => block.error = value.as_bool() == Some(true),
                "thinking" => block.thinking = Some(value),
                "signature" | "data" => block.seal = Some(value),
                _ => {}
            }
            Ok(())
        })?;
        block.raw = Some(json.since(from));
        Ok(block)
    }

    fn block(
        self,
        place: Place,
        extra: &mut Vec<Extra<'a>>,
        out: &mut Vec<Block<'a>>,
    ) -> Result<(), ApiError> {
        let string = |value: Option<RawJson<'a>>| value.and_then(RawJson::as_str);
        let given = |value, member| string(value).ok_or_else(|| place.wrong(member, "a string"));
        let cache = self.cache;
        out.push(match self.kind.escaped() {
            "text" => Block::Text { text: given(self.text, ".text")?, cache, signature: None },
            "image" => {
                let source = self.source(place)?;
                Block::Image { source, detail: JsonStr::default(), cache, signature: None }
            }
            "document" => return self.document(place, extra, out),
            "search_result" => self.search_result(place, extra)?,
            "thinking" => {
                // An empty signature means that the block is not signed.
                let seal = string(self.seal).and_then(ProviderSignature::read);
                // The text is left out where the model, or the client's settings, do not show it.
                let text = Some(given(self.thinking, ".thinking")?).filter(|text| !text.is_empty());
                Block::Reasoning { text: text.into_iter().collect(), signature: seal, hidden: false }
            }
            "redacted_thinking" => {
                let seal = ProviderSignature::read(given(self.seal, ".data")?);
                Block::Reasoning { text: Vec::new(), signature: seal, hidden: true }
            }
            "tool_use" => {
                let carried = SignedCallId::read(given(self.id, ".id")?);
                let input = match self.input {
                    None => RawJson::from_text("{}"),
                    Some(input) if input.text().starts_with('{') => input,
                    Some(_) => return Err(place.wrong(".input", "an object")),
                };
                Block::ToolUse {
                    id: carried.id,
                    name: given(self.name, ".name")?,
                    input: Input::Object(input),
                    kind: ToolKind::Function,
                    namespace: JsonStr::default(),
                    signature: carried.signature,
                    cache,
                }
            }
            "tool_result" => {
                let content = match (self.inside, self.content) {
                    (Some(inside), _) => inside,
                    (None, Some(content)) => content_of(content, place, extra)?,
                    (None, None) => Vec::new(),
                };
                Block::ToolResult {
                    id: SignedCallId::read(given(self.id, ".tool_use_id")?).id,
                    name: JsonStr::default(),
                    content,
                    object: None,
                    error: self.error,
                    kind: ToolKind::Function,
                    cache,
                }
            }
            "" => return Err(place.wrong(".type", "a string")),
            _ => Block::Opaque { name: self.kind, raw: self.raw.unwrap_or(RawJson::NULL) },
        });
        Ok(())
    }

    fn source(&self, place: Place) -> Result<MediaSource<'a>, ApiError> {
        let missing = || place.wrong(".source", "given");
        source(self.source.ok_or_else(missing)?)?.ok_or_else(|| place.wrong(".source", "a known source"))
    }

    fn document(
        self,
        place: Place,
        extra: &mut Vec<Extra<'a>>,
        out: &mut Vec<Block<'a>>,
    ) -> Result<(), ApiError> {
        if let Some(citations) = self.citations.filter(|value| value.text().contains("true")) {
            record_extra(extra, "citations", citations);
        }
        let string = |value: Option<RawJson<'a>>| value.and_then(RawJson::as_str).unwrap_or_default();
        let (name, context) = (string(self.title), string(self.context));
        if !context.is_empty() {
            out.push(Block::text(context));
        }
        let inside = self.source.and_then(inside_of);
        let Some(inside) = inside else {
            out.push(Block::File { source: self.source(place)?, name, cache: self.cache });
            return Ok(());
        };
        if let Some(text) = inside.as_str() {
            out.push(Block::File { source: MediaSource::Text { text }, name, cache: self.cache });
            return Ok(());
        }
        // Other formats have no blocks inside a document, so they become blocks of the message.
        if !name.is_empty() {
            out.push(Block::text(name));
        }
        out.extend(content_of(inside, place, extra)?);
        mark_last(out, self.cache);
        Ok(())
    }

    /// Decodes a search result that the client supplies for citations.
    fn search_result(self, place: Place, extra: &mut Vec<Extra<'a>>) -> Result<Block<'a>, ApiError> {
        let string = |value: Option<RawJson<'a>>| value.and_then(RawJson::as_str).unwrap_or_default();
        let mut result = SearchResult {
            title: string(self.title),
            source: string(self.source),
            cites: self.citations.is_some_and(|value| value.text().contains("true")),
            cache: self.cache,
            ..SearchResult::default()
        };
        let content = self.content.map(|content| content_of(content, place, extra)).transpose()?;
        for block in content.unwrap_or_default() {
            if let Block::Text { text, cache, .. } = block {
                result.texts.push(text);
                result.cache = cache.or(result.cache);
            }
        }
        Ok(Block::SearchResult(Box::new(result)))
    }
}

/// Returns the blocks or the text inside a document source of type `content`. `None` for other sources.
fn inside_of(source: RawJson<'_>) -> Option<RawJson<'_>> {
    let (mut kind, mut content) = (None, None);
    object("", source, |key, value| {
        match key {
            "type" => kind = value.as_str(),
            "content" => content = Some(value),
            _ => {}
        }
        Ok(())
    })
    .ok()?;
    content.filter(|_| kind.is_some_and(|kind| kind.is("content")))
}

/// Decodes the source of an image or document. `None` for an unknown type.
fn source(value: RawJson<'_>) -> Result<Option<MediaSource<'_>>, ApiError> {
    let (mut kind, mut mime) = (JsonStr::default(), JsonStr::default());
    let (mut data, mut url, mut id) = (None, None, None);
    object("source", value, |key, value| {
        match key {
            "type" => kind = value.as_str().unwrap_or_default(),
            "media_type" => mime = value.as_str().unwrap_or_default(),
            "data" => data = value.as_str(),
            "url" => url = value.as_str(),
            "file_id" => id = value.as_str(),
            _ => {}
        }
        Ok(())
    })?;
    Ok(match kind.escaped() {
        "base64" => data.map(|data| MediaSource::Base64 { mime, data }),
        "text" => data.map(|text| MediaSource::Text { text }),
        "url" => url.map(MediaSource::from_url),
        "file" => id.map(|id| MediaSource::Id { id }),
        _ => None,
    })
}

/// Sets the cache mark of the last block, if it can have one.
fn mark_last(blocks: &mut [Block<'_>], mark: Option<CacheBreakpoint>) {
    if let Some(Block::SearchResult(result)) = blocks.last_mut() {
        result.cache = mark.or(result.cache);
    } else if let Some(Block::Text { cache, .. } | Block::Image { cache, .. } | Block::File { cache, .. }) =
        blocks.last_mut()
    {
        *cache = mark.or(*cache);
    }
}

/// Records an extra once.
pub(super) fn record_extra<'a>(extra: &mut Vec<Extra<'a>>, name: &'a str, value: RawJson<'a>) {
    if !extra.iter().any(|known| known.name == name) {
        extra.push(Extra { name, value });
    }
}

/// Returns the lifetime of a cache mark. `persistent` is the gateway specification's name for one hour.
pub(super) fn cache_mark(value: RawJson<'_>) -> CacheBreakpoint {
    let mut mark = CacheBreakpoint::Short;
    let read = object("cache_control", value, |key, value| {
        match (key, value.as_str().unwrap_or_default().escaped()) {
            ("type", "persistent") | ("ttl", "1h") => mark = CacheBreakpoint::Long,
            _ => {}
        }
        Ok(())
    });
    if read.is_ok() { mark } else { CacheBreakpoint::Short }
}
