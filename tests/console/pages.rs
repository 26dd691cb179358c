//! All pages, at two widths and in both colours: nothing is missing, nothing is said to be inaccessible, and the keyboard
//! reaches everything.

use std::io::Read as _;

use serde_json::json;

use crate::browser::Browser;
use crate::world::World;

/// Pages, each with a text that it must show.
const PAGES: [(&str, &str); 14] = [
    ("overview", "Spend today"),
    ("requests", "ended"),
    ("requests?tab=under", "under way"),
    ("targets", "requests are admitted"),
    ("errors", "By kind"),
    ("usage?split=model", "Cost by day and model; most:"),
    ("cache", "Saved by reads"),
    ("accounts", "engineering"),
    ("limits", "those of which most is used first"),
    ("keys?open=web-app", "Limits in use of its account"),
    ("models", "gemini-2.5-flash"),
    ("config", "Last reload"),
    ("playground", "Run"),
    ("setup", "MODEL_GATEWAY_KEY"),
];
/// Widths of a desk and of a phone.
pub(crate) const DESK: (u32, u32) = (1_440, 960);
pub(crate) const PHONE: (u32, u32) = (390, 844);
/// Widths at which nothing may need a second direction of scrolling (WCAG 1.4.10): the smallest one, and a desk at a zoom
/// of 200 %.
const REFLOW: [(u32, u32); 2] = [(320, 640), (720, 480)];

/// Returns the source of axe-core.
pub(crate) fn axe() -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(&include_bytes!("axe/axe.min.js.gz")[..]).read_to_string(&mut text).unwrap();
    text
}

/// Returns what axe-core finds in the page, one line each.
pub(crate) async fn inaccessible(browser: &Browser, axe: &str) -> Vec<String> {
    browser.run(&format!("{axe}; return 1"), json!([])).await;
    let tags = "['wcag2a','wcag2aa','wcag21aa','wcag22aa','best-practice']";
    let script = format!(
        "const done = arguments[0]; axe.run(document, {{ runOnly: {tags} }}).then((found) => done(found.violations.map((v) => \
         `${{v.impact}} ${{v.id}}: ${{v.nodes.map((n) => n.html).slice(0, 3).join(' | ')}}`)), (error) => done([String(error)]))"
    );
    let found = browser.run_later(&script).await;
    found.as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned()).collect()
}

/// Returns by how much the page is wider than its window: it would scroll in two directions. `None` if it is not.
pub(crate) async fn too_wide(browser: &Browser) -> Option<String> {
    let script = "const page = document.documentElement; const most = page.clientWidth; \
                  const wide = [...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > most + 0.5 \
                    && !one.closest('.scroll, pre, .frames, .hidden, .canvas')).map((one) => one.outerHTML.slice(0, 80)); \
                  return page.scrollWidth > most ? `${page.scrollWidth - most} pixels too wide, ${wide.slice(0, 2).join(' ')}` : null";
    browser.run(script, json!([])).await.as_str().map(str::to_owned)
}

#[tokio::test]
async fn console_pages_are_accessible_at_every_width_and_in_both_colours() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    let load = world.load();
    let axe = axe();
    browser.look(DESK, false).await;
    world.sign_in(&browser, "overview").await;
    let interactive =
        browser.run("return performance.getEntriesByName('interactive')[0].startTime", json!([])).await;
    let size = "return performance.getEntriesByType('resource').filter((one) => one.name.includes('/console/a/')) \
                .reduce((sum, one) => [sum[0] + 1, sum[1] + one.encodedBodySize, sum[2] + one.decodedBodySize], [0, 0, 0])";
    let size = browser.run(size, json!([])).await;
    eprintln!(
        "time to interactive: {interactive} ms; {} files, {} bytes compressed, {} bytes plain",
        size[0], size[1], size[2]
    );
    let compressed = size[1].as_f64().unwrap();
    assert!(compressed > 10_000.0 && compressed < 150_000.0, "{compressed} bytes are loaded");
    // The plots need some points.
    browser.until("latencies", |seen| !seen.contains("Collecting")).await;
    let mut faults = Vec::new();
    let looks = [
        (DESK, false, "light"),
        (DESK, true, "dark"),
        (PHONE, false, "phone"),
        (PHONE, true, "phone in dark colours"),
    ];
    for (size, is_dark, name) in looks {
        browser.look(size, is_dark).await;
        for (page, text) in PAGES {
            browser.open(&world.page(page)).await;
            browser.sees(text).await;
            browser.until("what is loaded", |seen| !seen.contains("Loading")).await;
            faults.extend(too_wide(&browser).await.map(|wide| format!("{page} {name}: {wide}")));
            let page = page.replace("?tab=", "-");
            let page = page.split('?').next().unwrap();
            if !name.contains(' ') {
                browser.store_picture(&format!("{page}-{name}")).await;
            }
            let found = inaccessible(&browser, &axe).await;
            faults.extend(found.iter().map(|line| format!("{page} {name}: {line}")));
        }
    }
    drop(load);
    let outside = "return performance.getEntriesByType('resource').map((one) => one.name).filter((name) => !name.startsWith(location.origin))";
    assert_eq!(browser.run(outside, json!([])).await, json!([]), "a request leaves the machine");
    for size in REFLOW {
        browser.look(size, false).await;
        for (page, text) in PAGES {
            browser.open(&world.page(page)).await;
            browser.sees(text).await;
            faults
                .extend(too_wide(&browser).await.map(|wide| format!("{page} at {} pixels: {wide}", size.0)));
        }
    }
    faults.extend(browser.complaints().await);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn console_is_used_by_keyboard() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look(DESK, false).await;
    world.sign_in(&browser, "overview").await;
    let page = "return location.hash";
    for (keys, expected) in [("gk", "#/keys"), ("gt", "#/targets"), ("gm", "#/models")] {
        browser.press(keys).await;
        crate::support::soon(async {
            while browser.run(page, json!([])).await != expected {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
    }
    browser.sees("gemini-2.5-flash").await;
    // The second row is opened: back to the first one, one further, Enter. Again if the table was drawn anew meanwhile.
    crate::support::soon(async {
        while !browser.text().await.contains("Where a request goes") {
            browser.press("kkkj\u{e007}").await;
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
    })
    .await;
    browser.press("/anthropic").await;
    browser.until("the filter", |seen| !seen.contains("gemini-2.5-flash")).await;
    // Out of the field, and the list of keys.
    browser.press("\u{e00c}?").await;
    browser.sees("Single letters are shortcuts").await;
    browser.press("\u{e00c}").await;
    browser.until("no dialog", |seen| !seen.contains("Single letters")).await;
    // Every stop of the tabulator is visible.
    for _ in 0..40 {
        browser.press("\u{e004}").await;
        let seen = "const e = document.activeElement; const b = e.getBoundingClientRect(); \
                    return e === document.body || (b.width > 0 && b.height > 0) ? '' : e.outerHTML";
        assert_eq!(browser.run(seen, json!([])).await, "");
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
