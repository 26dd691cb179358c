//! Frame facts of the responses format: the parts of an event or of a whole response that the usage meter reads.

use crate::canonical::Usage;
use crate::wire::tier_words::TierWords;
use crate::wire::watch::{
    FrameClass, FrameFacts, StreamEnd, cached_details, count_member, long_writes, members, placed_string,
    split_writes, type_in_front,
};
use json::{Cursor, JsonError, JsonStr, RawJson};

/// Classifies a frame as content if its type is a delta. Any other frame must be read.
#[inline]
pub fn classify(data: &[u8]) -> FrameClass {
    if type_in_front(data).is_some_and(|kind| kind.ends_with(b".delta")) {
        FrameClass::Content
    } else {
        FrameClass::Read
    }
}

/// Reads the facts of one frame. The `type` of the data decides, because some providers send no `event:` lines.
/// Deltas are not read past their type.
///
/// # Errors
/// Returns [`JsonError`] if the data is not a JSON object.
#[inline]
pub fn frame(data: &str) -> Result<FrameFacts<'_>, JsonError> {
    // Some gateways end the stream with the terminator of the chat format.
    if data.starts_with("[DONE]") {
        return Ok(FrameFacts { end: StreamEnd::Terminated, ..FrameFacts::default() });
    }
    let mut sight = FrameFacts::default();
    let mut kind = JsonStr::default();
    let mut json = Cursor::new(data);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key.escaped() {
            // Nearly all frames are deltas. Stop at the type: only content is reported for them.
            "type" => {
                kind = json.string()?;
                if kind.escaped().ends_with(".delta") {
                    sight.content = true;
                    return Ok(sight);
                }
            }
            "response" => members(&mut json, |key, json| response_member(key, json, &mut sight))?,
            "error" | "message" => {
                let value = json.raw()?;
                if !value.is_void() && sight.error.is_none() {
                    sight.error = Some(value);
                }
            }
            _ => json.skip()?,
        }
    }
    sight.end = match kind.escaped() {
        "response.completed" | "response.incomplete" => StreamEnd::Terminated,
        "response.failed" | "response.cancelled" | "error" | "response.error" => StreamEnd::Failed,
        _ => StreamEnd::Open,
    };
    // Clients read errors in events of other names.
    sight.is_bare = kind.is("response.error");
    sight.begins = kind.escaped() == "response.created";
    if sight.end == StreamEnd::Open {
        sight.finish = None;
        // Intermediate proxies send error frames without a type.
        if kind.is_empty() && sight.error.is_some() {
            sight.end = StreamEnd::Failed;
        } else {
            sight.error = None;
        }
    }
    Ok(sight)
}

/// Reads the facts of one whole response.
///
/// # Errors
/// Returns [`JsonError`] if the body is not a JSON object, or neither a response nor an error.
pub fn answer(body: &str) -> Result<FrameFacts<'_>, JsonError> {
    let mut sight = FrameFacts { content: true, ..FrameFacts::default() };
    let (mut is_response, mut has_output) = (false, false);
    let mut json = Cursor::new(body);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key.escaped() {
            "object" => is_response = json.raw()?.text() == "\"response\"",
            "output" => {
                has_output = true;
                json.skip()?;
            }
            _ => response_member(key, &mut json, &mut sight)?,
        }
    }
    json.end()?;
    // A response object with the status `failed` is a valid response; a bare error object is not.
    if sight.error.is_some() && !is_response {
        sight.end = StreamEnd::Failed;
    } else if !is_response && !has_output && sight.finish.is_none() && sight.usage.is_none() {
        return Err(JsonError { at: 0, what: "not a response of this format" });
    }
    Ok(sight)
}

fn response_member<'a>(
    key: JsonStr<'a>,
    json: &mut Cursor<'a>,
    sight: &mut FrameFacts<'a>,
) -> Result<(), JsonError> {
    match key.escaped() {
        "id" => sight.id = json.raw()?.as_str(),
        "model" => sight.model_at = placed_string(json)?,
        "service_tier" => sight.tier = json.raw()?.as_str().and_then(|word| TierWords::OpenAi.told(word)),
        "usage" => {
            let value = json.raw()?;
            if value.text().starts_with('{') {
                sight.usage = Some(usage(value)?);
            }
        }
        "status" => sight.finish = json.raw()?.as_str(),
        "error" => sight.error = Some(json.raw()?).filter(|error| !error.is_void()),
        _ => json.skip()?,
    }
    Ok(())
}

/// Reads a usage object of the responses format. The totals include the counts in the details.
///
/// # Errors
/// Returns [`JsonError`] if the value is not valid JSON.
pub fn usage(value: RawJson<'_>) -> Result<Usage, JsonError> {
    let (mut usage, mut long) = (Usage::default(), None);
    let mut json = Cursor::new(value.text());
    members(&mut json, |key, json| {
        match key.escaped() {
            "input_tokens" => usage.input = json.u64_or_skip()?,
            "output_tokens" => usage.output = json.u64_or_skip()?,
            "input_tokens_details" => members(json, |key, json| {
                match key.escaped() {
                    "cached_tokens" => usage.cached = json.u64_or_skip()?,
                    "cache_write_tokens" => usage.cache_write = json.u64_or_skip()?,
                    "cached_tokens_details" => cached_details(json, &mut usage)?,
                    "cache_write_tokens_details" => long = long_writes(json)?,
                    _ => json.skip()?,
                }
                Ok(())
            })?,
            "output_tokens_details" => usage.reasoning = count_member(json, "reasoning_tokens")?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    split_writes(&mut usage, long);
    Ok(usage)
}
