//! The generate format (Gemini `models/{model}:generateContent`; reference: Gemini API, `v1beta`, November 2026).
//!
//! | | |
//! |---|---|
//! | path | `/v1beta/models/{model}:generateContent`, `:streamGenerateContent`, under `/v1` too; upstream the same below `{base_url}` |
//! | credential | `x-goog-api-key`, `x-vendor-api-key`, `?key=` or `Authorization: Bearer`; upstream `x-goog-api-key` |
//! | stream | by path: with `alt=sse` server-sent events (CRLF, no names, no terminator), otherwise one JSON array in pieces |
//! | usage in a stream | in every frame, cumulative |
//! | error | `{"error":{"code","message","status","details"}}`; in a stream as a frame; in an array as its element |
//! | names | proto JSON: camelCase, snake_case accepted everywhere |

//!
//! Here live both directions of it: [`request`], [`stream`], [`answer`]. What they share has a file each: how parts are
//! written, signatures, grounding, log probabilities, reasons to finish. Here must not live: what another format says,
//! or what a provider of this one does differently (that is in the [`Dialect`](crate::canonical::Dialect)).

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
