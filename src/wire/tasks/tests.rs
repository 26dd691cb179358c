//! Whatever comes from outside: no bytes make a reader fail otherwise than with an error.

use proptest::prelude::*;

use super::{Task, answer, ask, image};

proptest! {
    #[test]
    fn no_text_makes_a_reader_fail(
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
        let _ = (answer::upstream_id(&text), answer::looked(&text));
    }
}

#[test]
fn a_model_is_renamed_where_it_stands() {
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
