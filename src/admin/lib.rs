//! Admin port: health, metrics, the admin API (`/admin/v1`) and the console (`/console/`), which is a client of the API.
//!
//! One table of routes ([`route_table`]) is what the router follows, what the document of the API is generated from
//! ([`openapi`]), and where the role that an operation needs stands. A request passes the checks against hostile pages
//! ([`origin`]), names its caller ([`caller`]: a token, a session of a browser ([`session`], begun with a token or at an issuer
//! of identities ([`oidc`])), or the process at the other end), and is answered by a function of [`resources`] on a thread that may
//! block. What changes something is recorded before it takes effect ([`audit`]).
//!
//! The port is served outside of the workers that serve clients. The state of the running gateway is reached through
//! [`GatewayControl`]. Here must not live: what a change of the configuration means (`config`), balances (`ledger`), and
//! anything that a request of a client passes.

mod answers;
mod api;
mod audit;
mod audit_check;
mod audit_recovery;
mod body;
mod caller;
mod capacity;
mod client_verifier;
mod connection;
mod console;
mod control;
mod drain_state;
mod error;
mod events;
mod exchange;
mod fleet;
mod ledger_pool;
mod listener;
mod oidc;
mod openapi;
mod origin;
mod playground_stream;
mod process_stat;
mod recording;
mod repeats;
mod request;
mod resources;
mod response;
mod route;
mod route_table;
mod schema;
mod session;
mod throttle;
mod tls;
mod unique;

pub use api::{AdminApi, AdminApiParts};
pub use audit::{AuditEntry, AuditLog, AuditOutcome};
pub use audit_check::{AuditFault, AuditSummary, verify_audit};
pub use capacity::BLOCKING_THREADS;
pub use client_verifier::{client_verifier, parse_certificates};
pub use control::{
    ExplainRequest, ExplainedTarget, Explanation, GatewayControl, LimitUse, PlaygroundPart,
    PlaygroundRequest, ProviderCheck,
};
pub use listener::{AdminListener, bind, bind_socket, serve};
pub use openapi::document as openapi_document;
pub use recording::AuditedUpgrade;
pub use tls::{AdminTls, AdminTlsError, CertificateValidity};

/// Version of the API in the path of all its routes.
pub const PREFIX: &str = "/admin/v1";
