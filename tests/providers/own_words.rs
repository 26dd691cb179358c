//! Chat clients at chat providers that support only a part of the format: a request that fits passes verbatim, any
//! other is decoded and encoded again without further losses.

use model_gateway::provider::Provider;
use model_gateway::wire::chat::request::fits;
use model_gateway::wire::{Api, Format};
use serde_json::json;

use crate::{at, choose, sent_from};

fn passes(provider: &Provider, model: &str, members: &str) -> bool {
    let messages = if members.contains("\"messages\"") { "" } else { r#","messages":[]"# };
    let body = format!(r#"{{"model":"m",{members}{messages}}}"#);
    fits(&body, &provider.dialect(Api::Chat, model))
}

#[test]
fn compat_verbatim_only_for_requests_that_fit_the_provider() {
    let deepseek = at("https://api.deepseek.com/v1");
    let asks = |members: &str| passes(&deepseek, "deepseek-chat", members);
    for fine in [
        r#""max_tokens":5,"temperature":1.5,"thinking":{"type":"enabled"},"stream":true,"stream_options":{"include_usage":true}"#,
        r#""n":1,"parallel_tool_calls":true,"logprobs":true,"user":null,"response_format":{"type":"json_object"}"#,
        r#""messages":[{"role":"system","content":"a"},{"role":"assistant","tool_calls":[{"id":"c"}],"reasoning_content":"so"}]"#,
        r#""reasoning_effort":"max","unheard_of":{"a":1}"#,
        &choose(r#""auto""#),
    ] {
        assert!(asks(fine), "{fine}");
    }
    for strange in [
        r#""max_completion_tokens":5"#,
        // The model reasons by default, and takes no required call then.
        &choose(r#""required""#),
        r#""messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}},{"type":"text","text":"a"}]}]"#,
        r#""temperature":2.5"#,
        r#""n":2"#,
        r#""seed":1"#,
        r#""user":"u""#,
        r#""parallel_tool_calls":false"#,
        r#""reasoning_effort":"medium""#,
        r#""response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{}}}"#,
        r#""messages":[{"role":"developer","content":"a"}]"#,
        r#""messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]"#,
        r#""messages":[{"role":"assistant","tool_calls":[{"id":"c"}]}]"#,
        r#""tools":[{"type":"custom","custom":{"name":"p"}}]"#,
        r#""tools":[{"type":"function","function":{"name":"p","strict":true}}]"#,
        &choose(r#"{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}"#),
    ] {
        assert!(!asks(strange), "{strange}");
    }
}

#[test]
fn compat_verbatim_conditions_differ_by_provider() {
    let mistral = at("https://api.mistral.ai/v1");
    assert!(passes(&mistral, "m", r#""random_seed":5,"safe_prompt":true,"tool_choice":"any""#));
    assert!(!passes(&mistral, "m", r#""seed":5"#));
    assert!(!passes(&mistral, "m", r#""tool_choice":"required""#));
    assert!(!passes(&mistral, "m", r#""messages":[{"role":"tool","tool_call_id":"call_123","content":""}]"#));
    assert!(passes(
        &mistral,
        "m",
        r#""messages":[{"role":"tool","tool_call_id":"abcDEF123","name":"f","content":""}]"#
    ));
    assert!(!passes(&mistral, "m", r#""messages":[{"role":"user","name":"ann","content":""}]"#));
    let qwen = at("https://dashscope.aliyuncs.com/compatible-mode/v1");
    assert!(passes(&qwen, "qwen-plus", r#""enable_thinking":true,"thinking_budget":5"#));
    assert!(!passes(&qwen, "qwen-plus", r#""reasoning_effort":"low""#));
    assert!(!passes(&qwen, "qwq-plus", r#""temperature":1"#));
    assert!(passes(&qwen, "qwq-plus", r#""stream":true"#));
    let kimi = at("https://api.moonshot.ai/v1");
    assert!(passes(&kimi, "kimi-k2.5", r#""temperature":1"#));
    assert!(!passes(&kimi, "kimi-k2.5", r#""temperature":0.6"#));
    let xai = at("https://api.x.ai/v1");
    assert!(!passes(&xai, "grok-4", r#""stop":["a"]"#));
    assert!(passes(&xai, "grok-3", r#""stop":["a"]"#));
}

#[test]
fn compat_verbatim_check_is_independent_of_member_order() {
    let mistral = at("https://api.mistral.ai/v1");
    for (members, fine) in [
        ([r#""role":"tool""#, r#""name":"f""#, r#""content":"a""#], true),
        ([r#""role":"user""#, r#""name":"f""#, r#""content":"a""#], false),
        ([r#""role":"user""#, r#""name":null"#, r#""content":"a""#], true),
    ] {
        for [a, b, c] in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let message = format!("{},{},{}", members[a], members[b], members[c]);
            assert_eq!(passes(&mistral, "m", &format!(r#""messages":[{{{message}}}]"#)), fine, "{message}");
        }
    }
}

#[test]
fn compat_unknown_members_survive_encoding() {
    let deepseek = at("https://api.deepseek.com/v1");
    let body =
        r#"{"model":"m","seed":1,"unheard_of":{"b":1,"a":2},"messages":[{"role":"user","content":"Hi"}]}"#;
    let sent = sent_from(&deepseek, "deepseek-chat", Format::Chat, body);
    assert_eq!(sent["unheard_of"], json!({"b": 1, "a": 2}));
    assert!(sent.get("seed").is_none());
}

#[test]
fn compat_verbatim_check_is_skipped_for_plain_providers() {
    for (base, particular) in [
        ("https://api.openai.com/v1", false),
        ("http://127.0.0.1:8000/v1", false),
        ("https://api.deepseek.com/v1", true),
        ("https://api.mistral.ai/v1", true),
    ] {
        assert_eq!(at(base).needs_adaptation(), particular, "{base}");
    }
}
