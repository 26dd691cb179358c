//! Prompt prefixes of generated conversations: what is sent up to the last cache mark of one request is sent again,
//! byte for byte, by the next one. Otherwise the provider's cache is written and never read.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::requests::made_with;
use crate::canonical::{BreakpointRule, BreakpointSupport, CachePolicy};
use crate::provider::ProviderKind;
use crate::translate::PromptCaching;
use crate::wire::request::BodyReader;
use crate::wire::{Api, Format};

const PIXEL: &str = "iVBORw0KGgo=";
const PAPER: &str = "JVBERi0xLjQKJSVFT0Y=";

fn rule() -> BreakpointRule {
    CachePolicy::Auto.rule(BreakpointSupport::full(0), true).unwrap()
}

/// Medium beside a text.
#[derive(Clone, Copy, Debug)]
enum Medium {
    None,
    Image,
    Document,
}

/// One exchange of a conversation: a user turn, the answer with its calls, their results and the answer to these.
#[derive(Clone, Debug)]
struct Exchange {
    text: String,
    medium: Medium,
    thinks: bool,
    calls: usize,
    result_has_image: bool,
    /// Instructions between this exchange and the next one.
    instructs: bool,
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let medium = prop_oneof![3 => Just(Medium::None), 1 => Just(Medium::Image), 1 => Just(Medium::Document)];
    ("[a-zé \"\\\\\n]{1,12}", medium, any::<bool>(), 0..4_usize, any::<bool>(), any::<bool>()).prop_map(
        |(text, medium, thinks, calls, result_has_image, instructs)| Exchange {
            text: format!("t{text}"),
            medium,
            thinks,
            calls,
            result_has_image,
            instructs,
        },
    )
}

/// Element of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    User,
    Answer,
    Results,
    LastAnswer,
    Instructions,
}

/// Returns the elements of a conversation, each with the index of its exchange.
fn parts(exchanges: &[Exchange]) -> Vec<(usize, Part)> {
    let mut parts = Vec::new();
    for (at, exchange) in exchanges.iter().enumerate() {
        parts.extend([(at, Part::User), (at, Part::Answer)]);
        if exchange.calls > 0 {
            parts.extend([(at, Part::Results), (at, Part::LastAnswer)]);
        }
        if exchange.instructs {
            parts.push((at, Part::Instructions));
        }
    }
    parts
}

fn messages_turn(exchange: &Exchange, at: usize, part: Part) -> Vec<Value> {
    let ids = (0..exchange.calls).map(|call| format!("toolu_{at}_{call}"));
    let image =
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}});
    let paper = json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PAPER}});
    let text = json!({"type": "text", "text": exchange.text});
    let one = |role: &str, content: Value| vec![json!({"role": role, "content": content})];
    match part {
        Part::User => one(
            "user",
            match exchange.medium {
                Medium::None => exchange.text.clone().into(),
                Medium::Image => json!([image, text]),
                Medium::Document => json!([text, paper]),
            },
        ),
        Part::Answer => {
            let mut blocks = Vec::new();
            if exchange.thinks {
                blocks.push(json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"}));
            }
            blocks.push(json!({"type": "text", "text": "Next."}));
            blocks.extend(
                ids.map(|id| json!({"type": "tool_use", "id": id, "name": "read", "input": {"p": at}})),
            );
            one("assistant", blocks.into())
        }
        Part::Results => {
            let result = |id: String| {
                let content = if exchange.result_has_image { json!([text, image]) } else { json!("done") };
                json!({"type": "tool_result", "tool_use_id": id, "content": content})
            };
            one("user", ids.map(result).collect())
        }
        Part::LastAnswer => one("assistant", json!("Done.")),
        Part::Instructions => one("system", json!("Be brief.")),
    }
}

fn chat_turn(exchange: &Exchange, at: usize, part: Part) -> Vec<Value> {
    let ids = (0..exchange.calls).map(|call| format!("call_{at}_{call}"));
    let text = json!({"type": "text", "text": exchange.text});
    let image = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PIXEL}")}});
    let paper = json!({"type": "file", "file": {"filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{PAPER}")}});
    match part {
        Part::User => vec![json!({"role": "user", "content": match exchange.medium {
            Medium::None => json!(exchange.text),
            Medium::Image => json!([image, text]),
            Medium::Document => json!([text, paper]),
        }})],
        Part::Answer => {
            let call = |id: String| json!({"id": id, "type": "function", "function": {"name": "read", "arguments": format!("{{\"p\":{at}}}")}});
            let calls: Vec<Value> = ids.map(call).collect();
            let mut turn = json!({"role": "assistant", "content": "Next."});
            if exchange.thinks {
                turn["reasoning_content"] = json!("hm");
            }
            if !calls.is_empty() {
                turn["tool_calls"] = calls.into();
            }
            vec![turn]
        }
        Part::Results => {
            ids.map(|id| json!({"role": "tool", "tool_call_id": id, "content": "done"})).collect()
        }
        Part::LastAnswer => vec![json!({"role": "assistant", "content": "Done."})],
        Part::Instructions => vec![json!({"role": "system", "content": "Be brief."})],
    }
}

fn responses_turn(exchange: &Exchange, at: usize, part: Part) -> Vec<Value> {
    let ids = (0..exchange.calls).map(|call| format!("call_{at}_{call}"));
    let text = json!({"type": "input_text", "text": exchange.text});
    let image = json!({"type": "input_image", "image_url": format!("data:image/png;base64,{PIXEL}")});
    let paper = json!({"type": "input_file", "filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{PAPER}")});
    let answer = |text: &str| json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
    match part {
        Part::User => {
            let content = match exchange.medium {
                Medium::None => json!([text]),
                Medium::Image => json!([image, text]),
                Medium::Document => json!([text, paper]),
            };
            vec![json!({"type": "message", "role": "user", "content": content})]
        }
        Part::Answer => {
            let mut items = Vec::new();
            if exchange.thinks {
                let summary = json!([{"type": "summary_text", "text": "hm"}]);
                items.push(json!({"type": "reasoning", "id": format!("rs_{at}"), "summary": summary, "encrypted_content": "c2ln"}));
            }
            items.push(answer("Next."));
            items.extend(ids.map(|id| json!({"type": "function_call", "call_id": id, "name": "read", "arguments": format!("{{\"p\":{at}}}")})));
            items
        }
        Part::Results => {
            let output = if exchange.result_has_image { json!([text, image]) } else { json!("done") };
            ids.map(|id| json!({"type": "function_call_output", "call_id": id, "output": output})).collect()
        }
        Part::LastAnswer => vec![answer("Done.")],
        Part::Instructions => vec![json!({"type": "message", "role": "developer", "content": "Be brief."})],
    }
}

fn generate_turn(exchange: &Exchange, at: usize, part: Part) -> Vec<Value> {
    let text = json!({"text": exchange.text});
    let data = |kind: &str, data: &str| json!({"inlineData": {"mimeType": kind, "data": data}});
    let turn = |role: &str, parts: Vec<Value>| vec![json!({"role": role, "parts": parts})];
    match part {
        Part::User => match exchange.medium {
            Medium::None => turn("user", vec![text]),
            Medium::Image => turn("user", vec![data("image/png", PIXEL), text]),
            Medium::Document => turn("user", vec![text, data("application/pdf", PAPER)]),
        },
        Part::Answer => {
            let mut parts = Vec::new();
            if exchange.thinks {
                parts.push(json!({"text": "hm", "thought": true}));
            }
            parts.push(json!({"text": "Next."}));
            parts.extend(
                (0..exchange.calls).map(|_| json!({"functionCall": {"name": "read", "args": {"p": at}}})),
            );
            turn("model", parts)
        }
        Part::Results => {
            let response = json!({"functionResponse": {"name": "read", "response": {"output": "done"}}});
            turn("user", vec![response; exchange.calls])
        }
        Part::LastAnswer => turn("model", vec![json!({"text": "Done."})]),
        // This format has no instructions between turns.
        Part::Instructions => Vec::new(),
    }
}

/// Returns the request of these elements.
fn request(format: Format, exchanges: &[Exchange], parts: &[(usize, Part)]) -> Value {
    let turn = match format {
        Format::Chat => chat_turn,
        Format::Messages => messages_turn,
        Format::Responses => responses_turn,
        Format::Generate => generate_turn,
        Format::Converse => unreachable!("no client of these tests"),
    };
    let mut turns: Vec<Value> =
        parts.iter().flat_map(|(at, part)| turn(&exchanges[*at], *at, *part)).collect();
    let schema = json!({"type": "object", "properties": {"p": {"type": "integer"}}});
    match format {
        Format::Chat => {
            turns.insert(0, json!({"role": "system", "content": "You are an agent."}));
            let function = json!({"name": "read", "parameters": schema});
            json!({"model": "m", "messages": turns, "tools": [{"type": "function", "function": function}]})
        }
        Format::Messages => {
            let tools = json!([{"name": "read", "input_schema": schema}, {"name": "rare", "input_schema": schema, "defer_loading": true}]);
            json!({"model": "m", "max_tokens": 9, "system": [{"type": "text", "text": "You are an agent."}], "messages": turns, "tools": tools})
        }
        Format::Responses => {
            let tools = json!([{"type": "function", "name": "read", "parameters": schema}]);
            json!({"model": "m", "instructions": "You are an agent.", "input": turns, "tools": tools, "store": false})
        }
        Format::Converse => unreachable!("no client of these tests"),
        Format::Generate => {
            let tools = json!([{"functionDeclarations": [{"name": "read", "parameters": schema}]}]);
            json!({"systemInstruction": {"parts": [{"text": "You are an agent."}]}, "contents": turns, "tools": tools})
        }
    }
}

#[derive(Deserialize)]
struct Sent<'s> {
    #[serde(borrow, default)]
    tools: Vec<&'s RawValue>,
    #[serde(borrow)]
    system: Option<&'s RawValue>,
    #[serde(borrow)]
    messages: Vec<SentMessage<'s>>,
}

#[derive(Deserialize)]
struct SentMessage<'s> {
    role: &'s str,
    #[serde(borrow)]
    content: &'s RawValue,
}

/// Returns the prompt as the provider caches it: the bytes of each block in its order without mark, and whether it has
/// one. A string is the same as one text block.
fn prompt(body: &str) -> Vec<(String, bool)> {
    let sent: Sent<'_> = serde_json::from_str(body).unwrap();
    let mut blocks = Vec::new();
    let mut add = |section: &str, raw: &str| {
        let plain = raw
            .replace(r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#, "")
            .replace(r#","cache_control":{"type":"ephemeral"}"#, "");
        blocks.push((format!("{section} {plain}"), plain != raw));
    };
    let mut add_content = |section: &str, content: &RawValue| {
        if content.get().starts_with('"') {
            return add(section, &format!(r#"{{"type":"text","text":{}}}"#, content.get()));
        }
        let list: Vec<&RawValue> = serde_json::from_str(content.get()).unwrap();
        list.iter().for_each(|block| add(section, block.get()));
    };
    for tool in sent.tools {
        add_content("tools", &RawValue::from_string(format!("[{}]", tool.get())).unwrap());
    }
    if let Some(system) = sent.system {
        add_content("system", system);
    }
    for (index, message) in sent.messages.iter().enumerate() {
        add_content(&format!("{index} {}", message.role), message.content);
    }
    blocks
}

/// Returns the body that the provider gets: translated, or forwarded with marks if `verbatim`.
fn sent(format: Format, verbatim: bool, body: &Value) -> String {
    if !verbatim {
        let caching = PromptCaching { breakpoints: Some(rule()), key: None };
        let pair = [format, Format::Messages];
        let made = made_with(caching, None, ProviderKind::Anthropic, "claude-opus-4-8", pair, body);
        return String::from_utf8(made.text().to_vec()).unwrap();
    }
    let mut reader = BodyReader::new(Api::Messages, false);
    reader.push(Bytes::from(body.to_string())).unwrap();
    let body = reader.finish().unwrap();
    let edits = body.breakpoints(&rule());
    let text = body.text.clone().edited(&edits.edits).into_contiguous();
    String::from_utf8(text.to_vec()).unwrap()
}

fn prefixes_stay(exchanges: &[Exchange]) -> Result<(), TestCaseError> {
    let parts = parts(exchanges);
    for (format, verbatim) in [
        (Format::Messages, true),
        (Format::Messages, false),
        (Format::Chat, false),
        (Format::Responses, false),
        (Format::Generate, false),
    ] {
        let mut before: Option<Vec<(String, bool)>> = None;
        let ends = (1..=parts.len()).filter(|end| matches!(parts[end - 1].1, Part::User | Part::Results));
        for end in ends {
            let now = prompt(&sent(format, verbatim, &request(format, exchanges, &parts[..end])));
            let marks = now.iter().filter(|block| block.1).count();
            prop_assert!((1..=4).contains(&marks), "{format}: {marks} marks");
            if let Some(before) = before {
                let last = before.iter().rposition(|block| block.1).unwrap();
                for (at, block) in before.iter().enumerate().take(last + 1) {
                    prop_assert_eq!(now.get(at).map(|block| &block.0), Some(&block.0), "{} {}", format, at);
                }
                prop_assert!(now[last].1, "{format}: no mark at the end of what was written");
            }
            before = Some(now);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn caching_prefix_of_every_request_is_in_the_next_one(exchanges in vec(exchange(), 1..7)) {
        prefixes_stay(&exchanges)?;
    }
}
