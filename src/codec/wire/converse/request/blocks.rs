//! Decoder of a client's conversation: turns and their content blocks.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

use base64_simd::STANDARD;

use super::read::{
    attempt, cache_point, each, each_in, not_json, object, object_in, raw, text, union, union_in, wrong,
};
use crate::canonical::content::TYPICAL_TURNS;
use crate::canonical::request::Extra;
use crate::canonical::seal::SignedCallId;
use crate::canonical::{
    Block, CacheBreakpoint, Input, MediaSource, ProviderSignature, ResultObject, Role, SearchResult,
    ToolKind, Turn,
};
use crate::error::ApiError;
use crate::wire::converse::media::MediaKind;
use json::{Cursor, JsonStr, RawJson};

/// Decodes `messages`.
pub(super) fn turns<'a>(
    json: &mut Cursor<'a>,
    turns: &mut Vec<Turn<'a>>,
    extra: &mut Vec<Extra<'a>>,
) -> Result<(), ApiError> {
    turns.reserve(TYPICAL_TURNS);
    each_in(json, "messages", |index, json| {
        let (mut role, mut blocks) = (JsonStr::default(), None);
        object_in(json, format_args!("messages[{index}]"), |key, json| {
            match key {
                "role" => role = text(format_args!("messages[{index}].role"), raw(json)?)?,
                "content" => {
                    blocks = Some(content(format_args!("messages[{index}].content"), json, extra)?);
                }
                _ => drop(raw(json)?),
            }
            Ok(())
        })?;
        let role = match role.escaped() {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            _ => return Err(wrong(format_args!("messages[{index}].role"), "user, assistant or system")),
        };
        let missing = || wrong(format_args!("messages[{index}].content"), "given");
        let blocks = blocks.ok_or_else(missing)?;
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

/// Path of a block, for error messages.
#[derive(Clone, Copy)]
struct Place<'p> {
    list: &'p dyn Display,
    index: usize,
}

impl Display for Place<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.list, self.index)
    }
}

/// Decodes a list of blocks: of a message, of the system prompt or of a tool result.
pub(super) fn content<'a>(
    path: impl Display,
    json: &mut Cursor<'a>,
    extra: &mut Vec<Extra<'a>>,
) -> Result<Vec<Block<'a>>, ApiError> {
    let mut blocks = Vec::new();
    each_in(json, &path, |index, json| block(Place { list: &path, index }, json, extra, &mut blocks))?;
    Ok(blocks)
}

/// Decodes the block at the cursor. Conversations are long: each block is decoded in place, instead of being delimited
/// first at each level of nesting.
fn block<'a>(
    place: Place<'_>,
    json: &mut Cursor<'a>,
    extra: &mut Vec<Extra<'a>>,
    out: &mut Vec<Block<'a>>,
) -> Result<(), ApiError> {
    json.kind().map_err(not_json)?;
    let from = json.offset();
    let before = out.len();
    union_in(json, place, |kind, json| member(place, kind, json, extra, out))?;
    close_opaque(out, before, json.since(from));
    Ok(())
}

/// Sets the text of an opaque block, which is known at its end only. `before` is the number of blocks before it.
fn close_opaque<'a>(blocks: &mut [Block<'a>], before: usize, text: RawJson<'a>) {
    if let Some(Block::Opaque { raw, .. }) = blocks.get_mut(before) {
        *raw = text;
    }
}

/// Decodes the only member of a block. The text of an opaque block is left open.
fn member<'a>(
    place: Place<'_>,
    kind: &'a str,
    json: &mut Cursor<'a>,
    extra: &mut Vec<Extra<'a>>,
    out: &mut Vec<Block<'a>>,
) -> Result<(), ApiError> {
    match kind {
        "text" => out.push(Block::text(text(format_args!("{place}.text"), raw(json)?)?)),
        "image" => {
            let (source, _) = media(place, MediaKind::Image, json, |_, _| {})?;
            out.push(Block::Image { source, detail: JsonStr::default(), cache: None, signature: None });
        }
        "audio" => {
            let (source, _) = media(place, MediaKind::Audio, json, |_, _| {})?;
            out.push(Block::Audio { source });
        }
        "video" => {
            let (source, _) = media(place, MediaKind::Video, json, |_, _| {})?;
            out.push(Block::Video { source });
        }
        "document" => document(place, json, extra, out)?,
        "toolUse" => {
            let mut call = tool_use(place, json)?;
            if let Block::ToolUse { signature: signature @ None, .. } = &mut call {
                *signature = out.pop_if(|before| is_seal_of_call(before)).and_then(|seal| match seal {
                    Block::Text { signature, .. } => signature,
                    _ => None,
                });
            }
            out.push(call);
        }
        "toolResult" => out.push(tool_result(place, json, extra)?),
        "reasoningContent" => out.push(reasoning(place, raw(json)?)?),
        "cachePoint" => {
            let lifetime = cache_point(place, raw(json)?)?;
            mark_last(out, lifetime);
        }
        "guardContent" => {
            let value = raw(json)?;
            record_extra(extra, "guardContent", value);
            guarded(place, value, extra, out)?;
        }
        "citationsContent" => {
            let value = raw(json)?;
            record_extra(extra, "citationsContent", value);
            cited(place, value, out)?;
        }
        "searchResult" => out.push(search_result(place, raw(json)?)?),
        _ => {
            json.skip().map_err(not_json)?;
            out.push(opaque(kind));
        }
    }
    Ok(())
}

/// Creates a block that only this format has, without its text.
fn opaque(name: &str) -> Block<'_> {
    Block::Opaque { name: JsonStr::from_escaped(name), raw: RawJson::NULL }
}

/// Source of a document that is a list of blocks.
type Inside<'a> = Option<RawJson<'a>>;

/// Decodes media and their source. Calls `other` for all other members. The second value is the content of a document
/// in blocks.
fn media<'a>(
    place: Place<'_>,
    kind: MediaKind,
    json: &mut Cursor<'a>,
    mut other: impl FnMut(&str, RawJson<'a>),
) -> Result<(MediaSource<'a>, Inside<'a>), ApiError> {
    let path = |member: &str| format!("{place}.{}.{member}", kind.member());
    let source_path = path("source");
    let (mut format, mut source) = (JsonStr::default(), None);
    object_in(json, format_args!("{place}.{}", kind.member()), |key, json| {
        match key {
            "format" => format = text(path("format"), raw(json)?)?,
            "source" => {
                // A fault in a member that follows is reported before one in the source.
                let found =
                    attempt(json, |json| union_in(json, &*source_path, |name, json| Ok((name, raw(json)?))))
                        .map_err(not_json)?;
                source = Some(found);
            }
            _ => other(key, raw(json)?),
        }
        Ok(())
    })?;
    let (name, value) = source.ok_or_else(|| wrong(&*source_path, "given"))??;
    let mime = JsonStr::from_escaped(kind.media_type(format.escaped()));
    Ok(match name {
        "bytes" => {
            let data = text(path("source.bytes"), value)?;
            (MediaSource::Base64 { mime, data }, None)
        }
        "text" => (MediaSource::Text { text: text(path("source.text"), value)? }, None),
        "s3Location" => {
            let mut url = JsonStr::default();
            object(path("source.s3Location"), value, |key, value| {
                if key == "uri" {
                    url = value.as_str().unwrap_or_default();
                }
                Ok(())
            })?;
            (MediaSource::Url { url, mime }, None)
        }
        "content" => (MediaSource::Text { text: JsonStr::default() }, Some(value)),
        _ => return Err(wrong(source_path, "a known source")),
    })
}

fn document<'a>(
    place: Place<'_>,
    json: &mut Cursor<'a>,
    extra: &mut Vec<Extra<'a>>,
    out: &mut Vec<Block<'a>>,
) -> Result<(), ApiError> {
    let (mut name, mut context) = (JsonStr::default(), JsonStr::default());
    let (source, inside) = media(place, MediaKind::Document, json, |key, value| match key {
        "name" => name = value.as_str().unwrap_or_default(),
        "context" => context = value.as_str().unwrap_or_default(),
        "citations" if value.text().contains("true") => record_extra(extra, "citations", value),
        _ => {}
    })?;
    if !context.is_empty() {
        out.push(Block::text(context));
    }
    let Some(inside) = inside else {
        out.push(Block::File { source, name, cache: None });
        return Ok(());
    };
    // Other formats have no blocks inside a document, so they become blocks of the message.
    if !name.is_empty() {
        out.push(Block::text(name));
    }
    texts(format_args!("{place}.document.source.content"), inside, out)
}

/// Decodes a list of `{"text":...}`.
fn texts<'a>(path: impl Display, value: RawJson<'a>, out: &mut Vec<Block<'a>>) -> Result<(), ApiError> {
    each(&path, value, |index, value| {
        object(format_args!("{path}[{index}]"), value, |key, value| {
            if key == "text" {
                out.push(Block::text(text(format_args!("{path}[{index}].text"), value)?));
            }
            Ok(())
        })
    })
}

fn tool_use<'a>(place: Place<'_>, json: &mut Cursor<'a>) -> Result<Block<'a>, ApiError> {
    let (mut id, mut name, mut input) = (None, None, RawJson::from_text("{}"));
    let mut is_server = false;
    object_in(json, format_args!("{place}.toolUse"), |key, json| {
        let value = raw(json)?;
        match key {
            "toolUseId" => id = value.as_str(),
            "name" => name = value.as_str(),
            "input" => input = value,
            // Calls of the client's tools are marked as well, with `tool_use`.
            "type" => is_server = value.as_str().is_some_and(|kind| kind.is("server_tool_use")),
            _ => {}
        }
        Ok(())
    })?;
    if is_server {
        return Ok(opaque("toolUse"));
    }
    let given = |value: Option<JsonStr<'a>>, member: &str| {
        value.ok_or_else(|| wrong(format_args!("{place}.toolUse.{member}"), "a string"))
    };
    if !input.text().starts_with('{') {
        return Err(wrong(format_args!("{place}.toolUse.input"), "an object"));
    }
    let carried = SignedCallId::read(given(id, "toolUseId")?);
    Ok(Block::ToolUse {
        id: carried.id,
        name: given(name, "name")?,
        input: Input::Object(input),
        kind: ToolKind::Function,
        namespace: JsonStr::default(),
        signature: carried.signature,
        cache: None,
    })
}

fn tool_result<'a>(
    place: Place<'_>,
    json: &mut Cursor<'a>,
    extra: &mut Vec<Extra<'a>>,
) -> Result<Block<'a>, ApiError> {
    let (mut id, mut parts, mut error, mut is_server) = (None, None, false, false);
    let extras = extra.len();
    object_in(json, format_args!("{place}.toolResult"), |key, json| {
        match key {
            "toolUseId" => id = raw(json)?.as_str(),
            "content" => {
                // Of several contents the last one counts. A fault in it is one only if the result turns out to be of a
                // tool of the client.
                extra.truncate(extras);
                parts = Some(attempt(json, |json| result_parts(place, json, extra)).map_err(not_json)?);
            }
            "status" => error = raw(json)?.as_str().is_some_and(|status| status.is("error")),
            "type" => is_server = raw(json)?.as_str().is_some_and(is_server_result),
            _ => drop(raw(json)?),
        }
        Ok(())
    })?;
    if is_server {
        extra.truncate(extras);
        return Ok(opaque("toolResult"));
    }
    let id = id.ok_or_else(|| wrong(format_args!("{place}.toolResult.toolUseId"), "a string"))?;
    let (content, object) = parts.transpose()?.unwrap_or_default();
    Ok(Block::ToolResult {
        id: SignedCallId::read(id).id,
        name: JsonStr::default(),
        content,
        object,
        error,
        kind: ToolKind::Function,
        cache: None,
    })
}

/// Returns whether a type marks the result of a tool that the provider runs: `nova_grounding_result`,
/// `nova_code_interpreter_result`.
fn is_server_result(kind: JsonStr<'_>) -> bool {
    kind.escaped().ends_with("_result") && !kind.is("tool_result")
}

/// Blocks of a tool result, and its object.
type ResultParts<'a> = (Vec<Block<'a>>, Option<ResultObject<'a>>);

/// Decodes the content of a tool result.
fn result_parts<'a>(
    place: Place<'_>,
    json: &mut Cursor<'a>,
    extra: &mut Vec<Extra<'a>>,
) -> Result<ResultParts<'a>, ApiError> {
    let (mut content, mut found) = (Vec::new(), None);
    let path = format_args!("{place}.toolResult.content");
    each_in(json, path, |index, json| {
        let part = Place { list: &path, index };
        json.kind().map_err(not_json)?;
        let from = json.offset();
        let before = content.len();
        union_in(json, part, |kind, json| {
            match kind {
                // Every other format has one object for a result at most, before its other parts.
                "json" if found.is_none() && before == 0 => {
                    found = Some(ResultObject::read(json).map_err(not_json)?);
                }
                "toolUse" | "toolResult" => return Err(wrong(part, "a block without tools")),
                _ => member(part, kind, json, extra, &mut content)?,
            }
            Ok(())
        })?;
        close_opaque(&mut content, before, json.since(from));
        Ok(())
    })?;
    Ok((content, found))
}

/// Returns whether a block is an empty text with a signature: that of the call behind it.
fn is_seal_of_call(block: &Block<'_>) -> bool {
    matches!(block, Block::Text { text, signature: Some(_), .. } if text.is_empty())
}

/// Decodes a block of reasoning. The signature of a call comes in one of its own, without text.
fn reasoning<'a>(place: Place<'_>, value: RawJson<'a>) -> Result<Block<'a>, ApiError> {
    let path = format!("{place}.reasoningContent");
    let (kind, value) = union(&*path, value)?;
    if kind == "redactedContent" {
        let blob = text(format_args!("{path}.redactedContent"), value)?;
        return Ok(Block::Reasoning { text: Vec::new(), signature: blob_signature(blob), hidden: true });
    }
    let (mut words, mut signature, mut of_call) = (JsonStr::default(), None, None);
    object(format_args!("{path}.reasoningText"), value, |key, value| {
        match key {
            "text" => words = text(format_args!("{path}.reasoningText.text"), value)?,
            "signature" => {
                of_call = value.as_str().and_then(ProviderSignature::read_of_call);
                // An empty signature means that the block is not signed.
                signature = value.as_str().and_then(ProviderSignature::read);
            }
            _ => {}
        }
        Ok(())
    })?;
    if of_call.is_some() {
        return Ok(Block::Text { text: JsonStr::default(), cache: None, signature: of_call });
    }
    let words = Some(words).filter(|words| !words.is_empty());
    Ok(Block::Reasoning { text: words.into_iter().collect(), signature, hidden: false })
}

/// Reads a signature that is a blob: in base64, the envelope of a signature that was translated; otherwise the one of
/// the format's own provider, which stays as it is.
pub(in crate::wire) fn blob_signature(blob: JsonStr<'_>) -> Option<ProviderSignature<'_>> {
    let decoded = STANDARD.decode_to_vec(blob.decode().as_bytes()).ok();
    let envelope = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let opened = envelope.as_deref().and_then(|text| {
        let read = ProviderSignature::read(JsonStr::from_escaped(text))?;
        let issuer = read.issuer?.into_owned();
        Some(ProviderSignature { issuer: Some(Cow::Owned(issuer)), text: Cow::Owned(read.text.into_owned()) })
    });
    opened.or_else(|| ProviderSignature::read(blob))
}

fn guarded<'a>(
    place: Place<'_>,
    value: RawJson<'a>,
    extra: &mut Vec<Extra<'a>>,
    out: &mut Vec<Block<'a>>,
) -> Result<(), ApiError> {
    let (kind, inner) = union(format_args!("{place}.guardContent"), value)?;
    match kind {
        "text" => object(format_args!("{place}.guardContent.text"), inner, |key, value| {
            if key == "text" {
                out.push(Block::text(text(format_args!("{place}.guardContent.text.text"), value)?));
            }
            Ok(())
        }),
        "image" => block(place, &mut Cursor::new(value.text()), extra, out),
        _ => Err(wrong(format_args!("{place}.guardContent"), "a text or an image")),
    }
}

/// Decodes a cited passage of an earlier response: its text.
fn cited<'a>(place: Place<'_>, value: RawJson<'a>, out: &mut Vec<Block<'a>>) -> Result<(), ApiError> {
    object(format_args!("{place}.citationsContent"), value, |key, value| match key {
        "content" => texts(format_args!("{place}.citationsContent.content"), value, out),
        _ => Ok(()),
    })
}

/// Decodes a search result that the client supplies for citations.
fn search_result<'a>(place: Place<'_>, value: RawJson<'a>) -> Result<Block<'a>, ApiError> {
    let mut found = SearchResult::default();
    object(format_args!("{place}.searchResult"), value, |key, value| {
        match key {
            "title" => found.title = value.as_str().unwrap_or_default(),
            "source" => found.source = value.as_str().unwrap_or_default(),
            "content" => {
                let mut blocks = Vec::new();
                texts(format_args!("{place}.searchResult.content"), value, &mut blocks)?;
                found.texts.extend(blocks.into_iter().filter_map(|block| match block {
                    Block::Text { text, .. } => Some(text),
                    _ => None,
                }));
            }
            "citations" => found.cites = value.text().contains("true"),
            _ => {}
        }
        Ok(())
    })?;
    Ok(Block::SearchResult(Box::new(found)))
}

/// Sets the cache mark of the last block, if it can have one.
fn mark_last(blocks: &mut [Block<'_>], lifetime: CacheBreakpoint) {
    if let Some(Block::SearchResult(result)) = blocks.last_mut() {
        result.cache = Some(lifetime);
    } else if let Some(
        Block::Text { cache, .. }
        | Block::Image { cache, .. }
        | Block::File { cache, .. }
        | Block::ToolUse { cache, .. }
        | Block::ToolResult { cache, .. },
    ) = blocks.last_mut()
    {
        *cache = Some(lifetime);
    }
}

/// Records an extra once.
pub(super) fn record_extra<'a>(extra: &mut Vec<Extra<'a>>, name: &'a str, value: RawJson<'a>) {
    if !extra.iter().any(|known| known.name == name) {
        extra.push(Extra { name, value });
    }
}
