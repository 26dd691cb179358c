//! The commands for coding clients, from outside: settings files of each client, and scripts in the place of clients.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod doctor;
mod faults;
mod gateway;
mod home;
mod settings;
mod start;
