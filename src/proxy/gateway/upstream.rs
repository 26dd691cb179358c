//! Upstream request heads: URI, credentials and headers of the request to the provider.

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use pingora::http::RequestHeader;
use pingora::{Error, ErrorType};

use super::attempt::Attempt;
use super::context::Context;
use super::guardrail::add_invoke_headers;
use crate::proxy::Client;
use crate::proxy::Gateway;
use crate::proxy::names;
use crate::wire::{Api, Format};

/// Client headers that are forwarded to every API. Except for API-specific ones, all others are dropped: keys and
/// cookies because they are secrets, `user-agent` and the SDKs' telemetry because they would describe a client to a
/// provider that it has no contract with, and hop-by-hop headers because they concern another connection.
const FORWARDED_HEADERS: [HeaderName; 4] =
    [header::ACCEPT_LANGUAGE, names::TRACEPARENT, names::TRACESTATE, names::BAGGAGE];

impl Gateway {
    /// Builds the upstream request head from the route's template and an allowlist of the client's headers.
    ///
    /// # Errors
    /// Returns an internal error if the target has no URI.
    pub(in crate::proxy) fn upstream_head(
        &self,
        client: &Client,
        ctx: &Context,
        plan: &Attempt,
    ) -> pingora::Result<RequestHeader> {
        let internal = || Error::new_in(ErrorType::InternalError);
        let target = plan.target().ok_or_else(internal)?;
        let theirs = &client.req_header().headers;
        let mut ours = plan.upstream_route.head();
        ours.insert(header::CONTENT_LENGTH, HeaderValue::from(plan.body_len));
        if plan.stream {
            let kinds = match plan.api {
                _ if target.provider.invokes(plan.api) => {
                    "application/vnd.amazon.eventstream, application/json"
                }
                Api::Converse => "application/vnd.amazon.eventstream, application/json",
                _ => "text/event-stream, application/json",
            };
            ours.insert(header::ACCEPT, HeaderValue::from_static(kinds));
        }
        if let Ok(id) = HeaderValue::from_bytes(ctx.id.as_bytes()) {
            ours.insert(names::X_REQUEST_ID, id);
        }
        copy_client_headers(&mut ours, theirs, plan);
        if target.provider.invokes(plan.api) {
            add_invoke_headers(&mut ours, theirs, ctx);
        }
        if let (Some(telemetry), Some(trace)) = (&self.telemetry, &ctx.trace)
            && telemetry.propagate
        {
            trace.propagate(&mut ours, telemetry.exporter.is_in_share(&trace.trace));
        }
        if target.provider.forward_client {
            add_forwarded(&mut ours, client);
        }
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.method = Method::POST;
        parts.uri = plan.upstream_route.uri(target, plan.action).ok_or_else(internal)?;
        parts.headers = ours;
        Ok(RequestHeader::from(parts))
    }
}

/// Copies the client headers that this API accepts.
fn copy_client_headers(ours: &mut HeaderMap, theirs: &HeaderMap, plan: &Attempt) {
    for name in FORWARDED_HEADERS {
        let mut values = theirs.get_all(&name).iter();
        // The first line replaces a header of the template.
        let Some(first) = values.next() else { continue };
        ours.insert(&name, first.clone());
        // Several lines of a list are one list (RFC 9110, section 5.3). `traceparent` is no list.
        if name != names::TRACEPARENT {
            values.for_each(|value| _ = ours.append(&name, value.clone()));
        }
    }
    if plan.target().is_some_and(|target| target.provider.invokes(plan.api)) {
        // Version and beta features are members of the body.
        return;
    }
    // API-specific headers are sent only to the API that defines them.
    let beta = match plan.api {
        Api::Messages | Api::CountTokens => names::ANTHROPIC_BETA,
        Api::Responses | Api::Chat => names::OPENAI_BETA,
        _ => return,
    };
    for value in theirs.get_all(&beta) {
        ours.append(&beta, value.clone());
    }
    add_betas(ours, plan);
    if plan.forwards_turn_state()
        && let Some(state) = theirs.get(names::X_CODEX_TURN_STATE)
    {
        ours.insert(names::X_CODEX_TURN_STATE, state.clone());
    }
    if plan.api.error_format() == Format::Messages
        && let Some(version) = theirs.get(names::ANTHROPIC_VERSION)
    {
        ours.insert(names::ANTHROPIC_VERSION, version.clone());
    }
}

/// Adds the beta features that the body of the client named, and those that the provider requires for members of the body
/// (`anthropic-beta`), in the version that fits the body, unless the client names a version of that feature already.
fn add_betas(ours: &mut HeaderMap, plan: &Attempt) {
    for beta in &plan.betas.named {
        if let Ok(value) = HeaderValue::from_str(beta) {
            ours.append(names::ANTHROPIC_BETA, value);
        }
    }
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
        // The older version has the tool configuration inside the server, the newer one in separate toolsets.
        let value = if plan.betas.toolsets { "mcp-client-2025-11-20" } else { "mcp-client-2025-04-04" };
        add("mcp-client-", value);
    }
    if plan.betas.context {
        add("context-management-", "context-management-2025-06-27");
    }
}

/// Adds the `X-Forwarded-*` headers: for self-hosted upstreams that log or limit by client.
fn add_forwarded(ours: &mut HeaderMap, client: &Client) {
    let theirs = &client.req_header().headers;
    let address = client.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip());
    // Several lines of a header are one list (RFC 9110, section 5.3).
    let lines = theirs.get_all(names::X_FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    // The peer's address goes last: the entries before it are the client's own claim.
    let chain = lines.map(str::to_owned).chain(address.map(|address| address.to_string()));
    let chain = chain.collect::<Vec<_>>().join(", ");
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
