//! Parts that are no text, and marks for the provider's cache: their words, and how they are written.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;

use super::encode::speaks;
use crate::canonical::{Block, CacheMark, Dialect, Source};
use crate::json::{Cursor, EscapedString, JsonStr, RawJson, Writer};
use crate::wire::Format;
use crate::wire::chat::write::data_url;
use crate::wire::codec::LossNotes;
use crate::wire::watch::members;

/// A mark of compatible providers that pass the messages format's marks on.
pub(super) const CACHE_CONTROL: &str = "cache_control";
/// OpenAI's mark.
pub(super) const BREAKPOINT: &str = "prompt_cache_breakpoint";

/// What a `cache_control` says.
pub(super) fn cache_mark(value: RawJson<'_>) -> Option<CacheMark> {
    let mut mark = None;
    let _ = members(&mut Cursor::new(value.text()), |key, json| {
        let value = json.raw()?.as_str().unwrap_or_default();
        match key.escaped() {
            "type" if value.is("persistent") => mark = Some(CacheMark::Long),
            "type" => mark = mark.or(Some(CacheMark::Short)),
            "ttl" if value.is("1h") => mark = Some(CacheMark::Long),
            _ => {}
        }
        Ok(())
    });
    mark
}

fn slot<'b>(block: &'b mut Block<'_>) -> Option<&'b mut Option<CacheMark>> {
    match block {
        Block::Text { cache, .. }
        | Block::Image { cache, .. }
        | Block::File { cache, .. }
        | Block::ToolUse { cache, .. }
        | Block::ToolResult { cache, .. } => Some(cache),
        _ => None,
    }
}

/// Marks the last block that can be marked.
pub(super) fn mark_last(blocks: &mut [Block<'_>], mark: CacheMark) {
    if let Some(slot) = blocks.iter_mut().rev().find_map(slot) {
        *slot = Some(mark);
    }
}

/// Takes a block's mark off.
pub(super) fn take_mark(block: &mut Block<'_>) -> Option<CacheMark> {
    slot(block).and_then(Option::take)
}

/// The media type of an image, by how its base64 begins.
pub(super) fn image_mime(base64: &str) -> &'static str {
    match base64.as_bytes() {
        [b'/', b'9', b'j', ..] => "image/jpeg",
        [b'R', b'0', b'l', b'G', ..] => "image/gif",
        [b'U', b'k', b'l', b'G', ..] => "image/webp",
        _ => "image/png",
    }
}

/// The media type of sound in a format of this API.
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

/// Writes parts of a message.
pub(super) struct Parts<'r, 'd> {
    pub(super) dialect: &'r Dialect<'d>,
    pub(super) notes: &'r mut LossNotes,
    /// The conversation ends with the beginning of the answer.
    pub(super) begun: bool,
}

impl Parts<'_, '_> {
    /// Whether the client speaks this format too, and so has written what it means for this provider.
    pub(super) fn same_format(&self) -> bool {
        self.notes.from() == Format::Chat
    }

    /// Whether the provider understands an extension of this name that may change the meaning where it does not.
    pub(super) fn takes(&self, extension: &str) -> bool {
        speaks(self.dialect, extension) || (self.same_format() && self.dialect.understands(extension))
    }

    /// Whether a mark will be written.
    pub(super) fn marks(&self, mark: Option<CacheMark>) -> bool {
        mark.is_some() && (self.takes(CACHE_CONTROL) || self.takes(BREAKPOINT))
    }

    /// Writes a mark into an object that is open.
    pub(super) fn mark(&mut self, json: &mut Writer<'_, BytesMut>, mark: Option<CacheMark>) {
        let Some(mark) = mark else { return };
        if self.takes(CACHE_CONTROL) {
            json.key(CACHE_CONTROL).begin_object();
            json.key("type").string("ephemeral");
            if mark == CacheMark::Long {
                json.key("ttl").string("1h");
            }
            json.end_object();
        } else if self.takes(BREAKPOINT) {
            json.key(BREAKPOINT).begin_object().key("mode").string("explicit").end_object();
        } else {
            self.notes.lose(CACHE_CONTROL);
        }
    }

    /// Writes a part of a user's message. What cannot be carried is noted.
    pub(super) fn part(&mut self, json: &mut Writer<'_, BytesMut>, block: &Block<'_>) {
        match block {
            Block::Text { text, cache, .. } => self.text(json, *text, *cache),
            Block::Image { source, detail, cache, .. } => self.image(json, source, *detail, *cache),
            Block::File { source, name, cache } => self.file(json, source, *name, *cache),
            Block::Audio { source } => self.audio(json, source),
            Block::Video { source } => self.video(json, source),
            // The client's own format may have parts that nobody else has a word for.
            Block::Opaque { raw, .. } if self.same_format() => {
                json.raw(*raw);
            }
            Block::Opaque { .. } => self.notes.lose("server_tool_block"),
            Block::Refusal { text } => self.text(json, *text, None),
            Block::Reasoning { .. } | Block::ToolUse { .. } | Block::ToolResult { .. } => {}
        }
    }

    pub(super) fn text(
        &mut self,
        json: &mut Writer<'_, BytesMut>,
        text: JsonStr<'_>,
        cache: Option<CacheMark>,
    ) {
        json.begin_object();
        json.key("type").string("text");
        json.key("text").paste(text);
        self.mark(json, cache);
        json.end_object();
    }

    fn image(
        &mut self,
        json: &mut Writer<'_, BytesMut>,
        source: &Source<'_>,
        detail: JsonStr<'_>,
        cache: Option<CacheMark>,
    ) {
        let (mime, data) = match *source {
            Source::Url { url, .. } if self.dialect.media_urls => ("", url),
            Source::Url { .. } => return self.notes.lose("image_url"),
            Source::Base64 { mime, data } => (mime.escaped(), data),
            Source::Id { .. } | Source::Text { .. } => return self.notes.lose("file_id"),
        };
        json.begin_object();
        json.key("type").string("image_url");
        json.key("image_url").begin_object();
        json.key("url");
        // A name that is no media type, and that some providers refuse.
        let mime = if mime == "image/jpg" { "image/jpeg" } else { mime };
        paste_data(json, mime, data);
        match detail.escaped() {
            "" => {}
            // The word of another format for the closest look.
            "original" => {
                json.key("detail").string("high");
            }
            _ => {
                json.key("detail").paste(detail);
            }
        }
        json.end_object();
        self.mark(json, cache);
        json.end_object();
    }

    fn file(
        &mut self,
        json: &mut Writer<'_, BytesMut>,
        source: &Source<'_>,
        name: JsonStr<'_>,
        cache: Option<CacheMark>,
    ) {
        match *source {
            Source::Text { .. } | Source::Base64 { .. }
                if let Some(text) = document_text(source, name, self.same_format()) =>
            {
                self.text(json, JsonStr::from_escaped(&text), cache);
            }
            Source::Text { text } => self.text(json, text, cache),
            Source::Base64 { mime, data } => self.file_data(json, mime, data, name, cache),
            Source::Url { url, .. } if self.takes("file_url") => {
                json.begin_object();
                json.key("type").string("file_url");
                json.key("file_url").begin_object().key("url").paste(url).end_object();
                if !name.is_empty() {
                    json.key("filename").paste(name);
                }
                self.mark(json, cache);
                json.end_object();
            }
            Source::Url { .. } => self.notes.lose("file_url"),
            Source::Id { id } if self.same_format() => {
                json.begin_object();
                json.key("type").string("file");
                json.key("file").begin_object();
                json.key("file_id").paste(id);
                if !name.is_empty() {
                    json.key("filename").paste(name);
                }
                json.end_object();
                self.mark(json, cache);
                json.end_object();
            }
            Source::Id { .. } => self.notes.lose("file_id"),
        }
    }

    fn file_data(
        &mut self,
        json: &mut Writer<'_, BytesMut>,
        mime: JsonStr<'_>,
        data: JsonStr<'_>,
        name: JsonStr<'_>,
        cache: Option<CacheMark>,
    ) {
        json.begin_object();
        json.key("type").string("file");
        let flat = self.dialect.habits.flat_files;
        if !flat {
            json.key("file").begin_object();
        }
        // A file in the request needs a name, which other formats do not ask for.
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
        self.mark(json, cache);
        json.end_object();
    }

    fn audio(&mut self, json: &mut Writer<'_, BytesMut>, source: &Source<'_>) {
        match *source {
            Source::Base64 { mime, data } => {
                json.begin_object();
                json.key("type").string("input_audio");
                json.key("input_audio").begin_object();
                json.key("data").paste(data);
                json.key("format").paste(JsonStr::from_escaped(sound_format(mime.escaped())));
                json.end_object().end_object();
            }
            Source::Url { url, .. } if self.takes("audio_url") => address(json, "audio_url", "", url),
            _ => self.notes.lose("audio"),
        }
    }

    fn video(&mut self, json: &mut Writer<'_, BytesMut>, source: &Source<'_>) {
        match *source {
            Source::Base64 { mime, data } if self.takes("video_url") => {
                address(json, "video_url", mime.escaped(), data);
            }
            Source::Url { url, .. } if self.takes("video_url") => address(json, "video_url", "", url),
            _ => self.notes.lose("video"),
        }
    }
}

/// The text of a document that has nothing but text, under its title, as the inside of a JSON string. This format's
/// files are PDF only (OpenAI, "File inputs", 2026-11: other files go as their text).
pub(super) fn document_text<'t>(
    source: &Source<'t>,
    name: JsonStr<'_>,
    same_format: bool,
) -> Option<Cow<'t, str>> {
    let text = match *source {
        Source::Text { text } => Cow::Borrowed(text.escaped()),
        Source::Base64 { mime, data } if !same_format && is_text(mime.escaped()) => {
            let text = String::from_utf8(STANDARD.decode(data.escaped()).ok()?).ok()?;
            Cow::Owned(EscapedString::from(text.as_str()).as_json_str().escaped().to_owned())
        }
        _ => return None,
    };
    Some(if name.is_empty() { text } else { Cow::Owned(format!("{}\\n\\n{text}", name.escaped())) })
}

fn is_text(mime: &str) -> bool {
    mime.starts_with("text/") || mime == "application/json"
}

fn address(json: &mut Writer<'_, BytesMut>, name: &str, mime: &str, data: JsonStr<'_>) {
    json.begin_object();
    json.key("type").string(name);
    json.key(name).begin_object().key("url");
    paste_data(json, mime, data);
    json.end_object().end_object();
}

/// A data URL; without a media type `data` is an address itself.
fn paste_data(json: &mut Writer<'_, BytesMut>, mime: &str, data: JsonStr<'_>) {
    if mime.is_empty() {
        json.paste(data);
    } else {
        json.pasted(|out| data_url(out, mime, data.escaped()));
    }
}
