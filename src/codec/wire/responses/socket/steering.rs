//! Steering: input that a client sends into a response in progress, with `response.steer`.
//!
//! The provider accepts each input or fails it. Accepted input makes it end the response early (`response.incomplete`
//! with the reason `steered`) or at its usual end, and begin a successor with another `response.created`. If the
//! response waits for the results of tools instead, `response.steer.pending` follows its end, and the input is put
//! before that of the next request. Source: the event types of openai-python 3.54 (`response_steer_event.py` and
//! `response_steer_accepted_event.py`).

use std::collections::VecDeque;

use crate::wire::watch::named_members;
use json::{JsonError, RawJson};

/// What the provider says of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteerEvent {
    /// It will be put into a successor.
    Accepted,
    /// It was refused before it was accepted.
    Refused,
    /// It was accepted, but its successor could not be created.
    Lost,
    /// The accepted inputs wait for the next request.
    Pending,
}

impl SteerEvent {
    /// Reads an event. `None` if it is of another type.
    pub(super) fn read(kind: &str, event: &str) -> Option<SteerEvent> {
        Some(match kind.strip_prefix("response.steer.")? {
            "accepted" => SteerEvent::Accepted,
            "pending" => SteerEvent::Pending,
            "failed" => match error_code(event) {
                Ok(Some("successor_creation_failed")) => SteerEvent::Lost,
                _ => SteerEvent::Refused,
            },
            _ => return None,
        })
    }
}

fn error_code(event: &str) -> Result<Option<&str>, JsonError> {
    let [error] = named_members(RawJson::from_text(event), ["error"])?;
    let Some(error) = error else { return Ok(None) };
    let [code] = named_members(error, ["code"])?;
    Ok(code.and_then(RawJson::as_str).map(|code| code.escaped()))
}

/// Inputs that were sent into a response and are in no successor yet. `T` is what is kept of each.
#[derive(Debug)]
pub struct PendingSteers<T> {
    /// Sent, and neither accepted nor refused; the oldest first. They are answered in this order.
    unanswered: VecDeque<T>,
    accepted: Vec<T>,
    /// The response has ended for them: its successor follows.
    is_steered: bool,
}

impl<T> Default for PendingSteers<T> {
    fn default() -> Self {
        PendingSteers { unanswered: VecDeque::new(), accepted: Vec::new(), is_steered: false }
    }
}

impl<T> PendingSteers<T> {
    /// Adds an input that was sent.
    pub fn push(&mut self, input: T) {
        self.unanswered.push_back(input);
    }

    /// Records the end of the response. Returns whether the provider has more to say: `is_steered` is whether it ended for
    /// an input.
    pub fn end(&mut self, is_steered: bool) -> bool {
        self.is_steered |= is_steered;
        self.is_awaited()
    }

    /// Returns whether a successor, or word of an input, follows the end of the response.
    pub fn is_awaited(&self) -> bool {
        self.is_steered || !self.unanswered.is_empty() || !self.accepted.is_empty()
    }

    /// Records the answer to an input. Returns the inputs that wait for the next request; empty for other events.
    pub fn answer(&mut self, event: SteerEvent) -> Vec<T> {
        match event {
            SteerEvent::Accepted => self.accepted.extend(self.unanswered.pop_front()),
            SteerEvent::Refused if !self.unanswered.is_empty() => _ = self.unanswered.pop_front(),
            SteerEvent::Refused | SteerEvent::Lost => {
                if !self.accepted.is_empty() {
                    self.accepted.remove(0);
                }
                self.is_steered &= !self.accepted.is_empty();
            }
            SteerEvent::Pending => {
                self.is_steered = false;
                return std::mem::take(&mut self.accepted);
            }
        }
        Vec::new()
    }

    /// Records the beginning of the successor. Returns the inputs in it.
    pub fn succeed(&mut self) -> Vec<T> {
        self.is_steered = false;
        std::mem::take(&mut self.accepted)
    }

    /// Gives up: returns the inputs that will be in no successor.
    pub fn fail(&mut self) -> impl Iterator<Item = T> {
        self.is_steered = false;
        std::mem::take(&mut self.accepted).into_iter().chain(std::mem::take(&mut self.unanswered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steer_that_is_accepted_is_in_the_successor() {
        let mut steers = PendingSteers::default();
        assert!(!steers.end(false));
        steers.push(1);
        steers.push(2);
        assert!(steers.answer(SteerEvent::Accepted).is_empty());
        assert!(steers.end(true));
        assert_eq!(steers.succeed(), [1]);
        // The second one is answered during the successor.
        assert!(steers.is_awaited());
        steers.answer(SteerEvent::Refused);
        assert!(!steers.end(false));
    }

    #[test]
    fn steer_that_waits_or_fails_has_no_successor() {
        let mut steers = PendingSteers::default();
        steers.push(1);
        steers.answer(SteerEvent::Accepted);
        assert!(steers.end(false));
        assert_eq!(steers.answer(SteerEvent::Pending), [1]);
        assert!(!steers.is_awaited());
        steers.push(2);
        steers.answer(SteerEvent::Accepted);
        assert!(steers.end(true));
        steers.answer(SteerEvent::Lost);
        assert!(!steers.is_awaited());
        // An end that no known input explains has a successor, unless the provider says that there is none.
        assert!(steers.end(true));
        steers.answer(SteerEvent::Lost);
        assert!(!steers.is_awaited());
        steers.push(3);
        assert_eq!(steers.fail().collect::<Vec<_>>(), [3]);
        assert!(!steers.is_awaited());
    }

    #[test]
    fn steer_events_are_read_by_type_and_code() {
        let failed = |code| format!(r#"{{"type":"response.steer.failed","error":{{"code":"{code}"}}}}"#);
        for (kind, event, expected) in [
            ("response.steer.accepted", "{}".to_owned(), Some(SteerEvent::Accepted)),
            ("response.steer.pending", "{}".to_owned(), Some(SteerEvent::Pending)),
            ("response.steer.failed", failed("successor_creation_failed"), Some(SteerEvent::Lost)),
            ("response.steer.failed", failed("invalid_input"), Some(SteerEvent::Refused)),
            ("response.steer.failed", "no JSON".to_owned(), Some(SteerEvent::Refused)),
            ("response.steer.later", "{}".to_owned(), None),
            ("response.created", "{}".to_owned(), None),
        ] {
            assert_eq!(SteerEvent::read(kind, &event), expected, "{kind} {event}");
        }
    }
}
