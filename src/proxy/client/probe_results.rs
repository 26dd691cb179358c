//! Results of the health checks of providers (`check`).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use routing::route::check::ProbeOutcome;

/// Results of the last health check of each provider.
#[derive(Debug, Default)]
pub(crate) struct ProbeResults(Mutex<HashMap<Box<str>, Arc<ProbeResult>>>);

/// Result of the last health check of one provider, written by the task that runs the check. A task that a reload has
/// ended may still write to it, after it was removed from the list.
#[derive(Debug, Default)]
pub(super) struct ProbeResult(Mutex<Option<LastProbe>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastProbe {
    pub(super) outcome: ProbeOutcome,
    pub(super) status: Option<u16>,
    /// Unix seconds.
    pub(super) time: i64,
}

impl ProbeResults {
    /// Adds a check of a provider. Its result replaces the one of an earlier check.
    pub(super) fn add(&self, provider: &str) -> Arc<ProbeResult> {
        let result = Arc::<ProbeResult>::default();
        self.0.lock().insert(provider.into(), result.clone());
        result
    }

    /// Removes the results of the providers for which `is_checked` is false.
    pub(super) fn retain(&self, is_checked: impl Fn(&str) -> bool) {
        self.0.lock().retain(|provider, _| is_checked(provider));
    }

    /// Returns the last result of a provider; `None` if it is not checked, or was not yet.
    pub(super) fn last(&self, provider: &str) -> Option<LastProbe> {
        *self.0.lock().get(provider)?.0.lock()
    }
}

impl ProbeResult {
    pub(super) fn set(&self, last: LastProbe) {
        *self.0.lock() = Some(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_result_of_a_removed_check_is_not_listed() {
        let results = ProbeResults::default();
        let probe = |status| LastProbe { outcome: ProbeOutcome::Healthy, status: Some(status), time: 1 };
        let (first, other) = (results.add("p"), results.add("q"));
        assert_eq!(results.last("p"), None);
        first.set(probe(200));
        other.set(probe(201));
        assert_eq!(results.last("p"), Some(probe(200)));
        // A reload removes the check while a probe is in progress, which ends later.
        results.retain(|provider| provider == "q");
        first.set(probe(202));
        assert_eq!((results.last("p"), results.last("q")), (None, Some(probe(201))));
        // Nor does it count as a result of a check that a later reload adds.
        let second = results.add("p");
        first.set(probe(203));
        assert_eq!(results.last("p"), None);
        second.set(probe(204));
        assert_eq!(results.last("p"), Some(probe(204)));
    }
}
