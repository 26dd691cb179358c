//! Decoder of the content parts of a message.

use std::fmt::Arguments;

use super::media::{BREAKPOINT, CACHE_CONTROL, cache_mark};
use super::read::{Result, array, broken, invalid, object, raw, raw_object, text};
use crate::canonical::{Block, CacheBreakpoint, MediaSource};
use crate::wire::chat::enums::{sound_type, url_of};
use crate::wire::read::attempt;
use crate::wire::watch::members;
use json::{Cursor, JsonStr, RawJson, ValueKind};

/// Decodes `content`: a string or a list of parts. An empty string gives no block. Faults in it are returned inside,
/// because those in other members of the message are reported before them.
///
/// # Errors
/// Returns [`ApiError`](crate::error::ApiError) if the text is not JSON.
pub(super) fn content<'a>(json: &mut Cursor<'a>, path: Arguments<'_>) -> Result<Result<Vec<Block<'a>>>> {
    // Lists have media of megabytes: they are decoded in place, instead of being delimited first.
    if json.kind().map_err(broken)? == ValueKind::Array {
        return attempt(json, |json| {
            let mut blocks = Vec::new();
            array(json, path, |number, json| part(json, path, number, &mut blocks))?;
            Ok(blocks)
        })
        .map_err(broken);
    }
    Ok(match raw(json)?.as_str() {
        Some(said) if said.is_empty() => Ok(Vec::new()),
        Some(said) => Ok(vec![Block::text(said)]),
        None => Err(invalid(path, "a string or an array of parts")),
    })
}

/// Members of a part. They may come in any order, so all are collected before any is interpreted.
#[derive(Default)]
struct Part<'a> {
    kind: JsonStr<'a>,
    text: Option<JsonStr<'a>>,
    /// Value of the member that is named like the part's type.
    body: Option<RawJson<'a>>,
    /// URL and detail, if that member is `image_url`.
    image: Option<(JsonStr<'a>, JsonStr<'a>)>,
    detail: JsonStr<'a>,
    file: File<'a>,
    cache: Option<CacheBreakpoint>,
}

#[derive(Default)]
struct File<'a> {
    id: JsonStr<'a>,
    data: JsonStr<'a>,
    name: JsonStr<'a>,
}

impl<'a> File<'a> {
    fn member(&mut self, key: &str, value: RawJson<'a>) -> bool {
        let slot = match key {
            "file_id" => &mut self.id,
            "file_data" => &mut self.data,
            "filename" | "document_name" => &mut self.name,
            _ => return false,
        };
        *slot = value.as_str().unwrap_or_default();
        true
    }
}

fn part<'a>(
    json: &mut Cursor<'a>,
    path: Arguments<'_>,
    number: usize,
    blocks: &mut Vec<Block<'a>>,
) -> Result<()> {
    if json.kind().map_err(broken)? == ValueKind::String {
        let said = raw(json)?.as_str().unwrap_or_default();
        if !said.is_empty() {
            blocks.push(Block::text(said));
        }
        return Ok(());
    }
    let mut part = Part::default();
    let at = format_args!("{path}[{number}]");
    let from = json.offset();
    object(json, at, |key, json| {
        match key.escaped() {
            "type" => part.kind = text(json, format_args!("{path}[{number}].type"))?,
            "text" | "refusal" => {
                part.text = Some(text(json, format_args!("{path}[{number}].{}", key.escaped()))?);
            }
            "image_url" => {
                json.kind().map_err(broken)?;
                let from = json.offset();
                part.image = Some(image(json)?);
                part.body = Some(json.since(from));
            }
            "video_url" | "audio_url" | "file_url" | "document_url" | "input_audio" | "thinking" | "file" => {
                (part.body, part.image) = (Some(raw(json)?), None);
            }
            "detail" => part.detail = raw(json)?.as_str().unwrap_or_default(),
            CACHE_CONTROL => part.cache = cache_mark(raw(json)?),
            BREAKPOINT => {
                part.cache = Some(CacheBreakpoint::Short);
                raw(json)?;
            }
            // Some clients put `file_id` and the like directly into the part.
            name => {
                let value = raw(json)?;
                part.file.member(name, value);
            }
        }
        Ok(())
    })?;
    let whole = json.since(from);
    let before = blocks.len();
    part.read(whole, at, blocks)?;
    // A cache mark on an empty part applies to the previous block.
    if blocks.len() == before
        && let Some(mark) = part.cache
    {
        super::media::mark_last(blocks, mark);
    }
    Ok(())
}

impl<'a> Part<'a> {
    fn read(&self, whole: RawJson<'a>, path: Arguments<'_>, blocks: &mut Vec<Block<'a>>) -> Result<()> {
        let cache = self.cache;
        let body = |name: &str| self.body.ok_or_else(|| super::read::missing(format_args!("{path}.{name}")));
        let block = match self.kind.escaped() {
            "text" | "input_text" | "output_text" | "" if self.text.is_some() => {
                let text = self.text.unwrap_or_default();
                if text.is_empty() {
                    return Ok(());
                }
                Block::Text { text, cache, signature: None }
            }
            "text" => return Err(super::read::missing(format_args!("{path}.text"))),
            "refusal" => Block::Refusal { text: self.text.unwrap_or_default() },
            "image_url" => {
                let (url, detail) = match self.image {
                    Some(image) => image,
                    None => image(&mut Cursor::new(body("image_url")?.text()))?,
                };
                if url.is_empty() {
                    return Err(super::read::missing(format_args!("{path}.image_url.url")));
                }
                let detail = if detail.is_empty() { self.detail } else { detail };
                Block::Image { source: MediaSource::from_url(url), detail, cache, signature: None }
            }
            "input_audio" => Block::Audio { source: sound(body("input_audio")?) },
            "audio_url" => Block::Audio { source: MediaSource::from_url(url_of(body("audio_url")?)) },
            "video_url" => Block::Video { source: MediaSource::from_url(url_of(body("video_url")?)) },
            "file_url" | "document_url" => {
                let source = MediaSource::from_url(url_of(body(self.kind.escaped())?));
                Block::File { source, name: self.file.name, cache }
            }
            "file" => self.file(path)?,
            "thinking" => {
                let text = thinking(body("thinking")?)?;
                if text.is_empty() {
                    return Ok(());
                }
                Block::Reasoning { text, signature: None, hidden: false }
            }
            _ => Block::Opaque { name: self.kind, raw: whole },
        };
        blocks.push(block);
        Ok(())
    }

    /// Decodes a `file` part. Its members are in an object `file`, or directly in the part.
    fn file(&self, path: Arguments<'_>) -> Result<Block<'a>> {
        let mut file = File { id: self.file.id, data: self.file.data, name: self.file.name };
        if let Some(body) = self.body {
            object(&mut Cursor::new(body.text()), format_args!("{path}.file"), |key, json| {
                let value = raw(json)?;
                file.member(key.escaped(), value);
                Ok(())
            })?;
        }
        let source = match MediaSource::from_url(file.data) {
            _ if file.data.is_empty() && file.id.is_empty() => {
                return Err(super::read::missing(format_args!("{path}.file.file_data")));
            }
            _ if file.data.is_empty() => MediaSource::Id { id: file.id },
            MediaSource::Url { url, .. } if !url.escaped().contains(':') => {
                // Base64 without a data URL: assume PDF, the most frequent type.
                MediaSource::Base64 { mime: JsonStr::from_escaped("application/pdf"), data: url }
            }
            source => source,
        };
        Ok(Block::File { source, name: file.name, cache: self.cache })
    }
}

/// Reads an image: `{"url","detail"}`, or a plain URL. Returns the URL and the detail; both are empty for any other value.
fn image<'a>(json: &mut Cursor<'a>) -> Result<(JsonStr<'a>, JsonStr<'a>)> {
    let (mut url, mut detail) = (JsonStr::default(), JsonStr::default());
    if json.kind().map_err(broken)? != ValueKind::Object {
        return Ok((raw(json)?.as_str().unwrap_or_default(), detail));
    }
    let read = members(json, |key, json| {
        let value = json.raw()?;
        if key.is("url") {
            url = value.as_str().unwrap_or_default();
        } else if key.is("detail") && !value.is_null() {
            detail = value.as_str().unwrap_or_default();
        }
        Ok(())
    });
    read.map_err(broken)?;
    Ok((url, detail))
}

/// Reads audio: `{"data","format"}`, a URL, or plain base64.
fn sound(value: RawJson<'_>) -> MediaSource<'_> {
    if let Some(said) = value.as_str() {
        return match MediaSource::from_url(said) {
            MediaSource::Url { url, .. } if !url.escaped().contains(':') => {
                let mime = sound_type(url.escaped());
                MediaSource::Base64 { mime: JsonStr::from_escaped(mime), data: url }
            }
            source => source,
        };
    }
    let (mut data, mut format) = (JsonStr::default(), JsonStr::default());
    let _ = object(&mut Cursor::new(value.text()), "", |key, json| {
        let value = raw(json)?.as_str().unwrap_or_default();
        match key.escaped() {
            "data" => data = value,
            "format" => format = value,
            _ => {}
        }
        Ok(())
    });
    MediaSource::Base64 { mime: JsonStr::from_escaped(super::media::sound_mime(format.escaped())), data }
}

/// Reads `thinking`: a string, or a list of parts with a text each.
fn thinking(value: RawJson<'_>) -> Result<Vec<JsonStr<'_>>> {
    let mut texts = Vec::new();
    let keep = |text: JsonStr<'_>| !text.is_empty();
    if let Some(said) = value.as_str() {
        if keep(said) {
            texts.push(said);
        }
        return Ok(texts);
    }
    array(&mut Cursor::new(value.text()), "thinking", |_, json| {
        let part = raw_object(json, "thinking")?;
        object(&mut Cursor::new(part.text()), "thinking", |key, json| {
            let value = raw(json)?;
            if key.is("text") {
                texts.extend(value.as_str().filter(|text| keep(*text)));
            }
            Ok(())
        })
    })?;
    Ok(texts)
}
