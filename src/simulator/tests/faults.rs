//! Tests of the directives with every provider.

use serde_json::{Value, json};

use super::super::{SimulatedProvider, Simulator};
use super::client::{Answer, post};
use super::start;

/// Provider and path of each format. For Google, the method is appended.
const FORMATS: [(SimulatedProvider, &str); 4] = [
    (SimulatedProvider::OpenAi, "/v1/chat/completions"),
    (SimulatedProvider::OpenAi, "/v1/responses"),
    (SimulatedProvider::Anthropic, "/v1/messages"),
    (SimulatedProvider::Google, "/v1beta/models/gemini-2.5-flash:"),
];

async fn ask(simulator: &Simulator, path: &str, text: &str, stream: bool) -> Answer {
    let messages = json!([{"role": "user", "content": text}]);
    let (path, body) = match path.strip_suffix(':') {
        Some(model) => {
            let action = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
            (format!("{model}:{action}"), json!({"contents": [{"parts": [{"text": text}]}]}))
        }
        None if path.ends_with("responses") => {
            (path.to_owned(), json!({"model": "m", "input": text, "stream": stream}))
        }
        None if path.ends_with("messages") => (
            path.to_owned(),
            json!({"model": "m", "max_tokens": 4000, "messages": messages, "stream": stream}),
        ),
        None => (path.to_owned(), json!({"model": "m", "messages": messages, "stream": stream})),
    };
    post(simulator, &path, &body).await
}

/// Counts the text pieces in a stream of any format.
fn deltas(answer: &Answer) -> usize {
    let text = |event: &Value| {
        ["/choices/0/delta/content", "/delta/text", "/delta", "/candidates/0/content/parts/0/text"]
            .iter()
            .any(|pointer| {
                event.pointer(pointer).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
            })
    };
    answer.data().iter().filter(|event| text(event)).count()
}

#[tokio::test]
async fn status_fault_has_the_error_body_of_the_provider() {
    for (provider, path) in FORMATS {
        let simulator = start(provider).await;
        for status in [400, 401, 403, 404, 409, 413, 418, 422, 429, 500, 502, 503, 504, 529] {
            for stream in [false, true] {
                let answer = ask(&simulator, path, &format!("hi [[status {status}]]"), stream).await;
                assert_eq!(answer.status, status);
                let error = answer.json()["error"].clone();
                assert!(error["message"].is_string(), "{provider} {status}");
                match provider {
                    SimulatedProvider::Google => assert_eq!(error["code"], status),
                    _ => assert!(error["type"].is_string()),
                }
                let after = matches!(status, 429 | 503).then_some("7");
                assert_eq!(answer.header("retry-after"), after, "{provider} {status}");
            }
        }
        let answer = ask(&simulator, path, "[[status 429 retry-after 3]]", false).await;
        assert_eq!(answer.header("retry-after"), Some("3"));
    }
}

#[tokio::test]
async fn stream_fault_happens_after_the_given_deltas() {
    for (provider, path) in FORMATS {
        let simulator = start(provider).await;
        for count in [0, 1, 3] {
            let end = ask(&simulator, path, &format!("[[end {count}]]"), true).await;
            assert!(end.complete && deltas(&end) == count, "{path} end {count}: {end:?}");
            let cut = ask(&simulator, path, &format!("[[cut {count}]]"), true).await;
            assert!(!cut.complete && deltas(&cut) == count, "{path} cut {count}: {cut:?}");
            let error = ask(&simulator, path, &format!("[[error {count}]]"), true).await;
            assert!(error.complete && deltas(&error) == count, "{path} error {count}: {error:?}");
            let data = error.data();
            let last = data.last().unwrap();
            let failed = last.get("error").is_some() || last["type"] == "response.failed";
            assert!(failed, "{last}");
            let first = data.first().unwrap();
            assert_eq!(first.get("error").is_some_and(|error| !error.is_null()), count == 0, "{first}");
        }
    }
}

#[tokio::test]
async fn whole_response_faults_break_its_body() {
    for (provider, path) in FORMATS {
        let simulator = start(provider).await;
        let answer = async |directive: &str| ask(&simulator, path, directive, false).await;
        assert!(answer("[[error 1]]").await.status >= 503);
        let truncated = answer("[[truncate]]").await;
        assert!(!truncated.complete && truncated.header("content-length").is_some());
        assert!(!answer("[[cut 1]]").await.complete);
        for directive in ["[[truncate]]", "[[cut 1]]", "[[end 1]]", "[[garbage]]", "[[empty]]", "[[html]]"] {
            let answer = answer(directive).await;
            assert_eq!(answer.status, 200);
            assert!(serde_json::from_str::<Value>(&answer.text()).is_err(), "{directive}");
        }
        let page = answer("[[html]]").await;
        assert!(
            page.header("content-type").unwrap().starts_with("text/html") && page.text().contains("<html>")
        );
        assert_eq!(answer("[[empty]]").await.text(), "");
    }
}

#[tokio::test]
async fn stream_body_faults_send_no_valid_stream() {
    for (provider, path) in FORMATS {
        let simulator = start(provider).await;
        let answer = async |directive: &str| ask(&simulator, path, directive, true).await;
        assert!(answer("[[html]]").await.text().contains("<html>"));
        assert_eq!(answer("[[empty]]").await.text(), "");
        let garbage = answer("[[garbage]]").await;
        let broken =
            garbage.events().iter().filter(|(_, data)| serde_json::from_str::<Value>(data).is_err()).count();
        // One, plus the `[DONE]` of chat completions.
        assert_eq!(broken, if path.ends_with("completions") { 2 } else { 1 });
        let truncated = answer("[[truncate]]").await;
        assert!(!truncated.complete && !truncated.text().ends_with("\n\n"));
    }
}

#[tokio::test]
async fn length_directives_set_deltas_and_bytes() {
    for (provider, path) in FORMATS {
        let simulator = start(provider).await;
        let words = ask(&simulator, path, "[[words 40]]", true).await;
        assert_eq!(deltas(&words), 40, "{path}");
        let big = ask(&simulator, path, "[[big 1000000]]", true).await;
        assert_eq!(deltas(&big), 10, "{path}");
        // The Responses API repeats the whole text at the end.
        let largest = if path.ends_with("responses") { 1_010_000 } else { 110_000 };
        assert!(big.chunks.iter().all(|chunk| chunk.len() < largest), "{path}");
        let whole = ask(&simulator, path, "[[big 1000000]]", false).await;
        assert!(whole.complete && whole.text().len() > 1_000_000);
    }
}

#[tokio::test]
async fn refusal_has_the_form_of_the_provider() {
    for ((provider, path), (pointer, expected)) in FORMATS.into_iter().zip([
        ("/choices/0/message/content", Value::Null),
        ("/output/0/content/0/type", json!("refusal")),
        ("/stop_reason", json!("refusal")),
        ("/candidates/0/finishReason", json!("SAFETY")),
    ]) {
        let simulator = start(provider).await;
        let answer = ask(&simulator, path, "[[refuse]]", false).await.json();
        assert_eq!(answer.pointer(pointer), Some(&expected), "{answer}");
        assert!(ask(&simulator, path, "[[refuse]]", true).await.complete);
    }
}
