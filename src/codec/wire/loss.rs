//! Loss policies: one table of what happens to a request element that the target's format cannot carry. The table in
//! docs/translation.md is printed from it.

use std::collections::HashMap;
use std::sync::LazyLock;

use foldhash::fast::RandomState;

use super::Format;

/// Policy for an element that is not carried: refuse, drop or warn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LossPolicy {
    /// Drop the element without notice: a hint for billing, transport or caching that does not change the response.
    Silent,
    /// Drop the element and warn the client with the header `x-gateway-warning`; a metric counts it.
    Warn,
    /// Refuse the request with status 400 and the element's name, because the response would be different without it.
    Refuse,
}

impl LossPolicy {
    /// Returns the name in documentation and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            LossPolicy::Silent => "silent",
            LossPolicy::Warn => "warn",
            LossPolicy::Refuse => "refuse",
        }
    }
}

/// Row of the table: an element with its policy for each target format, in the order of [`Format::ALL`].
pub struct LossRow {
    /// Element: the path of a member in the client's request, or a name for a smaller part.
    pub element: &'static str,
    /// Policies for the targets chat, messages, responses, generate and converse.
    pub policies: [LossPolicy; 5],
}

const S: LossPolicy = LossPolicy::Silent;
const W: LossPolicy = LossPolicy::Warn;
const E: LossPolicy = LossPolicy::Refuse;

const fn row(element: &'static str, policies: [LossPolicy; 5]) -> LossRow {
    LossRow { element, policies }
}

/// Table of loss policies. An element without a row is dropped with a warning.
#[rustfmt::skip] // a table reads as a table
pub const ROWS: &[LossRow] = &[
    //                                        chat msgs resp gen conv
    // Conversation
    row("name",                              [S, S, S, S, S]),
    row("phase",                             [S, S, S, S, S]),
    row("prefill",                           [W, W, W, W, W]),
    row("system_content",                    [W, W, W, W, W]),
    row("assistant_media",                   [W, W, W, W, W]),
    row("tool_result_content",               [W, W, W, W, W]),
    row("tool_result",                       [W, W, W, W, W]),
    row("tool_result_placeholder",           [W, W, W, W, W]),
    row("search_result",                     [W, W, W, W, W]),
    row("thinking_block",                    [S, S, S, S, S]),
    row("thinking_signature",                [S, S, S, S, S]),
    row("citations",                         [S, S, S, S, S]),
    row("citationsContent",                  [S, S, S, S, S]),
    row("cache_control",                     [S, S, S, S, S]),
    row("cache_control.scope",               [S, W, S, S, S]),
    row("cachedContent",                     [E, E, E, E, E]),
    row("previous_response_id",              [E, E, E, E, E]),
    row("conversation",                      [E, E, E, E, E]),
    row("background",                        [E, E, E, E, E]),
    row("prompt",                            [E, E, E, E, E]),
    row("container",                         [E, E, E, E, E]),
    row("context_management",                [W, W, W, W, W]),
    row("anthropic_beta",                    [W, W, W, W, W]),
    row("mcp_servers",                       [E, E, E, E, E]),
    // Media
    row("audio",                             [E, E, E, E, E]),
    row("video",                             [E, E, E, E, E]),
    row("file_id",                           [E, E, E, E, E]),
    row("file_url",                          [E, E, E, E, E]),
    row("image_url",                         [E, E, E, E, E]),
    row("image",                             [W, W, W, W, W]),
    row("image_detail",                      [S, S, S, S, S]),
    row("modalities",                        [E, E, E, E, E]),
    row("generationConfig.imageConfig",      [W, W, W, W, W]),
    row("generationConfig.speechConfig",     [S, S, S, S, S]),
    row("generationConfig.mediaResolution",  [S, S, S, S, S]),
    // Tools
    row("tool_choice",                       [W, W, W, W, W]),
    row("parallel_tool_calls",               [W, W, W, W, W]),
    row("custom_tool_grammar",               [W, W, W, W, W]),
    row("tool_strict",                       [S, S, S, S, S]),
    row("server_tool",                       [E, E, E, E, E]),
    row("tools.codeExecution",               [E, E, E, E, E]),
    row("tools.urlContext",                  [E, E, E, E, E]),
    row("tools.googleMaps",                  [E, E, E, E, E]),
    row("tools.fileSearch",                  [E, E, E, E, E]),
    row("tools.computerUse",                 [E, E, E, E, E]),
    row("tools.mcpServers",                  [E, E, E, E, E]),
    row("tools.retrieval",                   [E, E, E, E, E]),
    row("tools.enterpriseWebSearch",         [E, E, E, E, E]),
    row("tools.*",                           [E, E, E, E, E]),
    row("toolConfig.retrievalConfig",        [S, S, S, S, S]),
    row("toolConfig.includeServerSideToolInvocations", [S, S, S, S, S]),
    row("functionCallingConfig.streamFunctionCallArguments", [S, S, S, S, S]),
    // Only a search over tools: without it the model still gets all tools.
    row("tool_search_tool",                  [W, W, W, W, W]),
    row("server_tool_block",                 [W, W, W, W, W]),
    // Within the format only a platform that refuses them loses them.
    row("input_examples",                    [S, W, S, S, S]),
    row("eager_input_streaming",             [S, W, S, S, S]),
    row("defer_loading",                     [S, W, S, S, S]),
    row("allowed_callers",                   [S, W, S, S, S]),
    row("max_tool_calls",                    [S, S, S, S, S]),
    row("tools.file_search",                 [E, E, E, E, E]),
    row("tools.code_interpreter",            [E, E, E, E, E]),
    // Codex offers it unasked; the model need not call it.
    row("tools.image_generation",            [W, W, W, W, W]),
    row("tools.mcp",                         [E, E, E, E, E]),
    row("tools.computer",                    [E, E, E, E, E]),
    row("tools.local_shell",                 [E, E, E, E, E]),
    row("tools.shell",                       [E, E, E, E, E]),
    row("tools.apply_patch",                 [E, E, E, E, E]),
    // Only a search over tools: without it the model still gets all tools.
    row("tools.tool_search",                 [W, W, W, W, W]),
    row("tools.programmatic_tool_calling",   [E, E, E, E, E]),
    row("web_search",                        [W, E, E, E, W]),
    row("web_search_filters",                [W, W, W, W, W]),
    row("web_search_settings",               [W, W, W, W, W]),
    row("web_search_location",               [S, S, S, S, S]),
    row("web_search_context",                [S, S, S, S, S]),
    row("web_search_max_uses",               [S, S, S, S, S]),
    // Only `false` is one: without a search, there is none to switch off.
    row("enable_search",                     [S, S, S, S, S]),
    // Answers
    row("n",                                 [E, E, E, E, E]),
    row("logprobs",                          [W, W, W, W, W]),
    row("response_format",                   [E, W, E, E, W]),
    row("output_schema",                     [W, W, W, W, W]),
    row("schema_keywords",                   [W, W, W, W, W]),
    row("stop",                              [E, E, W, E, E]),
    row("verbosity",                         [S, S, S, S, S]),
    row("reasoning_effort",                  [W, W, W, W, W]),
    row("reasoning.summary",                 [S, S, S, S, S]),
    row("reasoning.context",                 [S, S, S, S, S]),
    row("reasoning.mode",                    [W, W, W, W, W]),
    row("thinking.clear_thinking",           [S, S, S, S, S]),
    row("output_config.effort",              [S, S, S, S, S]),
    row("output_config.task_budget",         [S, S, S, S, S]),
    row("thinking.type",                     [S, S, S, S, S]),
    row("thinking",                          [W, W, W, W, W]),
    // Sampling
    row("temperature",                       [W, W, W, W, W]),
    row("top_p",                             [W, W, W, W, W]),
    row("top_k",                             [S, S, S, S, S]),
    row("presence_penalty",                  [W, S, W, S, W]),
    row("frequency_penalty",                 [W, S, W, S, W]),
    row("seed",                              [S, S, S, S, S]),
    row("logit_bias",                        [S, S, W, S, S]),
    row("min_p",                             [S, S, S, S, S]),
    row("repetition_penalty",                [S, S, S, S, S]),
    row("prediction",                        [S, S, W, S, S]),
    // Accounts, caching, transport
    row("user",                              [S, S, S, S, S]),
    row("safety_identifier",                 [S, S, S, S, S]),
    row("metadata",                          [S, W, S, W, W]),
    row("service_tier",                      [S, S, S, S, S]),
    row("store",                             [S, S, S, S, S]),
    row("prompt_cache_key",                  [S, S, S, S, S]),
    row("prompt_cache_options",              [S, S, S, S, S]),
    row("prompt_cache_retention",            [S, S, S, S, S]),
    row("moderation",                        [S, S, S, S, S]),
    row("stream_options",                    [S, S, S, S, S]),
    row("incremental_output",                [S, S, S, S, S]),
    row("usage",                             [S, S, S, S, S]),
    row("x-anthropic-billing-header",        [S, S, S, S, S]),
    row("include",                           [S, S, S, S, S]),
    row("truncation",                        [S, S, S, S, S]),
    row("client_metadata",                   [S, S, S, S, S]),
    row("inference_geo",                     [S, S, S, S, S]),
    row("speed",                             [S, S, S, S, S]),
    row("diagnostics",                       [S, S, S, S, S]),
    row("safeguards",                        [W, W, W, W, W]),
    // A guardrail protects the application: without it the response would be another one.
    row("guardrailConfig",                   [E, E, E, E, E]),
    row("guardContent",                      [W, W, W, W, W]),
    row("promptVariables",                   [E, E, E, E, E]),
    row("performanceConfig",                 [S, S, S, S, S]),
    // Its members are elements of their own.
    row("additionalModelRequestFields",      [S, S, S, S, S]),
    row("additionalModelResponseFieldPaths", [S, S, S, S, S]),
    row("safetySettings",                    [S, S, S, S, S]),
    row("labels",                            [S, S, S, S, S]),
];

/// Rows by element name. A hash map, because a request may have millions of members that have no row.
static ROWS_BY_NAME: LazyLock<HashMap<&'static str, &'static LossRow, RandomState>> =
    LazyLock::new(|| ROWS.iter().map(|row| (row.element, row)).collect());

/// Returns the policy for an element that is not carried to a target of this format. `Warn` if the table has no row for
/// it.
pub fn policy(element: &str, to: Format) -> LossPolicy {
    let column = Format::ALL.iter().position(|format| *format == to).unwrap_or_default();
    ROWS_BY_NAME.get(element).and_then(|row| row.policies.get(column).copied()).unwrap_or(LossPolicy::Warn)
}

/// Returns the table as Markdown, for docs/translation.md and the command line.
pub fn table() -> String {
    let mut out = String::from("| Element |");
    for format in Format::ALL {
        out.push_str(&format!(" to {format} |"));
    }
    out.push_str("\n|---|---|---|---|---|---|\n");
    for row in ROWS {
        out.push_str(&format!(
            "| `{}` | {} |\n",
            row.element,
            row.policies.map(LossPolicy::name).join(" | ")
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn loss_table_is_on_the_page() {
        let page = include_str!("../../../docs/translation.md");
        assert!(page.contains(&table()), "docs/translation.md must hold what this prints:\n{}", table());
    }

    #[test]
    fn loss_table_has_one_row_per_element() {
        let mut seen = HashSet::new();
        for row in ROWS {
            assert!(seen.insert(row.element), "{} twice", row.element);
        }
    }
}
