//! The driver: what Pingora's proxy loop does, for request bodies that were read before the provider was chosen
//! (docs/decisions/002). Connections, bytes, timers, write coalescing, pooling and resends.
//!
//! Generic over `ProxyHttp`: `http1` and `http2` serve a connection of a client, `request` calls the phases, `attempt` runs the
//! exchange that `proxy_upstream_filter` starts, `send` writes the request, `answer` forwards the response. `in_process` runs the
//! phases for a request that comes over no HTTP connection, `provider_socket` carries one over a WebSocket. `hooks` is
//! what Pingora's trait has no phase for. The day that Pingora's own loop can carry such a body, this module can go.
//!
//! Must not live here: formats, keys, money.

pub mod addresses;
mod answer;
pub mod attempt;
mod authority;
pub mod body_memory;
pub mod burst;
pub mod chunks;
pub mod connection;
pub mod descriptors;
pub mod dns;
pub mod downstream;
pub mod encoding;
pub mod exchange;
pub mod exchange_timer;
pub mod fault;
pub mod head;
pub mod header_timeout;
mod held_writes;
pub mod hooks;
pub mod http1;
pub mod http2;
mod http2_frames;
pub mod idle_tracker;
pub mod in_process;
pub mod interim;
pub mod names;
pub mod offload;
pub mod outcome;
pub mod peer;
pub mod pool;
mod prefix_buffer;
pub mod provider_http1;
pub mod provider_session;
pub mod provider_socket;
pub mod reader;
mod request;
pub mod resend;
pub mod send;
pub mod shutdown;
pub mod throughput;
pub mod yielding;

#[cfg(test)]
mod tests;
