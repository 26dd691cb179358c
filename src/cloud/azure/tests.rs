use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::{
    AUTHORITY, AzureCredential, AzureIdentity, ClientProof, EntraApplication, EntraCertificate,
    IDENTITY_HOST, IdentityEndpoint, ManagedIdentity, SCOPE_FOUNDRY, SCOPE_OPENAI,
};
use crate::oauth::{AssertionAlgorithm, AssertionSigner, SecretText};
use crate::token::{Credential, CredentialSource, Lifetime, Step, StepResult, TokenExchange, TokenRequest};

const NOW: i64 = 1_700_000_000;

struct Fixed;

impl AssertionSigner for Fixed {
    fn sign(&self, algorithm: AssertionAlgorithm, _: &[u8]) -> Option<Vec<u8>> {
        assert_eq!(algorithm, AssertionAlgorithm::Ps256);
        Some(b"signature".to_vec())
    }

    fn key_hash(&self) -> [u8; 32] {
        [1; 32]
    }
}

fn application(proof: ClientProof) -> AzureCredential {
    let application = EntraApplication::new(AUTHORITY, "tenant-1", "client-1", proof).unwrap();
    AzureCredential::new(SCOPE_OPENAI, AzureIdentity::Application(application)).unwrap()
}

fn begin(credential: &AzureCredential) -> (Box<dyn TokenExchange>, Step) {
    let mut exchange = credential.begin();
    let step = exchange.advance(StepResult::Begin, NOW).unwrap();
    (exchange, step)
}

fn sent(step: Step) -> TokenRequest {
    match step {
        Step::Send(request) => request,
        other => panic!("{other:?}"),
    }
}

fn field(request: &TokenRequest, name: &str) -> Option<String> {
    let text = String::from_utf8(request.body.clone()).unwrap();
    let value = text.split('&').find_map(|pair| Some(pair.strip_prefix(name)?.strip_prefix('=')?.to_owned()));
    value.map(|value| percent_encoding::percent_decode_str(&value).decode_utf8().unwrap().into_owned())
}

#[test]
fn client_secret_is_exchanged_for_a_token() {
    let credential = application(ClientProof::Secret(SecretText::new("client~secret")));
    assert_eq!(credential.name(), "client secret");
    let (mut exchange, step) = begin(&credential);
    let request = sent(step);
    assert_eq!(request.method, Method::POST);
    assert_eq!(request.url, "https://login.microsoftonline.com/tenant-1/oauth2/v2.0/token");
    for (name, value) in [
        ("grant_type", "client_credentials"),
        ("client_id", "client-1"),
        ("client_secret", "client~secret"),
        ("scope", "https://cognitiveservices.azure.com/.default"),
    ] {
        assert_eq!(field(&request, name).as_deref(), Some(value));
    }
    let body = br#"{"token_type":"Bearer","expires_in":3599,"ext_expires_in":3599,"access_token":"eyJ0"}"#;
    let Step::Done(grant) = exchange.advance(StepResult::Response { status: 200, body }, NOW).unwrap() else {
        panic!("not done")
    };
    assert_eq!(grant.credential, Credential::Bearer("eyJ0".into()));
    assert_eq!(grant.lifetime, Lifetime::For(Duration::from_secs(3_599)));
}

#[test]
fn refused_client_secret_is_explained_without_it() {
    let credential = application(ClientProof::Secret(SecretText::new("client~secret")));
    let (mut exchange, _) = begin(&credential);
    let body = br#"{"error":"invalid_client","error_description":"AADSTS7000215: Invalid client secret client~secret provided.\r\nTrace ID: 1","error_codes":[7000215]}"#;
    let refused = exchange.advance(StepResult::Response { status: 401, body }, NOW).unwrap_err().to_string();
    assert_eq!(
        refused,
        "Microsoft Entra ID refuses with status 401: invalid_client: AADSTS7000215: Invalid client secret *** provided."
    );
    assert!(!format!("{credential:?}").contains("client~secret"));
}

#[test]
fn client_certificate_signs_an_assertion() {
    let certificate = EntraCertificate::new(b"certificate", Arc::new(Fixed));
    let credential = application(ClientProof::Certificate(certificate));
    let (_, first) = begin(&credential);
    let (_, second) = begin(&credential);
    let decoded = |step: Step| {
        let request = sent(step);
        let kind = field(&request, "client_assertion_type");
        assert_eq!(kind.as_deref(), Some("urn:ietf:params:oauth:client-assertion-type:jwt-bearer"));
        let assertion = field(&request, "client_assertion").unwrap();
        let parts = assertion.split('.').take(2);
        let parts = parts.map(|part| base64_simd::URL_SAFE_NO_PAD.decode_to_vec(part).unwrap());
        parts.map(|part| serde_json::from_slice(&part).unwrap()).collect::<Vec<Value>>()
    };
    let (first, second) = (decoded(first), decoded(second));
    assert_eq!(first[0]["alg"], "PS256");
    assert_eq!(first[0]["x5t#S256"].as_str().unwrap().len(), 43);
    assert_eq!(first[1]["aud"], "https://login.microsoftonline.com/tenant-1/oauth2/v2.0/token");
    assert_eq!((&first[1]["iss"], &first[1]["sub"]), (&"client-1".into(), &"client-1".into()));
    assert_eq!((&first[1]["nbf"], &first[1]["exp"]), (&(NOW - 10).into(), &(NOW + 590).into()));
    assert_ne!(first[1]["jti"], second[1]["jti"]);
}

#[test]
fn workload_identity_reads_its_token_file_for_each_token() {
    let credential = application(ClientProof::TokenFile("/var/run/token".into()));
    for token in ["first", "second"] {
        let (mut exchange, step) = begin(&credential);
        assert!(matches!(&step, Step::Read(path) if path.to_str() == Some("/var/run/token")));
        let request = sent(exchange.advance(StepResult::File(&format!("{token}\n")), NOW).unwrap());
        assert_eq!(field(&request, "client_assertion").as_deref(), Some(token));
    }
    let (mut exchange, _) = begin(&credential);
    let empty = exchange.advance(StepResult::File("\n"), NOW).unwrap_err();
    assert_eq!(empty.to_string(), "the token file /var/run/token is not valid: it is empty");
    let (mut exchange, _) = begin(&credential);
    let missing = exchange.advance(StepResult::Unreadable("no such file"), NOW).unwrap_err();
    assert_eq!(missing.to_string(), "the token file /var/run/token cannot be read: no such file");
}

#[test]
fn managed_identity_of_a_machine_and_of_app_service() {
    let machine = IdentityEndpoint::Machine(IDENTITY_HOST.into());
    let machine = ManagedIdentity::new(machine, Some("client-1")).unwrap();
    let credential = AzureCredential::new(SCOPE_FOUNDRY, AzureIdentity::Managed(machine)).unwrap();
    let (mut exchange, step) = begin(&credential);
    let request = sent(step);
    assert_eq!(
        request.url,
        "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01\
         &resource=https%3A%2F%2Fai.azure.com&client_id=client-1"
    );
    assert_eq!(request.headers["metadata"], "true");
    let body = br#"{"access_token":"t","expires_on":"1700003600","resource":"x","token_type":"Bearer"}"#;
    let step = exchange.advance(StepResult::Response { status: 200, body }, NOW).unwrap();
    assert!(matches!(step, Step::Done(grant) if grant.lifetime == Lifetime::Until(1_700_003_600)));

    let header = SecretText::new("identity-header");
    let app = IdentityEndpoint::AppService { url: "http://localhost:42356/msi/token/".into(), header };
    let app = ManagedIdentity::new(app, None).unwrap();
    let credential = AzureCredential::new(SCOPE_OPENAI, AzureIdentity::Managed(app)).unwrap();
    let request = sent(begin(&credential).1);
    assert_eq!(
        request.url,
        "http://localhost:42356/msi/token/?api-version=2019-08-01\
         &resource=https%3A%2F%2Fcognitiveservices.azure.com"
    );
    assert_eq!(request.headers["x-identity-header"], "identity-header");
    assert!(request.headers["x-identity-header"].is_sensitive());
}

#[test]
fn settings_with_faults_name_the_field() {
    let proof = || ClientProof::Secret(SecretText::new("s"));
    for (authority, tenant, client, field) in [
        ("http://login.example", "t", "c", "authority"),
        (AUTHORITY, "../t", "c", "tenant"),
        (AUTHORITY, "", "c", "tenant"),
        (AUTHORITY, "t", "c?d", "client_id"),
    ] {
        let error = EntraApplication::new(authority, tenant, client, proof()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("the field `{field}` ")), "{error}");
    }
    let far = IdentityEndpoint::AppService { url: "http://10.0.0.1/".into(), header: SecretText::new("h") };
    let error = ManagedIdentity::new(far, None).unwrap_err().to_string();
    assert!(error.starts_with("the field `IDENTITY_ENDPOINT` "), "{error}");
    for scope in ["", "/.default", "https://x", "a b/.default"] {
        let identity = EntraApplication::new(AUTHORITY, "t", "c", proof()).unwrap();
        assert!(AzureCredential::new(scope, AzureIdentity::Application(identity)).is_err(), "{scope}");
    }
}

#[test]
fn azure_arc_demands_a_file_of_its_agent() {
    let endpoint = || IdentityEndpoint::Arc("http://localhost:40342/metadata/identity/oauth2/token".into());
    let identity = ManagedIdentity::new(endpoint(), None).unwrap();
    let credential = AzureCredential::new(SCOPE_OPENAI, AzureIdentity::Managed(identity)).unwrap();
    let begin = || {
        let mut exchange = credential.begin();
        let request = sent(exchange.advance(StepResult::Begin, NOW).unwrap());
        (exchange, request)
    };
    let (mut exchange, request) = begin();
    assert_eq!(
        request.url,
        "http://localhost:40342/metadata/identity/oauth2/token?api-version=2019-11-01\
         &resource=https%3A%2F%2Fcognitiveservices.azure.com"
    );
    assert_eq!((request.headers["metadata"].to_str().unwrap(), request.reads_challenge), ("true", true));
    let file = "/var/opt/azcmagent/tokens/c7b2.key";
    let step = exchange.advance(StepResult::Challenge(&format!("Basic realm={file}")), NOW).unwrap();
    assert!(matches!(&step, Step::Read(path) if path.to_str() == Some(file)), "{step:?}");
    let request = sent(exchange.advance(StepResult::File("proof-of-the-agent\n"), NOW).unwrap());
    assert_eq!(
        (request.headers["authorization"].to_str().unwrap(), request.reads_challenge),
        ("Basic proof-of-the-agent", false)
    );
    let body = br#"{"access_token":"t","expires_on":"1700003600"}"#;
    let step = exchange.advance(StepResult::Response { status: 200, body }, NOW).unwrap();
    assert!(matches!(step, Step::Done(_)), "{step:?}");

    // A server that is not the agent must not get another file.
    for challenge in [
        "Basic realm=/etc/shadow",
        "Basic realm=/var/opt/azcmagent/tokens/../../../etc/x.key",
        "Basic realm=/var/opt/azcmagent/tokens/.key",
        "Basic realm=/var/opt/azcmagent/tokens/a",
        "Bearer realm=/var/opt/azcmagent/tokens/a.key",
        "",
    ] {
        let (mut exchange, _) = begin();
        let refused = exchange.advance(StepResult::Challenge(challenge), NOW).unwrap_err();
        assert_eq!(refused.label(), "invalid", "{challenge}");
    }
    let (mut exchange, _) = begin();
    exchange.advance(StepResult::Challenge(&format!("Basic realm={file}")), NOW).unwrap();
    let unreadable = exchange.advance(StepResult::Unreadable("permission denied"), NOW).unwrap_err();
    assert!(unreadable.to_string().contains("group himds"), "{unreadable}");
    let named = ManagedIdentity::new(endpoint(), Some("client")).unwrap_err();
    assert!(named.to_string().contains("Azure Arc"), "{named}");
}
