//! `model_list` of LiteLLM: deployments, which become providers, models and targets.

use std::collections::BTreeMap;

use super::endpoint::{self, DeploymentEndpoint, Parameters};
use super::{Context, REFERENCE, aws, parameters, wildcards};
use crate::import::document::{Field, FieldResult};
use crate::import::draft::{DraftCredential, ProviderDraft, TimeoutDraft};

/// Deployment that has a counterpart in the result.
pub(super) struct Deployment {
    pub(super) id: String,
    pub(super) origin: String,
    pub(super) provider: ProviderDraft,
    pub(super) model: String,
    /// Model that the name hides; `None` if it hides none.
    pub(super) family: Option<String>,
    pub(super) weight: Option<f64>,
    pub(super) order: u64,
    pub(super) rpm: Option<u64>,
    pub(super) tpm: Option<u64>,
    pub(super) concurrent: Option<u64>,
    pub(super) timeouts: TimeoutDraft,
    pub(super) price: BTreeMap<&'static str, String>,
    pub(super) context_window: Option<u64>,
    pub(super) max_output: Option<u64>,
}

/// Reads a deployment. Returns `None` if it is reported as impossible.
pub(super) fn read(context: &mut Context<'_>, field: &Field<'_>) -> FieldResult<Option<Deployment>> {
    field.members()?;
    let missing = |key: &str| field.fault(format!("{key} is missing"));
    let name = field.set("model_name").ok_or_else(|| missing("model_name"))?;
    let params = field.set("litellm_params").ok_or_else(|| missing("litellm_params"))?;
    params.members()?;
    let model = params.set("model").ok_or_else(|| params.fault("model is missing"))?;
    let id = name.text()?.trim().to_owned();
    if id.is_empty() || id.len() > 256 {
        return Err(name.fault("a model name must have 1 to 256 bytes"));
    }
    if wildcards::is_pattern(&id) || wildcards::is_pattern(model.text()?) {
        wildcards::read(context, field, [&name, &params, &model])?;
        return Ok(None);
    }
    let given = match destination(context, &params, &model)? {
        Ok(given) => given,
        Err(reason) => {
            context.report.impossible(field, &reason);
            return Ok(None);
        }
    };
    let mut endpoint = match endpoint::resolve(&given) {
        Ok(endpoint) => endpoint,
        Err(reason) => {
            context.report.impossible(field, &reason);
            return Ok(None);
        }
    };
    let credential = match endpoint_credential(context, &params, &mut endpoint)? {
        Ok(credential) => credential,
        Err(reason) => {
            context.report.impossible(field, &reason);
            return Ok(None);
        }
    };
    let mut provider = endpoint.provider;
    provider.credential = credential;
    provider.timeouts = context.timeouts;
    context.report.taken(&name, "model.id");
    report_endpoint(context, &params, &model, endpoint.note);
    parameters::read_headers(context, &params, &mut provider)?;
    let line = field.node.line;
    let mut deployment = Deployment {
        origin: format!("{} (line {line})", field.path),
        id,
        provider,
        model: endpoint.model,
        family: endpoint.family,
        weight: None,
        order: 0,
        rpm: None,
        tpm: None,
        concurrent: None,
        timeouts: TimeoutDraft::default(),
        price: BTreeMap::new(),
        context_window: None,
        max_output: None,
    };
    parameters::read_limits(context, field, &params, &mut deployment)?;
    parameters::read_timeouts(context, &params, &mut deployment)?;
    let info = field.set("model_info");
    for place in [Some(&params), info.as_ref()].into_iter().flatten() {
        parameters::read_costs(context, place, info.as_ref(), &mut deployment)?;
    }
    if let Some(info) = &info {
        parameters::read_info(context, info, &mut deployment)?;
    }
    parameters::report_rest(context, &params);
    Ok(Some(deployment))
}

/// Returns the parameters that decide where the deployment leads to, or the reason why they are not known.
pub(super) fn destination(
    context: &mut Context<'_>,
    params: &Field<'_>,
    model: &Field<'_>,
) -> FieldResult<Result<Parameters, String>> {
    if let Some(name) = params.set("litellm_credential_name")
        && let Err(reason) = context.credential_of(name.text()?)
    {
        return Ok(Err(reason.to_owned()));
    }
    let mut unset = None;
    let mut resolve = |field: Option<Field<'_>>| -> FieldResult<Option<String>> {
        let Some(field) = field else { return Ok(None) };
        let text = field.text()?;
        match context.resolve(text) {
            Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
            Err(name) => {
                unset = Some(format!(
                    "{} is the environment variable {name}, which is not set: set it while importing",
                    field.path.rsplit('.').next().unwrap_or_default()
                ));
                Ok(None)
            }
        }
    };
    let model = resolve(Some(model.clone()))?.unwrap_or_default();
    let base = ["api_base", "base_url", "aws_bedrock_runtime_endpoint"].iter();
    let base = base.clone().find_map(|key| context.value(params, key));
    let base = resolve(base)?;
    let version = resolve(context.value(params, "api_version"))?;
    let provider = resolve(params.set("custom_llm_provider"))?;
    let project = resolve(params.set("vertex_project"))?;
    let location = resolve(params.set("vertex_location"))?;
    let region = resolve(context.value(params, "aws_region_name"))?;
    let model_id = resolve(params.set("model_id"))?;
    if let Some(reason) = unset {
        return Ok(Err(reason));
    }
    // The variables that LiteLLM reads without the parameter.
    let azure = model.starts_with("azure/");
    let lookup = |name: &str| context.lookup(name);
    let base = base.or_else(|| lookup("AZURE_API_BASE").filter(|_| azure));
    let version = version.or_else(|| lookup("AZURE_API_VERSION").filter(|_| azure));
    let project = project.or_else(|| lookup("VERTEXAI_PROJECT"));
    let location = location.or_else(|| lookup("VERTEXAI_LOCATION"));
    let regions = ["AWS_REGION_NAME", "AWS_REGION", "AWS_DEFAULT_REGION"];
    let region = region.or_else(|| regions.into_iter().find_map(lookup));
    let has_key = context.value(params, "api_key").is_some();
    Ok(Ok(Parameters { model, provider, base, version, has_key, project, location, region, model_id }))
}

/// Returns the credential of a deployment, or the reason why it has none although its kind of provider needs one.
pub(super) fn endpoint_credential(
    context: &mut Context<'_>,
    params: &Field<'_>,
    endpoint: &mut DeploymentEndpoint,
) -> FieldResult<Result<Option<DraftCredential>, String>> {
    if !endpoint.provider.aws.is_empty() {
        return aws::read(context, params, &mut endpoint.provider);
    }
    let provider = &endpoint.provider;
    let found = match (context.value(params, "api_key"), endpoint.token_file) {
        (Some(key), _) => match credential(context, &key, &provider.name)? {
            Ok(found) => found,
            Err(reason) => return Ok(Err(reason.to_owned())),
        },
        (None, Some(file)) => Some(DraftCredential::File(file.to_owned())),
        (None, None) => match endpoint.env {
            Some(env) => context.draft.secrets.reference(env).ok().map(DraftCredential::Env),
            None => None,
        },
    };
    if found.is_none() && provider.kind.needs_credential() {
        return Ok(Err("the credential is empty, and this kind of provider needs one".to_owned()));
    }
    Ok(Ok(found))
}

/// Returns the credential, `None` for an empty one, or the reason why it cannot be one.
pub(super) fn credential(
    context: &mut Context<'_>,
    key: &Field<'_>,
    owner: &str,
) -> FieldResult<Result<Option<DraftCredential>, &'static str>> {
    let text = key.text()?.trim();
    if text.is_empty() {
        return Ok(Ok(None));
    }
    let stored = match text.strip_prefix(REFERENCE) {
        Some(name) => context.reference(name),
        None => context.draft.secrets.store(owner, text),
    };
    Ok(stored.map(|name| Some(DraftCredential::Env(name))))
}

/// Reports the parameters that decide where a deployment leads to. `note` is empty, or says what differs from the source.
pub(super) fn report_endpoint(context: &mut Context<'_>, params: &Field<'_>, model: &Field<'_>, note: &str) {
    aws::report(context, params);
    if note.is_empty() {
        context.report.taken(model, "provider.kind, model.targets.model");
    } else {
        context.report.changed(model, "provider.kind, model.targets.model", note);
    }
    for (key, target) in [
        ("api_base", "provider.base_url"),
        ("base_url", "provider.base_url"),
        ("api_version", "provider.api_version"),
        ("custom_llm_provider", "provider.kind"),
        ("vertex_project", "provider.base_url"),
        ("vertex_location", "provider.base_url"),
        ("litellm_credential_name", "provider.credential"),
    ] {
        let Some(field) = params.get(key) else { continue };
        if field.text().is_ok_and(|text| text.starts_with(REFERENCE)) {
            context.report.changed(&field, target, "the value of the variable at the time of the import");
        } else {
            context.report.taken(&field, target);
        }
    }
    for key in ["vertex_credentials", "vertex_ai_credentials"] {
        if let Some(field) = params.get(key) {
            context.report.impossible(
                &field,
                "credentials of Google Cloud are not copied: set `google` of the provider in place of `credential`",
            );
        }
    }
    if let Some(key) = params.get("api_key") {
        if key.text().is_ok_and(|text| text.starts_with(REFERENCE)) {
            context.report.taken(&key, "provider.credential");
        } else {
            context.report.changed(
                &key,
                "provider.credential",
                "the key is in secrets.env, and not in the configuration",
            );
        }
    }
}
