//! Input for a response in progress (`response.steer`), on its way from the socket of the client to that of the provider.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::body_memory::MemoryPermit;
use codec::wire::responses::socket::Steer;
use storage::ledger::{AccountId, Ledger};

/// Inputs that one request may be steered with. Each may make the provider generate another response, for which no
/// balance is reserved.
const MAX_STEERS: usize = 16;

/// Input for one response: the socket of the client puts it in, the session of the provider's socket takes it out.
#[derive(Default)]
pub struct SteerInbox(Mutex<Inbox>);

#[derive(Default)]
struct Inbox {
    /// Id of the response in progress; empty while none takes input.
    id: Box<str>,
    /// Inputs that the session has not sent.
    waiting: VecDeque<Steer>,
    /// Inputs that the session was given, for the memory of the client's socket.
    given: VecDeque<SteerItems>,
    count: usize,
    /// Whether the response reaches the client as it is, so that the meter counts its successors too.
    is_verbatim: bool,
    payer: Option<Payer>,
    waker: Option<Waker>,
}

/// Account that pays for the successors.
pub struct Payer {
    /// Where its balance is.
    pub ledger: Arc<dyn Ledger>,
    /// The account.
    pub account: AccountId,
}

/// Input items as they stand in a conversation, with the memory of the message that they came in.
#[derive(Debug)]
pub struct SteerItems {
    /// Elements of a JSON array, without its brackets.
    pub items: Bytes,
    /// `None` for a small message.
    pub _permit: Option<MemoryPermit>,
}

/// Reason for which input is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteerRefusal {
    /// The response is another one, has ended, or comes from a provider that takes no input.
    NoTarget,
    /// The response has been given as many inputs as it may.
    TooMany,
    /// The account has no balance left.
    NoBalance,
}

impl SteerInbox {
    /// Opens the inbox: the response passes to the client unchanged. `payer` is the account that pays for it.
    pub fn open(&self, payer: Option<Payer>) {
        let mut inbox = self.0.lock();
        inbox.is_verbatim = true;
        inbox.payer = payer;
    }

    /// Sets the response in progress.
    pub(super) fn begin(&self, id: &str) {
        self.0.lock().id = id.into();
    }

    /// Ends the response in progress. Returns the inputs that were not sent.
    pub(super) fn close(&self) -> VecDeque<Steer> {
        let mut inbox = self.0.lock();
        inbox.id = Box::default();
        inbox.payer = None;
        inbox.waker = None;
        // The last ones are those that were not sent.
        let sent = inbox.given.len().saturating_sub(inbox.waiting.len());
        inbox.given.truncate(sent);
        std::mem::take(&mut inbox.waiting)
    }

    /// Puts input in for the response with this id. Takes the items if it does.
    ///
    /// # Errors
    /// Returns the reason if it is not taken.
    pub fn put(&self, steer: &Steer, items: &mut Option<SteerItems>) -> Result<(), SteerRefusal> {
        let mut inbox = self.0.lock();
        if !inbox.is_verbatim || inbox.id.is_empty() || inbox.id != steer.previous {
            return Err(SteerRefusal::NoTarget);
        }
        if inbox.count >= MAX_STEERS {
            return Err(SteerRefusal::TooMany);
        }
        let left = inbox.payer.as_ref().and_then(|payer| payer.ledger.available(&payer.account));
        if left.is_some_and(|left| left <= 0) {
            return Err(SteerRefusal::NoBalance);
        }
        inbox.count += 1;
        inbox.waiting.push_back(steer.clone());
        inbox.given.extend(items.take());
        if let Some(waker) = inbox.waker.take() {
            waker.wake();
        }
        Ok(())
    }

    /// Returns the next input to send.
    pub(super) fn poll_next(&self, cx: &Context<'_>) -> Poll<Steer> {
        let mut inbox = self.0.lock();
        match inbox.waiting.pop_front() {
            Some(steer) => Poll::Ready(steer),
            None => {
                inbox.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Takes the items of the oldest input that was put in; `None` if all were taken.
    pub fn take_given(&self) -> Option<SteerItems> {
        self.0.lock().given.pop_front()
    }

    /// Returns whether input was put in. The last event of the response is then not known by its type: a successor may
    /// follow.
    pub fn is_used(&self) -> bool {
        self.0.lock().count > 0
    }
}

impl std::fmt::Debug for SteerInbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SteerInbox({})", self.0.lock().count)
    }
}
