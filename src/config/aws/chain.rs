//! Sources of AWS credentials, in the order of the AWS SDKs: settings, environment, shared files, metadata services.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{SESSION_NAME, SourceSettings};
use crate::node::ConfigTable;
use crate::secret::{self, Secret, Vault};
use cloud::aws::{
    AssumeRole, Container, ContainerToken, ENDPOINT, ENDPOINT_IPV6, Fixed, InstanceMetadata, WebIdentity,
};
use cloud::sigv4::Credentials;
use cloud::token::CredentialSource;

/// Example of a session token.
const SESSION_TOKEN: &str = "session_token = { env = \"AWS_SESSION_TOKEN\" }, or { file = \"%d/session\" }";

pub(super) type Source = Arc<dyn CredentialSource>;

/// Reader of the sources.
pub(super) struct ChainReader<'r> {
    pub(super) table: &'r ConfigTable<'r>,
    pub(super) folder: &'r Path,
    pub(super) vault: &'r dyn Vault,
}

impl ChainReader<'_> {
    pub(super) fn settings(&self, credential: Option<&Secret>) -> SourceSettings {
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
            session_token: self.table.get("session_token").and_then(|value| {
                secret::read(&value.hidden(), "session token", SESSION_TOKEN, self.folder, self.vault)
            }),
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
    pub(super) fn source(
        &self,
        chain: &str,
        settings: &SourceSettings,
        region: &str,
    ) -> Result<Source, String> {
        if !self.vault.reads() {
            // Without the environment the chain cannot be known. No request is made with this configuration.
            return Ok(Arc::new(InstanceMetadata::new(None)));
        }
        match chain {
            "static" => self
                .fixed(settings)?
                .map_or_else(|| self.environment(), |fixed| Ok(Some(fixed)))?
                .ok_or_else(|| {
                    "a static source needs access_key_id, and the secret access key as the provider's `credential`; \
                     or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
                        .to_owned()
                }),
            "profile" => {
                let profile = self.profile_name(settings);
                self.profile(&profile, settings, region, 0)?.ok_or_else(|| {
                    format!("no shared file has access keys or a role of the profile {profile}")
                })
            }
            "web-identity" => self
                .web_identity(settings, region)?
                .ok_or_else(|| {
                    "a web identity needs token_file, or AWS_WEB_IDENTITY_TOKEN_FILE in the environment".to_owned()
                }),
            "container" => self.container(settings)?.ok_or_else(|| {
                "neither AWS_CONTAINER_CREDENTIALS_RELATIVE_URI nor AWS_CONTAINER_CREDENTIALS_FULL_URI is set"
                    .to_owned()
            }),
            "instance" => self.instance(settings),
            _ => self.chain(settings, region),
        }
    }

    /// Returns the first source that is configured: of the settings, then of the environment.
    fn chain(&self, settings: &SourceSettings, region: &str) -> Result<Source, String> {
        if let Some(fixed) = self.fixed(settings)? {
            return Ok(fixed);
        }
        if settings.token_file.is_some()
            && let Some(web) = self.web_identity(settings, region)?
        {
            return Ok(web);
        }
        if settings.profile.is_none()
            && let Some(keys) = self.environment()?
        {
            return Ok(keys);
        }
        let profile = self.profile_name(settings);
        if let Some(source) = self.profile(&profile, settings, region, 0)? {
            return Ok(source);
        }
        if settings.profile.is_some() {
            return Err(format!("no shared file has access keys or a role of the profile {profile}"));
        }
        // The role of the settings, if there is one, is assumed on top of that of the environment.
        let own = self
            .vault
            .env("AWS_ROLE_ARN")
            .map(|role| SourceSettings { role_arn: Some(role), ..settings.clone() });
        if let Some(source) = self.web_identity(own.as_ref().unwrap_or(settings), region)? {
            return Ok(source);
        }
        if let Some(source) = self.container(settings)? {
            return Ok(source);
        }
        if self.is_metadata_disabled() {
            let message = "no credentials are configured, and AWS_EC2_METADATA_DISABLED is set";
            return Err(message.to_owned());
        }
        self.instance(settings)
    }

    /// Returns the access keys of the settings; `None` without `access_key_id`.
    ///
    /// # Errors
    /// Returns which setting is missing beside another one.
    fn fixed(&self, settings: &SourceSettings) -> Result<Option<Source>, String> {
        let Some(id) = settings.key_id.as_deref() else {
            return match settings.session_token {
                Some(_) => Err("session_token has no effect without access_key_id".to_owned()),
                None => Ok(None),
            };
        };
        let Some(secret) = &settings.secret else {
            return Err("access_key_id needs the secret access key as the provider's `credential`".to_owned());
        };
        Ok(Some(Arc::new(Fixed(Credentials {
            access_key_id: id.into(),
            secret_access_key: secret.expose().into(),
            session_token: settings.session_token.as_ref().map(|token| token.expose().into()),
        }))))
    }

    /// Returns the access keys of the environment; `None` if it has none.
    ///
    /// # Errors
    /// Returns which variable is missing beside the other one.
    pub(super) fn environment(&self) -> Result<Option<Source>, String> {
        let env = |name: &str| self.vault.env(name).map(|text| text.trim().to_owned());
        let env = |name: &str| env(name).filter(|text| !text.is_empty());
        let (id, secret) = match (env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY")) {
            (Some(id), Some(secret)) => (id, secret),
            (None, None) => return Ok(None),
            (Some(_), None) => {
                return Err("AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not".to_owned());
            }
            (None, Some(_)) => {
                return Err("AWS_SECRET_ACCESS_KEY is set, but AWS_ACCESS_KEY_ID is not".to_owned());
            }
        };
        Ok(Some(Arc::new(Fixed(Credentials {
            access_key_id: id.into(),
            secret_access_key: secret.into(),
            session_token: env("AWS_SESSION_TOKEN").map(Into::into),
        }))))
    }

    /// Returns the web identity of the settings or of the environment; `None` without a token file.
    ///
    /// # Errors
    /// Returns that the role is missing.
    pub(super) fn web_identity(
        &self,
        settings: &SourceSettings,
        region: &str,
    ) -> Result<Option<Source>, String> {
        let file = settings.token_file.clone().or_else(|| self.vault.env("AWS_WEB_IDENTITY_TOKEN_FILE"));
        let Some(file) = file.filter(|file| !file.is_empty()) else { return Ok(None) };
        let role = settings.role_arn.clone().or_else(|| self.vault.env("AWS_ROLE_ARN"));
        let role = role.filter(|role| !role.is_empty());
        let role = role.ok_or_else(|| {
            format!("the web identity of {file} needs a role: role_arn, or AWS_ROLE_ARN in the environment")
        })?;
        let session =
            self.vault.env("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| settings.session_name.clone());
        Ok(Some(Arc::new(WebIdentity {
            token_file: self.folder.join(file),
            role_arn: role.into(),
            session_name: session.into(),
            region: region.into(),
            sts_url: settings.sts_url.as_deref().map(Into::into),
        })))
    }

    fn container(&self, settings: &SourceSettings) -> Result<Option<Source>, String> {
        let env = |name: &str| self.vault.env(name).filter(|text| !text.is_empty());
        let token =
            match (env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"), env("AWS_CONTAINER_AUTHORIZATION_TOKEN")) {
                (Some(file), _) => ContainerToken::File(PathBuf::from(file)),
                (None, Some(text)) => ContainerToken::Text(text.into()),
                (None, None) => ContainerToken::None,
            };
        // The setting precedes the environment; there the relative URI precedes the full one, as in the AWS SDKs.
        let relative = env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").filter(|_| settings.endpoint.is_none());
        let full = settings.endpoint.clone().or_else(|| env("AWS_CONTAINER_CREDENTIALS_FULL_URI"));
        Ok(match (relative, full) {
            (Some(path), _) => Some(Arc::new(Container::relative(&path, token)?)),
            (None, Some(url)) => Some(Arc::new(Container::full(&url, token)?)),
            (None, None) => None,
        })
    }

    fn is_metadata_disabled(&self) -> bool {
        self.vault
            .env("AWS_EC2_METADATA_DISABLED")
            .is_some_and(|text| text.trim().eq_ignore_ascii_case("true"))
    }

    /// Returns the URL of the instance metadata service; `None` for the IPv4 address of EC2.
    ///
    /// # Errors
    /// Returns that the mode is not known.
    fn instance_endpoint(&self, settings: &SourceSettings) -> Result<Option<String>, String> {
        let set = |variable: &str, name: &str| {
            let set =
                self.vault.env(variable).or_else(|| self.profile_value(&self.profile_name(settings), name));
            set.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let named = settings.endpoint.clone();
        let named =
            named.or_else(|| set("AWS_EC2_METADATA_SERVICE_ENDPOINT", "ec2_metadata_service_endpoint"));
        if named.is_some() {
            return Ok(named);
        }
        let variable = "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE";
        match set(variable, "ec2_metadata_service_endpoint_mode") {
            Some(mode) if mode.eq_ignore_ascii_case("ipv6") => Ok(Some(ENDPOINT_IPV6.to_owned())),
            Some(mode) if !mode.eq_ignore_ascii_case("ipv4") => {
                Err(format!("{variable} must be IPv4 or IPv6, not {mode}"))
            }
            Some(_) | None => Ok(None),
        }
    }

    pub(super) fn instance(&self, settings: &SourceSettings) -> Result<Source, String> {
        Ok(Arc::new(InstanceMetadata::new(self.instance_endpoint(settings)?.as_deref())))
    }

    /// Returns the region of the instance, which its metadata service is asked for; `None` if it does not answer.
    pub(super) fn instance_region(&self, settings: &SourceSettings) -> Option<String> {
        if !self.vault.reads() || self.is_metadata_disabled() {
            return None;
        }
        let endpoint = self.instance_endpoint(settings).ok()?;
        self.vault.instance_region(endpoint.as_deref().unwrap_or(ENDPOINT))
    }

    /// Returns the source with the role on top of it, if one is configured.
    pub(super) fn with_role(
        &self,
        base: Source,
        chain: &str,
        settings: &SourceSettings,
        region: &str,
    ) -> Source {
        // The role of the settings is that of the web identity itself, unless the environment names another one for it.
        let is_web = chain == "web-identity"
            || settings.token_file.is_some()
            || (base.name() == "web identity" && self.vault.env("AWS_ROLE_ARN").is_none());
        match &settings.role_arn {
            Some(role) if !is_web => self.role(base, role, settings, region),
            _ => base,
        }
    }

    pub(super) fn role(&self, base: Source, role: &str, settings: &SourceSettings, region: &str) -> Source {
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
}
