//! Splits and spellings of a stream: the client's bytes do not depend on how the provider's stream is cut into reads,
//! or on its line endings.

use std::path::Path;

use model_gateway::wire::Format;
use proptest::prelude::*;

use crate::route::{Way, translated_pairs};

/// Returns the streams of the golden files, with the provider's format.
fn streams() -> Vec<(Format, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut streams = Vec::new();
    let mut cases: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    for case in cases {
        for format in Format::ALL {
            let text = std::fs::read_to_string(case.join(format!("answer.{format}.sse")));
            streams.extend(text.ok().map(|text| (format, text)));
        }
    }
    assert!(streams.len() >= 20, "only {} streams", streams.len());
    streams
}

fn pieces<'t>(text: &'t [u8], sizes: &[usize]) -> Vec<&'t [u8]> {
    let mut rest = text;
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*size).clamp(1, rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// Returns the same stream in other spellings of the SSE framing.
fn spellings(stream: &str) -> [String; 5] {
    let without_events: String =
        stream.lines().filter(|line| !line.starts_with("event:")).map(|line| format!("{line}\n")).collect();
    [
        stream.replace('\n', "\r\n"),
        stream.replace('\n', "\r"),
        without_events,
        stream.replace("data: ", "data:"),
        stream.replace("\n\n", "\n\n: a comment\n\n"),
    ]
}

#[test]
fn split_bytewise_and_other_spellings_give_the_same_output() {
    for (provider, stream) in streams() {
        for (_, client) in translated_pairs().filter(|pair| pair.0 == provider) {
            let way = Way::streamed(provider, client);
            let expected = way.pass(&[stream.as_bytes()]);
            let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
            assert_eq!(way.pass(&bytes), expected, "{provider} to {client}, byte by byte");
            for spelled in spellings(&stream) {
                assert_eq!(way.pass(&[spelled.as_bytes()]), expected, "{provider} to {client}: {spelled}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn split_at_any_sizes_gives_the_same_output(sizes in proptest::collection::vec(1usize..200, 1..12)) {
        for (provider, stream) in streams() {
            for (_, client) in translated_pairs().filter(|pair| pair.0 == provider) {
                let way = Way::streamed(provider, client);
                let expected = way.pass(&[stream.as_bytes()]);
                prop_assert_eq!(way.pass(&pieces(stream.as_bytes(), &sizes)), expected, "{} to {}", provider, client);
            }
        }
    }

    /// A truncated stream must end with an error.
    #[test]
    fn truncated_stream_ends_with_an_error(share in 0.0f64..1.0) {
        for (provider, stream) in streams() {
            // Cut before the last frame that carries more than the end of the stream.
            let end = stream.trim_end().trim_end_matches("data: [DONE]").trim_end().rfind("\n\n").unwrap_or(0);
            let mut cut = (end as f64 * share) as usize;
            while !stream.is_char_boundary(cut) {
                cut -= 1;
            }
            // In chat and Converse the finish reason comes before the usage: a stream that ends between them is complete.
            let finished = stream[..cut].contains("\"finish_reason\":\"")
                || (provider == Format::Converse && stream[..cut].contains("{\"messageStop\":"));
            for (_, client) in translated_pairs().filter(|pair| pair.0 == provider && !finished) {
                let (text, ended) = Way::streamed(provider, client).pass(&[&stream.as_bytes()[..cut]]);
                prop_assert!(ended.is_err(), "{} to {}: {}", provider, client, text);
                prop_assert!(text.contains("rror") || text.contains("Exception"), "{} to {}: {}", provider, client, text);
            }
        }
    }
}
