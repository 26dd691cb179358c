//! Answers that the gateway makes itself, out of what one or several calls of a provider gave.
//!
//! Here live the jobs: vectors of texts ([`embed`]), orders of documents ([`rank`]) and images
//! ([`image`]). A job is asked for its next calls,
//! hears their answers, and in the end gives the client's answer and what was used. It may take several rounds; calls
//! of one round know nothing of each other and may be made side by side.
//!
//! Here must not live: sockets (`proxy` makes the calls), which provider wants what (`provider`), and what stands in a
//! body (`wire`).

mod call;
pub mod embed;
pub mod image;
pub mod rank;

use bytes::Bytes;

pub use crate::wire::pieces::{Body, Piece};
pub use call::{JobCall, RemoteMedia, To};

use crate::canonical::{Product, Usage};
use crate::error::ApiError;

/// The client's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobReply {
    /// The body, JSON.
    pub body: Body,
    /// What all calls used together.
    pub usage: Usage,
    /// What they made besides tokens.
    pub made: Vec<Product>,
    /// Some of the usage is the gateway's own count, because a provider did not say it.
    pub counted: bool,
}

impl JobReply {
    /// An answer that is billed by tokens alone.
    pub fn new(body: Bytes, usage: Usage, counted: bool) -> Self {
        JobReply { body: body.into(), usage, made: Vec::new(), counted }
    }
}

/// Why a job has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobFault {
    /// A provider's answer is not what its API promises.
    #[error("{0}")]
    Broken(String),
    /// A provider reported an error under a status that says otherwise: its answer.
    #[error("an error in an answer that says that there is none")]
    Failed(Bytes),
    /// The request cannot be served: what the client is told. Texts of the provider may be in it.
    #[error("{0}")]
    Refused(ApiError),
}

/// See the module.
pub trait Job: Send + Sync {
    /// The calls to be made now; none when the job is done.
    fn next(&mut self) -> Vec<JobCall>;

    /// The answer to a call of the last round, by its place in it: the body, under a status of success.
    fn heard(&mut self, call: usize, body: Bytes);

    /// Whether it may be done again when it is not known what became of its calls: nothing is made that stays.
    fn is_repeatable(&self) -> bool {
        false
    }

    /// The client's answer.
    ///
    /// # Errors
    /// What the provider answered is of no use.
    fn finish(&mut self) -> Result<JobReply, JobFault>;
}

/// Calls of one round, all known from the beginning, and their answers.
#[derive(Debug, Default)]
struct Round {
    calls: Vec<JobCall>,
    answers: Vec<Bytes>,
}

impl Round {
    fn of(calls: Vec<JobCall>) -> Self {
        Round { answers: vec![Bytes::new(); calls.len()], calls }
    }

    fn take(&mut self) -> Vec<JobCall> {
        std::mem::take(&mut self.calls)
    }

    fn heard(&mut self, call: usize, body: Bytes) {
        if let Some(slot) = self.answers.get_mut(call) {
            *slot = body;
        }
    }

    /// The answer to a call, as text.
    fn text(&self, call: usize) -> Result<&str, JobFault> {
        let body = self.answers.get(call).map(|body| &**body).unwrap_or_default();
        std::str::from_utf8(body).map_err(|_| JobFault::Broken("the answer is not UTF-8".to_owned()))
    }

    fn failed(&self, call: usize) -> JobFault {
        JobFault::Failed(self.answers.get(call).cloned().unwrap_or_default())
    }
}
