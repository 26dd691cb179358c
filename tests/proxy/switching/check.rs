//! What every provider must have got: its own signatures and ids as it gave them, nothing of another's, and each
//! conversation as the continuation of the one before.

use std::collections::HashSet;

use base64_simd::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::Value;

use super::providers::{Exchange, Maker};

/// Documented value for calls that another model made, in base64.
const SKIP: &str = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=";

/// Asserts everything of a conversation. `label` says which. Of `left_out`, whose format is that of a client which keeps
/// no signatures, none are expected.
pub(super) fn check(label: &str, log: &[Exchange], left_out: Option<Maker>) {
    for (at, exchange) in log.iter().enumerate() {
        let maker = exchange.maker;
        let said = || format!("{label}, request {at} to {maker:?}: {}", exchange.text());
        assert!(
            matches!(exchange.status, 200 | 503),
            "{}\n{}",
            said(),
            String::from_utf8_lossy(&exchange.answered)
        );
        for mark in ["gw1.", "__gw1", "gwc1.", "\"Z3cx", "no_issuer", "at-openai", "at-gemini", "at-kimi"] {
            assert!(!exchange.text().contains(mark), "{mark}: {}", said());
        }
        check_seals(&log[..at], exchange, left_out, &said);
        check_ids(&log[..at], exchange, &said);
    }
    for maker in Maker::ALL.into_iter().chain([Maker::Nova]) {
        let own: Vec<&Exchange> = log.iter().filter(|exchange| exchange.maker == maker).collect();
        for pair in own.windows(2) {
            check_prefix(&format!("{label} at {maker:?}"), pair[0], pair[1]);
        }
    }
}

/// Returns the values of string members in a JSON text or in a stream, in order, each once.
fn values(text: &str, names: &[&str]) -> Vec<String> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for name in names {
        let key = format!("\"{name}\"");
        for (at, _) in text.match_indices(&key) {
            let rest = text[at + key.len()..].trim_start();
            let Some(rest) =
                rest.strip_prefix(':').map(str::trim_start).and_then(|rest| rest.strip_prefix('"'))
            else {
                continue;
            };
            let value = &rest[..rest.find('"').unwrap()];
            if !value.is_empty() && found.iter().all(|(_, known)| known != value) {
                found.push((at, value.to_owned()));
            }
        }
    }
    found.sort();
    found.into_iter().map(|(_, value)| value).collect()
}

const SEALS: [&str; 5] = ["signature", "encrypted_content", "thoughtSignature", "redactedContent", "data"];

/// Returns the signatures in a text: those of an answer, or of a request.
fn seals(text: &str) -> Vec<String> {
    let mut found = values(text, &SEALS);
    found.retain(|seal| seal != super::client::PICTURE && seal != SKIP);
    found
}

fn check_seals(before: &[Exchange], exchange: &Exchange, left_out: Option<Maker>, said: &dyn Fn() -> String) {
    let issued = |maker: Maker| {
        let answers = before.iter().filter(move |one| one.maker == maker);
        answers.flat_map(|one| seals(&String::from_utf8_lossy(&one.answered)))
    };
    let own: Vec<String> = issued(exchange.maker).collect();
    let sent = seals(exchange.text());
    if left_out != Some(exchange.maker) {
        assert_eq!(sent, own, "its signatures, as it gave them: {}", said());
    }
    for other in Maker::ALL.into_iter().chain([Maker::Nova]).filter(|other| *other != exchange.maker) {
        for seal in issued(other) {
            let packed = [
                seal.clone(),
                URL_SAFE_NO_PAD.encode_to_string(seal.as_bytes()),
                STANDARD.encode_to_string(seal.as_bytes()),
            ];
            for form in packed {
                assert!(!exchange.text().contains(&form), "{form} of {other:?}: {}", said());
            }
        }
    }
    if exchange.maker == Maker::Kimi && left_out.is_none() {
        check_reasoning(before, exchange, said);
    }
}

/// Kimi's own calls have the reasoning that it gave with them.
fn check_reasoning(before: &[Exchange], exchange: &Exchange, said: &dyn Fn() -> String) {
    let body = exchange.json();
    let earlier = before.iter().filter(|one| one.maker == Maker::Kimi && one.status == 200);
    for one in earlier {
        let answered = String::from_utf8_lossy(&one.answered);
        let Some(call) = values(&answered, &["id"]).into_iter().find(|id| id.starts_with("functions."))
        else {
            continue;
        };
        let number = one.json()["messages"].as_array().unwrap().len();
        let messages = body["messages"].as_array().unwrap();
        let turn = messages.iter().find(|message| message["tool_calls"][0]["id"] == *call);
        let turn = turn.unwrap_or_else(|| panic!("{call}: {}", said()));
        assert_eq!(
            turn["reasoning_content"],
            format!("Kimi thinks about {number} messages."),
            "{call}: {}",
            said()
        );
    }
}

/// Returns ids of calls and of results in a request.
fn ids(exchange: &Exchange) -> (Vec<String>, Vec<String>) {
    let body = exchange.json();
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    let mut push = |list: bool, id: &Value| {
        let id = id.as_str().unwrap_or_default().to_owned();
        if list { calls.push(id) } else { results.push(id) }
    };
    let each = |value: &Value| value.as_array().cloned().unwrap_or_default();
    match exchange.maker {
        Maker::OpenAi => {
            for item in each(&body["input"]) {
                match item["type"].as_str() {
                    Some("function_call") => push(true, &item["call_id"]),
                    Some("function_call_output") => push(false, &item["call_id"]),
                    _ => {}
                }
            }
        }
        Maker::Kimi => {
            for message in each(&body["messages"]) {
                each(&message["tool_calls"]).iter().for_each(|call| push(true, &call["id"]));
                if message["role"] == "tool" {
                    push(false, &message["tool_call_id"]);
                }
            }
        }
        Maker::Anthropic | Maker::Bedrock | Maker::Nova | Maker::Gemini => {
            let (list, inner) = match exchange.maker {
                Maker::Gemini => ("contents", "parts"),
                _ => ("messages", "content"),
            };
            for block in each(&body[list]).iter().flat_map(|turn| each(&turn[inner])) {
                for (is_call, id) in [
                    (true, block.pointer("/toolUse/toolUseId")),
                    (false, block.pointer("/toolResult/toolUseId")),
                    (true, block.pointer("/functionCall/id")),
                    (false, block.pointer("/functionResponse/id")),
                    (true, block.get("id").filter(|_| block["type"] == "tool_use")),
                    (false, block.get("tool_use_id")),
                ] {
                    id.into_iter().for_each(|id| push(is_call, id));
                }
            }
        }
    }
    (calls, results)
}

fn check_ids(before: &[Exchange], exchange: &Exchange, said: &dyn Fn() -> String) {
    let (calls, results) = ids(exchange);
    let unique: HashSet<&String> = calls.iter().collect();
    assert_eq!(unique.len(), calls.len(), "ids are unique: {}", said());
    assert_eq!(calls, results, "each call has its result: {}", said());
    let (most, others) = match exchange.maker {
        Maker::Anthropic => (64, ""),
        Maker::OpenAi | Maker::Bedrock | Maker::Nova => (64, ".:"),
        Maker::Gemini | Maker::Kimi => (256, ".:"),
    };
    for id in &calls {
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c) || others.contains(c);
        assert!((1..=most).contains(&id.len()) && id.chars().all(fits), "{id}: {}", said());
    }
    // A provider gets its own ids back.
    for one in before.iter().filter(|one| one.maker == exchange.maker) {
        let answered = String::from_utf8_lossy(&one.answered);
        let own = match exchange.maker {
            Maker::OpenAi => values(&answered, &["call_id"]),
            Maker::Bedrock | Maker::Nova => values(&answered, &["toolUseId"]),
            Maker::Anthropic => values(&answered, &["id"]),
            Maker::Gemini | Maker::Kimi => values(&answered, &["id"]),
        };
        for id in own.iter().filter(|id| !["msg_", "cmpl-"].iter().any(|start| id.starts_with(start))) {
            assert!(calls.contains(id), "{id} of {:?} is {calls:?}: {}", exchange.maker, said());
        }
    }
}

/// Returns the text of a member of a body that is an array or an object.
fn member<'t>(text: &'t str, name: &str) -> &'t str {
    let Some(at) = text.find(&format!("\"{name}\":")) else { return "" };
    let text = text[at + name.len() + 3..].trim_start();
    let (mut depth, mut in_string, mut escaped) = (0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            '[' | '{' if !in_string => depth += 1,
            ']' | '}' if !in_string => {
                depth -= 1;
                if depth == 0 {
                    return &text[..=at];
                }
            }
            _ => {}
        }
    }
    text
}

/// Asserts that the conversation of one request continues that of an earlier one, byte for byte.
fn check_prefix(label: &str, earlier: &Exchange, later: &Exchange) {
    let list = match earlier.maker {
        Maker::OpenAi => "input",
        Maker::Gemini => "contents",
        _ => "messages",
    };
    let [one, other] = [earlier, later].map(|exchange| member(exchange.text(), list));
    // The last turn may go on.
    let begun = one.trim_end_matches([']', '}']);
    if !other.starts_with(begun) {
        let same = begun.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
        let from = (0..=same.saturating_sub(300)).rev().find(|at| begun.is_char_boundary(*at)).unwrap();
        panic!("{label}: the prefix changes at {same}:\n{}\nbecomes\n{}", &begun[from..], &other[from..]);
    }
    for name in ["tools", "system", "systemInstruction", "toolConfig"] {
        let [one, other] = [earlier, later].map(|exchange| member(exchange.text(), name));
        assert_eq!(one, other, "{label}: {name}");
    }
}
