//! The running gateway as the admin port sees it.

use std::borrow::Cow;
use std::net::IpAddr;

use bytes::Bytes;
use tokio::sync::mpsc;

use codec::wire::Format;
use config::ReloadOutcome;
use routing::limits::{Remaining, Scope, UsageLimits};
use routing::route::Nanos;
use routing::snapshot::Snapshot;
use storage::ledger::admin::LedgerAdmin;

/// Result of the last health check of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderCheck {
    /// Name of the outcome.
    pub outcome: &'static str,
    /// HTTP status of the answer; `None` if there was none.
    pub status: Option<u16>,
    /// Time in Unix seconds.
    pub time: i64,
}

/// Request of an operator that takes the path of a client's request.
#[derive(Clone, Debug)]
pub struct PlaygroundRequest {
    /// Path and query, as a client sends them.
    pub target: http::uri::PathAndQuery,
    /// Key of the gateway.
    pub key: http::HeaderValue,
    /// Body.
    pub body: Bytes,
    /// Address of the operator, for keys that are bound to networks.
    pub address: Option<IpAddr>,
}

/// Part of the response to a [`PlaygroundRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaygroundPart {
    /// Status and headers.
    Head(u16, http::HeaderMap),
    /// Piece of the body.
    Body(Bytes),
    /// The regular end. A channel that closes without it: the response was broken off.
    End,
}

/// Request whose path through the gateway is to be explained.
#[derive(Clone, Copy, Debug)]
pub struct ExplainRequest<'a> {
    /// The client's format.
    pub format: Format,
    /// Model, as the client names it.
    pub model: &'a str,
    /// Whether the client requests a stream.
    pub stream: bool,
    /// Body.
    pub body: &'a str,
}

/// What a target would get of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExplainedTarget {
    /// Name of the provider.
    pub provider: String,
    /// Name of the model at the provider.
    pub model: String,
    /// Format of the provider's API. `None` if no API of the target serves the request.
    pub format: Option<Format>,
    /// Whether the body is forwarded as it is, but for the name of the model.
    pub verbatim: bool,
    /// Whether the body is forwarded as it is first, and `body` is sent only if the provider refuses it.
    pub asks_first: bool,
    /// Translated body. `None` if it is forwarded, or refused.
    pub body: Option<String>,
    /// Elements that are lost or changed, each with the name of its policy and whether its value is only moved into the
    /// target's range.
    pub losses: Vec<(String, &'static str, bool)>,
    /// Reason why the target cannot serve the request. `None` if it can.
    pub error: Option<String>,
}

/// What would become of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Id of the model.
    pub model: String,
    /// Estimated input tokens. `None` if the body cannot be read.
    pub input_tokens: Option<u64>,
    /// Charge for the estimated input, in nano-units, if none of it is in a cache. `None` for a model without a price.
    pub input_cost: Option<i64>,
    /// Targets in the order of the configuration.
    pub targets: Vec<ExplainedTarget>,
}

/// Limits of a key or an account, with what is used of them.
#[derive(Clone, Debug)]
pub struct LimitUse {
    /// Limits.
    pub limits: UsageLimits,
    /// Account of a key. `None` for a key without one, and for an account.
    pub account: Option<String>,
    /// Requests that are left. `None` without a limit.
    pub requests: Option<Remaining>,
    /// Tokens that are left. `None` without a limit.
    pub tokens: Option<Remaining>,
    /// Requests in flight. `None` if that is not known, as for limits that a fleet shares.
    pub in_flight: Option<u32>,
    /// Spend of this day and this month, with what requests in progress have reserved, in nano-units. `None` if no
    /// request has needed it yet.
    pub spent: Option<(i64, i64)>,
    /// Tokens and cost, in nano-units, of the last request that exceeded a limit by itself; 0 if one was admitted since.
    pub oversized: (u64, i64),
}

/// Control of the running gateway.
pub trait GatewayControl: Send + Sync + 'static {
    /// Returns an error with the reason if the process should not get new requests.
    fn ready(&self) -> Result<(), Cow<'static, str>>;

    /// Returns the loaded configuration, the result of the last reload and the state of the targets as JSON, for
    /// `/status`.
    fn status_json(&self) -> String;

    /// Updates the series that are not maintained continuously, before a scrape.
    fn refresh(&self) {}

    /// Returns whether the process is draining.
    fn is_draining(&self) -> bool;

    /// Returns the number of requests in flight.
    fn in_flight(&self) -> usize;

    /// Calls `look` with the active snapshot and the present time of its clock.
    fn with_snapshot(&self, look: &mut dyn FnMut(&Snapshot, Nanos));

    /// Returns the last health check of a provider; `None` if it is not checked, or was not yet.
    fn last_check(&self, provider: &str) -> Option<ProviderCheck>;

    /// Returns the limits of a key or an account, with what is used of them. `None` if the configuration has none of this
    /// name.
    fn limits_in_use(&self, scope: Scope, name: &str) -> Option<LimitUse>;

    /// Calls `visit` with the limits of each key and account that has some, with what is used of them.
    fn each_limit_in_use(&self, visit: &mut dyn FnMut(Scope, &str, LimitUse));

    /// Drains a target in all models, or ends that. Returns false if nothing changes.
    fn set_drained(&self, provider: &str, model: &str, drained: bool) -> bool;

    /// Explains a request without sending it. `None` if no model has the name. Blocks for the time of the translations.
    fn explain(&self, request: &ExplainRequest<'_>) -> Option<Explanation>;

    /// Runs a request through all phases of a client's request. Dropping the receiver ends it.
    ///
    /// # Errors
    /// Returns a description if requests are not served yet.
    fn submit(&self, request: PlaygroundRequest) -> Result<mpsc::Receiver<PlaygroundPart>, &'static str>;

    /// Counts and logs a reload that the admin API has caused.
    fn report_reload(&self, outcome: &ReloadOutcome);

    /// Opens the administration of the ledger. Blocks.
    ///
    /// # Errors
    /// Returns a description if the store cannot be opened.
    fn open_ledger(&self) -> Result<Box<dyn LedgerAdmin + Send>, String>;
}
