//! Finish reasons of the generate format (<https://ai.google.dev/api/generate-content>).

use crate::canonical::Finish;
use json::JsonStr;

/// Finish reason of a complete response that has none: the meaning of an absent enum value in this format.
pub(super) const UNSPECIFIED: &str = "FINISH_REASON_UNSPECIFIED";

/// Further values that clients know, besides those that [`write`] produces. They are passed on unchanged. Those of
/// responses that broke off are errors.
const KNOWN: [&str; 2] = ["NO_IMAGE", UNSPECIFIED];

/// Returns the `finishReason`. `refused` says that the model refused in its text, for which this format has no other
/// field.
pub(super) fn write(finish: Finish<'_>, refused: bool) -> &'static str {
    match finish {
        Finish::Stop if refused => "SAFETY",
        Finish::Stop | Finish::StopSequence(_) | Finish::ToolUse | Finish::Pause => "STOP",
        Finish::Length | Finish::ContextFull => "MAX_TOKENS",
        Finish::ContentFilter => "SAFETY",
        Finish::Other(word) => KNOWN.into_iter().find(|known| *known == word.escaped()).unwrap_or("OTHER"),
    }
}

/// Returns the name of a finish reason that is given as an integer (`enum-encoding=int`, which protocol buffer
/// clients request). The Gemini API and Vertex AI agree only on the numbers up to 4.
pub(super) fn by_number(value: u64) -> JsonStr<'static> {
    JsonStr::from_escaped(match value {
        1 => "STOP",
        2 => "MAX_TOKENS",
        3 => "SAFETY",
        4 => "RECITATION",
        7 => "BLOCKLIST",
        8 => "PROHIBITED_CONTENT",
        // `OTHER` is a failure.
        _ => "UNKNOWN",
    })
}
