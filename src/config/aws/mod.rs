//! `[provider.aws]`: region and credentials of a provider at AWS.
//!
//! The source of the credentials is chosen when the configuration is read, in the order of the AWS SDKs. What the source
//! returns is requested by the running gateway.

mod chain;
mod instance;
mod shared_files;

use std::path::Path;

use super::node::ConfigTable;
use super::routes::one_of;
use super::secret::{Secret, Vault};
use chain::ChainReader;
use codec::provider::{CloudAccess, ProviderKind, SigningScope};

pub(super) use instance::region as instance_region;

/// Sources, as the configuration names them.
const SOURCES: [&str; 6] = ["auto", "static", "profile", "web-identity", "container", "instance"];
/// Name of the session in the logs of AWS.
const SESSION_NAME: &str = "model-gateway";

/// Settings of a provider at AWS.
pub(super) struct AwsSettings {
    pub(super) region: String,
    /// Signature of all requests; `None` if the provider has a bearer key.
    pub(super) access: Option<CloudAccess>,
    /// Bearer key from the environment.
    pub(super) bearer: Option<Secret>,
}

/// Reads the settings. `host` is the host of a configured base URL. `credential` is the secret access key if
/// `access_key_id` is set, and otherwise a bearer key. `None` if a required setting is missing, which is reported.
pub(super) fn read(
    table: &ConfigTable<'_>,
    kind: Option<ProviderKind>,
    host: Option<&str>,
    credential: Option<&Secret>,
    (folder, vault): (&Path, &dyn Vault),
) -> Option<AwsSettings> {
    let reader = ChainReader { table, folder, vault };
    let configured = table.string("region");
    let service = table.string("service");
    let source = table.get("source");
    let named = source.as_ref().and_then(|value| {
        value.parsed(|text| {
            SOURCES.into_iter().find(|known| *known == text).ok_or_else(|| one_of(text, &SOURCES))
        })
    });
    let settings = reader.settings(credential);
    check_effects(table, named, &settings);
    let region = configured
        .or_else(|| host.and_then(region_of))
        .or_else(|| vault.env("AWS_REGION"))
        .or_else(|| vault.env("AWS_DEFAULT_REGION"))
        .or_else(|| reader.profile_region(&settings))
        .or_else(|| reader.instance_region(&settings))
        .or_else(|| (!vault.reads()).then(|| "us-east-1".to_owned()));
    let Some(region) = region else {
        table.require("region", "region = \"us-east-1\"");
        return None;
    };
    if !is_aws_region(&region) {
        table
            .wrong(format!("\"{region}\" is not a region"), "for example: region = \"us-east-1\"".to_owned());
        return None;
    }
    if credential.is_some() && settings.key_id.is_none() {
        if let Some(source) = source {
            let hint = "remove one of them, or set access_key_id for a static source".to_owned();
            source.wrong("`credential` is a bearer key, which has no source", hint);
        }
        return Some(AwsSettings { region, access: None, bearer: None });
    }
    let chain = named.unwrap_or("auto");
    if chain == "auto" && kind == Some(ProviderKind::Bedrock) && settings.is_plain() {
        // The AWS SDKs prefer it to all other credentials.
        if let Some(key) = vault.env("AWS_BEARER_TOKEN_BEDROCK").filter(|key| !key.trim().is_empty()) {
            return Some(AwsSettings { region, access: None, bearer: Some(Secret::new(key.trim())) });
        }
    }
    let base = match reader.source(chain, &settings, &region) {
        Ok(base) => base,
        Err(reason) => {
            table.wrong(reason, "docs/providers.md explains the sources".to_owned());
            return None;
        }
    };
    let service = service.unwrap_or_else(|| service_of(host).to_owned());
    let signing = SigningScope { region: region.as_str().into(), service: service.into() };
    let access =
        CloudAccess { source: reader.with_role(base, chain, &settings, &region), signing: Some(signing) };
    Some(AwsSettings { region, access: Some(access), bearer: None })
}

/// Reports settings that the named source does not use: their effect is certainly not the one that was meant.
fn check_effects(table: &ConfigTable<'_>, source: Option<&'static str>, settings: &SourceSettings) {
    let Some(source) = source.filter(|source| *source != "auto") else { return };
    for (key, is_set, owner) in [
        ("access_key_id", settings.key_id.is_some(), "static"),
        ("session_token", settings.session_token.is_some(), "static"),
        ("profile", settings.profile.is_some(), "profile"),
        ("token_file", settings.token_file.is_some(), "web-identity"),
    ] {
        if is_set && source != owner {
            table.wrong(
                format!("{key} has no effect with source = \"{source}\""),
                format!("remove `{key}`, or set `source = \"{owner}\"`"),
            );
        }
    }
}

/// Returns the default base URL of Bedrock in a region.
pub(super) fn bedrock_url(region: &str) -> String {
    let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    format!("https://bedrock-runtime.{region}.{suffix}")
}

/// Returns whether a text can be the name of a region of AWS, in a host and in a signature.
pub fn is_aws_region(region: &str) -> bool {
    (1..=32).contains(&region.len())
        && region.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Returns the region in a host of AWS: `bedrock-runtime.eu-west-1.amazonaws.com`.
fn region_of(host: &str) -> Option<String> {
    let is_aws = ["amazonaws.com", "amazonaws.com.cn", "api.aws"].iter().any(|end| host.ends_with(end));
    let region = host.split('.').nth(1).filter(|_| is_aws)?;
    (region.contains('-')).then(|| region.to_owned())
}

/// Returns the signing name of the service at a host.
fn service_of(host: Option<&str>) -> &'static str {
    match host {
        Some(host) if host.starts_with("bedrock-mantle.") => "bedrock-mantle",
        Some(host) if host.starts_with("aws-external-anthropic.") => "aws-external-anthropic",
        _ => "bedrock",
    }
}

/// Settings of the sources, as they are written.
#[derive(Clone)]
struct SourceSettings {
    key_id: Option<String>,
    secret: Option<Secret>,
    /// Session token of temporary static credentials.
    session_token: Option<Secret>,
    profile: Option<String>,
    role_arn: Option<String>,
    session_name: String,
    external_id: Option<String>,
    duration: Option<u32>,
    token_file: Option<String>,
    endpoint: Option<String>,
    sts_url: Option<String>,
}

impl SourceSettings {
    /// Returns whether no setting names a source.
    fn is_plain(&self) -> bool {
        self.key_id.is_none()
            && self.profile.is_none()
            && self.role_arn.is_none()
            && self.token_file.is_none()
    }
}
