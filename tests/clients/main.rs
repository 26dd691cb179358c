//! Real clients against the gateway, with providers of other formats behind it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
#![allow(clippy::print_stderr, dead_code, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;

mod agents;
mod aws;
mod endpoints;
mod providers;
mod sdks;
mod shipped;
