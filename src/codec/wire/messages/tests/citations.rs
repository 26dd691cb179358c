//! Citations of documents and search results of the request.

use bytes::BytesMut;
use serde_json::{Value, json};

use super::client::Heard;
use super::reply;
use crate::canonical::{Answer, LocationUnit, SourceLocation};
use crate::wire::messages::answer::{decode, encode};

const STOP: &str = r#"{"type":"message_stop"}"#;

/// Returns a citation of each kind that has a location, with its unit.
fn located() -> [(LocationUnit, Value); 4] {
    let document = |kind: &str, start: &str, end: &str, title: Value| json!({"type": kind, "cited_text": "q\n", "document_index": 2, "document_title": title, start: 3, end: 7});
    [
        (
            LocationUnit::Characters,
            document("char_location", "start_char_index", "end_char_index", json!("T \"1\"")),
        ),
        (LocationUnit::Pages, document("page_location", "start_page_number", "end_page_number", json!("T"))),
        (
            LocationUnit::DocumentBlocks,
            document("content_block_location", "start_block_index", "end_block_index", Value::Null),
        ),
        (
            LocationUnit::SearchResultBlocks,
            json!({"type": "search_result_location", "cited_text": "q", "source": "kb/1", "title": null,
                "search_result_index": 2, "start_block_index": 3, "end_block_index": 7}),
        ),
    ]
}

/// Decodes a whole message whose text has this citation, and encodes it again.
fn whole(citation: &Value) -> (Answer, Value) {
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "cited", "citations": [citation]}],
        "stop_reason": "end_turn", "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1}});
    let mut answer = Answer::default();
    decode(&body.to_string(), "req_1", &mut |event| answer.take(&event)).unwrap();
    let mut out = BytesMut::new();
    encode(&answer, &reply(), &mut out);
    (answer, serde_json::from_slice(&out).unwrap())
}

/// Decodes a stream whose text has this citation, and encodes it again.
fn streamed(citation: &Value) -> Value {
    let delta = json!({"type": "content_block_delta", "index": 0,
        "delta": {"type": "citations_delta", "citation": citation}});
    let out = super::rewrite(&[
        r#"{"type":"message_start","message":{"id":"msg_1","model":"m","usage":{"input_tokens":1,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"cited"}}"#,
        &delta.to_string(),
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}"#,
        STOP,
    ]);
    Heard::to(&out).message
}

#[test]
fn mapping_9_citation_of_a_document_keeps_its_location() {
    for (unit, citation) in located() {
        let (answer, message) = whole(&citation);
        let location = SourceLocation { unit, index: 2, start: 3, end: 7 };
        assert_eq!(answer.blocks[0].citations[0].location, Some(location), "{citation}");
        assert_eq!(message["content"][0]["citations"], json!([citation]));
        assert_eq!(streamed(&citation)["content"][0]["citations"], json!([citation]));
    }
}

#[test]
fn citation_with_an_incomplete_location_is_left_out_and_its_text_stays() {
    for (_, mut citation) in located() {
        let number =
            citation.as_object().unwrap().keys().find(|name| name.starts_with("end_")).unwrap().clone();
        citation[number] = json!(-1);
        for message in [whole(&citation).1, streamed(&citation)] {
            assert_eq!(message["content"], json!([{"type": "text", "text": "cited"}]));
        }
    }
}
