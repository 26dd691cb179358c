//! However a stream is cut on its way, and however its lines end, the client gets the same bytes.

use std::path::Path;

use model_gateway::wire::Format;
use proptest::prelude::*;

use crate::route::{Way, translated_pairs};

/// The streams of the goldens, with the provider's format.
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

/// The same stream in other spellings of the framing.
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
fn byte_by_byte_and_in_other_spellings_the_client_gets_the_same() {
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
    fn any_cut_gives_the_client_the_same(sizes in proptest::collection::vec(1usize..200, 1..12)) {
        for (provider, stream) in streams() {
            for (_, client) in translated_pairs().filter(|pair| pair.0 == provider) {
                let way = Way::streamed(provider, client);
                let expected = way.pass(&[stream.as_bytes()]);
                prop_assert_eq!(way.pass(&pieces(stream.as_bytes(), &sizes)), expected, "{} to {}", provider, client);
            }
        }
    }

    /// A stream that breaks off never ends as if it were whole.
    #[test]
    fn a_stream_that_breaks_off_is_told_apart_from_a_whole_one(share in 0.0f64..1.0) {
        for (provider, stream) in streams() {
            // What ends the answer stands in the last frame that says more than that the stream is over.
            let end = stream.trim_end().trim_end_matches("data: [DONE]").trim_end().rfind("\n\n").unwrap_or(0);
            let mut cut = (end as f64 * share) as usize;
            while !stream.is_char_boundary(cut) {
                cut -= 1;
            }
            // In chat the reason for the end comes before the usage: an answer without usage is complete.
            let finished = stream[..cut].contains("\"finish_reason\":\"");
            for (_, client) in translated_pairs().filter(|pair| pair.0 == provider && !finished) {
                let (text, ended) = Way::streamed(provider, client).pass(&[&stream.as_bytes()[..cut]]);
                prop_assert!(ended.is_err(), "{} to {}: {}", provider, client, text);
                prop_assert!(text.contains("error"), "{} to {}: {}", provider, client, text);
            }
        }
    }
}
