//! Words of the chat format that its readers and its writers share.

use crate::canonical::Finish;
use crate::canonical::answer::FinishOwned;
use crate::json::{Cursor, JsonStr, RawJson};
use crate::wire::watch::members;

/// What a `finish_reason` means; `sequence` is the stop sequence, where the provider says it beside.
///
/// | word | meaning |
/// |---|---|
/// | `stop`, `eos`, `end_turn`, `stop_sequence` | complete, or the stop sequence that is said beside |
/// | `length`, `max_tokens`, `model_length` | the limit of output |
/// | `model_context_window_exceeded` | the context is full |
/// | `tool_calls`, `function_call`, `tool_use` | tools |
/// | `content_filter`, `sensitive`, `refusal`, `safety` | a filter |
/// | `pause_turn` | a pause |
/// | any other | the provider's own reason |
pub(super) fn finish(word: JsonStr<'_>, sequence: JsonStr<'_>) -> FinishOwned {
    let lower;
    let name = word.escaped();
    let name = if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        lower = name.to_ascii_lowercase();
        lower.as_str()
    } else {
        name
    };
    let sequence = || (!sequence.is_empty()).then(|| sequence.escaped().to_owned());
    match name {
        "stop" | "eos" | "end_turn" => match sequence() {
            None => FinishOwned::Stop,
            met => FinishOwned::StopSequence(met),
        },
        "stop_sequence" => FinishOwned::StopSequence(sequence()),
        "length" | "max_tokens" | "model_length" => FinishOwned::Length,
        "model_context_window_exceeded" => FinishOwned::ContextFull,
        "tool_calls" | "function_call" | "tool_use" => FinishOwned::ToolUse,
        "content_filter" | "sensitive" | "refusal" | "safety" => FinishOwned::ContentFilter,
        "pause_turn" => FinishOwned::Pause,
        _ => FinishOwned::Other(word.escaped().to_owned()),
    }
}

/// The word for a reason, and the provider's own where this format has none. Who calls tools never says a plain `stop`:
/// clients look at the word to know whether to go on.
pub(super) fn finish_word<'a>(finish: Finish<'a>, calls: bool) -> (&'static str, Option<JsonStr<'a>>) {
    match finish {
        Finish::ToolUse => ("tool_calls", None),
        Finish::Length | Finish::ContextFull => ("length", None),
        Finish::ContentFilter => ("content_filter", None),
        Finish::Other(word) => (if calls { "tool_calls" } else { "stop" }, Some(word)),
        Finish::Stop | Finish::StopSequence(_) | Finish::Pause if calls => ("tool_calls", None),
        Finish::Stop | Finish::StopSequence(_) | Finish::Pause => ("stop", None),
    }
}

/// The signature in an `extra_content`: `{"google":{"thought_signature":"..."}}`.
pub(super) fn thought_signature(value: RawJson<'_>) -> JsonStr<'_> {
    let mut signature = JsonStr::default();
    let mut json = Cursor::new(value.text());
    // What is not of this shape has no signature.
    let _ = members(&mut json, |key, json| match key.escaped() {
        "google" => members(json, |key, json| {
            let value = json.raw()?;
            if key.is("thought_signature") {
                signature = value.as_str().unwrap_or_default();
            }
            Ok(())
        }),
        _ => json.skip(),
    });
    signature
}

/// The address in an image part: `{"url":"..."}` or the address itself.
pub(super) fn url_of(value: RawJson<'_>) -> JsonStr<'_> {
    if let Some(url) = value.as_str() {
        return url;
    }
    let mut url = JsonStr::default();
    let mut json = Cursor::new(value.text());
    let _ = members(&mut json, |key, json| {
        let value = json.raw()?;
        if key.is("url") {
            url = value.as_str().unwrap_or_default();
        }
        Ok(())
    });
    url
}

/// The address of an image as compatible providers give it: `{"image_url":{"url":"..."}}`, or less of that.
pub(super) fn image_address(image: RawJson<'_>) -> JsonStr<'_> {
    let mut url = image.as_str().unwrap_or_default();
    let _ = members(&mut Cursor::new(image.text()), |key, json| {
        let value = json.raw()?;
        match key.escaped() {
            "image_url" => url = url_of(value),
            "url" if url.is_empty() => url = url_of(value),
            _ => {}
        }
        Ok(())
    });
    url
}

/// The media type of sound, which this format does not say, by how its base64 begins.
pub(super) fn sound_type(base64: &str) -> &'static str {
    match base64.as_bytes() {
        [b'U', b'k', b'l', b'G', ..] => "audio/wav",
        [b'T', b'2', b'd', b'n', ..] => "audio/ogg",
        [b'Z', b'k', b'x', b'h', ..] => "audio/flac",
        [b'S', b'U', b'Q', b'z', ..] | [b'/', b'/', ..] => "audio/mp3",
        _ => "audio/pcm",
    }
}
