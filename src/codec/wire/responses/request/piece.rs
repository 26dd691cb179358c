//! One object of an input: an item, or a part of an item. The members may come in any order, so all of them are read
//! in one pass, before the type of the object is known.

use super::{Fault, Path};
use crate::canonical::{Block, CacheBreakpoint, Input, MediaSource, ResultObject};
use json::{Cursor, JsonStr, RawJson, ValueKind};

/// Union of the members of all types of items and parts.
#[derive(Default)]
pub(super) struct InputMembers<'a> {
    pub kind: JsonStr<'a>,
    pub role: JsonStr<'a>,
    pub id: JsonStr<'a>,
    pub call_id: JsonStr<'a>,
    pub name: JsonStr<'a>,
    pub namespace: JsonStr<'a>,
    pub phase: JsonStr<'a>,
    pub encrypted: JsonStr<'a>,
    pub result: JsonStr<'a>,
    pub output_format: JsonStr<'a>,
    /// Arguments or input of a call.
    pub input: Option<Input<'a>>,
    pub has_content: bool,
    /// Parts of the member `content`.
    pub content: Vec<Block<'a>>,
    pub summary: Vec<Block<'a>>,
    /// Parts of the member `output`.
    pub output: Vec<Block<'a>>,
    pub output_object: Option<ResultObject<'a>>,
    pub tools: Option<RawJson<'a>>,
    text: Option<JsonStr<'a>>,
    refusal: JsonStr<'a>,
    url: JsonStr<'a>,
    detail: JsonStr<'a>,
    file_id: JsonStr<'a>,
    file_data: JsonStr<'a>,
    file_url: JsonStr<'a>,
    filename: JsonStr<'a>,
    audio: JsonStr<'a>,
    audio_format: JsonStr<'a>,
    cache: Option<CacheBreakpoint>,
}

impl<'a> InputMembers<'a> {
    /// Reads an item of `input`.
    pub(super) fn item(json: &mut Cursor<'a>, body: &'a str, path: Path) -> Result<Self, Fault> {
        InputMembers::read(json, body, path, true)
    }

    fn read(json: &mut Cursor<'a>, body: &'a str, path: Path, is_item: bool) -> Result<Self, Fault> {
        let mut piece = InputMembers::default();
        if json.kind()? != ValueKind::Object {
            return Err(Fault::at(path, "an object"));
        }
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match key.escaped() {
                "type" => piece.kind = text(json)?,
                "role" => piece.role = text(json)?,
                "id" => piece.id = text(json)?,
                "call_id" => piece.call_id = text(json)?,
                "name" => piece.name = text(json)?,
                "namespace" => piece.namespace = text(json)?,
                "phase" => piece.phase = text(json)?,
                "encrypted_content" => piece.encrypted = text(json)?,
                "result" => piece.result = text(json)?,
                "output_format" => piece.output_format = text(json)?,
                "arguments" | "input" => {
                    let value = json.raw()?;
                    piece.input = match value.as_str() {
                        Some(text) => Some(Input::Text(text)),
                        None if value.text().starts_with('{') => Some(Input::Object(value)),
                        None => None,
                    };
                }
                "content" if is_item => {
                    piece.has_content = json.kind()? != ValueKind::Null;
                    piece.content = parts(json, body, path.member("content"))?;
                }
                "summary" if is_item => piece.summary = parts(json, body, path.member("summary"))?,
                "output" if is_item => match json.kind()? {
                    ValueKind::Object => piece.output_object = Some(ResultObject::read(json)?),
                    _ => piece.output = parts(json, body, path.member("output"))?,
                },
                "tools" => piece.tools = Some(json.raw()?),
                "text" => piece.text = json.raw()?.as_str(),
                "refusal" => piece.refusal = text(json)?,
                "image_url" | "video_url" | "audio_url" => piece.read_address(json)?,
                "detail" => piece.detail = text(json)?,
                "file_id" => piece.file_id = text(json)?,
                "file_data" => piece.file_data = text(json)?,
                "file_url" => piece.file_url = text(json)?,
                "filename" => piece.filename = text(json)?,
                // Some clients send the nested shapes of the chat format.
                "file" | "input_audio" => piece.read_nested(json)?,
                "data" => piece.audio = text(json)?,
                "format" => piece.audio_format = text(json)?,
                "prompt_cache_breakpoint" | "cache_control" => piece.read_mark(json)?,
                _ => json.skip()?,
            }
        }
        Ok(piece)
    }

    /// Reads a URL: a string, or the chat format's object with a `url`.
    fn read_address(&mut self, json: &mut Cursor<'a>) -> Result<(), Fault> {
        if json.kind()? != ValueKind::Object {
            self.url = text(json)?;
            return Ok(());
        }
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match key.escaped() {
                "url" => self.url = text(json)?,
                "detail" => self.detail = text(json)?,
                _ => json.skip()?,
            }
        }
        Ok(())
    }

    fn read_nested(&mut self, json: &mut Cursor<'a>) -> Result<(), Fault> {
        if json.kind()? != ValueKind::Object {
            json.skip()?;
            return Ok(());
        }
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match key.escaped() {
                "file_id" => self.file_id = text(json)?,
                "file_data" => self.file_data = text(json)?,
                "filename" => self.filename = text(json)?,
                "data" => self.audio = text(json)?,
                "format" => self.audio_format = text(json)?,
                _ => json.skip()?,
            }
        }
        Ok(())
    }

    fn read_mark(&mut self, json: &mut Cursor<'a>) -> Result<(), Fault> {
        if json.kind()? != ValueKind::Object {
            json.skip()?;
            return Ok(());
        }
        self.cache = Some(CacheBreakpoint::Short);
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            let value = json.raw()?;
            if key.is("ttl") && value.as_str().is_some_and(|ttl| ttl.is("1h")) {
                self.cache = Some(CacheBreakpoint::Long);
            }
        }
        Ok(())
    }

    /// Returns whether the object is a part in place of an item. The documentation of some gateways shows that form.
    pub(super) fn is_bare_part(&self) -> bool {
        self.role.is_empty()
            && matches!(
                self.kind.escaped(),
                "input_text"
                    | "text"
                    | "input_image"
                    | "image_url"
                    | "input_file"
                    | "file"
                    | "input_audio"
                    | "input_video"
            )
    }

    /// Converts the object to a block: a part of a message, of a tool result or of reasoning.
    pub(super) fn part(self, raw: RawJson<'a>, path: Path) -> Result<Block<'a>, Fault> {
        let cache = self.cache;
        Ok(match self.kind.escaped() {
            "input_text" | "output_text" | "text" => {
                let text = self.text.ok_or_else(|| Fault::missing(format!("{path}.text")))?;
                Block::Text { text, cache, signature: None }
            }
            "" if self.text.is_some() => {
                Block::Text { text: self.text.unwrap_or_default(), cache, signature: None }
            }
            "summary_text" | "reasoning_text" => {
                let text = vec![self.text.unwrap_or_default()];
                Block::Reasoning { text, signature: None, hidden: false }
            }
            "refusal" => Block::Refusal { text: self.refusal },
            "input_image" | "image_url" => Block::Image {
                source: self.source(path, "image_url")?,
                detail: self.detail,
                cache,
                signature: None,
            },
            "input_file" | "file" => {
                Block::File { source: self.source(path, "file_data")?, name: self.filename, cache }
            }
            "input_audio" if !self.audio.is_empty() => {
                let mime = match self.audio_format.escaped() {
                    "mp3" => "audio/mp3",
                    "" | "wav" => "audio/wav",
                    "flac" => "audio/flac",
                    "ogg" | "opus" => "audio/ogg",
                    "aac" => "audio/aac",
                    "pcm16" | "pcm" => "audio/pcm",
                    other => {
                        return Err(Fault::at(
                            format!("{path}.format"),
                            &format!("a known format, not '{other}'"),
                        ));
                    }
                };
                let mime = JsonStr::from_escaped(mime);
                Block::Audio { source: MediaSource::Base64 { mime, data: self.audio } }
            }
            "input_audio" | "audio_url" => Block::Audio { source: self.source(path, "input_audio")? },
            "input_video" | "video_url" => Block::Video { source: self.source(path, "video_url")? },
            "" => return Err(Fault::missing(format!("{path}.type"))),
            _ => Block::Opaque { name: self.kind, raw },
        })
    }

    fn source(&self, path: Path, wanted: &str) -> Result<MediaSource<'a>, Fault> {
        if !self.url.is_empty() {
            return Ok(MediaSource::from_url(self.url));
        }
        if !self.file_data.is_empty() {
            return Ok(match MediaSource::from_url(self.file_data) {
                // Bare base64 instead of a data URL: the file name determines the media type.
                MediaSource::Url { .. } => {
                    let mime = JsonStr::from_escaped(mime_of(self.filename));
                    MediaSource::Base64 { mime, data: self.file_data }
                }
                source => source,
            });
        }
        if !self.file_url.is_empty() {
            return Ok(MediaSource::from_url(self.file_url));
        }
        if !self.file_id.is_empty() {
            return Ok(MediaSource::Id { id: self.file_id });
        }
        Err(Fault::missing(format!("{path}.{wanted}")))
    }
}

/// Returns the media type for a file name's extension; `application/pdf` if unknown, the first type that `file_data`
/// supported.
fn mime_of(name: JsonStr<'_>) -> &'static str {
    let ending = name.escaped().rsplit_once('.').map_or("", |(_, ending)| ending);
    match ending.to_ascii_lowercase().as_str() {
        "txt" | "md" => "text/plain",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "json" => "application/json",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        _ => "application/pdf",
    }
}

/// Reads the content of a message, of a result or of reasoning: a string, or an array of parts.
pub(super) fn parts<'a>(json: &mut Cursor<'a>, body: &'a str, path: Path) -> Result<Vec<Block<'a>>, Fault> {
    let mut blocks = Vec::new();
    match json.kind()? {
        ValueKind::String => blocks.push(Block::text(json.string()?)),
        ValueKind::Array => {
            json.begin_array()?;
            while json.next_element()? {
                if json.kind()? == ValueKind::String {
                    blocks.push(Block::text(json.string()?));
                    continue;
                }
                let path = path.part(blocks.len());
                let from = json.offset();
                let piece = InputMembers::read(json, body, path, false)?;
                blocks.push(piece.part(since(body, from, json), path)?);
            }
        }
        _ => json.skip()?,
    }
    Ok(blocks)
}

/// Returns the text of the value that was read since the byte offset `from`.
pub(super) fn since<'a>(body: &'a str, from: usize, json: &Cursor<'a>) -> RawJson<'a> {
    RawJson::from_text(body.get(from..json.offset()).unwrap_or("null"))
}

/// Reads a string. Any other value is skipped and gives an empty string.
pub(super) fn text<'a>(json: &mut Cursor<'a>) -> Result<JsonStr<'a>, Fault> {
    Ok(json.raw()?.as_str().unwrap_or_default())
}
