//! Content decoding: of compressed request bodies, and of responses from providers that compress although the request
//! forbids it.
//!
//! A few compressed bytes can decode to gigabytes, so nothing is decoded as a whole: the decoder is fed a piece once
//! and drained in pieces whose size the reader chooses.

use std::io;

use brotli::{BrotliDecompressStream, BrotliResult, BrotliState, HeapAlloc, HuffmanCode};
use bytes::{Buf as _, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, InBuffer, Operation as _, OutBuffer};

/// State of a brotli decoder. Its window has up to 16 MiB; only the size that the stream declares is allocated.
type Brotli = BrotliState<HeapAlloc<u8>, HeapAlloc<u32>, HeapAlloc<HuffmanCode>>;

/// Window of gzip and zlib, as the exponent of its size in bytes: the largest of both formats.
const GZIP_WINDOW: u8 = 15;
/// Largest window of zstd, as the exponent of its size in bytes: 8 MiB, the limit for HTTP (RFC 9659, section 3).
const ZSTD_WINDOW: u32 = 23;
/// Initial size of the output buffer, in bytes.
const ROOM: usize = 4 * 1024;

/// Content decoder of one body.
pub(in crate::proxy) struct ContentDecoder {
    coding: Coding,
    /// Input that is not decoded yet.
    input: Bytes,
    /// Whether decoding may produce output without more input.
    pending: bool,
    /// Whether a text, member or frame has ended and no output followed.
    after_end: bool,
}

enum Coding {
    Gzip(Box<Decompress>),
    /// Before a gzip member. The members of a file decode to one text (RFC 1952, section 2.2).
    GzipEnd,
    /// Before the first two bytes of a deflate text, which tell whether it has the zlib wrapping.
    DeflateStart,
    Deflate(Box<Decompress>),
    Brotli(Box<Brotli>),
    Zstd {
        decoder: Box<ZstdDecoder<'static>>,
        /// Whether the last frame is complete: decoded to its end, and output.
        frame_ended: bool,
    },
    /// After the end of the text; any further input is an error.
    Ended,
    /// The rest of the text is ignored.
    Discarded,
}

/// Decoding error.
#[derive(Debug, thiserror::Error)]
pub(in crate::proxy) enum DecodeError {
    #[error("the content encoding {0:?} is not supported")]
    Unknown(String),
    #[error("the compressed data is invalid: {0}")]
    Broken(#[from] io::Error),
}

/// Input bytes consumed and output bytes produced by one step, and whether the text or member has ended.
struct Step {
    consumed: usize,
    produced: usize,
    ended: bool,
}

/// Content coding (RFC 9110, section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum ContentCoding {
    Identity,
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

impl ContentCoding {
    /// Parses a `content-encoding` header; an empty one is [`ContentCoding::Identity`].
    ///
    /// # Errors
    /// Returns [`DecodeError::Unknown`] for any other coding than those of this type.
    pub(in crate::proxy) fn parse(encoding: &str) -> Result<Self, DecodeError> {
        let encoding = encoding.trim();
        let is = |name: &str| encoding.eq_ignore_ascii_case(name);
        Ok(match () {
            () if encoding.is_empty() || is("identity") => ContentCoding::Identity,
            () if is("gzip") || is("x-gzip") => ContentCoding::Gzip,
            () if is("deflate") => ContentCoding::Deflate,
            () if is("br") => ContentCoding::Brotli,
            () if is("zstd") => ContentCoding::Zstd,
            () => {
                let name = encoding.chars().take(32).map(|c| c.to_ascii_lowercase()).collect();
                return Err(DecodeError::Unknown(name));
            }
        })
    }
}

impl ContentDecoder {
    /// Creates the decoder for a `content-encoding` header; `None` for `identity` and an empty one.
    ///
    /// # Errors
    /// Returns [`DecodeError::Unknown`] for any other encoding than gzip, deflate, br and zstd.
    pub(in crate::proxy) fn new(encoding: &str) -> Result<Option<Self>, DecodeError> {
        Self::of(ContentCoding::parse(encoding)?)
    }

    /// Creates the decoder for a content coding; `None` for [`ContentCoding::Identity`].
    ///
    /// # Errors
    /// Returns [`DecodeError::Broken`] if the decoder cannot be created.
    pub(in crate::proxy) fn of(coding: ContentCoding) -> Result<Option<Self>, DecodeError> {
        let coding = match coding {
            ContentCoding::Identity => return Ok(None),
            ContentCoding::Gzip => Coding::GzipEnd,
            ContentCoding::Deflate => Coding::DeflateStart,
            ContentCoding::Brotli => Coding::Brotli(Box::new(BrotliState::new(
                HeapAlloc::default(),
                HeapAlloc::default(),
                HeapAlloc::new(HuffmanCode::default()),
            ))),
            ContentCoding::Zstd => {
                let mut decoder = ZstdDecoder::new()?;
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW))?;
                Coding::Zstd { decoder: Box::new(decoder), frame_ended: false }
            }
        };
        Ok(Some(ContentDecoder { coding, input: Bytes::new(), pending: false, after_end: false }))
    }

    /// Adds input. The earlier input should be drained first: what is left of it is copied.
    pub(in crate::proxy) fn push(&mut self, piece: Bytes) {
        self.input =
            if self.input.is_empty() { piece } else { [&self.input[..], &piece[..]].concat().into() };
        self.pending = true;
    }

    /// Whether [`ContentDecoder::next`] may return more.
    pub(in crate::proxy) fn is_pending(&self) -> bool {
        self.pending
    }

    /// Whether the input so far is a complete text. For gzip and zstd, another member or frame may follow.
    pub(in crate::proxy) fn is_complete(&self) -> bool {
        self.input.is_empty()
            && matches!(self.coding, Coding::GzipEnd | Coding::Ended | Coding::Zstd { frame_ended: true, .. })
    }

    /// Whether a text, member or frame has ended and no output followed. An error then is about bytes after that end.
    pub(in crate::proxy) fn is_after_end(&self) -> bool {
        self.after_end
    }

    /// Discards the rest of the text: further input is not decoded.
    pub(in crate::proxy) fn discard(&mut self) {
        self.coding = Coding::Discarded;
        self.input = Bytes::new();
        self.pending = false;
    }

    /// Decodes input to at most `most` bytes of output. What the provider has flushed is returned at once.
    ///
    /// # Errors
    /// Returns [`DecodeError::Broken`] if the input does not match its encoding.
    pub(in crate::proxy) fn next(&mut self, most: usize) -> Result<Bytes, DecodeError> {
        let mut out = vec![0; ROOM.max(self.input.len().saturating_mul(2)).min(most)];
        let mut length = 0;
        while self.pending && length < most {
            if length == out.len() {
                out.resize(out.len().saturating_mul(2).clamp(1, most), 0);
            }
            length += self.decode_into(out.get_mut(length..).unwrap_or_default())?;
        }
        out.truncate(length);
        Ok(Bytes::from(out))
    }

    /// Decodes input until `out` is full or more input is needed. Returns the number of bytes written to `out`.
    ///
    /// # Errors
    /// Returns [`DecodeError::Broken`] if the input does not match its encoding.
    pub(in crate::proxy) fn decode_into(&mut self, out: &mut [u8]) -> Result<usize, DecodeError> {
        let mut length = 0;
        while self.pending && length < out.len() {
            let Step { consumed: taken, produced: given, ended } =
                self.coding.step(&self.input, out.get_mut(length..).unwrap_or_default())?;
            self.input.advance(taken.min(self.input.len()));
            length += given;
            if ended {
                self.coding.end();
                self.after_end = true;
            } else if given > 0 {
                self.after_end = false;
            }
            // A step without progress needs more input or a larger output buffer.
            let stands = taken == 0 && given == 0 && !ended;
            self.pending = !stands && (!self.input.is_empty() || length == out.len());
        }
        Ok(length)
    }
}

impl Coding {
    /// Makes one decoding step.
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step, DecodeError> {
        match self {
            Coding::GzipEnd if input.is_empty() => Ok(Step { consumed: 0, produced: 0, ended: false }),
            Coding::GzipEnd => {
                let mut member = Box::new(Decompress::new_gzip(GZIP_WINDOW));
                let step = inflate(&mut member, input, out);
                *self = Coding::Gzip(member);
                step
            }
            Coding::DeflateStart => {
                let Some((head, _)) = input.split_first_chunk() else {
                    return Ok(Step { consumed: 0, produced: 0, ended: false });
                };
                let mut text = Box::new(Decompress::new(has_zlib_header(*head)));
                let step = inflate(&mut text, input, out);
                *self = Coding::Deflate(text);
                step
            }
            Coding::Gzip(decoder) | Coding::Deflate(decoder) => inflate(decoder, input, out),
            Coding::Brotli(state) => decompress_brotli(state, input, out),
            Coding::Zstd { decoder, frame_ended } => {
                let mut from = InBuffer::around(input);
                let mut to = OutBuffer::around(out);
                // The zstd decoder handles the end of a frame and the start of the next one itself.
                let remaining = decoder.run(&mut from, &mut to)?;
                // After a frame, a call without input asks for the header of the next one, which need not follow.
                let moved = from.pos() > 0 || to.pos() > 0;
                if moved {
                    *frame_ended = remaining == 0;
                }
                Ok(Step { consumed: from.pos(), produced: to.pos(), ended: moved && remaining == 0 })
            }
            Coding::Ended if !input.is_empty() => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "data after its end").into())
            }
            Coding::Ended | Coding::Discarded => {
                Ok(Step { consumed: input.len(), produced: 0, ended: false })
            }
        }
    }

    /// Handles the end of the text or, for gzip and zstd, of a member or frame.
    fn end(&mut self) {
        match self {
            Coding::Gzip(_) => *self = Coding::GzipEnd,
            Coding::Zstd { .. } => {}
            _ => *self = Coding::Ended,
        }
    }
}

/// Whether a deflate text begins with a zlib header (RFC 1950, section 2.2): method 8, a window of at most 32 KiB, and
/// a check value. RFC 9110 requires the wrapping (section 8.4.1.2), and notes that some servers send the bare data.
/// Bare data that begins with these bits would be a stored block with padding that no encoder writes.
fn has_zlib_header([method, flags]: [u8; 2]) -> bool {
    method & 0x0f == 8 && method >> 4 <= 7 && u16::from_be_bytes([method, flags]).is_multiple_of(31)
}

fn inflate(decoder: &mut Decompress, input: &[u8], out: &mut [u8]) -> Result<Step, DecodeError> {
    let (taken, given) = (decoder.total_in(), decoder.total_out());
    let status = decoder.decompress(input, out, FlushDecompress::None).map_err(io::Error::from)?;
    let moved = |from: u64, to: u64| usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
    Ok(Step {
        consumed: moved(taken, decoder.total_in()),
        produced: moved(given, decoder.total_out()),
        ended: status == Status::StreamEnd,
    })
}

fn decompress_brotli(state: &mut Brotli, input: &[u8], out: &mut [u8]) -> Result<Step, DecodeError> {
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
    Ok(Step { consumed: taken, produced: given, ended: matches!(result, BrotliResult::ResultSuccess) })
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
            let out: Vec<u8> =
                whole.chunks(size).flat_map(|piece| drained(&mut decoder, piece, 100)).collect();
            assert_eq!(out, b"one two", "{size}");
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
}
