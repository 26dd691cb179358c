//! Citations of documents and search results of the request.

use serde_json::json;

use super::*;
use crate::canonical::{LocationUnit, SourceLocation};
use crate::wire::converse::answer::{decode, encode};

/// Returns a citation of each kind that has a location, with its unit.
fn located() -> [(LocationUnit, Value); 4] {
    let document = |name: &str| {
        json!({"title": "T \"1\"", "sourceContent": [{"text": "q\n"}],
            "location": {name: {"documentIndex": 2, "start": 3, "end": 7}}})
    };
    [
        (LocationUnit::Characters, document("documentChar")),
        (LocationUnit::Pages, document("documentPage")),
        (LocationUnit::DocumentBlocks, document("documentChunk")),
        (
            LocationUnit::SearchResultBlocks,
            json!({"source": "kb/1", "sourceContent": [{"text": "q"}],
                "location": {"searchResultLocation": {"searchResultIndex": 2, "start": 3, "end": 7}}}),
        ),
    ]
}

/// Decodes a whole response whose text has this citation, and encodes it again.
fn whole(citation: &Value) -> (Answer, Value) {
    let body = json!({"output": {"message": {"role": "assistant", "content": [
        {"citationsContent": {"content": [{"text": "cited"}], "citations": [citation]}}]}},
        "stopReason": "end_turn", "usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}});
    let mut answer = Answer::default();
    decode(&body.to_string(), "req_1", &mut |event| answer.take(&event)).unwrap();
    let mut out = BytesMut::new();
    encode(&answer, &reply(), &mut out);
    (answer, serde_json::from_slice(&out).unwrap())
}

#[test]
fn mapping_9_citation_of_a_document_keeps_its_location() {
    for (unit, citation) in located() {
        let (answer, body) = whole(&citation);
        let location = SourceLocation { unit, index: 2, start: 3, end: 7 };
        assert_eq!(answer.blocks[0].citations[0].location, Some(location), "{citation}");
        let cited = &body["output"]["message"]["content"][0]["citationsContent"];
        assert_eq!(cited, &json!({"content": [{"text": "cited"}], "citations": [citation]}));
        // The same in a stream.
        let cited = json!({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"citation": citation}}});
        let mut events = Vec::new();
        let (mut decoder, mut encoder) = (Decoder::new("req_1"), Encoder::new(Arc::new(reply())));
        let mut out = BytesMut::new();
        for frame in [
            r#"{"messageStart":{"role":"assistant"}}"#,
            r#"{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"text":"cited"}}}"#,
            &cited.to_string(),
            r#"{"contentBlockStop":{"contentBlockIndex":0}}"#,
            r#"{"messageStop":{"stopReason":"end_turn"}}"#,
            r#"{"metadata":{"usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3}}}"#,
        ] {
            decoder.frame(frame, &mut |event| encoder.event(&event, &mut out)).unwrap();
        }
        decoder.finish(&mut |event| encoder.event(&event, &mut out)).unwrap();
        events.extend(messages(&out).into_iter().map(|(_, payload)| payload["delta"]["citation"].clone()));
        events.retain(|found| !found.is_null());
        assert_eq!(events, [citation]);
    }
}

#[test]
fn location_that_is_incomplete_or_unknown_is_left_out() {
    for location in [
        json!({"documentChar": {"documentIndex": 0, "start": 1}}),
        json!({"documentPage": {"documentIndex": 0, "start": 1, "end": "2"}}),
        json!({"newKind": {"documentIndex": 0, "start": 1, "end": 2}}),
        json!({}),
    ] {
        let (answer, body) = whole(&json!({"title": "T", "location": location}));
        assert_eq!(answer.blocks[0].citations[0].location, None, "{location}");
        let cited = &body["output"]["message"]["content"][0]["citationsContent"];
        assert_eq!(cited, &json!({"content": [{"text": "cited"}], "citations": [{"title": "T"}]}));
    }
}
