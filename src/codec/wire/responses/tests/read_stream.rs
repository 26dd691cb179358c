//! Tests of the stream decoder.

use super::*;
use crate::canonical::answer::{AnswerBlockKind, FinishOwned};

const ADDED: &str = r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","status":"in_progress","content":[]}}"#;
const PART: &str = r#"{"type":"response.content_part.added","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}}"#;

#[test]
fn text_has_one_block_per_part() {
    let answer = read_between(&[
        ADDED,
        PART,
        r#"{"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hel","logprobs":[],"obfuscation":"x8"}"#,
        r#"{"type":"response.output_text.delta","sequence_number":5,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"lo\n","logprobs":[],"obfuscation":"x"}"#,
        r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"text":"Hello\n"}"#,
        r#"{"type":"response.content_part.done","output_index":0,"content_index":0,"part":{"type":"output_text","text":"Hello\n","annotations":[]}}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":1,"delta":"more"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"Hello\n"},{"type":"output_text","text":"more"}]}}"#,
    ]);
    assert_eq!((answer.id.as_str(), answer.model.as_str(), answer.created), ("resp_1", "m", Some(7)));
    assert_eq!(texts(&answer), ["Hello\\n", "more"]);
    assert_eq!(answer.finish_of(0), Some(&FinishOwned::Stop));
    assert_eq!((answer.usage.input, answer.usage.output), (Some(3), Some(2)));
}

#[test]
fn fact_04_padding_is_not_text() {
    let answer = read_between(&[
        ADDED,
        PART,
        r#"{"delta":"a","content_index":0,"obfuscation":"pad\"pad","output_index":0,"logprobs":[],"type":"response.output_text.delta"}"#,
    ]);
    assert_eq!(texts(&answer), ["a"]);
}

#[test]
fn fact_26_events_without_names_or_numbers_are_decoded_by_type() {
    // Members in alphabetical order, so that the type is last; and the terminator of the chat format.
    let answer = read(&[
        r#"{"response":{"id":"r","model":"m"},"type":"response.created"}"#,
        r#"{"content_index":0,"delta":"hi","output_index":0,"type":"response.output_text.delta"}"#,
        r#"{"response":{"status":"completed","output":[]},"type":"response.completed"}"#,
        "[DONE]",
    ]);
    assert_eq!(texts(&answer), ["hi"]);
}

#[test]
fn fact_27_finish_reason_is_decoded_from_each_end() {
    let end = |kind: &str, response: &str| {
        read_open(&[&format!(r#"{{"type":"response.{kind}","response":{response}}}"#)]).0
    };
    let length =
        end("incomplete", r#"{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}"#);
    assert_eq!(length.finish_of(0), Some(&FinishOwned::Length));
    let filter = end("incomplete", r#"{"incomplete_details":{"reason":"content_filter"}}"#);
    assert_eq!(filter.finish_of(0), Some(&FinishOwned::ContentFilter));
    let unsaid = end("incomplete", r#"{"status":"incomplete","incomplete_details":null}"#);
    assert_eq!(unsaid.finish_of(0), Some(&FinishOwned::Length));
    let other = end("incomplete", r#"{"incomplete_details":{"reason":"moon"}}"#);
    assert!(other.error.is_some_and(|error| error.contains("moon")) && !other.complete);
    let cancelled = end("cancelled", r#"{"status":"cancelled"}"#);
    assert!(cancelled.error.is_some_and(|error| error.contains("cancelled")) && !cancelled.complete);
    let failed = end("failed", r#"{"status":"failed","error":{"code":"server_error","message":"boom"}}"#);
    assert_eq!(failed.error.as_deref(), Some(r#"{"code":"server_error","message":"boom"}"#));
    assert!(!failed.complete);
}

#[test]
fn fact_27_error_ends_the_stream_before_a_failed_response() {
    let nested = read(&[
        r#"{"type":"response.created","response":{"id":"r"}}"#,
        r#"{"type":"error","sequence_number":2,"error":{"type":"insufficient_quota","message":"no money","param":null}}"#,
        r#"{"type":"response.failed","response":{"error":{"message":"no money"}}}"#,
    ]);
    assert_eq!(
        nested.error.as_deref(),
        Some(r#"{"type":"insufficient_quota","message":"no money","param":null}"#)
    );
    let flat = read(&[
        r#"{"type":"error","code":"server_error","message":"boom","param":null,"sequence_number":1}"#,
    ]);
    assert_eq!(flat.error.as_deref(), Some(r#"{"code":"server_error","message":"boom"}"#));
    let proxied = read(&[r#"{"error":"upstream gone"}"#]);
    assert_eq!(proxied.error.as_deref(), Some(r#"{"message":"upstream gone"}"#));
}

#[test]
fn error_beside_a_failed_response_is_the_error() {
    for beside in
        [r#""error":{"message":"gone","type":"server_error"}"#, r#""message":"gone","code":"server_error""#]
    {
        let frame = format!(
            r#"{{"type":"response.failed","response":{{"id":"r","object":"response","status":"failed","error":null}},{beside}}}"#
        );
        let answer = read(&[r#"{"type":"response.created","response":{"id":"r"}}"#, &frame]);
        assert!(answer.error.is_some_and(|error| error.contains("\"gone\"")), "{beside}");
    }
    // The error in the response comes first.
    let both = read(&[
        r#"{"type":"response.failed","response":{"status":"failed","error":{"message":"inside"}},"error":{"message":"beside"}}"#,
    ]);
    assert!(both.error.is_some_and(|error| error.contains("inside")));
}

#[test]
fn fact_28_item_ids_that_change_are_ignored() {
    let answer = read_between(&[
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"a","type":"message","content":[]}}"#,
        r#"{"type":"response.content_part.added","item_id":"b","output_index":0,"content_index":0,"part":{"type":"output_text","text":""}}"#,
        r#"{"type":"response.output_text.delta","item_id":"c","output_index":0,"content_index":0,"delta":"one"}"#,
        r#"{"type":"response.output_text.done","item_id":"d","output_index":0,"content_index":0,"text":"one"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"e","type":"message","content":[{"type":"output_text","text":"one"}]}}"#,
    ]);
    assert_eq!(texts(&answer), ["one"]);
}

#[test]
fn parts_are_matched_in_order_if_indexes_do_not_start_at_0() {
    let answer = read_between(&[
        ADDED,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":1,"delta":"one"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"one"}]}}"#,
    ]);
    assert_eq!(texts(&answer), ["one"]);
}

#[test]
fn part_with_the_largest_number_is_read() {
    let last = u64::MAX;
    let answer = read_between(&[
        ADDED,
        &format!(
            r#"{{"type":"response.output_text.delta","output_index":{last},"content_index":{last},"delta":"one"}}"#
        ),
        &format!(
            r#"{{"type":"response.output_item.done","output_index":{last},"item":{{"type":"message","content":[{{"type":"output_text","text":"one"}},{{"type":"output_text","text":"two"}}]}}}}"#
        ),
    ]);
    assert_eq!(texts(&answer)[0], "one");
}

#[test]
fn citation_with_the_largest_offsets_is_read() {
    let note = format!(
        r#"{{"type":"url_citation","url":"https://a.example","title":"A","start_index":{0},"end_index":{0}}}"#,
        u64::MAX
    );
    let answer = read_between(&[
        ADDED,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Hello "}"#,
        r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"text":"Hello "}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":1,"delta":"cited"}"#,
        &format!(
            r#"{{"type":"response.output_text.annotation.added","output_index":0,"content_index":1,"annotation_index":0,"annotation":{note}}}"#
        ),
    ]);
    assert_eq!(answer.blocks[1].citations[0].span, Some((u64::MAX, u64::MAX)));
}

#[test]
fn reasoning_and_text_at_one_position_are_two_blocks() {
    let reasoning =
        r#"{"type":"response.reasoning_text.delta","output_index":0,"content_index":0,"delta":"hm"}"#;
    let text = r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"yes","logprobs":[{"token":"yes","logprob":-0.1}]}"#;
    let cited = r#"{"type":"response.output_text.annotation.added","output_index":0,"content_index":0,"annotation":{"type":"url_citation","url":"https://example.org","title":"t"}}"#;
    let answer = read_between(&[reasoning, text, cited, reasoning]);
    let kinds: Vec<&AnswerBlockKind> = answer.blocks.iter().map(|block| &block.kind).collect();
    assert_eq!(kinds, [&AnswerBlockKind::Reasoning, &AnswerBlockKind::Text, &AnswerBlockKind::Reasoning]);
    assert_eq!(texts(&answer), ["hm", "yes", "hm"]);
    assert_eq!(answer.blocks[1].citations.len(), 1);
    // The final type of an item differs from its parts.
    let refused = r#"{"type":"response.content_part.added","output_index":0,"content_index":0,"part":{"type":"refusal","refusal":""}}"#;
    let done = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","summary":[],"encrypted_content":"gAAA"}}"#;
    let answer = read_between(&[refused, done]);
    let sealed: Vec<_> = answer.blocks.iter().map(|block| (&block.kind, block.signature.as_str())).collect();
    assert_eq!(sealed, [(&AnswerBlockKind::Refusal, ""), (&AnswerBlockKind::Reasoning, "gAAA")]);
}

#[test]
fn fact_29_reasoning_is_decoded_in_all_kinds() {
    // A summary in parts; the announcement of the second part is missing.
    let answer = read_between(&[
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}"#,
        r#"{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}"#,
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"first "}"#,
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"part"}"#,
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":1,"delta":"second"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","summary":[{"type":"summary_text","text":"first part"},{"type":"summary_text","text":"second"}],"encrypted_content":"gAAA"}}"#,
    ]);
    assert_eq!(texts(&answer), ["first part\\n\\nsecond"]);
    assert_eq!(
        (&answer.blocks[0].kind, answer.blocks[0].signature.as_str()),
        (&AnswerBlockKind::Reasoning, "gAAA")
    );

    // Reasoning text; the summary that repeats it is not emitted as well.
    let answer = read_between(&[
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","summary":[]}}"#,
        r#"{"type":"response.reasoning_part.added","output_index":0,"content_index":0,"part":{"type":"reasoning_text","text":""}}"#,
        r#"{"type":"response.reasoning_text.delta","output_index":0,"content_index":0,"delta":"raw"}"#,
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"short"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","summary":[{"type":"summary_text","text":"short"}],"content":[{"type":"reasoning_text","text":"raw"}]}}"#,
    ]);
    assert_eq!(texts(&answer), ["raw"]);

    // An item with only a provider signature, and an empty item.
    let answer = read_between(&[
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","summary":[],"encrypted_content":"early"}}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","summary":[],"encrypted_content":"late"}}"#,
        r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"reasoning","summary":[]}}"#,
        r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"reasoning","summary":[]}}"#,
    ]);
    assert_eq!(answer.blocks.len(), 1);
    assert_eq!(
        (&answer.blocks[0].kind, answer.blocks[0].signature.as_str()),
        (&AnswerBlockKind::Reasoning, "late")
    );
}

#[test]
fn bug_13_and_14_finish_completed_with_a_tool_call_is_tool_use() {
    let answer = read_between(&[
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"f","arguments":""}}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{\"a\":"}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"1}"}"#,
        r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{\"a\":1}"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"call_1","name":"f","arguments":"{\"a\":1}"}}"#,
    ]);
    assert_eq!(texts(&answer), [r#"{\"a\":1}"#]);
    assert_eq!(answer.finish_of(0), Some(&FinishOwned::ToolUse));
}

#[test]
fn tool_call_cut_by_the_limit_finishes_with_length() {
    let answer = read(&[
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"c","name":"f"}}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{\"a\":"}"#,
        r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#,
    ]);
    assert_eq!(texts(&answer), [r#"{\"a\":"#]);
    assert_eq!(answer.finish_of(0), Some(&FinishOwned::Length));
}

#[test]
fn tool_call_arguments_sent_only_at_the_end_are_kept() {
    let added = r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"c","name":"f","arguments":""}}"#;
    let done = r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{\"a\":1}"}"#;
    let item = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}"}}"#;
    for frames in [&[added, done, item][..], &[added, item], &[item], &[added, done]] {
        assert_eq!(texts(&read_between(frames)), [r#"{\"a\":1}"#], "{frames:?}");
    }
    // The arguments arrive only in the terminal event.
    let answer = read(&[
        added,
        r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}]}}"#,
    ]);
    assert_eq!(texts(&answer), ["{}"]);
}

#[test]
fn bug_03_and_06_tool_calls_in_parallel_stay_separate() {
    let added = |at: u32| {
        format!(
            r#"{{"type":"response.output_item.added","output_index":{at},"item":{{"type":"function_call","call_id":"c{at}","name":"f"}}}}"#
        )
    };
    let delta = |at: u32, text: &str| {
        format!(r#"{{"type":"response.function_call_arguments.delta","output_index":{at},"delta":"{text}"}}"#)
    };
    let frames = [added(0), added(1), delta(0, "{"), delta(1, "["), delta(0, "}"), delta(1, "]")];
    let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
    assert_eq!(texts(&read_between(&frames)), ["{}", "[]"]);
}

#[test]
fn fact_30_namespaces_and_call_ids_are_kept_and_client_1_custom_text() {
    let answer = read_between(&[
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"f","namespace":"mcp__x"}}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"}}"#,
        r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"ctc_1","type":"custom_tool_call","call_id":"call_2","name":"apply_patch","input":""}}"#,
        r#"{"type":"response.custom_tool_call_input.delta","output_index":1,"delta":"*** Begin"}"#,
        r#"{"type":"response.custom_tool_call_input.done","output_index":1,"input":"*** Begin"}"#,
        r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"custom_tool_call","call_id":"call_2","name":"apply_patch","input":"*** Begin"}}"#,
    ]);
    let calls: Vec<_> = answer.blocks.iter().map(|block| block.kind.clone()).collect();
    let call = |id: &str, name: &str, kind, namespace: &str| AnswerBlockKind::ToolUse {
        id: id.into(),
        name: name.into(),
        kind,
        namespace: namespace.into(),
    };
    assert_eq!(calls[0], call("call_1", "f", ToolKind::Function, "mcp__x"));
    assert_eq!(calls[1], call("call_2", "apply_patch", ToolKind::Custom, ""));
    assert_eq!(texts(&answer), ["{}", "*** Begin"]);
}

#[test]
fn fact_31_server_tool_items_pass_unchanged() {
    let answer = read_between(&[
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"ws_1","type":"web_search_call","status":"in_progress"}}"#,
        r#"{"type":"response.web_search_call.searching","output_index":0,"item_id":"ws_1"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"q"}}}"#,
    ]);
    let AnswerBlockKind::Opaque { name, raw } = &answer.blocks[0].kind else { panic!("{:?}", answer.blocks) };
    assert_eq!(name, "web_search_call");
    assert!(raw.contains(r#""query":"q""#));
    assert_eq!(answer.usage.searches, Some(1));
    assert_eq!(answer.finish_of(0), Some(&FinishOwned::Stop));
}

#[test]
fn image_generation_call_is_decoded_as_media() {
    let answer = read_between(&[
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"image_generation_call","status":"in_progress"}}"#,
        r#"{"type":"response.image_generation_call.partial_image","output_index":0,"partial_image_b64":"HALF"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"image_generation_call","result":"QUJD","output_format":"webp"}}"#,
    ]);
    assert_eq!(answer.blocks[0].kind, AnswerBlockKind::Media { mime: "image/webp".into() });
    assert_eq!(texts(&answer), ["QUJD"]);
}

#[test]
fn fact_32_and_bug_38_usage_is_as_reported() {
    let used = |usage: &str| {
        read(&[&format!(
            r#"{{"type":"response.completed","response":{{"status":"completed","usage":{usage}}}}}"#
        )])
        .usage
    };
    let usage = used(
        r#"{"input_tokens":10,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":4},"output_tokens":8,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":18,"cost_in_usd_ticks":3}"#,
    );
    let figures = (usage.input, usage.cached, usage.cache_write, usage.output, usage.reasoning);
    assert_eq!(figures, (Some(10), Some(0), Some(4), Some(8), Some(5)));
    let bare = used(r#"{"input_tokens":10,"output_tokens":8}"#);
    assert_eq!((bare.cached, bare.reasoning), (None, None));
    assert_eq!(used("null"), Usage::default());
}

#[test]
fn refusal_has_its_own_block() {
    let answer = read_between(&[
        ADDED,
        r#"{"type":"response.content_part.added","output_index":0,"content_index":0,"part":{"type":"refusal","refusal":""}}"#,
        r#"{"type":"response.refusal.delta","output_index":0,"content_index":0,"delta":"I can't"}"#,
        r#"{"type":"response.refusal.done","output_index":0,"content_index":0,"refusal":"I can't"}"#,
    ]);
    assert_eq!((&answer.blocks[0].kind, texts(&answer)), (&AnswerBlockKind::Refusal, vec!["I can't"]));
}

#[test]
fn bug_69_citations_are_decoded_once_with_spans_in_the_whole_text() {
    let note =
        r#"{"type":"url_citation","url":"https://a.example","title":"A","start_index":1,"end_index":3}"#;
    let answer = read_between(&[
        ADDED,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Größe \n"}"#,
        r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"text":"Größe \n"}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":1,"delta":"cited"}"#,
        &format!(
            r#"{{"type":"response.output_text.annotation.added","output_index":0,"content_index":1,"annotation_index":0,"annotation":{note}}}"#
        ),
        &format!(
            r#"{{"type":"response.content_part.done","output_index":0,"content_index":1,"part":{{"type":"output_text","text":"cited","annotations":[{note},{{"type":"file_citation","file_id":"f"}}]}}}}"#
        ),
        &format!(
            r#"{{"type":"response.output_item.done","output_index":0,"item":{{"type":"message","content":[{{"type":"output_text","text":"Größe \n"}},{{"type":"output_text","text":"cited","annotations":[{note}]}}]}}}}"#
        ),
    ]);
    let citations = &answer.blocks[1].citations;
    assert_eq!(citations.len(), 1);
    assert_eq!((citations[0].url.as_str(), citations[0].span), ("https://a.example", Some((8, 10))));
}

#[test]
fn logprobs_are_decoded_with_their_text() {
    let answer = read_between(&[
        ADDED,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a","logprobs":[{"token":"a","logprob":-0.1,"top_logprobs":[]}]}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"b","logprobs":[{"token":"b","logprob":-0.2,"top_logprobs":[]}]}"#,
    ]);
    assert_eq!(
        answer.blocks[0].logprobs,
        r#"{"token":"a","logprob":-0.1,"top_logprobs":[]},{"token":"b","logprob":-0.2,"top_logprobs":[]}"#
    );
}

#[test]
fn bug_47_stream_without_an_end_is_cut() {
    let (answer, ended) = read_open(&[
        r#"{"type":"response.created","response":{"id":"r"}}"#,
        ADDED,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a"}"#,
    ]);
    assert!(!ended);
    assert_eq!((answer.finish_of(0), answer.complete), (None, false));
    let (_, ended) = read_open(&["[DONE]"]);
    assert!(!ended);
}

#[test]
fn frame_that_is_not_json_is_an_error_and_unknown_events_are_ignored() {
    let mut decoder = stream::Decoder::new("seed");
    assert!(decoder.frame("{\"type\":", &mut |_| ()).is_err());
    assert!(decoder.frame("<html>", &mut |_| ()).is_err());
    let mut count = 0;
    decoder.frame(r#"{"type":"response.moon.rising","x":1}"#, &mut |_| count += 1).unwrap();
    assert_eq!(count, 0);
}

#[test]
fn stream_of_the_terminal_event_alone_is_decoded() {
    let answer = read(&[
        r#"{"type":"response.completed","response":{"id":"r","model":"m","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"all at once"}]}]}}"#,
    ]);
    assert_eq!((answer.id.as_str(), texts(&answer)), ("r", vec!["all at once"]));
}

#[test]
fn delta_similar_to_the_last_one_is_decoded() {
    let delta = |number: u64, content: u64, text: &str, more: &str| {
        format!(
            r#"{{"type":"response.output_text.delta","sequence_number":{number},"item_id":"msg_1","output_index":0,"content_index":{content},"delta":"{text}","logprobs":[{more}],"obfuscation":"{text}x"}}"#
        )
    };
    let refusal = delta(13, 1, "no", "").replace("output_text", "refusal");
    let answer = read_between(&[
        ADDED,
        PART,
        &delta(9, 0, "a", ""),
        &delta(10, 0, "b\\n", ""),
        &delta(11, 0, "", ""),
        &delta(11, 0, "c", r#"{"token":"c"}"#),
        &delta(12, 0, "d", ""),
        &refusal,
        &refusal,
        &delta(14, 0, "e", ""),
    ]);
    let blocks: Vec<_> = answer.blocks.iter().map(|block| (&block.kind, &*block.text)).collect();
    assert_eq!(blocks, [(&AnswerBlockKind::Text, "ab\\ncde"), (&AnswerBlockKind::Refusal, "nono")]);
}

/// Deltas for an item of the wrong type are discarded; nothing else is lost.
#[test]
fn delta_for_an_item_of_another_type_is_discarded() {
    let call = r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"f","arguments":""}}"#;
    let answer = read_between(&[
        ADDED,
        PART,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"text"}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{}"}"#,
        r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{}"}"#,
        call,
        r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"more"}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"[]"}"#,
    ]);
    assert_eq!(texts(&answer), ["text", "[]"]);
}
