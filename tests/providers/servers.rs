//! Requests to each provider that serves models of others.

use model_gateway::wire::Format;
use serde_json::{Value, json};

use crate::{ONE, at, choose, refused, sent, sent_from, tools_of};

fn lacks(sent: &Value, names: &[&str]) {
    for name in names {
        assert!(sent.get(name).is_none(), "{name} is sent: {sent}");
    }
}

const SCHEMA: &str =
    r#""response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object"}}}"#;
const LOOP: &str = r#"{"model":"m","messages":[{"role":"user","content":"Hi","name":"ann"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_abcdefghijkl","type":"function","function":{"name":"find","arguments":"{}"}},{"id":"abcDEF123","type":"function","function":{"name":"look","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_abcdefghijkl","content":"5"},{"role":"tool","tool_call_id":"abcDEF123","content":"6"}]}"#;

#[test]
fn compat_xai_grok_4_takes_no_penalties_stop_or_effort() {
    let xai = at("https://api.x.ai/v1");
    let members = r#""presence_penalty":1,"frequency_penalty":1,"stop":["x"],"reasoning_effort":"high","max_completion_tokens":9,"n":2,"seed":3"#;
    let (body, lost) = sent(&xai, "grok-4", members);
    lacks(&body, &["presence_penalty", "frequency_penalty", "stop", "reasoning_effort"]);
    assert_eq!(lost, ["presence_penalty", "frequency_penalty", "stop", "reasoning_effort"]);
    assert_eq!(
        (&body["max_completion_tokens"], &body["n"], &body["seed"]),
        (&json!(9), &json!(2), &json!(3))
    );
    let (body, _) = sent(&xai, "grok-3-mini", r#""reasoning_effort":"medium","stop":["x"]"#);
    assert_eq!((&body["reasoning_effort"], &body["stop"]), (&json!("high"), &json!(["x"])));
}

#[test]
fn compat_groq_takes_no_logprobs_no_names_and_one_choice() {
    let groq = at("https://api.groq.com/openai/v1");
    let (body, _) = sent(
        &groq,
        "llama-3.3-70b-versatile",
        r#""logprobs":true,"logit_bias":{"1":1},"max_completion_tokens":4"#,
    );
    lacks(&body, &["logprobs", "logit_bias"]);
    assert_eq!(body["max_completion_tokens"], 4);
    assert_eq!(refused(&groq, "llama-3.3-70b-versatile", r#""n":3"#), "n");
    let body = sent_from(&groq, "llama-3.3-70b-versatile", Format::Chat, LOOP);
    assert!(body["messages"][0].get("name").is_none());
}

#[test]
fn compat_groq_reasoning_by_family() {
    let groq = at("https://api.groq.com/openai/v1");
    let (body, _) = sent(&groq, "openai/gpt-oss-120b", r#""reasoning_effort":"medium""#);
    assert_eq!((&body["reasoning_effort"], &body["include_reasoning"]), (&json!("medium"), &json!(true)));
    lacks(&body, &["reasoning_format"]);
    let (body, _) = sent(&groq, "qwen/qwen3-32b", r#""reasoning_effort":"medium""#);
    assert_eq!((&body["reasoning_effort"], &body["reasoning_format"]), (&json!("default"), &json!("parsed")));
    assert_eq!(sent(&groq, "qwen/qwen3-32b", r#""reasoning_effort":"none""#).0["reasoning_effort"], "none");
    // A setting of the client is not overridden.
    let (body, _) = sent(&groq, "qwen/qwen3-32b", r#""reasoning_format":"hidden""#);
    assert_eq!(body["reasoning_format"], "hidden");
    assert_eq!(sent(&groq, "openai/gpt-oss-20b", SCHEMA).0["response_format"]["type"], "json_schema");
    assert_eq!(sent(&groq, "llama-3.1-8b-instant", SCHEMA).0["response_format"]["type"], "json_object");
}

#[test]
fn compat_mistral_call_ids_have_nine_characters() {
    let mistral = at("https://api.mistral.ai/v1");
    let body = sent_from(&mistral, "mistral-large-latest", Format::Chat, LOOP);
    let messages = body["messages"].as_array().unwrap();
    let id = messages[1]["tool_calls"][0]["id"].as_str().unwrap();
    assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    assert_eq!(messages[2]["tool_call_id"], id);
    // An id that is valid already stays, and an id is always mapped to the same one.
    assert_eq!(
        (&messages[1]["tool_calls"][1]["id"], &messages[3]["tool_call_id"]),
        (&json!("abcDEF123"), &json!("abcDEF123"))
    );
    assert_eq!(sent_from(&mistral, "mistral-large-latest", Format::Chat, LOOP), body);
    // Only tool results have names.
    assert!(messages[0].get("name").is_none());
    assert_eq!(messages[2]["name"], "find");
}

#[test]
fn compat_mistral_forced_tool_is_any_with_only_that_tool() {
    let mistral = at("https://api.mistral.ai/v1");
    assert_eq!(sent(&mistral, "m", &choose(r#""required""#)).0["tool_choice"], "any");
    let (body, lost) = sent(&mistral, "m", &choose(ONE));
    assert_eq!((&body["tool_choice"], tools_of(&body)), (&json!("any"), vec!["find"]));
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!(sent(&mistral, "m", &choose(r#""none""#)).0["tool_choice"], "none");
}

#[test]
fn compat_mistral_unsupported_members_are_renamed_or_omitted() {
    let mistral = at("https://api.mistral.ai/v1");
    let members = r#""seed":5,"user":"u","logit_bias":{"1":1},"logprobs":true,"store":true,"stream":true,"max_completion_tokens":8"#;
    let (body, _) = sent(&mistral, "m", members);
    assert_eq!((&body["random_seed"], &body["max_tokens"]), (&json!(5), &json!(8)));
    lacks(
        &body,
        &["seed", "user", "logit_bias", "logprobs", "store", "stream_options", "max_completion_tokens"],
    );
    assert!(!mistral.takes_stream_options());
    let begun = r#"{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"He"}]}"#;
    assert_eq!(sent_from(&mistral, "m", Format::Messages, begun)["messages"][1]["prefix"], true);
    // Instructions come first.
    let late = r#""messages":[{"role":"user","content":"a"},{"role":"system","content":"b"},{"role":"user","content":"c"}]"#;
    assert_eq!(sent(&mistral, "m", late).0["messages"][0], json!({"role": "system", "content": "b"}));
}

#[test]
fn compat_openrouter_reasoning_object_and_cache_marks_by_model() {
    let router = at("https://openrouter.ai/api/v1");
    let claude = "anthropic/claude-sonnet-4.5";
    assert_eq!(
        sent(&router, claude, r#""reasoning_effort":"max""#).0["reasoning"],
        json!({"effort": "xhigh"})
    );
    assert_eq!(
        sent(&router, claude, r#""reasoning_effort":"none""#).0["reasoning"],
        json!({"enabled": false})
    );
    let budget = r#"{"model":"m","max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":3000},"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}]}"#;
    let body = sent_from(&router, claude, Format::Messages, budget);
    assert!(body["reasoning"]["effort"] == "low" || body["reasoning"]["max_tokens"] == 3000, "{body}");
    assert_eq!(body["messages"][0]["content"][0]["cache_control"], json!({"type": "ephemeral"}));
    let body = sent_from(&router, "openai/gpt-5.2", Format::Messages, budget);
    assert_eq!(body["messages"][0]["content"], "a");
    let (body, _) = sent(&router, claude, r#""provider":{"order":["a"]},"models":["x"],"transforms":["y"]"#);
    assert_eq!((&body["provider"], &body["models"]), (&json!({"order": ["a"]}), &json!(["x"])));
}

#[test]
fn compat_openrouter_reasoning_details_are_returned_unchanged() {
    let router = at("https://openrouter.ai/api/v1");
    let details = r#"[{"type":"reasoning.text","text":"so","signature":"sig","format":"anthropic-claude-v1","index":0},{"type":"reasoning.encrypted","data":"xyz","id":"r1","index":1}]"#;
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"a"}},{{"role":"assistant","content":"b","reasoning_details":{details}}},{{"role":"user","content":"c"}}]}}"#
    );
    let sent = sent_from(&router, "anthropic/claude-sonnet-4.5", Format::Chat, &body);
    let wanted: Value = serde_json::from_str(details).unwrap();
    assert_eq!(sent["messages"][1]["reasoning_details"], wanted);
}

#[test]
fn compat_together_hybrid_models_have_a_reasoning_switch() {
    let together = at("https://api.together.xyz/v1");
    assert_eq!(
        sent(&together, "zai-org/GLM-4.6", r#""reasoning_effort":"high""#).0["reasoning"],
        json!({"enabled": true})
    );
    assert_eq!(
        sent(&together, "zai-org/GLM-4.6", r#""reasoning_effort":"none""#).0["reasoning"],
        json!({"enabled": false})
    );
    assert_eq!(
        sent(&together, "openai/gpt-oss-20b", r#""reasoning_effort":"high""#).0["reasoning_effort"],
        "high"
    );
    assert_eq!(sent(&together, "m", r#""top_k":5,"min_p":0.1"#).0["top_k"], 5);
}

#[test]
fn compat_fireworks_forced_tool_is_any_and_extras_are_omitted() {
    let fireworks = at("https://api.fireworks.ai/inference/v1");
    assert_eq!(sent(&fireworks, "m", &choose(r#""required""#)).0["tool_choice"], "any");
    let (body, _) = sent(&fireworks, "m", r#""thinking":{"type":"enabled"},"store":true,"verbosity":"low""#);
    assert_eq!(body["reasoning_effort"], "medium");
    lacks(&body, &["thinking", "store", "verbosity"]);
    let marked = r#"{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}]}"#;
    assert_eq!(sent_from(&fireworks, "m", Format::Messages, marked)["messages"][0]["content"], "a");
}

#[test]
fn compat_vllm_reasoning_is_a_template_argument() {
    let mut vllm = at("http://127.0.0.1:8000/v1");
    vllm.preset = model_gateway::provider::Preset::Vllm;
    let (body, _) = sent(&vllm, "qwen", r#""reasoning_effort":"none""#);
    assert_eq!(body["chat_template_kwargs"], json!({"enable_thinking": false}));
    let (body, _) =
        sent(&vllm, "qwen", r#""reasoning_effort":"low","chat_template_kwargs":{"thinking":true}"#);
    assert_eq!(body["chat_template_kwargs"], json!({"thinking": true}));
    let told = LOOP.replace(r#""content":null,"#, r#""content":null,"reasoning_content":"so","#);
    assert_eq!(sent_from(&vllm, "qwen", Format::Chat, &told)["messages"][1]["reasoning"], "so");
    let (body, _) =
        sent(&vllm, "qwen", r#""top_k":3,"structured_outputs":{"json":{}},"max_completion_tokens":2"#);
    assert_eq!((&body["top_k"], &body["max_completion_tokens"]), (&json!(3), &json!(2)));
    assert_eq!(body["structured_outputs"], json!({"json": {}}));
}

#[test]
fn compat_ollama_has_no_tool_choice_no_media_urls_and_own_efforts() {
    let ollama = at("http://127.0.0.1:11434/v1");
    let (body, _) = sent(&ollama, "qwen3", &choose(r#""required""#));
    lacks(&body, &["tool_choice"]);
    let (body, _) = sent(
        &ollama,
        "qwen3",
        r#""reasoning_effort":"max","max_completion_tokens":5,"seed":1,"logit_bias":{"1":1}"#,
    );
    assert_eq!(
        (&body["reasoning_effort"], &body["max_tokens"], &body["seed"]),
        (&json!("high"), &json!(5), &json!(1))
    );
    lacks(&body, &["logit_bias", "max_completion_tokens"]);
    assert_eq!(sent(&ollama, "qwen3", r#""reasoning_effort":"none""#).0["reasoning_effort"], "none");
    let image = r#"{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://a.example/b.png"}}]}]}"#;
    let refused = crate::ask(&ollama, "llava", Format::Chat, image).unwrap_err();
    assert_eq!(refused.error.param.unwrap(), "image_url");
}

#[test]
fn compat_ark_thinking_is_a_switch_and_an_effort() {
    let ark = at("https://ark.cn-beijing.volces.com/api/v3");
    let (body, _) = sent(&ark, "doubao-seed-1-6", r#""reasoning_effort":"low","store":true"#);
    assert_eq!((&body["thinking"]["type"], &body["reasoning_effort"]), (&json!("enabled"), &json!("low")));
    lacks(&body, &["store"]);
    assert_eq!(
        sent(&ark, "doubao-seed-1-6", r#""thinking":{"type":"disabled"}"#).0["thinking"]["type"],
        "disabled"
    );
}

#[test]
fn compat_custom_tools_become_functions_at_every_provider() {
    let tools = r#"{"model":"m","input":"Hi","tools":[{"type":"custom","name":"patch"}]}"#;
    for base in ["https://api.deepseek.com", "https://openrouter.ai/api/v1", "http://127.0.0.1:9/v1"] {
        let body = sent_from(&at(base), "m", Format::Responses, tools);
        assert_eq!(body["tools"][0]["type"], "function", "{base}");
    }
}
