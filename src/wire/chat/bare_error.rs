//! Error objects without an `error` member, which servers of the chat format send in place of a completion or a chunk.
//!
//! `{"object":"error","message":..,"code":..}` (vLLM, SGLang), `{"code":500,"msg":..,"success":false}` (Z.ai), `{"detail":..}`
//! (FastAPI), `{"errors":[..],"success":false}` (Cloudflare), `{"error_code":336,"error_msg":..}` (Baidu); read in November
//! 2026. They have neither choices nor usage.

use crate::json::RawJson;

/// What a member says about the object that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BareMember {
    /// It has the message, and no completion has such a member.
    Error,
    /// It has the message of an error, if another member identifies one.
    Message,
    /// It identifies an error beside a message.
    Mark,
    /// It says nothing.
    Other,
}

/// Returns what a member of an object says.
pub(super) fn bare_member(name: &str, value: RawJson<'_>) -> BareMember {
    match name {
        "success" if value.text() == "false" => BareMember::Mark,
        "object" if value.as_str().is_some_and(|object| object.is("error")) => BareMember::Mark,
        "success" | "object" => BareMember::Other,
        _ if value.is_void() => BareMember::Other,
        "detail" | "errors" | "error_msg" => BareMember::Error,
        "message" | "msg" => BareMember::Message,
        "code" | "type" | "request_id" | "error_code" => BareMember::Mark,
        _ => BareMember::Other,
    }
}
