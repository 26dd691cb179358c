//! What operators look for in a list, and what they do there.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::world::{CI, WEB, World, key};

#[tokio::test]
async fn console_account_without_limits_gets_some() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "accounts?open=engineering").await;
    browser.click("Set limits").await;
    browser.sees("They hold for all keys of the account together.").await;
    browser.type_into("Spend per month (UTC)", "50").await;
    browser.click_submit("Save").await;
    browser.sees("The limits of engineering are changed.").await;
    browser.until_row("engineering", |row| row.contains("50.00 a month")).await;
    let account = world.admin("GET", "/accounts/engineering", "").await.json();
    assert_eq!(account["limits"]["spend_per_month"], "50");
    browser.sees("Change limits").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_last_target_is_drained_only_after_it_is_said_that_none_is_left() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "targets").await;
    // Of the two targets of a model, the other one goes on.
    browser.click_in_row("at openai-eu", "Drain").await;
    browser.sees("New requests for gpt-4o go to other targets.").await;
    assert!(!browser.text().await.contains("No other target is left"));
    browser.click("Drain").await;
    browser.until_row("at openai-eu", |row| row.contains("drained")).await;
    // Now the other one is the last.
    browser.click_in_row("at openai", "Drain").await;
    browser.sees("Drain the last target?").await;
    browser.sees("No other target is left for gpt-4o.").await;
    browser.sees("are refused until a target is resumed").await;
    browser.click("Drain, and refuse requests").await;
    browser.sees("2 are not fully in use").await;
    let refused = world.chat(WEB, "gpt-4o", "Hello").await;
    assert_eq!(refused.status(), 503, "{}", refused.text());
    assert!(refused.text().contains("out of service") && refused.get("retry-after").is_some());
    assert_eq!(world.chat(WEB, "claude-sonnet-4-6", "Hello").await.status(), 200);
}

#[tokio::test]
async fn console_row_opens_wherever_it_is_clicked() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "keys").await;
    browser.sees("web-app").await;
    let click = |cell: &'static str| {
        let script = format!("{cell}.click(); return location.hash");
        let browser = &browser;
        async move { browser.run(&script, json!([])).await }
    };
    let row = "[...document.querySelectorAll('tbody tr')].find((row) => row.textContent.startsWith('ci'))";
    let cursor = format!("return getComputedStyle({row}).cursor");
    assert_eq!(browser.run(&cursor, json!([])).await, "pointer");
    click(
        "[...document.querySelectorAll('tbody tr')].find((row) => row.textContent.startsWith('ci')).cells[4]",
    )
    .await;
    browser.sees("Hash begins with").await;
    // The address has what is open, so that a link shows it.
    assert_eq!(browser.run("return location.hash", json!([])).await, "#/keys?open=ci");
    click(
        "[...document.querySelectorAll('tbody tr')].find((row) => row.textContent.startsWith('ci')).cells[0]",
    )
    .await;
    browser.until("the row is closed", |seen| !seen.contains("Hash begins with")).await;
    // A row without details does not look as if it had some.
    browser.open(&world.page("targets")).await;
    browser.sees("requests are admitted").await;
    let cursor = "return getComputedStyle(document.querySelector('tbody tr')).cursor";
    assert_eq!(browser.run(cursor, json!([])).await, "auto");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_address_has_filters_and_tabs() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "targets").await;
    let hash = || browser.run("return location.hash", json!([]));
    for (page, filter, gone) in [
        ("targets", "anthropic", "openai-eu"),
        ("accounts", "eng", "product"),
        ("keys", "old", "web-app"),
        ("models", "gemini", "claude-sonnet-4-6"),
    ] {
        browser.open(&world.page(page)).await;
        browser.sees(gone).await;
        browser.type_into("Filter", filter).await;
        browser.until("the filter", |seen| !seen.contains(gone)).await;
        assert_eq!(hash().await, format!("#/{page}?q={filter}"));
        // The same address shows the same; without the filter, it shows all.
        browser.open("about:blank").await;
        browser.open(&world.page(&format!("{page}?q={filter}"))).await;
        browser.until("the filter", |seen| seen.contains(filter) && !seen.contains(gone)).await;
        browser.open(&world.page(page)).await;
        browser.sees(gone).await;
    }
    browser.open(&world.page("config")).await;
    browser.click("History").await;
    browser.click("All").await;
    assert_eq!(hash().await, "#/config?tab=history&topic=all");
    browser.click("In effect").await;
    browser.type_into("Lines with", "context_window").await;
    let address = hash().await;
    assert!(address.as_str().unwrap().starts_with("#/config?tab=effective"), "{address}");
    browser.open("about:blank").await;
    browser.open(&world.page("config?tab=effective&q=context_window")).await;
    browser.sees("context_window = 128000").await;
    assert!(!browser.text().await.contains("sqlite"));
}

#[tokio::test]
async fn console_history_shows_changes_and_on_request_sign_ins() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "config?tab=history").await;
    browser.sees("History").await;
    world.admin("PATCH", "/keys/ci", &json!({ "models": ["gpt-4o"] }).to_string()).await;
    // The list is loaded anew from time to time.
    browser.sees("key.update").await;
    assert!(!browser.text().await.contains("session.begin"));
    browser.click("Sign-ins").await;
    browser.sees("session.begin").await;
    assert!(!browser.text().await.contains("key.update"));
    browser.click("All").await;
    browser.until("both", |seen| seen.contains("session.begin") && seen.contains("key.update")).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_removes_expired_keys_of_the_playground() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start_with(|setup| {
        for name in ["playground-m1abcd2e", "robot-of-last-year"] {
            setup.keys += &key(name, name, "expires = 2024-01-01T00:00:00Z");
        }
    })
    .await;
    browser.look((1_440, 960), false).await;
    // One who may not change anything sees it, and it stays.
    browser.open(&world.page("keys")).await;
    browser.sees("playground-m1abcd2e").await;
    world.sign_in(&browser, "keys").await;
    browser.until("no expired key of the playground", |seen| !seen.contains("playground-")).await;
    browser.sees("robot-of-last-year").await;
    browser.sees("expired").await;
    let keys = world.admin("GET", "/keys", "").await.json();
    assert_eq!(keys["items"].as_array().unwrap().len(), 4);
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_overview_is_not_well_while_requests_fail() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "overview").await;
    browser.sees("All is well.").await;
    // One fault of a client is no trouble.
    assert!(world.chat(CI, "claude-sonnet-4-6", "Hello").await.status() >= 400);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    browser.sees("All is well.").await;
    for _ in 0..4 {
        assert!(world.chat(CI, "claude-sonnet-4-6", "Hello").await.status() >= 400);
    }
    browser.sees("of the requests of the last minute were refused because of the client.").await;
    assert!(!browser.text().await.contains("All is well."));
    for _ in 0..4 {
        assert!(world.chat(WEB, "gemini-2.5-flash", "Please fail [[status 500]]").await.status() >= 500);
    }
    browser.sees("have failed at a provider or the gateway.").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_lists_are_sorted_by_what_they_are_read_for() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    for key in [CI, WEB, WEB, WEB] {
        assert_eq!(world.chat(key, "gpt-4o", "Hello").await.status(), 200);
    }
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "usage").await;
    browser.sees("Cost by day; most:").await;
    browser.click("Key").await;
    browser.sees("Cost by key; most:").await;
    let sorted = "return document.querySelector('th[aria-sort]').textContent + document.querySelector('tbody tr').textContent";
    let found = browser.run(sorted, json!([])).await;
    assert!(found.as_str().unwrap().starts_with("Cost ↓web-app"), "{found}");
    // What a key has spent, today and in this month, in the same unit.
    browser.open(&world.page("keys")).await;
    browser.sees("Spent this month").await;
    browser.until_row("ci", |row| row.matches("0.00").count() >= 2).await;
    // A target that was never used has no mean.
    browser.open(&world.page("targets")).await;
    browser.until_row("at google", |row| row.ends_with("–––Drain") || row.contains("0–")).await;
    let targets = world.admin("GET", "/targets", "").await.json();
    let latency = |provider: &str| {
        let items = targets["items"].as_array().unwrap();
        items.iter().find(|target| target["provider"] == provider).unwrap()["latency_us"].clone()
    };
    assert_eq!(latency("google"), Value::Null);
    assert!(latency("openai").as_u64().unwrap_or(0) + latency("openai-eu").as_u64().unwrap_or(0) > 0);
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_amounts_have_the_currency_that_is_configured() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start_with(|setup| setup.limits += "\n[admin]\ncurrency = \"EUR\"\n").await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "overview").await;
    browser.sees("Spend today, EUR").await;
    browser.open(&world.page("accounts?open=engineering")).await;
    browser.sees("Balance, EUR").await;
    browser.sees("40.00 EUR").await;
    browser.click("Credit").await;
    browser.type_into("Amount", "2").await;
    browser.sees("will be 42.00 EUR").await;
    browser.press("\u{e00c}").await;
    browser.open(&world.page("keys?open=web-app")).await;
    browser.sees("5.00 EUR a day").await;
    browser.open(&world.page("models?open=gpt-4o")).await;
    browser.sees("10.00 EUR per million").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_model_shows_what_is_known_of_each_target() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start_with(|setup| {
        setup.routes += "[[model]]\nid = \"priced-by-list\"\ntargets = [{ provider = \"openai\", model = \"gpt-5.2\" }, \
                         { provider = \"anthropic\", model = \"claude-opus-99\" }]\n\n";
    })
    .await;
    browser.look(crate::pages::DESK, false).await;
    world.sign_in(&browser, "models?open=priced-by-list").await;
    for text in [
        "What is known of gpt-5.2 at openai",
        "the name is listed",
        "Most output",
        "Structured",
        "flex × 0.5",
        "the catalogue",
        "Source of the price",
        "listed by public catalogues",
        "What is known of claude-opus-99 at anthropic",
        "a guess by the name: no price, limit or end",
        "Edition of the catalogue",
    ] {
        browser.sees(text).await;
    }
    assert_eq!(crate::pages::inaccessible(&browser, &crate::pages::axe()).await, Vec::<String>::new());
    assert_eq!(crate::pages::too_wide(&browser).await, None);
    browser.look(crate::pages::PHONE, false).await;
    assert_eq!(crate::pages::too_wide(&browser).await, None);
    browser.look(crate::pages::DESK, false).await;
    browser.open(&world.page("models?open=gpt-4o")).await;
    browser.sees("the model's own table").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
