//! Model catalogue of Codex: the properties of each model that the client would otherwise guess.
//!
//! Codex 0.169 requests it with `GET {model_catalog_url}?client_version=...` and rejects an entry that lacks one of its
//! required members.

use super::models::ListedModel;
use crate::canonical::request::Effort;
use json::{Sink, Writer};

/// Reasoning efforts that Codex knows, each with the description that it shows. Other names are decoding errors there.
const EFFORTS: [(Effort, &str); 5] = [
    (Effort::Low, "Short reasoning for simple tasks"),
    (Effort::Medium, "Balance of speed and depth"),
    (Effort::High, "Long reasoning for hard tasks"),
    (Effort::XHigh, "Very long reasoning"),
    (Effort::Max, "Longest reasoning, whatever it costs"),
];

/// Share of the context window that Codex fills at most, in percent. The rest is left for the output.
const USABLE_PERCENT: u32 = 95;

/// Maximum length of a tool's output that Codex keeps in the conversation, in tokens.
const TOOL_OUTPUT_TOKENS: u32 = 10_000;

/// System prompt. It replaces that of Codex, so it says everything that a model must know to work as a coding agent.
const INSTRUCTIONS: &str = "\
You are a coding agent that works in the user's repository through the tools that you are offered.

Before you change anything, read what is there: search for the code in question with `rg`, open the files around it, and \
follow the instructions of any AGENTS.md that applies to them. Ask only if the request cannot be understood from the \
repository.

When you change code:
- Carry the task through to a result that works, not to a proposal.
- Find the cause of a fault instead of hiding its symptom, and change no more than the task needs.
- Follow the style, the names and the libraries of the code around it.
- Keep changes of the user that you did not make. Do not commit, push, delete branches or discard work unless you are \
asked to.
- Edit files with the patch tool if there is one, or else with the shell. Do not print whole files to change a few lines.
- Run the narrowest test, build or lint that can prove the change, then wider ones. If something cannot be run, say so.

Commands run in a sandbox. If one fails because of it, request permission where the session allows that, or find a way \
without it. Never print or store credentials.

Say in a sentence what you are about to do before a longer series of tool calls. At the end, report briefly what changed, \
with the paths, what was verified and how, and what is left. Write plain text, with short lists where they help.";

/// Returns the number of tokens from which Codex compacts a conversation: nine tenths of the window, or of the input limit, or less
/// if a response of full length would not fit beside it; never less than half of the window.
fn compacts_from(window: u32, model: &ListedModel<'_>) -> u32 {
    let most = model.input_limit.unwrap_or(window) / 10 * 9;
    let fitting = window.saturating_sub(model.max_output_tokens.unwrap_or(0));
    most.min(fitting).max(window / 2)
}

/// Writes the entry of a model. `rank` is its position: Codex lists lower numbers first.
pub(super) fn entry<B: Sink>(model: &ListedModel<'_>, rank: usize, json: &mut Writer<'_, B>) {
    let efforts = || EFFORTS.iter().filter(|(effort, _)| model.efforts.contains(effort));
    json.begin_object();
    json.key("slug").string(model.id).key("display_name").string(model.id);
    json.key("description").string(&format!("{} by {}", model.id, model.owned_by));
    if let Some((effort, _)) = efforts().find(|(effort, _)| *effort >= Effort::Medium).or(efforts().next()) {
        json.key("default_reasoning_level").string(effort.name());
    }
    json.key("supported_reasoning_levels").begin_array();
    for (effort, description) in efforts() {
        json.begin_object();
        json.key("effort").string(effort.name()).key("description").string(description);
        json.end_object();
    }
    json.end_array();
    // Without the second member, Codex 0.169 requests a summary of every model, which those without reasoning refuse.
    let reasons = !model.efforts.is_empty();
    json.key("supports_reasoning_summaries").boolean(reasons);
    json.key("supports_reasoning_summary_parameter").boolean(reasons);
    json.key("shell_type").string("unified_exec");
    json.key("visibility").string("list");
    json.key("supported_in_api").boolean(true);
    json.key("priority").number(rank);
    json.key("base_instructions").string(INSTRUCTIONS);
    json.key("support_verbosity").boolean(model.gpt5_parameters);
    if model.gpt5_parameters {
        // As in the entries that Codex has of its own for these models. Without the second member, it edits files by
        // commands of its shell.
        json.key("default_verbosity").string("low").key("apply_patch_tool_type").string("freeform");
    }
    json.key("truncation_policy").begin_object();
    json.key("mode").string("tokens").key("limit").number(TOOL_OUTPUT_TOKENS);
    json.end_object();
    // If it is false, Codex forbids several calls in each request.
    json.key("supports_parallel_tool_calls").boolean(model.parallel_tool_calls);
    json.key("experimental_supported_tools").begin_array().end_array();
    json.key("input_modalities").begin_array().string("text");
    if model.image_input {
        json.string("image");
    }
    json.end_array();
    if let Some(tokens) = model.context_window {
        json.key("context_window").number(tokens).key("max_context_window").number(tokens);
        json.key("auto_compact_token_limit").number(compacts_from(tokens, model));
    }
    json.key("effective_context_window_percent").number(USABLE_PERCENT);
    // Requests of that mode have no member `tools`, which only OpenAI's own models understand.
    json.key("use_responses_lite").boolean(false);
    json.end_object();
}
