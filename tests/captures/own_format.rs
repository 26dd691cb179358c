//! Recorded requests, encoded again in the format that they came in: what the canonical model does not know is still
//! there.

use std::collections::BTreeMap;

use model_gateway::canonical::dialect::ReasoningSupport;
use model_gateway::canonical::{Dialect, Effort, Thinking};
use model_gateway::json::{EscapedString, JsonText};
use model_gateway::translate::{TranslateRequest, outgoing};
use model_gateway::wire::{Api, Format};
use serde_json::Value;

use super::recordings;

/// Values that stand elsewhere or in another form in the request that is encoded again, by format: the last member of
/// their path. docs/translation.md names them.
const ELSEWHERE: &[(Format, &[&str])] =
    &[(Format::Messages, &["model", "stream", "display", "anthropic_version", "anthropic_beta"])];

/// Values that mean the same as none, and texts that the format refuses. One text may stand for a list with one text.
const NOTHING: [&str; 7] = [
    "description=\"\"",
    "is_error=false",
    "text=\" \"",
    "text=\"\"",
    "top_k=-1",
    "top_p=-1",
    "type=\"text\"",
];

/// Collects the values of a document: texts by themselves, because a text may become a list with one text, and all others
/// with the name of their member.
fn leaves(value: &Value, name: &str, found: &mut BTreeMap<String, usize>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| leaves(value, name, found)),
        Value::Array(list) => list.iter().for_each(|value| leaves(value, name, found)),
        // Absent and null are the same.
        Value::Null => {}
        leaf => {
            let is_text = matches!(name, "text" | "content" | "system");
            let key = if is_text { format!("text={leaf}") } else { format!("{name}={leaf}") };
            *found.entry(key).or_default() += 1;
        }
    }
}

fn dialect<'d>(model: &'d str, request: &Value) -> Dialect<'d> {
    let reasoning = match request["thinking"]["type"].as_str() {
        Some("enabled") => ReasoningSupport::Budget { min: 1, max: u64::MAX, off: true },
        _ => ReasoningSupport::adaptive(Effort::Max, true),
    };
    Dialect { reasoning, prefill: true, max_output: u64::MAX, ..Dialect::plain(model, "own") }
}

#[test]
fn recorded_request_that_is_encoded_again_in_its_format_loses_nothing() {
    let mut lost: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut checked = 0;
    for recording in recordings() {
        let (Some(request), Api::Messages) = (&recording.request, recording.api) else { continue };
        let format = Format::Messages;
        let model = request["model"].as_str().unwrap_or_default();
        let text = JsonText::from(request.to_string());
        let sent = outgoing(
            &text,
            &TranslateRequest {
                client: format,
                provider: format,
                stream: request["stream"] == true,
                array: false,
                thinking: Thinking::Unset,
                dialect: &dialect(model, request),
                model: &EscapedString::from(model),
                id: "r",
                seed: "r",
                now: 0,
            },
        );
        // A request that the format's own rules refuse.
        let Ok(sent) = sent else { continue };
        checked += 1;
        let sent: Value = serde_json::from_slice(&sent.text()).unwrap();
        let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
        leaves(request, "", &mut before);
        leaves(&sent, "", &mut after);
        let elsewhere = ELSEWHERE.iter().filter(|(of, _)| *of == format).flat_map(|(_, names)| *names);
        let is_elsewhere = |leaf: &str| {
            NOTHING.contains(&leaf) || elsewhere.clone().any(|name| leaf.starts_with(&format!("{name}=")))
        };
        for (leaf, count) in before {
            if after.get(&leaf).copied().unwrap_or_default() < count && !is_elsewhere(&leaf) {
                let leaf: String = leaf.chars().take(80).collect();
                lost.entry(leaf).or_insert((0, recording.name.clone())).0 += 1;
            }
        }
    }
    assert!(lost.is_empty(), "of {checked} requests: {lost:#?}");
}
