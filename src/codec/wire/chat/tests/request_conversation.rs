//! Tests of decoded messages, for every role.

use super::*;
use crate::canonical::{Block as Part, CacheBreakpoint, Input, Role, ToolKind};

fn roles(request: &Request<'_>) -> Vec<Role> {
    request.turns.iter().map(|turn| turn.role).collect()
}

fn text(text: &str) -> Part<'_> {
    Part::text(js(text))
}

#[test]
fn map_1_turn_is_decoded_for_every_role() {
    let body = saying(
        r#"{"role":"system","content":"s"},{"role":"developer","content":[{"type":"text","text":"d"}]},
           {"content":"u","role":"user","name":"ann"},{"role":"assistant","content":"a"},
           {"role":"tool","tool_call_id":"c","content":"r","name":"f"}"#,
    );
    let request = request::decode(&body).unwrap();
    use Role::{Assistant, Developer, System, User};
    assert_eq!(roles(&request), [System, Developer, User, Assistant, User]);
    assert_eq!(request.turns[1].blocks, [text("d")]);
    assert_eq!(request.turns[2].name, js("ann"));
    let Part::ToolResult { id, name, content, .. } = &request.turns[4].blocks[0] else {
        panic!("{request:?}")
    };
    assert_eq!((id.escaped(), name.escaped(), &content[..]), ("c", "f", &[text("r")][..]));
}

#[test]
fn map_1_content_empty_or_absent_is_no_block() {
    for content in ["\"\"", "null", "[]", r#"[{"type":"text","text":""}]"#] {
        let body = saying(&format!(
            r#"{{"role":"assistant","content":{content},"tool_calls":[{{"id":"c","type":"function","function":{{"name":"f","arguments":""}}}}]}}"#
        ));
        let request = request::decode(&body).unwrap();
        let [Part::ToolUse { input, .. }] = &request.turns[0].blocks[..] else { panic!("{request:?}") };
        assert_eq!(*input, Input::Text(js("{}")), "arguments are valid JSON");
    }
    // `content` is absent.
    let body = saying(r#"{"role":"assistant","refusal":"no"}"#);
    let request = request::decode(&body).unwrap();
    assert_eq!(request.turns[0].blocks, [Part::Refusal { text: js("no") }]);
}

#[test]
fn map_3_tool_call_arguments_stay_unchanged() {
    let body = saying(
        r#"{"role":"assistant","tool_calls":[
            {"id":"a","type":"function","function":{"name":"f","arguments":"{\"z\":1, \"a\":1.0}"}},
            {"id":"b","function":{"name":"f","arguments":{"z":1}}},
            {"id":"c","type":"function","index":2,"function":{"name":"f","arguments":"not json"}},
            {"id":"d","type":"custom","custom":{"name":"run","input":"ls {"}}]},
           {"role":"tool","tool_call_id":"d","content":"ok"}"#,
    );
    let request = request::decode(&body).unwrap();
    let input = |n: usize| match &request.turns[0].blocks[n] {
        Part::ToolUse { input: Input::Text(text), .. } => text.escaped(),
        Part::ToolUse { input: Input::Object(object), .. } => object.text(),
        other => panic!("{other:?}"),
    };
    assert_eq!(input(0), r#"{\"z\":1, \"a\":1.0}"#, "order and numbers stay");
    assert_eq!(input(1), r#"{"z":1}"#);
    assert_eq!((input(2), input(3)), ("not json", "ls {"));
    let Part::ToolResult { kind, .. } = &request.turns[1].blocks[0] else { panic!("{request:?}") };
    assert_eq!(*kind, ToolKind::Custom, "Codex sends free-form tools");
}

#[test]
fn mapping_3_call_without_arguments_has_an_empty_object() {
    for arguments in [
        "",
        r#","arguments":null"#,
        r#","arguments":"""#,
        r#","arguments":[]"#,
        r#","arguments":"null""#,
        r#","arguments":" [] ""#,
    ] {
        let call = format!(
            r#"{{"role":"assistant","tool_calls":[{{"id":"a","type":"function","function":{{"name":"f"{arguments}}}}}]}}"#
        );
        let body = saying(&call);
        let request = request::decode(&body).unwrap();
        let Part::ToolUse { input: Input::Text(text), .. } = &request.turns[0].blocks[0] else { panic!() };
        assert_eq!(text.escaped(), "{}", "{arguments}");
    }
}

#[test]
fn function_call_of_the_old_form_gets_a_stable_id() {
    let call = |name: &str| {
        format!(
            r#"{{"role":"assistant","content":null,"function_call":{{"name":"{name}","arguments":"{{}}"}}}}"#
        )
    };
    let result = |name: &str| format!(r#"{{"role":"function","name":"{name}","content":"1"}}"#);
    let ids = |messages: &str| {
        let body = saying(messages);
        let request = request::decode(&body).unwrap();
        let id = |block: &Part<'_>| match block {
            Part::ToolUse { id, .. } | Part::ToolResult { id, .. } => id.escaped().to_owned(),
            other => panic!("{other:?}"),
        };
        request.turns.iter().map(|turn| id(&turn.blocks[0])).collect::<Vec<_>>()
    };
    let first = format!("{},{}", call("f"), result("f"));
    let both = format!("{first},{},{}", call("f"), result("f"));
    let found = ids(&both);
    assert_eq!((&found[0], &found[2]), (&found[1], &found[3]));
    assert_ne!(found[0], found[2]);
    assert_eq!(ids(&first), found[..2]);
}

#[test]
fn reasoning_of_earlier_turns_is_decoded_under_all_names() {
    for members in [
        r#""reasoning_content":"hm""#,
        r#""reasoning":"hm""#,
        r#""reasoning_content":"hm","reasoning":"hm""#,
        r#""reasoning_details":[{"type":"reasoning.text","text":"hm"}]"#,
        r#""reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm","index":0}]"#,
        r#""reasoning_details":[{"type":"reasoning.text","text":"h","index":0},{"type":"reasoning.text","text":"m","index":0}]"#,
    ] {
        let body = saying(&format!(r#"{{"role":"assistant","content":"a",{members}}}"#));
        let request = request::decode(&body).unwrap();
        let [Part::Reasoning { text: parts, signature: None, hidden: false }, answer] =
            &request.turns[0].blocks[..]
        else {
            panic!("{request:?}")
        };
        assert_eq!(parts.iter().map(|part| part.escaped()).collect::<String>(), "hm");
        assert_eq!(*answer, text("a"));
    }
    let body = saying(
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"a"}]}"#,
    );
    let request = request::decode(&body).unwrap();
    assert!(matches!(&request.turns[0].blocks[..], [Part::Reasoning { .. }, Part::Text { .. }]));
}

#[test]
fn bug_52_cache_marks_are_decoded_wherever_they_stand() {
    let mark = r#""cache_control":{"type":"ephemeral"}"#;
    let long = r#""cache_control":{"type":"ephemeral","ttl":"1h"}"#;
    let body = saying(&format!(
        r#"{{"role":"system","content":[{{"type":"text","text":"s",{long}}}]}},
           {{"role":"user","content":"u",{mark}}},
           {{"role":"user","content":[{{"type":"text","text":"a","prompt_cache_breakpoint":{{"mode":"explicit"}}}},{{"type":"text","text":"b"}}]}},
           {{"role":"assistant","tool_calls":[{{"id":"c","function":{{"name":"f"}},{mark}}}]}},
           {{"role":"tool","tool_call_id":"c","content":[{{"type":"text","text":"r",{mark}}}]}}"#
    ));
    let request = request::decode(&body).unwrap();
    let marks = |turn: usize| {
        let mark = |block: &Part<'_>| match block {
            Part::Text { cache, .. } | Part::ToolUse { cache, .. } | Part::ToolResult { cache, .. } => *cache,
            other => panic!("{other:?}"),
        };
        request.turns[turn].blocks.iter().map(mark).collect::<Vec<_>>()
    };
    assert_eq!(marks(0), [Some(CacheBreakpoint::Long)]);
    assert_eq!(marks(1), [Some(CacheBreakpoint::Short)]);
    assert_eq!(marks(2), [Some(CacheBreakpoint::Short), None]);
    assert_eq!(marks(3), [Some(CacheBreakpoint::Short)]);
    assert_eq!(marks(4), [Some(CacheBreakpoint::Short)]);
}

#[test]
fn map_1_prefill_turn_is_recognized_by_its_mark() {
    for member in ["prefix", "partial"] {
        let body = saying(&format!(
            r#"{{"role":"user","content":"u"}},{{"role":"assistant","content":"a","{member}":true}}"#
        ));
        let request = request::decode(&body).unwrap();
        assert!(request.turns[1].prefix && !request.turns[0].prefix);
    }
}

#[test]
fn message_malformed_is_refused_with_its_path() {
    let faults = [
        (r#"{"model":"m"}"#.to_owned(), "messages"),
        (r#"{"model":"m","messages":[]}"#.to_owned(), "messages"),
        (r#"{"model":"m","messages":"Hi"}"#.to_owned(), "messages"),
        (saying("1"), "messages[0]"),
        (saying(r#"{"content":"a"}"#), "messages[0].role"),
        (saying(r#"{"role":"user","content":"a"},{"role":"robot","content":"a"}"#), "messages[1].role"),
        (saying(r#"{"role":"user","content":1}"#), "messages[0].content"),
        (saying(r#"{"role":"user","content":[1]}"#), "messages[0].content[0]"),
        (saying(r#"{"role":"user","content":[{"type":"text"}]}"#), "messages[0].content[0].text"),
        (saying(r#"{"role":"user","content":[{"type":"image_url"}]}"#), "messages[0].content[0].image_url"),
        (
            saying(r#"{"role":"user","content":[{"type":"file","file":{}}]}"#),
            "messages[0].content[0].file.file_data",
        ),
        (saying(r#"{"role":"tool","content":"a"}"#), "messages[0].tool_call_id"),
        (
            saying(r#"{"role":"assistant","tool_calls":[{"id":"c","function":{}}]}"#),
            "messages[0].tool_calls[0].function.name",
        ),
        (
            saying(r#"{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}"#),
            "messages[0].tool_calls[0].id",
        ),
    ];
    for (body, path) in faults {
        assert_eq!(fault_in(&body), path, "{body}");
    }
    for body in ["", "[]", "{", "null"] {
        assert_eq!(request::decode(body).unwrap_err().status, 400);
    }
}
