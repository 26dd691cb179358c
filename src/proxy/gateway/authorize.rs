//! Authorization of an attempt with a short-lived credential, and its remedy after a refusal.

use std::time::Duration;

use http::{HeaderMap, header};
use pingora::http::RequestHeader;

use super::attempt::Attempt;
use super::context::Context;
use super::invoke::{judge_betas, may_refuse_betas};
use super::phase::internal_error;
use super::refit::may_be_unfit;
use crate::Gateway;
use crate::credentials::CredentialHandle;
use crate::credentials::authorize::{Judgement, Remedy, missing_credential};
use cloud::sigv4::PayloadHash;
use driver::fault::{Fault, FaultBody};
use driver::offload::run_blocking_if_large;

/// Waits until there is a credential for the request.
///
/// # Errors
/// Returns a fault if there is none within this time.
pub(super) async fn wait_for_credential(
    credential: &CredentialHandle,
    within: Duration,
) -> pingora::Result<()> {
    if credential.is_available() {
        return Ok(());
    }
    credential.wait(within).await.map_err(|reason| {
        let mut raised = Fault::raise(missing_credential(), FaultBody::None);
        raised.set_context(reason);
        raised
    })
}

/// Puts the credential into the head of an attempt, just before it is sent: each resend has a signature of its own.
///
/// # Errors
/// Returns a fault if there is no valid credential.
pub(super) fn authorize_attempt(head: &mut RequestHeader, ctx: &mut Context) -> pingora::Result<()> {
    let attempt = ctx.attempt_mut().ok_or_else(internal_error)?;
    let Some(credential) = &attempt.upstream_route.credential else { return Ok(()) };
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let mut headers = HeaderMap::with_capacity(4);
    for name in [header::HOST, header::CONTENT_TYPE] {
        if let Some(value) = head.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    let (body, length) = (&attempt.body, attempt.body_len);
    let hash = || run_blocking_if_large(length, || PayloadHash::of(body.iter().map(|piece| piece.as_ref())));
    // The body of an attempt stays as it was when it was first sent.
    let payload_hash = &mut attempt.payload_hash;
    let with =
        credential.authorize("POST", &target, &mut headers, || payload_hash.get_or_insert_with(hash).clone());
    let with = with.map_err(|error| Fault::raise(error, FaultBody::None))?;
    for (name, value) in headers {
        if let Some(name) = name {
            head.insert_header(name, value)?;
        }
    }
    attempt.authorized = Some(with);
    Ok(())
}

/// Judges the head of the response to an authorized attempt. Returns whether the request may be worth another
/// authorization, so that its body must be kept.
pub(super) fn judge_authorization(ctx: &mut Context, status: u16, headers: &HeaderMap) -> bool {
    let Some(attempt) = ctx.attempt_mut().filter(|attempt| !attempt.reauthorized) else { return false };
    let (Some(credential), Some(with)) = (&attempt.upstream_route.credential, attempt.authorized) else {
        return false;
    };
    match credential.judge(with, status, headers) {
        Judgement::Final => return false,
        Judgement::Remedy(remedy) => attempt.remedy = Some(remedy),
        Judgement::Unnamed => attempt.unnamed_refusal = true,
    }
    true
}

/// Judges the body of a refusal that its head does not name, or that may concern what the request holds.
pub(super) fn judge_refusal(ctx: &mut Context, status: u16, body: &[u8]) {
    let is_judged = |attempt: &&mut Attempt| {
        attempt.unnamed_refusal || may_refuse_betas(attempt, status) || may_be_unfit(attempt, status)
    };
    let Some(attempt) = ctx.attempt_mut().filter(is_judged) else { return };
    if std::mem::take(&mut attempt.unnamed_refusal)
        && let (Some(credential), Some(with)) = (&attempt.upstream_route.credential, attempt.authorized)
    {
        attempt.remedy = credential.judge_body(with, status, body);
    }
    if attempt.remedy.is_none() {
        judge_betas(attempt, status, body);
    }
    attempt.is_unfit = attempt.remedy.is_none()
        && !attempt.betas_refused
        && may_be_unfit(attempt, status)
        && attempt.refit.as_ref().is_some_and(|refit| refit.may_mend());
    if attempt.remedy.is_none() && !attempt.betas_refused && !attempt.is_unfit {
        // The provider has answered: this body is not sent again.
        ctx.drop_body();
    }
}

impl Gateway {
    /// Prepares a refused attempt to be sent again: without its beta features, adapted to the model, or with another
    /// authorization. Returns false if none is possible.
    pub(super) async fn reauthorize(&self, ctx: &mut Context, within: Duration) -> bool {
        if self.resend_without_betas(ctx) || self.resend_adapted(ctx).await {
            return true;
        }
        let Some(attempt) = ctx.attempt_mut() else { return false };
        let Some(remedy) = attempt.remedy.take() else { return false };
        attempt.reauthorized = true;
        let reason = match remedy {
            Remedy::Clock => "clock_skew",
            Remedy::Credential(number) => {
                let Some(credential) = attempt.upstream_route.credential.clone() else { return false };
                if !credential.replace(number, within).await {
                    // No attempt follows at this target, which alone can take this body.
                    ctx.drop_body();
                    return false;
                }
                "credential"
            }
        };
        ctx.reset_response();
        self.count_retry(ctx, reason);
        true
    }
}
