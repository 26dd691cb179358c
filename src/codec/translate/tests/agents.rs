//! What agents and SDKs send, to providers of every format: results of tools, turns that broke off, tools that the
//! provider runs.

use serde_json::{Value, json};

use super::requests::{sent, translated};
use crate::error::ApiError;
use crate::provider::ProviderKind;
use crate::translate::PromptCaching;
use crate::wire::Format;

type Target = (ProviderKind, &'static str, Format);

const CHAT: Target = (ProviderKind::OpenAi, "gpt-4.1", Format::Chat);
const MESSAGES: Target = (ProviderKind::Anthropic, "claude-sonnet-4-5", Format::Messages);
const RESPONSES: Target = (ProviderKind::OpenAi, "gpt-5.2", Format::Responses);
const GENERATE: Target = (ProviderKind::Gemini, "gemini-2.5-flash", Format::Generate);
const CONVERSE: Target = (ProviderKind::Bedrock, "anthropic.claude-sonnet-4-5-v1:0", Format::Converse);
const ALL: [Target; 5] = [CHAT, MESSAGES, RESPONSES, GENERATE, CONVERSE];

fn to((kind, model, to): Target, from: Format, body: &Value) -> (Value, Vec<String>) {
    sent(kind, model, from, to, body)
}

fn refused((kind, model, to): Target, from: Format, body: &Value) -> ApiError {
    translated(PromptCaching::default(), None, kind, model, [from, to], body).unwrap_err().error
}

/// Returns the result of the last tool call, as the provider gets it.
fn result(format: Format, body: &Value) -> Value {
    let find = |list: &Value, is_result: &dyn Fn(&Value) -> bool| -> Value {
        list.as_array().unwrap().iter().rev().find(|item| is_result(item)).cloned().unwrap()
    };
    match format {
        Format::Chat => find(&body["messages"], &|message| message["role"] == "tool"),
        Format::Responses => find(&body["input"], &|item| item["type"] == "function_call_output"),
        Format::Messages => {
            let turn = body["messages"].as_array().unwrap().last().unwrap();
            find(&turn["content"], &|block| block["type"] == "tool_result")
        }
        Format::Converse => {
            let turn = body["messages"].as_array().unwrap().last().unwrap();
            find(&turn["content"], &|block| block["toolResult"].is_object())
        }
        Format::Generate => {
            let turn = body["contents"].as_array().unwrap().last().unwrap();
            find(&turn["parts"], &|part| part["functionResponse"].is_object())
        }
    }
}

/// Returns a request of Converse with a call and its result.
fn converse(call: Value, result: Value) -> Value {
    json!({"messages": [
        {"role": "user", "content": [{"text": "hi"}]},
        {"role": "assistant", "content": [{"toolUse": call}]},
        {"role": "user", "content": [{"toolResult": result}]},
    ], "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]}})
}

fn call() -> Value {
    json!({"toolUseId": "t1", "name": "f", "input": {"city": "Oslo"}})
}

#[test]
fn mapping_3_call_marked_tool_use_is_the_clients() {
    let mut marked = call();
    marked["type"] = json!("tool_use");
    let with = |call: Value, result_type: Option<&str>| {
        let mut result = json!({"toolUseId": "t1", "content": [{"text": "5"}]});
        if let Some(kind) = result_type {
            result["type"] = json!(kind);
        }
        converse(call, result)
    };
    for target in ALL {
        let (plain, _) = to(target, Format::Converse, &with(call(), None));
        assert!(plain.to_string().contains("Oslo"));
        for kind in [None, Some("tool_result"), Some("tool_use")] {
            let (sent, losses) = to(target, Format::Converse, &with(marked.clone(), kind));
            assert_eq!((sent, losses), (plain.clone(), Vec::new()), "{kind:?} {}", target.2);
        }
    }
    // What the provider ran itself means nothing to another.
    let mut server = call();
    server["type"] = json!("server_tool_use");
    let (sent, losses) = to(CHAT, Format::Converse, &with(server, Some("nova_grounding_result")));
    assert!(!sent.to_string().contains("Oslo") && losses.contains(&"server_tool_block".to_owned()), "{sent}");
}

#[test]
fn mapping_3_text_and_json_of_a_result_are_kept_in_their_order() {
    for (content, expected) in [
        (json!([{"text": "Cold."}, {"json": {"d": 5}}]), ["Cold.", r#"{"d":5}"#].as_slice()),
        (json!([{"json": {"d": 5}}, {"text": "Cold."}]), &[r#"{"d":5}"#, "Cold."]),
        (json!([{"json": {"d": 5}}, {"json": {"w": "\"x\""}}]), &[r#"{"d":5}"#, r#"{"w":"\"x\""}"#]),
        (json!([{"text": "a"}, {"json": [1]}, {"text": "b"}, {"json": {}}]), &["a", "[1]", "b", "{}"]),
    ] {
        for target in ALL {
            let body = converse(call(), json!({"toolUseId": "t1", "content": content}));
            let (sent, losses) = to(target, Format::Converse, &body);
            let result = result(target.2, &sent);
            if target.2 == Format::Converse {
                assert_eq!(result["toolResult"]["content"], content);
                continue;
            }
            let said = match target.2 {
                Format::Generate => result["functionResponse"]["response"]["output"].clone(),
                Format::Responses => result["output"].clone(),
                _ => result["content"].clone(),
            };
            let texts: Vec<String> = match &said {
                Value::String(text) => text.split('\n').map(str::to_owned).collect(),
                parts => parts
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|part| part["text"].as_str().unwrap().into())
                    .collect(),
            };
            assert_eq!(texts, expected, "{}", target.2);
            assert!(losses.is_empty(), "{losses:?}");
        }
    }
}

#[test]
fn mapping_3_failed_result_without_content_says_so() {
    let messages = |content: Value| {
        json!({"max_tokens": 99, "tools": [{"name": "f", "input_schema": {"type": "object"}}], "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "is_error": true, "content": content}]}]})
    };
    let generate = json!({"contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"functionCall": {"id": "t1", "name": "f", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"id": "t1", "name": "f", "response": {"error": ""}}}]}]});
    let bodies = [
        (Format::Converse, converse(call(), json!({"toolUseId": "t1", "status": "error", "content": []}))),
        (
            Format::Converse,
            converse(call(), json!({"toolUseId": "t1", "status": "error", "content": [{"text": " "}]})),
        ),
        (
            Format::Converse,
            converse(
                call(),
                json!({"toolUseId": "t1", "status": "error", "content": [{"text": ""}, {"text": "\n"}]}),
            ),
        ),
        (Format::Messages, messages(json!([]))),
        (Format::Messages, messages(json!(" \n"))),
        (Format::Messages, messages(json!([{"type": "unknown_result"}]))),
        (Format::Messages, messages(json!([{"type": "text", "text": ""}]))),
        (Format::Generate, generate),
    ];
    for (from, body) in bodies {
        for target in ALL {
            // The provider of the format decides about what only it knows.
            if from == target.2 && (from == Format::Generate || body.to_string().contains("unknown_result")) {
                continue;
            }
            let (sent, _) = to(target, from, &body);
            let result = result(target.2, &sent);
            let expected = match target.2 {
                Format::Chat => json!({"role": "tool", "tool_call_id": "t1", "content": "error"}),
                Format::Responses => {
                    json!({"type": "function_call_output", "call_id": "t1", "output": "error"})
                }
                Format::Messages => {
                    json!({"type": "tool_result", "tool_use_id": "t1", "content": "error", "is_error": true})
                }
                Format::Converse => {
                    json!({"toolResult": {"toolUseId": "t1", "content": [{"text": "error"}], "status": "error"}})
                }
                Format::Generate => {
                    json!({"functionResponse": {"id": "t1", "name": "f", "response": {"error": "error"}}})
                }
            };
            assert_eq!(result, expected, "{from} to {}", target.2);
        }
    }
}

#[test]
fn mapping_3_pictures_of_a_failed_result_follow_it_for_anthropic() {
    let picture = json!({"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}});
    let body = converse(
        call(),
        json!({"toolUseId": "t1", "status": "error", "content": [{"text": "late"}, picture]}),
    );
    let (sent, _) = to(MESSAGES, Format::Converse, &body);
    let blocks = sent["messages"][2]["content"].as_array().unwrap();
    assert_eq!(
        blocks[0],
        json!({"type": "tool_result", "tool_use_id": "t1", "content": "late", "is_error": true})
    );
    assert_eq!((blocks.len(), &blocks[1]["type"]), (2, &json!("image")));
}

/// Returns the turns of two parallel calls, with pictures and texts between their results.
fn divided_results(format: Format) -> Value {
    let url = "data:image/png;base64,iVBORw0KGgo=";
    match format {
        Format::Chat => json!({"messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c2", "content": "two"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]},
            {"role": "user", "content": "and"},
            {"role": "tool", "tool_call_id": "c1", "content": "one"},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}),
        Format::Responses => json!({"input": [
            {"role": "user", "content": "hi"},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c2", "output": "two"},
            {"role": "user", "content": [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "and"}]},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {"role": "user", "content": [{"type": "input_image", "image_url": url}]}]}),
        Format::Messages => {
            let picture = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}});
            json!({"max_tokens": 99, "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "c1", "name": "f", "input": {}}, {"type": "tool_use", "id": "c2", "name": "g", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c2", "content": "two"}, picture]},
            {"role": "user", "content": "and"},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "one"}, picture]}]})
        }
        _ => {
            let picture = json!({"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}});
            json!({"messages": [
            {"role": "user", "content": [{"text": "hi"}]},
            {"role": "assistant", "content": [
                {"toolUse": {"toolUseId": "c1", "name": "f", "input": {}}}, {"toolUse": {"toolUseId": "c2", "name": "g", "input": {}}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "c2", "content": [{"text": "two"}]}}, picture]},
            {"role": "user", "content": [{"text": "and"}, {"toolResult": {"toolUseId": "c1", "content": [{"text": "one"}]}}, picture]}]})
        }
    }
}

#[test]
fn mapping_1_results_of_parallel_calls_are_one_content_for_gemini() {
    for from in [Format::Chat, Format::Messages, Format::Responses, Format::Converse] {
        let (sent, losses) = to(GENERATE, from, &divided_results(from));
        let contents = sent["contents"].as_array().unwrap();
        let kinds = |content: &Value| -> Vec<String> {
            let parts = content["parts"].as_array().unwrap();
            parts.iter().flat_map(|part| part.as_object().unwrap().keys().take(1).cloned()).collect()
        };
        assert_eq!(kinds(&contents[2]), ["functionResponse", "functionResponse"], "{from}");
        let names = |at: usize| contents[2]["parts"][at]["functionResponse"]["name"].clone();
        assert_eq!((names(0), names(1)), (json!("f"), json!("g")), "{from}");
        assert_eq!(kinds(&contents[3]), ["inlineData", "text", "inlineData"], "{from}");
        assert_eq!((contents.len(), losses), (4, Vec::new()), "{from}");
    }
}

/// Returns an item of reasoning that the provider has signed.
fn reasoning() -> Value {
    let seal = base64_simd::URL_SAFE_NO_PAD.encode_to_string(b"c2lnbmF0dXJl");
    json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": format!("gw1.p.{seal}")})
}

#[test]
fn mapping_4_turn_of_reasoning_only_is_left_out() {
    let user = |text: &str| json!({"role": "user", "content": text});
    let answer = json!({"role": "assistant", "content": "yes"});
    let call = json!({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "c1", "output": "5"});
    for target in [MESSAGES, CONVERSE, RESPONSES, CHAT] {
        let hm = reasoning();
        let mut hidden = reasoning();
        hidden["summary"] = json!([]);
        let said = |items: &[&Value]| {
            let body = json!({"input": items, "reasoning": {"effort": "high"},
                "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]});
            to(target, Format::Responses, &body).0
        };
        let (a, b) = (user("a"), user("b"));
        let expected = said(&[&a]);
        for open in [&[&a, &hm][..], &[&a, &hidden], &[&a, &hm, &hm, &hidden]] {
            assert_eq!(said(open), expected, "{}", target.2);
        }
        assert_eq!(said(&[&a, &hm, &b]), said(&[&a, &b]), "{}", target.2);
        assert_eq!(said(&[&a, &answer, &hm, &b]), said(&[&a, &answer, &b]), "{}", target.2);
        assert_eq!(said(&[&a, &hm, &a, &answer, &b]), said(&[&a, &a, &answer, &b]), "{}", target.2);
        // Before a call or an answer it stays.
        for end in [&[&call, &output][..], &[&answer, &b]] {
            let with: Vec<&Value> = [&a, &hm].into_iter().chain(end.iter().copied()).collect();
            let sent = said(&with).to_string();
            // OpenAI's chat completions have no place for it.
            assert_eq!(sent.contains("c2lnbmF0dXJl"), target.2 != Format::Chat, "{sent}");
        }
    }
}

#[test]
fn mapping_3_choice_of_the_web_search_is_carried_or_dropped_with_a_warning() {
    let search = json!({"type": "web_search_20250305", "name": "web_search"});
    let mut body = json!({"max_tokens": 99, "messages": [{"role": "user", "content": "hi"}],
        "tools": [search], "tool_choice": {"type": "tool", "name": "web_search"}});
    let (sent, losses) = to(RESPONSES, Format::Messages, &body);
    assert_eq!((&sent["tool_choice"], losses), (&json!({"type": "web_search"}), Vec::new()));
    for target in [CHAT, GENERATE] {
        let (sent, losses) = to(target, Format::Messages, &body);
        assert!(!sent.to_string().contains("\"name\":\"web_search\""), "{sent}");
        assert!(losses.contains(&"tool_choice".to_owned()), "{} {losses:?}", target.2);
    }
    // Beside a function, the model may choose.
    body["tools"] = json!([search, {"name": "f", "input_schema": {"type": "object"}}]);
    let (sent, _) =
        to((ProviderKind::OpenAi, "gpt-4o-search-preview", Format::Chat), Format::Messages, &body);
    assert_eq!(sent.get("tool_choice"), None);
    // A function of that name is a function.
    body["tools"] = json!([{"name": "web_search", "input_schema": {"type": "object"}}]);
    assert_eq!(
        to(RESPONSES, Format::Messages, &body).0["tool_choice"],
        json!({"type": "function", "name": "web_search"})
    );
    let own =
        json!({"input": "hi", "tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}});
    assert_eq!(
        to(MESSAGES, Format::Responses, &own).0["tool_choice"],
        json!({"type": "tool", "name": "web_search"})
    );
    assert_eq!(to(RESPONSES, Format::Responses, &own).0["tool_choice"], json!({"type": "web_search"}));
    // The search over tools, which no other format has.
    let body = json!({"max_tokens": 99, "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}, {"name": "f", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "tool", "name": "tool_search_tool_regex"}});
    let (sent, losses) = to(RESPONSES, Format::Messages, &body);
    assert_eq!(sent.get("tool_choice"), None);
    assert!(losses.contains(&"tool_choice".to_owned()), "{losses:?}");
}

#[test]
fn mapping_3_image_generation_that_codex_offers_is_dropped_with_a_warning() {
    let shell = json!({"type": "function", "name": "exec_command", "parameters": {"type": "object"}});
    let mut body =
        json!({"input": "hi", "tools": [shell, {"type": "image_generation", "output_format": "png"}]});
    for choice in [json!("auto"), json!({"type": "image_generation"})] {
        body["tool_choice"] = choice;
        for target in [CHAT, MESSAGES, GENERATE, CONVERSE] {
            let (sent, losses) = to(target, Format::Responses, &body);
            let text = sent.to_string();
            assert!(text.contains("exec_command") && !text.contains("image_generation"), "{text}");
            assert!(losses.contains(&"tools.image_generation".to_owned()), "{losses:?}");
            assert_eq!(
                losses.contains(&"tool_choice".to_owned()),
                body["tool_choice"].is_object(),
                "{losses:?}"
            );
        }
    }
    body["tools"] = json!([{"type": "image_generation"}]);
    for target in [CHAT, MESSAGES, GENERATE, CONVERSE] {
        let (sent, _) = to(target, Format::Responses, &body);
        let members = ["tools", "tool_choice", "toolConfig"].map(|member| sent.get(member).is_some());
        assert_eq!(members, [false; 3], "{sent}");
    }
}

#[test]
fn mapping_12_search_results_and_citations_are_carried_between_messages_and_converse() {
    let converse = json!({"messages": [{"role": "user", "content": [
        {"text": "When?"},
        {"searchResult": {"source": "https://e.com/a", "title": "Ruby", "content": [{"text": "1995."}], "citations": {"enabled": true}}},
        {"document": {"format": "txt", "name": "Facts", "source": {"text": "Ruby, 1995."}, "citations": {"enabled": true}}}]}]});
    let messages = json!({"max_tokens": 99, "messages": [{"role": "user", "content": [
        {"type": "text", "text": "When?"},
        {"type": "search_result", "source": "https://e.com/a", "title": "Ruby", "content": [{"type": "text", "text": "1995."}], "citations": {"enabled": true}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Ruby, 1995."}, "title": "Facts", "citations": {"enabled": true}}]}]});
    let (sent, losses) = to(MESSAGES, Format::Converse, &converse);
    assert_eq!((&sent["messages"], losses), (&messages["messages"], Vec::new()));
    let (sent, losses) = to(CONVERSE, Format::Messages, &messages);
    assert_eq!((&sent["messages"], losses), (&converse["messages"], Vec::new()));
    for (from, body) in [(Format::Converse, &converse), (Format::Messages, &messages)] {
        let nova = (ProviderKind::Bedrock, "amazon.nova-pro-v1:0", Format::Converse);
        let others = [CHAT, RESPONSES, GENERATE, nova];
        for target in others.into_iter().filter(|target| target.2 != from) {
            let (sent, losses) = to(target, from, body);
            let text = sent.to_string();
            let at = |word: &str| text.find(word).unwrap_or_else(|| panic!("{word} in {text}"));
            assert!(at("https://e.com/a") < at("1995."), "{text}");
            assert!(losses.contains(&"search_result".to_owned()), "{losses:?}");
        }
    }
    // A cited passage of an earlier response asks for nothing.
    let cited = json!({"messages": [{"role": "user", "content": [{"text": "a"}, {"document": {"format": "txt", "name": "F", "source": {"text": "x"}}}]},
        {"role": "assistant", "content": [{"citationsContent": {"content": [{"text": "b"}], "citations": []}}]},
        {"role": "user", "content": [{"text": "c"}]}]});
    let sent = to(MESSAGES, Format::Converse, &cited).0.to_string();
    assert!(sent.contains("\"b\"") && !sent.contains("citations"), "{sent}");
}

#[test]
fn mapping_5_schema_of_the_models_own_members_is_structured_output() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "schema": schema});
    let body = json!({"messages": [{"role": "user", "content": [{"text": "hi"}]}],
        "additionalModelRequestFields": {"output_config": {"format": format, "effort": "low"}}});
    for (target, at) in [
        (CHAT, "/response_format/json_schema/schema"),
        (MESSAGES, "/output_config/format/schema"),
        (RESPONSES, "/text/format/schema"),
        (GENERATE, "/generationConfig/responseJsonSchema"),
    ] {
        let (sent, losses) = to(target, Format::Converse, &body);
        assert_eq!(sent.pointer(at), Some(&schema), "{} {sent}", target.2);
        assert!(!losses.iter().any(|lost| lost == "output_config"), "{losses:?}");
    }
    // The provider of the format gets what the client wrote, once.
    let (sent, _) = to(CONVERSE, Format::Converse, &body);
    assert_eq!(sent["additionalModelRequestFields"], body["additionalModelRequestFields"]);
    assert_eq!(sent.get("outputConfig"), None);
}

#[test]
fn mapping_4_members_of_the_model_are_read_as_sdks_send_them() {
    let sent = |target: Target, fields: Value| {
        let body = json!({"messages": [{"role": "user", "content": [{"text": "hi"}]}], "additionalModelRequestFields": fields,
            "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]}});
        to(target, Format::Converse, &body)
    };
    let thinking = json!({"type": "enabled", "budget_tokens": 2_048});
    for name in ["thinking", "reasoning_config"] {
        assert_eq!(sent(MESSAGES, json!({name: thinking})).0["thinking"], thinking);
        assert_eq!(sent(RESPONSES, json!({name: thinking})).0["reasoning"]["effort"], "low");
    }
    for fields in [json!({"top_k": 5}), json!({"topK": 5}), json!({"inferenceConfig": {"topK": 5}})] {
        assert_eq!(sent(MESSAGES, fields).0["top_k"], 5);
    }
    let single = json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}});
    assert_eq!(sent(RESPONSES, single.clone()).0["parallel_tool_calls"], false);
    assert_eq!(sent(CONVERSE, single.clone()).0["additionalModelRequestFields"], single);
    let (_, losses) = sent(CHAT, json!({"anthropic_beta": ["context-1m-2025-08-07"]}));
    assert_eq!(losses, ["anthropic_beta", "additionalModelRequestFields"]);
}

#[test]
fn mapping_2_address_in_the_storage_of_a_cloud_is_refused_where_it_cannot_be_read() {
    let at = |kind: &str, format: &str| json!({kind: {"format": format, "name": "n", "source": {"s3Location": {"uri": "s3://b/k"}}}});
    for (kind, format) in [("image", "png"), ("document", "pdf"), ("video", "mp4")] {
        let inside = [
            json!({"messages": [{"role": "user", "content": [{"text": "a"}, at(kind, format)]}]}),
            converse(call(), json!({"toolUseId": "t1", "content": [at(kind, format)]})),
        ];
        for body in inside {
            for target in [CHAT, MESSAGES, RESPONSES] {
                let error = refused(target, Format::Converse, &body);
                assert!(error.message.contains("s3://b/k"), "{kind} {}: {error:?}", target.2);
                assert_eq!(error.param.as_deref(), Some("s3Location"), "{}", target.2);
            }
            refused(GENERATE, Format::Converse, &body);
        }
    }
    let body = json!({"messages": [{"role": "user", "content": [{"text": "a"}, at("image", "png")]}]});
    assert_eq!(
        to(CONVERSE, Format::Converse, &body).0["messages"][0]["content"][1]["image"]["source"],
        json!({"s3Location": {"uri": "s3://b/k"}})
    );
    let google = json!({"contents": [{"role": "user", "parts": [{"fileData": {"mimeType": "image/png", "fileUri": "gs://b/k"}}]}]});
    assert_eq!(refused(CHAT, Format::Generate, &google).param.as_deref(), Some("image_url"));
}
