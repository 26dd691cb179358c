//! Totals since the start of the process, read from the series: what a page or a program needs to show rates, without
//! parsing the text format.

use std::collections::BTreeMap;

use prometheus::core::Collector;
use prometheus::proto::Metric;

use super::Metrics;

/// Sums of a family by some of its labels, in the order of their values.
pub type GroupedTotals = Vec<(Vec<String>, u64)>;

/// Sum of the histograms of a family.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Number of observations.
    pub count: u64,
    /// Sum of all observations, in the unit of the family.
    pub sum: f64,
    /// Upper bounds, ascending, each with the number of observations up to it. Observations beyond the last bound are
    /// only in `count`.
    pub buckets: Vec<(f64, u64)>,
}

/// Totals since the start of the process, and gauges of the present.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Finished requests by HTTP status.
    pub statuses: GroupedTotals,
    /// Errors by kind and side at fault.
    pub errors: GroupedTotals,
    /// Tokens by kind.
    pub tokens: GroupedTotals,
    /// Charges in nano-units.
    pub cost: u64,
    /// Savings of reads from prompt caches, in nano-units.
    pub cache_saved: u64,
    /// Surcharges of writes to prompt caches, in nano-units.
    pub cache_surcharge: u64,
    /// Rejections by scope and limit.
    pub limit_refusals: GroupedTotals,
    /// Failed exchanges by provider and kind.
    pub upstream_errors: GroupedTotals,
    /// Retried exchanges by provider and reason.
    pub retries: GroupedTotals,
    /// Streams that broke off, by outcome.
    pub continued: GroupedTotals,
    /// Losses in translation by format of the client, format of the provider, element and policy.
    pub losses: GroupedTotals,
    /// Time from the request head to the end of the response, in seconds.
    pub duration: Distribution,
    /// Time from the request head to the first content of a stream, in seconds.
    pub first_token: Distribution,
    /// Time that the gateway adds to a request, in seconds.
    pub overhead: Distribution,
    /// Requests in flight.
    pub in_flight: i64,
    /// Open client connections.
    pub connections: i64,
    /// Lost lines of the access log.
    pub log_dropped: u64,
    /// Failed ledger operations.
    pub ledger_failures: u64,
}

impl Metrics {
    /// Reads the totals: one pass over the series that have them.
    pub fn totals(&self) -> Totals {
        self.flush();
        Totals {
            statuses: grouped(&self.requests, &["status"]),
            errors: grouped(&self.errors, &["kind", "source"]),
            tokens: grouped(&self.tokens, &["kind"]),
            cost: sum(&self.cost),
            cache_saved: sum(&self.cache_saved),
            cache_surcharge: sum(&self.cache_surcharge),
            limit_refusals: grouped(&self.limit_refusals, &["scope", "limit"]),
            upstream_errors: grouped(&self.upstream_errors, &["provider", "kind"]),
            retries: grouped(&self.upstream_retries, &["provider", "reason"]),
            continued: grouped(&self.streams_continued, &["outcome"]),
            losses: grouped(&self.losses, &["from", "to", "element", "policy"]),
            duration: distribution(&self.duration),
            first_token: distribution(&self.first_token),
            overhead: distribution(self.overhead.registered()),
            in_flight: self.in_flight(),
            connections: self.connections.get(),
            log_dropped: self.log_dropped.get(),
            ledger_failures: sum(&self.ledger_failures),
        }
    }
}

fn series(family: &impl Collector) -> impl Iterator<Item = Metric> {
    family.collect().into_iter().flat_map(|mut family| family.take_metric())
}

fn count(series: &Metric) -> u64 {
    // Counters are whole numbers; the library shows them as floating point.
    series.get_counter().get_value() as u64
}

fn sum(family: &impl Collector) -> u64 {
    series(family).fold(0, |sum, series| sum.saturating_add(count(&series)))
}

/// Returns the sums of a family of counters by these labels.
fn grouped(family: &impl Collector, labels: &[&str]) -> GroupedTotals {
    let mut sums: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for series in series(family) {
        let value = |label: &&str| {
            let pair = series.get_label().iter().find(|pair| pair.name() == *label);
            pair.map(|pair| pair.value().to_owned()).unwrap_or_default()
        };
        let sum = sums.entry(labels.iter().map(value).collect()).or_default();
        *sum = sum.saturating_add(count(&series));
    }
    sums.into_iter().collect()
}

/// Returns the sum of the histograms of a family, which all have the same bounds.
fn distribution(family: &impl Collector) -> Distribution {
    let mut all = Distribution::default();
    for series in series(family) {
        let histogram = series.get_histogram();
        all.count = all.count.saturating_add(histogram.get_sample_count());
        all.sum += histogram.get_sample_sum();
        for (index, bucket) in histogram.get_bucket().iter().enumerate() {
            match all.buckets.get_mut(index) {
                Some((_, count)) => *count = count.saturating_add(bucket.cumulative_count()),
                None => all.buckets.push((bucket.upper_bound(), bucket.cumulative_count())),
            }
        }
    }
    all.buckets.retain(|(bound, _)| bound.is_finite());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_sum_the_series_of_all_models() {
        let metrics = Metrics::new().unwrap();
        let before = metrics.totals();
        assert_eq!((before.statuses.len(), before.cost, before.overhead.count), (0, 0, 0));
        for (model, seconds) in [("a", 0.03), ("b", 3.0), ("b", 1_000.0)] {
            metrics.requests.with_label_values(&["chat", model, "p", "200"]).inc();
            metrics.cost.with_label_values(&[model, "p"]).inc_by(7);
            metrics.duration.with_label_values(&["chat", "p", model]).observe(seconds);
        }
        metrics.requests.with_label_values(&["chat", "a", "p", "429"]).inc();
        metrics.errors.with_label_values(&["rate_limited", "downstream"]).inc();
        let totals = metrics.totals();
        assert_eq!(totals.statuses, [(vec!["200".to_owned()], 3), (vec!["429".to_owned()], 1)]);
        assert_eq!(totals.errors, [(vec!["rate_limited".to_owned(), "downstream".to_owned()], 1)]);
        assert_eq!((totals.cost, totals.duration.count), (21, 3));
        let up_to = |bound: f64| totals.duration.buckets.iter().find(|(b, _)| *b == bound).unwrap().1;
        assert_eq!((up_to(0.02), up_to(0.04), up_to(5.12), up_to(81.92)), (0, 1, 2, 2));
    }
}
