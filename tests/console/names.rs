//! Long names, such as the address of an inference profile: they are broken, and everything else stays in view.

use std::fmt::Write as _;

use serde_json::json;

use crate::browser::Browser;
use crate::pages::{DESK, PHONE, too_wide};
use crate::world::{CI, World, key};

/// Name of a model as Bedrock has it.
const ARN: &str = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/production-eu-search-and-recommendations-a1b2c3d4e5f6";
/// Name of a key and of an account.
const LONG: &str = "service-of-the-department-for-search-and-recommendations-in-production-eu-central-1";

#[tokio::test]
async fn console_pages_hold_long_names() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start_with(|setup| {
        let target = format!("{{ provider = \"anthropic\", model = \"{ARN}\" }}");
        let _ = write!(
            setup.routes,
            "[[model]]\nid = \"{ARN}\"\ntargets = [{target}]\nprice = {{ input = 1, output = 2 }}\n\n"
        );
        setup.keys += &key(LONG, LONG, &format!("account = \"{LONG}\"\nmodels = [\"{ARN}\"]"));
        setup.keys +=
            &format!("[[account]]\nname = \"{LONG}\"\nlimits = {{ spend_per_day = 5, concurrent = 3 }}\n\n");
        setup.accounts.push((LONG, "40"));
    })
    .await;
    assert_eq!(world.chat(LONG, ARN, "Hello").await.status(), 200);
    assert_eq!(world.chat(CI, "gpt-4o", "Hello").await.status(), 200);
    browser.look(DESK, false).await;
    world.sign_in(&browser, "requests").await;
    assert_eq!(world.chat(LONG, ARN, "Hello").await.status(), 200);
    let mut faults = Vec::new();
    for (size, name) in [(DESK, "desk"), (PHONE, "phone")] {
        browser.look(size, false).await;
        for (page, text) in [
            ("targets", ARN),
            ("overview", ARN),
            ("requests?tab=stored", ARN),
            ("usage?group=model", ARN),
            ("usage?group=key", LONG),
            ("cache?group=key", LONG),
            (&format!("accounts?open={LONG}"), "Limits in use"),
            ("limits", LONG),
            (&format!("keys?open={LONG}"), "Limits in use of its account"),
            (&format!("models?open={ARN}"), "Where a request goes"),
            ("playground", "Run"),
            ("setup", "MODEL_GATEWAY_KEY"),
        ] {
            browser.open("about:blank").await;
            browser.open(&world.page(page)).await;
            browser.sees(text).await;
            browser.until("what is loaded", |seen| !seen.contains("Loading")).await;
            faults.extend(too_wide(&browser).await.map(|wide| format!("{page} {name}: {wide}")));
            // The last column of a table must be seen without scrolling.
            let scrolled = "return [...document.querySelectorAll('main .scroll')].filter((one) => one.scrollWidth > one.clientWidth + 1) \
                            .map((one) => `${one.querySelector('caption')?.textContent}: ${one.scrollWidth - one.clientWidth}`).join(' | ')";
            let scrolled = browser.run(scrolled, json!([])).await;
            if scrolled != "" {
                faults.push(format!("{page} {name}: a table is wider than the page by {scrolled}"));
            }
        }
    }
    // Dialogs have them too.
    for (page, button) in [
        ("targets", "Drain"),
        (&*format!("keys?open={LONG}"), "Rotate"),
        (&format!("accounts?open={LONG}"), "Credit"),
    ] {
        browser.open("about:blank").await;
        browser.open(&world.page(page)).await;
        if page == "targets" {
            browser.click_in_row(ARN, button).await;
            browser.sees("No other target is left for").await;
        } else {
            browser.click(button).await;
        }
        let wide =
            "const dialog = document.querySelector('dialog'); return dialog.scrollWidth - dialog.clientWidth";
        let wide = browser.run(wide, json!([])).await;
        if wide.as_i64().unwrap() > 1 {
            faults.push(format!("{page}: the dialog is too narrow for its content by {wide}"));
        }
        browser.press("\u{e00c}").await;
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
