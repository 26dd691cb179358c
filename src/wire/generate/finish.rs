//! Finish reasons of the generate format (<https://ai.google.dev/api/generate-content>).

use crate::canonical::Finish;
use crate::canonical::answer::FinishOwned;
use crate::json::JsonStr;

/// Converts a `finishReason`. The format has no value for tool calls: they end with `STOP`, and the decoder
/// recognizes them by their parts.
pub(super) fn read(word: JsonStr<'_>) -> FinishOwned {
    match word.escaped() {
        "STOP" => FinishOwned::Stop,
        "MAX_TOKENS" | "CONTINUATION" => FinishOwned::Length,
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION"
        | "MODEL_ARMOR"
        | "ESCALATION"
        | "PUP_LIMITED_DISABLED" => FinishOwned::ContentFilter,
        other => FinishOwned::Other(other.to_owned()),
    }
}

/// Finish reason of a complete response that has none: the meaning of an absent enum value in this format.
pub(super) const UNSPECIFIED: &str = "FINISH_REASON_UNSPECIFIED";

/// Further values that clients know, besides those that [`write`] produces. They are passed on unchanged.
const KNOWN: [&str; 9] = [
    "OTHER",
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "MALFORMED_RESPONSE",
    "MISSING_THOUGHT_SIGNATURE",
    "IMAGE_OTHER",
    "NO_IMAGE",
    UNSPECIFIED,
];

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
        _ => "OTHER",
    })
}
