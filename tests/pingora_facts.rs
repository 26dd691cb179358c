//! Facts about Pingora that the gateway rests on (docs/decisions/002 and 004).
//!
//! They are behavior, not interface: a new version can change them without a compile error. Each test states one fact
//! and names the module that rests on it. A test that fails after an update of Pingora says which module to reconsider;
//! some say that a workaround is no longer needed. No code of the gateway runs here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::large_futures,
    reason = "tests"
)]

#[path = "pingora_facts/connector.rs"]
mod connector;
#[path = "pingora_facts/http2.rs"]
mod http2;
#[path = "pingora_facts/process.rs"]
mod process;
#[path = "pingora_facts/proxy.rs"]
mod proxy;
#[path = "pingora_facts/request_body.rs"]
mod request_body;
#[path = "pingora_facts/server.rs"]
mod server;
#[path = "pingora_facts/support.rs"]
mod support;
