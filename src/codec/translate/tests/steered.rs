//! Responses that were steered: several responses in one stream.

use bytes::Bytes;

use crate::tokens::TokenizerFamily;
use crate::translate::Verbatim;
use crate::translate::verbatim::{Arrival, Changes};
use crate::wire::Api;
use crate::wire::watch::StreamEnd;

fn event(kind: &str, id: &str, rest: &str) -> String {
    format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"response\":{{\"id\":\"{id}\"{rest}}}}}\n\n")
}

fn usage(input: u64, cached: u64, output: u64) -> String {
    format!(
        ",\"usage\":{{\"input_tokens\":{input},\"input_tokens_details\":{{\"cached_tokens\":{cached}}},\"output_tokens\":{output}}}"
    )
}

fn fed(stream: &str) -> Verbatim {
    let mut verbatim = Verbatim::new(Api::Responses, Arrival::Events, Changes::default(), 1 << 20);
    for piece in stream.as_bytes().chunks(7) {
        verbatim.feed(Bytes::copy_from_slice(piece)).unwrap();
    }
    verbatim
}

#[test]
fn steered_responses_are_charged_together() {
    let stream = [
        event("response.created", "resp_1", ""),
        event("response.incomplete", "resp_1", &usage(100, 40, 7)),
        event("response.created", "resp_2", ""),
        event("response.incomplete", "resp_2", &usage(200, 90, 5)),
        event("response.created", "resp_3", ""),
        event("response.completed", "resp_3", &usage(300, 180, 3)),
    ]
    .concat();
    let mut verbatim = fed(&stream);
    verbatim.finish().unwrap();
    let meter = verbatim.meter();
    assert_eq!(
        (meter.usage().input, meter.usage().cached, meter.usage().output),
        (Some(600), Some(310), Some(15))
    );
    assert_eq!((meter.end(), meter.steered(), meter.is_counted()), (StreamEnd::Terminated, 2, false));
    // The request is known by its first response.
    assert_eq!(meter.id(), "resp_1");
}

#[test]
fn steered_response_whose_successor_is_cut_is_charged_with_its_input() {
    let stream = [
        event("response.created", "resp_1", ""),
        event("response.incomplete", "resp_1", &usage(100, 40, 7)),
        event("response.created", "resp_2", ""),
    ]
    .concat();
    let mut verbatim = fed(&stream);
    verbatim.meter_mut().expect(TokenizerFamily::OpenAi, 90);
    assert_eq!(verbatim.meter().end(), StreamEnd::Open);
    verbatim.meter_mut().count_cut(true);
    let meter = verbatim.meter();
    assert_eq!(meter.usage().input, Some(190));
    assert!(meter.usage().output >= Some(7) && meter.is_counted(), "{:?}", meter.usage());
}

#[test]
fn response_that_begins_once_is_no_successor() {
    let stream = [
        event("response.created", "resp_1", ""),
        event("response.created", "resp_1", ""),
        event("response.completed", "resp_1", &usage(100, 40, 7)),
    ]
    .concat();
    let verbatim = fed(&stream);
    assert_eq!((verbatim.meter().steered(), verbatim.meter().usage().input), (0, Some(100)));
}
