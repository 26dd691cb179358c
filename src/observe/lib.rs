//! What operators see of requests and of the process.
//!
//! * [`metrics`] is every series in one table, the access log, and the events of live requests.
//! * [`telemetry`] encodes traces, log records and metrics for OpenTelemetry, without a copy of what is said, and exports
//!   them to a collector.

pub mod metrics;
pub mod telemetry;

/// The gateway's version. A release build adds the id of its commit.
pub const VERSION: &str = env!("MODEL_GATEWAY_VERSION");
