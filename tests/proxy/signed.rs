//! Requests that are signed as AWS SDKs sign them: accepted with the secret of an access key, refused otherwise in the
//! words that the SDKs and their users know.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::aws::{ACCESS_KEY_ID, SECRET, Signing};
use crate::support::client::{Answer, request};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::setup::{KEY, Setup, key};
use crate::support::upstream::Upstream;
use crate::support::{http2, reply};

const PATH: &str = "/model/gpt/converse";
const BODY: &[u8] = br#"{"messages":[{"role":"user","content":[{"text":"Hi \u00fc"}]}]}"#;
/// Access keys of a disabled and of an expired key.
const DISABLED: &str = "MGWADISABLEDDISABLED";
const EXPIRED: &str = "MGWAEXPIREDEXPIREDEX";

/// Returns the lines of a key with an access key.
fn access_key(id: &str) -> String {
    format!("access_key = {{ id = \"{id}\", secret = {{ file = \"aws-secret\" }} }}")
}

async fn start() -> (Upstream, Gateway) {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let mut setup = Setup::new()
        .provider("openai", "openai", &format!("http://{}/v1", upstream.addr), "apis = [\"chat\"]")
        .model("gpt", "openai", "gpt")
        .model("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "openai", "gpt")
        .model("arn:aws:bedrock:eu-west-1:000000000000:application-inference-profile/abc", "openai", "gpt")
        .file("aws-secret", SECRET);
    setup.keys += &key("ann", "client-key-of-ann-0010", &access_key(ACCESS_KEY_ID));
    setup.keys +=
        &key("dan", "client-key-of-dan-0011", &format!("enabled = false\n{}", access_key(DISABLED)));
    setup.keys += &key(
        "eve",
        "client-key-of-eve-0012",
        &format!("expires = 2020-01-01T00:00:00Z\n{}", access_key(EXPIRED)),
    );
    let gateway = Gateway::start(&setup).await;
    (upstream, gateway)
}

fn error(answer: &Answer) -> (u16, String, String) {
    let kind = answer.get("x-amzn-errortype").unwrap_or_default().to_owned();
    (answer.status(), kind, answer.json()["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn signed_request_is_served() {
    let (upstream, gateway) = start().await;
    let mut client = gateway.connect().await;
    let arn = "arn%3Aaws%3Abedrock%3Aeu-west-1%3A000000000000%3Aapplication-inference-profile%2Fabc";
    for path in [
        PATH.to_owned(),
        // SDKs of AWS encode the colon; others send it as it is.
        "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse".to_owned(),
        "/model/us.anthropic.claude-sonnet-4-5-20250929-v1:0/converse".to_owned(),
        format!("/model/{arn}/converse"),
    ] {
        let answer = client.ask(Signing::default().post(&path, BODY)).await;
        assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
        assert_eq!(answer.json()["stopReason"], "end_turn");
    }
    assert_eq!(upstream.count(), 4);
    assert!(
        !upstream.last_request().everything().contains("AWS4-HMAC-SHA256"),
        "the signature is not forwarded"
    );
    // Clocks may differ by up to five minutes, and further signed headers do no harm.
    for shift in [-290, 290] {
        let signing = Signing::default();
        let shifted = Signing { time: signing.time + shift, ..signing };
        assert_eq!(client.ask(shifted.post(PATH, BODY)).await.status(), 200, "{shift}");
    }
    let mut signing = Signing::default();
    signing.headers.push(("amz-sdk-invocation-id", "0 1   2"));
    let authorization = Signing {
        headers: vec![("content-type", "application/json"), ("amz-sdk-invocation-id", "0 1 2")],
        ..signing.clone()
    }
    .authorization(PATH, BODY);
    assert_eq!(client.ask(signing.post_as(PATH, BODY, &authorization, &[])).await.status(), 200);
}

#[tokio::test]
async fn signed_request_over_http2_is_served() {
    let (_upstream, gateway) = start().await;
    let mut client = http2::Client::connect(gateway.addr).await;
    let signing = Signing::default();
    let (date, authorization) = (signing.date(), signing.authorization(PATH, BODY));
    let headers = [("x-amz-date", &*date), ("authorization", &*authorization)];
    let (response, mut send) = client.begin_with(PATH, &headers).await;
    http2::send_all(&mut send, BODY.into(), true).await.unwrap();
    let (head, body) = http2::answer(response).await;
    assert_eq!(head.status(), 200, "{}", String::from_utf8_lossy(&body));
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one row for each fault")]
async fn signed_request_is_refused_if_anything_is_wrong() {
    const SIGNATURE: &str = "InvalidSignatureException";
    const UNKNOWN: &str = "UnrecognizedClientException";
    let (upstream, gateway) = start().await;
    let usual = Signing::default();
    let valid = usual.authorization(PATH, BODY);
    let later = |seconds: i64| {
        let signing = Signing { time: usual.time + seconds, ..usual.clone() };
        signing.post(PATH, BODY)
    };
    let with = |change: &dyn Fn(&mut Signing<'static>)| {
        let mut signing = Signing::default();
        change(&mut signing);
        signing.post(PATH, BODY)
    };
    let other_body = String::from_utf8(BODY.to_vec()).unwrap().replace("Hi", "Ho");
    let api_key: &[(&str, &str)] = &[("x-api-key", KEY)];
    let token: &[(&str, &str)] = &[("x-amz-security-token", "t")];
    let mismatch = "The request signature we calculated does not match the signature you provided.";
    let invalid_token = "The security token included in the request is invalid";
    let cases: Vec<(&str, Vec<u8>, u16, &str, &str)> = vec![
        ("unknown id", with(&|it| it.id = "AKIAIOSFODNN7EXAMPLE"), 403, UNKNOWN, invalid_token),
        ("wrong secret", with(&|it| it.secret = "another secret"), 403, SIGNATURE, mismatch),
        ("other body", usual.post_as(PATH, other_body.as_bytes(), &valid, &[]), 403, SIGNATURE, mismatch),
        // Refused before its signature is looked at.
        ("no body", usual.post_as(PATH, b"", &valid, &[]), 400, "ValidationException", "body is empty"),
        (
            "other path",
            usual.post_as("/model/gpt/converse-stream", BODY, &valid, &[]),
            403,
            SIGNATURE,
            mismatch,
        ),
        ("query", usual.post_as("/model/gpt/converse?x=1", BODY, &valid, &[]), 403, SIGNATURE, mismatch),
        ("empty segment", usual.post_as(&format!("/{PATH}"), BODY, &valid, &[]), 403, SIGNATURE, mismatch),
        (
            "empty segment inside",
            usual.post_as("/model//gpt/converse", BODY, &valid, &[]),
            403,
            SIGNATURE,
            mismatch,
        ),
        ("trailing slash", usual.post_as(&format!("{PATH}/"), BODY, &valid, &[]), 403, SIGNATURE, mismatch),
        (
            "two dates",
            usual.post_as(PATH, BODY, &valid, &[("x-amz-date", "20200101T000000Z")]),
            403,
            SIGNATURE,
            "given twice",
        ),
        (
            "the same date twice",
            usual.post_as(PATH, BODY, &valid, &[("x-amz-date", &usual.date())]),
            403,
            SIGNATURE,
            "given twice",
        ),
        (
            "signed header twice",
            usual.post_as(PATH, BODY, &valid, &[("content-type", "application/json")]),
            403,
            SIGNATURE,
            mismatch,
        ),
        ("too old", later(-320), 403, SIGNATURE, "Signature expired: "),
        ("too new", later(320), 403, SIGNATURE, "Signature not yet current: "),
        (
            "other service",
            with(&|it| it.service = "s3"),
            403,
            SIGNATURE,
            "scoped to correct service: 'bedrock'",
        ),
        ("session", usual.post_as(PATH, BODY, &valid, token), 403, UNKNOWN, invalid_token),
        (
            "unsigned body",
            with(&|it| it.headers.push(("x-amz-content-sha256", "UNSIGNED-PAYLOAD"))),
            403,
            SIGNATURE,
            "UNSIGNED-PAYLOAD",
        ),
        (
            "streamed body",
            with(&|it| it.headers.push(("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"))),
            403,
            SIGNATURE,
            "streaming signatures",
        ),
        (
            "hash of another body",
            with(&|it| {
                it.headers.push((
                    "x-amz-content-sha256",
                    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                ));
            }),
            403,
            SIGNATURE,
            "does not match the signed hash",
        ),
        (
            "header that is not signed",
            usual.post_as(PATH, BODY, &valid, &[("x-amz-target", "x")]),
            403,
            SIGNATURE,
            "not signed",
        ),
        (
            "malformed",
            usual.post_as(PATH, BODY, "AWS4-HMAC-SHA256 Credential=x", &[]),
            403,
            SIGNATURE,
            "not a valid",
        ),
        (
            "presigned",
            usual.post_as(&format!("{PATH}?X-Amz-Signature=00"), BODY, "", &[]),
            403,
            SIGNATURE,
            "Presigned requests",
        ),
        ("disabled key", with(&|it| it.id = DISABLED), 403, UNKNOWN, "disabled"),
        ("expired key", with(&|it| it.id = EXPIRED), 403, "ExpiredTokenException", "expired"),
        ("API key too", usual.post_as(PATH, BODY, &valid, api_key), 401, UNKNOWN, "Two different API keys"),
        (
            "no signature",
            usual.post_as(PATH, BODY, "", &[]),
            401,
            "MissingAuthenticationTokenException",
            "didn't provide",
        ),
    ];
    for (what, request, status, kind, message) in cases {
        let answer = gateway.ask(request).await;
        let (found, name, text) = error(&answer);
        assert_eq!((found, name.as_str()), (status, kind), "{what}: {text}");
        assert!(text.contains(message), "{what}: {text}");
        assert!(!answer.everything().contains(SECRET), "{what}");
    }
    assert_eq!(upstream.count(), 0, "no provider is called");
    let metrics = gateway.metrics().await;
    assert!(metrics.sum("gateway_errors_total", &[("kind", "invalid_signature")]) > 0.0);
    // A signature means nothing to other formats.
    let (path, body) = (Form::Chat.path("gpt", false), Form::Chat.body("gpt", false));
    let answer = gateway.ask(usual.post(&path, body.as_bytes())).await;
    assert_eq!(answer.status(), 401, "{}", answer.text());
}

/// A request that is not signed by the owner of a key must not appear in its usage.
#[tokio::test]
async fn signed_request_of_another_leaves_no_usage_record() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let mut setup = Setup::new()
        .provider("openai", "openai", &format!("http://{}/v1", upstream.addr), "apis = [\"chat\"]")
        .model("gpt", "openai", "gpt")
        .file("aws-secret", SECRET)
        .priced("input = 1\noutput = 2")
        .account("acme", "1");
    let lines = format!("account = \"acme\"\n{}", access_key(ACCESS_KEY_ID));
    setup.keys += &key("ann", "client-key-of-ann-0010", &lines);
    let gateway = Gateway::start(&setup).await;
    let forged = Signing { secret: "guessed-secret-00", ..Signing::default() };
    assert_eq!(gateway.ask(forged.post(PATH, BODY)).await.status(), 403);
    let answer = gateway.ask(Signing::default().post(PATH, BODY)).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let records = gateway.records(1).await;
    assert_eq!(records[0]["key"], "ann", "{records:?}");
    assert!(gateway.account("acme")["balance"].as_str().is_some_and(|left| left.starts_with("0.99")));
}

#[tokio::test]
async fn access_key_is_created_by_a_command_and_never_shown_again() {
    let (_upstream, gateway) = start().await;
    let created = gateway.command(&["keys", "create", "zoe", "--aws"]);
    let line = |name: &str| {
        let line = created.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
        line.unwrap_or_else(|| panic!("{created}")).to_owned()
    };
    let (id, secret) = (line("AWS_ACCESS_KEY_ID"), line("AWS_SECRET_ACCESS_KEY"));
    let bearer = line("AWS_BEARER_TOKEN_BEDROCK");
    let file = gateway.folder().join("access-keys").join(&id);
    assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), secret);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o007, 0, "not for others");
    gateway.reload("applied").await;
    let signing = Signing { id: &id, secret: &secret, ..Signing::default() };
    let answer = gateway.ask(signing.post(PATH, BODY)).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let asked = usual_with_bearer(&bearer);
    assert_eq!(gateway.ask(asked).await.status(), 200);
    for shown in [
        gateway.command(&["keys", "list"]),
        gateway.command(&["check", "--print"]),
        std::fs::read_to_string(gateway.folder().join("keys.toml")).unwrap(),
        std::fs::read_to_string(gateway.folder().join("access.log")).unwrap(),
        gateway.log(),
        String::from_utf8(
            crate::support::client::ask(gateway.admin, request("GET", "/status", &[])).await.body,
        )
        .unwrap(),
    ] {
        assert!(!shown.contains(&secret) && !shown.contains(SECRET), "{shown}");
    }
}

fn usual_with_bearer(bearer: &str) -> Vec<u8> {
    let authorization = format!("Bearer {bearer}");
    crate::support::client::post_with(PATH, &[("authorization", &authorization)], BODY)
}

#[tokio::test]
async fn access_key_without_a_valid_secret_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("gateway.toml", "[server]\nlisten = [\"127.0.0.1:1\"]\nadmin = \"127.0.0.1:2\"\n");
    write("routes.toml", "");
    let check = |lines: &str| {
        let keys = key("one", "k1", lines) + &key("two", "k2", &access_key("MGWATWOTWOTWOTWOTWO2"));
        write("keys.toml", &keys);
        write("aws-secret", SECRET);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_model-gateway"))
            .args(["check", "--conf"])
            .arg(folder.path().join("gateway.toml"))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
    };
    for (lines, words) in [
        ("access_key = { id = \"short\", secret = { file = \"aws-secret\" } }", "16 to 128 letters"),
        ("access_key = { id = \"MGWAONEONEONEONEONE1\" }", "access_key.secret"),
        ("access_key = { id = \"MGWAONEONEONEONEONE1\", secret = { value = \"hunter2\" } }", "fewer than 16"),
        ("access_key = { id = \"MGWAONEONEONEONEONE1\", secret = { file = \"nowhere\" } }", "nowhere"),
        ("access_key = { id = \"MGWATWOTWOTWOTWOTWO2\", secret = { file = \"aws-secret\" } }", "the same id"),
    ] {
        let told = check(lines);
        assert!(told.contains(words), "{lines}: {told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
    assert!(!check("").contains("access_key"));
}
