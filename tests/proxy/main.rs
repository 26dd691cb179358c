//! The running gateway, seen from outside: clients on one side, scripted providers on the other.
//!
//! Each test starts a gateway of its own, as a process, on loopback. No test asserts how long something takes, only
//! what happens and in which order.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "these are tests"
)]
#![allow(dead_code)]

#[path = "../support/mod.rs"]
mod support;

mod accounts;
mod bodies;
mod bounds;
mod call_ids;
mod checks;
mod connections;
mod counting;
mod edge;
mod embeddings;
mod faults;
mod fetching;
mod fleet;
mod fleet_tasks;
mod group;
mod hold;
mod home;
mod images;
mod jobs;
mod keys;
mod large;
mod limits;
mod linked;
mod listing;
mod losses;
mod memory;
mod names;
mod other_models;
mod overload;
mod owned;
mod parity;
mod pictures;
mod quotas;
mod refusals;
mod reload;
mod rerank;
mod resend;
mod resume;
mod routing;
mod secrets;
mod silence;
mod slow;
mod spelled;
mod stall;
mod state_file;
mod stderr;
mod stop;
mod stored;
mod streams;
mod tasks;
mod upgrade;
mod upstreams;
mod vault;
mod verbatim;
mod video_money;
mod video_rules;
mod videos;
