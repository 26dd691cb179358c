//! The gateway on Pingora. Only this module names Pingora's proxy types.
//!
//! The path of a request: `server` accepts the connection, `driver` reads the head and runs the exchange with the
//! provider, `gateway` implements the phases that the driver calls (authentication, routing, admission, translation,
//! settlement, logging), `endpoints` answers what is not one exchange (jobs, tasks, token counts), and `client` makes
//! the gateway's own calls to providers. `credentials` renews those that do not last. `websocket` serves the responses API over WebSocket. Several of them use `body_memory`, `names` and `upstream_route`.
//!
//! Must not live here: the meaning of formats (`wire`, `translate`), target selection (`route`, `provider`) and key
//! permissions (`account`).

mod client;
mod credentials;
mod endpoints;
mod gateway;
mod server;
mod upstream_route;
mod websocket;

pub use credentials::probe::{CredentialReport, check_credentials};
pub use driver::chunks::{Chunks, Misframed};
pub use driver::encoding::ContentCoding;
pub use driver::head::{HeadFault, HeadScan};
pub use driver::shutdown::Shutdown;
pub use gateway::context::Context;
pub use gateway::request_encoding::RequestDecoder;
pub use gateway::state::{Gateway, GatewayInner, GatewayParts, GatewayTelemetry};
pub use server::open::StoreFault;
pub use server::{ServeError, ServeOptions, Server, Started};

/// Downstream session of a request.
type Client = pingora::protocols::http::ServerSession;
