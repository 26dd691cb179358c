//! LLM gateway library: one module for each concern, and the path of a request through them.
//!
//! # Path of a request
//! ```text
//! client   -> proxy::gateway::request  -> account -> wire -> route -> proxy::gateway::upstream  -> provider
//! client   <- proxy::gateway::response <- translate (meter) <- wire <- framing         <- provider
//!             `- proxy::gateway::finish -> metrics, access log
//! ```
//! A listener of [`proxy`] accepts a request. The path determines the endpoint and the format ([`wire::path`]). The key
//! is looked up by its hash ([`account`]). The body is read completely, and scanned while it arrives ([`wire::request`]
//! over [`json`]). The requested model selects a target ([`route`]) at a provider ([`provider`]). Necessary edits are
//! applied to the body in place, without parsing it into a tree. The response arrives in pieces, is split into frames
//! ([`framing`]), metered ([`translate::Meter`]) and forwarded unchanged where client and provider speak the same
//! format ([`translate::Verbatim`]). Each request is counted and logged exactly once, when it ends ([`metrics`]).
//!
//! # Modules
//! These modules open no sockets. They depend on the JSON crates only and build without the feature `proxy`:
//!
//! * [`json`] reads and writes JSON text without building a tree: a push scanner for bodies that arrive in pieces, a
//!   pull reader for complete documents, and a rope that is edited without a copy.
//! * [`framing`] finds the boundaries of stream events: server-sent events, the elements of one JSON array, and the
//!   messages of binary event streams.
//! * [`canonical`] is the format-independent model of requests, responses and events. It names no format and no
//!   provider.
//! * [`cloud`] signs requests for cloud platforms, and verifies signatures.
//! * [`wire`] implements the formats: chat, messages, responses, generate and converse, one folder each, with their paths, errors
//!   and model listings. Formats never import each other.
//! * [`translate`] connects two formats, or a format with itself: it decides once per exchange how the response is
//!   handled, and then forwards it.
//! * [`job`] builds responses from one or several provider calls: embeddings, rerank results, images.
//! * [`catalogue`] is what is true of each model, as data: what it takes, its context window, its prices and its end.
//! * [`tokens`] estimates the token count of a request or a text locally, without a call to a provider.
//! * [`error`] is one table of every error that a request can end with: status, codes, metric label.
//! * [`limits`] is the rate limiter; with the feature `proxy` also the usage of the limits of keys and accounts, and
//!   leases of limits that several gateways share.
//! * [`provider`] describes providers apart from the formats: addresses, credentials, quirks.
//! * [`route`] is the load balancer that selects a target for a request; with the feature `proxy` also the table of
//!   models and their targets.
//! * [`telemetry`] encodes traces, log records and metrics for OpenTelemetry, without a copy of what is said; with the
//!   feature `proxy` it also exports them to a collector.
//! * [`sync`] is the primitives of lock-free code, and small structures whose interleavings are model-checked.
//!
//! These modules make up the running gateway, behind the feature `proxy` (on by default):
//!
//! * [`account`] is keys (stored as hashes only), their permissions, and the price of a request.
//! * [`snapshot`] combines the routing table and the keys of one reload, immutably; each request uses the one it
//!   started with.
//! * [`supervise`] restarts essential threads: a panic is caught and counted, and the thread continues.
//! * [`config`] reads three files, reports all errors at once, and reads two of the files again on SIGHUP.
//! * [`ledger`] holds balances, and one usage record per request: reservations, a write-ahead journal, and a backend
//!   that it is flushed to.
//! * [`kv`] holds documents by key: stored conversations, provider signatures, tasks and owners.
//! * [`store`] is the access to the databases of both: the SQLite file and its schema, the connection to a server. No
//!   other module than these three uses a database.
//! * [`metrics`] is every series in one table, the access log, and the events of live requests.
//! * [`admin`] is the admin port: health, metrics, and the admin API, which shows and changes what the gateway runs with.
//! * [`proxy`] is the gateway on Pingora, and the only module that uses Pingora's types: listeners, the phases of a
//!   request, the exchange with a provider, signals and upgrade.
//! * [`simulator`] simulates providers on loopback for the demo and the tests. The gateway itself does not use it.
//! * [`cli`] is the commands, one file each.
//!
//! docs/architecture.md lists which module may import which; `tests/house.rs` checks it.

pub mod canonical;
pub mod catalogue;
pub mod cloud;
pub mod error;
pub mod framing;
pub mod job;
pub mod json;
pub mod limits;
pub mod provider;
pub mod route;
pub mod sync;
pub mod telemetry;
pub mod tokens;
pub mod translate;
pub mod wire;

#[cfg(feature = "proxy")]
pub mod account;
#[cfg(feature = "proxy")]
pub mod admin;
#[cfg(feature = "proxy")]
pub mod cli;
#[cfg(feature = "proxy")]
pub mod config;
#[cfg(feature = "proxy")]
pub mod kv;
#[cfg(feature = "proxy")]
pub mod ledger;
#[cfg(feature = "proxy")]
pub mod metrics;
#[cfg(feature = "proxy")]
pub mod proxy;
#[cfg(feature = "proxy")]
pub mod simulator;
#[cfg(feature = "proxy")]
pub mod snapshot;
#[cfg(feature = "proxy")]
pub mod store;
#[cfg(feature = "proxy")]
pub mod supervise;
