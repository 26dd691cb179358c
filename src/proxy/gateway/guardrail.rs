//! Guardrails of Bedrock: those that the configuration applies to all requests of a provider, and those that clients of
//! InvokeModel request in headers.
//!
//! The guardrail of the configuration takes precedence: a client cannot do without it.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::smallvec;

use super::attempt::Attempt;
use super::context::Context;
use codec::error::{ApiError, ErrorKind};
use codec::provider::guardrail::{Guardrail, GuardrailTrace, is_guardrail_id, is_guardrail_version};
use codec::wire::Api;
use driver::names;
use json::{Scanner, Writer};
use routing::route::Target;

/// Headers of clients of InvokeModel that are forwarded to it, besides those of the guardrail. Source: Amazon Bedrock API
/// Reference, "InvokeModel".
static INVOKE_HEADERS: [HeaderName; 3] = [
    names::X_AMZN_BEDROCK_PERFORMANCE_LATENCY,
    names::X_AMZN_BEDROCK_REQUEST_METADATA,
    names::X_AMZN_BEDROCK_SERVICE_TIER,
];
/// Member of a Converse request.
const MEMBER: &str = "guardrailConfig";

/// Returns the guardrail that a client of InvokeModel requests. `None` if it requests none.
///
/// # Errors
/// Returns [`ErrorKind::InvalidField`] if a header is missing or not valid: a response without the guardrail would be
/// another one than requested.
pub(super) fn requested_guardrail(headers: &HeaderMap) -> Result<Option<Box<Guardrail>>, ApiError> {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let (id, version) =
        (text(&names::X_AMZN_BEDROCK_GUARDRAIL_ID), text(&names::X_AMZN_BEDROCK_GUARDRAIL_VERSION));
    if id.is_none() && version.is_none() {
        return Ok(None);
    }
    let invalid = |name: &HeaderName| {
        ApiError::new(ErrorKind::InvalidField, format!("The header {name} is missing or not valid."))
    };
    let id =
        id.filter(|id| is_guardrail_id(id)).ok_or_else(|| invalid(&names::X_AMZN_BEDROCK_GUARDRAIL_ID))?;
    let version = version
        .filter(|version| is_guardrail_version(version))
        .ok_or_else(|| invalid(&names::X_AMZN_BEDROCK_GUARDRAIL_VERSION))?;
    let trace = match text(&names::X_AMZN_BEDROCK_TRACE) {
        None => GuardrailTrace::default(),
        Some(name) => GuardrailTrace::from_name(name).ok_or_else(|| invalid(&names::X_AMZN_BEDROCK_TRACE))?,
    };
    Ok(Some(Box::new(Guardrail { id: id.into(), version: version.into(), trace })))
}

/// Checks that a target applies the guardrail that the client requests, if it requests one.
///
/// # Errors
/// Returns [`ErrorKind::Unsupported`] for a target of another service.
pub(super) fn check_guardrail(ctx: &Context, target: Option<&Target>, api: Api) -> Result<(), ApiError> {
    let takes = target.is_some_and(|target| target.provider.takes_guardrail(api));
    if ctx.guardrail.is_none() || takes {
        return Ok(());
    }
    let message = "The target of this model has no guardrails of Amazon Bedrock.";
    Err(ApiError::new(ErrorKind::Unsupported, message))
}

/// Returns the guardrail of an attempt: that of the provider, or the one that the client requests. `None` if there is none.
pub(super) fn guardrail_of(ctx: &Context) -> Option<&Guardrail> {
    let attempt = ctx.attempt()?;
    let target = attempt.target().filter(|target| target.provider.takes_guardrail(attempt.api))?;
    target.provider.guardrail.as_deref().or(ctx.guardrail.as_deref())
}

/// Writes the guardrail into the body of a Converse request, in place of any other.
pub(super) fn put_in_body(attempt: &mut Attempt, guardrail: &Guardrail) {
    let mut own = BytesMut::with_capacity(64 + guardrail.id.len());
    own.extend_from_slice(b"{");
    let mut json = Writer::new(&mut own);
    json.string(MEMBER);
    own.extend_from_slice(b":");
    let mut json = Writer::new(&mut own);
    json.begin_object().key("guardrailIdentifier").string(&guardrail.id);
    json.key("guardrailVersion").string(&guardrail.version);
    if guardrail.trace != GuardrailTrace::Disabled {
        json.key("trace").string(guardrail.trace.name());
    }
    json.end_object();
    if let Some(without) = without_guardrail(attempt) {
        attempt.body = smallvec![without];
    }
    let Some(first) = attempt.body.first_mut() else { return };
    let Some(at) = first.iter().position(|byte| *byte == b'{') else { return };
    let rest = first.slice(at + 1..);
    let is_empty = rest.trim_ascii_start().starts_with(b"}");
    if !is_empty {
        own.extend_from_slice(b",");
    }
    *first = rest;
    attempt.body.insert(0, own.freeze());
    attempt.body_len = attempt.body.iter().map(Bytes::len).sum();
}

/// Returns the body without the guardrails that the client has written into it. `None` if it has none.
fn without_guardrail(attempt: &Attempt) -> Option<Bytes> {
    static MEMBERS: [&str; 1] = [MEMBER];
    let mut scan = Scanner::new(&MEMBERS);
    attempt.body.iter().try_for_each(|piece| scan.push(piece)).ok()?;
    let members = scan.finish().ok()?;
    if members.iter().all(|member| member.wanted.is_none()) {
        return None;
    }
    let text = attempt.body.concat();
    let mut out = BytesMut::with_capacity(text.len());
    out.extend_from_slice(b"{");
    for member in members.iter().filter(|member| member.wanted.is_none()) {
        if out.len() > 1 {
            out.extend_from_slice(b",");
        }
        // With the quote before the name.
        let range: Range<usize> = member.name.start.saturating_sub(1)..member.value.end;
        out.extend_from_slice(text.get(range).unwrap_or_default());
    }
    out.extend_from_slice(b"}");
    Some(out.freeze())
}

/// Adds the headers of a request to InvokeModel: those of the guardrail, and of a client of InvokeModel what it requests
/// besides.
pub(super) fn add_invoke_headers(ours: &mut HeaderMap, theirs: &HeaderMap, ctx: &Context) {
    if let Some(guardrail) = guardrail_of(ctx) {
        let trace = guardrail.trace.name().to_ascii_uppercase();
        for (name, text) in [
            (names::X_AMZN_BEDROCK_GUARDRAIL_ID, &*guardrail.id),
            (names::X_AMZN_BEDROCK_GUARDRAIL_VERSION, &*guardrail.version),
            (names::X_AMZN_BEDROCK_TRACE, &*trace),
        ] {
            ours.extend(HeaderValue::from_str(text).ok().map(|value| (name, value)));
        }
    }
    if ctx.is_invoke() {
        for name in &INVOKE_HEADERS {
            ours.extend(theirs.get(name).map(|value| (name.clone(), value.clone())));
        }
    }
}
