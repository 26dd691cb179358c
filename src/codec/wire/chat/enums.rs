//! Enumerated values and small shapes of the chat format that its decoders and encoders share.

use crate::canonical::Finish;
use crate::wire::watch::members;
use json::{Cursor, JsonStr, RawJson};

/// Returns the `finish_reason`, and the provider's own word where this format has no equivalent. With `calls`, `stop`
/// becomes `tool_calls`, and without calls `tool_calls` becomes `stop`: clients decide by this word whether to run tools
/// and continue, and wait for calls that never come.
pub(super) fn finish_word<'a>(finish: Finish<'a>, calls: bool) -> (&'static str, Option<JsonStr<'a>>) {
    match finish {
        Finish::ToolUse if calls => ("tool_calls", None),
        Finish::Length | Finish::ContextFull => ("length", None),
        Finish::ContentFilter => ("content_filter", None),
        Finish::Other(word) => (if calls { "tool_calls" } else { "stop" }, Some(word)),
        Finish::Stop | Finish::StopSequence(_) | Finish::Pause if calls => ("tool_calls", None),
        Finish::Stop | Finish::StopSequence(_) | Finish::Pause | Finish::ToolUse => ("stop", None),
    }
}

/// Returns the provider signature in an `extra_content`: `{"google":{"thought_signature":"..."}}`. Empty if there is
/// none.
pub(super) fn thought_signature(value: RawJson<'_>) -> JsonStr<'_> {
    let mut signature = JsonStr::default();
    let mut json = Cursor::new(value.text());
    // Any other shape carries no signature; ignore it.
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

/// Returns the URL of an image part: `{"url":"..."}` or a plain string. Empty if there is none.
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

/// Returns the URL of an image in a response of an OpenAI-compatible provider: `{"image_url":{"url":"..."}}`,
/// `{"image_url":"..."}`, `{"url":"..."}` or a plain string. Empty if there is none.
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

/// Returns the media type of audio by the first bytes of its base64 text. This format does not state it.
pub(super) fn sound_type(base64: &str) -> &'static str {
    match base64.as_bytes() {
        [b'U', b'k', b'l', b'G', ..] => "audio/wav",
        [b'T', b'2', b'd', b'n', ..] => "audio/ogg",
        [b'Z', b'k', b'x', b'h', ..] => "audio/flac",
        [b'S', b'U', b'Q', b'z', ..] | [b'/', b'/', ..] => "audio/mp3",
        _ => "audio/pcm",
    }
}
