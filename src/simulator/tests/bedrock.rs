//! Tests of Bedrock: Converse whole and streamed, its rules, InvokeModel, token counts, reranking and models.

use serde_json::{Value, json};

use super::super::{SimulatedProvider, Simulator};
use super::client::{Answer, get, post};
use super::start;

const CLAUDE: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1%3A0";
const NOVA: &str = "amazon.nova-lite-v1%3A0";

fn path(model: &str, action: &str) -> String {
    format!("/model/{model}/{action}")
}

fn asking(text: &str, more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": [{"text": text}]}]});
    for (name, value) in more.as_object().unwrap() {
        body[name.as_str()] = value.clone();
    }
    body
}

fn tools() -> Value {
    let spec = json!({"name": "get_weather", "inputSchema": {"json": {"type": "object", "properties": {}}}});
    json!({"tools": [{"toolSpec": spec}]})
}

/// Returns name and payload of each frame, after its checksums were compared.
fn frames(answer: &Answer) -> Vec<(String, Value)> {
    let stream = answer.chunks.concat();
    let mut rest = stream.as_slice();
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap()) as usize;
    let mut all = Vec::new();
    while rest.len() >= 16 {
        let (total, headers) = (number(&rest[..4]), number(&rest[4..8]));
        assert_eq!(number(&rest[8..12]), crc32fast::hash(&rest[..8]) as usize);
        let (frame, after) = rest.split_at(total);
        assert_eq!(number(&frame[total - 4..]), crc32fast::hash(&frame[..total - 4]) as usize);
        let fields = String::from_utf8_lossy(&frame[12..12 + headers]).into_owned();
        assert!(fields.contains("application/json"));
        // The first header has the name of the event or of the exception.
        let length = usize::from(frame[12]);
        let size = usize::from(u16::from_be_bytes([frame[14 + length], frame[15 + length]]));
        let name = String::from_utf8(frame[16 + length..16 + length + size].to_vec()).unwrap();
        all.push((name, serde_json::from_slice(&frame[12 + headers..total - 4]).unwrap()));
        rest = after;
    }
    assert!(rest.is_empty());
    all
}

#[tokio::test]
async fn converse_stream_has_the_content_of_the_document() {
    let simulator = start(SimulatedProvider::Bedrock).await;
    let more = json!({"additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 1_024}},
                      "inferenceConfig": {"maxTokens": 2_048}});
    let body = asking("Grüße", more);
    let whole = post(&simulator, &path(CLAUDE, "converse"), &body).await;
    assert!(whole.header("x-amzn-requestid").is_some_and(|id| id.len() == 36));
    let whole = whole.json();
    let blocks = whole["output"]["message"]["content"].as_array().unwrap();
    let thinking = &blocks[0]["reasoningContent"]["reasoningText"];
    assert!(thinking["signature"].is_string());
    assert_eq!(whole["stopReason"], "end_turn");
    let stream = post(&simulator, &path(CLAUDE, "converse-stream"), &body).await;
    assert_eq!(stream.header("content-type"), Some("application/vnd.amazon.eventstream"));
    let frames = frames(&stream);
    let joined = |pointer: &str| -> String {
        frames.iter().filter_map(|(_, payload)| payload.pointer(pointer)?.as_str()).collect()
    };
    assert_eq!(joined("/delta/text"), blocks[1]["text"].as_str().unwrap());
    assert_eq!(joined("/delta/reasoningContent/text"), thinking["text"].as_str().unwrap());
    assert_eq!(joined("/delta/reasoningContent/signature"), thinking["signature"].as_str().unwrap());
    let names: Vec<&str> = frames.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names.first(), Some(&"messageStart"));
    assert_eq!(names[names.len() - 2..], ["messageStop", "metadata"]);
    assert!(!names.contains(&"contentBlockStart"), "only tool calls are opened");
    assert_eq!(frames.last().unwrap().1["usage"], whole["usage"]);
    assert!(frames.iter().all(|(_, payload)| payload["p"].is_string()));
}

#[tokio::test]
async fn converse_tool_call_is_answered_by_its_result() {
    let simulator = start(SimulatedProvider::Bedrock).await;
    let body = asking("get_weather", json!({"toolConfig": tools()}));
    for (model, pieces) in [(CLAUDE, 2), (NOVA, 1)] {
        let answer = post(&simulator, &path(model, "converse"), &body).await.json();
        assert_eq!(answer["stopReason"], "tool_use");
        let message = answer["output"]["message"].clone();
        let id = message["content"][0]["toolUse"]["toolUseId"].as_str().unwrap().to_owned();
        let frames = frames(&post(&simulator, &path(model, "converse-stream"), &body).await);
        let deltas = frames.iter().filter(|(_, payload)| payload.pointer("/delta/toolUse").is_some());
        assert!(deltas.count() >= pieces, "{model}");
        let next = async |id: &str, change: &dyn Fn(&mut Value)| {
            let mut next = body.clone();
            let result = json!({"toolResult": {"toolUseId": id, "content": [{"json": {"degrees": 7}}]}});
            let turns = [message.clone(), json!({"role": "user", "content": [result]})];
            next["messages"].as_array_mut().unwrap().extend(turns);
            change(&mut next);
            post(&simulator, &path(model, "converse"), &next).await
        };
        let answer = next(&id, &|_| {}).await;
        assert!(
            answer.text().contains("The tool get_weather answered: {\\\"degrees\\\":7}."),
            "{}",
            answer.text()
        );
        let answer = next("another", &|_| {}).await;
        assert!(answer.text().contains(&format!(
            "Expected toolResult blocks at messages.2.content for the following Ids: {id}"
        )));
        let answer = next(&id, &|body| drop(body.as_object_mut().unwrap().remove("toolConfig"))).await;
        assert!(answer.text().contains("The toolConfig field must be defined"), "{}", answer.text());
    }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one row for each rule")]
async fn converse_request_that_breaks_a_rule_is_refused() {
    let simulator = start(SimulatedProvider::Bedrock).await;
    let user = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let document =
        |name: &str| json!({"document": {"name": name, "format": "pdf", "source": {"bytes": "AAAA"}}});
    let bytes = "A".repeat(6_000_000);
    for (what, model, body, words) in [
        ("model", "nothing", asking("x", json!({})), "The provided model identifier is invalid."),
        (
            "profile",
            "anthropic.claude-sonnet-4-5-20250929-v1%3A0",
            asking("x", json!({})),
            "on-demand throughput",
        ),
        ("member", NOVA, asking("x", json!({"stream": true})), "extraneous key [stream]"),
        ("empty content", NOVA, user(json!([])), "is empty"),
        ("blank text", NOVA, user(json!([{"text": " "}])), "is blank"),
        ("two members", NOVA, user(json!([{"text": "x", "image": {}}])), "Exactly one member"),
        ("unknown block", NOVA, user(json!([{"picture": {}}])), "extraneous key [picture]"),
        (
            "roles",
            NOVA,
            json!({"messages": [{"role": "user", "content": [{"text": "a"}]}, {"role": "user", "content": [{"text": "b"}]}]}),
            "must alternate",
        ),
        (
            "first turn",
            NOVA,
            json!({"messages": [{"role": "assistant", "content": [{"text": "a"}]}]}),
            "must start with",
        ),
        ("document name", NOVA, user(json!([{"text": "x"}, document("a.pdf")])), "The document file name"),
        (
            "document names",
            NOVA,
            user(json!([{"text": "x"}, document("a"), document("a")])),
            "duplicate document",
        ),
        ("document alone", NOVA, user(json!([document("a")])), "without a text block"),
        (
            "image size",
            NOVA,
            user(json!([{"image": {"format": "png", "source": {"bytes": bytes}}}])),
            "the maximum 3932160",
        ),
        (
            "image format",
            NOVA,
            user(json!([{"image": {"format": "bmp", "source": {"bytes": "AAAA"}}}])),
            "enum value set",
        ),
        (
            "video",
            CLAUDE,
            user(json!([{"video": {"format": "mp4", "source": {"bytes": "AAAA"}}}])),
            "doesn't support the video content block",
        ),
        (
            "temperature",
            NOVA,
            asking("x", json!({"inferenceConfig": {"temperature": 1.5}})),
            "less than or equal to 1",
        ),
        ("tools", NOVA, asking("x", json!({"toolConfig": {"tools": []}})), "length greater than"),
        (
            "forced call",
            "meta.llama3-8b-instruct-v1%3A0",
            asking("x", json!({"toolConfig": {"tools": tools()["tools"], "toolChoice": {"any": {}}}})),
            "doesn't support the toolConfig.toolChoice.any field",
        ),
        (
            "unknown field",
            CLAUDE,
            asking("x", json!({"additionalModelRequestFields": {"topK": 1}})),
            "topK: Extra inputs are not permitted",
        ),
    ] {
        let answer = post(&simulator, &path(model, "converse"), &body).await;
        assert_eq!(answer.status, 400, "{what}: {}", answer.text());
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(words), "{what}: {message}");
        let kind = answer.header("x-amzn-errortype").unwrap();
        assert!(kind.starts_with("ValidationException:http://"), "{what}: {kind}");
    }
}

#[tokio::test]
async fn stream_fault_is_an_exception_or_a_broken_frame() {
    let simulator = start(SimulatedProvider::Bedrock).await;
    let ask =
        async |text: &str| post(&simulator, &path(NOVA, "converse-stream"), &asking(text, json!({}))).await;
    for (directives, name) in [
        ("[[error 2]]", "serviceUnavailableException"),
        ("[[error 2]] [[error-status 429]]", "throttlingException"),
        ("[[error 2 error-status 424]]", "modelStreamErrorException"),
        ("[[error 0 error-status 500]]", "internalServerException"),
    ] {
        let frames = frames(&ask(&format!("{directives} Hello")).await);
        let (last, payload) = frames.last().unwrap();
        assert_eq!(last, name, "{directives}");
        assert!(payload["message"].is_string());
    }
    let broken = ask("[[garbage]] Hello").await.chunks.concat();
    let total = |at: usize| u32::from_be_bytes(broken[at..at + 4].try_into().unwrap()) as usize;
    let third = total(0) + total(total(0));
    let frame = &broken[third..third + total(third)];
    let (content, checksum) = frame.split_at(frame.len() - 4);
    assert_eq!(&frame[8..12], &crc32fast::hash(&frame[..8]).to_be_bytes(), "the lengths are right");
    assert_ne!(checksum, &crc32fast::hash(content).to_be_bytes());
    for status in [400, 404, 429, 500, 503] {
        assert_eq!(ask(&format!("[[status {status}]]")).await.status, status);
    }
}

#[tokio::test]
async fn invoke_claude_has_the_format_of_its_maker() {
    let simulator = start(SimulatedProvider::Bedrock).await;
    let body = json!({"anthropic_version": "bedrock-2023-05-31", "max_tokens": 100,
                      "messages": [{"role": "user", "content": "Hello"}]});
    let whole = post(&simulator, &path(CLAUDE, "invoke"), &body).await;
    assert!(whole.header("x-amzn-bedrock-input-token-count").is_some());
    let whole = whole.json();
    assert!(whole["id"].as_str().is_some_and(|id| id.starts_with("msg_bdrk_01")), "{whole}");
    assert_eq!(whole["model"], "claude-sonnet-4-5-20250929");
    let stream = post(&simulator, &path(CLAUDE, "invoke-with-response-stream"), &body).await;
    let events: Vec<Value> = frames(&stream)
        .iter()
        .map(|(name, payload)| {
            assert_eq!(name, "chunk");
            let bytes = super::super::ids::decode_base64(payload["bytes"].as_str().unwrap()).unwrap();
            serde_json::from_slice(&bytes).unwrap()
        })
        .collect();
    let text: String = events.iter().filter_map(|event| event.pointer("/delta/text")?.as_str()).collect();
    assert_eq!(text, whole["content"][0]["text"].as_str().unwrap());
    assert!(events.iter().all(|event| event["type"] != "ping"));
    assert!(events.last().unwrap()["amazon-bedrock-invocationMetrics"]["outputTokenCount"].is_number());
    for (name, value, words) in [
        ("model", json!("claude"), "extraneous key [model]"),
        ("stream", json!(true), "extraneous key [stream]"),
        ("anthropic_version", json!("2023-06-01"), "anthropic_version"),
        ("anthropic_beta", json!(["oauth-2025-04-20"]), "invalid beta flag"),
    ] {
        let mut body = body.clone();
        body[name] = value;
        let answer = post(&simulator, &path(CLAUDE, "invoke"), &body).await;
        assert!(answer.status == 400 && answer.text().contains(words), "{}", answer.text());
    }
    let inner = base64_simd::STANDARD.encode_to_string(body.to_string());
    let count = json!({"input": {"invokeModel": {"body": inner}}});
    let bare = "anthropic.claude-sonnet-4-5-20250929-v1%3A0";
    let answer = post(&simulator, &path(bare, "count-tokens"), &count).await;
    assert!(answer.json()["inputTokens"].as_u64().is_some_and(|count| count > 0), "{}", answer.text());
    let answer = post(&simulator, &path(CLAUDE, "count-tokens"), &count).await;
    assert!(answer.text().contains("doesn't support counting tokens"));
}

#[tokio::test]
async fn invoke_embeds_and_ranks_in_the_format_of_each_maker() {
    let simulator = start(SimulatedProvider::Bedrock).await;
    let invoke = async |model: &str, body: Value| post(&simulator, &path(model, "invoke"), &body).await;
    let answer = invoke("amazon.titan-embed-text-v2:0", json!({"inputText": "a", "dimensions": 256})).await;
    assert_eq!(answer.json()["embedding"].as_array().unwrap().len(), 256);
    assert_eq!(answer.header("x-amzn-bedrock-input-token-count"), Some("1"));
    let texts = json!({"texts": ["A", "b"], "input_type": "search_query"});
    let older = invoke("cohere.embed-english-v3", texts.clone()).await.json();
    assert_eq!((older["embeddings"][1].as_array().unwrap().len(), &older["texts"][0]), (1_024, &json!("a")));
    let newer = invoke("us.cohere.embed-v4:0", texts).await.json();
    assert_eq!(newer["embeddings"]["float"].as_array().unwrap().len(), 2);
    let params =
        json!({"embeddingPurpose": "GENERIC_RETRIEVAL", "text": {"value": "a", "truncationMode": "NONE"}});
    let nova = json!({"taskType": "SINGLE_EMBEDDING", "singleEmbeddingParams": params});
    let nova = invoke("amazon.nova-2-multimodal-embeddings-v1:0", nova).await.json();
    assert_eq!(nova["embeddings"][0]["embedding"].as_array().unwrap().len(), 3_072);
    let documents = json!({"api_version": 2, "query": "capital of France", "documents": ["Rome", "the capital of France"]});
    let ranked = invoke("cohere.rerank-v3-5:0", documents).await.json();
    assert_eq!(ranked["results"][0]["index"], 1);
    assert_eq!(invoke("cohere.rerank-v3-5:0", json!({"query": "q", "documents": ["d"]})).await.status, 400);
    let source = |text: &str| {
        let document = json!({"type": "TEXT", "textDocument": {"text": text}});
        json!({"type": "INLINE", "inlineDocumentSource": document})
    };
    let arn = "arn:aws:bedrock:us-east-1::foundation-model/cohere.rerank-v3-5:0";
    let body = json!({"queries": [{"type": "TEXT", "textQuery": {"text": "capital of France"}}],
        "sources": [source("Rome"), source("the capital of France")],
        "rerankingConfiguration": {"type": "BEDROCK_RERANKING_MODEL", "bedrockRerankingConfiguration":
            {"numberOfResults": 1, "modelConfiguration": {"modelArn": arn}}}});
    let ranked = post(&simulator, "/rerank", &body).await.json();
    assert_eq!((&ranked["results"][0]["index"], ranked["results"].as_array().unwrap().len()), (&json!(1), 1));
}

#[tokio::test]
async fn models_and_profiles_are_listed() {
    let simulator: Simulator = start(SimulatedProvider::Bedrock).await;
    let models = get(&simulator, "/foundation-models").await.json();
    assert!(models["modelSummaries"].as_array().is_some_and(|list| list.len() > 3));
    let profiles = get(&simulator, "/inference-profiles?typeEquals=SYSTEM_DEFINED").await.json();
    assert!(
        profiles["inferenceProfileSummaries"][0]["inferenceProfileId"].as_str().unwrap().starts_with("us.")
    );
    assert_eq!(get(&simulator, "/v1/models").await.status, 404);
}
