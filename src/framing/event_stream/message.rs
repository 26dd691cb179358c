//! Message of an event stream, read from its bytes without a copy.

use smallvec::SmallVec;

use super::checksum::{self, LENGTHS};
use super::header::Headers;
use super::{CHECKSUM_LENGTH, MAX_HEADERS, PRELUDE_LENGTH, Prelude};

/// Reason why bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The bytes end before the message does, or go on behind it.
    #[error("the message of the event stream is incomplete")]
    Incomplete,
    /// The checksum of the lengths is wrong.
    #[error("the prelude of the event stream message has a wrong checksum")]
    PreludeChecksum,
    /// The checksum of the message is wrong.
    #[error("the event stream message has a wrong checksum")]
    Checksum,
    /// The message is longer than [`MAX_MESSAGE_LENGTH`](super::MAX_MESSAGE_LENGTH).
    #[error("the event stream message is too long")]
    TooLong,
    /// The headers are longer than the message or than [`MAX_HEADERS_LENGTH`](super::MAX_HEADERS_LENGTH).
    #[error("the headers of the event stream message have an invalid length")]
    HeadersLength,
    /// A header runs past the headers, or has no name.
    #[error("a header of the event stream message has an invalid length")]
    HeaderLength,
    /// A header has a type that is not defined.
    #[error("a header of the event stream message has the unknown type {0}")]
    HeaderType(u8),
    /// A name or a string is not UTF-8.
    #[error("a header of the event stream message is not UTF-8")]
    HeaderText,
    /// Two headers have the same name.
    #[error("the event stream message has a header twice")]
    DuplicateHeader,
    /// The message has more than [`MAX_HEADERS`] headers.
    #[error("the event stream message has too many headers")]
    TooManyHeaders,
}

/// Message of an event stream.
#[derive(Clone, Copy, Debug)]
pub struct EventMessage<'a> {
    headers: &'a [u8],
    payload: &'a [u8],
}

impl<'a> EventMessage<'a> {
    /// Parses the bytes of one message: checks both checksums and every header.
    ///
    /// # Errors
    /// Returns [`MessageError`] if the bytes are not exactly one valid message.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let message = EventMessage::parse_checksums(bytes)?;
        message.check_headers()?;
        Ok(message)
    }

    /// Parses the bytes of one message: checks both checksums, but not the headers. For readers that compare
    /// [`header_bytes`](Self::header_bytes) with headers that they know; all others call
    /// [`check_headers`](Self::check_headers).
    ///
    /// # Errors
    /// Returns [`MessageError`] if the bytes are not exactly one message.
    #[inline]
    pub fn parse_checksums(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let prelude = Prelude::read(bytes.first_chunk().ok_or(MessageError::Incomplete)?)?;
        if bytes.len() != prelude.total {
            return Err(MessageError::Incomplete);
        }
        let (body, expected) = bytes.split_last_chunk::<CHECKSUM_LENGTH>().ok_or(MessageError::Incomplete)?;
        let rest = body.get(LENGTHS..).ok_or(MessageError::Incomplete)?;
        if checksum::continued(prelude.checksum, rest) != u32::from_be_bytes(*expected) {
            return Err(MessageError::Checksum);
        }
        let content = body.get(PRELUDE_LENGTH..).unwrap_or_default();
        let (headers, payload) =
            content.split_at_checked(prelude.headers).ok_or(MessageError::HeadersLength)?;
        Ok(EventMessage { headers, payload })
    }

    /// Checks every header.
    ///
    /// # Errors
    /// Returns [`MessageError`] if a header is malformed or occurs twice, or if there are too many.
    pub fn check_headers(&self) -> Result<(), MessageError> {
        let mut names: SmallVec<[&str; 8]> = SmallVec::new();
        for header in self.headers() {
            let name = header?.name;
            if names.contains(&name) {
                return Err(MessageError::DuplicateHeader);
            }
            if names.len() == MAX_HEADERS {
                return Err(MessageError::TooManyHeaders);
            }
            names.push(name);
        }
        Ok(())
    }

    /// Returns the headers as they were received, from the length of the first name to the end of the last value.
    #[inline]
    pub fn header_bytes(&self) -> &'a [u8] {
        self.headers
    }

    /// Returns the headers, in their order.
    pub fn headers(&self) -> Headers<'a> {
        Headers::new(self.headers)
    }

    /// Returns the value of a header that is a string; `None` if there is none of this name and type.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.headers().filter_map(Result::ok).find(|header| header.name == name)?.value.as_text()
    }

    /// Returns the payload.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}
