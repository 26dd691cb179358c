//! Requests to each provider that serves its own models.

use model_gateway::provider::Provider;
use model_gateway::wire::Format;
use serde_json::{Value, json};

use crate::{ONE, at, choose, refused, sent, sent_from, tools_of};

const SCHEMA: &str =
    r#""response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object"}}}"#;
const OF_OPENAI: &str = r#""store":true,"metadata":{"a":"b"},"service_tier":"flex","user":"u","verbosity":"low","prompt_cache_key":"k","safety_identifier":"s","logit_bias":{"1":2}"#;
const DEVELOPER: &str =
    r#""messages":[{"role":"developer","content":"Be brief."},{"role":"user","content":"Hi"}]"#;
const LOOP: &str = r#"{"model":"m","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_abcdefghijkl","type":"function","function":{"name":"find","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_abcdefghijkl","content":"5"}]}"#;

fn deepseek() -> Provider {
    at("https://api.deepseek.com/v1")
}

fn lacks(sent: &Value, names: &[&str]) {
    for name in names {
        assert!(sent.get(name).is_none(), "{name} is sent: {sent}");
    }
}

#[test]
fn compat_deepseek_unsupported_members_are_omitted() {
    let (body, _) = sent(&deepseek(), "deepseek-chat", OF_OPENAI);
    lacks(&body, &["store", "metadata", "service_tier", "user", "verbosity", "prompt_cache_key"]);
    lacks(&body, &["safety_identifier", "logit_bias"]);
    let (body, lost) = sent(
        &deepseek(),
        "deepseek-chat",
        r#""seed":5,"parallel_tool_calls":false,"max_completion_tokens":9,"tools":[{"type":"function","function":{"name":"f","strict":true}}]"#,
    );
    lacks(&body, &["seed", "parallel_tool_calls", "max_completion_tokens"]);
    assert_eq!(body["max_tokens"], 9);
    assert_eq!(body["tools"][0]["function"], json!({"name": "f"}));
    assert_eq!(lost, ["seed", "parallel_tool_calls", "tool_strict"]);
    assert_eq!(refused(&deepseek(), "deepseek-chat", r#""n":2"#), "n");
    // A single choice is the default everywhere.
    lacks(&sent(&deepseek(), "deepseek-chat", r#""n":1"#).0, &["n"]);
}

#[test]
fn compat_deepseek_developer_is_system_and_texts_are_strings() {
    let (body, _) = sent(&deepseek(), "deepseek-chat", DEVELOPER);
    assert_eq!(body["messages"][0], json!({"role": "system", "content": "Be brief."}));
    let two = r#"{"model":"m","max_tokens":5,"system":[{"type":"text","text":"A"},{"type":"text","text":"B"}],"messages":[{"role":"user","content":[{"type":"text","text":"c"},{"type":"text","text":"d"}]},{"role":"assistant","content":[{"type":"text","text":"e"},{"type":"text","text":"f"}]},{"role":"user","content":"g"}]}"#;
    let body = sent_from(&deepseek(), "deepseek-chat", Format::Messages, two);
    let contents: Vec<&str> =
        body["messages"].as_array().unwrap().iter().map(|m| m["content"].as_str().unwrap()).collect();
    assert_eq!(contents, ["A\n\nB", "c\n\nd", "ef", "g"]);
    // Content with other parts than text stays a list of parts.
    let image = r#""messages":[{"role":"user","content":[{"type":"text","text":"c"},{"type":"image_url","image_url":{"url":"https://a.example/b.png"}}]}]"#;
    assert!(sent(&deepseek(), "deepseek-vl", image).0["messages"][0]["content"].is_array());
}

#[test]
fn compat_deepseek_schema_becomes_json_object_and_an_instruction() {
    let (body, lost) = sent(&deepseek(), "deepseek-chat", SCHEMA);
    assert_eq!(body["response_format"], json!({"type": "json_object"}));
    assert!(body["messages"][0]["content"].as_str().unwrap().contains(r#"{"type":"object"}"#));
    assert_eq!(lost, ["output_schema"]);
}

#[test]
fn compat_deepseek_thinking_is_a_switch_and_three_efforts() {
    for (said, word) in [
        ("minimal", "low"),
        ("low", "low"),
        ("medium", "high"),
        ("high", "high"),
        ("xhigh", "max"),
        ("max", "max"),
    ] {
        let (body, _) = sent(&deepseek(), "deepseek-chat", &format!(r#""reasoning_effort":"{said}""#));
        assert_eq!((&body["thinking"]["type"], &body["reasoning_effort"]), (&json!("enabled"), &json!(word)));
    }
    let (body, _) = sent(&deepseek(), "deepseek-chat", r#""reasoning_effort":"none""#);
    assert_eq!(body["thinking"], json!({"type": "disabled"}));
    lacks(&body, &["reasoning_effort"]);
}

#[test]
fn compat_deepseek_tool_calls_carry_reasoning_while_thinking() {
    let body = sent_from(&deepseek(), "deepseek-chat", Format::Chat, LOOP);
    assert_eq!(body["messages"][1]["reasoning_content"], " ");
    let told = LOOP.replace(r#""content":null,"#, r#""content":null,"reasoning_content":"so","#);
    let body = sent_from(&deepseek(), "deepseek-chat", Format::Chat, &told);
    assert_eq!(body["messages"][1]["reasoning_content"], "so");
    let off = LOOP.replace(r#"{"model":"m","#, r#"{"model":"m","thinking":{"type":"disabled"},"#);
    let body = sent_from(&deepseek(), "deepseek-chat", Format::Chat, &off);
    assert!(body["messages"][1].get("reasoning_content").is_none());
    // The first reasoning model refuses its own reasoning as input.
    let body = sent_from(&deepseek(), "deepseek-r1", Format::Chat, &told);
    assert!(body["messages"][1].get("reasoning_content").is_none());
}

#[test]
fn compat_deepseek_prefill_needs_the_beta_address() {
    let begun =
        r#""messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"He","prefix":true}]"#;
    let (body, lost) = sent(&at("https://api.deepseek.com/beta"), "deepseek-chat", begun);
    assert_eq!((&body["messages"][1]["prefix"], lost.len()), (&json!(true), 0));
    assert_eq!(sent(&deepseek(), "deepseek-chat", begun).1, ["prefill"]);
}

#[test]
fn compat_deepseek_file_part_is_flat() {
    let file = r#""messages":[{"role":"user","content":[{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBE"}}]}]"#;
    let (body, _) = sent(&deepseek(), "deepseek-chat", file);
    let flat = json!({"type": "file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"});
    assert_eq!(body["messages"][0]["content"][0], flat);
}

#[test]
fn compat_qwen_thinking_is_a_switch_and_a_budget() {
    let qwen = at("https://dashscope.aliyuncs.com/compatible-mode/v1");
    let (body, _) = sent(&qwen, "qwen-plus", r#""reasoning_effort":"low""#);
    assert_eq!((&body["enable_thinking"], &body["thinking_budget"]), (&json!(true), &json!(2048)));
    lacks(&body, &["reasoning_effort"]);
    let (body, _) = sent(&qwen, "qwen-plus", r#""thinking":{"type":"enabled","budget_tokens":777}"#);
    assert_eq!(body["thinking_budget"], 777);
    let (body, _) = sent(&qwen, "qwen-plus", r#""enable_thinking":false"#);
    assert_eq!(body["enable_thinking"], false);
}

#[test]
fn compat_qwen_open_weights_do_not_think_without_a_stream() {
    let qwen = at("https://dashscope.aliyuncs.com/compatible-mode/v1");
    for model in ["qwen3-32b", "qwen3-235b-a22b"] {
        assert_eq!(sent(&qwen, model, "").0["enable_thinking"], false, "{model}");
        lacks(&sent(&qwen, model, r#""stream":true"#).0, &["enable_thinking"]);
    }
    for model in ["qwen-plus", "qwen3-30b-a3b-instruct-2507", "qwen3-max"] {
        lacks(&sent(&qwen, model, "").0, &["enable_thinking"]);
    }
}

#[test]
fn compat_qwen_stream_only_models_are_always_streamed() {
    let qwen = at("https://dashscope.aliyuncs.com/compatible-mode/v1");
    for model in ["qwq-plus", "qwen-omni-turbo"] {
        let (body, _) = sent(&qwen, model, "");
        assert_eq!((&body["stream"], &body["stream_options"]["include_usage"]), (&json!(true), &json!(true)));
    }
    lacks(&sent(&qwen, "qwen-plus", "").0, &["stream"]);
}

#[test]
fn compat_qwen_own_members_and_parameters_are_at_the_top_level() {
    let qwen = at("https://dashscope.aliyuncs.com/compatible-mode/v1");
    let body = r#"{"model":"m","parameters":{"top_k":5,"enable_search":true,"repetition_penalty":1.1},"search_options":{"forced_search":true},"messages":[{"role":"user","content":"Hi"}]}"#;
    let body = sent_from(&qwen, "qwen-plus", Format::Chat, body);
    assert_eq!((&body["top_k"], &body["repetition_penalty"]), (&json!(5), &json!(1.1)));
    assert_eq!(
        (&body["enable_search"], &body["search_options"]),
        (&json!(true), &json!({"forced_search": true}))
    );
    lacks(&body, &["parameters"]);
    let marked = r#"{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}]}"#;
    let body = sent_from(&qwen, "qwen-plus", Format::Messages, marked);
    assert_eq!(body["messages"][0]["content"][0]["cache_control"], json!({"type": "ephemeral"}));
}

#[test]
fn compat_qwen_forced_tool_calls_schemas_and_prefill() {
    let qwen = at("https://dashscope.aliyuncs.com/compatible-mode/v1");
    let (body, lost) = sent(&qwen, "qwen-plus", &choose(r#""required""#));
    assert_eq!((&body["tool_choice"], &*lost), (&json!("auto"), &["tool_choice".to_owned()][..]));
    assert_eq!(sent(&qwen, "qwen-plus", &choose(ONE)).0["tool_choice"]["function"]["name"], "find");
    // A forced tool is not supported while thinking: only the chosen tool is offered instead.
    let (body, _) = sent(&qwen, "qwen-plus", &(choose(ONE) + r#","enable_thinking":true"#));
    assert_eq!((&body["tool_choice"], tools_of(&body)), (&json!("auto"), vec!["find"]));
    assert_eq!(sent(&qwen, "qwen-plus", SCHEMA).0["response_format"]["type"], "json_object");
    assert_eq!(sent(&qwen, "qwen3.5-plus", SCHEMA).0["response_format"]["type"], "json_schema");
    let begun = r#"{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"He"}]}"#;
    let body = sent_from(&qwen, "qwen-plus", Format::Messages, begun);
    assert_eq!(body["messages"][1], json!({"role": "assistant", "content": "He", "partial": true}));
}

#[test]
fn compat_moonshot_temperature_is_clamped_or_omitted_by_model() {
    let kimi = at("https://api.moonshot.ai/v1");
    let (body, lost) = sent(&kimi, "moonshot-v1-8k", r#""temperature":1.7"#);
    assert_eq!((body["temperature"].as_f64(), &*lost), (Some(1.0), &["temperature".to_owned()][..]));
    assert_eq!(sent(&kimi, "kimi-k2-0905", r#""temperature":0.3"#).0["temperature"], 0.3);
    let (body, lost) = sent(&kimi, "kimi-k2.5", r#""temperature":0.3"#);
    lacks(&body, &["temperature"]);
    assert_eq!(lost, ["temperature"]);
}

#[test]
fn compat_moonshot_thinking_and_forced_tool_calls_by_generation() {
    let kimi = at("https://api.moonshot.ai/v1");
    let (body, _) = sent(&kimi, "kimi-k2.5", r#""reasoning_effort":"high""#);
    assert_eq!(body["thinking"], json!({"type": "enabled"}));
    lacks(&body, &["reasoning_effort"]);
    let (body, _) = sent(&kimi, "kimi-k3", r#""reasoning_effort":"high""#);
    assert_eq!(body["reasoning_effort"], "high");
    assert_eq!(sent(&kimi, "kimi-k2-0905", &choose(r#""required""#)).0["tool_choice"], "auto");
    assert_eq!(sent(&kimi, "kimi-k3", &choose(r#""required""#)).0["tool_choice"], "required");
    // Reasoning is sent back within a tool loop.
    let told = LOOP.replace(r#""content":null,"#, r#""content":null,"reasoning_content":"so","#);
    let body = sent_from(&kimi, "kimi-k2-thinking", Format::Chat, &told);
    assert_eq!(body["messages"][1]["reasoning_content"], "so");
    let begun = r#"{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"He"}]}"#;
    assert_eq!(sent_from(&kimi, "kimi-k3", Format::Messages, begun)["messages"][1]["partial"], true);
}

#[test]
fn compat_moonshot_unsupported_members_and_text_parts() {
    let kimi = at("https://api.moonshot.cn/v1");
    let (body, _) = sent(
        &kimi,
        "moonshot-v1-8k",
        r#""max_completion_tokens":7,"seed":1,"logprobs":true,"parallel_tool_calls":false,"n":2"#,
    );
    assert_eq!((&body["max_tokens"], &body["n"]), (&json!(7), &json!(2)));
    lacks(&body, &["max_completion_tokens", "seed", "logprobs", "parallel_tool_calls"]);
    let parts =
        r#""messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]"#;
    assert_eq!(sent(&kimi, "moonshot-v1-8k", parts).0["messages"][0]["content"], "a\n\nb");
}

#[test]
fn compat_glm_tool_choice_is_emulated_with_the_tool_list() {
    let glm = at("https://api.z.ai/api/paas/v4");
    let (body, lost) = sent(&glm, "glm-4.6", &choose(r#""required""#));
    lacks(&body, &["tool_choice"]);
    assert_eq!(lost, ["tool_choice"]);
    let (body, _) = sent(&glm, "glm-4.6", &choose(r#""none""#));
    lacks(&body, &["tool_choice", "tools"]);
    let (body, _) = sent(&glm, "glm-4.6", &choose(ONE));
    assert_eq!(tools_of(&body), ["find"]);
    let (body, lost) = sent(&glm, "glm-4.6", &choose(r#""auto""#));
    lacks(&body, &["tool_choice"]);
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn compat_glm_ranges_user_id_and_streamed_arguments() {
    let glm = at("https://open.bigmodel.cn/api/paas/v4");
    let (body, _) =
        sent(&glm, "glm-4.6", r#""temperature":0,"top_p":0,"user":"u1","seed":4,"presence_penalty":1"#);
    assert_eq!((body["temperature"].as_f64(), body["top_p"].as_f64()), (Some(0.01), Some(0.01)));
    assert_eq!(body["user_id"], "u1");
    lacks(&body, &["user", "seed", "presence_penalty"]);
    assert_eq!(sent(&glm, "glm-4.6", r#""temperature":2"#).0["temperature"], 0.99);
    let (body, _) = sent(&glm, "glm-4.6", &(choose(r#""auto""#) + r#","stream":true"#));
    assert_eq!(body["tool_stream"], true);
    lacks(&sent(&glm, "glm-4.6", &choose(r#""auto""#)).0, &["tool_stream"]);
    assert_eq!(sent(&glm, "glm-4.6", SCHEMA).0["response_format"]["type"], "json_object");
}

#[test]
fn compat_glm_thinking_by_generation_and_search_is_a_tool() {
    let glm = at("https://api.z.ai/api/paas/v4");
    let (body, _) = sent(&glm, "glm-4.6", r#""reasoning_effort":"high""#);
    assert_eq!(body["thinking"], json!({"type": "enabled"}));
    lacks(&body, &["reasoning_effort"]);
    let (body, _) = sent(&glm, "glm-5.3", r#""reasoning_effort":"medium""#);
    assert_eq!(body["reasoning_effort"], "high");
    // Thinking cannot be switched off.
    assert_eq!(sent(&glm, "glm-5.3", r#""reasoning_effort":"none""#).0["reasoning_effort"], "low");
    let (body, lost) = sent(&glm, "glm-4.6", r#""web_search_options":{}"#);
    assert_eq!(body["tools"], json!([{"type": "web_search", "web_search": {"enable": true}}]));
    assert!(lost.is_empty() && body.get("web_search_options").is_none(), "{lost:?}");
}
