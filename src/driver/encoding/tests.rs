//! Tests of content decoding.

use std::io::Write;

use super::*;

const ENCODINGS: [&str; 4] = ["gzip", "br", "zstd", "deflate"];

fn compress(encoding: &str, frames: &[&str]) -> Vec<Vec<u8>> {
    match encoding {
        "gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            let mut out = Vec::new();
            for frame in frames {
                encoder.write_all(frame.as_bytes()).unwrap();
                encoder.flush().unwrap();
                out.push(std::mem::take(encoder.get_mut()));
            }
            out.push(encoder.finish().unwrap());
            out
        }
        "br" => {
            let mut out = Vec::new();
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 20);
            for frame in frames {
                encoder.write_all(frame.as_bytes()).unwrap();
                encoder.flush().unwrap();
                out.push(std::mem::take(encoder.get_mut()));
            }
            out.push(encoder.into_inner());
            out
        }
        "zstd" => vec![zstd::encode_all(frames.concat().as_bytes(), 3).unwrap()],
        _ => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(frames.concat().as_bytes()).unwrap();
            vec![encoder.finish().unwrap()]
        }
    }
}

/// Drains the decoder in pieces of this size.
fn drained(decoder: &mut ContentDecoder, piece: &[u8], most: usize) -> Vec<u8> {
    decoder.push(Bytes::copy_from_slice(piece));
    let mut out = Vec::new();
    while decoder.is_pending() {
        let piece = decoder.next(most).unwrap();
        assert!(piece.len() <= most);
        out.extend_from_slice(&piece);
    }
    out
}

#[test]
fn decoder_output_is_the_same_at_every_split() {
    let frames = ["data: one\n\n", "data: two\n\n", "data: three\n\n"];
    for encoding in ENCODINGS {
        let whole = compress(encoding, &frames).concat();
        for size in [1, 7, whole.len()] {
            for most in [1, 5, 1 << 20] {
                let mut decoder = ContentDecoder::new(encoding).unwrap().unwrap();
                let mut out = Vec::new();
                for piece in whole.chunks(size) {
                    out.extend_from_slice(&drained(&mut decoder, piece, most));
                }
                assert_eq!(out, frames.concat().as_bytes(), "{encoding} {size} {most}");
            }
        }
    }
}

/// Some servers send deflate data (RFC 1951) without the zlib wrapping.
#[test]
fn deflate_without_zlib_is_decoded_at_every_split() {
    let text: String = (0..200).map(|n| format!("data: {n}\n\n")).collect();
    for text in ["", "a", &text] {
        for level in [0, 1, 6, 9] {
            let level = flate2::Compression::new(level);
            let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), level);
            raw.write_all(text.as_bytes()).unwrap();
            let mut wrapped = flate2::write::ZlibEncoder::new(Vec::new(), level);
            wrapped.write_all(text.as_bytes()).unwrap();
            for whole in [raw.finish().unwrap(), wrapped.finish().unwrap()] {
                for at in 0..=whole.len() {
                    let mut decoder = ContentDecoder::new("deflate").unwrap().unwrap();
                    let (one, other) = whole.split_at(at);
                    let mut out = drained(&mut decoder, one, 1 << 20);
                    out.extend_from_slice(&drained(&mut decoder, other, 1 << 20));
                    assert_eq!(out, text.as_bytes(), "{at} of {whole:?}");
                }
                let mut decoder = ContentDecoder::new("deflate").unwrap().unwrap();
                let pieces = whole.chunks(1).flat_map(|piece| drained(&mut decoder, piece, 7));
                assert_eq!(pieces.collect::<Vec<u8>>(), text.as_bytes());
            }
        }
    }
}

#[test]
fn decoder_large_text_is_output_in_pieces() {
    let text: String = (0..200_000).map(|n| format!("{n} ")).collect();
    for encoding in ENCODINGS {
        let whole = compress(encoding, &[&text]).concat();
        for (size, most) in [(1_000, 777), (whole.len(), 65_536), (3, 1 << 30)] {
            let mut decoder = ContentDecoder::new(encoding).unwrap().unwrap();
            let mut out = Vec::new();
            for piece in whole.chunks(size) {
                out.extend_from_slice(&drained(&mut decoder, piece, most));
            }
            assert!(out == text.as_bytes(), "{encoding} {size} {most}");
        }
    }
}

#[test]
fn decoder_bomb_is_output_piece_by_piece() {
    let text = "a".repeat(64 << 20);
    for encoding in ENCODINGS {
        let bomb = compress(encoding, &[&text]).concat();
        assert!(bomb.len() < 128 << 10, "{encoding}: {}", bomb.len());
        let mut decoder = ContentDecoder::new(encoding).unwrap().unwrap();
        decoder.push(bomb.into());
        for _ in 0..3 {
            assert_eq!(decoder.next(65_536).unwrap().len(), 65_536, "{encoding}");
            assert!(decoder.is_pending());
        }
        decoder.discard();
        assert!(!decoder.is_pending());
        assert!(drained(&mut decoder, b"anything", 1 << 20).is_empty());
    }
}

#[test]
fn decoder_gzip_members_are_one_text() {
    let whole = [compress("gzip", &["one "]).concat(), compress("gzip", &["two"]).concat()].concat();
    for size in [1, 10, whole.len()] {
        let mut decoder = ContentDecoder::new("gzip").unwrap().unwrap();
        let out: Vec<u8> = whole.chunks(size).flat_map(|piece| drained(&mut decoder, piece, 100)).collect();
        assert_eq!(out, b"one two", "{size}");
    }
}

#[test]
fn decoder_number_of_members_is_bounded() {
    for encoding in ["gzip", "zstd"] {
        let member = compress(encoding, &[""]).concat();
        for (members, accepted) in [(4096, true), (4097, false)] {
            let mut decoder = ContentDecoder::new(encoding).unwrap().unwrap();
            decoder.push(member.repeat(members).into());
            let mut result = Ok(Bytes::new());
            while decoder.is_pending() && result.is_ok() {
                result = decoder.next(1000);
            }
            assert_eq!(result.is_ok(), accepted, "{encoding} {members}");
        }
    }
}

#[test]
fn decoder_bytes_after_the_end_are_an_error() {
    for encoding in ENCODINGS {
        let whole = compress(encoding, &["text"]).concat();
        for size in [1, whole.len() + 8] {
            let mut decoder = ContentDecoder::new(encoding).unwrap().unwrap();
            let mut out = Vec::new();
            let mut failed = false;
            for piece in [&whole[..], b"????????"].concat().chunks(size) {
                decoder.push(Bytes::copy_from_slice(piece));
                while decoder.is_pending() && !failed {
                    match decoder.next(100) {
                        Ok(piece) => out.extend_from_slice(&piece),
                        Err(_) => failed = true,
                    }
                }
            }
            assert!(failed, "{encoding} {size}: {out:?}");
        }
    }
}

#[test]
fn decoder_flushed_frame_is_output_at_once() {
    for encoding in ["gzip", "br"] {
        let frames = ["data: one\n\n", "data: two\n\n"];
        let pieces = compress(encoding, &frames);
        for most in [1, 11, 1 << 20] {
            let mut decoder = ContentDecoder::new(encoding).unwrap().unwrap();
            assert_eq!(drained(&mut decoder, &pieces[0], most), frames[0].as_bytes(), "{encoding}");
            assert_eq!(drained(&mut decoder, &pieces[1], most), frames[1].as_bytes(), "{encoding}");
        }
    }
}

#[test]
fn decoder_uncompressed_data_or_unknown_encoding_is_an_error() {
    for encoding in ENCODINGS {
        let mut decoder = ContentDecoder::new(encoding).unwrap().unwrap();
        decoder.push(Bytes::from_static(b"\xff\xffplain text, not compressed at all"));
        let mut failed = false;
        while decoder.is_pending() && !failed {
            failed = decoder.next(1 << 20).is_err();
        }
        assert!(failed, "{encoding}");
    }
    assert!(ContentDecoder::new("identity").unwrap().is_none());
    assert!(matches!(ContentDecoder::new("x-unknown"), Err(DecodeError::Unknown(_))));
}

#[test]
fn decoder_zstd_window_above_the_http_limit_is_refused() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.set_parameter(zstd::stream::raw::CParameter::WindowLog(27)).unwrap();
    encoder.write_all(&vec![b'a'; 1 << 20]).unwrap();
    let frame = encoder.finish().unwrap();
    let mut decoder = ContentDecoder::new("zstd").unwrap().unwrap();
    decoder.push(frame.into());
    assert!(decoder.next(1 << 20).is_err());
}
