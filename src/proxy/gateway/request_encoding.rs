//! Content codings of request bodies (RFC 9110, section 8.4): decoded while the body arrives, within bounds of the
//! decoded size and of its ratio to the received size.
//!
//! Must not live here: the decoders of the codings (`driver::encoding`), and reading from the client (`request_body`).

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use super::refusals::short;
use codec::error::{ApiError, ErrorKind};
use driver::encoding::{ContentCoding, ContentDecoder, DecodeError};

/// Accepted codings, for the `accept-encoding` header of a refusal (RFC 9110, section 12.5.3).
pub(super) const ACCEPTED: &str = "zstd, gzip, deflate, br";

/// Size of a decoded piece in bytes.
const PIECE: usize = 64 * 1024;

/// Decoded bytes that are accepted whatever the ratio is. A small body of a single repeated character is not an attack.
const FREE_BYTES: usize = 4 << 20;
/// Maximum ratio of decoded to received bytes beyond [`FREE_BYTES`]. JSON with long repetitions reaches about 100.
const MAX_RATIO: usize = 256;

/// Decoder of one compressed request body.
pub struct RequestDecoder {
    decoder: ContentDecoder,
    coding: ContentCoding,
    /// Maximum decoded size in bytes.
    limit: usize,
    /// Received bytes, and decoded ones including those of `piece`.
    received: usize,
    decoded: usize,
    /// Output buffer, and the number of its bytes that are decoded. Empty before the first input and after a full piece.
    piece: Vec<u8>,
    filled: usize,
}

/// Parses the content coding of a request; [`ContentCoding::Identity`] without one.
///
/// # Errors
/// Returns [`ErrorKind::UnsupportedEncoding`] for any other coding than those of [`ACCEPTED`], and for several.
pub(super) fn content_coding(headers: &HeaderMap) -> Result<ContentCoding, ApiError> {
    let mut coding = ContentCoding::Identity;
    for value in headers.get_all(CONTENT_ENCODING) {
        let Ok(value) = value.to_str() else {
            return Err(refused("The header `content-encoding` has invalid characters"));
        };
        for name in value.split(',') {
            let parsed = ContentCoding::parse(name).map_err(|_| {
                refused(&format!("The content encoding `{}` is not supported", short(name.trim())))
            })?;
            if coding == ContentCoding::Identity {
                coding = parsed;
            } else if parsed != ContentCoding::Identity {
                return Err(refused("A request body with several content encodings is not supported"));
            }
        }
    }
    Ok(coding)
}

impl RequestDecoder {
    /// Creates the decoder for a body of at most `limit` decoded bytes; `None` for [`ContentCoding::Identity`].
    ///
    /// # Errors
    /// Returns [`ErrorKind::Internal`] if the decoder cannot be created.
    pub fn new(coding: ContentCoding, limit: usize) -> Result<Option<Self>, ApiError> {
        let decoder = ContentDecoder::of(coding)
            .map_err(|_| ApiError::new(ErrorKind::Internal, "Internal gateway error."))?;
        Ok(decoder.map(|decoder| RequestDecoder {
            decoder,
            coding,
            limit,
            received: 0,
            decoded: 0,
            piece: Vec::new(),
            filled: 0,
        }))
    }

    /// Returns the maximum received size in bytes of a body with this maximum decoded size. Data that does not compress
    /// grows: by 5 bytes per block of 16 KiB or more, and by a header and a trailer.
    pub fn max_received(limit: usize) -> usize {
        limit.saturating_add(limit / 64).saturating_add(1024)
    }

    /// Adds a received piece. The earlier ones must have been decoded: [`RequestDecoder::next_piece`] returned `None`.
    pub fn push(&mut self, received: Bytes) {
        self.received = self.received.saturating_add(received.len());
        self.decoder.push(received);
    }

    /// Decodes the next piece of [`PIECE`] bytes. `None` if that needs more input.
    ///
    /// # Errors
    /// Returns [`ErrorKind::BodyTooLarge`] if the decoded size or its ratio exceeds its bound, and
    /// [`ErrorKind::InvalidField`] if the body does not match its coding.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, ApiError> {
        while self.decoder.is_pending() {
            if self.piece.is_empty() {
                // One byte more than the limit is enough to notice that it is exceeded.
                let left = self.limit.saturating_sub(self.decoded).saturating_add(1);
                self.piece = vec![0; PIECE.min(left)];
                self.filled = 0;
            }
            let out = self.piece.get_mut(self.filled..).unwrap_or_default();
            let decoded = self.decoder.decode_into(out).map_err(|error| self.broken(&error))?;
            self.filled += decoded;
            self.decoded = self.decoded.saturating_add(decoded);
            self.check_size()?;
            if self.filled == self.piece.len() {
                return Ok(Some(Bytes::from(std::mem::take(&mut self.piece))));
            }
        }
        Ok(None)
    }

    /// Ends the body. Returns its last piece, which may be empty.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidField`] if the compressed data is incomplete.
    pub fn finish(&mut self) -> Result<Bytes, ApiError> {
        // A body without a byte is an empty one: there is nothing to decode.
        if self.received > 0 && !self.decoder.is_complete() {
            return Err(match self.decoder.is_after_end() {
                true => self.trailing(),
                false => self.invalid("is truncated; it has no end of its"),
            });
        }
        let piece = std::mem::take(&mut self.piece);
        // Copied, because the piece may be much smaller than its buffer.
        Ok(Bytes::copy_from_slice(piece.get(..self.filled).unwrap_or_default()))
    }

    /// Decoded bytes so far.
    pub fn decoded(&self) -> usize {
        self.decoded
    }

    /// Memory of the decoder in bytes: its tables, and the part of its window that has been written.
    pub fn memory(&self) -> usize {
        let (tables, window) = match self.coding {
            ContentCoding::Identity => (0, 0),
            ContentCoding::Gzip | ContentCoding::Deflate => (48 << 10, 32 << 10),
            ContentCoding::Zstd => (384 << 10, 8 << 20),
            // 256 prefix codes of each of three kinds.
            ContentCoding::Brotli => (3 << 20, 16 << 20),
        };
        PIECE + tables + self.decoded.min(window)
    }

    fn check_size(&self) -> Result<(), ApiError> {
        if self.decoded > self.limit {
            return Err(too_large(self.limit));
        }
        if self.decoded > self.received.saturating_mul(MAX_RATIO).saturating_add(FREE_BYTES) {
            let message =
                format!("The request body decodes to more than {MAX_RATIO} times its compressed size.");
            return Err(ApiError::new(ErrorKind::BodyTooLarge, message));
        }
        Ok(())
    }

    fn broken(&self, error: &DecodeError) -> ApiError {
        tracing::debug!(%error, "a compressed request body is invalid");
        match self.decoder.is_after_end() {
            true => self.trailing(),
            false => self.invalid("does not match its `content-encoding`: it is not valid"),
        }
    }

    fn trailing(&self) -> ApiError {
        self.invalid("has bytes after the end of its")
    }

    fn invalid(&self, what: &str) -> ApiError {
        let message = format!("The compressed request body {what} {} data.", self.name());
        ApiError::new(ErrorKind::InvalidField, message).param(FIELD)
    }

    fn name(&self) -> &'static str {
        match self.coding {
            ContentCoding::Identity => "identity",
            ContentCoding::Gzip => "gzip",
            ContentCoding::Deflate => "deflate",
            ContentCoding::Brotli => "br",
            ContentCoding::Zstd => "zstd",
        }
    }
}

/// Field that the errors name.
const FIELD: &str = "content-encoding";

/// Error of a body that is larger than its limit.
pub(super) fn too_large(limit: usize) -> ApiError {
    ApiError::new(ErrorKind::BodyTooLarge, format!("The request body is larger than {limit} bytes."))
}

fn refused(reason: &str) -> ApiError {
    let message = format!("{reason}; use one of: {ACCEPTED}.");
    ApiError::new(ErrorKind::UnsupportedEncoding, message).param(FIELD)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
#[path = "../../../tests/support/compression.rs"]
mod compression;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
mod tests {
    use super::compression::{CODINGS, compress};
    use super::*;

    fn decode<'p>(
        coding: &str,
        limit: usize,
        pieces: impl IntoIterator<Item = &'p [u8]>,
    ) -> Result<Vec<u8>, ApiError> {
        let mut decoder = RequestDecoder::new(ContentCoding::parse(coding).unwrap(), limit)?.unwrap();
        let mut out = Vec::new();
        for piece in pieces {
            decoder.push(Bytes::copy_from_slice(piece));
            while let Some(piece) = decoder.next_piece()? {
                assert!(piece.len() <= PIECE);
                out.extend_from_slice(&piece);
            }
        }
        out.extend_from_slice(&decoder.finish()?);
        assert_eq!(decoder.decoded(), out.len());
        Ok(out)
    }

    fn text(size: usize) -> Vec<u8> {
        (0..size).map(|n| b'a' + u8::try_from((n ^ (n >> 7) ^ (n >> 11)) % 26).unwrap()).collect()
    }

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTENT_ENCODING, http::HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn request_decoder_output_is_the_same_at_every_split() {
        for coding in CODINGS {
            for size in [0, 1, 300] {
                let text = text(size);
                let whole = compress(coding, &text);
                for at in 0..=whole.len() {
                    let (one, other) = whole.split_at(at);
                    assert_eq!(decode(coding, 300, [one, other]).unwrap(), text, "{coding} {size} {at}");
                }
                assert_eq!(decode(coding, 300, whole.chunks(1)).unwrap(), text, "{coding} {size}");
            }
            for size in [PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 1_000_000] {
                let text = text(size);
                let whole = compress(coding, &text);
                for chunk in [7, 1000, whole.len()] {
                    assert!(
                        decode(coding, size, whole.chunks(chunk)).unwrap() == text,
                        "{coding} {size} {chunk}"
                    );
                }
                let error = decode(coding, size - 1, whole.chunks(1000)).unwrap_err();
                assert_eq!(error.kind, ErrorKind::BodyTooLarge, "{coding} {size}");
            }
        }
    }

    #[test]
    fn request_decoder_truncated_data_is_refused_at_every_length() {
        for coding in CODINGS {
            let whole = compress(coding, &text(200));
            for length in 1..whole.len() {
                for size in [1, whole.len()] {
                    let error = decode(coding, 1000, whole[..length].chunks(size)).unwrap_err();
                    assert_eq!(error.kind, ErrorKind::InvalidField, "{coding} {length}");
                    assert!(error.message.contains("truncated"), "{coding} {length}: {}", error.message);
                }
            }
            assert_eq!(decode(coding, 1000, []).unwrap(), b"", "{coding}");
        }
    }

    #[test]
    fn request_decoder_trailing_bytes_are_refused() {
        for coding in CODINGS {
            for trailing in [&b"?"[..], b"\0", b"\x1f", b"????????????????????", &[0x1f, 0x8b, 8], b"{}"] {
                let whole = [&compress(coding, &text(200)), trailing].concat();
                for size in [1, 50, whole.len()] {
                    let error = decode(coding, 1000, whole.chunks(size)).unwrap_err();
                    assert_eq!(error.kind, ErrorKind::InvalidField, "{coding} {trailing:?}");
                    assert!(error.message.contains("bytes after the end"), "{coding}: {}", error.message);
                }
            }
        }
    }

    #[test]
    fn request_decoder_members_and_frames_are_one_body() {
        for coding in ["gzip", "zstd"] {
            let whole =
                [compress(coding, b"{\"a\":"), compress(coding, b""), compress(coding, b"1}")].concat();
            for size in [1, 10, whole.len()] {
                assert_eq!(decode(coding, 7, whole.chunks(size)).unwrap(), b"{\"a\":1}", "{coding} {size}");
            }
        }
    }

    #[test]
    fn request_decoder_ratio_is_bounded() {
        for coding in CODINGS {
            let small = vec![b' '; FREE_BYTES];
            assert!(decode(coding, 1 << 30, [&compress(coding, &small)[..]]).unwrap() == small, "{coding}");
            let bomb = compress(coding, &vec![b' '; 3 * FREE_BYTES]);
            let error = decode(coding, 1 << 30, [&bomb[..]]).unwrap_err();
            assert_eq!((error.kind, error.status), (ErrorKind::BodyTooLarge, 413), "{coding}");
        }
    }

    #[test]
    fn request_decoder_data_that_does_not_compress_fits_its_received_bound() {
        let mut state = 1_u64;
        for size in [0, 1, 100, 70_000, 300_000] {
            let noise: Vec<u8> = (0..size)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 33) as u8
                })
                .collect();
            for coding in CODINGS {
                assert!(
                    compress(coding, &noise).len() <= RequestDecoder::max_received(size),
                    "{coding} {size}"
                );
            }
        }
    }

    #[test]
    fn content_coding_of_a_request_is_one_of_the_accepted() {
        for (values, expected) in [
            (&[][..], ContentCoding::Identity),
            (&["identity"], ContentCoding::Identity),
            (&[""], ContentCoding::Identity),
            (&["ZSTD"], ContentCoding::Zstd),
            (&[" identity, gzip "], ContentCoding::Gzip),
            (&["br", "identity"], ContentCoding::Brotli),
            (&["x-gzip"], ContentCoding::Gzip),
        ] {
            assert_eq!(content_coding(&headers(values)).unwrap(), expected, "{values:?}");
        }
        for values in [&["compress"][..], &["gzip, br"], &["gzip", "gzip"], &["zstd;q=1"], &["\u{e9}"]] {
            let error = content_coding(&headers(values)).unwrap_err();
            assert_eq!((error.kind, error.status), (ErrorKind::UnsupportedEncoding, 415), "{values:?}");
            assert!(error.message.contains(ACCEPTED), "{}", error.message);
        }
    }
}
