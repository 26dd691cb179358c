//! OpenAI responses format: `POST /v1/responses`, as documented in November 2026
//! (<https://platform.openai.com/docs/api-reference/responses>).
//!
//! | | |
//! |---|---|
//! | path | `/v1/responses`; upstream `{base_url}/responses`; a query `api-version` is accepted and ignored |
//! | credential | `Authorization: Bearer` |
//! | stream | `stream: true`: server-sent events named by their data's `type`, with `sequence_number`; no `[DONE]` |
//! | usage in a stream | in the terminal event: `response.completed`, `.incomplete` or `.failed` |
//! | error | as in the chat format; in a stream the event `error` or `response.failed` |
//! | request id | `x-request-id` |
//!
//! This module has only code that is specific to the format: [`request`]s, [`stream`]s, whole [`answer`]s and errors.
//! A response is a list of items (messages, reasoning, calls), and an item has parts. A stream announces, fills and
//! completes each of them. A whole response uses the same code: it is a stream that is collected. Code that depends
//! on the provider does not belong here.

pub mod answer;
pub mod compaction;
pub mod error;
pub mod references;
pub mod request;
mod shell;
pub mod socket;
pub(super) mod spellings;
pub mod stored;
pub mod stream;
mod text;
pub mod watch;

#[cfg(test)]
mod tests;
