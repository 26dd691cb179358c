//! Tests of the request encoder.

use serde_json::json;

use super::*;
use crate::canonical::content::CacheBreakpoint;
use crate::canonical::request::Extra;
use crate::canonical::{
    Block as B, Input, MediaSource, OutputFormat, ProviderSignature, Request, ResultObject, Role, Thinking,
    Tool, ToolChoice, Turn,
};
use crate::wire::loss::LossPolicy;
use json::{Cursor, RawJson, RopeBuilder};

fn user(words: &'static str) -> Turn<'static> {
    Turn::new(Role::User, vec![B::text(s(words))])
}

fn ask(turns: Vec<Turn<'static>>) -> Request<'static> {
    Request { turns, ..Request::default() }
}

fn from_chat(request: &Request<'_>) -> (Value, Vec<String>) {
    written(Format::Chat, request, &dialect())
}

fn raw(text: &'static str) -> RawJson<'static> {
    RawJson::from_text(text)
}

#[test]
fn sampling_defaults_that_are_dropped_are_no_losses() {
    let body = r#"{"model":"m","input":"Hi","temperature":1.0,"top_p":1,"presence_penalty":0,"frequency_penalty":0.0}"#;
    let tunes_nothing = Dialect { sampling: SamplingSupport::None, ..dialect() };
    assert_eq!(translated(Format::Chat, body, &tunes_nothing).1, [] as [&str; 0]);
    let changed =
        body.replace(":1.0", ":0.9").replace(":1,", ":0.9,").replace(":0,", ":1,").replace(":0.0", ":1");
    let lost = translated(Format::Chat, &changed, &tunes_nothing).1;
    assert_eq!(lost, ["temperature", "top_p", "presence_penalty", "frequency_penalty"]);
}

#[test]
fn mapping_01_instructions_at_the_start_are_joined_and_later_ones_stay() {
    let system = |words: &[&'static str]| {
        Turn::new(Role::System, words.iter().map(|words| B::text(s(words))).collect())
    };
    let (body, _) = from_chat(&ask(vec![
        system(&["One.", "Two."]),
        Turn::new(Role::Developer, vec![B::text(s("Three."))]),
        user("Hi"),
        Turn::new(Role::Assistant, vec![B::text(s("Yes?"))]),
        system(&["Later."]),
        user("Go"),
    ]));
    assert_eq!(body["instructions"], "One.\n\nTwo.\n\nThree.");
    assert_eq!(
        body["input"],
        json!([
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Yes?"},
            {"role": "developer", "content": "Later."},
            {"role": "user", "content": "Go"},
        ])
    );
    // A request of instructions only: the format requires an item.
    let (body, _) = from_chat(&ask(vec![system(&["Alone."])]));
    assert_eq!(
        (body.get("instructions"), &body["input"]),
        (None, &json!([{"role": "developer", "content": "Alone."}]))
    );
}

#[test]
fn bug_59_empty_texts_and_turns_are_omitted() {
    let (body, _) = from_chat(&ask(vec![
        user("a"),
        Turn::new(Role::Assistant, vec![B::text(s(""))]),
        Turn::new(Role::User, vec![]),
        user("b"),
    ]));
    assert_eq!(body["input"], json!([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]));
}

#[test]
fn mapping_03_tool_calls_and_results_are_items() {
    let call = |id: &'static str, input| B::ToolUse {
        id: s(id),
        name: s("w"),
        input,
        kind: ToolKind::Function,
        namespace: s(""),
        signature: None,
        cache: None,
    };
    let result = |id: &'static str, content: Vec<B<'static>>, object| B::ToolResult {
        id: s(id),
        name: s("w"),
        content,
        object,
        error: true,
        kind: ToolKind::Function,
        cache: None,
    };
    let long: &'static str = Box::leak("x".repeat(80).into_boxed_str());
    let png = MediaSource::Base64 { mime: s("image/png"), data: s("iVBO") };
    let image = B::Image { source: png, detail: s(""), cache: None, signature: None };
    let object = ResultObject::read(&mut Cursor::new("{\"t\": 5}")).unwrap();
    let (body, lost) = from_chat(&ask(vec![
        user("?"),
        Turn::new(
            Role::Assistant,
            vec![
                B::text(s("Let me see.")),
                call("c1", Input::Text(s("{\\\"b\\\":1,\\\"a\\\":2}"))),
                call("c2", Input::Object(raw("{ \"b\": 1, \"a\": \"x\\n\" }"))),
                call(long, Input::Text(s(""))),
            ],
        ),
        Turn::new(
            Role::User,
            vec![
                result("c1", vec![B::text(s("5"))], None),
                result("c2", vec![B::text(s("done")), image.clone()], None),
                result(long, vec![image.clone()], Some(object)),
                B::text(s("Well?")),
            ],
        ),
    ]));
    let input = body["input"].as_array().unwrap();
    // The order of members is preserved.
    assert_eq!(input[2]["arguments"], r#"{"b":1,"a":2}"#);
    assert_eq!(input[3]["arguments"], r#"{"b":1,"a":"x\n"}"#);
    assert_eq!(input[4]["arguments"], "{}");
    assert_eq!(input[5], json!({"type": "function_call_output", "call_id": "c1", "output": "5"}));
    // The image remains an image, not base64 in the text.
    assert_eq!(
        input[6]["output"],
        json!([{"type": "input_text", "text": "done"}, {"type": "input_image", "image_url": "data:image/png;base64,iVBO", "detail": "auto"}])
    );
    // An object and an image in one result: both are written.
    assert_eq!(input[7]["output"][0], json!({"type": "input_text", "text": "{\"t\":5}"}));
    assert_eq!(input[7]["output"][1]["type"], "input_image");
    assert_eq!(input[8], json!({"role": "user", "content": "Well?"}));
    // An id that is too long is replaced by the same one in the call and in its result.
    assert_eq!(input[4]["call_id"], input[7]["call_id"]);
    assert!(input[4]["call_id"].as_str().unwrap().len() <= 64);
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn reasoning_is_replayed_with_its_signature_or_if_supported() {
    let reasoning = |signature: Option<&'static str>| {
        let signature =
            signature.map(|text| ProviderSignature { issuer: Some("provider".into()), text: text.into() });
        ask(vec![
            user("?"),
            Turn::new(
                Role::Assistant,
                vec![B::Reasoning { text: vec![s("A"), s("B")], signature, hidden: false }, B::text(s("x"))],
            ),
        ])
    };
    let (body, _) = from_chat(&reasoning(Some("gAA")));
    assert_eq!(
        body["input"][1],
        json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "A"}, {"type": "summary_text", "text": "B"}], "encrypted_content": "gAA"})
    );
    let (body, lost) = from_chat(&reasoning(None));
    assert_eq!((&body["input"][1]["role"], lost), (&"assistant".into(), vec!["thinking_block".to_owned()]));
    let open = Dialect { reasoning_replay: true, ..dialect() };
    let (body, _) = written(Format::Chat, &reasoning(None), &open);
    assert_eq!(body["input"][1]["content"][1], json!({"type": "reasoning_text", "text": "B"}));
}

#[test]
fn mapping_02_media_is_encoded_as_parts() {
    let (body, lost) = from_chat(&ask(vec![Turn::new(
        Role::User,
        vec![
            B::text(s("Look")),
            B::Image {
                source: MediaSource::Url { url: s("https://a.example"), mime: s("") },
                detail: s("low"),
                cache: None,
                signature: None,
            },
            B::File {
                source: MediaSource::Base64 { mime: s("application/pdf"), data: s("JVBE") },
                name: s(""),
                cache: None,
            },
            B::File {
                source: MediaSource::Url { url: s("https://a.example/a.pdf"), mime: s("") },
                name: s("a"),
                cache: None,
            },
            B::File { source: MediaSource::Text { text: s("a\\nb") }, name: s("n.txt"), cache: None },
        ],
    )]));
    assert_eq!(
        body["input"][0]["content"],
        json!([
            {"type": "input_text", "text": "Look"},
            {"type": "input_image", "image_url": "https://a.example", "detail": "low"},
            {"type": "input_file", "filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBE"},
            {"type": "input_file", "file_url": "https://a.example/a.pdf"},
            {"type": "input_file", "filename": "n.txt", "file_data": "data:text/plain;base64,YQpi"},
        ])
    );
    assert!(lost.is_empty());
    // File ids are valid only at their own provider, and the format has no audio or video input.
    for (block, element) in [
        (
            B::Image { source: MediaSource::Id { id: s("f") }, detail: s(""), cache: None, signature: None },
            "file_id",
        ),
        (B::Audio { source: MediaSource::Base64 { mime: s("audio/wav"), data: s("UklG") } }, "audio"),
        (B::Video { source: MediaSource::Url { url: s("https://a.example/v"), mime: s("") } }, "video"),
    ] {
        let mut notes = LossNotes::new(Format::Chat, Format::Responses);
        let request = ask(vec![Turn::new(Role::User, vec![block])]);
        request::encode(&request, &dialect(), &mut notes, &mut RopeBuilder::default());
        assert_eq!((&*notes.losses()[0].element, notes.losses()[0].policy), (element, LossPolicy::Refuse));
        assert_eq!(notes.take_refusal().unwrap().param.as_deref(), Some(element));
    }
}

fn function(name: &'static str) -> Tool<'static> {
    Tool { schema: Some(raw(r#"{"type":"object"}"#)), ..Tool::new(s(name), ToolKind::Function) }
}

#[test]
fn mapping_03_tools_are_flat_and_strict_only_on_request() {
    let mut request = ask(vec![user("?")]);
    request.tools = vec![
        function("a"),
        Tool { strict: Some(true), schema: None, description: s("B"), ..function("b") },
        Tool {
            schema: Some(raw(r#"{"type":"OBJECT","properties":{"x":{"type":"STRING","nullable":true}}}"#)),
            openapi: true,
            ..function("c")
        },
        Tool {
            kind: ToolKind::Custom,
            format: Some(raw(r#"{"type":"grammar","grammar":{"syntax":"lark","definition":"x"}}"#)),
            ..function("d")
        },
        Tool { namespace: s("g"), ..function("e") },
        Tool { namespace: s("g"), cache: Some(CacheBreakpoint::Short), ..function("f") },
    ];
    request.tool_choice = Some(ToolChoice::Tool(s("d")));
    request.parallel_tools = Some(false);
    let (body, lost) = from_chat(&request);
    assert_eq!(
        body["tools"],
        json!([
            {"type": "function", "name": "a", "parameters": {"type": "object"}, "strict": false},
            {"type": "function", "name": "b", "description": "B", "parameters": null, "strict": true},
            {"type": "function", "name": "c", "parameters": {"type": "object", "properties": {"x": {"type": ["string", "null"]}}}, "strict": false},
            {"type": "custom", "name": "d", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
            {"type": "namespace", "name": "g", "description": "g", "tools": [
                {"type": "function", "name": "e", "parameters": {"type": "object"}, "strict": false},
                {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": false},
            ]},
        ])
    );
    assert_eq!(body["tool_choice"], json!({"type": "custom", "name": "d"}));
    assert_eq!((&body["parallel_tool_calls"], lost), (&false.into(), vec!["cache_control".to_owned()]));
    for (choice, expected) in [
        (ToolChoice::Auto, json!("auto")),
        (ToolChoice::None, json!("none")),
        (ToolChoice::Required, json!("required")),
        (
            ToolChoice::Allowed { names: vec![s("a")], required: false },
            json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "a"}]}),
        ),
    ] {
        request.tool_choice = Some(choice);
        assert_eq!(from_chat(&request).0["tool_choice"], expected);
    }
}

#[test]
fn mapping_09_web_search_becomes_the_web_search_tool() {
    let mut request = ask(vec![user("?")]);
    request.search = Some(crate::canonical::request::Search {
        context: s("low"),
        max_uses: Some(3),
        allowed_domains: Some(raw(r#"["a.example"]"#)),
        blocked_domains: Some(raw(r#"["b.example"]"#)),
        location: Some(raw(r#"{"type":"approximate","city":"Oslo","x":1}"#)),
        cache: None,
    });
    let (body, lost) = from_chat(&request);
    assert_eq!(
        body["tools"],
        json!([{"type": "web_search", "search_context_size": "low", "filters": {"allowed_domains": ["a.example"]},
            "user_location": {"type": "approximate", "city": "Oslo"}}])
    );
    assert_eq!(lost, ["web_search_filters", "web_search_max_uses"]);
}

#[test]
fn mapping_04_reasoning_setting_is_encoded_for_each_model() {
    let ask = |thinking, show, dialect: &Dialect<'_>| {
        let request = Request { thinking, show_thinking: show, ..ask(vec![user("?")]) };
        let (body, lost) = written(Format::Messages, &request, dialect);
        (body.get("reasoning").cloned().unwrap_or_default(), lost)
    };
    let can = dialect();
    assert_eq!(
        ask(Thinking::Budget(8000), Some(true), &can).0,
        json!({"effort": "medium", "summary": "auto"})
    );
    assert_eq!(ask(Thinking::Effort(Effort::Max), None, &can).0, json!({"effort": "xhigh"}));
    assert_eq!(ask(Thinking::Off, Some(true), &can).0, json!({"effort": "none"}));
    assert_eq!(ask(Thinking::Unset, Some(false), &can).0, Value::Null);
    // A model without reasoning settings gets none, and no summary either.
    let fixed = Dialect { reasoning: ReasoningSupport::Fixed, ..dialect() };
    assert_eq!(
        ask(Thinking::Effort(Effort::High), Some(true), &fixed),
        (Value::Null, vec!["reasoning_effort".to_owned()])
    );
    assert_eq!(ask(Thinking::Off, None, &fixed), (Value::Null, vec![]));
}

#[test]
fn store_off_requests_encrypted_reasoning() {
    let ask = |store, dialect: &Dialect<'_>| {
        let (body, _) = written(Format::Chat, &Request { store, ..ask(vec![user("?")]) }, dialect);
        (body["store"].clone(), body.get("include").cloned().unwrap_or_default())
    };
    let encrypted = json!(["reasoning.encrypted_content"]);
    assert_eq!(ask(None, &dialect()), (false.into(), encrypted.clone()));
    assert_eq!(ask(Some(false), &dialect()), (false.into(), encrypted));
    assert_eq!(ask(Some(true), &dialect()), (true.into(), Value::Null));
    // Models without reasoning refuse that value of `include`.
    let fixed = Dialect { reasoning: ReasoningSupport::Fixed, ..dialect() };
    assert_eq!(ask(None, &fixed), (false.into(), Value::Null));
}

#[test]
fn mapping_05_response_format_is_flat() {
    let form = |output| {
        let request = Request { output, verbosity: Some(s("low")), ..ask(vec![user("?")]) };
        from_chat(&request).0["text"].clone()
    };
    assert_eq!(form(OutputFormat::Text), json!({"verbosity": "low"}));
    assert_eq!(form(OutputFormat::Json)["format"], json!({"type": "json_object"}));
    let schema = |name, openapi| OutputFormat::Schema {
        name: s(name),
        description: s("d"),
        schema: raw(r#"{"type":"OBJECT"}"#),
        openapi,
        strict: Some(true),
    };
    assert_eq!(
        form(schema("", true))["format"],
        json!({"type": "json_schema", "name": "response", "description": "d", "schema": {"type": "object"}, "strict": true})
    );
    assert_eq!(form(schema("my name", false))["format"]["name"], "my_name");
}

#[test]
fn mapping_06_limits_and_sampling_are_encoded_or_reported_as_losses() {
    let mut request = ask(vec![user("?")]);
    request.max_output = Some(5);
    request.stop = vec![s("END")];
    request.choices = Some(2);
    request.logprobs = Some(3);
    request.sampling.temperature = Some(raw("1.70"));
    request.sampling.top_p = Some(raw("0.9"));
    request.sampling.top_k = Some(raw("40"));
    request.sampling.seed = Some(raw("7"));
    request.service_tier = Some(s("standard_only"));
    request.stream = true;
    let mut notes = LossNotes::new(Format::Chat, Format::Responses);
    let mut out = RopeBuilder::default();
    request::encode(&request, &dialect(), &mut notes, &mut out);
    let out = out.finish().into_contiguous();
    let body: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((&body["max_output_tokens"], &body["stream"]), (&16.into(), &true.into()));
    assert!(std::str::from_utf8(&out).unwrap().contains("\"temperature\":1.70,"));
    assert_eq!((&body["top_logprobs"], &body["service_tier"]), (&3.into(), &"default".into()));
    assert!(body["include"].as_array().unwrap().contains(&"message.output_text.logprobs".into()));
    let policies: Vec<_> = notes.losses().iter().map(|loss| (&*loss.element, loss.policy)).collect();
    assert_eq!(
        policies,
        [
            ("max_tokens", LossPolicy::Warn),
            ("top_k", LossPolicy::Silent),
            ("seed", LossPolicy::Silent),
            ("stop", LossPolicy::Warn),
            ("n", LossPolicy::Refuse)
        ]
    );
    // Models that accept no sampling parameters.
    let none = Dialect { sampling: SamplingSupport::None, ..dialect() };
    request.choices = None;
    let (body, lost) = written(Format::Chat, &request, &none);
    assert_eq!((body.get("temperature"), body.get("top_p")), (None, None));
    assert!(lost.contains(&"temperature".to_owned()) && lost.contains(&"top_p".to_owned()));
}

#[test]
fn mapping_12_unknown_members_are_sent_if_supported_or_lost() {
    let extra = |name: &'static str| Extra { name, value: raw("1") };
    let mut request = ask(vec![user("?")]);
    request.extra = ["logit_bias", "max_tool_calls", "enable_thinking", "prediction"].map(extra).to_vec();
    let (body, lost) = from_chat(&request);
    assert_eq!(body["max_tool_calls"], 1);
    assert_eq!(lost, ["logit_bias", "enable_thinking", "prediction"]);
    let all = Dialect { extensions: &["*"], ..dialect() };
    let (body, lost) = written(Format::Chat, &request, &all);
    assert_eq!(
        (&body["enable_thinking"], lost),
        (&1.into(), vec!["logit_bias".to_owned(), "prediction".to_owned()])
    );
    request.extra = vec![extra("mcp_servers")];
    let mut notes = LossNotes::new(Format::Messages, Format::Responses);
    request::encode(&request, &all, &mut notes, &mut RopeBuilder::default());
    assert!(notes.take_refusal().is_some());
}

#[test]
fn request_of_the_same_format_keeps_its_native_members() {
    let (body, lost) = translated(
        Format::Responses,
        r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"Hi","prompt_cache_breakpoint":{"mode":"explicit"}}]},{"type":"item_reference","id":"msg_7"},
            {"type":"message","role":"assistant","phase":"commentary","content":"x"}],
            "tools":[{"type":"mcp","server_label":"x"},{"type":"function","name":"f","parameters":null}],"tool_choice":{"type":"mcp","server_label":"x"},
            "include":["file_search_call.results"],"reasoning":{"effort":"low","summary":"detailed","context":"all_turns"},"conversation":"c","x_provider":{"f":1.0}}"#,
        &dialect(),
    );
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!(body["input"][0]["content"][0]["prompt_cache_breakpoint"], json!({"mode": "explicit"}));
    assert_eq!(body["input"][1], json!({"type": "item_reference", "id": "msg_7"}));
    assert_eq!(body["input"][2]["phase"], "commentary");
    assert_eq!(
        (&body["tools"][1], &body["tool_choice"]),
        (&json!({"type": "mcp", "server_label": "x"}), &json!({"type": "mcp", "server_label": "x"}))
    );
    assert_eq!(body["include"], json!(["file_search_call.results", "reasoning.encrypted_content"]));
    assert_eq!(body["reasoning"], json!({"effort": "low", "summary": "detailed", "context": "all_turns"}));
    assert_eq!((&body["conversation"], &body["x_provider"]["f"]), (&"c".into(), &1.0.into()));
}

#[test]
fn mapping_1_phase_of_each_assistant_message_is_kept() {
    let message = |phase: &str, text: &str| json!({"role": "assistant", "content": text, "phase": phase});
    let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
    let result = json!({"type": "function_call_output", "call_id": "c", "output": "5"});
    for input in [
        json!([message("commentary", "a"), call, message("final_answer", "b"), result]),
        json!([call, message("commentary", "a"), result]),
        json!([message("commentary", "a"), call, {"role": "assistant", "content": "b"}, result]),
        json!([{"role": "assistant", "content": "a"}, call, message("commentary", "b"), result]),
    ] {
        let request = json!({"input": input}).to_string();
        let (body, lost) = translated(Format::Responses, &request, &dialect());
        let mut sent = body["input"].clone();
        for item in sent.as_array_mut().unwrap().iter_mut().filter_map(Value::as_object_mut) {
            item.remove("status");
        }
        assert_eq!((sent, lost), (input, vec![]));
    }
}

#[test]
fn client_7_conversation_history_is_encoded_to_the_same_bytes() {
    let body = |items: &[&str]| {
        let body = format!(
            r#"{{"instructions":"Be brief.","tools":[{{"type":"function","name":"f","parameters":{{"type":"object"}}}}],"input":[{}]}}"#,
            items.join(",")
        );
        let request = request::decode(&body).unwrap();
        let mut out = RopeBuilder::default();
        request::encode(
            &request,
            &dialect(),
            &mut LossNotes::new(Format::Responses, Format::Responses),
            &mut out,
        );
        let out = out.finish().into_contiguous();
        String::from_utf8(out.to_vec()).unwrap()
    };
    let items = [
        r#"{"role":"user","content":"?"}"#,
        r#"{"type":"reasoning","summary":[],"encrypted_content":"gAA"}"#,
        r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#,
        r#"{"type":"function_call_output","call_id":"c","output":"5"}"#,
        r#"{"role":"assistant","content":"ok"}"#,
        r#"{"role":"user","content":"more"}"#,
    ];
    for length in 1..items.len() {
        let shorter = body(&items[..length]);
        let prefix = shorter.strip_suffix("]}").unwrap();
        assert!(body(&items[..length + 1]).starts_with(prefix), "{length}");
    }
}
