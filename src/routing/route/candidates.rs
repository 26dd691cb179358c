//! Candidates of a request: the targets that can serve it, and after each failure the decision whether another one is
//! tried.
//!
//! A failure that the client has not seen leads to a fallback, a stream that broke off to a resumption. Both are subject
//! to the same limits ([`Candidates`]). Nothing here waits or reads a clock: the caller passes in time and randomness.

use bytes::Bytes;

use super::Nanos;
use super::blame::{RetryDecision, error_rank};
use super::pick::{NoTarget, PickRequest, Policy, TargetList, pick};
use super::retry_budget::RetryBudget;
use super::rules::RetryRules;
use super::target_handle::TargetPermit;
use codec::error::{ApiError, ErrorKind};

/// Failed attempt: the error of one target, as the client receives it if no other target does better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    /// Error for the client.
    pub error: ApiError,
    /// Error body in the client's format. `None` if the failure was no error response of the provider.
    pub body: Option<Bytes>,
    /// Error detail for the access log, not shown to the client.
    pub detail: Option<Box<str>>,
}

/// Reason why no further target is tried after a failure that permits a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryRefusal {
    /// No target is left.
    Targets,
    /// The number of attempts is reached.
    Attempts,
    /// The deadline has passed.
    Deadline,
    /// The retry budget of the model is exhausted.
    Budget,
}

impl RetryRefusal {
    /// Returns the metric label.
    pub const fn label(self) -> &'static str {
        match self {
            RetryRefusal::Targets => "targets",
            RetryRefusal::Attempts => "attempts",
            RetryRefusal::Deadline => "deadline",
            RetryRefusal::Budget => "budget",
        }
    }
}

/// Decision after a failure that the client has not seen.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Another target is tried. The retry is paid for.
    Retry,
    /// The failure permits no retry; it goes to the client.
    Stop(FailedAttempt),
    /// The failure permits a retry, but no further one is made. The most useful failure of all attempts goes to the
    /// client.
    Refused(RetryRefusal, FailedAttempt),
}

/// Candidates of a request: the targets that can serve it and those already tried, with the limits of retries.
#[derive(Debug)]
pub struct Candidates {
    request: PickRequest,
    rules: RetryRules,
    /// Start of the deadline of fallbacks.
    since: Nanos,
    /// Number of targets that were sent the request.
    tried: u8,
    /// A part of a response exists, which the next target continues.
    resuming: bool,
    best: Option<FailedAttempt>,
}

impl Candidates {
    /// Creates the candidates of a request that no target was sent yet. The deadline of fallbacks starts at
    /// `request.now`.
    pub fn new(request: PickRequest, rules: RetryRules) -> Candidates {
        Candidates { since: request.now, request, rules, tried: 0, resuming: false, best: None }
    }

    /// Selects a target of those not tried yet. Returns its index with its permit.
    ///
    /// # Errors
    /// Returns [`NoTarget`] if none of them can take the request.
    pub fn pick<S: TargetList + ?Sized>(
        &self,
        targets: &S,
        policy: Policy,
    ) -> Result<(usize, TargetPermit), NoTarget> {
        pick(targets, policy, &self.request)
    }

    /// Returns the time of the last selection.
    pub fn now(&self) -> Nanos {
        self.request.now
    }

    /// Returns the number of targets tried. Targets that were skipped do not count.
    pub fn targets_tried(&self) -> u8 {
        self.tried
    }

    /// Records that the request was encoded for the selected target, which counts as an attempt.
    pub fn mark_tried(&mut self, index: usize) {
        self.request.tried |= 1 << index;
        self.tried = self.tried.saturating_add(1);
    }

    /// Skips a selected target for which the request cannot be encoded. Returns false if `error` is one of every
    /// target, which goes to the client.
    #[must_use]
    pub fn skip(&mut self, index: usize, error: &ApiError) -> bool {
        let fits_elsewhere = match error.kind {
            // A request with a part of a response was encodable for one target at least.
            ErrorKind::Unsupported => self.rules.unsupported || self.resuming,
            // Another target may have the response that the request continues.
            ErrorKind::UnknownResponse => true,
            _ => false,
        };
        if fits_elsewhere {
            self.request.tried |= 1 << index;
        }
        fits_elsewhere
    }

    /// Decides after a failure that the client has not seen. `next` is its classification; `random_point` is uniform
    /// over all of `u64`, for the next selection.
    pub fn after_failure(
        &mut self,
        next: RetryDecision,
        failed: FailedAttempt,
        now: Nanos,
        random_point: u64,
        budget: &RetryBudget,
    ) -> Next {
        let permitted = match next {
            RetryDecision::No => false,
            RetryDecision::Yes => true,
            RetryDecision::ContextLength => self.rules.context_length,
            RetryDecision::Unsupported => self.rules.unsupported,
        };
        if !permitted {
            return Next::Stop(failed);
        }
        // If all attempts fail, the client receives the most useful error and not the last one.
        let best = match self.best.take() {
            Some(best) if error_rank(&best.error) >= error_rank(&failed.error) => best,
            _ => failed,
        };
        match self.retry(self.since, now, random_point, budget) {
            Err(reason) => Next::Refused(reason, best),
            Ok(()) => {
                self.best = Some(best);
                Next::Retry
            }
        }
    }

    /// Decides after a stream broke off of which the client has a part. `able` is the bit set of the targets that can
    /// continue it; only these are tried from now on. The deadline starts at `since`, when the stream broke off.
    ///
    /// # Errors
    /// Returns [`RetryRefusal`] if no target is tried.
    pub fn after_break(
        &mut self,
        able: u64,
        since: Nanos,
        now: Nanos,
        random_point: u64,
        budget: &RetryBudget,
    ) -> Result<(), RetryRefusal> {
        self.request.tried |= !able;
        self.resuming = true;
        self.retry(since, now, random_point, budget)
    }

    /// Takes the failure that goes to the client once no target was selected any more: the most useful one of all
    /// attempts. It is `unselected`, the reason why none was selected, if no attempt has failed.
    pub fn take_failure(&mut self, unselected: ApiError) -> FailedAttempt {
        self.best.take().unwrap_or(FailedAttempt { error: unselected, body: None, detail: None })
    }

    /// Pays for a retry, and renews time and random point of the selection: since the last one, the failure has changed
    /// the state of the targets.
    fn retry(
        &mut self,
        since: Nanos,
        now: Nanos,
        random_point: u64,
        budget: &RetryBudget,
    ) -> Result<(), RetryRefusal> {
        let deadline = Nanos::try_from(self.rules.deadline.as_nanos()).unwrap_or(Nanos::MAX);
        // The budget comes last: it is charged only if nothing else prevents the retry.
        if self.request.eligible & !self.request.tried == 0 {
            return Err(RetryRefusal::Targets);
        } else if self.tried >= self.rules.attempts {
            return Err(RetryRefusal::Attempts);
        } else if now.saturating_sub(since) >= deadline {
            return Err(RetryRefusal::Deadline);
        } else if !budget.withdraw(&self.rules.share) {
            return Err(RetryRefusal::Budget);
        }
        self.request.now = now;
        self.request.random_point = random_point;
        Ok(())
    }
}
