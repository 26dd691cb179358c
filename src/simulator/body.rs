//! The body of an answer: a list of steps that is played while the client reads.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::server::InFlight;

/// Large bodies are handed over in slices of this size, so that a client that goes away in the middle is noticed
/// before everything was handed to the connection.
const SLICE: usize = 64 * 1024;

/// One step of playing a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// One data frame, written as one HTTP chunk.
    Send(Bytes),
    /// A pause; what was sent before it is flushed.
    Wait(Duration),
    /// What was sent before is flushed.
    Flush,
    /// Nothing more ever comes, and the connection stays open.
    Stall,
    /// The connection is aborted (HTTP/2: the stream is reset).
    Cut,
}

/// The body was cut on purpose; hyper closes the connection when it sees this.
#[derive(Debug, thiserror::Error)]
#[error("the answer was cut on purpose")]
pub(super) struct Cut;

/// Plays steps as a hyper body, and tells the request's [`InFlight`] when the answer is complete.
#[derive(Debug)]
pub(super) struct Playback {
    steps: VecDeque<Step>,
    /// Known length, for `content-length`; streams have none.
    length: Option<u64>,
    timer: Option<Pin<Box<Sleep>>>,
    stalled: bool,
    in_flight: InFlight,
}

impl Playback {
    /// A body of steps whose length is not said beforehand.
    pub(super) fn steps(steps: Vec<Step>, in_flight: InFlight) -> Playback {
        Playback { steps: steps.into(), length: None, timer: None, stalled: false, in_flight }
    }

    /// A body that is known as a whole.
    pub(super) fn whole(bytes: &Bytes, mut in_flight: InFlight) -> Playback {
        let steps: VecDeque<Step> = slices(bytes).map(Step::Send).collect();
        if steps.is_empty() {
            // hyper does not poll a body that is at its end.
            in_flight.complete();
        }
        Playback { steps, length: Some(bytes.len() as u64), timer: None, stalled: false, in_flight }
    }
}

/// The bytes in pieces of at most [`SLICE`].
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
                    if self.steps.is_empty() {
                        self.in_flight.complete();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(Step::Wait(time)) => self.timer = Some(Box::pin(tokio::time::sleep(time))),
                // hyper flushes whenever a body is pending.
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
        // Of a stream without a single frame, too, the end has to be written as a stream's end.
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
