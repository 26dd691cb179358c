//! The responses format (OpenAI `POST /v1/responses`; reference: OpenAI API, "Responses", November 2026).
//!
//! | | |
//! |---|---|
//! | path | `/v1/responses`; upstream `{base_url}/responses`; a query `api-version` is accepted and ignored |
//! | credential | `Authorization: Bearer` |
//! | stream | `stream: true`: server-sent events whose name is the data's `type`, numbered by `sequence_number`; no `[DONE]` |
//! | usage in a stream | in the terminal event: `response.completed`, `.incomplete` or `.failed` |
//! | error | as chat; in a stream the event `error`, or `response.failed` |
//! | request id | `x-request-id` |
//!
//! Here lives what only this format knows: its [`request`]s, its [`stream`]s, its whole [`answer`]s and its errors.
//! An answer is a list of items (messages, reasoning, calls), an item has parts, and a stream announces, fills and
//! closes each of them; a whole answer is such a stream, collected. Here must not live: who speaks the format.

pub mod answer;
pub mod error;
pub mod request;
mod shell;
pub(super) mod spellings;
pub mod stored;
pub mod stream;
mod text;
pub mod watch;

#[cfg(test)]
mod tests;
