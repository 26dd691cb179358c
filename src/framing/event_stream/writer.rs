//! Writer of event stream messages.

use bytes::{BufMut, BytesMut};

use super::checksum::{self, LENGTHS};
use super::header::HeaderValue;
use super::{CHECKSUM_LENGTH, PRELUDE_LENGTH};

/// Writer of one message at the end of a buffer. The payload is appended to the buffer itself, so that it is not
/// copied; lengths and checksums are filled in at the end.
#[derive(Debug)]
#[must_use = "a message without its checksums is invalid"]
pub struct MessageWriter {
    /// Offset of the message in the buffer.
    start: usize,
    /// Length of the headers, in bytes.
    headers: usize,
}

impl MessageWriter {
    /// Begins a message with headers that are written already, in the form of [`put_header`].
    #[inline]
    pub fn begin(headers: &[u8], out: &mut BytesMut) -> Self {
        let start = out.len();
        out.reserve(PRELUDE_LENGTH + headers.len());
        out.put_slice(&[0; PRELUDE_LENGTH]);
        out.put_slice(headers);
        MessageWriter { start, headers: headers.len() }
    }

    /// Ends the message behind the payload, which the caller has appended to `out`.
    ///
    /// A message of 4 GiB or more has no valid length; writers of responses have far smaller ones.
    #[inline]
    pub fn end(self, out: &mut BytesMut) {
        let total = out.len().saturating_sub(self.start).saturating_add(CHECKSUM_LENGTH);
        let [a, b, c, d] = u32::try_from(total).unwrap_or(u32::MAX).to_be_bytes();
        let [e, f, g, h] = u32::try_from(self.headers).unwrap_or(u32::MAX).to_be_bytes();
        let of_lengths = checksum::of_lengths([a, b, c, d, e, f, g, h]);
        let [i, j, k, l] = of_lengths.to_be_bytes();
        if let Some(prelude) = out.get_mut(self.start..).and_then(|message| message.first_chunk_mut()) {
            *prelude = [a, b, c, d, e, f, g, h, i, j, k, l];
        }
        let rest = out.get(self.start + LENGTHS..).unwrap_or_default();
        let checksum = checksum::continued(of_lengths, rest);
        out.put_u32(checksum);
    }

    /// Removes the message from the buffer.
    pub fn cancel(self, out: &mut BytesMut) {
        out.truncate(self.start);
    }
}

/// Writes a header. A name is cut off behind 255 bytes, a string or byte array behind 65,535.
pub fn put_header(name: &str, value: HeaderValue<'_>, out: &mut impl BufMut) {
    let name = name.as_bytes().get(..usize::from(u8::MAX)).unwrap_or(name.as_bytes());
    out.put_u8(u8::try_from(name.len()).unwrap_or(u8::MAX));
    out.put_slice(name);
    match value {
        HeaderValue::Bool(value) => out.put_u8(u8::from(!value)),
        HeaderValue::Byte(value) => {
            out.put_u8(2);
            out.put_i8(value);
        }
        HeaderValue::Int16(value) => {
            out.put_u8(3);
            out.put_i16(value);
        }
        HeaderValue::Int32(value) => {
            out.put_u8(4);
            out.put_i32(value);
        }
        HeaderValue::Int64(value) => {
            out.put_u8(5);
            out.put_i64(value);
        }
        HeaderValue::Bytes(value) => put_counted(6, value, out),
        HeaderValue::Text(value) => put_counted(7, value.as_bytes(), out),
        HeaderValue::Timestamp(value) => {
            out.put_u8(8);
            out.put_i64(value);
        }
        HeaderValue::Uuid(value) => {
            out.put_u8(9);
            out.put_slice(&value);
        }
    }
}

fn put_counted(kind: u8, value: &[u8], out: &mut impl BufMut) {
    let value = value.get(..usize::from(u16::MAX)).unwrap_or(value);
    out.put_u8(kind);
    out.put_u16(u16::try_from(value.len()).unwrap_or(u16::MAX));
    out.put_slice(value);
}
