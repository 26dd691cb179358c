//! The same conversation has the same key in every turn, however long it is and in whichever pieces it comes.

use bytes::Bytes;

use crate::route::affinity::conversation;
use crate::wire::Api;
use crate::wire::request::BodyReader;

fn key(messages: &str, piece: usize) -> u64 {
    let body = format!("{{\"model\":\"m\",\"messages\":[{messages}]}}");
    let mut reader = BodyReader::new(Api::Chat, false);
    for piece in body.as_bytes().chunks(piece) {
        reader.push(Bytes::copy_from_slice(piece)).unwrap();
    }
    conversation(&mut reader.finish().unwrap()).unwrap()
}

fn begun(system: &str, user: &str, mark: &str) -> String {
    format!(
        "{{\"role\":\"system\",\"content\":[{{\"type\":\"text\",\"text\":\"{system}\"{mark}}}]}},\
         {{\"role\":\"user\",\"content\":\"{user}\"}}"
    )
}

#[test]
fn a_conversation_has_one_key_whatever_its_length() {
    let mark = ",\"cache_control\":{\"type\":\"ephemeral\"}";
    // Around the sizes in which a prompt is read, and where letters are cut through.
    for length in (0..40).chain(3_900..4_100).step_by(7).chain([16_000, 16_300, 16_384, 40_000, 65_000]) {
        let system = "\u{fc}".repeat(length / 2);
        let first = begun(&system, "hello", "");
        let expected = key(&first, 1 << 20);
        let mut later = begun(&system, "hello", mark);
        for turn in 0..3 {
            later += ",{\"role\":\"assistant\",\"content\":\"yes\"},{\"role\":\"user\",\"content\":\"";
            later += &format!("{turn}{}\"}}", "more ".repeat(2_000));
            assert_eq!(key(&later, 1 << 20), expected, "{length}, turn {turn}");
            assert_eq!(key(&later, 1_000), expected, "{length}, turn {turn}, in pieces");
        }
        assert_ne!(key(&begun(&system, "hullo", ""), 1 << 20), expected, "{length}: another user");
        assert_ne!(
            key(&begun(&format!("{system}!"), "hello", ""), 1 << 20),
            expected,
            "{length}: another system"
        );
    }
}

#[test]
fn a_beginning_that_is_longer_than_what_is_read_is_known_by_what_is_read() {
    let long = "a".repeat(200_000);
    let first = format!("{{\"role\":\"user\",\"content\":\"{long}\"}}");
    let later = format!("{first},{{\"role\":\"assistant\",\"content\":\"yes\"}}");
    assert_eq!(key(&first, 1 << 20), key(&later, 1 << 20));
    let other = first.replacen('a', "b", 1);
    assert_ne!(key(&first, 1 << 20), key(&other, 1 << 20));
}
