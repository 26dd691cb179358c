//! Telemetry over OTLP: what a collector receives, and that a collector that fails does not concern clients.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;

use crate::support::client::post_with;
use crate::support::collector::{Collector, attribute, taken};
use crate::support::form::{Form, provider_error};
use crate::support::gateway::Gateway;
use crate::support::ports::free_port;
use crate::support::setup::{CREDENTIAL, KEY, Setup};
use crate::support::tls::Authority;
use crate::support::upstream::{Upstream, a_moment};
use crate::support::{reply, until};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// Question of every client, which must not be exported.
const QUESTION: &str = "unutterable question";
const ALL: &str = "sample = 1\n";
const POOR_KEY: &str = "client-key-with-a-limit-0001";
/// Series of what is dropped.
const DROPPED: &str = "gateway_telemetry_dropped_total";
const EXPORTED: &str = "gateway_telemetry_exported_total";

fn chat(headers: &[(&str, &str)]) -> Vec<u8> {
    let bearer = format!("Bearer {KEY}");
    let mut all = vec![("authorization", &*bearer)];
    all.extend(headers);
    let body = format!(r#"{{"model":"gpt","messages":[{{"role":"user","content":"{QUESTION}"}}]}}"#);
    post_with("/v1/chat/completions", &all, body)
}

async fn well() -> Upstream {
    Upstream::answering(reply::json(200, Form::Chat.whole("gpt"))).await
}

/// Starts a gateway whose telemetry has these lines. It has one provider.
async fn gateway(upstream: &Upstream, lines: &str) -> Gateway {
    Gateway::start(&setup(upstream, lines)).await
}

fn setup(upstream: &Upstream, lines: &str) -> Setup {
    let base = format!("http://{}/v1", upstream.addr);
    let mut setup = Setup::new().provider("openai", "openai", &base, "apis = [\"chat\"]");
    setup = setup.model("gpt", "openai", "gpt");
    setup.log += lines;
    setup
}

/// Starts a gateway whose model has a target at each of two providers, the first one in the first tier.
async fn two_targets(first: &Upstream, second: &Upstream, lines: &str) -> Gateway {
    let mut setup = Setup::new();
    for (name, upstream) in [("first", first), ("second", second)] {
        let base = format!("http://{}/v1", upstream.addr);
        setup = setup.provider(name, "openai-compatible", &base, "apis = [\"chat\"]");
    }
    setup.routes += "[[model]]\nid = \"gpt\"\ntargets = [{ provider = \"first\", model = \"gpt-a\" }, \
                     { provider = \"second\", model = \"gpt-b\", tier = 1 }]\n";
    setup.log += lines;
    Gateway::start(&setup).await
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn servers(spans: &[Span]) -> Vec<&Span> {
    spans.iter().filter(|span| span.kind == 2).collect()
}

#[tokio::test]
async fn traces_have_the_request_its_attempts_and_their_causes_but_nothing_that_was_said() {
    let collector = Collector::start().await;
    let failing =
        Upstream::answering(reply::json(503, provider_error(Form::Chat, 503, "unutterable reason"))).await;
    let working = well().await;
    let gateway = two_targets(&failing, &working, &(collector.lines() + ALL)).await;
    let headers = [("traceparent", PARENT), ("tracestate", "one=1"), ("x-request-id", "mine")];
    let answer = gateway.ask(chat(&headers)).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());

    let spans = collector.wait_for_spans(3).await;
    let [server, failed, last] = &spans[..] else { panic!("{spans:#?}") };
    assert_eq!((server.name.as_str(), server.kind), ("POST /v1/chat/completions", 2));
    assert_eq!(hex(&server.trace_id), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(hex(&server.parent_span_id), "b7ad6b7169203331");
    assert_eq!(server.trace_state, "one=1");
    let of = |span: &Span, key| attribute(&span.attributes, key).unwrap_or_default();
    assert_eq!(of(server, "gateway.request_id"), "mine");
    assert_eq!(of(server, "gateway.attempts"), "2");
    let retry = server.events.iter().find(|event| event.name == "gateway.retry").unwrap();
    assert_eq!(attribute(&retry.attributes, "gateway.reason"), Some(of(failed, "error.type")));
    for (span, model, status, code) in [(failed, "gpt-a", "503", 2), (last, "gpt-b", "200", 0)] {
        assert_eq!((span.kind, span.name.clone()), (3, format!("chat {model}")));
        assert_eq!((&span.trace_id, &span.parent_span_id), (&server.trace_id, &server.span_id));
        assert_eq!(of(span, "http.response.status_code"), status);
        assert_eq!(of(span, "server.address"), "127.0.0.1");
        assert_eq!(span.status.as_ref().map_or(0, |status| status.code), code);
        let within = server.start_time_unix_nano <= span.start_time_unix_nano
            && span.start_time_unix_nano <= span.end_time_unix_nano
            && span.end_time_unix_nano <= server.end_time_unix_nano;
        assert!(within, "{span:?}");
    }
    assert!(failed.end_time_unix_nano <= last.start_time_unix_nano);
    assert_eq!(attribute(&failed.attributes, "gen_ai.usage.output_tokens"), None);
    assert!(attribute(&last.attributes, "gen_ai.usage.output_tokens").is_some());

    // Without a setting a provider receives what the client sent, as it does without telemetry.
    assert_eq!(working.only_request().head.get("traceparent"), Some(PARENT));
    let lines = gateway.wait_for_log(1).await;
    assert_eq!(lines[0]["trace_id"], "0af7651916cd43dd8448eb211c80319c");
    let everything = collector.everything();
    for secret in [KEY, CREDENTIAL, "unutterable", "alice"] {
        assert!(!everything.contains(secret), "{secret} was exported");
    }
}

#[tokio::test]
async fn traces_are_sampled_at_the_end_all_errors_and_a_share_of_the_rest() {
    let collector = Collector::start().await;
    let upstream = well().await;
    let lines = collector.lines() + "sample = 0\nslow = \"off\"\ntrust = [\"127.0.0.0/8\"]\nnames = true\n";
    let gateway = gateway(&upstream, &lines).await;
    let unsampled = PARENT.replace("-01", "-00");
    assert_eq!(gateway.ask(chat(&[])).await.status(), 200);
    assert_eq!(gateway.ask(chat(&[("traceparent", &unsampled)])).await.status(), 200);
    let wrong = post_with("/v1/chat/completions", &[("authorization", "Bearer wrong")], "{}");
    assert_eq!(gateway.ask(wrong).await.status(), 401);
    collector.wait_for_spans(1).await;
    assert_eq!(gateway.ask(chat(&[("traceparent", PARENT)])).await.status(), 200);
    let spans = collector.wait_for_spans(3).await;
    let [refused, chosen] = servers(&spans)[..] else { panic!("{spans:#?}") };
    assert_eq!(attribute(&refused.attributes, "http.response.status_code").as_deref(), Some("401"));
    assert_eq!((refused.status.as_ref(), refused.parent_span_id.len()), (None, 0));
    assert_eq!(hex(&chosen.parent_span_id), "b7ad6b7169203331");
    assert_eq!(attribute(&chosen.attributes, "gateway.key").as_deref(), Some("alice"));
    assert_eq!(attribute(&chosen.attributes, "client.address").as_deref(), Some("127.0.0.1"));
}

#[tokio::test]
async fn trace_context_of_the_attempt_is_sent_to_providers_by_setting() {
    let collector = Collector::start().await;
    let upstream = well().await;
    let gateway = gateway(&upstream, &(collector.lines() + ALL + "propagate = true\n")).await;
    assert_eq!(gateway.ask(chat(&[("traceparent", PARENT), ("tracestate", "one=1")])).await.status(), 200);
    assert_eq!(gateway.ask(chat(&[("traceparent", "00-broken")])).await.status(), 200);
    let spans = collector.wait_for_spans(4).await;
    let requests = upstream.requests();
    for (request, attempt) in requests.iter().zip(spans.iter().filter(|span| span.kind == 3)) {
        let sent = format!("00-{}-{}-01", hex(&attempt.trace_id), hex(&attempt.span_id));
        assert_eq!(request.head.get("traceparent"), Some(&*sent));
    }
    assert_eq!(requests[0].head.get("tracestate"), Some("one=1"));
    assert_eq!(requests[1].head.get("tracestate"), None);
}

#[tokio::test]
async fn logs_and_metrics_are_exported_if_they_are_on() {
    let collector = Collector::start().await;
    let upstream = well().await;
    let lines = collector.lines()
        + "traces = false\nlogs = true\nmetrics = true\ninterval = \"1s\"\ncompression = \"none\"\n\
           service_name = \"edge\"\nheaders = { x-team = \"two\" }\n";
    let failing = Upstream::answering(reply::json(503, provider_error(Form::Chat, 503, "busy"))).await;
    let gateway = two_targets(&failing, &upstream, &lines).await;
    assert_eq!(gateway.ask(chat(&[])).await.status(), 200);
    until(|| !collector.logs().is_empty()).await;
    let record = collector.logs().remove(0);
    assert_eq!(record.severity_text, "INFO");
    assert_eq!(attribute(&record.attributes, "gateway.model").as_deref(), Some("gpt"));
    assert_eq!(attribute(&record.attributes, "gateway.key"), None);

    let counted = |name: &str| {
        let metrics = collector.metrics().into_iter().filter(|metric| metric.name == name);
        metrics.filter_map(|metric| metric.data).next_back()
    };
    until(|| counted("gateway.requests").is_some()).await;
    let Some(Data::Sum(requests)) = counted("gateway.requests") else { panic!() };
    assert!(requests.is_monotonic && requests.aggregation_temporality == 2);
    let point = &requests.data_points[0];
    assert_eq!(attribute(&point.attributes, "model").as_deref(), Some("gpt"));
    assert!(point.start_time_unix_nano > 0 && point.start_time_unix_nano < point.time_unix_nano);
    let Some(Data::Histogram(durations)) = counted("gen_ai.server.request.duration") else { panic!() };
    let point = &durations.data_points[0];
    assert_eq!(attribute(&point.attributes, "gen_ai.operation.name").as_deref(), Some("chat"));
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
    assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
    // One attempt failed and one succeeded: each is counted once, with the kind of its error.
    let Some(Data::Histogram(attempts)) = counted("gen_ai.client.operation.duration") else { panic!() };
    let [failed, succeeded] = &attempts.data_points[..] else { panic!("{attempts:#?}") };
    assert_eq!((failed.count, succeeded.count), (1, 1));
    let kinds = [failed, succeeded].map(|point| attribute(&point.attributes, "error.type"));
    assert!(kinds.iter().filter(|kind| kind.is_some()).count() == 1, "{kinds:?}");
    assert!(matches!(counted("gateway.connections"), Some(Data::Gauge(_))));
    // What is set when it is read is set for an export too.
    assert!(matches!(counted("gateway.target_available"), Some(Data::Gauge(_))));
    let resource = collector.collections().remove(0).resource_metrics.remove(0).resource.unwrap();
    assert_eq!(attribute(&resource.attributes, "service.name").as_deref(), Some("edge"));
    let request = collector.upstream.last_request();
    assert_eq!((request.head.get("x-team"), request.head.get("content-encoding")), (Some("two"), None));
    assert!(collector.spans().is_empty());
}

#[tokio::test]
async fn collector_that_fails_delays_no_request_and_holds_no_memory() {
    let upstream = well().await;
    let answering = |status: u16| Collector::answering_each(vec![reply::whole(status, &[], "")]);
    let waiting = reply::whole(429, &[("retry-after", "3600")], "");
    let dead = format!("[telemetry]\notlp = \"http://{}\"\ndelay = \"20ms\"\n", free_port());
    let collectors = [
        ("dead", None),
        ("silent", Some(Collector::silent().await)),
        ("slow", Some(Collector::slow(Duration::from_secs(2)).await)),
        ("resets", Some(Collector::resetting().await)),
        ("400", Some(answering(400).await)),
        ("413", Some(answering(413).await)),
        ("503", Some(answering(503).await)),
        ("429", Some(Collector::answering_each(vec![waiting]).await)),
    ];
    for (name, collector) in collectors {
        let lines = collector.as_ref().map_or(dead.clone(), Collector::lines) + ALL;
        let lines = lines + "logs = true\nqueue = 64\nbatch = 16\ntimeout = \"5s\"\n";
        let gateway = gateway(&upstream, &lines).await;
        let mut client = gateway.connect().await;
        assert_eq!(client.ask(chat(&[])).await.status(), 200, "{name}");
        let before = gateway.memory("RssAnon");
        let started = Instant::now();
        for _ in 0..400 {
            assert_eq!(client.ask(chat(&[])).await.status(), 200, "{name}");
        }
        // One request that waited for the exporter's time-out would take as long as all of them.
        assert!(started.elapsed() < Duration::from_secs(30), "{name}: {:?}", started.elapsed());
        until_dropped(&gateway).await;
        let grown = gateway.memory("RssAnon").saturating_sub(before);
        assert!(grown < 16 * 1024, "{name}: {grown} KiB");
        let said = gateway.log();
        let lines = said.lines().filter(|line| line.contains("telemetry was not exported")).count();
        assert!(lines <= 1, "{name}: {said}");
    }
}

async fn until_dropped(gateway: &Gateway) {
    while gateway.metrics().await.sum(DROPPED, &[]) == 0.0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn batch_is_sent_again_when_the_collector_permits() {
    let later = |status| reply::whole(status, &[("retry-after", "1")], "");
    let collector = Collector::answering_each(vec![later(429), later(503), taken()]).await;
    let upstream = well().await;
    let gateway = gateway(&upstream, &(collector.lines() + ALL)).await;
    assert_eq!(gateway.ask(chat(&[])).await.status(), 200);
    gateway.wait_for_metric(EXPORTED, &[("signal", "traces")], 2.0).await;
    let requests = collector.upstream.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests.iter().all(|request| request.body == requests[0].body), "the same batch each time");
    assert_eq!(gateway.metrics().await.sum(DROPPED, &[]), 0.0);
}

#[tokio::test]
async fn batch_that_is_too_large_is_halved_and_rejected_items_are_counted() {
    let partial = [0x0a, 0x07, 0x08, 0x01, 0x12, 0x03, b'o', b'l', b'd'];
    let answers = vec![reply::whole(413, &[], ""), reply::whole(200, &[], partial), taken()];
    let collector = Collector::answering_each(answers).await;
    let upstream = well().await;
    // A long delay gathers both requests into one batch, which the second one completes.
    let lines = collector.lines().replace("20ms", "30s") + ALL + "batch = 4\n";
    let gateway = gateway(&upstream, &lines).await;
    for _ in 0..2 {
        assert_eq!(gateway.ask(chat(&[])).await.status(), 200);
    }
    gateway.wait_for_metric(EXPORTED, &[("signal", "traces")], 3.0).await;
    gateway.wait_for_metric(DROPPED, &[("signal", "traces"), ("reason", "rejected")], 1.0).await;
    let sizes: Vec<usize> = collector.upstream.requests().iter().map(|request| request.body.len()).collect();
    assert!(sizes.len() == 3 && sizes[1] < sizes[0] && sizes[2] < sizes[0], "{sizes:?}");
}

#[tokio::test]
async fn collector_over_tls_is_verified_and_gets_the_headers_of_a_file() {
    let authority = Authority::new();
    let identity = authority.identity(&["localhost"]);
    let config = identity.server(&[]);
    let upstream = well().await;
    let serve = |mut conn: crate::support::upstream::Conn| async move {
        while conn.request().await.is_some() {
            conn.send(taken()).await;
        }
    };
    let collector = Collector { upstream: Upstream::start_tls(config, serve).await };
    let port = collector.upstream.addr.port();
    let lines =
        format!("[telemetry]\notlp = \"https://localhost:{port}/base\"\ndelay = \"20ms\"\nsample = 1\n");
    let trusting = format!("{lines}ca = \"ca.pem\"\nheaders_file = \"headers\"\n");
    let files = |setup: Setup| {
        setup.file("ca.pem", authority.pem()).file("headers", "authorization: Bearer of-mine\n")
    };
    let gateway = Gateway::start(&files(setup(&upstream, &trusting))).await;
    assert_eq!(gateway.ask(chat(&[])).await.status(), 200);
    collector.upstream.wait_for(1).await;
    let request = collector.upstream.last_request();
    assert_eq!(request.head.get("authorization"), Some("Bearer of-mine"));
    assert!(request.head.line.starts_with("POST /base/v1/traces "), "{}", request.head.line);
    assert!(!gateway.command(&["check", "--print"]).contains("of-mine"));

    // A renewed secret is in the requests after a reload; a file that is not valid leaves the one in effect.
    gateway.replace("headers", "authorization: Bearer of-today\n");
    gateway.reload("applied").await;
    until(|| gateway.log().contains("new headers or certificates of telemetry are in effect")).await;
    for (headers, calls) in [("", 2), ("no header\n", 3)] {
        if !headers.is_empty() {
            gateway.replace("headers", headers);
            gateway.reload("applied").await;
            until(|| gateway.log().contains("the new secrets of telemetry were rejected")).await;
        }
        assert_eq!(gateway.ask(chat(&[])).await.status(), 200);
        collector.upstream.wait_for(calls).await;
        let request = collector.upstream.last_request();
        assert_eq!(request.head.get("authorization"), Some("Bearer of-today"), "{headers}");
    }

    let strict = Gateway::start(&setup(&upstream, &lines)).await;
    assert_eq!(strict.ask(chat(&[])).await.status(), 200);
    until(|| strict.log().contains("telemetry was not exported")).await;
    assert_eq!(collector.upstream.count(), 3, "an unknown authority was trusted");
}

#[tokio::test]
async fn telemetry_is_exported_before_the_process_ends_unless_the_collector_does_not_answer() {
    let upstream = well().await;
    let collector = Collector::start().await;
    let lines = collector.lines().replace("20ms", "1h") + ALL;
    let mut ending = gateway(&upstream, &lines).await;
    assert_eq!(ending.ask(chat(&[])).await.status(), 200);
    ending.idle().await;
    ending.signal(Signal::SIGTERM);
    assert!(ending.ended().await.success());
    assert_eq!(collector.spans().len(), 2);

    let silent = Collector::silent().await;
    let mut stuck = gateway(&upstream, &(silent.lines() + ALL)).await;
    assert_eq!(stuck.ask(chat(&[])).await.status(), 200);
    silent.upstream.wait_for(1).await;
    stuck.signal(Signal::SIGTERM);
    assert!(stuck.ended().await.success());
}

/// Starts a provider of every format whose responses name the model `m-2026`, whatever was requested.
async fn provider_with_a_dated_model() -> Upstream {
    Upstream::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            let target = request.head.target();
            let form = Form::ALL.into_iter().find(|form| target.contains(form.mark())).unwrap();
            let stream = target.contains("alt=sse") || request.text().contains("\"stream\":true");
            let answer = if stream {
                reply::stream(&form.frames("m-2026"))
            } else {
                reply::json(200, form.whole("m-2026"))
            };
            conn.send(answer).await;
        }
    })
    .await
}

#[tokio::test]
async fn attempt_names_the_model_of_the_response_and_the_conversation_by_setting() {
    for (names, conversation) in [(true, Some("session-7".to_owned())), (false, None)] {
        let collector = Collector::start().await;
        let upstream = provider_with_a_dated_model().await;
        let mut setup = Setup::providers(upstream.addr);
        setup.log += &(collector.lines() + ALL + &format!("names = {names}\n"));
        let gateway = Gateway::start(&setup).await;
        let bearer = format!("Bearer {KEY}");
        let headers =
            [("authorization", &*bearer), ("x-session-id", "session-7"), ("conversation_id", "another")];
        let mut count = 0;
        for (form, stream) in Form::ALL.into_iter().flat_map(|form| [(form, false), (form, true)]) {
            // Verbatim, verbatim with another name for the client, and translated.
            for model in [form.model(), form.alias().0, if form == Form::Messages { "gpt" } else { "claude" }]
            {
                let request = post_with(&form.path(model, stream), &headers, form.body(model, stream));
                let answer = gateway.ask(request).await;
                assert_eq!(answer.status(), 200, "{form:?} {model}: {}", answer.text());
                count += 1;
            }
        }
        let spans = collector.wait_for_spans(2 * count).await;
        let attempts: Vec<_> = spans.iter().filter(|span| span.kind == 3).collect();
        assert_eq!(attempts.len(), count);
        for span in attempts {
            let of = |name| attribute(&span.attributes, name);
            assert_eq!(of("gen_ai.response.model").as_deref(), Some("m-2026"), "{span:#?}");
            assert_eq!(of("gen_ai.conversation.id"), conversation);
        }
    }
}

#[tokio::test]
async fn trace_names_the_limit_that_refused_a_request() {
    let collector = Collector::start().await;
    let upstream = well().await;
    let mut setup = setup(&upstream, &(collector.lines() + ALL));
    setup.keys += &crate::support::setup::key("poor", POOR_KEY, "limits = { requests_per_minute = 1 }");
    let gateway = Gateway::start(&setup).await;
    let bearer = format!("Bearer {POOR_KEY}");
    let body = r#"{"model":"gpt","messages":[{"role":"user","content":"hello"}]}"#;
    for status in [200, 429] {
        let request = post_with("/v1/chat/completions", &[("authorization", &*bearer)], body);
        assert_eq!(gateway.ask(request).await.status(), status);
    }
    let spans = collector.wait_for_spans(3).await;
    let events: Vec<_> = servers(&spans).into_iter().flat_map(|span| &span.events).collect();
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!(event.name, "gateway.limit.refused");
    let of = |name| attribute(&event.attributes, name).unwrap_or_default();
    assert_eq!(
        (of("gateway.scope"), of("gateway.limit")),
        ("key".to_owned(), "requests_per_minute".to_owned())
    );
}

#[tokio::test]
async fn telemetry_that_is_off_sends_nothing_and_leaves_the_log_as_it_was() {
    let collector = Collector::start().await;
    let upstream = well().await;
    let lines = collector.lines() + "traces = false\n";
    let gateway = gateway(&upstream, &lines).await;
    assert_eq!(gateway.ask(chat(&[("traceparent", PARENT)])).await.status(), 200);
    assert_eq!(gateway.wait_for_log(1).await[0].get("trace_id"), None);
    a_moment().await;
    assert_eq!(collector.upstream.connections(), 0);
    assert_eq!(upstream.only_request().head.get("traceparent"), Some(PARENT));
}
