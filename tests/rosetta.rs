//! The same conversation in all formats: what one format says, every other says too, up to losses that are declared.
//!
//! `tests/golden/<case>/{chat,messages,responses,generate}.json` are the same request four times, as each format's
//! provider gets it; `answer.<format>.{json,sse}` the same answer, as each provider gives it; `error.<format>.json` the
//! same error. `losses` declares, pair by pair, how what is written differs from the file of its format, and
//! `streams/<from>-<to>.sse` are the streams that clients see. Both are written anew with UPDATE_GOLDEN=1, and read
//! before they are committed. Beside the goldens: prompts that grow, streams that are cut, seals that come back.

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
