//! Alternative spellings, defaults and value ranges of docs/specification.md, where client and provider have the same
//! format and where they differ.

use serde_json::{Value, json};

use crate::support::client::{Answer, post_with};
use crate::support::form::Form;
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{KEY, Setup, provider_of};
use crate::support::upstream::Upstream;

/// Starts an upstream that answers every request in one format.
async fn answering(form: Form) -> Upstream {
    Upstream::answering(reply::json(200, form.whole("m"))).await
}

async fn ask(gateway: &Gateway, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {KEY}");
    gateway.ask(post_with(path, &[("authorization", &bearer)], body.to_string())).await
}

fn path_of(form: Form, model: &str) -> String {
    form.path(model, false)
}

/// Returns a request body in a format, with additional members.
fn request(form: Form, model: &str, more: &Value) -> Value {
    let turns = json!([{"role": "user", "content": "Hi"}]);
    let mut body = match form {
        Form::Chat => json!({"model": model, "messages": turns}),
        Form::Messages => json!({"model": model, "max_tokens": 3000, "messages": turns}),
        Form::Responses => json!({"model": model, "input": turns}),
        Form::Generate => json!({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}),
    };
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn spellings_are_normalized_for_a_provider_of_the_client_format() {
    let persistent = json!({"type": "text", "text": "x", "cache_control": {"type": "persistent"}});
    let hour = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}});
    let nested = json!([{"type": "function", "function": {"name": "f", "description": "d"}}]);
    let flat = json!([{"type": "function", "name": "f", "description": "d"}]);
    let place = json!({"country": "CN"});
    for (form, said, told) in [
        (Form::Messages, json!({"system": [persistent]}), json!({"system": [hour]})),
        (
            Form::Messages,
            json!({"temperature": 1.0, "top_p": 0, "thinking": {"type": "enabled", "budget_tokens": 2000}}),
            json!({"temperature": 1.0, "thinking": {"type": "enabled", "budget_tokens": 2000}}),
        ),
        (Form::Responses, json!({"tools": nested}), json!({"tools": flat})),
        (
            Form::Responses,
            json!({"tools": flat, "tool_choice": {"type": "function", "function": {"name": "f"}}}),
            json!({"tools": flat, "tool_choice": {"type": "function", "name": "f"}}),
        ),
        (
            Form::Responses,
            json!({"input": [{"type": "input_text", "text": "a"}, {"type": "input_file", "file_url": "b"}]}),
            json!({"input": [{"role": "user", "content": [
                {"type": "input_text", "text": "a"}, {"type": "input_file", "file_url": "b"}]}]}),
        ),
        (
            Form::Responses,
            json!({"reasoning": {"effort": "low", "summary": "none"}}),
            json!({"reasoning": {"effort": "low"}}),
        ),
        (
            Form::Chat,
            json!({"web_search_options": {"user_location": {"approximate": place}}}),
            json!({"web_search_options": {"user_location": {"type": "approximate", "approximate": place}}}),
        ),
        (
            Form::Generate,
            json!({"tools": [{"groundingSearch": {}}]}),
            json!({"tools": [{"googleSearch": {}}]}),
        ),
        (
            Form::Generate,
            json!({"functionCallingConfig": {"mode": "ANY"}}),
            json!({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}),
        ),
    ] {
        let upstream = answering(form).await;
        let gateway = Gateway::start(&Setup::each_provider(upstream.addr)).await;
        let model = provider_of(form);
        let answer = ask(&gateway, &path_of(form, model), &request(form, model, &said)).await;
        assert_eq!(answer.status(), 200, "{said}: {}", answer.text());
        assert_eq!(upstream.only_request().json(), request(form, model, &told), "{form:?}");
    }
}

#[tokio::test]
async fn anthropic_beta_header_is_added_for_beta_members() {
    let upstream = answering(Form::Messages).await;
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr)).await;
    let model = provider_of(Form::Messages);
    let path = path_of(Form::Messages, model);
    let bearer = format!("Bearer {KEY}");
    let both = json!({"mcp_servers": [{"type": "url"}], "context_management": {"edits": []}});
    for (more, given, wanted) in [
        (json!({"mcp_servers": [{"type": "url"}]}), &[][..], &["mcp-client-2025-04-04"][..]),
        (json!({"context_management": {"edits": []}}), &[], &["context-management-2025-06-27"]),
        (both.clone(), &[], &["mcp-client-2025-04-04,context-management-2025-06-27"]),
        (
            both.clone(),
            &["interleaved-thinking-2025-05-14"],
            &["interleaved-thinking-2025-05-14,mcp-client-2025-04-04,context-management-2025-06-27"],
        ),
        // Several lines of a client are one, and each feature stands once.
        (
            both,
            &["a-2025-01-01, mcp-client-2025-11-20", "b-2025-01-01,a-2025-01-01"],
            &["a-2025-01-01,mcp-client-2025-11-20,b-2025-01-01,context-management-2025-06-27"],
        ),
        (json!({"mcp_servers": [], "tools": [{"type": "mcp_toolset"}]}), &[], &["mcp-client-2025-11-20"]),
        (
            json!({"anthropic_beta": ["c-2025-01-01", "a-2025-01-01"]}),
            &["a-2025-01-01"],
            &["a-2025-01-01,c-2025-01-01"],
        ),
        (json!({}), &["a-2025-01-01, b-2025-01-01"], &["a-2025-01-01, b-2025-01-01"]),
        (json!({}), &[], &[]),
    ] {
        let mut headers = vec![("authorization", &*bearer)];
        headers.extend(given.iter().map(|value| ("anthropic-beta", *value)));
        let body = request(Form::Messages, model, &more).to_string();
        let answer = gateway.ask(post_with(&path, &headers, body)).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert_eq!(upstream.last_request().head.all("anthropic-beta"), wanted, "{more}");
    }
}

/// Out-of-range values are answered with 400 that names the field, for every provider; no provider is called.
#[tokio::test]
async fn ranges_invalid_values_are_refused_for_every_provider() {
    let upstream = answering(Form::Chat).await;
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr)).await;
    for provider in Form::ALL {
        let model = provider_of(provider);
        for (form, more, field) in [
            (Form::Chat, json!({"temperature": 2.5}), "temperature"),
            (Form::Chat, json!({"temperature": -1}), "temperature"),
            (Form::Chat, json!({"top_p": 1.5}), "top_p"),
            (Form::Chat, json!({"max_tokens": 0}), "max_tokens"),
            (Form::Messages, json!({"temperature": 1.5}), "temperature"),
            (Form::Messages, json!({"top_p": -0.5}), "top_p"),
            (
                Form::Messages,
                json!({"thinking": {"type": "enabled", "budget_tokens": 1023}}),
                "budget_tokens",
            ),
            (Form::Responses, json!({"temperature": 2.1}), "temperature"),
            (Form::Responses, json!({"top_p": 1.1}), "top_p"),
            (Form::Responses, json!({"max_output_tokens": 0}), "max_output_tokens"),
            (Form::Responses, json!({"truncation": "weird"}), "truncation"),
            (Form::Responses, json!({"max_tool_calls": -1}), "max_tool_calls"),
            (Form::Responses, json!({"metadata": []}), "metadata"),
            (Form::Responses, json!({"input": []}), "input"),
            (Form::Generate, json!({"generationConfig": {"temperature": 2.5}}), "temperature"),
            (Form::Generate, json!({"generationConfig": {"topP": 2}}), "topP"),
            (
                Form::Chat,
                json!({"web_search_options": {"search_context_size": "huge"}}),
                "search_context_size",
            ),
            (Form::Chat, json!({"reasoning": {"max_tokens": -5}}), "reasoning.max_tokens"),
            (Form::Responses, json!({"reasoning": "x"}), "reasoning"),
            (Form::Responses, json!({"reasoning": {"summary": "long"}}), "reasoning.summary"),
            (Form::Responses, json!({"max_tool_calls": 1.5}), "max_tool_calls"),
            (Form::Messages, json!({"stop_sequences": "x"}), "stop_sequences"),
            (Form::Generate, json!({"systemInstruction": "x"}), "systemInstruction"),
            (Form::Generate, json!({"safetySettings": "x"}), "safetySettings"),
            (Form::Generate, json!({"generationConfig": {"stopSequences": "x"}}), "stopSequences"),
        ] {
            let answer = ask(&gateway, &path_of(form, model), &request(form, model, &more)).await;
            assert_eq!(answer.status(), 400, "{form:?} at {provider:?}: {more}");
            let (_, message) = form.error(&answer);
            assert!(message.contains(field), "{message}");
        }
    }
    assert_eq!(upstream.count(), 0, "nobody is asked");
}

/// A malformed turn is refused with its path where it is translated, instead of becoming an empty prompt. A provider of the
/// client's own format refuses it itself.
#[tokio::test]
async fn malformed_turn_is_refused_wherever_it_is_translated() {
    let upstream = answering(Form::Chat).await;
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr)).await;
    for provider in Form::ALL {
        let model = provider_of(provider);
        for (form, more, field) in [
            (Form::Chat, json!({"messages": [{"role": "user"}]}), "messages[0].content"),
            (Form::Chat, json!({"messages": [{"role": "user", "content": null}]}), "messages[0].content"),
            (Form::Chat, json!({"messages": [{"role": "system"}]}), "messages[0].content"),
            (Form::Chat, json!({"messages": ["x"]}), "messages[0]"),
            (Form::Messages, json!({"messages": [{"role": "user"}]}), "messages[0].content"),
            (Form::Messages, json!({"messages": [{"role": "user", "content": []}]}), "messages[0].content"),
            (Form::Responses, json!({"input": [{"type": "input_blob"}]}), "input[0].type"),
            (Form::Responses, json!({"input": [{"role": "user"}]}), "input[0].content"),
            (
                Form::Responses,
                json!({"tools": [{"type": "web_search_preview", "search_context_size": "huge"}]}),
                "tools[0].search_context_size",
            ),
            (Form::Generate, json!({"contents": [{"role": "user"}]}), "contents[0].parts"),
            (Form::Generate, json!({"contents": [{"role": "user", "parts": []}]}), "contents[0].parts"),
            (Form::Generate, json!({"contents": [{"role": "user", "parts": [{}]}]}), "contents[0].parts"),
            (Form::Generate, json!({"contents": [{"parts": ["x"]}]}), "contents[0].parts[0]"),
            (Form::Generate, json!({"contents": ["x"]}), "contents[0]"),
            (Form::Generate, json!({"tools": [{"foo": {}}]}), "foo"),
        ] {
            if form == provider {
                continue;
            }
            let answer = ask(&gateway, &path_of(form, model), &request(form, model, &more)).await;
            assert_eq!(answer.status(), 400, "{form:?} at {provider:?}: {more}");
            let (_, message) = form.error(&answer);
            assert!(message.contains(field), "{message}");
        }
    }
    assert_eq!(upstream.count(), 0, "nobody is asked");
}

#[tokio::test]
async fn ranges_clamped_values_are_reported_as_warnings() {
    let upstream = answering(Form::Messages).await;
    let setup = Setup::new()
        .provider("anthropic", "anthropic", &format!("http://{}/v1", upstream.addr), "")
        .model("claude-3-7-sonnet", "anthropic", "claude-3-7-sonnet");
    let gateway = Gateway::start(&setup).await;
    let body = |more| request(Form::Chat, "claude-3-7-sonnet", &more);
    let answer = ask(&gateway, "/v1/chat/completions", &body(json!({"temperature": 1.6}))).await;
    assert_eq!((answer.status(), answer.get("x-gateway-warning")), (200, Some("temperature clamped")));
    assert_eq!(upstream.last_request().json()["temperature"], 1);
    let answer =
        ask(&gateway, "/v1/chat/completions", &body(json!({"reasoning": {"max_tokens": 500}}))).await;
    assert_eq!((answer.status(), answer.get("x-gateway-warning")), (200, Some("budget_tokens clamped")));
    assert_eq!(upstream.last_request().json()["thinking"]["budget_tokens"], 1024);
}

#[tokio::test]
async fn extensions_are_written_in_the_spelling_of_the_provider() {
    let upstream = answering(Form::Chat).await;
    let base = format!("http://{}/v1", upstream.addr);
    let setup = Setup::new()
        .provider("qwen", "openai-compatible", &base, "dialect = \"qwen\"")
        .provider("openai", "openai", &base, "apis = [\"chat\"]")
        .model("qwen3.5-plus", "qwen", "qwen3.5-plus")
        .model("gpt-4o", "openai", "gpt-4o")
        .model("gpt-5", "openai", "gpt-5");
    let gateway = Gateway::start(&setup).await;
    for (model, said, there, gone) in [
        (
            "qwen3.5-plus",
            json!({"parameters": {"enable_search": true, "search_options": {"region": "CN"}, "temperature": 0.4}}),
            json!({"enable_search": true, "search_options": {"region": "CN"}, "temperature": 0.4}),
            "parameters",
        ),
        (
            "qwen3.5-plus",
            json!({"web_search_options": {}}),
            json!({"enable_search": true}),
            "web_search_options",
        ),
        (
            "qwen3.5-plus",
            json!({"thinking": {"type": "disabled"}}),
            json!({"enable_thinking": false}),
            "thinking",
        ),
        // The provider decides about members that others have added (added_members.rs), and about unknown ones.
        ("gpt-4o", json!({"enable_thinking": false, "new_one": 1}), json!({"new_one": 1}), "thinking"),
        ("gpt-5", json!({"max_tokens": 77}), json!({"max_completion_tokens": 77}), "max_tokens"),
    ] {
        let answer = ask(&gateway, "/v1/chat/completions", &request(Form::Chat, model, &said)).await;
        assert_eq!(answer.status(), 200, "{said}: {}", answer.text());
        let asked = upstream.last_request().json();
        for (name, value) in there.as_object().unwrap() {
            assert_eq!(&asked[name], value, "{said} became {asked}");
        }
        assert_eq!(asked.get(gone), None, "{asked}");
    }
}

#[tokio::test]
async fn responses_only_models_are_called_through_the_responses_api() {
    let upstream = answering(Form::Responses).await;
    let base = format!("http://{}/v1", upstream.addr);
    let setup = Setup::new()
        .provider("openai", "openai", &base, "")
        .model("o3-pro", "openai", "o3-pro")
        .model("gpt-4o", "openai", "gpt-4o");
    let gateway = Gateway::start(&setup).await;
    for model in ["o3-pro", "openai/o3-pro"] {
        let answer = ask(&gateway, "/v1/chat/completions", &request(Form::Chat, model, &json!({}))).await;
        assert_eq!((answer.status(), &answer.json()["object"]), (200, &json!("chat.completion")), "{model}");
        assert!(upstream.last_request().head.target().ends_with("/responses"));
    }
    // The responses format has no stop sequences, so the provider's chat API is used for such a request.
    let stops = json!({"stop_sequences": ["x"]});
    let _ = ask(&gateway, "/v1/messages", &request(Form::Messages, "gpt-4o", &stops)).await;
    let asked = upstream.last_request();
    assert!(asked.head.target().ends_with("/chat/completions"));
    assert_eq!(asked.json()["stop"], json!(["x"]));
    let _ = ask(&gateway, "/v1/messages", &request(Form::Messages, "gpt-4o", &json!({}))).await;
    assert!(upstream.last_request().head.target().ends_with("/responses"));
}

#[tokio::test]
async fn generate_unknown_member_is_refused_for_every_provider() {
    let upstream = answering(Form::Messages).await;
    let gateway = Gateway::start(&Setup::each_provider(upstream.addr)).await;
    // Google refuses these itself.
    for provider in [Form::Chat, Form::Messages, Form::Responses] {
        let model = provider_of(provider);
        for more in [
            json!({"nonsense": {"a": 1}}),
            json!({"generationConfig": {"nonsense": 1, "temperature": 1}}),
            json!({"tools": [{"functionDeclarations": []}, {"nonsense": {}}]}),
            json!({"toolConfig": {"nonsense": {}}}),
        ] {
            let answer =
                ask(&gateway, &path_of(Form::Generate, model), &request(Form::Generate, model, &more)).await;
            assert_eq!(answer.status(), 400, "{more}");
            let (_, message) = Form::Generate.error(&answer);
            assert!(message.contains("nonsense"), "{provider:?}: {message}");
        }
    }
    assert_eq!(upstream.count(), 0);
}

/// Status and message are kept; the provider's own error type is added as `provider_type`.
#[tokio::test]
async fn messages_stream_error_keeps_the_type_of_the_provider() {
    let mut frames = Form::Messages.frames("m");
    frames.truncate(2);
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    frames.push(format!("event: error\ndata: {error}\n\n"));
    let upstream = Upstream::answering(reply::stream(&frames)).await;
    for lines in ["", "errors = \"own\""] {
        let gateway = Gateway::start(&Setup::each_provider_with(upstream.addr, lines)).await;
        let body = request(Form::Messages, provider_of(Form::Messages), &json!({"stream": true}));
        let answer = ask(&gateway, "/v1/messages", &body).await;
        assert!(answer.text().ends_with(&format!("event: error\ndata: {error}\n\n")), "{}", answer.text());
    }
}

#[tokio::test]
async fn usage_is_counted_where_the_provider_reports_none() {
    for usage in ["", r#","usage":null"#] {
        let completion = format!(
            r#"{{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"Good day to you."}},"finish_reason":"stop"}}]{usage}}}"#
        );
        let upstream = Upstream::answering(reply::json(200, &completion)).await;
        let gateway = Gateway::start(&Setup::each_provider(upstream.addr)).await;
        let model = provider_of(Form::Chat);
        let answer = ask(&gateway, "/v1/chat/completions", &request(Form::Chat, model, &json!({}))).await;
        let told = answer.json();
        let count = |name: &str| told["usage"][name].as_u64().unwrap();
        assert!(count("prompt_tokens") > 0 && count("completion_tokens") > 0, "{told}");
        assert_eq!(count("total_tokens"), count("prompt_tokens") + count("completion_tokens"));
        assert_eq!(told["choices"][0]["message"]["content"], "Good day to you.");
    }
}
