//! Shared files of the AWS tools: profiles, and the ways in which they lead to credentials.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::SourceSettings;
use super::chain::{ChainReader, Source};
use cloud::aws::{ProfileFile, SharedProfile, profile_setting};

/// Settings of profiles that are not supported, and what they demand.
const UNSUPPORTED: [(&str, &str); 4] = [
    ("sso_session", "it signs in with a browser"),
    ("sso_start_url", "it signs in with a browser"),
    ("login_session", "it signs in with a browser"),
    ("credential_process", "it runs a program"),
];
/// Largest number of profiles that lead to each other.
const MAX_PROFILES: usize = 8;

impl ChainReader<'_> {
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
    pub(super) fn profile_value(&self, profile: &str, name: &str) -> Option<String> {
        self.files().into_iter().find_map(|(kind, path)| {
            let text = self.vault.file(&path).ok()?;
            profile_setting(&text, kind, profile, name).map(str::to_owned)
        })
    }

    pub(super) fn profile_region(&self, settings: &SourceSettings) -> Option<String> {
        self.profile_value(&self.profile_name(settings), "region")
    }

    /// Returns the source of a profile; `None` if there is no such profile.
    ///
    /// # Errors
    /// Returns what is wrong with the profile.
    pub(super) fn profile(
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
        if depth == 0 {
            self.check_files(settings)?;
        }
        let Some(role) = value("role_arn") else {
            if value("aws_access_key_id").is_some() {
                return Ok(Some(keys()));
            }
            // Without this fault the next source of the chain would be asked, and blamed for a profile that it knows
            // nothing of.
            let unsupported = UNSUPPORTED.into_iter().find(|(setting, _)| value(setting).is_some());
            return match unsupported {
                Some((setting, way)) => Err(format!(
                    "the profile {profile} has {setting}: {way}, which a gateway does not do; write its credentials \
                     into the environment or a shared file (`aws configure export-credentials`), or set source or \
                     profile"
                )),
                None => Ok(None),
            };
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
            session_token: None,
            profile: None,
            endpoint: settings.endpoint.clone(),
            sts_url: settings.sts_url.clone(),
        };
        if own.token_file.is_some() {
            return self.web_identity(&own, region);
        }
        let base = match (value("source_profile"), value("credential_source").as_deref()) {
            // A profile may be its own source: its access keys assume its role.
            (Some(source), _) if source == profile => keys(),
            (Some(source), _) => self
                .profile(&source, settings, region, depth + 1)?
                .ok_or_else(|| format!("the source_profile {source} of {profile} has no access keys"))?,
            (None, Some("Ec2InstanceMetadata")) => self.instance(settings)?,
            (None, Some("EcsContainer")) => self.source("container", settings, region)?,
            (None, Some("Environment")) => self.environment()?.ok_or_else(|| {
                format!("the profile {profile} takes its keys from the environment, which has none")
            })?,
            (None, Some(other)) => {
                return Err(format!(
                    "the profile {profile} has the credential_source {other}, which is not Environment, \
                     Ec2InstanceMetadata or EcsContainer"
                ));
            }
            (None, None) => {
                return Err(format!(
                    "the profile {profile} has a role, but no source_profile or credential_source"
                ));
            }
        };
        Ok(Some(self.role(base, &role, &own, region)))
    }

    pub(super) fn profile_name(&self, settings: &SourceSettings) -> String {
        let named = settings.profile.clone().or_else(|| self.vault.env("AWS_PROFILE"));
        named.unwrap_or_else(|| "default".to_owned())
    }

    /// Checks that the shared files can be read if the configuration or the environment names them or a profile. A
    /// missing file is no fault, as in the AWS tools.
    ///
    /// # Errors
    /// Returns which file cannot be read.
    fn check_files(&self, settings: &SourceSettings) -> Result<(), String> {
        let variables = ["AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"];
        let is_named = |name: &&str| self.vault.env(name).is_some_and(|text| !text.is_empty());
        if settings.profile.is_none() && !variables.iter().any(is_named) {
            // Often the folder of a user whom the gateway has nothing to do with.
            return Ok(());
        }
        for (_, path) in self.files() {
            match self.vault.file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(format!("the shared file {} cannot be read: {error}", path.display()));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }
}
