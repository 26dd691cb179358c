//! The snapshot in use, with what is looked up once per snapshot instead of once per request.

use std::sync::{Arc, OnceLock};

use crate::config::Limits;
use crate::metrics::{Metrics, Series};
use crate::route::Model;
use crate::snapshot::Snapshot;
use crate::wire::path::Endpoint;

use super::peer::Link;

/// Endpoints that have series of their own, by label.
const ENDPOINTS: [&str; 7] =
    ["chat", "messages", "responses", "generate", "embeddings", "embed_content", "count_tokens"];

/// A snapshot in use.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) snapshot: Snapshot,
    links: Vec<Link>,
    /// Handles by model, target and endpoint, in this order.
    series: Vec<Box<[OnceLock<Arc<Series>>]>>,
}

impl Live {
    pub(super) fn new(snapshot: Snapshot, metrics: &Metrics, limits: &Limits) -> Self {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let loaded = |kind, n| metrics.loaded.with_label_values(&[kind]).set(count(n));
        loaded("models", snapshot.routes.models().len());
        loaded("providers", snapshot.routes.providers().len());
        loaded("keys", snapshot.keys.len());
        metrics.generation.set(i64::try_from(snapshot.generation).unwrap_or(i64::MAX));
        let links =
            snapshot.routes.providers().iter().map(|provider| Link::new(provider.clone(), limits)).collect();
        let series = snapshot
            .routes
            .models()
            .iter()
            .map(|model| (0..model.targets.len() * ENDPOINTS.len()).map(|_| OnceLock::new()).collect())
            .collect();
        Live { snapshot, links, series }
    }

    /// The way to the provider of a target.
    pub(super) fn link(&self, model: &Model, target: usize) -> Option<&Link> {
        let provider = &model.targets.get(target)?.provider;
        self.links.iter().find(|link| Arc::ptr_eq(link.provider(), provider))
    }

    /// The handles for a request.
    pub(super) fn series(
        &self,
        metrics: &Metrics,
        endpoint: &Endpoint,
        model: &Model,
        target: usize,
    ) -> Option<Arc<Series>> {
        let label = endpoint.label();
        let column = ENDPOINTS.iter().position(|known| *known == label)?;
        let slot = self.series.get(model.index)?.get(target * ENDPOINTS.len() + column)?;
        let made = slot.get_or_init(|| {
            let provider = model.targets.get(target).map(|target| &target.provider);
            let name = provider.map_or("", |provider| &provider.name);
            let vendor = provider.map_or("", |provider| provider.kind.otel_name());
            Arc::new(Series::new(metrics, label, &model.id, name, vendor))
        });
        Some(made.clone())
    }
}
