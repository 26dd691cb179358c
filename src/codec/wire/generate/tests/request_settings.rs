use serde_json::{Value, json};

use super::dialect;
use super::written::{hi, raw, s, tool, write, write_for};
use crate::canonical::dialect::{ReasoningSupport, SamplingSupport as Takes};
use crate::canonical::request::{Extra, Search};
use crate::canonical::{
    Block, CacheBreakpoint, Dialect, Effort, OutputFormat, Request, Sampling, Thinking, Tool, ToolChoice,
};

#[test]
fn sampling_defaults_that_are_dropped_are_no_losses() {
    let mut request = hi();
    request.sampling = Sampling {
        temperature: Some(raw("1")),
        top_p: Some(raw("1.0")),
        presence_penalty: Some(raw("0")),
        frequency_penalty: Some(raw("0.0")),
        ..Sampling::default()
    };
    let none = Dialect { sampling: Takes::None, ..dialect("gemini-2.5-flash") };
    assert!(write_for(&request, &none).1.is_empty());
    request.sampling.frequency_penalty = Some(raw("0.1"));
    assert_eq!(write_for(&request, &none).1, ["frequency_penalty"]);
}

#[test]
fn mapping_3_tool_declarations_are_encoded() {
    let schema = r#"{"type":"object","additionalProperties":false,"properties":{"z":{"type":["string","null"]},"a":{"const":"x"}},"required":["z"]}"#;
    let mut request = hi();
    request.tools = vec![
        tool("f", Some(schema)),
        tool("now", None),
        tool("none", Some(r#"{"type":"object","properties":{}}"#)),
    ];
    request.tools[0].description = s("Does \\\"it\\\".");
    let (written, losses, _) = write_for(&request, &dialect("gemini-2.5-flash"));
    assert_eq!(
        written["tools"],
        json!([{"functionDeclarations":[
            {"name":"f","description":"Does \"it\".","parametersJsonSchema":serde_json::from_str::<Value>(schema).unwrap()},
            {"name":"now"},
            {"name":"none","parametersJsonSchema":{"type":"object","properties":{}}}
        ]}])
    );
    assert_eq!((written.get("toolConfig"), losses), (None, vec![]));
    let old = Dialect { json_schema: false, ..dialect("gemini-1.5-pro") };
    let (written, losses, _) = write_for(&request, &old);
    assert_eq!(
        written["tools"][0]["functionDeclarations"],
        json!([
            {"name":"f","description":"Does \"it\".","parameters":{"type":"OBJECT","properties":{"z":{"type":"STRING","nullable":true},"a":{"type":"STRING","enum":["x"]}},"required":["z"]}},
            {"name":"now"},
            {"name":"none"}
        ])
    );
    assert!(losses.is_empty());
    request.tools = vec![tool(
        "f",
        Some(r#"{"type":"object","properties":{"n":{"type":"integer","exclusiveMinimum":0}}}"#),
    )];
    assert_eq!(write_for(&request, &old).1, ["schema_keywords"]);
}

#[test]
fn mapping_3_tool_schema_in_openapi_stays_unchanged() {
    let mut request = hi();
    request.tools = vec![Tool { openapi: true, ..tool("f", Some(r#"{"type":"OBJECT","nullable":true}"#)) }];
    assert_eq!(write(&request)["tools"][0]["functionDeclarations"][0]["parameters"]["type"], "OBJECT");
}

#[test]
fn mapping_3_tool_choice_is_encoded_in_every_form() {
    let names = vec![s("f"), s("g")];
    let of_choice = |choice: ToolChoice<'_>, name: &str| {
        let mut request = hi();
        request.tools = vec![tool("f", None), tool("g", None), tool("h", None)];
        request.tool_choice = Some(choice);
        let (written, _, _) = write_for(&request, &dialect(name));
        let declared = written["tools"][0]["functionDeclarations"].as_array().unwrap().len();
        (written["toolConfig"]["functionCallingConfig"].clone(), declared)
    };
    for name in ["gemini-2.5-flash", "gemini-3-pro"] {
        assert_eq!(of_choice(ToolChoice::Auto, name), (json!({"mode":"AUTO"}), 3));
        assert_eq!(of_choice(ToolChoice::None, name), (json!({"mode":"NONE"}), 3));
        assert_eq!(of_choice(ToolChoice::Required, name), (json!({"mode":"ANY"}), 3));
        let one = json!({"mode":"ANY","allowedFunctionNames":["f"]});
        assert_eq!(of_choice(ToolChoice::Tool(s("f")), name), (one, 3));
        let both = json!({"mode":"ANY","allowedFunctionNames":["f","g"]});
        let allowed = ToolChoice::Allowed { names: names.clone(), required: true };
        assert_eq!(of_choice(allowed, name), (both, 3));
    }
    let allowed = ToolChoice::Allowed { names: names.clone(), required: false };
    assert_eq!(of_choice(allowed.clone(), "gemini-2.5-flash"), (json!({"mode":"AUTO"}), 2));
    let validated = json!({"mode":"VALIDATED","allowedFunctionNames":["f","g"]});
    assert_eq!(of_choice(allowed, "gemini-3-pro"), (validated, 3));
}

#[test]
fn bug_57_tool_choice_without_tools_is_dropped_and_parallel_off_is_lost() {
    let mut request = hi();
    request.tool_choice = Some(ToolChoice::Required);
    assert_eq!(write(&request).get("toolConfig"), None);
    request.tools = vec![tool("f", None)];
    request.parallel_tools = Some(false);
    assert_eq!(write_for(&request, &dialect("gemini-2.5-flash")).1, ["parallel_tool_calls"]);
}

#[test]
fn bug_58_strict_tools_are_validated_if_supported() {
    let mut request = hi();
    request.tools = vec![Tool { strict: Some(true), ..tool("f", None) }];
    let (written, losses, _) = write_for(&request, &dialect("gemini-3-pro"));
    assert_eq!(written["toolConfig"], json!({"functionCallingConfig":{"mode":"VALIDATED"}}));
    assert!(losses.is_empty());
    assert_eq!(write_for(&request, &dialect("gemini-2.5-flash")).1, ["tool_strict"]);
}

#[test]
fn bug_62_web_search_becomes_google_search() {
    let mut request = hi();
    request.search = Some(Search {
        context: s("low"),
        allowed_domains: Some(raw(r#"["x"]"#)),
        location: Some(raw("{}")),
        ..Search::default()
    });
    let (written, losses, _) = write_for(&request, &dialect("gemini-2.5-flash"));
    assert_eq!(written["tools"], json!([{"googleSearch":{}}]));
    assert_eq!(losses, ["web_search_filters", "web_search_location", "web_search_context"]);

    request.search = Some(Search::default());
    request.tools = vec![tool("f", None)];
    let (written, losses, refusal) = write_for(&request, &dialect("gemini-2.5-flash"));
    assert_eq!(written["tools"], json!([{"functionDeclarations":[{"name":"f"}]}]));
    assert_eq!((losses, refusal), (vec!["web_search".to_owned()], None));
    let (written, losses, _) = write_for(&request, &dialect("gemini-3-pro"));
    assert_eq!(written["tools"].as_array().unwrap().len(), 2);
    assert_eq!(
        written["toolConfig"],
        json!({"functionCallingConfig":{"mode":"VALIDATED"},"includeServerSideToolInvocations":true})
    );
    assert!(losses.is_empty());
}

#[test]
fn mapping_4_reasoning_setting_is_encoded_for_each_model() {
    let budget = ReasoningSupport::Budget { min: 0, max: 24_576, off: true };
    let pro = ReasoningSupport::Budget { min: 128, max: 32_768, off: false };
    let levels = ReasoningSupport::efforts(Effort::Low, Effort::High, false);
    let flash = ReasoningSupport::efforts(Effort::Minimal, Effort::High, true);
    for (wish, reasoning, shown, told) in [
        (Thinking::Unset, budget, None, Value::Null),
        (Thinking::Unset, budget, Some(true), json!({"includeThoughts":true})),
        (Thinking::Off, budget, None, json!({"thinkingBudget":0})),
        (Thinking::Budget(0), budget, None, json!({"thinkingBudget":0})),
        (Thinking::Off, pro, None, json!({"thinkingBudget":128})),
        (Thinking::Off, levels, None, json!({"thinkingLevel":"LOW"})),
        (Thinking::Off, flash, None, json!({"thinkingLevel":"MINIMAL"})),
        (Thinking::Adaptive, budget, None, json!({"thinkingBudget":-1,"includeThoughts":true})),
        (Thinking::Adaptive, levels, None, json!({"includeThoughts":true})),
        (
            Thinking::Effort(Effort::Medium),
            budget,
            None,
            json!({"thinkingBudget":8192,"includeThoughts":true}),
        ),
        (
            Thinking::Effort(Effort::Max),
            levels,
            Some(false),
            json!({"thinkingLevel":"HIGH","includeThoughts":false}),
        ),
        (Thinking::Budget(100_000), pro, None, json!({"thinkingBudget":32768,"includeThoughts":true})),
        (Thinking::Budget(9_000), levels, None, json!({"thinkingLevel":"MEDIUM","includeThoughts":true})),
        (Thinking::Off, ReasoningSupport::Fixed, Some(true), Value::Null),
    ] {
        let request = Request { thinking: wish, show_thinking: shown, ..hi() };
        let (written, losses, _) = write_for(&request, &Dialect { reasoning, ..dialect("g") });
        assert_eq!(written["generationConfig"]["thinkingConfig"], told, "{wish:?} {reasoning:?}");
        assert!(losses.is_empty());
    }
    let request = Request { thinking: Thinking::Effort(Effort::High), ..hi() };
    let (_, losses, _) = write_for(&request, &Dialect { reasoning: ReasoningSupport::Fixed, ..dialect("g") });
    assert_eq!(losses, ["reasoning_effort"]);
}

#[test]
fn mapping_5_client_6_response_format_is_encoded() {
    let schema = |openapi| OutputFormat::Schema {
        name: s("city"),
        description: s(""),
        schema: raw(r#"{"type":"object","properties":{"n":{"const":"x"}}}"#),
        openapi,
        strict: Some(true),
    };
    let config = |output, dialect: &Dialect<'_>| {
        write_for(&Request { output, ..hi() }, dialect).0["generationConfig"].clone()
    };
    let new = dialect("gemini-2.5-flash");
    let old = Dialect { json_schema: false, ..dialect("gemini-1.5-pro") };
    let plain = json!({"type":"object","properties":{"n":{"const":"x"}}});
    assert_eq!(config(OutputFormat::Text, &new), Value::Null);
    assert_eq!(config(OutputFormat::Json, &new), json!({"responseMimeType":"application/json"}));
    assert_eq!(
        config(schema(false), &new),
        json!({"responseMimeType":"application/json","responseJsonSchema":plain})
    );
    assert_eq!(
        config(schema(true), &new),
        json!({"responseMimeType":"application/json","responseSchema":plain})
    );
    assert_eq!(
        config(schema(false), &old),
        json!({"responseMimeType":"application/json","responseSchema":{"type":"OBJECT","properties":{"n":{"type":"STRING","enum":["x"]}}}})
    );
    let choice = OutputFormat::Choice { schema: raw(r#"{"type":"STRING","enum":["a"]}"#) };
    assert_eq!(
        config(choice, &new),
        json!({"responseMimeType":"text/x.enum","responseSchema":{"type":"STRING","enum":["a"]}})
    );
}

#[test]
fn mapping_6_sampling_and_limits_are_encoded() {
    let request = Request {
        max_output: Some(77),
        choices: Some(2),
        stop: vec![s("END"), s("\\n")],
        logprobs: Some(3),
        sampling: Sampling {
            temperature: Some(raw("1.70")),
            top_p: Some(raw("0.9")),
            top_k: Some(raw("40")),
            presence_penalty: Some(raw("0.5")),
            frequency_penalty: Some(raw("-3")),
            seed: Some(raw("7")),
        },
        modalities: vec![s("text"), s("image")],
        ..hi()
    };
    let (written, losses, refusal) = write_for(&request, &dialect("g"));
    assert_eq!(
        written["generationConfig"],
        json!({"maxOutputTokens":77,"candidateCount":2,"stopSequences":["END","\n"],"responseLogprobs":true,"logprobs":3,
            "temperature":1.7,"topP":0.9,"topK":40,"presencePenalty":0.5,"frequencyPenalty":-2,"seed":7,"responseModalities":["TEXT","IMAGE"]})
    );
    assert_eq!((losses, refusal), (vec!["frequency_penalty".to_owned()], None));
    let (written, losses, _) = write_for(&request, &Dialect { sampling: Takes::One, ..dialect("g") });
    assert_eq!((written["generationConfig"].get("topP"), &*losses[0]), (None, "top_p"));
    let (written, losses, _) = write_for(&request, &Dialect { sampling: Takes::None, ..dialect("g") });
    assert!(
        written["generationConfig"].get("temperature").is_none()
            && losses.contains(&"temperature".to_owned())
    );

    let big = Sampling { seed: Some(raw("12345678901")), ..Sampling::default() };
    let request = Request { sampling: big, stop: vec![s("x"); 6], logprobs: Some(0), ..hi() };
    let (written, losses, refusal) = write_for(&request, &dialect("g"));
    assert_eq!(losses, ["seed"]);
    assert!(refusal.unwrap().contains("stop"));
    assert_eq!(written["generationConfig"].get("logprobs"), None);
}

#[test]
fn mapping_12_unsupported_settings_are_reported_as_losses() {
    let mut request = Request {
        user: Some(s("u")),
        metadata: Some(raw("{}")),
        verbosity: Some(s("low")),
        cache_key: Some(s("k")),
        store: Some(false),
        service_tier: Some(s("scale")),
        extra: vec![
            Extra { name: "logit_bias", value: raw("{}") },
            Extra { name: "safetySettings", value: raw("[]") },
        ],
        ..hi()
    };
    request.turns[0].name = s("ann");
    request.turns[0].blocks.push(Block::Text {
        text: s("x"),
        cache: Some(CacheBreakpoint::Short),
        signature: None,
    });
    request.turns[0].blocks.push(Block::Opaque { name: s("server_tool_use"), raw: raw("{}") });
    let (written, losses, refusal) = write_for(&request, &dialect("g"));
    assert_eq!(
        losses,
        [
            "logit_bias",
            "service_tier",
            "store",
            "user",
            "metadata",
            "prompt_cache_key",
            "verbosity",
            "name",
            "cache_control",
            "server_tool_block"
        ]
    );
    assert_eq!((refusal, &written["safetySettings"]), (None, &json!([])));
    for (word, tier) in [("default", json!("standard")), ("flex", json!("flex")), ("auto", Value::Null)] {
        let request = Request { service_tier: Some(s(word)), ..hi() };
        assert_eq!(write(&request)["serviceTier"], tier);
    }
}
