//! Tests of the stream encoder.

use super::*;
use crate::canonical::Citation;
use json::RawJson;

#[test]
fn text_has_all_events_of_the_grammar() {
    let frames = write(reply(), &said("Hi\\n", Finish::Stop));
    assert_eq!(
        frames.names(),
        [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ]
    );
    let id = &frames.of("output_item.added")[0]["item"]["id"];
    for frame in &frames.0[3..7] {
        assert_eq!(
            (&frame["item_id"], &frame["output_index"], &frame["content_index"]),
            (id, &0.into(), &0.into())
        );
    }
    assert_eq!(frames.of("output_text.delta")[0]["logprobs"], Value::Array(vec![]));
    assert_eq!(frames.of("output_text.done")[0]["text"], "Hi\n");
    assert_eq!(frames.of("content_part.done")[0]["part"]["text"], "Hi\n");
    let item = &frames.of("output_item.done")[0]["item"];
    assert_eq!(
        (&item["id"], &item["status"], &item["content"][0]["text"]),
        (id, &"completed".into(), &"Hi\n".into())
    );
    // The terminal event repeats everything; Codex reads the output there (docs/provider-facts.md, client 1, bug 24).
    assert_eq!(&frames.output()[0], item);
    assert_eq!(frames.last()["response"]["usage"]["total_tokens"], 5);
    assert_eq!(frames.of("created")[0]["response"]["status"], "in_progress");
    assert_eq!(frames.of("created")[0]["response"]["output"], Value::Array(vec![]));
}

#[test]
fn stream_encoding_is_deterministic() {
    let out = |events: &[Event<'_>]| {
        let mut encoder = stream::Encoder::new(Arc::new(reply()));
        let mut out = BytesMut::new();
        events.iter().for_each(|event| encoder.event(event, &mut out));
        out
    };
    let events = said("Hi", Finish::Stop);
    assert_eq!(out(&events), out(&events));
}

#[test]
fn response_echoes_the_request_with_its_own_id_and_model() {
    let mut said_so = reply();
    said_so.echo = r#""temperature":0.5,"tools":[{"type":"function","name":"f"}],"id":"forged","metadata":{"k":"v"},"x":1"#.into();
    let frames = write(said_so, &said("Hi", Finish::Stop));
    for name in ["created", "in_progress", "completed"] {
        let response = &frames.of(name)[0]["response"];
        assert_eq!(response["id"], "resp_9x");
        assert_eq!((&response["model"], &response["created_at"]), (&"the model".into(), &5.into()));
        assert_eq!((&response["temperature"], &response["metadata"]["k"]), (&0.5.into(), &"v".into()));
        assert_eq!(response["tools"][0]["name"], "f");
        // Members that SDKs require, though the request omits them.
        assert_eq!(
            (&response["parallel_tool_calls"], &response["tool_choice"]),
            (&true.into(), &"auto".into())
        );
        assert_eq!(response["text"]["format"]["type"], "text");
        assert!(response.get("x").is_none());
        for member in ["error", "incomplete_details", "instructions", "previous_response_id", "top_p", "user"]
        {
            assert!(response[member].is_null() && response.get(member).is_some(), "{member}");
        }
    }
}

#[test]
fn text_blocks_in_a_row_are_parts_of_one_message() {
    let frames = write(
        reply(),
        &[
            start(),
            begin(0, BlockKind::Text),
            text(0, "a"),
            stop(0),
            begin(1, BlockKind::Text),
            stop(1),
            begin(2, BlockKind::Refusal),
            text(2, "b"),
            stop(2),
            finish(Finish::Stop),
            Event::End,
        ],
    );
    let [message] = &frames.output()[..] else { panic!("{:?}", frames.output()) };
    assert_eq!(message["content"][0]["text"], "a");
    assert_eq!(message["content"][1], serde_json::json!({"type": "refusal", "refusal": "b"}));
    assert_eq!(frames.of("refusal.delta")[0]["content_index"], 1);
    assert_eq!(frames.of("refusal.done")[0]["refusal"], "b");
    assert_eq!(frames.of("output_item.added").len(), 1);
}

#[test]
fn tool_calls_are_added_filled_and_done() {
    let frames = write(
        reply(),
        &[
            start(),
            begin(0, BlockKind::Text),
            text(0, "Let me see."),
            stop(0),
            begin(1, tool("call_1", "f")),
            add(1, Delta::Arguments(s("{\\\"a\\\":"))),
            add(1, Delta::Arguments(s("1}"))),
            stop(1),
            begin(2, tool("call_2", "g")),
            stop(2),
            finish(Finish::ToolUse),
            Event::End,
        ],
    );
    // The message is completed before the call is announced.
    let names = frames.names();
    let at = |name: &str| names.iter().position(|known| *known == name).unwrap();
    assert!(at("output_item.done") < at("function_call_arguments.delta"));
    let added: Vec<_> =
        frames.of("output_item.added").iter().map(|frame| frame["output_index"].clone()).collect();
    assert_eq!(added, [0, 1, 2]);
    let done = frames.of("function_call_arguments.done");
    assert_eq!((&done[0]["name"], &done[0]["arguments"]), (&"f".into(), &"{\"a\":1}".into()));
    // Missing arguments are written as an empty object, also in the delta.
    assert_eq!(done[1]["arguments"], "{}");
    assert_eq!(frames.of("function_call_arguments.delta").last().unwrap()["delta"], "{}");
    let call = &frames.output()[1];
    assert_eq!(
        (&call["type"], &call["call_id"], &call["name"], &call["status"]),
        (&"function_call".into(), &"call_1".into(), &"f".into(), &"completed".into())
    );
    assert!(call["id"].as_str().unwrap().starts_with("fc_"));
    assert_eq!(frames.last()["type"], "response.completed");
}

#[test]
fn bug_11_tool_call_argument_object_is_escaped_once() {
    let frames = write(
        reply(),
        &[
            start(),
            begin(0, tool("c", "f")),
            add(0, Delta::Object(RawJson::from_text("{ \"a\" : \"x \\\"y\\\"\" }"))),
            stop(0),
            finish(Finish::ToolUse),
            Event::End,
        ],
    );
    assert_eq!(frames.output()[0]["arguments"], r#"{"a":"x \"y\""}"#);
}

#[test]
fn client_1_namespaces_and_custom_tool_calls_are_encoded() {
    let custom =
        BlockKind::ToolUse { id: s("c"), name: s("apply_patch"), kind: ToolKind::Custom, namespace: s("") };
    let grouped =
        BlockKind::ToolUse { id: s("d"), name: s("f"), kind: ToolKind::Function, namespace: s("mcp__x") };
    let frames = write(
        reply(),
        &[
            start(),
            begin(0, custom),
            add(0, Delta::Arguments(s("*** Begin"))),
            stop(0),
            begin(1, grouped),
            stop(1),
            finish(Finish::ToolUse),
            Event::End,
        ],
    );
    let output = frames.output();
    assert_eq!((&output[0]["type"], &output[0]["input"]), (&"custom_tool_call".into(), &"*** Begin".into()));
    assert_eq!(frames.of("custom_tool_call_input.done")[0]["input"], "*** Begin");
    assert_eq!(output[1]["namespace"], "mcp__x");
}

#[test]
fn bug_05_tool_calls_in_parallel_are_separate_items() {
    let frames = write(
        reply(),
        &[
            start(),
            begin(0, tool("a", "f")),
            add(0, Delta::Arguments(s("{"))),
            begin(1, tool("b", "g")),
            add(1, Delta::Arguments(s("{"))),
            add(0, Delta::Arguments(s("}"))),
            stop(0),
            add(1, Delta::Arguments(s("}"))),
            stop(1),
            finish(Finish::ToolUse),
            Event::End,
        ],
    );
    let places: Vec<_> = frames
        .of("function_call_arguments.delta")
        .iter()
        .map(|frame| frame["output_index"].clone())
        .collect();
    assert_eq!(places, [0, 1, 0, 1]);
    assert_eq!(frames.output().iter().map(|item| &item["arguments"]).collect::<Vec<_>>(), ["{}", "{}"]);
}

#[test]
fn reasoning_is_a_summary_with_an_enveloped_signature() {
    let events = [
        start(),
        begin(0, BlockKind::Reasoning),
        text(0, "Hmm."),
        add(0, Delta::Signature(s("EqQB\\/"))),
        stop(0),
        begin(1, BlockKind::HiddenReasoning),
        add(1, Delta::Signature(s("secret"))),
        stop(1),
        begin(2, BlockKind::Reasoning),
        stop(2),
        finish(Finish::Stop),
        Event::End,
    ];
    let frames = write(reply(), &events);
    let [shown, hidden] = &frames.output()[..] else { panic!("{:?}", frames.output()) };
    assert_eq!(shown["summary"], serde_json::json!([{"type": "summary_text", "text": "Hmm."}]));
    assert!(shown["encrypted_content"].as_str().unwrap().starts_with("gw1.provider."));
    assert_eq!((&hidden["type"], &hidden["summary"]), (&"reasoning".into(), &Value::Array(vec![])));
    assert_eq!(
        frames.names()[2..8],
        [
            "output_item.added",
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
        ]
    );
    // A client that did not ask for reasoning gets no text, but a signature that it can send back.
    let frames = write(ReplyOptions { show_thinking: false, ..reply() }, &events);
    let [one, two] = &frames.output()[..] else { panic!("{:?}", frames.output()) };
    assert_eq!((&one["summary"], &two["summary"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    assert_eq!(one["encrypted_content"], shown["encrypted_content"]);
}

#[test]
fn bug_33_and_28_signatures_round_trip_on_their_items() {
    let frames = write(
        reply(),
        &[
            start(),
            begin(0, BlockKind::Reasoning),
            text(0, "Hmm."),
            add(0, Delta::Signature(s("seal-0"))),
            stop(0),
            begin(1, BlockKind::Text),
            text(1, "Hi"),
            add(1, Delta::Signature(s("seal-1"))),
            stop(1),
            begin(2, tool("call_1", "f")),
            add(2, Delta::Signature(s("seal-2"))),
            add(2, Delta::Arguments(s("{}"))),
            stop(2),
            begin(3, tool("call_2", "f")),
            add(3, Delta::Arguments(s("{}"))),
            stop(3),
            begin(4, BlockKind::Media { mime: s("image/png") }),
            add(4, Delta::Data(s("QUJD"))),
            add(4, Delta::Signature(s("seal-4"))),
            stop(4),
            begin(5, BlockKind::Media { mime: s("image/png") }),
            add(5, Delta::Url(s("https://a.example/x.png"))),
            add(5, Delta::Signature(s("seal-5"))),
            stop(5),
            finish(Finish::ToolUse),
            Event::End,
        ],
    );
    // A client that sends back everything it received.
    let mut input = frames.output().clone();
    let id = frames.of("function_call_arguments.done")[0]["output_index"].as_u64().unwrap() as usize;
    let call_id = input[id]["call_id"].clone();
    input.push(serde_json::json!({"type": "function_call_output", "call_id": call_id, "output": "5"}));
    let body = serde_json::json!({"model": "m", "input": input}).to_string();
    let request = request::decode(&body).unwrap();
    use crate::canonical::Block as B;
    let seal = |seal: &Option<crate::canonical::ProviderSignature<'_>>| {
        seal.as_ref().map(|seal| seal.for_issuer("provider").unwrap().escaped().to_owned())
    };
    let blocks: Vec<_> = request.turns[0]
        .blocks
        .iter()
        .map(|block| match block {
            B::Reasoning { text, signature: sealed, .. } => (text[0].escaped(), seal(sealed)),
            B::Text { text, signature: sealed, .. } => (text.escaped(), seal(sealed)),
            B::ToolUse { id, signature: sealed, .. } => (id.escaped(), seal(sealed)),
            B::Image { signature: sealed, .. } => ("image", seal(sealed)),
            other => panic!("{other:?}"),
        })
        .collect();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        blocks,
        [
            ("Hmm.", some("seal-0")),
            ("Hi", some("seal-1")),
            ("call_1", some("seal-2")),
            ("call_2", None),
            ("image", some("seal-4")),
            ("![image](https://a.example/x.png)", some("seal-5")),
        ]
    );
    let B::ToolResult { id, .. } = &request.turns[1].blocks[0] else { panic!("{:?}", request.turns[1]) };
    assert_eq!(id.escaped(), "call_1");
}

#[test]
fn image_is_an_item_and_an_image_url_is_text() {
    let frames = write(
        reply(),
        &[
            start(),
            begin(0, BlockKind::Media { mime: s("image/jpeg") }),
            add(0, Delta::Data(s("QU"))),
            add(0, Delta::Data(s("JD"))),
            stop(0),
            begin(1, BlockKind::Media { mime: s("image/png") }),
            add(1, Delta::Url(s("https://a.example/x.png"))),
            stop(1),
            begin(2, BlockKind::Media { mime: s("audio/wav") }),
            add(2, Delta::Data(s("QUJD"))),
            stop(2),
            finish(Finish::Stop),
            Event::End,
        ],
    );
    let [image, message] = &frames.output()[..] else { panic!("{:?}", frames.output()) };
    assert_eq!((&image["result"], &image["output_format"]), (&"QUJD".into(), &"jpeg".into()));
    assert_eq!(message["content"][0]["text"], "![image](https://a.example/x.png)");
}

#[test]
fn bug_69_annotation_spans_are_within_their_part() {
    let citation = |url: &'static str, span| {
        Delta::Citation(Citation { url: s(url), title: s("T"), span, ..Citation::default() })
    };
    let frames = write(
        reply(),
        &[
            start(),
            begin(0, BlockKind::Text),
            text(0, "Größe "),
            stop(0),
            begin(1, BlockKind::Text),
            add(1, citation("https://a.example", None)),
            text(1, "cited"),
            add(1, citation("https://b.example", Some((7, 9)))),
            // A document without a URL.
            add(1, citation("", Some((7, 9)))),
            stop(1),
            finish(Finish::Stop),
            Event::End,
        ],
    );
    let added = frames.of("output_text.annotation.added");
    assert_eq!(added.iter().map(|frame| &frame["annotation_index"]).collect::<Vec<_>>(), [0, 1]);
    let notes = &frames.output()[0]["content"][1]["annotations"];
    let note = |url: &str, from: u64, to: u64| serde_json::json!({"type": "url_citation", "url": url, "title": "T", "start_index": from, "end_index": to});
    assert_eq!(notes, &Value::Array(vec![note("https://a.example", 0, 5), note("https://b.example", 1, 3)]));
    assert_eq!(&added[1]["annotation"], &notes[1]);
}

#[test]
fn logprobs_are_in_the_delta_and_in_its_repetitions() {
    let list = RawJson::from_text(r#"[{"token":"a","logprob":-0.1,"bytes":[97],"top_logprobs":[]}]"#);
    let frames = write(
        reply(),
        &[
            start(),
            begin(0, BlockKind::Text),
            text(0, "a"),
            add(0, Delta::Logprobs(list)),
            stop(0),
            finish(Finish::Stop),
            Event::End,
        ],
    );
    for found in [
        &frames.of("output_text.delta")[1]["logprobs"],
        &frames.of("output_text.done")[0]["logprobs"],
        &frames.output()[0]["content"][0]["logprobs"],
    ] {
        assert_eq!(found[0]["token"], "a");
    }
}

#[test]
fn mapping_09_web_search_of_another_format_is_a_web_search_item() {
    let raw = r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"news"}}"#;
    let own = r#"{"id":"ci_1","type":"code_interpreter_call","status":"completed","code":"1"}"#;
    let opaque = |name: &'static str, raw: &'static str| BlockKind::Opaque {
        name: s(name),
        raw: RawJson::from_text(raw),
    };
    let frames = write(
        reply(),
        &[
            start(),
            begin(0, opaque("server_tool_use", raw)),
            stop(0),
            begin(1, opaque("web_search_tool_result", r#"{"type":"web_search_tool_result","content":[]}"#)),
            stop(1),
            begin(2, opaque("code_interpreter_call", own)),
            stop(2),
            finish(Finish::Stop),
            Event::End,
        ],
    );
    let [search, code] = &frames.output()[..] else { panic!("{:?}", frames.output()) };
    assert_eq!((&search["type"], &search["action"]["query"]), (&"web_search_call".into(), &"news".into()));
    assert_eq!(code, &serde_json::from_str::<Value>(own).unwrap());
    assert_eq!(frames.of("web_search_call.completed").len(), 1);
}
