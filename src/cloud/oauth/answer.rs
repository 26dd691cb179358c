//! Answers of token servers (RFC 6749, section 5), and the deviations of Google's and Azure's.

use std::time::Duration;

use serde_json::Value;

use super::SecretText;
use crate::token::{Credential, Grant, Lifetime, StepResult, TokenError};

/// Largest answer with a token and largest credential file, in bytes. Both have a few kilobytes.
pub const MAX_DOCUMENT: usize = 64 << 10;

/// Longest token, in bytes: a longer one would not fit into the header limits of the providers.
const MAX_TOKEN: usize = 16 << 10;
/// Longest message of a token server that is repeated, in characters.
const MAX_MESSAGE: usize = 300;
/// Shorter secrets are not looked for in messages: they would match ordinary text.
const MIN_SECRET: usize = 4;

/// Answer to a request, with what is needed to report an error: the server in words, and the secrets of the request,
/// which no message may repeat.
pub(crate) struct Reply<'a> {
    /// Token server in words.
    pub(crate) server: &'static str,
    /// Secrets of the request.
    pub(crate) secrets: &'a [SecretText],
}

impl Reply<'_> {
    /// Returns the body of a successful answer.
    ///
    /// # Errors
    /// Returns [`TokenError::Unreachable`] or [`TokenError::Refused`] for a failure.
    pub(crate) fn body<'b>(&self, result: StepResult<'b>) -> Result<&'b [u8], TokenError> {
        match result {
            StepResult::Response { status: 200..=299, body } if body.len() > MAX_DOCUMENT => {
                Err(self.invalid("it is larger than 64 KiB"))
            }
            StepResult::Response { status: 200..=299, body } => Ok(body),
            StepResult::Response { status, body } => {
                Err(TokenError::Refused { server: self.server, status, reason: self.message(body) })
            }
            StepResult::Unreachable(reason) => {
                Err(TokenError::Unreachable { server: self.server, reason: reason.to_owned() })
            }
            StepResult::Begin
            | StepResult::Challenge(_)
            | StepResult::File(_)
            | StepResult::Unreadable(_) => Err(self.invalid("it is no response")),
        }
    }

    /// Returns the credential of an answer.
    ///
    /// # Errors
    /// As [`Reply::body`] and [`parse_token`].
    pub(crate) fn grant(&self, result: StepResult<'_>) -> Result<Grant, TokenError> {
        parse_token(self.body(result)?).map_err(|reason| self.invalid(reason))
    }

    /// Returns the error of an answer that is not what was requested.
    pub(crate) fn invalid(&self, reason: &str) -> TokenError {
        TokenError::Invalid { what: format!("the response of {}", self.server), reason: reason.to_owned() }
    }

    /// Returns the server's words without the secrets of the request: one line of a bounded length.
    fn message(&self, body: &[u8]) -> String {
        let document = body.get(..MAX_DOCUMENT).unwrap_or(body);
        let Some(mut message) = error_message(document) else { return "it gives no reason".to_owned() };
        for secret in self.secrets.iter().filter(|secret| secret.expose().len() >= MIN_SECRET) {
            message = message.replace(secret.expose(), "***");
        }
        // The further lines of Entra are ids of its own log.
        let line = message.trim().lines().next().unwrap_or_default();
        line.chars().filter(|char| !char.is_control()).take(MAX_MESSAGE).collect()
    }
}

/// Parses the answer of a token server.
///
/// Lifetimes are numbers or digits in a text (`expires_in` in seconds, `expires_on` in Unix seconds), or a point in time
/// (`expireTime`, RFC 3339).
///
/// # Errors
/// Returns the reason if the answer has no token that can be sent, or a lifetime that is none.
pub fn parse_token(body: &[u8]) -> Result<Grant, &'static str> {
    let answer: Value = serde_json::from_slice(body).map_err(|_| "it is no JSON")?;
    let token = string_member(&answer, "access_token").or_else(|| string_member(&answer, "accessToken"));
    let token = token.ok_or("it has no token")?;
    let is_sendable =
        (1..=MAX_TOKEN).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_sendable {
        return Err("its token cannot be sent in a header");
    }
    let kind = string_member(&answer, "token_type").unwrap_or("Bearer");
    if !kind.eq_ignore_ascii_case("bearer") {
        return Err("its token is no bearer token");
    }
    Ok(Grant { credential: Credential::Bearer(token.into()), lifetime: lifetime(&answer)? })
}

fn lifetime(answer: &Value) -> Result<Lifetime, &'static str> {
    const WRONG: &str = "its lifetime cannot be read";
    let member = |name| answer.get(name).filter(|value| !value.is_null());
    if let Some(life) = member("expires_in") {
        return Ok(Lifetime::For(Duration::from_secs(seconds(life).ok_or(WRONG)?)));
    }
    if let Some(end) = member("expires_on") {
        return Ok(Lifetime::Until(i64::try_from(seconds(end).ok_or(WRONG)?).unwrap_or(i64::MAX)));
    }
    let Some(end) = member("expireTime") else { return Ok(Lifetime::Unknown) };
    let time: Option<jiff::Timestamp> = end.as_str().and_then(|text| text.parse().ok());
    Ok(Lifetime::Until(time.ok_or(WRONG)?.as_second()))
}

/// Returns a number of seconds that is not negative: a number, or digits in a text. A fraction is dropped.
fn seconds(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => {
            let fraction = number.as_f64().filter(|seconds| *seconds >= 0.0 && seconds.is_finite());
            number.as_u64().or_else(|| fraction.map(|seconds| seconds as u64))
        }
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Returns the words of an error answer. `error` is a text (RFC 6749, section 5.2) or an object (Google APIs). `None` if
/// there are none.
fn error_message(body: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let error = answer.get("error");
    let code = error.and_then(Value::as_str);
    let status = error.and_then(|error| string_member(error, "status"));
    let inner = error.and_then(|error| string_member(error, "message"));
    let words = string_member(&answer, "error_description").or_else(|| string_member(&answer, "message"));
    let parts: Vec<&str> = [code, status, words, inner].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(": "))
}

/// Returns a member that is a text; `None` if it is absent or something else.
pub(crate) fn string_member<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name)?.as_str()
}
