//! Metrics: the series of the registry as OTLP's metrics.proto defines them, all cumulative.
//!
//! A receiver that translates OTLP to Prometheus ("Prometheus and OpenMetrics Compatibility") gets the names of
//! `/metrics` back: units and `_total` are suffixes there, and fields here.

use std::borrow::Cow;

use prometheus::proto::{Metric, MetricFamily, MetricType};

use super::attributes::Attributes;
use super::conventions::Conventions;
use super::protobuf::Message;
use super::queue::Taken;

/// Field of the metrics in `ScopeMetrics`.
const METRICS: u32 = 2;
/// Value of `AggregationTemporality`.
const CUMULATIVE: u64 = 2;
/// Series of the tokens per request, which versions of the conventions divide differently.
const TOKEN_USAGE: &str = "gen_ai_client_token_usage";
const TOKEN_TYPE: &str = "gen_ai_token_type";

/// Time of a collection, in Unix nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct CollectionTime {
    /// Start of the process: that of all counts.
    pub(super) start: u64,
    /// Now.
    pub(super) now: u64,
}

/// Encodes the families. Each becomes one record, whose items are its data points.
pub(super) fn encode_metrics(
    families: &[MetricFamily],
    time: CollectionTime,
    conventions: Conventions,
    out: &mut Taken,
) {
    for family in families {
        let points: Vec<&Metric> = family.get_metric().iter().collect();
        if family.name() != TOKEN_USAGE {
            let name = OtlpName::of(family.name());
            encode_family(family, &name.name, name.unit, &points, time, out);
            continue;
        }
        let [input, output] = conventions.token_histograms();
        if input == output {
            encode_family(family, input, "{token}", &points, time, out);
            continue;
        }
        for (kind, name) in [("input", input), ("output", output)] {
            let of_kind = |point: &&&Metric| {
                point.get_label().iter().any(|label| label.name() == TOKEN_TYPE && label.value() == kind)
            };
            let points: Vec<&Metric> = points.iter().filter(of_kind).copied().collect();
            encode_family(family, name, "{token}", &points, time, out);
        }
    }
}

fn encode_family(
    family: &MetricFamily,
    name: &str,
    unit: &str,
    points: &[&Metric],
    time: CollectionTime,
    out: &mut Taken,
) {
    if points.is_empty() {
        return;
    }
    // The type of a family decides the field: gauge, sum or histogram. The registry has no other types.
    let field = match family.get_field_type() {
        MetricType::GAUGE => 5,
        MetricType::COUNTER => 7,
        MetricType::HISTOGRAM => 9,
        MetricType::SUMMARY | MetricType::UNTYPED => return,
    };
    out.push_with(points.len(), |out| {
        Message::new(out).message(METRICS, |metric| {
            metric.bytes(1, name.as_bytes());
            metric.bytes(2, family.help().as_bytes());
            metric.bytes(3, unit.as_bytes());
            metric.message(field, |data| {
                for point in points {
                    data.message(1, |message| match field {
                        5 => encode_number(message, point, point.get_gauge().get_value(), time),
                        7 => encode_number(message, point, point.get_counter().get_value(), time),
                        _ => encode_histogram(message, point, time),
                    });
                }
                if field != 5 {
                    data.varint(2, CUMULATIVE);
                }
                if field == 7 {
                    data.varint(3, 1);
                }
            });
        });
    });
}

fn encode_number(message: &mut Message<'_>, point: &Metric, value: f64, time: CollectionTime) {
    labels(message, 7, point);
    message.fixed64(2, time.start);
    message.fixed64(3, time.now);
    message.double(4, value);
}

fn encode_histogram(message: &mut Message<'_>, point: &Metric, time: CollectionTime) {
    let histogram = point.get_histogram();
    labels(message, 9, point);
    message.fixed64(2, time.start);
    message.fixed64(3, time.now);
    message.fixed64(4, histogram.get_sample_count());
    message.double(5, histogram.get_sample_sum());
    let bounds: Vec<f64> = histogram
        .get_bucket()
        .iter()
        .map(|bucket| bucket.upper_bound())
        .filter(|bound| bound.is_finite())
        .collect();
    let cumulative = histogram.get_bucket().iter().take(bounds.len()).map(|bucket| bucket.cumulative_count());
    let mut before = 0;
    let counts: Vec<u64> = cumulative
        .chain([histogram.get_sample_count()])
        // The buckets are read one after the other while requests are counted: a later one may be behind.
        .map(|count| {
            let added = count.saturating_sub(before);
            before = before.max(count);
            added
        })
        .collect();
    message.packed64(6, counts.into_iter());
    message.packed64(7, bounds.iter().map(|bound| bound.to_bits()));
}

fn labels(message: &mut Message<'_>, field: u32, point: &Metric) {
    let mut attributes = Attributes::new(message, field);
    for label in point.get_label() {
        attributes.text(&attribute_name(label.name()), label.value());
    }
}

/// Returns the attribute of a label: those of the GenAI conventions have dots.
fn attribute_name(label: &str) -> Cow<'_, str> {
    match label.strip_prefix("gen_ai_") {
        Some(rest) => Cow::Owned(format!("gen_ai.{}", rest.replace('_', "."))),
        None => Cow::Borrowed(label),
    }
}

/// Name and unit of a metric (UCUM).
#[derive(Debug, PartialEq, Eq)]
struct OtlpName {
    name: String,
    unit: &'static str,
}

impl OtlpName {
    /// Returns the name of a series.
    fn of(series: &str) -> Self {
        let stem = series.strip_suffix("_total").unwrap_or(series);
        let units = [("_seconds", "s"), ("_bytes", "By")];
        let unit = units.iter().find_map(|(suffix, unit)| Some((stem.strip_suffix(suffix)?, *unit)));
        let (stem, unit) = unit.unwrap_or((stem, ""));
        let name = match stem {
            "gen_ai_server_request_duration" => "gen_ai.server.request.duration".to_owned(),
            "gen_ai_server_time_to_first_token" => "gen_ai.server.time_to_first_token".to_owned(),
            "gen_ai_server_time_per_output_token" => "gen_ai.server.time_per_output_token".to_owned(),
            _ => stem.replacen('_', ".", 1),
        };
        OtlpName { name, unit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{MetricType as Shape, TABLE};

    /// What Prometheus makes of a metric of OTLP.
    fn series_of(name: &OtlpName, shape: Shape) -> String {
        let unit = match name.unit {
            "s" => "_seconds",
            "By" => "_bytes",
            _ => "",
        };
        let total = if shape == Shape::Counter { "_total" } else { "" };
        format!("{}{unit}{total}", name.name.replace('.', "_"))
    }

    #[test]
    fn metric_names_translate_back_to_the_series() {
        for family in TABLE {
            assert_eq!(series_of(&OtlpName::of(family.name), family.shape), family.name);
        }
    }
}
