//! Limits by use, rotation with a grace period, and draining for a time.

use serde_json::json;

use crate::browser::Browser;
use crate::world::{CI, WEB, World};

#[tokio::test]
async fn console_limits_are_listed_by_use() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    assert_eq!(world.chat(CI, "gpt-4o", "Hello").await.status(), 200);
    assert_eq!(world.chat(WEB, "gpt-4o", "Hello").await.status(), 200);
    // Less than was spent: what a limit must leave free for a request is more than the request costs.
    let spend = json!({ "limits": { "spend_per_day": "0.000001" } }).to_string();
    world.admin("PATCH", "/keys/ci", &spend).await;
    assert_eq!(world.chat(CI, "gpt-4o", "Hello").await.status(), 429);
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "limits").await;
    // The one that is used up is the first; those of accounts are there too.
    browser.until_row("ci", |row| row.contains("used up") && row.contains("Spend today (UTC)")).await;
    let first = "return document.querySelector('tbody tr').textContent";
    assert!(browser.run(first, json!([])).await.as_str().unwrap().starts_with("ci"));
    browser.until_row("of 200.00", |row| row.starts_with("product") && row.contains("account")).await;
    browser.click("From 80 %").await;
    browser
        .until("only what is nearly used up", |seen| seen.contains("1 limit\n") && !seen.contains("web-app"))
        .await;
    browser.click("ci").await;
    browser.sees("Limits in use").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_rotated_key_has_its_old_text_for_a_while() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "keys?open=ci").await;
    browser.click("Rotate").await;
    browser.choose("The old text", "stays valid for an hour").await;
    browser.click("Rotate").await;
    browser.sees("This is the only time").await;
    let shown = browser.run("return document.querySelector('.secret pre').textContent", json!([])).await;
    let new = shown.as_str().unwrap().to_owned();
    browser.click("I have stored it").await;
    browser.click("Done").await;
    for key in [CI, new.as_str()] {
        assert_eq!(world.chat(key, "gpt-4o", "Hello").await.status(), 200);
    }
    browser.sees("Earlier texts").await;
    browser.click("End earlier texts").await;
    browser.sees("End the earlier texts of ci?").await;
    browser.click("End earlier texts").await;
    browser.sees("Earlier texts of ci are refused.").await;
    assert_eq!(world.chat(CI, "gpt-4o", "Hello").await.status(), 401);
    assert_eq!(world.chat(&new, "gpt-4o", "Hello").await.status(), 200);
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_target_is_drained_for_a_time_with_a_reason() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "targets").await;
    browser.click_in_row("at openai-eu", "Drain").await;
    browser.type_into("Reason", "upgrade of the provider").await;
    browser.choose("It stays drained", "for 8 hours").await;
    browser.click("Drain").await;
    browser.sees("gets no further requests").await;
    browser
        .until_row("at openai-eu", |row| {
            row.contains("upgrade of the provider") && row.contains("resumed by itself in 7\u{2009}h")
        })
        .await;
    browser.click_in_row("at openai-eu", "Resume").await;
    browser.until_row("at openai-eu", |row| !row.contains("upgrade of the provider")).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
