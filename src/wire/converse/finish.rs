//! Stop reasons of the Converse format.

use crate::canonical::Finish;
use crate::json::{JsonStr, Sink};

/// Converts a `stopReason`. `sequence` is the stop sequence, if the response names it. `called` means that the response
/// contains a tool call, which some models end with another reason.
pub(super) fn decode<'a>(reason: JsonStr<'a>, sequence: Option<JsonStr<'a>>, called: bool) -> Finish<'a> {
    match reason.escaped() {
        "stop_sequence" => Finish::StopSequence(sequence),
        "max_tokens" => Finish::Length,
        "model_context_window_exceeded" => Finish::ContextFull,
        "content_filtered" | "guardrail_intervened" => Finish::ContentFilter,
        "tool_use" => Finish::ToolUse,
        _ if called => Finish::ToolUse,
        "end_turn" => Finish::Stop,
        _ => Finish::Other(reason),
    }
}

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
        Finish::Other(word) if is_malformed(word) => "malformed_model_output",
        Finish::Stop | Finish::ToolUse | Finish::Pause | Finish::Other(_) => "end_turn",
    }
}

/// Returns whether a reason means that the output of the model was unusable.
fn is_malformed(word: JsonStr<'_>) -> bool {
    matches!(
        word.escaped(),
        "malformed_model_output" | "malformed_tool_use" | "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL"
    )
}

/// Writes the member that holds the stop sequence, if the response ends with a known one. Bedrock sends it only on
/// request (`additionalModelResponseFieldPaths`); for a client that did not request it, it is an additional member.
pub(super) fn write_fields<B: Sink>(finish: Finish<'_>, json: &mut crate::json::Writer<'_, B>) {
    if let Finish::StopSequence(Some(text)) = finish {
        json.key("additionalModelResponseFields").begin_object();
        json.key("stop_sequence").paste(text).end_object();
    }
}
