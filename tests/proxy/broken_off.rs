//! Responses that a provider broke off, and what its errors say about when to try again.

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::json;

use crate::faults::scripts::{good, wants_stream};
use crate::support::client::post;
use crate::support::form::{Form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::Setup;
use crate::support::upstream::Upstream;

/// Completion that DeepSeek broke off.
const BROKEN: &str = r#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Half an ans"},"finish_reason":"insufficient_system_resource"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}"#;

/// Frames of the same as a stream, with this content before the finish reason.
fn broken_stream(content: &str) -> Vec<String> {
    vec![
        format!(
            "data: {}\n\n",
            json!({"id": "x", "choices": [{"index": 0, "delta": {"role": "assistant", "content": content}}]})
        ),
        "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"insufficient_system_resource\"}]}\n\n"
            .to_owned(),
        "data: [DONE]\n\n".to_owned(),
    ]
}

/// Starts a gateway whose model `gpt` has these targets, all of which speak chat completions. Without time for a failed
/// target.
async fn targets(upstreams: &[&Upstream]) -> Gateway {
    let mut setup = Setup::new();
    let mut names = Vec::new();
    for (number, upstream) in upstreams.iter().enumerate() {
        let name = format!("p{number}");
        let base = format!("http://{}/v1", upstream.addr);
        setup = setup.provider(&name, "openai-compatible", &base, "apis = [\"chat\"]");
        names.push(format!("{{ provider = \"{name}\", model = \"m\", tier = {number} }}"));
    }
    setup.routes += &format!("[[model]]\nid = \"gpt\"\ntargets = [{}]\n\n", names.join(", "));
    Gateway::start(&setup).await
}

async fn answering_both(document: &str, frames: Vec<String>) -> Upstream {
    let (document, stream) = (reply::json(200, document), reply::stream(&frames));
    Upstream::start(move |mut conn| {
        let (document, stream) = (document.clone(), stream.clone());
        async move {
            while let Some(request) = conn.request().await {
                conn.send(if wants_stream(&request) { stream.clone() } else { document.clone() }).await;
            }
        }
    })
    .await
}

async fn healthy() -> Upstream {
    Upstream::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            conn.send(good(Form::Chat, wants_stream(&request))).await;
        }
    })
    .await
}

#[tokio::test]
async fn broken_off_response_is_given_by_the_next_target_if_nothing_was_sent() {
    let (broken, healthy) = (answering_both(BROKEN, broken_stream("")).await, healthy().await);
    let gateway = targets(&[&broken, &healthy]).await;
    for stream in [false, true] {
        let answer = gateway.ask(Form::Chat.request_for("gpt", stream)).await;
        assert_eq!(
            (answer.status(), answer.get("x-gateway-attempts")),
            (200, Some("2")),
            "{}",
            answer.text()
        );
        assert!(!answer.text().contains("insufficient_system_resource"), "{}", answer.text());
    }
    let failed = [("provider", "p0"), ("kind", "upstream_failed")];
    gateway.wait_for_metric("gateway_upstream_errors_total", &failed, 2.0).await;
}

#[tokio::test]
async fn broken_off_response_is_an_error_for_chat_clients_if_no_target_does_better() {
    let frames = broken_stream("Half an ans");
    let first = answering_both(BROKEN, frames.clone()).await;
    let second = answering_both(BROKEN, frames.clone()).await;
    for upstreams in [&[&first][..], &[&first, &second]] {
        let gateway = targets(upstreams).await;
        let answer = gateway.ask(Form::Chat.request_for("gpt", false)).await;
        assert_eq!(answer.status(), 503, "{}", answer.text());
        assert!(Form::Chat.error(&answer).1.contains("insufficient_system_resource"), "{}", answer.text());
        let answer = gateway.ask(Form::Chat.request_for("gpt", true)).await;
        // With a further target, the first frames are held back until it is known that they are an answer.
        let message = if answer.status() == 200 {
            assert!(answer.text().starts_with(&frames[0]), "{}", answer.text());
            assert!(!answer.text().contains("finish_reason"), "{}", answer.text());
            Form::Chat.stream_error(answer.text()).unwrap_or_else(|| panic!("{}", answer.text())).1
        } else {
            Form::Chat.error(&answer).1
        };
        assert!(message.contains("insufficient_system_resource"), "{message}");
        let failed = [("source", "upstream")];
        gateway.wait_for_metric("gateway_errors_total", &failed, 2.0).await;
        let lines = gateway.access_log();
        assert!(lines.iter().all(|line| line["error"].is_string()), "{lines:?}");
    }
}

#[tokio::test]
async fn broken_off_response_is_an_error_for_clients_of_other_formats() {
    let broken = answering_both(BROKEN, broken_stream("Half an ans")).await;
    let gateway = targets(&[&broken]).await;
    for form in [Form::Messages, Form::Responses, Form::Generate] {
        let answer = gateway.ask(form.request_for("gpt", false)).await;
        assert!(matches!(answer.status(), 500 | 503), "{form:?}");
        let (_, message) = form.error(&answer);
        assert!(message.contains("insufficient_system_resource"), "{message}");
        let answer = gateway.ask(form.request_for("gpt", true)).await;
        assert!(
            answer.text().contains("Half an ans") && !form.looks_complete(answer.text()),
            "{}",
            answer.text()
        );
        let ends_with_error =
            form.stream_error(answer.text()).is_some() || answer.text().contains("event: response.failed");
        assert!(
            ends_with_error && answer.text().contains("insufficient_system_resource"),
            "{}",
            answer.text()
        );
    }
}

/// Finish reasons that mean a failure, at simulated providers of three formats.
#[tokio::test]
async fn broken_off_response_is_noticed_by_the_finish_reason_of_each_format() {
    let start = |provider| Simulator::start(provider, Options::default());
    let openai = start(SimulatedProvider::OpenAi).await.unwrap();
    let anthropic = start(SimulatedProvider::Anthropic).await.unwrap();
    let google = start(SimulatedProvider::Google).await.unwrap();
    let setup = Setup::new()
        .provider("first", "openai-compatible", &openai.base_url(), "apis = [\"chat\"]")
        .provider("second", "anthropic", &anthropic.base_url(), "")
        .provider("third", "gemini", &google.base_url(), "")
        .model("m1", "first", "gpt-4o")
        .model("m2", "second", "claude-sonnet-4-5")
        .model("m3", "third", "gemini-2.5-flash");
    let gateway = Gateway::start(&setup).await;
    let mut failures = 0.0;
    for (model, own, word) in [
        ("m1", Form::Chat, "network_error"),
        ("m2", Form::Messages, "internal_error"),
        ("m3", Form::Generate, "MALFORMED_RESPONSE"),
    ] {
        for form in Form::ALL {
            for stream in [false, true] {
                let body =
                    form.body(model, stream).replace("Grüße", &format!("Hello there [[finish {word}]]"));
                let answer = gateway.ask(post(&form.path(model, stream), body)).await;
                let text = answer.text();
                assert!(text.contains(word), "{form:?} {model} {stream}: {text}");
                let is_error = if stream {
                    form.stream_error(text).is_some() || text.contains("event: response.failed")
                } else {
                    answer.status() >= 500
                };
                // A client of the provider's own format gets what the provider has written, if it may know the word.
                assert_eq!(
                    is_error,
                    form != own || own == Form::Chat,
                    "{form:?} {model} {stream}: {} {text}",
                    answer.status()
                );
                failures += 1.0;
            }
        }
    }
    let failed = [("kind", "upstream_failed"), ("source", "upstream")];
    gateway.wait_for_metric("gateway_errors_total", &failed, failures).await;
}

#[tokio::test]
async fn retry_delay_in_milliseconds_reaches_the_client() {
    let error = r#"{"error":{"message":"slow down","type":"rate_limit"}}"#;
    let headers = [("content-type", "application/json"), ("retry-after-ms", "1500")];
    let busy = Upstream::answering(reply::whole(429, &headers, error)).await;
    let gateway = targets(&[&busy]).await;
    for form in Form::ALL {
        let answer = gateway.ask(form.request_for("gpt", false)).await;
        let millis = (form != Form::Generate).then_some("1500");
        assert_eq!(
            (answer.status(), answer.get("retry-after"), answer.get("retry-after-ms")),
            (429, Some("2"), millis)
        );
    }
}

#[tokio::test]
async fn retry_delay_is_that_of_the_cooldown_if_the_provider_names_none() {
    for form in Form::ALL {
        for (status, code, expected) in [
            (429, "rate", Some("1")),
            (503, "busy", Some("1")),
            (529, "busy", Some("1")),
            (500, "down", None),
            (429, "insufficient_quota", None),
        ] {
            let body = match form {
                Form::Chat | Form::Responses => {
                    json!({"error": {"message": "no", "type": code, "param": null, "code": code}}).to_string()
                }
                _ if code == "insufficient_quota" => continue,
                form => provider_error(form, status, "no"),
            };
            let upstream = Upstream::answering(reply::json(status, body)).await;
            let gateway = Gateway::start(&Setup::providers(upstream.addr)).await;
            let answer = gateway.ask(form.request(false)).await;
            assert_eq!(answer.get("retry-after"), expected, "{form:?} {code}");
            assert!(answer.status() == status || status >= 500 && answer.status() >= 500, "{form:?} {code}");
        }
    }
}

#[tokio::test]
async fn retry_delay_is_that_of_an_exhausted_limit_if_its_headers_name_one() {
    let headers = [
        ("content-type", "application/json"),
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "6s"),
        ("x-ratelimit-remaining-tokens", "9"),
        ("x-ratelimit-reset-tokens", "9m"),
    ];
    let busy = Upstream::answering(reply::whole(429, &headers, "{}")).await;
    let gateway = targets(&[&busy]).await;
    let answer = gateway.ask(Form::Chat.request_for("gpt", false)).await;
    assert_eq!((answer.status(), answer.get("retry-after")), (429, Some("6")));
}

/// MiniMax reports errors with status 200.
#[tokio::test]
async fn result_of_minimax_is_an_error_with_its_message() {
    for (code, message, status, told) in [
        (1008, "insufficient balance", 429, "insufficient balance"),
        (1002, "rate limit", 429, "rate limit"),
        (2013, "invalid params", 400, "invalid params"),
        (1004, "login fail", 500, "credential"),
        (9999, "odd", 500, "odd"),
    ] {
        let body =
            json!({"id": "x", "choices": null, "created": 1, "model": "m", "object": "chat.completion",
                          "base_resp": {"status_code": code, "status_msg": message}})
            .to_string();
        let upstream = answering_both(&body, vec![format!("data: {body}\n\n")]).await;
        let gateway = targets(&[&upstream]).await;
        for form in [Form::Chat, Form::Messages] {
            for stream in [false, true] {
                let answer = gateway.ask(form.request_for("gpt", stream)).await;
                assert_eq!(answer.status(), status, "{form:?} {code} {}", answer.text());
                assert!(form.error(&answer).1.contains(told), "{}", answer.text());
            }
        }
    }
}

/// Embedding models of Bedrock that name their usage in the head only.
#[tokio::test]
async fn embeddings_of_bedrock_are_charged_by_the_tokens_in_the_head() {
    let headers = [("content-type", "application/json"), ("x-amzn-bedrock-input-token-count", "22")];
    let answer =
        json!({"id": "e", "embeddings": {"float": [[0.5, 0.25]]}, "response_type": "embeddings_by_type"});
    let bedrock = Upstream::answering(reply::whole(200, &headers, answer.to_string())).await;
    let setup = Setup::new().provider("aws", "bedrock", &format!("http://{}", bedrock.addr), "").model(
        "embed",
        "aws",
        "cohere.embed-v4:0",
    );
    let gateway = Gateway::start(&setup).await;
    let answer = gateway.ask(post("/v1/embeddings", r#"{"model":"embed","input":"Hi"}"#)).await;
    assert_eq!(
        (answer.status(), &answer.json()["usage"]["prompt_tokens"]),
        (200, &json!(22)),
        "{}",
        answer.text()
    );
}
