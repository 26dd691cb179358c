//! Prompt caching of providers: which models take explicit cache marks, from which length on, and which providers take a
//! prompt-cache key.

use super::dialect::ANTHROPIC;
use super::profile::KnownModel;
use super::{Preset, Provider, ProviderKind};
use crate::canonical::BreakpointSupport;
use crate::wire::Api;

/// Minimum length of a cacheable prefix of a model that is not known. Source: Anthropic, "Prompt caching", November 2026. A
/// mark behind a shorter prefix is ignored at no cost.
const LEAST_TOKENS: u32 = 1_024;

impl Provider {
    /// Returns the explicit cache marks that a model takes in requests through `api`. `None` if it takes none.
    pub fn breakpoints(&self, api: Api, model: &str) -> Option<BreakpointSupport> {
        self.breakpoints_known(api, &self.known(model))
    }

    pub(super) fn breakpoints_known(&self, api: Api, known: &KnownModel) -> Option<BreakpointSupport> {
        if self.kind == ProviderKind::Bedrock {
            return known.breakpoints().filter(|_| matches!(api, Api::Messages | Api::Converse));
        }
        let is_own = matches!(
            self.kind,
            ProviderKind::Anthropic | ProviderKind::VertexAnthropic | ProviderKind::AzureAnthropic
        );
        // Other models in this format cache by themselves, and some of their servers refuse unknown members.
        let is_claude = known.is_of(ANTHROPIC);
        let marks = known.breakpoints().filter(|_| is_claude);
        (api == Api::Messages && (is_own || is_claude))
            .then(|| BreakpointSupport::full(marks.map_or(LEAST_TOKENS, |marks| marks.min_tokens)))
    }

    /// Returns whether the provider finds a cached prompt again only if the conversation is the last member of the
    /// request: Claude on Vertex AI (observed in <https://github.com/maximhq/bifrost/issues/6406>).
    pub fn wants_content_last(&self, api: Api) -> bool {
        self.kind == ProviderKind::VertexAnthropic && api == Api::Messages
    }

    /// Returns whether requests through `api` may have a prompt-cache key. Sources, November 2026: OpenAI API and
    /// Azure, "Prompt caching"; Kimi API, "Chat completion"; Mistral, "Prompt caching"; xAI, "Maximizing cache hits",
    /// which has it in the responses API only.
    pub fn takes_cache_key(&self, api: Api) -> bool {
        match self.preset {
            Preset::OpenAi | Preset::Azure => matches!(api, Api::Chat | Api::Responses),
            Preset::Moonshot | Preset::Mistral => api == Api::Chat,
            Preset::Xai => api == Api::Responses,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::{BaseUrl, Setup};

    fn provider(kind: ProviderKind) -> Provider {
        let base = BaseUrl::parse("http://127.0.0.1:1/v1").unwrap();
        Provider::new(Setup { name: "p".to_owned(), kind, apis: vec![Api::Messages], base })
    }

    #[test]
    fn prompt_cache_minimum_depends_on_the_model() {
        let anthropic = provider(ProviderKind::Anthropic);
        for (model, expected) in [
            ("claude-opus-5", 512),
            ("claude-fable-5", 512),
            ("claude-sonnet-4-5-20250929", 1_024),
            ("claude-sonnet-5", 1_024),
            ("claude-opus-4-20250514", 1_024),
            ("claude-opus-4-8", 1_024),
            ("claude-opus-4-7", 2_048),
            ("claude-opus-4-5@20251101", 4_096),
            ("claude-haiku-4-5", 4_096),
            ("unknown", 1_024),
        ] {
            let expected = Some(BreakpointSupport::full(expected));
            assert_eq!(anthropic.breakpoints(Api::Messages, model), expected, "{model}");
        }
        assert_eq!(anthropic.breakpoints(Api::Chat, "claude-opus-5"), None);
        let other = provider(ProviderKind::OpenAiCompatible);
        assert_eq!(other.breakpoints(Api::Messages, "deepseek-chat"), None);
        let claude = other.breakpoints(Api::Messages, "anthropic/claude-sonnet-4.5");
        assert_eq!(claude, Some(BreakpointSupport::full(1_024)));
    }

    #[test]
    fn prompt_cache_marks_of_bedrock_depend_on_the_model() {
        let bedrock = provider(ProviderKind::Bedrock);
        let marks = |min_tokens, tools, long| Some(BreakpointSupport { min_tokens, tools, long });
        for (model, expected) in [
            ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", marks(1_024, true, true)),
            ("global.anthropic.claude-opus-5", marks(512, true, true)),
            ("anthropic.claude-haiku-4-5-20251001-v1:0", marks(4_096, true, true)),
            ("anthropic.claude-opus-4-1-20250805-v1:0", marks(1_024, true, false)),
            ("eu.anthropic.claude-sonnet-4-20250514-v1:0", marks(1_024, true, false)),
            ("us.anthropic.claude-3-7-sonnet-20250219-v1:0", marks(1_024, true, false)),
            ("anthropic.claude-3-5-haiku-20241022-v1:0", marks(2_048, true, false)),
            ("anthropic.claude-3-5-sonnet-20241022-v2:0", None),
            ("anthropic.claude-3-haiku-20240307-v1:0", None),
            ("us.amazon.nova-pro-v1:0", marks(1_000, false, false)),
            ("us.amazon.nova-2-lite-v1:0", marks(1_000, false, false)),
            ("amazon.nova-sonic-v1:0", None),
            ("us.meta.llama3-3-70b-instruct-v1:0", None),
            (
                "arn:aws:bedrock:us-east-1:000000000000:inference-profile/us.amazon.nova-lite-v1:0",
                marks(1_000, false, false),
            ),
            ("arn:aws:bedrock:us-east-1:000000000000:application-inference-profile/abcdefghijkl", None),
        ] {
            assert_eq!(bedrock.breakpoints(Api::Converse, model), expected, "{model}");
            assert_eq!(bedrock.breakpoints(Api::Messages, model), expected, "{model}");
            assert_eq!(bedrock.breakpoints(Api::Embeddings, model), None, "{model}");
        }
    }

    #[test]
    fn prompt_cache_key_is_for_providers_that_document_it() {
        for (kind, base, chat, responses) in [
            (ProviderKind::OpenAi, "https://api.openai.com/v1", true, true),
            (ProviderKind::Azure, "https://x.openai.azure.com/openai/v1", true, true),
            (ProviderKind::OpenAiCompatible, "https://api.moonshot.ai/v1", true, false),
            (ProviderKind::OpenAiCompatible, "https://api.mistral.ai/v1", true, false),
            (ProviderKind::OpenAiCompatible, "https://api.x.ai/v1", false, true),
            (ProviderKind::OpenAiCompatible, "https://api.groq.com/openai/v1", false, false),
            (ProviderKind::OpenAiCompatible, "http://127.0.0.1:1/v1", false, false),
        ] {
            let base = BaseUrl::parse(base).unwrap();
            let provider = Provider::new(Setup { name: "p".to_owned(), kind, apis: vec![], base });
            let takes = |api| provider.takes_cache_key(api);
            assert_eq!((takes(Api::Chat), takes(Api::Responses)), (chat, responses), "{:?}", provider.preset);
            assert!(!takes(Api::Embeddings) && !takes(Api::Messages));
        }
    }
}
