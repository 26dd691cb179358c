//! Tests of the request body reader: its results, and its error messages.

use bytes::Bytes;
use proptest::prelude::*;

use crate::error::{ApiError, ErrorKind};
use crate::wire::Api;
use crate::wire::body_facts::OutputCaps;
use crate::wire::request::{Body, BodyReader};

fn read_pieces<'p>(api: Api, pieces: impl IntoIterator<Item = &'p [u8]>) -> Result<Body, ApiError> {
    let mut reader = BodyReader::new(api, false);
    for piece in pieces {
        reader.push(Bytes::copy_from_slice(piece))?;
    }
    reader.finish()
}

fn read(api: Api, text: &str) -> Result<Body, ApiError> {
    read_pieces(api, [text.as_bytes()])
}

/// Returns the error message and the field that it names.
fn refusal(api: Api, text: &str) -> (String, Option<String>) {
    let error = read(api, text).unwrap_err();
    assert_eq!(error.status, 400, "{text}");
    (error.message.into_owned(), error.param.map(|param| param.into_owned()))
}

#[test]
fn model_and_stream_are_found_anywhere_in_the_body() {
    for text in [
        r#"{"model":"m-1","stream":true,"messages":[]}"#,
        r#"{"messages":[],"stream":true,"model":"m-1"}"#,
        "{ \"messages\" : [ ] ,\r\n\t\"stream\" : true , \"model\" : \"m-1\" }\n",
        r#"{"metadata":{"model":"no","stream":false},"stream":true,"messages":[{"model":"no"}],"model":"m-1"}"#,
        r#"{"user":"\"model\":\"no\"","model":"m-1","messages":["}"],"stream":true}"#,
        r#"{"\u006dodel":"m\u002d1","str\u0065am":true,"messages":[]}"#,
    ] {
        let body = read(Api::Chat, text).unwrap();
        assert_eq!(body.model.as_deref(), Some("m-1"), "{text}");
        assert!(body.stream, "{text}");
        assert_eq!(body.text.into_contiguous(), text, "the body is kept as it came");
    }
}

#[test]
fn stream_must_be_a_boolean_or_null() {
    for (value, stream) in [("true", true), ("false", false), ("null", false)] {
        let body = read(Api::Chat, &format!(r#"{{"model":"m","messages":[],"stream":{value}}}"#)).unwrap();
        assert_eq!(body.stream, stream, "{value}");
    }
    assert!(!read(Api::Chat, r#"{"model":"m","messages":[]}"#).unwrap().stream);
    for value in ["\"true\"", "1", "{}"] {
        let (message, param) =
            refusal(Api::Chat, &format!(r#"{{"model":"m","messages":[],"stream":{value}}}"#));
        assert!(message.starts_with("Invalid type for 'stream': expected a boolean, but got "), "{message}");
        assert_eq!(param.as_deref(), Some("stream"));
    }
}

#[test]
fn model_name_with_escapes_is_decoded() {
    for (written, meant) in [
        (r#""meta\/llama""#, "meta/llama"),
        (r#""\u6a21\u578b""#, "模型"),
        (r#""模型""#, "模型"),
        (r#""\ud83d\ude00""#, "😀"),
        (r#""a\\b""#, r"a\b"),
        (r#"" m ""#, " m "),
    ] {
        let body = read(Api::Chat, &format!(r#"{{"model":{written},"messages":[]}}"#)).unwrap();
        assert_eq!(body.model.as_deref(), Some(meant), "{written}");
    }
}

#[test]
fn member_given_twice_is_refused_in_any_spelling() {
    for (text, name) in [
        (r#"{"model":"a","messages":[],"model":"b"}"#, "model"),
        (r#"{"model":"a","messages":[],"mode\u006c":"b"}"#, r"mode\u006c"),
        (r#"{"model":"a","messages":[],"x":1,"x":1}"#, "x"),
        (r#"{"model":"a","messages":[],"stream":true,"stream":false}"#, "stream"),
    ] {
        let error = read(Api::Chat, text).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidJson, "{text}");
        assert_eq!(error.message, format!("The request body has the member \"{name}\" twice."));
    }
    assert!(
        read(Api::Chat, r#"{"model":"a","messages":[{"x":1,"x":2}]}"#).is_ok(),
        "the provider's to judge"
    );
}

#[test]
fn body_that_is_not_a_json_object_is_refused() {
    for (text, message) in [
        ("", "The request body is empty; a JSON object is expected."),
        (" \n", "The request body is empty; a JSON object is expected."),
        ("[]", "The request body must be a JSON object."),
        ("\"{}\"", "The request body must be a JSON object."),
        ("model=x", "The request body is not valid JSON: expected a value at byte 0."),
        ("{\"a\":1", "The request body is not valid JSON: the document ends too early at byte 6."),
        ("{\"a\":1}}", "The request body is not valid JSON: something follows the document at byte 7."),
        ("{'a':1}", "The request body is not valid JSON: expected a member's name at byte 1."),
        ("{\"a\":NaN}", "The request body is not valid JSON: expected a value at byte 5."),
        ("{\"a\":\"\n\"}", "The request body is not valid JSON: a control character in a string at byte 6."),
    ] {
        for api in [Api::Chat, Api::Messages, Api::Responses, Api::Generate, Api::Embeddings] {
            let error = read(api, text).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidJson, "{text}");
            assert_eq!(error.message, message);
        }
    }
    let error = read_pieces(Api::Chat, [&b"{\"model\":\"\xc3"[..], b"\x28\"}"]).unwrap_err();
    assert_eq!(error.message, "The request body is not valid JSON: not UTF-8 at byte 10.");
}

#[test]
fn body_fault_is_reported_before_the_body_is_complete() {
    let mut reader = BodyReader::new(Api::Chat, false);
    assert!(reader.is_empty());
    reader.push(Bytes::from_static(b"{\"model\"")).unwrap();
    let error = reader.push(Bytes::from_static(b";1")).unwrap_err();
    assert_eq!(reader.push(Bytes::from_static(b"}")).unwrap_err(), error, "and again");
    assert_eq!(reader.len(), 11);
}

#[test]
fn field_missing_is_named() {
    for (api, text, field) in [
        (Api::Chat, r#"{"messages":[]}"#, "model"),
        (Api::Chat, r#"{"model":"m"}"#, "messages"),
        (Api::Messages, r#"{"model":"m","messages":[]}"#, "max_tokens"),
        (Api::CountTokens, r#"{"model":"m"}"#, "messages"),
        (Api::Responses, r#"{"model":"m"}"#, "input"),
        (Api::Responses, r#"{"input":"x"}"#, "model"),
        (Api::Embeddings, r#"{"model":"m"}"#, "input"),
        (Api::Generate, r#"{}"#, "contents"),
        (Api::EmbedContent, r#"{}"#, "content"),
    ] {
        let (message, param) = refusal(api, text);
        assert_eq!(message, format!("Missing required parameter: '{field}'."));
        assert_eq!(param.as_deref(), Some(field));
    }
}

#[test]
fn field_of_the_wrong_type_is_named() {
    for (api, text, message) in [
        (
            Api::Chat,
            r#"{"model":1,"messages":[]}"#,
            "Invalid type for 'model': expected a string, but got a number instead.",
        ),
        (
            Api::Chat,
            r#"{"model":null,"messages":[]}"#,
            "Invalid type for 'model': expected a string, but got null instead.",
        ),
        (
            Api::Chat,
            r#"{"model":"m","messages":"hi"}"#,
            "Invalid type for 'messages': expected an array, but got a string instead.",
        ),
        (
            Api::Messages,
            r#"{"model":"m","messages":[],"max_tokens":"5"}"#,
            "Invalid type for 'max_tokens': expected a number, but got a string instead.",
        ),
        (
            Api::Embeddings,
            r#"{"model":"m","input":{}}"#,
            "Invalid type for 'input': expected a string or an array, but got an object instead.",
        ),
        (
            Api::Messages,
            r#"{"model":"m","messages":[],"max_tokens":0}"#,
            "'max_tokens' must be greater than 0.",
        ),
        (
            Api::Messages,
            r#"{"model":"m","messages":[],"max_tokens":-1}"#,
            "'max_tokens' must be greater than 0.",
        ),
        (Api::Chat, r#"{"model":"","messages":[]}"#, "'model' must not be empty."),
    ] {
        assert_eq!(refusal(api, text).0, message, "{text}");
    }
    let long = format!(r#"{{"model":"{}","messages":[]}}"#, "m".repeat(257));
    assert_eq!(refusal(Api::Chat, &long).0, "'model' is longer than 256 bytes.");
}

#[test]
fn field_of_content_may_be_missing_if_it_is_elsewhere() {
    assert!(read(Api::Responses, r#"{"model":"m","prompt":{"id":"pmpt_1"}}"#).is_ok());
    assert!(read(Api::Generate, r#"{"generateContentRequest":{"contents":[]}}"#).is_ok(), "countTokens");
    assert!(read(Api::Generate, r#"{"generate_content_request":{"contents":[]}}"#).is_ok());
    assert!(read(Api::Chat, r#"{"model":"m","prompt":"x"}"#).is_err());
}

#[test]
fn model_member_of_a_gemini_body_is_ignored() {
    let body = read(Api::Generate, r#"{"model":"models/x","contents":[],"stream":"yes"}"#).unwrap();
    assert_eq!(body.model, None);
    assert!(!body.stream, "the method says whether it is a stream");
}

#[test]
fn batch_of_embeddings_must_have_requests() {
    let mut reader = BodyReader::new(Api::EmbedContent, true);
    reader.push(Bytes::from_static(br#"{"requests":[{"content":{}}]}"#)).unwrap();
    assert!(reader.finish().is_ok());
    let mut reader = BodyReader::new(Api::EmbedContent, true);
    reader.push(Bytes::from_static(br#"{"content":{}}"#)).unwrap();
    assert_eq!(reader.finish().unwrap_err().param.as_deref(), Some("requests"));
}

#[test]
fn body_is_read_the_same_at_every_split() {
    let text = r#"{"metadata":{"model":"é"},"m\u006fdel":"gpt-é\u00e9🌍","messages":[{"content":"\"}{\\"}],"stream":true,"stream_options":{"include_usage":false}} "#;
    let whole = read(Api::Chat, text).unwrap();
    assert_eq!(whole.model.as_deref(), Some("gpt-éé🌍"));
    let edits = |body: &Body| (body.set_model("x"), body.request_usage());
    for first in 0..=text.len() {
        for second in [first, (first + text.len()) / 2, text.len()] {
            let (a, rest) = text.as_bytes().split_at(first);
            let (b, c) = rest.split_at(second - first);
            let body = read_pieces(Api::Chat, [a, b, c]).unwrap();
            assert_eq!(body.model, whole.model);
            assert_eq!(body.stream, whole.stream);
            assert_eq!(edits(&body), edits(&whole));
            assert_eq!(body.text.into_contiguous(), text);
        }
    }
}

/// Reference implementation: parses the whole body into a tree.
fn twin(text: &str) -> Option<(String, bool)> {
    let tree: serde_json::Value = serde_json::from_str(text).ok()?;
    let model = tree.get("model")?.as_str()?.to_owned();
    let stream = match tree.get("stream") {
        None | Some(serde_json::Value::Null) => false,
        Some(value) => value.as_bool()?,
    };
    let sound = !model.is_empty() && model.len() <= 256 && tree.get("messages")?.is_array();
    sound.then_some((model, stream))
}

proptest! {
    #[test]
    fn body_reading_agrees_with_a_json_tree(
        model in r#"("[a-z/é\\n]{0,6}"|"\\u0061\\"|null|1)"#,
        stream in "(true|false|null|1|\"a\")",
        messages in r#"(\[\]|\[\{"model":"x"\}\]|\{\}|\[)"#,
        other in r#"(1|"\{"|\{"stream":1\}|\[\[\]\]|tru)"#,
        order in proptest::sample::select(vec![[0usize, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]]),
        size in 1usize..60,
    ) {
        let members = [
            format!("\"model\":{model}"), format!("\"stream\": {stream}"),
            format!("\"messages\" :{messages}"), format!("\"other\":{other}"),
        ];
        let text = format!("{{{}}}", order.map(|index| members[index].clone()).join(","));
        let read = read_pieces(Api::Chat, text.as_bytes().chunks(size)).ok();
        prop_assert_eq!(read.and_then(|body| Some((body.model?, body.stream))), twin(&text), "{}", text);
    }
}

#[test]
fn output_limits_are_found_in_every_format() {
    for (api, text, output, answers) in [
        (Api::Chat, r#"{"model":"m","messages":[],"max_tokens":7}"#, Some(7), None),
        (Api::Chat, r#"{"max_tokens":7,"model":"m","messages":[],"max_completion_tokens":9}"#, Some(9), None),
        (Api::Chat, r#"{"model":"m","messages":[{"max_tokens":7,"n":7}]}"#, None, None),
        (Api::Chat, r#"{"model":"m","messages":[],"max_tokens":null,"n":null}"#, None, None),
        (Api::Chat, r#"{"model":"m","n":5,"messages":[]}"#, None, Some(5)),
        (Api::Chat, r#"{"model":"m","\u006e":5,"messages":[]}"#, None, Some(5)),
        (Api::Messages, r#"{"model":"m","messages":[{}],"max_tokens":100,"n":3}"#, Some(100), None),
        (Api::Responses, r#"{"model":"m","input":"x","max_output_tokens":16}"#, Some(16), None),
        (
            Api::Generate,
            r#"{"contents":[],"generationConfig":{"topK":1,"maxOutputTokens":5}}"#,
            Some(5),
            None,
        ),
        (Api::Generate, r#"{"generation_config":{"max_output_tokens":5},"contents":[]}"#, Some(5), None),
        (
            Api::Generate,
            r#"{"contents":[],"generationConfig":{"candidateCount":3,"candidate_count":2}}"#,
            None,
            Some(3),
        ),
        (Api::Generate, r#"{"contents":[],"generationConfig":{"c\u0061ndidateCount":3}}"#, None, Some(3)),
        (Api::Embeddings, r#"{"model":"m","input":"x","max_tokens":5,"n":2}"#, None, None),
    ] {
        assert_eq!(
            read(api, text).unwrap().output_caps(),
            OutputCaps { output, answers, unsure: 0 },
            "{text}"
        );
    }
}
