//! A gateway that ends and starts again behind an open page: nothing that was typed is lost.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::browser::Browser;
use crate::world::{TOKEN, World};

#[tokio::test]
async fn console_form_survives_a_restart_and_is_saved_after_a_new_sign_in() {
    let Some(browser) = Browser::start().await else { return };
    let mut world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "keys?open=ci").await;
    browser.click("Change").await;
    browser.sees("Change ci").await;
    browser.type_into("Spend per day (UTC)", "7.25").await;
    world.gateway.restart().await;
    // The page notices that its session has ended, also before something is saved.
    browser.sees("Your session has ended").await;
    browser.sees("what you have typed is still there").await;
    browser.type_into("Token", TOKEN).await;
    browser.click_submit("Sign in").await;
    browser.until("the form alone", |seen| !seen.contains("Your session has ended")).await;
    browser.click_submit("Save").await;
    browser.sees("ci is changed.").await;
    let key = world.admin("GET", "/keys/ci", "").await.json();
    assert_eq!(key["limits"]["spend_per_day"], "7.25");
}

#[tokio::test]
async fn console_without_a_session_goes_on_without_the_form_if_it_is_dropped() {
    let Some(browser) = Browser::start().await else { return };
    let mut world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "accounts?open=product").await;
    browser.click("Credit").await;
    browser.type_into("Amount", "12.5").await;
    world.gateway.restart().await;
    browser.sees("Your session has ended").await;
    browser.click("Drop it and go on without").await;
    browser.sees("You can look at everything and change nothing.").await;
    // Without anything typed, nothing is asked.
    world.sign_in(&browser, "keys").await;
    browser.sees("web-app").await;
    world.gateway.restart().await;
    browser.sees("You can look at everything and change nothing.").await;
    assert!(!browser.text().await.contains("Your session has ended"));
}

#[tokio::test]
async fn console_says_in_words_that_the_gateway_is_gone() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "overview").await;
    browser.sees("All is well.").await;
    world.gateway.signal(Signal::SIGKILL);
    browser.sees("Not connected").await;
    browser.sees("The gateway cannot be reached.").await;
    let seen = browser.text().await;
    assert!(!seen.contains("Failed to fetch") && !seen.contains("network error"), "{seen}");
    // A change that is tried meanwhile keeps its form.
    browser.open(&world.page("keys")).await;
    browser.click("New key").await;
    browser.type_into("Name", "robot").await;
    browser.click("Make the key").await;
    browser.sees("The gateway cannot be reached.").await;
    let name = browser.run("return document.querySelector('dialog input').value", json!([])).await;
    assert_eq!(name, "robot");
}
