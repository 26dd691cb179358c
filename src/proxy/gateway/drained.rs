//! Targets that operators have drained: they get no further requests, also after a reload, until they are resumed.

use routing::route::RoutingTable;

/// Maximum number of drained targets. A configuration has fewer.
const MAX_DRAINED: usize = 10_000;

/// Drained targets, by provider and model name at the provider.
#[derive(Debug, Default)]
pub(crate) struct DrainedTargets(Vec<(Box<str>, Box<str>)>);

impl DrainedTargets {
    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds or removes a target. Returns false if nothing changes.
    pub(crate) fn set(&mut self, provider: &str, model: &str, drained: bool) -> bool {
        let at = self.0.iter().position(|(p, m)| **p == *provider && **m == *model);
        match (at, drained) {
            (None, true) if self.0.len() < MAX_DRAINED => self.0.push((provider.into(), model.into())),
            (Some(at), false) => {
                self.0.swap_remove(at);
            }
            _ => return false,
        }
        true
    }

    /// Returns a routing table in which exactly these targets are drained.
    pub(crate) fn apply(&self, routes: &RoutingTable) -> RoutingTable {
        routes.with_drained(|target| {
            self.0
                .iter()
                .any(|(provider, model)| **provider == *target.provider.name && **model == *target.model)
        })
    }
}
