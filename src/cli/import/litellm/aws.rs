//! Credentials of AWS in a deployment of LiteLLM, which become `provider.aws`.
//!
//! Source: <https://docs.litellm.ai/docs/providers/bedrock>, November 2026.

use super::deployments::credential;
use super::{Context, REFERENCE};
use crate::import::document::{Field, FieldResult};
use crate::import::draft::{DraftCredential, ProviderDraft};

/// Variables of the AWS tools with static credentials, which the gateway reads itself.
const STATIC: [&str; 2] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];

/// Parameters, and the settings of `provider.aws` that they become.
const SETTINGS: [(&str, &str); 4] = [
    ("aws_profile_name", "profile"),
    ("aws_role_name", "role_arn"),
    ("aws_session_name", "session_name"),
    ("aws_external_id", "external_id"),
];

/// Reads the credentials into the settings of a provider. Returns its `credential`, `None` if it needs none, or the reason
/// why the configuration cannot express them.
pub(super) fn read(
    context: &mut Context<'_>,
    params: &Field<'_>,
    provider: &mut ProviderDraft,
) -> FieldResult<Result<Option<DraftCredential>, String>> {
    if let Some(key) = context.value(params, "api_key") {
        return Ok(credential(context, &key, &provider.name)?.map_err(str::to_owned));
    }
    if context.value(params, "aws_session_token").is_some() {
        let reason = "temporary credentials end: name a profile or a role, or leave the credentials to the \
                      environment or the machine (docs/providers.md)";
        return Ok(Err(reason.to_owned()));
    }
    let keys = ["aws_access_key_id", "aws_secret_access_key"].map(|key| context.value(params, key));
    let mut found = None;
    match keys {
        [Some(id), Some(secret)] => match static_keys(context, provider, &id, &secret)? {
            Ok(credential) => found = credential,
            Err(reason) => return Ok(Err(reason)),
        },
        [None, None] => {}
        _ => return Ok(Err("aws_access_key_id and aws_secret_access_key belong together".to_owned())),
    }
    for (key, setting) in SETTINGS {
        let Some(field) = context.value(params, key) else { continue };
        let value = match context.resolve(field.text()?) {
            Ok(value) if !value.is_empty() => value,
            Ok(_) => continue,
            Err(name) => return Ok(Err(unset(key, &name))),
        };
        if setting == "profile" {
            provider.aws.push(("source", "profile".to_owned()));
        }
        provider.aws.push((setting, value));
    }
    Ok(Ok(found))
}

fn unset(key: &str, name: &str) -> String {
    format!("{key} is the environment variable {name}, which is not set: set it while importing")
}

/// Reads an access key. Those of the AWS tools' own variables are left to the environment.
fn static_keys(
    context: &mut Context<'_>,
    provider: &mut ProviderDraft,
    id: &Field<'_>,
    secret: &Field<'_>,
) -> FieldResult<Result<Option<DraftCredential>, String>> {
    let names = [id.text()?, secret.text()?].map(|text| text.trim().strip_prefix(REFERENCE));
    if names == STATIC.map(Some) {
        provider.aws.push(("source", "static".to_owned()));
        for name in STATIC {
            if let Err(reason) = context.reference(name) {
                return Ok(Err(reason.to_owned()));
            }
        }
        return Ok(Ok(None));
    }
    match context.resolve(id.text()?) {
        Ok(id) if !id.is_empty() => provider.aws.push(("access_key_id", id)),
        Ok(_) => return Ok(Err("aws_access_key_id is empty".to_owned())),
        Err(name) => return Ok(Err(unset("aws_access_key_id", &name))),
    }
    match credential(context, secret, &provider.name)? {
        Ok(Some(secret)) => Ok(Ok(Some(secret))),
        Ok(None) => Ok(Err("aws_secret_access_key is empty".to_owned())),
        Err(reason) => Ok(Err(reason.to_owned())),
    }
}

/// Reports the parameters of a deployment that is in the result.
pub(super) fn report(context: &mut Context<'_>, params: &Field<'_>) {
    for (key, target) in [
        ("aws_region_name", "provider.aws.region"),
        ("aws_access_key_id", "provider.aws.access_key_id"),
        ("aws_secret_access_key", "provider.credential"),
        ("aws_profile_name", "provider.aws.profile"),
        ("aws_role_name", "provider.aws.role_arn"),
        ("aws_session_name", "provider.aws.session_name"),
        ("aws_external_id", "provider.aws.external_id"),
        ("aws_bedrock_runtime_endpoint", "provider.base_url"),
        ("model_id", "model.targets.model, model.targets.family"),
    ] {
        if let Some(field) = params.get(key) {
            context.report.taken(&field, target);
        }
    }
    for (key, reason) in [
        ("aws_web_identity_token", "name the file with the token in provider.aws.token_file"),
        ("aws_sts_endpoint", "set provider.aws.sts_url"),
    ] {
        if let Some(field) = params.get(key) {
            context.report.impossible(&field, reason);
        }
    }
}
