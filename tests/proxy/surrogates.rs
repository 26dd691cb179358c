//! Half of a character in a request (`"\ud83d"`): providers refuse the body as invalid JSON, so that they must not get it.

use serde_json::{Value, json};

use crate::support::client::post_with;
use crate::support::form::{Form, provider_of_every_form};
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, Setup, provider_of};
use crate::support::upstream::Upstream;

/// Returns a request with a text, the arguments of a call and its result. `\u` stands for a half.
fn request(form: Form, model: &str) -> String {
    let (text, arguments, result) = ("cut \\ud83d here", "\\ude00", "\\ud83d\\ud83d\\ude00");
    match form {
        Form::Chat => format!(
            r#"{{"model":"{model}","messages":[{{"role":"user","content":"{text}"}},{{"role":"assistant","content":null,"tool_calls":[{{"id":"c1","type":"function","function":{{"name":"f","arguments":"{{\"a\":\"\{arguments}\"}}"}}}}]}},{{"role":"tool","tool_call_id":"c1","content":"{result}"}}]}}"#
        ),
        Form::Messages => format!(
            r#"{{"model":"{model}","max_tokens":99,"messages":[{{"role":"user","content":"{text}"}},{{"role":"assistant","content":[{{"type":"tool_use","id":"c1","name":"f","input":{{"a":"{arguments}"}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"c1","content":"{result}"}}]}}]}}"#
        ),
        Form::Responses => format!(
            r#"{{"model":"{model}","input":[{{"role":"user","content":"{text}"}},{{"type":"function_call","call_id":"c1","name":"f","arguments":"{{\"a\":\"\{arguments}\"}}"}},{{"type":"function_call_output","call_id":"c1","output":"{result}"}}]}}"#
        ),
        Form::Generate => format!(
            r#"{{"contents":[{{"role":"user","parts":[{{"text":"{text}"}}]}},{{"role":"model","parts":[{{"functionCall":{{"name":"f","args":{{"a":"{arguments}"}}}}}}]}},{{"role":"user","parts":[{{"functionResponse":{{"name":"f","response":{{"output":"{result}"}}}}}}]}}]}}"#
        ),
    }
}

#[tokio::test]
async fn half_of_a_character_does_not_reach_the_provider() {
    let upstream = provider_of_every_form().await;
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr)).await;
    for client in Form::ALL {
        for provider in Form::ALL {
            let model = provider_of(provider);
            let bearer = format!("Bearer {KEY}");
            let path = client.path(model, false);
            let answer =
                gateway.ask(post_with(&path, &[("authorization", &bearer)], request(client, model))).await;
            assert_eq!(answer.status(), 200, "{client:?} to {provider:?}: {}", answer.everything());
            // The reader is strict: it refuses halves.
            let sent: Value = upstream.last_request().json();
            let text = sent.to_string();
            assert!(text.contains("cut \u{fffd} here") && text.contains("\u{fffd}\u{1f600}"), "{text}");
            // Arguments in a string are another document; as an object they are part of this one.
            if matches!(provider, Form::Messages | Form::Generate) {
                assert!(text.contains("{\"a\":\"\u{fffd}\"}"), "{client:?} to {provider:?}: {text}");
            }
        }
    }
}

#[tokio::test]
async fn half_of_a_character_in_a_stored_response_does_not_reach_the_provider() {
    let document = Form::Chat.whole("m").to_string().replace('😀', "\\ud83d");
    let upstream = Upstream::answering(reply::json(200, document)).await;
    let base = format!("http://{}/v1", upstream.addr);
    let mut setup =
        Setup::new().provider("v", "openai-compatible", &base, "apis = [\"chat\"]").model("m", "v", "m");
    setup.log = "[store]\n".to_owned();
    let gateway = Gateway::start(&setup).await;
    let bearer = format!("Bearer {KEY}");
    let ask = |body: Value| {
        gateway.ask(post_with("/v1/responses", &[("authorization", &bearer)], body.to_string()))
    };
    let first = ask(json!({"model": "m", "input": "hi"})).await;
    let id = first.text().split('"').find(|word| word.starts_with("resp_")).unwrap().to_owned();
    let second = ask(json!({"model": "m", "input": "go on", "previous_response_id": id})).await;
    assert_eq!(second.status(), 200, "{}", second.everything());
    let sent = upstream.last_request().json().to_string();
    assert!(sent.contains("\u{fffd}") && sent.contains("go on"), "{sent}");
}
