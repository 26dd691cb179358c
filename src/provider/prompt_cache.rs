//! Prompt caching of providers: which models take explicit cache marks, from which length on, and which providers take a
//! prompt-cache key.

use super::dialect::version_after;
use super::{Preset, Provider, ProviderKind};
use crate::wire::Api;

impl Provider {
    /// Returns the minimum length of a cacheable prefix in tokens, for requests through `api`. `None` if the model does
    /// not take explicit cache marks.
    pub fn min_cached_tokens(&self, api: Api, model: &str) -> Option<u32> {
        let is_own = matches!(
            self.kind,
            ProviderKind::Anthropic | ProviderKind::VertexAnthropic | ProviderKind::AzureAnthropic
        );
        // Other models in this format cache by themselves, and some of their servers refuse unknown members.
        (api == Api::Messages && (is_own || model.contains("claude"))).then(|| min_tokens(model))
    }

    /// Returns whether requests through `api` may have a prompt-cache key.
    pub fn takes_cache_key(&self, api: Api) -> bool {
        matches!(api, Api::Chat | Api::Responses) && matches!(self.preset, Preset::OpenAi | Preset::Azure)
    }
}

/// Returns the minimum length of a cacheable prefix of a Claude model. Source: Anthropic, "Prompt caching", "Cache
/// limitations", November 2026. Where sources differ, and for unknown models, the smaller value: a mark behind a
/// shorter prefix is ignored at no cost.
fn min_tokens(model: &str) -> u32 {
    let of = |family| version_after(model, family);
    if of("fable-").is_some() || of("mythos-").is_some() {
        return 512;
    }
    match (of("opus-"), of("haiku-")) {
        (Some((5.., _)), _) => 512,
        (Some((4, 5 | 6)), _) | (_, Some((4, 5))) => 4_096,
        (Some((4, 7)), _) | (_, Some((0..=3, _))) => 2_048,
        _ => 1_024,
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
            assert_eq!(anthropic.min_cached_tokens(Api::Messages, model), Some(expected), "{model}");
        }
        assert_eq!(anthropic.min_cached_tokens(Api::Chat, "claude-opus-5"), None);
        let other = provider(ProviderKind::OpenAiCompatible);
        assert_eq!(other.min_cached_tokens(Api::Messages, "deepseek-chat"), None);
        assert_eq!(other.min_cached_tokens(Api::Messages, "anthropic/claude-sonnet-4.5"), Some(1_024));
    }

    #[test]
    fn prompt_cache_key_is_for_openai_and_azure() {
        for (kind, takes) in [
            (ProviderKind::OpenAi, true),
            (ProviderKind::Azure, true),
            (ProviderKind::OpenAiCompatible, false),
        ] {
            assert_eq!(provider(kind).takes_cache_key(Api::Chat), takes, "{}", kind.name());
            assert_eq!(provider(kind).takes_cache_key(Api::Responses), takes, "{}", kind.name());
            assert!(!provider(kind).takes_cache_key(Api::Embeddings));
        }
    }
}
