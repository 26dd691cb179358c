//! Frame reader: payloads of messages in parts, and control frames.

use std::io::Cursor;

use bytes::{Buf as _, Bytes, BytesMut};
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

use super::header::unmask;
use super::utf8::Utf8Check;

/// Longest payload of a control frame, in bytes (RFC 6455, section 5.5).
const MAX_CONTROL: u64 = 125;

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// Text, which is UTF-8: a part may end inside a character, the message does not.
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
    /// A frame of a client is not masked.
    #[error("the frame is not masked")]
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
    /// A text message is not UTF-8.
    #[error("a text message is not UTF-8")]
    Utf8,
    /// A message is larger than the limit.
    #[error("a message is larger than {0} bytes")]
    TooBig(usize),
}

/// Frame whose header was read and whose payload was not.
#[derive(Clone, Copy, Debug)]
struct Open {
    opcode: OpCode,
    end: bool,
    key: [u8; 4],
    left: usize,
    /// Bytes of the payload that were read already: the place in the masking key.
    read: usize,
}

/// Reader of a client's frames. Stores a few bytes of state and no payload.
#[derive(Debug)]
pub struct FrameReader {
    limit: usize,
    /// Kind of the message whose fragments are being read, and its length so far.
    message: Option<(MessageKind, usize)>,
    text: Utf8Check,
    open: Option<Open>,
}

impl FrameReader {
    /// Creates a reader; `limit` is the largest message in bytes.
    pub fn new(limit: usize) -> Self {
        FrameReader { limit, message: None, text: Utf8Check::default(), open: None }
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
        if let OpCode::Control(opcode) = open.opcode {
            if ready < open.left {
                return Ok(None);
            }
            self.open = None;
            return control(opcode, take(buf, ready, open)).map(Some);
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
        if kind == MessageKind::Text && !self.text.push(&bytes, end) {
            return Err(FrameFault::Utf8);
        }
        self.open = (!complete).then_some(open);
        self.message = (!end).then_some((kind, length + ready));
        Ok(Some(Incoming::Part { kind, bytes, end }))
    }

    /// Reads a header. `None` if it is incomplete.
    fn header(&mut self, buf: &mut BytesMut) -> Result<Option<Open>, FrameFault> {
        let mut cursor = Cursor::new(&*buf);
        let (header, length) = match FrameHeader::parse(&mut cursor) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return Ok(None),
            // A header in memory has no other error.
            Err(_) => return Err(FrameFault::OpCode),
        };
        let size = usize::try_from(cursor.position()).unwrap_or(usize::MAX);
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(FrameFault::ReservedBit);
        }
        let Some(key) = header.mask else { return Err(FrameFault::Masking) };
        let is_control = matches!(header.opcode, OpCode::Control(_));
        if is_control && (!header.is_final || length > MAX_CONTROL) {
            return Err(FrameFault::Control);
        }
        // The highest bit must be 0, and the length in its shortest form (RFC 6455, section 5.2).
        if length >> 63 != 0 || header.len(length) != size {
            return Err(FrameFault::Length);
        }
        let length = usize::try_from(length).map_err(|_| FrameFault::TooBig(self.limit))?;
        buf.advance(size);
        if let OpCode::Data(opcode) = header.opcode {
            self.begin(opcode, length)?;
        }
        Ok(Some(Open { opcode: header.opcode, end: header.is_final, key, left: length, read: 0 }))
    }

    /// Begins a frame of a message: checks the order of fragments and the limit.
    fn begin(&mut self, opcode: Data, length: usize) -> Result<(), FrameFault> {
        let before = match (opcode, self.message) {
            (Data::Continue, Some((_, before))) => before,
            (Data::Text, None) => {
                self.message = Some((MessageKind::Text, 0));
                self.text = Utf8Check::default();
                0
            }
            (Data::Binary, None) => {
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
    unmask(&mut part, open.key, open.read);
    part.freeze()
}

fn control(opcode: Control, payload: Bytes) -> Result<Incoming, FrameFault> {
    match opcode {
        Control::Ping => Ok(Incoming::Ping(payload)),
        Control::Pong => Ok(Incoming::Pong),
        Control::Close | Control::Reserved(_) => match payload.split_first_chunk::<2>() {
            None if payload.is_empty() => Ok(Incoming::Close(None)),
            Some((code, reason))
                if CloseCode::from(u16::from_be_bytes(*code)).is_allowed()
                    && std::str::from_utf8(reason).is_ok() =>
            {
                Ok(Incoming::Close(Some(u16::from_be_bytes(*code))))
            }
            _ => Err(FrameFault::Close),
        },
    }
}
