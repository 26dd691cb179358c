//! The messages format (Anthropic `POST /v1/messages`; reference: Anthropic API, "Messages", versions `2023-06-01`
//! and `2026-10-21`).
//!
//! | | |
//! |---|---|
//! | path | `/v1/messages`; upstream `{base_url}/messages` |
//! | credential | `x-api-key`, or `Authorization: Bearer` (SDKs since October 2026); upstream `x-api-key` and `anthropic-version` |
//! | stream | `stream: true`: server-sent events `message_start`, `content_block_*`, `message_delta`, `message_stop`, `ping`, `error` |
//! | usage in a stream | `message_start` and, cumulative, `message_delta` |
//! | error | `{"type":"error","error":{"type","message"},"request_id"}`, in a stream as the event `error` |
//! | request id | `request-id` |
//!
//! Here live its requests ([`request`]), its streams ([`stream`]) and its whole answers ([`answer`]), read and written,
//! and what these share: a block of an answer, a call's arguments, why an answer ended and how tokens are counted. Here
//! must not live what other formats make of it, or who speaks it.

pub mod answer;
mod arguments;
mod content;
pub mod error;
mod finish;
pub mod request;
pub(super) mod spellings;
pub mod stream;
mod usage;
pub mod watch;

#[cfg(test)]
mod tests;
