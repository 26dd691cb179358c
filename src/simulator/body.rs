//! Response body: a list of steps, played while the client reads.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::server::InFlight;

/// Slice size of large bodies in bytes. Small slices reveal a client that disconnects midway before the whole body is
/// in hyper's buffer.
const SLICE: usize = 64 * 1024;

/// Step of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Sends one data frame, written as one HTTP chunk.
    Send(Bytes),
    /// Pauses. Earlier data is flushed.
    Wait(Duration),
    /// Flushes earlier data.
    Flush,
    /// Sends nothing more and keeps the connection open.
    Stall,
    /// Resets the connection (HTTP/2: the stream).
    Cut,
}

/// Error that ends a body intentionally. hyper closes the connection on it.
#[derive(Debug, thiserror::Error)]
#[error("the answer was cut on purpose")]
pub(super) struct Cut;

/// Plays steps as a hyper body, and marks the request's [`InFlight`] as complete with the last one.
#[derive(Debug)]
pub(super) struct Playback {
    steps: VecDeque<Step>,
    /// Known length in bytes, for `content-length`. `None` for streams.
    length: Option<u64>,
    timer: Option<Pin<Box<Sleep>>>,
    stalled: bool,
    in_flight: InFlight,
}

impl Playback {
    /// Returns a body of steps, without a declared length.
    pub(super) fn steps(steps: Vec<Step>, in_flight: InFlight) -> Playback {
        Playback { steps: steps.into(), length: None, timer: None, stalled: false, in_flight }
    }

    /// Returns a body of known content and length.
    pub(super) fn whole(bytes: &Bytes, mut in_flight: InFlight) -> Playback {
        let steps: VecDeque<Step> = slices(bytes).map(Step::Send).collect();
        if steps.is_empty() {
            // hyper does not poll a body that is already at its end.
            in_flight.complete();
        }
        Playback { steps, length: Some(bytes.len() as u64), timer: None, stalled: false, in_flight }
    }
}

/// Splits bytes into slices of at most [`SLICE`].
pub(super) fn slices(bytes: &Bytes) -> impl Iterator<Item = Bytes> {
    let mut rest = bytes.clone();
    std::iter::from_fn(move || {
        let next = rest.split_to(rest.len().min(SLICE));
        (!next.is_empty()).then_some(next)
    })
}

impl Body for Playback {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        loop {
            if self.stalled {
                return Poll::Pending;
            }
            if let Some(timer) = self.timer.as_mut() {
                if timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.timer = None;
            }
            match self.steps.pop_front() {
                None => {
                    self.in_flight.complete();
                    return Poll::Ready(None);
                }
                Some(Step::Send(bytes)) => {
                    // Complete before the last data leaves: a client may disconnect as soon as it has the whole
                    // response.
                    if self.steps.is_empty() {
                        self.in_flight.complete();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(Step::Wait(time)) => self.timer = Some(Box::pin(tokio::time::sleep(time))),
                // hyper flushes its write buffer when a body is pending.
                Some(Step::Flush) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(Step::Stall) => self.stalled = true,
                Some(Step::Cut) => {
                    self.in_flight.complete();
                    return Poll::Ready(Some(Err(Cut)));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        // A stream without frames is not at its end yet: its final chunk must be written.
        self.length.is_some() && self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self.length {
            Some(_) => SizeHint::with_exact(
                self.steps.iter().map(|s| if let Step::Send(b) = s { b.len() as u64 } else { 0 }).sum(),
            ),
            None => SizeHint::default(),
        }
    }
}
