//! Context overflows of providers: clients of every format get them in the words that they recover from.

use serde_json::{Value, json};

use super::support::form::Form;
use super::support::gateway::Gateway;
use super::support::reply;
use super::support::setup::{Setup, provider_of};
use super::support::upstream::Upstream;

/// Overflow errors of a provider of each format: status, body, and the tokens and the limit that it says.
fn overflow(form: Form) -> (Value, Option<(u64, u64)>) {
    match form {
        Form::Chat => (
            json!({"error": {"message": "This model's maximum context length is 128000 tokens. However, your messages resulted in 130500 tokens. Please reduce the length of the messages.",
                "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}}),
            Some((130_500, 128_000)),
        ),
        Form::Responses => (
            json!({"error": {"message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
                "type": "invalid_request_error", "param": "input", "code": "context_length_exceeded"}}),
            None,
        ),
        Form::Messages => (
            json!({"type": "error", "error": {"type": "invalid_request_error",
                "message": "prompt is too long: 210000 tokens > 200000 maximum"}, "request_id": "req_1"}),
            Some((210_000, 200_000)),
        ),
        Form::Generate => (
            json!({"error": {"code": 400, "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                "status": "INVALID_ARGUMENT"}}),
            Some((1_200_000, 1_048_576)),
        ),
    }
}

/// Checks an overflow error in the words of a client.
fn check_overflow(client: Form, provider: Form, error: &Value) {
    let (own, numbers) = overflow(provider);
    let message = error["message"].as_str().unwrap();
    let said = own["error"]["message"].as_str().unwrap();
    match client {
        _ if client == provider => assert_eq!(message, said),
        Form::Messages => {
            assert_eq!(error["type"], "invalid_request_error", "{provider:?}");
            let start = numbers.map(|(tokens, limit)| format!("{tokens} tokens > {limit} maximum: "));
            assert_eq!(message, format!("prompt is too long: {}{said}", start.unwrap_or_default()));
        }
        Form::Chat | Form::Responses => {
            assert_eq!((&error["code"], message), (&json!("context_length_exceeded"), said), "{provider:?}");
        }
        Form::Generate => {
            let (tokens, limit) = match numbers {
                Some((tokens, limit)) => (format!(" ({tokens})"), format!(" ({limit})")),
                None => Default::default(),
            };
            let sentence =
                format!("The input token count{tokens} exceeds the maximum number of tokens allowed{limit}.");
            assert_eq!(message, format!("{sentence} {said}"), "{provider:?}");
            assert_eq!(error["status"], "INVALID_ARGUMENT");
        }
    }
}

#[tokio::test]
async fn overflow_reaches_every_client_in_its_own_words() {
    let upstream = Upstream::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let form =
                Form::ALL.into_iter().find(|form| request.head.target().contains(form.mark())).unwrap();
            conn.send(reply::json(400, overflow(form).0.to_string())).await;
        }
    })
    .await;
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr)).await;
    for provider in Form::ALL {
        for client in Form::ALL {
            for stream in [false, true] {
                let answer = gateway.ask(client.request_for(provider_of(provider), stream)).await;
                assert_eq!(answer.status(), 400, "{client:?} {provider:?}: {}", answer.text());
                check_overflow(client, provider, &answer.json()["error"]);
            }
        }
    }
    gateway.wait_for_metric("gateway_errors_total", &[("kind", "context_overflow")], 32.0).await;
}

#[tokio::test]
async fn overflow_inside_a_stream_is_told_in_the_words_of_the_client() {
    let openai = overflow(Form::Chat).0;
    let failed = json!({"type": "response.failed", "response": {"id": "resp_1", "status": "failed",
        "error": {"code": "context_length_exceeded", "message": openai["error"]["message"]}}});
    for (provider, frames) in [
        (Form::Chat, vec![format!("data: {openai}\n\n")]),
        (Form::Responses, vec![format!("event: response.failed\ndata: {failed}\n\n")]),
    ] {
        let upstream = Upstream::answering(reply::stream(&frames)).await;
        let gateway = Gateway::start(&Setup::each_provider(upstream.addr)).await;
        let answer = gateway.ask(Form::Messages.request_for(provider_of(provider), true)).await;
        assert_eq!(answer.status(), 400, "{}", answer.text());
        let error = answer.json()["error"].clone();
        let said = openai["error"]["message"].as_str().unwrap();
        let message = format!("prompt is too long: 130500 tokens > 128000 maximum: {said}");
        assert_eq!((&error["type"], &error["message"]), (&json!("invalid_request_error"), &json!(message)));
    }
}
