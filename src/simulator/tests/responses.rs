//! Tests of the OpenAI Responses API.

use serde_json::{Value, json};

use super::super::SimulatedProvider;
use super::client::{get, joined, post, send};
use super::start;

const RESPONSES: &str = "/v1/responses";

fn tool() -> Value {
    json!([{"type": "function", "name": "add", "strict": false,
            "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}])
}

#[tokio::test]
async fn stream_events_are_numbered_and_end_with_the_response() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let body = json!({"model": "gpt-5", "input": "hello", "stream": true, "reasoning": {"effort": "low", "summary": "auto"},
                      "include": ["reasoning.encrypted_content"]});
    let answer = post(&simulator, RESPONSES, &body).await;
    let data = answer.data();
    for (at, ((name, _), event)) in answer.events().iter().zip(&data).enumerate() {
        assert_eq!((&event["sequence_number"], &event["type"]), (&json!(at), &json!(name)));
    }
    let mut kinds: Vec<String> = answer.events().into_iter().map(|(name, _)| name).collect();
    kinds.dedup();
    assert_eq!(
        kinds.iter().map(|kind| kind.strip_prefix("response.").unwrap()).collect::<Vec<_>>(),
        [
            "created",
            "in_progress",
            "output_item.added",
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed"
        ]
    );
    let last = &data.last().unwrap()["response"];
    let deltas: Vec<Value> =
        data.iter().filter(|e| e["type"] == "response.output_text.delta").cloned().collect();
    assert_eq!(last["output"][1]["content"][0]["text"], joined(&deltas, "/delta"));
    assert!(last["output"][0]["encrypted_content"].as_str().unwrap().starts_with("gAAAA"));
    let stored = get(&simulator, &format!("/v1/responses/{}", last["id"].as_str().unwrap())).await.json();
    assert_eq!(stored["output"], last["output"]);
}

#[tokio::test]
async fn conversation_continues_by_previous_response_id() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let first =
        post(&simulator, RESPONSES, &json!({"model": "m", "input": "add", "tools": tool()})).await.json();
    assert_eq!((&first["output"][0]["name"], &first["status"]), (&json!("add"), &json!("completed")));
    let output =
        json!({"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "7"});
    let body = json!({"model": "m", "input": [output], "previous_response_id": first["id"]});
    let second = post(&simulator, RESPONSES, &body).await.json();
    assert!(
        second["output"][0]["content"][0]["text"].as_str().unwrap().ends_with("The tool add answered: 7.")
    );
    let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    let items = get(&simulator, &format!("{path}/input_items")).await.json();
    assert_eq!(items["data"][0]["content"][0]["text"], "add");
    assert_eq!(send(&simulator, "DELETE", &path, &[], b"").await.json()["deleted"], true);
    assert_eq!(get(&simulator, &path).await.status, 404);
    let gone = post(&simulator, RESPONSES, &body).await;
    assert_eq!((gone.status, &gone.json()["error"]["code"]), (400, &json!("previous_response_not_found")));
    let body = json!({"model": "m", "input": "x", "store": false});
    let id = post(&simulator, RESPONSES, &body).await.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(get(&simulator, &format!("/v1/responses/{id}")).await.status, 404);
}

#[tokio::test]
async fn response_at_the_token_limit_is_incomplete() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let body = json!({"model": "m", "input": "[[words 99]]", "max_output_tokens": 16, "stream": true});
    let data = post(&simulator, RESPONSES, &body).await.data();
    let last = data.last().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(last["response"]["output"][0]["status"], "incomplete");
    assert_eq!(last["response"]["usage"]["output_tokens"], 16);
}

#[tokio::test]
async fn reasoning_items_returned_by_the_client_are_verified() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let asked = json!({"model": "gpt-5", "input": "add", "tools": tool(), "store": false,
                       "reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"]});
    let first = post(&simulator, RESPONSES, &asked).await.json();
    let mut items = vec![json!({"role": "user", "content": "add"})];
    items.extend(first["output"].as_array().unwrap().clone());
    items.push(json!({"type": "function_call_output", "call_id": items[2]["call_id"], "output": "7"}));
    let again = async |items: &[Value]| {
        post(&simulator, RESPONSES, &json!({"model": "gpt-5", "input": items, "store": false})).await
    };
    assert_eq!(again(&items).await.status, 200);
    assert!(again(&items[..2]).await.text().contains("required following item"));
    items[1]["encrypted_content"] = json!("gAAAAAbroken==");
    assert_eq!(again(&items).await.json()["error"]["code"], "invalid_encrypted_content");
    items[1].as_object_mut().unwrap().remove("encrypted_content");
    assert_eq!(again(&items).await.status, 404);
}

/// Codex sends this member with every request.
#[tokio::test]
async fn client_metadata_is_an_object_of_strings() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    for (metadata, param) in [
        (json!({"x-codex-window-id": "thread:0"}), None),
        (json!({}), None),
        (json!(null), None),
        (json!("thread:0"), Some("client_metadata")),
        (json!({"x-codex-window-id": 0}), Some("client_metadata.x-codex-window-id")),
    ] {
        let body = json!({"model": "gpt-5", "input": "hello", "client_metadata": metadata});
        let answer = post(&simulator, RESPONSES, &body).await;
        assert_eq!(answer.status, if param.is_some() { 400 } else { 200 }, "{body}: {}", answer.text());
        assert_eq!(answer.json()["error"]["param"].as_str(), param, "{body}");
    }
}

#[tokio::test]
async fn request_invalid_is_refused_like_the_provider() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    for (body, part) in [
        (json!({"input": "x"}), "Missing required parameter: 'model'."),
        (json!({"model": "m"}), "must be provided"),
        (json!({"model": "m", "input": 5}), "Invalid type for 'input'"),
        (json!({"model": "m", "input": "x", "max_output_tokens": 5}), "Expected a value >= 16, but got 5"),
        (json!({"model": "m", "input": "x", "messages": [1]}), "has moved to 'input'"),
        (json!({"model": "m", "input": "x", "top_k": 1}), "Unknown parameter: 'top_k'."),
        (
            json!({"model": "m", "input": [{"type": "function_call_output", "call_id": "c", "output": ""}]}),
            "No tool call found",
        ),
        (
            json!({"model": "m", "input": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}),
            "Invalid value: 'text'",
        ),
        (
            json!({"model": "m", "input": "x", "tools": [{"type": "function", "function": {}}]}),
            "Unknown parameter: 'tools[0].function'.",
        ),
        (
            json!({"model": "m", "input": "x", "text": {"format": {"type": "json_schema", "schema": {}}}}),
            "'text.format.name'",
        ),
    ] {
        let answer = post(&simulator, RESPONSES, &body).await;
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(answer.status == 400 && message.contains(part), "{body}: {message}");
    }
}

#[tokio::test]
async fn request_with_spellings_of_other_apis_is_refused() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let refused = async |path: &str, mut body: Value, more: Value, param: &str| {
        for (name, value) in more.as_object().unwrap() {
            body[name.as_str()] = value.clone();
        }
        let answer = post(&simulator, path, &body).await;
        assert_eq!(answer.status, if param == "model" { 404 } else { 400 }, "{body}");
        assert_eq!(answer.json()["error"]["param"], param, "{body}");
    };
    let nested = json!([{"type": "function", "function": {"name": "f"}}]);
    for (more, param) in [
        (json!({"tools": nested}), "tools[0].function"),
        (
            json!({"tools": tool(), "tool_choice": {"type": "function", "function": {"name": "add"}}}),
            "tool_choice.function",
        ),
        (json!({"input": [{"type": "input_text", "text": "x"}]}), "input[0]"),
        (json!({"reasoning": {"summary": "none"}}), "reasoning.summary"),
        (
            json!({"tools": [{"type": "web_search", "user_location": {"country": "CN"}}]}),
            "tools[0].user_location.type",
        ),
        (json!({"truncation": "weird"}), "truncation"),
        (json!({"max_tool_calls": 0}), "max_tool_calls"),
        (json!({"metadata": []}), "metadata"),
    ] {
        refused(RESPONSES, json!({"model": "gpt-5", "input": "x"}), more, param).await;
    }
    let chat = |model: &str| json!({"model": model, "messages": [{"role": "user", "content": "x"}]});
    let place = json!({"web_search_options": {"user_location": {"approximate": {"country": "CN"}}}});
    refused("/v1/chat/completions", chat("gpt-4o"), place, "web_search_options.user_location.type").await;
    refused("/v1/chat/completions", chat("o3-pro"), json!({}), "model").await;
}

#[tokio::test]
async fn tools_in_items_are_checked_and_called() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let ask = |item: Value| json!({"model": "gpt-5", "tool_choice": "required", "input": [item, {"role": "user", "content": "Go"}]});
    let exec = json!({"type": "custom", "name": "exec"});
    let item = json!({"type": "additional_tools", "role": "developer", "tools": [exec]});
    let answer = post(&simulator, RESPONSES, &ask(item)).await.json();
    let call = answer["output"].as_array().unwrap().iter().find(|item| item["name"] == "exec").unwrap();
    assert_eq!(call["type"], "custom_tool_call");
    for (item, param) in [
        (json!({"type": "additional_tools", "tools": []}), "input[0].role"),
        (json!({"type": "additional_tools", "role": "user", "tools": []}), "input[0].role"),
        (json!({"type": "additional_tools", "role": "developer"}), "input[0].tools"),
        (json!({"type": "additional_tools", "role": "developer", "tools": [{}]}), "input[0].tools[0].type"),
        (
            json!({"type": "additional_tools", "role": "developer", "tools": [
                {"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "custom"}]}]}),
            "input[0].tools[0].tools[0].name",
        ),
    ] {
        let answer = post(&simulator, RESPONSES, &ask(item)).await;
        assert_eq!((answer.status, answer.json()["error"]["param"].as_str().unwrap()), (400, param));
    }
}

#[tokio::test]
async fn compaction_is_one_item_that_the_provider_accepts_again() {
    let simulator = start(SimulatedProvider::OpenAi).await;
    let user = json!({"role": "user", "content": "Remember: 42."});
    let trigger = json!({"type": "compaction_trigger"});
    let body = json!({"model": "gpt-5", "stream": true, "input": [user, trigger]});
    let data = post(&simulator, RESPONSES, &body).await.data();
    let kinds: Vec<&str> = data.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let item = "response.output_item.";
    let expected =
        ["response.created", "response.in_progress", &format!("{item}added"), &format!("{item}done")];
    assert_eq!(kinds, [&expected[..], &["response.completed"]].concat());
    let item = data.last().unwrap()["response"]["output"][0].clone();
    assert_eq!(item["type"], "compaction");
    let again = post(&simulator, RESPONSES, &json!({"model": "gpt-5", "input": [item, user]})).await;
    assert_eq!(again.status, 200);
    let compacted =
        post(&simulator, "/v1/responses/compact", &json!({"model": "gpt-5", "input": [user]})).await;
    let compacted = compacted.json();
    assert_eq!(
        (&compacted["object"], &compacted["output"][1]["type"]),
        (&json!("response.compaction"), &json!("compaction"))
    );
    for (input, param) in [
        (json!([trigger, user]), "input[0]"),
        (json!([user, {"type": "compaction", "encrypted_content": "AAAA"}]), "input[1].encrypted_content"),
        (json!([user, {"type": "compaction"}]), "input[1].encrypted_content"),
    ] {
        let answer = post(&simulator, RESPONSES, &json!({"model": "gpt-5", "input": input})).await;
        assert_eq!((answer.status, answer.json()["error"]["param"].as_str().unwrap()), (400, param));
    }
}
