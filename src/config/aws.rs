//! `[provider.aws]`: region and credentials of a provider at AWS.
//!
//! The source of the credentials is chosen when the configuration is read, in the order of the AWS SDKs. What the source
//! returns is requested by the running gateway.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::node::ConfigTable;
use super::routes::one_of;
use super::secret::{Secret, Vault};
use crate::cloud::aws::{
    AssumeRole, Container, ContainerToken, Fixed, InstanceMetadata, ProfileFile, SharedProfile, WebIdentity,
    profile_setting,
};
use crate::cloud::sigv4::Credentials;
use crate::cloud::token::CredentialSource;
use crate::provider::{CloudAccess, ProviderKind, SigningScope};

/// Sources, as the configuration names them.
const SOURCES: [&str; 6] = ["auto", "static", "profile", "web-identity", "container", "instance"];
/// Name of the session in the logs of AWS.
const SESSION_NAME: &str = "model-gateway";
/// Largest number of profiles that lead to each other.
const MAX_PROFILES: usize = 8;

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
    let reader = Reader { table, folder, vault };
    let configured = table.string("region");
    let service = table.string("service");
    let source = table.get("source");
    let named = source.as_ref().and_then(|value| {
        value.parsed(|text| {
            SOURCES.into_iter().find(|known| *known == text).ok_or_else(|| one_of(text, &SOURCES))
        })
    });
    let settings = reader.settings(credential);
    let region = configured
        .or_else(|| host.and_then(region_of))
        .or_else(|| vault.env("AWS_REGION"))
        .or_else(|| vault.env("AWS_DEFAULT_REGION"))
        .or_else(|| reader.profile_region(&settings))
        .or_else(|| (!vault.reads()).then(|| "us-east-1".to_owned()));
    let Some(region) = region else {
        table.require("region", "region = \"us-east-1\"");
        return None;
    };
    let is_sound = (1..=32).contains(&region.len())
        && region.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if !is_sound {
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

/// Returns the default base URL of Bedrock in a region.
pub(super) fn bedrock_url(region: &str) -> String {
    let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    format!("https://bedrock-runtime.{region}.{suffix}")
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
struct SourceSettings {
    key_id: Option<String>,
    secret: Option<Secret>,
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

type Source = Arc<dyn CredentialSource>;

/// Reader of the sources.
struct Reader<'r> {
    table: &'r ConfigTable<'r>,
    folder: &'r Path,
    vault: &'r dyn Vault,
}

impl Reader<'_> {
    fn settings(&self, credential: Option<&Secret>) -> SourceSettings {
        let url = |key: &'static str| {
            self.table.get(key).and_then(|value| {
                value.parsed(|text| {
                    let is_url = text.starts_with("https://") || text.starts_with("http://");
                    is_url.then(|| text.to_owned()).ok_or_else(|| "write a URL".to_owned())
                })
            })
        };
        SourceSettings {
            key_id: self.table.string("access_key_id"),
            secret: credential.cloned(),
            profile: self.table.string("profile"),
            role_arn: self.table.string("role_arn"),
            session_name: self.table.string("session_name").unwrap_or_else(|| SESSION_NAME.to_owned()),
            external_id: self.table.string("external_id"),
            duration: self
                .table
                .duration("duration")
                .map(|duration| u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)),
            token_file: self.table.string("token_file"),
            endpoint: url("endpoint"),
            sts_url: url("sts_url").or_else(|| self.vault.env("AWS_ENDPOINT_URL_STS")),
        }
    }

    /// Returns the source of a chain, without the role on top of it.
    fn source(&self, chain: &str, settings: &SourceSettings, region: &str) -> Result<Source, String> {
        if !self.vault.reads() {
            // Without the environment the chain cannot be known. No request is made with this configuration.
            return Ok(Arc::new(InstanceMetadata::new(None)));
        }
        match chain {
            "static" => self
                .fixed(settings)
                .ok_or_else(|| "a static source needs access_key_id, and the secret access key as the provider's `credential`".to_owned()),
            "profile" => {
                let profile = self.profile_name(settings);
                self.profile(&profile, settings, region, 0)?.ok_or_else(|| {
                    format!("no shared file has access keys or a role of the profile {profile}")
                })
            }
            "web-identity" => self
                .web_identity(settings, region)
                .ok_or_else(|| "a web identity needs token_file and role_arn".to_owned()),
            "container" => self.container(settings)?.ok_or_else(|| {
                "neither AWS_CONTAINER_CREDENTIALS_RELATIVE_URI nor AWS_CONTAINER_CREDENTIALS_FULL_URI is set"
                    .to_owned()
            }),
            "instance" => Ok(self.instance(settings)),
            _ => self.chain(settings, region),
        }
    }

    /// Returns the first source that is configured: of the settings, then of the environment.
    fn chain(&self, settings: &SourceSettings, region: &str) -> Result<Source, String> {
        if let Some(fixed) = self.fixed(settings) {
            return Ok(fixed);
        }
        if settings.token_file.is_some()
            && let Some(web) = self.web_identity(settings, region)
        {
            return Ok(web);
        }
        let env = |name: &str| self.vault.env(name).filter(|text| !text.trim().is_empty());
        if settings.profile.is_none()
            && let (Some(id), Some(secret)) = (env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY"))
        {
            let session_token = env("AWS_SESSION_TOKEN").map(|token| token.trim().into());
            let credentials = Credentials {
                access_key_id: id.trim().into(),
                secret_access_key: secret.trim().into(),
                session_token,
            };
            return Ok(Arc::new(Fixed(credentials)));
        }
        let profile = self.profile_name(settings);
        if let Some(source) = self.profile(&profile, settings, region, 0)? {
            return Ok(source);
        }
        if settings.profile.is_some() {
            return Err(format!("no shared file has access keys or a role of the profile {profile}"));
        }
        if let Some(source) = self.web_identity(settings, region) {
            return Ok(source);
        }
        if let Some(source) = self.container(settings)? {
            return Ok(source);
        }
        if env("AWS_EC2_METADATA_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            let message = "no credentials are configured, and AWS_EC2_METADATA_DISABLED is set";
            return Err(message.to_owned());
        }
        Ok(self.instance(settings))
    }

    fn fixed(&self, settings: &SourceSettings) -> Option<Source> {
        let credentials = Credentials {
            access_key_id: settings.key_id.as_deref()?.into(),
            secret_access_key: settings.secret.as_ref()?.expose().into(),
            session_token: None,
        };
        Some(Arc::new(Fixed(credentials)))
    }

    fn web_identity(&self, settings: &SourceSettings, region: &str) -> Option<Source> {
        let file = settings.token_file.clone().or_else(|| self.vault.env("AWS_WEB_IDENTITY_TOKEN_FILE"))?;
        let role = settings.role_arn.clone().or_else(|| self.vault.env("AWS_ROLE_ARN"))?;
        let session =
            self.vault.env("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| settings.session_name.clone());
        Some(Arc::new(WebIdentity {
            token_file: self.folder.join(file),
            role_arn: role.into(),
            session_name: session.into(),
            region: region.into(),
            sts_url: settings.sts_url.as_deref().map(Into::into),
        }))
    }

    fn container(&self, settings: &SourceSettings) -> Result<Option<Source>, String> {
        let env = |name: &str| self.vault.env(name).filter(|text| !text.is_empty());
        let token =
            match (env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"), env("AWS_CONTAINER_AUTHORIZATION_TOKEN")) {
                (Some(file), _) => ContainerToken::File(PathBuf::from(file)),
                (None, Some(text)) => ContainerToken::Text(text.into()),
                (None, None) => ContainerToken::None,
            };
        let relative = env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let full = settings.endpoint.clone().or_else(|| env("AWS_CONTAINER_CREDENTIALS_FULL_URI"));
        Ok(match (relative, full) {
            (Some(path), None) => Some(Arc::new(Container::relative(&path, token)?)),
            (_, Some(url)) => Some(Arc::new(Container::full(&url, token)?)),
            (None, None) => None,
        })
    }

    fn instance(&self, settings: &SourceSettings) -> Source {
        let endpoint =
            settings.endpoint.clone().or_else(|| self.vault.env("AWS_EC2_METADATA_SERVICE_ENDPOINT"));
        Arc::new(InstanceMetadata::new(endpoint.as_deref()))
    }

    /// Returns the source with the role on top of it, if one is configured.
    fn with_role(&self, base: Source, chain: &str, settings: &SourceSettings, region: &str) -> Source {
        let is_web = chain == "web-identity" || settings.token_file.is_some();
        match &settings.role_arn {
            Some(role) if !is_web => self.role(base, role, settings, region),
            _ => base,
        }
    }

    fn role(&self, base: Source, role: &str, settings: &SourceSettings, region: &str) -> Source {
        Arc::new(AssumeRole {
            base,
            role_arn: role.into(),
            session_name: settings.session_name.as_str().into(),
            external_id: settings.external_id.as_deref().map(Into::into),
            duration: settings.duration,
            region: region.into(),
            sts_url: settings.sts_url.as_deref().map(Into::into),
        })
    }

    fn profile_name(&self, settings: &SourceSettings) -> String {
        let named = settings.profile.clone().or_else(|| self.vault.env("AWS_PROFILE"));
        named.unwrap_or_else(|| "default".to_owned())
    }

    /// Returns the shared files with their kinds.
    fn files(&self) -> Vec<(ProfileFile, PathBuf)> {
        let home = self.vault.env("HOME").filter(|home| !home.is_empty());
        let path = |variable: &str, name: &str| {
            let named = self.vault.env(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
            named.or_else(|| home.as_ref().map(|home| Path::new(home).join(".aws").join(name)))
        };
        let credentials = path("AWS_SHARED_CREDENTIALS_FILE", "credentials");
        let config = path("AWS_CONFIG_FILE", "config");
        let all = [(ProfileFile::Credentials, credentials), (ProfileFile::Config, config)];
        all.into_iter().filter_map(|(kind, path)| Some((kind, path?))).collect()
    }

    /// Returns a setting of a profile.
    fn profile_value(&self, profile: &str, name: &str) -> Option<String> {
        self.files().into_iter().find_map(|(kind, path)| {
            let text = self.vault.file(&path).ok()?;
            profile_setting(&text, kind, profile, name).map(str::to_owned)
        })
    }

    fn profile_region(&self, settings: &SourceSettings) -> Option<String> {
        self.profile_value(&self.profile_name(settings), "region")
    }

    /// Returns the source of a profile; `None` if there is no such profile.
    ///
    /// # Errors
    /// Returns what is wrong with the profile.
    fn profile(
        &self,
        profile: &str,
        settings: &SourceSettings,
        region: &str,
        depth: usize,
    ) -> Result<Option<Source>, String> {
        if depth > MAX_PROFILES {
            return Err(format!("the profile {profile} leads to itself"));
        }
        let value = |name: &str| self.profile_value(profile, name);
        let keys = || -> Source { Arc::new(SharedProfile { profile: profile.into(), files: self.files() }) };
        let Some(role) = value("role_arn") else {
            return Ok(value("aws_access_key_id").map(|_| keys()));
        };
        if value("mfa_serial").is_some() {
            return Err(format!(
                "the profile {profile} needs a second factor, which a gateway does not have"
            ));
        }
        let own = SourceSettings {
            session_name: value("role_session_name").unwrap_or_else(|| settings.session_name.clone()),
            external_id: value("external_id"),
            duration: value("duration_seconds").and_then(|text| text.parse().ok()),
            token_file: value("web_identity_token_file"),
            role_arn: Some(role.clone()),
            key_id: None,
            secret: None,
            profile: None,
            endpoint: settings.endpoint.clone(),
            sts_url: settings.sts_url.clone(),
        };
        if own.token_file.is_some() {
            return Ok(self.web_identity(&own, region));
        }
        let base = match (value("source_profile"), value("credential_source").as_deref()) {
            // A profile may be its own source: its access keys assume its role.
            (Some(source), _) if source == profile => keys(),
            (Some(source), _) => self
                .profile(&source, settings, region, depth + 1)?
                .ok_or_else(|| format!("the source_profile {source} of {profile} has no access keys"))?,
            (None, Some("Ec2InstanceMetadata")) => self.instance(settings),
            (None, Some("EcsContainer")) => self.source("container", settings, region)?,
            (None, Some("Environment")) => {
                let (id, secret) =
                    (self.vault.env("AWS_ACCESS_KEY_ID"), self.vault.env("AWS_SECRET_ACCESS_KEY"));
                let (Some(id), Some(secret)) = (id, secret) else {
                    return Err(format!(
                        "the profile {profile} takes its keys from the environment, which has none"
                    ));
                };
                let session_token = self.vault.env("AWS_SESSION_TOKEN").map(Into::into);
                Arc::new(Fixed(Credentials {
                    access_key_id: id.into(),
                    secret_access_key: secret.into(),
                    session_token,
                }))
            }
            (None, _) => return Err(format!("the profile {profile} has a role, but no source_profile")),
        };
        Ok(Some(self.role(base, &role, &own, region)))
    }
}
