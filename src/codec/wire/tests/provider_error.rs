//! Tests of providers' error bodies, in every shape seen so far.

use std::time::Duration;

use proptest::prelude::*;

use crate::error::RetryAfter;
use crate::wire::error::ProviderError;

fn decode(body: &str) -> ProviderError {
    ProviderError::decode(body.as_bytes())
}

#[test]
fn fact_14_message_is_decoded_from_every_providers_shape() {
    for (body, message, kind, code) in [
        (r#"{"error":{"message":"m","type":"t","param":null,"code":"c"}}"#, "m", Some("t"), Some("c")),
        (r#"{"error":{"message":"m","type":"t","code":null}}"#, "m", Some("t"), None),
        (
            r#"{"error":{"message":"m","code":402,"metadata":{"raw":"r","provider_name":"p"}},"user_id":"u"}"#,
            "m: r",
            None,
            Some("402"),
        ),
        (
            r#"{"error":{"message":"m","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"r\"}}"}}}"#,
            "m: r",
            None,
            Some("400"),
        ),
        (r#"{"error":{"metadata":{"raw":{"message":"m"}}}}"#, "m", None, None),
        (r#"{"Message":"m"}"#, "m", None, None),
        (r#"{"error":"invalid_grant","error_description":"m"}"#, "m", None, None),
        (r#"{"error_code":336,"error_msg":"m"}"#, "m", None, Some("336")),
        (
            r#"{"object":"error","message":"m","type":"t","param":null,"code":"1500","raw_status_code":400}"#,
            "m",
            Some("t"),
            Some("1500"),
        ),
        (r#"{"detail":"m"}"#, "m", None, None),
        (r#"{"detail":[{"type":"missing","loc":["body"],"msg":"m"}]}"#, "m", Some("missing"), None),
        (r#"{"error":"m"}"#, "m", None, None),
        (r#"{"code":"c","error":"m"}"#, "m", None, Some("c")),
        (r#"{"error":{"code":"401","message":"m"}}"#, "m", None, Some("401")),
        (r#"{"error":{"code":"c","message":"m"},"request_id":"r"}"#, "m", None, Some("c")),
        (r#"{"id":"i","message":"m"}"#, "m", None, None),
        (r#"{"code":"c","message":"m","request_id":"r"}"#, "m", None, Some("c")),
        (r#"{"type":"error","error":{"type":"t","message":"m"},"request_id":null}"#, "m", Some("t"), None),
        (r#"{"errors":[{"message":"m"}]}"#, "m", None, None),
        ("upstream connect error", "upstream connect error", None, None),
        ("\"quoted\"", "\"quoted\"", None, None),
        ("<html><body>502</body></html>", "", None, None),
        ("", "", None, None),
        ("  \r\n", "", None, None),
        ("{}", "", None, None),
        ("[]", "", None, None),
    ] {
        let error = decode(body);
        assert_eq!(error.message, message, "{body}");
        assert_eq!(error.kind.as_deref(), kind, "{body}");
        assert_eq!(error.code.as_deref(), code, "{body}");
    }
}

#[test]
fn error_nested_deeply_is_read_to_a_few_levels() {
    for (before, after) in [(r#"{"error":"#, "}"), (r#"{"message":"#, "}"), (r#"{"errors":["#, "]}")] {
        let nested =
            |levels: usize| format!(r#"{}{{"message":"m"}}{}"#, before.repeat(levels), after.repeat(levels));
        assert_eq!(decode(&nested(2)).message, "m", "{before}");
        assert_eq!(decode(&nested(200)).message, "", "{before}");
    }
}

#[test]
fn fact_39_google_error_has_its_reason_and_retry_delay() {
    let body = r#"[{
      "error": {"code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED", "details": [
        {"@type": "type.googleapis.com/google.rpc.Help", "links": [{"url": "u"}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "32.5s"}]}}]"#;
    let error = decode(body);
    assert_eq!(error.message, "Quota exceeded.");
    assert_eq!(error.kind.as_deref(), Some("RESOURCE_EXHAUSTED"));
    assert_eq!(error.retry_after, Some(RetryAfter::Wait(Duration::from_millis(32_500))));
    let body = r#"{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#;
    assert_eq!(decode(body).code.as_deref(), Some("API_KEY_INVALID"));
}

#[test]
fn message_is_unescaped_and_bounded() {
    assert_eq!(decode(r#"{"error":{"message":"a\n\"\u00e9\""}}"#).message, "a\n\"é\"");
    let long = decode(&format!(r#"{{"error":{{"message":"{}"}}}}"#, "é".repeat(10_000))).message;
    assert!(long.len() < 5000 && long.ends_with("é…"));
}

#[test]
fn message_of_a_truncated_body_is_what_was_decoded() {
    let error = decode(r#"{"code":"c","message":"m","details":{"#);
    assert_eq!((error.message.as_str(), error.code.as_deref()), ("m", Some("c")));
    assert_eq!(ProviderError::decode(b"\xff\xfe").message, "\u{fffd}\u{fffd}");
}

proptest! {
    #[test]
    fn decode_of_arbitrary_text_never_panics(
        body in r#"[\[\]{},:\\"a-z]{0,20}("(error|detail|message|details|retryDelay)":(\{|\[|"|1e999s))?[\[\]{},:\\"a-z]{0,20}"#,
    ) {
        let error = decode(&body);
        prop_assert!(error.message.len() <= 5000);
    }
}
