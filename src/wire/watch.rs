//! What a passing frame or answer tells the meter. The bytes are read and left alone.

use std::ops::Range;

use super::Format;
use crate::canonical::Usage;
use crate::json::{Cursor, JsonError, JsonStr, RawJson};

/// How far a stream has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamEnd {
    /// More may come.
    #[default]
    Open,
    /// The format's terminator.
    Terminated,
    /// The provider reports an error in the stream.
    Failed,
}

/// Facts of one frame or whole response, borrowed from its text.
#[derive(Clone, Debug, Default)]
pub struct FrameFacts<'a> {
    /// The answer's id.
    pub id: Option<JsonStr<'a>>,
    /// Where the value of the model's name stands in the text, quotes included.
    pub model_at: Option<Range<usize>>,
    /// Tokens.
    pub usage: Option<Usage>,
    /// Why the answer ended, in the format's own word.
    pub finish: Option<JsonStr<'a>>,
    /// Which of several answers (choices, candidates) have something in it: a bit each, the 64th for all beyond.
    pub seen: u64,
    /// Which of them have their finish reason in it.
    pub finished: u64,
    /// Generated content is in it.
    pub content: bool,
    /// Nothing is in it but usage (the last chunk of a chat stream that was asked for usage).
    pub usage_only: bool,
    /// How far the stream has come with it.
    pub end: StreamEnd,
    /// The error that it carries, as the provider wrote it.
    pub error: Option<RawJson<'a>>,
}

/// Reads the data of one frame of a stream.
///
/// # Errors
/// The data is not JSON. Streams hold such frames now and then; they pass and tell nothing.
#[inline]
pub fn frame(format: Format, data: &str) -> Result<FrameFacts<'_>, JsonError> {
    match format {
        Format::Chat => super::chat::watch::frame(data),
        Format::Messages => super::messages::watch::frame(data),
        Format::Responses => super::responses::watch::frame(data),
        Format::Generate => super::generate::watch::answer(data),
    }
}

/// Class of a frame, from a cheap look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameClass {
    /// There may be something in it that must be read now.
    Read,
    /// Nothing is in it but content.
    Content,
    /// Nothing is in it but content, and usage which the next report will replace.
    ContentAndUsage,
}

/// Whether a frame holds nothing but content: no finish reason, no error, no usage that would be lost. Told by the
/// names that stand in it, which costs a tenth of reading it; a name can only be overlooked if it is written with
/// escapes, which no provider does, and never seen where there is none, because a quote inside a string has a backslash
/// before it.
#[inline]
pub fn glance(format: Format, data: &[u8]) -> FrameClass {
    match format {
        Format::Chat => super::chat::watch::glance(data),
        Format::Generate => super::generate::watch::glance(data),
        Format::Messages => super::messages::watch::glance(data),
        Format::Responses => super::responses::watch::glance(data),
    }
}

/// The type of a frame, if it stands first and is written without white space, as the providers of both formats that
/// have one do.
#[inline]
pub(super) fn type_in_front(data: &[u8]) -> Option<&[u8]> {
    let rest = data.strip_prefix(b"{\"type\":\"")?;
    // The longest is one of 46 bytes.
    let end = rest.iter().take(64).position(|&byte| byte == b'"')?;
    rest.get(..end)
}

/// Whether every member of this name has no value to speak of: null, false or an empty string.
#[inline]
pub(super) fn is_void(finder: &memchr::memmem::Finder<'_>, data: &[u8]) -> bool {
    let mut rest = data;
    while let Some(at) = finder.find(rest) {
        rest = rest.get(at + finder.needle().len()..).unwrap_or_default();
        let value = rest.trim_ascii_start();
        let Some(value) = value.strip_prefix(b":") else {
            // A string of this text, not a name.
            continue;
        };
        let value = value.trim_ascii_start();
        if ![&b"null"[..], b"\"\"", b"false"].iter().any(|void| value.starts_with(void)) {
            return false;
        }
    }
    true
}

/// Reads one whole answer.
///
/// # Errors
/// The answer is not JSON or not an object.
pub fn answer(format: Format, body: &str) -> Result<FrameFacts<'_>, JsonError> {
    match format {
        Format::Chat => super::chat::watch::answer(body),
        Format::Messages => super::messages::watch::answer(body),
        Format::Responses => super::responses::watch::answer(body),
        Format::Generate => super::generate::watch::answer(body),
    }
}

/// The bit of the choice or candidate with this index.
pub(super) fn bit(index: u64) -> u64 {
    1 << index.min(63)
}

/// Reads a string and notes where it stands, for a value that may have to be replaced.
pub(super) fn placed_string(json: &mut Cursor<'_>) -> Result<Option<Range<usize>>, JsonError> {
    let value = json.raw()?;
    let end = json.offset();
    Ok(value.as_str().map(|_| end - value.text().len()..end))
}

/// Visits the members of an object; steps over any other value.
pub(super) fn members<'a>(
    json: &mut Cursor<'a>,
    mut each: impl FnMut(JsonStr<'a>, &mut Cursor<'a>) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    if json.kind()? != crate::json::Kind::Object {
        return json.skip();
    }
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        each(key, json)?;
    }
    Ok(())
}

/// Visits the elements of an array; steps over any other value. Returns whether there was any.
pub(super) fn elements<'a>(
    json: &mut Cursor<'a>,
    mut each: impl FnMut(&mut Cursor<'a>) -> Result<(), JsonError>,
) -> Result<bool, JsonError> {
    if json.kind()? != crate::json::Kind::Array {
        json.skip()?;
        return Ok(false);
    }
    let mut any = false;
    json.begin_array()?;
    while json.next_element()? {
        any = true;
        each(json)?;
    }
    Ok(any)
}
