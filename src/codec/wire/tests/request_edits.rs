//! Tests of body edits: the intended change, and nothing else.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::wire::Api;
use crate::wire::request::{Body, BodyReader};
use json::Edit;

fn read(api: Api, batch: bool, text: &str) -> Body {
    let mut reader = BodyReader::new(api, batch);
    // Small pieces, so that edits cross piece boundaries.
    for piece in text.as_bytes().chunks(7) {
        reader.push(Bytes::copy_from_slice(piece)).unwrap();
    }
    reader.finish().unwrap()
}

fn apply(body: Body, edits: impl IntoIterator<Item = Edit>) -> String {
    let mut edits: Vec<Edit> = edits.into_iter().collect();
    edits.sort_by_key(|edit| edit.range.start);
    String::from_utf8(body.text.edited(&edits).into_contiguous().to_vec()).unwrap()
}

fn renamed(api: Api, batch: bool, text: &str, model: &str) -> String {
    let body = read(api, batch, text);
    let edits = body.set_model(model);
    apply(body, edits)
}

#[test]
fn model_edit_changes_nothing_else() {
    for (text, expected) in [
        (
            "{ \"z\": 1.0e2, \"model\" : \"a\" , \"messages\":[{\"model\":\"a\"}], \"a\":\"\\u00e9\" }\n",
            "{ \"z\": 1.0e2, \"model\" : \"b\\\"c\" , \"messages\":[{\"model\":\"a\"}], \"a\":\"\\u00e9\" }\n",
        ),
        (r#"{"messages":[],"mod\u0065l":"x"}"#, r#"{"messages":[],"mod\u0065l":"b\"c"}"#),
    ] {
        assert_eq!(renamed(Api::Chat, false, text, "b\"c"), expected);
    }
}

/// A re-sorted body misses the provider's prompt cache.
#[test]
fn bug_54_model_edit_keeps_member_order_and_number_spelling() {
    let text = r#"{"tools":[{"z":1,"a":2}],"model":"a","temperature":1.10,"seed":12345678901234567890,"messages":[]}"#;
    assert_eq!(renamed(Api::Chat, false, text, "b"), text.replace("\"a\",\"temp", "\"b\",\"temp"));
}

#[test]
fn model_edit_of_a_gemini_body_covers_inner_requests() {
    let text = r#"{"model":"models/a","contents":[{"model":"stays"}]}"#;
    assert_eq!(
        renamed(Api::Generate, false, text, "b"),
        r#"{"model":"models/b","contents":[{"model":"stays"}]}"#
    );
    for key in ["generateContentRequest", "generate_content_request"] {
        let text = format!(r#"{{"{key}":{{"contents":[{{"model":"stays"}}],"model":"models/a"}}}}"#);
        let expected = text.replace("models/a", "models/b");
        assert_eq!(renamed(Api::Generate, false, &text, "b"), expected, "countTokens");
    }
    let text =
        r#"{"requests":[{"model":"models/a","content":{}},{"content":{}},{"m\u006fdel":"models/a"},7]}"#;
    assert_eq!(renamed(Api::EmbedContent, true, text, "b"), text.replace("models/a", "models/b"), "a batch");
    let text = r#"{"content":{"model":"stays"},"model":"models/a"}"#;
    assert_eq!(renamed(Api::EmbedContent, false, text, "b"), text.replace("models/a", "models/b"));
    assert_eq!(
        renamed(Api::Generate, false, r#"{"contents":[]}"#, "b"),
        r#"{"contents":[]}"#,
        "no name, no edit"
    );
    assert_eq!(
        renamed(Api::Generate, false, r#"{"contents":[],"model":1}"#, "b"),
        r#"{"contents":[],"model":1}"#
    );
}

#[test]
fn usage_edit_sets_include_usage_for_any_client_setting() {
    for (options, expected) in [
        ("", r#","stream_options":{"include_usage":true}"#),
        (r#","stream_options":null"#, r#","stream_options":{"include_usage":true}"#),
        (r#","stream_options":{}"#, r#","stream_options":{"include_usage":true}"#),
        (r#","stream_options": { }"#, r#","stream_options": {"include_usage":true }"#),
        (r#","stream_options":{"x":1}"#, r#","stream_options":{"include_usage":true,"x":1}"#),
        (r#","stream_options":{"include_usage":false}"#, r#","stream_options":{"include_usage":true}"#),
        (
            r#","stream_options":{"x":{},"include_usage" : null}"#,
            r#","stream_options":{"x":{},"include_usage" : true}"#,
        ),
    ] {
        for (before, behind) in [
            ("{\"stream\":true", ",\"model\":\"m\",\"messages\":[]}"),
            ("{\"model\":\"m\",\"messages\":[],\"stream\":true", "}"),
        ] {
            let body = read(Api::Chat, false, &format!("{before}{options}{behind}"));
            assert!(!body.requests_usage());
            let edit = body.request_usage();
            let text = apply(body, edit);
            assert_eq!(text, format!("{before}{expected}{behind}"));
            let tree: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(tree["stream_options"]["include_usage"], json!(true));
        }
    }
}

#[test]
fn usage_edit_is_none_if_already_set_or_malformed() {
    for (options, asks) in [
        (r#"{"include_usage":true}"#, true),
        (r#"{"include\u005fusage":true}"#, true),
        ("[]", false),
        ("1", false),
        (r#"{"include_usage":"yes"}"#, false),
    ] {
        let text = format!(r#"{{"model":"m","messages":[],"stream":true,"stream_options":{options}}}"#);
        let body = read(Api::Chat, false, &text);
        assert_eq!(body.requests_usage(), asks, "{options}");
        assert_eq!(body.request_usage(), None, "{options}");
    }
}

#[test]
fn usage_edit_is_for_chat_only() {
    for api in [Api::Messages, Api::CountTokens, Api::Responses] {
        let text = r#"{"model":"m","messages":[{}],"input":[{}],"max_tokens":1,"stream":true}"#;
        assert_eq!(read(api, false, text).request_usage(), None, "{api}");
    }
}

#[test]
fn edits_combine_to_one_valid_body() {
    let text = r#"{"stream":true,"model":"a","messages":[]}"#;
    let body = read(Api::Chat, false, text);
    let edits: Vec<Edit> = body.set_model("long-name").into_iter().chain(body.request_usage()).collect();
    let expected =
        r#"{"stream":true,"stream_options":{"include_usage":true},"model":"long-name","messages":[]}"#;
    assert_eq!(apply(body, edits), expected);
}

#[test]
fn model_member_is_replaced_in_any_spelling() {
    let wide = format!(r#""model"{}:{}"a""#, " \n\t\r".repeat(40), " ".repeat(90));
    for model in [r#""model":"a""#, r#""model" : "a""#, r#""mod\u0065l":"a\\\"model\":""#, &wide] {
        for (before, behind) in [
            ("{", r#","max_tokens":1,"messages":[{"model":"a"}]}"#),
            (r#"{"max_tokens":1,"messages":[{"model":"a"}], "#, "}"),
        ] {
            let body = read(Api::Messages, false, &format!("{before}{model}{behind}"));
            let edit = body.replace_model("version", "v\"1").unwrap();
            assert_eq!(apply(body, [edit]), format!(r#"{before}"version":"v\"1"{behind}"#), "{model}");
        }
    }
    let body = read(Api::Generate, false, r#"{"contents":[]}"#);
    assert_eq!(body.replace_model("version", "1"), None);
}

#[test]
fn members_that_the_gateway_states_itself_are_removed() {
    let version = r#""anthropic_version": "1""#;
    let stream = r#""stream" :true"#;
    let rest = r#""model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"}]"#;
    let removed = |text: &str, by_path| {
        let body = read(Api::Messages, false, text);
        let edits = body.removals(by_path, Some("anthropic_version"));
        assert!(edits.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start), "{text}: {edits:?}");
        apply(body, edits)
    };
    for (text, expected) in [
        (format!("{{{rest}}}"), format!("{{{rest}}}")),
        (format!("{{{version},{rest}}}"), format!("{{{rest}}}")),
        (format!("{{{rest} , {version} }}"), format!("{{{rest}  }}")),
        (format!("{{{stream},{version},{rest}}}"), format!("{{{rest}}}")),
        (format!("{{{rest},{stream}, {version}}}"), format!("{{{rest}}}")),
        (format!("{{{version},{rest},{stream}}}"), format!("{{{rest}}}")),
        (
            format!(
                r#"{{"model":"m",{version},"max_tokens":1,{stream},"messages":[{{"role":"user","content":"a"}}]}}"#
            ),
            format!("{{{rest}}}"),
        ),
    ] {
        assert_eq!(removed(&text, true), expected, "{text}");
    }
    assert_eq!(removed(&format!("{{{rest},{stream},{version}}}"), false), format!("{{{rest},{stream}}}"));
    let gap = " ".repeat(9_000);
    // White space without an end: the member stays rather than a comma too many.
    let text = format!("{{{rest}{gap},{gap}{version}{gap}}}");
    serde_json::from_str::<Value>(&removed(&text, true)).unwrap();
}

#[test]
fn version_of_a_messages_request_stays_for_the_api_that_has_none() {
    let rest = r#""max_tokens":1,"messages":[{"role":"user","content":"a"}]}"#;
    let text = |version: &str| format!(r#"{{"model":"m","anthropic_version":"{version}",{rest}"#);
    let removed = |version: &str, by_path, replacement| {
        let body = read(Api::Messages, false, &text(version));
        let edits = body.removals(by_path, replacement);
        apply(body, edits)
    };
    let without = format!(r#"{{"model":"m",{rest}"#);
    assert_eq!(removed("vertex-2023-10-16", false, None), text("vertex-2023-10-16"));
    assert_eq!(removed("vertex-2023-10-16", true, None), without);
    assert_eq!(removed("vertex-2023-10-16", false, Some("anthropic_version")), without);

    // Clients of InvokeModel state any version, which Anthropic's own API refuses in a body.
    for version in ["bedrock-2023-05-31", "2026-10-21"] {
        let mut reader = BodyReader::invoke("m", false);
        let text = format!(r#"{{"anthropic_version":"{version}","messages":[{{}}],"max_tokens":1}}"#);
        reader.push(Bytes::from(text)).unwrap();
        let body = reader.finish().unwrap();
        let edits = body.removals(false, None);
        assert_eq!(apply(body, edits), r#"{"model":"m","messages":[{}],"max_tokens":1}"#, "{version}");
    }
}
