use crate::canonical::{
    Block, Effort, Input, MediaSource, OutputFormat, Request, Role, Thinking, ToolChoice,
};
use crate::error::ErrorKind;
use crate::wire::generate::request::decode;
use json::JsonStr;

fn read(body: &str) -> Request<'_> {
    decode(body).unwrap()
}

/// Returns a request with these parts in one user content.
fn user(parts: &str) -> String {
    format!(r#"{{"contents":[{{"role":"user","parts":[{parts}]}}]}}"#)
}

/// Returns a request with these members besides its contents.
fn beside(members: &str) -> String {
    format!(r#"{{"contents":[{{"parts":[{{"text":"Hi"}}]}}],{members}}}"#)
}

fn texts<'a>(blocks: &[Block<'a>]) -> Vec<&'a str> {
    blocks
        .iter()
        .map(|block| match block {
            Block::Text { text, .. } => text.escaped(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn contents_are_decoded_as_turns() {
    let body = r#"{"contents":[{"role":"user","parts":[{"text":"a\n"},{"text":"b"}]},{"role":"model","parts":[{"text":"c"}]},{"parts":[{"text":"d"}]}]}"#;
    let request = read(body);
    let turns: Vec<_> = request.turns.iter().map(|turn| (turn.role, texts(&turn.blocks))).collect();
    assert_eq!(
        turns,
        [(Role::User, vec!["a\\n", "b"]), (Role::Assistant, vec!["c"]), (Role::User, vec!["d"])]
    );
    // Short forms that client libraries and hand-written requests use.
    for body in [
        r#"{"contents":{"parts":{"text":"d"}}}"#,
        r#"{"contents":[{"parts":[{"text":"d"}],"role":null}]}"#,
        r#"{"contents":[{"text":"d"}],"tools":null,"generation_config":null}"#,
    ] {
        assert_eq!(texts(&read(body).turns[0].blocks), ["d"], "{body}");
    }
}

#[test]
fn bug_63_system_instruction_is_decoded_in_any_shape() {
    for instructions in [
        r#""systemInstruction":{"parts":[{"text":"Be brief."}]}"#,
        r#""system_instruction":{"role":"user","parts":{"text":"Be brief."}}"#,
        r#""system_instruction":{"text":"Be brief."}"#,
        r#""systemInstruction":[{"text":"Be brief."}]"#,
    ] {
        let body = beside(instructions);
        let request = read(&body);
        assert_eq!(request.turns[0].role, Role::System, "{instructions}");
        assert_eq!(texts(&request.turns[0].blocks), ["Be brief."], "{instructions}");
        assert_eq!(request.turns.len(), 2);
    }
    assert_eq!(read(&beside(r#""systemInstruction":{"parts":[]}"#)).turns.len(), 1);
}

/// Google's API refuses a text in place of an object. Its SDKs take one and send an object.
#[test]
fn text_in_place_of_a_content_or_part_is_refused_with_its_path() {
    for (body, path) in [
        (r#"{"contents":"d"}"#.to_owned(), "contents"),
        (r#"{"contents":["d"]}"#.to_owned(), "contents[0]"),
        (r#"{"contents":[{"parts":["d"]}]}"#.to_owned(), "contents[0].parts[0]"),
        (r#"{"contents":[{"parts":"d"}]}"#.to_owned(), "contents[0].parts"),
        (beside(r#""systemInstruction":"Be brief.""#), "systemInstruction"),
        (beside(r#""systemInstruction":["Be brief."]"#), "systemInstruction"),
        (beside(r#""tools":"x""#), "tools"),
    ] {
        let error = decode(&body).unwrap_err();
        assert_eq!((error.status, error.param.as_deref()), (400, Some(path)), "{body}");
    }
}

#[test]
fn media_kind_is_derived_from_the_mime_type() {
    let body = user(
        r#"{"inlineData":{"mimeType":"image/png","data":"QQ=="},"mediaResolution":{"level":"MEDIA_RESOLUTION_LOW"}},
        {"inline_data":{"mime_type":"audio/wav","data":"QQ=="}},{"inlineData":{"mimeType":"application/pdf","data":"QQ==","displayName":"a.pdf"}},
        {"fileData":{"fileUri":"https://youtu.be/x","mimeType":"video/mp4"},"videoMetadata":{"fps":2}},
        {"file_data":{"file_uri":"https://generativelanguage.googleapis.com/v1beta/files/x","mime_type":"image/jpeg"}},
        {"fileData":{"fileUri":"https://a/b.bin"}},
        {"fileData":{"fileUri":"https://www.youtube.com/watch?v=x"},"videoMetadata":{"fps":3}}"#,
    );
    let request = read(&body);
    let s = JsonStr::from_escaped;
    let blocks = &request.turns[0].blocks;
    assert!(matches!(blocks[0], Block::Image { source: MediaSource::Base64 { mime, data }, detail, .. }
        if mime == s("image/png") && data == s("QQ==") && detail == s("low")));
    assert!(matches!(blocks[1], Block::Audio { source: MediaSource::Base64 { .. } }));
    assert!(
        matches!(blocks[2], Block::File { source: MediaSource::Base64 { .. }, name, .. } if name == s("a.pdf"))
    );
    assert!(matches!(blocks[3], Block::Video { source: MediaSource::Url { url, mime } }
        if url == s("https://youtu.be/x") && mime == s("video/mp4")));
    assert!(matches!(blocks[4], Block::Image { source: MediaSource::Id { .. }, .. }));
    assert!(matches!(blocks[5], Block::File { source: MediaSource::Url { .. }, .. }));
    assert!(matches!(blocks[6], Block::Video { source: MediaSource::Url { .. } }), "{:?}", blocks[6]);
    let settings: Vec<_> = request.extra.iter().map(|extra| (extra.name, extra.value.text())).collect();
    let name = "contents.videoMetadata";
    assert_eq!(settings, [(name, r#"{"fps":2}"#), (name, r#"{"fps":3}"#)]);
}

/// Returns the ids of calls and of results, in order.
fn ids<'a>(request: &Request<'a>) -> (Vec<&'a str>, Vec<&'a str>) {
    let blocks = || request.turns.iter().flat_map(|turn| &turn.blocks);
    let calls = blocks().filter_map(|block| match block {
        Block::ToolUse { id, .. } => Some(id.escaped()),
        _ => None,
    });
    let results = blocks().filter_map(|block| match block {
        Block::ToolResult { id, .. } => Some(id.escaped()),
        _ => None,
    });
    (calls.collect(), results.collect())
}

#[test]
fn bug_9_tool_calls_without_ids_are_paired_by_name_and_order() {
    let body = r#"{"contents":[{"parts":[{"text":"?"}]},
        {"role":"model","parts":[{"functionCall":{"name":"f","args":{"a":1}}},{"function_call":{"name":"g"}},{"functionCall":{"name":"f","args":{"a":2}}}]},
        {"parts":[{"functionResponse":{"name":"g","response":{}}},{"function_response":{"name":"f","response":{}}},{"functionResponse":{"name":"f","response":{}}}]},
        {"role":"model","parts":[{"functionCall":{"name":"f"}}]},
        {"role":"function","parts":[{"functionResponse":{"name":"f","id":"late","response":{}}}]}]}"#;
    let request = read(body);
    let (calls, results) = ids(&request);
    assert_eq!(calls.len(), 4);
    assert!(calls.iter().all(|id| id.starts_with("call_") && id.len() == 29));
    assert_eq!(results, [calls[1], calls[0], calls[2], calls[3]]);
    assert!((1..4).all(|at| !calls[..at].contains(&calls[at])));
    // The same turns have the same ids when the conversation is longer.
    let shorter = body
        .split(
            r#",
        {"role":"model","parts":[{"functionCall":{"name":"f"}}]}"#,
        )
        .next()
        .unwrap()
        .to_owned()
        + "]}";
    assert_eq!(ids(&read(&shorter)).0, calls[..3]);
}

#[test]
fn client_8_tool_call_ids_stay_unchanged() {
    let body = r#"{"contents":[{"role":"model","parts":[{"functionCall":{"id":"x","name":"f"}}]},{"role":"model","parts":[{"functionCall":{"id":"y","name":"f"}}]},
        {"parts":[{"functionResponse":{"id":"y","name":"f","response":{}}},{"functionResponse":{"id":"x","name":"f","response":{}}},{"functionResponse":{"id":"z","name":"f","response":{}}}]}]}"#;
    assert_eq!(ids(&read(body)), (vec!["x", "y"], vec!["y", "x", "z"]));
}

#[test]
fn mapping_3_tool_results_are_decoded() {
    let body = user(
        r#"{"functionResponse":{"name":"f","response":{"output":"5"},"parts":[{"inlineData":{"mimeType":"image/png","data":"QQ=="}}]}},
        {"functionResponse":{"name":"f","response":{"error":"late"}}},{"functionResponse":{"name":"f","response":"text"}},{"functionResponse":{"name":"f"}}"#,
    );
    let request = read(&body);
    let results: Vec<_> = request.turns[0]
        .blocks
        .iter()
        .map(|block| match block {
            Block::ToolResult { name, content, object, error, .. } => {
                (name.escaped(), content.len(), object.map(|object| object.raw().text()), *error)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        results,
        [
            ("f", 1, Some(r#"{"output":"5"}"#), false),
            ("f", 0, Some(r#"{"error":"late"}"#), true),
            ("f", 1, None, false),
            ("f", 0, None, false),
        ]
    );
}

#[test]
fn bug_26_thoughts_and_signatures_are_decoded() {
    let body = r#"{"contents":[{"role":"model","parts":[{"text":"a","thought":true},{"text":"b","thought":true,"thoughtSignature":"S1"},
        {"thought":true,"thoughtSignature":"S2"},{"text":"c","thought":false,"thought_signature":"S3"},{"thought":true,"functionCall":{"name":"f"},"thoughtSignature":"S4"},{"text":"","thoughtSignature":"S5"}]}]}"#;
    let request = read(body);
    let seal = |seal: &Option<crate::canonical::ProviderSignature<'_>>| {
        seal.as_ref().map(|seal| seal.text.to_string())
    };
    let blocks: Vec<_> = request.turns[0]
        .blocks
        .iter()
        .map(|block| match block {
            Block::Reasoning { text, signature: s, hidden } => {
                (text.iter().map(|text| text.escaped()).collect::<String>(), *hidden, seal(s))
            }
            Block::Text { text, signature: s, .. } => (text.escaped().to_owned(), false, seal(s)),
            Block::ToolUse { name, signature: s, .. } => (name.escaped().to_owned(), false, seal(s)),
            other => panic!("{other:?}"),
        })
        .collect();
    let signed = |text: &str, hidden, seal: &str| (text.to_owned(), hidden, Some(seal.to_owned()));
    assert_eq!(
        blocks,
        [
            signed("ab", false, "S1"),
            signed("", true, "S2"),
            signed("c", false, "S3"),
            signed("f", false, "S4"),
            signed("", false, "S5"),
        ]
    );
}

/// A client that stores each frame of a stream as a content.
#[test]
fn client_4_thought_in_several_contents_is_joined() {
    let thought = |text: &str, more: &str| {
        format!(r#"{{"role":"model","parts":[{{"text":"{text}","thought":true{more}}}]}}"#)
    };
    let body = format!(
        r#"{{"contents":[{{"parts":[{{"text":"?"}}]}},{},{},{},{},{{"role":"model","parts":[{{"text":"x"}}]}}]}}"#,
        thought("a", ""),
        thought("b", ""),
        thought("", r#","thoughtSignature":"S""#),
        thought("c", ""),
    );
    let request = read(&body);
    assert_eq!(request.turns.len(), 4);
    let reasoning = |at: usize| match &request.turns[at].blocks[0] {
        Block::Reasoning { text, signature: seal, .. } => {
            (text.iter().map(|text| text.escaped()).collect::<Vec<_>>(), seal.is_some())
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(reasoning(1), (vec!["a", "b"], true));
    assert_eq!(reasoning(2), (vec!["c"], false));
}

#[test]
fn fact_37_server_tool_parts_stay_unchanged() {
    let code = r#"{"executable_code":{"language":"PYTHON","code":"1"},"thought_signature":"S"}"#;
    let body = user(code);
    assert!(matches!(&read(&body).turns[0].blocks[..], [Block::Opaque { name, raw }]
        if name.escaped() == "executable_code" && raw.text() == code));
}

#[test]
fn tools_and_tool_choice_are_decoded() {
    let body = beside(
        r#""tools":[{"functionDeclarations":[{"name":"f","description":"d","parameters":{"type":"OBJECT"}},{"name":"g","parametersJsonSchema":{"type":"object"},"response":{"type":"STRING"}},{"name":"h"}]},{"googleSearch":{"excludeDomains":["x"]}}]"#,
    );
    let request = read(&body);
    let tools: Vec<_> = request
        .tools
        .iter()
        .map(|tool| (tool.name.escaped(), tool.schema.map(|schema| schema.text()), tool.openapi))
        .collect();
    assert_eq!(
        tools,
        [
            ("f", Some(r#"{"type":"OBJECT"}"#), true),
            ("g", Some(r#"{"type":"object"}"#), false),
            ("h", None, false)
        ]
    );
    assert_eq!(request.search.unwrap().blocked_domains.unwrap().text(), r#"["x"]"#);
    // google-genai 3 uses either spelling inside of declarations, and an object in place of an array of one.
    let body = beside(
        r#""tools":{"function_declarations":{"name":"f","parameters_json_schema":{"a_b":{"c_d":1}}}},"tool_config":{"function_calling_config":{"mode":"any","allowed_function_names":["f"]}}"#,
    );
    let request = read(&body);
    assert_eq!(request.tools[0].schema.unwrap().text(), r#"{"a_b":{"c_d":1}}"#);
    assert_eq!(request.tool_choice, Some(ToolChoice::Tool(JsonStr::from_escaped("f"))));
}

/// A request of Gemini CLI.
#[test]
fn client_3_gemini_cli_request_is_decoded() {
    let body = r#"{"contents":[{"role":"user","parts":[{"text":"?"}]},
        {"role":"model","parts":[{"functionCall":{"name":"f","args":{}},"thoughtSignature":"skip_thought_signature_validator"}]},
        {"role":"user","parts":[{"functionResponse":{"id":"f-1","name":"f","response":{"output":"x"}}}]}],
        "tools":[{"functionDeclarations":[{"name":"f","description":"d","parametersJsonSchema":{"type":"object"}}]}],
        "generationConfig":{"temperature":1,"topP":0.95,"topK":64,"thinkingConfig":{"includeThoughts":true,"thinkingBudget":-1}}}"#;
    let request = read(body);
    assert!(!request.tools[0].openapi);
    assert!(
        request.sampling.temperature.is_some()
            && request.sampling.top_p.is_some()
            && request.sampling.top_k.is_some()
    );
    assert_eq!((request.thinking, request.show_thinking), (Thinking::Adaptive, Some(true)));
    let (calls, results) = ids(&request);
    assert_eq!(calls, results);
    assert!(
        matches!(&request.turns[1].blocks[0], Block::ToolUse { signature: Some(seal), .. } if seal.issuer.is_none())
    );
}

#[test]
fn tool_choice_mode_is_decoded_in_every_form() {
    let s = JsonStr::from_escaped;
    let both = vec![s("a"), s("b")];
    for (config, choice) in [
        (r#"{"mode":"AUTO"}"#, Some(ToolChoice::Auto)),
        (r#"{"mode":1}"#, Some(ToolChoice::Auto)),
        (r#"{"mode":"ANY"}"#, Some(ToolChoice::Required)),
        (r#"{"mode":"ANY","allowedFunctionNames":[]}"#, Some(ToolChoice::Required)),
        (r#"{"mode":"ANY","allowedFunctionNames":["a"]}"#, Some(ToolChoice::Tool(s("a")))),
        (
            r#"{"mode":"ANY","allowedFunctionNames":["a","b"]}"#,
            Some(ToolChoice::Allowed { names: both.clone(), required: true }),
        ),
        (r#"{"mode":"NONE"}"#, Some(ToolChoice::None)),
        (r#"{"mode":"VALIDATED"}"#, Some(ToolChoice::Auto)),
        (
            r#"{"mode":"VALIDATED","allowedFunctionNames":["a","b"]}"#,
            Some(ToolChoice::Allowed { names: both.clone(), required: false }),
        ),
        (r#"{"mode":"MODE_UNSPECIFIED"}"#, None),
        ("{}", None),
    ] {
        for place in [
            format!(r#""toolConfig":{{"functionCallingConfig":{config}}}"#),
            format!(r#""functionCallingConfig":{config}"#),
        ] {
            assert_eq!(read(&beside(&place)).tool_choice, choice, "{place}");
        }
    }
}

#[test]
fn search_tool_has_several_names_and_other_server_tools_are_extras() {
    for name in
        ["googleSearch", "google_search", "groundingSearch", "grounding_search", "googleSearchRetrieval"]
    {
        let body = beside(&format!(r#""tools":[{{"{name}":{{}}}}]"#));
        let request = read(&body);
        assert!(request.search.is_some() && request.extra.is_empty(), "{name}");
        // Members of the search that have no counterpart are kept for a provider of this format, and lost elsewhere.
        for (member, extra) in [
            (r#""excludeDomains":["x"]"#, &[][..]),
            (r#""timeRangeFilter":null"#, &[]),
            (r#""timeRangeFilter":{"startTime":"2026-01-01T00:00:00Z"}"#, &["web_search_settings"]),
            (r#""dynamicRetrievalConfig":{"mode":"MODE_DYNAMIC"}"#, &["web_search_settings"]),
        ] {
            let body = beside(&format!(r#""tools":[{{"{name}":{{{member}}}}}]"#));
            let names: Vec<_> = read(&body).extra.iter().map(|extra| extra.name).collect();
            assert_eq!(names, extra, "{body}");
        }
    }
    let body = beside(r#""tools":[{"codeExecution":{}},{"url_context":{}},{"newThing":{}}]"#);
    let names: Vec<_> = read(&body).extra.iter().map(|extra| extra.name).collect();
    assert_eq!(names, ["tools.codeExecution", "tools.urlContext", "tools.*"]);
}

#[test]
fn settings_are_decoded_in_either_spelling_with_exact_numbers() {
    let body = beside(
        r#""generation_config":{"temperature":0.50,"top_p":"0.9","topK":40,"max_output_tokens":"77","candidateCount":2,"stopSequences":["END"],"seed":7,
        "presence_penalty":-1,"frequencyPenalty":1e-1,"responseLogprobs":true,"logprobs":3,"responseModalities":["TEXT","IMAGE"],"mediaResolution":"MEDIA_RESOLUTION_LOW","someNewThing":[1]},
        "serviceTier":"flex","store":false,"safetySettings":[{"category":10}],"cached_content":"cachedContents/x","labels":{"a":"b"},"x_provider":1,"model":"models/m""#,
    );
    let request = read(&body);
    let number = |value: Option<json::RawJson<'_>>| value.unwrap().text().to_owned();
    assert_eq!(number(request.sampling.temperature), "0.50");
    assert_eq!(number(request.sampling.top_p), "0.9");
    assert_eq!(number(request.sampling.top_k), "40");
    assert_eq!(number(request.sampling.presence_penalty), "-1");
    assert_eq!(number(request.sampling.frequency_penalty), "1e-1");
    assert_eq!(number(request.sampling.seed), "7");
    assert_eq!((request.max_output, request.choices, request.logprobs), (Some(77), Some(2), Some(3)));
    assert_eq!(request.stop, [JsonStr::from_escaped("END")]);
    assert_eq!(request.modalities.len(), 2);
    assert_eq!((request.service_tier.unwrap().escaped(), request.store), ("flex", Some(false)));
    let names: Vec<_> = request.extra.iter().map(|extra| extra.name).collect();
    assert_eq!(
        names,
        [
            "generationConfig.mediaResolution",
            "generationConfig.*",
            "safetySettings",
            "cachedContent",
            "labels",
            "x_provider"
        ]
    );
}

#[test]
fn mapping_4_thinking_config_is_decoded_in_every_form() {
    for (config, thinking, shown) in [
        (r#"{"thinkingBudget":-1}"#, Thinking::Adaptive, None),
        (r#"{"thinkingBudget":0}"#, Thinking::Off, None),
        (r#"{"thinking_budget":4096,"include_thoughts":true}"#, Thinking::Budget(4096), Some(true)),
        (r#"{"thinkingLevel":"LOW"}"#, Thinking::Effort(Effort::Low), None),
        (r#"{"thinking_level":"high","includeThoughts":false}"#, Thinking::Effort(Effort::High), Some(false)),
        (r#"{"thinkingLevel":"THINKING_LEVEL_UNSPECIFIED"}"#, Thinking::Unset, None),
        (r#"{"includeThoughts":true}"#, Thinking::Unset, Some(true)),
    ] {
        let body = beside(&format!(r#""generationConfig":{{"thinkingConfig":{config}}}"#));
        let request = read(&body);
        assert_eq!((request.thinking, request.show_thinking), (thinking, shown), "{config}");
    }
}

#[test]
fn mapping_5_response_format_is_decoded() {
    let output = |config: &str| {
        let body = beside(&format!(r#""generationConfig":{{{config}}}"#));
        format!("{:?}", read(&body).output)
    };
    assert_eq!(output(r#""responseMimeType":"text/plain""#), "Text");
    assert_eq!(output(r#""responseMimeType":"application\/json""#), "Json");
    assert_eq!(
        output(r#""response_mime_type":"application/json","response_schema":{"type":"OBJECT"}"#),
        r#"Schema { name: "", description: "", schema: {"type":"OBJECT"}, openapi: true, strict: None }"#
    );
    assert_eq!(
        output(r#""responseMimeType":"application/json","responseJsonSchema":{"type":"object"}"#),
        r#"Schema { name: "", description: "", schema: {"type":"object"}, openapi: false, strict: None }"#
    );
    assert_eq!(
        output(r#""responseMimeType":"text/x.enum","responseSchema":{"enum":["a"]}"#),
        r#"Choice { schema: {"enum":["a"]} }"#
    );
    let body = beside(r#""generationConfig":{}"#);
    assert_eq!(read(&body).output, OutputFormat::Text);
}

#[test]
fn text_of_a_result_precedes_its_parts_and_the_last_one_counts() {
    let body = user(
        r#"{"functionResponse":{"name":"f","parts":[{"text":"part"}],"response":"first","response":"last"}}"#,
    );
    let request = read(&body);
    let Block::ToolResult { content, object, .. } = &request.turns[0].blocks[0] else { panic!() };
    assert_eq!((texts(content), object), (vec!["last", "part"], &None));
}

#[test]
fn results_nested_deeply_are_refused() {
    let nested = |levels: usize| {
        let before = r#"{"functionResponse":{"name":"f","response":{},"parts":["#.repeat(levels);
        user(&format!(r#"{before}{{"text":"x"}}{}"#, "]}}".repeat(levels)))
    };
    assert_eq!(read(&nested(1)).turns.len(), 1);
    assert!(decode(&nested(100)).is_err());
}

#[test]
fn member_malformed_is_refused_with_its_path() {
    for (body, param) in [
        (r#"{}"#.to_owned(), "contents"),
        (r#"{"contents":[]}"#.to_owned(), "contents"),
        (r#"{"contents":7}"#.to_owned(), "contents"),
        (r#"{"contents":[7]}"#.to_owned(), "contents[0]"),
        (r#"{"contents":[{"role":"robot","parts":[]}]}"#.to_owned(), "contents[0].role"),
        (r#"{"contents":[{"parts":7}]}"#.to_owned(), "contents[0].parts"),
        (user(r#"{"text":"a"},{"text":7}"#), "contents[0].parts[1].text"),
        (user(r#"{"inlineData":{"mimeType":"a/b"}}"#), "contents[0].parts[0].inlineData.data"),
        (user(r#"{"fileData":{}}"#), "contents[0].parts[0].fileData.fileUri"),
        (user(r#"{"functionCall":{"args":{}}}"#), "contents[0].parts[0].functionCall.name"),
        (user(r#"{"functionCall":{"name":"f","args":[]}}"#), "contents[0].parts[0].functionCall.args"),
        (user(r#"{"functionResponse":{"response":{}}}"#), "contents[0].parts[0].functionResponse.name"),
        (beside(r#""tools":[{"functionDeclarations":[{}]}]"#), "tools[0].functionDeclarations[0].name"),
        (beside(r#""generationConfig":{"temperature":"warm"}"#), "generationConfig.temperature"),
        (beside(r#""generationConfig":{"maxOutputTokens":-5}"#), "generationConfig.maxOutputTokens"),
        (beside(r#""toolConfig":{"functionCallingConfig":{"mode":"SOME"}}"#), "functionCallingConfig.mode"),
        (
            beside(r#""generationConfig":{"thinkingConfig":{"thinkingLevel":"DEEP"}}"#),
            "generationConfig.thinkingConfig.thinkingLevel",
        ),
    ] {
        let error = decode(&body).unwrap_err();
        assert_eq!((error.kind, error.param.as_deref()), (ErrorKind::InvalidField, Some(param)), "{body}");
        assert!(error.message.contains(param), "{}", error.message);
    }
    for body in ["", "[1]", "{", r#"{"contents":[{"parts":[{"text":"a"}]}"#] {
        assert!(decode(body).is_err(), "{body}");
    }
}

#[test]
fn tool_call_arguments_may_be_text() {
    let body = user(r#"{"functionCall":{"name":"f","args":"{\"a\":1}"}}"#);
    assert!(matches!(&read(&body).turns[0].blocks[0], Block::ToolUse { input: Input::Text(text), .. }
        if text.escaped() == r#"{\"a\":1}"#));
}
