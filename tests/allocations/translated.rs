//! What translating allocates: nothing per frame, and a request about once.

use bytes::Bytes;
use model_gateway::wire::Format;

use super::counting::{Count, count};
use super::translation::{self, Said, Script, requests};
use super::{FRAMES, NOTHING, WARM};

/// What is kept until the end of a block grows by doubling: so often at most.
const GROWTHS: u64 = 4;

/// A stream in the middle of a block, and what was allocated while most of its frames passed, each in a piece of its
/// own, or several in one.
fn pass(provider: Format, client: Format, said: Said, ascii: bool, in_a_piece: usize) -> Count {
    let mut script = Script::new(provider);
    script.begin();
    script.open(said);
    let before = script.frames.len() + WARM;
    for n in 0..WARM + FRAMES {
        script.delta(said, n);
    }
    let plain = |frame: &String| if ascii { frame.replace('ü', "u") } else { frame.clone() };
    let frames = translation::shared(&script.frames.iter().map(plain).collect::<Vec<_>>());
    let (warm, rest) = frames.split_at(before);
    let rest: Vec<String> =
        rest.chunks(in_a_piece).map(|some| String::from_utf8(some.concat()).unwrap()).collect();
    let pieces = translation::shared(&rest);
    let mut exchange = translation::translated(provider, client);
    // What leaves is dropped, as after a write.
    for piece in warm.chunks(in_a_piece) {
        exchange.feed(Bytes::from(piece.concat())).unwrap();
    }
    let (count, left) =
        count(|| pieces.iter().map(|piece| exchange.feed(piece.clone()).unwrap().len()).sum::<usize>());
    assert_eq!(exchange.meter().content_frames(), (WARM + FRAMES) as u64, "{provider} to {client}: {said:?}");
    // A call leaves in one piece where the format knows no other way.
    assert!(left > 0 || (client, said) == (Format::Generate, Said::Arguments));
    count
}

/// Every frame of text, of reasoning and of arguments. Where a format demands that the whole text, or the whole of a
/// call, is said at its end, it is kept meanwhile, and the place that it is kept in grows now and then. So does the
/// list of the characters beyond ASCII, which tells where a text is cited, in the format that counts bytes.
#[test]
fn frames_are_translated_without_an_allocation() {
    for (provider, client) in translation::pairs() {
        for said in [Said::Text, Said::Reasoning, Said::Arguments] {
            // This format has no frames with parts of a call.
            if (provider, said) == (Format::Generate, Said::Arguments) {
                continue;
            }
            for (ascii, in_a_piece) in [(true, 1), (true, 10), (false, 1), (false, 10)] {
                let counts_bytes = said == Said::Text && [provider, client].contains(&Format::Generate);
                let keeps = u64::from(client == Format::Responses)
                    + u64::from((client, said) == (Format::Generate, Said::Arguments))
                    + u64::from(counts_bytes && !ascii);
                let count = pass(provider, client, said, ascii, in_a_piece);
                let what = format!("{provider} to {client}, {said:?}, {in_a_piece} in a piece: {count:?}");
                if keeps > 0 {
                    assert!(count.calls <= GROWTHS * keeps, "{what}");
                } else {
                    assert_eq!(count, NOTHING, "{what}");
                }
            }
        }
    }
}

/// An image of 900 kB is copied once, into the request that leaves.
#[test]
fn a_request_with_an_image_is_copied_once() {
    for (provider, client) in translation::pairs() {
        let body = requests::image(client);
        let (count, outgoing) = count(|| translation::translate(client, provider, &body));
        assert!(outgoing.body.len() > 900_000, "{client} to {provider}");
        let bound = body.len() as u64 * 13 / 10 + 16_384;
        assert!(count.bytes <= bound, "{client} to {provider}: {count:?} of {}", body.len());
    }
}
