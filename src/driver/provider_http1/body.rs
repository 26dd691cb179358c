//! Framing of response bodies: where a body ends (RFC 9112, section 6.3), and the removal of chunk framing.

use bytes::BytesMut;
use http::StatusCode;
use pingora::http::ResponseHeader;

use super::head::{content_length, is_chunked};
use crate::chunks::{Chunks, Misframed};

/// Bytes of framing (sizes, extensions, trailers) that may arrive without a byte of data.
const MAX_FRAMING: usize = 64 * 1024;

/// Framing of one response body, with the position in it.
#[derive(Debug)]
pub(super) enum BodyFraming {
    /// The bytes that are still to come.
    Length(u64),
    Chunked {
        chunks: Chunks,
        /// Framing since the last byte of data, in bytes.
        overhead: usize,
    },
    UntilClose,
    /// The connection was closed at the end of a body without a length.
    Closed,
}

impl BodyFraming {
    /// Returns the framing of the body behind this head.
    pub(super) fn of(head: &ResponseHeader, to_head_request: bool) -> Self {
        let bodiless = matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if bodiless || to_head_request {
            return BodyFraming::Length(0);
        }
        if is_chunked(head) {
            return BodyFraming::Chunked { chunks: Chunks::default(), overhead: 0 };
        }
        match content_length(head) {
            Some(Ok(length)) => BodyFraming::Length(length),
            Some(Err(())) | None => BodyFraming::UntilClose,
        }
    }

    /// Whether the end of the body has been read.
    pub(super) fn is_complete(&self) -> bool {
        match self {
            BodyFraming::Length(left) => *left == 0,
            BodyFraming::Chunked { chunks, .. } => chunks.is_complete(),
            BodyFraming::UntilClose => false,
            BodyFraming::Closed => true,
        }
    }

    /// Whether the connection can carry another response behind this one.
    pub(super) fn has_end(&self) -> bool {
        !matches!(self, BodyFraming::UntilClose | BodyFraming::Closed)
    }

    /// Appends the data of received bytes to `out`. Returns how many bytes belong to the body: fewer than all of them
    /// only at its end.
    ///
    /// # Errors
    /// Returns [`Misframed`] if the chunks are invalid, or have more framing than a body needs.
    pub(super) fn decode(&mut self, bytes: &[u8], out: &mut BytesMut) -> Result<usize, Misframed> {
        match self {
            BodyFraming::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                out.extend_from_slice(bytes.get(..taken).unwrap_or_default());
                *left -= taken as u64;
                Ok(taken)
            }
            BodyFraming::Chunked { chunks, overhead } => {
                let before = out.len();
                let taken = chunks.decode(bytes, |data| out.extend_from_slice(data))?;
                let data = out.len() - before;
                *overhead = if data == 0 { overhead.saturating_add(taken) } else { 0 };
                if *overhead > MAX_FRAMING { Err(Misframed) } else { Ok(taken) }
            }
            BodyFraming::UntilClose => {
                out.extend_from_slice(bytes);
                Ok(bytes.len())
            }
            BodyFraming::Closed => Ok(0),
        }
    }

    /// Handles the end of the connection. Returns false if the body is not complete.
    pub(super) fn close(&mut self) -> bool {
        if let BodyFraming::UntilClose = self {
            *self = BodyFraming::Closed;
        }
        self.is_complete()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framing(lines: &str) -> BodyFraming {
        let mut text = BytesMut::from(&*format!("HTTP/1.1 200 OK\r\n{lines}\r\n"));
        BodyFraming::of(&super::super::head::take_head(&mut text, &mut 0).unwrap().unwrap(), false)
    }

    /// Decodes bytes that arrive in pieces of this size. Returns the data and the bytes behind the end.
    fn decoded(
        mut framing: BodyFraming,
        bytes: &[u8],
        size: usize,
    ) -> Result<(Vec<u8>, usize, bool), Misframed> {
        let (mut out, mut taken) = (BytesMut::new(), 0);
        for piece in bytes.chunks(size) {
            taken += framing.decode(piece, &mut out)?;
        }
        Ok((out.to_vec(), bytes.len() - taken, framing.is_complete()))
    }

    #[test]
    fn body_ends_where_its_framing_says_at_every_split() {
        let chunked = b"5\r\nhello\r\n00006;x=\"y\"\r\n world\r\n0\r\nx: y\r\n\r\nnext";
        for size in 1..chunked.len() {
            let chunks = decoded(framing("transfer-encoding: chunked\r\n"), chunked, size);
            assert_eq!(chunks, Ok((b"hello world".to_vec(), 4, true)), "{size}");
            let length = decoded(framing("content-length: 11\r\n"), b"hello worldnext", size);
            assert_eq!(length, Ok((b"hello world".to_vec(), 4, true)), "{size}");
            let closed = decoded(framing(""), b"hello", size);
            assert_eq!(closed, Ok((b"hello".to_vec(), 0, false)), "{size}");
        }
    }

    #[test]
    fn body_without_content_ends_at_once() {
        for status in ["204 No Content", "304 Not Modified"] {
            let mut text = BytesMut::from(&*format!("HTTP/1.1 {status}\r\ncontent-length: 5\r\n\r\n"));
            let head = super::super::head::take_head(&mut text, &mut 0).unwrap().unwrap();
            assert!(BodyFraming::of(&head, false).is_complete());
        }
        let mut text = BytesMut::from("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n");
        let head = super::super::head::take_head(&mut text, &mut 0).unwrap().unwrap();
        assert!(BodyFraming::of(&head, true).is_complete());
        assert!(framing("content-length: 0\r\n").is_complete());
    }

    #[test]
    fn body_until_the_close_is_complete_with_it() {
        let mut until_close = framing("");
        assert!(!until_close.has_end());
        assert!(until_close.close());
        assert!(!until_close.has_end());
        assert!(!framing("content-length: 5\r\n").close());
        assert!(!framing("transfer-encoding: chunked\r\n").close());
    }

    #[test]
    fn chunks_with_endless_framing_are_refused() {
        let chunked = || framing("transfer-encoding: chunked\r\n");
        let trailers = format!("0\r\n{}", "x: y\r\n".repeat(MAX_FRAMING / 5));
        assert_eq!(decoded(chunked(), trailers.as_bytes(), 1000), Err(Misframed));
        let extension = format!("5;{}", "x".repeat(MAX_FRAMING));
        assert_eq!(decoded(chunked(), extension.as_bytes(), 1000), Err(Misframed));
        // Chunks of one byte are mostly framing, and allowed.
        let small = "1\r\nx\r\n".repeat(MAX_FRAMING);
        assert_eq!(decoded(chunked(), small.as_bytes(), 1000).unwrap().0.len(), MAX_FRAMING);
    }

    proptest! {
        #[test]
        fn body_is_the_same_at_every_split(
            parts in prop::collection::vec(prop::sample::select(&[
                "1\r\na\r\n", "3\r\nbcd\r\n", "A\r\n0123456789\r\n", "2;x\r\nyz\r\n", "0\r\n\r\n", "0\r\na: b\r\n\r\n", "x", "\r\n",
            ][..]), 0..10),
            size in 1usize..30,
        ) {
            let body = parts.concat();
            let chunked = || framing("transfer-encoding: chunked\r\n");
            let whole = decoded(chunked(), body.as_bytes(), body.len().max(1));
            prop_assert_eq!(whole.ok(), decoded(chunked(), body.as_bytes(), size).ok());
        }
    }
}
