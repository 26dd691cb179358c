//! Capabilities of the models of Amazon Bedrock through Converse. The model is known by its id, which has a geography, a
//! maker and a version: `us.anthropic.claude-sonnet-4-5-20250929-v1:0`.
//!
//! Sources: Amazon Bedrock User Guide, "Supported models and model features" and "Inference parameters and responses for
//! foundation models", November 2026.

use super::dialect::{messages, version_after};
use super::prompt_cache::min_tokens;
use crate::canonical::dialect::{ReasoningSupport, Structured};
use crate::canonical::embed::{EmbedDialect, EmbedShape, PurposeWords};
use crate::canonical::quirks::{Quirks, ToolChoiceSupport};
use crate::canonical::rank::{RankDialect, RankShape};
use crate::canonical::request::Effort;
use crate::canonical::{BreakpointSupport, Dialect};
use crate::wire::Api;

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

/// Returns whether a model is served through an API. `has_converse` is whether the provider offers Converse: without it
/// the configuration says that all models are Claude, such as those behind the ARN of an inference profile.
pub(super) fn serves(api: Api, model: &str, has_converse: bool) -> bool {
    match api {
        Api::Messages => model.contains("claude") || !has_converse,
        _ => true,
    }
}

/// Returns the cache marks that a model takes. `None` if the service refuses requests with marks for the model, and if
/// the id does not say which model it is.
///
/// Sources: Amazon Bedrock User Guide, "Prompt caching for faster model inference", November 2026, and the refusals that
/// users report: "You invoked an unsupported model or your request did not allow prompt caching", and for a lifetime of
/// an hour "Extended TTL prompt caching is only supported for Anthropic models" (Nova) or "Extra inputs are not
/// permitted" (Claude before 4.5).
pub(super) fn breakpoints(model: &str) -> Option<BreakpointSupport> {
    if model.contains("nova") {
        let is_text = ["nova-micro", "nova-lite", "nova-pro", "nova-premier", "nova-2-lite", "nova-2-pro"];
        return is_text.iter().any(|name| model.contains(name)).then_some(BreakpointSupport {
            min_tokens: 1_000,
            tools: false,
            long: false,
        });
    }
    let at = model.find("claude")?;
    let model = model.get(at..)?;
    let (full, min_tokens) = (BreakpointSupport::full(0), min_tokens(model));
    let long = match version_after(model, "claude-") {
        // The third generation has its version before the name of the family.
        Some((3, 7)) => false,
        Some((3, 5)) if model.contains("haiku") => {
            return Some(BreakpointSupport { min_tokens: 2_048, long: false, ..full });
        }
        Some((0..=3, _)) => return None,
        _ => claude_version(model).is_none_or(|version| version >= (4, 5)),
    };
    Some(BreakpointSupport { min_tokens, long, ..full })
}

/// Returns the version of a Claude model, major and minor. `None` if its name has none, as that of a future model may.
fn claude_version(model: &str) -> Option<(u32, u32)> {
    let model = model.get(model.find("claude")?..)?;
    let families = ["opus-", "sonnet-", "haiku-"];
    // The third generation has its version before the name of the family.
    let old = version_after(model, "claude-");
    old.or_else(|| families.into_iter().find_map(|family| version_after(model, family)))
}

/// Returns the cache marks that a client's request may have for a model. The ARN of a customer's profile or deployment
/// names no model; the client that sends marks to it knows which one it is.
fn client_breakpoints(model: &str) -> Option<BreakpointSupport> {
    let is_unnamed = model.starts_with("arn:") && !model.rsplit('/').next().unwrap_or_default().contains('.');
    if is_unnamed { Some(BreakpointSupport::full(0)) } else { breakpoints(model) }
}

/// Returns the embedding profile of a model. Sources: Amazon Bedrock User Guide, "Amazon Titan Embeddings G1 - Text",
/// "Amazon Titan Text Embeddings V2", "Cohere Embed v3" and "Cohere Embed v4".
pub(super) fn embedding(model: &str) -> EmbedDialect {
    if model.contains("cohere") {
        return EmbedDialect {
            shape: EmbedShape::UnnamedTexts,
            batch: 96,
            // Vectors of the third version have a fixed number of dimensions.
            dimensions: if model.contains("embed-v4") { "output_dimension" } else { "" },
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
        dimensions: if model.contains("embed-text-v1") { "" } else { "dimensions" },
        purpose: "",
        words: PurposeWords::None,
        base64: false,
        tokens: false,
        plain: false,
    }
}

/// Returns the rerank profile of a model. Source: Amazon Bedrock User Guide, "Use a reranker model".
pub(super) fn ranking(model: &str) -> RankDialect {
    let version = if model.contains("cohere") { 2 } else { 0 };
    RankDialect { shape: RankShape::Unnamed(version), extensions: false, ..RankDialect::PLAIN }
}

/// Returns the profile of a model.
pub(super) fn dialect<'d>(base: Dialect<'d>, model: &str) -> Dialect<'d> {
    let has = |word: &str| model.contains(word);
    let effort = |max| ReasoningSupport::efforts(Effort::Low, max, false);
    // No model fetches media, and instructions come before the conversation.
    let base = Dialect {
        media_urls: false,
        system_in_middle: false,
        structured: Structured::Tool,
        breakpoints: client_breakpoints(model),
        quirks: const { &USUAL },
        ..base
    };
    if has("claude") {
        let claude = messages(base.clone(), model);
        // Structured output came with the same models as at their maker.
        let is_native = messages(Dialect { structured: Structured::Native, ..base }, model).structured;
        // Older models refuse the tool choice of their own beside that of the format.
        let is_single = claude_version(model).is_none_or(|version| version >= (4, 5));
        let extensions: &[&str] = if is_single {
            &["disable_parallel_tool_use", "search_result", "top_k"]
        } else {
            &["search_result", "top_k"]
        };
        return Dialect { structured: is_native, extensions, ..claude };
    }
    if has("nova") {
        let thinks = has("nova-2") || has("nova-premier-v2");
        return Dialect {
            reasoning: if thinks { effort(Effort::High) } else { ReasoningSupport::Fixed },
            extensions: &["top_k", "video", "nova_grounding"],
            quirks: const { &NOVA },
            prefill: true,
            ..base
        };
    }
    if has("gpt-oss") {
        return Dialect { reasoning: effort(Effort::High), ..base };
    }
    if ["qwen3", "glm", "kimi", "minimax"].iter().any(|family| has(family)) {
        return Dialect { reasoning: effort(Effort::High), quirks: const { &OPEN_WEIGHTS }, ..base };
    }
    if has("llama") {
        return Dialect { quirks: const { &LLAMA }, structured: Structured::Hint, ..base };
    }
    if has("voxtral") {
        return Dialect { extensions: &["audio"], ..base };
    }
    if has("deepseek") || has("titan") {
        return Dialect { structured: Structured::Hint, ..base };
    }
    base
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
