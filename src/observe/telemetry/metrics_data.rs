//! Metrics: the series of the registry as OTLP's metrics.proto defines them, all cumulative.
//!
//! A receiver that translates OTLP to Prometheus ("Prometheus and OpenMetrics Compatibility") gets the names of
//! `/metrics` back: units and `_total` are suffixes there, and fields here.

use std::borrow::Cow;

use prometheus::proto::{Metric, MetricFamily, MetricType};

use super::attributes::Attributes;
use super::conventions::Conventions;
use super::protobuf::ProtobufWriter;
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
        ProtobufWriter::new(out).message(METRICS, |metric| {
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

fn encode_number(message: &mut ProtobufWriter<'_>, point: &Metric, value: f64, time: CollectionTime) {
    labels(message, 7, point);
    message.fixed64(2, time.start);
    message.fixed64(3, time.now);
    message.double(4, value);
}

fn encode_histogram(message: &mut ProtobufWriter<'_>, point: &Metric, time: CollectionTime) {
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

fn labels(message: &mut ProtobufWriter<'_>, field: u32, point: &Metric) {
    let mut attributes = Attributes::new(message, field);
    for label in point.get_label() {
        attributes.text(&attribute_name(label.name()), label.value());
    }
}

/// Returns the attribute of a label: those of the conventions have dots.
fn attribute_name(label: &str) -> Cow<'_, str> {
    if label == "error_type" {
        return Cow::Borrowed("error.type");
    }
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
            "gen_ai_client_operation_duration" => "gen_ai.client.operation.duration".to_owned(),
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
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    use opentelemetry_proto::tonic::metrics::v1::metric::Data;
    use opentelemetry_proto::tonic::metrics::v1::{Metric as Decoded, number_data_point};
    use prost::Message as _;

    use super::*;
    use crate::metrics::{MetricType as Shape, Metrics, TABLE};
    use crate::telemetry::envelope::Envelope;

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

    fn decoded(metrics: &Metrics, conventions: Conventions) -> Vec<Decoded> {
        let (mut taken, time) = (Taken::default(), CollectionTime { start: 7, now: 9 });
        encode_metrics(&metrics.gather(), time, conventions, &mut taken);
        let envelope = Envelope::new(std::iter::empty(), conventions, "1");
        let batches = taken.batches(3);
        assert!(batches.len() > 1);
        let sent = batches.iter().flat_map(|batch| {
            let body = envelope.wrap(taken.bytes_of(batch));
            let resource = ExportMetricsServiceRequest::decode(&body[..]).unwrap().resource_metrics.remove(0);
            resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics)
        });
        sent.collect()
    }

    #[test]
    fn metrics_decode_to_the_values_of_the_registry() {
        let metrics = Metrics::new().unwrap();
        metrics.requests.with_label_values(&["chat", "m", "p", "200"]).inc_by(5);
        metrics.connections.set(-3);
        for seconds in [0.015, 0.015, 3.0, 500.0] {
            metrics.duration.with_label_values(&["chat", "openai", "m"]).observe(seconds);
        }
        for error in ["", "upstream_overloaded"] {
            metrics.attempt_duration.with_label_values(&["chat", "openai", "m", error]).observe(0.5);
        }
        for (kind, tokens) in [("input", 100.0), ("output", 7.0)] {
            metrics.token_usage.with_label_values(&["chat", "openai", "m", kind]).observe(tokens);
        }
        let all = decoded(&metrics, Conventions::V1_41);
        let named = |name: &str| all.iter().find(|metric| metric.name == name).unwrap().clone();
        let Some(Data::Sum(sum)) = named("gateway.requests").data else { panic!() };
        assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
        assert_eq!(sum.data_points[0].value, Some(number_data_point::Value::AsDouble(5.0)));
        assert_eq!((sum.data_points[0].start_time_unix_nano, sum.data_points[0].time_unix_nano), (7, 9));
        assert_eq!(sum.data_points[0].attributes.len(), 4);
        let Some(Data::Gauge(gauge)) = named("gateway.connections").data else { panic!() };
        assert_eq!(gauge.data_points[0].value, Some(number_data_point::Value::AsDouble(-3.0)));
        let attempts = named("gen_ai.client.operation.duration");
        let Some(Data::Histogram(attempts)) = attempts.data else { panic!() };
        let keys = |index: usize| attempts.data_points[index].attributes.iter().map(|pair| pair.key.as_str());
        assert!(keys(0).all(|key| key != "error.type") && keys(1).any(|key| key == "error.type"));
        let duration = named("gen_ai.server.request.duration");
        assert_eq!(duration.unit, "s");
        let Some(Data::Histogram(histogram)) = duration.data else { panic!() };
        let point = &histogram.data_points[0];
        assert!(point.count == 4 && point.sum.is_some_and(|sum| (sum - 503.03).abs() < 1e-9), "{point:?}");
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        let filled: Vec<_> =
            point.bucket_counts.iter().enumerate().filter(|(_, count)| **count > 0).collect();
        assert_eq!(filled, [(1, &2), (9, &1), (point.explicit_bounds.len(), &1)]);

        let points = |all: &[Decoded], name: &str| {
            let data = all.iter().find(|metric| metric.name == name).and_then(|metric| metric.data.clone());
            data.map_or(0, |data| match data {
                Data::Histogram(histogram) => histogram.data_points.len(),
                _ => 0,
            })
        };
        assert_eq!(points(&all, "gen_ai.client.token.usage"), 2);
        let newer = decoded(&metrics, Conventions::GenAi0_1);
        assert_eq!(points(&newer, "gen_ai.client.token.usage"), 0);
        for name in Conventions::GenAi0_1.token_histograms() {
            assert_eq!(points(&newer, name), 1, "{name}");
        }
    }

    #[test]
    fn metric_names_translate_back_to_the_series() {
        for family in TABLE {
            assert_eq!(series_of(&OtlpName::of(family.name), family.shape), family.name);
        }
    }
}
