//! Upstream request bodies: forwarded with edits in place, or translated into the provider's format.

use std::sync::Arc;

use http::HeaderValue;
use smallvec::smallvec;

use super::attempt::{Attempt, ResponseStorage, Translation};
use super::cache_plan::CacheAction;
use super::context::Context;
use super::remote_media::{MediaFault, may_need_fetch};
use super::selection::{BodyRef, Selection};
use super::stored::new_id;
use crate::Gateway;
use codec::canonical::{RequestFeatures, Thinking};
use codec::error::{ApiError, ErrorKind};
use codec::job::{embed, rank};
use codec::translate::verbatim::Changes;
use codec::translate::{
    EncodeBlocked, Outgoing, StoreOptions, TranslateRequest, outgoing_sealed, outgoing_stored,
};
use codec::wire::chat::usage::UsageChunk;
use codec::wire::codec::Loss;
use codec::wire::content_last::edited_content_last;
use codec::wire::features::leaks_envelope;
use codec::wire::loss::{self, LossPolicy};
use codec::wire::path::Action;
use codec::wire::request::Body;
use codec::wire::responses::stored::{StorageRequest, parse_storage};
use codec::wire::spelling::{Betas, Respelling};
use codec::wire::{Api, Format};
use driver::offload::run_blocking_if_large;
use json::{Edit, JsonText};
use routing::account::Losses;
use routing::route::Target;
use storage::kv::Holder;

/// Losses that the warning header names.
const WARNINGS: usize = 12;
/// Characters of each name in the warning header.
const WARNING_NAME: usize = 64;

impl Selection {
    pub(crate) fn target(&self) -> Result<&Target, ApiError> {
        self.model
            .targets
            .get(self.index)
            .ok_or_else(|| ApiError::new(ErrorKind::Internal, "Internal gateway error."))
    }

    /// Builds the attempt of a body that is forwarded in the client's format. Edits set the model's upstream name, ask
    /// for usage, and respell members for the provider. Returns the losses of the respelling too.
    pub(crate) fn forward_verbatim(
        self,
        name: &str,
        body: BodyRef<'_>,
    ) -> Result<(Attempt, Vec<Loss>), ApiError> {
        let target = self.target()?;
        let mut edits = Vec::new();
        let instead = target.provider.model_replacement(self.upstream);
        match instead {
            // Token counting needs the model in the body even where generation has it in the path.
            Some((member, value)) if self.upstream == Api::CountTokens => {
                edits.extend(body.set_model_beside(&target.model, member, value));
            }
            Some((member, value)) => edits.extend(body.replace_model(member, value)),
            None if *target.model != *name => edits.extend(body.set_model(&target.model)),
            None => {}
        }
        let mut changes = Changes { calls: body.has_tools(), ..self.verbatim_changes(target) };
        // Billing needs the usage of a stream. A client that did not ask for it must not receive the extra chunk.
        if self.api == Api::Chat && body.stream && !body.requests_usage() && target.provider.ask_usage {
            edits.extend(body.request_usage());
            changes.drop_usage = true;
        } else if self.api == Api::Chat && body.stream && body.requests_usage() {
            // `apply_respelling_losses` sets the time.
            changes.insert_usage = Some(UsageChunk { model: self.reply_name().clone(), created: 0 });
        }
        edits
            .extend(body.removals(target.provider.invokes(self.upstream), instead.map(|(member, _)| member)));
        let mut spelled = Respelling::default();
        if self.upstream == self.api && self.may_be_respelled(&body, target) {
            spelled = body.respelled(&self.dialect(target));
            edits.append(&mut spelled.edits);
        }
        let caching = self.caching.edit(&body, &mut edits);
        // `edited` requires sorted edits.
        edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
        let moved = body.content_range().filter(|_| target.provider.wants_content_last(self.upstream));
        let text = match moved {
            Some(content) => edited_content_last(body.text(), &edits, content),
            None => body.text().edited(&edits),
        };
        debug_assert!(!leaks_envelope(self.api, &text), "an envelope leaves the gateway");
        let (body_len, body) = (text.len(), text.into_pieces());
        let attempt = Attempt { body_len, body, changes, caching, ..self.into_attempt() };
        Ok((attempt, respelling_losses(&spelled)))
    }

    /// Returns whether the whole body must be parsed before it can be forwarded in the client's format or made into a
    /// job.
    pub(crate) fn needs_parse(&self, body: &Body) -> bool {
        let job =
            matches!(self.api, Api::Embeddings | Api::EmbedContent | Api::Rerank) || body.image.is_some();
        let is_edited = || self.target().is_ok_and(|target| self.may_be_respelled(body, target));
        job || (self.api == self.upstream && (self.needs_adaptation() || is_edited()))
    }

    /// Returns whether the provider's deviations from the chat format must be looked for in the body, in one piece.
    pub(crate) fn needs_adaptation(&self) -> bool {
        self.api == Api::Chat && self.target().is_ok_and(|target| target.provider.needs_adaptation())
    }

    /// Returns whether the target takes what the body holds, in the client's format. If not, the body is encoded again in
    /// that format.
    pub(crate) fn accepts_verbatim(&self, body: &mut Body) -> bool {
        let Ok(target) = self.target() else { return true };
        if self.needs_adaptation() {
            // What another model has left in the conversation; members are judged below.
            let members = RequestFeatures::ADDED_MEMBER.with(RequestFeatures::MESSAGE_MEMBER);
            let held = self.held(body).without(members);
            if !body.is_settled_by_edits(held) {
                return false;
            }
            let dialect = self.upstream_route.dialect(target);
            return codec::wire::chat::request::fits(&body.text.make_contiguous(), &dialect);
        }
        if self.api == Api::Chat && self.upstream == Api::Chat && !self.asks {
            return self.accepts_edited(body, target);
        }
        let held = self.held(body);
        if !body.is_settled_by_edits(held) {
            return false;
        }
        let replacement = target.provider.model_replacement(self.upstream).map(|(member, _)| member);
        let by_path = target.provider.invokes(self.upstream);
        if (self.upstream == Api::Messages || held != RequestFeatures::NONE)
            && self.may_be_respelled(body, target)
        {
            // Two edits of neighbours may remove the same comma.
            let removed = body.removals(by_path, replacement);
            let spelled = body.respelled(&self.dialect(target));
            let touch = |one: &Edit, other: &Edit| {
                one.range.start < other.range.end && other.range.start < one.range.end
            };
            return !spelled.encode_again
                && !spelled.edits.iter().any(|edit| removed.iter().any(|other| touch(edit, other)));
        }
        true
    }

    /// Returns the action for the upstream path, for providers whose path depends on it.
    fn action(&self) -> Option<Action> {
        let needed = self.target().is_ok_and(|target| target.provider.path_needs_action(self.upstream));
        let own = if self.stream { Action::Stream { sse: true } } else { Action::Generate };
        match self.action {
            action if !needed => action,
            Some(action) if self.api == self.upstream => Some(action),
            _ => Some(own),
        }
    }

    /// Builds the attempt with an empty body.
    pub(crate) fn into_attempt(self) -> Attempt {
        let action = self.action();
        Attempt {
            upstream_route: self.upstream_route,
            model: self.model,
            alias: self.alias,
            target: self.index,
            api: self.upstream,
            action,
            stream: self.stream,
            body: smallvec![],
            body_len: 0,
            pieces_sent: 0,
            changes: Changes::default(),
            caching: CacheAction::Off,
            sections: self.caching.sections,
            translation: None,
            warning: None,
            is_completed: false,
            betas: Betas::default(),
            sent_betas: Box::default(),
            betas_refused: false,
            refit: None,
            is_unfit: false,
            without: RequestFeatures::NONE,
            permit: self.permit,
            payload_hash: None,
            authorized: None,
            remedy: None,
            unnamed_refusal: false,
            reauthorized: false,
            job: None,
        }
    }

    /// Returns the changes to the response of a translated request, from the client's and to the provider's format. `now` is
    /// in Unix seconds.
    fn translated_changes(
        &self,
        target: &Target,
        [client, provider]: [Format; 2],
        usage_wanted: bool,
        now: u64,
    ) -> Changes {
        Changes {
            // Translation always requests usage from the provider; this client did not.
            drop_usage: client == Format::Chat && provider == Format::Chat && !usage_wanted,
            insert_usage: (client == Format::Chat && self.stream && usage_wanted)
                .then(|| UsageChunk { model: self.reply_name().clone(), created: now }),
            ..Changes::new(self.renamed(&target.model), true)
        }
    }

    /// Builds the attempt of an embeddings request: the body is forwarded, or a job serves it.
    pub(crate) fn embeddings_attempt(
        self,
        name: &str,
        action: Option<Action>,
        mut body: BodyRef<'_>,
    ) -> Result<Attempt, ApiError> {
        let target = self.target()?;
        let asked = embed::EmbedRequest {
            client: match action {
                Some(Action::BatchEmbed) => embed::Client::Parts,
                Some(_) => embed::Client::Part,
                None => embed::Client::List,
            },
            body: body.text.make_contiguous(),
            named: name.to_owned(),
            model: self.reply_name().clone(),
            upstream: target.model.clone(),
            tokenizer: self.upstream_route.family,
            dialect: target.provider.embedding(self.upstream, target.known_model()),
        };
        match embed::route_embeddings(asked)? {
            embed::EmbedRoute::Passthrough { base64 } => {
                let (mut plan, _) = self.forward_verbatim(name, body)?;
                plan.changes.base64 = Some(base64);
                Ok(plan)
            }
            embed::EmbedRoute::Job(job) => Ok(Attempt { job: Some(job), ..self.into_attempt() }),
        }
    }

    /// Builds the attempt of a rerank request: a job.
    pub(crate) fn rerank_attempt(self, body: BodyRef<'_>) -> Result<Attempt, ApiError> {
        let target = self.target()?;
        let asked = rank::RankRequest {
            body: body.into_contiguous(),
            model: self.reply_name().clone(),
            upstream: target.model.clone(),
            tokenizer: self.upstream_route.family,
            dialect: target.provider.ranking(target.known_model()),
        };
        Ok(Attempt { job: Some(Box::new(rank::RankJob::new(asked)?)), ..self.into_attempt() })
    }
}

impl Gateway {
    /// Translates a body for a client that may continue a stored response and whose own response may be stored.
    pub(crate) async fn translate_stored(
        &self,
        ctx: &Context,
        chosen: Selection,
        thinking: Thinking,
        text: JsonText,
    ) -> Result<Attempt, ApiError> {
        let storage = if chosen.api == Api::Responses && self.stores_responses() {
            run_blocking_if_large(text.len(), || parse_storage(&text))
        } else {
            StorageRequest { previous: None, store: false }
        };
        let is_native = chosen.upstream == chosen.api;
        let before = match &storage.previous {
            // A provider of the client's format continues its own responses itself.
            Some(id) if is_native && self.holder(ctx, id).await? != Holder::Asker => None,
            Some(id) => self.conversation(ctx, id).await?,
            None => None,
        };
        // A stream that another target has begun has its response id already. A compaction replaces the conversation,
        // so nothing continues from its response. A provider of the client's format stores the response itself.
        let stores =
            storage.store && !is_native && ctx.phase.suspended().is_none() && chosen.compaction.is_none();
        let keep_as = if stores { new_id() } else { String::new() };
        let remembers = self.may_need_signatures(&chosen);
        let stored = StoreOptions {
            before: before.as_deref(),
            store_as: &keep_as,
            stores_signatures: remembers,
            ..StoreOptions::default()
        };
        match self.translate(ctx, chosen, thinking, &text, stored).await {
            Ok(plan) => Ok(plan),
            Err(stuck) => Box::pin(self.translate_with_signatures(ctx, stuck, thinking, &text, stored)).await,
        }
    }

    /// Translates a body. If only the suffix of the model's name selects reasoning, it is encoded again in the same
    /// format.
    pub(crate) async fn translate(
        &self,
        ctx: &Context,
        chosen: Selection,
        thinking: Thinking,
        text: &JsonText,
        stored: StoreOptions<'_>,
    ) -> Result<Attempt, MediaFault> {
        let before = stored.before.map_or(0, str::len);
        self.offload
            .acquire(text.len() + before)
            .await?
            .run(|| self.translate_once(ctx, chosen, thinking, text, stored))
    }

    /// Translates a body, on the thread that calls it.
    pub(super) fn translate_once(
        &self,
        ctx: &Context,
        chosen: Selection,
        thinking: Thinking,
        text: &JsonText,
        stored: StoreOptions<'_>,
    ) -> Result<Attempt, MediaFault> {
        let target = chosen.target()?;
        let begun = ctx.phase.suspended().map(|resume| resume.prefill_state());
        let stored = StoreOptions {
            prefill: begun,
            caching: chosen.caching.for_translation(),
            compaction: chosen.compaction.as_ref(),
            ..stored
        };
        let (Some(client), Some(provider)) = (chosen.api.format(), chosen.upstream.format()) else {
            let message =
                format!("The model `{}` does not support reasoning through this API.", chosen.model.id);
            return Err(ApiError::new(ErrorKind::Unsupported, message).param("model").into());
        };
        let array = matches!(chosen.action, Some(Action::Stream { sse: false }));
        let dialect = chosen.dialect(target);
        let ask = TranslateRequest {
            client,
            provider,
            stream: chosen.stream,
            array,
            thinking,
            dialect: &dialect,
            model: chosen.reply_name(),
            id: ctx.id.as_str(),
            seed: ctx.seed(),
            now: ctx.record.unix_millis / 1000,
        };
        let asked = if stored.stores_signatures && stored.signatures.is_none() {
            outgoing_sealed(text, &ask, stored)
        } else {
            outgoing_stored(text, &ask, stored).map_err(EncodeBlocked::Rejected)
        };
        let Outgoing { body, copied, restore, mut reply, losses, items, breakpoints } = match asked {
            Ok(outgoing) => outgoing,
            Err(EncodeBlocked::MissingSignatures(keys)) => {
                return Err(MediaFault::NeedsSignatures(Box::new((chosen, keys))));
            }
            Err(EncodeBlocked::Rejected(refused)) if may_need_fetch(&refused, &stored) => {
                return Err(MediaFault::NeedsFetch(Box::new((chosen, refused))));
            }
            Err(EncodeBlocked::Rejected(refused)) => {
                self.count_losses(client, provider, &refused.losses);
                return Err(refused.error.into());
            }
        };
        reply.clock = (client == Format::Converse).then(|| ctx.record.clock());
        let policy = ctx.key().map(|key| key.rules.losses).unwrap_or_default();
        let (losses, refused) = apply_loss_policy(losses, policy, provider);
        self.count_losses(client, provider, &losses);
        if let Some(refused) = refused {
            return Err(refused.into());
        }
        let body_len = body.len();
        let body = self.memory.charge_translated(body, copied, text.len());
        let body = body.ok_or_else(ApiError::overloaded)?;
        let now = ctx.record.unix_millis / 1000;
        let changes = chosen.translated_changes(target, [client, provider], reply.usage_wanted, now);
        let keep = (!stored.store_as.is_empty())
            .then(|| Box::new(ResponseStorage { id: stored.store_as.to_owned(), items: items.into() }));
        // Within one format the response is forwarded as it is, unless the continuation of another target's stream, a
        // restored name or a compaction requires a translation, or the provider only streams and the client wants no
        // stream.
        let whole = dialect.quirks.streams_only && !chosen.stream || chosen.compaction.is_some();
        let translation =
            (client != provider || whole || begun.is_some() || !restore.is_empty()).then(|| {
                Box::new(Translation {
                    client,
                    provider,
                    reply: Arc::new(reply),
                    restore,
                    array,
                    storage: keep,
                })
            });
        Ok(Attempt {
            body_len,
            body,
            changes,
            translation,
            caching: chosen.caching.translated(breakpoints),
            warning: if policy == Losses::Warn { warning(&losses) } else { None },
            ..chosen.into_attempt()
        })
    }

    /// Applies the key's loss policy to the attempt of a forwarded body, and adds the warning header.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Unsupported`] if an element is lost and the key refuses losses.
    pub(crate) fn apply_respelling_losses(
        &self,
        ctx: &Context,
        format: Option<Format>,
        (mut plan, losses): (Attempt, Vec<Loss>),
    ) -> Result<Attempt, ApiError> {
        if let Some(chunk) = &mut plan.changes.insert_usage {
            chunk.created = ctx.record.unix_millis / 1000;
        }
        let Some(format) = format.filter(|_| !losses.is_empty()) else { return Ok(plan) };
        let policy = ctx.key().map(|key| key.rules.losses).unwrap_or_default();
        let (losses, refused) = apply_loss_policy(losses, policy, format);
        self.count_losses(format, format, &losses);
        if let Some(refused) = refused {
            return Err(refused);
        }
        plan.warning = if policy == Losses::Warn { warning(&losses) } else { None };
        Ok(plan)
    }

    /// Counts losses by element and policy.
    pub(crate) fn count_losses(&self, from: Format, to: Format, losses: &[Loss]) {
        for Loss { element, policy, .. } in losses {
            // Clients can invent element names. Only known ones become label values, so that the number of series is
            // bounded.
            let known = loss::ROWS.iter().find(|row| row.element == element);
            let labels = [from.name(), to.name(), known.map_or("other", |row| row.element), policy.name()];
            self.metrics.losses.with_label_values(&labels).inc();
        }
    }
}

/// Applies a key's loss policy. Returns the losses as they are counted, and the error if one of them is refused.
fn apply_loss_policy(
    mut losses: Vec<Loss>,
    policy: Losses,
    provider: Format,
) -> (Vec<Loss>, Option<ApiError>) {
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
                "'{element}' would be {what} in the {provider} API of this model, and this API key refuses losses."
            );
            ApiError::new(ErrorKind::Unsupported, message).param(element.clone())
        });
    }
    (losses, refused)
}

/// Returns the losses of a respelling: what it dropped or clamped.
pub(super) fn respelling_losses(spelled: &Respelling) -> Vec<Loss> {
    let loss =
        |name: &&'static str, clamped| Loss { element: (*name).into(), policy: LossPolicy::Warn, clamped };
    let dropped = spelled.dropped.iter().map(|name| loss(name, false));
    dropped.chain(spelled.clamped.iter().map(|name| loss(name, true))).collect()
}

/// Returns the value of the warning header. `None` if no loss is to be warned of.
fn warning(losses: &[Loss]) -> Option<HeaderValue> {
    let names = losses.iter().filter(|loss| loss.policy == LossPolicy::Warn).take(WARNINGS).map(|loss| {
        // Names come from the request: a comma would look like another entry, and a control character is invalid.
        let plain = loss.element.chars().filter(|c| c.is_ascii_graphic() && *c != ',').take(WARNING_NAME);
        plain.collect::<String>() + " " + loss.outcome()
    });
    let text = names.collect::<Vec<_>>().join(", ");
    HeaderValue::try_from(text).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests;
