//! Service tiers: which one a request asks for, whether its key may have it, and on which terms a response is charged.

use http::HeaderValue;

use super::context::Context;
use crate::Gateway;
use codec::canonical::{ServiceTier, TierRequest, TierSet, Usage};
use codec::error::{ApiError, ErrorKind};
use codec::wire::codec::Loss;
use codec::wire::loss::LossPolicy;
use codec::wire::request::Body;
use routing::account::price::Terms;
use routing::account::{Key, Losses, TierFallback, TierPolicy};
use routing::route::{Model, Target};

impl Context {
    /// Returns the terms on which a target served this usage: the service tier and region that the response states, or
    /// else those that the request asked for.
    pub(crate) fn terms(&self, target: Option<&Target>, usage: &Usage) -> Terms {
        let asked = self.phase.identity().map(|identity| identity.asked).unwrap_or_default();
        let states_tier = target.is_none_or(|target| target.provider.states_tier);
        let region = usage.region.unwrap_or(asked.region);
        Terms {
            at: self.record.unix_seconds(),
            tier: usage.tier.or(usage.traffic).filter(|_| states_tier).unwrap_or(asked.tier),
            region: region.or_else(|| target?.region),
        }
    }

    /// Returns the value of the warning header: what the attempt and the permitted tiers changed. `None` for nothing.
    pub(crate) fn warning(&self) -> Option<HeaderValue> {
        let own = self.attempt().and_then(|plan| plan.warning.as_ref());
        let changed = self.phase.identity().and_then(|identity| identity.changed_tier);
        match (own, changed) {
            (None, None) => None,
            (Some(own), None) => Some(own.clone()),
            (None, Some(member)) => HeaderValue::try_from(format!("{member} changed")).ok(),
            (Some(own), Some(member)) => {
                let joined = [member.as_bytes(), b" changed, ", own.as_bytes()].concat();
                HeaderValue::from_bytes(&joined).ok().or_else(|| Some(own.clone()))
            }
        }
    }
}

/// Returns which service tiers a key may use.
fn policy_of(key: &Key) -> TierPolicy {
    let own = key.rules.tiers;
    key.account.as_ref().map_or(own, |account| own.with_account(account.tiers()))
}

impl Gateway {
    /// Notes which service tier a request asks for, and holds it against the tiers that its key and account permit. Returns the
    /// body, with its request changed to the standard tier if the policy says so.
    ///
    /// # Errors
    /// Returns [`ErrorKind::TierNotPermitted`] for a tier that is not permitted.
    pub(crate) fn permit_tier(
        &self,
        ctx: &mut Context,
        model: &Model,
        body: Box<Body>,
    ) -> Result<Box<Body>, ApiError> {
        if !body.has_tiers() {
            return Ok(body);
        }
        let mut asked = body.asked_tier();
        let at = ctx.record.unix_seconds();
        let Some(identity) = ctx.phase.identity_mut() else { return Ok(body) };
        let policy = policy_of(&identity.key);
        identity.asked = asked;
        if asked == TierRequest::default() && policy.permitted.is_none() {
            return Ok(body);
        }
        // Without a list of tiers, those are permitted whose price is known.
        let is_charged = identity.key.account.is_some() && model.price.has_tiers(at);
        let permits = |tier: ServiceTier| {
            policy.permits(tier).unwrap_or_else(|| !is_charged || model.price.has_tier(tier, at))
        };
        let is_open = asked.tier == ServiceTier::Standard && asked.tiers != TierSet::default();
        if is_open {
            // The provider chooses. What it may not choose is only avoided by asking for one tier.
            let permitted = TierSet::of(asked.tiers.tiers().filter(|tier| permits(*tier)));
            if permitted == asked.tiers || policy.permitted.is_none() {
                asked.tiers = permitted.or(TierSet::default());
                identity.asked = asked;
                return Ok(body);
            }
        } else if permits(asked.tier) {
            return Ok(body);
        }
        let mut member = None;
        body.each_tier(|asked| {
            if asked.asked.tier != ServiceTier::Standard || asked.asked.tiers != TierSet::default() {
                member.get_or_insert(asked.name);
            }
        });
        let losses = identity.key.rules.losses;
        let keeps = is_open && permits(ServiceTier::Standard) || policy.otherwise() == TierFallback::Standard;
        if !keeps || losses == Losses::Refuse {
            return Err(not_permitted(asked.tier, &permits, member));
        }
        identity.asked = TierRequest { region: asked.region, ..TierRequest::default() };
        // A request that names no tier is one for the standard tier already.
        let Some(member) = member else { return Ok(body) };
        if losses == Losses::Warn {
            identity.changed_tier = Some(member);
        }
        let loss = Loss { element: member.into(), policy: LossPolicy::Warn, clamped: true };
        self.count_losses(ctx.format, ctx.format, &[loss]);
        Ok(Box::new(body.in_standard_tier()?))
    }

    /// Refuses a request of an account for a model without a price, if the configuration says so.
    ///
    /// # Errors
    /// Returns [`ErrorKind::UnpricedModel`].
    pub(crate) fn check_price(&self, key: &Key, model: &Model, at: i64) -> Result<(), ApiError> {
        if !self.refuse_unpriced || key.account.is_none() || !model.is_unpriced(at) {
            return Ok(());
        }
        let message = format!(
            "The model `{}` has no price, so that the account of this API key cannot be charged for it.",
            model.id
        );
        Err(ApiError::new(ErrorKind::UnpricedModel, message).param("model"))
    }

    /// Reports a charge in a service tier whose price is not known.
    #[cold]
    pub(super) fn note_unpriced_tier(&self, ctx: &Context, tier: ServiceTier) {
        let Some(plan) = ctx.attempt() else { return };
        let (request, model) = (ctx.id.as_str(), &*plan.model.id);
        let provider = plan.target().map_or("", |target| &*target.provider.name);
        self.metrics.unpriced_tiers.with_label_values(&[model, provider, tier.name()]).inc();
        tracing::warn!(
            request,
            model,
            provider,
            tier = tier.name(),
            "a response states a service tier without a price; the price of the dearest known tier is charged"
        );
    }
}

fn not_permitted(
    asked: ServiceTier,
    permits: &dyn Fn(ServiceTier) -> bool,
    member: Option<&'static str>,
) -> ApiError {
    let permitted: Vec<&str> =
        ServiceTier::NAMED.into_iter().filter(|tier| permits(*tier)).map(ServiceTier::name).collect();
    let permitted = if permitted.is_empty() { "none".to_owned() } else { permitted.join(", ") };
    let tier = match asked {
        ServiceTier::Unknown => "this service tier".to_owned(),
        known => format!("the service tier `{}`", known.name()),
    };
    let message = format!("This API key may not use {tier}. It may use: {permitted}.");
    let error = ApiError::new(ErrorKind::TierNotPermitted, message);
    match member {
        Some(member) => error.param(member),
        None => error,
    }
}
