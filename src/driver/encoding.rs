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
/// Maximum number of gzip members or zstd frames of one text. Starting one costs far more than the 20 bytes that it has
/// at least.
const MAX_MEMBERS: u32 = 4096;
/// Initial size of the output buffer, in bytes.
const ROOM: usize = 4 * 1024;

/// Content decoder of one body.
pub struct ContentDecoder {
    coding: Coding,
    /// Input that is not decoded yet.
    input: Bytes,
    /// Whether decoding may produce output without more input.
    pending: bool,
    /// Whether a text, member or frame has ended and no output followed.
    after_end: bool,
    /// Number of texts, members or frames that have ended.
    members: u32,
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
pub enum DecodeError {
    /// Name of a content encoding that is not known.
    #[error("the content encoding {0:?} is not supported")]
    Unknown(String),
    /// Data that the encoding cannot have produced.
    #[error("the compressed data is invalid: {0}")]
    Broken(#[from] io::Error),
    /// Data that ends before the encoding says so.
    #[error("the compressed data ends early")]
    Truncated,
}

/// Input bytes consumed and output bytes produced by one step, and whether the text or member has ended.
struct Step {
    consumed: usize,
    produced: usize,
    ended: bool,
}

/// Content coding (RFC 9110, section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// No coding.
    Identity,
    /// `gzip` (RFC 1952).
    Gzip,
    /// `deflate` (RFC 1950).
    Deflate,
    /// `br` (RFC 7932).
    Brotli,
    /// `zstd` (RFC 8878).
    Zstd,
}

impl ContentCoding {
    /// Parses a `content-encoding` header; an empty one is [`ContentCoding::Identity`].
    ///
    /// # Errors
    /// Returns [`DecodeError::Unknown`] for any other coding than those of this type.
    pub fn parse(encoding: &str) -> Result<Self, DecodeError> {
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
    pub fn new(encoding: &str) -> Result<Option<Self>, DecodeError> {
        Self::of(ContentCoding::parse(encoding)?)
    }

    /// Creates the decoder for a content coding; `None` for [`ContentCoding::Identity`].
    ///
    /// # Errors
    /// Returns [`DecodeError::Broken`] if the decoder cannot be created.
    pub fn of(coding: ContentCoding) -> Result<Option<Self>, DecodeError> {
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
        Ok(Some(ContentDecoder { coding, input: Bytes::new(), pending: false, after_end: false, members: 0 }))
    }

    /// Adds input. The earlier input should be drained first: what is left of it is copied.
    pub fn push(&mut self, piece: Bytes) {
        self.input =
            if self.input.is_empty() { piece } else { [&self.input[..], &piece[..]].concat().into() };
        self.pending = true;
    }

    /// Whether [`ContentDecoder::next`] may return more.
    pub fn is_pending(&self) -> bool {
        self.pending
    }

    /// Whether the input so far is a complete text. For gzip and zstd, another member or frame may follow.
    pub fn is_complete(&self) -> bool {
        self.input.is_empty()
            && matches!(self.coding, Coding::GzipEnd | Coding::Ended | Coding::Zstd { frame_ended: true, .. })
    }

    /// Whether a text, member or frame has ended and no output followed. An error then is about bytes after that end.
    pub fn is_after_end(&self) -> bool {
        self.after_end
    }

    /// Discards the rest of the text: further input is not decoded.
    pub fn discard(&mut self) {
        self.coding = Coding::Discarded;
        self.input = Bytes::new();
        self.pending = false;
    }

    /// Decodes input to at most `most` bytes of output. What the provider has flushed is returned at once.
    ///
    /// # Errors
    /// Returns [`DecodeError::Broken`] if the input does not match its encoding.
    pub fn next(&mut self, most: usize) -> Result<Bytes, DecodeError> {
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
    pub fn decode_into(&mut self, out: &mut [u8]) -> Result<usize, DecodeError> {
        let mut length = 0;
        while self.pending && length < out.len() {
            let Step { consumed: taken, produced: given, ended } =
                self.coding.step(&self.input, out.get_mut(length..).unwrap_or_default())?;
            self.input.advance(taken.min(self.input.len()));
            length += given;
            if ended {
                self.coding.end();
                self.after_end = true;
                self.members += 1;
                if self.members > MAX_MEMBERS {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "too many members").into());
                }
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
mod tests;
