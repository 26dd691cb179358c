//! The gateway as an implementation of Pingora's `ProxyHttp`: one file a phase, from the request head to the access log.
//!
//! `phases` is the implementation, each method one call into a file here; `exchange_hooks` is what the driver asks
//! beyond it; `state` is what all requests share, `context` what one request has, in its current `phase`; `attempt` and
//! `response_in_progress` are what passes between phases. Then in the order in which they run: `request` (with
//! `request_body`, `request_encoding`, `auth`, `admit`, `compaction`, `plan`, `prompt_cache`), `upstream`, `authorize`, `guardrail`, `invoke`, `response`, `fallback` and
//! `resume`, `reply`, `settle`, `finish` (with `trace_export`). `trace` has what telemetry records on the way; `explain` shows
//! what would become of a request.
//!
//! Must not live here: sockets, timers and the order of the phases (`driver`).

pub(in crate::proxy) mod active_snapshot;
pub(in crate::proxy) mod admit;
pub(in crate::proxy) mod attempt;
pub(in crate::proxy) mod auth;
mod authorize;
pub(in crate::proxy) mod billing;
pub(in crate::proxy) mod cache_plan;
mod claims;
pub(in crate::proxy) mod compaction;
pub(in crate::proxy) mod compaction_seal;
pub(in crate::proxy) mod context;
pub(in crate::proxy) mod cors;
pub(in crate::proxy) mod drained;
pub(in crate::proxy) mod early_response;
pub(in crate::proxy) mod exchange_hooks;
mod explain;
pub(in crate::proxy) mod fallback;
pub(in crate::proxy) mod fault_report;
pub(in crate::proxy) mod finish;
mod guardrail;
pub(in crate::proxy) mod images;
mod invoke;
mod item_references;
pub(in crate::proxy) mod join_hints;
mod listing;
pub(in crate::proxy) mod lost;
pub(in crate::proxy) mod phase;
mod phases;
pub(in crate::proxy) mod plan;
mod prompt_cache;
mod rate_limit_headers;
mod refit;
pub(in crate::proxy) mod refusals;
pub(in crate::proxy) mod remote_media;
pub(in crate::proxy) mod reply;
pub(in crate::proxy) mod request;
mod request_body;
pub(in crate::proxy) mod request_encoding;
pub(in crate::proxy) mod request_id;
pub(in crate::proxy) mod response;
pub(in crate::proxy) mod response_in_progress;
pub(in crate::proxy) mod response_owner;
pub(in crate::proxy) mod resume;
mod retry_state;
pub(in crate::proxy) mod selection;
mod service_tier;
pub(in crate::proxy) mod settle;
pub(in crate::proxy) mod signed_request;
pub(in crate::proxy) mod spans;
mod spend_queries;
pub(in crate::proxy) mod spent;
pub(in crate::proxy) mod state;
mod steering;
pub(in crate::proxy) mod sticky;
pub(in crate::proxy) mod stored;
mod suspended;
mod trace;
mod trace_export;
pub(in crate::proxy) mod upstream;
pub(in crate::proxy) mod vault;
