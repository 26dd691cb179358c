//! InvokeModel end to end: clients of it at providers of every format, and at Claude through InvokeModel itself, where the
//! bytes of the events stay.

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use crate::bedrock_invoke::{chunk, event_stream, events};
use crate::support::aws::{ACCESS_KEY_ID, Message, SECRET, Signing, messages};
use crate::support::client::{Answer, post_with};
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{CREDENTIAL, KEY, Setup, key};
use crate::support::upstream::Upstream;

const EVENT_STREAM: &str = "application/vnd.amazon.eventstream";
const CLAUDE: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
/// Models of the gateway, one at a provider of each format.
const MODELS: [&str; 6] =
    ["gpt-chat", "gpt-responses", "claude-messages", "gemini-generate", "claude-converse", "claude-invoke"];

/// Adds the access key that the requests are signed with.
fn with_access_key(setup: Setup) -> Setup {
    let mut setup = setup.file("aws-secret", SECRET);
    let access = format!("access_key = {{ id = \"{ACCESS_KEY_ID}\", secret = {{ file = \"aws-secret\" }} }}");
    setup.keys += &key("ann", "client-key-of-ann-0010", &access);
    setup
}

async fn providers() -> (Vec<Simulator>, Gateway) {
    let mut simulators = Vec::new();
    for provider in [
        SimulatedProvider::OpenAi,
        SimulatedProvider::Anthropic,
        SimulatedProvider::Google,
        SimulatedProvider::Bedrock,
    ] {
        let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
        simulators.push(Simulator::start(provider, options).await.unwrap());
    }
    let urls: Vec<String> = simulators.iter().map(Simulator::base_url).collect();
    let setup = Setup::new()
        .provider("at-chat", "openai", &urls[0], "apis = [\"chat\"]")
        .provider("at-responses", "openai", &urls[0], "apis = [\"responses\"]")
        .provider("at-messages", "anthropic", &urls[1], "")
        .provider("at-generate", "gemini", &urls[2], "")
        .provider("at-converse", "bedrock", &urls[3], "apis = [\"converse\"]")
        .provider("at-invoke", "bedrock", &urls[3], "apis = [\"messages\"]")
        .model("gpt-chat", "at-chat", "gpt-5.1")
        .model("gpt-responses", "at-responses", "gpt-5.1")
        .model("claude-messages", "at-messages", "claude-sonnet-4-6")
        .model("gemini-generate", "at-generate", "gemini-3.1-pro-preview")
        .model("claude-converse", "at-converse", CLAUDE)
        .model("claude-invoke", "at-invoke", CLAUDE);
    let gateway = Gateway::start(&with_access_key(setup)).await;
    (simulators, gateway)
}

/// Returns a request of InvokeModel with these members beside the message.
fn asking(text: &str, more: Value) -> Value {
    let mut body = json!({
        "anthropic_version": "bedrock-2023-05-31",
        "max_tokens": 2000,
        "messages": [{"role": "user", "content": text}],
    });
    for (name, value) in more.as_object().unwrap() {
        body[name.as_str()] = value.clone();
    }
    body
}

async fn invoke(gateway: &Gateway, model: &str, body: &Value) -> Answer {
    let path = format!("/model/{model}/invoke");
    gateway.ask(Signing::default().post(&path, body.to_string().as_bytes())).await
}

/// Sends a signed request for a stream, and returns its messages. Asserts that the stream is complete.
async fn stream(gateway: &Gateway, model: &str, body: &Value) -> Vec<Message> {
    let path = format!("/model/{model}/invoke-with-response-stream");
    let answer = gateway.ask(Signing::default().post(&path, body.to_string().as_bytes())).await;
    assert_eq!(answer.status(), 200, "{model}: {}", answer.everything());
    assert_eq!(answer.get("content-type"), Some(EVENT_STREAM), "{model}");
    assert_eq!(answer.get("x-amzn-bedrock-content-type"), Some("application/json"), "{model}");
    let (messages, rest) = messages(&answer.body);
    assert_eq!((rest, answer.complete), (0, true), "{model}");
    messages
}

/// Returns the events in the messages of a stream, as text.
fn texts(messages: &[Message]) -> Vec<String> {
    let decode = |message: &Message| {
        assert_eq!(message.name(), "chunk", "{message:?}");
        let bytes = message.payload["bytes"].as_str().unwrap();
        String::from_utf8(base64_simd::STANDARD.decode_to_vec(bytes).unwrap()).unwrap()
    };
    messages.iter().map(decode).collect()
}

fn parsed(messages: &[Message]) -> Vec<Value> {
    texts(messages).iter().map(|text| serde_json::from_str(text).unwrap()).collect()
}

#[tokio::test]
async fn invoke_client_reaches_every_format() {
    let (_simulators, gateway) = providers().await;
    for model in MODELS {
        let answer = invoke(&gateway, model, &asking("Hello", json!({"system": "Be brief."}))).await;
        assert_eq!(answer.status(), 200, "{model}: {}", answer.text());
        let body = answer.json();
        assert_eq!(
            (&body["type"], &body["role"], &body["model"]),
            (&json!("message"), &json!("assistant"), &json!(model))
        );
        assert!(
            body["content"][0]["text"].as_str().unwrap().contains("You said: \"Hello\"."),
            "{model}: {body}"
        );
        // Clients take the usage from headers.
        for (header, member) in [("input", "input_tokens"), ("output", "output_tokens")] {
            let count = answer.get(&format!("x-amzn-bedrock-{header}-token-count")).unwrap();
            assert_eq!(count, body["usage"][member].to_string(), "{model}");
        }
        assert!(
            answer.get("x-amzn-requestid").is_some() && answer.get("x-gateway-warning").is_none(),
            "{model}"
        );

        let events = parsed(&stream(&gateway, model, &asking("Hello [[words 30]]", json!({}))).await);
        let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(
            (kinds[0], kinds[kinds.len() - 1]),
            ("message_start", "message_stop"),
            "{model}: {kinds:?}"
        );
        assert!(!kinds.contains(&"ping"), "{model}: {kinds:?}");
        let said: String = events.iter().filter_map(|event| event.pointer("/delta/text")?.as_str()).collect();
        assert_eq!(said.split_whitespace().count(), 30, "{model}: {said}");
        let metrics = &events[events.len() - 1]["amazon-bedrock-invocationMetrics"];
        let delta = events.iter().find(|event| event["type"] == "message_delta").unwrap();
        assert_eq!(metrics["outputTokenCount"], delta["usage"]["output_tokens"], "{model}: {events:?}");
        assert!(metrics["inputTokenCount"].as_u64().unwrap() > 0, "{model}: {metrics}");
        assert!(
            metrics["firstByteLatency"].as_u64() <= metrics["invocationLatency"].as_u64(),
            "{model}: {metrics}"
        );
    }
    let metrics = gateway.metrics_after(12).await;
    assert_eq!(metrics.sum("gateway_requests_total", &[("endpoint", "invoke")]), 12.0);
}

#[tokio::test]
async fn invoke_client_calls_tools_of_every_format() {
    let (_simulators, gateway) = providers().await;
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tools = json!({"tools": [{"name": "get_weather", "description": "d", "input_schema": schema}]});
    for model in MODELS {
        let body = asking("get_weather please", tools.clone());
        let answer = invoke(&gateway, model, &body).await.json();
        assert_eq!(answer["stop_reason"], "tool_use", "{model}: {answer}");
        let content = answer["content"].as_array().unwrap();
        let call = content.iter().find(|block| block["type"] == "tool_use").unwrap();
        let mut next = body.clone();
        let result = json!({"type": "tool_result", "tool_use_id": call["id"], "content": "12 degrees"});
        next["messages"].as_array_mut().unwrap().extend([
            json!({"role": "assistant", "content": content}),
            json!({"role": "user", "content": [result]}),
        ]);
        let answer = invoke(&gateway, model, &next).await;
        assert_eq!(answer.status(), 200, "{model}: {}", answer.text());
        assert!(answer.text().contains("get_weather answered"), "{model}: {}", answer.text());
        let events = parsed(&stream(&gateway, model, &body).await);
        let input: String =
            events.iter().filter_map(|event| event.pointer("/delta/partial_json")?.as_str()).collect();
        assert!(serde_json::from_str::<Value>(&input).unwrap()["city"].is_string(), "{model}: {input}");
    }
}

#[tokio::test]
async fn invoke_client_gets_errors_in_the_form_of_aws() {
    let (_simulators, gateway) = providers().await;
    for model in MODELS {
        for (status, kind) in [(400, "ValidationException"), (429, "ThrottlingException")] {
            for operation in ["invoke", "invoke-with-response-stream"] {
                let body = asking(&format!("[[status {status}]] Hello"), json!({})).to_string();
                let path = format!("/model/{model}/{operation}");
                let answer = gateway.ask(Signing::default().post(&path, body.as_bytes())).await;
                assert_eq!(answer.status(), status, "{model}: {}", answer.text());
                assert_eq!(answer.get("x-amzn-errortype"), Some(kind), "{model}");
                assert!(answer.json()["message"].is_string(), "{model}: {}", answer.text());
            }
        }
        for fault in ["[[error 3]]", "[[cut 3]]", "[[end 3]]"] {
            let body = asking(&format!("{fault} Hello dear gateway"), json!({}));
            let messages = stream(&gateway, model, &body).await;
            let (last, before) = messages.split_last().unwrap();
            assert_eq!(last.header(":message-type"), "exception", "{model} {fault}: {messages:?}");
            assert!(last.payload["message"].is_string(), "{model} {fault}");
            assert!(!texts(before).is_empty(), "{model} {fault}");
        }
    }
    let answer = invoke(&gateway, "nothing", &asking("Hello", json!({}))).await;
    assert_eq!((answer.status(), answer.get("x-amzn-errortype")), (404, Some("ResourceNotFoundException")));
    let wrong = Signing { secret: "another secret", ..Signing::default() };
    let body = asking("Hello", json!({})).to_string();
    let answer = gateway.ask(wrong.post("/model/gpt-chat/invoke", body.as_bytes())).await;
    assert_eq!((answer.status(), answer.get("x-amzn-errortype")), (403, Some("InvalidSignatureException")));
    for body in ["{}", "[]", r#"{"max_tokens":1}"#, r#"{"max_tokens":1,"messages":[],"stream":true}"#] {
        let answer = gateway.ask(Signing::default().post("/model/gpt-chat/invoke", body.as_bytes())).await;
        assert_eq!(
            (answer.status(), answer.get("x-amzn-errortype")),
            (400, Some("ValidationException")),
            "{body}"
        );
    }
}

#[tokio::test]
async fn invoke_request_to_bedrock_keeps_its_bytes() {
    let messages_of_stream: Vec<Vec<u8>> = events().iter().map(|event| chunk(event)).collect();
    let bedrock = Upstream::answering(event_stream(&messages_of_stream)).await;
    let setup = Setup::new()
        .provider("aws", "bedrock", &format!("http://{}", bedrock.addr), "")
        .model("claude", "aws", CLAUDE);
    let gateway = Gateway::start(&with_access_key(setup)).await;
    let body = r#" {"anthropic_beta": ["effort-2025-11-24", "oauth-2025-04-20"], "max_tokens":64,  "messages":[{"role":"user","content":"Hi é"}], "anthropic_version" : "bedrock-2023-05-31"}"#;
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", &*bearer), ("anthropic-beta", "context-1m-2025-08-07")];
    let answer = gateway.ask(post_with("/model/claude/invoke-with-response-stream", &headers, body)).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let (written, _) = messages(&answer.body);
    let mut expected = events();
    // The model gets the client's name; every other byte stays.
    expected[0] = expected[0].replace("claude-sonnet-4-5-20250929", "claude");
    assert_eq!(texts(&written), expected);
    let request = bedrock.only_request();
    assert!(request.head.target().ends_with("-v1%3A0/invoke-with-response-stream"), "{}", request.head.line);
    assert_eq!(
        request.text(),
        r#"{"anthropic_beta":["effort-2025-11-24","context-1m-2025-08-07"],"anthropic_version":"bedrock-2023-05-31", "max_tokens":64,  "messages":[{"role":"user","content":"Hi é"}]}"#
    );
}

#[tokio::test]
async fn invoke_request_to_the_messages_api_is_completed() {
    let answer = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn", "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": 7}});
    let anthropic = Upstream::answering(reply::json(200, answer.to_string())).await;
    let setup = Setup::new()
        .provider("anthropic", "anthropic", &format!("http://{}/v1", anthropic.addr), "")
        .model("claude", "anthropic", "claude-sonnet-4-5");
    let gateway = Gateway::start(&with_access_key(setup)).await;
    let body = r#"{"anthropic_version":"bedrock-2023-05-31","anthropic_beta":["context-1m-2025-08-07"],"max_tokens":64,"messages":[{"role":"user","content":"Hi"}]}"#;
    let got = gateway.ask(Signing::default().post("/model/claude/invoke", body.as_bytes())).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    assert_eq!(got.json()["content"], answer["content"]);
    let request = anthropic.only_request();
    assert_eq!(
        request.text(),
        r#"{"model":"claude-sonnet-4-5","max_tokens":64,"messages":[{"role":"user","content":"Hi"}]}"#
    );
    assert_eq!(request.head.all("anthropic-beta"), ["context-1m-2025-08-07"]);
    assert!(request.head.get("anthropic-version").is_some());
    assert!(!request.everything().contains("AWS4-HMAC-SHA256"), "the signature is not forwarded");
}

/// An invalid message in the same read as valid ones takes nothing from the client that has arrived before it.
#[tokio::test]
async fn invalid_message_loses_nothing_before_it() {
    let mut broken = chunk(r#"{"type":"ping"}"#);
    *broken.last_mut().unwrap() ^= 1;
    let mut all: Vec<u8> = events()[..4].iter().flat_map(|event| chunk(event)).collect();
    all.extend_from_slice(&broken);
    let bedrock = Upstream::answering(event_stream(&[all])).await;
    let setup = Setup::new()
        .provider("aws", "bedrock", &format!("http://{}", bedrock.addr), "")
        .model("claude", "aws", CLAUDE);
    let gateway = Gateway::start(&with_access_key(setup)).await;
    let written = stream(&gateway, "claude", &asking("Hi", json!({}))).await;
    let (last, before) = written.split_last().unwrap();
    assert_eq!(last.header(":message-type"), "exception");
    assert_eq!(texts(before).len(), 4);
    let body =
        r#"{"model":"claude","stream":true,"max_tokens":64,"messages":[{"role":"user","content":"Hi"}]}"#;
    let got = gateway.ask(crate::support::client::post("/v1/messages", body)).await;
    assert_eq!(got.text().matches("event: content_block").count(), 3, "{}", got.text());
    assert!(got.text().contains("event: error"), "{}", got.text());
}

/// Exceptions that concern the target or its account lead to the next target; a client never sees them.
#[tokio::test]
async fn exceptions_of_a_target_lead_to_the_next_one() {
    let good = json!({"output": {"message": {"role": "assistant", "content": [{"text": "Hi"}]}}, "stopReason": "end_turn", "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}});
    let on_demand = "Invocation of model ID deepseek.r1-v1:0 with on-demand throughput isn’t supported. Retry your request with the ID or ARN of an inference profile that contains this model.";
    for (status, kind, text) in [
        (424, "ModelErrorException", "The model failed."),
        (400, "ServiceQuotaExceededException", "Your request exceeds the service quota for your account."),
        (400, "ValidationException", on_demand),
        (400, "ValidationException", "The provided model identifier is invalid."),
    ] {
        let kind = format!("{kind}:http://internal.amazon.com/coral/com.amazon.bedrock/");
        let headers = [("content-type", "application/json"), ("x-amzn-errortype", &*kind)];
        let bad =
            Upstream::answering(reply::whole(status, &headers, json!({"message": text}).to_string())).await;
        let next = Upstream::answering(reply::json(200, good.to_string())).await;
        let mut setup = Setup::new()
            .provider("bad", "bedrock", &format!("http://{}", bad.addr), "")
            .provider("next", "bedrock", &format!("http://{}", next.addr), "");
        setup.routes += "[[model]]\nid = \"m\"\ntargets = [\n{ provider = \"bad\", model = \"deepseek.r1-v1:0\", tier = 0 },\n\
                         { provider = \"next\", model = \"us.deepseek.r1-v1:0\", tier = 1 }]\n";
        let gateway = Gateway::start(&with_access_key(setup)).await;
        let body = json!({"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}).to_string();
        let got = gateway.ask(Signing::default().post("/model/m/converse", body.as_bytes())).await;
        assert_eq!(got.status(), 200, "{kind}: {}", got.text());
        assert_eq!((bad.count(), next.count()), (1, 1), "{kind}");
    }
}

/// The guardrail of the configuration applies to all clients, and none can replace it.
#[tokio::test]
async fn guardrail_of_the_provider_applies_to_all_requests() {
    let converse = json!({"output": {"message": {"role": "assistant", "content": [{"text": "Blocked."}]}}, "stopReason": "guardrail_intervened", "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}, "trace": {"guardrail": {"modelOutput": ["x"]}}});
    let claude = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn", "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": 7}});
    let by_converse = Upstream::answering(reply::json(200, converse.to_string())).await;
    let by_invoke = Upstream::answering(reply::json(200, claude.to_string())).await;
    let guarded = r#"guardrail = { id = "ff6ujrregl1q", version = "3", trace = "enabled_full" }"#;
    let setup = Setup::new()
        .provider(
            "one",
            "bedrock",
            &format!("http://{}", by_converse.addr),
            &format!("apis = [\"converse\"]\n{guarded}"),
        )
        .provider(
            "two",
            "bedrock",
            &format!("http://{}", by_invoke.addr),
            &format!("apis = [\"messages\"]\n{guarded}"),
        )
        .model("nova", "one", "us.amazon.nova-lite-v1:0")
        .model("claude", "two", CLAUDE);
    let gateway = Gateway::start(&with_access_key(setup)).await;
    let config =
        json!({"guardrailIdentifier": "ff6ujrregl1q", "guardrailVersion": "3", "trace": "enabled_full"});
    // Also one whose name is spelled with an escape is replaced.
    for own in [
        "",
        r#""guardrailConfig":{"guardrailIdentifier":"own","guardrailVersion":"1"},"#,
        r#""guardrail\u0043onfig":{},"#,
    ] {
        let body = format!("{{{own}\"messages\":[{{\"role\":\"user\",\"content\":[{{\"text\":\"Hi\"}}]}}]}}");
        let got = gateway.ask(Signing::default().post("/model/nova/converse", body.as_bytes())).await;
        assert_eq!(got.status(), 200, "{}", got.text());
        assert_eq!(
            (&got.json()["stopReason"], got.json()["trace"].is_object()),
            (&json!("guardrail_intervened"), true)
        );
        let sent = by_converse.last_request();
        assert_eq!(sent.json()["guardrailConfig"], config, "{}", sent.text());
        assert_eq!(sent.text().matches("onfig\"").count(), 1, "{}", sent.text());
    }
    let chat = json!({"model": "nova", "messages": [{"role": "user", "content": "Hi"}]}).to_string();
    let got = gateway.ask(crate::support::client::post("/v1/chat/completions", chat)).await;
    assert_eq!(got.json()["choices"][0]["finish_reason"], "content_filter", "{}", got.text());
    assert_eq!(by_converse.last_request().json()["guardrailConfig"], config);

    let bearer = format!("Bearer {KEY}");
    let headers = [
        ("authorization", &*bearer),
        ("x-amzn-bedrock-guardrailidentifier", "own"),
        ("x-amzn-bedrock-guardrailversion", "1"),
        ("x-amzn-bedrock-performanceconfig-latency", "optimized"),
    ];
    let messages =
        json!({"model": "claude", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]})
            .to_string();
    for (path, body) in
        [("/v1/messages", messages), ("/model/claude/invoke", asking("Hi", json!({})).to_string())]
    {
        let got = gateway.ask(post_with(path, &headers, &body)).await;
        assert_eq!(got.status(), 200, "{}", got.text());
        let head = by_invoke.last_request().head;
        assert_eq!(head.all("x-amzn-bedrock-guardrailidentifier"), ["ff6ujrregl1q"], "{path}");
        assert_eq!(head.all("x-amzn-bedrock-guardrailversion"), ["3"], "{path}");
        assert_eq!(head.all("x-amzn-bedrock-trace"), ["ENABLED_FULL"], "{path}");
        let latency = head.get("x-amzn-bedrock-performanceconfig-latency");
        assert_eq!(latency, (path != "/v1/messages").then_some("optimized"), "{path}");
    }
}

#[tokio::test]
async fn guardrail_that_a_client_of_invoke_requests_is_applied_or_refused() {
    let good = json!({"output": {"message": {"role": "assistant", "content": [{"text": "Hi"}]}}, "stopReason": "end_turn", "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}});
    let bedrock = Upstream::answering(reply::json(200, good.to_string())).await;
    let (_simulators, others) = providers().await;
    let setup = Setup::new()
        .provider("aws", "bedrock", &format!("http://{}", bedrock.addr), "apis = [\"converse\"]")
        .model("claude", "aws", CLAUDE);
    let gateway = Gateway::start(&with_access_key(setup)).await;
    let bearer = format!("Bearer {KEY}");
    let with = |id: &'static str, version: &'static str| {
        vec![
            ("x-amzn-bedrock-guardrailidentifier", id),
            ("x-amzn-bedrock-guardrailversion", version),
            ("x-amzn-bedrock-trace", "ENABLED"),
        ]
    };
    let body = asking("Hi", json!({})).to_string();
    let ask = async |gateway: &Gateway, model: &str, mut headers: Vec<(&'static str, &str)>| {
        headers.push(("authorization", &*bearer));
        gateway.ask(post_with(&format!("/model/{model}/invoke"), &headers, &body)).await
    };
    let got = ask(&gateway, "claude", with("ff6ujrregl1q", "DRAFT")).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    let config =
        json!({"guardrailIdentifier": "ff6ujrregl1q", "guardrailVersion": "DRAFT", "trace": "enabled"});
    assert_eq!(bedrock.only_request().json()["guardrailConfig"], config);
    let got = ask(&gateway, "claude", with("ff6ujrregl1q", "latest")).await;
    assert_eq!((got.status(), got.get("x-amzn-errortype")), (400, Some("ValidationException")));
    // Another service would answer without it.
    let got = ask(&others, "gpt-chat", with("ff6ujrregl1q", "1")).await;
    assert_eq!(
        (got.status(), got.get("x-amzn-errortype")),
        (400, Some("ValidationException")),
        "{}",
        got.text()
    );
    assert!(got.text().contains("guardrails"), "{}", got.text());
}
