//! Headers and errors from which coding agents show limits: budgets of a key in the names of Codex and Claude Code, and
//! none of the provider's own.

use serde_json::{Value, json};

use crate::support::client::{Answer, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, Setup, key};
use crate::support::upstream::Upstream;
use crate::websocket::client::Socket;

const LIMITED: &str = "client-key-of-lia-0010";

/// Headers about the provider's own account, and about the model that it used.
const THEIRS: [(&str, &str); 6] = [
    ("x-codex-primary-used-percent", "77"),
    ("x-codex-primary-reset-at", "1"),
    ("openai-model", "gpt-other"),
    ("anthropic-ratelimit-unified-status", "rejected"),
    ("anthropic-ratelimit-requests-remaining", "0"),
    ("x-codex-turn-state", "opaque-1"),
];

async fn started(form: Form, lines: &str) -> (Upstream, Gateway) {
    started_with(reply::whole(200, &THEIRS, form.whole(form.model())), lines).await
}

async fn started_with(answer: Vec<u8>, lines: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::answering(answer).await;
    let mut setup = Setup::providers(upstream.addr).priced("input = 1\noutput = 2");
    setup.keys += &key("lia", LIMITED, lines);
    (upstream, Gateway::start(&setup).await)
}

async fn ask(gateway: &Gateway, form: Form, key: &str) -> Answer {
    gateway.ask(form.request_with(false, &[("authorization", &format!("Bearer {key}"))])).await
}

fn number(answer: &Answer, name: &str) -> f64 {
    answer.get(name).unwrap_or_else(|| panic!("{name} in {}", answer.everything())).parse().unwrap()
}

#[tokio::test]
async fn budget_is_shown_to_codex_until_it_is_exhausted() {
    // 18 tokens cost 0.000025; the reservation covers 4,096 output tokens.
    let (_upstream, gateway) =
        started(Form::Responses, "limits = { spend_per_day = 0.0085, spend_per_month = 1 }").await;
    let first = ask(&gateway, Form::Responses, LIMITED).await;
    assert_eq!(first.status(), 200, "{}", first.everything());
    assert_eq!(number(&first, "x-codex-primary-used-percent"), 0.0, "nothing is spent yet");
    assert_eq!(number(&first, "x-codex-primary-window-minutes"), 1_440.0);
    assert!(number(&first, "x-codex-secondary-window-minutes") >= 28.0 * 1_440.0);
    let resets = number(&first, "x-codex-primary-reset-at");
    assert_eq!(resets % 86_400.0, 0.0, "the end of a day");
    assert!(number(&first, "x-codex-secondary-reset-at") >= resets);
    assert_eq!((first.get("openai-model"), first.get("anthropic-ratelimit-unified-status")), (None, None));
    let second = ask(&gateway, Form::Responses, LIMITED).await;
    assert_eq!(number(&second, "x-codex-primary-used-percent"), 0.2);
    let refused = loop {
        let answer = ask(&gateway, Form::Responses, LIMITED).await;
        if answer.status() != 200 {
            break answer;
        }
    };
    assert_eq!(
        (refused.status(), refused.get("x-should-retry")),
        (429, Some("false")),
        "{}",
        refused.everything()
    );
    let (kind, _) = Form::Responses.error(&refused);
    assert_eq!(kind, "usage_limit_reached");
    let error = &refused.json()["error"];
    assert_eq!(error["code"], "insufficient_quota");
    assert_eq!(error["resets_at"].as_f64(), Some(resets), "{error}");
    assert!(number(&refused, "x-codex-primary-used-percent") > 0.0);
}

#[tokio::test]
async fn rate_limit_stays_an_error_that_codex_retries() {
    let (_upstream, gateway) = started(Form::Responses, "limits = { requests_per_minute = 1 }").await;
    let first = ask(&gateway, Form::Responses, LIMITED).await;
    assert_eq!((first.status(), first.get("x-codex-primary-used-percent")), (200, None));
    let refused = ask(&gateway, Form::Responses, LIMITED).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(Form::Responses.error(&refused).0, "rate_limit_exceeded");
    assert!(refused.get("retry-after").is_some() && refused.get("x-should-retry").is_none());
    assert_eq!(refused.json()["error"].get("resets_at"), None::<&Value>);
}

#[tokio::test]
async fn budget_is_shown_to_claude_code_until_it_is_exhausted() {
    // A reservation is 64 output tokens and the input, less than 0.0002.
    let (_upstream, gateway) = started(Form::Messages, "limits = { spend_per_day = 0.0003 }").await;
    let mut warned = false;
    let refused = loop {
        let answer = ask(&gateway, Form::Messages, LIMITED).await;
        if answer.status() != 200 {
            break answer;
        }
        let status = answer.get("anthropic-ratelimit-unified-status").unwrap();
        assert!(number(&answer, "anthropic-ratelimit-unified-reset") > 0.0);
        assert_eq!(answer.get("anthropic-ratelimit-requests-remaining"), None, "the provider's own");
        match status {
            "allowed" => assert!(!warned),
            "allowed_warning" => {
                warned = true;
                let used = number(&answer, "anthropic-ratelimit-unified-overage-utilization");
                assert!((0.75..=1.0).contains(&used), "{used}");
                assert_eq!(answer.get("anthropic-ratelimit-unified-overage-period"), Some("daily"));
            }
            other => panic!("{other}"),
        }
    };
    assert_eq!(
        refused.get("anthropic-ratelimit-unified-status"),
        Some("rejected"),
        "{}",
        refused.everything()
    );
    assert_eq!(
        refused.get("anthropic-ratelimit-unified-overage-disabled-reason"),
        Some("org_spend_cap_reached")
    );
    assert_eq!(refused.get("anthropic-ratelimit-unified-representative-claim"), None);
    assert_eq!(
        (Form::Messages.error(&refused).0.as_str(), refused.get("x-should-retry")),
        ("billing_error", Some("false"))
    );
}

#[tokio::test]
async fn providers_own_limits_and_model_are_never_shown() {
    for form in Form::ALL {
        let (_upstream, gateway) = started(form, "").await;
        let answer = ask(&gateway, form, KEY).await;
        assert_eq!(answer.status(), 200, "{}", answer.everything());
        for (name, _) in &THEIRS[..5] {
            assert_eq!(answer.get(name), None, "{form:?} {name}");
        }
    }
}

#[tokio::test]
async fn turn_state_passes_between_codex_and_openai_only() {
    for form in [Form::Responses, Form::Messages] {
        let (upstream, gateway) = started(form, "").await;
        let bearer = format!("Bearer {KEY}");
        let headers = [("authorization", bearer.as_str()), ("x-codex-turn-state", "opaque-0")];
        let body = format!(r#"{{"model":"{}","input":"Hi"}}"#, form.model());
        let answer = gateway.ask(post_with("/v1/responses", &headers, body)).await;
        assert_eq!(answer.status(), 200, "{}", answer.everything());
        let sent = upstream.only_request().everything();
        let is_openai = form == Form::Responses;
        assert_eq!(sent.contains("x-codex-turn-state: opaque-0"), is_openai, "{sent}");
        assert_eq!(answer.get("x-codex-turn-state"), is_openai.then_some("opaque-1"));
    }
}

/// Stream of a provider, with headers about its own account.
fn streamed(form: Form) -> Vec<u8> {
    let headers: String = THEIRS.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let stream = String::from_utf8(reply::stream(&form.frames(form.model()))).unwrap();
    stream.replacen("\r\n", &format!("\r\n{headers}"), 1).into_bytes()
}

async fn codex(gateway: &Gateway, key: &str) -> Socket {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), ("originator", "codex_cli_rs")];
    Socket::open_with(gateway.addr, "/v1/responses", &headers).await
}

#[tokio::test]
async fn budget_is_shown_to_codex_over_a_websocket() {
    let limits = "limits = { spend_per_day = 0.0085, spend_per_month = 1 }";
    for form in [Form::Responses, Form::Messages] {
        let (_upstream, gateway) = started_with(streamed(form), limits).await;
        let mut socket = codex(&gateway, LIMITED).await;
        let create =
            json!({"type": "response.create", "model": form.model(), "input": "Hi", "stream_id": "a"});
        for used in [0.0, 0.2] {
            socket.send(&create).await;
            let events = socket.events().await;
            let limits = &events[0];
            assert_eq!((&limits["type"], &limits["stream_id"]), (&json!("codex.rate_limits"), &json!("a")));
            let primary = &limits["rate_limits"]["primary"];
            assert_eq!((&primary["used_percent"], &primary["window_minutes"]), (&json!(used), &json!(1_440)));
            assert_eq!(primary["reset_at"].as_u64().unwrap() % 86_400, 0, "the end of a day");
            let month = &limits["rate_limits"]["secondary"];
            assert!(month["window_minutes"].as_u64().unwrap() >= 28 * 1_440, "{limits}");
            assert_eq!(events[1]["type"], "response.created", "{events:?}");
            let shown = events.iter().filter(|event| event["type"] == "codex.rate_limits").count();
            assert_eq!((shown, &events.last().unwrap()["type"]), (1, &json!("response.completed")));
        }
        // The provider's own limits are none of the key's, and no other client knows the event.
        let mut unlimited = codex(&gateway, KEY).await;
        unlimited.send(&create).await;
        let bearer = format!("Bearer {LIMITED}");
        let mut other =
            Socket::open_with(gateway.addr, "/v1/responses", &[("authorization", bearer.as_str())]).await;
        other.send(&create).await;
        for socket in [&mut unlimited, &mut other] {
            assert_eq!(socket.events().await[0]["type"], "response.created");
        }
    }
}

#[tokio::test]
async fn turn_state_stays_within_a_turn_over_a_websocket() {
    let (upstream, gateway) = started_with(streamed(Form::Responses), "").await;
    let mut socket = codex(&gateway, KEY).await;
    let create = |input: Value| json!({"model": Form::Responses.model(), "input": input, "store": false});
    let mut previous = socket.ask(create(json!("one"))).await["response"]["id"].clone();
    let output = json!([{"type": "function_call_output", "call_id": "c", "output": "ok"}]);
    let user = json!([{"type": "message", "role": "user", "content": "two"}]);
    for input in [&output, &output, &user, &output] {
        let mut next = create(input.clone());
        next["previous_response_id"] = previous;
        let end = socket.ask(next).await;
        assert_eq!(end["type"], "response.completed", "{end}");
        previous = end["response"]["id"].clone();
    }
    let sent = upstream.requests();
    let states: Vec<bool> =
        sent.iter().map(|sent| sent.everything().contains("x-codex-turn-state: opaque-1")).collect();
    assert_eq!(states, [false, true, true, false, true]);
}
