//! What a messages event or answer tells the meter.

use crate::canonical::Usage;
use crate::json::{Cursor, JsonError, JsonStr, RawJson};
use crate::wire::watch::{End, Sight, members, placed_string};

/// Reads the data of one frame. Most frames are deltas, of which only the type is read.
#[inline]
pub fn frame(data: &str) -> Result<Sight<'_>, JsonError> {
    let mut sight = Sight::default();
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
        "message_stop" => sight.end = End::Terminated,
        "error" => sight.end = End::Failed,
        // A frame without a type that has an error is what a proxy in between sends.
        "" if sight.error.is_some() => sight.end = End::Failed,
        _ => {}
    }
    if sight.end != End::Failed {
        sight.error = None;
    }
    Ok(sight)
}

/// Reads one whole message.
pub fn answer(body: &str) -> Result<Sight<'_>, JsonError> {
    let mut sight = Sight { content: true, ..Sight::default() };
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
        sight.end = End::Failed;
    } else {
        sight.error = None;
    }
    Ok(sight)
}

fn message_member<'a>(
    key: JsonStr<'a>,
    json: &mut Cursor<'a>,
    sight: &mut Sight<'a>,
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
    let mut usage = Usage::default();
    let (mut created, mut created_5m, mut created_1h) = (None, None, None);
    let mut json = Cursor::new(value.text());
    members(&mut json, |key, json| {
        match key.escaped() {
            "input_tokens" => usage.uncached = json.u64_or_skip()?,
            "output_tokens" => usage.output = json.u64_or_skip()?,
            "cache_read_input_tokens" => usage.cached = json.u64_or_skip()?,
            "cache_creation_input_tokens" => created = json.u64_or_skip()?,
            "cache_creation" => members(json, |key, json| {
                match key.escaped() {
                    "ephemeral_5m_input_tokens" => created_5m = json.u64_or_skip()?,
                    "ephemeral_1h_input_tokens" => created_1h = json.u64_or_skip()?,
                    _ => json.skip()?,
                }
                Ok(())
            })?,
            "output_tokens_details" => members(json, |key, json| {
                match key.escaped() {
                    "thinking_tokens" => usage.reasoning = json.u64_or_skip()?,
                    _ => json.skip()?,
                }
                Ok(())
            })?,
            "server_tool_use" => members(json, |key, json| {
                match key.escaped() {
                    "web_search_requests" => usage.searches = json.u64_or_skip()?,
                    _ => json.skip()?,
                }
                Ok(())
            })?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    // The buckets are parts of the sum, which a report may give without them.
    match (created_5m, created, created_1h) {
        (None, Some(sum), None) => usage.written = Some(sum),
        (short, sum, long) => {
            usage.cache_write_1h = long;
            usage.cache_write = short.or_else(|| Some(sum?.saturating_sub(long?)));
        }
    }
    Ok(usage)
}
