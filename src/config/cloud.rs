//! Credentials of cloud platforms in `[[provider]]`, which stand in place of `credential`.

use std::path::Path;
use std::sync::Arc;

use super::node::{ConfigTable, Value};
use super::secret::Vault;
use super::{azure, google};
use cloud::token::CredentialSource;
use codec::provider::{CloudAccess, Provider, ProviderKind};

/// Header that names the project that Google charges (Google Cloud, "Set the quota project").
const QUOTA_PROJECT: http::HeaderName = http::HeaderName::from_static("x-goog-user-project");

/// Credential of a cloud platform.
#[derive(Default)]
pub(super) struct CloudCredential {
    /// Whether one is configured, with faults or not.
    pub(super) is_set: bool,
    /// `None` after a fault, and if secrets are not read.
    source: Option<Arc<dyn CredentialSource>>,
    /// Project that Google charges; `None` for that of the account.
    quota_project: Option<http::HeaderValue>,
}

/// Reads `google` and `azure` of a provider.
pub(super) fn read(
    table: &ConfigTable<'_>,
    kind: Option<ProviderKind>,
    folder: &Path,
    vault: &dyn Vault,
) -> CloudCredential {
    let mut cloud = CloudCredential::default();
    if let Some(value) = table.get("google") {
        cloud.is_set = true;
        check_kind(&value, "google", kind, &google::KINDS);
        if let Some(credential) = google::read(&value, folder, vault) {
            let project = credential.quota_project();
            cloud.quota_project = project.and_then(|project| http::HeaderValue::from_str(project).ok());
            cloud.source = Some(Arc::new(credential));
        }
    }
    if let Some(value) = table.get("azure") {
        cloud.is_set = true;
        check_kind(&value, "azure", kind, &azure::KINDS);
        if let Some(credential) = azure::read(&value, kind, folder, vault) {
            cloud.source = Some(Arc::new(credential));
        }
    }
    if let Some(value) = table.get("aws").filter(|_| cloud.is_set) {
        value.wrong("a provider has the credentials of one cloud platform only", None);
    }
    cloud
}

/// Reports a platform whose tokens the provider does not take.
fn check_kind(value: &Value<'_>, key: &str, kind: Option<ProviderKind>, kinds: &[ProviderKind]) {
    if kind.is_some_and(|kind| !kinds.contains(&kind)) {
        let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        let hint = format!("remove `{key}`, or choose one of the kinds {}", names.join(", "));
        value.wrong(format!("providers of this kind do not take tokens of {key}"), hint);
    }
}

impl CloudCredential {
    /// Sets the credential of a provider.
    pub(super) fn apply(self, provider: &mut Provider) {
        if let Some(source) = self.source {
            provider.cloud = Some(CloudAccess { source, signing: None });
        }
        let is_named = provider.headers.iter().any(|(name, _)| *name == QUOTA_PROJECT);
        provider
            .headers
            .extend(self.quota_project.filter(|_| !is_named).map(|project| (QUOTA_PROJECT, project)));
    }
}
