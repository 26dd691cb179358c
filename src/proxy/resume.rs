//! A stream that breaks off when its client has a part of it: another target goes on with it, where the route says so.
//!
//! The answer so far waits here while the next target is asked; its writer goes on when that one begins to answer. When
//! nobody can go on, the answer is put back, and ends in the error that it broke off with.

use std::time::Instant;

use super::answer::send;
use super::context::{Attempt, Context, ResponseInProgress, UpstreamResponse};
use super::exchange::{End, failed, while_there};
use super::{Client, Gateway};
use crate::error::ApiError;
use crate::route::blame::{Blame, Next, verdict};
use crate::route::pick::mask;
use crate::route::{Target, upstream_api};
use crate::translate::resume::{Continuation, Prefill, PrefillState, TranscriptLimits, Unfit, terms};
use crate::translate::translated::Route;
use crate::translate::verbatim::Arrival;
use crate::translate::{Exchange, TranslateRequest};
use crate::wire::path::Action;
use crate::wire::{Api, Format};

/// What is known of an answer that broke off.
pub(super) struct Resume {
    /// The answer so far, until somebody goes on with it.
    waiting: Option<Exchange>,
    prefill: Prefill,
    /// Output tokens that are left of what the client allows.
    left: Option<u64>,
    /// What it broke off with.
    error: ApiError,
    detail: Option<Box<str>>,
    since: Instant,
    /// When the client got its first content.
    pub(super) first_content: Option<Instant>,
}

impl Resume {
    /// What the next target is given.
    pub(super) fn begun(&self) -> PrefillState<'_> {
        PrefillState { prefill: &self.prefill, left: self.left }
    }
}

/// Why nobody goes on, in the word of the metrics.
type Why = &'static str;

/// Nothing is left of the output that the client allows.
const LIMIT: Why = "limit";

impl Context {
    /// Whether the route wants streams to be gone on with, and there is somebody who could.
    fn wants_more(&self) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.model.routing.retry.resume)
    }

    /// Whether the answer is one that another target could go on with.
    pub(super) fn can_go_on(&self) -> bool {
        let fit = |passing: &ResponseInProgress| passing.exchange.unfit().is_none();
        self.wants_more() && matches!(&self.answer, UpstreamResponse::Stream(passing) if fit(passing))
    }

    /// Notes what the client is given from now on, if another target may have to go on with it.
    pub(super) fn follow(&self, exchange: &mut Exchange) {
        if self.wants_more() {
            exchange.follow();
        }
    }

    /// The answer has broken off. The one that was asked to go on with it may not have begun: then it waits already.
    fn interrupt(&mut self, error: &ApiError) -> Result<(), Unfit> {
        let UpstreamResponse::Stream(passing) = &mut self.answer else {
            let waits = self.resume.as_ref().is_some_and(|resume| resume.waiting.is_some());
            return if waits { Ok(()) } else { Err(Unfit::Content) };
        };
        passing.exchange.cut();
        let prefill = passing.exchange.prefill()?;
        let terms = self.terms()?;
        let UpstreamResponse::Stream(passing) =
            std::mem::replace(&mut self.answer, UpstreamResponse::Pending)
        else {
            return Err(Unfit::Content);
        };
        let written = passing.exchange.usage().output.unwrap_or(0);
        let before = self.resume.take().and_then(|resume| resume.first_content);
        self.resume = Some(Box::new(Resume {
            waiting: Some(passing.exchange),
            prefill,
            left: terms.max_output.map(|most| most.saturating_sub(written)),
            error: error.clone(),
            detail: self.record.detail.clone(),
            since: Instant::now(),
            first_content: before.or(self.record.first_content),
        }));
        Ok(())
    }

    /// What the request says about going on with its answer.
    fn terms(&self) -> Result<TranscriptLimits, Unfit> {
        let (Some(plan), Some(origin)) = (&self.plan, &self.origin) else { return Err(Unfit::Request) };
        let target = plan.target().ok_or(Unfit::Request)?;
        let client = origin.api.format().ok_or(Unfit::Request)?;
        let dialect = plan.lane.dialect(target);
        let text = origin.body.text.clone().into_contiguous();
        let text = std::str::from_utf8(&text).map_err(|_| Unfit::Request)?;
        let ask = TranslateRequest {
            client,
            provider: client,
            stream: true,
            array: matches!(origin.action, Some(Action::Stream { sse: false })),
            thinking: origin.thinking,
            dialect: &dialect,
            model: &origin.model.escaped_id,
            id: self.id.as_str(),
            seed: self.seed(),
            now: self.record.unix_millis / 1000,
        };
        terms(text, &ask)
    }

    /// Nobody goes on with the answer that waits.
    pub(super) fn put_back(&mut self) {
        let Some(resume) = &mut self.resume else { return };
        let Some(exchange) = resume.waiting.take() else { return };
        self.answer = UpstreamResponse::Stream(Box::new(ResponseInProgress::new(exchange)));
        self.record.stream = true;
        self.record.first_content = resume.first_content;
        self.record.detail = resume.detail.take();
    }
}

/// Whether a target can go on with an answer.
fn is_able(target: &Target, api: Api, prefill: &Prefill) -> bool {
    let Some(upstream) = upstream_api(target, api) else { return false };
    match upstream.format() {
        None => false,
        // It has no word for a beginning; and it keeps what its clients go on from.
        Some(Format::Responses) => prefill.is_empty() && api != Api::Responses,
        Some(_) => prefill.is_empty() || target.provider.dialect(upstream, &target.model).prefill,
    }
}

impl Gateway {
    /// A stream has broken off: chooses who goes on with it, if anybody can.
    pub(super) async fn go_on(
        &self,
        client: &mut Client,
        ctx: &mut Context,
        error: ApiError,
    ) -> Result<(), End> {
        let status = ctx.record.upstream_status;
        let verdict = verdict(&error, status);
        self.blame(ctx, verdict.blame, &error);
        let model = ctx.plan.as_ref().map(|plan| plan.model.clone());
        let nobodys = verdict.blame == Blame::Gateway && verdict.next == Next::No;
        let Some(model) = model.filter(|model| model.routing.retry.resume && ctx.record.targets > 0) else {
            return Err(End::Failed(error));
        };
        if nobodys {
            ctx.put_back();
            return Err(End::Failed(error));
        }
        let asked = while_there(client, self.ask_to_go_on(ctx, &error, verdict.next, status)).await;
        let asked = match asked {
            Ok(asked) => asked,
            Err(gone) => {
                ctx.put_back();
                return Err(End::Failed(gone));
            }
        };
        let outcome = asked.err().unwrap_or("asked");
        self.metrics.streams_continued.with_label_values(&[&*model.id, outcome]).inc();
        match asked {
            Ok(()) => Ok(()),
            Err(LIMIT) => Err(self.end_at_limit(client, ctx, error).await),
            Err(_) => {
                // What the client was told by the one whom it heard is what it understands.
                let waits = ctx.resume.as_ref().filter(|resume| resume.waiting.is_some());
                let error = waits.map_or(error, |resume| resume.error.clone());
                ctx.put_back();
                Err(End::Failed(error))
            }
        }
    }

    async fn ask_to_go_on(
        &self,
        ctx: &mut Context,
        error: &ApiError,
        next: Next,
        status: Option<u16>,
    ) -> Result<(), Why> {
        let heard = matches!(ctx.answer, UpstreamResponse::Stream(_));
        if let Some(unfit) = ctx.passing().filter(|_| heard).and_then(|passing| passing.exchange.unfit()) {
            return Err(unfit.label());
        }
        if heard && next != Next::Yes {
            return Err("failure");
        }
        ctx.interrupt(error).map_err(Unfit::label)?;
        let (Some(origin), Some(resume)) = (ctx.origin.as_deref_mut(), ctx.resume.as_deref()) else {
            return Err(Unfit::Content.label());
        };
        if resume.left == Some(0) {
            return Err(LIMIT);
        }
        let retry = origin.model.routing.retry;
        let (model, api) = (origin.model.clone(), origin.api);
        let able = |index| model.targets.get(index).is_some_and(|t| is_able(t, api, &resume.prefill));
        origin.ask.tried |= !mask(&*model, able);
        if origin.ask.fitting & !origin.ask.tried == 0 {
            return Err("targets");
        } else if origin.asked >= retry.attempts {
            return Err("attempts");
        } else if resume.since.elapsed() >= retry.deadline {
            return Err("deadline");
        } else if !model.budget.take(&retry.share) {
            return Err("budget");
        }
        self.look_anew(ctx);
        self.note_fallback(ctx, error, status);
        let keep = ctx.plan.as_mut().and_then(|plan| plan.translation.as_mut()?.keep.take());
        ctx.begin_again();
        self.next_target(ctx, None).await.map_err(|_| "targets")?;
        if let Some(translation) = ctx.plan.as_mut().and_then(|plan| plan.translation.as_mut()) {
            translation.keep = keep;
        }
        Ok(())
    }

    /// The exchange that goes on with an answer, if one waits for it.
    pub(super) fn onward(
        &self,
        plan: &Attempt,
        resume: Option<&mut Box<Resume>>,
        arrival: Arrival,
    ) -> Option<Exchange> {
        let (resume, translation) = (resume?, plan.translation.as_deref()?);
        let waiting = resume.waiting.take()?;
        let limit = if arrival == Arrival::Whole { self.limits.answer } else { self.limits.frame };
        let repeats = plan.target().is_some_and(|target| plan.lane.dialect(target).habits.repeats_prefill);
        Some(waiting.go_on(Continuation {
            route: Route { client: translation.client, provider: translation.provider, stream: true },
            arrival,
            reply: &translation.reply,
            restore: translation.restore.clone(),
            limit,
            prefill: &resume.prefill,
            repeats,
        }))
    }

    /// The answer has all that its client allows.
    async fn end_at_limit(&self, client: &mut Client, ctx: &mut Context, error: ApiError) -> End {
        let terms = ctx.terms();
        let waiting = ctx.resume.as_mut().and_then(|resume| resume.waiting.take());
        let (Some(waiting), Ok(terms), Some(resume)) = (waiting, terms, &ctx.resume) else {
            return End::Failed(error);
        };
        let (exchange, tail) = waiting.end_at_limit(&terms.reply, &resume.prefill);
        ctx.record.first_content = resume.first_content;
        ctx.record.detail = None;
        ctx.record.stream = true;
        ctx.answer = UpstreamResponse::Stream(Box::new(ResponseInProgress::new(exchange)));
        // As before any other end of an answer.
        if let Some(pending) = self.keep(ctx) {
            self.kept(ctx, pending).await;
        }
        if let Some(pending) = self.remember(ctx) {
            self.remembered(ctx, pending).await;
        }
        let claims = self.claim(ctx);
        self.claimed(ctx, claims).await;
        if let Some(settled) = ctx.settle(true) {
            self.settling(ctx, settled).await;
        }
        match send(client, ctx, &mut None, tail, true).await {
            Ok(()) => End::Complete,
            Err(error) => failed(ctx, &error),
        }
    }
}
