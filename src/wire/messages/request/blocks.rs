//! A client's conversation: turns and their blocks.

use std::fmt::{self, Display, Formatter};

use super::decode::{each_in, object, object_in, raw, text, wrong};
use crate::canonical::request::Extra;
use crate::canonical::seal::Carried;
use crate::canonical::{Block, CacheMark, Input, Role, Seal, Source, ToolKind, Turn};
use crate::error::ApiError;
use crate::json::{Cursor, JsonStr, Kind, RawJson};

/// Reads `messages`.
pub(super) fn turns<'a>(
    json: &mut Cursor<'a>,
    turns: &mut Vec<Turn<'a>>,
    extra: &mut Vec<Extra<'a>>,
) -> Result<(), ApiError> {
    each_in(json, "messages", |index, json| {
        let (mut role, mut content) = (JsonStr::default(), None);
        object_in(json, format_args!("messages[{index}]"), |key, json| {
            match key {
                "role" => role = text(format_args!("messages[{index}].role"), raw(json)?)?,
                "content" => {
                    let place = Place { message: Some(index), block: None };
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
        turns.push(Turn::new(role, blocks));
        Ok(())
    })?;
    if turns.is_empty() {
        return Err(wrong("messages", "an array that is not empty"));
    }
    Ok(())
}

/// Reads `system`.
pub(super) fn system<'a>(value: RawJson<'a>, extra: &mut Vec<Extra<'a>>) -> Result<Vec<Block<'a>>, ApiError> {
    content_of(value, Place { message: None, block: None }, extra)
}

/// Where a block stands, for error messages.
#[derive(Clone, Copy)]
struct Place {
    /// The message; nothing for the instructions.
    message: Option<usize>,
    block: Option<usize>,
}

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

/// A string, or an array of blocks.
fn content_of<'a>(
    value: RawJson<'a>,
    place: Place,
    extra: &mut Vec<Extra<'a>>,
) -> Result<Vec<Block<'a>>, ApiError> {
    content_in(&mut Cursor::new(value.text()), place, extra)
}

/// The same where it stands.
fn content_in<'a>(
    json: &mut Cursor<'a>,
    place: Place,
    extra: &mut Vec<Extra<'a>>,
) -> Result<Vec<Block<'a>>, ApiError> {
    match json.kind() {
        Ok(Kind::String) => return Ok(raw(json)?.as_str().map(Block::text).into_iter().collect()),
        Ok(Kind::Array) => {}
        _ => return Err(place.wrong("", "a string or an array of blocks")),
    }
    let mut blocks = Vec::new();
    each_in(json, "", |index, json| {
        let place = Place { block: Some(place.block.unwrap_or(index)), ..place };
        Members::read(json, place, extra)?.block(place, extra, &mut blocks)
    })?;
    Ok(blocks)
}

/// The members of a block, unread.
#[derive(Default)]
struct Members<'a> {
    /// All of it, if it is an object.
    raw: Option<RawJson<'a>>,
    kind: JsonStr<'a>,
    text: Option<RawJson<'a>>,
    source: Option<RawJson<'a>>,
    title: Option<RawJson<'a>>,
    context: Option<RawJson<'a>>,
    content: Option<RawJson<'a>>,
    /// What a tool's result consists of, where it was read at once.
    inside: Option<Vec<Block<'a>>>,
    citations: Option<RawJson<'a>>,
    cache: Option<CacheMark>,
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
        // A block of the simplest kind, as some clients write it.
        if json.kind() == Ok(Kind::String) {
            block.kind = JsonStr::from_escaped("text");
            block.text = Some(raw(json)?);
            return Ok(block);
        }
        let from = json.offset();
        object_in(json, place, |key, json| {
            // What tools say is long, and what kind of block this is stands before it nearly always.
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
            "text" => Block::Text { text: given(self.text, ".text")?, cache, seal: None },
            "image" => {
                let source = self.source(place)?;
                Block::Image { source, detail: JsonStr::default(), cache, seal: None }
            }
            "document" => return self.document(place, extra, out),
            "search_result" => return self.search_result(place, extra, out),
            "thinking" => {
                // An empty signature is none: it marks what nobody signed.
                let seal = string(self.seal).and_then(Seal::read);
                Block::Reasoning { text: vec![given(self.thinking, ".thinking")?], seal, hidden: false }
            }
            "redacted_thinking" => {
                let seal = Seal::read(given(self.seal, ".data")?);
                Block::Reasoning { text: Vec::new(), seal, hidden: true }
            }
            "tool_use" => {
                let carried = Carried::read(given(self.id, ".id")?);
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
                    seal: carried.seal,
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
                    id: Carried::read(given(self.id, ".tool_use_id")?).id,
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

    fn source(&self, place: Place) -> Result<Source<'a>, ApiError> {
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
            note(extra, "citations", citations);
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
            out.push(Block::File { source: Source::Text { text }, name, cache: self.cache });
            return Ok(());
        }
        // Blocks of its own: other formats have none in a document.
        if !name.is_empty() {
            out.push(Block::text(name));
        }
        out.extend(content_of(inside, place, extra)?);
        mark_last(out, self.cache);
        Ok(())
    }

    /// What the client found for the model to cite: other formats know it as text.
    fn search_result(
        self,
        place: Place,
        extra: &mut Vec<Extra<'a>>,
        out: &mut Vec<Block<'a>>,
    ) -> Result<(), ApiError> {
        note(extra, "search_result", self.raw.unwrap_or(RawJson::NULL));
        for value in [self.title, self.source].into_iter().flatten() {
            if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
                out.push(Block::text(text));
            }
        }
        if let Some(content) = self.content {
            out.extend(content_of(content, place, extra)?);
        }
        mark_last(out, self.cache);
        Ok(())
    }
}

/// The blocks, or the text, inside a document.
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

/// Where an image or a document is; nothing for a kind of source that is not known.
fn source(value: RawJson<'_>) -> Result<Option<Source<'_>>, ApiError> {
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
        "base64" => data.map(|data| Source::Base64 { mime, data }),
        "text" => data.map(|text| Source::Text { text }),
        "url" => url.map(Source::from_url),
        "file" => id.map(|id| Source::Id { id }),
        _ => None,
    })
}

/// Puts a mark on the last block, if it can carry one.
fn mark_last(blocks: &mut [Block<'_>], mark: Option<CacheMark>) {
    if let Some(Block::Text { cache, .. } | Block::Image { cache, .. } | Block::File { cache, .. }) =
        blocks.last_mut()
    {
        *cache = mark.or(*cache);
    }
}

/// Says once that there was such a thing.
pub(super) fn note<'a>(extra: &mut Vec<Extra<'a>>, name: &'a str, value: RawJson<'a>) {
    if !extra.iter().any(|known| known.name == name) {
        extra.push(Extra { name, value });
    }
}

/// How long a mark asks for. `persistent` is the name of the hour in the API document.
pub(super) fn cache_mark(value: RawJson<'_>) -> CacheMark {
    let mut mark = CacheMark::Short;
    let read = object("cache_control", value, |key, value| {
        match (key, value.as_str().unwrap_or_default().escaped()) {
            ("type", "persistent") | ("ttl", "1h") => mark = CacheMark::Long,
            _ => {}
        }
        Ok(())
    });
    if read.is_ok() { mark } else { CacheMark::Short }
}
