//! Gemini generate format: `models/{model}:generateContent`, `v1beta`, as documented in November 2026
//! (<https://ai.google.dev/api/generate-content>).
//!
//! | | |
//! |---|---|
//! | path | `/v1beta/models/{model}:generateContent`, `:streamGenerateContent`; `/v1` too; upstream `{base_url}/...` |
//! | credential | `x-goog-api-key`, `x-vendor-api-key`, `?key=` or `Authorization: Bearer`; upstream `x-goog-api-key` |
//! | stream | by path; `alt=sse`: server-sent events (CRLF, no names, no terminator), else one JSON array |
//! | usage in a stream | in every frame, cumulative |
//! | error | `{"error":{"code","message","status","details"}}`; in a stream as a frame; in an array as its element |
//! | names | proto JSON: camelCase, snake_case accepted everywhere |
//!
//! This module has both directions of the format: [`request`], [`stream`], [`answer`]. Shared code has a file each:
//! parts, thought signatures, grounding, log probabilities, finish reasons. Other formats do not belong here, nor do
//! deviations of single providers: the [`Dialect`](crate::canonical::Dialect) describes those.

pub mod answer;
pub mod error;
mod finish;
mod grounding;
mod logprobs;
mod offsets;
mod part;
pub mod request;
mod schema;
mod signature;
pub(super) mod spellings;
pub mod stream;
mod usage;
pub mod watch;

#[cfg(test)]
mod tests;

pub(super) use signature::{SKIP, read as read_signature};
