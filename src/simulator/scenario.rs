//! Scenario: the responses that a test prescribes for a conversation, in place of generated ones.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::Value;

use super::directive;
use super::script::{Ask, ToolCall};

/// Response that a test prescribes. Its format and thinking are those of generated responses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrescribedResponse {
    /// Text before the tool calls. Empty for none.
    pub text: String,
    /// Names and arguments of the tool calls. For a tool that takes free text, the arguments are a JSON string.
    pub calls: Vec<(String, Value)>,
    /// Directives without their brackets, such as `status 429` or `cut 3`. Empty for none.
    pub directives: String,
    /// Prompt tokens in the usage. `None` for the simulator's estimate.
    pub prompt_tokens: Option<u64>,
    /// Output tokens in the usage, with those of thinking. `None` for the simulator's estimate.
    pub output_tokens: Option<u64>,
}

/// Queue of prescribed responses of one simulator.
#[derive(Debug, Default)]
pub(super) struct Scenario {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Tool that a request must offer to receive a prescribed response. `None` for every request.
    tool: Option<String>,
    responses: VecDeque<PrescribedResponse>,
    /// Bodies of the requests that received a prescribed response.
    requests: Vec<Bytes>,
}

impl Scenario {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the queue, and forgets the requests so far.
    pub(super) fn set(&self, tool: Option<&str>, responses: Vec<PrescribedResponse>) {
        *self.state() =
            State { tool: tool.map(str::to_owned), responses: responses.into(), requests: Vec::new() };
    }

    /// Returns the number of prescribed responses that no request has received.
    pub(super) fn left(&self) -> usize {
        self.state().responses.len()
    }

    /// Returns the bodies of the requests that received a prescribed response.
    pub(super) fn requests(&self) -> Vec<Bytes> {
        self.state().requests.clone()
    }

    /// Prescribes the response to a request, if the queue has one for it. Its directives replace those of the prompt.
    pub(super) fn apply(&self, ask: &mut Ask, body: &Bytes) {
        let mut state = self.state();
        let wanted = state.tool.as_ref().is_none_or(|tool| ask.tools.iter().any(|one| one.name == *tool));
        if !wanted {
            return;
        }
        let Some(response) = state.responses.pop_front() else { return };
        state.requests.push(body.clone());
        ask.directives = directive::take(&format!("[[{}]]", response.directives)).0;
        ask.prompt_tokens = response.prompt_tokens.unwrap_or(ask.prompt_tokens);
        ask.prescribed = Some(response);
    }
}

impl PrescribedResponse {
    /// Returns the tool calls, of the kinds that the request's tools have.
    pub(super) fn tool_calls(&self, ask: &Ask) -> Vec<ToolCall> {
        let call = |(name, arguments): &(String, Value)| {
            let custom = ask.tools.iter().any(|tool| tool.name == *name && tool.custom);
            let arguments = match arguments.as_str().filter(|_| custom) {
                Some(text) => text.to_owned(),
                None => arguments.to_string(),
            };
            ToolCall { name: name.clone(), arguments, custom }
        };
        self.calls.iter().map(call).collect()
    }
}
