//! Tests of the other request options.

use super::*;
use crate::canonical::{OutputFormat, Thinking};
use json::RawJson;

fn decoded<T>(members: &str, look: impl FnOnce(&Request<'_>) -> T) -> T {
    let body = asking(members);
    look(&request::decode(&body).unwrap_or_else(|error| panic!("{members}: {error}")))
}

#[test]
fn map_6_limits_stop_sequences_and_sampling_are_decoded() {
    decoded(
        r#","max_completion_tokens":7,"max_tokens":9,"stop":["a","b"],"n":2,"temperature":0.50,"top_p":1e-1,"seed":-3,"presence_penalty":-1,"frequency_penalty":0.25,"logprobs":true,"top_logprobs":3"#,
        |request| {
            assert_eq!((request.max_output, request.choices, request.logprobs), (Some(7), Some(2), Some(3)));
            assert_eq!(request.stop, [js("a"), js("b")]);
            let raw = |text| Some(RawJson::from_text(text));
            assert_eq!(request.sampling.temperature, raw("0.50"), "as it was written");
            assert_eq!((request.sampling.top_p, request.sampling.seed), (raw("1e-1"), raw("-3")));
        },
    );
    decoded(r#","max_tokens":9,"stop":"END","logprobs":true,"random_seed":1"#, |request| {
        assert_eq!((request.max_output, request.logprobs), (Some(9), Some(0)));
        assert_eq!(request.stop, [js("END")]);
        assert!(request.sampling.seed.is_some());
    });
    decoded(r#","logprobs":false,"top_logprobs":3"#, |request| assert_eq!(request.logprobs, None));
}

#[test]
fn option_null_counts_as_absent() {
    let names = [
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "n",
        "stop",
        "tools",
        "tool_choice",
        "functions",
        "function_call",
        "response_format",
        "stream",
        "stream_options",
        "logprobs",
        "top_logprobs",
        "user",
        "metadata",
        "seed",
        "reasoning_effort",
        "reasoning",
        "thinking",
        "enable_thinking",
        "parameters",
        "logit_bias",
        "web_search_options",
        "modalities",
        "store",
        "service_tier",
        "x_unknown",
    ];
    let members: String = names.iter().map(|name| format!(r#","{name}":null"#)).collect();
    let plain = asking("");
    decoded(&members, |request| assert_eq!(*request, request::decode(&plain).unwrap()));
}

#[test]
fn option_malformed_is_refused_with_its_path() {
    for (members, path) in [
        (r#","max_tokens":"many""#, "max_tokens"),
        (r#","max_tokens":-1"#, "max_tokens"),
        (r#","temperature":"hot""#, "temperature"),
        (r#","stream":"yes""#, "stream"),
        (r#","stop":5"#, "stop"),
        (r#","stop":["a",5]"#, "stop[1]"),
        (r#","metadata":[]"#, "metadata"),
        (r#","reasoning_effort":"huge""#, "reasoning_effort"),
        (r#","thinking":{"type":"perhaps"}"#, "thinking.type"),
        (r#","response_format":{"type":"xml"}"#, "response_format.type"),
        (r#","response_format":{"type":"json_schema"}"#, "response_format.json_schema.schema"),
        (r#","parameters":[]"#, "parameters"),
        (r#","parameters":{"temperature":"hot"}"#, "temperature"),
    ] {
        assert_eq!(fault_in(&asking(members)), path, "{members}");
    }
}

#[test]
fn map_5_response_format_is_decoded() {
    let format = |members: &str| format!(r#","response_format":{members}"#);
    decoded(&format(r#"{"type":"text"}"#), |request| assert_eq!(request.output, OutputFormat::Text));
    decoded(&format(r#"{"type":"json_object"}"#), |request| assert_eq!(request.output, OutputFormat::Json));
    let schema = r#"{"type":"object","properties":{"z":{},"a":{}}}"#;
    for members in [
        format!(
            r#"{{"type":"json_schema","json_schema":{{"name":"n","description":"d","strict":false,"schema":{schema}}}}}"#
        ),
        format!(r#"{{"type":"json_schema","name":"n","description":"d","strict":false,"schema":{schema}}}"#),
    ] {
        decoded(&format(&members), |request| {
            let expected = OutputFormat::Schema {
                name: js("n"),
                description: js("d"),
                schema: RawJson::from_text(schema),
                openapi: false,
                strict: Some(false),
            };
            assert_eq!(request.output, expected);
        });
    }
}

#[test]
fn bug_64_response_format_is_encoded_natively() {
    let schema =
        RawJson::from_text(r#"{"type":"OBJECT","properties":{"z":{"type":"STRING"},"a":{"type":"STRING"}}}"#);
    let output = |name, openapi| OutputFormat::Schema {
        name: js(name),
        description: js(""),
        schema,
        openapi,
        strict: None,
    };
    let format = |output| {
        let request = Request { output, ..Request::default() };
        sent(&request, &dialect())["response_format"].take()
    };
    let asked = format(output("", true));
    assert_eq!(asked["json_schema"]["name"], "response");
    assert_eq!(
        asked["json_schema"]["schema"].to_string(),
        r#"{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"string"}}}"#
    );
    assert!(asked["json_schema"].get("strict").is_none());
    assert_eq!(format(output("my name: \u{fc}", false))["json_schema"]["name"], "my_name___");
    assert_eq!(format(OutputFormat::Json), serde_json::json!({"type": "json_object"}));
    assert_eq!(format(OutputFormat::Text), Value::Null);
    let choice = OutputFormat::Choice { schema: RawJson::from_text(r#"{"type":"STRING","enum":["a","b"]}"#) };
    assert_eq!(
        format(choice)["json_schema"]["schema"],
        serde_json::json!({"type": "string", "enum": ["a", "b"]})
    );
}

#[test]
fn user_cache_and_stream_options_are_decoded() {
    decoded(
        r#","user":"u-1","safety_identifier":"s-1","metadata":{"k":"v"},"service_tier":"flex","prompt_cache_key":"k","store":true,"verbosity":"low","modalities":["text","audio"],"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false}"#,
        |request| {
            assert_eq!(request.user, Some(js("u-1")));
            assert_eq!(request.extra[0].name, "safety_identifier");
            assert_eq!((request.store, request.cache_key), (Some(true), Some(js("k"))));
            assert_eq!((request.verbosity, request.service_tier), (Some(js("low")), Some(js("flex"))));
            assert_eq!(request.modalities, [js("text"), js("audio")]);
            assert!(request.stream && request.usage_wanted);
        },
    );
    decoded(r#","safety_identifier":"s-1""#, |request| {
        assert_eq!((request.user, request.extra.len()), (Some(js("s-1")), 0));
    });
    decoded(r#","stream":true,"stream_options":{"include_usage":false}"#, |request| {
        assert!(!request.usage_wanted);
    });
}

#[test]
fn option_unknown_keeps_its_name_and_order() {
    decoded(
        r#","logit_bias":{"1":-100},"x_provider":{"f":1.0,"big":12345678901234567890},"min_p":0.1,"prediction":{"type":"content","content":"a"}"#,
        |request| {
            let names: Vec<_> = request.extra.iter().map(|extra| (extra.name, extra.value.text())).collect();
            assert_eq!(names[0], ("logit_bias", r#"{"1":-100}"#));
            assert_eq!(names[1], ("x_provider", r#"{"f":1.0,"big":12345678901234567890}"#));
            assert_eq!((names[2].0, names[3].0, names.len()), ("min_p", "prediction", 4));
        },
    );
}

#[test]
fn options_absent_are_defaults() {
    decoded("", |request| {
        assert_eq!(request.thinking, Thinking::Unset);
        assert_eq!(*request, Request { turns: request.turns.clone(), ..Request::default() });
    });
}
