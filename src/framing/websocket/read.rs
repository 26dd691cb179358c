//! Frame reader: payloads of messages in parts, and control frames.

use bytes::{Buf as _, Bytes, BytesMut};

use super::close::is_sendable;
use super::header::{OpCode, mask};

/// Longest payload of a control frame, in bytes (RFC 6455, section 5.5).
const MAX_CONTROL: usize = 125;

/// Side of the connection that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketRole {
    /// Reads frames of a client, which must be masked.
    Server,
    /// Reads frames of a server, which must not be masked.
    Client,
}

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// Text. Whether it is UTF-8 is not checked here.
    Text,
    /// Bytes.
    Binary,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A part of a message, with `end` on its last one. A part may be empty.
    Part {
        /// Kind of the message.
        kind: MessageKind,
        /// Payload of the part, unmasked.
        bytes: Bytes,
        /// Whether the message is complete.
        end: bool,
    },
    /// A ping, whose payload the pong repeats.
    Ping(Bytes),
    /// A pong.
    Pong,
    /// The peer closes the connection; `None` if it gives no code.
    Close(Option<u16>),
}

/// Violation of the protocol, or of the message limit. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameFault {
    /// A reserved bit is set, although no extension was negotiated.
    #[error("a reserved bit is set")]
    ReservedBit,
    /// An unknown opcode.
    #[error("the opcode is unknown")]
    OpCode,
    /// A frame of a client is not masked, or a frame of a server is.
    #[error("the masking of the frame is wrong")]
    Masking,
    /// A control frame is fragmented or longer than 125 bytes.
    #[error("a control frame is fragmented or too long")]
    Control,
    /// A fragment continues no message, or a message begins inside another one.
    #[error("the fragments of messages are out of order")]
    Fragment,
    /// A length is not written in the shortest form.
    #[error("the length of a frame is not in its shortest form")]
    Length,
    /// The payload of a close frame is not a valid code with a reason.
    #[error("the close frame is not valid")]
    Close,
    /// A message is larger than the limit.
    #[error("a message is larger than {0} bytes")]
    TooBig(usize),
}

/// Frame whose header was read and whose payload was not.
#[derive(Clone, Copy, Debug)]
struct Open {
    opcode: OpCode,
    end: bool,
    key: Option<[u8; 4]>,
    left: usize,
    /// Bytes of the payload that were read already: the place in the masking key.
    read: usize,
}

/// Frame reader. Stores a few bytes of state and no payload.
#[derive(Debug)]
pub struct FrameReader {
    role: SocketRole,
    limit: usize,
    /// Kind of the message whose fragments are being read, and its length so far.
    message: Option<(MessageKind, usize)>,
    open: Option<Open>,
}

impl FrameReader {
    /// Creates a reader for one side of the connection; `limit` is the largest message in bytes.
    pub fn new(role: SocketRole, limit: usize) -> Self {
        FrameReader { role, limit, message: None, open: None }
    }

    /// Returns whether a message or frame has begun that is not complete.
    pub fn is_partial(&self) -> bool {
        self.message.is_some() || self.open.is_some()
    }

    /// Returns how many bytes the payload of the current frame still has; 0 between frames.
    pub fn left(&self) -> usize {
        self.open.map_or(0, |open| open.left)
    }

    /// Takes the next part or control frame out of `buf`. `None` if more bytes are needed; the bytes of an incomplete
    /// header or control frame stay in `buf`.
    ///
    /// # Errors
    /// Returns [`FrameFault`] if the peer violates the protocol or the limit.
    pub fn next(&mut self, buf: &mut BytesMut) -> Result<Option<Incoming>, FrameFault> {
        let mut open = match self.open {
            Some(open) => open,
            None => match self.header(buf)? {
                Some(open) => open,
                None => return Ok(None),
            },
        };
        self.open = Some(open);
        let ready = buf.len().min(open.left);
        if open.opcode.is_control() {
            if ready < open.left {
                return Ok(None);
            }
            self.open = None;
            return control(open, take(buf, ready, open)).map(Some);
        }
        if ready == 0 && open.left > 0 {
            return Ok(None);
        }
        let bytes = take(buf, ready, open);
        open.left -= ready;
        open.read += ready;
        let complete = open.left == 0;
        let Some((kind, length)) = self.message else { return Err(FrameFault::Fragment) };
        let end = complete && open.end;
        self.open = (!complete).then_some(open);
        self.message = (!end).then_some((kind, length + ready));
        Ok(Some(Incoming::Part { kind, bytes, end }))
    }

    /// Reads a header. `None` if it is incomplete.
    fn header(&mut self, buf: &mut BytesMut) -> Result<Option<Open>, FrameFault> {
        let (Some(&first), Some(&second)) = (buf.first(), buf.get(1)) else { return Ok(None) };
        if first & 0x70 != 0 {
            return Err(FrameFault::ReservedBit);
        }
        let opcode = OpCode::of(first & 0x0f).ok_or(FrameFault::OpCode)?;
        let end = first & 0x80 != 0;
        let masked = second & 0x80 != 0;
        if masked != (self.role == SocketRole::Server) {
            return Err(FrameFault::Masking);
        }
        let short = usize::from(second & 0x7f);
        if opcode.is_control() && (!end || short > MAX_CONTROL) {
            return Err(FrameFault::Control);
        }
        let extended = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let header = 2 + extended + if masked { 4 } else { 0 };
        let Some(head) = buf.get(2..header) else { return Ok(None) };
        let (length, key) = head.split_at_checked(extended).unwrap_or_default();
        let length = if extended == 0 {
            short
        } else {
            let number = length.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
            let least = if extended == 2 { 126 } else { 1 << 16 };
            // The highest bit must be 0 (RFC 6455, section 5.2).
            if number < least || number >> 63 != 0 {
                return Err(FrameFault::Length);
            }
            usize::try_from(number).map_err(|_| FrameFault::TooBig(self.limit))?
        };
        let key = key.first_chunk::<4>().copied().filter(|_| masked);
        buf.advance(header);
        if !opcode.is_control() {
            self.begin(opcode, length)?;
        }
        Ok(Some(Open { opcode, end, key, left: length, read: 0 }))
    }

    /// Begins a frame of a message: checks the order of fragments and the limit.
    fn begin(&mut self, opcode: OpCode, length: usize) -> Result<(), FrameFault> {
        let before = match (opcode, self.message) {
            (OpCode::Continuation, Some((_, before))) => before,
            (OpCode::Text, None) => {
                self.message = Some((MessageKind::Text, 0));
                0
            }
            (OpCode::Binary, None) => {
                self.message = Some((MessageKind::Binary, 0));
                0
            }
            _ => return Err(FrameFault::Fragment),
        };
        // Before the payload arrives: what is refused is not read.
        if length > self.limit.saturating_sub(before) {
            return Err(FrameFault::TooBig(self.limit));
        }
        Ok(())
    }
}

/// Takes bytes of the current payload out of the buffer and unmasks them.
fn take(buf: &mut BytesMut, length: usize, open: Open) -> Bytes {
    let mut part = buf.split_to(length);
    if let Some(key) = open.key {
        mask(&mut part, key, open.read);
    }
    part.freeze()
}

fn control(open: Open, payload: Bytes) -> Result<Incoming, FrameFault> {
    match open.opcode {
        OpCode::Ping => Ok(Incoming::Ping(payload)),
        OpCode::Pong => Ok(Incoming::Pong),
        _ => match payload.split_first_chunk::<2>() {
            None if payload.is_empty() => Ok(Incoming::Close(None)),
            Some((code, reason))
                if is_sendable(u16::from_be_bytes(*code)) && std::str::from_utf8(reason).is_ok() =>
            {
                Ok(Incoming::Close(Some(u16::from_be_bytes(*code))))
            }
            _ => Err(FrameFault::Close),
        },
    }
}
