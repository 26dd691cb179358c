//! Fuzz tests: input from outside is parsed or rejected with an error, whatever its bytes.

use proptest::prelude::*;

use super::{Task, answer, ask, image};

proptest! {
    #[test]
    fn decode_of_arbitrary_text_never_panics(
        text in prop_oneof![
            ".*",
            prop::collection::vec(
                prop::sample::select(vec![
                    "{", "}", "[", "]", ",", ":", "\"req\"", "\"prompt\"", "\"size\"", "\"1x1\"", "\"model\"", "\"data\"",
                    "\"url\"", "\"code\"", "200", "\"image_urls\"", "\"https://h/1\"", "\"output\"", "\"choices\"",
                ]),
                0..40,
            )
            .prop_map(|words| words.concat()),
        ]
    ) {
        for task in Task::ALL {
            let _ = ask::decode(task, &text);
        }
        let _ = (ask::api_key(&text), ask::rename(&text, "m"), image::decode(&text));
        let _ = (answer::upstream_id(&text), answer::parse_report(&text));
    }
}

#[test]
fn rename_replaces_the_model_in_place() {
    for (body, renamed) in [
        (r#"{"a":{"model":"no"},"model":"x","b":1}"#, r#"{"a":{"model":"no"},"model":"y","b":1}"#),
        (
            r#"{"batchImageGenerationDTO": {"n":1, "model" : "x"}}"#,
            r#"{"batchImageGenerationDTO": {"n":1, "model" : "y"}}"#,
        ),
    ] {
        assert_eq!(ask::rename(body, "y").unwrap(), renamed);
    }
    assert_eq!(ask::rename(r#"{"n":1}"#, "y"), None);
}

#[test]
fn idempotency_text_ignores_space_between_tokens() {
    let of = |body: &str| {
        let mut all = Vec::new();
        ask::words(body, |part| all.extend_from_slice(part));
        String::from_utf8(all).unwrap()
    };
    assert_eq!(of("{ \"a b\" :\n\t[1, \"\\\" x\" ]\r\n}"), "{\"a b\":[1,\"\\\" x\"]}");
    assert_eq!(of(""), "");
}

#[test]
fn error_names_the_parameter_as_the_client_spelled_it() {
    let body = r#"{"model":"m","prompt":"p","n":1,"size":"s","temperature":1,"watermark":true,"sequentialImageGeneration":"auto"}"#;
    let asked = ask::decode(Task::ProductExtraction, body).unwrap();
    let error = |param: &'static str| {
        let message = format!("'{param}' is not taken.");
        asked.named(crate::error::ApiError::new(crate::error::ErrorKind::Unsupported, message).param(param))
    };
    let named = error("sequential_image_generation");
    assert_eq!(named.param.as_deref(), Some("sequentialImageGeneration"));
    assert_eq!(named.message, "'sequentialImageGeneration' is not taken.");
    assert_eq!(error("elsewhere").param.as_deref(), Some("elsewhere"));
}
