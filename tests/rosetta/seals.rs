//! Provider signatures: they return unaltered to the provider that issued them and reach no other provider. Tested
//! through clients of every other format over three turns of tool use, for clients that send back everything and for
//! clients that keep only texts, tool calls and call ids.

use model_gateway::translate::verbatim::Arrival;
use model_gateway::wire::Format;
use serde_json::{Value, json};

use crate::route::{Way, issuer, request, translated_pairs};

/// Formats whose providers sign. Chat providers have no signatures of their own.
const SIGNERS: [Format; 4] = [Format::Messages, Format::Responses, Format::Generate, Format::Converse];

/// Returns the provider's response in a turn: signed reasoning and a tool call.
fn answer(provider: Format, turn: usize) -> String {
    let (seal, hidden) = (format!("Eq{turn}/m+=="), format!("Hid/{turn}=="));
    let body = match provider {
        Format::Messages => {
            json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [
            {"type": "thinking", "thinking": format!("Thought {turn}\n\"é\""), "signature": seal},
            {"type": "redacted_thinking", "data": hidden},
            {"type": "tool_use", "id": format!("toolu_{turn}"), "name": "look", "input": {"n": turn}}],
            "stop_reason": "tool_use", "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1}})
        }
        Format::Responses => {
            json!({"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m", "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": format!("Thought {turn}\n\"é\"")}], "encrypted_content": seal},
            {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": hidden},
            {"type": "function_call", "id": "fc_1", "call_id": format!("call_{turn}"), "name": "look", "arguments": format!("{{\"n\":{turn}}}"), "status": "completed"}],
            "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}})
        }
        Format::Generate => json!({"candidates": [{"content": {"role": "model", "parts": [
            {"text": format!("Thought {turn}\n\"é\""), "thought": true},
            {"functionCall": {"id": format!("fc{turn}"), "name": "look", "args": {"n": turn}}, "thoughtSignature": seal}]}, "finishReason": "STOP", "index": 0}],
            "modelVersion": "m", "responseId": "r"}),
        Format::Converse => json!({"output": {"message": {"role": "assistant", "content": [
            {"reasoningContent": {"reasoningText": {"text": format!("Thought {turn}\n\"é\""), "signature": seal}}},
            {"reasoningContent": {"redactedContent": hidden}},
            {"toolUse": {"toolUseId": format!("tool_{turn}"), "name": "look", "input": {"n": turn}}}]}},
            "stopReason": "tool_use", "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}}),
        Format::Chat => unreachable!("providers of chat sign nothing"),
    };
    body.to_string()
}

/// Returns the signatures of the first `turns` responses, in order.
fn seals(provider: Format, turns: usize) -> Vec<String> {
    let of_turn = |turn: usize| {
        let mut seals = vec![format!("Eq{turn}/m+==")];
        if provider != Format::Generate {
            seals.push(format!("Hid/{turn}=="));
        }
        seals
    };
    (1..=turns).flat_map(of_turn).collect()
}

/// Returns all signatures in a request to a provider.
fn seals_in(provider: Format, body: &Value) -> Vec<String> {
    let names: &[&str] = match provider {
        Format::Messages => &["signature", "data"],
        Format::Responses => &["encrypted_content"],
        Format::Generate => &["thoughtSignature"],
        Format::Converse => &["signature", "redactedContent"],
        Format::Chat => &["signature", "data", "thought_signature"],
    };
    let mut found = Vec::new();
    collect(body, names, &mut found);
    found
}

fn collect(value: &Value, names: &[&str], found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) if names.contains(&&**name) => found.push(text.clone()),
                    _ => collect(value, names, found),
                }
            }
        }
        Value::Array(elements) => elements.iter().for_each(|value| collect(value, names, found)),
        _ => {}
    }
}

/// Client of a format with its part of the conversation.
struct Client {
    format: Format,
    /// Whether it sends back everything it received. Otherwise it sends only texts, tool calls and call ids.
    echoes: bool,
    items: Vec<Value>,
}

impl Client {
    fn new(format: Format, echoes: bool) -> Self {
        let first = match format {
            Format::Generate => json!({"role": "user", "parts": [{"text": "Look."}]}),
            Format::Converse => json!({"role": "user", "content": [{"text": "Look."}]}),
            _ => json!({"role": "user", "content": "Look."}),
        };
        Client { format, echoes, items: vec![first] }
    }

    fn body(&self) -> String {
        let items = &self.items;
        let schema = json!({"type": "object"});
        let body = match self.format {
            Format::Chat => json!({"model": "m", "messages": items, "tools": [
                {"type": "function", "function": {"name": "look", "parameters": schema}}]}),
            Format::Messages => json!({"model": "m", "max_tokens": 9000, "messages": items,
                "thinking": {"type": "enabled", "budget_tokens": 2000},
                "tools": [{"name": "look", "input_schema": schema}]}),
            Format::Responses => json!({"model": "m", "input": items, "reasoning": {"summary": "auto"},
                "tools": [{"type": "function", "name": "look", "parameters": schema}]}),
            Format::Generate => json!({"contents": items,
                "generationConfig": {"thinkingConfig": {"includeThoughts": true}},
                "tools": [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": schema}]}]}),
            Format::Converse => json!({"messages": items,
                "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 2000}},
                "toolConfig": {"tools": [{"toolSpec": {"name": "look", "inputSchema": {"json": schema}}}]}}),
        };
        body.to_string()
    }

    /// Appends a response, and a result for each of its tool calls.
    fn take(&mut self, answer: &Value) {
        match self.format {
            Format::Chat => {
                let mut message = answer["choices"][0]["message"].clone();
                if !self.echoes {
                    message = json!({"role": "assistant", "content": message["content"], "tool_calls": message["tool_calls"]});
                }
                let ids: Vec<Value> =
                    message["tool_calls"].as_array().unwrap().iter().map(|call| call["id"].clone()).collect();
                self.items.push(message);
                self.items.extend(
                    ids.into_iter().map(|id| json!({"role": "tool", "tool_call_id": id, "content": "seen"})),
                );
            }
            Format::Messages => {
                let mut blocks = answer["content"].as_array().unwrap().clone();
                if !self.echoes {
                    blocks.retain(|block| matches!(block["type"].as_str(), Some("text" | "tool_use")));
                }
                let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
                let results: Vec<Value> = calls
                    .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "seen"}))
                    .collect();
                self.items.push(json!({"role": "assistant", "content": blocks}));
                self.items.push(json!({"role": "user", "content": results}));
            }
            Format::Responses => {
                let mut output = answer["output"].as_array().unwrap().clone();
                if !self.echoes {
                    output.retain(|item| item["type"] != "reasoning");
                }
                let calls = output.iter().filter(|item| item["type"] == "function_call");
                let results: Vec<Value> = calls
                    .map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "seen"}))
                    .collect();
                self.items.extend(output);
                self.items.extend(results);
            }
            Format::Generate => {
                let mut parts = answer["candidates"][0]["content"]["parts"].as_array().unwrap().clone();
                if !self.echoes {
                    parts.retain(|part| part["thought"] != true);
                    for part in &mut parts {
                        part.as_object_mut().unwrap().remove("thoughtSignature");
                    }
                }
                let calls = parts.iter().filter_map(|part| part.get("functionCall"));
                let results: Vec<Value> = calls
                    .map(|call| json!({"functionResponse": {"id": call["id"], "name": call["name"], "response": {"output": "seen"}}}))
                    .collect();
                self.items.push(json!({"role": "model", "parts": parts}));
                self.items.push(json!({"role": "user", "parts": results}));
            }
            Format::Converse => {
                let mut blocks = answer["output"]["message"]["content"].as_array().unwrap().clone();
                if !self.echoes {
                    blocks.retain(|block| block["reasoningContent"].is_null());
                }
                let calls = blocks.iter().filter_map(|block| block.get("toolUse"));
                let results: Vec<Value> = calls
                    .map(|call| json!({"toolResult": {"toolUseId": call["toolUseId"], "content": [{"text": "seen"}]}}))
                    .collect();
                self.items.push(json!({"role": "assistant", "content": blocks}));
                self.items.push(json!({"role": "user", "content": results}));
            }
        }
    }

    fn asks(&self, provider: Format) -> Value {
        let text = self.body();
        let outgoing = request(self.format, provider, &text)
            .unwrap_or_else(|refused| panic!("{} to {provider}: {refused}: {text}", self.format));
        serde_json::from_slice(&outgoing.text()).unwrap()
    }
}

/// Returns the response as the client receives it, as a document.
fn received(provider: Format, client: Format, turn: usize) -> Value {
    let (text, ended) = Way::whole(provider, client).pass(&[answer(provider, turn).as_bytes()]);
    assert_eq!(ended, Ok(()), "{provider} to {client}");
    serde_json::from_str(&text).unwrap()
}

/// Returns the call ids in a request to a provider, in the order of the calls and of their results.
fn ids_in(body: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(body, &["tool_use_id", "call_id", "id", "tool_call_id", "toolUseId"], &mut found);
    found.retain(|id| !id.starts_with("rs_"));
    found.dedup();
    found
}

#[test]
fn signatures_return_to_their_issuer_over_three_turns() {
    for (provider, format) in translated_pairs().filter(|pair| SIGNERS.contains(&pair.0)) {
        let mut client = Client::new(format, true);
        for turn in 1..=3 {
            client.take(&received(provider, format, turn));
            let asked = client.asks(provider);
            assert_eq!(
                seals_in(provider, &asked),
                seals(provider, turn),
                "{provider} through {format}: {asked}"
            );
            // The reasoning text must return too: the signature covers it.
            let text = asked.to_string();
            for turn in 1..=turn {
                assert!(
                    provider == Format::Generate || text.contains(&format!(r#"Thought {turn}\n\"é\""#)),
                    "{provider} through {format}: {asked}"
                );
            }
            // The ids that the client received may carry signatures; the provider receives its own ids.
            let ids = ids_in(&asked);
            let plain = |id: &String| id.len() < 10;
            assert!(ids.len() >= turn && ids.iter().all(plain), "{provider} through {format}: {ids:?}");
        }
    }
}

#[test]
fn signatures_never_reach_another_provider() {
    for (provider, format) in translated_pairs().filter(|pair| SIGNERS.contains(&pair.0)) {
        for echoes in [true, false] {
            let mut client = Client::new(format, echoes);
            (1..=3).for_each(|turn| client.take(&received(provider, format, turn)));
            for other in Format::ALL.into_iter().filter(|other| *other != provider) {
                let text = client.asks(other).to_string();
                for trace in ["gw1.", "__gw1__", "Eq1/m", "Hid/1", issuer(provider)] {
                    assert!(
                        !text.contains(trace),
                        "{provider} through {format} to {other}: {trace} in {text}"
                    );
                }
            }
        }
    }
}

/// For clients that keep only tool calls, the signature of a call travels in the call's id. Ids of Converse have at most 64
/// characters.
#[test]
fn signatures_of_tool_calls_travel_in_call_ids() {
    for format in [Format::Chat, Format::Messages, Format::Responses] {
        let provider = Format::Generate;
        let mut client = Client::new(format, false);
        for turn in 1..=3 {
            client.take(&received(provider, format, turn));
            let asked = client.asks(provider);
            assert_eq!(
                seals_in(provider, &asked),
                seals(provider, turn),
                "{provider} through {format}: {asked}"
            );
        }
    }
}

/// In Converse the signature of a call travels in reasoning without text before it.
#[test]
fn signatures_of_tool_calls_stand_before_the_calls_of_converse() {
    for turn in 1..=3 {
        let message = received(Format::Generate, Format::Converse, turn);
        let blocks = message["output"]["message"]["content"].as_array().unwrap();
        let at = blocks.iter().position(|block| block["toolUse"].is_object()).unwrap();
        assert!(blocks[at]["toolUse"]["toolUseId"].as_str().unwrap().len() <= 64, "{message}");
        let before = &blocks[at - 1]["reasoningContent"]["reasoningText"];
        assert_eq!(before["text"], "", "{message}");
        assert!(before["signature"].as_str().unwrap().starts_with("gw1."), "{message}");
    }
}

/// The id of a tool call carries its signature from the first frame of a stream, so that clients that keep only the
/// tool calls of streams can return it too.
#[test]
fn signatures_in_streams_equal_those_in_documents() {
    for (provider, format) in translated_pairs().filter(|pair| SIGNERS.contains(&pair.0)) {
        let way = Way { arrival: Arrival::Whole, ..Way::streamed(provider, format) };
        let (stream, ended) = way.pass(&[answer(provider, 1).as_bytes()]);
        assert_eq!(ended, Ok(()));
        let whole = received(provider, format, 1).to_string();
        let mut sealed = 0;
        for part in whole.split('"').filter(|part| part.contains("gw1") || part.starts_with("Z3cx")) {
            assert!(stream.contains(part), "{provider} to {format}: {part} in {stream}");
            sealed += 1;
        }
        assert!(sealed > 0, "{provider} to {format}: {whole}");
    }
}
