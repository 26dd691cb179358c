//! What is encoded, decoded with the official messages of OTLP.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use proptest::prelude::*;
use prost::Message as _;

use super::conventions::Conventions;
use super::envelope::{Envelope, PartialSuccess};
use super::facts::{AttemptFacts, EventFacts, EventKind, NameFacts, RequestFacts, TraceFacts};
use super::log_record::{RecordTrace, encode_record};
use super::span::encode_request;
use super::trace_context::{SpanId, TraceId};
use codec::canonical::Usage;

const TRACE: (u64, u64) = (1, 2);

fn request() -> RequestFacts<'static> {
    RequestFacts {
        start: 1_790_000_000_000_000_000,
        nanos: 1_500_000_000,
        id: "req_1",
        method: "POST",
        route: "/v1/chat/completions",
        path: "/v1/chat/completions",
        scheme: "https",
        http: "2",
        endpoint: "chat",
        client_format: "chat",
        provider_format: "messages",
        status: 200,
        model: Some("claude"),
        provider: Some("anthropic"),
        target: Some("claude-5"),
        response_id: Some("msg_1"),
        finish: Some("end_turn"),
        is_stream: true,
        attempts: 2,
        usage: Usage {
            input: Some(100),
            cached: Some(40),
            cache_write: Some(10),
            cache_write_1h: Some(5),
            output: Some(20),
            reasoning: Some(7),
            ..Usage::default()
        },
        cost: Some(1_234),
        request_bytes: 10,
        response_bytes: 20,
        first_content: Some(250_000_000),
        ..RequestFacts::default()
    }
}

fn attempt(number: u64) -> AttemptFacts<'static> {
    AttemptFacts {
        span: SpanId::from_random(100 + number),
        number,
        start: 1_790_000_000_100_000_000,
        end: 1_790_000_001_000_000_000,
        provider: "anthropic",
        provider_kind: "anthropic",
        model: "claude-5",
        api: "messages",
        address: "api.anthropic.com",
        port: 443,
        status: Some(200),
        error: None,
        upstream_id: Some("req_at_provider"),
        response_model: Some("claude-5-20260901"),
        head: Some(80_000_000),
        first_content: Some(150_000_000),
        is_reused: Some(true),
        is_continuation: false,
        is_last: true,
    }
}

fn trace<'a>(attempts: &'a [AttemptFacts<'a>], events: &'a [EventFacts]) -> TraceFacts<'a> {
    TraceFacts {
        trace: TraceId::from_random(TRACE.0, TRACE.1),
        span: SpanId::from_random(3),
        parent: Some(SpanId::from_random(4)),
        state: Some("one=1"),
        attempts,
        events,
        dropped_events: 0,
    }
}

fn envelope(conventions: Conventions) -> Envelope {
    Envelope::new([("service.name", "edge")].into_iter(), conventions, "1.2.3")
}

fn spans_of(request: &RequestFacts<'_>, trace: &TraceFacts<'_>, conventions: Conventions) -> Vec<Span> {
    let mut items = Vec::new();
    let count = encode_request(request, trace, conventions, &mut items);
    let sent = envelope(conventions).wrap(&items);
    let decoded = ExportTraceServiceRequest::decode(&sent[..]).unwrap();
    let resource = decoded.resource_spans.into_iter().next().unwrap();
    assert_eq!(text_at(&resource.resource.unwrap().attributes, "service.name"), "edge");
    let scope = resource.scope_spans.into_iter().next().unwrap();
    let named = scope.scope.unwrap();
    assert_eq!((named.name.as_str(), named.version.as_str()), ("model-gateway", "1.2.3"));
    assert_eq!(text_at(&named.attributes, "gateway.semantic_conventions"), conventions.name());
    assert_eq!(scope.schema_url, conventions.schema_url());
    assert_eq!(scope.spans.len(), count);
    scope.spans
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    let pair = attributes.iter().find(|pair| pair.key == key)?;
    pair.value.as_ref()?.value.as_ref()
}

fn text_at(attributes: &[KeyValue], key: &str) -> String {
    match value(attributes, key) {
        Some(Value::StringValue(text)) => text.clone(),
        other => panic!("{key}: {other:?}"),
    }
}

fn integer_at(attributes: &[KeyValue], key: &str) -> i64 {
    match value(attributes, key) {
        Some(Value::IntValue(number)) => *number,
        other => panic!("{key}: {other:?}"),
    }
}

#[test]
fn spans_of_a_request_and_its_attempts_follow_the_conventions() {
    let first =
        AttemptFacts { error: Some("upstream_overloaded"), status: Some(529), is_last: false, ..attempt(1) };
    let attempts = [first, AttemptFacts { is_continuation: true, ..attempt(2) }];
    let events = [
        EventFacts { at: 5, kind: EventKind::Retry("upstream_overloaded"), attempt: Some(1) },
        EventFacts { at: 6, kind: EventKind::HoldReleased, attempt: None },
    ];
    let spans = spans_of(&request(), &trace(&attempts, &events), Conventions::V1_41);
    let [server, failed, last] = &spans[..] else { panic!("{spans:?}") };

    assert_eq!(server.name, "POST /v1/chat/completions");
    assert_eq!((server.kind, server.trace_state.as_str()), (2, "one=1"));
    assert_eq!(server.trace_id, TraceId::from_random(TRACE.0, TRACE.1).as_bytes());
    assert_eq!(
        (&server.span_id[..], &server.parent_span_id[..]),
        (&[0, 0, 0, 0, 0, 0, 0, 3][..], &[0, 0, 0, 0, 0, 0, 0, 4][..])
    );
    assert_eq!(server.end_time_unix_nano - server.start_time_unix_nano, 1_500_000_000);
    assert_eq!(server.flags, 0x301);
    assert_eq!(server.status, None);
    assert_eq!(integer_at(&server.attributes, "http.response.status_code"), 200);
    assert_eq!(integer_at(&server.attributes, "gateway.cost_nano"), 1_234);
    // The tokens stand on one span only, or sums over spans would count them twice.
    assert!(server.attributes.iter().all(|pair| !pair.key.starts_with("gen_ai.")));
    let names: Vec<_> = server.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["gateway.retry", "gateway.hold.released"]);
    assert_eq!(text_at(&server.events[0].attributes, "gateway.reason"), "upstream_overloaded");

    assert_eq!((failed.name.as_str(), failed.kind), ("chat claude-5", 3));
    assert_eq!(failed.status.as_ref().unwrap().code, 2);
    assert_eq!(text_at(&failed.attributes, "error.type"), "upstream_overloaded");
    assert_eq!(integer_at(&failed.attributes, "http.response.status_code"), 529);
    assert_eq!(value(&failed.attributes, "gen_ai.usage.input_tokens"), None);

    assert_eq!(last.parent_span_id, server.span_id);
    assert_eq!(last.links[0].span_id, failed.span_id);
    for (key, number) in [
        ("gen_ai.usage.input_tokens", 100),
        ("gen_ai.usage.output_tokens", 20),
        ("gen_ai.usage.cache_read.input_tokens", 40),
        ("gen_ai.usage.cache_creation.input_tokens", 15),
        ("server.port", 443),
    ] {
        assert_eq!(integer_at(&last.attributes, key), number, "{key}");
    }
    for (key, text) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "anthropic"),
        ("gen_ai.request.model", "claude-5"),
        ("gen_ai.response.id", "msg_1"),
        ("gen_ai.response.model", "claude-5-20260901"),
        ("server.address", "api.anthropic.com"),
    ] {
        assert_eq!(text_at(&last.attributes, key), text, "{key}");
    }
    let Some(Value::ArrayValue(reasons)) = value(&last.attributes, "gen_ai.response.finish_reasons") else {
        panic!()
    };
    assert_eq!(reasons.values, [AnyValue { value: Some(Value::StringValue("end_turn".to_owned())) }]);
    assert_eq!(value(&last.attributes, "gen_ai.usage.reasoning.output_tokens"), None, "not in v1.41.0");
    assert_eq!(value(&last.attributes, "gen_ai.conversation.id"), None, "a name of the client's");
    let names = Some(NameFacts { conversation: Some("session-7"), ..NameFacts::default() });
    let named =
        spans_of(&RequestFacts { names, ..request() }, &trace(&attempts, &events), Conventions::V1_41);
    assert_eq!(text_at(&named[2].attributes, "gen_ai.conversation.id"), "session-7");

    let newer = spans_of(&request(), &trace(&attempts, &events), Conventions::GenAi0_1);
    assert_eq!(integer_at(&newer[2].attributes, "gen_ai.usage.cache_write.input_tokens"), 15);
    assert_eq!(integer_at(&newer[2].attributes, "gen_ai.usage.reasoning.output_tokens"), 7);
    assert_eq!(
        value(&newer[2].attributes, "gen_ai.response.time_to_first_chunk"),
        Some(&Value::DoubleValue(0.15))
    );
}

#[test]
fn span_of_a_cut_stream_is_an_error_and_one_of_a_refused_request_is_not() {
    let cut = RequestFacts { error: Some("upstream_broken"), ..request() };
    let ended = [AttemptFacts { error: Some("upstream_broken"), ..attempt(1) }];
    let spans = spans_of(&cut, &trace(&ended, &[]), Conventions::V1_41);
    assert_eq!(spans[0].status.as_ref().unwrap().code, 2);
    let reasons = value(&spans[1].attributes, "gen_ai.response.finish_reasons");
    let Some(Value::ArrayValue(reasons)) = reasons else { panic!("{reasons:?}") };
    assert_eq!(reasons.values[0].value, Some(Value::StringValue("error".to_owned())));

    let refused =
        RequestFacts { error: Some("unauthorized"), status: 401, is_client_fault: true, ..request() };
    let spans = spans_of(&refused, &trace(&[], &[]), Conventions::V1_41);
    assert_eq!((spans.len(), &spans[0].status), (1, &None));
    assert_eq!(text_at(&spans[0].attributes, "error.type"), "unauthorized");
    let odd = RequestFacts { method: "BREW", route: "", ..refused };
    assert_eq!(spans_of(&odd, &trace(&[], &[]), Conventions::V1_41)[0].name, "HTTP");
}

#[test]
fn names_are_exported_only_if_they_are_given() {
    let mut request = request();
    let keys = ["gateway.key", "gateway.account", "client.address"];
    let spans = spans_of(&request, &trace(&[], &[]), Conventions::V1_41);
    assert!(keys.iter().all(|key| value(&spans[0].attributes, key).is_none()));
    request.names = Some(NameFacts {
        key: Some("alice"),
        account: Some("acme"),
        client: Some("192.0.2.1"),
        ..NameFacts::default()
    });
    let spans = spans_of(&request, &trace(&[], &[]), Conventions::V1_41);
    assert_eq!(keys.map(|key| text_at(&spans[0].attributes, key)), ["alice", "acme", "192.0.2.1"]);
}

#[test]
fn log_record_has_the_facts_of_the_access_log() {
    let failed = RequestFacts { error: Some("upstream_timeout"), status: 504, ..request() };
    let context =
        RecordTrace { trace: TraceId::from_random(1, 2), span: SpanId::from_random(3), is_sampled: true };
    let mut items = Vec::new();
    encode_record(&failed, Some(context), &mut items);
    encode_record(&request(), None, &mut items);
    let sent = envelope(Conventions::V1_41).wrap(&items);
    let decoded = ExportLogsServiceRequest::decode(&sent[..]).unwrap();
    let records = &decoded.resource_logs[0].scope_logs[0].log_records;
    let [first, second] = &records[..] else { panic!("{records:?}") };
    let body = first.body.as_ref().unwrap().value.as_ref();
    assert_eq!(body, Some(&Value::StringValue("POST /v1/chat/completions 504".to_owned())));
    assert_eq!((first.severity_number, first.severity_text.as_str()), (17, "ERROR"));
    assert_eq!((&first.trace_id[..], first.flags), (&context.trace.as_bytes()[..], 1));
    assert_eq!(first.event_name, "gateway.access");
    assert_eq!(integer_at(&first.attributes, "gateway.output_tokens"), 20);
    assert_eq!((second.severity_number, second.trace_id.len()), (9, 0));
}

#[test]
fn partial_success_is_read() {
    let partial = ExportTracePartialSuccess { rejected_spans: 3, error_message: "too old".to_owned() };
    let response = ExportTraceServiceResponse { partial_success: Some(partial) };
    let expected = PartialSuccess { rejected: 3, message: "too old".to_owned() };
    assert_eq!(PartialSuccess::parse(&response.encode_to_vec()), expected);
    let negative = ExportTracePartialSuccess { rejected_spans: -3, error_message: String::new() };
    let response = ExportTraceServiceResponse { partial_success: Some(negative) };
    assert_eq!(PartialSuccess::parse(&response.encode_to_vec()), PartialSuccess::default());
    assert_eq!(PartialSuccess::parse(b"{\"partialSuccess\":{}}"), PartialSuccess::default());
}

proptest! {
    /// Texts of any length and characters, and numbers of any size, decode to what was encoded.
    #[test]
    fn spans_of_arbitrary_facts_decode(
        texts in proptest::collection::vec(".{0,400}", 6),
        numbers in proptest::collection::vec(any::<u64>(), 4),
        status in any::<u16>(),
        attempts in 0usize..5,
        events in 0usize..5,
    ) {
        let request = RequestFacts {
            start: numbers[0],
            nanos: numbers[1],
            id: &texts[0],
            method: &texts[1],
            path: &texts[2],
            status,
            error: Some(&texts[3]),
            model: Some(&texts[4]),
            finish: Some(&texts[5]),
            cost: Some(numbers[2]),
            response_bytes: numbers[3],
            ..request()
        };
        let attempts: Vec<_> = (0..attempts)
            .map(|number| AttemptFacts { model: &texts[4], end: numbers[3], ..attempt(number as u64) })
            .collect();
        let events = vec![EventFacts { at: numbers[2], kind: EventKind::SlowStart, attempt: Some(1) }; events];
        let spans = spans_of(&request, &trace(&attempts, &events), Conventions::V1_41);
        prop_assert_eq!(spans.len(), 1 + attempts.len());
        let server = &spans[0];
        prop_assert_eq!(server.start_time_unix_nano, numbers[0]);
        prop_assert_eq!(server.end_time_unix_nano, numbers[0].saturating_add(numbers[1]));
        prop_assert_eq!(server.events.len(), events.len());
        prop_assert_eq!(integer_at(&server.attributes, "http.response.status_code"), i64::from(status));
        prop_assert_eq!(integer_at(&server.attributes, "gateway.cost_nano"), numbers[2].min(i64::MAX as u64) as i64);
        for (text, key) in [(&texts[0], "gateway.request_id"), (&texts[4], "gateway.model")] {
            match value(&server.attributes, key) {
                None => prop_assert!(text.is_empty()),
                Some(Value::StringValue(sent)) => {
                    prop_assert!(text.starts_with(sent.as_str()) && sent.len() <= 256);
                    prop_assert!(sent.len() == text.len() || sent.len() > 252);
                }
                Some(other) => panic!("{other:?}"),
            }
        }
    }
}
