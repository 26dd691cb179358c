//! What waits to be written to a socket, and the frames of events.

use std::collections::VecDeque;
use std::io;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use smallvec::SmallVec;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use framing::websocket::{Control, Data, MAX_HEADER, OpCode, put_header};

/// Size from which the payload of an event is written from where it is, instead of being copied behind its header, in
/// bytes: then a write of its own costs less than the copy.
const LARGE: usize = 16 * 1024;

/// Queued bytes beyond which the socket is not read, so that a client that sends and never reads cannot make the queue
/// grow.
const FULL: usize = 16 * 1024;
/// Bytes that a queued frame takes beside its own: a client can cause thousands of two bytes each.
const FRAME: usize = 64;

/// Frames in the order in which they are written: whole messages, each in one or several pieces.
pub(super) type FrameBatch = SmallVec<[Bytes; 3]>;

/// Queue of frames to write.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Bytes>,
    length: usize,
    unflushed: bool,
}

impl Outbox {
    /// Appends bytes.
    pub(super) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.length += bytes.len();
            self.queue.push_back(bytes);
        }
    }

    /// Appends a control frame.
    pub(super) fn push_control(&mut self, opcode: Control, payload: &[u8]) {
        self.push_frame(OpCode::Control(opcode), payload);
    }

    /// Appends a text message that is not part of a stream.
    pub(super) fn push_text(&mut self, text: &[u8]) {
        self.push_frame(OpCode::Data(Data::Text), text);
    }

    fn push_frame(&mut self, opcode: OpCode, payload: &[u8]) {
        let mut frame = BytesMut::with_capacity(MAX_HEADER + payload.len());
        put_header(opcode, payload.len(), &mut frame);
        frame.put_slice(payload);
        self.push(frame.freeze());
    }

    /// Returns the number of bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Returns whether everything was written and flushed.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && !self.unflushed
    }

    /// Returns whether nothing more may be caused by what the client sends.
    pub(super) fn is_full(&self) -> bool {
        self.length + self.queue.len() * FRAME >= FULL
    }

    /// Writes and flushes everything. Cancel-safe: what was written is removed.
    pub(super) async fn write(&mut self, io: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        while let Some(front) = self.queue.front_mut() {
            let written = io.write(front).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            front.advance(written);
            self.length -= written;
            self.unflushed = true;
            if front.is_empty() {
                self.queue.pop_front();
            }
        }
        if self.unflushed {
            io.flush().await?;
            self.unflushed = false;
        }
        // A burst must not leave its memory to an idle socket.
        if self.queue.capacity() > 8 {
            self.queue = VecDeque::new();
        }
        Ok(())
    }
}

/// Writer of the frames of one response's events.
#[derive(Debug, Default)]
pub(super) struct FrameWriter {
    /// Member that marks the events of a lane, written behind their opening brace. Empty without a lane.
    lane: Bytes,
    out: BytesMut,
    frames: FrameBatch,
}

impl FrameWriter {
    /// Creates a writer; `lane` is the member that marks the events of a lane.
    pub(super) fn new(lane: Bytes) -> Self {
        FrameWriter { lane, ..FrameWriter::default() }
    }

    /// Writes an event: a JSON object that begins with its brace.
    pub(super) fn event(&mut self, event: &Bytes) {
        let empty = event.get(1..).unwrap_or_default().trim_ascii_start().first() == Some(&b'}');
        let lane = if empty { Bytes::new() } else { self.lane.clone() };
        let length = event.len() + lane.len();
        self.out.reserve(MAX_HEADER + lane.len() + 1 + if event.len() < LARGE { event.len() } else { 0 });
        put_header(OpCode::Data(Data::Text), length, &mut self.out);
        let rest = if lane.is_empty() {
            event.clone()
        } else {
            self.out.put_u8(b'{');
            self.out.put_slice(&lane);
            event.slice(1.min(event.len())..)
        };
        if rest.len() < LARGE {
            self.out.put_slice(&rest);
        } else {
            self.frames.push(self.out.split().freeze());
            self.frames.push(rest);
        }
    }

    /// Takes the frames written so far.
    pub(super) fn take(&mut self) -> FrameBatch {
        if !self.out.is_empty() {
            self.frames.push(self.out.split().freeze());
        }
        std::mem::take(&mut self.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(frames: FrameBatch) -> Vec<String> {
        let io = io::Cursor::new(frames.concat());
        let mut client =
            tungstenite::WebSocket::from_raw_socket(io, tungstenite::protocol::Role::Client, None);
        let mut events = Vec::new();
        while let Ok(tungstenite::Message::Text(text)) = client.read() {
            events.push(text.to_string());
        }
        events
    }

    #[test]
    fn frames_of_small_and_large_events_are_marked_with_the_lane() {
        let large = format!("{{\"a\":\"{}\"}}", "x".repeat(LARGE));
        for (lane, marked) in [("", ""), ("\"stream_id\":\"s\",", "\"stream_id\":\"s\",")] {
            let mut writer = FrameWriter::new(Bytes::from_static(lane.as_bytes()));
            for event in ["{\"b\":1}", &large, "{}", "{ }"] {
                writer.event(&Bytes::copy_from_slice(event.as_bytes()));
            }
            let with_lane = |event: &str| format!("{{{marked}{}", &event[1..]);
            assert_eq!(
                read(writer.take()),
                [with_lane("{\"b\":1}"), with_lane(&large), "{}".into(), "{ }".into()]
            );
            assert!(writer.take().is_empty());
        }
    }

    #[tokio::test]
    async fn outbox_is_written_in_order_through_a_narrow_connection() {
        let (mut ours, mut theirs) = tokio::io::duplex(7);
        let mut outbox = Outbox::default();
        outbox.push(Bytes::from_static(b"head"));
        outbox.push_control(Control::Ping, b"12345678901234567890");
        outbox.push(Bytes::new());
        assert!(!outbox.is_empty() && !outbox.is_full());
        let reading = tokio::spawn(async move {
            let mut all = vec![0; 26];
            tokio::io::AsyncReadExt::read_exact(&mut theirs, &mut all).await.unwrap();
            all
        });
        outbox.write(&mut ours).await.unwrap();
        assert!(outbox.is_empty());
        assert_eq!(&reading.await.unwrap()[..6], b"head\x89\x14");
        outbox.push(Bytes::from(vec![0; FULL]));
        assert!(outbox.is_full());
        // Short frames take more memory than their bytes.
        let mut outbox = Outbox::default();
        (0..FULL / FRAME).for_each(|_| outbox.push_control(Control::Pong, b""));
        assert!(outbox.is_full() && outbox.len() < FULL / 8);
    }
}
