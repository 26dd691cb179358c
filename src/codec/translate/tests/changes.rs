//! Edits to a verbatim response: the model name, and the usage chunk that the client did not request.

use bytes::Bytes;

use super::streams::{self, Style};
use super::{pass, pass_changed, pieces};
use crate::canonical::ProviderSignature;
use crate::translate::Verbatim;
use crate::translate::verbatim::{Arrival, Changes, StreamError};
use crate::wire::Api;
use json::{EscapedString, JsonStr};

/// A name that needs escapes and is longer than the provider's.
const NAME: &str = "our \"own\" modèl";
const ESCAPED: &str = r#"our \"own\" modèl"#;

fn rename() -> Changes {
    Changes { model: Some(EscapedString::from(NAME)), ..Changes::default() }
}

fn drop_usage() -> Changes {
    Changes { drop_usage: true, ..Changes::default() }
}

fn renamed(text: &str) -> String {
    text.replace("\"m-1\"", &format!("\"{ESCAPED}\""))
}

#[test]
fn rename_changes_only_the_model_in_every_frame() {
    for style in Style::all() {
        for answer in streams::all(style) {
            let plain = pass(answer.api, answer.arrival, [answer.text.as_bytes()]);
            for sizes in [&[1][..], &[7], &[100, 3], &[usize::MAX]] {
                let passed =
                    pass_changed(answer.api, answer.arrival, rename(), pieces(answer.text.as_bytes(), sizes));
                assert_eq!(passed.result, Ok(()));
                assert_eq!(passed.text(), renamed(&answer.text), "{answer:?}");
                assert_eq!(passed.notes, plain.notes);
            }
        }
    }
}

#[test]
fn rename_is_the_same_at_every_split() {
    for answer in streams::all(Style { end: "\r\n", noise: true, ..Style::PLAIN }) {
        let expected = renamed(&answer.text);
        for cut in 1..answer.text.len() {
            let (first, second) = answer.text.as_bytes().split_at(cut);
            let passed = pass_changed(answer.api, answer.arrival, rename(), [first, second]);
            assert_eq!(passed.text(), expected, "cut at {cut} of {answer:?}");
        }
    }
}

#[test]
fn rename_works_in_data_of_several_lines() {
    let stream = "\u{feff}: first\nid: 1\r\ndata: {\"model\":\ndata:\"m-1\",\"choices\":[],\r\nevent: x\ndata: \"id\":\"i\"}\n\ndata: [DONE]\n\n";
    let expected = "\u{feff}: first\nid: 1\r\ndata: {\"model\":\ndata: \"NEW\",\"choices\":[],\ndata: \"id\":\"i\"}\nevent: x\n\ndata: [DONE]\n\n";
    let passed = pass_changed(Api::Chat, Arrival::Events, rename(), [stream.as_bytes()]);
    assert_eq!(passed.text(), expected.replace("NEW", ESCAPED));
    for cut in 1..stream.len() {
        let (first, second) = stream.as_bytes().split_at(cut);
        let split = pass_changed(Api::Chat, Arrival::Events, rename(), [first, second]);
        assert_eq!(split.text(), passed.text(), "{cut}");
    }
}

#[test]
fn rename_ignores_a_model_that_is_not_a_string() {
    let stream =
        "data: {\"model\":null}\n\ndata: {\"id\":\"x\"}\n\ndata: {\"model\":[\"m-1\"]}\n\ndata: [DONE]\n\n";
    let passed = pass_changed(Api::Chat, Arrival::Events, rename(), [stream.as_bytes()]);
    assert_eq!((passed.result.clone(), passed.text()), (Ok(()), stream));
}

/// The usage chunk reaches only clients that requested it.
#[test]
fn bug_36_usage_chunk_is_removed_and_still_counted() {
    for style in Style::all() {
        let answer = streams::chat(style);
        let plain = pass(answer.api, answer.arrival, [answer.text.as_bytes()]);
        for size in 1..90 {
            let passed = pass_changed(
                answer.api,
                answer.arrival,
                drop_usage(),
                pieces(answer.text.as_bytes(), &[size]),
            );
            assert_eq!(passed.result, Ok(()));
            assert_eq!(passed.notes, plain.notes);
            assert!(!passed.text().contains("prompt_tokens"), "{}", passed.text());
            assert_eq!(passed.text().matches("\"m-1\"").count(), answer.text.matches("\"m-1\"").count() - 1);
            assert!(passed.text().contains("[DONE]"));
        }
    }
}

#[test]
fn usage_chunk_is_removed_completely_at_every_split() {
    for end in ["\n", "\r\n", "\r"] {
        let answer = streams::chat(Style { end, ..Style::PLAIN });
        let whole = pass_changed(answer.api, answer.arrival, drop_usage(), [answer.text.as_bytes()]);
        for cut in answer.text.find("prompt_tokens").unwrap()..answer.text.len() {
            let (first, second) = answer.text.as_bytes().split_at(cut);
            let passed = pass_changed(answer.api, answer.arrival, drop_usage(), [first, second]);
            assert_eq!(passed.text(), whole.text(), "{end:?}, cut at {cut}");
        }
    }
}

#[test]
fn usage_in_a_chunk_with_choices_is_not_removed() {
    let stream = "data: {\"choices\":[{\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n";
    let passed = pass_changed(Api::Chat, Arrival::Events, drop_usage(), [stream.as_bytes()]);
    assert_eq!(passed.text(), stream);
}

#[test]
fn rename_and_usage_removal_work_together() {
    let answer = streams::chat(Style::PLAIN);
    let changes = Changes { drop_usage: true, ..rename() };
    let passed = pass_changed(answer.api, answer.arrival, changes, pieces(answer.text.as_bytes(), &[50]));
    let usage = answer.text.find("data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"model\":\"m-1\",\"choices\":[],").unwrap();
    let expected = renamed(&answer.text[..usage]) + "data: [DONE]\n\n";
    assert_eq!(passed.text(), expected);
}

fn whole(api: Api, changes: Changes, body: &'static str) -> (Result<Bytes, StreamError>, Verbatim) {
    let mut verbatim = Verbatim::new(api, Arrival::Whole, changes, 1000);
    let result = verbatim.whole(Bytes::from_static(body.as_bytes()));
    (result, verbatim)
}

#[test]
fn whole_response_passes_with_the_model_renamed() {
    for (api, body) in [
        (
            Api::Chat,
            "{ \"model\" : \"m-1\", \"id\":\"i\", \"choices\":[{\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1}}\n",
        ),
        (
            Api::Messages,
            "{\"type\":\"message\",\"id\":\"i\",\"model\":\"m-1\",\"stop_reason\":\"stop\",\"usage\":{\"input_tokens\":1}}",
        ),
        (
            Api::Responses,
            "{\"object\":\"response\",\"id\":\"i\",\"model\":\"m-1\",\"status\":\"stop\",\"usage\":{\"input_tokens\":1}}",
        ),
        (
            Api::Generate,
            "{\"candidates\":[{\"finishReason\":\"stop\"}],\"responseId\":\"i\",\"modelVersion\":\"m-1\",\"usageMetadata\":{\"promptTokenCount\":1}}",
        ),
    ] {
        let (same, _) = whole(api, Changes::default(), body);
        assert_eq!(same.unwrap(), body, "{api}");
        let (changed, verbatim) = whole(api, rename(), body);
        assert_eq!(changed.unwrap(), renamed(body), "{api}");
        let meter = verbatim.meter();
        assert_eq!((meter.id(), meter.finish(), meter.usage().input), ("i", "stop", Some(1)), "{api}");
    }
    let body = "{\"object\":\"list\",\"data\":[{\"embedding\":\"AAAA\"}],\"model\":\"m-1\",\"usage\":{\"total_tokens\":1}}";
    let (changed, verbatim) = whole(Api::Embeddings, rename(), body);
    assert_eq!(changed.unwrap(), renamed(body));
    assert_eq!(verbatim.meter().usage().input, Some(1));
}

#[test]
fn whole_response_invalid_is_distinguished_from_an_error() {
    for body in ["", "null", "<html>", "{\"id\":", "[{}]", "{} trailing"] {
        let (result, _) = whole(Api::Chat, Changes::default(), body);
        assert!(matches!(result, Err(StreamError::Invalid(_))), "{body}: {result:?}");
    }
    let mut verbatim = Verbatim::new(Api::Chat, Arrival::Whole, Changes::default(), 1000);
    let result = verbatim.whole(Bytes::from_static(b"{\"id\":\"\xff\"}"));
    assert_eq!(result, Err(StreamError::Invalid("not UTF-8".to_owned())));
    let body = "{\"error\":{\"message\":\"m\"}}";
    let (result, _) = whole(Api::Chat, Changes::default(), body);
    assert_eq!(result, Err(StreamError::FirstFrame(body.into())));
}

#[test]
fn model_of_a_response_is_recorded_on_demand_and_bounded() {
    let long = "é".repeat(150);
    for (name, recorded) in
        [("m-1", Some("m-1")), ("org\\/m", Some("org/m")), ("", None), (&long, Some(&long[..200]))]
    {
        let body =
            Bytes::from(format!("{{\"model\":\"{name}\",\"choices\":[{{\"finish_reason\":\"stop\"}}]}}"));
        for wanted in [false, true] {
            let mut verbatim = Verbatim::new(Api::Chat, Arrival::Whole, rename(), 1000);
            if wanted {
                verbatim.meter_mut().record_model();
            }
            verbatim.whole(body.clone()).unwrap();
            assert_eq!(verbatim.meter().model(), recorded.filter(|_| wanted), "{name}");
        }
    }
}

/// Returns what the envelopes of this issuer in a response hold, and the response with the bare signatures.
fn opened(text: &str, issuer: &str) -> (String, Vec<String>) {
    let (mut out, mut found, mut rest) = (String::new(), Vec::new(), text);
    while let Some(at) = rest.find("gw1.") {
        let end = at + rest[at..].find('"').unwrap();
        let seal = ProviderSignature::read(JsonStr::from_escaped(&rest[at..end])).unwrap();
        let own = seal.for_issuer(issuer).unwrap().escaped().to_owned();
        out.push_str(&rest[..at]);
        out.push_str(&own);
        found.push(own);
        rest = &rest[end..];
    }
    (out + rest, found)
}

#[test]
fn own_envelopes_stand_around_the_signatures_of_a_verbatim_response_only() {
    let changes =
        || Changes { issuer: Some("deepseek".into()), model: Some("n".into()), ..Changes::default() };
    let event = |data: &str| format!("event: x\ndata: {data}\n\n");
    let stream = [
        r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m-1","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"the \"signature\":\"x\""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"0199-ab\n+/="}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"D="}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"a \"signature_delta\""}}"#,
        r#"{"type":"content_block_stop","index":2}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}"#,
        r#"{"type":"message_stop"}"#,
    ]
    .map(event)
    .concat();
    let whole = r#"{"id":"m","type":"message","role":"assistant","model":"m-1","content":[{"type":"thinking","thinking":"t","signature":"0199-ab\n+/="},{"type":"redacted_thinking","data":"D="},{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":5}}"#;
    let named = |text: &str| text.replace("\"m-1\"", "\"n\"");
    let signatures = vec!["0199-ab\\n+/=".to_owned(), "D=".to_owned()];
    for cut in 1..stream.len() {
        let (first, second) = stream.as_bytes().split_at(cut);
        let passed = pass_changed(Api::Messages, Arrival::Events, changes(), [first, second]);
        assert_eq!(passed.result, Ok(()));
        assert_eq!(opened(passed.text(), "deepseek"), (named(&stream), signatures.clone()), "{cut}");
    }
    let passed = Verbatim::new(Api::Messages, Arrival::Whole, changes(), 1 << 20)
        .whole(Bytes::from_static(whole.as_bytes()))
        .unwrap();
    assert_eq!(opened(std::str::from_utf8(&passed).unwrap(), "deepseek"), (named(whole), signatures));
    // Claude's signatures pass as they are.
    let passed = pass_changed(Api::Messages, Arrival::Events, rename(), [stream.as_bytes()]);
    assert_eq!(passed.text(), renamed(&stream));
}
