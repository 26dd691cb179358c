//! Facts for the usage meter, read from a passing frame or whole response. The bytes are never changed.

use std::ops::Range;

use super::Format;
use crate::canonical::{ServiceTier, Usage};
use json::{Cursor, JsonError, JsonStr, RawJson};

/// State of a stream after a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamEnd {
    /// More frames may follow.
    #[default]
    Open,
    /// The frame is the format's terminator.
    Terminated,
    /// The frame reports an error from the provider.
    Failed,
}

/// Facts of one frame or whole response, borrowed from its text.
#[derive(Clone, Debug, Default)]
pub struct FrameFacts<'a> {
    /// Response id.
    pub id: Option<JsonStr<'a>>,
    /// Byte range of the model name in the text, quotes included.
    pub model_at: Option<Range<usize>>,
    /// Token usage.
    pub usage: Option<Usage>,
    /// Service tier that the response states beside its usage.
    pub tier: Option<ServiceTier>,
    /// Finish reason, as the format spells it.
    pub finish: Option<JsonStr<'a>>,
    /// Whether the finish reason is that of a blocked prompt.
    pub is_blocked: bool,
    /// Choices or candidates that have data in this frame: one bit each; bit 63 stands for index 63 and above.
    pub seen: u64,
    /// Choices or candidates whose finish reason is in this frame: one bit each, as in `seen`.
    pub finished: u64,
    /// Whether the frame contains generated content.
    pub content: bool,
    /// Whether the frame contains only usage (the last chunk of a chat stream with `include_usage`).
    pub usage_only: bool,
    /// State of the stream after this frame.
    pub end: StreamEnd,
    /// Whether a response begins with this frame. A steered response of the responses format has successors.
    pub begins: bool,
    /// Error object or text, as the provider wrote it.
    pub error: Option<RawJson<'a>>,
    /// Whether the error is where clients of the format do not look for one.
    pub is_bare: bool,
    /// Whether a finish reason or the names of the usage are not those of the format (chat only).
    pub is_odd: bool,
}

impl<'a> FrameFacts<'a> {
    /// Returns the finish reason if it means that the response broke off. `None` beside an error, which says more.
    pub fn failure(&self, format: Format) -> Option<JsonStr<'a>> {
        let word = self.finish.filter(|_| !self.is_blocked && self.end != StreamEnd::Failed)?;
        super::finish_words::breaks_off(format, word.escaped()).then_some(word)
    }
}

/// Reads the data of one frame of a stream.
///
/// # Errors
/// Returns [`JsonError`] if the data is not valid JSON. Some providers send such frames; they are forwarded unread.
#[inline]
pub fn frame(format: Format, data: &str) -> Result<FrameFacts<'_>, JsonError> {
    match format {
        Format::Chat => super::chat::watch::frame(data),
        Format::Messages => super::messages::watch::frame(data),
        Format::Responses => super::responses::watch::frame(data),
        Format::Generate => super::generate::watch::answer(data),
        Format::Converse => super::converse::watch::frame(data),
    }
}

/// Class of a frame, from a cheap look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameClass {
    /// The frame may contain something that must be parsed now.
    Read,
    /// The frame contains only content.
    Content,
    /// The frame contains only content, and usage that the next report replaces.
    ContentAndUsage,
}

/// Classifies a frame by a substring search for member names: content only, or with a finish reason, an error or final
/// usage. This costs a tenth of parsing it. A name that is written with escapes would be missed, but no provider does
/// that. Text inside a string never matches, because a quote inside a string has a backslash before it.
#[inline(always)]
pub fn classify(format: Format, data: &[u8]) -> FrameClass {
    match format {
        Format::Chat => super::chat::watch::classify(data),
        Format::Messages => super::messages::watch::classify(data),
        Format::Responses => super::responses::watch::classify(data),
        rare => classify_rare(rare, data),
    }
}

// Apart from the others: with five cases the compiler makes a table, whose jump costs most frames more than its content.
#[inline(never)]
fn classify_rare(format: Format, data: &[u8]) -> FrameClass {
    match format {
        Format::Generate => super::generate::watch::classify(data),
        Format::Converse => super::converse::watch::classify(data),
        Format::Chat | Format::Messages | Format::Responses => FrameClass::Read,
    }
}

/// Returns the value of `type` if it is the first member and is written without white space, as the providers of the
/// messages and responses formats do. `None` otherwise.
#[inline]
pub(super) fn type_in_front(data: &[u8]) -> Option<&[u8]> {
    let rest = data.strip_prefix(b"{\"type\":\"")?;
    // The longest event type has 46 bytes.
    let end = memchr::memchr(b'"', rest.get(..64).unwrap_or(rest))?;
    rest.get(..end)
}

/// Returns whether every member with this name is empty: null, false or an empty string.
#[inline]
pub(super) fn is_void(finder: &memchr::memmem::Finder<'_>, data: &[u8]) -> bool {
    is_void_if_present(finder, data) != Some(false)
}

/// Same as [`is_void`]. `None` if there is no member with this name.
#[inline]
pub(super) fn is_void_if_present(finder: &memchr::memmem::Finder<'_>, data: &[u8]) -> Option<bool> {
    let (mut rest, mut found) = (data, None);
    while let Some(at) = finder.find(rest) {
        rest = rest.get(at + finder.needle().len()..).unwrap_or_default();
        let value = rest.trim_ascii_start();
        let Some(value) = value.strip_prefix(b":") else {
            // A string value with this text, not a member name.
            continue;
        };
        let value = value.trim_ascii_start();
        // Some providers write these members in every chunk with an empty value.
        if ![&b"null"[..], b"\"\"", b"false"].iter().any(|void| value.starts_with(void)) {
            return Some(false);
        }
        found = Some(true);
    }
    found
}

/// Reads one whole response.
///
/// # Errors
/// Returns [`JsonError`] if the text is not valid JSON, not an object, or neither a response of the format nor an error.
pub fn answer(format: Format, body: &str) -> Result<FrameFacts<'_>, JsonError> {
    match format {
        Format::Chat => super::chat::watch::whole(body),
        Format::Messages => super::messages::watch::answer(body),
        Format::Responses => super::responses::watch::answer(body),
        Format::Generate => super::generate::watch::whole(body),
        Format::Converse => super::converse::watch::answer(body),
    }
}

/// Returns the bit of the choice or candidate with this index. All indexes from 63 share one bit.
pub(super) fn bit(index: u64) -> u64 {
    1 << index.min(63)
}

/// Reads a value and returns its byte range, quotes included, so that an edit can replace it. `None` if it is not a
/// string.
pub(super) fn placed_string(json: &mut Cursor<'_>) -> Result<Option<Range<usize>>, JsonError> {
    let value = json.raw()?;
    let end = json.offset();
    Ok(value.as_str().map(|_| end - value.text().len()..end))
}

/// Calls `each` for every member of an object. Skips any other value.
pub(super) fn members<'a>(
    json: &mut Cursor<'a>,
    mut each: impl FnMut(JsonStr<'a>, &mut Cursor<'a>) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    if json.kind()? != json::ValueKind::Object {
        return json.skip();
    }
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        each(key, json)?;
    }
    Ok(())
}

/// Returns the members with these names; `None` if a member is absent or null, or if the value is not an object.
pub(super) fn named_members<'a, const N: usize>(
    value: RawJson<'a>,
    names: [&str; N],
) -> Result<[Option<RawJson<'a>>; N], JsonError> {
    let mut found = [None; N];
    members(&mut Cursor::new(value.text()), |key, json| {
        let value = json.raw()?;
        for (name, slot) in names.iter().zip(&mut found) {
            if key.is(name) && !value.is_null() {
                *slot = Some(value);
            }
        }
        Ok(())
    })?;
    Ok(found)
}

/// Reads one member of an object as a count. `None` if the value is no object, or the member is absent or no count.
pub(super) fn count_member(json: &mut Cursor<'_>, name: &str) -> Result<Option<u64>, JsonError> {
    let mut count = None;
    members(json, |key, json| {
        if key.escaped() == name {
            count = json.u64_or_skip()?;
            return Ok(());
        }
        json.skip()
    })?;
    Ok(count)
}

/// Reads the cached tokens of each modality (OpenAI, `cached_tokens_details`).
pub(super) fn cached_details(json: &mut Cursor<'_>, usage: &mut Usage) -> Result<(), JsonError> {
    members(json, |key, json| {
        match key.escaped() {
            "audio_tokens" => usage.cached_audio_input = json.u64_or_skip()?,
            "image_tokens" => usage.cached_image_input = json.u64_or_skip()?,
            _ => json.skip()?,
        }
        Ok(())
    })
}

/// Reads the cache writes that live for 12 hours (OpenAI, `cache_write_tokens_details`). `None` if they are not stated.
pub(super) fn long_writes(json: &mut Cursor<'_>) -> Result<Option<u64>, JsonError> {
    count_member(json, "ttl_12h_tokens")
}

/// Splits the cache writes of a report by lifetime: `long` of them live for 12 hours.
pub(super) fn split_writes(usage: &mut Usage, long: Option<u64>) {
    let Some(long) = long else { return };
    let long = usage.cache_write.map_or(long, |all| long.min(all));
    usage.cache_write = usage.cache_write.map(|all| all.saturating_sub(long));
    usage.cache_write_12h = Some(long);
}

/// Calls `each` for every element of an array. Skips any other value. Returns whether the array had an element.
pub(super) fn elements<'a>(
    json: &mut Cursor<'a>,
    mut each: impl FnMut(&mut Cursor<'a>) -> Result<(), JsonError>,
) -> Result<bool, JsonError> {
    if json.kind()? != json::ValueKind::Array {
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
