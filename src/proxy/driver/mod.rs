//! The driver: what Pingora's proxy loop does, for request bodies that were read before the provider was chosen
//! (docs/decisions/002). Connections, bytes, timers, write coalescing, pooling and resends.
//!
//! Generic over `ProxyHttp`: `http1` and `http2` serve a connection of a client, `request` calls the phases, `attempt` runs the
//! exchange that `proxy_upstream_filter` starts, `send` writes the request, `answer` forwards the response. `in_process` runs the
//! phases for a request that comes over no HTTP connection, `provider_socket` carries one over a WebSocket. `hooks` is
//! what Pingora's trait has no phase for. The day that Pingora's own loop can carry such a body, this module can go.
//!
//! Must not live here: formats, keys, money.

pub(in crate::proxy) mod addresses;
mod answer;
pub(in crate::proxy) mod attempt;
mod authority;
pub(in crate::proxy) mod burst;
pub(in crate::proxy) mod chunks;
pub(in crate::proxy) mod connection;
pub(in crate::proxy) mod descriptors;
pub(in crate::proxy) mod dns;
pub(in crate::proxy) mod downstream;
pub(in crate::proxy) mod encoding;
pub(in crate::proxy) mod exchange;
pub(in crate::proxy) mod exchange_timer;
pub(in crate::proxy) mod fault;
pub(in crate::proxy) mod head;
pub(in crate::proxy) mod header_timeout;
mod held_writes;
pub(in crate::proxy) mod hooks;
pub(in crate::proxy) mod http1;
pub(in crate::proxy) mod http2;
mod http2_frames;
pub(in crate::proxy) mod idle_tracker;
pub(in crate::proxy) mod in_process;
pub(in crate::proxy) mod interim;
pub(in crate::proxy) mod offload;
pub(in crate::proxy) mod outcome;
pub(in crate::proxy) mod peer;
pub(in crate::proxy) mod pool;
mod prefix_buffer;
pub(in crate::proxy) mod provider_addresses;
mod provider_http1;
pub(in crate::proxy) mod provider_session;
pub(in crate::proxy) mod provider_socket;
pub(in crate::proxy) mod reader;
mod request;
pub(in crate::proxy) mod resend;
pub(in crate::proxy) mod send;
pub(in crate::proxy) mod shutdown;
pub(in crate::proxy) mod throughput;
pub(in crate::proxy) mod yielding;

#[cfg(test)]
mod tests;
