//! Tests of the encoder of whole responses.

use super::*;
use crate::canonical::answer::FinishOwned;

/// Collects the events and encodes them as a whole response.
fn whole(reply: &ReplyOptions, events: &[Event<'_>]) -> Value {
    let mut answer = Answer::default();
    events.iter().for_each(|event| answer.take(event));
    let mut out = BytesMut::new();
    answer::encode(&answer, reply, &mut out);
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn bug_27_whole_response_equals_the_end_of_the_stream() {
    let events = [
        start(),
        begin(0, BlockKind::Reasoning),
        text(0, "Hmm."),
        add(0, Delta::Signature(s("seal-0"))),
        stop(0),
        begin(1, BlockKind::Text),
        text(1, "Hi"),
        add(1, Delta::Signature(s("seal-1"))),
        stop(1),
        begin(2, tool("call_1", "f")),
        add(2, Delta::Signature(s("seal-2"))),
        add(2, Delta::Arguments(s("{\\\"a\\\":1}"))),
        stop(2),
        used(3, 2),
        finish(Finish::ToolUse),
        Event::End,
    ];
    let streamed = write(reply(), &events).last()["response"].clone();
    assert_eq!(whole(&reply(), &events), streamed);
    assert_eq!(streamed["output"].as_array().unwrap().len(), 4);
}

#[test]
fn whole_response_has_the_status_and_error_of_streams() {
    let response = whole(&reply(), &said("Hi", Finish::Length));
    assert_eq!(
        (&response["status"], &response["incomplete_details"]["reason"]),
        (&"incomplete".into(), &"max_output_tokens".into())
    );
    let mut answer = Answer { error: Some(r#"{"message":"boom"}"#.into()), ..Answer::default() };
    let mut out = BytesMut::new();
    answer::encode(&answer, &reply(), &mut out);
    let response: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!((&response["status"], &response["error"]["message"]), (&"failed".into(), &"boom".into()));
    // Generated id and time, because the provider gave none.
    assert!(response["id"].as_str().unwrap().starts_with("resp_"));
    assert_eq!(response["created_at"], 1_700_000_000);

    answer.error = None;
    answer.finishes = vec![(0, FinishOwned::ContentFilter)];
    let mut out = BytesMut::new();
    answer::encode(&answer, &reply(), &mut out);
    let response: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(response["incomplete_details"]["reason"], "content_filter");
}

#[test]
fn echo_of_the_request_has_the_shape_of_the_sdks() {
    let echo = answer::echo(
        r#"{"model":"m","input":"Hi","temperature":0.5,"user":null,"stream":true,
            "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},{"type":"web_search"},{"type":"function","name":"g","strict":true,"parameters":null}],
            "tool_choice":{"type":"function","function":{"name":"f"}},"metadata":{"k":"v"}}"#,
    )
    .unwrap();
    let value: Value = serde_json::from_str(&format!("{{{echo}}}")).unwrap();
    assert_eq!(
        value,
        serde_json::json!({
            "temperature": 0.5,
            "tools": [
                {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": false},
                {"type": "web_search"},
                {"type": "function", "name": "g", "parameters": null, "strict": true},
            ],
            "tool_choice": {"type": "function", "name": "f"},
            "metadata": {"k": "v"},
        })
    );
    assert_eq!(answer::echo("{}").unwrap(), "");
    assert!(answer::echo("[").is_err());
}
