//! Capabilities of the models of Amazon Bedrock through Converse. The model is known by its id, which has a geography, a
//! maker and a version: `us.anthropic.claude-sonnet-4-5-20250929-v1:0`.
//!
//! Sources: Amazon Bedrock User Guide, "Supported models and model features" and "Inference parameters and responses for
//! foundation models", November 2026.

use super::dialect::{ANTHROPIC, messages};
use super::profile::KnownModel;
use crate::canonical::dialect::Structured;
use crate::canonical::embed::{EmbedDialect, EmbedShape, PurposeWords};
use crate::canonical::quirks::{Quirks, ToolChoiceSupport};
use crate::canonical::rank::{RankDialect, RankShape};
use crate::canonical::{BreakpointSupport, Dialect};
use crate::wire::Api;

/// Maker of models for embeddings and reranking.
const COHERE: &str = "cohere";

/// Models of OpenAI: an effort under its usual name.
const USUAL: Quirks = Quirks { custom_tools: false, ..Quirks::PLAIN };
/// Models of Amazon. The effort is in an object, and the number of candidate tokens in another one.
const NOVA: Quirks = Quirks {
    renames: &[("reasoning_effort", "reasoningConfig"), ("top_k", "inferenceConfig.topK")],
    ..USUAL
};
/// Models of Qwen, Z.ai and other makers of open weights: the effort is the value of a member.
const OPEN_WEIGHTS: Quirks = Quirks { renames: &[("reasoning_effort", "reasoning_config")], ..USUAL };
/// Models of Meta accept no forced tool call.
const LLAMA: Quirks =
    Quirks { choices: ToolChoiceSupport { none: true, ..ToolChoiceSupport::AUTO }, ..USUAL };

/// Claude through InvokeModel: the model and the choice of a stream are in the path, the API version in the body. Source:
/// Amazon Bedrock User Guide, "Anthropic Claude Messages API".
pub(super) const INVOKE_CLAUDE: Quirks = Quirks {
    lacks: &[REFUSED, DEFERRED, EXAMPLES],
    model_replacement: Some(("anthropic_version", "bedrock-2023-05-31")),
    streams_by_path: true,
    ..Quirks::PLAIN
};
/// Claude through InvokeModel, with both beta features of tools, and with one of them.
const INVOKE_WITH_BOTH: Quirks = Quirks { lacks: &[REFUSED], ..INVOKE_CLAUDE };
const INVOKE_WITH_SEARCH: Quirks = Quirks { lacks: &[REFUSED, EXAMPLES], ..INVOKE_CLAUDE };
const INVOKE_WITH_EXAMPLES: Quirks = Quirks { lacks: &[REFUSED, DEFERRED], ..INVOKE_CLAUDE };

/// Members of Anthropic's own service that InvokeModel refuses with "Extra inputs are not permitted". Source: refusals
/// that users report, November 2026.
const REFUSED: &[&str] = &["eager_input_streaming", "allowed_callers", "cache_control.scope"];
/// Member of a tool that needs the beta feature [`SEARCH_BETA`].
const DEFERRED: &[&str] = &["defer_loading"];
/// Member of a tool that needs the beta feature [`EXAMPLES_BETA`].
const EXAMPLES: &[&str] = &["input_examples"];
/// Beginning of the name of the beta feature with which tools are loaded on demand. Source: Amazon Bedrock User Guide,
/// "Anthropic Claude tool use", November 2026.
const SEARCH_BETA: &str = "tool-search-tool-";
/// Beginning of the name of the beta feature with which tools have examples of their input (the same page).
const EXAMPLES_BETA: &str = "tool-examples-";

/// Beta features of a request without which InvokeModel refuses members of tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolBetas {
    search: bool,
    examples: bool,
}

impl ToolBetas {
    /// Returns those of these names of beta features.
    pub fn of<'n>(names: impl Iterator<Item = &'n str>) -> ToolBetas {
        names.fold(ToolBetas::default(), |found, name| ToolBetas {
            search: found.search || name.starts_with(SEARCH_BETA),
            examples: found.examples || name.starts_with(EXAMPLES_BETA),
        })
    }

    /// Returns the features of both requests or places.
    pub fn with(self, other: ToolBetas) -> ToolBetas {
        ToolBetas { search: self.search || other.search, examples: self.examples || other.examples }
    }

    /// Returns the member of tools that needs a beta feature. `None` if no member does.
    pub fn member_of(beta: &str) -> Option<&'static str> {
        match ToolBetas::of(std::iter::once(beta)) {
            ToolBetas { search: true, .. } => Some("defer_loading"),
            ToolBetas { examples: true, .. } => Some("input_examples"),
            ToolBetas { search: false, examples: false } => None,
        }
    }

    /// Returns the deviations of InvokeModel for a request with these features.
    pub(super) fn quirks(self) -> &'static Quirks {
        match (self.search, self.examples) {
            (false, false) => const { &INVOKE_CLAUDE },
            (true, false) => const { &INVOKE_WITH_SEARCH },
            (false, true) => const { &INVOKE_WITH_EXAMPLES },
            (true, true) => const { &INVOKE_WITH_BOTH },
        }
    }
}

/// Returns the cache marks that a client's request may have for a model. The ARN of a customer's profile or deployment
/// names no model; the client that sends marks to it knows which one it is.
///
/// The service refuses requests with marks for models without: "You invoked an unsupported model or your request did not
/// allow prompt caching".
fn client_breakpoints(model: &str, known: &KnownModel) -> Option<BreakpointSupport> {
    let is_unnamed = model.starts_with("arn:") && !model.rsplit('/').next().unwrap_or_default().contains('.');
    if is_unnamed { Some(BreakpointSupport::full(0)) } else { known.breakpoints() }
}

/// Returns the embedding profile of a model. Sources: Amazon Bedrock User Guide, "Amazon Titan Embeddings G1 - Text",
/// "Amazon Titan Text Embeddings V2", "Cohere Embed v3" and "Cohere Embed v4".
pub(super) fn embedding(known: &KnownModel) -> EmbedDialect {
    let sized = |member| if known.facts.dimensions.unwrap_or(true) { member } else { "" };
    if known.is_of(COHERE) {
        return EmbedDialect {
            shape: EmbedShape::UnnamedTexts,
            batch: 96,
            dimensions: sized("output_dimension"),
            purpose: "input_type",
            words: PurposeWords::Search,
            base64: false,
            tokens: false,
            plain: false,
        };
    }
    EmbedDialect {
        shape: EmbedShape::InputText,
        batch: 1,
        dimensions: sized("dimensions"),
        purpose: "",
        words: PurposeWords::None,
        base64: false,
        tokens: false,
        plain: false,
    }
}

/// Returns the rerank profile of a model. Source: Amazon Bedrock User Guide, "Use a reranker model".
pub(super) fn ranking(known: &KnownModel) -> RankDialect {
    let version = if known.is_of(COHERE) { 2 } else { 0 };
    RankDialect { shape: RankShape::Unnamed(version), extensions: false, ..RankDialect::PLAIN }
}

/// Returns the profile of a model. Its form of requests is a fact of the catalogue.
pub(super) fn dialect<'d>(base: Dialect<'d>, model: &str, known: &KnownModel) -> Dialect<'d> {
    let forced = known.facts.forced.unwrap_or(true);
    // No model fetches media, and instructions come before the conversation.
    let base = Dialect {
        media_urls: false,
        system_in_middle: false,
        structured: if forced { Structured::Tool } else { Structured::Hint },
        forced_tools: forced,
        max_call_id: Some(64),
        breakpoints: client_breakpoints(model, known),
        quirks: const { &USUAL },
        ..base
    };
    if known.is_of(ANTHROPIC) {
        // Older models refuse the tool choice of their own beside that of the format.
        let extensions: &[&str] = if known.facts.call_limit.unwrap_or(true) {
            &["disable_parallel_tool_use", "search_result", "top_k"]
        } else {
            &["search_result", "top_k"]
        };
        return Dialect { extensions, ..messages(base, known) };
    }
    // Others show their reasoning without a signature: Amazon Bedrock API reference, "ReasoningTextBlock", November 2026. An
    // unknown name may be one of Claude.
    let base = Dialect { signs: known.facts.maker.is_none(), ..base };
    match known.form() {
        "nova" => {
            let nova = known.reason(base, Api::Converse);
            Dialect {
                extensions: &["top_k", "video", "nova_grounding"],
                quirks: const { &NOVA },
                prefill: true,
                ..nova
            }
        }
        "effort" => known.reason(base, Api::Converse),
        "config" => Dialect { quirks: const { &OPEN_WEIGHTS }, ..known.reason(base, Api::Converse) },
        "unforced" => Dialect { quirks: const { &LLAMA }, structured: Structured::Hint, ..base },
        "audio" => Dialect { extensions: &["audio"], ..base },
        "hint" => Dialect { structured: Structured::Hint, ..base },
        _ => base,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_members_are_taken_with_their_betas_only() {
        let lacks = |betas: &[&str]| {
            let quirks = ToolBetas::of(betas.iter().copied()).quirks();
            let members = ["eager_input_streaming", "allowed_callers", "defer_loading", "input_examples"];
            members.map(|member| quirks.lacks(member))
        };
        assert_eq!(lacks(&["advanced-tool-use-2025-11-20"]), [true; 4]);
        assert_eq!(lacks(&["x", "tool-search-tool-2025-10-19"]), [true, true, false, true]);
        assert_eq!(lacks(&["tool-examples-2025-10-29"]), [true, true, true, false]);
        assert_eq!(
            lacks(&["tool-examples-2025-10-29", "tool-search-tool-2025-10-19"]),
            [true, true, false, false]
        );
    }
}
