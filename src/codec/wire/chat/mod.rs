//! OpenAI chat completions format (<https://platform.openai.com/docs/api-reference/chat>, November 2026).
//!
//! | | |
//! |---|---|
//! | path | `/v1/chat/completions`; upstream `{base_url}/chat/completions` |
//! | credential | `Authorization: Bearer` |
//! | stream | `stream: true`: server-sent events without names; data is one chunk a frame, then `[DONE]` |
//! | usage in a stream | only with `stream_options.include_usage`: a last chunk with empty `choices` |
//! | error | `{"error":{"message","type","param","code"}}`, in a stream as a frame with a top-level `error` |
//! | request id | `x-request-id` |

pub mod answer;
mod bare_error;
pub mod correct;
mod details;
mod enums;
pub mod error;
pub mod request;
pub(super) mod spellings;
pub mod stream;
pub mod usage;
pub mod watch;
mod write;

#[cfg(test)]
mod tests;
