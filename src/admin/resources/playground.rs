//! Playground: a request that an operator sends with a key of the gateway. It takes the path of a client's request, with
//! every rule, limit and charge of the key. Its text is neither logged nor kept.

use bytes::Bytes;

use crate::control::PlaygroundRequest;
use crate::error::AdminApiError;
use crate::request::ApiRequest;
use crate::schema::{MemberType, Record, member};

/// Name of the operation.
pub(crate) const ID: &str = "runPlayground";
/// Longest path with its query, in bytes.
const LONGEST_PATH: usize = 2_048;
/// Longest key, in bytes.
const LONGEST_KEY: usize = 1_024;

/// Request of the playground.
pub(crate) const REQUEST: Record = Record {
    name: "PlaygroundRequest",
    text: "Request that is sent as a client sends it. The answer is a stream of the events `head` (status and headers), \
           `body` (pieces of text) and `end`, each with `ms`, the time since the request.",
    members: &[
        member("path", MemberType::Text, "Path with its query, such as `/v1/chat/completions`."),
        member("key", MemberType::Text, "Text of a key of the gateway."),
        member("body", MemberType::Text, "Text of the body."),
    ],
};

/// Returns the request that the body describes.
///
/// # Errors
/// Returns the error of a member that no client could send.
pub(crate) fn read(request: &ApiRequest) -> Result<PlaygroundRequest, AdminApiError> {
    let path = request.text("path").unwrap_or_default();
    let target = path.parse().ok().filter(|_| path.starts_with('/') && path.len() <= LONGEST_PATH);
    let target = target.ok_or_else(|| AdminApiError::field("path", "write a path that begins with /"))?;
    let key = request.text("key").unwrap_or_default();
    let value = http::HeaderValue::from_str(&format!("Bearer {key}"));
    let key = value.ok().filter(|_| !key.is_empty() && key.len() <= LONGEST_KEY);
    let mut key = key.ok_or_else(|| AdminApiError::field("key", "write the text of a key"))?;
    key.set_sensitive(true);
    let body = Bytes::copy_from_slice(request.text("body").unwrap_or_default().as_bytes());
    Ok(PlaygroundRequest { target, key, body, address: request.caller.address })
}
