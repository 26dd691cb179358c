//! Turn states: the opaque value by which a provider sends the requests of one turn of Codex to the same machine.
//!
//! Over HTTP, Codex takes it from the head of the first response of a turn (`x-codex-turn-state`) and sends it with the
//! other requests of that turn, and with no other (observed with Codex CLI 0.169). Over a WebSocket it reads the head
//! of the handshake only, which comes before a provider is known. So the socket does it in its place.

use std::collections::VecDeque;

use http::HeaderValue;

use super::lanes::MAX_LANES;

/// Longest state that is kept, in bytes.
const MAX_STATE: usize = 4 * 1024;

/// Turn states by the id of the response that the next request of the turn continues, the latest at the end. At most as
/// many as lanes can be active at a time.
#[derive(Debug, Default)]
pub(super) struct TurnStates(VecDeque<(Box<str>, HeaderValue)>);

impl TurnStates {
    /// Returns the state of the turn that a response belongs to; `None` if its provider gave none, or it was evicted.
    pub(super) fn of(&self, response: Option<&str>) -> Option<HeaderValue> {
        let response = response?;
        self.0.iter().rev().find(|(id, _)| **id == *response).map(|(_, state)| state.clone())
    }

    /// Returns the bytes that are held.
    pub(super) fn held(&self) -> usize {
        self.0.iter().map(|(id, state)| id.len() + state.len()).sum()
    }

    /// Keeps the state of the turn that a response belongs to.
    pub(super) fn insert(&mut self, response: &str, state: HeaderValue) {
        if state.len() > MAX_STATE {
            return;
        }
        if self.0.len() >= MAX_LANES {
            self.0.pop_front();
        }
        self.0.push_back((response.into(), state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_states_are_those_of_the_latest_responses() {
        let mut states = TurnStates::default();
        let state = |number: usize| HeaderValue::from(number);
        for number in 0..=MAX_LANES {
            states.insert(&number.to_string(), state(number));
        }
        assert_eq!((states.of(None), states.of(Some("0"))), (None, None));
        assert_eq!(states.of(Some("1")), Some(state(1)));
        let long = HeaderValue::try_from("x".repeat(MAX_STATE + 1)).unwrap();
        states.insert("long", long);
        assert_eq!(states.of(Some("long")), None);
    }
}
