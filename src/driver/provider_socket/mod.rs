//! WebSockets to providers (docs/websocket.md#to-providers): a request goes over an open socket as one event, and the
//! events of its response come back as the server-sent events of an HTTP response.
//!
//! `session` is one socket: the driver writes, reads and times it like an HTTP connection. `attempt` takes or opens one for an attempt, `open` makes the handshake. `pool` holds the idle
//! sockets, each with a task that answers pings, and remembers providers that refuse sockets. `conversation` is the
//! socket that a client's conversation keeps for itself. `steering` brings it what the client says during a response.
//!
//! Must not live here: the events themselves (`wire::responses::socket::provider`), and sockets of clients
//! (`proxy::websocket`).

mod attempt;
pub mod conversation;
pub mod open;
pub mod pool;
pub mod session;
pub mod steering;
