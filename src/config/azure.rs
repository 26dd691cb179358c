//! `[provider.azure]`: where the access tokens of Azure come from.

use std::path::{Path, PathBuf};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::node::{ConfigTable, Value};
use super::routes::one_of;
use super::secret::{self, Vault};
use super::signing_key::rsa_signer;
use cloud::azure::{
    AUTHORITY, AzureCredential, AzureIdentity, ClientProof, EntraApplication, EntraCertificate,
    IDENTITY_HOST, IdentityEndpoint, ManagedIdentity, SCOPE_FOUNDRY, SCOPE_OPENAI,
};
use cloud::oauth::SecretText;
use codec::provider::ProviderKind;

/// Kinds of providers whose services take access tokens of Azure.
pub(super) const KINDS: [ProviderKind; 2] = [ProviderKind::Azure, ProviderKind::AzureAnthropic];

/// Values of `source`.
pub(super) const SOURCES: [&str; 5] =
    ["default", "client-secret", "client-certificate", "managed-identity", "workload-identity"];

/// Beginning of the addresses of Microsoft Entra ID, in all clouds.
const ENTRA_HOSTS: &str = "https://login.";

/// Settings as they are written.
struct Settings {
    source: String,
    tenant: Option<String>,
    client_id: Option<String>,
    client_secret: Option<SecretText>,
    certificate: Option<PathBuf>,
    token_file: Option<PathBuf>,
    authority: Option<String>,
    scope: Option<String>,
}

/// Reads the credential of a provider. `None` after a fault, and if secrets are not read.
pub(super) fn read(
    value: &Value<'_>,
    kind: Option<ProviderKind>,
    folder: &Path,
    vault: &dyn Vault,
) -> Option<AzureCredential> {
    let settings = value.as_table(|table| read_settings(table, folder, vault))??;
    if !vault.reads() {
        return None;
    }
    let usual = if kind == Some(ProviderKind::AzureAnthropic) { SCOPE_FOUNDRY } else { SCOPE_OPENAI };
    let scope = settings.scope.clone().unwrap_or_else(|| usual.to_owned());
    let identity = settings.identity(folder, vault);
    let credential = identity
        .and_then(|identity| AzureCredential::new(&scope, identity).map_err(|error| error.to_string()));
    credential.map_err(|reason| value.wrong(reason, None)).ok()
}

fn read_settings(table: &ConfigTable<'_>, folder: &Path, vault: &dyn Vault) -> Option<Settings> {
    const EXAMPLE: &str = "client_secret = { env = \"AZURE_CLIENT_SECRET\" }, or { file = \"%d/azure\" }";
    let source =
        table.require("source", "source = \"managed-identity\"").and_then(|value| {
            value.parsed(|text| {
                if SOURCES.contains(&text) { Ok(text.to_owned()) } else { Err(one_of(text, &SOURCES)) }
            })
        });
    let secret = table.get("client_secret").map(Value::hidden);
    let has_secret = secret.is_some();
    let secret = secret.and_then(|value| secret::read(&value, "client secret", EXAMPLE, folder, vault));
    let settings = Settings {
        source: String::new(),
        tenant: table.string("tenant"),
        client_id: table.string("client_id"),
        client_secret: secret.map(|secret| SecretText::new(secret.expose())),
        certificate: table.string("certificate").map(PathBuf::from),
        token_file: table.string("token_file").map(PathBuf::from),
        authority: table.string("authority"),
        scope: table.string("scope"),
    };
    let source = source?;
    // A setting of another source would have no effect, which is certainly not meant.
    for (key, is_set, owner) in [
        ("client_secret", has_secret, "client-secret"),
        ("certificate", settings.certificate.is_some(), "client-certificate"),
        ("token_file", settings.token_file.is_some(), "workload-identity"),
    ] {
        if is_set && source != owner {
            table.wrong(
                format!("{key} has no effect with source = \"{source}\""),
                format!("remove `{key}`, or set `source = \"{owner}\"`"),
            );
        }
    }
    Some(Settings { source, ..settings })
}

impl Settings {
    fn identity(&self, folder: &Path, vault: &dyn Vault) -> Result<AzureIdentity, String> {
        match &*self.source {
            "client-secret" => self.with_secret(vault),
            "client-certificate" => self.with_certificate(folder, vault),
            "workload-identity" => self.with_token_file(folder, vault),
            "managed-identity" => self.managed(vault),
            // As the SDKs of Azure have it (DefaultAzureCredential): the environment's application, the workload's
            // identity, that of the machine.
            _ if named(vault, "AZURE_CLIENT_SECRET").is_some() => self.with_secret(vault),
            _ if named(vault, "AZURE_CLIENT_CERTIFICATE_PATH").is_some() => {
                self.with_certificate(folder, vault)
            }
            _ if named(vault, "AZURE_FEDERATED_TOKEN_FILE").is_some() => self.with_token_file(folder, vault),
            _ => self.managed(vault),
        }
    }

    fn with_secret(&self, vault: &dyn Vault) -> Result<AzureIdentity, String> {
        let secret = self.client_secret.clone();
        let secret = secret.or_else(|| named(vault, "AZURE_CLIENT_SECRET").map(SecretText::new));
        let secret = secret.ok_or_else(|| missing("client_secret", "AZURE_CLIENT_SECRET"))?;
        self.application(ClientProof::Secret(secret), vault)
    }

    fn with_certificate(&self, folder: &Path, vault: &dyn Vault) -> Result<AzureIdentity, String> {
        let path =
            self.path(&self.certificate, "certificate", "AZURE_CLIENT_CERTIFICATE_PATH", folder, vault)?;
        let shown = path.display();
        let pem = vault.file(&path).map_err(|error| format!("{shown}: {error}"))?;
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| format!("{shown} has no certificate in PEM"))?;
        let signer = rsa_signer(&pem).map_err(|reason| format!("the private key in {shown} {reason}"))?;
        let certificate = EntraCertificate::new(&certificate, signer);
        self.application(ClientProof::Certificate(certificate), vault)
    }

    fn with_token_file(&self, folder: &Path, vault: &dyn Vault) -> Result<AzureIdentity, String> {
        // The file is read for each token, because its platform replaces it: not here.
        let path = self.path(&self.token_file, "token_file", "AZURE_FEDERATED_TOKEN_FILE", folder, vault)?;
        self.application(ClientProof::TokenFile(path), vault)
    }

    fn managed(&self, vault: &dyn Vault) -> Result<AzureIdentity, String> {
        let app = (named(vault, "IDENTITY_ENDPOINT"), named(vault, "IDENTITY_HEADER"));
        let endpoint = match app {
            (Some(url), Some(header)) => {
                IdentityEndpoint::AppService { url: url.into(), header: SecretText::new(header) }
            }
            (Some(url), None) if named(vault, "IMDS_ENDPOINT").is_some() => IdentityEndpoint::Arc(url.into()),
            (Some(_), None) => {
                return Err(
                    "IDENTITY_ENDPOINT is set without IDENTITY_HEADER (App Service) and without IMDS_ENDPOINT \
                     (Azure Arc)"
                        .to_owned(),
                );
            }
            (None, _) => {
                let host = named(vault, "AZURE_POD_IDENTITY_AUTHORITY_HOST");
                IdentityEndpoint::Machine(host.unwrap_or_else(|| IDENTITY_HOST.to_owned()).into())
            }
        };
        let identity = ManagedIdentity::new(endpoint, self.client_id.as_deref());
        identity.map(AzureIdentity::Managed).map_err(|error| error.to_string())
    }

    fn application(&self, proof: ClientProof, vault: &dyn Vault) -> Result<AzureIdentity, String> {
        let id = |set: &Option<String>, key: &str, variable: &str| {
            set.clone().or_else(|| named(vault, variable)).ok_or_else(|| missing(key, variable))
        };
        let tenant = id(&self.tenant, "tenant", "AZURE_TENANT_ID")?;
        let client_id = id(&self.client_id, "client_id", "AZURE_CLIENT_ID")?;
        let authority = self.authority.clone().or_else(|| named(vault, "AZURE_AUTHORITY_HOST"));
        let authority = authority.as_deref().unwrap_or(AUTHORITY);
        let application = EntraApplication::new(authority, &tenant, &client_id, proof);
        let application = application.map_err(|error| error.to_string())?;
        if authority.starts_with(ENTRA_HOSTS) {
            check_names(&tenant, &client_id)?;
        }
        Ok(AzureIdentity::Application(application))
    }

    /// Returns a path that is set here or in the environment.
    fn path(
        &self,
        set: &Option<PathBuf>,
        key: &str,
        variable: &str,
        folder: &Path,
        vault: &dyn Vault,
    ) -> Result<PathBuf, String> {
        match set {
            Some(path) => secret::expand(path, folder, vault),
            None => named(vault, variable).map(PathBuf::from).ok_or_else(|| missing(key, variable)),
        }
    }
}

/// Checks the names of a tenant and of an application in Entra ID, which refuses others with a message that says less.
fn check_names(tenant: &str, client_id: &str) -> Result<(), String> {
    // `common`, `organizations` and `consumers` are tenants for the sign-in of users only.
    if !is_uuid(tenant) && !tenant.contains('.') {
        return Err("the field `tenant` must be the UUID of the directory, or one of its domains, such as \
                    contoso.onmicrosoft.com"
            .to_owned());
    }
    if !is_uuid(client_id) {
        return Err(
            "the field `client_id` must be the UUID of the application (client), not its name".to_owned()
        );
    }
    Ok(())
}

/// Returns whether a text is a UUID with hyphens.
fn is_uuid(text: &str) -> bool {
    let mut parts = text.split('-');
    [8, 4, 4, 4, 12].into_iter().all(|length| {
        parts
            .next()
            .is_some_and(|part| part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
    }) && parts.next().is_none()
}

/// Returns an environment variable that is not empty.
fn named(vault: &dyn Vault, name: &str) -> Option<String> {
    vault.env(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn missing(key: &str, variable: &str) -> String {
    format!("`{key}` is missing, and the environment variable {variable} is not set")
}
