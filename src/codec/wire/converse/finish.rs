//! Stop reasons of the Converse format.

use crate::canonical::Finish;
use json::Sink;

/// Returns the `stopReason`. `called` and `refused` mean that the response contains a tool call or a refusal.
pub(super) fn encode(finish: Finish<'_>, called: bool, refused: bool) -> &'static str {
    match finish {
        Finish::Length => "max_tokens",
        Finish::ContextFull => "model_context_window_exceeded",
        Finish::ContentFilter => "content_filtered",
        // Clients run tools for this reason only.
        _ if called => "tool_use",
        _ if refused => "content_filtered",
        Finish::StopSequence(_) => "stop_sequence",
        Finish::Stop | Finish::ToolUse | Finish::Pause | Finish::Other(_) => "end_turn",
    }
}

/// Writes the member that holds the stop sequence, if the response ends with a known one. Bedrock sends it only on
/// request (`additionalModelResponseFieldPaths`); for a client that did not request it, it is an additional member.
pub(super) fn write_fields<B: Sink>(finish: Finish<'_>, json: &mut json::Writer<'_, B>) {
    if let Finish::StopSequence(Some(text)) = finish {
        json.key("additionalModelResponseFields").begin_object();
        json.key("stop_sequence").paste(text).end_object();
    }
}
