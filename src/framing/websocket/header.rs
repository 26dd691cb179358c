//! Frame headers (RFC 6455, section 5.2).

use bytes::{BufMut, BytesMut};

/// Longest frame header, in bytes: two, eight of an extended length, four of a masking key.
pub const MAX_HEADER: usize = 14;

/// Opcode of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpCode {
    /// A further fragment of a message.
    Continuation,
    /// A message of UTF-8 text, or its first fragment.
    Text,
    /// A message of bytes, or its first fragment.
    Binary,
    /// The end of the connection.
    Close,
    /// A request for a pong.
    Ping,
    /// The answer to a ping.
    Pong,
}

impl OpCode {
    /// Returns the opcode with this number; `None` for a reserved one.
    pub(super) const fn of(number: u8) -> Option<OpCode> {
        match number {
            0 => Some(OpCode::Continuation),
            1 => Some(OpCode::Text),
            2 => Some(OpCode::Binary),
            8 => Some(OpCode::Close),
            9 => Some(OpCode::Ping),
            10 => Some(OpCode::Pong),
            _ => None,
        }
    }

    const fn number(self) -> u8 {
        match self {
            OpCode::Continuation => 0,
            OpCode::Text => 1,
            OpCode::Binary => 2,
            OpCode::Close => 8,
            OpCode::Ping => 9,
            OpCode::Pong => 10,
        }
    }

    /// Returns whether frames of this opcode control the connection: they are short and never fragmented.
    pub const fn is_control(self) -> bool {
        matches!(self, OpCode::Close | OpCode::Ping | OpCode::Pong)
    }
}

/// Appends the header of an unfragmented frame of a server, whose payload has `length` bytes.
#[inline]
pub fn put_header(opcode: OpCode, length: usize, out: &mut impl BufMut) {
    put(opcode, length, 0, out);
}

/// Appends an unfragmented frame of a client, whose payload is masked with `key` (RFC 6455, section 5.3).
pub fn put_masked(opcode: OpCode, payload: &[u8], key: [u8; 4], out: &mut BytesMut) {
    out.reserve(MAX_HEADER + payload.len());
    put(opcode, payload.len(), 0x80, out);
    out.put_slice(&key);
    let start = out.len();
    out.put_slice(payload);
    mask(out.get_mut(start..).unwrap_or_default(), key, 0);
}

fn put(opcode: OpCode, length: usize, masked: u8, out: &mut impl BufMut) {
    const FIN: u8 = 0x80;
    out.put_u8(FIN | opcode.number());
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..=125), _) => out.put_u8(masked | short),
        (_, Ok(medium)) => {
            out.put_u8(masked | 126);
            out.put_u16(medium);
        }
        _ => {
            out.put_u8(masked | 127);
            out.put_u64(length as u64);
        }
    }
}

/// Masks or unmasks a part of a payload in place; `offset` is its place in the payload, in bytes.
pub fn mask(part: &mut [u8], key: [u8; 4], offset: usize) {
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
