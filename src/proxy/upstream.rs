//! The request as the provider gets it: where it goes, under which name, with which headers.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use pingora::http::RequestHeader;
use pingora::{Error, ErrorType};

use super::context::{Attempt, Context};
use super::{Client, Gateway, names};
use crate::provider::Provider;
use crate::wire::{Api, Format};

/// Headers of the client that go upstream as they are, whatever the API. Everything else stays here: keys and
/// cookies because they are secrets, `user-agent` and the SDKs' telemetry because they would describe a client to a
/// provider that it has no contract with, hop-by-hop headers because they are about another connection.
const PASSED: [HeaderName; 4] =
    [header::ACCEPT_LANGUAGE, names::TRACEPARENT, names::TRACESTATE, names::BAGGAGE];

impl Gateway {
    /// The head that the provider gets. It is made anew; of the client's head only what is known to be wanted goes
    /// along.
    pub(super) fn upstream_head(&self, client: &Client, ctx: &Context) -> pingora::Result<RequestHeader> {
        let internal = || Error::new_in(ErrorType::InternalError);
        let plan = ctx.plan.as_ref().ok_or_else(internal)?;
        let target = plan.target().ok_or_else(internal)?;
        let theirs = &client.req_header().headers;
        let mut ours = plan.lane.head();
        ours.insert(header::CONTENT_LENGTH, HeaderValue::from(plan.body_len));
        if plan.stream {
            ours.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
        }
        if let Ok(id) = HeaderValue::from_bytes(ctx.id.as_bytes()) {
            ours.insert(names::X_REQUEST_ID, id);
        }
        pass(&mut ours, theirs, plan);
        if target.provider.forward_client {
            add_forwarded(&mut ours, client);
        }
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.method = Method::POST;
        parts.uri = plan.lane.uri(target, plan.action).ok_or_else(internal)?;
        parts.headers = ours;
        Ok(RequestHeader::from(parts))
    }
}

/// Takes over what the client says and the provider is to hear.
fn pass(ours: &mut HeaderMap, theirs: &HeaderMap, plan: &Attempt) {
    for name in PASSED {
        if let Some(value) = theirs.get(&name) {
            ours.insert(name, value.clone());
        }
    }
    // Headers that mean something to one API go to it alone.
    let beta = match plan.api {
        Api::Messages | Api::CountTokens => names::ANTHROPIC_BETA,
        Api::Responses | Api::Chat => names::OPENAI_BETA,
        _ => return,
    };
    for value in theirs.get_all(&beta) {
        ours.append(&beta, value.clone());
    }
    add_betas(ours, plan);
    if plan.api.error_format() == Format::Messages
        && let Some(version) = theirs.get(names::ANTHROPIC_VERSION)
    {
        ours.insert(names::ANTHROPIC_VERSION, version.clone());
    }
}

/// What the provider takes only from who says in a header that it knows it: the version that fits what the body has,
/// unless one is named already.
fn add_betas(ours: &mut HeaderMap, plan: &Attempt) {
    let mut add = |family: &str, value: &'static str| {
        let named = ours.get_all(names::ANTHROPIC_BETA).iter().any(|said| {
            let mut all = said.to_str().unwrap_or_default().split(',');
            all.any(|one| one.trim().starts_with(family))
        });
        if !named {
            ours.append(names::ANTHROPIC_BETA, HeaderValue::from_static(value));
        }
    };
    if plan.betas.mcp {
        // The older version has all about a server in the server, the newer one has sets of tools beside.
        let value = if plan.betas.toolsets { "mcp-client-2025-11-20" } else { "mcp-client-2025-04-04" };
        add("mcp-client-", value);
    }
    if plan.betas.context {
        add("context-management-", "context-management-2025-06-27");
    }
}

/// Says who asked: for upstreams of one's own that keep logs or limits by client.
fn add_forwarded(ours: &mut HeaderMap, client: &Client) {
    let theirs = &client.req_header().headers;
    let address = client.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip());
    let before = theirs.get(names::X_FORWARDED_FOR).and_then(|value| value.to_str().ok());
    let chain = match (before, address) {
        (Some(before), Some(address)) => format!("{before}, {address}"),
        (Some(before), None) => before.to_owned(),
        (None, Some(address)) => address.to_string(),
        (None, None) => String::new(),
    };
    if let Ok(chain) = HeaderValue::try_from(chain) {
        ours.insert(names::X_FORWARDED_FOR, chain);
    }
    let encrypted = client.digest().is_some_and(|digest| digest.ssl_digest.is_some());
    let scheme = HeaderValue::from_static(if encrypted { "https" } else { "http" });
    ours.insert(names::X_FORWARDED_PROTO, theirs.get(names::X_FORWARDED_PROTO).cloned().unwrap_or(scheme));
    let host = theirs.get(names::X_FORWARDED_HOST).or_else(|| theirs.get(header::HOST));
    if let Some(host) = host {
        ours.insert(names::X_FORWARDED_HOST, host.clone());
    }
}

/// Takes a provider's secrets out of what a client or a log will see.
pub(super) fn scrubbed(provider: Option<&Arc<Provider>>, text: String) -> String {
    provider.and_then(|provider| provider.scrub(&text)).unwrap_or(text)
}
