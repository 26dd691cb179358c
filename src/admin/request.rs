//! Request of the admin API, after its caller is known and its body is read.

use std::str::FromStr;

use serde_json::{Map, Value};

use super::caller::{Caller, Peer};
use super::error::AdminApiError;
use super::route_table::AdminRoute;
use codec::wire::path::{percent_decode, query_value};
use config::WorkLimit;

/// Connection of a request, and what ties it to a browser.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// Peer.
    pub(super) peer: Peer,
    /// Whether the connection has TLS.
    pub(super) secure: bool,
    /// Cookie of a session, valid or not. `None` if there is none.
    pub(super) session: Option<String>,
    /// Cookie of a sign-in that has begun. `None` if there is none.
    pub(super) sign_in: Option<String>,
}

/// Request of the admin API.
#[derive(Debug)]
pub(super) struct ApiRequest {
    /// Route.
    pub(super) route: &'static AdminRoute,
    /// Values of the parameters in the path, in their order.
    pub(super) names: Vec<String>,
    /// Query string. `None` if there is none.
    pub(super) query: Option<String>,
    /// Members of the body; empty for a route without one.
    pub(super) body: Map<String, Value>,
    /// Caller.
    pub(super) caller: Caller,
    /// Id of the request.
    pub(super) id: String,
    /// Connection of the request.
    pub(super) link: Link,
    /// Version that a file must have (`if-match`). `None` for any.
    pub(super) if_match: Option<String>,
    /// Idempotency key (`idempotency-key`).
    pub(super) idempotency_key: Option<String>,
    /// Limit of the work: it ends when its caller has left.
    pub(super) limit: WorkLimit,
}

impl ApiRequest {
    /// Returns a parameter of the path; empty if the route has none at this index.
    pub(super) fn name(&self, index: usize) -> &str {
        self.names.get(index).map_or("", String::as_str)
    }

    /// Returns a parameter of the query; `None` if it is absent or empty.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        query_value(self.query.as_deref(), name)
            .filter(|value| !value.is_empty())
            .map(|value| value.into_owned())
    }

    /// Returns a parameter of the query, parsed. `None` if it is absent.
    ///
    /// # Errors
    /// Returns the error of a value that cannot be parsed, with the hint.
    pub(super) fn parsed<T: FromStr>(&self, name: &str, hint: &str) -> Result<Option<T>, AdminApiError> {
        let Some(text) = self.parameter(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| AdminApiError::field(name, hint.to_owned()))
    }

    /// Returns the size of a page: the parameter `limit`, or the default.
    ///
    /// # Errors
    /// Returns the error of a value out of range.
    pub(super) fn limit(&self, default: usize, most: usize) -> Result<usize, AdminApiError> {
        let hint = format!("write a number from 1 to {most}");
        let limit = self.parsed::<usize>("limit", &hint)?.unwrap_or(default);
        if (1..=most).contains(&limit) { Ok(limit) } else { Err(AdminApiError::field("limit", hint)) }
    }

    /// Returns whether the request is only to be checked.
    ///
    /// # Errors
    /// Returns the error of another value than true and false.
    pub(super) fn dry_run(&self) -> Result<bool, AdminApiError> {
        Ok(self.parsed::<bool>("dry_run", "write true or false")?.unwrap_or(false))
    }

    /// Returns a text of the body; `None` if it is absent. The type is checked already.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.body.get(name).and_then(Value::as_str)
    }
}

/// Returns the parameters of a path if it matches a pattern such as `/keys/{name}`. Segments are decoded after the path is
/// split, so that a name may have a slash.
pub(super) fn match_path(pattern: &str, path: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let (mut parts, mut segments) = (pattern.split('/'), path.split('/'));
    loop {
        match (parts.next(), segments.next()) {
            (None, None) => return Some(names),
            (Some(part), Some(segment)) if part.starts_with('{') && !segment.is_empty() => {
                names.push(percent_decode(segment).into_owned());
            }
            (Some(part), Some(segment)) if part == segment => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_parameters_are_decoded_segments() {
        let matched = |pattern, path| match_path(pattern, path);
        assert_eq!(matched("/keys", "/keys"), Some(vec![]));
        assert_eq!(matched("/keys/{name}", "/keys/a%2Fb%20c"), Some(vec!["a/b c".to_owned()]));
        assert_eq!(
            matched("/targets/{provider}/{model}/drain", "/targets/p/org%2Fm/drain"),
            Some(vec!["p".to_owned(), "org/m".to_owned()])
        );
        for path in ["/keys/", "/keys/a/b", "/key", "/", ""] {
            assert_eq!(matched("/keys/{name}", path), None, "{path}");
        }
    }
}
