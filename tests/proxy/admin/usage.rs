//! Usage by several dimensions, and limits in use.

use serde_json::{Value, json};

use super::{ADMIN, Ask, get, with_tokens};
use crate::support::client::post_with;
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, Setup};
use crate::support::upstream::Upstream;

async fn gateway() -> (Upstream, Gateway) {
    let answer = reply::json(200, Form::Chat.whole("gpt"));
    let upstream = Upstream::answering_each(vec![answer.clone(), answer, reply::json(400, "{}")]).await;
    let mut setup = Setup::providers(upstream.addr).priced("input = 1\noutput = 2").account("acme", "5");
    let limits = "name = \"alice\"\naccount = \"acme\"\nlimits = { requests_per_minute = 60, concurrent = 4, \
                  spend_per_day = 10 }\n";
    setup.keys = setup.keys.replacen("name = \"alice\"\n", limits, 1);
    let gateway = Gateway::start(&with_tokens(setup)).await;
    for _ in 0..3 {
        let body = Form::Chat.body("gpt", false);
        gateway.ask(post_with("/v1/chat/completions", &[("x-api-key", KEY)], body)).await;
    }
    gateway.records(3).await;
    (upstream, gateway)
}

fn rows(usage: &Value) -> &Vec<Value> {
    usage["rows"].as_array().unwrap()
}

#[tokio::test]
async fn admin_usage_is_grouped_by_several_dimensions_at_once() {
    let (_upstream, gateway) = gateway().await;
    let by_model = get("/usage?group=day,model,provider").expect(&gateway, 200).await;
    assert_eq!(
        (&by_model["groups"], &by_model["total"]["requests"]),
        (&json!(["day", "model", "provider"]), &json!(3))
    );
    assert_eq!(
        (&rows(&by_model)[0]["model"], &rows(&by_model)[0]["provider"], &rows(&by_model)[0]["requests"]),
        (&json!("gpt"), &json!("openai"), &json!(3))
    );
    // Errors by kind over time.
    let today = by_model["to"].as_str().unwrap();
    let errors = get(&format!("/usage?group=hour&group=error&from={today}")).expect(&gateway, 200).await;
    let failed: Vec<&Value> = rows(&errors).iter().filter(|row| row["error"] != "").collect();
    assert_eq!(failed.iter().map(|row| row["failed"].as_i64().unwrap()).sum::<i64>(), 1, "{errors}");
    assert!(failed[0]["hour"].as_str().unwrap().ends_with(":00:00Z"), "{errors}");
    let kind = failed[0]["error"].as_str().unwrap();
    let one = get(&format!("/usage?error={kind}&group=key,account")).expect(&gateway, 200).await;
    assert_eq!((&one["total"]["requests"], &rows(&one)[0]["account"]), (&json!(1), &json!("acme")));
    let fine = get("/usage?error=&provider=openai&group=month").expect(&gateway, 200).await;
    assert_eq!((&fine["total"]["requests"], &fine["total"]["failed"]), (&json!(2), &json!(0)), "{fine}");
    // The largest, and the rest of them.
    let top = get("/usage?group=day,error&top=1&order=-requests").expect(&gateway, 200).await;
    let parts: i64 = rows(&top).iter().map(|row| row["requests"].as_i64().unwrap()).sum();
    assert_eq!((parts, &top["total"]["requests"]), (3, &json!(3)), "{top}");
    let rest: Vec<&Value> = rows(&top).iter().filter(|row| row["is_others"] == true).collect();
    assert_eq!((rest.len(), &rest[0]["error"], &rest[0]["requests"]), (1, &Value::Null, &json!(1)), "{top}");
    let csv = get("/usage?group=day,key&format=csv").send(&gateway).await;
    assert!(csv.text().starts_with("day,key,requests,failed,"), "{}", csv.text());
    for (query, field) in [
        ("group=day,month", "group"),
        ("group=colour", "group"),
        ("group=model,model", "group"),
        ("group=hour,key&from=2026-01&to=2026-02", "from"),
        ("top=0", "top"),
        ("order=cost", "order"),
    ] {
        let error = get(&format!("/usage?{query}")).expect(&gateway, 400).await;
        assert_eq!(error["error"]["field"], field, "{query}: {error}");
    }
}

#[tokio::test]
async fn admin_limits_in_use_are_shown_for_keys_and_accounts() {
    let (_upstream, gateway) = gateway().await;
    let shown = get("/keys/alice/limits").expect(&gateway, 200).await;
    assert_eq!((&shown["name"], &shown["account"]), (&json!("alice"), &json!("acme")));
    let item = |name: &str| {
        shown["items"].as_array().unwrap().iter().find(|item| item["limit"] == name).unwrap().clone()
    };
    let requests = item("requests_per_minute");
    assert_eq!(requests["most"], "60");
    assert!(requests["used"].as_str().unwrap().parse::<u64>().unwrap() <= 3, "{shown}");
    assert_eq!((&item("concurrent")["most"], &item("concurrent")["used"]), (&json!("4"), &json!("0")));
    let spend = item("spend_per_day");
    let total = get("/usage?key=alice&group=key").expect(&gateway, 200).await["total"]["cost"].clone();
    let nanos = |text: &Value| (text.as_str().unwrap().parse::<f64>().unwrap() * 1e9).round();
    assert_eq!((&spend["most"], nanos(&spend["used"])), (&json!("10"), nanos(&total)), "{shown}");
    let account = get("/accounts/acme/limits").expect(&gateway, 200).await;
    assert_eq!(account["items"], json!([]));
    let limits = json!({ "limits": { "spend_per_month": "2" } });
    Ask::new("PATCH", "/accounts/acme").token(ADMIN).body(limits).expect(&gateway, 200).await;
    let account = get("/accounts/acme/limits").expect(&gateway, 200).await;
    let spend = &account["items"][0];
    assert_eq!(
        (&spend["limit"], nanos(&spend["used"])),
        (&json!("spend_per_month"), nanos(&total)),
        "{account}"
    );
    // All of them, those of which most is used first.
    let all = get("/limits").expect(&gateway, 200).await;
    let shares: Vec<u64> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["use"]["share_percent"].as_u64().unwrap())
        .collect();
    assert_eq!((&all["total"], shares.len()), (&json!(4), 4), "{all}");
    assert!(shares.is_sorted_by(|a, b| a >= b), "{all}");
    let row = |name: &str| {
        all["items"].as_array().unwrap().iter().find(|row| row["use"]["limit"] == name).unwrap().clone()
    };
    assert_eq!(row("spend_per_month")["scope"], "account");
    assert_eq!(
        (&row("spend_per_day")["use"]["used"], &row("spend_per_day")["account"]),
        (&shown["items"][2]["used"], &json!("acme"))
    );
    let one = get("/limits?limit=1").expect(&gateway, 200).await;
    assert_eq!((one["items"].as_array().unwrap().len(), &one["total"]), (1, &json!(4)));
    assert_eq!(get("/limits?over=1.5").expect(&gateway, 200).await["items"], json!([]));
    for wrong in ["over=-1", "over=x", "over=NaN", "limit=0"] {
        get(&format!("/limits?{wrong}")).expect(&gateway, 400).await;
    }
    for path in ["/keys/nobody/limits", "/accounts/nobody/limits"] {
        get(path).expect(&gateway, 404).await;
    }
}

fn requests(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap();
    items.iter().map(|item| item["request"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn admin_usage_records_are_shown_newest_first_and_found_by_id_and_text() {
    let (_upstream, gateway) = gateway().await;
    let oldest = requests(&get("/usage/records").expect(&gateway, 200).await);
    let newest = get("/usage/records?order=-time").expect(&gateway, 200).await;
    assert_eq!(requests(&newest), oldest.iter().rev().cloned().collect::<Vec<_>>());
    // Pages continue where the one before has ended, also one record at a time.
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    while seen.len() < 3 {
        let page = format!("/usage/records?order=-time&limit=1&cursor={}", cursor.replace(' ', "%20"));
        let page = get(&page).expect(&gateway, 200).await;
        seen.extend(requests(&page));
        cursor = page["next_cursor"].as_str().unwrap_or_default().to_owned();
        assert_eq!(cursor.is_empty(), seen.len() == 3, "{page}");
    }
    assert_eq!(seen, requests(&newest));
    // A cursor of one order is none of the other.
    let first = get("/usage/records?limit=1").expect(&gateway, 200).await["next_cursor"].clone();
    let other = format!("/usage/records?order=-time&cursor={}", first.as_str().unwrap());
    assert_eq!(get(&other).expect(&gateway, 400).await["error"]["field"], "cursor");

    let middle = &oldest[1];
    for (query, count) in [
        (format!("request={middle}"), 1),
        ("request=nothing".to_owned(), 0),
        (format!("text={}", middle[2..].to_uppercase()), 1),
        ("text=OPENAI".to_owned(), 3),
        ("text=openai&status=4xx".to_owned(), 1),
        ("status=error".to_owned(), 1),
        ("status=2xx".to_owned(), 2),
        ("provider=openai&error=".to_owned(), 2),
        ("provider=other".to_owned(), 0),
    ] {
        let page = get(&format!("/usage/records?order=-time&{query}")).expect(&gateway, 200).await;
        assert_eq!(requests(&page).len(), count, "{query}: {page}");
        // A file has the same records.
        let file = get(&format!("/usage/records?format=ndjson&{query}")).send(&gateway).await;
        assert_eq!(file.text().lines().count(), count, "{query}: {}", file.text());
    }
    let file = get("/usage/records?format=ndjson&order=-time").send(&gateway).await;
    let lines = file.text().lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(requests(&json!({ "items": lines.collect::<Vec<_>>() })), requests(&newest));
    for (query, field) in [("order=cost", "order"), ("status=6xx", "status")] {
        let error = get(&format!("/usage/records?{query}")).expect(&gateway, 400).await;
        assert_eq!(error["error"]["field"], field, "{query}: {error}");
    }
}

/// A limit that looks free and refuses every request, because each may cost more than all of it.
#[tokio::test]
async fn admin_limits_say_that_a_request_needs_more_than_all_of_them() {
    let upstream = Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await;
    let mut setup = Setup::providers(upstream.addr).priced("input = 1\noutput = 2");
    let limits = "name = \"alice\"\nlimits = { spend_per_day = 0.001, spend_per_month = 1 }\n";
    setup.keys = setup.keys.replacen("name = \"alice\"\n", limits, 1);
    let gateway = Gateway::start(&with_tokens(setup)).await;
    let ask = async |body: String, status: u16| {
        let answer = gateway.ask(post_with("/v1/chat/completions", &[("x-api-key", KEY)], body)).await;
        assert_eq!(answer.status(), status, "{}", answer.text());
    };
    let of = async || get("/keys/alice/limits").expect(&gateway, 200).await["items"].clone();
    ask(Form::Chat.body("gpt", false), 429).await;
    let shown = of().await;
    assert_eq!((&shown[0]["limit"], &shown[0]["used"]), (&json!("spend_per_day"), &json!("0")));
    assert_eq!(shown[0]["reason"], "request_exceeds_limit", "{shown}");
    assert!(shown[0]["needed"].as_str().unwrap().starts_with("0.008"), "{shown}");
    assert_eq!((&shown[1]["reason"], &shown[1]["needed"]), (&Value::Null, &Value::Null), "{shown}");
    let all = get("/limits").expect(&gateway, 200).await;
    let rows = all["items"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["use"]["reason"] == "request_exceeds_limit"), "{all}");
    // A smaller request fits.
    let small =
        json!({ "model": "gpt", "max_tokens": 16, "messages": [{ "role": "user", "content": "hi" }] });
    ask(small.to_string(), 200).await;
    assert_eq!(of().await[0]["reason"], Value::Null);
}
