//! A request as a provider reads it, and an answer as a provider gives it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

use super::body::{Step, slices};
use super::directive::{Directives, Fault, FaultKind, Shape};

/// Time that a connection gets to send what was written before it is aborted: hyper drops its buffer otherwise.
pub(super) const BEFORE_CUT: Duration = Duration::from_millis(20);

/// A request with its whole body.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: Method,
    /// The path without the query, not decoded.
    pub(super) path: String,
    /// The decoded pairs of the query.
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The body was larger than the server takes; `body` is empty then.
    pub(super) too_large: bool,
}

impl Request {
    /// A header's value, if it is text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The first value of a parameter of the query.
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The token of `authorization: Bearer`.
    pub(super) fn bearer(&self) -> Option<&str> {
        let (scheme, token) = self.header("authorization")?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    }
}

/// The pairs of a query, decoded.
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

/// Undoes percent-encoding; what is not valid UTF-8 afterwards is replaced, what is not an escape is kept.
pub(super) fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escape =
            (*first == b'%').then(|| tail.split_first_chunk::<2>()).flatten().and_then(|(hex, tail)| {
                Some((u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?, tail))
            });
        match escape {
            Some((byte, tail)) => {
                bytes.push(byte);
                rest = tail;
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// When an answer starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Now,
    After(Duration),
    Never,
}

/// What an answer's body is.
#[derive(Debug)]
pub(super) enum Content {
    /// Known as a whole, with its length.
    Whole(Bytes),
    /// Steps under a content length that is said to be so many bytes.
    Claimed(Vec<Step>, usize),
    /// A stream.
    Steps(Vec<Step>),
}

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) content: Content,
    pub(super) start: Start,
}

impl Reply {
    /// An answer with a body of this content type.
    pub(super) fn new(status: u16, content_type: &str, body: impl Into<Bytes>) -> Reply {
        Reply {
            status,
            headers: vec![("content-type", content_type.to_owned())],
            content: Content::Whole(body.into()),
            start: Start::Now,
        }
    }

    /// A compact JSON answer.
    pub(super) fn json(status: u16, body: &Value) -> Reply {
        Reply::new(status, "application/json", body.to_string())
    }

    /// A stream.
    pub(super) fn stream(content_type: &str, steps: Vec<Step>) -> Reply {
        Reply {
            status: 200,
            headers: vec![("content-type", content_type.to_owned())],
            content: Content::Steps(steps),
            start: Start::Now,
        }
    }

    /// Adds a header.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.headers.push((name, value.into()));
        self
    }

    /// Says when to come back, if the status wants it said and nothing else was asked for.
    pub(super) fn with_retry_after(self) -> Reply {
        let said = self.headers.iter().any(|(name, _)| *name == "retry-after");
        if matches!(self.status, 429 | 503) && !said { self.with("retry-after", "7") } else { self }
    }

    /// Replaces a header.
    pub(super) fn set(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.headers.retain(|(key, _)| *key != name);
        self.with(name, value)
    }
}

/// Stages what the directives ask for around an answer. `error` is the provider's own error for a status, `answer`
/// the answer if nothing is staged instead of it, `overload` the status that the provider is overloaded with.
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
        (None, Some(Shape::Empty)) => Reply::new(200, "application/json", ""),
        (None, shape) => {
            let reply = answer();
            let whole = match &reply.content {
                Content::Whole(bytes) if reply.status == 200 => Some(bytes.clone()),
                _ => None,
            };
            match (whole, directives.fault) {
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

/// A JSON answer with the fault that was asked for.
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

/// The same length, but no JSON: the first half twice over, without the opening of the second.
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
    fn queries_and_escapes() {
        assert_eq!(
            parse_query("alt=sse&key=a%2Bb+c&flag&&x=%zz"),
            [("alt", "sse"), ("key", "a+b c"), ("flag", ""), ("x", "%zz")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
        assert_eq!(percent_decode("models%2Fgemini%C3%A9%"), "models/geminié%");
    }

    #[test]
    fn garbage_is_no_json() {
        let bytes = Bytes::from(r#"{"a":[1,2,3],"b":{"c":"text"}}"#);
        assert!(serde_json::from_slice::<Value>(&garbage(&bytes)).is_err());
    }
}
