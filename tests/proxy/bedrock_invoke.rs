//! Bedrock's InvokeModel: Claude in its own format, embeddings and reranking.

use bytes::BytesMut;
use model_gateway::framing::event_stream::{HeaderValue, MessageWriter, put_header};
use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use crate::support::client::{Answer, post, post_with};
use crate::support::gateway::Gateway;
use crate::support::reply;
use crate::support::setup::{CREDENTIAL, KEY, Setup, key};
use crate::support::upstream::Upstream;

const CLAUDE: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
/// Signature of reasoning, which must pass unchanged.
const SIGNATURE: &str = "EuYBCkQYAiJA+/abc==";

fn setup(bedrock: &Upstream) -> Setup {
    Setup::new()
        .provider("aws", "bedrock", &format!("http://{}", bedrock.addr), "")
        .model("claude", "aws", CLAUDE)
        .model("titan", "aws", "amazon.titan-embed-text-v2:0")
        .model("cohere", "aws", "cohere.embed-english-v3")
        .model("rerank", "aws", "cohere.rerank-v3-5:0")
}

pub(super) fn message(headers: &[(&str, &str)], payload: &str) -> Vec<u8> {
    let mut block = Vec::new();
    headers.iter().for_each(|(name, value)| put_header(name, HeaderValue::Text(value), &mut block));
    let mut out = BytesMut::new();
    let writer = MessageWriter::begin(&block, &mut out);
    out.extend_from_slice(payload.as_bytes());
    writer.end(&mut out);
    out.to_vec()
}

pub(super) fn chunk(event: &str) -> Vec<u8> {
    let bytes = base64_simd::STANDARD.encode_to_string(event);
    message(
        &[(":event-type", "chunk"), (":content-type", "application/json"), (":message-type", "event")],
        &json!({"bytes": bytes, "p": "abcdefghijk"}).to_string(),
    )
}

/// Events of a stream, as Bedrock writes them.
pub(super) fn events() -> Vec<String> {
    let delta = |delta: Value| json!({"type": "content_block_delta", "index": 0, "delta": delta}).to_string();
    vec![
        json!({"type": "message_start", "message": {"id": "msg_bdrk_01", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929", "content": [], "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": 1}}}).to_string(),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}).to_string(),
        delta(json!({"type": "thinking_delta", "thinking": "Hm."})),
        delta(json!({"type": "signature_delta", "signature": SIGNATURE})),
        json!({"type": "content_block_stop", "index": 0}).to_string(),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 7}}).to_string(),
        json!({"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 9, "outputTokenCount": 7, "invocationLatency": 5, "firstByteLatency": 3}}).to_string(),
    ]
}

pub(super) fn event_stream(messages: &[Vec<u8>]) -> Vec<u8> {
    let headers = [("content-type", "application/vnd.amazon.eventstream"), ("transfer-encoding", "chunked")];
    let mut out = reply::head(200, &headers).into_bytes();
    messages.iter().for_each(|message| out.extend_from_slice(&reply::chunk(message)));
    out.extend_from_slice(reply::LAST_CHUNK);
    out
}

#[tokio::test]
async fn invoke_model_passes_the_body_of_the_messages_format() {
    let answer = json!({"id": "msg_bdrk_01", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929", "content": [{"type": "thinking", "thinking": "Hm.", "signature": SIGNATURE}, {"type": "text", "text": "Hi"}], "stop_reason": "end_turn", "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": 7}});
    let bedrock = Upstream::answering(reply::json(200, answer.to_string())).await;
    let gateway = Gateway::start(&setup(&bedrock)).await;
    let body = r#"{"max_tokens":64, "thinking":{"type":"enabled","budget_tokens":1024}, "model": "claude",  "messages":[{"role":"user","content":"Hi é"}],"stream" : false}"#;
    let bearer = format!("Bearer {KEY}");
    let headers = [
        ("authorization", &*bearer),
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "interleaved-thinking-2025-05-14, oauth-2025-04-20"),
        ("anthropic-beta", "context-1m-2025-08-07"),
    ];
    let got = gateway.ask(post_with("/v1/messages", &headers, body)).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    assert_eq!(got.json()["content"], answer["content"]);
    let request = bedrock.only_request();
    assert!(
        request.head.line.starts_with("POST /model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke "),
        "{}",
        request.head.line
    );
    assert_eq!(
        request.text(),
        r#"{"anthropic_beta":["interleaved-thinking-2025-05-14","context-1m-2025-08-07"],"max_tokens":64, "thinking":{"type":"enabled","budget_tokens":1024}, "anthropic_version":"bedrock-2023-05-31",  "messages":[{"role":"user","content":"Hi é"}]}"#
    );
    assert_eq!(request.head.all("authorization"), [format!("Bearer {CREDENTIAL}")]);
    for absent in ["anthropic-beta", "anthropic-version", "x-api-key"] {
        assert_eq!(request.head.get(absent), None, "{absent}");
    }
}

/// Clients that were written for the platform send its members too; the gateway's own stand in the body once.
#[tokio::test]
async fn invoke_model_replaces_the_version_of_the_client() {
    let answer = json!({"id": "msg_bdrk_01", "type": "message", "role": "assistant", "model": "claude", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn", "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": 7}});
    let bedrock = Upstream::answering(reply::json(200, answer.to_string())).await;
    let gateway = Gateway::start(&setup(&bedrock)).await;
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", &*bearer), ("anthropic-beta", "context-1m-2025-08-07")];
    let talk = r#""max_tokens":64,"messages":[{"role":"user","content":"Hi"}]"#;
    let (model, stream) = (r#""model":"claude""#, r#""stream":false"#);
    let version = r#""anthropic_version" : "2023-06-01""#;
    let betas = r#""anthropic_beta" : ["effort-2025-11-24","oauth-2025-04-20"]"#;
    let both = r#""anthropic_beta":["effort-2025-11-24","context-1m-2025-08-07"]"#;
    let sent = r#""anthropic_version":"bedrock-2023-05-31""#;
    let moved = r#""anthropic_beta":["context-1m-2025-08-07"]"#;
    for (body, expected) in [
        (format!("{{{version},{model},{talk}}}"), format!("{{{moved},{sent},{talk}}}")),
        (format!("{{{model},{talk},{version}}}"), format!("{{{moved},{sent},{talk}}}")),
        (format!("{{{talk},{model}, {version} }}"), format!("{{{moved},{talk},{sent} }}")),
        (format!("{{{model},{talk},{stream}, {version}}}"), format!("{{{moved},{sent},{talk}}}")),
        (format!("{{{version} , {stream},{model},{talk}}}"), format!("{{{moved}, {sent},{talk}}}")),
        // Beta features in the body and in the header are those of the request.
        (format!("{{{betas},{model},{talk},{version}}}"), format!("{{{both},{sent},{talk}}}")),
        (format!("{{{model},{talk}, {betas} }}"), format!("{{{both},{sent},{talk} }}")),
    ] {
        let got = gateway.ask(post_with("/v1/messages", &headers, &body)).await;
        assert_eq!(got.status(), 200, "{body}: {}", got.text());
        assert_eq!(bedrock.last_request().text(), expected, "{body}");
    }
    // The same for a body that is written anew.
    let body = format!("{{{version},\"model\":\"claude-thinking-high\",{talk},{betas}}}");
    let got = gateway.ask(post_with("/v1/messages", &headers, &body)).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    let sent = bedrock.last_request();
    for name in ["\"anthropic_version\"", "\"anthropic_beta\""] {
        assert_eq!(sent.text().matches(name).count(), 1, "{}", sent.text());
    }
}

#[tokio::test]
async fn invoke_model_stream_arrives_as_server_sent_events() {
    let messages: Vec<Vec<u8>> = events().iter().map(|event| chunk(event)).collect();
    let bedrock = Upstream::answering(event_stream(&messages)).await;
    let gateway = Gateway::start(&setup(&bedrock)).await;
    let body =
        r#"{"model":"claude","stream":true,"max_tokens":64,"messages":[{"role":"user","content":"Hi"}]}"#;
    let got = gateway.ask(post("/v1/messages", body)).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    assert!(got.get("content-type").unwrap().starts_with("text/event-stream"));
    let mut expected = String::new();
    for event in events() {
        let name = serde_json::from_str::<Value>(&event).unwrap()["type"].as_str().unwrap().to_owned();
        // The client gets the model's name back, and not what Bedrock adds.
        let event = if name == "message_stop" { json!({"type": "message_stop"}).to_string() } else { event };
        expected +=
            &format!("event: {name}\ndata: {}\n\n", event.replace("claude-sonnet-4-5-20250929", "claude"));
    }
    assert_eq!(got.text(), expected);
    let request = bedrock.only_request();
    assert!(request.head.target().ends_with("/invoke-with-response-stream"), "{}", request.head.line);
    assert_eq!(
        request.text(),
        r#"{"anthropic_version":"bedrock-2023-05-31","max_tokens":64,"messages":[{"role":"user","content":"Hi"}]}"#
    );
    let metrics = gateway.metrics_after(1).await;
    assert_eq!(metrics.sum("gateway_tokens_total", &[("kind", "output")]), 7.0);
}

#[tokio::test]
async fn invoke_model_exception_in_a_stream_is_an_error_of_the_messages_format() {
    let mut messages: Vec<Vec<u8>> = events()[..3].iter().map(|event| chunk(event)).collect();
    messages.push(message(
        &[
            (":exception-type", "throttlingException"),
            (":content-type", "application/json"),
            (":message-type", "exception"),
        ],
        r#"{"message":"Too many tokens, please wait before trying again."}"#,
    ));
    let bedrock = Upstream::answering(event_stream(&messages)).await;
    let gateway = Gateway::start(&setup(&bedrock)).await;
    let body =
        r#"{"model":"claude","stream":true,"max_tokens":64,"messages":[{"role":"user","content":"Hi"}]}"#;
    let got = gateway.ask(post("/v1/messages", body)).await;
    let last = got.text().trim_end().rsplit("\n\n").next().unwrap();
    assert!(last.starts_with("event: error\n"), "{}", got.text());
    assert!(last.contains("rate_limit_error"), "{last}");
}

#[tokio::test]
async fn invoke_model_error_is_one_of_the_messages_format() {
    let kind = "ValidationException:http://internal.amazon.com/coral/com.amazon.bedrock/";
    let body = json!({"message": "messages.0: Extra inputs are not permitted"}).to_string();
    let headers = [("content-type", "application/json"), ("x-amzn-errortype", kind)];
    let bedrock = Upstream::answering(reply::whole(400, &headers, body)).await;
    let gateway = Gateway::start(&setup(&bedrock)).await;
    let body = r#"{"model":"claude","max_tokens":64,"messages":[{"role":"user","content":"Hi"}]}"#;
    let got = gateway.ask(post("/v1/messages", body)).await;
    assert_eq!(got.status(), 400);
    assert_eq!(got.json()["error"]["type"], "invalid_request");
    assert!(got.text().contains("Extra inputs are not permitted"));
}

#[tokio::test]
async fn bedrock_titan_embeds_one_text_per_call() {
    let bedrock = Upstream::answering(reply::json(
        200,
        r#"{"embedding":[0.5,0.25],"embeddingsByType":{"float":[0.5,0.25]},"inputTextTokenCount":3}"#,
    ))
    .await;
    let gateway = Gateway::start(&setup(&bedrock)).await;
    let body = json!({"model": "titan", "input": ["one", "two"], "dimensions": 256}).to_string();
    let got = gateway.ask(post("/v1/embeddings", body)).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    let got = got.json();
    assert_eq!(got["data"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&got["data"][1]["embedding"], &got["usage"]["prompt_tokens"]),
        (&json!([0.5, 0.25]), &json!(6))
    );
    let mut bodies: Vec<String> =
        bedrock.requests().iter().map(|request| request.text().to_owned()).collect();
    bodies.sort();
    assert_eq!(
        bodies,
        [r#"{"inputText":"one","dimensions":256}"#, r#"{"inputText":"two","dimensions":256}"#]
    );
    let target = bedrock.requests()[0].head.target().to_owned();
    assert_eq!(target, "/model/amazon.titan-embed-text-v2%3A0/invoke");
}

#[tokio::test]
async fn bedrock_cohere_embeds_all_texts_in_one_call() {
    let bedrock = Upstream::answering(reply::json(
        200,
        r#"{"embeddings":[[0.5],[0.25]],"response_type":"embeddings_floats","texts":["one","two"],"id":"x"}"#,
    ))
    .await;
    let gateway = Gateway::start(&setup(&bedrock)).await;
    let body = json!({"model": "cohere", "input": ["one", "two"]}).to_string();
    let got = gateway.ask(post("/v1/embeddings", body)).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    assert_eq!(got.json()["data"][1]["embedding"], json!([0.25]));
    assert_eq!(
        bedrock.only_request().text(),
        r#"{"texts":["one","two"],"embedding_types":["float"],"input_type":"search_document"}"#
    );
}

#[tokio::test]
async fn bedrock_cohere_reranks() {
    let bedrock = Upstream::answering(reply::json(
        200,
        r#"{"results":[{"index":1,"relevance_score":0.9},{"index":0,"relevance_score":0.1}]}"#,
    ))
    .await;
    let gateway = Gateway::start(&setup(&bedrock)).await;
    let body = json!({"model": "rerank", "query": "q", "documents": ["a", "b"], "top_n": 1}).to_string();
    let got = gateway.ask(post("/v1/rerank", body)).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    assert_eq!(got.json()["results"][0]["index"], 1);
    let request = bedrock.only_request();
    assert_eq!(request.text(), r#"{"api_version":2,"query":"q","documents":["a","b"],"top_n":1}"#);
    assert_eq!(request.head.target(), "/model/cohere.rerank-v3-5%3A0/invoke");
}

/// A request with the members of Anthropic's own service that Bedrock refuses, and others that it takes with a beta.
fn with_refused_members() -> Value {
    let mark = json!({"type": "ephemeral", "scope": "global"});
    let schema = json!({"type": "object", "properties": {}});
    json!({
        "model": "claude", "max_tokens": 64,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": mark}],
        "tools": [
            {"name": "f", "input_schema": schema, "eager_input_streaming": true, "allowed_callers": ["direct"]},
            {"name": "g", "input_schema": schema, "input_examples": [{}], "defer_loading": true},
        ],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": mark}]}],
    })
}

/// Starts the strict simulator of Bedrock and a gateway before it. The key of Ann has no policy for losses, that of Bob
/// refuses them.
async fn at_the_simulator() -> (Simulator, Gateway) {
    let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
    let bedrock = Simulator::start(SimulatedProvider::Bedrock, options).await.unwrap();
    let mut setup =
        Setup::new().provider("aws", "bedrock", &bedrock.base_url(), "").model("claude", "aws", CLAUDE);
    setup.keys += &key("bob", STRICT_KEY, "losses = \"refuse\"");
    let gateway = Gateway::start(&setup).await;
    (bedrock, gateway)
}

const STRICT_KEY: &str = "client-key-of-bob-0020";

async fn ask(gateway: &Gateway, key: &str, beta: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", &*bearer), ("anthropic-beta", beta)];
    gateway.ask(post_with("/v1/messages", &headers, body.to_string())).await
}

fn sent(bedrock: &Simulator) -> Value {
    serde_json::from_slice(&bedrock.last_request().unwrap().body).unwrap()
}

/// Forwarded as received, and written anew because of the suffix that selects reasoning.
#[tokio::test]
async fn invoke_model_members_that_it_refuses_are_left_out_with_a_warning() {
    let (bedrock, gateway) = at_the_simulator().await;
    let mut body = with_refused_members();
    let got = ask(&gateway, KEY, "claude-code-20250219", &body).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    assert_eq!(
        got.get("x-gateway-warning"),
        Some(
            "cache_control.scope dropped, eager_input_streaming dropped, allowed_callers dropped, input_examples \
             dropped, defer_loading dropped"
        )
    );
    let (plain, mark) = (json!({"type": "object", "properties": {}}), json!({"type": "ephemeral"}));
    let tools = json!([{"name": "f", "input_schema": plain}, {"name": "g", "input_schema": plain}]);
    let upstream = sent(&bedrock);
    assert_eq!(upstream["tools"], tools);
    assert_eq!((&upstream["system"][0]["cache_control"], &upstream["anthropic_beta"]), (&mark, &Value::Null));

    // With their beta features, in the header or in the body, members of tools stay.
    body["anthropic_beta"] = json!(["tool-examples-2025-10-29"]);
    let got = ask(&gateway, KEY, "tool-search-tool-2025-10-19", &body).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    let warning = got.get("x-gateway-warning").unwrap();
    assert_eq!(
        warning,
        "cache_control.scope dropped, eager_input_streaming dropped, allowed_callers dropped"
    );
    let kept = json!({"name": "g", "input_schema": plain, "input_examples": [{}], "defer_loading": true});
    assert_eq!(sent(&bedrock)["tools"][1], kept);

    body["anthropic_beta"] = json!([]);
    body["model"] = json!("claude-thinking-low");
    body["max_tokens"] = json!(4096);
    let got = ask(&gateway, KEY, "claude-code-20250219", &body).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    assert!(got.get("x-gateway-warning").unwrap().contains("eager_input_streaming dropped"));
    assert_eq!(sent(&bedrock)["tools"], tools);

    let refused = ask(&gateway, STRICT_KEY, "claude-code-20250219", &with_refused_members()).await;
    assert_eq!(refused.status(), 400, "{}", refused.text());
    let metrics = gateway.metrics_after(4).await;
    let lost = |element| [("from", "messages"), ("to", "messages"), ("element", element), ("policy", "warn")];
    for (element, count) in
        [("eager_input_streaming", 3.0), ("cache_control.scope", 2.0), ("defer_loading", 2.0)]
    {
        assert_eq!(metrics.sum("gateway_translation_losses_total", &lost(element)), count, "{element}");
    }
}

#[tokio::test]
async fn invoke_model_request_with_a_beta_that_it_refuses_is_sent_again_without_betas() {
    let (bedrock, gateway) = at_the_simulator().await;
    let talk = json!({"model": "claude", "max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]});
    let betas = "context-1m-2025-08-07,future-feature-2027-01-01";
    let got = ask(&gateway, KEY, betas, &talk).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    assert_eq!(got.get("x-gateway-warning"), Some("anthropic_beta dropped"));
    assert_eq!(sent(&bedrock).get("anthropic_beta"), None);
    assert_eq!(bedrock.requests(), 2);

    // A stream, beside other losses. The feature that a member of the body needs stays.
    let mut body = with_refused_members();
    body["stream"] = json!(true);
    let got = ask(&gateway, KEY, &format!("tool-search-tool-2025-10-19,{betas}"), &body).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    let warning = got.get("x-gateway-warning").unwrap();
    assert!(
        warning.starts_with("cache_control.scope dropped, ") && warning.ends_with(", anthropic_beta dropped")
    );
    assert_eq!(sent(&bedrock)["anthropic_beta"], json!(["tool-search-tool-2025-10-19"]));

    // Nothing else can be left out, and a key that refuses losses gets the error of the provider.
    let before = bedrock.requests();
    let got = ask(&gateway, STRICT_KEY, betas, &talk).await;
    assert_eq!(got.status(), 400, "{}", got.text());
    assert!(got.text().contains("invalid beta flag"), "{}", got.text());
    assert_eq!(bedrock.requests(), before + 1);

    let metrics = gateway.metrics_after(3).await;
    assert_eq!(metrics.sum("gateway_upstream_retries_total", &[("reason", "invalid_beta")]), 2.0);
    let lost = [("from", "messages"), ("element", "anthropic_beta"), ("policy", "warn")];
    assert_eq!(metrics.sum("gateway_translation_losses_total", &lost), 2.0);
}

/// The ARN of an application inference profile says nothing about its model; `family` does.
#[tokio::test]
async fn family_of_a_target_decides_how_its_model_is_asked() {
    const ARN: &str = "arn:aws:bedrock:us-east-1:000000000000:application-inference-profile/abcdefghijkl";
    let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
    let bedrock = Simulator::start(SimulatedProvider::Bedrock, options).await.unwrap();
    let mut setup =
        Setup::new().provider("aws", "bedrock", &bedrock.base_url(), "").model("unnamed", "aws", ARN);
    setup.routes += &format!(
        "\n[[model]]\nid = \"claude\"\ntargets = [{{ provider = \"aws\", model = \"{ARN}\", family = \"claude-opus-4-1\" }}]\n"
    );
    let gateway = Gateway::start(&setup).await;
    let mut body = with_refused_members();
    let got = ask(&gateway, KEY, "", &body).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    let path = bedrock.last_request().unwrap().path;
    assert!(path.ends_with("%3Aapplication-inference-profile%2Fabcdefghijkl/invoke"), "{path}");
    assert_eq!(sent(&bedrock)["tools"][0].get("eager_input_streaming"), None);

    // A request of another format has the limit of output that this model has.
    body = json!({"model": "claude", "reasoning_effort": "high", "messages": [{"role": "user", "content": "Hi"}]});
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", &*bearer)];
    let got = gateway.ask(post_with("/v1/chat/completions", &headers, body.to_string())).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    assert!(bedrock.last_request().unwrap().path.ends_with("/converse"));
    assert_eq!(sent(&bedrock)["additionalModelRequestFields"]["thinking"]["type"], "enabled");

    body["model"] = json!("unnamed");
    let got = gateway.ask(post_with("/v1/chat/completions", &headers, body.to_string())).await;
    assert_eq!(got.status(), 200, "{}", got.text());
    assert_eq!(sent(&bedrock).get("additionalModelRequestFields"), None);
}

/// InvokeModel says beside the stop reason that a guardrail has intervened.
#[tokio::test]
async fn invoke_model_intervention_of_a_guardrail_is_a_content_filter_in_other_formats() {
    let whole = json!({"id": "msg_bdrk_01", "type": "message", "role": "assistant", "model": "claude", "content": [{"type": "text", "text": "No."}], "stop_reason": "end_turn", "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": 7}, "amazon-bedrock-guardrailAction": "INTERVENED"});
    let mut messages: Vec<Vec<u8>> = events().iter().map(|event| chunk(event)).collect();
    messages.pop();
    messages.push(chunk(
        &json!({"type": "message_stop", "amazon-bedrock-guardrailAction": "INTERVENED", "amazon-bedrock-trace": {}}).to_string(),
    ));
    for (reply, stream) in [(reply::json(200, whole.to_string()), false), (event_stream(&messages), true)] {
        let bedrock = Upstream::answering(reply).await;
        let setup = Setup::new()
            .provider("aws", "bedrock", &format!("http://{}", bedrock.addr), "apis = [\"messages\"]")
            .model("claude", "aws", CLAUDE);
        let gateway = Gateway::start(&setup).await;
        let body =
            json!({"model": "claude", "stream": stream, "messages": [{"role": "user", "content": "Hi"}]});
        let bearer = format!("Bearer {KEY}");
        let headers = [("authorization", &*bearer)];
        let got = gateway.ask(post_with("/v1/chat/completions", &headers, body.to_string())).await;
        assert_eq!(got.status(), 200, "{}", got.text());
        assert!(got.text().contains(r#""finish_reason":"content_filter""#), "{}", got.text());
        assert!(!got.text().contains("amazon-bedrock"), "{}", got.text());
    }
}
