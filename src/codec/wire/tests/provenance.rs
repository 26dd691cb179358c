//! Tests of what a target of the client's own format gets: nothing that another provider signed, ids that it takes, and
//! all other bytes as they are.

use base64_simd::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::canonical::dialect::{ReasoningSupport, SamplingSupport};
use crate::canonical::{Dialect, RequestFeatures as Features, SealedSignature};
use crate::wire::Api;
use crate::wire::request::{Body, BodyReader};
use crate::wire::spelling::applied;
use json::JsonStr;

/// A target that refuses all that edits settle.
fn dialect() -> Dialect<'static> {
    Dialect {
        max_call_id: Some(64),
        sampling: SamplingSupport::None,
        reasoning: ReasoningSupport::Fixed,
        refuses: Features::ENVELOPE
            .with(Features::UNSIGNED)
            .with(Features::ODD_ID)
            .with(Features::OVERLONG_ID)
            .with(Features::IMAGE)
            .with(Features::ROOT_UNION)
            .with(Features::SAMPLING),
        signed_calls: true,
        ..Dialect::plain("m", "own")
    }
}

fn read(api: Api, body: &Value, piece: usize) -> Body {
    let mut reader = BodyReader::new(api, false);
    for piece in body.to_string().as_bytes().chunks(piece) {
        reader.push(Bytes::copy_from_slice(piece)).unwrap();
    }
    reader.finish().unwrap()
}

/// Returns what the target gets, however the body arrives.
fn sent(api: Api, body: &Value) -> Value {
    let whole = applied(&read(api, body, usize::MAX), &dialect());
    for piece in [1, 7, 64, 100] {
        assert_eq!(applied(&read(api, body, piece), &dialect()), whole, "{piece}");
    }
    serde_json::from_str(&whole).unwrap_or_else(|error| panic!("{error}: {whole}"))
}

fn envelope(issuer: &str, text: &str) -> String {
    let mut out = Vec::new();
    SealedSignature { issuer, text: JsonStr::from_escaped(text) }.write(&mut out);
    String::from_utf8(out).unwrap()
}

fn request(api: Api, conversation: Value) -> Value {
    match api {
        Api::Responses => json!({"model": "m", "input": conversation, "x": [1, {"y": null}]}),
        Api::Generate => json!({"contents": conversation, "x": [1, {"y": null}]}),
        Api::Converse => json!({"messages": conversation, "x": [1, {"y": null}]}),
        _ => json!({"model": "m", "max_tokens": 9, "messages": conversation, "x": [1, {"y": null}]}),
    }
}

#[test]
fn own_format_messages_signature_goes_to_its_issuer_only() {
    let block =
        |signature: &str| json!({"type": "thinking", "thinking": "hm", "signature": signature, "z": 1});
    let hidden = |data: &str| json!({"type": "redacted_thinking", "data": data});
    let text = json!({"type": "text", "text": "so", "citations": [{"a": 1}]});
    let turn = |blocks: Vec<Value>| {
        request(
            Api::Messages,
            json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": blocks}]),
        )
    };
    let body = turn(vec![
        block(&envelope("other", "S")),
        block(&envelope("own", "S")),
        block(""),
        block("gw1."),
        block("bare"),
        hidden(&envelope("other", "D")),
        hidden(&envelope("own", "D")),
        text.clone(),
    ]);
    assert_eq!(sent(Api::Messages, &body), turn(vec![block("S"), block("bare"), hidden("D"), text.clone()]));
    // Nothing but foreign reasoning: the encoder decides what stands in its place.
    let lone = read(Api::Messages, &turn(vec![block("gw1.x.eA")]), usize::MAX);
    assert!(lone.respelled(&dialect()).encode_again);
    // Beside a budget, the encoder drops the budget if a call has lost its reasoning.
    let mut budget = turn(vec![block("gw1.x.eA"), text]);
    budget["thinking"] = json!({"type": "enabled", "budget_tokens": 2000});
    assert!(!read(Api::Messages, &budget, usize::MAX).is_settled_by_edits(Features::ENVELOPE));
}

#[test]
fn own_format_ids_are_legal_and_pair() {
    let long = "call_".to_owned() + &"a1B2".repeat(30);
    let ids = ["toolu_1", "functions.f:0", &long, "x__gw1__generate__c2VhbA", "f_0__gw1id__own__Zi4w", "é"];
    let turn = |ids: &[String]| {
        let calls: Vec<Value> = ids
            .iter()
            .map(|id| json!({"type": "tool_use", "id": id, "name": "f", "input": {}, "caller": 1}))
            .collect();
        let results: Vec<Value> =
            ids.iter().map(|id| json!({"type": "tool_result", "tool_use_id": id, "content": "x"})).collect();
        request(
            Api::Messages,
            json!([{"role": "assistant", "content": calls}, {"role": "user", "content": results}]),
        )
    };
    let body = sent(Api::Messages, &turn(&ids.map(str::to_owned)));
    let made: Vec<String> = body["messages"][0]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(body, turn(&made));
    assert_eq!((&*made[0], &*made[3], &*made[4]), ("toolu_1", "x", "f.0"));
    let fits =
        |id: &String| id.len() <= 64 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    assert!(made.iter().enumerate().all(|(at, id)| at == 4 || fits(id)), "{made:?}");
    let mut distinct = made.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), made.len());
}

#[test]
fn own_format_responses_items_of_other_issuers_are_left_out() {
    let reasoning = |id: &str, seal: Value| json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": seal});
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "Let me.", "annotations": []}]});
    let call = |id: &str| json!({"type": "function_call", "id": "fc_1", "call_id": id, "name": "f", "arguments": "{}"});
    let result = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "x"});
    let body = request(
        Api::Responses,
        json!([
            reasoning("rs_1", json!(envelope("other", "E"))),
            reasoning("rs_of_text_9", json!(envelope("other", "T"))),
            message,
            call("a__gw1__generate__c2VhbA"),
            result("a__gw1__generate__c2VhbA"),
            reasoning("rs_2", json!(envelope("own", "E"))),
            reasoning("rs_3", json!("bare")),
            reasoning("rs_4", Value::Null),
            reasoning("rs_5", json!("gw1.")),
        ]),
    );
    let expected = request(
        Api::Responses,
        json!([
            message,
            call("a"),
            result("a"),
            reasoning("rs_2", json!("E")),
            reasoning("rs_3", json!("bare")),
            reasoning("rs_4", Value::Null),
        ]),
    );
    assert_eq!(sent(Api::Responses, &body), expected);
}

#[test]
fn own_format_generate_signature_of_another_model_becomes_the_documented_value() {
    let wrapped = |issuer| STANDARD.encode_to_string(envelope(issuer, "S"));
    let call = |seal: &str| json!({"functionCall": {"name": "f", "args": {}}, "thoughtSignature": seal});
    let bare = json!({"functionCall": {"name": "f", "args": {}}});
    let text = |seal: Option<&str>| match seal {
        Some(seal) => json!({"text": "a", "thoughtSignature": seal, "partMetadata": {"k": 1}}),
        None => json!({"text": "a", "partMetadata": {"k": 1}}),
    };
    let turn = |parts: Vec<Value>| {
        request(
            Api::Generate,
            json!([{"role": "user", "parts": [{"text": "q"}]}, {"role": "model", "parts": parts}]),
        )
    };
    let other = wrapped("other");
    let body = turn(vec![
        text(Some(&other)),
        call(&other),
        call(&other),
        text(Some(&wrapped("own"))),
        json!({"thoughtSignature": other}),
    ]);
    let skip = crate::wire::generate::SKIP;
    assert_eq!(sent(Api::Generate, &body), turn(vec![text(None), call(skip), bare, text(Some("S"))]));
}

#[test]
fn own_format_converse_reasoning_of_others_is_left_out() {
    let block = |signature: &str| json!({"reasoningContent": {"reasoningText": {"text": "hm", "signature": signature}}});
    let hidden = |blob: &str| json!({"reasoningContent": {"redactedContent": blob}});
    let blob = |issuer| STANDARD.encode_to_string(envelope(issuer, "QUJD"));
    let call = |id: &str| json!({"toolUse": {"toolUseId": id, "name": "f", "input": {}}});
    let result =
        |id: &str| json!({"toolResult": {"toolUseId": id, "content": [{"text": "x"}], "status": "success"}});
    let turn = |id: &str, blocks: Vec<Value>| {
        request(
            Api::Converse,
            json!([
        {"role": "assistant", "content": blocks}, {"role": "user", "content": [result(id)]}]),
        )
    };
    let id = "a__gw1__generate__c2VhbA";
    let mut blocks = vec![
        block(&envelope("other", "S")),
        block(""),
        block(&envelope("own", "S")),
        block("bare"),
        hidden(&blob("other")),
        hidden(&blob("own")),
        call(id),
    ];
    let body = sent(Api::Converse, &turn(id, std::mem::take(&mut blocks)));
    assert_eq!(body, turn("a", vec![block("S"), block("bare"), hidden("QUJD"), call("a")]));
}

/// Signatures at a host of several makers' models are those of the models that sign.
#[test]
fn own_format_converse_model_that_signs_nothing_gets_no_signature() {
    let target = Dialect { signs: false, refuses: Features::ENVELOPE.with(Features::SIGNED), ..dialect() };
    let block = |said: Value| json!({"reasoningContent": {"reasoningText": said}});
    let own = block(json!({"text": "hm"}));
    let text = json!({"text": "so"});
    let turn = |blocks: &[Value]| {
        request(
            Api::Converse,
            json!([{"role": "user", "content": [text]}, {"role": "assistant", "content": blocks}]),
        )
    };
    let body = turn(&[
        block(json!({"text": "hm", "signature": "bare"})),
        own.clone(),
        block(json!({"text": "hm", "signature": envelope("own", "S")})),
        json!({"reasoningContent": {"redactedContent": "QUJD"}}),
        text.clone(),
    ]);
    for piece in [usize::MAX, 1, 7, 64] {
        let read = read(Api::Converse, &body, piece);
        assert!(read.features(Features::SIGNED).intersects(Features::SIGNED), "{piece}");
        let sent: Value = serde_json::from_str(&applied(&read, &target)).unwrap();
        assert_eq!(sent, turn(&[own.clone(), text.clone()]), "{piece}");
    }
    let unsigned = turn(&[own, text.clone()]);
    let read = read(Api::Converse, &unsigned, usize::MAX);
    assert!(!read.features(Features::SIGNED).intersects(Features::SIGNED));
}

/// An id that has something of the gateway's, which cannot be read any more, becomes another one.
#[test]
fn own_format_id_with_a_broken_suffix_is_made_legal() {
    for id in ["a__gw1__x", "a__gw1__x__***", "a__gw1id__kimi__Ig"] {
        let call = json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
        let result = json!({"type": "tool_result", "tool_use_id": id, "content": "x"});
        let body = sent(
            Api::Messages,
            &request(
                Api::Messages,
                json!([{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]),
            ),
        );
        let made = body["messages"][0]["content"][0]["id"].as_str().unwrap();
        assert!(made.starts_with("call_") && !made.contains("gw1"), "{made}");
        assert_eq!(body["messages"][1]["content"][0]["tool_use_id"], made);
    }
}

#[test]
fn own_format_refused_elements_are_replaced() {
    let image = json!({"type": "image", "source": {"type": "url", "url": "https://x"}});
    let body = json!({"model": "m", "max_tokens": 9,
        "tools": [{"name": "f", "input_schema": {"anyOf": [{"properties": {"a": {}}}]}, "eager": 1}, {"name": "g", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": [image, {"type": "tool_result", "tool_use_id": "t", "content": [image]}]}]});
    let body = sent(Api::Messages, &body);
    let content = &body["messages"][0]["content"];
    assert_eq!((&content[0]["type"], &content[1]["content"][0]["type"]), (&json!("text"), &json!("text")));
    assert_eq!(body["tools"][0]["input_schema"]["properties"], json!({"a": {}}));
    assert_eq!(
        (&body["tools"][0]["eager"], &body["tools"][1]),
        (&json!(1), &json!({"name": "g", "input_schema": {"type": "object"}}))
    );

    let part = json!({"type": "input_image", "image_url": "https://x"});
    let body = json!({"model": "m", "temperature": 0.2, "top_p": 0.5,
        "tools": [{"type": "function", "name": "f", "parameters": {"oneOf": []}, "strict": false}],
        "input": [{"role": "user", "content": [part]}, {"type": "function_call_output", "call_id": "c", "output": [part]}]});
    let body = sent(Api::Responses, &body);
    assert_eq!((&body["temperature"], &body["top_p"]), (&Value::Null, &Value::Null));
    assert_eq!(body["input"][0]["content"][0]["type"], "input_text");
    assert_eq!(body["input"][1]["output"][0]["type"], "input_text");
    assert_eq!(body["tools"][0]["parameters"]["type"], "object");
}

#[test]
fn own_format_request_without_refused_elements_passes_unchanged() {
    let texts = "gw1. Z3cx __gw1__ signature system image oneOf";
    let body = request(
        Api::Messages,
        json!([
        {"role": "user", "content": [{"type": "text", "text": texts}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": texts, "signature": "EqQB/+=="},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"signature": "gw1.x.y", "id": "a.b", "oneOf": [{"type": "image"}]}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": texts}]}]),
    );
    for piece in [1, 64, usize::MAX] {
        let body = read(Api::Messages, &body, piece);
        let held = body.features(dialect().refuses).common(dialect().refuses);
        // A body in pieces may be taken for one that must be looked at; the look finds nothing.
        assert!(piece == 1 || held == Features::NONE, "{held:?}");
    }
    assert_eq!(sent(Api::Messages, &body), body);
}

#[test]
fn ids_of_encrypted_reasoning_are_no_ids_of_calls() {
    let long = "x".repeat(53);
    let held = |tool_calls: Value, result: &str| {
        let body = json!({"model": "m", "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "tool_calls": tool_calls,
                "reasoning_details": [{"type": "reasoning.encrypted", "id": format!("rs_{long}"), "data": "gAAA"}]},
            {"role": "tool", "tool_call_id": result, "content": "40"},
        ]});
        read(Api::Chat, &body, 50).features(Features::LONG_ID).common(Features::LONG_ID)
    };
    let call =
        |id: &str| json!([{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    assert_eq!(held(call("call_1"), "call_1"), Features::NONE);
    assert_eq!(held(call(&long), "call_1"), Features::LONG_ID);
    assert_eq!(held(call("call_1"), &long), Features::LONG_ID);
}

#[test]
fn own_format_unsigned_call_is_found_beside_signed_texts() {
    let body = request(
        Api::Generate,
        json!([
            {"role": "user", "parts": [{"text": "a"}]},
            {"role": "model", "parts": [{"text": "b", "thoughtSignature": "Q2E="}, {"text": "c", "thoughtSignature": "Q2I="}]},
            {"role": "user", "parts": [{"text": "d"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]},
        ]),
    );
    let sent = sent(Api::Generate, &body);
    assert!(sent["contents"][3]["parts"][0]["thoughtSignature"].is_string(), "{sent}");
    assert_eq!(sent["contents"][1], body["contents"][1]);
}

#[test]
fn own_format_chat_members_that_other_providers_added_to_messages_are_removed() {
    let turn = |added: Value| {
        let mut answer = json!({"role": "assistant", "content": "a", "refusal": null, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"reasoning\":1}"}}]});
        if let Some(members) = added.as_object() {
            answer.as_object_mut().unwrap().extend(members.clone());
            answer["tool_calls"][0]["extra_content"] = json!({"google": {"thought_signature": "S"}});
            answer["tool_calls"][0]["function"]["provider_specific_fields"] =
                json!({"thought_signature": "S"});
        }
        json!({"model": "m", "messages": [{"role": "user", "content": "q"}, answer,
            {"role": "tool", "tool_call_id": "c", "content": "reasoning"}], "x": [1, {"reasoning": null}]})
    };
    let added = json!({"reasoning_content": "hm", "reasoning": "hm", "reasoning_details": [{"data": "D"}],
        "thinking_blocks": [{"signature": "S"}], "provider_specific_fields": {"a": 1},
        "extra_content": {"google": {"thought_signature": "S"}}});
    let target = Dialect { refuses: Features::ENVELOPE.with(Features::MESSAGE_MEMBER), ..dialect() };
    let body = read(Api::Chat, &turn(added.clone()), usize::MAX);
    assert!(body.is_settled_by_edits(body.held(target.refuses, None)));
    let sent: Value = serde_json::from_str(&applied(&body, &target)).unwrap();
    assert_eq!(sent, turn(Value::Null));
    assert_eq!(body.respelled(&target).dropped, ["thinking_block", "thinking_signature"]);
    // A provider that wants reasoning back gets it under its own name.
    let wants = Dialect { reasoning_replay: true, ..target.clone() };
    let sent: Value = serde_json::from_str(&applied(&body, &wants)).unwrap();
    assert_eq!(sent["messages"][1]["reasoning_content"], "hm");
    assert!(sent["messages"][1].get("reasoning").is_none() && !sent.to_string().contains("\"S\""));
    // One that takes everything gets what the client sent.
    let open = Dialect { refuses: Features::ENVELOPE, ..target };
    assert_eq!(applied(&body, &open), turn(added).to_string());
}

#[test]
fn own_format_messages_reasoning_of_others_goes_unsigned_to_a_model_with_own_envelopes() {
    let block =
        |signature: &str| json!({"type": "thinking", "thinking": "hm", "signature": signature, "z": 1});
    let hidden = |data: &str| json!({"type": "redacted_thinking", "data": data});
    let text = json!({"type": "text", "text": "so"});
    let turn = |blocks: Vec<Value>| {
        let talk = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": blocks}]);
        let mut body = request(Api::Messages, talk);
        body["thinking"] = json!({"type": "enabled", "budget_tokens": 2000});
        body
    };
    let refuses = Features::SEALED.with(Features::SIGNED);
    let target = Dialect { own_envelopes: true, refuses, ..Dialect::plain("m", "own") };
    let body = turn(vec![
        block(&envelope("other", "S")),
        block(&envelope("own", "S")),
        block(""),
        block("gw1.no_issuer."),
        block("bare"),
        hidden(&envelope("other", "D")),
        hidden(&envelope("own", "D")),
        hidden("bare"),
        text.clone(),
    ]);
    for piece in [usize::MAX, 1, 7, 64] {
        let read = read(Api::Messages, &body, piece);
        // A budget is no reason to encode it again: no reasoning is lost.
        assert!(read.is_settled_by_edits(read.held(target.refuses, None)), "{piece}");
        let sent: Value = serde_json::from_str(&applied(&read, &target)).unwrap();
        let expected =
            vec![block(""), block("S"), block(""), block(""), block(""), hidden("D"), text.clone()];
        assert_eq!(sent, turn(expected), "{piece}");
    }
    // A bare signature alone is seen, too, in each of its places.
    for lone in [block("bare"), hidden("bare")] {
        let read = read(Api::Messages, &turn(vec![lone, text.clone()]), usize::MAX);
        assert_eq!(read.held(target.refuses, None), Features::SIGNED);
    }
    // A model that is not known may be Claude behind another gateway: what has no envelope stays.
    let unknown = Dialect { refuses: Features::SEALED, ..target };
    let sent = applied(&read(Api::Messages, &body, usize::MAX), &unknown);
    assert!(sent.contains("\"signature\":\"bare\"") && sent.contains("\"data\":\"bare\""), "{sent}");
}
