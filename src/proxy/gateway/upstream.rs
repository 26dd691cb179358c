//! Upstream request heads: URI, credentials and headers of the request to the provider.

use std::collections::HashSet;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use pingora::http::RequestHeader;
use pingora::{Error, ErrorType};

use super::attempt::Attempt;
use super::context::Context;
use super::guardrail::add_invoke_headers;
use crate::Client;
use crate::Gateway;
use codec::wire::{Api, Format};
use driver::names;

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
    pub(crate) fn upstream_head(
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
    match plan.api {
        Api::Messages | Api::CountTokens => set_betas(ours, theirs, plan),
        Api::Responses | Api::Chat => {
            for value in theirs.get_all(&names::OPENAI_BETA) {
                ours.append(&names::OPENAI_BETA, value.clone());
            }
        }
        _ => return,
    }
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

/// Sets `anthropic-beta`: the features that the client's header names, those of the provider's configuration, those that the
/// client's body names, and those that the provider requires for members of the body, in the version that fits the body,
/// unless a version of that feature is named already.
///
/// All stand in one line, each of them once, as Anthropic's SDKs send them: servers exist that read the first line only.
fn set_betas(ours: &mut HeaderMap, theirs: &HeaderMap, plan: &Attempt) {
    let own = &plan.betas;
    let mut lines = theirs.get_all(names::ANTHROPIC_BETA).iter();
    if let (Some(line), None) = (lines.next(), lines.next())
        && own.named.is_empty()
        && !own.mcp
        && !own.context
        && !ours.contains_key(names::ANTHROPIC_BETA)
    {
        ours.insert(names::ANTHROPIC_BETA, line.clone());
        return;
    }
    let configured: Vec<HeaderValue> = ours.get_all(names::ANTHROPIC_BETA).iter().cloned().collect();
    let lines = theirs.get_all(names::ANTHROPIC_BETA).iter().chain(&configured);
    let said = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')).map(str::trim);
    let mut seen = HashSet::new();
    let mut all: Vec<&str> = said
        .chain(own.named.iter().map(|name| &**name))
        .filter(|name| !name.is_empty() && seen.insert(*name))
        .collect();
    let mut add = |family: &str, name: &'static str| {
        if !all.iter().any(|said| said.starts_with(family)) {
            all.push(name);
        }
    };
    if own.mcp {
        // The older version has the tool configuration inside the server, the newer one in separate toolsets.
        add("mcp-client-", if own.toolsets { "mcp-client-2025-11-20" } else { "mcp-client-2025-04-04" });
    }
    if own.context {
        add("context-management-", "context-management-2025-06-27");
    }
    if let Ok(line) = HeaderValue::from_str(&all.join(","))
        && !all.is_empty()
    {
        ours.insert(names::ANTHROPIC_BETA, line);
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
