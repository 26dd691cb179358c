//! The playground: requests in the four formats, side by side, and explained.

use crate::browser::Browser;
use crate::world::{WEB, World};

#[tokio::test]
async fn console_playground_runs_and_explains_in_all_formats() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 1_200), false).await;
    world.sign_in(&browser, "playground?model=claude-sonnet-4-6").await;
    browser.type_into("Key", WEB).await;
    for (number, format) in ["Chat", "Messages", "Responses", "Generate"].into_iter().enumerate() {
        let prompt = format!("Prompt of the format {format}");
        browser.type_into("Prompt", &prompt).await;
        browser.click(format).await;
        browser.click("Run").await;
        // The simulated provider repeats the prompt; the frames of a stream are counted.
        browser.sees(&format!("You said: \"{prompt}\"")).await;
        browser.sees(" frames").await;
        browser.sees("anthropic / claude-sonnet-4-6").await;
        browser.click("Explain").await;
        let expected = if number == 1 { "Unchanged." } else { "Translated into messages." };
        browser.sees(expected).await;
        browser.sees("input tokens, which cost").await;
    }
    // A document in place of a stream, side by side with another model.
    browser.click("Stream").await;
    browser.click("Side by side").await;
    browser.sees("Right").await;
    browser.type_into("Prompt", "Both of you").await;
    browser.click("Run").await;
    browser.until("two answers", |seen| seen.matches("You said: \"Both of you\"").count() == 2).await;
    browser.click("Explain").await;
    browser.store_picture("playground").await;
    // The key's rules apply: a wrong key gets what a client gets.
    browser.type_into("Key", "mgw_wrong").await;
    browser.click("Run").await;
    browser.sees("401").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}

#[tokio::test]
async fn console_playground_makes_a_key_for_ten_minutes_and_deletes_it() {
    let Some(browser) = Browser::start().await else { return };
    let world = World::start().await;
    browser.look((1_440, 1_200), false).await;
    world.sign_in(&browser, "playground").await;
    browser.click("Make a key for ten minutes").await;
    browser.sees("holds for ten minutes").await;
    browser.click("Run").await;
    browser.sees("You said:").await;
    browser.click("Delete this key").await;
    browser.sees("is deleted.").await;
    browser.open(&world.page("keys")).await;
    browser.sees("web-app").await;
    browser.until("no key of the playground", |seen| !seen.contains("playground-")).await;
}
