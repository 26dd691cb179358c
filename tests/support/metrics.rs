//! Parser for the Prometheus text format.

use std::collections::BTreeMap;

/// One sample: labels and value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// Samples by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics(pub(crate) BTreeMap<String, Vec<Sample>>);

impl Metrics {
    pub(crate) fn parse(text: &str) -> Metrics {
        let mut metrics = Metrics::default();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = match series.split_once('{') {
                Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
                None => (series, ""),
            };
            let labels = labels
                .split("\",")
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (label, text) = pair.split_once("=\"").unwrap();
                    (label.to_owned(), text.trim_end_matches('"').to_owned())
                })
                .collect();
            let sample = Sample { labels, value: value.parse().unwrap() };
            metrics.0.entry(name.to_owned()).or_default().push(sample);
        }
        metrics
    }

    /// Sums all samples of this name that carry these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let samples = self.0.get(name).map(Vec::as_slice).unwrap_or_default();
        samples
            .iter()
            .filter(|sample| {
                labels.iter().all(|(label, text)| sample.labels.get(*label).is_some_and(|has| has == text))
            })
            .map(|sample| sample.value)
            .sum()
    }

    /// Returns the number of series.
    pub(crate) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}
