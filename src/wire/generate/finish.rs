//! Why an answer ended, in this format's words.

use crate::canonical::Finish;
use crate::canonical::answer::FinishOwned;
use crate::json::JsonStr;

/// What a `finishReason` means. Calls of tools end with `STOP` here; that they were made is known from the parts.
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

/// The reason of a complete answer that names none: what an absent enumeration means in this format.
pub(super) const UNSPECIFIED: &str = "FINISH_REASON_UNSPECIFIED";

/// The words that clients know beside those that [`write`] makes, so that a reason may pass in the provider's own word.
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

/// The `finishReason` for a finish. `refused` tells that the model's refusal was among the blocks, for which this
/// format has no field.
pub(super) fn write(finish: Finish<'_>, refused: bool) -> &'static str {
    match finish {
        Finish::Stop if refused => "SAFETY",
        Finish::Stop | Finish::StopSequence(_) | Finish::ToolUse | Finish::Pause => "STOP",
        Finish::Length | Finish::ContextFull => "MAX_TOKENS",
        Finish::ContentFilter => "SAFETY",
        Finish::Other(word) => KNOWN.into_iter().find(|known| *known == word.escaped()).unwrap_or("OTHER"),
    }
}

/// The word for a reason that is given as a number, which clients of the protocol buffers ask for
/// (`enum-encoding=int`). The two services number them alike only up to 4.
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
