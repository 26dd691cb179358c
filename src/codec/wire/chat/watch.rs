//! Facts for the usage meter, read from a chat chunk or completion.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::canonical::Usage;
use crate::wire::base_resp;
use crate::wire::chat::bare_error::bare_error;
use crate::wire::tier_words::TierWords;
use crate::wire::watch::{
    FrameClass, FrameFacts, StreamEnd, bit, cached_details, count_member, elements, is_void,
    is_void_if_present, long_writes, members, named_members, placed_string, split_writes,
};
use json::{Cursor, JsonError, RawJson};

/// Data of the frame that ends a stream.
const DONE: &str = "[DONE]";

/// Reads the data of one frame. Data that begins with `[DONE]` ends the stream, as in the SDKs.
///
/// # Errors
/// Returns [`JsonError`] if the data is not a JSON object.
#[inline]
pub fn frame(data: &str) -> Result<FrameFacts<'_>, JsonError> {
    if data.starts_with(DONE) {
        return Ok(FrameFacts { end: StreamEnd::Terminated, ..FrameFacts::default() });
    }
    answer(data)
}

/// Classifies a chunk: content only, or something to parse.
pub fn classify(data: &[u8]) -> FrameClass {
    static NAMES: LazyLock<[Finder<'static>; 4]> =
        LazyLock::new(|| ["\"finish_reason\"", "\"usage\"", "\"error\"", "\"delta\""].map(Finder::new));
    let [finish, usage, error, delta] = &*NAMES;
    let plain = begins_as_usual(data)
        // Only an error has neither a finish reason nor a delta.
        && is_void_if_present(finish, data).unwrap_or_else(|| delta.find(data).is_some())
        && is_void(usage, data)
        && is_void(error, data);
    if plain { FrameClass::Content } else { FrameClass::Read }
}

/// Returns whether data begins as chunks do. Error objects without an `error` member begin otherwise.
fn begins_as_usual(data: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 5] =
        [b"{\"id\":", b"{\"choices\":[", b"{\"object\":\"chat", b"{\"created\":", b"{\"model\":"];
    BEGINNINGS.iter().any(|beginning| data.starts_with(beginning))
}

/// Returns whether a chunk contains nothing but the role. Many providers send such a chunk before they know whether the
/// response will succeed.
pub fn is_opening(text: &str) -> bool {
    is_empty(text, false)
}

/// Returns whether a chunk contains no content: it opens the response or ends it.
pub fn is_contentless(text: &str) -> bool {
    text.starts_with(DONE) || is_empty(text, true)
}

/// Returns whether a chunk contains no content. `ends` permits a finish reason.
fn is_empty(text: &str, ends: bool) -> bool {
    let mut empty = true;
    let mut json = Cursor::new(text);
    let read = members(&mut json, |key, json| match key.escaped() {
        "choices" => elements(json, |json| opening(json, ends, &mut empty)).map(|_| ()),
        "error" => {
            empty &= json.raw()?.is_void();
            Ok(())
        }
        _ => json.skip(),
    });
    read.is_ok() && empty && text.starts_with('{')
}

fn opening(json: &mut Cursor<'_>, ends: bool, empty: &mut bool) -> Result<(), JsonError> {
    members(json, |key, json| match key.escaped() {
        "delta" => members(json, |key, json| {
            let value = json.raw()?;
            *empty &= key.escaped() == "role" || value.is_void();
            Ok(())
        }),
        "finish_reason" => {
            *empty &= json.raw()?.is_void() || ends;
            Ok(())
        }
        _ => json.skip(),
    })
}

/// Reads one chunk, or one whole completion.
///
/// # Errors
/// Returns [`JsonError`] if the text is not a JSON object.
pub fn answer(text: &str) -> Result<FrameFacts<'_>, JsonError> {
    let mut sight = FrameFacts::default();
    let mut no_choices = false;
    let mut named = false;
    let mut json = Cursor::new(text);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key.escaped() {
            "id" => sight.id = json.raw()?.as_str(),
            "service_tier" => sight.tier = json.raw()?.as_str().and_then(|word| TierWords::OpenAi.told(word)),
            "model" => sight.model_at = placed_string(&mut json)?,
            "choices" => {
                sight.content = elements(&mut json, |json| choice(json, &mut sight))?;
                no_choices = !sight.content;
            }
            "usage" => set_usage(&mut sight, &mut json)?,
            // Groq reports usage here, sometimes in addition to `usage`.
            "x_groq" => members(&mut json, |key, json| match key.escaped() {
                "usage" if sight.usage.is_none() => set_usage(&mut sight, json),
                "error" => set_error(&mut sight, json),
                _ => json.skip(),
            })?,
            // SDKs ignore an empty `error` member; some providers send one in every chunk.
            "error" => {
                let error = Some(json.raw()?).filter(|error| !error.is_void());
                named = error.is_some();
                sight.error = error.or(sight.error);
            }
            // A result of MiniMax, which has no choices if it is an error.
            "base_resp" => {
                let result = json.raw()?;
                sight.error = sight.error.or(Some(result).filter(|_| base_resp::is_error(result)));
            }
            _ => json.skip()?,
        }
    }
    json.end()?;
    if !sight.content && sight.usage.is_none() && sight.error.is_none() {
        sight.error = bare_error(text)?;
    }
    sight.usage_only = no_choices && sight.usage.is_some() && sight.error.is_none();
    if sight.error.is_some() {
        sight.end = StreamEnd::Failed;
        sight.is_bare = !named;
    }
    Ok(sight)
}

/// Reads one whole completion.
///
/// # Errors
/// Returns [`JsonError`] if the text is not a JSON object, or neither a completion nor an error.
pub fn whole(text: &str) -> Result<FrameFacts<'_>, JsonError> {
    let sight = answer(text)?;
    if !sight.content && sight.usage.is_none() && sight.error.is_none() && !has_choices(text)? {
        return Err(JsonError { at: 0, what: "a response without a choice" });
    }
    Ok(sight)
}

/// Returns whether a completion has a list of choices.
#[cold]
fn has_choices(text: &str) -> Result<bool, JsonError> {
    let [choices] = named_members(RawJson::from_text(text.trim_ascii()), ["choices"])?;
    Ok(choices.is_some_and(|choices| choices.text().starts_with('[')))
}

fn set_error<'a>(sight: &mut FrameFacts<'a>, json: &mut Cursor<'a>) -> Result<(), JsonError> {
    let error = Some(json.raw()?).filter(|error| !error.is_void());
    sight.error = sight.error.or(error);
    Ok(())
}

fn choice<'a>(json: &mut Cursor<'a>, sight: &mut FrameFacts<'a>) -> Result<(), JsonError> {
    let (mut index, mut finished) = (0, false);
    members(json, |key, json| {
        match key.escaped() {
            "index" => index = json.u64_or_skip()?.unwrap_or(0),
            "finish_reason" => {
                // Some providers send an empty string or "null" while the response continues; the others send null or
                // omit the member.
                let reason = json.raw()?.as_str().filter(|reason| !matches!(reason.escaped(), "" | "null"));
                if let Some(reason) = reason {
                    sight.finish = Some(reason);
                    finished = true;
                    sight.is_odd |=
                        !matches!(reason.escaped(), "stop" | "length" | "tool_calls" | "content_filter");
                }
            }
            "error" => set_error(sight, json)?,
            // Kimi's older models report usage in the choice.
            "usage" if sight.usage.is_none() => set_usage(sight, json)?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    sight.seen |= bit(index);
    sight.finished |= if finished { bit(index) } else { 0 };
    Ok(())
}

fn set_usage<'a>(sight: &mut FrameFacts<'a>, json: &mut Cursor<'a>) -> Result<(), JsonError> {
    let value = json.raw()?;
    if value.text().starts_with('{') {
        // In its place: to move it there would copy more bytes than most frames have.
        sight.is_odd |= read_usage(value, sight.usage.insert(Usage::default()))?;
    }
    Ok(())
}

/// Reads a usage object of the chat format, with the providers' deviations.
///
/// `completion_tokens` includes reasoning tokens, with two exceptions: at xAI `total_tokens` is the sum of all three
/// counts, and at gateways in front of Gemini the reasoning count exceeds `completion_tokens`. Both are recognized by
/// these numbers, and the reasoning tokens are added. Half a dozen providers put the details beside the totals instead
/// of in the `_details` objects.
///
/// # Errors
/// Returns [`JsonError`] if the text is not valid JSON.
pub fn usage(value: RawJson<'_>) -> Result<Usage, JsonError> {
    let mut usage = Usage::default();
    read_usage(value, &mut usage)?;
    Ok(usage)
}

/// Same as [`usage`], into an empty one. Returns whether the totals have the names of the responses format.
fn read_usage(value: RawJson<'_>, usage: &mut Usage) -> Result<bool, JsonError> {
    let (mut total, mut cached_elsewhere) = (None, None);
    // Names of the responses format, which some servers use here.
    let (mut input, mut output) = (None, None);
    let (mut written_elsewhere, mut reasoned_elsewhere, mut written_12h) = (None, None, None);
    let mut json = Cursor::new(value.text());
    members(&mut json, |key, json| {
        match key.escaped() {
            "prompt_tokens" => usage.input = json.u64_or_skip()?,
            "completion_tokens" => usage.output = json.u64_or_skip()?,
            "total_tokens" => total = json.u64_or_skip()?,
            "prompt_cache_hit_tokens" | "cached_tokens" | "num_cached_tokens" | "cache_read_input_tokens" => {
                cached_elsewhere = cached_elsewhere.max(json.u64_or_skip()?);
            }
            "cache_creation_input_tokens" => written_elsewhere = json.u64_or_skip()?,
            "reasoning_tokens" => reasoned_elsewhere = json.u64_or_skip()?,
            "server_tool_use_details" => usage.searches = count_member(json, "web_search_requests")?,
            "input_tokens" => input = json.u64_or_skip()?,
            "output_tokens" => output = json.u64_or_skip()?,
            "prompt_tokens_details" | "input_tokens_details" => members(json, |key, json| {
                match key.escaped() {
                    "cached_tokens" => usage.cached = json.u64_or_skip()?,
                    "cache_write_tokens" | "cache_creation_input_tokens" => {
                        usage.cache_write = json.u64_or_skip()?
                    }
                    "audio_tokens" => usage.audio_input = json.u64_or_skip()?,
                    "cached_tokens_details" => cached_details(json, usage)?,
                    "cache_write_tokens_details" => written_12h = long_writes(json)?,
                    _ => json.skip()?,
                }
                Ok(())
            })?,
            "completion_tokens_details" | "output_tokens_details" => members(json, |key, json| {
                match key.escaped() {
                    "reasoning_tokens" => usage.reasoning = json.u64_or_skip()?,
                    "audio_tokens" => usage.audio_output = json.u64_or_skip()?,
                    "image_tokens" => usage.image_output = json.u64_or_skip()?,
                    _ => json.skip()?,
                }
                Ok(())
            })?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    let is_odd = usage.input.or(usage.output).is_none() && input.or(output).is_some();
    usage.input = usage.input.or(input);
    usage.output = usage.output.or(output);
    usage.cached = usage.cached.or(cached_elsewhere);
    usage.cache_write = usage.cache_write.or(written_elsewhere);
    split_writes(usage, written_12h);
    usage.reasoning = usage.reasoning.or(reasoned_elsewhere);
    if let (Some(output), Some(reasoning)) = (usage.output, usage.reasoning) {
        let apart = usage.input.unwrap_or(0).checked_add(output).and_then(|sum| sum.checked_add(reasoning));
        if reasoning > output || (reasoning > 0 && total.is_some() && total == apart) {
            usage.output = Some(output.saturating_add(reasoning));
        }
    }
    // Embeddings and some rerank APIs report only the total.
    if usage.input.is_none() && usage.output.is_none() {
        usage.input = total;
    }
    Ok(is_odd)
}

#[cfg(test)]
mod opening {
    use super::{DONE, is_opening};

    #[test]
    fn opening_frame_has_a_role_and_no_content() {
        for data in [
            r#"{"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
            r#"{"choices":[{"delta":{"role":"assistant","content":null,"refusal":null},"logprobs":null}],"error":null}"#,
            r#"{"choices":[]}"#,
        ] {
            assert!(is_opening(data) && super::is_contentless(data), "{data}");
        }
        for data in [
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":null}],"error":null}"#,
            r#"{"choices":[{"delta":{"reasoning_content":"a"}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            r#"{"error":{"message":"no"}}"#,
            "[DONE]",
        ] {
            assert!(!is_opening(data), "{data}");
            let ends = data == DONE || data.contains("\"stop\"");
            assert_eq!(super::is_contentless(data), ends, "{data}");
        }
    }
}
