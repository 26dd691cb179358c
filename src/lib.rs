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
//! # Crates
//! The program is made of crates, which are found here under the names of their modules:
//!
//! * [`json`] reads and writes JSON text without building a tree: a push scanner for bodies that arrive in pieces, a
//!   pull reader for complete documents, and a rope that is edited without a copy.
//! * [`framing`] finds the boundaries of stream events: server-sent events, the elements of one JSON array, and the
//!   messages of binary event streams.
//! * [`cloud`] signs requests for cloud platforms, and verifies signatures.
//! * `codec` is the formats and the translation between them: [`canonical`], [`catalogue`], [`wire`], [`translate`],
//!   [`tokens`], [`job`], [`provider`], [`error`].
//! * `routing` is who may ask, what it costs, and which target answers: [`limits`], [`account`], [`route`], [`snapshot`].
//! * `storage` is what outlives a request: [`store`], [`ledger`], [`kv`].
//! * `observe` is what operators see: [`metrics`], [`telemetry`].
//! * [`config`] reads three files, reports all errors at once, and reads two of the files again on SIGHUP.
//! * [`admin`] is the admin port: health, metrics, and the admin API, which shows and changes what the gateway runs with.
//! * [`sync`] is the primitives of lock-free code, small structures whose interleavings are model-checked, and
//!   supervised threads.
//! * [`simulator`] simulates providers on loopback for the demo and the tests. The gateway itself does not use it.
//!
//! * [`driver`] is what Pingora's proxy loop does, for bodies that are read before the provider is chosen.
//! * [`proxy`] is the gateway on Pingora: listeners, the phases of a request, the exchange with a provider, signals and
//!   upgrade. No other crate than these two uses Pingora's types.
//! * [`cli`] is the commands, one file each.
//!
//! docs/architecture.md lists which crate and module may use which; `tests/house.rs` checks it.

pub use codec::{canonical, catalogue, error, job, provider, tokens, translate, wire};
pub use observe::{metrics, telemetry};
pub use routing::{account, limits, route, snapshot};
pub use storage::{kv, ledger, store};
pub use sync::supervise;
pub use {admin, cli, cloud, config, driver, framing, json, proxy, simulator, sync};
