//! Several operators at a time: a change that one has not seen is never overwritten.

use std::time::Duration;

use serde_json::json;

use crate::browser::Browser;
use crate::world::World;

/// Returns an entry as the API shows it.
async fn entry(world: &World, path: &str) -> serde_json::Value {
    world.admin("GET", path, "").await.json()
}

/// Waits until the fields of the open form, with bars in between, have all of these texts.
async fn fields_show(browser: &Browser, texts: &[&str]) {
    let values =
        "return [...document.querySelectorAll('dialog input')].map((input) => input.value).join('|')";
    crate::support::soon(async {
        loop {
            let shown = browser.run(values, json!([])).await;
            let shown = shown.as_str().unwrap_or_default().to_owned();
            if texts.iter().all(|text| shown.contains(text)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn console_form_does_not_overwrite_what_another_operator_has_changed() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "keys?open=ci").await;
    browser.click("Change").await;
    browser.sees("Change ci").await;
    let other = json!({ "models": ["gpt-4o"], "limits": { "requests_per_minute": 30 } }).to_string();
    world.admin("PATCH", "/keys/ci", &other).await;
    browser.type_into("Spend per day (UTC)", "9").await;
    browser.click_submit("Save").await;
    browser.sees("Changed meanwhile.").await;
    browser.sees("another operator has changed models, limits").await;
    assert_eq!(entry(&world, "/keys/ci").await["limits"]["spend_per_day"], serde_json::Value::Null);
    // What the other one has written is shown, and the change is made on top of it.
    browser.click("Reload").await;
    fields_show(&browser, &["gpt-4o|", "|30|"]).await;
    browser.type_into("Spend per day (UTC)", "9").await;
    // A change of another entry of the same file disturbs no other change.
    world.admin("PATCH", "/keys/web-app", &json!({ "models": ["gpt-*"] }).to_string()).await;
    browser.click_submit("Save").await;
    browser.sees("ci is changed.").await;
    let now = entry(&world, "/keys/ci").await;
    assert_eq!(now["limits"]["spend_per_day"], "9");
    assert_eq!((&now["limits"]["requests_per_minute"], &now["models"]), (&json!(30), &json!(["gpt-4o"])));
}

#[tokio::test]
async fn console_question_is_asked_again_if_the_entry_has_changed_meanwhile() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "keys?open=ci").await;
    browser.click("Delete").await;
    browser.sees("Delete ci?").await;
    world.admin("PATCH", "/keys/ci", &json!({ "account": "product" }).to_string()).await;
    browser.click("Delete").await;
    browser.sees("another operator has changed account").await;
    browser.click("Cancel").await;
    // The page shows what is there now; the question is about that.
    browser.until_row("ci", |row| row.contains("product")).await;
    browser.click("Delete").await;
    browser.click("Delete").await;
    browser.sees("ci is deleted.").await;
    browser.until("no such key", |seen| !seen.contains("engineering")).await;
    // Limits of an account are guarded in the same way.
    browser.open(&world.page("accounts?open=product")).await;
    browser.click("Change limits").await;
    browser.sees("Limits of product").await;
    world.admin("PATCH", "/accounts/product", &json!({ "limits": { "concurrent": 8 } }).to_string()).await;
    browser.type_into("Spend per month (UTC)", "300").await;
    browser.click_submit("Save").await;
    browser.sees("another operator has changed limits").await;
    browser.click("Reload").await;
    fields_show(&browser, &["|8"]).await;
    browser.type_into("Spend per month (UTC)", "300").await;
    browser.click_submit("Save").await;
    browser.sees("The limits of product are changed.").await;
    let limits = entry(&world, "/accounts/product").await["limits"].clone();
    assert_eq!((&limits["concurrent"], &limits["spend_per_month"]), (&json!(8), &json!("300")));
}
