//! The console in a browser: the tasks of an operator, its pages at every size and in both colours, and accessibility.
//!
//! The browser is Chromium without a window, driven over WebDriver. If `chromium` or `chromedriver` is missing, the tests
//! say SKIPPED, or fail if `GATEWAY_REQUIRE_ALL=1`. With `UPDATE_SHOTS=1` the pictures in docs/console/ are written anew.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "these are tests"
)]
#![allow(dead_code)]

mod browser;
mod details;
mod files;
mod keyboard;
mod limits;
mod live;
mod many;
mod names;
mod pages;
mod playground;
mod restart;
mod states;
mod stored;
#[path = "../support/mod.rs"]
mod support;
mod tasks;
mod together;
mod world;
