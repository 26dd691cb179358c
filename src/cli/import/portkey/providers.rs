//! Where a target of Portkey leads to: its provider, address and credential.

use super::Import;
use super::tree::Leaf;
use crate::import::document::{Field, FieldResult};
use crate::import::draft::DraftCredential;
use crate::import::litellm::endpoint::{self, DeploymentEndpoint, Parameters};

/// Providers with another name at LiteLLM, whose table says what they are in the configuration.
const NAMES: &[(&str, &str)] = &[
    ("azure-openai", "azure"),
    ("azure-ai", "azure_ai"),
    ("google", "gemini"),
    ("vertex-ai", "vertex_ai"),
    ("mistral-ai", "mistral"),
    ("perplexity-ai", "perplexity"),
    ("together-ai", "together_ai"),
    ("fireworks-ai", "fireworks_ai"),
    ("x-ai", "xai"),
    ("z-ai", "zai"),
    ("jina", "jina_ai"),
    ("novita-ai", "novita"),
];
/// Providers that have the same name at LiteLLM.
const SAME: &[&str] = &[
    "openai",
    "anthropic",
    "cohere",
    "bedrock",
    "groq",
    "deepseek",
    "openrouter",
    "ollama",
    "voyage",
    "deepinfra",
    "moonshot",
    "huggingface",
    "github",
    "cerebras",
    "sambanova",
    "hyperbolic",
    "dashscope",
    "ai21",
    "sagemaker",
    "replicate",
    "predibase",
    "triton",
];

/// Returns the deployment at Azure that a target names, which is the name of the model there. `None` without one.
pub(super) fn deployment<'n>(field: &Field<'n>) -> Option<Field<'n>> {
    field.set("azure_deployment_id").or_else(|| field.set("azure_deployment_name"))
}

/// Returns where a target leads to, or the reason why it has no counterpart.
pub(super) fn resolve(
    import: &mut Import,
    leaf: &Leaf<'_>,
    model: &str,
) -> FieldResult<Result<DeploymentEndpoint, String>> {
    let field = &leaf.field;
    let Some(provider) = field.set("provider") else {
        let reason = match field.get("virtual_key") {
            Some(_) => {
                "virtual_key is a credential that only Portkey's cloud knows: write provider and api_key instead"
            }
            None => "the target has no provider",
        };
        return Ok(Err(reason.to_owned()));
    };
    let name = provider.text()?.trim();
    let Some(prefix) = prefix_of(name.strip_prefix('@').unwrap_or(name)) else {
        return Ok(Err("the provider is not known: add a [[provider]] by hand".to_owned()));
    };
    let text = |key: &str| -> FieldResult<Option<String>> {
        Ok(field.set(key).map(|field| field.text()).transpose()?.map(|text| text.trim().to_owned()))
    };
    let mut base = leaf.custom_host.as_ref().map(|host| host.text()).transpose()?.map(str::to_owned);
    let mut model = model.to_owned();
    if prefix == "azure" {
        if let Some(resource) = text("azure_resource_name")?.filter(|_| base.is_none()) {
            base = Some(format!("https://{resource}.openai.azure.com"));
        }
        if let Some(deployment) = deployment(field) {
            deployment.text()?.trim().clone_into(&mut model);
            import.report.taken(&deployment, "model.targets.model");
        }
    }
    if prefix == "azure_ai" {
        base = base.or(text("azure_foundry_url")?);
    }
    let given = Parameters {
        model: format!("{prefix}/{model}"),
        base,
        version: text("azure_api_version")?,
        has_key: field.set("api_key").is_some(),
        project: text("vertex_project_id")?,
        location: text("vertex_region")?,
        region: text("aws_region")?,
        ..Parameters::default()
    };
    let endpoint = match endpoint::resolve(&given) {
        Ok(endpoint) => endpoint,
        Err(reason) => return Ok(Err(reason)),
    };
    if endpoint.note.is_empty() {
        import.report.taken(&provider, "provider.kind");
    } else {
        import.report.changed(&provider, "provider.kind", endpoint.note);
    }
    if let Some(host) = leaf.custom_host.as_ref().filter(|host| !import.report.has(host)) {
        import.report.taken(host, "provider.base_url");
    }
    for (member, target) in [
        ("azure_resource_name", "provider.base_url"),
        ("azure_foundry_url", "provider.base_url"),
        ("azure_api_version", "provider.api_version"),
        ("vertex_project_id", "provider.base_url"),
        ("vertex_region", "provider.base_url"),
        ("aws_region", "provider.aws.region"),
    ] {
        if let Some(field) = field.get(member) {
            import.report.taken(&field, target);
        }
    }
    Ok(Ok(endpoint))
}

/// Returns the prefix of a provider in the table of LiteLLM's. `None` if it is not known.
pub(super) fn prefix_of(name: &str) -> Option<&'static str> {
    let same = || SAME.iter().find(|same| **same == name).copied();
    NAMES.iter().find(|(own, _)| *own == name).map(|(_, prefix)| *prefix).or_else(same)
}

/// Sets the credential of a target, or returns the reason why it has none although its kind of provider needs one.
pub(super) fn credential(
    import: &mut Import,
    field: &Field<'_>,
    endpoint: &mut DeploymentEndpoint,
) -> FieldResult<Result<(), String>> {
    if !endpoint.provider.aws.is_empty() {
        for member in ["aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_role_arn"] {
            if let Some(field) = field.get(member) {
                let reason = "credentials of AWS are not copied: the gateway uses those of its machine or environment, or provider.aws (docs/providers.md)";
                import.report.impossible(&field, reason);
            }
        }
        return Ok(Ok(()));
    }
    for member in ["virtual_key", "vertex_service_account_json"] {
        if let Some(field) = field.get(member) {
            import.report.impossible(
                &field,
                "the credential is not in the file: set the variable, or provider.google",
            );
        }
    }
    let key = field.set("api_key");
    let text = key.as_ref().map(|key| key.text()).transpose()?.map(str::trim).filter(|text| !text.is_empty());
    let stored = match (text, endpoint.token_file, endpoint.env) {
        (Some(text), _, _) if is_variable(text) => {
            let note = "the text is the name of a variable, which the gateway reads";
            if let Some(key) = &key {
                import.report.changed(key, "provider.credential", note);
            }
            import.draft.secrets.reference(text).map(DraftCredential::Env).map(Some)
        }
        (Some(text), _, _) => {
            if let Some(key) = &key {
                let note = "the key is in secrets.env, and not in the configuration";
                import.report.changed(key, "provider.credential", note);
            }
            import.draft.secrets.store(&endpoint.provider.name, text).map(DraftCredential::Env).map(Some)
        }
        (None, Some(file), _) => Ok(Some(DraftCredential::File(file.to_owned()))),
        (None, None, Some(env)) => import.draft.secrets.reference(env).map(DraftCredential::Env).map(Some),
        (None, None, None) => Ok(None),
    };
    let found = match stored {
        Ok(found) => found,
        Err(reason) => return Ok(Err(reason.to_owned())),
    };
    if found.is_none() && endpoint.provider.kind.needs_credential() {
        return Ok(Err("the target has no api_key".to_owned()));
    }
    endpoint.provider.credential = found;
    Ok(Ok(()))
}

/// Returns whether a key is the name of a variable, as in examples: `OPENAI_API_KEY`. No provider has such keys.
fn is_variable(text: &str) -> bool {
    text.ends_with("_KEY")
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}
