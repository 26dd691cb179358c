use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{GoogleCredential, MetadataServer};
use crate::oauth::{AssertionAlgorithm, AssertionSigner, CredentialFileError};
use crate::token::{
    Credential, CredentialSource, Grant, Lifetime, Step, StepResult, TokenError, TokenExchange, TokenRequest,
};

mod aws_subject;

use aws_subject::VERIFICATION;

const NOW: i64 = 1_700_000_000;

/// Signer whose signature is the length of the message.
struct Lengths;

impl AssertionSigner for Lengths {
    fn sign(&self, algorithm: AssertionAlgorithm, message: &[u8]) -> Option<Vec<u8>> {
        assert_eq!(algorithm, AssertionAlgorithm::Rs256);
        Some(message.len().to_string().into_bytes())
    }

    fn key_hash(&self) -> [u8; 32] {
        [7; 32]
    }
}

fn signer(pem: &str) -> Result<Arc<dyn AssertionSigner>, String> {
    if pem.starts_with("-----BEGIN") { Ok(Arc::new(Lengths)) } else { Err("is no private key".to_owned()) }
}

fn parse(file: &Value) -> Result<GoogleCredential, CredentialFileError> {
    GoogleCredential::parse(&file.to_string(), &signer, &|_| None)
}

fn service_account() -> Value {
    json!({
        "type": "service_account", "project_id": "p", "private_key_id": "key-1",
        "private_key": "-----BEGIN PRIVATE KEY-----", "client_email": "gateway@p.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.googleapis.com/token", "universe_domain": "googleapis.com",
    })
}

fn external(source: Value) -> Value {
    json!({
        "type": "external_account", "audience": "//iam.googleapis.com/projects/1/x",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.googleapis.com/v1/token", "credential_source": source,
    })
}

fn sent(step: Step) -> TokenRequest {
    match step {
        Step::Send(request) => request,
        other => panic!("{other:?}"),
    }
}

fn form(request: &TokenRequest) -> Vec<(String, String)> {
    let text = String::from_utf8(request.body.clone()).unwrap();
    let pairs = text.split('&').map(|pair| {
        let (name, value) = pair.split_once('=').unwrap();
        (name.to_owned(), percent_encoding::percent_decode_str(value).decode_utf8().unwrap().into_owned())
    });
    pairs.collect()
}

fn field(request: &TokenRequest, name: &str) -> String {
    form(request).into_iter().find(|(field, _)| field == name).unwrap_or_else(|| panic!("{name}")).1
}

fn token(text: &str) -> String {
    json!({ "access_token": text, "expires_in": 3599, "token_type": "Bearer" }).to_string()
}

fn ok(body: &str) -> StepResult<'_> {
    StepResult::Response { status: 200, body: body.as_bytes() }
}

fn grant(step: Step) -> Grant {
    match step {
        Step::Done(grant) => grant,
        other => panic!("{other:?}"),
    }
}

fn bearer(grant: &Grant) -> &str {
    match &grant.credential {
        Credential::Bearer(token) => token,
        other => panic!("{other:?}"),
    }
}

fn begin(credential: &GoogleCredential) -> (Box<dyn TokenExchange>, Step) {
    let mut exchange = credential.begin();
    let step = exchange.advance(StepResult::Begin, NOW).unwrap();
    (exchange, step)
}

#[test]
fn service_account_exchanges_an_assertion() {
    let mut file = service_account();
    file["token_uri"] = json!("https://oauth2.example.com/token");
    let credential = parse(&file).unwrap();
    assert_eq!(credential.name(), "service account");
    let (mut exchange, step) = begin(&credential);
    let request = sent(step);
    assert_eq!((&request.method, &*request.url), (&Method::POST, "https://oauth2.example.com/token"));
    assert_eq!(field(&request, "grant_type"), "urn:ietf:params:oauth:grant-type:jwt-bearer");
    let assertion = field(&request, "assertion");
    let parts: Vec<Vec<u8>> =
        assertion.split('.').map(|part| base64_simd::URL_SAFE_NO_PAD.decode_to_vec(part).unwrap()).collect();
    let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    assert_eq!(json(&parts[0]), json!({ "alg": "RS256", "typ": "JWT", "kid": "key-1" }));
    assert_eq!(
        json(&parts[1]),
        json!({
            "iss": "gateway@p.iam.gserviceaccount.com", "scope": "https://www.googleapis.com/auth/cloud-platform",
            "aud": "https://oauth2.example.com/token", "iat": NOW - 10, "exp": NOW - 10 + 3_600,
        })
    );
    assert_eq!(parts[2], assertion.rsplit_once('.').unwrap().0.len().to_string().into_bytes());
    let granted = grant(exchange.advance(ok(&token("ya29.a")), NOW).unwrap());
    assert_eq!(bearer(&granted), "ya29.a");
    assert_eq!(granted.lifetime, Lifetime::For(Duration::from_secs(3_599)));
}

#[test]
fn authorized_user_sends_its_refresh_token_and_no_error_repeats_it() {
    let file = json!({
        "type": "authorized_user", "client_id": "id", "client_secret": "client+secret", "refresh_token": "1//refresh",
        "quota_project_id": "billing",
    });
    let credential = parse(&file).unwrap();
    assert_eq!(credential.quota_project(), Some("billing"));
    let (mut exchange, step) = begin(&credential);
    let request = sent(step);
    assert_eq!(request.url, "https://oauth2.googleapis.com/token");
    assert_eq!(field(&request, "grant_type"), "refresh_token");
    assert_eq!(field(&request, "client_secret"), "client+secret");
    assert_eq!(field(&request, "refresh_token"), "1//refresh");
    let body = br#"{"error":"invalid_grant","error_description":"1//refresh of client+secret expired"}"#;
    let refused = exchange.advance(StepResult::Response { status: 400, body }, NOW).unwrap_err();
    let text = format!("{refused} {refused:?} {credential:?}");
    assert!(!text.contains("1//refresh") && !text.contains("client+secret"), "{text}");
    assert!(text.contains("invalid_grant: *** of *** expired"), "{text}");
}

#[test]
fn metadata_server_is_asked_for_the_scope() {
    let credential = GoogleCredential::metadata(MetadataServer::new("127.0.0.1:81", "default").unwrap());
    let (mut exchange, step) = begin(&credential);
    let request = sent(step);
    assert_eq!(request.method, Method::GET);
    assert_eq!(
        request.url,
        "http://127.0.0.1:81/computeMetadata/v1/instance/service-accounts/default/token\
         ?scopes=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fcloud-platform"
    );
    assert_eq!(request.headers["metadata-flavor"], "Google");
    assert_eq!(bearer(&grant(exchange.advance(ok(&token("t")), NOW).unwrap())), "t");
    for (host, account) in
        [("10.0.0.1", "default"), ("evil.example", "default"), ("127.0.0.1", "../x"), ("127.0.0.1", "")]
    {
        assert!(MetadataServer::new(host, account).is_err(), "{host} {account}");
    }
}

#[test]
fn external_account_reads_a_file_and_impersonates() {
    let mut file = external(json!({ "file": "/var/run/token", "format": {
        "type": "json", "subject_token_field_name": "id_token" } }));
    file["service_account_impersonation_url"] =
        json!("https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/a@b:generateAccessToken");
    file["service_account_impersonation"] = json!({ "token_lifetime_seconds": 2_800 });
    let credential = parse(&file).unwrap();
    assert_eq!(credential.name(), "workload identity federation");
    let (mut exchange, step) = begin(&credential);
    assert!(matches!(&step, Step::Read(path) if path.to_str() == Some("/var/run/token")), "{step:?}");
    let request = sent(exchange.advance(StepResult::File(r#"{"id_token":"subject.jwt"}"#), NOW).unwrap());
    assert_eq!(request.url, "https://sts.googleapis.com/v1/token");
    assert_eq!(field(&request, "grant_type"), "urn:ietf:params:oauth:grant-type:token-exchange");
    assert_eq!(field(&request, "subject_token"), "subject.jwt");
    assert_eq!(field(&request, "audience"), "//iam.googleapis.com/projects/1/x");
    let request = sent(exchange.advance(ok(&token("federated")), NOW).unwrap());
    assert!(request.url.ends_with("a@b:generateAccessToken"), "{}", request.url);
    assert_eq!(request.headers["authorization"], "Bearer federated");
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body["lifetime"], "2800s");
    let answer = json!({ "accessToken": "impersonated", "expireTime": "2030-01-01T00:00:00Z" }).to_string();
    let granted = grant(exchange.advance(ok(&answer), NOW).unwrap());
    assert_eq!((bearer(&granted), granted.lifetime), ("impersonated", Lifetime::Until(1_893_456_000)));
}

#[test]
fn external_account_requests_its_subject_token() {
    let source =
        json!({ "url": "http://169.254.169.254/metadata/identity?x=1", "headers": { "Metadata": "True" } });
    let (mut exchange, step) = begin(&parse(&external(source)).unwrap());
    let request = sent(step);
    assert_eq!(request.url, "http://169.254.169.254/metadata/identity?x=1");
    assert_eq!(request.headers["metadata"], "True");
    let request = sent(exchange.advance(ok(" subject\n"), NOW).unwrap());
    assert_eq!(field(&request, "subject_token"), "subject");
    assert_eq!(bearer(&grant(exchange.advance(ok(&token("t")), NOW).unwrap())), "t");
}

#[test]
fn external_account_faults_name_the_source() {
    let credential = parse(&external(json!({ "file": "/var/run/token" }))).unwrap();
    for (result, expected) in [
        (
            StepResult::Unreadable("no such file"),
            "the token file /var/run/token cannot be read: no such file",
        ),
        (StepResult::File(" \n"), "the token file /var/run/token is not valid: it is empty"),
    ] {
        let (mut exchange, _) = begin(&credential);
        assert_eq!(exchange.advance(result, NOW).unwrap_err().to_string(), expected);
    }
    let (mut exchange, _) = begin(&credential);
    exchange.advance(StepResult::File("subject-token"), NOW).unwrap();
    let away = exchange.advance(StepResult::Unreachable("time-out"), NOW).unwrap_err();
    assert_eq!(away.to_string(), "Google's security token service does not answer: time-out");
}

#[test]
fn impersonated_service_account_uses_its_source() {
    let file = json!({
        "type": "impersonated_service_account", "delegates": ["one"],
        "service_account_impersonation_url": "https://iamcredentials.googleapis.com/v1/x:generateAccessToken",
        "source_credentials": service_account(),
    });
    let credential = parse(&file).unwrap();
    assert_eq!(credential.name(), "impersonated service account");
    let (mut exchange, step) = begin(&credential);
    assert_eq!(sent(step).url, "https://oauth2.googleapis.com/token");
    let request = sent(exchange.advance(ok(&token("source")), NOW).unwrap());
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body["delegates"], json!(["one"]));
    let denied =
        br#"{"error":{"code":403,"message":"Permission denied for source","status":"PERMISSION_DENIED"}}"#;
    let refused = exchange.advance(StepResult::Response { status: 403, body: denied }, NOW).unwrap_err();
    assert_eq!(
        refused,
        TokenError::Refused {
            server: "the service account credentials API",
            status: 403,
            reason: "PERMISSION_DENIED: Permission denied for ***".to_owned()
        }
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one row for each fault")]
fn credential_files_with_faults_name_the_field() {
    let without = |name: &str| {
        let mut file = service_account();
        file.as_object_mut().unwrap().remove(name);
        file
    };
    let with = |name: &str, value: Value| {
        let mut file = service_account();
        file[name] = value;
        file
    };
    for (file, expected) in [
        (json!([]), "it is no JSON object"),
        (json!({}), "the field `type` is missing"),
        (
            with("type", json!("x")),
            "the field `type` must be service_account, authorized_user, external_account, external_account_authorized_user or impersonated_service_account",
        ),
        (
            with("type", json!("gdch_service_account")),
            "the field `type` is gdch_service_account, which is not supported here",
        ),
        (with("type", json!(7)), "the field `type` must be a text"),
        (without("client_email"), "the field `client_email` is missing"),
        (without("private_key"), "the field `private_key` is missing"),
        (with("private_key", json!("  ")), "the field `private_key` is empty"),
        (with("private_key", json!("SECRET")), "the field `private_key` is no private key"),
        (
            with("token_uri", json!("http://evil.example/token")),
            "the field `token_uri` must start with https://, unless the host is a loopback or link-local address or a metadata server",
        ),
        (
            json!({ "type": "authorized_user", "client_id": "a", "client_secret": "b" }),
            "the field `refresh_token` is missing",
        ),
        (external(json!("SECRET")), "the field `credential_source` must be an object"),
        (external(json!({})), "the field `credential_source.file` is missing, and there is no `url` either"),
        (
            external(json!({ "file": "a", "url": "https://b/" })),
            "the field `credential_source.file` must not stand beside `url`",
        ),
        (
            external(json!({ "url": "http://10.1.2.3/" })),
            "the field `credential_source.url` must start with https://, unless the host is a loopback or link-local address or a metadata server",
        ),
        (
            external(json!({ "executable": { "command": "x" } })),
            "the field `credential_source.executable` takes tokens from an executable, which is not supported: use a file or a URL",
        ),
        (
            external(json!({ "environment_id": "aws2" })),
            "the field `credential_source.environment_id` must be aws1, the only version that is supported",
        ),
        (
            external(json!({ "environment_id": "aws1" })),
            "the field `credential_source.regional_cred_verification_url` is missing",
        ),
        (
            external(
                json!({ "environment_id": "aws1", "regional_cred_verification_url": "http://sts.{region}.example" }),
            ),
            "the field `credential_source.regional_cred_verification_url` must start with https://, unless the host is a loopback or link-local address or a metadata server",
        ),
        (
            external(json!({ "environment_id": "aws1", "regional_cred_verification_url": VERIFICATION })),
            "the field `credential_source.region_url` is missing, and AWS_REGION is not set either",
        ),
        (
            external(json!({ "environment_id": "aws1", "regional_cred_verification_url": VERIFICATION,
                "region_url": "http://169.254.169.254/zone" })),
            "the field `credential_source.url` is missing, and AWS_ACCESS_KEY_ID is not set either",
        ),
        (
            external(json!({ "file": "a", "format": { "type": "json" } })),
            "the field `credential_source.format.subject_token_field_name` is missing",
        ),
        (
            external(json!({ "file": "a", "format": { "type": "xml" } })),
            "the field `credential_source.format.type` must be \"text\" or \"json\"",
        ),
        (
            external(json!({ "url": "https://a/", "headers": { "x": 1 } })),
            "the field `credential_source.headers` must be an object of at most 16 headers with texts",
        ),
        (json!({ "type": "impersonated_service_account" }), "the field `source_credentials` is missing"),
    ] {
        let error = parse(&file).unwrap_err().to_string();
        assert_eq!(error, expected, "{file}");
    }
    let large = format!("{{\"type\":\"{}\"}}", "x".repeat(70_000));
    assert_eq!(
        GoogleCredential::parse(&large, &signer, &|_| None).unwrap_err(),
        CredentialFileError::TooLarge
    );
}

#[test]
fn fingerprints_of_credentials_differ_by_their_secrets() {
    let user = |refresh: &str| {
        parse(&json!({ "type": "authorized_user", "client_id": "a", "client_secret": "b", "refresh_token": refresh }))
            .unwrap()
            .fingerprint()
    };
    assert_eq!(user("one"), user("one"));
    assert_ne!(user("one"), user("two"));
}

#[test]
fn service_account_of_google_signs_its_token_itself() {
    // With the default address of the token server, and with the file's.
    for token_uri in [json!(null), json!("https://oauth2.googleapis.com/token")] {
        let mut file = service_account();
        file["token_uri"] = token_uri;
        let (_, step) = begin(&parse(&file).unwrap());
        let granted = grant(step);
        assert_eq!(granted.lifetime, Lifetime::For(Duration::from_secs(3_590)));
        let token = bearer(&granted).to_owned();
        let claims = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(token.split('.').nth(1).unwrap()).unwrap();
        let email = "gateway@p.iam.gserviceaccount.com";
        assert_eq!(
            serde_json::from_slice::<Value>(&claims).unwrap(),
            // A scope, and therefore no audience: never both.
            json!({ "iss": email, "sub": email, "scope": "https://www.googleapis.com/auth/cloud-platform",
                "iat": NOW - 10, "exp": NOW + 3_590 })
        );
    }
    // Another universe has other services: its token server decides.
    let mut file = service_account();
    file["universe_domain"] = json!("example.goog");
    let (_, step) = begin(&parse(&file).unwrap());
    sent(step);
}

#[test]
fn workforce_user_proves_its_client_in_a_header() {
    let file = json!({
        "type": "external_account_authorized_user", "audience": "//iam.googleapis.com/locations/global/x",
        "client_id": "id", "client_secret": "client+secret", "refresh_token": "1//refresh",
        "token_url": "https://sts.googleapis.com/v1/oauthtoken", "quota_project_id": "billing",
    });
    let credential = parse(&file).unwrap();
    assert_eq!((credential.name(), credential.quota_project()), ("authorized user", Some("billing")));
    let (mut exchange, step) = begin(&credential);
    let request = sent(step);
    assert_eq!(request.url, "https://sts.googleapis.com/v1/oauthtoken");
    assert_eq!(request.headers["authorization"], "Basic aWQ6Y2xpZW50K3NlY3JldA==");
    assert_eq!(
        String::from_utf8_lossy(&request.body),
        "grant_type=refresh_token&refresh_token=1%2F%2Frefresh"
    );
    assert_eq!(bearer(&grant(exchange.advance(ok(&token("t")), NOW).unwrap())), "t");
}
