//! Bedrock's InvokeModel: requests to Claude through it, whose beta features are a member of the body and not a header,
//! and the headers of responses to clients of it.
//!
//! Source: Amazon Bedrock User Guide, "Anthropic Claude Messages API", November 2026.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::attempt::Attempt;
use super::context::Context;
use super::guardrail::{guardrail_of, put_in_body};
use crate::Gateway;
use codec::provider::ToolBetas;
use codec::wire::codec::Loss;
use codec::wire::loss::LossPolicy;
use codec::wire::spelling::{MAX_BETAS, is_beta_name};
use codec::wire::{Api, Format};
use driver::names;
use json::Writer;
use routing::account::Losses;
use routing::route::{Model, Target};

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
/// Beta feature without which `context_management` is refused.
const CONTEXT_MANAGEMENT: &str = "context-management-2025-06-27";
/// Element of the loss table for the features that are left out after a refusal, and its entry in the warning header.
const BETA_ELEMENT: &str = "anthropic_beta";
const BETA_WARNING: &str = "anthropic_beta dropped";
/// Member of the body.
const MEMBER: &[u8] = b"\"anthropic_beta\":";

/// Returns the beta features of the header that decide which members of tools InvokeModel takes. Empty if no target of the
/// model is reached through it.
pub(super) fn tool_betas(model: &Model, api: Api, headers: &HeaderMap) -> ToolBetas {
    let invokes = |target: &Target| target.provider.invokes(Api::Messages);
    if api != Api::Messages || !model.targets.iter().any(invokes) {
        return ToolBetas::default();
    }
    ToolBetas::of(betas_of(headers))
}

/// Returns the names in the `anthropic-beta` headers.
fn betas_of(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(&names::ANTHROPIC_BETA).into_iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).map(str::trim)
}

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
    let mut betas: Vec<&str> = Vec::new();
    let own = attempt.betas.context.then_some(CONTEXT_MANAGEMENT);
    let in_body = attempt.betas.named.iter().map(|name| &**name);
    for beta in in_body.chain(betas_of(headers)).chain(own) {
        let is_refused = REFUSED.iter().any(|refused| beta.starts_with(refused));
        if is_beta_name(beta) && !is_refused && betas.len() < MAX_BETAS && !betas.contains(&beta) {
            betas.push(beta);
        }
    }
    let betas: Box<[Box<str>]> = betas.into_iter().map(Box::from).collect();
    let Some(first) = attempt.body.first_mut().filter(|_| !betas.is_empty()) else { return };
    let Some(at) = first.iter().position(|byte| *byte == b'{') else { return };
    let text = beginning(betas.iter().map(|name| &**name));
    *first = first.slice(at + 1..);
    attempt.body_len = (attempt.body_len + text.len()).saturating_sub(at + 1);
    attempt.body.insert(0, text);
    attempt.sent_betas = betas;
}

/// Returns the beginning of a body that names these beta features.
fn beginning<'n>(betas: impl Iterator<Item = &'n str>) -> Bytes {
    let mut betas = betas.peekable();
    let mut text = vec![b'{'];
    if betas.peek().is_some() {
        text.extend_from_slice(MEMBER);
        let mut json = Writer::new(&mut text);
        json.begin_array();
        betas.for_each(|beta| _ = json.string(beta));
        json.end_array();
        // The body of a request to a model has other members, so that the comma is right.
        text.push(b',');
    }
    Bytes::from(text)
}

/// Words of the error for a beta feature that the service, or the model, does not know. The error names none of them.
const INVALID_BETA: &[u8] = b"invalid beta flag";

/// Returns whether the refusal of an attempt may concern its beta features, so that its body must be kept.
pub(super) fn may_refuse_betas(attempt: &Attempt, status: u16) -> bool {
    status == 400 && !attempt.sent_betas.is_empty()
}

/// Judges the body of a refusal. If it concerns the beta features of the attempt, they are removed from its body, and it
/// may be sent again. Features stay without which the service refuses other members of the body.
pub(super) fn judge_betas(attempt: &mut Attempt, status: u16, error: &[u8]) {
    if !may_refuse_betas(attempt, status) || memchr::memmem::find(error, INVALID_BETA).is_none() {
        return;
    }
    let sent = std::mem::take(&mut attempt.sent_betas);
    let Some((first, rest)) = attempt.body.split_first_mut() else { return };
    let has =
        |member: &str| rest.iter().any(|piece| memchr::memmem::find(piece, member.as_bytes()).is_some());
    let is_needed = |beta: &&str| {
        attempt.betas.context && *beta == CONTEXT_MANAGEMENT || ToolBetas::member_of(beta).is_some_and(has)
    };
    let names = || sent.iter().map(|name| &**name);
    if names().all(|name| is_needed(&name)) {
        return;
    }
    let text = beginning(names().filter(is_needed));
    attempt.body_len = (attempt.body_len + text.len()).saturating_sub(first.len());
    *first = text;
    attempt.payload_hash = None;
    attempt.betas_refused = true;
}

impl Gateway {
    /// Prepares an attempt that was refused for its beta features to be sent again without them. Returns false if it was
    /// not refused for them, or if the key refuses losses.
    pub(super) fn resend_without_betas(&self, ctx: &mut Context) -> bool {
        let policy = ctx.key().map(|key| key.rules.losses).unwrap_or_default();
        let Some(attempt) = ctx.attempt_mut() else { return false };
        if !std::mem::take(&mut attempt.betas_refused) {
            return false;
        }
        if policy == Losses::Refuse {
            ctx.drop_body();
            return false;
        }
        if policy == Losses::Warn {
            attempt.warning = with_warning(attempt.warning.take(), BETA_WARNING);
        }
        let (from, to) =
            attempt.translation.as_ref().map_or((Format::Messages, Format::Messages), |translation| {
                (translation.client, translation.provider)
            });
        let element = Cow::Borrowed(BETA_ELEMENT);
        self.count_losses(from, to, &[Loss { element, policy: LossPolicy::Warn, clamped: false }]);
        ctx.reset_response();
        self.count_retry(ctx, "invalid_beta");
        true
    }
}

/// Returns a warning header with one more entry.
fn with_warning(before: Option<HeaderValue>, entry: &'static str) -> Option<HeaderValue> {
    let Some(before) = before else { return Some(HeaderValue::from_static(entry)) };
    let joined = [before.as_bytes(), b", ", entry.as_bytes()].concat();
    Some(HeaderValue::from_bytes(&joined).unwrap_or(before))
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
    let written = usage.cache_writes().unwrap_or(0);
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
