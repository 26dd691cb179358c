//! Facts for the usage meter, read from a messages event or whole message.

use super::usage::Counts;
use crate::canonical::Usage;
use crate::wire::watch::{FrameClass, FrameFacts, StreamEnd, members, placed_string};
use json::{Cursor, JsonError, JsonStr, RawJson};

/// Classifies a frame by its first bytes: content deltas need not be parsed.
#[inline]
pub fn classify(data: &[u8]) -> FrameClass {
    if data.starts_with(b"{\"type\":\"content_block_delta\"") {
        FrameClass::Content
    } else {
        FrameClass::Read
    }
}

/// Reads the data of one frame. Of a content delta, the most frequent frame, only the type is read.
///
/// # Errors
/// Returns [`JsonError`] if the data is not a JSON object.
#[inline]
pub fn frame(data: &str) -> Result<FrameFacts<'_>, JsonError> {
    let mut sight = FrameFacts::default();
    let mut kind = JsonStr::default();
    let mut json = Cursor::new(data);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key.escaped() {
            "type" => {
                kind = json.string()?;
                match kind.escaped() {
                    "content_block_delta" => {
                        sight.content = true;
                        return Ok(sight);
                    }
                    "ping" | "content_block_start" | "content_block_stop" => return Ok(sight),
                    _ => {}
                }
            }
            "message" => members(&mut json, |key, json| message_member(key, json, &mut sight))?,
            "delta" => members(&mut json, |key, json| {
                match key.escaped() {
                    "stop_reason" => sight.finish = json.raw()?.as_str(),
                    _ => json.skip()?,
                }
                Ok(())
            })?,
            "usage" => sight.usage = Some(usage(json.raw()?)?),
            "error" => sight.error = Some(json.raw()?).filter(|error| !error.is_void()),
            _ => json.skip()?,
        }
    }
    match kind.escaped() {
        "message_stop" => sight.end = StreamEnd::Terminated,
        "error" => sight.end = StreamEnd::Failed,
        // An intermediate proxy may send an error without a type.
        "" if sight.error.is_some() => sight.end = StreamEnd::Failed,
        _ => {}
    }
    if sight.end != StreamEnd::Failed {
        sight.error = None;
    }
    Ok(sight)
}

/// Reads one whole message.
///
/// # Errors
/// Returns [`JsonError`] if the text is not a JSON object, or neither a message nor an error.
pub fn answer(body: &str) -> Result<FrameFacts<'_>, JsonError> {
    let mut sight = FrameFacts { content: true, ..FrameFacts::default() };
    let (mut is_error, mut is_message) = (false, false);
    let mut json = Cursor::new(body);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key.escaped() {
            "type" => {
                let kind = json.raw()?.text();
                is_error = kind == "\"error\"";
                is_message |= kind == "\"message\"";
            }
            "content" => {
                is_message = true;
                json.skip()?;
            }
            "error" => sight.error = Some(json.raw()?).filter(|error| !error.is_void()),
            _ => message_member(key, &mut json, &mut sight)?,
        }
    }
    json.end()?;
    is_message |= sight.finish.is_some() || sight.usage.is_some();
    if is_error || (!is_message && sight.error.is_some()) {
        sight.end = StreamEnd::Failed;
    } else if !is_message {
        return Err(JsonError { at: 0, what: "not a response of this format" });
    } else {
        sight.error = None;
    }
    Ok(sight)
}

fn message_member<'a>(
    key: JsonStr<'a>,
    json: &mut Cursor<'a>,
    sight: &mut FrameFacts<'a>,
) -> Result<(), JsonError> {
    match key.escaped() {
        "id" => sight.id = json.raw()?.as_str(),
        "model" => sight.model_at = placed_string(json)?,
        "usage" => sight.usage = Some(usage(json.raw()?)?),
        "stop_reason" => sight.finish = json.raw()?.as_str(),
        _ => json.skip()?,
    }
    Ok(())
}

/// Reads a usage object of the messages format. `input_tokens` excludes cache reads and writes, and the last report of
/// a stream may omit the cache counts of the first one. The sum is therefore computed where reports are merged.
///
/// # Errors
/// Returns [`JsonError`] if the text is not valid JSON.
pub fn usage(value: RawJson<'_>) -> Result<Usage, JsonError> {
    Ok(Counts::read(value)?.report())
}
