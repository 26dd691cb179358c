//! Body of an answer of the admin port: a document, or pieces that a thread or a task writes.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Pieces that wait for the client. A writer that is ahead waits.
const PIECES: usize = 4;
/// Size in bytes at which a piece is sent.
const PIECE: usize = 64 << 10;
/// Time that a client may take to read a piece. A client that has stopped reading would hold its place for ever.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Body of an answer.
#[derive(Debug)]
pub(super) enum AnswerBody {
    /// Document; empty once it is sent.
    Whole(Bytes),
    /// Pieces, until their sender is dropped.
    Pieces(mpsc::Receiver<Bytes>),
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            AnswerBody::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            AnswerBody::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            AnswerBody::Pieces(pieces) => {
                pieces.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, AnswerBody::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            AnswerBody::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            AnswerBody::Pieces(_) => SizeHint::default(),
        }
    }
}

/// Returns a sender of pieces and their body.
pub(super) fn pieces() -> (mpsc::Sender<Bytes>, AnswerBody) {
    let (sender, receiver) = mpsc::channel(PIECES);
    (sender, AnswerBody::Pieces(receiver))
}

/// Writer of pieces for a thread that may block.
pub(super) struct PieceWriter {
    runtime: Handle,
    sender: mpsc::Sender<Bytes>,
    buffer: Vec<u8>,
}

impl PieceWriter {
    /// Creates a writer on a thread of the runtime.
    pub(super) fn new(sender: mpsc::Sender<Bytes>) -> Self {
        PieceWriter { runtime: Handle::current(), sender, buffer: Vec::with_capacity(PIECE) }
    }
}

impl io::Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.buffer, Vec::with_capacity(PIECE));
        let sent = self.runtime.block_on(self.sender.send_timeout(piece.into(), WRITE_TIMEOUT));
        // The client has left, or does not read.
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
