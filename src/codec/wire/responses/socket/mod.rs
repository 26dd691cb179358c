//! Responses over WebSocket: the events of both sides (<https://platform.openai.com/docs/guides/websocket-mode>,
//! November 2026), and the conversations that a connection remembers.
//!
//! One JSON object per text message. The client sends `response.create`, which has the members of the POST body, and
//! `response.steer`; the server sends the events of the stream, without the framing of server-sent events. All text is
//! cut and joined as it was sent; no tree is built.
//!
//! Connections, lanes and time-outs do not live here.

mod client;
mod memory;
pub mod provider;
mod server;
mod steering;

#[cfg(test)]
mod tests;

pub use client::{ClientEvent, Create, MAX_STREAM_ID, Steer};
pub use memory::{ContinuedFrom, ConversationMemory, ConversationTurn, Origin};
pub use server::{
    ErrorEvent, Watched, empty_response, error_event, lane_member, rate_limits_event, response_completed,
    steer_failed, watch,
};
pub use steering::{PendingSteers, SteerEvent};
