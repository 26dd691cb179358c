//! `google` and `azure` of a provider: the places of credentials, and faults in words.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::Vault;
use crate::report::Report;
use crate::routes::read_files;
use crate::sources::SourceText;
use codec::provider::Provider;

const RSA_KEY: &str = include_str!("../../../tests/support/cloud/rsa_key.pem");
const CERTIFICATE: &str = include_str!("../../../tests/support/cloud/certificate.pem");

/// Environment and files of a test.
#[derive(Default)]
pub(super) struct Machine {
    env: HashMap<&'static str, String>,
    files: HashMap<&'static str, String>,
    /// File that exists and cannot be read.
    unreadable: Option<&'static str>,
    /// Region of the instance.
    region: Option<&'static str>,
}

impl Machine {
    pub(super) fn env(mut self, name: &'static str, text: &str) -> Self {
        self.env.insert(name, text.to_owned());
        self
    }

    pub(super) fn file(mut self, path: &'static str, text: &str) -> Self {
        self.files.insert(path, text.to_owned());
        self
    }

    pub(super) fn unreadable(mut self, path: &'static str) -> Self {
        self.unreadable = Some(path);
        self
    }

    pub(super) fn region(mut self, region: &'static str) -> Self {
        self.region = Some(region);
        self
    }

    /// Reads a provider with these lines. Returns the name of its source, or the report.
    pub(super) fn read(&self, kind: &str, lines: &str) -> Result<&'static str, Report> {
        Ok(self.provider(kind, lines)?.cloud.as_ref().unwrap().source.name())
    }

    pub(super) fn provider(&self, kind: &str, lines: &str) -> Result<Arc<Provider>, Report> {
        let text =
            format!("[[provider]]\nname = \"p\"\nkind = \"{kind}\"\nbase_url = \"https://h/v1\"\n{lines}\n");
        let file = SourceText { path: Path::new("/conf/routes.toml"), text: &text };
        let routed =
            read_files(&[file], &Arc::default(), self, &|_| Err(std::io::ErrorKind::NotFound.into()))?;
        Ok(routed.routes.providers().first().cloned().unwrap())
    }

    pub(super) fn fault(&self, kind: &str, lines: &str) -> String {
        let report = self.read(kind, lines).unwrap_err();
        assert!(!format!("{report} {report:?}").contains("HUSH"), "{report}");
        report.to_string()
    }
}

impl Vault for Machine {
    fn env(&self, name: &str) -> Option<String> {
        self.env.get(name).cloned()
    }

    fn file(&self, path: &Path) -> std::io::Result<String> {
        if self.unreadable.is_some_and(|unreadable| path == Path::new(unreadable)) {
            return Err(std::io::ErrorKind::PermissionDenied.into());
        }
        let found = path.to_str().and_then(|path| self.files.get(path));
        found.cloned().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }

    fn instance_region(&self, _endpoint: &str) -> Option<String> {
        self.region.map(str::to_owned)
    }
}

fn service_account(key: &str) -> String {
    serde_json::json!({ "type": "service_account", "private_key": key, "client_email": "a@b" }).to_string()
}

const USER: &str =
    r#"{"type":"authorized_user","client_id":"c","client_secret":"HUSH","refresh_token":"HUSH"}"#;

#[test]
fn google_default_credentials_are_looked_for_in_their_order() {
    let default = "google = { source = \"default\" }";
    let machine = Machine::default();
    assert_eq!(machine.read("vertex", default).unwrap(), "metadata server");
    let gcloud = "/users/a/.config/gcloud/application_default_credentials.json";
    let machine = machine.env("HOME", "/users/a").file(gcloud, USER);
    assert_eq!(machine.read("vertex-anthropic", default).unwrap(), "authorized user");
    let machine =
        machine.env("GOOGLE_APPLICATION_CREDENTIALS", "/sa.json").file("/sa.json", &service_account(RSA_KEY));
    assert_eq!(machine.read("openai-compatible", default).unwrap(), "service account");
    // A file that is named must be there: no other identity takes its place.
    let machine = machine.env("GOOGLE_APPLICATION_CREDENTIALS", "/missing.json");
    let fault = machine.fault("vertex", default);
    assert!(fault.contains("GOOGLE_APPLICATION_CREDENTIALS: /missing.json: "), "{fault}");
}

#[test]
fn google_credentials_are_read_from_files_and_variables() {
    let machine = Machine::default()
        .env("CREDENTIALS_DIRECTORY", "/run/c")
        .env("USER_FILE", USER)
        .file("/run/c/sa", &service_account(RSA_KEY))
        .file("/conf/user.json", USER);
    for (lines, name) in [
        ("google = { file = \"%d/sa\" }", "service account"),
        ("google = { file = \"user.json\" }", "authorized user"),
        ("google = { env = \"USER_FILE\" }", "authorized user"),
        ("google = { source = \"metadata\", service_account = \"a@b.iam\" }", "metadata server"),
    ] {
        assert_eq!(machine.read("vertex", lines).unwrap(), name, "{lines}");
    }
}

#[test]
fn google_faults_say_what_is_wrong() {
    let machine = Machine::default()
        .file("/conf/broken.json", &service_account("HUSH"))
        .file("/conf/escaped.json", &service_account(&RSA_KEY.replace('\n', "\\n")))
        .file("/conf/text.json", "HUSH")
        .file("/conf/cut.json", &service_account("HUSH")[..40])
        .file("/conf/keyless.json", r#"{"type":"service_account","client_email":"HUSH@b"}"#)
        .file("/conf/nameless.json", &service_account(RSA_KEY).replace("a@b", "HUSH"))
        .file("/conf/client.json", r#"{"installed":{"client_id":"c","client_secret":"HUSH"}}"#)
        .file(
            "/conf/public.json",
            &service_account("-----BEGIN PUBLIC KEY-----\nHUSH\n-----END PUBLIC KEY-----\n"),
        )
        .env("GCE_METADATA_HOST", "metadata.example");
    for (kind, lines, expected) in [
        ("vertex", "google = {}", "exactly one of source, file and env"),
        ("vertex", "google = { source = \"default\", file = \"a\" }", "exactly one of source, file and env"),
        ("vertex", "google = { source = \"defualt\" }", "did you mean \"default\"?"),
        (
            "vertex",
            "google = { source = \"metadata\" }",
            "the field `GCE_METADATA_HOST` must start with https://",
        ),
        ("vertex", "google = { file = \"no.json\" }", "/conf/no.json: "),
        (
            "vertex",
            "google = { file = \"text.json\" }",
            "/conf/text.json is no credential of Google Cloud: it is no JSON object",
        ),
        ("vertex", "google = { file = \"broken.json\" }", "the field `private_key` is no private key in PEM"),
        ("vertex", "google = { file = \"escaped.json\" }", "in place of line feeds"),
        (
            "vertex",
            "google = { file = \"cut.json\" }",
            "/conf/cut.json is no credential of Google Cloud: it is no JSON",
        ),
        ("vertex", "google = { file = \"keyless.json\" }", "the field `private_key` is missing"),
        (
            "vertex",
            "google = { file = \"nameless.json\" }",
            "the field `client_email` must be the email address",
        ),
        (
            "vertex",
            "google = { file = \"client.json\" }",
            "the field `type` is missing: the file is that of an OAuth client",
        ),
        ("vertex", "google = { file = \"public.json\" }", "the field `private_key` is no private key in PEM"),
        ("vertex", "google = { env = \"NONE\" }", "the environment variable NONE is not set"),
        (
            "vertex",
            "google = { file = \"a\", service_account = \"b\" }",
            "service_account selects an account of the metadata server",
        ),
        (
            "anthropic",
            "google = { source = \"default\" }",
            "providers of this kind do not take tokens of google",
        ),
        (
            "vertex",
            "google = { source = \"default\" }\ncredential = { value = \"HUSH\" }",
            "either credential or the tokens of a cloud platform",
        ),
        ("vertex", "", "credential"),
    ] {
        let fault = machine.fault(kind, lines);
        assert!(fault.contains(expected), "{lines}: {fault}");
    }
}

const UUID: &str = "11111111-2222-3333-4444-55555555AAbb";

#[test]
fn azure_sources_take_what_is_missing_from_the_environment() {
    let machine = Machine::default()
        .env("AZURE_TENANT_ID", "contoso.onmicrosoft.com")
        .env("AZURE_CLIENT_ID", UUID)
        .file("/conf/app.pem", &format!("{RSA_KEY}{CERTIFICATE}"));
    for (lines, name) in [
        ("azure = { source = \"client-secret\", client_secret = { value = \"HUSH\" } }", "client secret"),
        ("azure = { source = \"client-certificate\", certificate = \"app.pem\" }", "client certificate"),
        ("azure = { source = \"workload-identity\", token_file = \"/var/token\" }", "workload identity"),
        ("azure = { source = \"managed-identity\" }", "managed identity"),
        ("azure = { source = \"default\" }", "managed identity"),
    ] {
        for kind in ["azure", "azure-anthropic"] {
            assert_eq!(machine.read(kind, lines).unwrap(), name, "{lines}");
        }
    }
    let default = "azure = { source = \"default\" }";
    let machine = machine.env("AZURE_FEDERATED_TOKEN_FILE", "/var/token");
    assert_eq!(machine.read("azure", default).unwrap(), "workload identity");
    let machine = machine.env("AZURE_CLIENT_SECRET", "HUSH");
    assert_eq!(machine.read("azure", default).unwrap(), "client secret");
}

#[test]
fn azure_faults_say_what_is_wrong() {
    let machine = Machine::default().file("/conf/key.pem", RSA_KEY).file("/conf/cert.pem", CERTIFICATE);
    let arc = Machine::default().env("IDENTITY_ENDPOINT", "http://localhost:40342/x");
    let secret = "source = \"client-secret\", client_secret = { value = \"HUSH\" }";
    for (machine, lines, expected) in [
        (&machine, "azure = {}".to_owned(), "source"),
        (&machine, "azure = { source = \"managed\" }".to_owned(), "managed-identity"),
        (
            &machine,
            format!("azure = {{ {secret} }}"),
            "`tenant` is missing, and the environment variable AZURE_TENANT_ID is not set",
        ),
        (&machine, format!("azure = {{ {secret}, tenant = \"t\" }}"), "`client_id` is missing"),
        (
            &machine,
            format!("azure = {{ {secret}, tenant = \"a/b\", client_id = \"c\" }}"),
            "the field `tenant` must have letters",
        ),
        (
            &machine,
            format!(
                "azure = {{ {secret}, tenant = \"t\", client_id = \"c\", authority = \"http://login.example\" }}"
            ),
            "the field `authority` must start with https://",
        ),
        (
            &machine,
            format!("azure = {{ {secret}, tenant = \"{UUID}\", client_id = \"{UUID}\", scope = \"x\" }}"),
            "the field `scope` must be",
        ),
        (
            &machine,
            format!("azure = {{ {secret}, tenant = \"common\", client_id = \"{UUID}\" }}"),
            "the field `tenant` must be the UUID of the directory",
        ),
        (
            &machine,
            format!("azure = {{ {secret}, tenant = \"{UUID}0\", client_id = \"{UUID}\" }}"),
            "the field `tenant` must be the UUID of the directory",
        ),
        (
            &machine,
            format!("azure = {{ {secret}, tenant = \"contoso.com\", client_id = \"my-gateway\" }}"),
            "the field `client_id` must be the UUID of the application (client)",
        ),
        (&machine, "azure = { source = \"client-secret\" }".to_owned(), "`client_secret` is missing"),
        (
            &machine,
            "azure = { source = \"managed-identity\", token_file = \"t\" }".to_owned(),
            "token_file has no effect with source = \"managed-identity\"",
        ),
        (
            &machine,
            "azure = { source = \"client-certificate\", certificate = \"key.pem\" }".to_owned(),
            "/conf/key.pem has no certificate in PEM",
        ),
        (
            &machine,
            "azure = { source = \"client-certificate\", certificate = \"cert.pem\" }".to_owned(),
            "the private key in /conf/cert.pem is no private key",
        ),
        (
            &machine,
            "azure = { source = \"workload-identity\" }".to_owned(),
            "AZURE_FEDERATED_TOKEN_FILE is not set",
        ),
        (
            &arc,
            "azure = { source = \"managed-identity\" }".to_owned(),
            "IDENTITY_ENDPOINT is set without IDENTITY_HEADER (App Service) and without IMDS_ENDPOINT (Azure Arc)",
        ),
    ] {
        let fault = machine.fault("azure", &lines);
        assert!(fault.contains(expected), "{lines}: {fault}");
    }
}
