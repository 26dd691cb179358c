//! Requests and responses in the form that provider implementations use.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

use super::body::{Step, slices};
use super::directive::{Directives, Fault, FaultKind, Shape};

/// Time for written data to leave before a connection is aborted. hyper otherwise drops its write buffer.
pub(super) const BEFORE_CUT: Duration = Duration::from_millis(20);

/// Request with its complete body.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: Method,
    /// Path without the query, not percent-decoded.
    pub(super) path: String,
    /// Query parameters, percent-decoded.
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The body exceeds the server's limit; `body` is empty.
    pub(super) too_large: bool,
}

impl Request {
    /// Returns a header value. `None` if it is absent or not visible ASCII.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the first value of a query parameter.
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the token of `authorization: Bearer`.
    pub(super) fn bearer(&self) -> Option<&str> {
        let (scheme, token) = self.header("authorization")?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    }
}

/// Parses a query into decoded name-value pairs.
pub(super) fn parse_query(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(&key.replace('+', " ")), percent_decode(&value.replace('+', " ")))
        })
        .collect()
}

/// Percent-decodes a text. Invalid UTF-8 is replaced; an invalid escape stays as it is.
pub(super) fn percent_decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Start time of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Now,
    After(Duration),
    Never,
}

/// Content of a response body.
#[derive(Debug)]
pub(super) enum Content {
    /// Complete body with its length.
    Whole(Bytes),
    /// Steps with a declared content length in bytes, which they may not fulfill.
    Claimed(Vec<Step>, usize),
    /// Stream.
    Steps(Vec<Step>),
}

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) content: Content,
    pub(super) start: Start,
}

impl Reply {
    pub(super) fn new(status: u16, content_type: &str, body: impl Into<Bytes>) -> Reply {
        Reply {
            status,
            headers: vec![("content-type", content_type.to_owned())],
            content: Content::Whole(body.into()),
            start: Start::Now,
        }
    }

    /// Returns a response with compact JSON.
    pub(super) fn json(status: u16, body: &Value) -> Reply {
        Reply::new(status, "application/json", body.to_string())
    }

    /// Returns a streamed response with status 200.
    pub(super) fn stream(content_type: &str, steps: Vec<Step>) -> Reply {
        Reply {
            status: 200,
            headers: vec![("content-type", content_type.to_owned())],
            content: Content::Steps(steps),
            start: Start::Now,
        }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.headers.push((name, value.into()));
        self
    }

    /// Adds `retry-after` to statuses 429 and 503, unless it is set.
    pub(super) fn with_retry_after(self) -> Reply {
        let said = self.headers.iter().any(|(name, _)| *name == "retry-after");
        if matches!(self.status, 429 | 503) && !said { self.with("retry-after", "7") } else { self }
    }

    pub(super) fn set(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.headers.retain(|(key, _)| *key != name);
        self.with(name, value)
    }
}

/// Error as the front end of Z.ai writes it, whatever the path is.
pub(super) const BARE_ERROR: &str = r#"{"code":500,"msg":"The service is busy.","success":false}"#;

/// Applies directives to a response. `error` returns the provider's error for a status, `answer` the regular response,
/// and `overload` is the provider's status for overload.
pub(super) fn stage(
    directives: &Directives,
    overload: u16,
    error: impl Fn(u16) -> Reply,
    answer: impl FnOnce() -> Reply,
) -> Reply {
    let mut reply = match (directives.status, directives.shape) {
        (Some(status), _) => error(status),
        (None, Some(Shape::Hang)) => Reply { start: Start::Never, ..Reply::new(200, "text/plain", "") },
        (None, Some(Shape::Html)) => Reply::new(200, "text/html; charset=utf-8", HTML),
        (None, Some(Shape::Void)) => Reply::new(200, "application/json", "{}"),
        (None, Some(Shape::Empty)) => Reply::new(200, "application/json", ""),
        (None, shape) => {
            let reply = answer();
            let whole = match &reply.content {
                Content::Whole(bytes) if reply.status == 200 => Some(bytes.clone()),
                _ => None,
            };
            match (whole, directives.fault) {
                (Some(_), Some(Fault { kind: FaultKind::Error, .. })) if directives.bare => {
                    Reply::new(200, "application/json", BARE_ERROR)
                }
                (Some(_), Some(Fault { kind: FaultKind::Error, .. })) => error(overload),
                (Some(bytes), fault) => Reply { content: spoil(bytes, shape, fault), ..reply },
                (None, _) => reply,
            }
        }
    };
    if let Some(seconds) = directives.retry_after {
        reply = reply.set("retry-after", seconds.to_string());
    }
    if let Some(delay) = directives.delay
        && reply.start == Start::Now
    {
        reply.start = Start::After(delay);
    }
    reply
}

/// Applies a fault to a JSON response.
fn spoil(bytes: Bytes, shape: Option<Shape>, fault: Option<Fault>) -> Content {
    let half = bytes.slice(..bytes.len() / 2);
    let sent = || slices(&half).map(Step::Send).collect::<Vec<Step>>();
    let cut = [Step::Wait(BEFORE_CUT), Step::Cut];
    match (shape, fault.map(|fault| fault.kind)) {
        (Some(Shape::Garbage), _) => Content::Whole(garbage(&bytes)),
        (Some(Shape::Truncate), _) => Content::Claimed([sent(), cut.to_vec()].concat(), bytes.len()),
        (_, Some(FaultKind::Cut)) => Content::Steps([sent(), cut.to_vec()].concat()),
        (_, Some(FaultKind::End)) => Content::Steps(sent()),
        (_, Some(FaultKind::Stall)) => Content::Claimed([sent(), vec![Step::Stall]].concat(), bytes.len()),
        _ => Content::Whole(bytes),
    }
}

/// Returns invalid JSON of about the same length: the first half twice.
fn garbage(bytes: &Bytes) -> Bytes {
    let half = bytes.slice(..bytes.len() / 2);
    Bytes::from([half.as_ref(), b"}]garbage[{", half.as_ref()].concat())
}

const HTML: &str = "<!DOCTYPE html>\n<html><head><title>Just a moment...</title></head>\
<body><h1>Checking your browser</h1><p>This page is not the answer that you expected.</p></body></html>\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_and_percent_escapes_are_decoded() {
        assert_eq!(
            parse_query("alt=sse&key=a%2Bb+c&flag&&x=%zz"),
            [("alt", "sse"), ("key", "a+b c"), ("flag", ""), ("x", "%zz")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
        assert_eq!(percent_decode("models%2Fgemini%C3%A9%"), "models/geminié%");
    }

    #[test]
    fn garbage_is_not_valid_json() {
        let bytes = Bytes::from(r#"{"a":[1,2,3],"b":{"c":"text"}}"#);
        assert!(serde_json::from_slice::<Value>(&garbage(&bytes)).is_err());
    }
}
