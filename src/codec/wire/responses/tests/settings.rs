//! Tests of the request decoder: members other than the conversation.

use super::*;
use crate::canonical::{Effort, OutputFormat, Request, Thinking, ToolChoice};

fn read(members: &'static str) -> Request<'static> {
    request::decode(Box::leak(format!(r#"{{"input":"Hi",{members}}}"#).into_boxed_str())).unwrap()
}

fn extras(request: &Request<'static>) -> Vec<(&'static str, &'static str)> {
    request.extra.iter().map(|extra| (extra.name, extra.value.text())).collect()
}

#[test]
fn mapping_03_tools_flat_nested_or_in_namespaces_are_decoded() {
    let request = read(
        r#""tools":[{"type":"function","name":"a","description":"A","parameters":{"type":"object"},"strict":true},
            {"type":"function","function":{"name":"b","parameters":null}},
            {"type":"custom","name":"c","format":{"type":"grammar","syntax":"lark","definition":"x"}},
            {"type":"namespace","name":"mcp__x","description":"X","tools":[{"type":"function","name":"d","parameters":{}}]}]"#,
    );
    let tools: Vec<_> = request
        .tools
        .iter()
        .map(|tool| {
            let schema = tool.schema.map(|schema| schema.text());
            (tool.name.escaped(), tool.namespace.escaped(), schema, tool.strict, tool.kind)
        })
        .collect();
    assert_eq!(
        tools,
        [
            ("a", "", Some(r#"{"type":"object"}"#), Some(true), ToolKind::Function),
            ("b", "", None, None, ToolKind::Function),
            ("c", "", None, None, ToolKind::Custom),
            ("d", "mcp__x", Some("{}"), None, ToolKind::Function),
        ]
    );
    assert!(request.tools[2].format.unwrap().text().contains("lark"));
}

#[test]
fn reasoning_and_user_are_independent_of_member_order() {
    for (one, other, expected) in [
        (r#""effort":"high""#, r#""max_tokens":2000"#, Thinking::Budget(2000)),
        (r#""effort":"none""#, r#""max_tokens":2000"#, Thinking::Off),
        (r#""effort":"high""#, r#""enabled":false"#, Thinking::Effort(Effort::High)),
        (r#""enabled":false"#, r#""max_tokens":null"#, Thinking::Off),
    ] {
        for inside in [format!("{one},{other}"), format!("{other},{one}")] {
            let reasoning = format!(r#""reasoning":{{{inside}}}"#);
            let thinking = r#""thinking":{"type":"enabled"}"#;
            for members in [format!("{reasoning},{thinking}"), format!("{thinking},{reasoning}")] {
                assert_eq!(read(members.leak()).thinking, expected, "{inside}");
            }
        }
    }
    let same = r#""safety_identifier":"a""#;
    for members in [r#""user":"a","safety_identifier":"a""#, r#""safety_identifier":"a","user":"a""#, same] {
        let request = read(members);
        assert_eq!((request.user.unwrap().escaped(), extras(&request)), ("a", vec![]), "{members}");
    }
    for members in [r#""user":"a","safety_identifier":"b""#, r#""safety_identifier":"b","user":"a""#] {
        let request = read(members);
        let expected = vec![("safety_identifier", r#""b""#)];
        assert_eq!((request.user.unwrap().escaped(), extras(&request)), ("a", expected), "{members}");
    }
}

#[test]
fn namespaces_nested_deeply_are_refused() {
    let nested = |levels: usize| {
        let tool = r#"{"type":"function","name":"f","parameters":{}}"#.to_owned();
        let tool = (0..levels).fold(tool, |inner, level| {
            format!(r#"{{"type":"namespace","name":"n{level}","tools":[{inner}]}}"#)
        });
        format!(r#"{{"input":"Hi","tools":[{tool}]}}"#)
    };
    let two = nested(2);
    assert_eq!(request::decode(&two).unwrap().tools[0].namespace.escaped(), "n0");
    assert_eq!(
        request::decode(&nested(100)).unwrap_err().param.as_deref(),
        Some("tools[0].tools[0].tools[0].tools[0].tools[0].tools")
    );
}

#[test]
fn mapping_09_web_search_is_decoded_and_other_server_tools_are_extras() {
    let request = read(
        r#""tools":[{"type":"web_search_preview","search_context_size":"high","user_location":{"type":"approximate","city":"Oslo"}},{"type":"mcp","server_label":"x"},{"type":"moon"}]"#,
    );
    let search = request.search.as_ref().unwrap();
    assert_eq!(search.context.escaped(), "high");
    assert_eq!(search.location.unwrap().text(), r#"{"type":"approximate","city":"Oslo"}"#);
    assert_eq!(
        extras(&request),
        [("tools.mcp", r#"{"type":"mcp","server_label":"x"}"#), ("server_tool", r#"{"type":"moon"}"#)]
    );
    let request = read(r#""tools":[{"type":"web_search","filters":{"allowed_domains":["a.example"]}}]"#);
    assert_eq!(request.search.unwrap().allowed_domains.unwrap().text(), r#"["a.example"]"#);
}

#[test]
fn bug_57_and_58_tool_choice_is_never_widened() {
    let choice = |members| read(members).tool_choice;
    assert_eq!(choice(r#""tool_choice":"none""#), Some(ToolChoice::None));
    assert_eq!(choice(r#""tool_choice":"auto""#), Some(ToolChoice::Auto));
    assert_eq!(choice(r#""tool_choice":"required""#), Some(ToolChoice::Required));
    assert_eq!(choice(r#""tool_choice":null"#), None);
    for named in [
        r#""tool_choice":{"type":"function","name":"f"}"#,
        r#""tool_choice":{"type":"function","function":{"name":"f"}}"#,
        r#""tool_choice":{"type":"custom","name":"f"}"#,
    ] {
        assert_eq!(choice(named), Some(ToolChoice::Tool(s("f"))), "{named}");
    }
    assert_eq!(
        choice(
            r#""tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"},{"type":"mcp","server_label":"x"},{"type":"custom","name":"g"}]}"#
        ),
        Some(ToolChoice::Allowed { names: vec![s("f"), s("g")], required: true })
    );
    let hosted = read(r#""tool_choice":{"type":"file_search"}"#);
    assert_eq!(
        (hosted.tool_choice.clone(), extras(&hosted)),
        (None, vec![("tool_choice", r#"{"type":"file_search"}"#)])
    );
    assert_eq!(read(r#""parallel_tool_calls":false"#).parallel_tools, Some(false));
}

#[test]
fn mapping_04_reasoning_setting_is_decoded_in_every_spelling() {
    let read = |members| {
        let request = read(members);
        (request.thinking, request.show_thinking, extras(&request))
    };
    assert_eq!(
        read(r#""reasoning":{"effort":"high"}"#),
        (Thinking::Effort(Effort::High), Some(false), vec![])
    );
    assert_eq!(
        read(r#""reasoning":{"effort":"none","summary":"none"}"#),
        (Thinking::Off, Some(false), vec![])
    );
    assert_eq!(
        read(r#""reasoning":{"effort":"xhigh","summary":"auto"}"#),
        (Thinking::Effort(Effort::XHigh), Some(true), vec![])
    );
    assert_eq!(
        read(r#""reasoning":{"effort":null,"summary":"detailed","context":"all_turns"}"#),
        (
            Thinking::Unset,
            Some(true),
            vec![("reasoning.summary", r#""detailed""#), ("reasoning.context", r#""all_turns""#)]
        )
    );
    assert_eq!(read(r#""reasoning":{"max_tokens":2000}"#).0, Thinking::Budget(2000));
    assert_eq!(read(r#""reasoning":{"enabled":false}"#).0, Thinking::Off);
    assert_eq!(read(r#""thinking":{"type":"disabled"}"#).0, Thinking::Off);
    assert_eq!(read(r#""reasoning":null"#), (Thinking::Unset, Some(false), vec![]));
    let unknown = request::decode(r#"{"input":"Hi","reasoning":{"effort":"odd"}}"#).unwrap_err();
    assert_eq!((unknown.status, unknown.param.as_deref()), (400, Some("reasoning.effort")));
}

#[test]
fn mapping_05_response_format_is_decoded() {
    assert_eq!(read(r#""text":{"format":{"type":"text"}}"#).output, OutputFormat::Text);
    assert_eq!(read(r#""text":{"format":{"type":"json_object"}}"#).output, OutputFormat::Json);
    for shape in [
        r#""text":{"format":{"type":"json_schema","name":"n","description":"d","schema":{"a":1},"strict":true},"verbosity":"low"}"#,
        r#""text":{"format":{"type":"json_schema","json_schema":{"name":"n","description":"d","schema":{"a":1},"strict":true}},"verbosity":"low"}"#,
    ] {
        let request = read(shape);
        let OutputFormat::Schema { name, description, schema, openapi, strict } = request.output else {
            panic!()
        };
        assert_eq!((name, description, schema.text()), (s("n"), s("d"), r#"{"a":1}"#));
        assert_eq!((openapi, strict, request.verbosity), (false, Some(true), Some(s("low"))));
    }
}

#[test]
fn mapping_06_and_12_other_settings_are_decoded_or_kept_by_name() {
    let request = read(
        r#""stream":true,"max_output_tokens":1e2,"temperature":1.0,"top_p":0.9,"top_logprobs":3,"include":["message.output_text.logprobs"],"metadata":{"k":"v"},"user":"u","service_tier":"flex",
            "prompt_cache_key":"key","store":false,"previous_response_id":"resp_1","stop":["END"],"background":false,"truncation":"disabled","max_tool_calls":3,"conversation":{"id":"c"},"x_provider":{"f":1.0}"#,
    );
    assert!(request.stream);
    assert_eq!((request.max_output, request.logprobs, request.store), (Some(100), Some(3), Some(false)));
    // Numbers keep their original spelling.
    assert_eq!(request.sampling.temperature.unwrap().text(), "1.0");
    assert_eq!((request.user, request.service_tier), (Some(s("u")), Some(s("flex"))));
    assert_eq!((request.cache_key, request.previous), (Some(s("key")), Some(s("resp_1"))));
    assert_eq!((request.stop.clone(), request.metadata.unwrap().text()), (vec![s("END")], r#"{"k":"v"}"#));
    assert_eq!(
        extras(&request),
        [("max_tool_calls", "3"), ("conversation", r#"{"id":"c"}"#), ("x_provider", r#"{"f":1.0}"#)]
    );
    assert_eq!(read(r#""safety_identifier":"s""#).user, Some(s("s")));
    assert_eq!(read(r#""include":["message.output_text.logprobs"]"#).logprobs, Some(0));
    assert_eq!(extras(&read(r#""background":true"#)), [("background", "true")]);
}

#[test]
fn tools_added_in_mid_conversation_are_decoded() {
    let request = request::decode(
        r#"{"tools":[{"type":"function","name":"a"}],"input":[{"role":"user","content":"Hi"},{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"b"}]}]}"#,
    )
    .unwrap();
    assert_eq!(request.tools.iter().map(|tool| tool.name.escaped()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(request.turns.len(), 1);
}
