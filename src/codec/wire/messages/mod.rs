//! Anthropic messages format (<https://docs.anthropic.com/en/api/messages>, versions `2023-06-01` and `2026-10-21`).
//!
//! | | |
//! |---|---|
//! | path | `/v1/messages`; upstream `{base_url}/messages` |
//! | client credential | `x-api-key`, or `Authorization: Bearer` (SDKs since October 2026) |
//! | upstream credential | `x-api-key`, with `anthropic-version` |
//! | stream | `stream: true`: the events `message_*`, `content_block_*`, `ping` and `error` |
//! | usage in a stream | `message_start` and, cumulative, `message_delta` |
//! | error | `{"type":"error","error":{"type","message"},"request_id"}`, in a stream as the event `error` |
//! | request id | `request-id` |
//!
//! This module holds the codecs of requests ([`request`]), streams ([`stream`]) and whole responses ([`answer`]), and
//! what they share: content blocks, call arguments, finish reasons and usage; and the automatic cache marks of a request
//! that is not decoded ([`breakpoints`]). Translation to other formats and
//! differences between providers do not belong here.

pub mod answer;
mod arguments;
pub(super) mod breakpoints;
mod citation;
mod content;
pub mod error;
mod finish;
pub mod request;
pub mod signatures;
pub(super) mod spellings;
pub mod stream;
mod usage;
pub mod watch;

#[cfg(test)]
mod tests;
