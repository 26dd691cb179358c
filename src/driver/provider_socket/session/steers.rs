//! Input of the client during the response on a provider's WebSocket.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::Sink as _;
use tungstenite::{Message, Utf8Bytes};

use super::{Phase, State};
use codec::wire::responses::socket::provider::put_server_sent;
use codec::wire::responses::socket::{Steer, steer_failed};
use json::from_utf8;

/// Type of the event that returns an input.
const STEER_FAILED: &str = "response.steer.failed";

impl State {
    /// Sends input for the response. Ends only with an error.
    pub(super) fn poll_steers(&mut self, cx: &mut Context<'_>) -> Poll<tungstenite::Error> {
        let Some(inbox) = self.inbox.clone().filter(|_| self.phase == Phase::Busy) else {
            return Poll::Pending;
        };
        let mut ws = Pin::new(&mut self.ws);
        loop {
            if self.is_unflushed {
                match ready!(ws.as_mut().poll_flush(cx)) {
                    Ok(()) => self.is_unflushed = false,
                    Err(error) => return Poll::Ready(error),
                }
            }
            if self.outgoing.is_none() {
                let steer = ready!(inbox.poll_next(cx));
                // A string: UTF-8 was checked when the event was read.
                self.outgoing = Utf8Bytes::try_from(steer.event()).ok().map(Message::Text);
                self.steers.push(steer);
            }
            if let Err(error) = ready!(ws.as_mut().poll_ready(cx)) {
                return Poll::Ready(error);
            }
            if let Some(message) = self.outgoing.take() {
                if let Err(error) = ws.as_mut().start_send(message) {
                    return Poll::Ready(error);
                }
                self.is_unflushed = true;
            }
        }
    }

    /// Ends the response, unless inputs for it are pending: what becomes of them follows.
    pub(super) fn end(&mut self, is_steered: bool) {
        if self.steers.end(is_steered) && self.inbox.is_some() {
            self.has_ended = true;
            return;
        }
        self.set_ready();
    }

    /// Takes no more input: the socket can take another request. Inputs that were not sent, or are lost with a response
    /// that has failed, are returned to the client.
    pub(super) fn set_ready(&mut self) {
        self.phase = Phase::Ready;
        self.outgoing = None;
        let unsent = self.inbox.take().map(|inbox| inbox.close()).unwrap_or_default();
        let lost: Vec<Steer> = self.steers.fail().chain(unsent).collect();
        for steer in lost {
            let message = "The response has ended.";
            let event = steer_failed(&steer, "response_already_completed", message);
            put_server_sent(STEER_FAILED, from_utf8(&event).unwrap_or_default(), &mut self.out);
        }
    }
}
