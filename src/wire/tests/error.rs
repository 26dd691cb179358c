//! Errors as clients read them: bodies and stream tails of each format.

use serde_json::{Value, json};

use crate::error::{ApiError, Kind, RetryAfter};
use crate::framing::json_array::ArraySplitter;
use crate::framing::sse::{Event, SseSplitter};
use crate::wire::Format;
use crate::wire::error::{ArrayState, ProviderError, body, from_provider, is_in_shape, stream_tail};
use crate::wire::watch::{self, StreamEnd};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn each_format_has_its_own_envelope() {
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

/// bugs.md 66: errors of one format in the shape of another.
#[test]
fn bug_66_every_kind_is_in_the_shape_of_every_format() {
    for kind in Kind::ALL {
        let error = ApiError::new(kind, "a \"quoted\"\nmessage");
        for format in Format::ALL {
            let body = body(format, &error, "req_1");
            assert!(is_in_shape(format, error.status, text(&body)), "{format} {}", kind.label());
            let tree: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(tree["error"]["message"], "a \"quoted\"\nmessage");
        }
    }
}

#[test]
fn the_tail_of_a_broken_stream_is_an_error_and_never_a_finish() {
    let error = ApiError::new(Kind::UpstreamBroken, "cut");
    for format in Format::ALL {
        let tail = stream_tail(format, &error, "req_1", None);
        let mut splitter = SseSplitter::default();
        let (mut from, mut ends) = (0, Vec::new());
        while let Some(end) = splitter.next_boundary(&tail, from) {
            let mut scratch = Vec::new();
            let event = Event::parse(&tail[from..end], &mut scratch);
            let sight = watch::frame(format, text(event.data.unwrap())).unwrap();
            assert!(sight.finish.is_none() && sight.finished == 0 && sight.usage.is_none(), "{format}");
            ends.push(sight.end);
            from = end;
        }
        assert_eq!(from, tail.len(), "{format}");
        let expected: &[StreamEnd] = if format == Format::Chat {
            &[StreamEnd::Failed, StreamEnd::Terminated]
        } else {
            &[StreamEnd::Failed]
        };
        assert_eq!(ends, expected, "{format}");
    }
}

#[test]
fn the_tail_of_a_broken_array_closes_it() {
    let error = ApiError::new(Kind::UpstreamTimeout, "late");
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
fn an_error_event_of_the_responses_format_holds_what_both_kinds_of_clients_read() {
    let tail = stream_tail(Format::Responses, &ApiError::new(Kind::UpstreamRateLimit, "slow"), "r", None);
    let data = text(&tail).strip_prefix("event: error\ndata: ").unwrap();
    let tree: Value = serde_json::from_str(data).unwrap();
    assert_eq!(tree["type"], "error");
    assert_eq!(tree["message"], "slow");
    assert_eq!(tree["code"], "rate_limit_exceeded");
    assert_eq!(tree["error"]["message"], "slow");
}

#[test]
fn a_provider_s_body_passes_only_in_the_shape_of_the_format() {
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

fn provider(message: &str, code: Option<&str>) -> ProviderError {
    ProviderError { message: message.into(), code: code.map(str::to_owned), ..ProviderError::default() }
}

#[test]
fn a_refused_credential_is_never_blamed_on_the_client_s_key() {
    for (status, error) in [
        (401, provider("Incorrect API key provided: sk-secret", None)),
        (403, provider("project proj_secret has no access", None)),
        (402, provider("balance of account-secret", None)),
        (400, provider("Incorrect API key provided: secret", None)),
    ] {
        let error = from_provider(status, error, None);
        assert_eq!(error.kind, Kind::UpstreamAuth);
        assert_ne!(error.status, 401, "{status}");
        assert!(!error.message.contains("secret"), "{}", error.message);
    }
    // wire-facts 39: Google says 400.
    let error = from_provider(
        400,
        provider("API key not valid. Please pass a valid API key.", Some("API_KEY_INVALID")),
        None,
    );
    assert_eq!((error.kind, error.status), (Kind::UpstreamAuth, 400));
    assert!(error.message.ends_with("API key not valid. Please pass a valid API key."));
}

#[test]
fn a_provider_s_status_and_words_are_kept() {
    for (status, kind, out) in [
        (400, Kind::UpstreamRejected, 400),
        (404, Kind::UpstreamRejected, 404),
        (408, Kind::UpstreamTimeout, 408),
        (422, Kind::UpstreamRejected, 422),
        (429, Kind::UpstreamRateLimit, 429),
        (500, Kind::UpstreamFailed, 500),
        (529, Kind::UpstreamFailed, 529),
        (302, Kind::UpstreamFailed, 500),
        (999, Kind::UpstreamFailed, 500),
    ] {
        let error = from_provider(status, provider("why", Some("context_length_exceeded")), None);
        assert_eq!((error.kind, error.status), (kind, out), "{status}");
        assert_eq!(error.message, "why");
        let code = matches!(kind, Kind::UpstreamRejected | Kind::UpstreamRateLimit);
        assert_eq!(error.code.as_deref(), code.then_some("context_length_exceeded"), "{status}");
    }
    let error = from_provider(502, provider("  ", None), Some(RetryAfter::Header("7".into())));
    assert_eq!(error.message, "The upstream provider answered with HTTP status 502.");
    assert_eq!(
        error.retry_after,
        Some(RetryAfter::Header("7".into())),
        "bugs.md 66: the time to wait is kept"
    );
}
