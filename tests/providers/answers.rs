//! Responses of each provider: where it puts reasoning, usage, finish reasons and errors.

use model_gateway::canonical::answer::{AnswerBlockKind, FinishOwned};
use model_gateway::canonical::{Answer, Usage};
use model_gateway::wire::chat::{answer, stream};
use model_gateway::wire::error::ProviderError;

/// Decodes the frames of a chat stream.
fn read(frames: &[&str]) -> Answer {
    let mut all = Answer::default();
    let mut decoder = stream::Decoder::new("seed");
    for frame in frames {
        decoder.frame(frame, &mut |event| all.take(&event)).unwrap();
    }
    let _ = decoder.finish(&mut |event| all.take(&event));
    all
}

fn delta(members: &str) -> String {
    format!(
        r#"{{"id":"c","model":"m","choices":[{{"index":0,"delta":{{{members}}},"finish_reason":null}}]}}"#
    )
}

fn end(word: &str, more: &str) -> String {
    format!(
        r#"{{"id":"c","model":"m","choices":[{{"index":0,"delta":{{}},"finish_reason":"{word}"}}]{more}}}"#
    )
}

fn text_of(answer: &Answer, kind: &AnswerBlockKind) -> String {
    answer.blocks.iter().filter(|block| block.kind == *kind).map(|block| &*block.text).collect()
}

fn usage(figures: &str) -> Usage {
    read(&[&delta(r#""content":"a""#), &end("stop", &format!(r#","usage":{figures}"#)), "[DONE]"]).usage
}

#[test]
fn compat_reasoning_is_found_under_every_name() {
    for named in [
        r#""reasoning_content":"so""#,
        r#""reasoning":"so""#,
        r#""reasoning_details":[{"type":"reasoning.text","text":"so"}]"#,
        r#""reasoning":"so","reasoning_details":[{"type":"reasoning.text","text":"so"}]"#,
        r#""reasoning":"so","reasoning_content":"so""#,
        r#""content":[{"type":"thinking","thinking":[{"type":"text","text":"so"}]}]"#,
    ] {
        let answer = read(&[&delta(named), &delta(r#""content":"b""#), &end("stop", ""), "[DONE]"]);
        assert_eq!(text_of(&answer, &AnswerBlockKind::Reasoning), "so", "{named}");
        assert_eq!(text_of(&answer, &AnswerBlockKind::Text), "b", "{named}");
    }
}

#[test]
fn compat_usage_of_each_provider_is_normalized() {
    let cached = Usage { input: Some(10), output: Some(5), cached: Some(4), ..Usage::default() };
    for (provider, figures) in [
        (
            "deepseek",
            r#"{"prompt_tokens":10,"completion_tokens":5,"prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":6}"#,
        ),
        ("moonshot", r#"{"prompt_tokens":10,"completion_tokens":5,"cached_tokens":4}"#),
        (
            "mistral",
            r#"{"prompt_tokens":10,"completion_tokens":5,"num_cached_tokens":4,"prompt_audio_seconds":{}}"#,
        ),
        (
            "groq",
            r#"{"queue_time":0.1,"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4}}"#,
        ),
    ] {
        assert_eq!(usage(figures), cached, "{provider}");
    }
    let xai = usage(
        r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":22,"completion_tokens_details":{"reasoning_tokens":7}}"#,
    );
    assert_eq!((xai.output, xai.reasoning), (Some(12), Some(7)));
    let qwen = usage(
        r#"{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4,"cache_creation_input_tokens":3}}"#,
    );
    assert_eq!((qwen.cached, qwen.cache_write), (Some(4), Some(3)));
}

#[test]
fn compat_usage_is_found_in_every_place() {
    let figures = r#"{"prompt_tokens":10,"completion_tokens":5}"#;
    let content = delta(r#""content":"a""#);
    let kimi = format!(
        r#"{{"id":"c","choices":[{{"index":0,"delta":{{}},"finish_reason":"stop","usage":{figures}}}]}}"#
    );
    let groq = end("stop", &format!(r#","x_groq":{{"id":"r","usage":{figures}}}"#));
    let last = format!(r#"{{"id":"c","choices":[],"usage":{figures}}}"#);
    let stop = end("stop", "");
    for frames in [
        vec![&*content, &*kimi, "[DONE]"],
        vec![&*content, &*groq, "[DONE]"],
        vec![&*content, &*stop, &*last, "[DONE]"],
    ] {
        let usage = read(&frames).usage;
        assert_eq!((usage.input, usage.output), (Some(10), Some(5)), "{frames:?}");
    }
}

#[test]
fn compat_finish_reasons_of_each_provider_are_normalized() {
    let finish =
        |word: &str| read(&[&delta(r#""content":"a""#), &end(word, ""), "[DONE]"]).finishes[0].1.clone();
    assert_eq!(finish("eos"), FinishOwned::Stop); // Together
    assert_eq!(finish("model_length"), FinishOwned::Length); // Mistral
    assert_eq!(finish("sensitive"), FinishOwned::ContentFilter); // GLM
    assert_eq!(finish("model_context_window_exceeded"), FinishOwned::ContextFull); // GLM
    // DeepSeek, GLM, Mistral and OpenRouter, vLLM: the response broke off.
    for failure in ["insufficient_system_resource", "network_error", "error", "abort"] {
        let answer = read(&[&delta(r#""content":"a""#), &end(failure, ""), "[DONE]"]);
        assert!(answer.error.is_some_and(|error| error.contains(failure)), "{failure}");
    }
    // xAI ends a response that has tool calls with an empty finish reason.
    let call =
        delta(r#""tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]"#);
    for word in ["", "stop", "tool_calls"] {
        assert_eq!(read(&[&call, &end(word, ""), "[DONE]"]).finishes[0].1, FinishOwned::ToolUse, "{word:?}");
    }
}

#[test]
fn compat_tool_calls_of_each_provider_are_distinguished() {
    // Complete calls without an index; an index that is always the same; ids in every fragment; arguments as an object.
    let whole = delta(
        r#""tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{\"x\":1}"}}]"#,
    );
    let same = [
        delta(r#""tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]"#),
        delta(r#""tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{\"x\":1}"}}]"#),
    ];
    let repeated = [
        delta(r#""tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]"#),
        delta(r#""tool_calls":[{"index":0,"id":"a","function":{"name":"","arguments":"}"}}]"#),
        delta(r#""tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{\"x\":"}}]"#),
        delta(r#""tool_calls":[{"index":1,"id":"","function":{"arguments":"1}"}}]"#),
    ];
    let object = delta(
        r#""tool_calls":[{"id":"a","function":{"name":"f","arguments":{}}},{"id":"b","function":{"name":"g","arguments":{"x":1}}}]"#,
    );
    let stop = end("tool_calls", "");
    for frames in [
        vec![&whole, &stop],
        same.iter().chain([&stop]).collect(),
        repeated.iter().chain([&stop]).collect(),
        vec![&object, &stop],
    ] {
        let frames: Vec<&str> = frames.into_iter().map(String::as_str).collect();
        let answer = read(&frames);
        let calls: Vec<(String, String)> = answer
            .blocks
            .iter()
            .map(|block| match &block.kind {
                AnswerBlockKind::ToolUse { id, name, .. } => {
                    let text = json::JsonStr::from_escaped(&block.text).decode().into_owned();
                    (format!("{id} {name}"), block.object.clone().unwrap_or(text))
                }
                other => panic!("{other:?}"),
            })
            .collect();
        let wanted = [("a f".to_owned(), "{}".to_owned()), ("b g".to_owned(), r#"{"x":1}"#.to_owned())];
        assert_eq!(calls, wanted, "{frames:?}");
    }
}

#[test]
fn compat_errors_in_streams_and_in_200_responses_are_found() {
    for (provider, frame) in [
        (
            "openrouter",
            r#"{"id":"g","error":{"code":502,"message":"no"},"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}"#,
        ),
        ("xai", r#"{"code":"busy","error":"no"}"#),
        ("mistral", r#"{"object":"error","message":"no","type":"x","code":"1"}"#),
        (
            "groq",
            r#"{"error":{"message":"no","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"x"}}"#,
        ),
        ("groq, later", r#"{"id":"c","choices":[],"x_groq":{"error":"no"}}"#),
    ] {
        assert!(read(&[frame]).error.is_some(), "{provider}");
    }
    // A document with status 200 that is no completion.
    for (provider, body) in [
        ("dashscope", r#"{"code":"InvalidParameter","message":"no","request_id":"r"}"#),
        ("zhipu", r#"{"error":{"code":"1302","message":"no"}}"#),
        ("others", r#"{"success":false,"code":500,"msg":"no"}"#),
    ] {
        let mut whole = Answer::default();
        let read = answer::decode(body, "seed", false, &mut |event| whole.take(&event));
        assert!(read.is_err() || whole.error.is_some(), "{provider}: {whole:?}");
    }
}

#[test]
fn compat_errors_have_a_message_in_every_shape() {
    for (provider, body) in [
        ("deepseek", r#"{"error":{"message":"no","type":"insufficient_balance","param":null,"code":"x"}}"#),
        (
            "dashscope",
            r#"{"error":{"message":"no","type":"data_inspection_failed","code":"data_inspection_failed"},"request_id":"r"}"#,
        ),
        ("moonshot", r#"{"error":{"message":"no","type":"engine_overloaded_error"}}"#),
        ("glm", r#"{"error":{"code":"1301","message":"no"}}"#),
        ("xai", r#"{"code":"Client specified an invalid argument","error":"no"}"#),
        ("mistral", r#"{"object":"error","message":"no","type":"x","param":null,"code":"1"}"#),
        (
            "mistral, unknown member",
            r#"{"object":"error","message":{"detail":[{"loc":["body","x"],"msg":"no"}]},"type":"x"}"#,
        ),
        ("mistral, unauthorised", r#"{"detail":"no"}"#),
        ("openrouter", r#"{"error":{"code":402,"message":"no","metadata":{}}}"#),
        ("vllm, old", r#"{"object":"error","message":"no","type":"BadRequestError","code":400}"#),
        ("ollama", r#"{"error":"no"}"#),
        ("fireworks", r#"{"error":{"object":"error","type":"x","message":"no","code":"y"}}"#),
        ("azure", r#"{"error":{"code":"401","message":"no"}}"#),
    ] {
        let message = ProviderError::decode(body.as_bytes()).message;
        assert!(message.contains("no"), "{provider}: {message}");
    }
}
