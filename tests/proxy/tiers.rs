//! Service tiers, prices by date, and models without a price: what is reserved, refused and charged.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::accounts::PAYING;
use crate::support::client::{Answer, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{Setup, key, provider_of};
use crate::support::upstream::Upstream;

/// Prices of 1 and 2 per million tokens. The providers of [`Form`] report 11 input and 7 output tokens: 25 millionths.
const PRICE: &str = "input = 1\noutput = 2\nservice_tiers = [\
    { tier = \"flex\", factor = 0.5 }, { tier = \"batch\", factor = 0.5 }, { tier = \"priority\", factor = 2 }, \
    { tier = \"ultrafast\", factor = 6 } ]\nregions = [{ region = \"us\", factor = 1.1 }]";

/// Starts an upstream that answers in every format and states what `told` has: members beside the usage, and members in it. The
/// bodies that it gets are kept.
pub(crate) async fn telling(told: Arc<Mutex<(String, String)>>, bodies: Arc<Mutex<Vec<Value>>>) -> Upstream {
    Upstream::start(move |mut conn| {
        let (told, bodies) = (told.clone(), bodies.clone());
        async move {
            while let Some(asked) = conn.request().await {
                let form = Form::ALL.into_iter().find(|form| asked.head.line.contains(form.mark())).unwrap();
                let body: Value = serde_json::from_slice(&asked.body).unwrap();
                let stream = asked.head.line.contains("streamGenerateContent") || body["stream"] == true;
                bodies.lock().unwrap().push(body);
                let (beside, inside) = told.lock().unwrap().clone();
                let tell = |text: String| {
                    let text = match form {
                        // A chat stream states its tier in every chunk, a response where its status is.
                        Form::Chat => text.replace("\"model\"", &format!("{beside}\"model\"")),
                        Form::Responses => text.replace("\"created_at\"", &format!("{beside}\"created_at\"")),
                        Form::Messages | Form::Generate => text,
                    };
                    ["\"input_tokens\":11", "\"promptTokenCount\": 11", "\"promptTokenCount\":11"]
                        .into_iter()
                        .fold(text, |text, figure| text.replace(figure, &format!("{inside}{figure}")))
                };
                conn.send(if stream {
                    let frames: Vec<String> = form.frames(provider_of(form)).into_iter().map(tell).collect();
                    reply::stream(&frames)
                } else {
                    reply::json(200, tell(form.whole(provider_of(form))))
                })
                .await;
            }
        }
    })
    .await
}

/// Returns what an answer of a format has to state: members beside the usage, and members in it.
fn statement(form: Form, tier: &str) -> (String, String) {
    let member = |name: &str, word: &str| format!("\"{name}\":\"{word}\",");
    match (form, tier) {
        (_, "") => Default::default(),
        (Form::Chat | Form::Responses, "standard") => (member("service_tier", "default"), String::new()),
        (Form::Chat | Form::Responses, word) => (member("service_tier", word), String::new()),
        (Form::Messages, "priority") => {
            (String::new(), member("service_tier", "standard") + &member("speed", "fast"))
        }
        (Form::Messages, word) => (String::new(), member("service_tier", word)),
        (Form::Generate, word) => (String::new(), member("serviceTier", word)),
    }
}

/// Returns a request of a format with further members.
fn asking(form: Form, members: &Value, stream: bool) -> Vec<u8> {
    let mut body: Value = serde_json::from_str(&form.body(provider_of(form), stream)).unwrap();
    for (name, value) in members.as_object().unwrap() {
        body[name] = value.clone();
    }
    let bearer = format!("Bearer {PAYING}");
    post_with(&form.path(provider_of(form), stream), &[("authorization", &bearer)], body.to_string())
}

/// Returns the member that asks for a tier.
fn wish(form: Form, tier: &str) -> Value {
    match (form, tier) {
        (_, "") => json!({}),
        (Form::Chat | Form::Responses, "standard") => json!({"service_tier": "default"}),
        (Form::Chat | Form::Responses, word) => json!({ "service_tier": word }),
        (Form::Messages, "priority") => json!({"speed": "fast"}),
        (Form::Messages, _) => json!({"service_tier": "standard_only"}),
        (Form::Generate, word) => json!({ "serviceTier": word }),
    }
}

struct Tiers {
    _upstream: Upstream,
    gateway: Gateway,
    told: Arc<Mutex<(String, String)>>,
    bodies: Arc<Mutex<Vec<Value>>>,
}

impl Tiers {
    async fn start(price: &str, rules: &str, change: impl FnOnce(Setup) -> Setup) -> Tiers {
        let (told, bodies) = (Arc::default(), Arc::default());
        let upstream = telling(Arc::clone(&told), Arc::clone(&bodies)).await;
        let mut setup = Setup::each_provider(upstream.addr);
        if !price.is_empty() {
            setup = setup.priced(price);
        }
        let mut setup = change(setup.account("acme", "1"));
        setup.keys += &key("pia", PAYING, &format!("account = \"acme\"\n{rules}"));
        Tiers { gateway: Gateway::start(&setup).await, _upstream: upstream, told, bodies }
    }

    /// Sends a request that asks for one tier, to a provider that states another one.
    async fn ask(&self, form: Form, asked: &str, told: &str, stream: bool) -> Answer {
        *self.told.lock().unwrap() = statement(form, told);
        self.gateway.ask(asking(form, &wish(form, asked), stream)).await
    }

    fn last_body(&self) -> Value {
        self.bodies.lock().unwrap().last().unwrap().clone()
    }
}

#[tokio::test]
async fn charge_is_that_of_the_tier_that_the_answer_states() {
    let tiers = Tiers::start(PRICE, "", |setup| setup).await;
    let mut expected = Vec::new();
    for form in Form::ALL {
        for stream in [false, true] {
            for (asked, told, tier, cost) in [
                ("", "", "standard", "0.000025"),
                ("priority", "priority", "priority", "0.00005"),
                // The provider had no room in the tier that was asked for.
                ("priority", "standard", "standard", "0.000025"),
                // An answer that says nothing: the tier that was asked for.
                ("priority", "", "priority", "0.00005"),
                // A tier that was not asked for, as a project's settings may cause it.
                ("", "priority", "priority", "0.00005"),
                // A word that is not known costs as much as the dearest tier.
                ("", "tier_of_tomorrow", "unknown", "0.00015"),
            ] {
                let answer = tiers.ask(form, asked, told, stream).await;
                assert_eq!(answer.status(), 200, "{form:?} {asked} {told}: {}", answer.text());
                // Fast mode of the messages format is another name for a tier that is served before others.
                let tier = if form == Form::Messages && tier == "priority" { "fast" } else { tier };
                expected.push((format!("{form:?} {stream} {asked} {told}"), tier, cost));
            }
        }
    }
    let records = tiers.gateway.records(expected.len()).await;
    let mut left: Vec<_> =
        records.iter().map(|record| (record["tier"].clone(), record["cost"].clone())).collect();
    for (name, tier, cost) in &expected {
        let at = left.iter().position(|(is, paid)| is == tier && paid == cost);
        left.remove(at.unwrap_or_else(|| panic!("{name}: no charge of {cost} in the tier {tier}: {left:?}")));
    }
    let metrics = tiers.gateway.metrics().await;
    let sum = |name: &str, tier: &str| metrics.sum(name, &[("tier", tier)]);
    let forms = Form::ALL.len() as f64;
    assert_eq!(sum("gateway_unpriced_tiers_total", "unknown"), 2.0 * forms);
    assert_eq!(sum("gateway_tier_requests_total", "unknown"), 2.0 * forms);
    assert_eq!(sum("gateway_tier_cost_nano_units_total", "unknown"), 2.0 * forms * 150_000.0);
    let lines = tiers.gateway.wait_for_log(expected.len()).await;
    assert!(lines.iter().any(|line| line["tier"] == "priority" && line["cost"] == 0.000_05));
    assert!(lines.iter().any(|line| line["tier"].is_null() && line["cost"] == 0.000_025));
}

#[tokio::test]
async fn charge_of_a_region_that_the_answer_states() {
    let tiers = Tiers::start(PRICE, "", |setup| setup).await;
    let requests = [
        ("\"inference_geo\":\"us\",", json!({}), "0.0000275"),
        ("", json!({"inference_geo": "us"}), "0.0000275"),
        ("\"inference_geo\":\"global\",", json!({"inference_geo": "us"}), "0.000025"),
        ("\"inference_geo\":\"us\",\"speed\":\"fast\",", json!({"speed": "fast"}), "0.000055"),
    ];
    for (told, members, _) in &requests {
        *tiers.told.lock().unwrap() = (String::new(), (*told).to_owned());
        let answer = tiers.gateway.ask(asking(Form::Messages, members, false)).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    let mut paid: Vec<Value> =
        tiers.gateway.records(4).await.iter().map(|record| record["cost"].clone()).collect();
    paid.sort_by_key(Value::to_string);
    let mut expected: Vec<Value> = requests.iter().map(|(_, _, cost)| json!(cost)).collect();
    expected.sort_by_key(Value::to_string);
    assert_eq!(paid, expected);
}

/// A backend that states the default tier for whatever it served is not believed.
#[tokio::test]
async fn charge_of_the_requested_tier_at_a_provider_that_states_none() {
    let tiers = Tiers::start(PRICE, "", |mut setup| {
        setup.routes =
            setup.routes.replace("apis = [\"chat\"]", "apis = [\"chat\"]\nserved_tier = \"request\"");
        setup
    })
    .await;
    tiers.ask(Form::Chat, "priority", "standard", false).await;
    let record = &tiers.gateway.records(1).await[0];
    assert_eq!((&record["tier"], &record["cost"]), (&json!("priority"), &json!("0.00005")));
}

#[tokio::test]
async fn reservation_is_made_in_the_tier_that_is_asked_for() {
    // 4096 output tokens cost 0.008192 in the standard tier, and twice as much in the other one.
    let tiers = Tiers::start(PRICE, "", |mut setup| {
        setup.accounts.clear();
        setup.account("acme", "0.01")
    })
    .await;
    for (members, status) in [
        (json!({}), 200),
        (json!({"service_tier": "flex"}), 200),
        (json!({"service_tier": "default"}), 200),
        (json!({"service_tier": "priority"}), 429),
        (json!({"service_tier": "fast"}), 429),
        // The provider may choose the dearest.
        (json!({"service_tier": "auto"}), 429),
    ] {
        let answer = tiers.gateway.ask(asking(Form::Chat, &members, false)).await;
        assert_eq!(answer.status(), status, "{members}: {}", answer.text());
    }
}

#[tokio::test]
async fn tier_that_a_key_may_not_use_is_refused_in_every_format() {
    let tiers = Tiers::start(PRICE, "tiers = [\"standard\", \"flex\"]", |setup| setup).await;
    for form in Form::ALL {
        let answer = tiers.ask(form, "priority", "", false).await;
        assert_eq!(answer.status(), 403, "{form:?}: {}", answer.text());
        assert!(answer.text().contains("It may use: standard, flex."), "{form:?}: {}", answer.text());
        let answer = tiers.ask(form, "standard", "", false).await;
        assert_eq!(answer.status(), 200, "{form:?}: {}", answer.text());
        assert_eq!(answer.get("x-gateway-warning"), None);
    }
    let answer = tiers.ask(Form::Chat, "flex", "flex", false).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let answer = tiers.ask(Form::Chat, "priority", "", false).await;
    let error = &answer.json()["error"];
    assert_eq!(
        (&error["code"], &error["param"]),
        (&json!("service_tier_not_permitted"), &json!("service_tier"))
    );
    // Nothing of what was refused has reached a provider.
    let sent = tiers.bodies.lock().unwrap();
    assert!(
        sent.iter().all(|body| body["service_tier"] != "priority" && body["speed"] != "fast"),
        "{sent:?}"
    );
}

#[tokio::test]
async fn tier_that_a_key_may_not_use_becomes_the_standard_one() {
    let rules = "tiers = [\"standard\"]\ntiers_else = \"standard\"";
    let tiers = Tiers::start(PRICE, rules, |setup| setup).await;
    for form in Form::ALL {
        for stream in [false, true] {
            let answer = tiers.ask(form, "priority", "standard", stream).await;
            assert_eq!(answer.status(), 200, "{form:?}: {}", answer.text());
            let (member, word) = match form {
                Form::Messages => ("speed", "standard"),
                Form::Generate => ("serviceTier", "standard"),
                Form::Chat | Form::Responses => ("service_tier", "default"),
            };
            assert_eq!(answer.get("x-gateway-warning"), Some(&*format!("{member} changed")), "{form:?}");
            assert_eq!(tiers.last_body()[member], word, "{form:?}");
        }
    }
    // What is left to the provider could become what is not permitted.
    tiers.ask(Form::Chat, "auto", "standard", false).await;
    assert_eq!(tiers.last_body()["service_tier"], "default");
    let records = tiers.gateway.records(9).await;
    assert!(records.iter().all(|record| record["cost"] == "0.000025"), "{records:?}");
}

#[tokio::test]
async fn tiers_of_an_account_bind_its_keys() {
    let tiers = Tiers::start(PRICE, "", |mut setup| {
        setup.keys += "\n[[account]]\nname = \"acme\"\ntiers = [\"standard\"]\n";
        setup
    })
    .await;
    assert_eq!(tiers.ask(Form::Chat, "flex", "", false).await.status(), 403);
    assert_eq!(tiers.ask(Form::Chat, "", "", false).await.status(), 200);
}

#[tokio::test]
async fn model_without_a_price_is_refused_for_accounts_in_every_format() {
    let refusing = |mut setup: Setup| {
        setup.limits += "\n[accounts]\nunpriced = \"refuse\"\n";
        setup
    };
    let tiers = Tiers::start("", "", refusing).await;
    for form in Form::ALL {
        let answer = tiers.ask(form, "", "", false).await;
        assert_eq!(answer.status(), 403, "{form:?}: {}", answer.text());
        assert!(answer.text().contains(provider_of(form)), "the model is named: {}", answer.text());
        // A key without an account pays nothing.
        assert_eq!(tiers.gateway.ask(form.request_for(provider_of(form), false)).await.status(), 200);
    }
    assert_eq!(tiers.bodies.lock().unwrap().len(), Form::ALL.len());
    // Free on purpose.
    let tiers = Tiers::start("free = true", "", refusing).await;
    assert_eq!(tiers.ask(Form::Chat, "", "", false).await.status(), 200);
    assert_eq!(tiers.gateway.records(1).await[0]["cost"], "0.00");
    // A price that has ended is none.
    let tiers = Tiers::start("until = 2026-01-01\ninput = 1", "", refusing).await;
    assert_eq!(tiers.ask(Form::Chat, "", "", false).await.status(), 403);
}

#[tokio::test]
async fn charge_is_that_of_the_day_of_the_request() {
    let day = |offset: i64| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        model_gateway::account::price::date(i64::try_from(now / 86_400).unwrap() + offset)
    };
    let rows = format!(
        "price = [\n{{ until = {}, input = 9, output = 9 }},\n{{ from = {}, until = {}, input = 1, output = 2 }},\n\
         {{ from = {}, input = 5, output = 5 }} ]\n",
        day(-1),
        day(0),
        day(1),
        day(2)
    );
    let tiers = Tiers::start("", "", |mut setup| {
        setup.routes = setup.routes.replace("[[model]]\n", &format!("[[model]]\n{rows}"));
        setup
    })
    .await;
    tiers.ask(Form::Chat, "", "", false).await;
    assert_eq!(tiers.gateway.records(1).await[0]["cost"], "0.000025");
}

/// The tier is part of the answer in the client's own format, also if a provider of another format states it.
#[tokio::test]
async fn tier_is_stated_in_the_clients_format() {
    let tiers = Tiers::start(PRICE, "", |setup| setup).await;
    let through = |client: Form, provider: Form| {
        let bearer = format!("Bearer {PAYING}");
        let body = client.body(provider_of(provider), false);
        post_with(&client.path(provider_of(provider), false), &[("authorization", &bearer)], body)
    };
    for provider in Form::ALL {
        *tiers.told.lock().unwrap() = statement(provider, "priority");
        for client in Form::ALL {
            if client == provider {
                continue;
            }
            let answer = tiers.gateway.ask(through(client, provider)).await.json();
            let (is, expected) = match client {
                Form::Chat | Form::Responses => (&answer["service_tier"], "priority"),
                Form::Messages => (&answer["usage"]["speed"], "fast"),
                Form::Generate => (&answer["usageMetadata"]["serviceTier"], "priority"),
            };
            assert_eq!(is, expected, "{provider:?} to {client:?}: {answer}");
        }
    }
}

/// A fallback is charged at its own price, unless the model that was requested says otherwise.
#[tokio::test]
async fn charge_of_a_fallback_is_its_own_price() {
    for (lines, cost) in [("", "0.00025"), ("fallback_price = \"requested\"", "0.000025")] {
        let tiers = Tiers::start("", "", |setup| {
            let mut setup = setup.provider("dead", "openai", "http://127.0.0.1:1/v1", "");
            let routes = setup.routes.replace(
                "[[model]]\nid = \"at-chat\"\n",
                &format!(
                    "[[model]]\nid = \"first\"\nprice = {{ input = 1, output = 2 }}\nfallback = [\"at-chat\"]\n{lines}\n\
                     targets = [{{ provider = \"dead\", model = \"nowhere\" }}]\n\n\
                     [[model]]\nid = \"at-chat\"\nprice = {{ input = 10, output = 20 }}\n"
                ),
            );
            setup.routes = routes;
            setup
        })
        .await;
        let mut body: Value = serde_json::from_str(&Form::Chat.body("first", false)).unwrap();
        body["max_tokens"] = json!(9);
        let bearer = format!("Bearer {PAYING}");
        let request = post_with("/v1/chat/completions", &[("authorization", &bearer)], body.to_string());
        let answer = tiers.gateway.ask(request).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert_eq!(tiers.gateway.records(1).await[0]["cost"], cost, "{lines}");
    }
}
