//! The snapshot in use, with what is looked up once per snapshot instead of once per request.

use std::sync::{Arc, OnceLock};

use super::billing::Billing;
use super::peer::ProviderAddresses;
use super::upstream_route::UpstreamRoute;
use crate::config::Limits;
use crate::metrics::Metrics;
use crate::route::Model;
use crate::snapshot::Snapshot;
use crate::wire::Api;

/// Endpoints that have series of their own, by label.
const ENDPOINTS: [&str; 10] = [
    "chat",
    "messages",
    "responses",
    "generate",
    "embeddings",
    "embed_content",
    "rerank",
    "images",
    "videos",
    "tasks",
];

/// Active configuration snapshot with the tables that are derived from it.
#[derive(Debug)]
pub(super) struct ActiveSnapshot {
    pub(super) snapshot: Snapshot,
    pub(super) billing: Arc<Billing>,
    links: Vec<ProviderAddresses>,
    /// By model, target and endpoint, in this order.
    lanes: Vec<Box<[OnceLock<Arc<UpstreamRoute>>]>>,
}

impl ActiveSnapshot {
    pub(super) fn new(snapshot: Snapshot, billing: Arc<Billing>, metrics: &Metrics, limits: &Limits) -> Self {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let loaded = |kind, n| metrics.loaded.with_label_values(&[kind]).set(count(n));
        loaded("models", snapshot.routes.models().len());
        loaded("providers", snapshot.routes.providers().len());
        loaded("keys", snapshot.keys.len());
        metrics.generation.set(i64::try_from(snapshot.generation).unwrap_or(i64::MAX));
        let links = snapshot
            .routes
            .providers()
            .iter()
            .map(|provider| ProviderAddresses::new(provider.clone(), limits))
            .collect();
        let lanes = snapshot
            .routes
            .models()
            .iter()
            .map(|model| (0..model.targets.len() * ENDPOINTS.len()).map(|_| OnceLock::new()).collect())
            .collect();
        ActiveSnapshot { snapshot, billing, links, lanes }
    }

    /// Takes over what was found out of providers that are still there.
    pub(super) fn inherit(&self, before: &ActiveSnapshot) {
        for link in &self.links {
            if let Some(known) = before.link_to(&link.provider().name) {
                link.inherit(known);
            }
        }
    }

    /// The way to a provider.
    pub(super) fn link(&self, lane: &UpstreamRoute) -> Option<&ProviderAddresses> {
        self.links.get(lane.link)
    }

    /// The way to the provider of this name.
    pub(super) fn link_to(&self, provider: &str) -> Option<&ProviderAddresses> {
        self.links.iter().find(|link| *link.provider().name == *provider)
    }

    /// What requests of this kind have in common. Nothing where the model has no such target.
    pub(super) fn lane(
        &self,
        metrics: &Metrics,
        endpoint: &'static str,
        model: &Model,
        target: usize,
        api: Api,
    ) -> Option<Arc<UpstreamRoute>> {
        let make = || {
            let target = model.targets.get(target)?;
            let link = self.links.iter().position(|link| Arc::ptr_eq(link.provider(), &target.provider))?;
            Some(Arc::new(UpstreamRoute::new(metrics, endpoint, model, target, api, link)))
        };
        let column = ENDPOINTS.iter().position(|known| *known == endpoint);
        let slot = column
            .and_then(|column| self.lanes.get(model.index)?.get(target * ENDPOINTS.len() + column))
            .filter(|slot| slot.get().is_none_or(|lane| lane.api == api));
        match slot {
            Some(slot) if slot.get().is_some() => slot.get().cloned(),
            Some(slot) => {
                let made = make()?;
                Some(slot.get_or_init(|| made).clone())
            }
            None => make(),
        }
    }
}
