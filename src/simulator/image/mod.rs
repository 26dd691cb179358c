//! Providers of images, simulated: Ark, and DashScope's own address for what is made.
//!
//! Here live what they share: keys, a body's fields, pictures ([`picture`]) and the links to them, and one file per
//! provider with its paths, its names of members, its limits, its answers and its errors. A member that a provider does
//! not have is refused, so that tests see what is sent to whom. Links end after a day, as the providers' do; tasks take
//! a moment. Here must not live: what any other provider does.
//!
//! Sources: the providers' API references and SDKs (arkruntime 4.0, dashscope 2.0) of November 2026.

mod ark;
mod dashscope;
pub(super) mod picture;

use serde_json::{Map, Value};

use super::http::{Reply, Request};

pub(super) use ark::Site as Ark;
pub(super) use dashscope::answer as dashscope;

/// Why a request is refused: status, code, text.
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

/// A provider adds its mark unless it is told not to, so that whoever asks should say it.
fn mark(object: &Map<String, Value>) -> Result<bool, Refusal> {
    match object.get("watermark") {
        None => Ok(true),
        Some(value) => value.as_bool().ok_or_else(|| invalid("The parameter `watermark` must be a boolean.")),
    }
}

/// An image that is sent: an address, or the image as one.
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

/// What lies behind a link to a picture; nothing where the path is none.
pub(super) fn linked(request: &Request) -> Option<Reply> {
    picture::linked(&request.path, request.query("Expires"), request.query("Signature"))
}
