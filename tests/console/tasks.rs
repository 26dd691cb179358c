//! Tasks of an operator, clicked through.

use std::time::Duration;

use serde_json::json;

use crate::browser::Browser;
use crate::support::gateway::Gateway;
use crate::support::setup::{KEY, Setup};
use crate::world::{CI, TOKEN, WEB, World};

#[tokio::test]
async fn console_key_is_made_used_seen_charged_and_disabled() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "keys").await;
    browser.click("New key").await;
    browser.type_into("Name", "robot").await;
    browser.choose("Account that pays", "engineering").await;
    browser.type_into("Spend per day (UTC)", "2.50").await;
    browser.store_picture("key-new").await;
    browser.click("Make the key").await;
    browser.sees("This is the only time").await;
    let shown = browser.run("return document.querySelector('.secret pre').textContent", json!([])).await;
    let key = shown.as_str().unwrap().to_owned();
    assert!(key.starts_with("mgw_"), "{key}");
    browser.click("I have stored it").await;
    browser.click("Done").await;
    browser.until("the key, and no text of it", |seen| seen.contains("robot") && !seen.contains(&key)).await;
    // It is used, and the request shows live, with its cost.
    browser.open(&world.page("requests")).await;
    browser.sees("Live").await;
    let answer = world.chat(&key, "gpt-4o", "Hello, what does this cost?").await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    browser.until("the request", |seen| seen.contains("robot") && seen.contains("1 ended")).await;
    browser.click_row("robot").await;
    browser.sees("tokens per second").await;
    browser.sees("engineering").await;
    assert!(!browser.text().await.contains("what does this cost"), "text of a client is shown");
    browser.open(&world.page("usage?group=key")).await;
    browser.until_row("robot", |row| row.contains("0.0")).await;
    // It is disabled, and the refusal shows.
    browser.open(&world.page("keys?open=robot")).await;
    browser.click("Disable").await;
    browser.sees("Disable robot?").await;
    browser.click("Disable").await;
    browser.sees("robot is disabled.").await;
    browser.open(&world.page("requests")).await;
    browser.sees("Live").await;
    assert_eq!(world.chat(&key, "gpt-4o", "Hello again").await.status(), 401);
    browser.sees("401").await;
    browser.click_row("robot").await;
    browser.sees("disabled_key").await;
    // All of it is in the history, without the text of the key.
    browser.open(&world.page("config")).await;
    browser.click("History").await;
    browser.sees("key.create").await;
    browser.sees("key.update").await;
    assert!(!browser.text().await.contains(&key));
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_target_is_drained_under_load_and_resumed() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    let _load = world.load();
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "targets").await;
    browser.sees("openai-eu").await;
    browser.click_in_row("at openai-eu", "Drain").await;
    browser.sees("Drain this target?").await;
    browser.click("Drain").await;
    browser.sees("gets no further requests").await;
    browser.sees("an operator has drained the target").await;
    // Requests in progress end; then the other target has them all.
    browser.until_row("at openai-eu", |row| row.contains("drained")).await;
    let eu = [("provider", "openai-eu"), ("status", "200")];
    let us = [("provider", "openai"), ("status", "200")];
    world
        .gateway
        .wait_for_metric("gateway_target_requests_in_flight", &[("provider", "openai-eu")], 0.0)
        .await;
    let before = world.gateway.metrics().await;
    crate::support::soon(async {
        while world.gateway.metrics().await.sum("gateway_requests_total", &us)
            < before.sum("gateway_requests_total", &us) + 10.0
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let after = world.gateway.metrics().await;
    assert_eq!(
        after.sum("gateway_requests_total", &eu),
        before.sum("gateway_requests_total", &eu),
        "a drained target got requests"
    );
    browser.open(&world.page("overview")).await;
    browser.sees("an operator has drained the target").await;
    browser.open(&world.page("targets")).await;
    browser.click_in_row("at openai-eu", "Resume").await;
    browser.sees("gets requests again").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_account_is_credited() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "accounts?open=engineering").await;
    browser.sees("40.00").await;
    browser.click("Credit").await;
    browser.type_into("Amount", "12.5").await;
    browser.type_into("Note", "Invoice of November").await;
    browser.type_into("Reference", "inv-2026-11").await;
    browser.sees("will be 52.50").await;
    browser.click("Credit 12.50").await;
    browser.sees("The balance of engineering is 52.50.").await;
    browser.sees("Invoice of November").await;
    // The same invoice again changes nothing.
    browser.click("Credit").await;
    browser.type_into("Amount", "12.5").await;
    browser.type_into("Note", "Invoice of November").await;
    browser.type_into("Reference", "inv-2026-11").await;
    browser.click("Credit 12.50").await;
    browser.sees("nothing has changed").await;
    assert!(!browser.text().await.contains("65.00"));
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_configuration_is_broken_and_mended() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "config").await;
    browser.sees("in effect").await;
    let path = world.gateway.folder().join("routes.toml");
    let good = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, good.replace("context_window = 200000", "context_window = \"large\"")).unwrap();
    browser.sees("changed on disk since it was loaded").await;
    browser.sees("A reload would be refused.").await;
    browser.click("Reload").await;
    browser.sees("Refused: 1 fault.").await;
    browser.sees("context_window").await;
    browser.store_picture("config-refused").await;
    // What was in effect still serves.
    assert_eq!(world.chat(CI, "gpt-4o", "Hello").await.status(), 200);
    browser.open(&world.page("overview")).await;
    browser.sees("The last reload was refused: 1 fault.").await;
    std::fs::write(&path, good.replace("context_window = 200000", "context_window = 100000")).unwrap();
    browser.open(&world.page("config")).await;
    browser.sees("changed on disk since it was loaded").await;
    browser.sees("to take.").await;
    browser.sees("context_window").await;
    browser.click("Reload").await;
    browser.sees("Configuration 2 is in effect").await;
    // A text is checked before it is written anywhere.
    browser.click("Check a text").await;
    browser.type_into("Text", "[[model]]\nid = \"x\"\n").await;
    browser.click("Check").await;
    browser.sees("targets").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_without_a_token_reads_and_says_how_to_get_one() {
    let Some(browser) = Browser::start().await else { return };
    let gateway = Gateway::start(&Setup::new()).await;
    browser.open(&format!("http://{}/console/#/keys", gateway.admin)).await;
    browser.sees("You can look at everything and change nothing.").await;
    browser.sees("model-gateway admin create").await;
    browser.sees("alice").await;
    let disabled =
        browser.run("return document.querySelector('main .button.primary').disabled", json!([])).await;
    assert_eq!(disabled, true);
    assert!(!browser.text().await.contains(KEY));
    browser.click("Sign in").await;
    browser.type_into("Token", "mga_wrong").await;
    browser.click_submit("Sign in").await;
    browser.sees("the token is not valid").await;
}

/// Calls the API as another tab of the same browser does: with the cookie, and with the session's CSRF value.
const OTHER_TAB: &str = "const done = arguments[arguments.length - 1]; const at = '../admin/v1/session'; \
    fetch(at).then((answer) => answer.json()).then(({ csrf }) => fetch(at, { method: METHOD, body: BODY, \
    headers: { 'content-type': 'application/json', 'x-csrf-token': csrf } })).then((answer) => done(answer.status))";

#[tokio::test]
async fn console_session_leaves_no_token_in_the_page_and_is_shared_by_tabs() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    world.sign_in(&browser, "targets").await;
    let left = "return JSON.stringify(sessionStorage) + JSON.stringify(localStorage) + document.cookie";
    let left = browser.run(left, json!([])).await;
    assert!(
        !left.as_str().unwrap().contains(TOKEN) && !left.as_str().unwrap().contains("mgw_session"),
        "{left}"
    );
    // A tab that is opened later is signed in too.
    browser.open("about:blank").await;
    browser.open(&world.page("targets")).await;
    browser.sees("anna may do all").await;
    // Another tab signs in anew: the session of this one has ended, and it goes on with the new one.
    let body = json!({ "token": TOKEN }).to_string();
    let sign_in = OTHER_TAB.replace("METHOD", "'POST'").replace("BODY", &format!("'{body}'"));
    assert_eq!(browser.run_later(&sign_in).await, 200);
    browser.click_in_row("at openai-eu", "Drain").await;
    browser.click("Drain").await;
    browser.sees("gets no further requests").await;
    // Another tab signs out: the next change is refused, and the page says who may do what.
    let sign_out = OTHER_TAB.replace("METHOD", "'DELETE'").replace("BODY", "undefined");
    assert_eq!(browser.run_later(&sign_out).await, 200);
    browser.click_in_row("at openai-eu", "Resume").await;
    browser.sees("You can look at everything and change nothing.").await;
}

#[tokio::test]
async fn console_shows_the_use_of_limits_and_usage_by_two_dimensions() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    for (key, model) in [(WEB, "gpt-4o"), (WEB, "claude-sonnet-4-6"), (CI, "gpt-4o")] {
        assert_eq!(world.chat(key, model, "Hello").await.status(), 200);
    }
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "keys?open=web-app").await;
    browser.sees("Limits in use").await;
    for text in [
        "Requests per minute",
        "Spend today (UTC)",
        " of 5.00",
        "Limits in use of its account product",
        " of 200.00",
    ] {
        browser.sees(text).await;
    }
    browser.open(&world.page("usage?group=day&split=model&metric=requests")).await;
    browser.sees("Requests by day and model; most:").await;
    browser.until_row("claude-sonnet-4-6", |row| row.contains("claude-sonnet-4-6")).await;
    browser.open(&world.page("usage?group=hour&split=key&period=today")).await;
    browser.sees("Cost by hour and key; most:").await;
    browser.until_row("ci", |row| row.contains('h')).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_can_be_switched_off() {
    let mut setup = Setup::new();
    setup.limits += "\n[admin]\nconsole = false\n";
    let gateway = Gateway::start(&setup).await;
    assert_eq!(gateway.admin_status("/console/").await, Some(404));
    assert_eq!(gateway.admin_status("/readyz").await, Some(200));
}
