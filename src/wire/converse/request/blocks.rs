//! Decoder of a client's conversation: turns and their content blocks.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};

use base64_simd::STANDARD;

use super::read::{cache_point, each, object, text, union, wrong};
use crate::canonical::content::TYPICAL_TURNS;
use crate::canonical::request::Extra;
use crate::canonical::seal::SignedCallId;
use crate::canonical::{Block, CacheBreakpoint, Input, MediaSource, ProviderSignature, Role, ToolKind, Turn};
use crate::error::ApiError;
use crate::json::{JsonStr, RawJson};
use crate::wire::converse::media::MediaKind;

/// Decodes `messages`.
pub(super) fn turns<'a>(
    value: RawJson<'a>,
    turns: &mut Vec<Turn<'a>>,
    extra: &mut Vec<Extra<'a>>,
) -> Result<(), ApiError> {
    turns.reserve(TYPICAL_TURNS);
    each("messages", value, |index, value| {
        let (mut role, mut blocks) = (JsonStr::default(), None);
        object(format_args!("messages[{index}]"), value, |key, value| {
            match key {
                "role" => role = text(format_args!("messages[{index}].role"), value)?,
                "content" => {
                    blocks = Some(content(format_args!("messages[{index}].content"), value, extra)?);
                }
                _ => {}
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
        turns.push(Turn::new(role, blocks.ok_or_else(missing)?));
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
    value: RawJson<'a>,
    extra: &mut Vec<Extra<'a>>,
) -> Result<Vec<Block<'a>>, ApiError> {
    let mut blocks = Vec::new();
    each(&path, value, |index, value| block(Place { list: &path, index }, value, extra, &mut blocks))?;
    Ok(blocks)
}

fn block<'a>(
    place: Place<'_>,
    whole: RawJson<'a>,
    extra: &mut Vec<Extra<'a>>,
    out: &mut Vec<Block<'a>>,
) -> Result<(), ApiError> {
    let (kind, value) = union(place, whole)?;
    match kind {
        "text" => out.push(Block::text(text(format_args!("{place}.text"), value)?)),
        "image" => {
            let (source, _) = media(place, MediaKind::Image, value)?;
            out.push(Block::Image { source, detail: JsonStr::default(), cache: None, signature: None });
        }
        "audio" => {
            let (source, _) = media(place, MediaKind::Audio, value)?;
            out.push(Block::Audio { source });
        }
        "video" => {
            let (source, _) = media(place, MediaKind::Video, value)?;
            out.push(Block::Video { source });
        }
        "document" => document(place, value, extra, out)?,
        "toolUse" => out.push(tool_use(place, whole, value)?),
        "toolResult" => out.push(tool_result(place, whole, value, extra)?),
        "reasoningContent" => out.push(reasoning(place, value)?),
        "cachePoint" => {
            let lifetime = cache_point(place, value)?;
            mark_last(out, lifetime);
        }
        "guardContent" => {
            record_extra(extra, "guardContent", value);
            guarded(place, value, extra, out)?;
        }
        "citationsContent" => {
            record_extra(extra, "citations", value);
            cited(place, value, out)?;
        }
        "searchResult" => {
            record_extra(extra, "search_result", value);
            search_result(place, value, extra, out)?;
        }
        _ => out.push(Block::Opaque { name: JsonStr::from_escaped(kind), raw: whole }),
    }
    Ok(())
}

/// Source of a document that is a list of blocks.
type Inside<'a> = Option<RawJson<'a>>;

/// Decodes the source of media. The second value is the content of a document in blocks.
fn media<'a>(
    place: Place<'_>,
    kind: MediaKind,
    value: RawJson<'a>,
) -> Result<(MediaSource<'a>, Inside<'a>), ApiError> {
    let path = |member: &str| format!("{place}.{}.{member}", kind.member());
    let (mut format, mut source) = (JsonStr::default(), None);
    object(format_args!("{place}.{}", kind.member()), value, |key, value| {
        match key {
            "format" => format = text(path("format"), value)?,
            "source" => source = Some(value),
            _ => {}
        }
        Ok(())
    })?;
    let source = source.ok_or_else(|| wrong(path("source"), "given"))?;
    let source_path = path("source");
    let (name, value) = union(&*source_path, source)?;
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
    value: RawJson<'a>,
    extra: &mut Vec<Extra<'a>>,
    out: &mut Vec<Block<'a>>,
) -> Result<(), ApiError> {
    let (mut name, mut context) = (JsonStr::default(), JsonStr::default());
    object(format_args!("{place}.document"), value, |key, value| {
        match key {
            "name" => name = value.as_str().unwrap_or_default(),
            "context" => context = value.as_str().unwrap_or_default(),
            "citations" if value.text().contains("true") => record_extra(extra, "citations", value),
            _ => {}
        }
        Ok(())
    })?;
    if !context.is_empty() {
        out.push(Block::text(context));
    }
    let (source, inside) = media(place, MediaKind::Document, value)?;
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

fn tool_use<'a>(place: Place<'_>, whole: RawJson<'a>, value: RawJson<'a>) -> Result<Block<'a>, ApiError> {
    let (mut id, mut name, mut input) = (None, None, RawJson::from_text("{}"));
    let mut is_server = false;
    object(format_args!("{place}.toolUse"), value, |key, value| {
        match key {
            "toolUseId" => id = value.as_str(),
            "name" => name = value.as_str(),
            "input" => input = value,
            "type" => is_server = true,
            _ => {}
        }
        Ok(())
    })?;
    if is_server {
        return Ok(Block::Opaque { name: JsonStr::from_escaped("toolUse"), raw: whole });
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
    whole: RawJson<'a>,
    value: RawJson<'a>,
    extra: &mut Vec<Extra<'a>>,
) -> Result<Block<'a>, ApiError> {
    let (mut id, mut parts, mut error, mut is_server) = (None, None, false, false);
    object(format_args!("{place}.toolResult"), value, |key, value| {
        match key {
            "toolUseId" => id = value.as_str(),
            "content" => parts = Some(value),
            "status" => error = value.as_str().is_some_and(|status| status.is("error")),
            "type" => is_server = true,
            _ => {}
        }
        Ok(())
    })?;
    if is_server {
        return Ok(Block::Opaque { name: JsonStr::from_escaped("toolResult"), raw: whole });
    }
    let id = id.ok_or_else(|| wrong(format_args!("{place}.toolResult.toolUseId"), "a string"))?;
    let (mut content, mut found) = (Vec::new(), None);
    if let Some(parts) = parts {
        let path = format!("{place}.toolResult.content");
        each(&path, parts, |index, part| {
            let (kind, value) = union(format_args!("{path}[{index}]"), part)?;
            match kind {
                // Every other format has one object for a result at most, before its other parts.
                "json" if found.is_none() => found = Some(value),
                "json" => record_extra(extra, "tool_result_content", value),
                "toolUse" | "toolResult" => {
                    return Err(wrong(format_args!("{path}[{index}]"), "a block without tools"));
                }
                _ => block(Place { list: &path, index }, part, extra, &mut content)?,
            }
            Ok(())
        })?;
    }
    Ok(Block::ToolResult {
        id: SignedCallId::read(id).id,
        name: JsonStr::default(),
        content,
        object: found,
        error,
        kind: ToolKind::Function,
        cache: None,
    })
}

fn reasoning<'a>(place: Place<'_>, value: RawJson<'a>) -> Result<Block<'a>, ApiError> {
    let path = format!("{place}.reasoningContent");
    let (kind, value) = union(&*path, value)?;
    if kind == "redactedContent" {
        let blob = text(format_args!("{path}.redactedContent"), value)?;
        return Ok(Block::Reasoning { text: Vec::new(), signature: blob_signature(blob), hidden: true });
    }
    let (mut words, mut signature) = (JsonStr::default(), None);
    object(format_args!("{path}.reasoningText"), value, |key, value| {
        match key {
            "text" => words = text(format_args!("{path}.reasoningText.text"), value)?,
            // An empty signature means that the block is not signed.
            "signature" => signature = value.as_str().and_then(ProviderSignature::read),
            _ => {}
        }
        Ok(())
    })?;
    Ok(Block::Reasoning { text: vec![words], signature, hidden: false })
}

/// Reads a signature that is a blob: in base64, the envelope of a signature that was translated; otherwise the one of
/// the format's own provider, which stays as it is.
fn blob_signature(blob: JsonStr<'_>) -> Option<ProviderSignature<'_>> {
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
        "image" => block(place, value, extra, out),
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

/// Decodes a search result that the client supplies for citations. Other formats carry it as text.
fn search_result<'a>(
    place: Place<'_>,
    value: RawJson<'a>,
    extra: &mut Vec<Extra<'a>>,
    out: &mut Vec<Block<'a>>,
) -> Result<(), ApiError> {
    let (mut title, mut source, mut inside) = (JsonStr::default(), JsonStr::default(), None);
    object(format_args!("{place}.searchResult"), value, |key, value| {
        match key {
            "title" => title = value.as_str().unwrap_or_default(),
            "source" => source = value.as_str().unwrap_or_default(),
            "content" => inside = Some(value),
            "citations" if value.text().contains("true") => record_extra(extra, "citations", value),
            _ => {}
        }
        Ok(())
    })?;
    out.extend([title, source].into_iter().filter(|text| !text.is_empty()).map(Block::text));
    match inside {
        Some(inside) => texts(format_args!("{place}.searchResult.content"), inside, out),
        None => Ok(()),
    }
}

/// Sets the cache mark of the last block, if it can have one.
fn mark_last(blocks: &mut [Block<'_>], lifetime: CacheBreakpoint) {
    if let Some(
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
