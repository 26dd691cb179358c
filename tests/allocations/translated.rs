//! Allocations of translation, counted: none per frame, and about one copy of a request.

use bytes::Bytes;
use codec::translate::verbatim::Arrival;
use codec::wire::Format;
use json::JsonText;

use super::counting::{Count, count};
use super::translation::{self, Said, Script, requests};
use super::{FRAMES, NOTHING, WARM};

/// Maximum number of growths of one buffer that keeps the text of a block until its end and grows by doubling.
const GROWTHS: u64 = 4;

/// Returns the allocations while most frames in the middle of a block are translated, `in_a_piece` frames in each
/// piece.
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
    // The output is dropped, as after a write.
    for piece in warm.chunks(in_a_piece) {
        exchange.feed(Bytes::from(piece.concat())).unwrap();
    }
    let (count, left) =
        count(|| pieces.iter().map(|piece| exchange.feed(piece.clone()).unwrap().len()).sum::<usize>());
    assert_eq!(exchange.meter().content_frames(), (WARM + FRAMES) as u64, "{provider} to {client}: {said:?}");
    // The generate format sends a tool call in one piece, at its end.
    assert!(left > 0 || (client, said) == (Format::Generate, Said::Arguments));
    count
}

/// Translates frames of text, reasoning and tool arguments. Some formats repeat the whole text or the whole tool call
/// at the end of a block: then it is kept, and its buffer grows by doubling. So does the list of non-ASCII characters
/// that converts citation positions, because the generate format counts them in bytes.
#[test]
fn translated_frames_allocate_nothing() {
    for (provider, client) in translation::pairs() {
        for said in [Said::Text, Said::Reasoning, Said::Arguments] {
            // The generate format has no frames with parts of a tool call.
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

/// Messages of an event stream as Bedrock sends them, in reads that end in the middle of one.
/// Returns messages as reads of a size, or one by one: slices of one buffer, because a buffer of its own would count as an
/// allocation.
fn reads(messages: &[Vec<u8>], size: usize) -> Vec<Bytes> {
    let all = Bytes::from(messages.concat());
    if size < usize::MAX {
        return (0..all.len()).step_by(size).map(|at| all.slice(at..all.len().min(at + size))).collect();
    }
    let mut from = 0;
    let ends = messages.iter().map(|message| {
        from += message.len();
        all.slice(from - message.len()..from)
    });
    ends.collect()
}

#[test]
fn translated_event_stream_allocates_nothing() {
    let clients = Format::ALL.into_iter().filter(|client| *client != Format::Converse);
    for client in clients {
        for said in [Said::Text, Said::Reasoning] {
            let mut script = Script::new(Format::Converse);
            script.begin();
            script.open(said);
            for n in 0..WARM + FRAMES {
                script.delta(said, n);
            }
            let messages: Vec<Vec<u8>> = script
                .frames
                .iter()
                .map(|frame| translation::event_message(&frame.replace('ü', "u")))
                .collect();
            let (warm, rest) = messages.split_at(messages.len() - FRAMES);
            for size in [usize::MAX, 97, 16_384] {
                let mut exchange =
                    translation::translated_from(Format::Converse, client, Arrival::EventStream);
                // Small reads let the buffer of an unfinished message grow to its size, the first reads that of the output.
                let pieces = reads(rest, size);
                let (first, pieces) = pieces.split_at(pieces.len() / 2);
                for piece in reads(warm, 97).iter().chain(first) {
                    exchange.feed(piece.clone()).unwrap();
                }
                let (count, left) = count(|| {
                    pieces.iter().map(|piece| exchange.feed(piece.clone()).unwrap().len()).sum::<usize>()
                });
                assert!(left > 0, "{client}");
                assert_eq!(exchange.meter().content_frames(), (WARM + FRAMES) as u64, "{client}: {said:?}");
                let what = format!("event stream to {client}, {said:?}, reads of {size}: {count:?}");
                // The responses format keeps the text of a block until its end.
                if client == Format::Responses {
                    assert!(count.calls <= GROWTHS, "{what}");
                } else {
                    assert_eq!(count, NOTHING, "{what}");
                }
            }
        }
    }
}

/// An image of 900 kB, and a text of 100 kB, are not copied: the encoded request shares them with the client's.
#[test]
fn translated_request_shares_long_texts() {
    for (provider, client) in translation::pairs() {
        let body = JsonText::from(requests::image(client));
        let (count, outgoing) = count(|| translation::translate(client, provider, &body));
        assert!(outgoing.body.len() > 900_000, "{client} to {provider}");
        assert!(count.bytes <= 300 * 1024, "{client} to {provider}: {count:?} of {}", body.len());
    }
}
