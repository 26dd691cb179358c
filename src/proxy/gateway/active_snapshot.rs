//! Active snapshot: the configuration in use, with tables that are derived once per snapshot instead of once per
//! request.

use std::sync::{Arc, OnceLock};

use super::billing::Billing;
use crate::credentials::CredentialHandle;
use crate::credentials::registry::CredentialRegistry;
use crate::gateway::provider_addresses::ProviderAddresses;
use crate::upstream_route::{UpstreamRoute, first_tokenizer};
use codec::tokens::TokenizerFamily;
use codec::wire::Api;
use config::Limits;
use observe::metrics::Metrics;
use routing::route::Model;
use routing::snapshot::Snapshot;

/// Labels of the endpoints with metric series of their own.
const ENDPOINTS: [&str; 12] = [
    "chat",
    "messages",
    "responses",
    "generate",
    "converse",
    "invoke",
    "embeddings",
    "embed_content",
    "rerank",
    "images",
    "videos",
    "tasks",
];

/// Active configuration snapshot with the tables that are derived from it.
#[derive(Debug)]
pub(crate) struct ActiveSnapshot {
    pub(crate) snapshot: Snapshot,
    pub(crate) billing: Arc<Billing>,
    provider_addresses: Vec<ProviderAddresses>,
    /// Upstream routes by model, target and endpoint, in this order. Each is made at its first use.
    upstream_routes: Vec<Box<[OnceLock<Arc<UpstreamRoute>>]>>,
    /// Tokenizers of models, for counts without a provider. Each is looked up at its first use.
    tokenizers: Box<[OnceLock<TokenizerFamily>]>,
}

impl ActiveSnapshot {
    pub(crate) fn new(
        snapshot: Snapshot,
        billing: Arc<Billing>,
        metrics: &Metrics,
        limits: &Limits,
        credentials: &CredentialRegistry,
    ) -> Self {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let loaded = |kind, n| metrics.loaded.with_label_values(&[kind]).set(count(n));
        loaded("models", snapshot.routes.models().len());
        loaded("providers", snapshot.routes.providers().len());
        loaded("keys", snapshot.keys.len());
        metrics.config_info.reset();
        metrics.config_info.with_label_values(&[&*snapshot.hash]).set(1);
        metrics.generation.set(i64::try_from(snapshot.generation).unwrap_or(i64::MAX));
        let links = snapshot
            .routes
            .providers()
            .iter()
            .map(|provider| {
                let credential = credentials.handle(provider);
                ProviderAddresses::new(provider.clone(), limits).with_credential(credential)
            })
            .collect();
        let lanes = snapshot
            .routes
            .models()
            .iter()
            .map(|model| (0..model.targets.len() * ENDPOINTS.len()).map(|_| OnceLock::new()).collect())
            .collect();
        let tokenizers = snapshot.routes.models().iter().map(|_| OnceLock::new()).collect();
        ActiveSnapshot { snapshot, billing, provider_addresses: links, upstream_routes: lanes, tokenizers }
    }

    /// Returns the tokenizer family of a model: that of its first target that is known.
    pub(crate) fn tokenizer(&self, model: &Model) -> TokenizerFamily {
        let look = || first_tokenizer(model.targets.iter(), model);
        self.tokenizers.get(model.index).map_or_else(look, |known| *known.get_or_init(look))
    }

    /// Takes over the resolved addresses of providers that the previous snapshot had too.
    pub(crate) fn inherit(&self, before: &ActiveSnapshot) {
        for link in &self.provider_addresses {
            if let Some(known) = before.addresses_by_name(&link.provider().name) {
                link.inherit(known);
            }
        }
    }

    /// Returns the short-lived credentials of all providers.
    pub(crate) fn credentials(&self) -> impl Iterator<Item = &Arc<CredentialHandle>> {
        self.provider_addresses.iter().filter_map(ProviderAddresses::credential)
    }

    /// Returns the provider of an upstream route with its addresses.
    pub(crate) fn addresses_of(&self, lane: &UpstreamRoute) -> Option<&ProviderAddresses> {
        self.provider_addresses.get(lane.addresses_index)
    }

    /// Returns the provider of this name with its addresses; `None` if there is none.
    pub(crate) fn addresses_by_name(&self, provider: &str) -> Option<&ProviderAddresses> {
        self.provider_addresses.iter().find(|link| *link.provider().name == *provider)
    }

    /// Returns the upstream route that requests of this kind share. `None` if the model has no such target.
    pub(crate) fn upstream_route(
        &self,
        metrics: &Metrics,
        endpoint: &'static str,
        model: &Model,
        target: usize,
        api: Api,
    ) -> Option<Arc<UpstreamRoute>> {
        let make = || {
            let target = model.targets.get(target)?;
            let link = self
                .provider_addresses
                .iter()
                .position(|link| Arc::ptr_eq(link.provider(), &target.provider))?;
            let credential = self.provider_addresses.get(link).and_then(ProviderAddresses::credential);
            let route = UpstreamRoute::new(metrics, endpoint, model, target, api, link);
            Some(Arc::new(route.with_credential(credential.cloned())))
        };
        let column = ENDPOINTS.iter().position(|known| *known == endpoint);
        let slot = column
            .and_then(|column| self.upstream_routes.get(model.index)?.get(target * ENDPOINTS.len() + column))
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
