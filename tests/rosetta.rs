//! The same conversation in all formats: every pair of formats must translate it without losses other than the declared
//! ones.
//!
//! `tests/golden/<case>/{chat,messages,responses,generate}.json` are the same request in the four formats;
//! `answer.<format>.{json,sse}` is the same response and `error.<format>.json` the same error as the providers send
//! them. `losses` declares, for each pair, how translated requests, documents and errors differ from the files of their
//! format, and `streams/<from>-<to>.sse` are the translated streams. UPDATE_GOLDEN=1 rewrites both; review the diff
//! before you commit it. Further modules test growing prompts, truncated streams and provider signatures.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "rosetta/conversation.rs"]
mod conversation;
#[path = "rosetta/cuts.rs"]
mod cuts;
#[path = "rosetta/difference.rs"]
mod difference;
#[path = "rosetta/goldens.rs"]
mod goldens;
#[path = "rosetta/prompts.rs"]
mod prompts;
#[path = "rosetta/route.rs"]
mod route;
#[path = "rosetta/seals.rs"]
mod seals;
#[path = "rosetta/splits.rs"]
mod splits;
#[path = "rosetta/usage.rs"]
mod usage;
