//! The wire formats of LLM providers, and the translation between them.
//!
//! Nothing here opens a socket or a file. Formats are chat completions, messages, responses, generateContent and Converse.
//! A request is decoded into the canonical model, adapted to what its target takes, and encoded in the target's format; a
//! response comes back the same way, as a document or as a stream of events, piece by piece as it arrives.
//!
//! * [`canonical`] is the format-independent model of requests, responses and events. It names no format and no
//!   provider.
//! * [`catalogue`] is what is true of each model, as data: what it takes, its context window, its prices and its end.
//! * [`wire`] implements the formats, one folder each, with their paths, errors and model listings. Formats never import
//!   each other.
//! * [`translate`] connects two formats, or a format with itself: it decides once per exchange how the response is
//!   handled, and then forwards it.
//! * [`provider`] describes providers apart from the formats: addresses, credentials, quirks.
//! * [`job`] builds responses from one or several provider calls: embeddings, rerank results, images.
//! * [`tokens`] estimates the token count of a request or a text locally, without a call to a provider.
//! * [`error`] is one table of every error that a request can end with: status, codes, metric label.

pub mod canonical;
pub mod catalogue;
pub mod error;
pub mod job;
pub mod provider;
pub mod tokens;
pub mod translate;
pub mod wire;
