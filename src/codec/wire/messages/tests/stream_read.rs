//! Tests of the stream decoder.

use super::super::stream::Decoder;
use super::{read, read_each};
use crate::canonical::answer::{AnswerBlockKind, CitationOwned, FinishOwned};
use crate::canonical::{Answer, Event, ToolKind};
use crate::wire::codec::CutText;

const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":1}}}"#;
const TEXT: &str = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
const STOP_0: &str = r#"{"type":"content_block_stop","index":0}"#;
const END: &str = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":5}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

fn text(text: &str) -> String {
    format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{text}"}}}}"#)
}

/// Returns a response of one block, given by its start and its deltas.
fn of_block(start: &str, deltas: &[&str]) -> Answer {
    let start = format!(r#"{{"type":"content_block_start","index":0,"content_block":{start}}}"#);
    let deltas: Vec<String> = deltas
        .iter()
        .map(|delta| format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#))
        .collect();
    let mut frames = vec![START, start.as_str()];
    frames.extend(deltas.iter().map(String::as_str));
    frames.extend([STOP_0, END, STOP]);
    read(&frames)
}

#[test]
fn stream_of_text_is_decoded() {
    let answer = read(&[START, TEXT, &text("Hel"), &text("lo\\n"), STOP_0, END, STOP]);
    assert_eq!((answer.id.as_str(), answer.model.as_str()), ("msg_1", "m"));
    assert_eq!(answer.blocks.len(), 1);
    assert_eq!(
        (&answer.blocks[0].kind, answer.blocks[0].text.as_str()),
        (&AnswerBlockKind::Text, "Hello\\n")
    );
    assert_eq!(answer.finishes, [(0, FinishOwned::Stop)]);
    assert!(answer.complete);
}

#[test]
fn stream_members_may_stand_in_any_order() {
    let answer = read(&[
        r#"{"message":{"usage":{"output_tokens":1,"input_tokens":3},"model":"m","id":"msg_1"},"type":"message_start"}"#,
        r#"{"content_block":{"text":"","type":"text"},"index":0,"type":"content_block_start"}"#,
        r#"{"delta":{"text":"a","type":"text_delta"},"index":0,"type":"content_block_delta"}"#,
        r#"{"type":"content_block_delta","delta":{"text":"b","type":"text_delta"},"index":0}"#,
        r#"{"index":0,"type":"content_block_stop"}"#,
        r#"{"usage":{"output_tokens":2},"delta":{"stop_sequence":"X","stop_reason":"stop_sequence"},"type":"message_delta"}"#,
        r#"{"type":"message_stop"}"#,
    ]);
    assert_eq!(answer.blocks[0].text, "ab");
    assert_eq!(answer.finishes[0].1, FinishOwned::StopSequence(Some("X".into())));
    assert_eq!((answer.usage.input, answer.usage.output), (Some(3), Some(2)));
}

#[test]
fn fact_18_pings_may_stand_anywhere() {
    const PING: &str = r#"{"type": "ping"}"#;
    let mut pings = 0;
    let mut answer = Answer::default();
    let frames = [START, PING, TEXT, PING, &text("a"), PING, &text("b"), STOP_0, PING, END, STOP];
    read_each(&frames, |event| {
        pings += u32::from(*event == Event::Ping);
        answer.take(event);
    })
    .unwrap();
    assert_eq!((pings, answer.blocks[0].text.as_str()), (4, "ab"));
}

#[test]
fn fact_19_usage_reported_later_overwrites() {
    let answer = read(&[
        r#"{"type":"message_start","message":{"usage":{"input_tokens":10,"cache_read_input_tokens":100,"cache_creation_input_tokens":7,"output_tokens":3}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":25,"output_tokens":40}}"#,
        STOP,
    ]);
    // Counts that the later report omits are kept: 25 + 100 + 7.
    assert_eq!(answer.usage.input, Some(132));
    assert_eq!((answer.usage.cached, answer.usage.cache_write), (Some(100), Some(7)));
    assert_eq!(answer.usage.output, Some(40));
}

#[test]
fn usage_closing_zero_does_not_erase_the_input() {
    let answer = read(&[
        r#"{"type":"message_start","message":{"usage":{"input_tokens":0,"output_tokens":0}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":12,"output_tokens":4}}"#,
        r#"{"type":"message_delta","delta":{},"usage":{"input_tokens":0,"output_tokens":5}}"#,
        STOP,
    ]);
    assert_eq!((answer.usage.input, answer.usage.output), (Some(12), Some(5)));
    assert_eq!(answer.finishes[0].1, FinishOwned::Stop);
}

#[test]
fn bug_41_and_43_usage_cache_parts_count_as_input() {
    let answer = read(&[
        r#"{"type":"message_start","message":{"usage":{"input_tokens":3,"cache_read_input_tokens":0,"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},"output_tokens":1}}}"#,
        END,
        STOP,
    ]);
    assert_eq!((answer.usage.cache_write, answer.usage.cache_write_1h), (Some(10), Some(20)));
    assert_eq!((answer.usage.input, answer.usage.cached), (Some(33), Some(0)));

    let later_zero = read(&[
        r#"{"type":"message_start","message":{"usage":{"input_tokens":3,"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20}}}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"cache_creation_input_tokens":0,"output_tokens":5}}"#,
        STOP,
    ]);
    assert_eq!(later_zero.usage.input, Some(3));
    assert_eq!(later_zero.usage.cache_write, Some(0));
}

#[test]
fn bug_38_usage_that_is_not_reported_is_none() {
    let answer = read(&[START, END, STOP]);
    assert_eq!((answer.usage.cached, answer.usage.reasoning, answer.usage.searches), (None, None, None));
}

#[test]
fn fact_20_tool_call_without_arguments_is_decoded_as_empty() {
    let start = r#"{"type":"tool_use","id":"toolu_1","name":"now","input":{},"caller":{"type":"direct"}}"#;
    let answer = of_block(start, &[r#"{"type":"input_json_delta","partial_json":""}"#]);
    let block = &answer.blocks[0];
    assert_eq!((block.text.as_str(), &block.object), ("", &None));
    let kind = AnswerBlockKind::ToolUse {
        id: "toolu_1".into(),
        name: "now".into(),
        kind: ToolKind::Function,
        namespace: String::new(),
    };
    assert_eq!(block.kind, kind);
}

#[test]
fn bug_13_finish_reason_with_a_tool_call_is_tool_use() {
    let start = r#"{"type":"tool_use","id":"toolu_1","name":"f","input":{}}"#;
    let deltas = [
        r#"{"type":"input_json_delta","partial_json":"{\"a\""}"#,
        r#"{"type":"input_json_delta","partial_json":":1}"}"#,
    ];
    let answer = of_block(start, &deltas);
    assert_eq!(answer.blocks[0].text, r#"{\"a\":1}"#);
    assert_eq!(answer.finishes[0].1, FinishOwned::ToolUse);
}

#[test]
fn tool_call_input_given_at_the_start_counts_once() {
    let start = r#"{"type":"tool_use","id":"t","name":"f","input":{"a":1}}"#;
    let answer = of_block(start, &[r#"{"type":"input_json_delta","partial_json":"{\"a\":1}"}"#]);
    assert_eq!(answer.blocks[0].object.as_deref(), Some(r#"{"a":1}"#));
    assert_eq!(answer.blocks[0].text, "");
}

#[test]
fn tool_call_without_an_id_gets_one_and_without_a_name_is_ignored() {
    let answer = of_block(r#"{"type":"tool_use","id":"","name":"f","input":{}}"#, &[]);
    let AnswerBlockKind::ToolUse { id, .. } = &answer.blocks[0].kind else { panic!() };
    assert!(id.starts_with("toolu_") && id.len() == 30, "{id}");
    let again = of_block(r#"{"type":"tool_use","name":"f"}"#, &[]);
    assert_eq!(answer.blocks[0].kind, again.blocks[0].kind);

    let shell = of_block(r#"{"type":"tool_use","id":"t","name":""}"#, &[]);
    assert!(shell.blocks.is_empty());
    assert_eq!(shell.finishes[0].1, FinishOwned::Stop);
}

#[test]
fn fact_22_stop_reason_is_decoded_from_each_word() {
    let reasons = [
        ("end_turn", FinishOwned::Stop),
        ("max_tokens", FinishOwned::Length),
        ("stop_sequence", FinishOwned::StopSequence(None)),
        ("tool_use", FinishOwned::ToolUse),
        ("pause_turn", FinishOwned::Pause),
        ("refusal", FinishOwned::ContentFilter),
        ("model_context_window_exceeded", FinishOwned::ContextFull),
        ("something_new", FinishOwned::Other("something_new".into())),
    ];
    for (reason, finish) in reasons {
        let delta = format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":1}}}}"#
        );
        // A response without blocks is valid.
        let answer = read(&[START, &delta, STOP]);
        assert_eq!(answer.finishes, [(0, finish)], "{reason}");
        assert!(answer.blocks.is_empty());
    }
}

#[test]
fn fact_23_thinking_with_signature_and_redacted_is_decoded() {
    let answer = of_block(
        r#"{"type":"thinking","thinking":"","signature":""}"#,
        &[
            r#"{"type":"thinking_delta","thinking":"Hm","estimated_tokens":3}"#,
            r#"{"type":"thinking_delta","thinking":"m."}"#,
            r#"{"type":"signature_delta","signature":"Eq\/+=="}"#,
        ],
    );
    let block = &answer.blocks[0];
    assert_eq!(
        (&block.kind, block.text.as_str(), block.signature.as_str()),
        (&AnswerBlockKind::Reasoning, "Hmm.", r"Eq\/+==")
    );

    let omitted = of_block(
        r#"{"type":"thinking","thinking":"","signature":""}"#,
        &[r#"{"type":"signature_delta","signature":"Eq"}"#],
    );
    assert_eq!((omitted.blocks[0].text.as_str(), omitted.blocks[0].signature.as_str()), ("", "Eq"));

    let redacted = of_block(r#"{"type":"redacted_thinking","data":"Em=="}"#, &[]);
    assert_eq!(
        (&redacted.blocks[0].kind, redacted.blocks[0].signature.as_str()),
        (&AnswerBlockKind::HiddenReasoning, "Em==")
    );
}

#[test]
fn fact_24_server_tool_blocks_are_kept_with_their_input() {
    let answer = of_block(
        r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}"#,
        &[
            r#"{"type":"input_json_delta","partial_json":""}"#,
            r#"{"type":"input_json_delta","partial_json":"{\"query\": \"wea"}"#,
            r#"{"type":"input_json_delta","partial_json":"ther\"}"}"#,
        ],
    );
    let AnswerBlockKind::Opaque { name, raw } = &answer.blocks[0].kind else { panic!() };
    assert_eq!(name, "server_tool_use");
    assert_eq!(
        raw,
        r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query": "weather"}}"#
    );
    // A search is not a call of the client's tools, but it is counted.
    assert_eq!(answer.finishes[0].1, FinishOwned::Stop);
    assert_eq!(answer.usage.searches, Some(1));

    let compaction = of_block(
        r#"{"type":"compaction","content":null}"#,
        &[r#"{"type":"compaction_delta","content":"x"}"#],
    );
    assert!(
        matches!(&compaction.blocks[0].kind, AnswerBlockKind::Opaque { name, .. } if name == "compaction")
    );
}

#[test]
fn usage_searches_are_those_that_the_provider_reports() {
    let answer = read(&[
        START,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}"#,
        STOP_0,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1,"server_tool_use":{"web_search_requests":3,"web_fetch_requests":0}}}"#,
        STOP,
    ]);
    assert_eq!(answer.usage.searches, Some(3));
}

#[test]
fn mapping_9_citation_spans_the_characters_of_its_block() {
    let delta = |index: u32, text: &str| {
        format!(
            r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"text_delta","text":"{text}"}}}}"#
        )
    };
    let answer = read(&[
        START,
        r#"{"type":"content_block_start","index":0,"content_block":{"citations":null,"type":"text","text":""}}"#,
        // Seven characters: a line end, a surrogate pair and a two-byte letter count as one each.
        &delta(0, r"a\nb\ud83d\ude00\u00fcü."),
        STOP_0,
        r#"{"type":"content_block_start","index":1,"content_block":{"citations":[],"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"citations_delta","citation":{"type":"web_search_result_location","cited_text":"It is so.","url":"https://a.example/","title":"A","encrypted_index":"Eo8"}}}"#,
        &delta(1, "cited"),
        r#"{"type":"content_block_stop","index":1}"#,
        END,
        STOP,
    ]);
    assert!(answer.blocks[0].citations.is_empty());
    let citation = CitationOwned {
        url: "https://a.example/".into(),
        title: "A".into(),
        quote: "It is so.".into(),
        span: Some((7, 12)),
        ..CitationOwned::default()
    };
    assert_eq!(answer.blocks[1].citations, [citation]);
}

#[test]
fn fact_24_unknown_events_and_deltas_are_ignored() {
    let answer = read(&[
        START,
        TEXT,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"novel_delta","text":"x"}}"#,
        r#"{"type":"novel_event","index":0}"#,
        &text("a"),
        STOP_0,
        END,
        STOP,
    ]);
    assert_eq!(answer.blocks[0].text, "a");
}

#[test]
fn fact_25_error_ends_the_stream_with_its_original_text() {
    for frame in [
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":null}"#,
        r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#,
    ] {
        let mut decoder = Decoder::new("s");
        let mut answer = Answer::default();
        decoder.frame(START, &mut |event| answer.take(&event)).unwrap();
        decoder.frame(frame, &mut |event| answer.take(&event)).unwrap();
        assert!(decoder.is_over());
        decoder.frame(&text("late"), &mut |event| panic!("{event:?}")).unwrap();
        assert_eq!(answer.error.as_deref(), Some(r#"{"type":"overloaded_error","message":"Overloaded"}"#));
        assert!(!answer.complete);
        assert_eq!(decoder.finish(&mut |_| {}), Ok(()));
    }
}

#[test]
fn fact_25_response_id_of_another_cloud_is_kept() {
    let answer = read(&[
        r#"{"type":"message_start","message":{"model":"m","id":"msg_vrtx_01","type":"message","usage":{"input_tokens":1,"output_tokens":1}}}"#,
        END,
        STOP,
    ]);
    assert_eq!(answer.id, "msg_vrtx_01");
}

#[test]
fn bug_47_stream_without_message_stop_is_cut() {
    for frames in [&[][..], &[START], &[START, TEXT, STOP_0], &[START, TEXT, STOP_0, END]] {
        let mut finished = false;
        let result = read_each(frames, |event| finished |= matches!(event, Event::Finish { .. }));
        assert_eq!((result, finished), (Err(CutText), false));
    }
}

#[test]
fn frames_after_the_end_are_ignored() {
    let mut decoder = Decoder::new("s");
    for frame in [START, END, STOP] {
        decoder.frame(frame, &mut |_| {}).unwrap();
    }
    assert!(decoder.is_over());
    decoder.frame("[DONE]", &mut |event| panic!("{event:?}")).unwrap();
    decoder.frame("{broken", &mut |event| panic!("{event:?}")).unwrap();
}

#[test]
fn frame_that_is_not_json_is_an_error_except_done() {
    let mut decoder = Decoder::new("s");
    assert!(decoder.frame("{\"type\":", &mut |_| {}).is_err());
    assert!(decoder.frame("", &mut |_| {}).is_err());
    assert!(decoder.frame("[DONE]", &mut |_| {}).is_ok());
}

#[test]
fn stream_without_block_starts_and_stops_is_decoded() {
    let answer = read(&[
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#,
        r#"{"type":"content_block_delta","index":7,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":1}}"#,
        STOP,
    ]);
    assert_eq!(answer.blocks.len(), 2);
    assert_eq!(answer.blocks[0].text, "a");
    assert_eq!(answer.blocks[1].text, "{}");
}

#[test]
fn stop_reason_null_is_not_replaced() {
    let answer = read(&[START, r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{}}"#, STOP]);
    assert_eq!(answer.finishes[0].1, FinishOwned::Other(String::new()));
}

#[test]
fn intervention_of_a_guardrail_is_a_content_filter() {
    let stop = |action: &str| {
        format!(
            r#"{{"type":"message_stop","amazon-bedrock-guardrailAction":{action},"amazon-bedrock-trace":{{}}}}"#
        )
    };
    for (action, finish) in [
        (r#""INTERVENED""#, FinishOwned::ContentFilter),
        (r#""NONE""#, FinishOwned::Stop),
        ("null", FinishOwned::Stop),
    ] {
        let answer = read(&[START, TEXT, &text("No."), STOP_0, END, &stop(action)]);
        assert_eq!(answer.finishes, [(0, finish)], "{action}");
        assert_eq!(answer.blocks[0].text, "No.");
    }
}
