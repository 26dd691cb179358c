//! Tests of reasoning settings in all spellings, and of extensions of compatible providers and of the specification.

use super::*;
use crate::canonical::Thinking;

fn thinking(members: &str) -> Thinking {
    let body = asking(&format!(",{members}"));
    request::decode(&body).unwrap_or_else(|error| panic!("{members}: {error}")).thinking
}

#[test]
fn map_4_reasoning_setting_is_decoded_in_every_spelling() {
    use Effort::{High, Low, Max, Medium, Minimal, XHigh};
    for (members, wish) in [
        (r#""reasoning_effort":"minimal""#, Thinking::Effort(Minimal)),
        (r#""reasoning_effort":"low""#, Thinking::Effort(Low)),
        (r#""reasoning_effort":"medium""#, Thinking::Effort(Medium)),
        (r#""reasoning_effort":"high""#, Thinking::Effort(High)),
        (r#""reasoning_effort":"xhigh""#, Thinking::Effort(XHigh)),
        (r#""reasoning_effort":"max""#, Thinking::Effort(Max)),
        (r#""reasoning_effort":"none""#, Thinking::Off),
        (r#""reasoning_effort":"default""#, Thinking::Unset),
        (r#""reasoning":{"effort":"low"}"#, Thinking::Effort(Low)),
        (r#""reasoning":{"max_tokens":2000}"#, Thinking::Budget(2000)),
        (r#""reasoning":{"max_tokens":0}"#, Thinking::Off),
        (r#""reasoning":{"max_tokens":-1}"#, Thinking::Adaptive),
        (r#""reasoning":{"enabled":true}"#, Thinking::Effort(Medium)),
        (r#""reasoning":{"enabled":true,"effort":"high"}"#, Thinking::Effort(High)),
        (r#""reasoning":{"enabled":false}"#, Thinking::Off),
        (r#""reasoning":{"effort":"none"}"#, Thinking::Off),
        (r#""reasoning":"high""#, Thinking::Effort(High)),
        (r#""thinking":{"type":"enabled"}"#, Thinking::Effort(Medium)),
        (r#""thinking":{"type":"enabled","budget_tokens":9000}"#, Thinking::Budget(9000)),
        (r#""thinking":{"type":"disabled"}"#, Thinking::Off),
        (r#""thinking":{"type":"adaptive"}"#, Thinking::Adaptive),
        (r#""thinking":{"type":"enabled"},"reasoning_effort":"max""#, Thinking::Effort(Max)),
        (r#""thinking":{"type":"disabled"},"reasoning_effort":"max""#, Thinking::Off),
        (r#""enable_thinking":true"#, Thinking::Effort(Medium)),
        (r#""enable_thinking":false"#, Thinking::Off),
        (r#""enable_thinking":true,"thinking_budget":500"#, Thinking::Budget(500)),
        (r#""parameters":{"enable_thinking":true}"#, Thinking::Effort(Medium)),
    ] {
        assert_eq!(thinking(members), wish, "{members}");
    }
}

#[test]
fn reasoning_visibility_is_decoded() {
    for (members, show) in [
        (r#""include_reasoning":false"#, Some(false)),
        (r#""include_reasoning":true"#, Some(true)),
        (r#""reasoning":{"exclude":true}"#, Some(false)),
        (r#""reasoning":{"effort":"low","exclude":false}"#, None),
    ] {
        let body = asking(&format!(",{members}"));
        assert_eq!(request::decode(&body).unwrap().show_thinking, show, "{members}");
    }
}

/// Returns the body for a reasoning setting and a provider with these extensions.
fn told(wish: Thinking, reasoning: ReasoningSupport, extensions: &'static [&'static str]) -> Value {
    let request = Request { thinking: wish, ..Request::default() };
    let mut value = sent(&request, &Dialect { reasoning, extensions, ..dialect() });
    let members = value.as_object_mut().unwrap();
    members.remove("model");
    members.remove("messages");
    value
}

#[test]
fn map_4_reasoning_setting_is_encoded_in_the_providers_spelling() {
    use serde_json::json;
    let effort = ReasoningSupport::efforts(Effort::Low, Effort::High, true);
    let budget = ReasoningSupport::Budget { min: 1, max: 30_000, off: true };
    let high = Thinking::Effort(Effort::High);
    for (wish, reasoning, extensions, expected) in [
        (high, effort, &[][..], json!({"reasoning_effort": "high"})),
        (Thinking::Effort(Effort::Max), effort, &[], json!({"reasoning_effort": "high"})),
        (Thinking::Budget(8_000), effort, &[], json!({"reasoning_effort": "medium"})),
        (Thinking::Off, effort, &[], json!({"reasoning_effort": "none"})),
        (Thinking::Adaptive, effort, &[], json!({})),
        (Thinking::Unset, effort, &[], json!({})),
        (high, ReasoningSupport::Fixed, &[], json!({})),
        (high, effort, &["thinking"], json!({"thinking": {"type": "enabled"}, "reasoning_effort": "high"})),
        (Thinking::Off, effort, &["thinking"], json!({"thinking": {"type": "disabled"}})),
        (
            Thinking::Budget(500),
            budget,
            &["thinking"],
            json!({"thinking": {"type": "enabled", "budget_tokens": 500}}),
        ),
        (high, effort, &["enable_thinking"], json!({"enable_thinking": true})),
        (Thinking::Off, effort, &["enable_thinking"], json!({"enable_thinking": false})),
        (
            Thinking::Budget(500),
            budget,
            &["enable_thinking", "thinking_budget"],
            json!({"enable_thinking": true, "thinking_budget": 500}),
        ),
        (Thinking::Budget(500), budget, &["reasoning"], json!({"reasoning": {"max_tokens": 500}})),
        (Thinking::Budget(500), budget, &[], json!({"reasoning_effort": "minimal"})),
    ] {
        assert_eq!(told(wish, reasoning, extensions), expected, "{wish:?}, {extensions:?}");
    }
    let request = Request { thinking: high, ..Request::default() };
    let fixed = Dialect { reasoning: ReasoningSupport::Fixed, ..dialect() };
    assert_eq!(sent_from(Format::Messages, &request, &fixed).1, ["reasoning_effort"]);
}

#[test]
fn parameters_object_is_overridden_by_top_level_members() {
    let body = asking(
        r#","top_p":0.5,"parameters":{"enable_search":true,"search_options":{"region":"x"},"incremental_output":true,"asr_options":{},"temperature":0.1,"top_p":0.9,"model":"evil","messages":[]}"#,
    );
    let request = request::decode(&body).unwrap();
    assert_eq!(request.sampling.temperature.unwrap().text(), "0.1");
    assert_eq!(request.sampling.top_p.unwrap().text(), "0.5");
    assert!(request.search.is_some());
    let names: Vec<_> = request.extra.iter().map(|extra| extra.name).collect();
    assert_eq!(names, ["search_options", "incremental_output", "asr_options"]);
    assert_eq!(request.turns.len(), 1);
    // Their provider has all of them at the top level.
    let knows = Dialect { extensions: &["enable_search", "search_options"], ..dialect() };
    let (sent, losses) = through(&body, &knows);
    assert_eq!((&sent["enable_search"], &sent["search_options"]["region"]), (&true.into(), &"x".into()));
    assert!(sent.get("web_search_options").is_none());
    assert_eq!(losses, ["incremental_output", "asr_options"]);
}

/// Models of that provider may search unless they are told not to; for all others there is nothing to switch off.
#[test]
fn search_switched_off_is_told_to_the_provider_that_has_the_switch() {
    let knows = Dialect { extensions: &["enable_search"], ..dialect() };
    for members in [r#","parameters":{"enable_search":false}"#, r#","enable_search":false"#] {
        let body = asking(members);
        let (sent, losses) = through(&body, &knows);
        assert_eq!((&sent["enable_search"], losses.len()), (&false.into(), 0), "{members}");
        let (sent, _) = through(&body, &dialect());
        assert!(sent.get("enable_search").is_none(), "{members}: {sent}");
    }
    let both = asking(r#","enable_search":false,"web_search_options":{}"#);
    assert_eq!(through(&both, &knows).0["enable_search"], true);
}

#[test]
fn parameters_object_overrides_no_top_level_member() {
    for (top, inside) in [
        (r#""max_tokens":1"#, r#""max_tokens":2,"max_completion_tokens":2"#),
        (r#""max_completion_tokens":1"#, r#""max_tokens":2,"max_completion_tokens":2"#),
        (r#""seed":1"#, r#""seed":2,"random_seed":2"#),
        (r#""stop":["a"]"#, r#""stop":"b""#),
        (r#""top_k":1,"n":1"#, r#""top_k":2,"n":2"#),
        (r#""presence_penalty":1,"frequency_penalty":1"#, r#""presence_penalty":2,"frequency_penalty":2"#),
        (r#""logprobs":false"#, r#""logprobs":true,"top_logprobs":2"#),
        (r#""top_logprobs":1"#, r#""logprobs":false,"top_logprobs":2"#),
        (r#""response_format":{"type":"json_object"}"#, r#""response_format":{"type":"text"}"#),
        (r#""tool_choice":"none""#, r#""tool_choice":"required","function_call":"auto""#),
        (r#""function_call":"none""#, r#""tool_choice":"required""#),
        (r#""parallel_tool_calls":false"#, r#""parallel_tool_calls":true"#),
        (r#""reasoning_effort":"low""#, r#""reasoning_effort":"high""#),
        (r#""thinking":{"type":"disabled"}"#, r#""thinking":{"type":"enabled"}"#),
        (r#""enable_thinking":true,"thinking_budget":1"#, r#""enable_thinking":false,"thinking_budget":2"#),
        (
            r#""user":"a","metadata":{},"verbosity":"low""#,
            r#""user":"b","metadata":{"a":"b"},"verbosity":"high""#,
        ),
        (r#""web_search_options":{"search_context_size":"low"}"#, r#""web_search_options":{}"#),
        (r#""tools":[]"#, r#""tools":[{}],"functions":[{"name":"f"}]"#),
        (r#""min_p":0.1"#, r#""min_p":0.2"#),
    ] {
        let alone = asking(&format!(",{top}"));
        let expected = format!("{:?}", request::decode(&alone).unwrap());
        for both in
            [format!(r#","parameters":{{{inside}}},{top}"#), format!(r#",{top},"parameters":{{{inside}}}"#)]
        {
            let body = asking(&both);
            assert_eq!(format!("{:?}", request::decode(&body).unwrap()), expected, "{both}");
        }
    }
    // A member that is null is absent.
    let body = asking(r#","seed":null,"parameters":{"seed":5,"max_tokens":7,"max_completion_tokens":6}"#);
    let request = request::decode(&body).unwrap();
    assert_eq!((request.sampling.seed.unwrap().text(), request.max_output), ("5", Some(6)));
    // Members that complete each other are combined.
    let body = asking(r#","logprobs":true,"parameters":{"top_logprobs":3}"#);
    assert_eq!(request::decode(&body).unwrap().logprobs, Some(3));
}

#[test]
fn search_settings_are_lost_where_search_is_a_switch_or_a_tool() {
    const TOOL: &Quirks = &Quirks { search_tool: Some(r#"{"type":"search"}"#), ..Quirks::PLAIN };
    let body = asking(
        r#","web_search_options":{"search_context_size":"low","user_location":{"approximate":{"city":"Oslo"}}}"#,
    );
    let switch = Dialect { extensions: &["enable_search"], ..dialect() };
    let tool = Dialect { quirks: TOOL, ..dialect() };
    for knows in [&switch, &tool] {
        assert_eq!(through(&body, knows).1, ["web_search_context", "web_search_location"]);
    }
    assert!(through(&body, &dialect()).1.is_empty());
}

#[test]
fn extensions_are_sent_only_to_providers_that_support_them() {
    let body = asking(r#","min_p":0.1,"top_k":5,"logit_bias":{"1":1},"provider":{"order":["a"]}"#);
    let (sent, losses) = through(&body, &dialect());
    assert_eq!(sent["logit_bias"], serde_json::json!({"1": 1}));
    assert_eq!(losses, ["top_k", "min_p", "provider"]);
    assert!(sent.get("min_p").is_none());
    let all = Dialect { extensions: &["*"], ..dialect() };
    let (sent, losses) = through(&body, &all);
    assert_eq!((&sent["min_p"], &sent["top_k"]), (&0.1.into(), &5.into()));
    assert!(losses.is_empty() && sent["provider"]["order"][0] == "a");
    // A member of another format is never sent, even to a provider that accepts all extensions.
    let foreign =
        crate::canonical::request::Extra { name: "mcp_servers", value: json::RawJson::from_text("[]") };
    let request = Request { extra: vec![foreign], ..Request::default() };
    let (sent, losses, refusal) = sent_from(Format::Messages, &request, &all);
    assert!(sent.get("mcp_servers").is_none() && losses == ["mcp_servers"] && refusal.is_some());
}

#[test]
fn map_12_extras_of_other_formats_are_sent_if_chat_has_them() {
    let extra =
        |name, value| crate::canonical::request::Extra { name, value: json::RawJson::from_text(value) };
    let request = Request {
        extra: vec![
            extra("prompt_cache_retention", "\"24h\""),
            extra("safety_identifier", "\"s\""),
            extra("truncation", "\"auto\""),
            extra("generationConfig.mediaResolution", "\"LOW\""),
        ],
        ..Request::default()
    };
    let (sent, losses, refusal) = sent_from(Format::Responses, &request, &dialect());
    assert_eq!((&sent["prompt_cache_retention"], &sent["safety_identifier"]), (&"24h".into(), &"s".into()));
    assert_eq!(losses, ["truncation", "generationConfig.mediaResolution"]);
    assert_eq!(refusal, None);
}
