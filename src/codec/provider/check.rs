//! Active health check of a provider: interval, and a request that costs nothing.

use std::time::Duration;

use super::{AZURE_VERSION, Provider, ProviderKind};
use crate::wire::path::push_path_segment;

/// Health check settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Path, with query if needed; `None` for the provider's model list.
    pub path: Option<Box<str>>,
    /// Interval between the end of a probe and the start of the next, before jitter of up to a tenth less.
    pub every: Duration,
    /// Time-out of a probe.
    pub timeout: Duration,
}

impl Default for Check {
    fn default() -> Self {
        Check {
            path: None,
            // Twice the first cooldown of a breaker.
            every: Duration::from_secs(10),
            // A model list takes tens of milliseconds; the default leaves time for a new connection.
            timeout: Duration::from_secs(5),
        }
    }
}

impl Provider {
    /// Returns the path that a probe requests: the configured one, or the provider's model list, limited to one entry
    /// where the API permits.
    pub fn check_path(&self, check: &Check) -> String {
        if let Some(path) = &check.path {
            return path.to_string();
        }
        let prefix = self.base.prefix();
        match self.kind {
            ProviderKind::Anthropic => format!("{prefix}/models?limit=1"),
            ProviderKind::AzureAnthropic if !prefix.contains("/anthropic") => {
                format!("{prefix}/anthropic/v1/models?limit=1")
            }
            ProviderKind::AzureAnthropic => format!("{prefix}/models?limit=1"),
            ProviderKind::Gemini | ProviderKind::Vertex | ProviderKind::VertexAnthropic => {
                format!("{prefix}/models?pageSize=1")
            }
            // Only the older version of the API lists models.
            ProviderKind::Cohere => {
                format!("{}/v1/models?page_size=1", prefix.strip_suffix("/v2").unwrap_or(prefix))
            }
            ProviderKind::DashScope => format!("{}/compatible-mode/v1/models", self.dashscope_root()),
            ProviderKind::Tei => format!("{}/health", prefix.strip_suffix("/v1").unwrap_or(prefix)),
            ProviderKind::Azure => {
                let mut path = prefix.split("/deployments/").next().unwrap_or(prefix).to_owned();
                if !path.contains("/openai") {
                    path.push_str("/openai");
                }
                path.push_str("/models");
                let old = !prefix.ends_with("/v1");
                if let Some(version) = self.api_version.as_deref().or(old.then_some(AZURE_VERSION)) {
                    path.push_str("?api-version=");
                    push_path_segment(&mut path, version);
                }
                path
            }
            _ => format!("{prefix}/models"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_path_depends_on_the_provider_and_can_be_overridden() {
        for (kind, base, path) in [
            (ProviderKind::OpenAi, "https://h/v1", "/v1/models"),
            (ProviderKind::OpenAiCompatible, "http://h", "/models"),
            (ProviderKind::Anthropic, "https://h/v1", "/v1/models?limit=1"),
            (ProviderKind::Gemini, "https://h/v1beta", "/v1beta/models?pageSize=1"),
            (ProviderKind::Cohere, "https://h/v2", "/v1/models?page_size=1"),
            (ProviderKind::DashScope, "https://h/api/v1", "/compatible-mode/v1/models"),
            (ProviderKind::Tei, "http://h/v1", "/health"),
            (ProviderKind::Azure, "https://h", "/openai/models?api-version=2024-10-21"),
            (ProviderKind::Azure, "https://h/openai/v1", "/openai/v1/models"),
            (ProviderKind::Azure, "https://h/openai/deployments/d", "/openai/models?api-version=2024-10-21"),
        ] {
            let provider = Provider::at(kind, base);
            assert_eq!(provider.check_path(&Check::default()), path, "{base}");
            let own = Check { path: Some("/health".into()), ..Check::default() };
            assert_eq!(provider.check_path(&own), "/health");
        }
    }
}
