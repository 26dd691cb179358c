//! Tests of error bodies and stream ends in each format.

use serde_json::{Value, json};

use crate::error::{ApiError, ErrorKind, RetryAfter};
use crate::wire::Format;
use crate::wire::error::{
    ArrayState, ProviderError, body, client_status, from_provider, is_in_shape, stream_tail,
};
use crate::wire::watch::{self, StreamEnd};
use framing::json_array::ArraySplitter;
use framing::sse::{SseEvent, SseSplitter};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn error_has_the_envelope_of_each_format() {
    let error = ApiError::missing("messages");
    for (format, expected) in [
        (
            Format::Chat,
            json!({"error": {"message": "Missing required parameter: 'messages'.", "type": "invalid_request_error",
                "param": "messages", "code": null}}),
        ),
        (
            Format::Responses,
            json!({"error": {"message": "Missing required parameter: 'messages'.", "type": "invalid_request_error",
                "param": "messages", "code": null}}),
        ),
        (
            Format::Messages,
            json!({"type": "error", "error": {"type": "invalid_request",
                "message": "Missing required parameter: 'messages'."}, "request_id": "req_1"}),
        ),
        (
            Format::Generate,
            json!({"error": {"code": 400, "message": "Missing required parameter: 'messages'.",
                "status": "INVALID_ARGUMENT"}}),
        ),
    ] {
        let body = body(format, &error, "req_1");
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), expected, "{format}");
        assert!(is_in_shape(format, 400, text(&body)), "{format}");
    }
}

/// Errors have the shape of the client's format, not of another one.
#[test]
fn bug_66_error_of_every_kind_has_the_shape_of_every_format() {
    for kind in ErrorKind::ALL {
        let error = ApiError::new(kind, "a \"quoted\"\nmessage");
        for format in Format::ALL {
            let body = body(format, &error, "req_1");
            assert!(is_in_shape(format, error.status, text(&body)), "{format} {}", kind.label());
            let tree: Value = serde_json::from_slice(&body).unwrap();
            let message =
                if format == Format::Converse { &tree["message"] } else { &tree["error"]["message"] };
            assert_eq!(message, "a \"quoted\"\nmessage");
        }
    }
}

#[test]
fn stream_tail_is_an_error_and_never_a_finish() {
    let error = ApiError::new(ErrorKind::UpstreamBroken, "cut");
    // Exceptions of an event stream are tested beside its encoder.
    for format in Format::ALL.into_iter().filter(|format| *format != Format::Converse) {
        let tail = stream_tail(format, &error, "req_1", None);
        let mut splitter = SseSplitter::default();
        let (mut from, mut ends) = (0, Vec::new());
        while let Some(end) = splitter.next_boundary(&tail, from) {
            let mut scratch = Vec::new();
            let event = SseEvent::parse(&tail[from..end], &mut scratch);
            let sight = watch::frame(format, text(event.data.unwrap())).unwrap();
            assert!(sight.finish.is_none() && sight.finished == 0 && sight.usage.is_none(), "{format}");
            ends.push(sight.end);
            from = end;
        }
        assert_eq!(from, tail.len(), "{format}");
        assert_eq!(ends, [StreamEnd::Failed], "{format}");
    }
}

/// Claude Code repeats a request whose stream ended with one of Anthropic's types for faults of the server, and gives up
/// after a type that it does not know.
#[test]
fn client_2_stream_error_of_messages_has_a_type_of_anthropic() {
    for kind in ErrorKind::ALL {
        let tail = stream_tail(Format::Messages, &ApiError::new(kind, "cut"), "req_1", None);
        let data = text(&tail).strip_prefix("event: error\ndata: ").unwrap();
        let event: Value = serde_json::from_str(data).unwrap();
        let told = event["error"]["type"].as_str().unwrap();
        assert!(!["upstream_error", "svc_api_error", "invalid_request"].contains(&told), "{told}");
    }
    let tail = stream_tail(Format::Messages, &ApiError::new(ErrorKind::UpstreamBroken, "cut"), "req_1", None);
    assert!(text(&tail).contains(r#""error":{"type":"api_error","message":"cut"}"#), "{}", text(&tail));
}

/// Gemini CLI waits for the time of `RetryInfo`, and reads no header.
#[test]
fn client_3_wait_of_the_provider_is_in_the_retry_info() {
    let mut error = ApiError::new(ErrorKind::UpstreamRateLimit, "slow");
    for (retry_after, delay) in [
        (RetryAfter::Header("7".to_owned()), json!("7s")),
        (RetryAfter::Wait(std::time::Duration::from_millis(1_200)), json!("2s")),
        (RetryAfter::Header("Wed, 21 Oct 2026 07:28:00 GMT".to_owned()), Value::Null),
    ] {
        error.retry_after = Some(retry_after);
        let tree: Value = serde_json::from_slice(&body(Format::Generate, &error, "req_1")).unwrap();
        assert_eq!(tree["error"]["details"][0]["retryDelay"], delay);
    }
}

#[test]
fn stream_tail_closes_a_json_array() {
    let error = ApiError::new(ErrorKind::UpstreamTimeout, "late");
    for (sent, state, elements) in [("", ArrayState::Nothing, 1), ("[{\"a\":1}", ArrayState::Elements, 2)] {
        let tail = stream_tail(Format::Generate, &error, "req_1", Some(state));
        let whole = format!("{sent}{}", text(&tail));
        let tree: Value = serde_json::from_str(&whole).unwrap();
        assert_eq!(tree.as_array().unwrap().len(), elements);
        assert_eq!(tree[elements - 1]["error"]["status"], "DEADLINE_EXCEEDED");
        let mut splitter = ArraySplitter::default();
        let mut from = 0;
        while let Some(end) = splitter.next_boundary(whole.as_bytes(), from) {
            from = end;
        }
        assert!(splitter.is_closed());
    }
}

#[test]
fn stream_tail_of_responses_has_flat_and_nested_error() {
    let tail =
        stream_tail(Format::Responses, &ApiError::new(ErrorKind::UpstreamRateLimit, "slow"), "r", None);
    let data = text(&tail).strip_prefix("event: error\ndata: ").unwrap();
    let tree: Value = serde_json::from_str(data).unwrap();
    assert_eq!(tree["type"], "error");
    assert_eq!(tree["message"], "slow");
    assert_eq!(tree["code"], "rate_limit_exceeded");
    assert_eq!(tree["error"]["message"], "slow");
}

#[test]
fn provider_body_passes_only_in_the_shape_of_the_format() {
    for (format, status, body, passes) in [
        (Format::Chat, 400, r#"{"error":{"message":"m","type":"t","param":null,"code":null}}"#, true),
        (Format::Chat, 400, r#"{"error":{"message":"m","type":"t","code":"c"},"user_id":"u"}"#, true),
        (Format::Chat, 400, r#"{"error":{"message":"m","type":"t","code":400}}"#, false),
        (Format::Chat, 400, r#"{"error":{"message":"m","code":"401"}}"#, false),
        (Format::Chat, 400, r#"{"error":{"message":"","type":"t","code":null}}"#, false),
        (Format::Chat, 400, r#"{"error":"m"}"#, false),
        (Format::Chat, 400, r#"{"detail":"m"}"#, false),
        (Format::Chat, 400, "<html>", false),
        (Format::Chat, 400, "", false),
        (Format::Responses, 400, r#"{"error":{"message":"m","type":"t","code":null}}"#, true),
        (
            Format::Messages,
            400,
            r#"{"type":"error","error":{"type":"t","message":"m"},"request_id":null}"#,
            true,
        ),
        (Format::Messages, 400, r#"{"error":{"type":"t","message":"m"}}"#, false),
        (Format::Messages, 400, r#"{"type":"error","error":{"message":"m"}}"#, false),
        (
            Format::Generate,
            429,
            r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED","details":[]}}"#,
            true,
        ),
        (
            Format::Generate,
            400,
            r#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}"#,
            false,
        ),
        (Format::Generate, 400, r#"[{"error":{"code":400,"message":"m","status":"S"}}]"#, false),
        (Format::Generate, 400, r#"{"error":{"code":400,"message":"m","status":"S"}} x"#, false),
    ] {
        assert_eq!(is_in_shape(format, status, body), passes, "{format} {body}");
    }
}

#[test]
fn quota_exception_of_aws_is_a_rate_limit() {
    let name = "ServiceQuotaExceededException";
    for body in [
        format!(r#"{{"message":"Quota.","__type":"com.amazon.bedrock#{name}"}}"#),
        format!(r#"{{"message":"Quota.","__type":"{name}:http://internal.amazon.com/coral/"}}"#),
    ] {
        let error = from_provider(400, ProviderError::decode(body.as_bytes()), None);
        assert_eq!((error.kind, error.status), (ErrorKind::UpstreamRateLimit, 429), "{body}");
    }
    let in_stream = ProviderError::decode(br#"{"serviceQuotaExceededException":{"message":"Quota."}}"#);
    assert_eq!(in_stream.status(), 429);
    let other = ProviderError::decode(br#"{"message":"Quota.","__type":"ValidationException"}"#);
    assert_eq!(from_provider(400, other, None).kind, ErrorKind::UpstreamRejected);
}

fn provider(message: &str, code: Option<&str>) -> ProviderError {
    ProviderError { message: message.into(), code: code.map(str::to_owned), ..ProviderError::default() }
}

#[test]
fn provider_auth_error_is_not_reported_as_the_clients_key() {
    for (status, error) in [
        (401, provider("Incorrect API key provided: sk-secret", None)),
        (403, provider("project proj_secret has no access", None)),
        (402, provider("balance of account-secret", None)),
        (400, provider("Incorrect API key provided: secret", None)),
    ] {
        let error = from_provider(status, error, None);
        assert_eq!(error.kind, ErrorKind::UpstreamAuth);
        assert_ne!(error.status, 401, "{status}");
        assert!(!error.message.contains("secret"), "{}", error.message);
    }
    // Google answers an invalid API key with status 400.
    let error = from_provider(
        400,
        provider("API key not valid. Please pass a valid API key.", Some("API_KEY_INVALID")),
        None,
    );
    assert_eq!((error.kind, error.status), (ErrorKind::UpstreamAuth, 400));
    assert!(error.message.ends_with("API key not valid. Please pass a valid API key."));
}

#[test]
fn provider_status_and_message_are_kept() {
    for (status, kind, out) in [
        (400, ErrorKind::UpstreamRejected, 400),
        (404, ErrorKind::UpstreamRejected, 404),
        (408, ErrorKind::UpstreamTimeout, 408),
        (424, ErrorKind::UpstreamFailed, 424),
        (422, ErrorKind::UpstreamRejected, 422),
        (429, ErrorKind::UpstreamRateLimit, 429),
        (500, ErrorKind::UpstreamFailed, 500),
        (529, ErrorKind::UpstreamFailed, 529),
        (302, ErrorKind::UpstreamFailed, 500),
        (999, ErrorKind::UpstreamFailed, 500),
    ] {
        let error = from_provider(status, provider("why", Some("invalid_value")), None);
        assert_eq!((error.kind, error.status), (kind, out), "{status}");
        assert_eq!(error.message, "why");
        let code = matches!(kind, ErrorKind::UpstreamRejected | ErrorKind::UpstreamRateLimit);
        assert_eq!(error.code.as_deref(), code.then_some("invalid_value"), "{status}");
    }
    let error = from_provider(502, provider("  ", None), Some(RetryAfter::Header("7".into())));
    assert_eq!(error.message, "The upstream provider responded with HTTP status 502.");
    assert_eq!(error.retry_after, Some(RetryAfter::Header("7".into())), "the time to wait is retained");
}

#[test]
fn refused_credential_that_a_provider_answers_with_400_stays_a_400() {
    for format in Format::ALL {
        let error = from_provider(400, provider("API key not valid.", Some("API_KEY_INVALID")), None);
        assert_eq!((error.kind, client_status(format, &error)), (ErrorKind::UpstreamAuth, 400), "{format}");
        let error = from_provider(401, provider("API key not valid.", None), None);
        assert_eq!((error.kind, client_status(format, &error)), (ErrorKind::UpstreamAuth, 500), "{format}");
    }
}
