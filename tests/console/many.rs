//! Large configurations: the page loads what is looked at, and the gateway searches.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::browser::Browser;
use crate::world::{World, key};

/// Keys beside the three of the world.
const KEYS: usize = 10_000;
/// Bytes that the page of keys may load before anything is searched.
const MOST_BYTES: f64 = 400_000.0;

#[tokio::test]
async fn console_with_ten_thousand_keys_loads_the_first_and_finds_any() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start_with(|setup| {
        for number in 0..KEYS {
            let name = format!("service-{number:05}");
            let _ = write!(setup.keys, "{}", key(&name, &name, "limits = { requests_per_minute = 100 }"));
        }
    })
    .await;
    browser.look((1_440, 960), false).await;
    world.sign_in(&browser, "overview").await;
    let begin = Instant::now();
    browser.open(&world.page("keys")).await;
    browser.sees("10\u{2009}003 keys").await;
    eprintln!("keys shown after {} ms, of {} keys", begin.elapsed().as_millis(), KEYS + 3);
    let rows = "return document.querySelectorAll('tbody tr').length";
    assert_eq!(browser.run(rows, json!([])).await, 200);
    let loaded = "return performance.getEntriesByType('resource').filter((one) => /v1\\/keys/.test(one.name)) \
                  .reduce((sum, one) => sum + one.decodedBodySize, 0)";
    let bytes = browser.run(loaded, json!([])).await.as_f64().unwrap();
    eprintln!("bytes of keys: {bytes}");
    assert!(bytes > 0.0 && bytes < MOST_BYTES, "{bytes} bytes were loaded");
    // One that is not loaded is found, by a part of its name and by its state.
    browser.type_into("Filter", "07777 usable").await;
    browser.sees("1 key\n").await;
    browser.click_row("service-07777").await;
    browser.sees("Limits in use").await;
    browser.type_into("Filter", "disabled").await;
    browser.sees("old-script").await;
    browser.type_into("Filter", "service-099").await;
    browser.sees("100 keys").await;
    // Further ones are loaded when they are asked for.
    browser.type_into("Filter", "service").await;
    browser.sees("the first 200 by name are loaded").await;
    browser.click("Load more").await;
    browser.sees("the first 400 by name are loaded").await;
    assert_eq!(browser.run(rows, json!([])).await, 400);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
