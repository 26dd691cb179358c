//! What goes to the provider: the body as it came, edited in place, or translated.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use smallvec::smallvec;

use super::Gateway;
use super::context::{Attempt, Context, Translation};
use super::offload::apart_if_large;
use super::remote_media::{MediaFault, may_be_linked};
use super::request::overloaded;
use super::stored::{ResponseKeeping, new_id};
use super::upstream_route::UpstreamRoute;
use crate::account::Losses;
use crate::canonical::Thinking;
use crate::error::{ApiError, Kind};
use crate::job::{embed, rank};
use crate::json::Rope;
use crate::route::target_handle::TargetPermit;
use crate::route::{Model, Target, api_that_stops, upstream_api};
use crate::translate::verbatim::Changes;
use crate::translate::{
    EncodeBlocked, Outgoing, StoreOptions, TranslateRequest, outgoing_sealed, outgoing_stored,
};
use crate::wire::chat::usage::UsageChunk;
use crate::wire::codec::Loss;
use crate::wire::loss::{self, LossPolicy};
use crate::wire::path::Action;
use crate::wire::request::Body;
use crate::wire::responses::stored::{Wish, wish};
use crate::wire::spelling::{Betas, Respelling};
use crate::wire::{Api, Format};

/// Warnings that are named in the header at most, and how much of each name.
const WARNINGS: usize = 12;
const WARNING_NAME: usize = 64;

/// Request body, owned where it is used up or borrowed where it may have to be sent again.
pub(super) enum BodyRef<'b> {
    Own(Box<Body>),
    Lent(&'b Body),
}

impl BodyRef<'_> {
    fn text(self) -> Rope {
        match self {
            BodyRef::Own(body) => body.text,
            // It is shared, not copied.
            BodyRef::Lent(body) => body.text.clone(),
        }
    }

    /// The text in one piece.
    pub(super) fn into_contiguous(self) -> Bytes {
        self.text().into_contiguous()
    }
}

impl Deref for BodyRef<'_> {
    type Target = Body;

    fn deref(&self) -> &Body {
        match self {
            BodyRef::Own(body) => body,
            BodyRef::Lent(body) => body,
        }
    }
}

/// Selected target of a request, with the API and the format that it is asked in.
pub(super) struct Selection {
    pub(super) model: Arc<Model>,
    pub(super) index: usize,
    /// Its place there; nothing for what is asked of a provider in any case.
    pub(super) permit: Option<TargetPermit>,
    pub(super) lane: Arc<UpstreamRoute>,
    /// The API that the client speaks.
    pub(super) api: Api,
    /// The API that the provider is asked through.
    pub(super) upstream: Api,
    pub(super) action: Option<Action>,
    pub(super) stream: bool,
}

impl Selection {
    pub(super) fn target(&self) -> Result<&Target, ApiError> {
        self.model.targets.get(self.index).ok_or_else(|| ApiError::new(Kind::Internal, "The gateway failed."))
    }

    /// The body goes on as it is, but for the model's name, the wish for usage and the specification's spellings; and
    /// what is lost by those.
    pub(super) fn pass_on(self, name: &str, body: BodyRef<'_>) -> Result<(Attempt, Vec<Loss>), ApiError> {
        let target = self.target()?;
        let mut edits = Vec::new();
        let instead = target.provider.instead_of_model();
        match instead {
            // What is counted is counted for a model, which stands in the body there.
            Some((member, value)) if self.upstream == Api::CountTokens => {
                edits.extend(body.set_model_beside(&target.model, member, value));
            }
            Some((member, value)) => {
                let unreadable = || {
                    let message =
                        "The member 'model' is written in an unusual way; write its name without escapes.";
                    ApiError::new(Kind::InvalidField, message).param("model")
                };
                edits.push(body.replace_model(member, value).ok_or_else(unreadable)?);
            }
            None if *target.model != *name => edits.extend(body.set_model(&target.model)),
            None => {}
        }
        let maps = self.api == Api::Messages && target.provider.standard_errors;
        let mut changes = Changes { standard_errors: maps, ..Changes::default() };
        if *target.model != *self.model.id {
            changes.model = Some(self.model.escaped_id.clone());
        }
        if self.api == Api::Chat && body.stream && !body.asks_usage() && target.provider.ask_usage {
            edits.extend(body.ask_usage());
            changes.drop_usage = true;
        } else if self.api == Api::Chat && body.stream && body.asks_usage() {
            changes.tell_usage = Some(UsageChunk { model: self.model.escaped_id.clone(), created: 0 });
        }
        let mut spelled = Respelling::default();
        if body.may_be_spelled() && self.upstream == self.api {
            spelled = body.respelled(&self.lane.dialect(target));
            edits.append(&mut spelled.edits);
        }
        edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
        let text = body.text().edited(&edits);
        let losses = respelled(&spelled);
        Ok((Attempt { body_len: text.len(), body: text.into_pieces(), changes, ..self.plan() }, losses))
    }

    /// Whether all of the body is read before it can go to a provider of the client's own format, or a job be made of
    /// it.
    pub(super) fn is_read(&self, body: &Body) -> bool {
        let job =
            matches!(self.api, Api::Embeddings | Api::EmbedContent | Api::Rerank) || body.image.is_some();
        job || (self.api == self.upstream && (self.is_particular() || body.may_be_spelled()))
    }

    fn is_particular(&self) -> bool {
        self.api == Api::Chat && self.target().is_ok_and(|target| target.provider.is_particular())
    }

    /// Whether the body can go to a provider of the client's own format as it is.
    pub(super) fn passes(&self, body: &Body) -> bool {
        let Ok(target) = self.target() else { return true };
        if !self.is_particular() {
            return true;
        }
        let dialect = self.lane.dialect(target);
        let text = body.text.clone().into_contiguous();
        std::str::from_utf8(&text).is_ok_and(|text| crate::wire::chat::request::fits(text, &dialect))
    }

    /// What stands in the path, for providers whose path depends on it.
    fn action(&self) -> Option<Action> {
        let needed = self.target().is_ok_and(|target| target.provider.path_needs_action(self.upstream));
        let own = if self.stream { Action::Stream { sse: true } } else { Action::Generate };
        match self.action {
            action if !needed => action,
            Some(action) if self.api == self.upstream => Some(action),
            _ => Some(own),
        }
    }

    /// Everything but the body.
    pub(super) fn plan(self) -> Attempt {
        let action = self.action();
        Attempt {
            lane: self.lane,
            model: self.model,
            target: self.index,
            api: self.upstream,
            action,
            stream: self.stream,
            body: smallvec![],
            body_len: 0,
            sent: 0,
            changes: Changes::default(),
            translation: None,
            warning: None,
            betas: Betas::default(),
            permit: self.permit,
            job: None,
        }
    }

    /// Vectors are asked for: the body goes on as it is, or there is a job.
    pub(super) fn embed(
        self,
        name: &str,
        action: Option<Action>,
        body: BodyRef<'_>,
    ) -> Result<Attempt, ApiError> {
        let target = self.target()?;
        let asked = embed::EmbedRequest {
            client: match action {
                Some(Action::BatchEmbed) => embed::Client::Parts,
                Some(_) => embed::Client::Part,
                None => embed::Client::List,
            },
            body: body.text.clone().into_contiguous(),
            named: name.to_owned(),
            model: self.model.escaped_id.clone(),
            upstream: target.model.clone(),
            dialect: target.provider.embedding(self.upstream, &target.model),
        };
        match embed::way(asked)? {
            embed::EmbedRoute::Pass { base64 } => {
                let (mut plan, _) = self.pass_on(name, body)?;
                plan.changes.base64 = Some(base64);
                Ok(plan)
            }
            embed::EmbedRoute::Job(job) => Ok(Attempt { job: Some(job), ..self.plan() }),
        }
    }

    /// Documents are to be put in order.
    pub(super) fn rank(self, body: BodyRef<'_>) -> Result<Attempt, ApiError> {
        let target = self.target()?;
        let asked = rank::RankRequest {
            body: body.into_contiguous(),
            model: self.model.escaped_id.clone(),
            upstream: target.model.clone(),
            dialect: target.provider.ranking(&target.model),
        };
        Ok(Attempt { job: Some(Box::new(rank::Ranking::new(asked)?)), ..self.plan() })
    }
}

/// Through which API a target is asked for what a body wants, and what its provider must be told in a header.
pub(super) fn way_up(target: Option<&Target>, api: Api, body: &Body) -> (Api, Betas) {
    let upstream = target.and_then(|target| upstream_api(target, api)).unwrap_or(api);
    let upstream = match target {
        // One format has no word for what ends an answer; another one of the same provider has.
        Some(target) if upstream == Api::Responses && api != upstream && body.asks_to_stop() => {
            api_that_stops(target).unwrap_or(upstream)
        }
        _ => upstream,
    };
    (upstream, if upstream == Api::Messages { body.betas() } else { Betas::default() })
}

impl Gateway {
    /// The body is translated, for a client that may go on from a kept answer and whose own answer may be kept.
    pub(super) async fn translate_kept(
        &self,
        ctx: &Context,
        chosen: Selection,
        thinking: Thinking,
        text: Bytes,
    ) -> Result<Attempt, ApiError> {
        let wish = if chosen.api == Api::Responses && self.keeps() {
            apart_if_large(text.len(), || wish(std::str::from_utf8(&text).unwrap_or_default()))
        } else {
            Wish { previous: None, keep: false }
        };
        let before = match &wish.previous {
            Some(id) => self.conversation(ctx, id).await?,
            None => None,
        };
        // What another target has begun has its name already.
        let keep_as = if wish.keep && ctx.resume.is_none() { new_id() } else { String::new() };
        let remembers = self.may_recall(&chosen);
        let stored = StoreOptions {
            before: before.as_deref(),
            keep_as: &keep_as,
            remembers,
            ..StoreOptions::default()
        };
        match self.translate(ctx, chosen, thinking, &text, stored).await {
            Ok(plan) => Ok(plan),
            Err(stuck) => Box::pin(self.translate_with(ctx, stuck, thinking, &text, stored)).await,
        }
    }

    /// The body is translated; or, where only the model's name asks for reasoning, said anew in the same format.
    pub(super) async fn translate(
        &self,
        ctx: &Context,
        chosen: Selection,
        thinking: Thinking,
        text: &[u8],
        stored: StoreOptions<'_>,
    ) -> Result<Attempt, MediaFault> {
        let before = stored.before.map_or(0, str::len);
        self.offload
            .turn(text.len() + before)
            .await?
            .run(|| self.translate_now(ctx, chosen, thinking, text, stored))
    }

    fn translate_now(
        &self,
        ctx: &Context,
        chosen: Selection,
        thinking: Thinking,
        text: &[u8],
        stored: StoreOptions<'_>,
    ) -> Result<Attempt, MediaFault> {
        let target = chosen.target()?;
        let begun = ctx.resume.as_ref().map(|resume| resume.begun());
        let stored = StoreOptions { begun, ..stored };
        let (Some(client), Some(provider)) = (chosen.api.format(), chosen.upstream.format()) else {
            let message =
                format!("The model `{}` cannot be asked to reason through this API.", chosen.model.id);
            return Err(ApiError::new(Kind::Unsupported, message).param("model").into());
        };
        let array = matches!(chosen.action, Some(Action::Stream { sse: false }));
        let dialect = chosen.lane.dialect(target);
        let text = std::str::from_utf8(text)
            .map_err(|_| ApiError::new(Kind::InvalidJson, "The request body is not UTF-8."))?;
        let ask = TranslateRequest {
            client,
            provider,
            stream: chosen.stream,
            array,
            thinking,
            dialect: &dialect,
            model: &chosen.model.escaped_id,
            id: ctx.id.as_str(),
            seed: ctx.seed(),
            now: ctx.record.unix_millis / 1000,
        };
        let asked = if stored.remembers && stored.recalled.is_none() {
            outgoing_sealed(text, &ask, stored)
        } else {
            outgoing_stored(text, &ask, stored).map_err(EncodeBlocked::Refused)
        };
        let Outgoing { body, restore, reply, losses, items } = match asked {
            Ok(outgoing) => outgoing,
            Err(EncodeBlocked::Bare(keys)) => return Err(MediaFault::Bare(Box::new((chosen, keys)))),
            Err(EncodeBlocked::Refused(refused)) if may_be_linked(&refused, &stored) => {
                return Err(MediaFault::Linked(Box::new((chosen, refused))));
            }
            Err(EncodeBlocked::Refused(refused)) => {
                self.count_losses(client, provider, &refused.losses);
                return Err(refused.error.into());
            }
        };
        let policy = ctx.key.as_ref().map(|key| key.rules.losses).unwrap_or_default();
        let (losses, refused) = weigh(losses, policy, provider);
        self.count_losses(client, provider, &losses);
        if let Some(refused) = refused {
            return Err(refused.into());
        }
        // What a translation adds, such as the bytes behind a link, is held beside the client's body.
        let added = body.len().saturating_sub(text.len());
        let body = self.memory.weigh(body, added).ok_or_else(overloaded)?;
        let changes = Changes {
            model: (*target.model != *chosen.model.id).then(|| chosen.model.escaped_id.clone()),
            drop_usage: client == Format::Chat && provider == Format::Chat && !reply.usage_wanted,
            tell_usage: (client == Format::Chat && chosen.stream && reply.usage_wanted).then(|| UsageChunk {
                model: chosen.model.escaped_id.clone(),
                created: ctx.record.unix_millis / 1000,
            }),
            base64: None,
            standard_errors: provider == Format::Messages && target.provider.standard_errors,
        };
        let keep = (!stored.keep_as.is_empty())
            .then(|| Box::new(ResponseKeeping { id: stored.keep_as.to_owned(), items: items.into() }));
        // Said anew in the same format, an answer passes as it is, unless something in it must be undone or it comes
        // as a stream for a client that wants none.
        let whole = dialect.habits.streams_only && !chosen.stream;
        let translation =
            (client != provider || whole || begun.is_some() || !restore.is_empty()).then(|| {
                Box::new(Translation { client, provider, reply: Arc::new(reply), restore, array, keep })
            });
        Ok(Attempt {
            body_len: body.len(),
            body: smallvec![body],
            changes,
            translation,
            warning: if policy == Losses::Warn { warning(&losses) } else { None },
            ..chosen.plan()
        })
    }

    /// The plan of a body that passes, with what its key thinks of the losses.
    ///
    /// # Errors
    /// The key wants none.
    pub(super) fn weigh_respelled(
        &self,
        ctx: &Context,
        format: Option<Format>,
        (mut plan, losses): (Attempt, Vec<Loss>),
    ) -> Result<Attempt, ApiError> {
        if let Some(chunk) = &mut plan.changes.tell_usage {
            chunk.created = ctx.record.unix_millis / 1000;
        }
        let Some(format) = format.filter(|_| !losses.is_empty()) else { return Ok(plan) };
        let policy = ctx.key.as_ref().map(|key| key.rules.losses).unwrap_or_default();
        let (losses, refused) = weigh(losses, policy, format);
        self.count_losses(format, format, &losses);
        if let Some(refused) = refused {
            return Err(refused);
        }
        plan.warning = if policy == Losses::Warn { warning(&losses) } else { None };
        Ok(plan)
    }

    pub(super) fn count_losses(&self, from: Format, to: Format, losses: &[Loss]) {
        for Loss { element, policy, .. } in losses {
            // Names that clients make up must not become series.
            let known = loss::ROWS.iter().find(|row| row.element == element);
            let labels = [from.name(), to.name(), known.map_or("other", |row| row.element), policy.name()];
            self.metrics.losses.with_label_values(&labels).inc();
        }
    }
}

/// What a key's policy makes of what was lost: the losses as they count, and the refusal, if there is one.
fn weigh(mut losses: Vec<Loss>, policy: Losses, provider: Format) -> (Vec<Loss>, Option<ApiError>) {
    if policy != Losses::Refuse {
        return (losses, None);
    }
    let mut refused = None;
    for loss in losses.iter_mut().filter(|loss| loss.policy == LossPolicy::Warn) {
        loss.policy = LossPolicy::Refuse;
        let element = &loss.element;
        refused.get_or_insert_with(|| {
            let what = if loss.clamped { "changed" } else { "lost" };
            let message = format!(
                "'{element}' would be {what} on the way to the {provider} API of this model, and this API key wants no losses."
            );
            ApiError::new(Kind::Unsupported, message).param(element.clone())
        });
    }
    (losses, refused)
}

/// What was left out of a body, or changed in it, that passes otherwise.
fn respelled(spelled: &Respelling) -> Vec<Loss> {
    let loss =
        |name: &&'static str, clamped| Loss { element: (*name).into(), policy: LossPolicy::Warn, clamped };
    let dropped = spelled.dropped.iter().map(|name| loss(name, false));
    dropped.chain(spelled.clamped.iter().map(|name| loss(name, true))).collect()
}

/// The header that tells what was lost.
fn warning(losses: &[Loss]) -> Option<HeaderValue> {
    let names = losses.iter().filter(|loss| loss.policy == LossPolicy::Warn).take(WARNINGS).map(|loss| {
        let plain = loss.element.chars().filter(|c| c.is_ascii_graphic() && *c != ',').take(WARNING_NAME);
        plain.collect::<String>() + if loss.clamped { " clamped" } else { " dropped" }
    });
    let text = names.collect::<Vec<_>>().join(", ");
    HeaderValue::try_from(text).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_wants_no_losses_is_told_the_first_one_that_matters() {
        let loss = |element: &'static str, policy| Loss { element: element.into(), policy, clamped: false };
        let losses = || vec![loss("seed", LossPolicy::Silent), loss("top_p", LossPolicy::Warn)];
        for policy in [Losses::Allow, Losses::Warn] {
            assert_eq!(weigh(losses(), policy, Format::Messages), (losses(), None));
        }
        let (counted, refused) = weigh(losses(), Losses::Refuse, Format::Messages);
        assert_eq!(counted, [loss("seed", LossPolicy::Silent), loss("top_p", LossPolicy::Refuse)]);
        let refused = refused.unwrap();
        assert_eq!(refused.kind, Kind::Unsupported);
        assert_eq!(refused.param.as_deref(), Some("top_p"));
        let harmless = vec![loss("seed", LossPolicy::Silent)];
        assert_eq!(weigh(harmless.clone(), Losses::Refuse, Format::Chat), (harmless, None));
    }

    #[test]
    fn what_was_lost_fits_into_a_header() {
        let loss = |element: &'static str, policy| Loss { element: element.into(), policy, clamped: false };
        assert_eq!(warning(&[loss("seed", LossPolicy::Silent)]), None);
        let losses = [loss("temperature", LossPolicy::Warn), loss("x\r\ny, ü", LossPolicy::Warn)];
        assert_eq!(warning(&losses).unwrap(), "temperature dropped, xy dropped");
        let many: Vec<Loss> = (0..99).map(|_| loss("logprobs", LossPolicy::Warn)).collect();
        assert!(warning(&many).unwrap().len() < 300);
    }
}
