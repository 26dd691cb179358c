//! Finish reasons of the messages format.

use crate::canonical::Finish;
use crate::json::JsonStr;

/// Converts a `stop_reason`. `called` means that the response contains a tool call. Some providers then report another
/// reason, so `called` decides, except over limits, refusals and stop sequences.
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

/// Returns `stop_reason` and `stop_sequence`. `called` and `refused` mean that the response contains a tool call or a
/// refusal.
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
        // Clients run tools for this reason only, and fail if it is set without a call.
        _ if called => ("tool_use", None),
        _ if refused => ("refusal", None),
        Finish::Stop | Finish::ToolUse | Finish::Other(_) | Finish::StopSequence(None) => ("end_turn", None),
    }
}
