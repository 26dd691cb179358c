//! The four formats as they appear on the wire: requests of clients, responses of providers, and errors. Written from
//! the providers' documentation, not taken from the gateway.

use serde_json::{Value, json};

use super::client::{Answer, post, post_with};
use super::reply;
use super::setup::CREDENTIAL;
use super::sse::{Event, events};
use super::upstream::Upstream;

/// Format of a client or a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Chat,
    Messages,
    Responses,
    Generate,
}

/// Starts a provider that answers each request with a document of the model `m`, in the format that the request's path
/// names.
pub(crate) async fn provider_of_every_form() -> Upstream {
    Upstream::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let is_named = |form: &Form| request.head.target().contains(form.mark());
            let form = Form::ALL.into_iter().find(is_named).unwrap();
            conn.send(reply::json(200, form.whole("m"))).await;
        }
    })
    .await
}

impl Form {
    pub(crate) const ALL: [Form; 4] = [Form::Chat, Form::Messages, Form::Responses, Form::Generate];

    /// Returns a model of the test configuration that has the same name at the provider.
    pub(crate) fn model(self) -> &'static str {
        match self {
            Form::Chat | Form::Responses => "gpt",
            Form::Messages => "claude",
            Form::Generate => "gemini",
        }
    }

    /// Returns a model that has another name at the provider, and that name.
    pub(crate) fn alias(self) -> (&'static str, &'static str) {
        match self {
            Form::Chat | Form::Responses => ("fast-gpt", "gpt-2026-01-01"),
            Form::Messages => ("fast-claude", "claude-2026-01-01"),
            Form::Generate => ("fast-gemini", "gemini-2026-01-01"),
        }
    }

    /// Returns the part of a provider's path that identifies this format.
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Form::Chat => "/chat/completions",
            Form::Messages => "/messages",
            Form::Responses => "/responses",
            Form::Generate => "enerateContent",
        }
    }

    /// Returns the header that carries the gateway's credential to a provider of this format, and its value.
    pub(crate) fn credential(self) -> (&'static str, String) {
        match self {
            Form::Chat | Form::Responses => ("authorization", format!("Bearer {CREDENTIAL}")),
            Form::Messages => ("x-api-key", CREDENTIAL.to_owned()),
            Form::Generate => ("x-goog-api-key", CREDENTIAL.to_owned()),
        }
    }

    /// Returns the path of a client's request.
    pub(crate) fn path(self, model: &str, stream: bool) -> String {
        match self {
            Form::Chat => "/v1/chat/completions".to_owned(),
            Form::Messages => "/v1/messages".to_owned(),
            Form::Responses => "/v1/responses".to_owned(),
            Form::Generate if stream => format!("/v1beta/models/{model}:streamGenerateContent?alt=sse"),
            Form::Generate => format!("/v1beta/models/{model}:generateContent"),
        }
    }

    /// Returns the body of a client's request. `stream_options` requests usage, so that the gateway need not add it.
    pub(crate) fn body(self, model: &str, stream: bool) -> String {
        let body = match (self, stream) {
            (Form::Chat, false) => {
                json!({"model": model, "messages": [{"role": "user", "content": "Grüße"}]})
            }
            (Form::Chat, true) => json!({
                "model": model, "messages": [{"role": "user", "content": "Grüße"}],
                "stream": true, "stream_options": {"include_usage": true}
            }),
            (Form::Messages, _) => json!({
                "model": model, "max_tokens": 64, "stream": stream,
                "messages": [{"role": "user", "content": "Grüße"}]
            }),
            (Form::Responses, _) => json!({"model": model, "input": "Grüße", "stream": stream}),
            (Form::Generate, _) => json!({"contents": [{"role": "user", "parts": [{"text": "Grüße"}]}]}),
        };
        body.to_string()
    }

    /// Returns a request with the tests' key.
    pub(crate) fn request(self, stream: bool) -> Vec<u8> {
        self.request_for(self.model(), stream)
    }

    /// Returns a request for a model, with the tests' key.
    pub(crate) fn request_for(self, model: &str, stream: bool) -> Vec<u8> {
        post(&self.path(model, stream), self.body(model, stream))
    }

    /// Returns a request with `headers` instead of the tests' key.
    pub(crate) fn request_with(self, stream: bool, headers: &[(&str, &str)]) -> Vec<u8> {
        post_with(&self.path(self.model(), stream), headers, self.body(self.model(), stream))
    }

    /// Returns a provider's response: a document with unusual white space, unknown members and escapes, all of which
    /// must be preserved.
    pub(crate) fn whole(self, model: &str) -> String {
        match self {
            Form::Chat => format!(
                "{{ \"id\":\"chatcmpl-1\",\"object\":\"chat.completion\", \"created\":1.0e9,\"model\" : \"{model}\",\
                 \"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"Gr\\u00fc\\u00dfe \\/ 😀\"}},\
                 \"logprobs\":null,\"finish_reason\":\"stop\"}}],\n\"x_new\":{{\"model\":\"inner\"}},\
                 \"usage\":{{\"prompt_tokens\":11,\"completion_tokens\":7,\"total_tokens\":18}}}}\n"
            ),
            Form::Messages => format!(
                "{{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"{model}\",\
                 \"content\":[{{\"type\":\"text\",\"text\":\"Gr\\u00fc\\u00dfe 😀\"}}],\"stop_reason\":\"end_turn\",\
                 \"stop_sequence\":null, \"x_new\":[1,2.50],\
                 \"usage\":{{\"input_tokens\":11,\"output_tokens\":7}}}}"
            ),
            Form::Responses => self.response(model, "completed"),
            Form::Generate => format!(
                "{{\n  \"candidates\": [{{\"content\": {{\"parts\": [{{\"text\": \"Gr\\u00fc\\u00dfe 😀\"}}],\
                 \"role\": \"model\"}},\"finishReason\": \"STOP\",\"index\": 0}}],\n  \"xNew\": 1e3,\
                 \"usageMetadata\": {{\"promptTokenCount\": 11,\"candidatesTokenCount\": 7,\"totalTokenCount\": 18}},\
                 \n  \"modelVersion\": \"{model}\",\n  \"responseId\": \"r1\"\n}}\n"
            ),
        }
    }

    fn response(self, model: &str, status: &str) -> String {
        format!(
            "{{\"id\":\"resp_1\",\"object\":\"response\",\"created_at\":1,\"status\":\"{status}\",\"error\":null,\
             \"model\":\"{model}\",\"output\":[{{\"id\":\"msg_1\",\"type\":\"message\",\"status\":\"completed\",\
             \"role\":\"assistant\",\"content\":[{{\"type\":\"output_text\",\"text\":\"Grüße 😀\",\"annotations\":[]}}]}}],\
             \"usage\":{{\"input_tokens\":11,\"output_tokens\":7,\"total_tokens\":18}} , \"x_new\":null}}"
        )
    }

    /// Returns the frames of a provider's stream, with usage.
    #[expect(clippy::too_many_lines, reason = "the frames of four formats, beside each other")]
    pub(crate) fn frames(self, model: &str) -> Vec<String> {
        let named = |name: &str, data: String| format!("event: {name}\ndata: {data}\n\n");
        match self {
            Form::Chat => {
                let chunk = |rest: &str| {
                    format!(
                        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\
                         \"model\":\"{model}\",{rest}}}\n\n"
                    )
                };
                let delta = |delta: &str| {
                    chunk(&format!(
                        "\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":null}}],\"usage\":null"
                    ))
                };
                vec![
                    delta(r#"{"role":"assistant","content":""}"#),
                    delta(r#"{"content":"Grü"}"#),
                    delta(r#"{"content":"ße 😀"}"#),
                    chunk(r#""choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null"#),
                    chunk(
                        r#""choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}"#,
                    ),
                    "data: [DONE]\n\n".to_owned(),
                ]
            }
            Form::Messages => {
                let delta = |text: &str| {
                    named(
                        "content_block_delta",
                        format!(
                            "{{\"type\":\"content_block_delta\",\"index\":0,\
                             \"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}"
                        ),
                    )
                };
                vec![
                    named(
                        "message_start",
                        format!(
                            "{{\"type\":\"message_start\",\"message\":{{\"id\":\"msg_1\",\"type\":\"message\",\
                             \"role\":\"assistant\",\"model\":\"{model}\",\"content\":[],\"stop_reason\":null,\
                             \"stop_sequence\":null,\"usage\":{{\"input_tokens\":11,\"output_tokens\":1}}}}}}"
                        ),
                    ),
                    named(
                        "content_block_start",
                        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#
                            .to_owned(),
                    ),
                    named("ping", r#"{"type": "ping"}"#.to_owned()),
                    delta("Grü"),
                    delta("ße 😀"),
                    named("content_block_stop", r#"{"type":"content_block_stop","index":0}"#.to_owned()),
                    named(
                        "message_delta",
                        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":7}}"#
                            .to_owned(),
                    ),
                    named("message_stop", r#"{"type":"message_stop"}"#.to_owned()),
                ]
            }
            Form::Responses => {
                let event = |number: u32, name: &str, rest: &str| {
                    named(name, format!("{{\"type\":\"{name}\",\"sequence_number\":{number},{rest}}}"))
                };
                let begun = format!(
                    "\"response\":{{\"id\":\"resp_1\",\"object\":\"response\",\"status\":\"in_progress\",\
                     \"error\":null,\"model\":\"{model}\",\"output\":[],\"usage\":null}}"
                );
                let place = r#""item_id":"msg_1","output_index":0,"content_index":0"#;
                vec![
                    event(0, "response.created", &begun),
                    event(1, "response.in_progress", &begun),
                    event(
                        2,
                        "response.output_item.added",
                        r#""output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}"#,
                    ),
                    event(
                        3,
                        "response.output_text.delta",
                        &format!("{place},\"delta\":\"Grü\",\"logprobs\":[]"),
                    ),
                    event(
                        4,
                        "response.output_text.delta",
                        &format!("{place},\"delta\":\"ße 😀\",\"logprobs\":[]"),
                    ),
                    event(
                        5,
                        "response.output_text.done",
                        &format!("{place},\"text\":\"Grüße 😀\",\"logprobs\":[]"),
                    ),
                    event(
                        6,
                        "response.completed",
                        &format!("\"response\":{}", self.response(model, "completed")),
                    ),
                ]
            }
            Form::Generate => {
                let frame = |text: &str, rest: &str| {
                    format!(
                        "data: {{\"candidates\": [{{\"content\": {{\"parts\": [{{\"text\": \"{text}\"}}],\
                         \"role\": \"model\"}}{rest},\"index\": 0}}],\"usageMetadata\": {{\"promptTokenCount\": 11,\
                         \"candidatesTokenCount\": 7,\"totalTokenCount\": 18}},\"modelVersion\": \"{model}\",\
                         \"responseId\": \"r1\"}}\r\n\r\n"
                    )
                };
                vec![frame("Grü", ""), frame("ße 😀", ""), frame("", ",\"finishReason\": \"STOP\"")]
            }
        }
    }

    /// Returns the first frames of a provider's stream, before any content.
    pub(crate) fn opening(self, model: &str) -> String {
        match self {
            // The first of the usual frames carries content already.
            Form::Generate => format!(
                "data: {{\"usageMetadata\": {{\"promptTokenCount\": 11,\"totalTokenCount\": 11}},\
                 \"modelVersion\": \"{model}\",\"responseId\": \"r1\"}}\r\n\r\n"
            ),
            _ => self.frames(model).remove(0),
        }
    }

    /// Checks that a response is an error of this format as the official SDKs read it. Returns its `type` or `status`,
    /// and its message.
    pub(crate) fn error(self, answer: &Answer) -> (String, String) {
        assert_eq!(answer.get("content-type"), Some("application/json"), "{}", answer.everything());
        assert!(answer.complete, "{}", answer.everything());
        self.error_in(&answer.json(), answer.status())
    }

    /// Checks an error like `error`, in a JSON value.
    pub(crate) fn error_in(self, body: &Value, status: u16) -> (String, String) {
        let error = &body["error"];
        let text = |name: &str| {
            let text = error[name].as_str().unwrap_or_else(|| panic!("{name} in {body}"));
            assert!(!text.is_empty(), "{name} in {body}");
            text.to_owned()
        };
        let kind = match self {
            Form::Chat | Form::Responses => {
                let optional = |name: &str| error.get(name).is_some_and(|v| v.is_null() || v.is_string());
                assert!(optional("param") && optional("code"), "{body}");
                text("type")
            }
            Form::Messages => {
                assert_eq!(body["type"], "error", "{body}");
                text("type")
            }
            Form::Generate => {
                assert_eq!(error["code"], status, "{body}");
                text("status")
            }
        };
        (kind, text("message"))
    }

    /// Whether a stream looks complete to a client: it has the end that the format prescribes.
    pub(crate) fn looks_complete(self, stream: &str) -> bool {
        let has = |what: &dyn Fn(&Event) -> bool| events(stream).iter().any(what);
        match self {
            Form::Chat => has(&|event| event.data.contains("\"finish_reason\":\"stop\"")),
            Form::Messages => has(&|event| event.name == "message_stop"),
            Form::Responses => {
                has(&|event| matches!(&*event.name, "response.completed" | "response.incomplete"))
            }
            Form::Generate => has(&|event| event.data.contains("finishReason")),
        }
    }

    /// Returns the type and message of the error that ends a stream. `None` if the stream does not end with an error.
    pub(crate) fn stream_error(self, stream: &str) -> Option<(String, String)> {
        let mut events = events(stream);
        let last = events.pop()?;
        match self {
            // A client that ignores the error must not find the end of a complete stream.
            Form::Chat if last.data == "[DONE]" => return None,
            Form::Messages if last.name != "error" => return None,
            Form::Responses => {
                if last.name != "error" {
                    return None;
                }
                let body = last.json();
                assert_eq!(body["type"], "error", "{body}");
                assert!(body["message"].is_string() && body.get("code").is_some(), "{body}");
            }
            Form::Chat | Form::Messages | Form::Generate => {}
        }
        let body = last.json();
        let status = body["error"]["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
        body.get("error")?;
        Some(self.error_in(&body, status))
    }
}

/// Runs a test for all formats concurrently, because most tests spend most of their time waiting.
pub(crate) async fn every_form<F: Future<Output = ()> + Send + 'static>(test: impl Fn(Form) -> F) {
    let mut running: tokio::task::JoinSet<()> = Form::ALL.into_iter().map(test).collect();
    while let Some(ended) = running.join_next().await {
        if let Err(error) = ended {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// Returns the body of a provider's error response.
pub(crate) fn provider_error(form: Form, status: u16, message: &str) -> String {
    match form {
        Form::Chat | Form::Responses => {
            json!({"error": {"message": message, "type": "provider_type", "param": null, "code": "provider_code"}})
        }
        Form::Messages => {
            json!({"type": "error", "error": {"type": "provider_type", "message": message}, "request_id": "req_v"})
        }
        Form::Generate => {
            json!({"error": {"code": status, "message": message, "status": "PROVIDER_STATUS", "details": []}})
        }
    }
    .to_string()
}
