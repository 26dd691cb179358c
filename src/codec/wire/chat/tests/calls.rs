//! Tests of stream fragments of calls, whose numbers and ids differ between providers.

use super::*;
use crate::canonical::ToolKind;

/// Returns a delta with these fragments.
fn fragments(list: &str) -> String {
    delta(&format!(r#""tool_calls":[{list}]"#))
}

fn calls(deltas: &[&str]) -> Vec<(String, String, String)> {
    let mut frames: Vec<String> = deltas.iter().map(|list| fragments(list)).collect();
    frames.push(end("tool_calls"));
    frames.push(DONE.to_owned());
    calls_of(&read(&frames))
}

fn call(id: &str, name: &str, input: &str) -> (String, String, String) {
    (id.to_owned(), name.to_owned(), input.to_owned())
}

#[test]
fn fact_7_tool_call_fragments_are_joined_in_every_dialect() {
    let expected = [call("call_1", "f", r#"{"a":1}"#)];
    let first = r#"{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}"#;
    let rest = [r#"{\"a\""#, ":1}"];
    let dialects: [[String; 2]; 5] = [
        // Only the number.
        rest.map(|text| format!(r#"{{"index":0,"function":{{"arguments":"{text}"}}}}"#)),
        // The type repeated, an empty id, an empty name.
        rest.map(|text| {
            format!(r#"{{"index":0,"id":"","type":"function","function":{{"name":"","arguments":"{text}"}}}}"#)
        }),
        // Nulls.
        rest.map(|text| {
            format!(r#"{{"index":0,"id":null,"type":"function","function":{{"name":null,"arguments":"{text}"}}}}"#)
        }),
        // All members repeated.
        rest.map(|text| {
            format!(
                r#"{{"index":0,"id":"call_1","type":"function","function":{{"name":"f","arguments":"{text}"}}}}"#
            )
        }),
        // Another id in each fragment, and no number.
        rest.map(|text| format!(r#"{{"id":"other","function":{{"arguments":"{text}"}}}}"#)),
    ];
    for dialect in dialects {
        assert_eq!(calls(&[first, &dialect[0], &dialect[1]]), expected, "{dialect:?}");
    }
    // The whole call in one chunk; without a number, without a type.
    assert_eq!(
        calls(&[r#"{"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}}"#]),
        [call("call_1", "f", r#"{"a":1}"#)]
    );
}

#[test]
fn tool_calls_in_parallel_stay_separate_in_every_dialect() {
    let expected = [call("c1", "f", r#"{"a":1}"#), call("c2", "f", r#"{"a":2}"#)];
    let whole = |number: &str, id: &str, n: u32| {
        format!(
            r#"{{{number}"id":"{id}","type":"function","function":{{"name":"f","arguments":"{{\"a\":{n}}}"}}}}"#
        )
    };
    for (first, second) in [("\"index\":0,", "\"index\":1,"), ("", ""), ("\"index\":0,", "\"index\":0,")] {
        let (first, second) = (whole(first, "c1", 1), whole(second, "c2", 2));
        // In one chunk, and in two.
        assert_eq!(calls(&[&format!("{first},{second}")]), expected);
        assert_eq!(calls(&[&first, &second]), expected);
    }
}

#[test]
fn bug_9_tool_call_without_an_id_gets_a_stable_id() {
    let whole = r#"{"index":0,"id":"","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}"#;
    let other = r#"{"index":0,"id":"","type":"function","function":{"name":"g","arguments":"{}"}}"#;
    let found = calls(&[whole, whole, other]);
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|call| call.0.starts_with("call_")), "{found:?}");
    assert!(found[0].0 != found[1].0 && found[1].0 != found[2].0);
    assert_eq!(found[1].2, r#"{"a":1}"#);
    // Made ids are stable: the same response has the same ids in each decoding.
    assert_eq!(calls(&[whole, whole, other]), found);
}

#[test]
fn tool_call_with_a_repeated_id_gets_a_new_id() {
    let fragment =
        |n: u32| format!(r#"{{"index":{n},"id":"0","function":{{"name":"f","arguments":"{{\"a\":{n}}}"}}}}"#);
    let found = calls(&[&fragment(0), &fragment(1)]);
    assert_eq!((&*found[0].0, &*found[0].2, &*found[1].2), ("0", r#"{"a":0}"#, r#"{"a":1}"#));
    assert_ne!(found[1].0, "0");
}

#[test]
fn fact_8_tool_call_id_may_have_any_form() {
    for id in ["call_00_x", "toolu_bdrk_01", "VzeppoSaq", "functions.name:0", "0", "fc_1-2"] {
        let fragment = format!(r#"{{"index":0,"id":"{id}","function":{{"name":"f","arguments":"{{}}"}}}}"#);
        assert_eq!(calls(&[&fragment])[0].0, id);
    }
    // A number is accepted as an id.
    assert_eq!(calls(&[r#"{"id":7,"function":{"name":"f","arguments":"{}"}}"#])[0].0, "7");
}

#[test]
fn bug_3_and_4_tool_call_ends_when_the_next_begins() {
    let first = r#"{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"s\":\"}\\\"{\"}"}}"#;
    let second = r#"{"index":1,"id":"c2","function":{"name":"g","arguments":"{}"}}"#;
    let frames = [fragments(first), fragments(second), end("tool_calls"), DONE.to_owned()];
    let events = events(&frames);
    let at = |wanted: &str| events.iter().position(|event| event.starts_with(wanted)).unwrap();
    assert!(at("0 stop") < at("1 ToolUse"), "{events:?}");
}

#[test]
fn bug_5_tool_call_fragments_that_interleave_stay_separate() {
    let start = |n: u32| {
        format!(
            r#"{{"index":{n},"id":"c{n}","type":"function","function":{{"name":"f{n}","arguments":""}}}}"#
        )
    };
    let more = |n: u32, text: &str| format!(r#"{{"index":{n},"function":{{"arguments":"{text}"}}}}"#);
    let found = calls(&[
        &start(0),
        &start(1),
        &more(0, r#"{\"a\":"#),
        &more(1, r#"{\"b\":"#),
        &more(0, "1}"),
        &more(1, "2}"),
    ]);
    assert_eq!(found, [call("c0", "f0", r#"{"a":1}"#), call("c1", "f1", r#"{"b":2}"#)]);
    // In one chunk.
    let both = format!("{},{}", more(0, "{}"), more(1, "{}"));
    assert_eq!(calls(&[&start(0), &start(1), &both]), [call("c0", "f0", "{}"), call("c1", "f1", "{}")]);
}

#[test]
fn bug_7_tool_call_arguments_empty_null_or_absent_are_empty() {
    for arguments in [r#","arguments":"""#, r#","arguments":null"#, ""] {
        let fragment = format!(r#"{{"index":0,"id":"c","function":{{"name":"f"{arguments}}}}}"#);
        assert_eq!(calls(&[&fragment]), [call("c", "f", "")]);
    }
}

#[test]
fn bug_12_tool_calls_empty_list_is_not_an_event() {
    let frames = [
        delta(r#""content":"a","tool_calls":[]"#),
        delta(r#""content":"b","tool_calls":null"#),
        delta(r#""content":"c""#),
        end("stop"),
        DONE.to_owned(),
    ];
    let answer = read(&frames);
    assert_eq!((answer.blocks.len(), finish_of(&answer)), (1, FinishOwned::Stop));
}

#[test]
fn bug_11_tool_call_arguments_may_be_an_object() {
    let found = calls(&[r#"{"index":0,"id":"c","function":{"name":"f","arguments":{"a": "\"x\""}}}"#]);
    assert_eq!(found, [call("c", "f", r#"{"a": "\"x\""}"#)]);
}

#[test]
fn tool_call_name_may_arrive_late() {
    let found = calls(&[
        r#"{"index":0,"id":"c","type":"function"}"#,
        r#"{"index":0,"function":{"arguments":"{"}}"#,
        r#"{"index":0,"function":{"name":"f","arguments":"\"a\":1"}}"#,
        r#"{"index":0,"function":{"arguments":"}"}}"#,
    ]);
    assert_eq!(found, [call("c", "f", r#"{"a":1}"#)]);
}

#[test]
fn tool_call_without_a_name_is_ignored() {
    let shell = r#"{"index":0,"id":"","function":{"name":"","arguments":""}}"#;
    let answer = read(&[&fragments(shell), &end("stop"), DONE]);
    assert_eq!((answer.blocks.len(), finish_of(&answer)), (0, FinishOwned::Stop));
    let nameless = r#"{"index":0,"id":"c","function":{"arguments":"{}"}}"#;
    assert_eq!(read(&[&fragments(nameless), &end("stop"), DONE]).blocks.len(), 0);
}

#[test]
fn map_12_custom_tool_call_has_text_input() {
    let frames = [
        fragments(r#"{"index":0,"id":"c","type":"custom","custom":{"name":"run","input":"a "}}"#),
        fragments(r#"{"index":0,"custom":{"input":"{"}}"#),
        end("tool_calls"),
        DONE.to_owned(),
    ];
    let answer = read(&frames);
    let AnswerBlockKind::ToolUse { kind, name, .. } = &answer.blocks[0].kind else { panic!("{answer:?}") };
    assert_eq!((*kind, name.as_str(), answer.blocks[0].text.as_str()), (ToolKind::Custom, "run", "a {"));
    // One provider sends both members, one of them empty.
    let both = r#"{"content":"","tool_calls":[{"custom":{"input":"","name":""},"function":{"arguments":"{}","name":"f"},"id":"c","type":"function"}]}"#;
    assert_eq!(calls_of(&read_whole(&completion(both, "\"tool_calls\""))), [call("c", "f", "{}")]);
}

#[test]
fn function_call_of_the_old_form_is_a_tool_call() {
    let frames = [
        delta(r#""role":"assistant","content":null,"function_call":{"name":"f","arguments":""}"#),
        delta(r#""function_call":{"arguments":"{\"a\""}"#),
        delta(r#""function_call":{"arguments":":1}"}"#),
        end("function_call"),
        DONE.to_owned(),
    ];
    let answer = read(&frames);
    let found = calls_of(&answer);
    assert_eq!((found.len(), &*found[0].1, &*found[0].2), (1, "f", r#"{"a":1}"#));
    assert!(!found[0].0.is_empty());
    assert_eq!(finish_of(&answer), FinishOwned::ToolUse);
    // An empty fragment beside real calls.
    let shell = r#"{"content":"a","function_call":{"name":"","arguments":""},"tool_calls":null}"#;
    assert_eq!(calls_of(&read_whole(&completion(shell, "\"stop\""))), []);
}

#[test]
fn tool_calls_and_text_may_alternate() {
    let call = r#"{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}"#;
    let frames = [
        delta(r#""reasoning_content":"hm""#),
        delta(r#""content":"a""#),
        fragments(call),
        delta(r#""content":"b""#),
        end("tool_calls"),
        DONE.to_owned(),
    ];
    let answer = read(&frames);
    assert_eq!(answer.blocks.len(), 4);
    assert_eq!(text_of(&answer, &AnswerBlockKind::Text), "ab");
}

#[test]
fn chunk_similar_to_the_last_one_is_decoded() {
    let padded = |members: &str| delta(members).replace("}]}", r#"}],"obfuscation":"xyz"}"#);
    let fragment = |place: u64, text: &str| {
        delta(&format!(r#""tool_calls":[{{"index":{place},"function":{{"arguments":"{text}"}}}}]"#))
    };
    let begin = |place: u64| {
        delta(&format!(
            r#""tool_calls":[{{"index":{place},"id":"call_{place}","type":"function","function":{{"name":"f","arguments":""}}}}]"#
        ))
    };
    let other = delta(r#""content":"z""#).replace(r#""index":0"#, r#""index":1"#);
    let answer = read(&[
        padded(r#""reasoning_content":"a""#),
        padded(r#""reasoning_content":"b""#),
        padded(r#""reasoning_content":"""#),
        padded(r#""content":"c""#),
        padded(r#""content":"d\"""#),
        padded(r#""content":null,"refusal":null"#),
        other.clone(),
        other,
        begin(0),
        fragment(0, "{\\\"a\\\""),
        fragment(0, ":1"),
        begin(1),
        fragment(1, "{"),
        fragment(0, "}"),
        fragment(1, "}"),
        end("tool_calls"),
        end("stop").replace(r#""index":0"#, r#""index":1"#),
        DONE.to_owned(),
    ]);
    let blocks: Vec<_> = answer.blocks.iter().map(|block| (block.choice, &*block.text)).collect();
    assert_eq!(blocks, [(0, "ab"), (0, "cd\\\""), (1, "zz"), (0, "{\\\"a\\\":1}"), (0, "{}")]);
}
