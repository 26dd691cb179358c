//! What moves: requests under way.

use std::time::Duration;

use serde_json::json;

use crate::browser::Browser;
use crate::world::{WEB, World, chat};

/// Returns the age that the row of a request under way shows, in seconds. `None` without a row.
async fn age(browser: &Browser) -> Option<f64> {
    let cell = "const cell = document.querySelector('tbody th'); return cell ? cell.textContent : ''";
    let text = browser.run(cell, json!([])).await;
    let digits = text.as_str()?.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.split('\u{2009}').next()?.parse().ok()
}

/// Waits until the age is beyond `than` seconds and returns it.
async fn older(browser: &Browser, than: f64) -> f64 {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        match age(browser).await {
            Some(age) if age > than => return age,
            age => assert!(tokio::time::Instant::now() < deadline, "the age stays {age:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn console_request_is_seen_while_it_is_under_way() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "requests?tab=under").await;
    browser.sees("Nothing is under way").await;
    let address = world.gateway.addr;
    let slow = tokio::spawn(async move {
        chat(address, WEB, "gpt-4o", "A secret, told slowly [[words 40]] [[pace 500]]").await
    });
    browser
        .until_row("web-app", |row| {
            ["gpt-4o", "gpt-4o-2024-11-20 at openai", "chat", "stream"].iter().all(|text| row.contains(text))
        })
        .await;
    browser.sees("1 under way").await;
    assert!(!browser.text().await.contains("secret"), "text of a client is shown");
    // Its age grows, stands still while the page is paused, and goes on.
    older(&browser, 1.0).await;
    browser.click("Pause").await;
    browser.sees("paused; the target").await;
    let paused = age(&browser).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(age(&browser).await, paused);
    browser.click("Go on").await;
    older(&browser, paused.unwrap() + 1.0).await;
    // It leaves when it has ended, and is among those.
    assert_eq!(slow.await.unwrap().status(), 200);
    browser.sees("Nothing is under way").await;
    browser.click("Ended").await;
    browser.until_row("web-app", |row| row.contains("200") && row.contains("stream")).await;
    // The address has the list and the filter, so that a link shows the same.
    browser.type_into("Filter", "web").await;
    browser.click("Under way").await;
    assert_eq!(browser.run("return location.hash", json!([])).await, "#/requests?tab=under&q=web");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_forgets_requests_under_way_when_its_stream_of_events_breaks_off() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "requests?tab=under").await;
    browser.sees("Nothing is under way").await;
    let address = world.gateway.addr;
    let slow = tokio::spawn(async move {
        let text = "[[words 400]] [[pace 500]]";
        let body =
            json!({ "model": "gpt-4o", "messages": [{ "role": "user", "content": text }], "stream": true });
        let bearer = format!("Bearer {WEB}");
        let mut client = crate::support::client::Client::connect(address).await;
        let request = crate::support::client::post_with(
            "/v1/chat/completions",
            &[("authorization", bearer.as_str())],
            body.to_string(),
        );
        client.send(request).await;
        client.try_answer().await
    });
    browser.sees("1 under way").await;
    world.gateway.signal(nix::sys::signal::Signal::SIGKILL);
    browser.sees("Not connected").await;
    browser.sees("Nothing is under way").await;
    assert!(slow.await.unwrap().is_none_or(|answer| !answer.text().contains("[DONE]")));
}
