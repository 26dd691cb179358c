//! Encoder of content parts other than plain text, and of cache marks; media types of this format.

use std::borrow::Cow;

use base64_simd::STANDARD;

use super::encode::supports_extension;
use crate::canonical::{Block, CacheBreakpoint, Dialect, MediaSource};
use crate::wire::Format;
use crate::wire::chat::write::data_url;
use crate::wire::codec::LossNotes;
use crate::wire::watch::members;
use json::{Cursor, EscapedString, JsonStr, RawJson, RopeBuilder, Writer};

/// Cache mark of compatible providers that accept the marks of the messages format.
pub(super) const CACHE_CONTROL: &str = "cache_control";
/// OpenAI's cache mark.
pub(super) const BREAKPOINT: &str = "prompt_cache_breakpoint";

/// Decodes a `cache_control`. `None` if it has no known member.
pub(super) fn cache_mark(value: RawJson<'_>) -> Option<CacheBreakpoint> {
    let mut mark = None;
    let _ = members(&mut Cursor::new(value.text()), |key, json| {
        let value = json.raw()?.as_str().unwrap_or_default();
        match key.escaped() {
            "type" if value.is("persistent") => mark = Some(CacheBreakpoint::Long),
            "type" => mark = mark.or(Some(CacheBreakpoint::Short)),
            "ttl" if value.is("1h") => mark = Some(CacheBreakpoint::Long),
            _ => {}
        }
        Ok(())
    });
    mark
}

fn slot<'b>(block: &'b mut Block<'_>) -> Option<&'b mut Option<CacheBreakpoint>> {
    match block {
        Block::Text { cache, .. }
        | Block::Image { cache, .. }
        | Block::File { cache, .. }
        | Block::ToolUse { cache, .. }
        | Block::ToolResult { cache, .. } => Some(cache),
        _ => None,
    }
}

/// Sets the cache mark of the last block that can have one.
pub(super) fn mark_last(blocks: &mut [Block<'_>], mark: CacheBreakpoint) {
    if let Some(slot) = blocks.iter_mut().rev().find_map(slot) {
        *slot = Some(mark);
    }
}

/// Removes the cache mark of a block and returns it.
pub(super) fn take_mark(block: &mut Block<'_>) -> Option<CacheBreakpoint> {
    slot(block).and_then(Option::take)
}

/// Returns the media type of an image by the first bytes of its base64 text.
pub(super) fn image_mime(base64: &str) -> &'static str {
    match base64.as_bytes() {
        [b'/', b'9', b'j', ..] => "image/jpeg",
        [b'R', b'0', b'l', b'G', ..] => "image/gif",
        [b'U', b'k', b'l', b'G', ..] => "image/webp",
        _ => "image/png",
    }
}

/// Returns the media type of an audio format name of this API.
pub(super) fn sound_mime(format: &str) -> &str {
    match format {
        "wav" | "" => "audio/wav",
        "mp3" => "audio/mp3",
        "flac" => "audio/flac",
        "ogg" => "audio/ogg",
        "opus" => "audio/opus",
        "aac" => "audio/aac",
        "m4a" => "audio/m4a",
        "pcm16" => "audio/pcm",
        other => other,
    }
}

fn sound_format(mime: &str) -> &str {
    match mime.strip_prefix("audio/").unwrap_or(mime) {
        "wav" | "x-wav" | "wave" | "vnd.wave" => "wav",
        "mp3" | "mpeg" => "mp3",
        "pcm" => "pcm16",
        other => other,
    }
}

/// Encoder of the content parts of a message.
pub(super) struct PartsEncoder<'r, 'd> {
    pub(super) dialect: &'r Dialect<'d>,
    pub(super) notes: &'r mut LossNotes,
    /// Whether the conversation ends with a prefill of the response.
    pub(super) has_prefill: bool,
}

impl PartsEncoder<'_, '_> {
    /// Returns whether the client uses this format too, so that its parts are meant for this provider as they are.
    pub(super) fn same_format(&self) -> bool {
        self.notes.from() == Format::Chat
    }

    /// Returns whether an extension may be sent: the provider is known to support it, or the client of the same format
    /// sent it and the provider tolerates it.
    pub(super) fn supports_extension(&self, extension: &str) -> bool {
        supports_extension(self.dialect, extension)
            || (self.same_format() && self.dialect.supports(extension))
    }

    /// Returns whether a cache mark will be written.
    pub(super) fn writes_cache_mark(&self, mark: Option<CacheBreakpoint>) -> bool {
        mark.is_some() && (self.supports_extension(CACHE_CONTROL) || self.supports_extension(BREAKPOINT))
    }

    /// Writes a cache mark into an open object.
    pub(super) fn write_cache_mark(
        &mut self,
        json: &mut Writer<'_, RopeBuilder>,
        mark: Option<CacheBreakpoint>,
    ) {
        let Some(mark) = mark else { return };
        if self.supports_extension(CACHE_CONTROL) {
            json.key(CACHE_CONTROL).begin_object();
            json.key("type").string("ephemeral");
            if mark == CacheBreakpoint::Long {
                json.key("ttl").string("1h");
            }
            json.end_object();
        } else if self.supports_extension(BREAKPOINT) {
            json.key(BREAKPOINT).begin_object().key("mode").string("explicit").end_object();
        } else {
            self.notes.lose(CACHE_CONTROL);
        }
    }

    /// Writes a part of a user message. Elements that cannot be carried are recorded as losses.
    pub(super) fn part(&mut self, json: &mut Writer<'_, RopeBuilder>, block: &Block<'_>) {
        match block {
            Block::Text { text, cache, .. } => self.text(json, *text, *cache),
            Block::Image { source, detail, cache, .. } => self.image(json, source, *detail, *cache),
            Block::File { source, name, cache } => self.file(json, source, *name, *cache),
            Block::Audio { source } => self.audio(json, source),
            Block::Video { source } => self.video(json, source),
            // A client of this format may use parts without a canonical equivalent; pass them on.
            Block::Opaque { raw, .. } if self.same_format() => {
                json.raw(*raw);
            }
            Block::Opaque { .. } => self.notes.lose("server_tool_block"),
            Block::Refusal { text } => self.text(json, *text, None),
            // Search results are texts by now.
            Block::SearchResult(_)
            | Block::Reasoning { .. }
            | Block::ToolUse { .. }
            | Block::ToolResult { .. } => {}
        }
    }

    pub(super) fn text(
        &mut self,
        json: &mut Writer<'_, RopeBuilder>,
        text: JsonStr<'_>,
        cache: Option<CacheBreakpoint>,
    ) {
        json.begin_object();
        json.key("type").string("text");
        json.key("text").paste(text);
        self.write_cache_mark(json, cache);
        json.end_object();
    }

    fn image(
        &mut self,
        json: &mut Writer<'_, RopeBuilder>,
        source: &MediaSource<'_>,
        detail: JsonStr<'_>,
        cache: Option<CacheBreakpoint>,
    ) {
        let (mime, data) = match *source {
            MediaSource::Url { url, .. } if self.dialect.media_urls => ("", url),
            MediaSource::Url { .. } => return self.notes.lose("image_url"),
            MediaSource::Base64 { mime, data } => (mime.escaped(), data),
            MediaSource::Id { .. } | MediaSource::Text { .. } => return self.notes.lose("file_id"),
        };
        json.begin_object();
        json.key("type").string("image_url");
        json.key("image_url").begin_object();
        json.key("url");
        // `image/jpg` is not a registered media type, and some providers refuse it.
        let mime = if mime == "image/jpg" { "image/jpeg" } else { mime };
        paste_data(json, mime, data);
        match detail.escaped() {
            "" => {}
            // The responses format's value for full resolution.
            "original" => {
                json.key("detail").string("high");
            }
            _ => {
                json.key("detail").paste(detail);
            }
        }
        json.end_object();
        self.write_cache_mark(json, cache);
        json.end_object();
    }

    fn file(
        &mut self,
        json: &mut Writer<'_, RopeBuilder>,
        source: &MediaSource<'_>,
        name: JsonStr<'_>,
        cache: Option<CacheBreakpoint>,
    ) {
        match *source {
            MediaSource::Text { .. } | MediaSource::Base64 { .. }
                if let Some(text) = document_text(source, name, self.same_format()) =>
            {
                self.text(json, JsonStr::from_escaped(&text), cache);
            }
            MediaSource::Text { text } => self.text(json, text, cache),
            MediaSource::Base64 { mime, data } => self.file_data(json, mime, data, name, cache),
            MediaSource::Url { url, .. } if self.supports_extension("file_url") => {
                json.begin_object();
                json.key("type").string("file_url");
                json.key("file_url").begin_object().key("url").paste(url).end_object();
                if !name.is_empty() {
                    json.key("filename").paste(name);
                }
                self.write_cache_mark(json, cache);
                json.end_object();
            }
            MediaSource::Url { .. } => self.notes.lose("file_url"),
            MediaSource::Id { id } if self.same_format() => {
                json.begin_object();
                json.key("type").string("file");
                json.key("file").begin_object();
                json.key("file_id").paste(id);
                if !name.is_empty() {
                    json.key("filename").paste(name);
                }
                json.end_object();
                self.write_cache_mark(json, cache);
                json.end_object();
            }
            MediaSource::Id { .. } => self.notes.lose("file_id"),
        }
    }

    fn file_data(
        &mut self,
        json: &mut Writer<'_, RopeBuilder>,
        mime: JsonStr<'_>,
        data: JsonStr<'_>,
        name: JsonStr<'_>,
        cache: Option<CacheBreakpoint>,
    ) {
        json.begin_object();
        json.key("type").string("file");
        let flat = self.dialect.quirks.flat_files;
        if !flat {
            json.key("file").begin_object();
        }
        // OpenAI requires a file name with inline data; other formats do not have one.
        if !name.is_empty() {
            json.key("filename").paste(name);
        } else if !self.same_format() {
            json.key("filename").string("document.pdf");
        }
        json.key("file_data");
        paste_data(json, mime.escaped(), data);
        if !flat {
            json.end_object();
        }
        self.write_cache_mark(json, cache);
        json.end_object();
    }

    fn audio(&mut self, json: &mut Writer<'_, RopeBuilder>, source: &MediaSource<'_>) {
        match *source {
            MediaSource::Base64 { mime, data } => {
                json.begin_object();
                json.key("type").string("input_audio");
                json.key("input_audio").begin_object();
                json.key("data").paste(data);
                json.key("format").paste(JsonStr::from_escaped(sound_format(mime.escaped())));
                json.end_object().end_object();
            }
            MediaSource::Url { url, .. } if self.supports_extension("audio_url") => {
                address(json, "audio_url", "", url)
            }
            _ => self.notes.lose("audio"),
        }
    }

    fn video(&mut self, json: &mut Writer<'_, RopeBuilder>, source: &MediaSource<'_>) {
        match *source {
            MediaSource::Base64 { mime, data } if self.supports_extension("video_url") => {
                address(json, "video_url", mime.escaped(), data);
            }
            MediaSource::Url { url, .. } if self.supports_extension("video_url") => {
                address(json, "video_url", "", url)
            }
            _ => self.notes.lose("video"),
        }
    }
}

/// Returns the text of a text document under its title, as the inside of a JSON string. `None` for other documents.
/// OpenAI's file parts accept PDF only, so text files are sent as their text
/// (OpenAI API, "File inputs", November 2026).
pub(super) fn document_text<'t>(
    source: &MediaSource<'t>,
    name: JsonStr<'_>,
    same_format: bool,
) -> Option<Cow<'t, str>> {
    let text = match *source {
        MediaSource::Text { text } => Cow::Borrowed(text.escaped()),
        MediaSource::Base64 { mime, data } if !same_format && is_text(mime.escaped()) => {
            // Some clients escape each slash of base64.
            let text = String::from_utf8(STANDARD.decode_to_vec(data.decode().as_bytes()).ok()?).ok()?;
            Cow::Owned(EscapedString::from(text.as_str()).as_json_str().escaped().to_owned())
        }
        _ => return None,
    };
    Some(if name.is_empty() { text } else { Cow::Owned(format!("{}\\n\\n{text}", name.escaped())) })
}

fn is_text(mime: &str) -> bool {
    mime.starts_with("text/") || mime == "application/json"
}

fn address(json: &mut Writer<'_, RopeBuilder>, name: &str, mime: &str, data: JsonStr<'_>) {
    json.begin_object();
    json.key("type").string(name);
    json.key(name).begin_object().key("url");
    paste_data(json, mime, data);
    json.end_object().end_object();
}

/// Writes a data URL. Without a media type `data` is a URL itself.
fn paste_data(json: &mut Writer<'_, RopeBuilder>, mime: &str, data: JsonStr<'_>) {
    if mime.is_empty() {
        json.paste(data);
    } else {
        json.pasted(|out| data_url(out, mime, data.escaped()));
    }
}
