//! Accounting end to end: charges, refusals for an insufficient balance, and one usage record for each request.

use model_gateway::tokens::{TokenizerFamily, count_text};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::client::{Answer, post_with, request};
use crate::support::form::{Form, every_form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::http1::Piece;
use crate::support::setup::{KEY, Setup, key, provider_of};
use crate::support::sse::events;
use crate::support::upstream::Upstream;
use crate::support::{Gate, reply, until};

/// A key with an account.
pub(super) const PAYING: &str = "client-key-of-pia-0007";
/// Prices of 1 and 2 per million tokens. The providers of [`Form`] report 11 input and 7 output tokens, which cost
/// `COST`.
const PRICE: &str = "input = 1\noutput = 2";
const COST: &str = "0.000025";

/// Starts providers of all formats, and a gateway with a key of the account `acme`.
async fn paid(credit: &'static str) -> (Upstream, Gateway) {
    let upstream = providers().await;
    let gateway = Gateway::start(&paying(&upstream, credit)).await;
    (upstream, gateway)
}

pub(super) fn paying(upstream: &Upstream, credit: &'static str) -> Setup {
    let mut setup = Setup::each_provider(upstream.addr).priced(PRICE).account("acme", credit);
    setup.keys += &key("pia", PAYING, "account = \"acme\"");
    setup
}

/// Starts an upstream that answers in every format, at one address.
pub(super) async fn providers() -> Upstream {
    Upstream::start(|mut conn| async move {
        while let Some(asked) = conn.request().await {
            let form = Form::ALL.into_iter().find(|form| asked.head.line.contains(form.mark())).unwrap();
            let stream = asked.head.line.contains("streamGenerateContent")
                || serde_json::from_slice::<Value>(&asked.body).unwrap()["stream"] == true;
            let model = provider_of(form);
            conn.send(if stream {
                reply::stream(&form.frames(model))
            } else {
                reply::json(200, form.whole(model))
            })
            .await;
        }
    })
    .await
}

/// Counted input tokens of the prompt, with its overhead.
const ASKED: u64 = 9;

pub(super) fn asking(form: Form, model: &str, stream: bool, key: &str) -> Vec<u8> {
    let bearer = format!("Bearer {key}");
    post_with(&form.path(model, stream), &[("authorization", &bearer)], form.body(model, stream))
}

/// Returns the input and output tokens that an answer reports.
fn shown(form: Form, stream: bool, answer: &Answer) -> (u64, u64) {
    let documents: Vec<Value> = if stream {
        let data = |text: String| serde_json::from_str(&text).ok();
        events(answer.text()).into_iter().filter_map(|event| data(event.data)).collect()
    } else {
        vec![answer.json()]
    };
    let (mut input, mut output) = (0, 0);
    for document in documents {
        let usage = [
            &document["usage"],
            &document["message"]["usage"],
            &document["response"]["usage"],
            &document["usageMetadata"],
        ];
        for usage in usage {
            let figure = |names: [&str; 3]| names.iter().find_map(|name| usage[*name].as_u64());
            input = figure(["prompt_tokens", "input_tokens", "promptTokenCount"])
                .filter(|n| *n > 0)
                .unwrap_or(input);
            output = figure(["completion_tokens", "output_tokens", "candidatesTokenCount"]).unwrap_or(output);
        }
    }
    assert!(input > 0, "{form:?}: {}", answer.text());
    (input, output)
}

#[tokio::test]
async fn charge_equals_the_usage_shown_in_every_pair_of_formats() {
    let (_upstream, gateway) = paid("1").await;
    let mut asked = 0;
    for client in Form::ALL {
        for provider in Form::ALL {
            for stream in [false, true] {
                let answer = gateway.ask(asking(client, provider_of(provider), stream, PAYING)).await;
                assert_eq!(answer.status(), 200, "{}", answer.text());
                assert_eq!(shown(client, stream, &answer), (11, 7), "{client:?} {provider:?} {stream}");
                asked += 1;
            }
        }
    }
    let records = gateway.records(asked).await;
    for record in &records {
        assert_eq!((&record["input"], &record["output"]), (&json!(11), &json!(7)), "{record}");
        assert_eq!((&record["cost"], &record["account"]), (&json!(COST), &json!("acme")), "{record}");
        assert_eq!((&record["status"], &record["counted"]), (&json!(200), &json!(false)), "{record}");
        assert_eq!(record["key"], "pia");
    }
    for (client, provider) in [("chat", "messages"), ("generate", "responses"), ("messages", "messages")] {
        let pair =
            |record: &&Value| record["client_format"] == client && record["provider_format"] == provider;
        assert_eq!(records.iter().filter(pair).count(), 2, "{client} {provider}");
    }
    assert_eq!(gateway.account("acme")["balance"], "0.9992");
    let lines = gateway.wait_for_log(asked).await;
    assert!(
        lines.iter().all(|line| line["cost"] == 0.000_025 && line["account"] == "acme"),
        "{:?}",
        lines[0]
    );
    assert_eq!(gateway.metrics().await.sum("gateway_cost_nano_units_total", &[]), 25_000.0 * asked as f64);
}

#[tokio::test]
async fn balance_insufficient_is_refused_in_every_format_until_credit() {
    // The balance covers neither 4,096 output tokens nor the 64 that the messages request allows.
    let (upstream, gateway) = paid("0.0001").await;
    for form in Form::ALL {
        let answer = gateway.ask(asking(form, provider_of(form), false, PAYING)).await;
        let (kind, message) = form.error(&answer);
        assert!(message.contains("balance"), "{message}");
        assert_eq!(answer.get("x-should-retry"), Some("false"), "{form:?}");
        let expected = match form {
            Form::Chat | Form::Responses => (429, "insufficient_quota"),
            Form::Messages => (402, "billing_error"),
            Form::Generate => (429, "RESOURCE_EXHAUSTED"),
        };
        assert_eq!((answer.status(), &*kind), expected, "{form:?}");
    }
    assert_eq!(upstream.count(), 0, "nothing was asked");
    let refusals = [("scope", "account"), ("limit", "balance")];
    assert_eq!(gateway.metrics().await.sum("gateway_limit_refusals_total", &refusals), 4.0);
    // Requests of a key without an account are not charged.
    assert_eq!(gateway.ask(asking(Form::Chat, provider_of(Form::Chat), false, KEY)).await.status(), 200);

    gateway.command(&["accounts", "credit", "acme", "5", "--note", "more"]);
    let mut client = gateway.connect().await;
    while client.ask(asking(Form::Chat, provider_of(Form::Chat), false, PAYING)).await.status() != 200 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let refused = || gateway.access_log().iter().filter(|line| line["error"] == "empty_balance").count();
    until(|| refused() >= 4).await;
}

#[tokio::test]
async fn account_disabled_or_unknown_is_refused() {
    let upstream = providers().await;
    let mut setup = paying(&upstream, "1");
    setup.keys += &key("lost", "client-key-of-lost-0008", "account = \"nowhere\"");
    let gateway = Gateway::start(&setup).await;
    for form in Form::ALL {
        let answer = gateway.ask(asking(form, provider_of(form), false, "client-key-of-lost-0008")).await;
        assert_eq!(answer.status(), 401, "{}", answer.text());
        form.error(&answer);
    }
    gateway.command(&["accounts", "disable", "acme"]);
    let mut client = gateway.connect().await;
    loop {
        let answer = client.ask(asking(Form::Messages, provider_of(Form::Messages), false, PAYING)).await;
        if answer.status() != 200 {
            assert_eq!(answer.status(), 401, "{}", answer.text());
            assert_eq!(Form::Messages.error(&answer).0, "authentication_error");
            assert!(answer.text().contains("disabled"), "{}", answer.text());
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Free endpoints do not require a balance, but an enabled account.
#[tokio::test]
async fn account_disabled_is_refused_for_free_endpoints() {
    let upstream = providers().await;
    let mut setup = paying(&upstream, "1").account("poor", "0.000001");
    setup.keys += &key("lost", "client-key-of-lost-0008", "account = \"nowhere\"");
    setup.keys += &key("paul", "client-key-of-paul-0009", "account = \"poor\"");
    let gateway = Gateway::start(&setup).await;
    gateway.command(&["accounts", "disable", "acme"]);
    let messages =
        json!({"model": provider_of(Form::Messages), "messages": [{"role": "user", "content": "Hi"}]});
    let contents = json!({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]});
    let count = format!("/v1beta/models/{}:countTokens", provider_of(Form::Generate));
    let free = |key: &str| {
        let headers = [("x-api-key", key)];
        [
            request("GET", "/v1/models", &headers),
            request("GET", &format!("/v1/models/{}", provider_of(Form::Chat)), &headers),
            request("GET", "/v1/responses/resp_1", &headers),
            request("GET", "/v1/video/generations/task_1", &headers),
            request("GET", "/prod-api/svc/v4/api/task/task_1", &headers),
            post_with("/prod-api/svc/v4/api/token", &headers, ""),
            post_with("/v1/messages/count_tokens", &headers, messages.to_string()),
            post_with(&count, &headers, contents.to_string()),
        ]
    };
    // The gateway learns of the change within a second.
    crate::support::soon(async {
        while gateway.ask(&free(PAYING)[0]).await.status() == 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    for (key, says) in [(PAYING, "disabled"), ("client-key-of-lost-0008", "does not exist")] {
        for request in free(key) {
            let answer = gateway.ask(request).await;
            assert!(answer.text().contains(says), "{}", answer.text());
            assert_eq!(answer.status(), 401, "{}", answer.text());
        }
    }
    for (request, status) in
        free("client-key-of-paul-0009").iter().zip([200, 200, 404, 404, 404, 404, 200, 200])
    {
        let answer = gateway.ask(request).await;
        assert_eq!(answer.status(), status, "{}", answer.text());
    }
}

#[tokio::test]
async fn charge_is_zero_for_errors_and_reservations_are_released() {
    every_form(|form| async move {
        let upstream = Upstream::answering_each(vec![
            reply::json(500, provider_error(form, 500, "broken")),
            reply::json(429, provider_error(form, 429, "slow down")),
            reply::json(200, "no json"),
            // A stream without any frame.
            [reply::stream_head().into_bytes(), reply::LAST_CHUNK.to_vec()].concat(),
            reply::json(200, form.whole(provider_of(form))),
        ])
        .await;
        // The balance is too small for two reservations at once.
        let gateway = Gateway::start(&paying(&upstream, "0.009")).await;
        for (n, stream) in [false, false, false, true].into_iter().enumerate() {
            let answer = gateway.ask(asking(form, provider_of(form), stream, PAYING)).await;
            assert!(answer.status() >= 429, "{form:?} {n}: {}", answer.text());
        }
        let answer = gateway.ask(asking(form, provider_of(form), false, PAYING)).await;
        assert_eq!(answer.status(), 200, "{form:?}: {}", answer.text());
        // A request that the gateway refuses itself.
        let bearer = format!("Bearer {PAYING}");
        let broken = post_with(&form.path("m", false), &[("authorization", &bearer)], "{");
        assert_eq!(gateway.ask(broken).await.status(), 400);
        let records = gateway.records(6).await;
        let costs: Vec<&str> = records.iter().map(|record| record["cost"].as_str().unwrap()).collect();
        assert_eq!(costs.iter().filter(|cost| **cost == "0.00").count(), 5, "{form:?}: {records:?}");
        assert_eq!(costs.iter().filter(|cost| **cost == COST).count(), 1, "{form:?}: {records:?}");
        let errors = records.iter().filter(|record| record["error"] != "").count();
        assert_eq!(errors, 5, "{form:?}");
    })
    .await;
}

#[tokio::test]
async fn bug_44_charge_of_a_broken_stream_is_for_what_was_delivered() {
    every_form(|form| async move {
        let frames = form.frames(provider_of(form));
        let half: Vec<u8> = frames[..frames.len() / 2 + 1].iter().flat_map(reply::chunk).collect();
        let cut = [reply::stream_head().into_bytes(), half].concat();
        let upstream = Upstream::start(move |mut conn| {
            let cut = cut.clone();
            async move {
                conn.request().await;
                conn.send(cut).await;
            }
        })
        .await;
        let gateway = Gateway::start(&paying(&upstream, "1")).await;
        for client in Form::ALL {
            let answer = gateway.ask(asking(client, provider_of(form), true, PAYING)).await;
            assert_eq!(answer.status(), 200, "{form:?} {client:?}");
        }
        for record in gateway.records(4).await {
            let place = format!("{form:?}: {record}");
            assert_eq!(record["error"], "upstream_broken", "{place}");
            let input = record["input"].as_u64().unwrap();
            let output = record["output"].as_u64().unwrap();
            // Two formats report the input at the start of the stream; for the others it is counted.
            let said = matches!(form, Form::Messages | Form::Generate);
            assert_eq!(input, if said { 11 } else { ASKED }, "{place}");
            assert!((1..=8).contains(&output), "{place}");
            let nanos = input * 1_000 + output * 2_000;
            assert_eq!(record["cost"], format!("0.{nanos:09}").trim_end_matches('0'), "{place}");
        }
    })
    .await;
}

#[tokio::test]
async fn charge_of_a_disconnected_client_is_for_what_was_generated() {
    let gate = Gate::new();
    let wait = gate.clone();
    let frames = Form::Chat.frames("m");
    let begun =
        [reply::stream_head().into_bytes(), reply::chunk(&frames[0]), reply::chunk(&frames[1])].concat();
    let upstream = Upstream::start(move |mut conn| {
        let (wait, begun) = (wait.clone(), begun.clone());
        async move {
            let asked = conn.request().await.unwrap();
            if asked.json()["stream"] == true {
                conn.send(begun).await;
            }
            tokio::select! {
                () = conn.closed() => {}
                () = wait.passed() => {}
            }
        }
    })
    .await;
    let gateway = Gateway::start(&paying(&upstream, "1")).await;
    // Disconnect before the first token.
    let mut client = gateway.connect().await;
    client.send(asking(Form::Chat, provider_of(Form::Chat), false, PAYING)).await;
    upstream.wait_for(1).await;
    drop(client);
    // Disconnect in the middle of a stream.
    let mut client = gateway.connect().await;
    client.send(asking(Form::Chat, provider_of(Form::Chat), true, PAYING)).await;
    client.head().await;
    client.piece().await;
    drop(client);
    let records = gateway.records(2).await;
    gate.open();
    for record in &records {
        assert_eq!((&record["error"], &record["counted"]), (&json!("client_gone"), &json!(true)), "{record}");
        assert_eq!(record["input"], json!(ASKED), "{record}");
    }
    let mut outputs: Vec<u64> = records.iter().map(|record| record["output"].as_u64().unwrap()).collect();
    outputs.sort_unstable();
    assert!(outputs[0] == 0 && outputs[1] >= 1, "{records:?}");
    assert!(records.iter().all(|record| record["cost"] != "0.00"), "{records:?}");
}

/// Usage that the provider does not report is counted; the client receives and the account is charged the same counts.
#[tokio::test]
async fn charge_is_by_counted_tokens_without_reported_usage() {
    let body = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Thirty-two bytes of text, or so."},"finish_reason":"stop"}]}"#;
    let upstream = Upstream::answering(reply::json(200, body)).await;
    let gateway = Gateway::start(&paying(&upstream, "1")).await;
    let mut figures = Vec::new();
    for client in Form::ALL {
        let answer = gateway.ask(asking(client, provider_of(Form::Chat), false, PAYING)).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        if client != Form::Chat {
            figures.push(shown(client, false, &answer));
        }
    }
    let records = gateway.records(4).await;
    let said = count_text(TokenizerFamily::Other, "Thirty-two bytes of text, or so.");
    for record in &records {
        assert_eq!((&record["counted"], &record["output"]), (&json!(true), &json!(said)), "{record}");
        let charged = (record["input"].as_u64().unwrap(), said);
        let translated = record["client_format"] != "chat";
        assert!(!translated || figures.contains(&charged), "{record} {figures:?}");
    }
}

#[tokio::test]
async fn stored_response_is_shared_by_the_keys_of_an_account() {
    let upstream = providers().await;
    let mut setup = paying(&upstream, "1");
    setup.keys += &key("paul", "client-key-of-paul-0009", "account = \"acme\"");
    let gateway = Gateway::start(&setup).await;
    let answer = gateway.ask(asking(Form::Responses, provider_of(Form::Chat), false, PAYING)).await;
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let get = |key: &str| {
        request("GET", &format!("/v1/responses/{id}"), &[("authorization", &format!("Bearer {key}"))])
    };
    assert_eq!(gateway.ask(get(PAYING)).await.status(), 200);
    assert_eq!(gateway.ask(get("client-key-of-paul-0009")).await.status(), 200, "the same account");
    assert_eq!(gateway.ask(get(KEY)).await.status(), 404, "another one");
}

#[tokio::test]
async fn charge_of_embeddings_is_by_input() {
    let body = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"model":"e","usage":{"prompt_tokens":9,"total_tokens":9}}"#;
    let upstream = Upstream::answering(reply::json(200, body)).await;
    let mut setup = Setup::new()
        .provider("local", "openai-compatible", &format!("http://{}/v1", upstream.addr), "")
        .model("e", "local", "e")
        .priced(PRICE)
        .account("acme", "1");
    setup.keys += &key("pia", PAYING, "account = \"acme\"");
    let gateway = Gateway::start(&setup).await;
    let bearer = format!("Bearer {PAYING}");
    let asked = json!({"model": "e", "input": "x", "encoding_format": "float"}).to_string();
    let answer = gateway.ask(post_with("/v1/embeddings", &[("authorization", &bearer)], asked)).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let record = gateway.records(1).await.remove(0);
    assert_eq!((&record["input"], &record["cost"]), (&json!(9), &json!("0.000009")), "{record}");
    assert_eq!((&record["status"], &record["counted"]), (&json!(200), &json!(false)), "{record}");
}

/// Counting tokens and listing models cost nothing and need no balance.
#[tokio::test]
async fn balance_is_not_needed_for_free_endpoints() {
    let (upstream, gateway) = paid("0.0001").await;
    let bearer = format!("Bearer {PAYING}");
    let model = provider_of(Form::Messages);
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]}).to_string();
    let count = post_with("/v1/messages/count_tokens", &[("authorization", &bearer)], body);
    assert_eq!(gateway.ask(count).await.status(), 200);
    let list = request("GET", "/v1/models", &[("authorization", &bearer)]);
    assert_eq!(gateway.ask(list).await.status(), 200);
    assert_eq!(upstream.count(), 0);
    assert_eq!(gateway.account("acme")["balance"], "0.0001");
}

/// A client that has received the end of a response has been charged, even if the gateway is killed immediately
/// afterwards.
#[tokio::test]
async fn charge_of_a_complete_response_survives_a_kill() {
    let upstream = providers().await;
    for round in 0..12 {
        let form = Form::ALL[round % 4];
        let provider = Form::ALL[round / 4 % 4];
        let mut gateway = Gateway::start(&paying(&upstream, "1")).await;
        // Other streams, in flight or complete when the gateway is killed.
        let mut clients = Vec::new();
        for _ in 0..round % 3 {
            let mut client = gateway.connect().await;
            client.send(asking(form, provider_of(provider), true, PAYING)).await;
            clients.push(client);
        }
        let whole = gateway.ask(asking(form, provider_of(provider), false, PAYING)).await;
        assert_eq!(whole.status(), 200);
        let mut last = gateway.connect().await;
        last.send(asking(form, provider_of(provider), true, PAYING)).await;
        last.head().await;
        let mut seen = Vec::new();
        let end = match form {
            Form::Chat => "data: [DONE]",
            Form::Messages => "event: message_stop",
            Form::Responses => "event: response.completed",
            Form::Generate => "",
        };
        loop {
            match last.piece().await {
                Piece::Data(piece) => seen.extend_from_slice(&piece),
                _ => break,
            }
            if !end.is_empty() && String::from_utf8_lossy(&seen).contains(end) {
                break;
            }
        }
        gateway.signal(Signal::SIGKILL);
        gateway.ended().await;
        // The next process that opens the ledger replays the journal of the killed one.
        let text = gateway.command(&["usage", "--records", "--json"]);
        let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let charged = records.iter().filter(|record| record["cost"] == COST).count();
        assert_eq!(charged, records.len(), "{form:?} {provider:?}: {records:?}");
        assert!((2..=2 + clients.len()).contains(&charged), "{form:?} {provider:?}: {records:?}");
        let left = 1_000_000_000 - 25_000 * charged as u64;
        let balance = format!("0.{left:09}");
        assert_eq!(
            gateway.account("acme")["balance"],
            balance.trim_end_matches('0'),
            "{form:?} {provider:?}"
        );
        gateway.command(&["accounts", "audit"]);
    }
}

/// An error event of the provider passes to the client. The content before it is charged; a stream with nothing but an
/// error is not.
#[tokio::test]
async fn charge_of_a_stream_that_ends_in_an_error_is_for_its_content() {
    let frames = Form::Messages.frames("m");
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Busy\"}}\n\n";
    let answer = |frames: &[String]| {
        let frames: Vec<String> = frames.iter().cloned().chain([error.to_owned()]).collect();
        reply::stream(&frames)
    };
    let upstream = Upstream::answering_each(vec![answer(&frames[..1]), answer(&frames[..5])]).await;
    let gateway = Gateway::start(&paying(&upstream, "1")).await;
    for _ in 0..2 {
        gateway.ask(asking(Form::Messages, provider_of(Form::Messages), true, PAYING)).await;
    }
    let mut records = gateway.records(2).await;
    records.sort_by_key(|record| record["output"].as_u64());
    assert_eq!(records[0]["cost"], "0.00", "{records:?}");
    assert_eq!(records[1]["input"], 11, "{records:?}");
    assert!(records[1]["output"].as_u64().is_some_and(|tokens| (1..=7).contains(&tokens)), "{records:?}");
}
