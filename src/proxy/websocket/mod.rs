//! The responses API over WebSocket (docs/websocket.md).
//!
//! `handshake` accepts the upgrade in the request phase; the driver then hands the connection to `connection`, the loop
//! of one socket: frames, pings, time-outs and the close. `accepted` is what the requests of a socket have in common,
//! `origin` tells them from those over HTTP. `message` is one that is being received, `lanes` orders them, `kept_sockets` is what they keep open to providers,
//! `response` runs one of them through the same phases as a request over HTTP (`driver::in_process`) and makes messages of
//! its stream, `turn_text` is what the next turn repeats, `outbox` is what waits to be written. The events and the memory
//! of conversations are in `wire::responses::socket`, the frames in `framing::websocket`.
//!
//! Must not live here: authentication, limits, routing and settlement of a response, which are those of any request.

mod accepted;
mod connection;
mod deadlines;
pub(crate) mod handshake;
mod kept_sockets;
mod lanes;
mod message;
pub(crate) mod origin;
mod outbox;
mod response;
mod turn_states;
mod turn_text;
