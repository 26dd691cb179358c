//! Tests of automatic cache marks: places, client marks, splits, and prefixes that stay the same from turn to turn.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::canonical::{BreakpointRule, BreakpointSupport, CachePolicy};
use crate::wire::Api;
use crate::wire::breakpoints::BreakpointEdits;
use crate::wire::request::{Body, BodyReader};

const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

fn rule(min_tokens: u32) -> BreakpointRule {
    CachePolicy::Short.rule(BreakpointSupport::full(min_tokens), false).unwrap()
}

fn body(text: &str, piece: usize) -> Body {
    let mut reader = BodyReader::new(Api::Messages, false);
    for piece in text.as_bytes().chunks(piece) {
        reader.push(Bytes::copy_from_slice(piece)).unwrap();
    }
    reader.finish().unwrap()
}

fn applied(body: &Body, edits: &BreakpointEdits) -> String {
    let text = body.text.clone().edited(&edits.edits).into_contiguous();
    String::from_utf8(text.to_vec()).unwrap()
}

fn marked(text: &str) -> String {
    let body = body(text, usize::MAX);
    applied(&body, &body.breakpoints(&rule(0)))
}

/// Request with these members besides the required ones. `@` stands for an expected mark.
fn request(members: &str) -> String {
    format!(r#"{{"model":"m","max_tokens":9,{members}}}"#)
}

#[test]
fn breakpoints_are_behind_tools_system_answered_and_last_user_turn() {
    for members in [
        r#""tools":[{"name":"f"},{"name":"g"@}],"messages":[{"role":"user","content":[{"type":"text","text":"a"@}]}]"#,
        r#""system":[{"type":"text","text":"s"},{"type":"text","text":"t"@}],"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]"#,
        r#""messages":[{"role":"user","content":[{"type":"text","text":"a"@}]},{"role":"assistant","content":"b"},{"content":[{"type":"tool_result","tool_use_id":"t","content":"]}"},{"tool_use_id":"u","type":"tool_result"@}],"role":"user"}],"tools":[{"name":"f"@}]"#,
        // Only the last answered turn, not earlier ones; several user turns in a row.
        r#""messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":"b"},{"role":"user","content":[{"type":"text","text":"c"}]},{"role":"user","content":[{"type":"text","text":"d"@}]},{"role":"assistant","content":"e"},{"role":"user","content":[{"type":"image","source":{}},{"type":"text","text":"f"@}]}]"#,
        // An instruction at the end, and a prefill: the user turn before it is the last one.
        r#""messages":[{"role":"user","content":[{"type":"text","text":"a"@}]},{"role":"assistant","content":"b"},{"role":"user","content":[{"type":"text","text":"c"@}]},{"role":"system","content":"d"},{"role":"assistant","content":"e"}]"#,
        // A tool that is loaded on demand, an empty text, white space, and blocks without marks.
        r#""tools":[{"name":"f","defer_loading":false@},{"name":"g","defer_loading":true}],"system":[{"type":"text","text":"s"@},{"type":"text","text":" \n\t"}],"messages":[{"role":"user","content":[{"type":"document","source":{}@},{"type":"container_upload","file_id":"x"},{"type":"text","text":""}]}]"#,
        // An answer without content, which the provider refuses, is an answer.
        r#""messages":[{"role":"user","content":[{"type":"text","text":"a"@}]},{"role":"assistant"},{"role":"user","content":[{"type":"text","text":"b"@}]}]"#,
        // A tool without members, which the provider refuses, gets no mark: it would not be JSON any more.
        r#""tools":[{"name":"f"@},{}],"messages":[{"role":"user","content":[{"type":"text","text":"b"@}]}]"#,
        // White space between tokens.
        " \"tools\" : [ { \"name\" : \"f\" @} ] , \"messages\" : [ { \"role\" : \"user\" , \"content\" : [ { \"type\" : \"text\" , \"text\" : \"a\" @} ] } ]",
        // Nothing that can have a mark.
        r#""tools":[],"system":[],"messages":[{"role":"user","content":[]},{"role":"assistant","content":"a"},{"role":"user","content":""}]"#,
        r#""tools":[{"name":"f","defer_loading":true}],"system":"","messages":[{"role":"user","content":[{"type":"text","text":" "}]}]"#,
    ] {
        let plain = request(&members.replace('@', ""));
        assert_eq!(marked(&plain), request(&members.replace('@', MARK)), "{members}");
    }
}

#[test]
fn breakpoints_turn_strings_into_text_blocks() {
    let plain = r#""system":"s\"1","messages":[{"role":"user","content":"a\\"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]"#;
    let block = |text: &str| format!(r#"[{{"type":"text","text":{text}{MARK}}}]"#);
    let expected = plain
        .replace(r#""s\"1""#, &block(r#""s\"1""#))
        .replace(r#""a\\""#, &block(r#""a\\""#))
        .replace(r#""c""#, &block(r#""c""#));
    assert_eq!(marked(&request(plain)), request(&expected));
}

#[test]
fn breakpoints_have_the_lifetime_of_the_rule() {
    let text = request(r#""tools":[{"name":"f"}],"system":"s","messages":[{"role":"user","content":"a"}]"#);
    let body = body(&text, usize::MAX);
    for (policy, count) in [(CachePolicy::Short, 0), (CachePolicy::Auto, 2), (CachePolicy::Hour, 3)] {
        let long = body.breakpoints(&policy.rule(BreakpointSupport::full(0), true).unwrap());
        let long_text = applied(&body, &long);
        let (ttl, short) = (r#""ttl":"1h""#, r#"{"type":"ephemeral"}"#);
        assert_eq!((long_text.matches(ttl).count(), long.marks), (count, 3));
        // A long lifetime behind a shorter one would be refused.
        assert!(long_text.rfind(ttl) < long_text.find(short) || count == 3);
        assert_eq!(long_text.replace(r#","ttl":"1h""#, ""), marked(&text));
    }
}

#[test]
fn breakpoints_of_a_single_question_without_tools_are_behind_the_instructions_only() {
    let turn = r#""messages":[{"role":"user","content":"a"}]"#;
    assert_eq!(marked(&request(turn)), request(turn));
    let sent = marked(&request(&format!(r#""system":"s",{turn}"#)));
    assert_eq!(sent.matches("cache_control").count(), 1);
    assert!(sent.contains(turn), "{sent}");
}

#[test]
fn breakpoints_are_not_added_to_the_marks_of_a_client() {
    let mark = r#""cache_control":{"type":"ephemeral"}"#;
    for members in [
        format!(r#"{mark},"messages":[{{"role":"user","content":"a"}}]"#),
        format!(
            r#""tools":[{{{mark},"name":"f"}},{{"name":"g"}}],"messages":[{{"role":"user","content":"a"}}]"#
        ),
        format!(
            r#""system":[{{"type":"text","text":"s",{mark}}}],"messages":[{{"role":"user","content":"a"}}]"#
        ),
        format!(
            r#""system":"s","messages":[{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":[{{"type":"text","text":"x",{mark}}}]}}]}}]"#
        ),
    ] {
        let text = request(&members);
        for piece in 1..text.len() {
            let body = body(&text, piece);
            assert_eq!(body.breakpoints(&rule(0)), BreakpointEdits::default(), "{piece}: {members}");
        }
    }
    // The words in a text are no mark.
    let talk = request(
        r#""system":"\"cache_control\":{} cache_control","messages":[{"role":"user","content":"a"}]"#,
    );
    assert_ne!(marked(&talk), talk);
}

#[test]
fn breakpoints_below_the_minimum_are_omitted() {
    let turn = |length: usize| {
        format!(r#"{{"role":"user","content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(length))
    };
    let text = |system: usize, first: usize| {
        request(&format!(
            r#""system":[{{"type":"text","text":"{}"}}],"messages":[{},{{"role":"assistant","content":"b"}},{}]"#,
            "s".repeat(system),
            turn(first),
            turn(1000)
        ))
    };
    let count = |system, first| body(&text(system, first), usize::MAX).breakpoints(&rule(1000)).marks;
    assert_eq!([count(10, 10), count(10, 1000), count(10, 2000), count(2000, 10)], [0, 1, 2, 3]);
}

#[test]
fn breakpoints_are_the_same_for_every_split() {
    let text = request(
        r#""tools":[{"name":"f","description":"cache_control"}],"system":"s\\\"","messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"\\\\\"x"}]}]"#,
    );
    let expected = marked(&text);
    assert_eq!(expected.matches(MARK).count(), 4);
    for piece in 1..text.len() {
        let body = body(&text, piece);
        assert_eq!(applied(&body, &body.breakpoints(&rule(0))), expected, "{piece}");
    }
}

#[test]
fn breakpoints_of_large_turns_are_found_in_every_window() {
    for length in [100, 8_000, 8_200, 70_000, 1_100_000] {
        let long = "\\\"q".repeat(length / 3);
        let text = request(&format!(
            r#""messages":[{{"role":"user","content":"{long}"}},{{"role":"assistant","content":"{long}"}},{{"role":"user","content":[{{"type":"text","text":"{long}"}}]}}]"#
        ));
        let whole = marked(&text);
        assert_eq!(whole.matches(MARK).count(), 2, "{length}");
        let pieces = body(&text, 5_000);
        assert_eq!(applied(&pieces, &pieces.breakpoints(&rule(0))), whole, "{length}");
    }
}

/// Block of the prompt: its section, its content without mark, and whether it has one.
type PromptBlock = (String, Value, bool);

/// Returns the prompt as the provider caches it: blocks in its order, strings as text blocks.
fn prompt(body: &str) -> Vec<PromptBlock> {
    let body: Value = serde_json::from_str(body).unwrap();
    let mut blocks = Vec::new();
    let mut add = |section: String, content: &Value| {
        let list = match content {
            Value::Array(list) => list.clone(),
            Value::String(text) => vec![json!({"type": "text", "text": text})],
            _ => Vec::new(),
        };
        for mut block in list {
            let mark = block.as_object_mut().and_then(|block| block.remove("cache_control"));
            blocks.push((section.clone(), block, mark.is_some()));
        }
    };
    add("tools".to_owned(), &body["tools"]);
    add("system".to_owned(), &body["system"]);
    for (index, message) in body["messages"].as_array().unwrap().iter().enumerate() {
        add(format!("{index} {}", message["role"]), &message["content"]);
    }
    blocks
}

/// Content of a user turn: a string, or blocks.
fn user() -> impl Strategy<Value = Value> {
    let text = "[a-z \"\\\\\n{}\\[\\]]{0,20}";
    let block = prop_oneof![
        text.prop_map(|text| json!({"type": "text", "text": text})),
        text.prop_map(|text| json!({"type": "tool_result", "tool_use_id": "t", "content": text})),
        Just(json!({"type": "image", "source": {"type": "base64", "data": "AAAA"}})),
        Just(json!({"type": "container_upload", "file_id": "f"})),
    ];
    prop_oneof![text.prop_map(Value::from), vec(block, 0..30).prop_map(Value::from)]
}

/// Content of an assistant turn, with as many parallel calls as a model may make.
fn assistant() -> impl Strategy<Value = Value> {
    let call = "[a-z\"]{0,9}"
        .prop_map(|text| json!({"type": "tool_use", "id": "t", "name": "f", "input": {"x": text}}));
    prop_oneof!["[a-z]{1,9}".prop_map(Value::from), vec(call, 1..30).prop_map(Value::from)]
}

fn write(tools: bool, system: &Value, turns: &[(Value, Value)], last: &Value, pretty: bool) -> String {
    let mut messages = Vec::new();
    for (user, assistant) in turns {
        messages.push(json!({"role": "user", "content": user}));
        messages.push(json!({"role": "assistant", "content": assistant}));
    }
    messages.push(json!({"role": "user", "content": last}));
    let mut body = json!({"model": "m", "max_tokens": 9, "system": system, "messages": messages});
    if tools {
        body["tools"] = json!([{"name": "f", "input_schema": {"type": "object"}}]);
    }
    if pretty { serde_json::to_string_pretty(&body).unwrap() } else { body.to_string() }
}

/// Returns the index of the last block of a user turn that can have a mark.
fn markable(blocks: &[PromptBlock]) -> Option<usize> {
    blocks.iter().rposition(|(section, block, _)| {
        let kind = block["type"].as_str().unwrap_or_default();
        let blank = block["text"].as_str().is_some_and(|text| text.trim().is_empty());
        section.ends_with("\"user\"") && kind != "container_upload" && !(kind == "text" && blank)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn breakpoints_of_a_turn_read_what_the_turn_before_wrote(
        tools in any::<bool>(),
        pretty in any::<bool>(),
        system in prop_oneof![Just(json!("")), Just(json!("be brief")), Just(json!([{"type": "text", "text": "a"}]))],
        turns in vec((user(), assistant()), 1..8),
        last in user(),
        piece in 1..400_usize,
    ) {
        let mut before: Option<Vec<PromptBlock>> = None;
        for count in 0..=turns.len() {
            let next = turns.get(count).map_or(&last, |(user, _)| user);
            let plain = write(tools, &system, &turns[..count], next, pretty);
            let body = body(&plain, piece);
            let edits = body.breakpoints(&rule(0));
            let sent = applied(&body, &edits);
            let (now, untouched) = (prompt(&sent), prompt(&plain));
            let marks: Vec<usize> = (0..now.len()).filter(|at| now[*at].2).collect();
            // Marks are the only difference.
            prop_assert!(now.iter().zip(&untouched).all(|(a, b)| (&a.0, &a.1) == (&b.0, &b.1)));
            prop_assert_eq!(now.len(), untouched.len());
            prop_assert!(marks.len() <= 4);
            prop_assert_eq!(marks.len(), usize::from(edits.marks));
            if tools || count > 0 {
                // The last block of the user that can have a mark has one.
                prop_assert_eq!(marks.iter().copied().filter(|at| now[*at].0.ends_with("\"user\"")).max(), markable(&now));
            }
            if let Some(before) = before.filter(|_| tools || count > 1) {
                // The blocks up to the last mark of the turn before are the same, and a mark stands there again.
                if let Some(end) = before.iter().rposition(|block| block.2) {
                    let same = |at: usize| (&before[at].0, &before[at].1) == (&now[at].0, &now[at].1);
                    prop_assert!((0..=end).all(same));
                    // Turns without a block for a mark move neither mark.
                    prop_assert!(marks.contains(&end), "{end} in {marks:?}");
                }
            }
            before = Some(now);
        }
    }
}
