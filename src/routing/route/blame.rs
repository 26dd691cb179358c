//! Failure classification: which side is at fault, and whether another target is tried.

use codec::error::{ApiError, ErrorKind};

/// Side at fault for a failure, which decides what the breakers record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The client caused it: the target responded and is healthy.
    Client,
    /// The gateway, or no particular side: the outcome says nothing about the target.
    Gateway,
    /// The target failed; counts against its breaker.
    Target,
    /// The target is overloaded or rate limited; it gets a cooldown.
    Busy,
    /// The provider is unreachable; counts against all its targets.
    Provider,
    /// The provider rejects the credential: all its targets are excluded until a probe succeeds.
    Credential,
}

/// Classification of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultClass {
    /// Side at fault.
    pub blame: Blame,
    /// Whether another target is tried, as long as the client has received nothing.
    pub next: RetryDecision,
}

/// Whether another target is tried after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// No: every target would fail in the same way.
    No,
    /// Yes: another target may succeed.
    Yes,
    /// Only with `retry.also = ["context_length"]`: the request exceeds the target's context length.
    ContextLength,
    /// Only with `retry.also = ["unsupported"]`: the target does not support a feature that the request uses.
    Unsupported,
}

/// Classifies an error. `status` is the provider's HTTP status, `None` if no response head arrived.
pub fn classify(error: &ApiError, status: Option<u16>) -> FaultClass {
    use Blame::{Busy, Client, Credential, Gateway, Provider, Target};
    let (blame, next) = match (error.kind, status) {
        // Whatever the status: a target that refuses a long request is healthy.
        (ErrorKind::ContextOverflow, _) => (Client, RetryDecision::ContextLength),
        (ErrorKind::UpstreamUnreachable, None) => (Provider, RetryDecision::Yes),
        // The response failed after a success status.
        (ErrorKind::UpstreamBroken | ErrorKind::UpstreamTimeout, None | Some(200..=299)) => {
            (Target, RetryDecision::Yes)
        }
        // Error event inside a 200: `error.status` is the status that the response should have had.
        (ErrorKind::UpstreamFailed, None | Some(200..=299)) if matches!(error.status, 529) => {
            (Busy, RetryDecision::Yes)
        }
        (ErrorKind::UpstreamFailed, None | Some(200..=299)) => (Target, RetryDecision::Yes),
        // The gateway has no credential at present: nothing is known about the target.
        (ErrorKind::UpstreamAuth, None) => (Gateway, RetryDecision::Yes),
        (ErrorKind::UpstreamAuth, Some(402 | 403)) => (Target, RetryDecision::Yes),
        (ErrorKind::UpstreamAuth, _) => (Credential, RetryDecision::Yes),
        (ErrorKind::UpstreamRateLimit, _) => (Busy, RetryDecision::Yes),
        (_, Some(529)) => (Busy, RetryDecision::Yes),
        (_, Some(503)) if error.has_provider_delay() => (Busy, RetryDecision::Yes),
        // 409: a conflict with a concurrent request. 425: too early to be replayed. The target is not at fault.
        (_, Some(409 | 425)) => (Gateway, RetryDecision::Yes),
        (_, Some(408 | 424 | 500..=599)) => (Target, RetryDecision::Yes),
        // 404: either the target's model or deployment does not exist, or an object that the client references does
        // not.
        (ErrorKind::UpstreamRejected, Some(404)) if names_model(error) => (Target, RetryDecision::Yes),
        (ErrorKind::UpstreamRejected, Some(404)) => (Client, RetryDecision::Yes),
        // Only the provider that stored the previous response has it.
        (ErrorKind::UpstreamRejected, _) if is_response_missing(error) => (Client, RetryDecision::Yes),
        (ErrorKind::UpstreamRejected, Some(400)) if is_model_unavailable(error) => {
            (Target, RetryDecision::Yes)
        }
        (ErrorKind::UpstreamRejected, _) => (Client, classify_rejection(error)),
        (ErrorKind::Unsupported, _) => (Client, RetryDecision::Unsupported),
        (ErrorKind::UpstreamBroken, Some(_)) => (Target, RetryDecision::Yes),
        _ => (Gateway, RetryDecision::No),
    };
    FaultClass { blame, next }
}

/// Returns whether the provider does not have the response that `previous_response_id` names.
fn is_response_missing(error: &ApiError) -> bool {
    error.code.as_deref() == Some("previous_response_not_found")
}

/// Returns whether Amazon Bedrock says that the target's model id is wrong, or is one that needs an inference profile.
/// Other services answer 404.
fn is_model_unavailable(error: &ApiError) -> bool {
    const WORDS: [&str; 2] = ["on-demand throughput isn", "model identifier is invalid"];
    WORDS.iter().any(|words| error.message.contains(words))
}

fn names_model(error: &ApiError) -> bool {
    let code = error.code.as_deref().unwrap_or_default().to_ascii_lowercase();
    code.contains("model") || code.contains("deployment") || error.message.contains("model")
}

/// Classifies the rejection of a request by the error codes and message texts that providers use.
fn classify_rejection(error: &ApiError) -> RetryDecision {
    const UNABLE: [&str; 5] = [
        "unsupported",
        "not supported",
        "does not support",
        "doesn't support",
        "not available for this model",
    ];
    let code = error.code.as_deref().unwrap_or_default();
    let message = error.message.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| code.contains(word) || message.contains(word));
    if error.status == 413 {
        RetryDecision::ContextLength
    } else if says(&UNABLE) {
        RetryDecision::Unsupported
    } else {
        RetryDecision::No
    }
}

/// Ranks errors by usefulness to the client, which gets the highest-ranked error of all attempts.
pub fn error_rank(error: &ApiError) -> u8 {
    match error.kind {
        // Lowest rank: another target, which failed, may be the one that has the response.
        ErrorKind::UpstreamRejected | ErrorKind::UnknownResponse if is_response_missing(error) => 0,
        // The client can correct the request.
        ErrorKind::UpstreamRejected
        | ErrorKind::ContextOverflow
        | ErrorKind::Unsupported
        | ErrorKind::InvalidField => 5,
        // The client learns when to retry.
        ErrorKind::UpstreamRateLimit if error.has_provider_delay() => 4,
        ErrorKind::UpstreamRateLimit => 3,
        ErrorKind::UpstreamFailed => 3,
        ErrorKind::UpstreamTimeout => 2,
        ErrorKind::UpstreamBroken | ErrorKind::UpstreamUnreachable => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: ErrorKind, status: Option<u16>) -> FaultClass {
        let error = ApiError::new(kind, "");
        classify(
            &match status {
                Some(status) if status >= 400 => error.status(status),
                _ => error,
            },
            status,
        )
    }

    #[test]
    fn verdict_of_provider_failures_tries_the_next_target() {
        for status in [408, 409, 424, 425, 500, 502, 503, 504, 520, 529] {
            let kind = if status == 408 { ErrorKind::UpstreamTimeout } else { ErrorKind::UpstreamFailed };
            let kind = if matches!(status, 409 | 425) { ErrorKind::UpstreamRejected } else { kind };
            assert_eq!(of(kind, Some(status)).next, RetryDecision::Yes, "{status}");
        }
        assert_eq!(
            of(ErrorKind::UpstreamRateLimit, Some(429)),
            FaultClass { blame: Blame::Busy, next: RetryDecision::Yes }
        );
        assert_eq!(
            of(ErrorKind::UpstreamAuth, Some(401)),
            FaultClass { blame: Blame::Credential, next: RetryDecision::Yes }
        );
        assert_eq!(of(ErrorKind::UpstreamAuth, Some(403)).blame, Blame::Target);
        assert_eq!(
            of(ErrorKind::UpstreamUnreachable, None),
            FaultClass { blame: Blame::Provider, next: RetryDecision::Yes }
        );
        assert_eq!(
            of(ErrorKind::UpstreamTimeout, None),
            FaultClass { blame: Blame::Target, next: RetryDecision::Yes }
        );
        assert_eq!(
            of(ErrorKind::UpstreamBroken, Some(200)),
            FaultClass { blame: Blame::Target, next: RetryDecision::Yes }
        );
    }

    #[test]
    fn verdict_of_client_faults_tries_no_other_target() {
        for kind in
            [ErrorKind::ClientGone, ErrorKind::ShuttingDown, ErrorKind::Internal, ErrorKind::BodyTimeout]
        {
            assert_eq!(of(kind, None).next, RetryDecision::No, "{kind:?}");
        }
        for status in [400, 405, 411, 422] {
            let verdict = of(ErrorKind::UpstreamRejected, Some(status));
            assert_eq!(verdict, FaultClass { blame: Blame::Client, next: RetryDecision::No }, "{status}");
        }
    }

    #[test]
    fn verdict_distinguishes_context_length_from_unsupported() {
        for (status, code, message, next) in [
            (413, "", "Request exceeds the maximum size", RetryDecision::ContextLength),
            (400, "unsupported_parameter", "Unsupported parameter: 'logprobs'.", RetryDecision::Unsupported),
            (400, "", "thinking is not supported by this model", RetryDecision::Unsupported),
            (400, "", "messages: field required", RetryDecision::No),
            (
                400,
                "",
                "Invocation of model ID deepseek.r1-v1:0 with on-demand throughput isn’t supported. Retry your request \
                 with the ID or ARN of an inference profile that contains this model.",
                RetryDecision::Yes,
            ),
            (400, "", "The provided model identifier is invalid.", RetryDecision::Yes),
            (
                400,
                "previous_response_not_found",
                "Previous response with id 'resp_1' not found.",
                RetryDecision::Yes,
            ),
        ] {
            let mut error = ApiError::new(ErrorKind::UpstreamRejected, message).status(status);
            error.code = (!code.is_empty()).then(|| code.into());
            assert_eq!(classify(&error, Some(status)).next, next, "{message}");
        }
        let long = FaultClass { blame: Blame::Client, next: RetryDecision::ContextLength };
        for status in [200, 400, 422, 500] {
            assert_eq!(of(ErrorKind::ContextOverflow, Some(status)), long, "{status}");
        }
    }
}
