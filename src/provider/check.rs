//! What a provider is asked to find out whether it is well: something that costs nothing.

use std::time::Duration;

use super::{AZURE_VERSION, Kind, Provider};
use crate::wire::path::push_path_segment;

/// How often a provider is asked how it is, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The path that is looked up, with a query if it needs one; nothing for the provider's list of models.
    pub path: Option<Box<str>>,
    /// How long after one answer it is asked again.
    pub every: Duration,
    /// How long the answer may take.
    pub timeout: Duration,
}

impl Default for Check {
    fn default() -> Self {
        Check {
            path: None,
            // Twice the time for which a provider is left alone at first, which then ends without a request's help.
            every: Duration::from_secs(10),
            // A list of models takes tens of milliseconds, and a connection as long as it may take otherwise.
            timeout: Duration::from_secs(5),
        }
    }
}

impl Provider {
    /// What a check looks up: what was said, or the provider's list of models, of which one is enough.
    pub fn check_path(&self, check: &Check) -> String {
        if let Some(path) = &check.path {
            return path.to_string();
        }
        let prefix = self.base.prefix();
        match self.kind {
            Kind::Anthropic => format!("{prefix}/models?limit=1"),
            Kind::Gemini | Kind::Vertex | Kind::VertexAnthropic => format!("{prefix}/models?pageSize=1"),
            // Its list is at its older address alone.
            Kind::Cohere => format!("{}/v1/models?page_size=1", prefix.strip_suffix("/v2").unwrap_or(prefix)),
            Kind::DashScope => format!("{}/compatible-mode/v1/models", self.dashscope_root()),
            Kind::Tei => format!("{}/health", prefix.strip_suffix("/v1").unwrap_or(prefix)),
            Kind::Azure => {
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
    use crate::provider::{BaseUrl, Setup};

    #[test]
    fn each_provider_is_asked_for_its_models_where_it_lists_them() {
        for (kind, base, path) in [
            (Kind::OpenAi, "https://h/v1", "/v1/models"),
            (Kind::OpenAiCompatible, "http://h", "/models"),
            (Kind::Anthropic, "https://h/v1", "/v1/models?limit=1"),
            (Kind::Gemini, "https://h/v1beta", "/v1beta/models?pageSize=1"),
            (Kind::Cohere, "https://h/v2", "/v1/models?page_size=1"),
            (Kind::DashScope, "https://h/api/v1", "/compatible-mode/v1/models"),
            (Kind::Tei, "http://h/v1", "/health"),
            (Kind::Azure, "https://h", "/openai/models?api-version=2024-10-21"),
            (Kind::Azure, "https://h/openai/v1", "/openai/v1/models"),
            (Kind::Azure, "https://h/openai/deployments/d", "/openai/models?api-version=2024-10-21"),
        ] {
            let setup = Setup {
                name: "p".to_owned(),
                kind,
                apis: kind.default_apis().to_vec(),
                base: BaseUrl::parse(base).unwrap(),
            };
            let provider = Provider::new(setup);
            assert_eq!(provider.check_path(&Check::default()), path, "{base}");
            let own = Check { path: Some("/health".into()), ..Check::default() };
            assert_eq!(provider.check_path(&own), "/health");
        }
    }
}
