//! Calls without results, and results without calls, as every provider gets them.

use bytes::Bytes;
use serde_json::{Value, json};

use super::requests::sent;
use crate::canonical::RequestFeatures;
use crate::provider::ProviderKind;
use crate::wire::Format;
use crate::wire::request::BodyReader;

const TARGETS: [(ProviderKind, &str, Format); 5] = [
    (ProviderKind::OpenAi, "gpt-4.1", Format::Chat),
    (ProviderKind::Anthropic, "claude-sonnet-4-5", Format::Messages),
    (ProviderKind::OpenAi, "gpt-5.2", Format::Responses),
    (ProviderKind::Gemini, "gemini-2.5-flash", Format::Generate),
    (ProviderKind::Bedrock, "anthropic.claude-sonnet-4-5-v1:0", Format::Converse),
];

/// Part of a conversation.
#[derive(Clone, Copy, Debug)]
enum Part {
    User(&'static str),
    Model(&'static str),
    Calls(&'static [&'static str]),
    Result(&'static str, &'static str),
}

#[expect(clippy::too_many_lines, reason = "one paragraph for each format")]
fn body(format: Format, parts: &[Part]) -> Value {
    let mut turns = Vec::new();
    for part in parts {
        match (format, *part) {
            (Format::Chat, Part::User(text)) => turns.push(json!({"role": "user", "content": text})),
            (Format::Chat, Part::Model(text)) => turns.push(json!({"role": "assistant", "content": text})),
            (Format::Chat, Part::Calls(ids)) => {
                let call = |id: &&str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
                turns.push(
                    json!({"role": "assistant", "tool_calls": ids.iter().map(call).collect::<Vec<_>>()}),
                );
            }
            (Format::Chat, Part::Result(id, text)) => {
                turns.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
            }
            (Format::Messages, Part::User(text)) => turns.push(json!({"role": "user", "content": text})),
            (Format::Messages, Part::Model(text)) => {
                turns.push(json!({"role": "assistant", "content": text}));
            }
            (Format::Messages, Part::Calls(ids)) => {
                let call = |id: &&str| json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
                turns.push(json!({"role": "assistant", "content": ids.iter().map(call).collect::<Vec<_>>()}));
            }
            (Format::Messages, Part::Result(id, text)) => {
                let block = json!({"type": "tool_result", "tool_use_id": id, "content": text});
                turns.push(json!({"role": "user", "content": [block]}));
            }
            (Format::Converse, Part::User(text)) => {
                turns.push(json!({"role": "user", "content": [{"text": text}]}));
            }
            (Format::Converse, Part::Model(text)) => {
                turns.push(json!({"role": "assistant", "content": [{"text": text}]}));
            }
            (Format::Converse, Part::Calls(ids)) => {
                let call = |id: &&str| json!({"toolUse": {"toolUseId": id, "name": "f", "input": {}}});
                turns.push(json!({"role": "assistant", "content": ids.iter().map(call).collect::<Vec<_>>()}));
            }
            (Format::Converse, Part::Result(id, text)) => {
                let block = json!({"toolResult": {"toolUseId": id, "content": [{"text": text}]}});
                turns.push(json!({"role": "user", "content": [block]}));
            }
            (Format::Generate, Part::User(text)) => {
                turns.push(json!({"role": "user", "parts": [{"text": text}]}));
            }
            (Format::Generate, Part::Model(text)) => {
                turns.push(json!({"role": "model", "parts": [{"text": text}]}));
            }
            (Format::Generate, Part::Calls(ids)) => {
                let call = |id: &&str| json!({"functionCall": {"id": id, "name": "f", "args": {}}});
                turns.push(json!({"role": "model", "parts": ids.iter().map(call).collect::<Vec<_>>()}));
            }
            (Format::Generate, Part::Result(id, text)) => {
                let part = json!({"functionResponse": {"id": id, "name": "f", "response": {"output": text}}});
                turns.push(json!({"role": "user", "parts": [part]}));
            }
            (Format::Responses, Part::User(text)) => turns.push(json!({"role": "user", "content": text})),
            (Format::Responses, Part::Model(text)) => {
                turns.push(json!({"role": "assistant", "content": text}));
            }
            (Format::Responses, Part::Calls(ids)) => {
                turns.extend(ids.iter().map(
                    |id| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}),
                ))
            }
            (Format::Responses, Part::Result(id, text)) => {
                turns.push(json!({"type": "function_call_output", "call_id": id, "output": text}));
            }
        }
    }
    let schema = json!({"type": "object", "properties": {}});
    match format {
        Format::Chat => json!({"model": "m", "messages": turns,
            "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}),
        Format::Messages => json!({"model": "m", "max_tokens": 9, "messages": turns,
            "tools": [{"name": "f", "input_schema": schema}]}),
        Format::Responses => json!({"model": "m", "input": turns,
            "tools": [{"type": "function", "name": "f", "parameters": schema}]}),
        Format::Generate => json!({"contents": turns,
            "tools": [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]}),
        Format::Converse => json!({"messages": turns,
            "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": schema}}}]}}),
    }
}

fn is_unmatched(format: Format, body: &Value) -> bool {
    let mut reader = BodyReader::new(format.api(), false);
    reader.push(Bytes::from(body.to_string())).unwrap();
    let wanted = RequestFeatures::UNMATCHED_CALL;
    reader.finish().unwrap().features(wanted).intersects(wanted)
}

const INTERRUPTED: &str = "The call was interrupted and has no result.";

/// Sends a conversation from every format to every target. `says` are texts that arrive in this order.
fn check(parts: &[Part], says: &[&str], losses: &[&str]) {
    for from in Format::ALL {
        let asked = body(from, parts);
        assert!(from == Format::Generate || is_unmatched(from, &asked), "{from:?} {parts:?}");
        for (kind, model, to) in TARGETS {
            let (sent, lost) = sent(kind, model, from, to, &asked);
            assert!(!is_unmatched(to, &sent), "{from:?} to {to:?}: {sent}");
            let text = sent.to_string();
            let mut rest = text.as_str();
            for said in says {
                let Some(at) = rest.find(said) else { panic!("{said} from {from:?} to {to:?}: {sent}") };
                rest = &rest[at + said.len()..];
            }
            for loss in losses {
                assert!(lost.iter().any(|lost| lost == loss), "{from:?} to {to:?}: {lost:?}");
            }
            assert!(
                !losses.is_empty() || !lost.iter().any(|lost| lost.starts_with("tool_result")),
                "{lost:?}"
            );
        }
    }
}

#[test]
fn mapping_3_call_without_a_result_gets_one_that_says_so() {
    let (a, b) = (Part::User("one"), Part::User("two"));
    let placed = &["tool_result_placeholder"];
    check(&[a, Part::Calls(&["x"]), b], &["one", INTERRUPTED, "two"], placed);
    check(&[a, Part::Calls(&["x"])], &["one", INTERRUPTED], placed);
    check(
        &[a, Part::Calls(&["x", "y"]), Part::Result("y", "seen"), b],
        &[INTERRUPTED, "seen", "two"],
        placed,
    );
    check(&[a, Part::Calls(&["x"]), Part::Model("so"), b], &["one", "so", "two"], placed);
}

#[test]
fn mapping_3_result_without_a_call_is_a_text() {
    let (a, b) = (Part::User("one"), Part::User("two"));
    let orphan = &["tool_result"];
    check(
        &[a, Part::Model("so"), Part::Result("z", "seen"), b],
        &["so", "Result of the tool call", "seen", "two"],
        orphan,
    );
    let twice = [a, Part::Calls(&["x"]), Part::Result("x", "first"), Part::Result("x", "second"), b];
    check(&twice, &["first", "Result of the tool call", "second", "two"], orphan);
}

#[test]
fn mapping_3_late_result_moves_behind_its_call() {
    for from in [Format::Chat, Format::Messages, Format::Responses, Format::Converse] {
        let parts = [
            Part::User("one"),
            Part::Calls(&["x"]),
            Part::User("wait"),
            Part::Model("yes"),
            Part::Result("x", "seen"),
            Part::User("two"),
        ];
        for (kind, model, to) in TARGETS {
            let (sent, lost) = sent(kind, model, from, to, &body(from, &parts));
            assert!(
                !is_unmatched(to, &sent) && !lost.iter().any(|lost| lost.starts_with("tool_result")),
                "{from:?} to {to:?}: {lost:?} {sent}"
            );
            let text = sent.to_string();
            assert!(text.find("seen") < text.find("wait") || text.find("seen") < text.find("yes"), "{text}");
            assert!(!text.contains(INTERRUPTED), "{text}");
        }
    }
}
