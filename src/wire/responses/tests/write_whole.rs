//! Whole answers, as clients of this format read them.

use super::*;
use crate::canonical::answer::FinishOwned;

/// The answer that these events are, and the whole response that is written of it.
fn whole(reply: &ReplyOptions, events: &[Event<'_>]) -> Value {
    let mut answer = Answer::default();
    events.iter().for_each(|event| answer.take(event));
    let mut out = BytesMut::new();
    answer::encode(&answer, reply, &mut out);
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn bug_27_a_whole_answer_is_what_the_stream_ends_with() {
    let events = [
        start(),
        begin(0, BlockKind::Reasoning),
        text(0, "Hmm."),
        add(0, Delta::Seal(s("seal-0"))),
        stop(0),
        begin(1, BlockKind::Text),
        text(1, "Hi"),
        add(1, Delta::Seal(s("seal-1"))),
        stop(1),
        begin(2, tool("call_1", "f")),
        add(2, Delta::Seal(s("seal-2"))),
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
fn ends_and_errors_are_those_of_streams() {
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
    // Made ids and times, where the provider gave none.
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
fn what_is_repeated_of_a_request_is_in_the_sdks_shape() {
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
