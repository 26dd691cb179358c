use std::time::Duration;

use proptest::prelude::*;

use super::{MAX_DOCUMENT, Reply, SecretText, TokenEndpoint, fingerprint, parse_token};
use crate::token::{Credential, Lifetime, StepResult, TokenError};

fn reply(secrets: &[SecretText]) -> Reply<'_> {
    Reply { server: "the token server", secrets }
}

fn response(status: u16, body: &str) -> StepResult<'_> {
    StepResult::Response { status, body: body.as_bytes() }
}

#[test]
fn token_answers_state_their_lifetime_in_five_ways() {
    for (members, lifetime) in [
        (r#""expires_in":3599"#, Lifetime::For(Duration::from_secs(3_599))),
        (r#""expires_in":"3599","expires_on":"9""#, Lifetime::For(Duration::from_secs(3_599))),
        (r#""expires_in":1.5"#, Lifetime::For(Duration::from_secs(1))),
        (r#""expires_in":0"#, Lifetime::For(Duration::ZERO)),
        (r#""expires_on":"1700000000""#, Lifetime::Until(1_700_000_000)),
        (r#""expires_on":18446744073709551615"#, Lifetime::Until(i64::MAX)),
        (r#""expireTime":"2023-11-14T22:13:20Z""#, Lifetime::Until(1_700_000_000)),
        (r#""expires_in":null"#, Lifetime::Unknown),
    ] {
        let body = format!(r#"{{"access_token":"ya29.token","token_type":"Bearer",{members}}}"#);
        let grant = parse_token(body.as_bytes()).unwrap();
        assert_eq!(grant.credential, Credential::Bearer("ya29.token".into()));
        assert_eq!(grant.lifetime, lifetime, "{members}");
    }
}

#[test]
fn token_answers_that_are_none_are_refused_in_words() {
    let long = format!(r#"{{"access_token":"{}","expires_in":1}}"#, "a".repeat(20_000));
    for (body, reason) in [
        ("<html>", "it is no JSON"),
        ("{}", "it has no token"),
        ("[]", "it has no token"),
        (r#"{"access_token":7}"#, "it has no token"),
        (r#"{"access_token":""}"#, "its token cannot be sent in a header"),
        (r#"{"access_token":"a b"}"#, "its token cannot be sent in a header"),
        ("{\"access_token\":\"a\\r\\nx: y\"}", "its token cannot be sent in a header"),
        (&long, "its token cannot be sent in a header"),
        (r#"{"access_token":"a","token_type":"mac"}"#, "its token is no bearer token"),
        (r#"{"access_token":"a","expires_in":-1}"#, "its lifetime cannot be read"),
        (r#"{"access_token":"a","expires_in":"soon"}"#, "its lifetime cannot be read"),
        (r#"{"access_token":"a","expires_in":[]}"#, "its lifetime cannot be read"),
        (r#"{"access_token":"a","expireTime":"tomorrow"}"#, "its lifetime cannot be read"),
    ] {
        assert_eq!(parse_token(body.as_bytes()).unwrap_err(), reason, "{body}");
    }
}

#[test]
fn refusals_have_the_words_of_the_server_and_no_secret() {
    let secrets = [SecretText::new("s3cr3t-value")];
    for (body, expected) in [
        (
            r#"{"error":"invalid_grant","error_description":"Invalid JWT Signature."}"#,
            "invalid_grant: Invalid JWT Signature.",
        ),
        (
            r#"{"error":{"code":403,"message":"denied","status":"PERMISSION_DENIED"}}"#,
            "PERMISSION_DENIED: denied",
        ),
        (r#"{"error":"invalid_client","error_description":"bad s3cr3t-value"}"#, "invalid_client: bad ***"),
        (r#"{"error":"x","error_description":"one\r\nTrace ID: 7"}"#, "x: one"),
        (r#"{"message":"a\u001b[31mb"}"#, "a[31mb"),
        ("<html>no</html>", "it gives no reason"),
        ("", "it gives no reason"),
    ] {
        let refused = reply(&secrets).grant(response(400, body)).unwrap_err();
        let reason = expected.to_owned();
        assert_eq!(
            refused,
            TokenError::Refused { server: "the token server", status: 400, reason },
            "{body}"
        );
    }
    let long = format!(r#"{{"error":"{}"}}"#, "x".repeat(5_000));
    assert!(reply(&secrets).grant(response(500, &long)).unwrap_err().to_string().len() < 400);
}

#[test]
fn answers_are_bounded() {
    let body = format!(r#"{{"access_token":"a","pad":"{}"}}"#, "x".repeat(MAX_DOCUMENT));
    let refused = reply(&[]).grant(response(200, &body)).unwrap_err();
    assert!(refused.to_string().ends_with("it is larger than 64 KiB"), "{refused}");
}

#[test]
fn endpoints_are_encrypted_or_on_this_machine() {
    for sound in [
        "https://oauth2.googleapis.com/token",
        "https://[2001:db8::1]:8443/x?y=z",
        "http://127.0.0.1:9000/token",
        "http://localhost/token",
        "http://[::1]:80/",
        "http://169.254.169.254/metadata",
        "http://[fd00:ec2::254]/latest",
        "http://metadata.google.internal/computeMetadata/v1/",
        "http://METADATA.google.internal./x",
    ] {
        assert!(TokenEndpoint::parse(sound).is_ok(), "{sound}");
    }
    for wrong in [
        "",
        "/token",
        "host/token",
        "ftp://host/token",
        "http://oauth2.googleapis.com/token",
        "http://10.0.0.1/token",
        "http://127.0.0.1.example.com/",
        "http://metadata.google.internal.example.com/",
        "http://2130706433/",
        "https://user:secret@host/token",
        "http://localhost@evil.example/",
        "https://host/token#fragment",
        "https://host:0/",
        "https://host:99999/",
        "https:///token",
        "https://ho st/",
    ] {
        assert!(TokenEndpoint::parse(wrong).is_err(), "{wrong}");
    }
    assert!(TokenEndpoint::parse(&format!("https://host/{}", "a".repeat(3_000))).is_err());
}

#[test]
fn endpoint_queries_are_encoded() {
    let endpoint = TokenEndpoint::parse("https://host/path?a=b").unwrap();
    let with = endpoint.with_query(&[("scope", "https://x/y z&"), ("n", "1")]);
    assert_eq!(with.to_string(), "https://host/path?a=b&scope=https%3A%2F%2Fx%2Fy%20z%26&n=1");
}

#[test]
fn fingerprints_separate_settings() {
    let of = |text: &str| fingerprint("kind", &SecretText::new(text));
    assert_eq!(of("a"), of("a"));
    assert_ne!(of("a"), of("b"));
    assert_ne!(of("a"), fingerprint("other", &SecretText::new("a")));
}

#[test]
fn secret_text_is_not_printed() {
    assert_eq!(format!("{:?}", [SecretText::new("secret")]), "[***]");
}

proptest! {
    /// Whatever a server sends, a token can be sent in a header, and an error is one bounded line.
    #[test]
    fn any_answer_is_a_token_or_an_error(status in 100_u16..600, body in ".{0,200}") {
        match reply(&[]).grant(response(status, &body)) {
            Ok(grant) => {
                let Credential::Bearer(token) = grant.credential else { panic!("no token") };
                prop_assert!(!token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()));
            }
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.len() < 2_000 && !text.chars().any(char::is_control), "{text:?}");
            }
        }
    }

    #[test]
    fn any_members_are_a_token_or_an_error(
        token in "[ -~]{0,30}",
        life in prop_oneof![any::<i64>().prop_map(|n| n.to_string()), "\"[0-9a-z.-]{0,20}\"", Just("null".to_owned()), Just("1e300".to_owned())],
        member in prop_oneof![Just("expires_in"), Just("expires_on"), Just("expireTime")],
    ) {
        let token = serde_json::to_string(&token).unwrap();
        let body = format!(r#"{{"access_token":{token},"{member}":{life}}}"#);
        let _ = parse_token(body.as_bytes());
    }

    #[test]
    fn any_endpoint_over_plain_http_is_local(text in "http://[a-z0-9.:@\\[\\]/-]{0,40}") {
        if let Ok(endpoint) = TokenEndpoint::parse(&text) {
            let authority = endpoint.authority().to_owned();
            let local = ["127.", "169.254.", "[", "localhost", "metadata.google.internal"];
            prop_assert!(local.iter().any(|known| authority.starts_with(known)), "{text}");
        }
    }
}
