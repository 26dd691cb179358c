//! Prompt caching of providers: the encoding of a longer conversation begins with the bytes of the shorter one.
//!
//! Every encoder must therefore write everything outside the conversation before it and independent of it, write the
//! turns last and in order, and never let the encoding of a turn depend on a later turn. Cache marks, which clients
//! move with every turn, are removed before the comparison: they are not part of the prompt.

use model_gateway::wire::Format;
use proptest::prelude::*;

use crate::conversation::{Choices, Message, SCHEMA, body, conversation};
use crate::route::{issuer, pairs, request};

const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;
/// The same in the Converse format, where a mark is a block.
const POINT: &str = r#",{"cachePoint":{"type":"default"}}"#;

fn encoded(from: Format, to: Format, messages: &[Message]) -> String {
    let text = body(from, messages, issuer(to), true);
    let outgoing =
        request(from, to, &text).unwrap_or_else(|refused| panic!("{from} to {to}: {refused}: {text}"));
    let text = String::from_utf8(outgoing.text().into()).unwrap();
    let _: serde_json::Value = serde_json::from_str(&text).unwrap();
    text.replace(MARK, "").replace(POINT, "")
}

/// Returns the prefixes of a conversation at which a client sends a request: those that end with the user or with
/// results.
fn sent(messages: &[Message]) -> impl Iterator<Item = &[Message]> {
    (1..=messages.len())
        .map(|count| &messages[..count])
        .filter(|messages| !matches!(messages.last(), Some(Message::Model { .. })))
}

/// Escapes a text as the inside of a JSON string.
fn escaped(text: &str) -> String {
    serde_json::to_string(text).unwrap().trim_matches('"').to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn prompt_of_longer_conversation_begins_with_the_shorter(
        choices in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let messages = conversation(&mut Choices::new(&choices));
        for (from, to) in pairs() {
            let mut before: Option<String> = None;
            for turns in sent(&messages) {
                let now = encoded(from, to, turns);
                prop_assert_eq!(&now, &encoded(from, to, turns), "the same twice");
                if let Some(before) = before {
                    let same = before.bytes().zip(now.bytes()).take_while(|(one, other)| one == other).count();
                    // The rest of the shorter text may only close arrays and objects.
                    let rest = &before[same..];
                    prop_assert!(
                        rest.bytes().all(|byte| matches!(byte, b']' | b'}')),
                        "{} to {}: {}\nbefore {}\nnow    {}", from, to, rest, before, now
                    );
                }
                before = Some(now);
            }
        }
    }

    #[test]
    fn prompt_arguments_and_schemas_keep_member_order_and_numbers(
        choices in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let messages = conversation(&mut Choices::new(&choices));
        let calls = messages.iter().filter_map(|message| match message {
            Message::Model { calls, .. } => Some(calls),
            _ => None,
        });
        let arguments: Vec<&str> = calls.flatten().map(|call| call.arguments).collect();
        for (from, to) in pairs() {
            let text = encoded(from, to, &messages);
            prop_assert!(text.contains(SCHEMA), "{} to {}: {}", from, to, text);
            for arguments in &arguments {
                let written = match to {
                    Format::Chat | Format::Responses => format!("\"{}\"", escaped(arguments)),
                    Format::Messages | Format::Generate | Format::Converse => (*arguments).to_owned(),
                };
                prop_assert!(text.contains(&written), "{} to {}: {} in {}", from, to, written, text);
            }
        }
    }
}
