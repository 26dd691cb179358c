//! Finish reasons of the messages format.

use crate::canonical::Finish;
use json::JsonStr;

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
