//! Simulated image providers: Ark, and DashScope's native API.
//!
//! This file has their common parts (keys, body fields, images ([`picture`]) and the links to them); each provider's
//! file has its paths, member names, limits, responses and errors. A member that a provider does not have is refused,
//! so that tests notice a member sent to the wrong provider. Links expire after a day, as the providers' do; tasks take
//! less than a second. Other kinds of providers do not belong here.
//!
//! Sources: the providers' API references and SDKs (arkruntime 4.0, dashscope 2.0) of November 2026.

mod ark;
mod dashscope;
pub(super) mod picture;

use serde_json::{Map, Value};

use super::http::{Reply, Request};

pub(super) use ark::Site as Ark;
pub(super) use dashscope::answer as dashscope;

/// Reason why a request is refused: status, code, message.
struct Refusal(u16, &'static str, String);

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal(400, "InvalidParameter", message.into())
}

fn only(object: &Map<String, Value>, names: &[&str]) -> Result<(), Refusal> {
    match object.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(invalid(format!("The parameter `{name}` is not valid."))),
        None => Ok(()),
    }
}

fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, Refusal> {
    match object.get(name) {
        None => Ok(None),
        Some(value) => match value.as_str() {
            Some(text) => Ok(Some(text)),
            None => Err(invalid(format!("The parameter `{name}` must be a string."))),
        },
    }
}

fn whole(object: &Map<String, Value>, name: &str, most: u64) -> Result<Option<u64>, Refusal> {
    match object.get(name) {
        None => Ok(None),
        Some(value) => match value.as_u64().filter(|number| *number <= most) {
            Some(number) => Ok(Some(number)),
            None => Err(invalid(format!("The parameter `{name}` must be a number up to {most}."))),
        },
    }
}

/// Returns whether the image gets a watermark. The default is true, as at these providers, so a client should always
/// set it.
fn mark(object: &Map<String, Value>) -> Result<bool, Refusal> {
    match object.get("watermark") {
        None => Ok(true),
        Some(value) => value.as_bool().ok_or_else(|| invalid("The parameter `watermark` must be a boolean.")),
    }
}

/// Checks an input image: a URL, or a data URL.
fn source(value: &Value) -> Result<(), Refusal> {
    let text = value.as_str().unwrap_or_default();
    if text.starts_with("http://") || text.starts_with("https://") {
        return Ok(());
    }
    let data = text.strip_prefix("data:image/").and_then(|rest| rest.split_once(";base64,"));
    let bytes = data.and_then(|(_, data)| super::ids::decode_base64(data));
    if bytes.is_some_and(|bytes| picture::is_image(&bytes)) {
        return Ok(());
    }
    Err(invalid("The image must be a URL or a data URL of an image."))
}

/// Returns the response to an image link. `None` if the path is not one.
pub(super) fn linked(request: &Request) -> Option<Reply> {
    picture::linked(&request.path, request.query("Expires"), request.query("Signature"))
}
