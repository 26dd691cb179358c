//! Property tests with random overlap of blocks and random cuts of arguments: the client always receives a valid
//! message.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::arguments::ArgumentsRepair;
use super::stream_write::{arguments, call, hear, start, stop, text};
use crate::canonical::{BlockKind, Event, Finish};
use json::{EscapedString, JsonStr};

/// Fragments of valid and invalid JSON.
const PIECES: [&str; 16] = [
    "{", "}", "[", "]", "\"a\":", "\"b\\n\"", "1.5", "-", "true", "nul", ",", " ", "\\", "\n", "ü\"",
    "\\u00e9",
];

fn pieces() -> impl Strategy<Value = Vec<&'static str>> {
    vec(prop::sample::select(&PIECES[..]), 0..24)
}

fn json_object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[ -~ü\n\"\\\\]{0,12}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec(("[a-z\"]{1,3}", inner), 0..4).prop_map(|list| Value::Object(list.into_iter().collect())),
        ]
    });
    vec(("[a-z]{1,3}", value), 0..4).prop_map(|list| Value::Object(list.into_iter().collect()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arguments_that_are_valid_pass_unchanged_at_every_split(
        object in json_object(),
        pretty in any::<bool>(),
        cuts in vec(1..9_usize, 1..40),
    ) {
        let whole = if pretty { serde_json::to_string_pretty(&object).unwrap() } else { object.to_string() };
        let characters: Vec<char> = whole.chars().collect();
        let (mut follower, mut passed, mut rest) = (ArgumentsRepair::new(), Vec::new(), &characters[..]);
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (part, more) = rest.split_at((*cut).min(rest.len()));
            rest = more;
            let part = EscapedString::from(part.iter().collect::<String>().as_str());
            follower.push(part.as_json_str().escaped(), &mut passed);
        }
        prop_assert!(follower.is_complete());
        let passed = String::from_utf8(passed).unwrap();
        prop_assert_eq!(JsonStr::from_escaped(&passed).decode(), whole);
    }

    #[test]
    fn arguments_of_any_text_become_an_object(pieces in pieces()) {
        let escaped: Vec<EscapedString> = pieces.iter().map(|piece| EscapedString::from(*piece)).collect();
        let mut events = vec![start(0, call("c", "f"))];
        events.extend(escaped.iter().map(|piece| arguments(0, piece.as_json_str().escaped())));
        events.push(stop(0));
        let streamed = hear(&events, Finish::ToolUse);
        prop_assert!(streamed.content()[0]["input"].is_object());
        // A valid object is not changed.
        let whole = pieces.concat();
        if let Ok(Value::Object(object)) = serde_json::from_str(&whole) {
            prop_assert_eq!(&streamed.content()[0]["input"], &Value::Object(object));
        }
    }

    #[test]
    fn blocks_that_overlap_are_written_one_after_the_other(
        kinds in vec(0..3_u8, 1..6),
        order in vec((0..6_usize, any::<bool>()), 0..60),
    ) {
        // Blocks begin in order; their fragments and ends come in any order.
        let names: Vec<String> = (0..kinds.len()).map(|index| format!("c{index}")).collect();
        let mut events = Vec::new();
        for (index, kind) in kinds.iter().enumerate() {
            let kind = match kind {
                0 => BlockKind::Text,
                1 => BlockKind::Reasoning,
                _ => call(&names[index], "f"),
            };
            events.push(start(index as u32, kind));
        }
        let mut counts = vec![0_usize; kinds.len()];
        let mut open = vec![true; kinds.len()];
        let add = |events: &mut Vec<Event<'_>>, index: usize, counts: &mut Vec<usize>| {
            counts[index] += 1;
            let first = counts[index] == 1;
            events.push(match kinds[index] {
                0 | 1 => text(index as u32, "x"),
                _ if first => arguments(index as u32, r#"{\"n\":1"#),
                _ => arguments(index as u32, "0"),
            });
        };
        let end = |events: &mut Vec<Event<'_>>, index: usize, counts: &[usize]| {
            if kinds[index] > 1 && counts[index] > 0 {
                events.push(arguments(index as u32, "}"));
            }
            events.push(stop(index as u32));
        };
        for (index, ends) in order {
            let index = index % kinds.len();
            if !open[index] {
                continue;
            }
            if ends {
                open[index] = false;
                end(&mut events, index, &counts);
            } else {
                add(&mut events, index, &mut counts);
            }
        }
        for (index, _) in open.iter().enumerate().filter(|(_, open)| **open) {
            end(&mut events, index, &counts);
        }
        let heard = hear(&events, Finish::Stop);
        let of = |kind: &str, member: &str| -> String {
            let blocks = heard.content().as_array().unwrap().iter().filter(|block| block["type"] == kind);
            blocks.map(|block| block[member].as_str().unwrap().to_owned()).collect()
        };
        let sum = |wanted: u8| -> usize {
            kinds.iter().zip(&counts).filter(|(kind, _)| **kind == wanted).map(|(_, count)| *count).sum()
        };
        prop_assert_eq!(of("text", "text"), "x".repeat(sum(0)));
        prop_assert_eq!(of("thinking", "thinking"), "x".repeat(sum(1)));
        let mut calls: Vec<(String, Value)> = Vec::new();
        for block in heard.content().as_array().unwrap().iter().filter(|block| block["type"] == "tool_use") {
            calls.push((block["id"].as_str().unwrap().to_owned(), block["input"].clone()));
        }
        let expected: Vec<(String, Value)> = (0..kinds.len())
            .filter(|index| kinds[*index] > 1)
            .map(|index| {
                let digits = "0".repeat(counts[index].saturating_sub(1));
                let input = match counts[index] {
                    0 => json!({}),
                    _ => serde_json::from_str(&format!("{{\"n\":1{digits}}}")).unwrap(),
                };
                (names[index].clone(), input)
            })
            .collect();
        prop_assert_eq!(calls, expected);
    }
}
