//! Why an answer ended, in the words of the messages format.

use crate::canonical::Finish;
use crate::json::JsonStr;

/// What a `stop_reason` means. `called` says that the answer holds a call: then it ended for it, whatever the provider
/// calls it.
pub(super) fn decode<'a>(reason: JsonStr<'a>, sequence: Option<JsonStr<'a>>, called: bool) -> Finish<'a> {
    match reason.escaped() {
        "stop_sequence" => Finish::StopSequence(sequence),
        "max_tokens" => Finish::Length,
        "model_context_window_exceeded" => Finish::ContextFull,
        "refusal" => Finish::ContentFilter,
        "pause_turn" => Finish::Pause,
        "tool_use" => Finish::ToolUse,
        _ if called => Finish::ToolUse,
        "end_turn" => Finish::Stop,
        _ => Finish::Other(reason),
    }
}

/// The `stop_reason` and the `stop_sequence` of an answer that holds a call or not, and a refusal or not.
pub(super) fn encode<'a>(
    finish: Finish<'a>,
    called: bool,
    refused: bool,
) -> (&'static str, Option<JsonStr<'a>>) {
    match finish {
        Finish::StopSequence(Some(text)) => ("stop_sequence", Some(text)),
        Finish::Length => ("max_tokens", None),
        Finish::ContextFull => ("model_context_window_exceeded", None),
        Finish::ContentFilter => ("refusal", None),
        Finish::Pause => ("pause_turn", None),
        // Clients run tools for this reason and for no other, and find nothing to run where there is no call.
        _ if called => ("tool_use", None),
        _ if refused => ("refusal", None),
        Finish::Stop | Finish::ToolUse | Finish::Other(_) | Finish::StopSequence(None) => ("end_turn", None),
    }
}
