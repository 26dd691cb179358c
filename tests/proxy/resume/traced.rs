//! Trace of a stream that breaks off and is continued.

use serde_json::json;

use super::providers::{Break, breaking, going_on};
use super::{ON, able, asking, gateway_with, hear, whole};
use crate::support::Gate;
use crate::support::collector::{Collector, attribute};
use crate::support::form::Form;

#[tokio::test]
async fn traced_continuation_links_to_the_attempt_that_broke_off() {
    let collector = Collector::start().await;
    let gate = Gate::new();
    let first = breaking(Form::Chat, 3, Break::Cut, &gate).await;
    let second = going_on(Form::Chat, false).await;
    let targets = [able(Form::Chat, &first), able(Form::Chat, &second)];
    // Nothing but its fate selects this trace.
    let lines = collector.lines() + "sample = 0\nslow = \"off\"\n";
    let gateway = gateway_with(&targets, ON, &lines).await;
    let answer = hear(&gateway, asking(Form::Chat, json!({})), "Köln", &gate).await;
    whole(Form::Chat, &answer, "traced");

    let spans = collector.wait_for_spans(3).await;
    let [server, broken, last] = &spans[..] else { panic!("{spans:#?}") };
    assert_eq!(attribute(&broken.attributes, "error.type").as_deref(), Some("upstream_broken"));
    assert_eq!(last.links.len(), 1);
    assert_eq!((&last.links[0].trace_id, &last.links[0].span_id), (&server.trace_id, &broken.span_id));
    let names: Vec<&str> = server.events.iter().map(|event| event.name.as_str()).collect();
    assert!(names.contains(&"gateway.hold.released"), "{names:?}");
    let continued = server.events.iter().find(|event| event.name == "gateway.continued").unwrap();
    assert_eq!(attribute(&continued.attributes, "gateway.outcome").as_deref(), Some("asked"));
    assert_eq!(server.status, None, "the client has a complete stream");
    let reasons = attribute(&last.attributes, "gen_ai.response.finish_reasons").unwrap();
    assert!(reasons.contains("stop"), "{reasons}");
}
