//! Converse end to end: clients of it at providers of every format, and clients of every format at a simulated Bedrock
//! that checks credentials and requests as strictly as the service.

use model_gateway::simulator::{Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use crate::support::aws::{ACCESS_KEY_ID, Message, SECRET, Signing, messages};
use crate::support::client::{Answer, post};
use crate::support::gateway::Gateway;
use crate::support::setup::{CREDENTIAL, Setup, key};

/// Models of the gateway, one at a provider of each format, with the provider's name of itself in generated texts.
const MODELS: [(&str, &str); 5] = [
    ("gpt-chat", "OpenAI"),
    ("gpt-responses", "OpenAI"),
    ("claude-messages", "Anthropic"),
    ("gemini-generate", "Google"),
    ("claude-converse", "Bedrock"),
];
const BEDROCK_MODEL: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
/// PNG of one pixel.
const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

struct Providers {
    gateway: Gateway,
    simulators: [Simulator; 4],
}

impl Providers {
    async fn start(change: impl FnOnce(Setup) -> Setup) -> Providers {
        let start = async |provider| {
            let options = Options { credential: Some(CREDENTIAL.to_owned()), ..Options::default() };
            Simulator::start(provider, options).await.unwrap()
        };
        let openai = start(SimulatedProvider::OpenAi).await;
        let anthropic = start(SimulatedProvider::Anthropic).await;
        let google = start(SimulatedProvider::Google).await;
        let bedrock = start(SimulatedProvider::Bedrock).await;
        let mut setup = Setup::new()
            .provider("at-chat", "openai", &openai.base_url(), "apis = [\"chat\"]")
            .provider("at-responses", "openai", &openai.base_url(), "apis = [\"responses\"]")
            .provider("at-messages", "anthropic", &anthropic.base_url(), "")
            .provider("at-generate", "gemini", &google.base_url(), "")
            .provider("at-converse", "bedrock", &bedrock.base_url(), "apis = [\"converse\"]")
            .model("gpt-chat", "at-chat", "gpt-5.1")
            .model("gpt-responses", "at-responses", "gpt-5.1")
            .model("claude-messages", "at-messages", "claude-sonnet-4-6")
            .model("gemini-generate", "at-generate", "gemini-3.1-pro-preview")
            .model("claude-converse", "at-converse", BEDROCK_MODEL)
            .model("bare-converse", "at-converse", "anthropic.claude-sonnet-4-5-20250929-v1:0")
            .file("aws-secret", SECRET);
        let access =
            format!("access_key = {{ id = \"{ACCESS_KEY_ID}\", secret = {{ file = \"aws-secret\" }} }}");
        setup.keys += &key("ann", "client-key-of-ann-0010", &access);
        let gateway = Gateway::start(&change(setup)).await;
        Providers { gateway, simulators: [openai, anthropic, google, bedrock] }
    }

    /// Sends a signed request of Converse.
    async fn converse(&self, model: &str, body: &Value) -> Answer {
        let path = format!("/model/{model}/converse");
        self.gateway.ask(Signing::default().post(&path, body.to_string().as_bytes())).await
    }

    /// Sends a signed request for a stream, and returns its messages. Asserts that the stream is complete.
    async fn stream(&self, model: &str, body: &Value) -> Vec<Message> {
        let path = format!("/model/{model}/converse-stream");
        let answer = self.gateway.ask(Signing::default().post(&path, body.to_string().as_bytes())).await;
        assert_eq!(answer.status(), 200, "{model}: {}", answer.everything());
        assert_eq!(answer.get("content-type"), Some("application/vnd.amazon.eventstream"));
        assert!(answer.get("x-amzn-requestid").is_some());
        let (messages, rest) = messages(&answer.body);
        assert_eq!((rest, answer.complete), (0, true), "{model}");
        messages
    }
}

/// Returns a request of Converse with these members beside the message.
fn asking(text: &str, more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": [{"text": text}]}]});
    for (name, value) in more.as_object().unwrap() {
        body[name.as_str()] = value.clone();
    }
    body
}

fn tools() -> Value {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    json!({"tools": [{"toolSpec": {"name": "get_weather", "description": "d", "inputSchema": {"json": schema}}}]})
}

/// Returns the text of a stream.
fn text(messages: &[Message]) -> String {
    messages.iter().filter_map(|message| message.payload.pointer("/delta/text")?.as_str()).collect()
}

/// Asserts the order of the events of a complete stream.
fn check_order(messages: &[Message], model: &str) {
    let names: Vec<&str> = messages.iter().map(Message::name).collect();
    assert_eq!(names.first(), Some(&"messageStart"), "{model}: {names:?}");
    assert_eq!(names[names.len() - 2..], ["messageStop", "metadata"], "{model}: {names:?}");
    let metadata = &messages.last().unwrap().payload;
    let usage = |name: &str| metadata["usage"][name].as_u64().unwrap();
    assert!(usage("inputTokens") > 0 && usage("outputTokens") > 0, "{model}: {metadata}");
    assert!(metadata["metrics"]["latencyMs"].is_number(), "{model}: {metadata}");
}

#[tokio::test]
async fn converse_client_reaches_every_format() {
    let providers = Providers::start(|setup| setup).await;
    for (model, provider) in MODELS {
        let more = json!({"system": [{"text": "Be brief."}], "inferenceConfig": {"maxTokens": 2_000}});
        let body = asking("Grüße", more);
        let answer = providers.converse(model, &body).await;
        assert_eq!(answer.status(), 200, "{model}: {}", answer.text());
        let whole = answer.json();
        let said = whole["output"]["message"]["content"].as_array().unwrap().iter();
        let said: String = said.filter_map(|block| block["text"].as_str()).collect();
        assert!(
            said.contains("You said: \"Grüße\".") && said.contains(&format!("simulated by {provider}")),
            "{said}"
        );
        assert!(said.contains("Be brief."), "{model}: {said}");
        assert_eq!(whole["stopReason"], "end_turn", "{model}");
        let usage = &whole["usage"];
        let total = usage["inputTokens"].as_u64().unwrap() + usage["outputTokens"].as_u64().unwrap();
        assert_eq!(usage["totalTokens"].as_u64(), Some(total), "{model}: {usage}");
        let messages = providers.stream(model, &body).await;
        check_order(&messages, model);
        assert_eq!(text(&messages), said, "{model}");
        let limited = asking("Hello [[words 200]]", json!({"inferenceConfig": {"maxTokens": 20}}));
        let answer = providers.converse(model, &limited).await.json();
        assert_eq!(answer["stopReason"], "max_tokens", "{model}: {answer}");
    }
}

#[tokio::test]
async fn converse_client_calls_tools_of_every_format() {
    let providers = Providers::start(|setup| setup).await;
    for (model, _) in MODELS {
        let body = asking("get_weather please", json!({"toolConfig": tools()}));
        let answer = providers.converse(model, &body).await.json();
        assert_eq!(answer["stopReason"], "tool_use", "{model}: {answer}");
        let message = &answer["output"]["message"];
        let blocks = message["content"].as_array().unwrap();
        let call = blocks.iter().find_map(|block| block.get("toolUse")).unwrap();
        assert_eq!(call["name"], "get_weather", "{model}");
        assert!(call["input"]["city"].is_string(), "{model}: {call}");
        let messages = providers.stream(model, &body).await;
        check_order(&messages, model);
        let start = messages.iter().find(|message| message.name() == "contentBlockStart").unwrap();
        assert_eq!(start.payload["start"]["toolUse"]["name"], "get_weather", "{model}");
        let arguments: String = messages
            .iter()
            .filter_map(|message| message.payload.pointer("/delta/toolUse/input")?.as_str())
            .collect();
        assert_eq!(serde_json::from_str::<Value>(&arguments).unwrap(), call["input"], "{model}");
        // The result goes back with the same identifier.
        let result =
            json!({"toolResult": {"toolUseId": call["toolUseId"], "content": [{"text": "12 degrees"}]}});
        let mut next = body.clone();
        next["messages"]
            .as_array_mut()
            .unwrap()
            .extend([message.clone(), json!({"role": "user", "content": [result]})]);
        let answer = providers.converse(model, &next).await;
        assert!(
            answer.text().contains("The tool get_weather answered: 12 degrees."),
            "{model}: {}",
            answer.text()
        );
        // A forced call.
        let mut forced = asking("Hello", json!({"toolConfig": tools()}));
        forced["toolConfig"]["toolChoice"] = json!({"tool": {"name": "get_weather"}});
        let answer = providers.converse(model, &forced).await.json();
        assert_eq!(answer["stopReason"], "tool_use", "{model}: {answer}");
    }
}

#[tokio::test]
async fn converse_client_sends_images_and_documents_to_every_format() {
    let providers = Providers::start(|setup| setup).await;
    for (model, _) in MODELS {
        let content = json!([
            {"text": "Compare"},
            {"image": {"format": "png", "source": {"bytes": PICTURE}}},
            {"document": {"format": "pdf", "name": "Report 2026", "source": {"bytes": "JVBERi0xLjQK"}}},
        ]);
        let body = json!({"messages": [{"role": "user", "content": content}]});
        let answer = providers.converse(model, &body).await;
        assert_eq!(answer.status(), 200, "{model}: {}", answer.text());
        assert!(answer.text().contains("I see 1 image. I see 1 document."), "{model}: {}", answer.text());
    }
}

#[tokio::test]
async fn converse_client_gets_errors_as_exceptions() {
    let providers = Providers::start(|setup| setup).await;
    for (model, _) in MODELS {
        for (status, kind) in [(400, "ValidationException"), (429, "ThrottlingException")] {
            let body = asking(&format!("[[status {status}]] Hello"), json!({}));
            for answer in [providers.converse(model, &body).await, {
                let path = format!("/model/{model}/converse-stream");
                let request = Signing::default().post(&path, body.to_string().as_bytes());
                providers.gateway.ask(request).await
            }] {
                assert_eq!(answer.status(), status, "{model}: {}", answer.text());
                assert_eq!(answer.get("x-amzn-errortype"), Some(kind), "{model}");
                assert!(answer.json()["message"].is_string(), "{model}");
            }
        }
        // An error after the first words, and a connection that is cut: the stream ends with an exception.
        for fault in ["[[error 3]]", "[[cut 3]]", "[[end 3]]"] {
            let messages =
                providers.stream(model, &asking(&format!("{fault} Hello dear gateway"), json!({}))).await;
            let last = messages.last().unwrap();
            assert_eq!(last.header(":message-type"), "exception", "{model} {fault}: {messages:?}");
            assert!(last.payload["message"].is_string(), "{model} {fault}");
            assert!(
                messages.iter().all(|message| message.name() != "messageStop"),
                "{model} {fault}: {messages:?}"
            );
        }
    }
    let answer = providers.converse("nothing", &asking("Hello", json!({}))).await;
    assert_eq!((answer.status(), answer.get("x-amzn-errortype")), (404, Some("ResourceNotFoundException")));
    // The provider's own words arrive.
    let answer = providers.converse("bare-converse", &asking("Hello", json!({}))).await;
    assert_eq!(answer.status(), 400);
    assert!(answer.text().contains("on-demand throughput"), "{}", answer.text());
}

/// Names of a client's format, its path and whether the model is in it.
const CLIENTS: [&str; 4] = ["chat", "responses", "messages", "generate"];

/// Returns path and body of a request of another format.
fn request_of(client: &str, model: &str, prompt: &str, stream: bool, with_tool: bool) -> (String, Value) {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    match client {
        "chat" => {
            let mut body = json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": [
                {"type": "text", "text": prompt},
                {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PICTURE}")}}]}]});
            if with_tool {
                body["tools"] =
                    json!([{"type": "function", "function": {"name": "get_weather", "parameters": schema}}]);
            }
            ("/v1/chat/completions".to_owned(), body)
        }
        "responses" => {
            let mut body = json!({"model": model, "stream": stream, "input": [{"role": "user", "content": [
                {"type": "input_text", "text": prompt},
                {"type": "input_image", "image_url": format!("data:image/png;base64,{PICTURE}")}]}]});
            if with_tool {
                body["tools"] = json!([{"type": "function", "name": "get_weather", "parameters": schema}]);
            }
            ("/v1/responses".to_owned(), body)
        }
        "messages" => {
            let source = json!({"type": "base64", "media_type": "image/png", "data": PICTURE});
            let mut body = json!({"model": model, "stream": stream, "max_tokens": 2_000, "messages": [
                {"role": "user", "content": [{"type": "text", "text": prompt}, {"type": "image", "source": source}]}]});
            if with_tool {
                body["tools"] = json!([{"name": "get_weather", "input_schema": schema}]);
            }
            ("/v1/messages".to_owned(), body)
        }
        _ => {
            let mut body = json!({"contents": [{"role": "user", "parts": [
                {"text": prompt}, {"inlineData": {"mimeType": "image/png", "data": PICTURE}}]}]});
            if with_tool {
                body["tools"] = json!([{"functionDeclarations": [{"name": "get_weather", "parametersJsonSchema": schema}]}]);
            }
            let action = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
            (format!("/v1beta/models/{model}:{action}"), body)
        }
    }
}

#[tokio::test]
async fn client_of_every_format_reaches_bedrock() {
    let providers = Providers::start(|setup| setup).await;
    let bedrock = &providers.simulators[3];
    for client in CLIENTS {
        for stream in [false, true] {
            let ask = async |prompt: &str, with_tool| {
                let (path, body) = request_of(client, "claude-converse", prompt, stream, with_tool);
                providers.gateway.ask(post(&path, body.to_string())).await
            };
            let answer = ask("Hello", false).await;
            assert_eq!(answer.status(), 200, "{client} {stream}: {}", answer.text());
            let seen = bedrock.last_request().unwrap();
            let operation = if stream { "converse-stream" } else { "converse" };
            assert_eq!(
                seen.path,
                format!("/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/{operation}")
            );
            for words in ["simulated", "Bedrock", "see"] {
                assert!(answer.text().contains(words), "{client} {stream}: {}", answer.text());
            }
            let answer = ask("get_weather please", true).await;
            assert!(answer.text().contains("get_weather"), "{client} {stream}: {}", answer.text());
            let answer = ask("[[status 429]] Hello", false).await;
            assert_eq!(answer.status(), 429, "{client} {stream}: {}", answer.text());
        }
        // A stream that fails never looks complete, whatever the failure is.
        for fault in ["error 3", "error 3 error-status 429", "cut 3", "end 3", "garbage", "truncate"] {
            let (path, body) =
                request_of(client, "claude-converse", &format!("[[{fault}]] Hello"), true, false);
            let answer = providers.gateway.ask(post(&path, body.to_string())).await;
            // Bytes that are no message follow the first word at once. If the gateway receives them together, nothing was
            // sent yet and the status says that the provider failed; if not, the head with 200 has left.
            let is_invalid = matches!(fault, "garbage" | "truncate");
            let fits = answer.status() == 200 || (is_invalid && answer.status() >= 500);
            assert!(fits, "{client} {fault}: {} {}", answer.status(), answer.text());
            let text = answer.text();
            assert!(text.contains("error"), "{client} {fault}: {text}");
            let ends =
                ["\"finish_reason\":\"", "[DONE]", "message_stop", "response.completed", "\"finishReason\""];
            for end in ends {
                assert!(!text.contains(end), "{client} {fault}: {text}");
            }
        }
    }
}

#[tokio::test]
async fn converse_request_is_limited_and_charged() {
    let providers = Providers::start(|mut setup| {
        let access = "access_key = { id = \"MGWAPAYINGPAYINGPAYI\", secret = { file = \"aws-secret\" } }";
        setup.keys += &key("pia", "client-key-of-pia-0007", &format!("account = \"acme\"\n{access}"));
        let access = "access_key = { id = \"MGWALIMITEDLIMITEDLI\", secret = { file = \"aws-secret\" } }";
        setup.keys += &key(
            "lee",
            "client-key-of-lee-0013",
            &format!("limits = {{ requests_per_minute = 1 }}\n{access}"),
        );
        setup.priced("input = 1\noutput = 2").account("acme", "1")
    })
    .await;
    let body = asking("Hello", json!({"inferenceConfig": {"maxTokens": 100}})).to_string();
    let ask = async |id: &'static str| {
        let signing = Signing { id, ..Signing::default() };
        providers.gateway.ask(signing.post("/model/gpt-chat/converse-stream", body.as_bytes())).await
    };
    let answer = ask("MGWAPAYINGPAYINGPAYI").await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let (sent, _) = messages(&answer.body);
    let usage = &sent.last().unwrap().payload["usage"];
    let count = |name: &str| usage[name].as_u64().unwrap();
    let record = &providers.gateway.records(1).await[0];
    assert_eq!((&record["key"], &record["account"]), (&json!("pia"), &json!("acme")), "{record}");
    let cost = count("inputTokens") + 2 * count("outputTokens");
    let left = providers.gateway.account("acme")["balance"].as_str().unwrap().parse::<f64>().unwrap();
    assert!((1.0 - left - cost as f64 / 1e6).abs() < 1e-9, "{left} after {usage}");
    assert_eq!(ask("MGWALIMITEDLIMITEDLI").await.status(), 200);
    let answer = ask("MGWALIMITEDLIMITEDLI").await;
    assert_eq!((answer.status(), answer.get("x-amzn-errortype")), (429, Some("ThrottlingException")));
    assert!(answer.get("retry-after").is_some());
}
