//! Jobs: responses that the gateway builds from one or several calls of a provider.
//!
//! A job makes embeddings ([`embed`]), reranks documents ([`rank`]) or generates images ([`image`]). The caller takes
//! its next calls, passes it their responses, and at the end receives the client's response and the usage. A job
//! may take several rounds; the calls of one round do not depend on each other and may run concurrently.
//!
//! Must not live here: sockets (`proxy` makes the calls), provider selection and dialects (`provider`), and body
//! formats (`wire`).

mod call;
pub mod embed;
pub mod image;
pub mod rank;

use bytes::Bytes;

pub use crate::wire::pieces::{BodyPieces, Piece};
pub use call::{CallDestination, JobCall, RemoteMedia};

use crate::canonical::{Product, Usage};
use crate::error::ApiError;

/// Response of a job, for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobReply {
    /// The response body, JSON.
    pub body: BodyPieces,
    /// Usage of all calls together.
    pub usage: Usage,
    /// Billed products besides tokens.
    pub products: Vec<Product>,
    /// True if a provider did not report its usage, so that the gateway counted part of it.
    pub counted: bool,
}

impl JobReply {
    /// Creates a response that is billed by tokens only.
    pub fn new(body: Bytes, usage: Usage, counted: bool) -> Self {
        JobReply { body: body.into(), usage, products: Vec::new(), counted }
    }
}

/// Reason why a job has no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobFault {
    /// A provider's response does not have the format of its API.
    #[error("{0}")]
    Broken(String),
    /// A provider sent an error with a success status: the response body.
    #[error("an error in a response with a success status")]
    Failed(Bytes),
    /// The request cannot be served: the client's error. It may contain text of the provider.
    #[error("{0}")]
    Refused(ApiError),
}

/// Job: a state machine that turns responses of provider calls into one response.
pub trait Job: Send + Sync {
    /// Returns the calls to make now. Empty when the job is complete.
    fn next(&mut self) -> Vec<JobCall>;

    /// Receives the success body of a call; `call` is its index in the last round.
    fn on_response(&mut self, call: usize, body: Bytes);

    /// Receives the input tokens that the head of a response reports, before its body.
    fn on_input_tokens(&mut self, _call: usize, _tokens: u64) {}

    /// Returns whether the job may run again when the outcome of a call is unknown, because its calls create nothing.
    fn is_repeatable(&self) -> bool {
        false
    }

    /// Builds the client's response.
    ///
    /// # Errors
    /// Returns [`JobFault`] if a round has failed, or the responses are not valid.
    fn finish(&mut self) -> Result<JobReply, JobFault>;
}

/// State of a job with one round: its calls, and their responses.
#[derive(Debug, Default)]
struct Round {
    calls: Vec<JobCall>,
    answers: Vec<Bytes>,
    /// Input tokens that the heads of the responses report.
    tokens: Vec<Option<u64>>,
}

impl Round {
    fn with_calls(calls: Vec<JobCall>) -> Self {
        Round { answers: vec![Bytes::new(); calls.len()], tokens: vec![None; calls.len()], calls }
    }

    fn take(&mut self) -> Vec<JobCall> {
        std::mem::take(&mut self.calls)
    }

    fn record_response(&mut self, call: usize, body: Bytes) {
        if let Some(slot) = self.answers.get_mut(call) {
            *slot = body;
        }
    }

    fn record_tokens(&mut self, call: usize, tokens: u64) {
        if let Some(slot) = self.tokens.get_mut(call) {
            *slot = Some(tokens);
        }
    }

    /// Returns the input tokens that the head of the response to a call reports.
    fn tokens(&self, call: usize) -> Option<u64> {
        self.tokens.get(call).copied().flatten()
    }

    /// Returns the response to a call as text.
    fn text(&self, call: usize) -> Result<&str, JobFault> {
        let body = self.answers.get(call).map(|body| &**body).unwrap_or_default();
        json::from_utf8(body).map_err(|_| JobFault::Broken("the response is not UTF-8".to_owned()))
    }

    fn failed(&self, call: usize) -> JobFault {
        JobFault::Failed(self.answers.get(call).cloned().unwrap_or_default())
    }
}
