//! Frame facts of the generate format: the parts of a frame or a whole response that the usage meter reads. Both have
//! the same shape.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::canonical::{ServiceTier, Usage};
use crate::wire::tier_words::TierWords;
use crate::wire::watch::{FrameClass, FrameFacts, StreamEnd, bit, elements, is_void, members, placed_string};
use json::{Cursor, JsonError, JsonStr, RawJson};

/// Classifies a frame. Usage is in every frame and the last one counts, so it need not be read in most of them. A
/// report without `candidatesTokenCount` must be read: it starts another step of the model, and does not replace the
/// report before it.
pub fn classify(data: &[u8]) -> FrameClass {
    static EVENTS: LazyLock<[Finder<'static>; 5]> = LazyLock::new(|| {
        ["\"finishReason\"", "\"promptFeedback\"", "\"error\"", "\"finish_reason\"", "\"prompt_feedback\""]
            .map(Finder::new)
    });
    static REPORT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"candidatesTokenCount\""));
    static USAGE: LazyLock<[Finder<'static>; 2]> =
        LazyLock::new(|| ["\"usageMetadata\"", "\"usage_metadata\""].map(Finder::new));
    if !data.starts_with(b"{") || !EVENTS.iter().all(|name| is_void(name, data)) {
        FrameClass::Read
    } else if REPORT.find(data).is_some() {
        FrameClass::ContentAndUsage
    } else if USAGE.iter().any(|name| name.find(data).is_some()) {
        FrameClass::Read
    } else {
        FrameClass::Content
    }
}

/// Reads the facts of one whole response.
///
/// # Errors
/// Returns [`JsonError`] if the text is not a JSON object, or neither a response nor an error.
pub fn whole(text: &str) -> Result<FrameFacts<'_>, JsonError> {
    let sight = answer(text)?;
    let is_answer =
        sight.seen != 0 || sight.usage.is_some() || sight.id.is_some() || sight.model_at.is_some();
    if !is_answer && sight.error.is_none() {
        return Err(JsonError { at: 0, what: "not a response of this format" });
    }
    Ok(sight)
}

/// Reads the facts of one frame or one whole response.
///
/// # Errors
/// Returns [`JsonError`] if the text is not a JSON object.
pub fn answer(text: &str) -> Result<FrameFacts<'_>, JsonError> {
    let mut sight = FrameFacts::default();
    let mut json = Cursor::new(text);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key.escaped() {
            "candidates" => {
                elements(&mut json, |json| candidate(json, &mut sight))?;
            }
            "usageMetadata" | "usage_metadata" => sight.usage = Some(usage(json.raw()?)?),
            "modelVersion" | "model_version" => sight.model_at = placed_string(&mut json)?,
            "responseId" | "response_id" => sight.id = json.raw()?.as_str(),
            "promptFeedback" | "prompt_feedback" => members(&mut json, |key, json| {
                match key.escaped() {
                    "blockReason" | "block_reason" => {
                        let reason = reason(json.raw()?);
                        // A blocked prompt has no candidates, and the response is complete.
                        if reason.is_some() {
                            sight.finish = reason;
                            sight.is_blocked = true;
                            sight.seen |= 1;
                            sight.finished |= 1;
                        }
                    }
                    _ => json.skip()?,
                }
                Ok(())
            })?,
            "error" => sight.error = Some(json.raw()?).filter(|error| !error.is_void()),
            _ => json.skip()?,
        }
    }
    json.end()?;
    if sight.error.is_some() {
        sight.end = StreamEnd::Failed;
    }
    Ok(sight)
}

fn candidate<'a>(json: &mut Cursor<'a>, sight: &mut FrameFacts<'a>) -> Result<(), JsonError> {
    let mut index = 0;
    let mut finish = None;
    members(json, |key, json| {
        match key.escaped() {
            "index" => index = json.u64_or_skip()?.unwrap_or(0),
            "finishReason" | "finish_reason" => finish = reason(json.raw()?),
            "content" => members(json, |key, json| match key.escaped() {
                "parts" => {
                    sight.content |= elements(json, Cursor::skip)?;
                    Ok(())
                }
                _ => json.skip(),
            })?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    sight.seen |= bit(index);
    if finish.is_some() {
        sight.finish = finish;
        sight.finished |= bit(index);
    }
    Ok(())
}

/// Reads a finish or block reason. Returns `None` for an empty one and for the `..._UNSPECIFIED` value of each enum.
pub(super) fn reason(value: RawJson<'_>) -> Option<JsonStr<'_>> {
    match value.as_str() {
        Some(name) => (!name.is_empty() && !name.escaped().ends_with("_UNSPECIFIED")).then_some(name),
        // Google's Go client requests enums as integers (`$alt=json;enum-encoding=int`).
        None => value.as_u64().filter(|value| *value > 0).map(super::finish::by_number),
    }
}

/// Reads a `usageMetadata` object. `candidatesTokenCount` excludes thoughts, and `promptTokenCount` excludes the
/// prompt of server-side tools; the canonical totals include both. Some versions of Vertex AI include the thoughts:
/// they are recognized by `totalTokenCount`.
///
/// # Errors
/// Returns [`JsonError`] if the value is not valid JSON.
pub fn usage(value: RawJson<'_>) -> Result<Usage, JsonError> {
    read_usage(&mut Cursor::new(value.text()))
}

/// Reads a `usageMetadata` object at the cursor; see [`usage`].
pub(super) fn read_usage(json: &mut Cursor<'_>) -> Result<Usage, JsonError> {
    let (mut prompt, mut tool_prompt, mut candidates, mut thoughts, mut total) =
        (None, None, None, None, None);
    let mut usage = Usage::default();
    let (mut tier, mut traffic) = (None, None);
    members(json, |key, json| {
        match key.escaped() {
            "promptTokenCount" | "prompt_token_count" => prompt = json.u64_or_skip()?,
            "toolUsePromptTokenCount" | "tool_use_prompt_token_count" => tool_prompt = json.u64_or_skip()?,
            "candidatesTokenCount" | "candidates_token_count" => candidates = json.u64_or_skip()?,
            "thoughtsTokenCount" | "thoughts_token_count" => thoughts = json.u64_or_skip()?,
            "totalTokenCount" | "total_token_count" => total = json.u64_or_skip()?,
            "cachedContentTokenCount" | "cached_content_token_count" => usage.cached = json.u64_or_skip()?,
            "candidatesTokensDetails" | "candidates_tokens_details" => {
                elements(json, |json| {
                    modality(json, &mut usage.audio_output, Some(&mut usage.image_output))
                })?;
            }
            "cacheTokensDetails" | "cache_tokens_details" => {
                let Usage { cached_audio_input, cached_image_input, .. } = &mut usage;
                elements(json, |json| modality(json, cached_audio_input, Some(cached_image_input)))?;
            }
            "serviceTier" | "service_tier" => tier = told(json, TierWords::Generate)?,
            "trafficType" | "traffic_type" => traffic = told(json, TierWords::Traffic)?,
            "promptTokensDetails" | "prompt_tokens_details" => {
                elements(json, |json| modality(json, &mut usage.audio_input, None))?;
            }
            _ => json.skip()?,
        }
        Ok(())
    })?;
    usage.reasoning = thoughts;
    // Clients are told of a tier other than the usual one.
    usage.tier = tier.filter(|tier| *tier != ServiceTier::Standard);
    usage.traffic = tier.or(traffic);
    usage.input = prompt.map(|prompt: u64| prompt.saturating_add(tool_prompt.unwrap_or(0)));
    // If the total is the sum without the thoughts, `candidatesTokenCount` includes them; adding them would count
    // them twice.
    let included = thoughts.unwrap_or(0) > 0
        && total.is_some()
        && total == Some(usage.input.unwrap_or(0).saturating_add(candidates.unwrap_or(0)));
    usage.output = match (candidates, thoughts) {
        (None, None) => None,
        (Some(all), _) if included => Some(all),
        (candidates, thoughts) => Some(candidates.unwrap_or(0).saturating_add(thoughts.unwrap_or(0))),
    };
    Ok(usage)
}

fn told(json: &mut Cursor<'_>, words: TierWords) -> Result<Option<ServiceTier>, JsonError> {
    Ok(json.raw()?.as_str().and_then(|word| words.told(word)))
}

fn modality(
    json: &mut Cursor<'_>,
    audio: &mut Option<u64>,
    image: Option<&mut Option<u64>>,
) -> Result<(), JsonError> {
    let (mut kind, mut count) = (None, None);
    members(json, |key, json| {
        match key.escaped() {
            "modality" => kind = json.raw()?.as_str(),
            "tokenCount" | "token_count" => count = json.u64_or_skip()?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    match (kind.map(|kind| kind.escaped()), image) {
        (Some("AUDIO"), _) => *audio = count,
        (Some("IMAGE"), Some(image)) => *image = count,
        _ => {}
    }
    Ok(())
}
