//! Framing of chunked bodies (RFC 9112, section 7.1): of requests it is checked while Pingora reads them, of responses
//! it is removed.
//!
//! Pingora's parser skips a line feed inside a chunk extension, where another parser on the path may find the end of
//! the line: request smuggling. A body that two parsers can frame differently is rejected. Only sizes, extensions and
//! trailers are checked; the data between them is skipped. How much of that there may be is bounded, because it does not
//! count as a part of the body.

use super::head::is_token;

/// Framing that a body may have beyond [`FREE`] bytes for each chunk and for each two bytes of data, in bytes.
const EXCESS: u64 = 64 * 1024;

/// Framing of a chunk that does not count, in bytes: a size, a short extension and the line ends.
const FREE: u64 = 32;

/// Framing error: the body is not framed as RFC 9112 requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the chunked framing of the body is invalid")]
pub struct Misframed;

/// Position in a chunked body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the first digit of a size.
    #[default]
    Begin,
    Size,
    /// White space behind a size: an extension follows, or the line ends.
    SizeSpace,
    Extension,
    SizeEnd,
    Data,
    DataCr,
    DataEnd,
    /// At the beginning of a trailer line.
    TrailerBegin,
    TrailerName,
    Trailer,
    TrailerEnd,
    LastEnd,
    Done,
}

/// Framing checker of one body, whose bytes arrive in pieces.
#[derive(Debug, Default)]
pub struct Chunks {
    state: State,
    /// Remaining bytes of the chunk.
    left: u64,
    /// Bytes of framing so far that count.
    excess: u64,
}

impl Chunks {
    /// Whether the end of the body has been read.
    pub fn is_complete(&self) -> bool {
        self.state == State::Done
    }

    /// Checks the next bytes; those behind the end of the body are ignored.
    ///
    /// # Errors
    /// Returns [`Misframed`] if the framing is invalid.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), Misframed> {
        self.decode(bytes, |_| {}).map(drop)
    }

    /// Checks the next bytes, and passes the data between the framing to `data`. Returns how many bytes belong to the
    /// body: fewer than all of them only at its end.
    ///
    /// # Errors
    /// Returns [`Misframed`] if the framing is invalid.
    pub fn decode<'b>(
        &mut self,
        bytes: &'b [u8],
        mut data: impl FnMut(&'b [u8]),
    ) -> Result<usize, Misframed> {
        let length = bytes.len();
        let mut bytes = bytes;
        loop {
            if self.state == State::Data {
                let step = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                let (piece, rest) = bytes.split_at_checked(step).unwrap_or((bytes, &[]));
                if !piece.is_empty() {
                    data(piece);
                }
                self.left -= step as u64;
                bytes = rest;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
            }
            if matches!(self.state, State::Extension | State::Trailer) {
                // Stop at either byte of a line end: a bare line feed must reach `step`, which rejects it.
                let end = memchr::memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len());
                let (line, rest) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
                if !line.iter().copied().all(is_visible) {
                    return Err(Misframed);
                }
                self.count(end as u64)?;
                bytes = rest;
            }
            if self.state == State::Done {
                return Ok(length - bytes.len());
            }
            let Some((byte, rest)) = bytes.split_first() else { return Ok(length) };
            self.state = self.step(*byte)?;
            self.count(1)?;
            if self.state == State::Data {
                self.excess = self.excess.saturating_sub(FREE.saturating_add(self.left / 2));
            }
            bytes = rest;
        }
    }

    /// Counts bytes of framing.
    fn count(&mut self, bytes: u64) -> Result<(), Misframed> {
        self.excess += bytes;
        if self.excess > EXCESS { Err(Misframed) } else { Ok(()) }
    }

    fn step(&mut self, byte: u8) -> Result<State, Misframed> {
        Ok(match (self.state, byte) {
            (State::Begin | State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).ok_or(Misframed)?;
                let size = if self.state == State::Begin { 0 } else { self.left };
                // A size that overflows would wrap to a small one, and the rest of its chunk would be read as framing.
                self.left =
                    size.checked_mul(16).and_then(|size| size.checked_add(digit.into())).ok_or(Misframed)?;
                State::Size
            }
            // BWS before an extension is permitted (RFC 9112, section 7.1.1). Some servers pad a size with spaces.
            (State::Size | State::SizeSpace, b' ' | b'\t') => State::SizeSpace,
            (State::Size | State::SizeSpace, b';') => State::Extension,
            (State::Size | State::SizeSpace | State::Extension, b'\r') => State::SizeEnd,
            (State::SizeEnd, b'\n') if self.left == 0 => State::TrailerBegin,
            (State::SizeEnd, b'\n') => State::Data,
            (State::DataCr, b'\r') => State::DataEnd,
            (State::DataEnd, b'\n') => State::Begin,
            (State::TrailerBegin, b'\r') => State::LastEnd,
            // A lenient parser takes a bare line feed for the empty line that ends the trailers; here it is rejected.
            (State::TrailerBegin | State::TrailerName, byte) if is_token(byte) => State::TrailerName,
            (State::TrailerName, b':') => State::Trailer,
            (State::Trailer, b'\r') => State::TrailerEnd,
            (State::TrailerEnd, b'\n') => State::TrailerBegin,
            (State::LastEnd, b'\n') => State::Done,
            _ => return Err(Misframed),
        })
    }
}

/// Characters of a line of framing (RFC 9110, section 5.5): no control characters but tabs.
fn is_visible(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fed(body: &[u8], size: usize) -> Result<Chunks, Misframed> {
        let mut chunks = Chunks::default();
        for piece in body.chunks(size) {
            chunks.feed(piece)?;
        }
        Ok(chunks)
    }

    #[test]
    fn chunks_end_is_found_at_every_split() {
        let body = b"5\r\na\nb\r\n\r\n00aB;name=\"v\"\r\n".to_vec();
        let body = [body, vec![b'\n'; 0xab], b"\r\n1 ; x\r\nz\r\n0\r\nx: y\r\n\r\nGET /\n".to_vec()].concat();
        for size in 1..body.len() {
            assert_eq!(fed(&body, size).unwrap().state, State::Done, "{size}");
        }
    }

    #[test]
    fn chunks_framing_without_an_end_is_refused() {
        let extension = |length: usize| format!("1;{}\r\nx\r\n", "e".repeat(length));
        let trailers = |count: usize| format!("0\r\n{}\r\n", "x: yyyyyyyy\r\n".repeat(count));
        for (body, valid) in [
            (extension(60_000), true),
            (extension(70_000), false),
            (extension(20).repeat(50_000), true),
            (extension(100).repeat(1_000), false),
            (trailers(4_000), true),
            (trailers(6_000), false),
            (format!("{}1\r\nx\r\n", "0".repeat(70_000)), false),
            // Data makes up for it.
            (format!("20000\r\n{}\r\n{}", "x".repeat(0x20000), extension(60_000)).repeat(5), true),
        ] {
            assert_eq!(fed(body.as_bytes(), body.len()).is_ok(), valid, "{}", body.len());
            assert_eq!(fed(body.as_bytes(), 1_000).is_ok(), valid, "{}", body.len());
        }
    }

    proptest! {
        #[test]
        fn chunks_result_is_the_same_at_every_split(
            parts in prop::collection::vec(prop::sample::select(&[
                "1", "3", "0", "a", "\r\n", "\n", "\r", ";", "x", " ", "3\r\nabc\r\n", "0\r\n\r\n", "0\r\nx: y\r\n",
                "\0", "\t", ":", "x:", "\u{7f}",
            ][..]), 0..14),
            size in 1usize..20,
        ) {
            let body = parts.concat();
            let (whole, cut) = (fed(body.as_bytes(), body.len().max(1)), fed(body.as_bytes(), size));
            prop_assert_eq!(whole.map(|chunks| chunks.state).ok(), cut.map(|chunks| chunks.state).ok());
        }
    }

    #[test]
    fn chunks_misframed_are_refused_at_every_split() {
        for body in [
            "5;a\nb\r\nhello\r\n0\r\n\r\n",
            "5\nhello\r\n0\r\n\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhelloX\r\n0\r\n\r\n",
            "5\r\nhello\r\n0\n\r\n",
            "5\r\nhello\r\n0\r\n\n",
            "5\r\nhello\r\n0\r\nx: y\n\r\n",
            "\r\n",
            "5;a\rb\r\nhello\r\n",
            ";a\r\n",
            "-5\r\n",
            "0x5\r\n",
            "fffffffffffffffff\r\n",
            "5;a\0b\r\nhello\r\n0\r\n\r\n",
            "5;a=\"\u{1}\"\r\nhello\r\n0\r\n\r\n",
            "5;a\u{7f}\r\nhello\r\n0\r\n\r\n",
            "5;\u{b}\r\nhello\r\n0\r\n\r\n",
            "5 a\r\nhello\r\n0\r\n\r\n",
            "5 0\r\nhello\r\n0\r\n\r\n",
            "5\0\r\nhello\r\n0\r\n\r\n",
            "5\r\nhello\r\n0;a\0\r\n\r\n",
            "5\r\nhello\r\n0\r\nx: \0\r\n\r\n",
            "5\r\nhello\r\n0\r\nx\r\n\r\n",
            "5\r\nhello\r\n0\r\nx : y\r\n\r\n",
            "5\r\nhello\r\n0\r\n: y\r\n\r\n",
            "5\r\nhello\r\n0\r\nx: y\r\n z\r\n\r\n",
        ] {
            for size in [1, 3, body.len()] {
                assert_eq!(fed(body.as_bytes(), size).err(), Some(Misframed), "{body:?} {size}");
            }
        }
    }
}
