use std::path::Path;
use std::time::Instant;

use parking_lot::Mutex;

use super::*;
use crate::gateway::active_snapshot::ActiveSnapshot;
use crate::gateway::billing::Billing;
use crate::gateway::cache_plan::CachePlan;
use crate::gateway::context::Context;
use crate::gateway::response_in_progress::SynthesizedResponse;
use crate::gateway::selection::Selection;
use crate::gateway::settle::Completion;
use codec::canonical::Usage;
use codec::error::{ApiError, ErrorKind};
use codec::provider::ToolBetas;
use codec::translate::Verbatim;
use codec::translate::verbatim::{Arrival, Changes};
use codec::wire::Api;
use codec::wire::codec::ReplyOptions;
use config::{Limits, NoSecrets, load_texts};
use driver::shutdown::Shutdown;
use observe::metrics::Metrics;
use storage::ledger::{
    AccountId, Ledger, Reservation, ReserveError, ReserveOutcome, Settled, Spent, UsageRecord,
};
use storage::store::Pending;

const ROUTES: &str = "
[[provider]]
name = \"one\"
kind = \"openai\"
credential = { value = \"none\" }
[[model]]
id = \"m\"
targets = [{ provider = \"one\", model = \"m-1\" }]
";
const KEYS: &str = "
[[key]]
name = \"alice\"
sha256 = \"0000000000000000000000000000000000000000000000000000000000000001\"
";

/// Ledger that lists the usage records: the status and the input tokens of each.
#[derive(Default)]
struct Recorded(Mutex<Vec<(u16, Option<u64>)>>);

impl Ledger for Recorded {
    fn reserve(&self, _: &AccountId, _: i64) -> ReserveOutcome {
        ReserveOutcome::Known(Err(ReserveError::Unavailable))
    }

    fn settle(&self, _: Option<Reservation>, record: &UsageRecord<'_>) -> Settled {
        self.0.lock().push((record.status, record.usage.input));
        Settled::Known(Ok(()))
    }

    fn available(&self, _: &AccountId) -> Option<i64> {
        None
    }

    fn spent_since(&self, _: i64) -> Pending<Vec<Spent>> {
        Pending::known(Ok(Vec::new()))
    }

    fn close(&self) -> Pending<()> {
        Pending::known(Ok(()))
    }
}

struct Setup {
    ledger: Arc<Recorded>,
    metrics: Arc<Metrics>,
    ctx: Context,
}

/// A request whose head has arrived.
fn setup() -> Setup {
    let gateway = "[server]\nlisten = [\"127.0.0.1:8080\"]\n";
    let loaded = load_texts(Path::new("."), [gateway, ROUTES, KEYS], &NoSecrets).unwrap();
    let metrics = Arc::new(Metrics::new().unwrap());
    let ledger = Arc::new(Recorded::default());
    let billing = Arc::new(Billing::new(Some(ledger.clone())));
    let active =
        ActiveSnapshot::new(loaded.snapshot, billing, &metrics, &Limits::default(), &Default::default());
    let in_flight = Shutdown::new().enter();
    Setup { ledger, metrics, ctx: Context::new(Arc::new(active), in_flight) }
}

impl Setup {
    fn key(&self) -> Arc<Key> {
        let keys = &self.ctx.active.snapshot.keys;
        keys.of_hash(routing::account::KeyHash::from_hex(&format!("{:064}", 1)).unwrap()).unwrap().clone()
    }

    fn routed(&self) -> RoutedRequest {
        let active = &self.ctx.active;
        let model = active.snapshot.routes.model("m").unwrap();
        let route = active.upstream_route(&self.metrics, "chat", model, 0, Api::Chat).unwrap();
        let selection = Selection {
            model: model.clone(),
            alias: None,
            index: 0,
            permit: None,
            refuses: route.refuses(),
            upstream_route: route,
            api: Api::Chat,
            upstream: Api::Chat,
            action: None,
            stream: true,
            tool_betas: ToolBetas::default(),
            asks: true,
            caching: CachePlan::default(),
            compaction: None,
        };
        RoutedRequest::from(selection.into_attempt())
    }

    /// Passes on to the phase in which the target is asked.
    fn asking(mut self) -> Self {
        self.ctx.phase.receive(Endpoint::Chat);
        let key = self.key();
        self.ctx.phase.authenticate(key);
        self.ctx.open_charges();
        let routed = self.routed();
        self.ctx.phase.ask(routed);
        self
    }

    fn records(&self) -> Vec<(u16, Option<u64>)> {
        self.ledger.0.lock().clone()
    }
}

/// A chat stream of which the client has received a word.
fn stream() -> UpstreamResponse {
    let verbatim = Verbatim::new(Api::Chat, Arrival::Events, Changes::default(), 1 << 20);
    let mut exchange = Exchange::Verbatim(verbatim);
    exchange.record_transcript();
    let frame = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":\
                 {\"role\":\"assistant\",\"content\":\"word\"}}]}\n\n";
    assert!(!exchange.feed(frame.into()).unwrap().is_empty());
    UpstreamResponse::Stream(Box::new(ResponseInProgress::new(exchange)))
}

fn refusal(suspended: Option<Box<SuspendedResponse>>) -> UpstreamResponse {
    UpstreamResponse::Refused {
        status: 503,
        retry_after: None,
        exception: None,
        body: BytesMut::new(),
        suspended,
    }
}

fn suspended(exchange: Exchange) -> Box<SuspendedResponse> {
    Box::new(SuspendedResponse {
        prefill: exchange.prefill().unwrap(),
        exchange,
        remaining_tokens: None,
        reply: ReplyOptions::default(),
        error: ApiError::new(ErrorKind::UpstreamBroken, "The stream broke off."),
        detail: Some("cut".into()),
        since: 0,
        first_content: Some(Instant::now()),
    })
}

/// A route that is made for each request looks its metrics up each time.
#[test]
fn upstream_route_of_each_endpoint_is_made_once() {
    let setup = setup();
    let active = &setup.ctx.active;
    let model = active.snapshot.routes.model("m").unwrap();
    for endpoint in [
        Endpoint::Chat,
        Endpoint::Messages,
        Endpoint::Responses,
        Endpoint::Embeddings,
        Endpoint::Converse { model: "m".to_owned(), stream: false },
        Endpoint::Invoke { model: "m".to_owned(), stream: false },
    ] {
        let route = || active.upstream_route(&setup.metrics, endpoint.label(), model, 0, Api::Chat).unwrap();
        assert!(Arc::ptr_eq(&route(), &route()), "{}", endpoint.label());
    }
}

#[test]
fn phase_knows_more_of_a_request_with_each_step() {
    let mut setup = setup();
    assert!(setup.ctx.endpoint().is_none());
    setup.ctx.phase.receive(Endpoint::ImageEdits);
    setup.ctx.phase.set_image_shape(Some(ImageReplyShape::Plain));
    assert_eq!(setup.ctx.endpoint(), Some(&Endpoint::ImageEdits));
    assert!(setup.ctx.key().is_none());
    let key = setup.key();
    setup.ctx.phase.authenticate(key);
    assert_eq!(setup.ctx.key().map(|key| &*key.name), Some("alice"));
    assert_eq!(setup.ctx.phase.image_shape(), Some(ImageReplyShape::Plain), "it is kept");
    assert!(setup.ctx.attempt().is_none());
    let routed = setup.routed();
    setup.ctx.phase.ask(routed);
    assert_eq!(setup.ctx.target().map(|target| &*target.model), Some("m-1"));
    assert!(setup.ctx.response_in_progress().is_none());
    setup.ctx.phase.answer(stream());
    assert!(setup.ctx.response_in_progress().is_some());
    assert_eq!(setup.ctx.endpoint(), Some(&Endpoint::ImageEdits), "nothing is lost on the way");
    assert!(setup.ctx.key().is_some() && setup.ctx.attempt().is_some());
}

#[test]
fn phase_transition_out_of_order_has_no_effect() {
    let mut setup = setup();
    let (key, routed) = (setup.key(), setup.routed());
    setup.ctx.phase.authenticate(key);
    setup.ctx.phase.ask(routed);
    setup.ctx.phase.answer(stream());
    assert!(matches!(setup.ctx.phase, Phase::Head));
    let mut setup = setup.asking();
    setup.ctx.phase.receive(Endpoint::Models);
    assert_eq!(setup.ctx.endpoint(), Some(&Endpoint::Chat));
    setup.ctx.phase.suspend(|_| unreachable!("there is no stream"));
    assert!(matches!(setup.ctx.phase, Phase::Asking(_)));
}

#[test]
fn phase_keeps_a_broken_stream_over_failures_of_targets_that_should_continue_it() {
    let Setup { mut ctx, .. } = setup().asking();
    ctx.phase.answer(stream());
    ctx.phase.suspend(suspended);
    assert!(matches!(ctx.phase, Phase::Asking(_)) && ctx.phase.suspended().is_some());
    let waiting = ctx.phase.take_suspended();
    ctx.phase.answer(refusal(waiting));
    assert!(ctx.response_in_progress().is_none() && ctx.phase.suspended().is_some());
    ctx.phase.ask_again();
    assert!(matches!(ctx.phase, Phase::Asking(_)) && ctx.phase.suspended().is_some());
    ctx.restore_suspended();
    assert!(ctx.response_in_progress().is_some() && ctx.phase.suspended().is_none());
    assert_eq!(ctx.record.detail.as_deref(), Some("cut"));
}

#[test]
fn phase_drops_a_response_that_was_not_forwarded_before_the_next_attempt() {
    let Setup { mut ctx, .. } = setup().asking();
    for response in [stream(), refusal(None)] {
        ctx.phase.answer(response);
        ctx.phase.ask_again();
        assert!(matches!(ctx.phase, Phase::Asking(_)) && ctx.phase.suspended().is_none());
        assert!(ctx.attempt().is_some(), "the failed attempt is there for the log");
    }
}

#[test]
fn settlement_is_recorded_once_whatever_follows() {
    let mut setup = setup().asking();
    setup.ctx.phase.answer(stream());
    setup.ctx.record.status = 200;
    for completion in [Completion::Complete, Completion::Incomplete] {
        let _ = setup.ctx.settle(completion);
    }
    assert!(setup.ctx.charged().is_some());
    let Setup { ledger, ctx, .. } = setup;
    drop(ctx);
    assert_eq!(ledger.0.lock().len(), 1);
}

#[test]
fn settlement_of_a_synthesized_response_charges_its_usage() {
    let mut setup = setup().asking();
    let usage = Usage { input: Some(3), output: Some(0), ..Usage::default() };
    setup.ctx.record.request_bytes = 1_000;
    let made = SynthesizedResponse { usage, products: Vec::new(), counted: false };
    let _ = setup.ctx.settle(Completion::Synthesized(&made));
    assert_eq!(setup.records(), [(200, Some(3))]);
}

#[test]
fn settlement_of_a_dropped_request_has_status_499_before_a_response() {
    for (status, early, recorded) in [(0, false, 499), (200, true, 499), (200, false, 200)] {
        let mut setup = setup().asking();
        setup.ctx.record.status = status;
        setup.ctx.record.early_head_only = early;
        let Setup { ledger, ctx, .. } = setup;
        drop(ctx);
        assert_eq!(*ledger.0.lock(), [(recorded, None)], "{status} {early}");
    }
}

#[test]
fn settlement_of_a_free_request_or_one_with_a_task_records_nothing() {
    let mut setup = setup();
    setup.ctx.phase.receive(Endpoint::Models);
    let _ = setup.ctx.settle(Completion::Incomplete);
    let mut setup = setup.asking();
    setup.ctx.transfer_to_task(7);
    let _ = setup.ctx.settle(Completion::Complete);
    assert!(setup.ctx.charged().is_none());
    let Setup { ledger, ctx, .. } = setup;
    drop(ctx);
    assert_eq!(*ledger.0.lock(), []);
}
