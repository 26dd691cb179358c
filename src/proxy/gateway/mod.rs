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

pub(crate) mod active_snapshot;
pub(crate) mod admit;
pub(crate) mod attempt;
pub(crate) mod auth;
mod authorize;
pub(crate) mod billing;
pub(crate) mod cache_plan;
mod claims;
pub(crate) mod compaction;
pub(crate) mod compaction_seal;
pub(crate) mod context;
pub(crate) mod cors;
pub(crate) mod drained;
pub(crate) mod early_response;
pub(crate) mod exchange_hooks;
mod explain;
pub(crate) mod fallback;
pub(crate) mod fault_report;
pub(crate) mod finish;
mod guardrail;
pub(crate) mod images;
mod invoke;
mod item_references;
pub(crate) mod join_hints;
mod listing;
pub(crate) mod lost;
pub(crate) mod phase;
mod phases;
pub(crate) mod plan;
mod prompt_cache;
pub(crate) mod provider_addresses;
mod rate_limit_headers;
mod refit;
pub(crate) mod refusals;
pub(crate) mod remote_media;
pub(crate) mod reply;
pub(crate) mod request;
mod request_body;
pub(crate) mod request_encoding;
pub(crate) mod request_id;
pub(crate) mod response;
pub(crate) mod response_in_progress;
pub(crate) mod response_owner;
pub(crate) mod resume;
mod retry_state;
pub(crate) mod selection;
mod service_tier;
pub(crate) mod settle;
pub(crate) mod signed_request;
pub(crate) mod spans;
mod spend_queries;
pub(crate) mod spent;
pub(crate) mod state;
mod steering;
pub(crate) mod sticky;
pub(crate) mod stored;
mod suspended;
mod trace;
mod trace_export;
pub(crate) mod upstream;
pub(crate) mod vault;
