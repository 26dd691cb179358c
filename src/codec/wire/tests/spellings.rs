//! Tests of the rewriting of specification-specific members to the providers' own. The rest of the body is unchanged.

use bytes::Bytes;
use proptest::prelude::*;

use crate::canonical::dialect::{ReasoningSupport, SamplingSupport};
use crate::canonical::{Dialect, Effort, Quirks};
use crate::error::ApiError;
use crate::wire::Api;
use crate::wire::request::{Body, BodyReader};
use crate::wire::spelling::{Betas, applied};

fn dialect() -> Dialect<'static> {
    Dialect {
        reasoning: ReasoningSupport::efforts(Effort::Low, Effort::High, false),
        max_output: 1,
        sampling: SamplingSupport::None,
        max_completion_tokens: true,
        ..Dialect::plain("m", "i")
    }
}

fn read(api: Api, text: &str, sizes: usize) -> Body {
    try_read(api, text, sizes).unwrap()
}

fn try_read(api: Api, text: &str, sizes: usize) -> Result<Body, ApiError> {
    let mut reader = BodyReader::new(api, false);
    for piece in text.as_bytes().chunks(sizes.max(1)) {
        reader.push(Bytes::copy_from_slice(piece)).unwrap();
    }
    reader.finish()
}

/// Client body and upstream body; equal if nothing changes.
const BODIES: &[(Api, &str, &str)] = &[
    (
        Api::Messages,
        r#"{"model":"m","max_tokens":9,"system":[{"type":"text","text":"x","cache_control":{"type":"persistent"}}],"messages":[{"role":"user","content":[{"type":"text","text":"Hi","cache_control":{ "type" : "persistent" }},{"type":"text","text":"persistent"}]}]}"#,
        r#"{"model":"m","max_tokens":9,"system":[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}],"messages":[{"role":"user","content":[{"type":"text","text":"Hi","cache_control":{ "type" : "ephemeral","ttl":"1h" }},{"type":"text","text":"persistent"}]}]}"#,
    ),
    // `cache_control` in a tool result, in a document within it, at a tool and at the request itself; not in schemas
    // and tool inputs, which are the client's data.
    (
        Api::Messages,
        r#"{"model":"m","max_tokens":9,"cache_control":{"ttl":"5m","type":"persistent"},"tools":[{"name":"f","input_schema":{"default":{"cache_control":{"type":"persistent"}}},"cache_control":{"type":"persistent"}}],"messages":[{"role":"assistant","content":[{"type":"tool_use","input":{"cache_control":{"type":"persistent"}}}]},{"role":"user","content":[{"type":"tool_result","content":[{"type":"document","source":{"type":"content","content":[{"cache_control":{"type":"persistent"}}]}}]}]}]}"#,
        r#"{"model":"m","max_tokens":9,"cache_control":{"ttl":"1h","type":"ephemeral"},"tools":[{"name":"f","input_schema":{"default":{"cache_control":{"type":"persistent"}}},"cache_control":{"type":"ephemeral","ttl":"1h"}}],"messages":[{"role":"assistant","content":[{"type":"tool_use","input":{"cache_control":{"type":"persistent"}}}]},{"role":"user","content":[{"type":"tool_result","content":[{"type":"document","source":{"type":"content","content":[{"cache_control":{"type":"ephemeral","ttl":"1h"}}]}}]}]}]}"#,
    ),
    (
        Api::Messages,
        r#"{"model":"m","temperature":1.0,"top_p":0,"thinking":{"type":"enabled","budget_tokens":2000},"max_tokens":9,"messages":[1]}"#,
        r#"{"model":"m","temperature":1.0,"thinking":{"type":"enabled","budget_tokens":2000},"max_tokens":9,"messages":[1]}"#,
    ),
    (
        Api::Messages,
        r#"{"model":"m","max_tokens":9,"messages":[1],"thinking":{"type":"adaptive"} , "top_p": 0.0 }"#,
        r#"{"model":"m","max_tokens":9,"messages":[1],"thinking":{"type":"adaptive"}  }"#,
    ),
    (
        Api::Messages,
        r#"{"model":"m","top_p":0,"thinking":{"type":"disabled"},"max_tokens":9,"messages":[1]}"#,
        r#"{"model":"m","top_p":0,"thinking":{"type":"disabled"},"max_tokens":9,"messages":[1]}"#,
    ),
    (
        Api::Responses,
        r#"{"model":"m","input":[{"role":"user","content":"a"},{"type":"input_text","text":"b"}, {"type":"input_image","image_url":"u","detail":"low"},{"role":"user","content":[{"type":"input_text","text":"c"}]},{"type":"input_file","file_url":"f"}]}"#,
        r#"{"model":"m","input":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"input_text","text":"b"}, {"type":"input_image","image_url":"u","detail":"low"}]},{"role":"user","content":[{"type":"input_text","text":"c"}]},{"role":"user","content":[{"type":"input_file","file_url":"f"}]}]}"#,
    ),
    (
        Api::Responses,
        r#"{"model":"m","input":"x","tools":[{"type":"function","function":{"name":"f","parameters":{"function":1}}},{"type":"function","name":"g","function":{"name":"h"}},{"name":"k","type":"function"},{"type":"custom","custom":{"name":"c"}}],"tool_choice":{"type":"function","function":{"name":"f"}}}"#,
        r#"{"model":"m","input":"x","tools":[{"type":"function","name":"f","parameters":{"function":1}},{"type":"function","name":"g"},{"name":"k","type":"function"},{"type":"custom","name":"c"}],"tool_choice":{"type":"function","name":"f"}}"#,
    ),
    (
        Api::Responses,
        r#"{"model":"m","input":"x","tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"function":{"name":"f"},"type":"function"}]},"reasoning":{"effort":"none","summary":"none"}}"#,
        r#"{"model":"m","input":"x","tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"name":"f","type":"function"}]},"reasoning":{"effort":"low"}}"#,
    ),
    (
        Api::Responses,
        r#"{"model":"m","input":"x","reasoning":{"summary":"none","effort":"high"},"tools":[{"type":"web_search_preview","user_location":{"country":"CN"}},{"type":"web_search","user_location":{"type":"approximate"}}]}"#,
        r#"{"model":"m","input":"x","reasoning":{"effort":"high"},"tools":[{"type":"web_search_preview","user_location":{"type":"approximate","country":"CN"}},{"type":"web_search","user_location":{"type":"approximate"}}]}"#,
    ),
    (
        Api::Responses,
        r#"{"model":"m","input":"x","tools":[{"type":"web_search_preview","user_location":{"approximate":{"country":"CN","city":"x"}}}]}"#,
        r#"{"model":"m","input":"x","tools":[{"type":"web_search_preview","user_location":{"type":"approximate","country":"CN","city":"x"}}]}"#,
    ),
    (
        Api::Chat,
        r#"{"model":"m","messages":[1],"web_search_options":{"user_location":{"approximate":{"country":"CN"}},"search_context_size":"low"}}"#,
        r#"{"model":"m","messages":[1],"web_search_options":{"user_location":{"type":"approximate","approximate":{"country":"CN"}},"search_context_size":"low"}}"#,
    ),
    (
        Api::Chat,
        r#"{"model":"m","messages":[1],"max_tokens":77,"web_search_options":{"user_location":{"country":"CN"}}}"#,
        r#"{"model":"m","messages":[1],"max_completion_tokens":77,"web_search_options":{"user_location":{"type":"approximate","approximate":{"country":"CN"}}}}"#,
    ),
    (
        Api::Chat,
        r#"{"model":"m","messages":[1],"max_completion_tokens":5,"max\u005ftokens":77}"#,
        r#"{"model":"m","messages":[1],"max_completion_tokens":5}"#,
    ),
    (
        Api::Generate,
        r#"{"contents":[1],"tools":[{"groundingSearch":{}},{"functionDeclarations":[{"name":"groundingSearch"}]},{"googleSearch":{},"grounding_search":{}}]}"#,
        r#"{"contents":[1],"tools":[{"googleSearch":{}},{"functionDeclarations":[{"name":"groundingSearch"}]},{"googleSearch":{}}]}"#,
    ),
    (
        Api::Generate,
        r#"{"functionCallingConfig":{"mode":"ANY"},"contents":[1]}"#,
        r#"{"toolConfig":{"functionCallingConfig":{"mode":"ANY"}},"contents":[1]}"#,
    ),
    (
        Api::Generate,
        r#"{"contents":[1],"tool_config":{"retrievalConfig":{}},"function_calling_config":{"mode":"ANY"}}"#,
        r#"{"contents":[1],"tool_config":{"functionCallingConfig":{"mode":"ANY"},"retrievalConfig":{}}}"#,
    ),
    (
        Api::Generate,
        r#"{"contents":[1],"functionCallingConfig":{"mode":"ANY"},"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}}"#,
        r#"{"contents":[1],"toolConfig":{"functionCallingConfig":{"mode":"NONE"}}}"#,
    ),
    (
        Api::Generate,
        r#"{"contents":[1],"toolConfig":{},"functionCallingConfig":{"mode":"ANY"}}"#,
        r#"{"contents":[1],"toolConfig":{"functionCallingConfig":{"mode":"ANY"}}}"#,
    ),
];

#[test]
fn spelling_is_converted_to_the_providers_and_nothing_else_changes() {
    for (api, body, expected) in BODIES {
        let body = read(*api, body, usize::MAX);
        assert_eq!(applied(&body, &dialect()), *expected, "{api:?}");
    }
}

#[test]
fn spelling_edits_are_the_same_at_every_split() {
    for (api, text, expected) in BODIES {
        for size in 1..text.len() {
            assert_eq!(applied(&read(*api, text, size), &dialect()), *expected, "in pieces of {size}");
        }
    }
}

#[test]
fn spelling_of_the_provider_is_not_edited() {
    for (api, _, text) in BODIES {
        let body = read(*api, text, usize::MAX);
        assert!(body.respelled(&dialect()).edits.is_empty(), "{text}");
    }
    let plain = Dialect { max_completion_tokens: false, ..dialect() };
    let text = r#"{"model":"m","messages":[1],"max_tokens":77}"#;
    assert_eq!(applied(&read(Api::Chat, text, 9), &plain), text);
}

#[test]
fn spelling_check_is_skipped_for_ordinary_bodies() {
    for (api, text) in [
        (
            Api::Chat,
            r#"{"model":"m","stream":true,"temperature":0.2,"messages":[{"role":"user","content":"persistent"}],"tools":[{"type":"function","function":{"name":"f"}}]}"#,
        ),
        (
            Api::Messages,
            r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]}],"tools":[{"name":"f"}]}"#,
        ),
        (
            Api::Responses,
            r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"x"}]}],"tools":[{"type":"function","name":"f"}]}"#,
        ),
        (
            Api::Generate,
            r#"{"contents":[{"role":"user","parts":[{"text":"groundingSearch"}]}],"tools":[{"googleSearch":{}}]}"#,
        ),
    ] {
        assert!(!read(api, text, usize::MAX).may_be_spelled(), "{text}");
    }
}

/// Members that a platform refuses, as Bedrock does for requests without the beta features of tools.
const PLATFORM: Quirks = Quirks {
    lacks: &[&["eager_input_streaming", "allowed_callers", "cache_control.scope", "defer_loading"]],
    ..Quirks::PLAIN
};

#[test]
fn members_that_a_platform_refuses_are_removed_at_every_split() {
    let mark = r#""cache_control":{"type":"ephemeral","scope":"global"}"#;
    let plain = r#""cache_control":{"type":"ephemeral"}"#;
    for (text, expected, dropped) in [
        (
            r#"{"model":"m","max_tokens":9,"messages":[1],"tools":[{"eager_input_streaming":true,"name":"f","allowed_callers":["direct"] , "defer_loading" : false},{"name":"g","input_schema":{"defer_loading":1},"input_examples":[{"allowed_callers":1}]}, 3]}"#.to_owned(),
            r#"{"model":"m","max_tokens":9,"messages":[1],"tools":[{"name":"f"},{"name":"g","input_schema":{"defer_loading":1},"input_examples":[{"allowed_callers":1}]}, 3]}"#.to_owned(),
            &["eager_input_streaming", "allowed_callers"][..],
        ),
        (
            format!(
                r#"{{"model":"m",{mark},"max_tokens":9,"system":[{{"type":"text",{mark}}}],"tools":[{{{mark},"defer_loading":true}}],"messages":[{{"role":"user","content":[{{"type":"tool_result","content":[{{"type":"text",{mark}}}]}},{{"input":{{{mark}}}}},{{"cache_control":{{"scope":"x" , "type":"persistent"}}}}]}}]}}"#
            ),
            format!(
                r#"{{"model":"m",{plain},"max_tokens":9,"system":[{{"type":"text",{plain}}}],"tools":[{{{plain}}}],"messages":[{{"role":"user","content":[{{"type":"tool_result","content":[{{"type":"text",{plain}}}]}},{{"input":{{{mark}}}}},{{"cache_control":{{"type":"ephemeral","ttl":"1h"}}}}]}}]}}"#
            ),
            &["cache_control.scope", "defer_loading"],
        ),
    ] {
        let platform = Dialect { quirks: const { &PLATFORM }, ..dialect() };
        for size in (1..text.len()).step_by(7) {
            let body = read(Api::Messages, &text, size);
            assert!(body.may_have_refused_members());
            assert_eq!(applied(&body, &platform), expected, "in pieces of {size}");
            assert_eq!(body.respelled(&platform).dropped, dropped);
            assert!(!applied(&body, &dialect()).contains(&expected), "the format's own provider takes them");
        }
    }
    let plain = read(Api::Messages, r#"{"model":"m","max_tokens":9,"messages":[1]}"#, 9);
    assert!(!plain.may_have_refused_members());
}

#[test]
fn beta_headers_are_derived_from_the_body() {
    let of = |text: &str| read(Api::Messages, text, 5).betas();
    assert_eq!(of(r#"{"model":"m","max_tokens":9,"messages":[1]}"#), Betas::default());
    assert_eq!(of(r#"{"model":"m","max_tokens":9,"messages":[1],"mcp_servers":null}"#), Betas::default());
    let both = of(r#"{"model":"m","max_tokens":9,"messages":[1],"mcp_servers":[],"context_management":{}}"#);
    assert_eq!(both, Betas { mcp: true, toolsets: false, context: true, ..Betas::default() });
    let sets = of(
        r#"{"model":"m","max_tokens":9,"messages":[1],"mcp_servers":[],"tools":[{"type":"mcp_toolset"}]}"#,
    );
    assert_eq!(sets, Betas { mcp: true, toolsets: true, context: false, ..Betas::default() });
    let many: Vec<String> = (0..99).map(|number| format!("beta-{number}")).collect();
    let named = of(&format!(
        r#"{{"model":"m","max_tokens":9,"messages":[1],"anthropic_beta":["a-1",7,"b,c","",{}]}}"#,
        serde_json::to_string(&many).unwrap().trim_matches(['[', ']'])
    ));
    assert_eq!((named.named.len(), &*named.named[0], &*named.named[1]), (32, "a-1", "beta-0"));
}

#[test]
fn values_out_of_range_are_refused_by_name() {
    for (api, text, param) in [
        (Api::Chat, r#"{"model":"m","messages":[1],"temperature":2.1}"#, "temperature"),
        (Api::Chat, r#"{"model":"m","messages":[1],"top_p":-0.1}"#, "top_p"),
        (Api::Chat, r#"{"model":"m","messages":[1],"max_tokens":0}"#, "max_tokens"),
        (Api::Chat, r#"{"model":"m","messages":[1],"max_completion_tokens":-1}"#, "max_completion_tokens"),
        (
            Api::Chat,
            r#"{"model":"m","messages":[1],"parameters":{"temperature":3}}"#,
            "parameters.temperature",
        ),
        (Api::Messages, r#"{"model":"m","max_tokens":9,"messages":[1],"temperature":1.5}"#, "temperature"),
        (Api::Messages, r#"{"model":"m","max_tokens":9,"messages":[ ]}"#, "messages"),
        (
            Api::Messages,
            r#"{"model":"m","max_tokens":9,"messages":[1],"thinking":{"type":"enabled","budget_tokens":500}}"#,
            "thinking.budget_tokens",
        ),
        (Api::Responses, r#"{"model":"m","input":[]}"#, "input"),
        (Api::Responses, r#"{"model":"m","input":""}"#, "input"),
        (Api::Responses, r#"{"model":"m","input":"x","top_p":1.1}"#, "top_p"),
        (Api::Responses, r#"{"model":"m","input":"x","max_output_tokens":0}"#, "max_output_tokens"),
        (Api::Responses, r#"{"model":"m","input":"x","truncation":"weird"}"#, "truncation"),
        (Api::Responses, r#"{"model":"m","input":"x","max_tool_calls":-1}"#, "max_tool_calls"),
        (Api::Responses, r#"{"model":"m","input":"x","metadata":[]}"#, "metadata"),
        (
            Api::Generate,
            r#"{"contents":[1],"generation_config":{"temperature":2.5}}"#,
            "generation_config.temperature",
        ),
    ] {
        let mut reader = BodyReader::new(api, false);
        reader.push(Bytes::copy_from_slice(text.as_bytes())).unwrap();
        let error = reader.finish().unwrap_err();
        assert_eq!((error.status, error.param.as_deref()), (400, Some(param)), "{text}");
        assert!(error.message.contains(param), "{}", error.message);
    }
    // The input is empty, but the request continues a stored response.
    let text = r#"{"model":"m","input":[],"previous_response_id":"resp_1","temperature":null}"#;
    assert_eq!(applied(&read(Api::Responses, text, 3), &dialect()), text);
}

/// Random JSON of names and words with a meaning in some format.
fn any_value() -> impl Strategy<Value = serde_json::Value> {
    let word = prop::sample::select(vec![
        "persistent",
        "type",
        "cache_control",
        "function",
        "custom",
        "input_text",
        "none",
        "approximate",
        "enabled",
        "x",
    ]);
    let leaf = prop_oneof![
        word.clone().prop_map(serde_json::Value::from),
        Just(serde_json::Value::Null),
        Just(serde_json::json!(0))
    ];
    let name = prop::sample::select(vec![
        "type",
        "cache_control",
        "content",
        "source",
        "function",
        "custom",
        "tools",
        "user_location",
        "approximate",
        "summary",
        "effort",
        "groundingSearch",
        "googleSearch",
        "functionCallingConfig",
        "ttl",
        "role",
        "name",
        "scope",
        "defer_loading",
        "allowed_callers",
    ]);
    leaf.prop_recursive(5, 48, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..5).prop_map(|map| {
                serde_json::Value::Object(map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// For any body: edits fit into it, the result is JSON, a second pass changes nothing, and the split into pieces
    /// has no effect.
    #[test]
    fn spelling_edits_are_valid_and_idempotent_for_any_body(value in any_value(), other in any_value(), size in 1..40usize) {
        let bodies = [
            (Api::Messages, serde_json::json!({"model": "m", "max_tokens": 9, "messages": [{"content": value}], "tools": [other]})),
            (Api::Messages, serde_json::json!({"model": "m", "max_tokens": 9, "messages": [1], "cache_control": value, "system": other})),
            (Api::Responses, serde_json::json!({"model": "m", "input": [value, 1], "tools": [other], "tool_choice": value, "reasoning": {"summary": other}})),
            (Api::Chat, serde_json::json!({"model": "m", "messages": [1], "web_search_options": {"user_location": value}})),
            (Api::Generate, serde_json::json!({"contents": [1], "tools": [value], "toolConfig": {"functionCallingConfig": other}, "functionCallingConfig": value})),
        ];
        for (api, body) in bodies {
            let text = body.to_string();
            // A value of a kind that its member cannot have is refused before anything is respelled.
            let Ok(body) = try_read(api, &text, usize::MAX) else { continue };
            let once = applied(&body, &dialect());
            prop_assert!(serde_json::from_str::<serde_json::Value>(&once).is_ok(), "{} -> {}", text, once);
            prop_assert_eq!(&applied(&read(api, &text, size), &dialect()), &once);
            let platform = Dialect { quirks: const { &PLATFORM }, ..dialect() };
            let plain = applied(&read(api, &text, size), &platform);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&plain).is_ok(), "{} -> {}", text, plain);
            // A function nested twice is not a known spelling.
            if api != Api::Responses {
                prop_assert_eq!(&applied(&read(api, &once, usize::MAX), &dialect()), &once);
            }
        }
    }
}
