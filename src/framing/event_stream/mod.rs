//! Binary event streams of AWS: messages of typed headers and a payload, with a checksum over the lengths and one over
//! the whole message.
//!
//! The format is `vnd.amazon.eventstream`
//! (<https://docs.aws.amazon.com/transcribe/latest/dg/streaming-setting-up.html>, the section on event stream
//! encoding). All numbers are big-endian; a checksum is a CRC-32 (IEEE):
//!
//! | offset | field |
//! |---|---|
//! | 0 | total length of the message, 4 bytes |
//! | 4 | length of the headers, 4 bytes |
//! | 8 | checksum of the two lengths, 4 bytes |
//! | 12 | headers: length of the name (1 byte), name, type (1 byte), value |
//! | | payload |
//! | total - 4 | checksum of all bytes before, 4 bytes |
//!
//! [`EventStreamSplitter`] finds the messages in bytes that arrive in pieces, [`EventMessage`] reads one, and
//! [`MessageWriter`] writes one. A stream whose checksum fails cannot be read further: it has no marks at which a
//! reader could begin anew.

mod checksum;
mod header;
mod message;
mod splitter;
mod writer;

#[cfg(test)]
mod tests;

pub use header::{Header, HeaderValue, Headers};
pub use message::{EventMessage, MessageError};
pub use splitter::EventStreamSplitter;
pub use writer::{MessageWriter, put_header};

/// Length of the prelude in bytes: two lengths and their checksum.
pub const PRELUDE_LENGTH: usize = 12;
/// Length of the checksum at the end of a message, in bytes.
pub const CHECKSUM_LENGTH: usize = 4;
/// Maximum length of the headers of a message, in bytes. The limit of the official SDKs.
pub const MAX_HEADERS_LENGTH: usize = 128 << 10;
/// Maximum length of a message, in bytes: a payload of 16 MiB, which is sixteen times what a part of a response of
/// Bedrock may have, with the longest headers.
pub const MAX_MESSAGE_LENGTH: usize = (16 << 20) + MAX_HEADERS_LENGTH + PRELUDE_LENGTH + CHECKSUM_LENGTH;
/// Maximum number of headers of a message. Messages of Bedrock have three. A name is compared with those before it,
/// which would take quadratic time without a limit.
pub const MAX_HEADERS: usize = 64;

/// Lengths of a message, as its prelude states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Prelude {
    /// Length of the whole message, in bytes.
    total: usize,
    /// Length of the headers, in bytes.
    headers: usize,
    /// Checksum of the two lengths, from which that of the message continues.
    checksum: u32,
}

impl Prelude {
    /// Reads and checks the prelude of a message.
    #[inline]
    fn read(prelude: &[u8; PRELUDE_LENGTH]) -> Result<Self, MessageError> {
        let [a, b, c, d, e, f, g, h, expected @ ..] = *prelude;
        let checksum = checksum::of_lengths([a, b, c, d, e, f, g, h]);
        if checksum != u32::from_be_bytes(expected) {
            return Err(MessageError::PreludeChecksum);
        }
        let length = |bytes| usize::try_from(u32::from_be_bytes(bytes)).unwrap_or(usize::MAX);
        let (total, headers) = (length([a, b, c, d]), length([e, f, g, h]));
        if total > MAX_MESSAGE_LENGTH {
            return Err(MessageError::TooLong);
        }
        if headers > MAX_HEADERS_LENGTH || total < PRELUDE_LENGTH + headers + CHECKSUM_LENGTH {
            return Err(MessageError::HeadersLength);
        }
        Ok(Prelude { total, headers, checksum })
    }
}
