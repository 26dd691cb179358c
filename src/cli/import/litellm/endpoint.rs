//! Where a deployment of LiteLLM leads to: provider kind, base URL and the provider's name of the model.

use super::prefixes::{self, BaseRule, ProviderPrefix};
use crate::import::draft::ProviderDraft;
use codec::provider::{BaseUrl, ProviderKind};
use config::is_aws_region;

/// Parameters of a deployment that decide where it leads to, with references resolved.
#[derive(Default)]
pub(in crate::import) struct Parameters {
    pub(in crate::import) model: String,
    /// `custom_llm_provider`.
    pub(in crate::import) provider: Option<String>,
    pub(in crate::import) base: Option<String>,
    pub(in crate::import) version: Option<String>,
    /// Whether the deployment has a key of its own.
    pub(in crate::import) has_key: bool,
    pub(in crate::import) project: Option<String>,
    pub(in crate::import) location: Option<String>,
    /// Region of AWS.
    pub(in crate::import) region: Option<String>,
    /// Name of the model at Bedrock, if that of the deployment is another one.
    pub(in crate::import) model_id: Option<String>,
}

/// Resolved deployment.
pub(in crate::import) struct DeploymentEndpoint {
    /// Provider without its credential.
    pub(in crate::import) provider: ProviderDraft,
    /// Name of the model at the provider.
    pub(in crate::import) model: String,
    /// Model that the name hides; `None` if it hides none.
    pub(in crate::import) family: Option<String>,
    /// Environment variable of the credential that applies without `api_key`.
    pub(in crate::import) env: Option<&'static str>,
    /// File of the credential, for providers whose credential is a token that is renewed.
    pub(in crate::import) token_file: Option<&'static str>,
    /// What differs from LiteLLM; empty if nothing does.
    pub(in crate::import) note: &'static str,
}

/// Resolves a deployment.
///
/// # Errors
/// Returns the reason why the configuration cannot express it, and what to do instead.
pub(in crate::import) fn resolve(given: &Parameters) -> Result<DeploymentEndpoint, String> {
    let (prefix, model) = split(given);
    if let Some((_, reason)) = prefixes::UNSUPPORTED.iter().find(|(name, _)| *name == prefix) {
        return Err((*reason).to_owned());
    }
    match prefix {
        "vertex_ai" | "vertex_ai_beta" => return vertex(given, model),
        "azure_ai" => return foundry(given, model),
        "bedrock" | "bedrock_converse" => return bedrock(given, model),
        "cohere" | "cohere_chat" if is_vectors(model) => {
            let provider = ProviderDraft::new("cohere", ProviderKind::Cohere, "");
            return finish(given, provider, model, Some("COHERE_API_KEY"), BaseRule::Whole, "");
        }
        _ => {}
    }
    let prefix = if prefix == "cohere_chat" { "cohere" } else { prefix };
    let Some(entry) = prefixes::find(prefix) else {
        return unknown(given);
    };
    known(given, entry, model)
}

/// Splits a model into the prefix and the rest; without a known prefix it is guessed.
fn split(given: &Parameters) -> (&str, &str) {
    let model = given.model.as_str();
    let is_known = |prefix: &str| {
        let others =
            ["vertex_ai", "vertex_ai_beta", "azure_ai", "cohere_chat", "bedrock", "bedrock_converse"];
        prefixes::find(prefix).is_some()
            || others.contains(&prefix)
            || prefixes::UNSUPPORTED.iter().any(|(name, _)| *name == prefix)
    };
    if let Some(provider) = given.provider.as_deref().filter(|provider| is_known(provider)) {
        return (
            provider,
            model.strip_prefix(provider).and_then(|rest| rest.strip_prefix('/')).unwrap_or(model),
        );
    }
    match model.split_once('/') {
        Some((prefix, rest)) if is_known(prefix) => (prefix, rest),
        _ => (prefixes::prefix_of(model).unwrap_or(""), model),
    }
}

fn is_vectors(model: &str) -> bool {
    model.starts_with("embed") || model.starts_with("rerank")
}

fn known(given: &Parameters, entry: ProviderPrefix, model: &str) -> Result<DeploymentEndpoint, String> {
    let mut provider = ProviderDraft::new(entry.prefix, entry.kind, "");
    provider.base_url = entry.base.map(str::to_owned);
    if entry.kind == ProviderKind::Azure {
        provider.api_version.clone_from(&given.version);
    }
    if given.base.is_some() {
        provider.dialect = entry.dialect;
    }
    // Behind `openai/` with an address is any server of that API.
    let host = given.base.as_deref().and_then(|base| BaseUrl::parse(base).ok());
    let foreign =
        host.is_some_and(|base| base.host() != "openai.com" && !base.host().ends_with(".openai.com"));
    if entry.kind == ProviderKind::OpenAi && foreign {
        provider.kind = ProviderKind::OpenAiCompatible;
        "openai-compatible".clone_into(&mut provider.name);
    }
    finish(given, provider, model, entry.env, entry.rule, entry.note)
}

/// Model without a known prefix: LiteLLM refuses it, unless it has an address.
fn unknown(given: &Parameters) -> Result<DeploymentEndpoint, String> {
    if given.base.is_none() {
        return Err("neither the model nor its prefix names a provider that the importer knows; \
                    add a [[provider]] of kind \"openai-compatible\" if the provider has that API"
            .to_owned());
    }
    let provider = ProviderDraft::new("openai-compatible", ProviderKind::OpenAiCompatible, "");
    let note = "the model names no known provider; its address is taken for a server of OpenAI's API, at this base URL";
    finish(given, provider, &given.model, None, BaseRule::Whole, note)
}

/// Vertex AI: the project and the region are in the address.
fn vertex(given: &Parameters, model: &str) -> Result<DeploymentEndpoint, String> {
    // With a key, and the address of the Gemini API, it is that API.
    let gemini = given.base.as_deref().is_some_and(|base| base.contains("generativelanguage.googleapis.com"));
    if gemini {
        let provider = ProviderDraft::new("gemini", ProviderKind::Gemini, "");
        let note = "the address is that of the Gemini API, so the provider kind is \"gemini\"";
        return finish(given, provider, model, Some("GEMINI_API_KEY"), BaseRule::Whole, note);
    }
    let (name, kind) = match model {
        model if model.starts_with("claude") => ("vertex-anthropic", ProviderKind::VertexAnthropic),
        model if model.starts_with("gemini") || model.starts_with("imagen") || model.starts_with("veo") => {
            ("vertex", ProviderKind::Vertex)
        }
        _ => return Err("of Vertex AI the gateway has the models of Google and Anthropic only".to_owned()),
    };
    let mut provider = ProviderDraft::new(name, kind, "");
    if given.base.is_none() {
        let (Some(project), Some(location)) = (&given.project, &given.location) else {
            return Err("vertex_project and vertex_location are not known; give them as text, or set VERTEXAI_PROJECT and \
                        VERTEXAI_LOCATION while importing"
                .to_owned());
        };
        provider.base_url = Some(vertex_url(project, location));
    }
    let note = "credentials of Google Cloud are not copied: set `google` of the provider in place of `credential`, which names the file \
                vertex-token (docs/providers.md)";
    let mut endpoint = finish(given, provider, model, None, BaseRule::Whole, note)?;
    endpoint.token_file = (!given.has_key).then_some("vertex-token");
    Ok(endpoint)
}

/// Returns the base URL of a project at Vertex AI.
pub(in crate::import) fn vertex_url(project: &str, location: &str) -> String {
    let host = if location == "global" {
        "aiplatform.googleapis.com".to_owned()
    } else {
        format!("{location}-aiplatform.googleapis.com")
    };
    format!("https://{host}/v1/projects/{project}/locations/{location}")
}

/// Azure AI Foundry: models of several makers at one resource.
fn foundry(given: &Parameters, model: &str) -> Result<DeploymentEndpoint, String> {
    let base = given.base.as_deref().unwrap_or_default();
    let url = BaseUrl::parse(base).map_err(|error| format!("api_base: {error}"))?;
    let mut provider = ProviderDraft::new("azure-ai", ProviderKind::Azure, "");
    let resource = [".services.ai.azure.com", ".openai.azure.com", ".cognitiveservices.azure.com"];
    if !resource.iter().any(|end| url.host().ends_with(end)) {
        provider.kind = ProviderKind::OpenAiCompatible;
        let note = "a serverless endpoint is reached through its OpenAI-compatible API";
        return finish(given, provider, model, Some("AZURE_AI_API_KEY"), BaseRule::Root, note);
    }
    provider.base_url = Some(format!("https://{}/openai/v1", url.authority()));
    let rest = Parameters { base: None, ..Parameters::default() };
    let note = "the resource is reached through its v1 API, and the model is the name of the deployment";
    finish(&rest, provider, model, Some("AZURE_AI_API_KEY"), BaseRule::Whole, note)
}

/// Amazon Bedrock: a route of LiteLLM and a region may precede the name of the model.
fn bedrock(given: &Parameters, model: &str) -> Result<DeploymentEndpoint, String> {
    let is_region = |text: &str| {
        let parts: Vec<&str> = text.split('-').collect();
        let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit()) && !part.is_empty();
        parts.len() >= 3 && parts.last().is_some_and(is_number) && text.len() <= 32
    };
    let (mut model, mut region) = (model, given.region.as_deref());
    while let Some((first, rest)) = model.split_once('/').filter(|_| !model.starts_with("arn:")) {
        match first {
            "converse" | "converse_like" | "invoke" => {}
            place if is_region(place) => region = Some(place),
            other => return Err(format!("the route {other:?} of LiteLLM has no counterpart at Bedrock")),
        }
        model = rest;
    }
    let region = region.ok_or("aws_region_name is not known; give it, or set AWS_REGION while importing")?;
    if !is_aws_region(region) {
        return Err(format!("{region:?} is not a region of AWS"));
    }
    let mut provider = ProviderDraft::new("bedrock", ProviderKind::Bedrock, "");
    provider.aws = vec![("region", region.to_owned())];
    if let Some(base) = &given.base {
        provider.base_url = Some(base_url(base, BaseRule::Whole, provider.kind)?);
    }
    // An ARN may hide which model it is.
    let (model, family) = match given.model_id.as_deref().filter(|id| *id != model) {
        Some(id) => (id, Some(model).filter(|_| id.starts_with("arn:"))),
        None => (model, None),
    };
    if [Some(model), family].into_iter().flatten().any(|name| name.is_empty() || name.len() > 256) {
        return Err("the name of a model must have 1 to 256 bytes".to_owned());
    }
    let (model, family) = (model.to_owned(), family.map(str::to_owned));
    Ok(DeploymentEndpoint { provider, model, family, env: None, token_file: None, note: "" })
}

fn finish(
    given: &Parameters,
    mut provider: ProviderDraft,
    model: &str,
    env: Option<&'static str>,
    rule: BaseRule,
    note: &'static str,
) -> Result<DeploymentEndpoint, String> {
    if let Some(base) = &given.base {
        provider.base_url = Some(base_url(base, rule, provider.kind)?);
    }
    if provider.base_url.is_none() && provider.kind.default_base_url().is_none() {
        return Err("api_base is missing, and the provider has no address of its own".to_owned());
    }
    if model.is_empty() || model.len() > 256 {
        return Err("the name of a model must have 1 to 256 bytes".to_owned());
    }
    // A base URL that is the default of the kind need not be written.
    if provider.base_url.as_deref() == provider.kind.default_base_url() {
        provider.base_url = None;
    }
    Ok(DeploymentEndpoint { provider, model: model.to_owned(), family: None, env, token_file: None, note })
}

/// Returns the base URL with its version segment.
pub(in crate::import) fn base_url(text: &str, rule: BaseRule, kind: ProviderKind) -> Result<String, String> {
    let url = BaseUrl::parse(text.trim()).map_err(|error| format!("api_base: {error}"))?;
    let mut base = url.to_string();
    for resource in ["/chat/completions", "/messages", "/embeddings", "/responses"] {
        if let Some(rest) = base.strip_suffix(resource) {
            base.truncate(rest.len());
        }
    }
    match rule {
        BaseRule::Azure => {
            let end = base.find("/openai/deployments").unwrap_or(base.len());
            base.truncate(end);
            let end = base.strip_suffix("/openai").map_or(base.len(), str::len);
            base.truncate(end);
        }
        BaseRule::Root if !has_version(&base) => base.push_str("/v1"),
        BaseRule::Root | BaseRule::Whole => {}
    }
    if kind == ProviderKind::Gemini && url.prefix().is_empty() {
        base.push_str("/v1beta");
    }
    // What was parsed leniently may be written in a form that the configuration refuses.
    BaseUrl::parse(&base).map_err(|error| format!("api_base: {error}"))?;
    Ok(base)
}

fn has_version(base: &str) -> bool {
    let last = base.rsplit('/').next().unwrap_or_default();
    last.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(model: &str, base: Option<&str>) -> (&'static str, Option<String>, String) {
        let base = base.map(str::to_owned);
        let given = Parameters { model: model.to_owned(), base, ..Parameters::default() };
        let endpoint = resolve(&given).unwrap();
        (endpoint.provider.kind.name(), endpoint.provider.base_url, endpoint.model)
    }

    #[test]
    fn arn_of_a_profile_has_the_family_of_its_model() {
        let of = |id: Option<&str>| {
            let (model, region) =
                ("bedrock/us.anthropic.claude-sonnet-4-6".to_owned(), "us-east-1".to_owned());
            let model_id = id.map(str::to_owned);
            let given = Parameters { model, region: Some(region), model_id, ..Parameters::default() };
            let endpoint = resolve(&given).unwrap();
            (endpoint.model, endpoint.family)
        };
        let claude = "us.anthropic.claude-sonnet-4-6".to_owned();
        let arn = "arn:aws:bedrock:us-east-1:000000000000:application-inference-profile/abcdefghijkl";
        assert_eq!(of(None), (claude.clone(), None));
        assert_eq!(of(Some(arn)), (arn.to_owned(), Some(claude)));
        assert_eq!(of(Some("eu.anthropic.claude-x")), ("eu.anthropic.claude-x".to_owned(), None));
    }

    #[test]
    fn prefix_and_address_decide_the_provider() {
        for (model, base, kind, url, name) in [
            ("openai/gpt-4o", None, "openai", None, "gpt-4o"),
            ("gpt-4o", Some("https://api.openai.com/v1"), "openai", None, "gpt-4o"),
            ("openai/x", Some("http://h:8000/v1/"), "openai-compatible", Some("http://h:8000/v1"), "x"),
            (
                "openai//models/a.gguf",
                Some("http://h/v1"),
                "openai-compatible",
                Some("http://h/v1"),
                "/models/a.gguf",
            ),
            (
                "anthropic/GLM-5",
                Some("https://api.z.ai/api/anthropic"),
                "anthropic",
                Some("https://api.z.ai/api/anthropic/v1"),
                "GLM-5",
            ),
            ("anthropic/c", Some("https://h/v1/messages"), "anthropic", Some("https://h/v1"), "c"),
            ("ollama/llama3:8b", None, "openai-compatible", Some("http://localhost:11434/v1"), "llama3:8b"),
            ("ollama_chat/x", Some("http://o:11434"), "openai-compatible", Some("http://o:11434/v1"), "x"),
            (
                "azure/d",
                Some("https://r.openai.azure.com/openai/deployments/d/chat/completions"),
                "azure",
                Some("https://r.openai.azure.com"),
                "d",
            ),
            (
                "azure_ai/d",
                Some("https://r.services.ai.azure.com/models"),
                "azure",
                Some("https://r.services.ai.azure.com/openai/v1"),
                "d",
            ),
            (
                "vertex_ai/gemini-2.5-flash",
                Some("https://generativelanguage.googleapis.com/"),
                "gemini",
                None,
                "gemini-2.5-flash",
            ),
            ("cohere/rerank-v3.5", None, "cohere", None, "rerank-v3.5"),
            (
                "cohere_chat/command-r",
                None,
                "openai-compatible",
                Some("https://api.cohere.ai/compatibility/v1"),
                "command-r",
            ),
            ("claude-opus-4-6", None, "anthropic", None, "claude-opus-4-6"),
            (
                "nvidia_nim/meta/llama3-70b",
                None,
                "openai-compatible",
                Some("https://integrate.api.nvidia.com/v1"),
                "meta/llama3-70b",
            ),
        ] {
            let wanted = (kind, url.map(str::to_owned), name.to_owned());
            assert_eq!(resolved(model, base), wanted, "{model}");
        }
    }

    #[test]
    fn deployment_without_a_counterpart_has_a_reason() {
        for model in
            ["bedrock/x", "sagemaker/x", "unknown/model", "mistralai/x", "azure/x", "vertex_ai/gemini-x"]
        {
            let given = Parameters { model: model.to_owned(), ..Parameters::default() };
            assert!(resolve(&given).is_err(), "{model}");
        }
    }
}
