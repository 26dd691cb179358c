//! Frame headers (RFC 6455, section 5.2) and masks.

use bytes::BufMut;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::OpCode;

/// Longest frame header of a server, in bytes: two, and eight of an extended length.
pub const MAX_HEADER: usize = 10;

/// Appends the header of an unfragmented frame of a server, whose payload has `length` bytes.
#[inline]
pub fn put_header(opcode: OpCode, length: usize, out: &mut impl BufMut) {
    let header = FrameHeader { opcode, ..FrameHeader::default() };
    let written = header.format(length as u64, &mut out.writer());
    debug_assert!(written.is_ok(), "writing to memory cannot fail");
}

/// Unmasks a part of a payload in place; `offset` is its place in the payload, in bytes. The function of `tungstenite`
/// is not public.
pub(super) fn unmask(part: &mut [u8], key: [u8; 4], offset: usize) {
    let [a, b, c, d] = key;
    let key = match offset % 4 {
        0 => [a, b, c, d],
        1 => [b, c, d, a],
        2 => [c, d, a, b],
        _ => [d, a, b, c],
    };
    // Eight bytes at a time: the loop is made into vector instructions.
    let [a, b, c, d] = key;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = part.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}
