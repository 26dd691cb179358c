//! Accessibility of what the pages show at times only: open dialogs, the way in, empty states, and refused configurations.

use crate::browser::Browser;
use crate::pages::{DESK, PHONE, axe, inaccessible, too_wide};
use crate::support::gateway::Gateway;
use crate::support::setup::Setup;
use crate::world::World;

/// Examines what is open in both colours at the width of a desk, and in dark colours on a phone.
async fn examine(browser: &Browser, axe: &str, what: &str, faults: &mut Vec<String>) {
    for (size, is_dark) in [(DESK, false), (DESK, true), (PHONE, true)] {
        browser.look(size, is_dark).await;
        let look = format!("{what}, {} pixels, dark: {is_dark}", size.0);
        faults.extend(inaccessible(browser, axe).await.iter().map(|line| format!("{look}: {line}")));
        faults.extend(too_wide(browser).await.map(|wide| format!("{look}: {wide}")));
    }
    browser.look(DESK, false).await;
}

#[tokio::test]
async fn console_dialogs_are_accessible() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    let (axe, mut faults) = (axe(), Vec::new());
    browser.look(DESK, false).await;
    browser.open(&world.page("overview")).await;
    browser.click("Sign in").await;
    browser.sees("No token yet?").await;
    examine(&browser, &axe, "sign-in", &mut faults).await;
    browser.press("\u{e00c}").await;
    world.sign_in(&browser, "overview").await;
    for (page, button, text) in [
        ("keys", "New key", "Who or what uses it"),
        ("keys?open=web-app", "Change", "Change web-app"),
        ("keys?open=web-app", "Rotate", "Rotate web-app?"),
        ("accounts", "New account", "First credit"),
        ("accounts?open=product", "Credit", "The balance is"),
        ("accounts?open=product", "Change limits", "They hold for all keys"),
        ("targets", "Drain", "No other target is left for"),
    ] {
        browser.open(&world.page(page)).await;
        browser.click(button).await;
        browser.sees(text).await;
        examine(&browser, &axe, button, &mut faults).await;
        browser.press("\u{e00c}").await;
        browser.until("the dialog has closed", |seen| !seen.contains(text)).await;
    }
    browser.press("?").await;
    browser.sees("Single letters are shortcuts").await;
    examine(&browser, &axe, "the list of shortcuts", &mut faults).await;
    browser.press("\u{e00c}").await;
    // The text of a new key, which is shown once.
    browser.open(&world.page("keys?open=ci")).await;
    browser.click("Rotate").await;
    browser.choose("The old text", "is refused at once").await;
    browser.click("Rotate").await;
    browser.sees("This is the only time").await;
    examine(&browser, &axe, "the text of a key", &mut faults).await;
    faults.extend(browser.complaints().await);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn console_way_in_and_empty_pages_are_accessible_and_teach() {
    let Some(browser) = Browser::start().await else { return };
    let mut setup = Setup::new();
    setup.keys.clear();
    let gateway = Gateway::start(&setup).await;
    let page = |name: &str| format!("http://{}/console/#/{name}", gateway.admin);
    let (axe, mut faults) = (axe(), Vec::new());
    browser.look(DESK, false).await;
    for (name, text) in [
        ("overview", "No request since this page was opened"),
        ("requests", "No request since this page was opened"),
        ("requests?tab=under", "Nothing is under way"),
        ("targets", "No targets"),
        ("errors", "No errors since the start"),
        ("usage", "No usage in this period"),
        ("cache", "Nothing came from a cache"),
        ("accounts", "No accounts yet"),
        ("keys", "No keys yet"),
        ("models", "No models"),
        ("config", "This gateway is alone"),
    ] {
        browser.open(&page(name)).await;
        browser.sees(text).await;
        examine(&browser, &axe, name, &mut faults).await;
    }
    // Seen through a proxy, this machine is none that may look.
    browser.send_header("x-forwarded-for", "192.0.2.7").await;
    browser.open("about:blank").await;
    browser.open(&page("overview")).await;
    browser.sees("No token yet?").await;
    browser.click("No token yet?").await;
    browser.sees("admin create NAME").await;
    examine(&browser, &axe, "the way in", &mut faults).await;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn console_refused_configuration_is_accessible() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    let (axe, mut faults) = (axe(), Vec::new());
    browser.look(DESK, false).await;
    world.sign_in(&browser, "config").await;
    let path = world.gateway.folder().join("routes.toml");
    let good = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, good.replace("context_window = 200000", "context_window = \"large\"")).unwrap();
    browser.sees("changed on disk since it was loaded").await;
    browser.click("Reload").await;
    browser.sees("Refused: 1 fault.").await;
    examine(&browser, &axe, "a refused configuration", &mut faults).await;
    browser.click("Check a text").await;
    browser.type_into("Text", "[[model]]\nid = 7\n").await;
    browser.click("Check").await;
    browser.sees("faults.").await;
    examine(&browser, &axe, "a refused text", &mut faults).await;
    browser.open(&world.page("overview")).await;
    browser.sees("The last reload was refused").await;
    examine(&browser, &axe, "the overview of it", &mut faults).await;
    faults.extend(browser.complaints().await);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
