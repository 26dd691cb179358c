//! Tests of the repair of invalid tool call arguments.

use serde_json::{Value, json};

use super::super::arguments::{ArgumentsRepair, object_of};
use super::stream_write::{arguments, call, hear, start, stop};
use crate::canonical::{BlockKind, Delta, Event, Finish, ToolKind};
use json::{EscapedString, JsonStr, RawJson};

/// Returns the object for a text that arrives in fragments of this many characters.
fn object(text: &str, fragment: usize) -> Value {
    let mut passed = Vec::new();
    let mut arguments = ArgumentsRepair::new();
    let characters: Vec<char> = text.chars().collect();
    for part in characters.chunks(fragment.max(1)) {
        let part = EscapedString::from(part.iter().collect::<String>().as_str());
        arguments.push(part.as_json_str().escaped(), &mut passed);
        let so_far = String::from_utf8(passed.clone()).unwrap();
        let so_far = JsonStr::from_escaped(&so_far).decode();
        // The SDKs parse after every fragment.
        if let Err(error) = serde_json::from_str::<Value>(&so_far) {
            assert!(error.is_eof(), "{error}: {so_far}");
        }
    }
    arguments.close(false, &mut passed);
    let passed = String::from_utf8(passed).unwrap();
    let whole = JsonStr::from_escaped(&passed).decode();
    if whole.is_empty() { json!({}) } else { serde_json::from_str(&whole).expect(&whole) }
}

/// Returns the object for a text, which must not depend on the fragments.
fn mended(text: &str) -> Value {
    let whole = object(text, usize::MAX);
    for fragment in 1..8 {
        assert_eq!(object(text, fragment), whole, "{fragment}: {text}");
    }
    whole
}

#[test]
fn arguments_that_are_valid_pass_unchanged() {
    for text in [
        "{}",
        r#"{"a":1}"#,
        r#"{ "a" : [ ] , "b" : [ 1 , -0.5e+10 , "x" , null , true , false , { } ] }"#,
        r#"{"s":"\"\\\/\b\f\n\r\té ü 😀"}"#,
        r#"{"nested":{"deep":[[[{"x":[0]}]]]}}"#,
    ] {
        let escaped = EscapedString::from(text);
        let mut passed = Vec::new();
        let mut arguments = ArgumentsRepair::new();
        arguments.push(escaped.as_json_str().escaped(), &mut passed);
        assert!(arguments.is_complete(), "{text}");
        arguments.close(false, &mut passed);
        assert_eq!(String::from_utf8(passed).unwrap(), escaped.as_json_str().escaped());
        assert_eq!(object_of(escaped.as_json_str()).as_deref(), Some(text));
        assert_eq!(mended(text), serde_json::from_str::<Value>(text).unwrap());
    }
}

#[test]
fn bug_7_arguments_empty_or_null_are_an_empty_object() {
    for text in ["", " ", "\n", "null", " null "] {
        assert_eq!(mended(text), json!({}), "{text:?}");
    }
}

#[test]
fn arguments_with_small_faults_are_repaired() {
    for (text, meant) in [
        ("{\"code\":\"a\nb\tc\"}", json!({"code": "a\nb\tc"})),
        ("{\"code\":\"a\u{1}b\"}", json!({"code": "a\u{1}b"})),
        (r#"{"re":"\d+\'x\'"}"#, json!({"re": "\\d+\\'x\\'"})),
        ("{\"path\":\"C:\\\nx\"}", json!({"path": "C:\\\nx"})),
        (r#"{"a":1,}"#, json!({"a": 1})),
        (r#"{"a":[1,2,],"b":{"c":1 , } , }"#, json!({"a": [1, 2], "b": {"c": 1}})),
        (r#"{"a":1}}"#, json!({"a": 1})),
        (r#"{"a":1}{"a":2}"#, json!({"a": 1})),
        (r#"{"a":1} and so on"#, json!({"a": 1})),
        (r#"{"a":"\u12"}"#, json!({"a": "\u{1200}"})),
        ("  {\"a\":1}\n", json!({"a": 1})),
    ] {
        assert_eq!(mended(text), meant, "{text}");
    }
}

#[test]
fn bug_11_arguments_encoded_twice_are_decoded() {
    let twice = serde_json::to_string(r#"{"a":"\"x\"\n","b":[1]}"#).unwrap();
    assert_eq!(mended(&twice), json!({"a": "\"x\"\n", "b": [1]}));
}

#[test]
fn arguments_that_are_not_an_object_go_to_raw() {
    for text in ["ls -la", "[1,2]", "7", "\"text\"", "```json\n{}\n```", "nullable", "(\"a\"\\n\n)", "ü"] {
        assert_eq!(mended(text), json!({"_raw": text}), "{text}");
    }
}

#[test]
fn arguments_after_a_syntax_error_go_to_raw() {
    for (text, told) in [
        (r#"{'a':1}"#, json!({"_raw": "'a':1}"})),
        (r#"{"a":True,"b":"x"}"#, json!({"a": null, "_raw": "True,\"b\":\"x\"}"})),
        (r#"{"a":[1,{"b":tru}]}"#, json!({"a": [1, {"b": true}], "_raw": "}]}"})),
        (r#"{"a":1 "b":2}"#, json!({"a": 1, "_raw": "\"b\":2}"})),
        (r#"{"a":1,b:2}"#, json!({"a": 1, "_raw": "b:2}"})),
        (r#"{"a":01}"#, json!({"a": 0, "_raw": "1}"})),
        (r#"{"a":[1}]"#, json!({"a": [1], "_raw": "}]"})),
        (r#"{"a":-}"#, json!({"a": -0.0, "_raw": "}"})),
        (r#"{"a" 1}"#, json!({"a": null, "_raw": "1}"})),
    ] {
        assert_eq!(mended(text), told, "{text}");
    }
}

#[test]
fn arguments_that_are_truncated_are_closed_and_marked() {
    for (text, told) in [
        ("{", json!({"_raw": ""})),
        (r#"{"a"#, json!({"a": null, "_raw": ""})),
        (r#"{"a":"#, json!({"a": null, "_raw": ""})),
        (r#"{"a":"x"#, json!({"a": "x", "_raw": ""})),
        (r#"{"a":"x\"#, json!({"a": "x\\", "_raw": ""})),
        (r#"{"a":1.5,"#, json!({"a": 1.5, "_raw": ""})),
        (r#"{"a":[1,{"b":f"#, json!({"a": [1, {"b": false}], "_raw": ""})),
        (r#"{"a":1e"#, json!({"a": 1.0, "_raw": ""})),
    ] {
        assert_eq!(mended(text), told, "{text}");
    }
}

#[test]
fn arguments_cut_by_the_limit_stay_cut_in_the_stream() {
    let heard = hear(&[start(0, call("c", "f")), arguments(0, r#"{\"a\":\"x"#), stop(0)], Finish::Length);
    assert_eq!(heard.events[heard.events.len() - 4].1["delta"]["partial_json"], r#"{"a":"x"#);
    // If the provider reports a complete call, the client cannot know that it was cut, so the object is completed.
    let heard = hear(&[start(0, call("c", "f")), arguments(0, r#"{\"a\":\"x"#), stop(0)], Finish::ToolUse);
    assert_eq!(heard.content()[0]["input"], json!({"a": "x", "_raw": ""}));
}

#[test]
fn arguments_malformed_never_break_the_stream() {
    for fragments in [
        &["ls ", "-la"][..],
        &["{\\\"a\\\":", "\\\"x\\n", "y\\\"}"],
        &["{\\\"a\\\"", ":Tr", "ue}"],
        &["{}", "{}"],
        &["\\u007b", "\\u0022a\\u0022:1", "\\u007D"],
    ] {
        let mut events = vec![start(0, call("c", "f"))];
        events.extend(fragments.iter().map(|fragment| arguments(0, fragment)));
        events.push(stop(0));
        assert!(hear(&events, Finish::ToolUse).content()[0]["input"].is_object(), "{fragments:?}");
    }
}

#[test]
fn arguments_of_a_custom_tool_become_one_member() {
    let kind = BlockKind::ToolUse {
        id: JsonStr::from_escaped("c"),
        name: JsonStr::from_escaped("patch"),
        kind: ToolKind::Custom,
        namespace: JsonStr::default(),
    };
    let events = [start(0, kind), arguments(0, "*** Begin\\n"), arguments(0, "{\\\"x\\\""), stop(0)];
    let heard = hear(&events, Finish::ToolUse);
    assert_eq!(heard.content()[0]["input"], json!({"input": "*** Begin\n{\"x\""}));
    let empty = hear(&[start(0, kind), stop(0)], Finish::ToolUse);
    assert_eq!(empty.content()[0]["input"], json!({"input": ""}));
}

#[test]
fn arguments_sent_whole_that_are_not_an_object_go_to_raw() {
    let whole = |text| Event::Delta { index: 0, delta: Delta::Object(RawJson::from_text(text)) };
    for (text, input) in
        [(r#"{"a":"ü\n"}"#, json!({"a": "ü\n"})), ("[1]", json!({"_raw": "[1]"})), ("null", json!({}))]
    {
        let heard = hear(&[start(0, call("c", "f")), whole(text), stop(0)], Finish::ToolUse);
        assert_eq!(heard.content()[0]["input"], input);
    }
}

#[test]
fn arguments_nested_too_deeply_go_to_raw() {
    let text = format!("{{\"a\":{}", "[".repeat(400));
    assert_eq!(object(&text, 50)["_raw"], "[".repeat(400 - 119));
}
