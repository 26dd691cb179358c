//! Limits of gateway.toml: sizes, counts and time-outs that protect the gateway.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::node::{ConfigTable, Value};
use routing::account::Network;

/// Resource limits and time-outs that protect the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest request body, bytes.
    pub body: usize,
    /// Largest non-streamed response, bytes.
    pub answer: usize,
    /// Largest frame of a stream, bytes.
    pub frame: usize,
    /// Concurrent client connections.
    pub connections: usize,
    /// Concurrent requests.
    pub requests: usize,
    /// Memory budget of all bodies together, bytes.
    pub memory: usize,
    /// Largest request head, bytes.
    pub head: usize,
    /// Time from the first byte of a request to the end of its head, and for a TLS handshake.
    pub header_timeout: Duration,
    /// Maximum time between two reads of a request body.
    pub body_timeout: Duration,
    /// Idle time-out of a client connection between requests.
    pub keepalive: Duration,
    /// Silence on a stream after which the client gets keep-alive filler; zero disables it.
    pub heartbeat: Duration,
    /// Wait for a streamed response after which the client gets an early response head; zero disables it.
    pub slow_start: Duration,
    /// Maximum time of one write to a client.
    pub write_timeout: Duration,
    /// Concurrent WebSockets.
    pub websockets: usize,
    /// Time after which a WebSocket takes no further requests.
    pub websocket_lifetime: Duration,
    /// Time between two pings of a WebSocket; a peer that is silent after one until the next is gone.
    pub websocket_ping: Duration,
    /// Idle upstream connections in the pool, over all providers.
    pub pool: usize,
    /// Idle time-out of a pooled upstream connection.
    pub pool_idle: Duration,
    /// Private networks that remote media may be fetched from.
    pub fetch_allow: Vec<Network>,
    /// Largest remote media, bytes.
    pub fetch: usize,
    /// Concurrent fetches of remote media, over all requests.
    pub fetches: usize,
    /// Time-out of one fetch.
    pub fetch_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            // Above Anthropic's 32 MB and OpenAI's 50 MB of files in base64.
            body: 64 << 20,
            answer: 256 << 20,
            frame: 64 << 20,
            connections: 16_384,
            // As many as connections. HTTP/2 could carry more, but a process with more requests in flight is slow for
            // all of them.
            requests: 16_384,
            // 64 of the largest bodies.
            memory: 4 << 30,
            // Twice the default of other servers; SDKs send 1 KiB, and a session in a cookie is 16 KiB at most.
            head: 64 << 10,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            keepalive: Duration::from_secs(75),
            // A quarter of the usual idle time-out of intermediate proxies (60 s).
            heartbeat: Duration::from_secs(15),
            // A response head fixes the status. So it is sent later than nearly all responses and errors arrive, but
            // before the shortest time-outs of intermediaries (30 s at some clouds' load balancers).
            slow_start: Duration::from_secs(25),
            write_timeout: Duration::from_secs(60),
            // Half of the connections, so that open WebSockets leave room for requests over HTTP.
            websockets: 8_192,
            // OpenAI's own.
            websocket_lifetime: Duration::from_secs(3_600),
            // Below the shortest idle time-outs of intermediaries (30 s at some clouds' load balancers).
            websocket_ping: Duration::from_secs(25),
            pool: 1_024,
            // Below the idle time-outs of the providers' load balancers (60 s and more): the gateway closes first.
            // Otherwise a provider might close a connection at the moment in which a request is sent on it.
            pool_idle: Duration::from_secs(50),
            fetch_allow: Vec::new(),
            // An uncompressed image of 4096 by 4096 pixels.
            fetch: 64 << 20,
            // Each takes a file descriptor and up to `fetch` bytes, which count towards `memory`.
            fetches: 256,
            // The largest media at 10 Mbit/s.
            fetch_timeout: Duration::from_secs(60),
        }
    }
}

/// Range of `limits.head`. Below it, the heads of SDKs do not fit; above it, Pingora stops reading.
const HEAD: RangeInclusive<usize> = 4 << 10..=1 << 20;
/// Shortest `limits.websocket_ping` and `limits.websocket_lifetime`.
const MIN_PING: Duration = Duration::from_secs(1);

pub(super) fn read_limits(table: &ConfigTable<'_>) -> Limits {
    let default = Limits::default();
    let count = |key, range, default: usize| {
        table.integer(key, &range).and_then(|n| usize::try_from(n).ok()).unwrap_or(default)
    };
    let limits = Limits {
        body: table.size("body").unwrap_or(default.body),
        answer: table.size("answer").unwrap_or(default.answer),
        frame: table.size("frame").unwrap_or(default.frame),
        connections: count("connections", 1..=10_000_000, default.connections),
        requests: count("requests", 1..=10_000_000, default.requests),
        memory: table.size("memory").unwrap_or(default.memory),
        head: table.size("head").unwrap_or(default.head),
        header_timeout: table.duration("header_timeout").unwrap_or(default.header_timeout),
        body_timeout: table.duration("body_timeout").unwrap_or(default.body_timeout),
        keepalive: table.duration("keepalive").unwrap_or(default.keepalive),
        heartbeat: table.duration("heartbeat").unwrap_or(default.heartbeat),
        slow_start: table.duration("slow_start").unwrap_or(default.slow_start),
        write_timeout: table.duration("write_timeout").unwrap_or(default.write_timeout),
        websockets: count("websockets", 0..=10_000_000, default.websockets),
        websocket_lifetime: table.duration("websocket_lifetime").unwrap_or(default.websocket_lifetime),
        websocket_ping: table.duration("websocket_ping").unwrap_or(default.websocket_ping),
        pool: count("pool", 0..=10_000_000, default.pool),
        pool_idle: table.duration("pool_idle").unwrap_or(default.pool_idle),
        fetch_allow: table.get("fetch_allow").map(|value| read_networks(&value)).unwrap_or_default(),
        fetch: table.size("fetch").unwrap_or(default.fetch),
        fetches: count("fetches", 1..=1_000_000, default.fetches),
        fetch_timeout: table.duration("fetch_timeout").unwrap_or(default.fetch_timeout),
    };
    if limits.memory < limits.body {
        table.wrong("memory is smaller than body", "the largest body must fit into memory".to_owned());
    }
    if !HEAD.contains(&limits.head) {
        table.wrong("head must be from 4KiB to 1MiB", "for example: head = \"64KiB\"".to_owned());
    }
    if limits.websocket_ping < MIN_PING || limits.websocket_lifetime < MIN_PING {
        let message = "websocket_ping and websocket_lifetime must be at least 1s";
        table.wrong(message, "for example: websocket_ping = \"25s\"".to_owned());
    }
    if limits.body == 0 {
        table.wrong("a body limit of 0 rejects every request", "for example: body = \"64MiB\"".to_owned());
    }
    limits
}

fn read_networks(value: &Value<'_>) -> Vec<Network> {
    let mut networks = Vec::new();
    value.elements(|element| {
        let hint = || "for example: \"10.0.0.0/8\" or \"192.0.2.7\"".to_owned();
        networks.extend(element.parsed(|text| Network::parse(text).ok_or_else(hint)));
    });
    networks
}
