//! Tests over real sockets: one file per format, one for the server (`server`), one for the directives (`faults`) and
//! one for prescribed responses (`scenario`).
//! The test client (`client`) writes HTTP/1.1 itself, so that no library hides the bytes on the wire. Tests of single
//! functions live beside the functions.

mod anthropic;
mod bedrock;
mod client;
mod faults;
mod google;
mod openai;
mod responses;
mod scenario;
mod server;
mod socket;

use super::{Options, SimulatedProvider, Simulator};

async fn start(provider: SimulatedProvider) -> Simulator {
    Simulator::start(provider, Options::default()).await.unwrap()
}
