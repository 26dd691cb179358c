//! Tests over real sockets. Here live: a client that writes HTTP/1.1 by hand, so that no library hides what is on the
//! wire (`client`), and one file per provider's format next to one for the socket (`server`) and one for what the
//! directives stage (`faults`). Here must not live: tests of single functions; they stand beside them.

mod anthropic;
mod client;
mod faults;
mod google;
mod openai;
mod responses;
mod server;

use super::{Options, SimulatedProvider, Simulator};

async fn start(provider: SimulatedProvider) -> Simulator {
    Simulator::start(provider, Options::default()).await.unwrap()
}
