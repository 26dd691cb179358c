//! Rate, token, concurrency and spend limits of keys and accounts, and permissions of keys.

use serde_json::json;

use crate::support::client::{Answer, post_with, request};
use crate::support::form::{Form, every_form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::setup::{Setup, key};
use crate::support::upstream::Upstream;
use crate::support::{Gate, http2, reply, soon};

const LIMITED: &str = "client-key-of-lia-0010";

/// Starts a provider of one format, and a gateway with a key that has these settings.
async fn limited(form: Form, lines: &str, more: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::answering(reply::json(200, form.whole(form.model()))).await;
    let mut setup = Setup::providers(upstream.addr).priced("input = 1\noutput = 2");
    setup.keys += &key("lia", LIMITED, lines);
    setup.keys += more;
    let gateway = Gateway::start(&setup).await;
    (upstream, gateway)
}

fn asking(form: Form, stream: bool) -> Vec<u8> {
    form.request_with(stream, &[("authorization", &format!("Bearer {LIMITED}"))])
}

/// Returns limit, remaining and reset of the rate-limit headers in this format. `None` if one is missing; the generate
/// format has none.
fn left(form: Form, what: &str, answer: &Answer) -> Option<(String, String, String)> {
    let names = match form {
        Form::Chat | Form::Responses => {
            ["limit", "remaining", "reset"].map(|word| format!("x-ratelimit-{word}-{what}"))
        }
        Form::Messages => {
            ["limit", "remaining", "reset"].map(|word| format!("anthropic-ratelimit-{what}-{word}"))
        }
        Form::Generate => return None,
    };
    let [limit, remaining, reset] = names.map(|name| answer.get(&name).map(str::to_owned));
    Some((limit?, remaining?, reset?))
}

#[tokio::test]
async fn limit_requests_per_minute_in_every_format() {
    every_form(|form| async move {
        let lines = "limits = { requests_per_minute = 2, tokens_per_minute = 100000 }";
        let (upstream, gateway) = limited(form, lines, "").await;
        for remaining in ["1", "0"] {
            let answer = gateway.ask(asking(form, false)).await;
            assert_eq!(answer.status(), 200, "{}", answer.text());
            let requests = left(form, "requests", &answer);
            let tokens = left(form, "tokens", &answer);
            assert_eq!(requests.is_some(), form != Form::Generate, "{}", answer.everything());
            if let (Some(requests), Some(tokens)) = (requests, tokens) {
                assert_eq!((&*requests.0, &*requests.1), ("2", remaining));
                assert_eq!(tokens.0, "100000");
                assert!(tokens.1.parse::<u64>().unwrap() < 100_000, "{tokens:?}");
                let reset = requests.2;
                match form {
                    Form::Messages => assert!(reset.ends_with('Z') && reset.contains('T'), "{reset}"),
                    _ => assert!(reset.ends_with('s'), "{reset}"),
                }
            }
        }
        let answer = gateway.ask(asking(form, false)).await;
        assert_eq!(answer.status(), 429);
        let (kind, message) = form.error(&answer);
        let expected = match form {
            Form::Chat | Form::Responses => "rate_limit_exceeded",
            Form::Messages => "rate_limit_error",
            Form::Generate => "RESOURCE_EXHAUSTED",
        };
        assert_eq!(kind, expected);
        assert!(message.contains("2 requests per minute"), "{message}");
        let wait: u64 = answer.get("retry-after").unwrap().parse().unwrap();
        assert!((1..=30).contains(&wait), "{wait}");
        assert_eq!(answer.get("x-should-retry"), None, "later it is permitted");
        if let Some((limit, remaining, _)) = left(form, "requests", &answer) {
            assert_eq!((&*limit, &*remaining), ("2", "0"));
        }
        if form == Form::Generate {
            let detail = &answer.json()["error"]["details"][0];
            assert_eq!(detail["@type"], "type.googleapis.com/google.rpc.RetryInfo");
            assert_eq!(detail["retryDelay"], format!("{wait}s"));
        }
        assert_eq!(upstream.count(), 2);
        let refused = [("scope", "key"), ("limit", "requests_per_minute")];
        assert_eq!(gateway.metrics().await.sum("gateway_limit_refusals_total", &refused), 1.0);
        // A reload does not reset the limit.
        gateway.reload("applied").await;
        assert_eq!(gateway.ask(asking(form, false)).await.status(), 429);
        // Other keys have their own limits.
        assert_eq!(gateway.ask(form.request(false)).await.status(), 200);
        assert_eq!(left(form, "requests", &gateway.ask(form.request(false)).await), None);
    })
    .await;
}

#[tokio::test]
async fn limit_of_an_account_is_shared_by_its_keys() {
    let more = "[[account]]\nname = \"acme\"\nlimits = { requests_per_minute = 2 }\n".to_owned()
        + &key("leo", "client-key-of-leo-0011", "account = \"acme\"");
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let mut setup = Setup::providers(upstream.addr).account("acme", "1");
    setup.keys += &key("lia", LIMITED, "account = \"acme\"\nlimits = { requests_per_minute = 50 }");
    setup.keys += &more;
    let gateway = Gateway::start(&setup).await;
    let leo = Form::Chat.request_with(false, &[("authorization", "Bearer client-key-of-leo-0011")]);
    let answer = gateway.ask(asking(Form::Chat, false)).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_eq!(left(Form::Chat, "requests", &answer).unwrap().1, "1", "the tighter of both");
    assert_eq!(gateway.ask(&leo).await.status(), 200);
    for refused in [&leo, &asking(Form::Chat, false)] {
        let answer = gateway.ask(refused).await;
        assert_eq!(answer.status(), 429);
        assert!(answer.text().contains("this account"), "{}", answer.text());
    }
}

#[tokio::test]
async fn limit_tokens_are_estimated_then_corrected_by_usage() {
    let (_upstream, gateway) = limited(Form::Chat, "limits = { tokens_per_minute = 200 }", "").await;
    let body = |max: u64| {
        let body =
            json!({"model": "gpt", "max_tokens": max, "messages": [{"role": "user", "content": "Hi"}]});
        post_with(
            "/v1/chat/completions",
            &[("authorization", &format!("Bearer {LIMITED}"))],
            body.to_string(),
        )
    };
    // More than the limit of a minute: the request can never be admitted.
    let answer = gateway.ask(body(300)).await;
    assert_eq!((answer.status(), answer.get("retry-after")), (429, None), "{}", answer.text());
    assert_eq!(answer.get("x-should-retry"), Some("false"));
    Form::Chat.error(&answer);
    // Each estimate takes most of the limit; the unused part is returned, so that 18 tokens count each time.
    for _ in 0..3 {
        let answer = gateway.ask(body(110)).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    let refused = gateway.ask(body(160)).await;
    assert_eq!(refused.status(), 429, "{}", refused.text());
    assert!(refused.get("retry-after").is_some());
}

/// The concurrency permit is released at every kind of end of a response.
#[tokio::test]
async fn limit_concurrency_is_released_at_every_end() {
    every_form(|form| async move {
        let frames = form.frames(form.model());
        let whole = reply::stream(&frames);
        let cut = [reply::stream_head().into_bytes(), reply::chunk(&frames[0])].concat();
        let answers = [
            Some(whole.clone()),
            Some(cut),
            Some(reply::json(500, provider_error(form, 500, "no"))),
            // The client disconnects before a response.
            None,
            Some(whole),
        ];
        let gate = Gate::new();
        let wait = gate.clone();
        let turn = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let upstream = Upstream::start(move |mut conn| {
            let (answers, turn, wait) = (answers.clone(), turn.clone(), wait.clone());
            async move {
                conn.request().await;
                let turn = turn.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                match answers.get(turn).cloned().flatten() {
                    Some(answer) => conn.send(answer).await,
                    None => tokio::select! {
                        () = conn.closed() => {}
                        () = wait.passed() => {}
                    },
                }
            }
        })
        .await;
        let mut setup = Setup::providers(upstream.addr);
        setup.keys += &key("lia", LIMITED, "limits = { concurrent = 1 }");
        let gateway = Gateway::start(&setup).await;
        for expected in [200, 200, 500] {
            // Each request follows the end of the previous one immediately, over a new connection.
            let answer = gateway.ask(asking(form, true)).await;
            assert_eq!(answer.status(), expected, "{form:?}: {}", answer.text());
        }
        let mut client = gateway.connect().await;
        client.send(asking(form, true)).await;
        upstream.wait_for(4).await;
        let refused = gateway.ask(asking(form, true)).await;
        assert_eq!(refused.status(), 429, "{form:?}: {}", refused.text());
        assert_eq!(refused.get("retry-after"), Some("1"));
        assert!(form.error(&refused).1.contains("at a time"), "{}", refused.text());
        drop(client);
        gateway.wait_for_metric("gateway_requests_in_flight", &[], 0.0).await;
        let answer = gateway.ask(asking(form, true)).await;
        assert_eq!(answer.status(), 200, "{form:?}: {}", answer.text());
        gate.open();
    })
    .await;
}

#[tokio::test]
async fn target_with_one_place_takes_the_next_request_at_the_end_of_a_response() {
    every_form(|form| async move {
        for streamed in [true, false] {
            let whole = if streamed {
                reply::stream(&form.frames(form.model()))
            } else {
                reply::json(200, form.whole(form.model()))
            };
            let upstream = Upstream::start(move |mut conn| {
                let whole = whole.clone();
                async move {
                    while conn.request().await.is_some() {
                        conn.send(whole.clone()).await;
                    }
                }
            })
            .await;
            let mut setup = Setup::providers(upstream.addr);
            setup.routes = setup.routes.replace("\" }]", "\", concurrent = 1 }]");
            setup.keys += &key("lia", LIMITED, "");
            assert!(setup.routes.contains("concurrent"), "{}", setup.routes);
            let gateway = Gateway::start(&setup).await;
            for _ in 0..100 {
                // Over a new connection: another worker may have it before the one before is done with the last request.
                let answer = gateway.ask(asking(form, streamed)).await;
                assert_eq!(answer.status(), 200, "{form:?}: {}", answer.text());
            }
        }
    })
    .await;
}

#[tokio::test]
async fn limit_spend_is_enforced_and_survives_a_reload() {
    every_form(|form| async move {
        // 18 tokens cost 0.000025. The reservation covers 64 output tokens in the messages format and 4,096 in the
        // others.
        let limit = if form == Form::Messages { "0.0003" } else { "0.0085" };
        let lines = format!("limits = {{ spend_per_day = {limit}, spend_per_month = 1 }}");
        let (upstream, gateway) = limited(form, &lines, "").await;
        let mut answered = 0;
        let refused = loop {
            let answer = gateway.ask(asking(form, false)).await;
            if answer.status() != 200 {
                break answer;
            }
            answered += 1;
            assert!(answered < 20, "{form:?}: nothing is limited");
        };
        assert!(answered > 1, "{form:?}: {}", refused.text());
        assert_eq!(refused.status(), 429);
        if form == Form::Messages {
            assert_eq!(form.error(&refused).0, "billing_error");
            assert_eq!(refused.get("anthropic-ratelimit-unified-status"), Some("rejected"));
        }
        assert!(form.error(&refused).1.contains(&format!("{limit} a day")), "{}", refused.text());
        assert_eq!(refused.get("x-should-retry"), Some("false"));
        gateway.reload("applied").await;
        assert_eq!(gateway.ask(asking(form, false)).await.status(), 429);
        assert_eq!(upstream.count(), answered);
        gateway.records(answered + 2).await;
        let keys = std::fs::read_to_string(gateway.folder().join("keys.toml")).unwrap();
        let other = keys.replace("name = \"lia\"", "name = \"lea\"");
        gateway.replace("keys.toml", &other);
        gateway.reload("applied").await;
        assert_eq!(gateway.ask(asking(form, false)).await.status(), 200, "another key's name");
    })
    .await;
}

/// A limit that the request alone exceeds: no wait helps, and the message says what does.
#[tokio::test]
async fn limit_below_the_cost_of_one_request_is_told_as_such() {
    every_form(|form| async move {
        // 64 output tokens in the messages format and 4,096 in the others are reserved.
        let (upstream, gateway) =
            limited(form, "limits = { spend_per_day = 0.0001, spend_per_month = 1 }", "").await;
        for _ in 0..2 {
            let refused = gateway.ask(asking(form, false)).await;
            assert_eq!(refused.status(), 429, "{}", refused.text());
            assert_eq!((refused.get("retry-after"), refused.get("x-should-retry")), (None, Some("false")));
            let (kind, message) = form.error(&refused);
            let (expected, member) = match form {
                Form::Chat => ("insufficient_quota", "max_completion_tokens"),
                Form::Responses => ("insufficient_quota", "max_output_tokens"),
                Form::Messages => ("billing_error", "max_tokens"),
                Form::Generate => ("RESOURCE_EXHAUSTED", "generationConfig.maxOutputTokens"),
            };
            assert_eq!(kind, expected);
            for part in ["0.0001 a day", "may cost 0.00", member, "Waiting does not help"] {
                assert!(message.contains(part), "{part}: {message}");
            }
            if form == Form::Messages {
                assert_eq!(
                    refused.get("anthropic-ratelimit-unified-status"),
                    Some("allowed"),
                    "nothing is used"
                );
            }
        }
        assert_eq!(upstream.count(), 0);
        let lines = gateway.wait_for_log(2).await;
        assert_eq!(lines[0]["error"], "over_spend_limit");
        let refused = [("scope", "key"), ("limit", "spend_per_day")];
        assert_eq!(gateway.metrics().await.sum("gateway_limit_refusals_total", &refused), 2.0);
    })
    .await;
}

/// An account whose limits are configured, and that has no credit: the refusal names the balance.
#[tokio::test]
async fn limit_of_an_account_is_no_credit() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let mut setup = Setup::providers(upstream.addr).priced("input = 1\noutput = 2").account("other", "1");
    setup.keys += &key("lia", LIMITED, "account = \"acme\"");
    setup.keys += "[[account]]\nname = \"acme\"\nlimits = { spend_per_month = 50 }\n";
    let gateway = Gateway::start(&setup).await;
    let answer = gateway.ask(asking(Form::Chat, false)).await;
    assert_eq!(answer.status(), 401, "{}", answer.text());
    assert!(answer.text().contains("never credited"), "{}", answer.text());
    assert!(answer.text().contains("limit is not the reason"), "{}", answer.text());
    gateway.command(&["accounts", "create", "acme"]);
    let answer = soon(async {
        loop {
            let answer = gateway.ask(asking(Form::Chat, false)).await;
            if answer.status() != 401 {
                return answer;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!((answer.status(), answer.get("retry-after")), (429, None), "{}", answer.text());
    assert!(answer.text().contains("balance of your account is too low"), "{}", answer.text());
    assert!(answer.text().contains("limit is not the reason"), "{}", answer.text());
}

#[tokio::test]
async fn limit_spend_includes_earlier_usage() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let setup = |lines: &str| {
        let mut setup = Setup::providers(upstream.addr).priced("input = 1\noutput = 2");
        setup.keys += &key("lia", LIMITED, lines);
        setup
    };
    let gateway = Gateway::start(&setup("")).await;
    for _ in 0..4 {
        assert_eq!(gateway.ask(asking(Form::Chat, false)).await.status(), 200);
    }
    gateway.records(4).await;
    // A limit that is added later includes the earlier spend of 0.0001.
    for (limit, status) in [("0.00828", 429), ("0.009", 200)] {
        let lines = format!("limits = {{ spend_per_month = {limit} }}");
        gateway.replace("keys.toml", &setup(&lines).keys);
        gateway.reload("applied").await;
        let answer = gateway.ask(asking(Form::Chat, false)).await;
        assert_eq!(answer.status(), status, "{limit}: {}", answer.text());
    }
}

#[tokio::test]
async fn key_permissions_restrict_apis_and_networks() {
    every_form(|form| async move {
        let others: Vec<&str> = ["chat", "messages", "responses", "generate"]
            .into_iter()
            .filter(|api| *api != format!("{form:?}").to_lowercase())
            .collect();
        let lines = format!("endpoints = {others:?}");
        let (upstream, gateway) = limited(form, &lines, "").await;
        let answer = gateway.ask(asking(form, false)).await;
        assert_eq!(answer.status(), 403);
        let (kind, message) = form.error(&answer);
        assert!(message.contains("may not use the"), "{message}");
        let expected = match form {
            Form::Chat | Form::Responses => "permission_denied",
            Form::Messages => "authentication_error",
            Form::Generate => "PERMISSION_DENIED",
        };
        assert_eq!(kind, expected);
        let list = request("GET", "/v1/models", &[("authorization", &format!("Bearer {LIMITED}"))]);
        assert_eq!(gateway.ask(list).await.status(), 200);

        let elsewhere = "endpoints = [\"*\"]\nnetworks = [\"192.0.2.0/24\"]";
        let keys = |lines: &str| key("lia", LIMITED, lines);
        gateway.replace("keys.toml", &keys(elsewhere));
        gateway.reload("applied").await;
        let answer = gateway.ask(asking(form, false)).await;
        assert_eq!(answer.status(), 403);
        assert!(form.error(&answer).1.contains("network"), "{}", answer.text());
        assert_eq!(upstream.count(), 0);
        gateway.replace("keys.toml", &keys("networks = [\"192.0.2.0/24\", \"127.0.0.0/8\"]"));
        gateway.reload("applied").await;
        assert_eq!(gateway.ask(asking(form, false)).await.status(), 200);
    })
    .await;
}

/// Over HTTP/2 a request ends with its stream, which the client may reset alone.
#[tokio::test]
async fn limit_concurrency_is_released_by_an_http2_reset() {
    let gate = Gate::new();
    let wait = gate.clone();
    let upstream = Upstream::start(move |mut conn| {
        let wait = wait.clone();
        async move {
            while conn.request().await.is_some() {
                tokio::select! {
                    () = conn.closed() => return,
                    () = wait.passed() => {}
                }
                conn.send(reply::json(200, Form::Chat.whole("gpt"))).await;
            }
        }
    })
    .await;
    let mut setup = Setup::providers(upstream.addr);
    setup.keys = setup.keys.replacen("name = \"alice\"", "name = \"alice\"\nlimits = { concurrent = 1 }", 1);
    let gateway = Gateway::start(&setup).await;
    let mut client = http2::Client::connect(gateway.addr).await;
    let waiting = client.request(Form::Chat, false).await;
    upstream.wait_for(1).await;
    let (refused, _) = http2::answer(client.request(Form::Chat, false).await).await;
    assert_eq!(refused.status(), 429);
    // Reset the stream and keep the connection.
    drop(waiting);
    gateway.wait_for_metric("gateway_requests_in_flight", &[], 0.0).await;
    gate.open();
    let (answer, _) = http2::answer(client.request(Form::Chat, false).await).await;
    assert_eq!(answer.status(), 200);
    let records = gateway.records(3).await;
    let errors: Vec<&str> = records.iter().map(|record| record["error"].as_str().unwrap()).collect();
    assert_eq!(errors.iter().filter(|error| **error == "client_gone").count(), 1, "{errors:?}");
    assert_eq!(errors.iter().filter(|error| **error == "rate_limited").count(), 1, "{errors:?}");
}
