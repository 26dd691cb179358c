//! Bedrock's InvokeModel: requests to Claude through it, whose beta features are a member of the body and not a header,
//! and the headers of responses to clients of it.
//!
//! Source: Amazon Bedrock User Guide, "Anthropic Claude Messages API", November 2026.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::attempt::Attempt;
use super::context::Context;
use super::guardrail::{guardrail_of, put_in_body};
use crate::json::Writer;
use crate::proxy::names;
use crate::wire::spelling::{MAX_BETAS, is_beta_name};

/// Beginnings of the names of beta features that Bedrock refuses with "invalid beta flag": they concern functions of
/// Anthropic's own service.
const REFUSED: [&str; 9] = [
    "oauth-",
    "claude-code-",
    "prompt-caching-scope-",
    "extended-cache-ttl-",
    "fast-mode-",
    "redact-thinking-",
    "mcp-",
    "advanced-tool-use-",
    "files-api-",
];
/// Member of the body.
const MEMBER: &[u8] = b"\"anthropic_beta\":";

/// Adds to the body of an attempt what Bedrock has there and other services have not: once, because the attempt may be
/// sent again with another credential.
pub(super) fn complete_body(ctx: &mut Context, headers: &HeaderMap) {
    let guardrail = guardrail_of(ctx).cloned();
    let Some(attempt) = ctx.attempt_mut().filter(|attempt| !attempt.is_completed) else { return };
    attempt.is_completed = true;
    if attempt.target().is_some_and(|target| target.provider.invokes(attempt.api)) {
        move_betas(attempt, headers);
    } else if let Some(guardrail) = guardrail {
        put_in_body(attempt, &guardrail);
    }
}

/// Moves the client's beta features from its body and its header into the body, without those that the service refuses.
fn move_betas(attempt: &mut Attempt, headers: &HeaderMap) {
    let values = headers.get_all(&names::ANTHROPIC_BETA);
    let named = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let mut betas: Vec<&str> = Vec::new();
    let own = attempt.betas.context.then_some("context-management-2025-06-27");
    let in_body = attempt.betas.named.iter().map(|name| &**name);
    for beta in in_body.chain(named.map(str::trim)).chain(own) {
        let is_refused = REFUSED.iter().any(|refused| beta.starts_with(refused));
        if is_beta_name(beta) && !is_refused && betas.len() < MAX_BETAS && !betas.contains(&beta) {
            betas.push(beta);
        }
    }
    if betas.is_empty() {
        return;
    }
    let Some(first) = attempt.body.first_mut() else { return };
    let Some(at) = first.iter().position(|byte| *byte == b'{') else { return };
    let mut text = Vec::with_capacity(64 + betas.len() * 40);
    text.push(b'{');
    text.extend_from_slice(MEMBER);
    let mut json = Writer::new(&mut text);
    json.begin_array();
    betas.iter().for_each(|beta| _ = json.string(beta));
    json.end_array();
    text.push(b',');
    // The body of a request to a model has other members, so that the comma is right.
    *first = first.slice(at + 1..);
    attempt.body_len = (attempt.body_len + text.len()).saturating_sub(at + 1);
    attempt.body.insert(0, Bytes::from(text));
}

/// Adds the headers of InvokeModel: the media type of the events of a stream; the usage and the duration of a document,
/// which clients read there because not all models have it in their responses.
pub(super) fn add_invocation(ours: &mut HeaderMap, ctx: &Context) {
    if ctx.record.stream {
        ours.insert(names::X_AMZN_BEDROCK_CONTENT_TYPE, HeaderValue::from_static("application/json"));
        return;
    }
    let usage = ctx.charged().map_or_else(|| ctx.usage(), |charged| charged.usage);
    if !usage.is_known() {
        return;
    }
    let read = usage.cached.unwrap_or(0);
    let written = usage.cache_write.unwrap_or(0).saturating_add(usage.cache_write_1h.unwrap_or(0));
    let uncached = usage.input.unwrap_or(0).saturating_sub(read).saturating_sub(written);
    for (name, count) in [
        (names::X_AMZN_BEDROCK_INPUT, uncached),
        (names::X_AMZN_BEDROCK_OUTPUT, usage.output.unwrap_or(0)),
        (names::X_AMZN_BEDROCK_CACHE_READ, read),
        (names::X_AMZN_BEDROCK_CACHE_WRITE, written),
        (names::X_AMZN_BEDROCK_LATENCY, ctx.record.clock().elapsed()),
    ] {
        ours.insert(name, HeaderValue::from(count));
    }
}
