//! Subject tokens of AWS.

use super::*;

/// URL of the request that is signed, as `gcloud` writes it.
pub(super) const VERIFICATION: &str =
    "https://sts.{region}.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15";

fn aws_file() -> Value {
    external(json!({
        "environment_id": "aws1", "regional_cred_verification_url": VERIFICATION,
        "region_url": "http://169.254.169.254/latest/meta-data/placement/availability-zone",
        "url": "http://169.254.169.254/latest/meta-data/iam/security-credentials",
        "imdsv2_session_token_url": "http://169.254.169.254/latest/api/token",
    }))
}

/// Returns the signed request that a subject token is.
fn signed_request(request: &TokenRequest) -> Value {
    let token = field(request, "subject_token");
    let json = percent_encoding::percent_decode_str(&token).decode_utf8().unwrap();
    serde_json::from_str(&json).unwrap()
}

#[test]
fn aws_subject_is_a_signed_request_for_the_identity_of_the_instance() {
    let credential = parse(&aws_file()).unwrap();
    let (mut exchange, step) = begin(&credential);
    let request = sent(step);
    assert_eq!((&request.method, &*request.url), (&Method::PUT, "http://169.254.169.254/latest/api/token"));
    let request = sent(exchange.advance(ok("session-of-imds"), NOW).unwrap());
    assert!(request.url.ends_with("/placement/availability-zone"), "{}", request.url);
    assert_eq!(request.headers["x-aws-ec2-metadata-token"], "session-of-imds");
    let request = sent(exchange.advance(ok("eu-west-1b"), NOW).unwrap());
    assert!(request.url.ends_with("/iam/security-credentials"), "{}", request.url);
    let request = sent(exchange.advance(ok("role-1\n"), NOW).unwrap());
    assert!(request.url.ends_with("/iam/security-credentials/role-1"), "{}", request.url);
    let keys = r#"{"Code":"Success","AccessKeyId":"AKIDFED","SecretAccessKey":"hush-key","Token":"hush-session",
        "Expiration":"2030-01-01T00:00:00Z"}"#;
    let request = sent(exchange.advance(ok(keys), NOW).unwrap());
    assert_eq!(request.url, "https://sts.googleapis.com/v1/token");
    let signed = signed_request(&request);
    let url = "https://sts.eu-west-1.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15";
    assert_eq!((&signed["url"], &signed["method"]), (&json!(url), &json!("POST")));
    let header = |name: &str| {
        let headers = signed["headers"].as_array().unwrap();
        let found = headers.iter().find(|header| header["key"] == name);
        found.and_then(|header| header["value"].as_str()).unwrap_or_else(|| panic!("{name}")).to_owned()
    };
    // AWS verifies the signature over exactly these headers.
    let headers: Vec<(String, String)> =
        ["host", "x-amz-date", "x-amz-security-token", "x-goog-cloud-target-resource"]
            .into_iter()
            .map(|name| (name.to_owned(), header(name)))
            .collect();
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let authorization = header("Authorization");
    let presented = crate::sigv4::Presented::parse(&authorization).unwrap();
    assert_eq!(
        (presented.access_key_id, presented.scope.region, presented.scope.service),
        ("AKIDFED", "eu-west-1", "sts")
    );
    let payload = crate::sigv4::PayloadHash::of([]);
    let target = "/?Action=GetCallerIdentity&Version=2011-06-15";
    presented.verify("hush-key", ("POST", target), &headers, &payload, NOW).unwrap();
    assert_eq!(header("x-goog-cloud-target-resource"), "//iam.googleapis.com/projects/1/x");
    let shown = format!("{credential:?} {request:?}");
    assert!(!shown.contains("hush"), "{shown}");
    assert_eq!(bearer(&grant(exchange.advance(ok(&token("t")), NOW).unwrap())), "t");
}

#[test]
fn aws_subject_of_the_environment_needs_no_metadata_service() {
    let env = |name: &str| {
        let value = match name {
            "AWS_REGION" => "us-east-2",
            "AWS_ACCESS_KEY_ID" => "AKIDENV",
            "AWS_SECRET_ACCESS_KEY" => "hush",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let credential = GoogleCredential::parse(&aws_file().to_string(), &signer, &env).unwrap();
    let (_, step) = begin(&credential);
    let request = sent(step);
    assert_eq!(request.url, "https://sts.googleapis.com/v1/token");
    let url = signed_request(&request)["url"].as_str().unwrap().to_owned();
    assert!(url.starts_with("https://sts.us-east-2.amazonaws.com?"), "{url}");
    assert_ne!(credential.fingerprint(), parse(&aws_file()).unwrap().fingerprint());
}

#[test]
fn aws_subject_with_wrong_answers_is_refused() {
    let failed = |answers: &[StepResult<'_>]| {
        let (mut exchange, _) = begin(&parse(&aws_file()).unwrap());
        let mut last = None;
        for answer in answers {
            last = Some(exchange.advance(*answer, NOW));
        }
        last.unwrap().unwrap_err()
    };
    let away = failed(&[StepResult::Unreachable("no route")]);
    assert_eq!(away.to_string(), "the instance metadata service of AWS does not answer: no route");
    for zone in ["", "eu-west-1", "b", "eu west-1b"] {
        assert_eq!(failed(&[ok("session"), ok(zone)]).label(), "invalid", "{zone}");
    }
    for role in ["", "../x", "a?b"] {
        assert_eq!(failed(&[ok("session"), ok("eu-west-1b"), ok(role)]).label(), "invalid", "{role}");
    }
    assert_eq!(failed(&[ok("session"), ok("eu-west-1b"), ok("r"), ok("[]")]).label(), "invalid");
}
