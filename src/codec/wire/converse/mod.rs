//! Converse format of Amazon Bedrock
//! (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html> and
//! <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html>, service model of 2023-09-30
//! as of November 2026).
//!
//! | | |
//! |---|---|
//! | path | `/model/{model}/converse` and `/model/{model}/converse-stream` |
//! | client credential | `Authorization: Bearer` |
//! | upstream credential | `Authorization: Bearer`, or a signature (AWS Signature Version 4) |
//! | stream | AWS event stream: `messageStart`, `contentBlock*`, `messageStop`, `metadata`, exceptions |
//! | usage in a stream | the last event, `metadata`, behind the stop reason |
//! | error | `{"message"}` with the header `x-amzn-errortype`, in a stream as an exception |
//! | request id | `x-amzn-requestid` |
//!
//! The decoders read an event of a stream as one JSON object whose only member is named like the event; the encoder
//! writes messages of an event stream.
//!
//! This module holds the codecs of requests ([`request`]), streams ([`stream`]) and whole responses ([`answer`]), and
//! what they share; and the automatic cache points of a request that is not decoded (`breakpoints`). Translation to other formats and differences between models do not belong here.

pub mod answer;
pub(super) mod breakpoints;
mod citation;
mod content;
pub mod error;
mod finish;
mod media;
pub mod request;
pub mod stream;
mod usage;
pub mod watch;

#[cfg(test)]
mod tests;
