//! Usage records: the latest first, and searched by the gateway.

use std::time::Duration;

use serde_json::json;

use crate::browser::Browser;
use crate::support::client::{ask, post_with};
use crate::world::{CI, WEB, World};

/// Records that fill more than one step of the page.
const RECORDS: usize = 210;

#[tokio::test]
async fn console_stored_records_are_shown_latest_first_and_searched_by_the_gateway() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    let plain = |key: &str, id: String| {
        let body =
            json!({ "model": "gpt-4o", "messages": [{ "role": "user", "content": "Hi" }] }).to_string();
        let (bearer, address) = (format!("Bearer {key}"), world.gateway.addr);
        async move {
            let headers =
                [("authorization", bearer.as_str()), ("connection", "close"), ("x-request-id", id.as_str())];
            assert_eq!(ask(address, post_with("/v1/chat/completions", &headers, body)).await.status(), 200);
        }
    };
    plain(CI, "the-oldest-of-all".to_owned()).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    for number in 1..RECORDS {
        plain(WEB, format!("request-{number:03}")).await;
    }
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "requests?tab=stored").await;
    browser.sees("200 and more records").await;
    let first = "return document.querySelector('tbody tr').textContent + document.querySelectorAll('tbody tr').length";
    let row = browser.run(first, json!([])).await;
    assert!(row.as_str().unwrap().contains("web-app") && row.as_str().unwrap().ends_with("200"), "{row}");
    browser.click_row("web-app").await;
    browser.sees(&format!("request-{:03}", RECORDS - 1)).await;
    // Sorted is what is loaded, which is said.
    browser.click("Duration").await;
    browser.sees("Sorted among the 200 rows that are loaded; the gateway has more.").await;
    // The oldest one is not loaded yet, and is found.
    assert!(!browser.text().await.contains("engineering"));
    browser.type_into("Filter", "the-oldest-of-all").await;
    browser.sees("1 record\n").await;
    browser.click_row("ci").await;
    browser.sees("engineering").await;
    browser.type_into("Filter", "request-").await;
    browser.sees("200 and more records").await;
    browser.click("Load more").await;
    browser.sees(&format!("{} records", RECORDS - 1)).await;
    // Words in any order, of which the gateway searches one, and a status.
    browser.type_into("Filter", "200 engineering oldest").await;
    browser.sees("1 record\n").await;
    browser.type_into("Filter", "engineering request-").await;
    browser.sees("No usage record matches").await;
    // Only what has failed.
    browser.type_into("Filter", "oldest").await;
    browser.sees("1 record\n").await;
    browser.click("Errors").await;
    browser.sees("No usage record matches").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_errors_are_shown_by_kind_over_time() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "errors").await;
    browser.sees("None of 0 requests has failed").await;
    for _ in 0..3 {
        assert!(world.chat(CI, "claude-sonnet-4-6", "Hello").await.status() >= 400);
    }
    assert!(world.chat(WEB, "gpt-4o", "Please fail [[status 500]]").await.status() >= 500);
    assert_eq!(world.chat(WEB, "gpt-4o", "Hello").await.status(), 200);
    browser.sees("Failed by day and error; most:").await;
    browser
        .until("both kinds", |seen| seen.contains(" with 4 of 4.") && seen.contains("upstream_failed"))
        .await;
    browser.click("Today").await;
    browser.sees("Failed by hour and error; most:").await;
    assert_eq!(browser.run("return location.hash", json!([])).await, "#/errors?span=today");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_fleet_is_shown_with_its_configuration() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "config").await;
    browser.sees("This gateway is alone.").await;
    let address = world.gateway.admin.to_string();
    browser
        .until_row(&address, |row| {
            row.contains("this one") && row.contains("ready") && row.contains("generation 1")
        })
        .await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
