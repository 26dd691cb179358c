//! Types and statuses of errors in each client format: docs/decisions/019-errors.md has the table that these tests follow.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::faults::scripts::closed_port;
use crate::support::client::{Answer, post_with};
use crate::support::form::{Form, provider_error};
use crate::support::gateway::Gateway;

use crate::support::reply;
use crate::support::setup::{DISABLED_KEY, EXPIRED_KEY, KEY, NARROW_KEY, Setup, provider_of};
use crate::support::upstream::Upstream;

const BEDROCK_ERROR: &str = "http://internal.amazon.com/coral/com.amazon.bedrock/";

/// Starts an upstream whose answer can be replaced.
async fn answering() -> (Upstream, Arc<Mutex<Vec<u8>>>) {
    let answer = Arc::new(Mutex::new(Vec::new()));
    let current = answer.clone();
    let upstream = Upstream::start(move |mut conn| {
        let current = current.clone();
        async move {
            while conn.request().await.is_some() {
                let answer = current.lock().unwrap().clone();
                conn.send(answer).await;
            }
        }
    })
    .await;
    (upstream, answer)
}

async fn ask_with(gateway: &Gateway, path: &str, key: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {key}");
    gateway.ask(post_with(path, &[("authorization", &*bearer)], body)).await
}

async fn ask(gateway: &Gateway, form: Form, model: &str, stream: bool) -> Answer {
    ask_with(gateway, &form.path(model, stream), KEY, &form.body(model, stream)).await
}

/// Statuses and types of Anthropic, and those that clients of the messages format receive.
const MESSAGES: [(u16, &str, u16, &str); 12] = [
    (400, "invalid_request_error", 400, "invalid_request"),
    (404, "not_found_error", 404, "not_found_error"),
    (409, "conflict_error", 409, "invalid_request"),
    (413, "request_too_large", 413, "invalid_request"),
    (415, "invalid_request_error", 400, "invalid_request"),
    (422, "invalid_request_error", 400, "invalid_request"),
    (429, "rate_limit_error", 429, "rate_limit_error"),
    (500, "api_error", 500, "upstream_error"),
    (502, "api_error", 500, "upstream_error"),
    (503, "api_error", 500, "upstream_error"),
    (504, "timeout_error", 500, "upstream_error"),
    (529, "overloaded_error", 529, "upstream_error"),
];

#[tokio::test]
async fn messages_errors_of_providers_have_the_specified_types_and_statuses() {
    let (upstream, answer) = answering().await;
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr)).await;
    let own = Gateway::start(&Setup::each_provider_with(upstream.addr, "errors = \"own\"")).await;
    for (status, kind, told, told_kind) in MESSAGES {
        let error =
            json!({"type": "error", "error": {"type": kind, "message": "Its words."}, "request_id": "req_v"});
        *answer.lock().unwrap() = reply::json(status, error.to_string());
        let model = provider_of(Form::Messages);
        for stream in [false, true] {
            let got = ask(&gateway, Form::Messages, model, stream).await;
            let mut expected = error.clone();
            if kind != told_kind {
                expected["error"]["type"] = told_kind.into();
                expected["error"]["provider_type"] = kind.into();
            }
            assert_eq!((got.status(), got.json()), (told, expected), "{status}");
        }
        let got = ask(&own, Form::Messages, model, false).await;
        assert_eq!((got.status(), got.json()), (status, error), "as they came");
        // The same for errors of providers of other formats.
        for provider in [Form::Chat, Form::Responses, Form::Generate] {
            *answer.lock().unwrap() = reply::json(status, provider_error(provider, status, "No."));
            let got = ask(&gateway, Form::Messages, provider_of(provider), false).await;
            let (got_kind, message) = Form::Messages.error(&got);
            assert_eq!(
                (got.status(), &*got_kind, &*message),
                (told, told_kind, "No."),
                "{status} {provider:?}"
            );
        }
    }
}

#[tokio::test]
async fn messages_errors_of_the_gateway_have_the_specified_types_and_statuses() {
    let reserved = closed_port();
    let addr = reserved.local_addr().unwrap();
    let gateway = Gateway::start(&Setup::providers(addr).limits("body = \"4KiB\"")).await;
    let model = Form::Messages.model();
    let body = Form::Messages.body(model, false);
    let large =
        format!("{{\"model\":\"{model}\",\"max_tokens\":1,\"messages\":[],\"x\":\"{}\"}}", "x".repeat(5000));
    let (post, other) = ("/v1/messages", Form::Messages.body("nope", false));
    for (what, path, key, body, status, kind) in [
        ("wrong key", post, "sk-wrong", &*body, 401, "authentication_error"),
        ("disabled key", post, DISABLED_KEY, &*body, 401, "authentication_error"),
        ("expired key", post, EXPIRED_KEY, &*body, 401, "authentication_error"),
        // Claude Code asks for another key after a 401, and repeats the request.
        ("key without the model", post, NARROW_KEY, &*body, 403, "authentication_error"),
        ("no JSON", post, KEY, "{", 400, "invalid_request"),
        ("no messages", post, KEY, r#"{"model":"claude","max_tokens":1}"#, 400, "invalid_request"),
        ("too large", post, KEY, &*large, 413, "invalid_request"),
        // Claude Code switches to its other model.
        ("unknown model", post, KEY, &*other, 404, "not_found_error"),
        ("unknown path", "/v1/messages/nope", KEY, &*body, 404, "not_found_error"),
        ("unreachable provider", post, KEY, &*body, 500, "upstream_error"),
    ] {
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", &*bearer), ("anthropic-version", "2023-06-01")];
        let got = gateway.ask(post_with(path, &headers, body)).await;
        let (found, _) = Form::Messages.error(&got);
        assert_eq!((got.status(), &*found), (status, kind), "{what}: {}", got.text());
    }
}

#[tokio::test]
async fn generate_errors_of_providers_have_statuses_of_google() {
    let (upstream, answer) = answering().await;
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr)).await;
    for (status, told, kind) in [
        (400, 400, "INVALID_ARGUMENT"),
        (404, 404, "NOT_FOUND"),
        (409, 409, "ABORTED"),
        (413, 400, "INVALID_ARGUMENT"),
        (415, 400, "INVALID_ARGUMENT"),
        (422, 400, "INVALID_ARGUMENT"),
        (424, 500, "INTERNAL"),
        (429, 429, "RESOURCE_EXHAUSTED"),
        (500, 500, "INTERNAL"),
        (502, 500, "INTERNAL"),
        (503, 503, "UNAVAILABLE"),
        (504, 504, "DEADLINE_EXCEEDED"),
        (529, 503, "UNAVAILABLE"),
    ] {
        for provider in Form::ALL {
            *answer.lock().unwrap() = reply::json(status, provider_error(provider, status, "No."));
            for stream in [false, true] {
                let got = ask(&gateway, Form::Generate, provider_of(provider), stream).await;
                // Asserts that the body repeats the status.
                let (found, message) = Form::Generate.error(&got);
                assert_eq!((got.status(), &*message), (told, "No."), "{status} {provider:?}");
                // A body of Google itself keeps its own name.
                if provider != Form::Generate || told != status {
                    assert_eq!(found, kind, "{status} {provider:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn chat_and_responses_errors_have_no_status_of_bedrock() {
    let (upstream, answer) = answering().await;
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr)).await;
    for form in [Form::Chat, Form::Responses] {
        for (status, told) in [(424, 500), (413, 413), (422, 422), (503, 503), (529, 529)] {
            *answer.lock().unwrap() = reply::json(status, provider_error(Form::Generate, status, "No."));
            let got = ask(&gateway, form, provider_of(Form::Generate), false).await;
            assert_eq!(got.status(), told, "{form:?} {status}");
        }
    }
}

/// Returns a gateway with a model of Converse, one of InvokeModel, and those of [`Setup::each_provider`].
async fn with_bedrock(upstream: &Upstream) -> Gateway {
    let base = format!("http://{}", upstream.addr);
    let setup = Setup::each_provider(upstream.addr)
        .provider("at-converse", "bedrock", &base, "apis = [\"converse\"]")
        .provider("at-invoke", "bedrock", &base, "apis = [\"messages\"]")
        .model("converse-model", "at-converse", "us.amazon.nova-pro-v1:0")
        .model("invoke-model", "at-invoke", "us.anthropic.claude-sonnet-4-5-20250929-v1:0");
    Gateway::start(&setup).await
}

const CONVERSE_BODY: &str = r#"{"messages":[{"role":"user","content":[{"text":"Hi"}]}]}"#;
const INVOKE_BODY: &str = r#"{"anthropic_version":"bedrock-2023-05-31","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}"#;

/// SDKs of AWS repeat a request by its status: after 500, 502, 503 and 504 and not after 529.
#[tokio::test]
async fn bedrock_errors_have_the_statuses_of_the_service_model() {
    let (upstream, answer) = answering().await;
    let gateway = with_bedrock(&upstream).await;
    for (status, told, name) in [
        (400, 400, "ValidationException"),
        (404, 404, "ResourceNotFoundException"),
        (408, 408, "ModelTimeoutException"),
        (409, 400, "ValidationException"),
        (413, 400, "ValidationException"),
        (422, 400, "ValidationException"),
        (424, 424, "ModelErrorException"),
        (429, 429, "ThrottlingException"),
        (500, 500, "InternalServerException"),
        (502, 500, "InternalServerException"),
        (503, 503, "ServiceUnavailableException"),
        (504, 503, "ServiceUnavailableException"),
        (529, 503, "ServiceUnavailableException"),
    ] {
        for provider in Form::ALL {
            *answer.lock().unwrap() = reply::json(status, provider_error(provider, status, "No."));
            let model = provider_of(provider);
            for (operation, body) in [
                ("converse", CONVERSE_BODY),
                ("converse-stream", CONVERSE_BODY),
                ("invoke", INVOKE_BODY),
                ("invoke-with-response-stream", INVOKE_BODY),
            ] {
                let got = ask_with(&gateway, &format!("/model/{model}/{operation}"), KEY, body).await;
                let found = (got.status(), got.get("x-amzn-errortype"));
                assert_eq!(found, (told, Some(name)), "{status} {provider:?} {operation}");
                assert_eq!(got.json(), json!({"message": "No.", "__type": name}), "{status} {provider:?}");
            }
        }
    }
}

#[tokio::test]
async fn bedrock_exception_keeps_its_name() {
    let (upstream, answer) = answering().await;
    let gateway = with_bedrock(&upstream).await;
    for (status, name, told, told_name) in [
        (424, "ModelErrorException", 424, "ModelErrorException"),
        (429, "ModelNotReadyException", 429, "ModelNotReadyException"),
        (408, "ModelTimeoutException", 408, "ModelTimeoutException"),
        (400, "ConflictException", 400, "ConflictException"),
        (503, "ServiceUnavailableException", 503, "ServiceUnavailableException"),
        // A used-up quota of the gateway's account is a limit that the client may wait for.
        (400, "ServiceQuotaExceededException", 429, "ThrottlingException"),
        // Names of another service, or that contradict their status, are not told.
        (404, "FTUFormNotFilled", 404, "ResourceNotFoundException"),
        (400, "ModelErrorException", 400, "ValidationException"),
    ] {
        let full = format!("{name}:{BEDROCK_ERROR}");
        let headers = [("content-type", "application/json"), ("x-amzn-errortype", &*full)];
        let in_header = reply::whole(status, &headers, r#"{"message":"No."}"#);
        let in_body =
            reply::json(status, format!(r#"{{"message":"No.","__type":"com.amazon.coral.service#{name}"}}"#));
        for reply in [in_header, in_body] {
            *answer.lock().unwrap() = reply;
            for (model, operation, body) in [
                ("converse-model", "converse", CONVERSE_BODY),
                ("converse-model", "converse-stream", CONVERSE_BODY),
                ("invoke-model", "invoke", INVOKE_BODY),
                ("invoke-model", "converse", CONVERSE_BODY),
                ("converse-model", "invoke", INVOKE_BODY),
            ] {
                let got = ask_with(&gateway, &format!("/model/{model}/{operation}"), KEY, body).await;
                let found = (got.status(), got.get("x-amzn-errortype"));
                assert_eq!(found, (told, Some(told_name)), "{status} {name} {model} {operation}");
                assert_eq!(got.json()["message"], "No.", "{name}");
            }
        }
    }
}

/// An overload that is the first event of a stream is an error that SDKs of AWS repeat.
#[tokio::test]
async fn bedrock_client_gets_an_overload_in_the_first_event_as_503() {
    let (upstream, answer) = answering().await;
    let gateway = with_bedrock(&upstream).await;
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    *answer.lock().unwrap() = reply::stream(&[format!("event: error\ndata: {error}\n\n")]);
    let model = provider_of(Form::Messages);
    for (operation, body) in
        [("converse-stream", CONVERSE_BODY), ("invoke-with-response-stream", INVOKE_BODY)]
    {
        let got = ask_with(&gateway, &format!("/model/{model}/{operation}"), KEY, body).await;
        let found = (got.status(), got.get("x-amzn-errortype"));
        assert_eq!(found, (503, Some("ServiceUnavailableException")), "{operation}: {}", got.everything());
    }
}

#[tokio::test]
async fn bedrock_operation_unknown_is_an_error_of_aws() {
    let (upstream, _) = answering().await;
    let gateway = with_bedrock(&upstream).await;
    for path in ["/model/converse-model/nope", "/model/m", "/async-invoke", "/guardrail/g/version/1/apply"] {
        let got = ask_with(&gateway, path, KEY, "{}").await;
        let found = (got.status(), got.get("x-amzn-errortype"));
        assert_eq!(found, (404, Some("UnknownOperationException")), "{path}");
        assert!(got.get("x-amzn-requestid").is_some(), "{path}");
        let body: Value = got.json();
        assert!(body["message"].as_str().is_some_and(|text| text.contains(path)), "{body}");
    }
    assert_eq!(upstream.count(), 0);
}
