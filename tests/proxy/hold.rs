//! Reservations: the maximum cost of a request is reserved before a provider is called, however its limits are written.
//! Reported usage is charged up to what the request can have used.

use serde_json::{Value, json};

use crate::accounts::{PAYING, paying, providers};
use crate::support::client::{Answer, post_with};
use crate::support::gateway::Gateway;
use crate::support::upstream::Upstream;
use crate::support::{reply, until};

async fn chat(gateway: &Gateway, more: &str) -> Answer {
    let body =
        format!(r#"{{"model":"at-chat","messages":[{{"role":"user","content":"Hello there"}}]{more}}}"#);
    gateway
        .ask(post_with("/v1/chat/completions", &[("authorization", &format!("Bearer {PAYING}"))], body))
        .await
}

async fn generate(gateway: &Gateway, config: &str) -> Answer {
    let body = format!(r#"{{"contents":[{{"role":"user","parts":[{{"text":"Hello there"}}]}}],{config}}}"#);
    let path = "/v1beta/models/at-generate:generateContent";
    gateway.ask(post_with(path, &[("authorization", &format!("Bearer {PAYING}"))], body)).await
}

/// Output costs 2 per million tokens; the balance covers 50,000 tokens.
#[tokio::test]
async fn reservation_uses_the_largest_of_several_output_limits() {
    let upstream = providers().await;
    let gateway = Gateway::start(&paying(&upstream, "0.1")).await;
    for (more, status) in [
        (r#","max_tokens":40000"#, 200),
        (r#","max_tokens":4e4"#, 200),
        (r#","max_tokens":null"#, 200),
        (r#","max_completion_tokens":1,"n":40"#, 200),
        (r#","max_tokens":1000000"#, 429),
        (r#","max_completion_tokens":1,"max_tokens":1000000"#, 429),
        (r#","max_tokens":1,"max_completion_tokens":1000000"#, 429),
        (r#","max_tokens":1,"Max_Tokens":1000000"#, 429),
        (r#","max_tokens":1,"max_new_tokens":1000000"#, 429),
        (r#","max_output_tokens":1000000"#, 429),
        (r#","max_tokens":1.5e9"#, 429),
        (r#","max_tokens":1e30"#, 429),
        (r#","max_tokens":10000000000000000000000000000000000000000"#, 429),
        (r#","max_tokens":-1"#, 429),
        (r#","max_tokens":"5000000000""#, 429),
        (r#","max_tokens":1000,"n":1e9"#, 429),
        (r#","max_tokens":1000,"best_of":1000"#, 429),
        (r#","max_tokens":1000,"n":1,"best_of":1000"#, 429),
    ] {
        let asked = upstream.count();
        let answer = chat(&gateway, more).await;
        // An invalid limit may be refused with 400 before the balance is checked.
        let refused = status == 429 && answer.status() == 400;
        assert!(answer.status() == status || refused, "{more}: {}", answer.text());
        assert_eq!(upstream.count() > asked, status == 200, "{more}");
        if answer.status() == 429 {
            assert_eq!(answer.json()["error"]["code"], "insufficient_quota", "{more}");
        }
    }
    for (config, status) in [
        (r#""generationConfig":{"maxOutputTokens":40000}"#, 200),
        (
            r#""generationConfig":{"maxOutputTokens":1},"generation_config":{"max_output_tokens":1000000}"#,
            429,
        ),
        (r#""generationConfig":{"maxOutputTokens":1,"max_output_tokens":1000000}"#, 429),
        (r#""generationConfig":{"maxOutputTokens":-1}"#, 429),
        (r#""generationConfig":{"maxOutputTokens":1000,"candidateCount":1e9}"#, 429),
    ] {
        let answer = generate(&gateway, config).await;
        let refused = status == 429 && answer.status() == 400;
        assert!(answer.status() == status || refused, "{config}: {}", answer.text());
    }
}

async fn reporting(usage: Value) -> Upstream {
    let answer = json!({"id": "c1", "object": "chat.completion", "created": 1, "model": "at-chat",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}],
        "usage": usage});
    Upstream::answering(reply::json(200, answer.to_string())).await
}

#[tokio::test]
async fn reported_usage_beyond_the_possible_is_bounded() {
    for usage in [
        json!({"prompt_tokens": 9_000_000_000_000_000_000_u64, "completion_tokens": 7}),
        json!({"prompt_tokens": 11, "completion_tokens": 9_000_000_000_000_000_000_u64}),
        json!({"prompt_tokens": 5_000_000_000_u64, "completion_tokens": 5_000_000_000_u64,
            "prompt_tokens_details": {"cached_tokens": 5_000_000_000_u64}}),
    ] {
        let upstream = reporting(usage.clone()).await;
        let gateway = Gateway::start(&paying(&upstream, "1000")).await;
        assert_eq!(chat(&gateway, "").await.status(), 200);
        let record = &gateway.records(1).await[0];
        let balance: f64 = gateway.account("acme")["balance"].as_str().unwrap().parse().unwrap();
        // The gateway's own count, in place of what is wrong: a few tokens, at 1 and 2 per million.
        assert!((999.999..1000.0).contains(&balance), "{usage}: {record}");
        let count = |name: &str| record[name].as_u64().unwrap_or(0);
        assert!((1..50).contains(&count("input")) && (1..10).contains(&count("output")), "{usage}: {record}");
        assert_eq!((&record["counted"], count("cached")), (&json!(true), 0), "{usage}: {record}");
        let metrics = gateway.metrics_after(1).await;
        assert_eq!(metrics.sum("gateway_usage_bounded_total", &[("provider", "at-chat")]), 1.0);
        until(|| gateway.log().contains("more usage than the request allows")).await;
    }
}

/// A provider that writes more choices than requested, and breaks off without a report.
#[tokio::test]
async fn output_that_was_not_requested_is_not_charged() {
    let choices = |from: usize, to: usize| {
        let choices: Vec<Value> = (from..to)
            .map(|index| json!({"index": index, "delta": {"content": "x "}, "finish_reason": null}))
            .collect();
        let chunk = json!({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "at-chat",
            "choices": choices});
        reply::chunk(format!("data: {chunk}\n\n"))
    };
    let many: Vec<u8> = (0..2_000).flat_map(|_| choices(0, 2)).collect();
    let spread: Vec<u8> = (0..600).flat_map(|index| choices(index, index + 1)).collect();
    let done = reply::chunk("data: [DONE]\n\n");
    for (sent, ends, members, most) in [
        (&[choices(0, 30_000)][..], false, r#","max_tokens":50"#, 50),
        (&[choices(0, 1_000)], false, "", 2),
        (std::slice::from_ref(&spread), false, r#","max_tokens":50"#, 50),
        (&[spread.clone(), done.clone()], true, r#","max_tokens":50"#, 50),
        (std::slice::from_ref(&many), false, r#","max_tokens":50,"n":2"#, 100),
        (std::slice::from_ref(&many), false, r#","max_completion_tokens":50"#, 50),
    ] {
        let sent = [reply::stream_head().as_bytes(), &sent.concat()].concat();
        let upstream = Upstream::start(move |mut conn| {
            let sent = sent.clone();
            async move {
                conn.request().await;
                conn.send(&sent).await;
                if ends {
                    conn.send(reply::LAST_CHUNK).await;
                }
            }
        })
        .await;
        let gateway = Gateway::start(&paying(&upstream, "1")).await;
        let _ = chat(&gateway, &format!(r#","stream":true{members}"#)).await;
        let record = &gateway.records(1).await[0];
        let output = record["output"].as_u64().unwrap();
        assert!(output <= most, "{members} {ends}: {record}");
    }
}

#[tokio::test]
async fn reported_usage_that_is_large_but_possible_is_charged() {
    // Far more input than the request has, as with web search, and reasoning tokens beyond the output limit.
    let usage = json!({"prompt_tokens": 900_000, "completion_tokens": 120_000,
        "completion_tokens_details": {"reasoning_tokens": 119_000}});
    let upstream = reporting(usage).await;
    let gateway = Gateway::start(&paying(&upstream, "1000")).await;
    assert_eq!(chat(&gateway, r#","max_tokens":10"#).await.status(), 200);
    let record = &gateway.records(1).await[0];
    assert_eq!((&record["input"], &record["output"]), (&json!(900_000), &json!(120_000)), "{record}");
    assert_eq!(gateway.account("acme")["balance"], "998.86");
    assert_eq!(gateway.metrics_after(1).await.sum("gateway_usage_bounded_total", &[]), 0.0);
}
