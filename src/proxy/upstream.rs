//! The request as the provider gets it: where it goes, under which name, with which headers.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method, header};
use pingora::http::RequestHeader;
use pingora::{Error, ErrorType};

use super::Gateway;
use super::context::{Context, Plan};
use super::peer::Upstream;
use crate::error::{ApiError, Kind};
use crate::vendor::{ANTHROPIC_VERSION, Provider};
use crate::wire::{Api, Format};

/// Headers of the client that go upstream as they are, whatever the API. Everything else stays here: keys and
/// cookies because they are secrets, `user-agent` and the SDKs' telemetry because they would describe a client to a
/// vendor that it has no contract with, hop-by-hop headers because they are about another connection.
const PASSED: [&str; 4] = ["accept-language", "traceparent", "tracestate", "baggage"];

/// Headers that mean something to one API, and go to it alone.
const PASSED_TO: [(&str, Api); 4] = [
    ("anthropic-beta", Api::Messages),
    ("anthropic-beta", Api::CountTokens),
    ("openai-beta", Api::Responses),
    ("openai-beta", Api::Chat),
];

impl Gateway {
    /// The address that the request goes to.
    pub(super) async fn peer(&self, ctx: &mut Context) -> pingora::Result<Arc<Upstream>> {
        let plan = ctx.plan.as_ref().ok_or_else(|| Error::new_in(ErrorType::InternalError))?;
        let live = ctx.live.clone();
        let link =
            live.link(&plan.model, plan.target).ok_or_else(|| Error::new_in(ErrorType::InternalError))?;
        match link.upstream(&self.resolver).await {
            Ok(peer) => Ok(peer),
            Err(error) => {
                ctx.record.detail = Some(error.to_string().into_boxed_str());
                let told = "The upstream provider cannot be reached: its name has no address.";
                ctx.failure = Some(Box::new(ApiError::new(Kind::UpstreamUnreachable, told)));
                Err(Error::explain(ErrorType::ConnectNoRoute, "no address").into_up())
            }
        }
    }

    /// The head that the provider gets. It is made anew; of the client's head only what is known to be wanted goes
    /// along.
    pub(super) fn upstream_head(
        &self,
        client: &RequestHeader,
        ctx: &Context,
    ) -> pingora::Result<RequestHeader> {
        let plan = ctx.plan.as_ref().ok_or_else(|| Error::new_in(ErrorType::InternalError))?;
        let target = plan.target().ok_or_else(|| Error::new_in(ErrorType::InternalError))?;
        let provider = &target.provider;
        let path = provider.path(plan.api, &target.model, plan.action);
        let mut head = RequestHeader::build_no_case(Method::POST, path.as_bytes(), Some(16))?;
        head.insert_header(header::HOST, provider.base.authority())?;
        if let Some((name, value)) = provider.credential(plan.api) {
            head.insert_header(name, value.clone())?;
        }
        head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))?;
        head.insert_header(header::CONTENT_LENGTH, HeaderValue::from(plan.body_len))?;
        let accept = if plan.stream { "text/event-stream, application/json" } else { "application/json" };
        head.insert_header(header::ACCEPT, HeaderValue::from_static(accept))?;
        // A stream must not be held back by a compressor, and frames must be readable.
        head.insert_header(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))?;
        head.insert_header(header::USER_AGENT, HeaderValue::from_static(USER_AGENT))?;
        if let Ok(id) = HeaderValue::from_bytes(ctx.id.as_bytes()) {
            head.insert_header("x-request-id", id)?;
        }
        add_version(&mut head, client, plan)?;
        add_passed(&mut head, client, plan)?;
        if provider.forward_client {
            add_forwarded(&mut head, client)?;
        }
        for (name, value) in &provider.headers {
            head.insert_header(name.clone(), value.clone())?;
        }
        Ok(head)
    }
}

const USER_AGENT: &str = concat!("model-gateway/", env!("CARGO_PKG_VERSION"));

/// Anthropic's version header is required: the client's own for its own format, ours otherwise.
fn add_version(head: &mut RequestHeader, client: &RequestHeader, plan: &Plan) -> pingora::Result<()> {
    if plan.api.error_format() != Format::Messages {
        return Ok(());
    }
    let version = client.headers.get("anthropic-version").cloned();
    head.insert_header(
        "anthropic-version",
        version.unwrap_or_else(|| HeaderValue::from_static(ANTHROPIC_VERSION)),
    )
}

fn add_passed(head: &mut RequestHeader, client: &RequestHeader, plan: &Plan) -> pingora::Result<()> {
    for name in PASSED {
        if let Some(value) = client.headers.get(name) {
            head.insert_header(name, value.clone())?;
        }
    }
    for (name, api) in PASSED_TO {
        if api == plan.api {
            for value in client.headers.get_all(name) {
                head.append_header(name, value.clone())?;
            }
        }
    }
    Ok(())
}

/// Says who asked: for upstreams of one's own that keep logs or limits by client.
fn add_forwarded(head: &mut RequestHeader, client: &RequestHeader) -> pingora::Result<()> {
    for name in ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"] {
        let name = HeaderName::from_static(name);
        if let Some(value) = client.headers.get(&name) {
            head.insert_header(name, value.clone())?;
        }
    }
    if let Some(host) = client.headers.get(header::HOST)
        && !head.headers.contains_key("x-forwarded-host")
    {
        head.insert_header("x-forwarded-host", host.clone())?;
    }
    head.insert_header(header::VIA, HeaderValue::from_static("1.1 model-gateway"))
}

/// Takes a provider's secrets out of what a client or a log will see.
pub(super) fn scrubbed(provider: Option<&Arc<Provider>>, text: String) -> String {
    provider.and_then(|provider| provider.scrub(&text)).unwrap_or(text)
}
