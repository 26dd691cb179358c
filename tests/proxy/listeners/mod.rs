//! Listeners: what precedes HTTP on a connection, who the client is, and the renewal of what a listener needs.

mod certificates;
mod cors;
mod forwarded;
mod haproxy;
mod overrides;
mod proxy_protocol;
mod store_url;
mod watch;

use crate::support::client::request;
use crate::support::setup::{Setup, key};

/// Key that may be used from 203.0.113.0/24 and 2001:db8::/32 only.
const NET_KEY: &str = "client-key-of-nele-0009";

/// Returns a configuration with that key. Its provider is not reached.
fn setup() -> Setup {
    let mut setup = Setup::providers("127.0.0.1:1".parse().unwrap());
    setup.keys += &key("nele", NET_KEY, "networks = [\"203.0.113.0/24\", \"2001:db8::/32\"]");
    setup
}

/// Returns a request for the list of models with that key.
fn list(headers: &[(&str, &str)]) -> Vec<u8> {
    let bearer = format!("Bearer {NET_KEY}");
    request("GET", "/v1/models", &[&[("authorization", &*bearer)], headers].concat())
}
