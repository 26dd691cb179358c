//! Requests on their way: what is settled on the hub, and what a request keeps that is said anew in its own format.

use serde_json::{Value, json};

use crate::canonical::Thinking;
use crate::json::EscapedString;
use crate::translate::{Ask, outgoing};
use crate::vendor::{BaseUrl, Kind, Provider, Setup};
use crate::wire::Format;

pub(super) fn sent(kind: Kind, model: &str, from: Format, to: Format, body: &Value) -> (Value, Vec<String>) {
    let base = BaseUrl::parse("http://127.0.0.1:1/v1").unwrap();
    let provider = Provider::new(Setup { name: "p".to_owned(), kind, apis: vec![to.api()], base });
    let outgoing = outgoing(
        &body.to_string(),
        &Ask {
            client: from,
            vendor: to,
            stream: false,
            array: false,
            thinking: Thinking::Unsaid,
            dialect: &provider.dialect(to.api(), model),
            model: &EscapedString::from(model),
            id: "req_1",
            seed: "req_1",
            now: 0,
        },
    )
    .unwrap();
    let losses = outgoing.losses.iter().map(|loss| loss.element.to_string()).collect();
    (serde_json::from_slice(&outgoing.body).unwrap(), losses)
}

fn says_json(value: &Value) -> bool {
    value.to_string().to_ascii_lowercase().contains("json object")
}

#[test]
fn mapping_5_any_json_is_spoken_of_where_the_vendor_wants_to_hear_it() {
    let ask = |text: &str| json!({"contents": [{"role": "user", "parts": [{"text": text}]}], "generationConfig": {"responseMimeType": "application/json"}});
    let (chat, _) = sent(Kind::OpenAi, "gpt-4.1", Format::Generate, Format::Chat, &ask("Name three birds."));
    assert_eq!(chat["response_format"], json!({"type": "json_object"}));
    assert!(says_json(&chat["messages"][0]), "{chat}");
    // The vendor of responses does not look into the instructions.
    let (responses, _) =
        sent(Kind::OpenAi, "gpt-4.1", Format::Generate, Format::Responses, &ask("Name three birds."));
    assert_eq!(responses["text"]["format"], json!({"type": "json_object"}));
    assert!(says_json(&responses["input"]), "{responses}");
    // Who speaks of it already is not told twice.
    for to in [Format::Chat, Format::Responses] {
        let (body, _) =
            sent(Kind::OpenAi, "gpt-4.1", Format::Generate, to, &ask("Name three birds in JSON."));
        assert!(!says_json(&body), "{body}");
    }
}

#[test]
fn mapping_2_bytes_in_the_alphabet_for_addresses_reach_other_vendors_in_the_usual_one() {
    let image = |data: &str| json!({"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": data}}]}]});
    for (data, wanted) in
        [("-_-_", "+/+/"), ("aaaa-_8", "aaaa+/8="), ("_w", "/w=="), ("iVBO", "iVBO"), ("a/+=", "a/+=")]
    {
        let (body, _) =
            sent(Kind::Anthropic, "claude-sonnet-4-5", Format::Generate, Format::Messages, &image(data));
        assert_eq!(body["messages"][0]["content"][0]["source"]["data"], wanted, "{data}");
    }
    // Its own vendor knows both.
    let (body, _) = sent(Kind::Gemini, "gemini-2.5-pro", Format::Generate, Format::Generate, &image("-_-_"));
    assert_eq!(body["contents"][0]["parts"][0]["inlineData"]["data"], "-_-_");
}

#[test]
fn mapping_12_members_of_tools_stay_when_a_request_is_said_anew_in_its_own_format() {
    let examples = json!([{"city": "Oslo"}]);
    let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "tools": [
        {"name": "a", "input_schema": {"type": "object"}, "input_examples": examples, "defer_loading": true},
        {"name": "b", "input_schema": {"type": "object"}, "allowed_callers": ["direct"]},
    ]});
    let (anew, losses) =
        sent(Kind::Anthropic, "claude-sonnet-4-5", Format::Messages, Format::Messages, &body);
    assert_eq!(
        (&anew["tools"][0]["input_examples"], &anew["tools"][0]["defer_loading"]),
        (&examples, &json!(true))
    );
    assert_eq!(anew["tools"][1]["allowed_callers"], json!(["direct"]));
    assert!(losses.is_empty(), "{losses:?}");
    let (_, losses) = sent(Kind::OpenAi, "gpt-4.1", Format::Messages, Format::Chat, &body);
    assert_eq!(losses, ["input_examples", "defer_loading", "allowed_callers"]);
}

#[test]
fn client_1_a_group_of_tools_keeps_what_it_is_for() {
    let body = json!({"model": "m", "input": "Hi", "tools": [
        {"type": "namespace", "name": "g", "description": "All about g.", "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]},
        {"type": "namespace", "name": "h", "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]},
    ]});
    let (anew, _) = sent(Kind::OpenAi, "gpt-5.2", Format::Responses, Format::Responses, &body);
    assert_eq!(anew["tools"][0]["description"], "All about g.");
    // It must be there.
    assert_eq!(anew["tools"][1]["description"], "h");
}
