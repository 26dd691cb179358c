//! Tasks of an operator without a pointer.

use serde_json::json;

use crate::browser::Browser;
use crate::world::World;

const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";

/// Returns the text of what has the focus, and whether a ring around it is visible.
async fn focused(browser: &Browser) -> (String, bool) {
    let script = "const e = document.activeElement; const text = (e.labels?.[0] || e).textContent.trim(); \
                  const shown = e.matches('.choice input') ? e.nextElementSibling : e; const style = getComputedStyle(shown); \
                  return [text, e.tagName === 'H1' || style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2]";
    let found = browser.run(script, json!([])).await;
    (found[0].as_str().unwrap_or_default().to_owned(), found[1] == true)
}

/// Presses the tabulator until the focus is on what has a text. Each stop on the way has a visible ring.
async fn tab_to(browser: &Browser, text: &str) {
    for _ in 0..80 {
        browser.press(TAB).await;
        let (found, has_ring) = focused(browser).await;
        let is_page = browser.run("return document.activeElement !== document.body", json!([])).await == true;
        assert!(has_ring || !is_page, "no ring around {found:?}");
        if found == text {
            return;
        }
    }
    panic!("the tabulator does not reach {text:?}");
}

#[tokio::test]
async fn console_tasks_are_done_by_keyboard_alone() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "overview").await;
    // A key is made.
    browser.press("gk").await;
    browser.sees("web-app").await;
    browser.press("n").await;
    browser.sees("Who or what uses it").await;
    assert_eq!(focused(&browser).await.0, "Name");
    browser.press("robot").await;
    tab_to(&browser, "Spend per day (UTC)").await;
    browser.press("2.5").await;
    browser.press(ENTER).await;
    browser.sees("This is the only time").await;
    tab_to(&browser, "I have stored it").await;
    browser.press(" ").await;
    tab_to(&browser, "Done").await;
    browser.press(ENTER).await;
    browser.until("the dialog has closed", |seen| !seen.contains("This is the only time")).await;
    // It is found, opened and disabled.
    browser.press("/robot").await;
    browser.sees("1 key\n").await;
    browser.press(ESCAPE).await;
    let has_details = "return document.querySelector('[data-row]').getAttribute('aria-expanded')";
    browser.press("j").await;
    if browser.run(has_details, json!([])).await != "true" {
        browser.press(ENTER).await;
    }
    browser.sees("2.50 a day").await;
    tab_to(&browser, "Disable").await;
    browser.press(ENTER).await;
    browser.sees("Disable robot?").await;
    // What changes nothing has the focus first.
    assert_eq!(focused(&browser).await.0, "Cancel");
    tab_to(&browser, "Disable").await;
    browser.press(ENTER).await;
    browser.sees("robot is disabled.").await;
    // A target is drained; a question that is left with Escape changes nothing.
    browser.press("gt").await;
    browser.sees("requests are admitted").await;
    tab_to(&browser, "Drain").await;
    browser.press(ENTER).await;
    browser.sees("Drain the last target?").await;
    browser.press(ESCAPE).await;
    browser.until("the dialog has closed", |seen| !seen.contains("Drain the last target?")).await;
    assert_eq!(focused(&browser).await.0, "Drain", "the focus is not back where it was");
    browser.press(ENTER).await;
    browser.sees("Drain the last target?").await;
    tab_to(&browser, "Drain, and refuse requests").await;
    browser.press(ENTER).await;
    browser.sees("gets no further requests").await;
    browser.until("the dialog has closed", |seen| !seen.contains("Drain the last target?")).await;
    // An account is credited.
    browser.press("ga").await;
    browser.sees("engineering").await;
    browser.press(&format!("j{ENTER}")).await;
    tab_to(&browser, "Credit").await;
    browser.press(ENTER).await;
    browser.sees("The balance is").await;
    browser.press("12.5").await;
    browser.press(ENTER).await;
    browser.sees("The balance of engineering is 52.50.").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
