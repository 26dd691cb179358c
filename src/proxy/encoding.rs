//! Content encodings of providers that compress although they were asked not to.
//!
//! A few bytes can stand for gigabytes, so that nothing is decoded as a whole: what came is given to the decoder once, and
//! taken out in pieces of a size that the reader chooses.

use std::io;

use brotli::{BrotliDecompressStream, BrotliResult, BrotliState, HeapAlloc, HuffmanCode};
use bytes::{Buf as _, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, InBuffer, Operation as _, OutBuffer};

/// State of a brotli decoder. Its window has up to 16 MiB, of which it takes what the stream says that it needs.
type Brotli = BrotliState<HeapAlloc<u8>, HeapAlloc<u32>, HeapAlloc<HuffmanCode>>;

/// Window of gzip and zlib as the exponent of its size in bytes: the largest that both have.
const GZIP_WINDOW: u8 = 15;
/// Largest window of zstd as the exponent of its size in bytes, 8 MiB: what HTTP permits (RFC 9659, section 3).
const ZSTD_WINDOW: u32 = 23;
/// Room that is made for decoded bytes at first, in bytes.
const ROOM: usize = 4 * 1024;

/// Decoder of one answer.
pub(super) struct Decoder {
    coding: Coding,
    /// What has come and was not decoded.
    input: Bytes,
    /// Decoding may give something without more input.
    pending: bool,
}

enum Coding {
    Gzip(Box<Decompress>),
    /// Between two members of a gzip file, which are one text together (RFC 1952, section 2.2).
    GzipEnd,
    Deflate(Box<Decompress>),
    Brotli(Box<Brotli>),
    Zstd(Box<ZstdDecoder<'static>>),
    /// The end of the text has come, or nothing more of it is wanted.
    Ended,
}

/// Why an answer cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("the content encoding {0:?} is not supported")]
    Unknown(String),
    #[error("the compressed answer is broken: {0}")]
    Broken(#[from] io::Error),
}

/// Bytes that one step took and gave, and whether the text has ended.
struct Step {
    taken: usize,
    given: usize,
    ended: bool,
}

impl Decoder {
    /// The decoder for a `content-encoding` header; nothing for `identity`.
    pub(super) fn new(encoding: &str) -> Result<Option<Self>, DecodeError> {
        let coding = match encoding.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => return Ok(None),
            "gzip" | "x-gzip" => Coding::GzipEnd,
            "deflate" => Coding::Deflate(Box::new(Decompress::new(true))),
            "br" => Coding::Brotli(Box::new(BrotliState::new(
                HeapAlloc::default(),
                HeapAlloc::default(),
                HeapAlloc::new(HuffmanCode::default()),
            ))),
            "zstd" => {
                let mut decoder = ZstdDecoder::new()?;
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW))?;
                Coding::Zstd(Box::new(decoder))
            }
            other => return Err(DecodeError::Unknown(other.chars().take(32).collect())),
        };
        Ok(Some(Decoder { coding, input: Bytes::new(), pending: false }))
    }

    /// Takes what has come. All of what came before is to be taken out first.
    pub(super) fn push(&mut self, piece: Bytes) {
        self.input =
            if self.input.is_empty() { piece } else { [&self.input[..], &piece[..]].concat().into() };
        self.pending = true;
    }

    /// Whether more may be taken out.
    pub(super) fn is_pending(&self) -> bool {
        self.pending
    }

    /// Lets go of the rest of the text: what comes from now on is not decoded.
    pub(super) fn discard(&mut self) {
        self.coding = Coding::Ended;
        self.input = Bytes::new();
        self.pending = false;
    }

    /// Decodes what has come, `most` bytes of it at most; what a provider has flushed comes out at once.
    ///
    /// # Errors
    /// It is not what its encoding says.
    pub(super) fn next(&mut self, most: usize) -> Result<Bytes, DecodeError> {
        let mut out = vec![0; ROOM.max(self.input.len().saturating_mul(2)).min(most)];
        let mut length = 0;
        while self.pending && length < most {
            if length == out.len() {
                out.resize(out.len().saturating_mul(2).clamp(1, most), 0);
            }
            let Step { taken, given, ended } =
                self.coding.step(&self.input, out.get_mut(length..).unwrap_or_default())?;
            self.input.advance(taken.min(self.input.len()));
            length += given;
            if ended {
                self.coding.end();
            }
            // Where neither moves, more input is needed, or more room.
            let stands = taken == 0 && given == 0 && !ended;
            self.pending = !stands && (!self.input.is_empty() || length == out.len());
            if matches!(self.coding, Coding::Ended) {
                self.discard();
            }
        }
        out.truncate(length);
        Ok(Bytes::from(out))
    }
}

impl Coding {
    /// One step of decoding.
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step, DecodeError> {
        match self {
            Coding::GzipEnd if input.is_empty() => Ok(Step { taken: 0, given: 0, ended: false }),
            Coding::GzipEnd => {
                let mut member = Box::new(Decompress::new_gzip(GZIP_WINDOW));
                let step = inflate(&mut member, input, out);
                *self = Coding::Gzip(member);
                step
            }
            Coding::Gzip(decoder) | Coding::Deflate(decoder) => inflate(decoder, input, out),
            Coding::Brotli(state) => unbrotli(state, input, out),
            Coding::Zstd(decoder) => {
                let mut from = InBuffer::around(input);
                let mut to = OutBuffer::around(out);
                // A frame ends, and another one may follow, without anything to be done here.
                decoder.run(&mut from, &mut to)?;
                Ok(Step { taken: from.pos(), given: to.pos(), ended: false })
            }
            Coding::Ended => Ok(Step { taken: input.len(), given: 0, ended: false }),
        }
    }

    /// The text has ended, or one part of it.
    fn end(&mut self) {
        *self = if matches!(self, Coding::Gzip(_)) { Coding::GzipEnd } else { Coding::Ended };
    }
}

fn inflate(decoder: &mut Decompress, input: &[u8], out: &mut [u8]) -> Result<Step, DecodeError> {
    let (taken, given) = (decoder.total_in(), decoder.total_out());
    let status = decoder.decompress(input, out, FlushDecompress::None).map_err(io::Error::from)?;
    let moved = |from: u64, to: u64| usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
    Ok(Step {
        taken: moved(taken, decoder.total_in()),
        given: moved(given, decoder.total_out()),
        ended: status == Status::StreamEnd,
    })
}

fn unbrotli(state: &mut Brotli, input: &[u8], out: &mut [u8]) -> Result<Step, DecodeError> {
    let (mut to_take, mut taken) = (input.len(), 0);
    let (mut to_give, mut given, mut total) = (out.len(), 0, 0);
    let result = BrotliDecompressStream(
        &mut to_take,
        &mut taken,
        input,
        &mut to_give,
        &mut given,
        out,
        &mut total,
        state,
    );
    if matches!(result, BrotliResult::ResultFailure) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not brotli").into());
    }
    Ok(Step { taken, given, ended: matches!(result, BrotliResult::ResultSuccess) })
}

#[cfg(test)]
mod tests {
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

    /// All that can be taken out, in pieces of this size.
    fn drained(decoder: &mut Decoder, piece: &[u8], most: usize) -> Vec<u8> {
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
    fn all_encodings_are_decoded_however_they_are_cut() {
        let frames = ["data: one\n\n", "data: two\n\n", "data: three\n\n"];
        for encoding in ENCODINGS {
            let whole = compress(encoding, &frames).concat();
            for size in [1, 7, whole.len()] {
                for most in [1, 5, 1 << 20] {
                    let mut decoder = Decoder::new(encoding).unwrap().unwrap();
                    let mut out = Vec::new();
                    for piece in whole.chunks(size) {
                        out.extend_from_slice(&drained(&mut decoder, piece, most));
                    }
                    assert_eq!(out, frames.concat().as_bytes(), "{encoding} {size} {most}");
                }
            }
        }
    }

    #[test]
    fn large_texts_are_decoded_in_pieces() {
        let text: String = (0..200_000).map(|n| format!("{n} ")).collect();
        for encoding in ENCODINGS {
            let whole = compress(encoding, &[&text]).concat();
            for (size, most) in [(1_000, 777), (whole.len(), 65_536), (3, 1 << 30)] {
                let mut decoder = Decoder::new(encoding).unwrap().unwrap();
                let mut out = Vec::new();
                for piece in whole.chunks(size) {
                    out.extend_from_slice(&drained(&mut decoder, piece, most));
                }
                assert!(out == text.as_bytes(), "{encoding} {size} {most}");
            }
        }
    }

    #[test]
    fn bombs_are_given_out_piece_by_piece() {
        let text = "a".repeat(64 << 20);
        for encoding in ENCODINGS {
            let bomb = compress(encoding, &[&text]).concat();
            assert!(bomb.len() < 128 << 10, "{encoding}: {}", bomb.len());
            let mut decoder = Decoder::new(encoding).unwrap().unwrap();
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
    fn parts_of_a_gzip_file_are_one_text() {
        let whole = [compress("gzip", &["one "]).concat(), compress("gzip", &["two"]).concat()].concat();
        for size in [1, 10, whole.len()] {
            let mut decoder = Decoder::new("gzip").unwrap().unwrap();
            let out: Vec<u8> =
                whole.chunks(size).flat_map(|piece| drained(&mut decoder, piece, 100)).collect();
            assert_eq!(out, b"one two", "{size}");
        }
    }

    #[test]
    fn a_flushed_frame_comes_out_at_once() {
        for encoding in ["gzip", "br"] {
            let frames = ["data: one\n\n", "data: two\n\n"];
            let pieces = compress(encoding, &frames);
            for most in [1, 11, 1 << 20] {
                let mut decoder = Decoder::new(encoding).unwrap().unwrap();
                assert_eq!(drained(&mut decoder, &pieces[0], most), frames[0].as_bytes(), "{encoding}");
                assert_eq!(drained(&mut decoder, &pieces[1], most), frames[1].as_bytes(), "{encoding}");
            }
        }
    }

    #[test]
    fn what_is_not_compressed_or_unknown_is_an_error() {
        for encoding in ENCODINGS {
            let mut decoder = Decoder::new(encoding).unwrap().unwrap();
            decoder.push(Bytes::from_static(b"\xff\xffplain text, not compressed at all"));
            let mut failed = false;
            while decoder.is_pending() && !failed {
                failed = decoder.next(1 << 20).is_err();
            }
            assert!(failed, "{encoding}");
        }
        assert!(Decoder::new("identity").unwrap().is_none());
        assert!(matches!(Decoder::new("x-unknown"), Err(DecodeError::Unknown(_))));
    }

    #[test]
    fn windows_beyond_what_http_permits_are_refused() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.set_parameter(zstd::stream::raw::CParameter::WindowLog(27)).unwrap();
        encoder.write_all(&vec![b'a'; 1 << 20]).unwrap();
        let frame = encoder.finish().unwrap();
        let mut decoder = Decoder::new("zstd").unwrap().unwrap();
        decoder.push(frame.into());
        assert!(decoder.next(1 << 20).is_err());
    }
}
