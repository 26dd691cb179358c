//! The gateway between applications and large language models, as a library: the tour of its rooms.
//!
//! # The way of a request
//! ```text
//! client   -> proxy::request  -> account -> wire -> route -> proxy::upstream  -> provider
//! client   <- proxy::response <- translate (meter) <- wire <- framing         <- provider
//!             `- proxy::finish -> metrics, access log
//! ```
//! A request comes in on a listener of [`proxy`]. Its path says which endpoint and which format it is ([`wire::path`]);
//! its key is looked up by hash ([`account`]); its body is read whole and scanned while it arrives ([`wire::request`]
//! over [`json`]). The model that it names leads to a target ([`route`]) at a provider ([`provider`]), and the body is
//! edited where it must be, in place and without a tree. The answer comes back in pieces, is cut into frames
//! ([`framing`]), read for its usage ([`translate::Meter`]) and passed on as it is ([`translate::Verbatim`]). Whatever
//! happened is counted and logged once, at the end ([`metrics`]).
//!
//! # The rooms
//! Rooms without sockets. They need no more than the JSON crates, and build without the feature `proxy`:
//!
//! * [`json`] reads and writes JSON text without ever building a tree: a push scanner for bodies that arrive in
//!   pieces, a pull reader for whole documents, and a rope that is edited without being copied.
//! * [`framing`] finds where one event of a stream ends and the next begins: server-sent events, and the elements of
//!   one JSON array.
//! * [`canonical`] is what requests, answers and events mean in nobody's format. It names no format and no provider.
//! * [`wire`] is the formats: chat, messages, responses and generate, one folder each, with their paths, errors and
//!   listings. Formats never import each other.
//! * [`translate`] is where two formats meet, or the same format meets itself: it decides once per exchange, and
//!   passes the answer.
//! * [`job`] makes answers out of what one or several calls of a provider gave: vectors, orders of documents,
//!   images.
//! * [`tokens`] estimates how many tokens a request or a text is, without asking anybody.
//! * [`error`] is one table of everything that can go wrong with a request: status, words, metric label.
//! * [`provider`] is who answers, not in which words: addresses, credentials, habits.
//!
//! Rooms of the running gateway, behind the feature `proxy` (on by default):
//!
//! * [`route`] is the table of models and their targets, and the choice among them.
//! * [`account`] is who asks: keys, as hashes only, what they permit, how much of it, and what it costs.
//! * [`snapshot`] is routes and keys frozen together; each request holds the one with which it began.
//! * [`supervise`] keeps threads running that have to run: what panics in one is caught, counted, and started again.
//! * [`config`] reads three files, reports every fault at once, and reads two of them again on SIGHUP.
//! * [`store`] is what outlives a request: balances and usage, and what is kept of conversations. Only it names a
//!   database.
//! * [`metrics`] is every series in one table, the access log and the admin port.
//! * [`proxy`] is the gateway on Pingora, the only room that names its types: listeners, the phases of a request, the
//!   exchange with a provider, signals and upgrade.
//! * [`simulator`] is providers on loopback for the demo and the tests. The gateway uses nothing of it.
//! * [`cli`] is the commands, one file each.
//!
//! Who may import whom is said in docs/architecture.md and kept by a test.

pub mod canonical;
pub mod error;
pub mod framing;
pub mod job;
pub mod json;
pub mod provider;
pub mod route;
pub mod tokens;
pub mod translate;
pub mod wire;

#[cfg(feature = "proxy")]
pub mod account;
#[cfg(feature = "proxy")]
pub mod cli;
#[cfg(feature = "proxy")]
pub mod config;
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
