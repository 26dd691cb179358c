//! What a messages event or answer tells the meter.

use super::usage::Counts;
use crate::canonical::Usage;
use crate::json::{Cursor, JsonError, JsonStr, RawJson};
use crate::wire::watch::{FrameClass, FrameFacts, StreamEnd, members, placed_string};

/// Whether a frame is a delta, by its beginning.
#[inline]
pub fn glance(data: &[u8]) -> FrameClass {
    if data.starts_with(b"{\"type\":\"content_block_delta\"") {
        FrameClass::Content
    } else {
        FrameClass::Read
    }
}

/// Reads the data of one frame. Most frames are deltas, of which only the type is read.
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
        // A frame without a type that has an error is what a proxy in between sends.
        "" if sight.error.is_some() => sight.end = StreamEnd::Failed,
        _ => {}
    }
    if sight.end != StreamEnd::Failed {
        sight.error = None;
    }
    Ok(sight)
}

/// Reads one whole message.
pub fn answer(body: &str) -> Result<FrameFacts<'_>, JsonError> {
    let mut sight = FrameFacts { content: true, ..FrameFacts::default() };
    let mut is_error = false;
    let mut json = Cursor::new(body);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key.escaped() {
            "type" => is_error = json.raw()?.text() == "\"error\"",
            "error" => sight.error = Some(json.raw()?).filter(|error| !error.is_void()),
            _ => message_member(key, &mut json, &mut sight)?,
        }
    }
    json.end()?;
    if is_error {
        sight.end = StreamEnd::Failed;
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

/// Reads a usage object of the messages format. `input_tokens` excludes what was read from and written to the cache,
/// and a stream's last report may leave out what its first one said of the cache: the sum is made where reports are
/// folded.
pub fn usage(value: RawJson<'_>) -> Result<Usage, JsonError> {
    Ok(Counts::read(value)?.report())
}
