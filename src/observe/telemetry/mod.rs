//! Telemetry: traces, log records and metrics over OTLP/HTTP ([decisions/017](../../docs/decisions/017-telemetry.md)).
//!
//! A request that ends is encoded on its own thread, as its access log line is, if it is sampled; [`Telemetry`] puts the
//! bytes into a bounded queue. One thread exports them ([`transport`], with retries). Encoding, trace context and
//! conventions need no socket and build without the feature `proxy`.
//!
//! What a request is must not live here: `proxy` states its [`facts`]. Nothing that was said and no secret may become
//! part of them.

pub mod attributes;
pub mod conventions;
pub mod envelope;
pub mod facts;
pub mod log_record;
pub mod protobuf;
pub mod span;
pub mod trace_context;

mod exporter;
mod handle;
mod metrics_data;
mod queue;
pub mod sampling;
pub mod transport;

#[cfg(test)]
mod tests;

pub use exporter::MetricSource;
pub use handle::{MetricTerms, SignalTerms, Telemetry, TelemetryError, TelemetryTerms};
