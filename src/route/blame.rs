//! One table: whose fault a failure is, and whether another target may do better.

use crate::error::{ApiError, Kind};

/// Whose fault it is, and with that what is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The client's: nothing is learnt of the target.
    Client,
    /// The gateway's own, or nobody's: it is not known how it would have gone.
    Gateway,
    /// The target failed.
    Target,
    /// The target wants to be left alone for a while.
    Busy,
    /// The provider cannot be reached: no target of it can.
    Provider,
    /// The provider refuses the credential: all its targets are out until somebody mends it.
    Credential,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whose fault it is.
    pub blame: Blame,
    /// Whether the next target is asked, as long as the client has seen nothing.
    pub next: Next,
}

/// Whether another target is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another one would say the same.
    No,
    /// Another one may do better.
    Yes,
    /// If the route says so: the request is too long for the target.
    ContextLength,
    /// If the route says so: the request has something in it that the target cannot do.
    Unsupported,
}

/// What follows from an error. `status` is the provider's, where it gave one.
pub fn verdict(error: &ApiError, status: Option<u16>) -> Verdict {
    use Blame::{Busy, Client, Credential, Gateway, Provider, Target};
    let (blame, next) = match (error.kind, status) {
        (Kind::UpstreamUnreachable, None) => (Provider, Next::Yes),
        // What was promised with a good status and then not kept.
        (Kind::UpstreamBroken | Kind::UpstreamTimeout, None | Some(200..=299)) => (Target, Next::Yes),
        // An error inside a 200 has the kind and the status that it should have had.
        (Kind::UpstreamFailed, None | Some(200..=299)) if matches!(error.status, 529) => (Busy, Next::Yes),
        (Kind::UpstreamFailed, None | Some(200..=299)) => (Target, Next::Yes),
        (Kind::UpstreamAuth, Some(402 | 403)) => (Target, Next::Yes),
        (Kind::UpstreamAuth, _) => (Credential, Next::Yes),
        (Kind::UpstreamRateLimit, _) => (Busy, Next::Yes),
        (_, Some(529)) => (Busy, Next::Yes),
        (_, Some(503)) if error.retry_after.is_some() => (Busy, Next::Yes),
        // 425: too early to be replayed; 409: in the way of another request. Neither is anybody's fault.
        (_, Some(409 | 425)) => (Gateway, Next::Yes),
        (_, Some(408 | 500..=599)) => (Target, Next::Yes),
        // A deployment that is not there, or something of the client's that is not.
        (Kind::UpstreamRejected, Some(404)) if names_model(error) => (Target, Next::Yes),
        (Kind::UpstreamRejected, Some(404)) => (Client, Next::Yes),
        // What a request goes on from is at one provider alone.
        (Kind::UpstreamRejected, _) if lacks_response(error) => (Client, Next::Yes),
        (Kind::UpstreamRejected, _) => (Client, refusal(error)),
        (Kind::Unsupported, _) => (Client, Next::Unsupported),
        (Kind::UpstreamBroken, Some(_)) => (Target, Next::Yes),
        _ => (Gateway, Next::No),
    };
    Verdict { blame, next }
}

/// Whether the provider does not have the response that the request goes on from.
fn lacks_response(error: &ApiError) -> bool {
    error.code.as_deref() == Some("previous_response_not_found")
}

fn names_model(error: &ApiError) -> bool {
    let code = error.code.as_deref().unwrap_or_default().to_ascii_lowercase();
    code.contains("model") || code.contains("deployment") || error.message.contains("model")
}

/// What kind of refusal it is, by the codes and the words of the providers.
fn refusal(error: &ApiError) -> Next {
    const LONG: [&str; 8] = [
        "context_length",
        "context length",
        "context window",
        "prompt is too long",
        "input is too long",
        "input token count",
        "maximum number of tokens",
        "too many tokens",
    ];
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
    if error.status == 413 || says(&LONG) {
        Next::ContextLength
    } else if says(&UNABLE) {
        Next::Unsupported
    } else {
        Next::No
    }
}

/// How much an error tells the client: of those of several targets it gets the one that tells most.
pub fn usefulness(error: &ApiError) -> u8 {
    match error.kind {
        // Another target, which failed, may have it.
        Kind::UpstreamRejected | Kind::UnknownResponse if lacks_response(error) => 0,
        // What the client can mend by itself.
        Kind::UpstreamRejected | Kind::Unsupported | Kind::InvalidField => 5,
        // When to come back.
        Kind::UpstreamRateLimit if error.retry_after.is_some() => 4,
        Kind::UpstreamRateLimit => 3,
        Kind::UpstreamFailed => 3,
        Kind::UpstreamTimeout => 2,
        Kind::UpstreamBroken | Kind::UpstreamUnreachable => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: Kind, status: Option<u16>) -> Verdict {
        let error = ApiError::new(kind, "");
        verdict(
            &match status {
                Some(status) if status >= 400 => error.status(status),
                _ => error,
            },
            status,
        )
    }

    #[test]
    fn what_another_target_may_do_better_goes_on() {
        for status in [408, 409, 425, 500, 502, 503, 504, 520, 529] {
            let kind = if status == 408 { Kind::UpstreamTimeout } else { Kind::UpstreamFailed };
            let kind = if matches!(status, 409 | 425) { Kind::UpstreamRejected } else { kind };
            assert_eq!(of(kind, Some(status)).next, Next::Yes, "{status}");
        }
        assert_eq!(of(Kind::UpstreamRateLimit, Some(429)), Verdict { blame: Blame::Busy, next: Next::Yes });
        assert_eq!(of(Kind::UpstreamAuth, Some(401)), Verdict { blame: Blame::Credential, next: Next::Yes });
        assert_eq!(of(Kind::UpstreamAuth, Some(403)).blame, Blame::Target);
        assert_eq!(of(Kind::UpstreamUnreachable, None), Verdict { blame: Blame::Provider, next: Next::Yes });
        assert_eq!(of(Kind::UpstreamTimeout, None), Verdict { blame: Blame::Target, next: Next::Yes });
        assert_eq!(of(Kind::UpstreamBroken, Some(200)), Verdict { blame: Blame::Target, next: Next::Yes });
    }

    #[test]
    fn what_is_the_clients_own_does_not() {
        for kind in [Kind::ClientGone, Kind::ShuttingDown, Kind::Internal, Kind::BodyTimeout] {
            assert_eq!(of(kind, None).next, Next::No, "{kind:?}");
        }
        for status in [400, 405, 411, 422] {
            let verdict = of(Kind::UpstreamRejected, Some(status));
            assert_eq!(verdict, Verdict { blame: Blame::Client, next: Next::No }, "{status}");
        }
    }

    #[test]
    fn refusals_of_length_and_ability_are_told_apart_in_every_providers_words() {
        for (status, code, message, next) in [
            (
                400,
                "context_length_exceeded",
                "This model's maximum context length is 128000 tokens.",
                Next::ContextLength,
            ),
            (400, "", "prompt is too long: 210000 tokens > 200000 maximum", Next::ContextLength),
            (
                400,
                "",
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                Next::ContextLength,
            ),
            (413, "", "Request exceeds the maximum size", Next::ContextLength),
            (400, "unsupported_parameter", "Unsupported parameter: 'logprobs'.", Next::Unsupported),
            (400, "", "thinking is not supported by this model", Next::Unsupported),
            (400, "", "messages: field required", Next::No),
            (400, "previous_response_not_found", "Previous response with id 'resp_1' not found.", Next::Yes),
        ] {
            let mut error = ApiError::new(Kind::UpstreamRejected, message).status(status);
            error.code = (!code.is_empty()).then(|| code.into());
            assert_eq!(verdict(&error, Some(status)).next, next, "{message}");
        }
    }
}
