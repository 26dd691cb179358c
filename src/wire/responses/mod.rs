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

pub mod error;
pub mod watch;
