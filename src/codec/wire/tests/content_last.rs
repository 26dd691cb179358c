//! Tests of the order of members: the conversation is last, and nothing else changes.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use crate::canonical::{BreakpointRule, BreakpointSupport, CachePolicy};
use crate::wire::Api;
use crate::wire::content_last::edited_content_last;
use crate::wire::request::{Body, BodyReader};
use json::Edit;

const MESSAGES: &str = r#"[{"role":"user","content":"one"},{"role":"assistant","content":"{\"a\": [\"}\"]}"},{"role":"user","content":"two"}]"#;

fn read(text: &str, piece: usize) -> Body {
    let mut reader = BodyReader::new(Api::Messages, false);
    for piece in text.as_bytes().chunks(piece) {
        reader.push(Bytes::copy_from_slice(piece)).unwrap();
    }
    reader.finish().unwrap()
}

/// Breakpoints for prompts of any length.
fn rule() -> BreakpointRule {
    CachePolicy::Short.rule(BreakpointSupport::full(1), false).unwrap()
}

/// Edits of a body on its way to Vertex AI: the version in place of the model, no `stream`, and cache marks.
fn edits(body: &Body) -> Vec<Edit> {
    let mut edits: Vec<Edit> =
        body.replace_model("anthropic_version", "vertex-2023-10-16").into_iter().collect();
    edits.extend(body.removals(true, Some("anthropic_version")));
    edits.extend(body.breakpoints(&rule()).edits);
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    edits
}

fn ordered(text: &str, piece: usize, with_edits: bool) -> (String, String) {
    let body = read(text, piece);
    let edits = if with_edits { edits(&body) } else { Vec::new() };
    let content = body.content_range().unwrap();
    let plain = body.text.clone().edited(&edits).into_contiguous();
    let moved = edited_content_last(body.text, &edits, content).into_contiguous();
    (String::from_utf8(plain.to_vec()).unwrap(), String::from_utf8(moved.to_vec()).unwrap())
}

#[test]
fn bug_54_conversation_moves_behind_the_other_members() {
    for (before, after) in [
        (
            r#"{"messages":[1], "model":"m" ,"max_tokens":9}"#,
            r#"{ "model":"m" ,"max_tokens":9,"messages":[1]}"#,
        ),
        (
            "{\n  \"model\": \"m\",\n  \"messages\": [1],\n  \"max_tokens\": 9\n}\n",
            "{\n  \"model\": \"m\",\n  \n  \"max_tokens\": 9\n,\"messages\": [1]}\n",
        ),
        (
            r#"{"model":"m","max_tokens":9,"messages":[1] }"#,
            r#"{"model":"m","max_tokens":9,"messages":[1] }"#,
        ),
    ] {
        for piece in [1, 5, 1_000] {
            assert_eq!(ordered(before, piece, false).1, after);
        }
    }
}

proptest! {
    #[test]
    fn bug_54_reordered_body_is_equal_and_ends_with_the_conversation(
        order in Just(vec![
            r#""model":"m""#.to_owned(),
            r#""max_tokens":64"#.to_owned(),
            r#""stream":true"#.to_owned(),
            r#""anthropic_version":"x""#.to_owned(),
            r#""system":"Be brief, {\"always\"}.""#.to_owned(),
            r#""tools":[{"name":"f","input_schema":{"z":1,"a":2}}]"#.to_owned(),
            r#""temperature":0.50"#.to_owned(),
            format!("\"messages\":{MESSAGES}"),
        ]).prop_shuffle(),
        left_out in 0..8_usize,
        gap in "[ \n]{0,3}",
        piece in 1..200_usize,
        with_edits: bool,
    ) {
        let members: Vec<String> = order.iter().enumerate().filter(|(at, member)| {
            // The members that the API requires stay.
            *at != left_out || ["\"model", "\"max_t", "\"messa"].iter().any(|name| member.starts_with(name))
        }).map(|(_, member)| format!("{gap}{member}{gap}")).collect();
        let (plain, moved) = ordered(&format!("{{{}}}{gap}", members.join(",")), piece, with_edits);
        let before: Value = serde_json::from_str(&plain).unwrap();
        let after: Value = serde_json::from_str(&moved).unwrap();
        prop_assert_eq!(&before, &after, "{}", moved);
        prop_assert_eq!(after.as_object().unwrap().keys().next_back().unwrap(), "messages", "{}", moved);
        prop_assert_eq!(moved.contains("cache_control"), with_edits, "{}", moved);
    }
}
