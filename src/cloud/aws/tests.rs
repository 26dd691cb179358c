use std::sync::Arc;

use super::*;
use crate::sigv4::Credentials;
use crate::token::{
    Credential, CredentialSource, Grant, Lifetime, Step, StepResult, TokenError, TokenRequest,
};

const NOW: i64 = 1_795_000_000;

fn ok(body: &str) -> StepResult<'_> {
    StepResult::Response { status: 200, body: body.as_bytes() }
}

fn sent(step: Result<Step, TokenError>) -> TokenRequest {
    match step.unwrap() {
        Step::Send(request) => request,
        other => panic!("{other:?}"),
    }
}

fn granted(step: Result<Step, TokenError>) -> (String, Lifetime) {
    match step.unwrap() {
        Step::Done(Grant { credential: Credential::Aws(credentials), lifetime }) => {
            (credentials.access_key_id.to_string(), lifetime)
        }
        other => panic!("{other:?}"),
    }
}

const DOCUMENT: &str = r#"{"Code":"Success","LastUpdated":"2026-11-23T00:00:00Z","Type":"AWS-HMAC","AccessKeyId":"ASIA1",
    "SecretAccessKey":"s/+=","Token":"t","Expiration":"2026-11-23T06:00:00Z"}"#;

#[test]
fn instance_metadata_takes_a_token_the_role_and_its_credentials() {
    let mut exchange = InstanceMetadata::new(None).begin();
    let request = sent(exchange.advance(StepResult::Begin, NOW));
    assert_eq!((&*request.url, request.method.as_str()), ("http://169.254.169.254/latest/api/token", "PUT"));
    assert_eq!(request.headers["x-aws-ec2-metadata-token-ttl-seconds"], "300");
    let request = sent(exchange.advance(ok("tok=="), NOW));
    assert_eq!(request.url, "http://169.254.169.254/latest/meta-data/iam/security-credentials/");
    assert_eq!(request.headers["x-aws-ec2-metadata-token"], "tok==");
    let request = sent(exchange.advance(ok("role-1\n"), NOW));
    assert_eq!(request.url, "http://169.254.169.254/latest/meta-data/iam/security-credentials/role-1");
    let (id, lifetime) = granted(exchange.advance(ok(DOCUMENT), NOW));
    assert_eq!((&*id, lifetime), ("ASIA1", Lifetime::Until(1_795_413_600)));
}

#[test]
fn instance_metadata_with_wrong_responses_is_refused() {
    let refused = |answers: &[StepResult<'_>]| {
        let mut exchange = InstanceMetadata::new(Some("http://127.0.0.1:1/")).begin();
        let mut step = exchange.advance(StepResult::Begin, NOW);
        for answer in answers {
            step = exchange.advance(*answer, NOW);
        }
        step.unwrap_err()
    };
    let status = |status| StepResult::Response { status, body: b"<html> no </html>" };
    assert_eq!(refused(&[status(403)]).label(), "refused");
    assert_eq!(refused(&[StepResult::Unreachable("no route")]).label(), "unreachable");
    assert!(refused(&[ok("t"), status(404)]).to_string().contains("has no role"));
    // A role that would change the path of the next request.
    for role in ["", "../x", "a/b", "a b"] {
        assert_eq!(refused(&[ok("t"), ok(role)]).label(), "invalid", "{role}");
    }
    let failed = r#"{"Code":"Failed"}"#;
    for document in [
        "",
        "[]",
        failed,
        r#"{"AccessKeyId":"a","SecretAccessKey":""}"#,
        r#"{"AccessKeyId":"a\n","SecretAccessKey":"b"}"#,
    ] {
        assert_eq!(refused(&[ok("t"), ok("r"), ok(document)]).label(), "invalid", "{document}");
    }
}

#[test]
fn container_presents_its_token_file() {
    let token = ContainerToken::File("/token".into());
    let mut exchange = Container::full("http://169.254.170.23/v1/credentials", token).unwrap().begin();
    assert!(
        matches!(exchange.advance(StepResult::Begin, NOW), Ok(Step::Read(path)) if path.ends_with("token"))
    );
    let request = sent(exchange.advance(StepResult::File("abc\n"), NOW));
    assert_eq!(request.headers["authorization"], "abc");
    assert_eq!(granted(exchange.advance(ok(DOCUMENT), NOW)).0, "ASIA1");
    let mut relative = Container::relative("/v2/x", ContainerToken::None).unwrap().begin();
    assert_eq!(sent(relative.advance(StepResult::Begin, NOW)).url, "http://169.254.170.2/v2/x");
}

#[test]
fn container_without_tls_is_accepted_on_this_machine_only() {
    let full = |url: &str| Container::full(url, ContainerToken::None).is_ok();
    for url in [
        "http://127.0.0.1:80/x",
        "http://127.1.2.3/",
        "http://localhost:1/x",
        "http://[::1]:1/x",
        "https://example.com/x",
    ] {
        assert!(full(url), "{url}");
    }
    for url in [
        "http://example.com/",
        "http://127.0.0.1.example.com/",
        "http://10.0.0.1/",
        "http://127.0.0.1@example.com/",
        "ftp://127.0.0.1/",
    ] {
        assert!(!full(url), "{url}");
    }
}

const XML: &str = "<AssumeRoleResponse><AssumeRoleResult><AssumedRoleUser><Arn>a</Arn></AssumedRoleUser><Credentials>\n\
    <AccessKeyId>ASIA2</AccessKeyId><SecretAccessKey>s/&amp;+</SecretAccessKey><SessionToken>t</SessionToken>\
    <Expiration>2026-11-23T06:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>";

#[test]
fn assumed_role_is_requested_with_a_signature_of_the_other_source() {
    let base = Credentials {
        access_key_id: "AKID".into(),
        secret_access_key: "secret".into(),
        session_token: Some("base-token".into()),
    };
    let role = AssumeRole {
        base: Arc::new(Fixed(base)),
        role_arn: "arn:aws:iam::1:role/r".into(),
        session_name: "s".into(),
        external_id: Some("e x".into()),
        duration: Some(900),
        region: "eu-west-1".into(),
        sts_url: None,
    };
    let mut exchange = role.begin();
    let request = sent(exchange.advance(StepResult::Begin, NOW));
    assert_eq!(request.url, "https://sts.eu-west-1.amazonaws.com/");
    assert_eq!(
        String::from_utf8(request.body).unwrap(),
        "Action=AssumeRole&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=s&DurationSeconds=900&ExternalId=e%20x"
    );
    let authorization = request.headers["authorization"].to_str().unwrap();
    assert!(
        authorization.contains("Credential=AKID/") && authorization.contains("/eu-west-1/sts/aws4_request")
    );
    assert_eq!(request.headers["x-amz-security-token"], "base-token");
    let step = exchange.advance(ok(XML), NOW);
    let Ok(Step::Done(Grant { credential: Credential::Aws(credentials), lifetime })) = step else {
        panic!("{step:?}")
    };
    assert_eq!((&*credentials.secret_access_key, lifetime), ("s/&+", Lifetime::Until(1_795_413_600)));
}

#[test]
fn security_token_service_error_is_told_with_its_code() {
    let xml = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not authorized</Message></Error></ErrorResponse>";
    let web = WebIdentity {
        token_file: "t".into(),
        role_arn: "r".into(),
        session_name: "s".into(),
        region: "us-east-1".into(),
        sts_url: None,
    };
    let mut exchange = web.begin();
    assert!(matches!(exchange.advance(StepResult::Begin, NOW), Ok(Step::Read(_))));
    let request = sent(exchange.advance(StepResult::File("tok"), NOW));
    assert!(!format!("{request:?}").contains("tok"), "the token is not printed");
    let error =
        exchange.advance(StepResult::Response { status: 403, body: xml.as_bytes() }, NOW).unwrap_err();
    assert!(error.to_string().contains("status 403: AccessDenied: Not authorized"), "{error}");
    for broken in ["", "<Credentials></Credentials>", "{}", "<Credentials><AccessKeyId>a</AccessKeyId>"] {
        assert_eq!(exchange.advance(ok(broken), NOW).unwrap_err().label(), "invalid", "{broken}");
    }
}

#[test]
fn profile_setting_is_found_in_both_files() {
    let credentials = "# c\n[default]\naws_access_key_id = A1\n\n[work]\naws_access_key_id=A2 # mine\naws_secret_access_key = s=2\n nested = 1\n";
    let find = |name| profile_setting(credentials, ProfileFile::Credentials, "work", name);
    assert_eq!(find("aws_access_key_id"), Some("A2"));
    assert_eq!(find("aws_secret_access_key"), Some("s=2"));
    assert_eq!((find("nested"), find("region")), (None, None));
    let config =
        "[profile work]\nregion = eu-west-1\n[default]\nregion=us-east-1\n[sso-session work]\nregion=x\n";
    let find = |profile| profile_setting(config, ProfileFile::Config, profile, "region");
    assert_eq!((find("work"), find("default"), find("other")), (Some("eu-west-1"), Some("us-east-1"), None));
}

#[test]
fn profile_is_read_from_the_first_file_that_has_it() {
    let files = vec![(ProfileFile::Credentials, "c".into()), (ProfileFile::Config, "f".into())];
    let source = SharedProfile { profile: "p".into(), files };
    let mut exchange = source.begin();
    assert!(matches!(exchange.advance(StepResult::Begin, NOW), Ok(Step::Read(path)) if path.ends_with("c")));
    let next = exchange.advance(StepResult::Unreadable("no such file"), NOW);
    assert!(matches!(next, Ok(Step::Read(path)) if path.ends_with("f")));
    let text = "[profile p]\naws_access_key_id = A\naws_secret_access_key = b\n";
    assert_eq!(granted(exchange.advance(StepResult::File(text), NOW)), ("A".to_owned(), Lifetime::Unknown));
    let mut missing = source.begin();
    for _ in 0..2 {
        assert!(matches!(missing.advance(StepResult::File("[q]\n"), NOW), Ok(Step::Read(_))));
    }
    assert_eq!(missing.advance(StepResult::File(""), NOW).unwrap_err().label(), "configuration");
}

#[test]
fn fingerprints_differ_where_settings_do() {
    let container = |path: &str| Container::relative(path, ContainerToken::None).unwrap().fingerprint();
    assert_eq!(container("/a"), container("/a"));
    assert_ne!(container("/a"), container("/b"));
    assert_ne!(fingerprint("x", &["ab", "c"]), fingerprint("x", &["a", "bc"]));
}

#[test]
fn api_key_states_its_end() {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("../../../tests/vectors/sigv4.json")).unwrap();
    let vectors = vectors["vectors"].as_array().unwrap();
    let vector = vectors.iter().find(|vector| vector["name"] == "bedrock-short-term-api-key").unwrap();
    let key = vector["token"].as_str().unwrap();
    // 2026-11-21T10:11:12Z, and twelve hours.
    assert_eq!(api_key_end(key), Some(1_795_255_872 + 43_200));
    assert_eq!(api_key_end(&format!(" {key}\n")), api_key_end(key));
    let encoded = |url: &str| format!("bedrock-api-key-{}", base64_simd::STANDARD.encode_to_string(url));
    for other in [
        "ABSKQmVkcm9ja0FQSUtleQ==".to_owned(),
        "bedrock-api-key-".to_owned(),
        "bedrock-api-key-%%%".to_owned(),
        encoded("bedrock.amazonaws.com/"),
        encoded("bedrock.amazonaws.com/?X-Amz-Date=20261121T101112Z"),
        encoded("bedrock.amazonaws.com/?X-Amz-Date=now&X-Amz-Expires=1"),
        encoded("bedrock.amazonaws.com/?X-Amz-Date=20261121T101112Z&X-Amz-Expires=-1"),
    ] {
        assert_eq!(api_key_end(&other), None, "{other}");
    }
}
