//! Tests of the deviations of individual providers of this format.

use super::*;

#[test]
fn stream_of_plain_text_is_one_block() {
    let frames = [
        delta(r#""role":"assistant","content":"","refusal":null"#),
        delta(r#""content":"Hel""#),
        delta(r#""content":"lo""#),
        end("stop"),
        DONE.to_owned(),
    ];
    let expected = ["start", "0 Text", "0 Text(\"Hel\")", "0 Text(\"lo\")", "0 stop", "finish 0 Stop", "end"];
    assert_eq!(events(&frames), expected);
    let answer = read(&frames);
    assert_eq!((&*answer.id, &*answer.model, answer.created), ("c-1", "provider-model", Some(7)));
}

#[test]
fn fact_1_usage_may_stand_anywhere_and_the_last_counts() {
    let figures = |n: u32| format!(r#""usage":{{"prompt_tokens":{n},"completion_tokens":{n}}}"#);
    let text = delta(r#""content":"a""#);
    let with = |frame: &str, usage: &str| format!("{},{usage}}}", frame.strip_suffix('}').unwrap());
    let alone = format!(r#"{{"id":"c-1","choices":[],{}}}"#, figures(3));
    let in_choice = chunk(&format!(r#"{{"index":0,"delta":{{}},"finish_reason":"stop",{}}}"#, figures(3)));
    let groq = with(&end("stop"), &format!(r#""x_groq":{{"id":"r",{}}}"#, figures(3)));
    let streams = [
        vec![text.clone(), end("stop"), alone.clone(), DONE.to_owned()],
        vec![text.clone(), with(&end("stop"), &figures(3)), DONE.to_owned()],
        vec![with(&text, &figures(1)), with(&end("stop"), &figures(3)), DONE.to_owned()],
        vec![text.clone(), in_choice, DONE.to_owned()],
        vec![text.clone(), groq.clone(), DONE.to_owned()],
        // Both in one stream, and usage before the first choice.
        vec![with(&text, &figures(2)), groq, alone.clone(), DONE.to_owned()],
        vec![alone, text, end("stop"), DONE.to_owned()],
    ];
    for frames in streams {
        let usage = read(&frames).usage;
        assert_eq!((usage.input, usage.output), (Some(3), Some(3)), "{frames:?}");
    }
}

#[test]
fn fact_2_usage_is_not_always_last() {
    let usage = r#"{"id":"c-1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
    let moderation = r#"{"id":"c-1","choices":[],"moderation":{"input":{"results":[]}}}"#;
    let answer = read(&[&delta(r#""content":"a""#), &end("stop"), usage, moderation, DONE]);
    assert_eq!(answer.usage.input, Some(3));
}

#[test]
fn fact_3_first_chunk_without_choices_does_not_begin_the_response() {
    let filter = r#"{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{}}]}"#;
    let text = chunk(
        r#"{"index":0,"content_filter_results":{"hate":{"filtered":false}},"delta":{"content":"a"},"finish_reason":null}"#,
    );
    let answer = read(&[filter, &text, &end("stop"), DONE]);
    assert_eq!((&*answer.id, &*answer.model), ("c-1", "provider-model"));
}

#[test]
fn fact_4_padding_is_not_content() {
    let padded =
        |name: &str| delta(r#""content":"a""#).replace("\"id\"", &format!("\"{name}\":\"xyz\",\"id\""));
    let frames = [padded("obfuscation"), padded("p"), padded("padding"), end("stop"), DONE.to_owned()];
    assert_eq!(text_of(&read(&frames), &AnswerBlockKind::Text), "aaa");
}

#[test]
fn fact_5_reasoning_is_read_under_three_names() {
    let details =
        r#""reasoning_details":[{"type":"reasoning.text","text":"a","format":"unknown","index":0}]"#;
    let summary = r#""reasoning_details":[{"type":"reasoning.summary","summary":"a","index":0}]"#;
    for members in [
        r#""reasoning_content":"a","content":null"#.to_owned(),
        r#""reasoning":"a","content":"","channel":"analysis""#.to_owned(),
        details.to_owned(),
        summary.to_owned(),
        // The same text under two names is emitted once.
        format!(r#""content":"","reasoning":"a",{details}"#),
        format!(r#""reasoning_content":"a",{details}"#),
        r#""reasoning_content":"a","reasoning":"a""#.to_owned(),
        r#""reasoning_content":"","reasoning":"a""#.to_owned(),
        r#""reasoning_content":"a","reasoning_encrypted":false"#.to_owned(),
    ] {
        let answer = read(&[&delta(&members), &delta(r#""content":"b""#), &end("stop"), DONE]);
        assert_eq!(text_of(&answer, &AnswerBlockKind::Reasoning), "a", "{members}");
        assert_eq!(text_of(&answer, &AnswerBlockKind::Text), "b", "{members}");
        let whole = read_whole(&completion(&format!("{{{members}}}"), "\"stop\""));
        assert_eq!(text_of(&whole, &AnswerBlockKind::Reasoning), "a", "{members}");
    }
}

#[test]
fn bug_35_reasoning_only_chunk_opens_a_block() {
    let frames = [delta(r#""reasoning_content":"hm""#), end("stop"), DONE.to_owned()];
    assert_eq!(events(&frames)[1..4], ["0 Reasoning", "0 Text(\"hm\")", "0 stop"]);
}

#[test]
fn fact_6_content_may_be_a_list_of_parts() {
    let frames = [
        delta(
            r#""role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]"#,
        ),
        delta(r#""content":[{"type":"thinking","thinking":[{"type":"text","text":"!"}],"closed":true}]"#),
        delta(r#""content":[{"type":"text","text":"Yes"},{"type":"reference","reference_ids":[1]}]"#),
        delta(r#""content":".""#),
        end("stop"),
        DONE.to_owned(),
    ];
    let answer = read(&frames);
    assert_eq!(text_of(&answer, &AnswerBlockKind::Reasoning), "hm!");
    assert_eq!(text_of(&answer, &AnswerBlockKind::Text), "Yes.");
    assert_eq!(answer.blocks.len(), 2);
}

#[test]
fn fact_6_think_tags_in_text_stay_text() {
    let answer = read(&[&delta(r#""content":"<think>a</think>b""#), &end("stop"), DONE]);
    assert_eq!(text_of(&answer, &AnswerBlockKind::Text), "<think>a</think>b");
}

#[test]
fn fact_10_repeated_roles_and_empty_content_are_ignored() {
    let frames = [
        delta(r#""role":"assistant","content":"a""#),
        delta(r#""role":null,"content":null"#),
        delta(r#""role":"assistant","content":"""#),
        delta(r#""role":"assistant""#),
        chunk(r#"{"index":0,"delta":null}"#),
        chunk(r#"{"index":0}"#),
        delta(r#""content":"b""#),
        end("stop"),
        DONE.to_owned(),
    ];
    let answer = read(&frames);
    assert_eq!(answer.blocks.len(), 1);
    assert_eq!(text_of(&answer, &AnswerBlockKind::Text), "ab");
}

#[test]
fn fact_16_unknown_members_are_skipped() {
    let frame = r#"{"provider":"x","citations":["u"],"search_results":[{}],"timings":{},"x_groq":{"id":"r"},"venice_parameters":{"a":[1,{"b":"}"}]},"id":"c","choices":[{"index":0,"seed":null,"text":"a","native_finish_reason":null,"token_ids":[1],"delta":{"content":"a","token_id":1,"executed_tools":[{}]}}],"system_fingerprint":null}"#;
    let answer = read(&[frame, &end("stop"), DONE]);
    assert_eq!(text_of(&answer, &AnswerBlockKind::Text), "a");
}

#[test]
fn members_may_come_in_any_order() {
    // Members sorted alphabetically, as some recorders write them.
    let frame = r#"{"choices":[{"delta":{"content":"b","reasoning":"a","role":"assistant"},"finish_reason":"stop","index":0}],"created":7,"id":"c","model":"m","object":"chat.completion.chunk","usage":{"completion_tokens":1,"prompt_tokens":2}}"#;
    let frames = [frame.to_owned(), DONE.to_owned()];
    assert_eq!(events(&frames)[1], "0 Reasoning");
    let answer = read(&frames);
    assert_eq!((&*answer.id, &*answer.model, answer.usage.input), ("c", "m", Some(2)));
}

#[test]
fn message_in_a_stream_is_a_delta_unless_a_delta_is_present() {
    let whole = chunk(r#"{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}"#);
    assert_eq!(text_of(&read(&[&whole, DONE]), &AnswerBlockKind::Text), "Hi");
    // One provider repeats the whole text so far in `message`.
    let both = |delta: &str, all: &str| {
        chunk(&format!(
            r#"{{"index":0,"delta":{{"content":"{delta}"}},"message":{{"content":"{all}"}},"finish_reason":null}}"#
        ))
    };
    let answer = read(&[&both("a", "a"), &both("b", "ab"), &end("stop"), DONE]);
    assert_eq!(text_of(&answer, &AnswerBlockKind::Text), "ab");
}

#[test]
fn map_1_choices_may_interleave() {
    let say = |index: u32, text: &str| {
        chunk(&format!(r#"{{"index":{index},"delta":{{"content":"{text}"}},"finish_reason":null}}"#))
    };
    let stop = |index: u32, word: &str| {
        chunk(&format!(r#"{{"index":{index},"delta":{{}},"finish_reason":"{word}"}}"#))
    };
    let frames = [say(1, "b"), say(0, "a"), say(1, "B"), stop(1, "length"), say(0, "A"), stop(0, "stop")];
    let answer = read(&frames);
    let text = |index| answer.blocks_of(index).map(|block| block.text.as_str()).collect::<String>();
    assert_eq!((answer.choices(), text(0), text(1)), (2, "aA".to_owned(), "bB".to_owned()));
    assert_eq!(answer.finish_of(0), Some(&FinishOwned::Stop));
    assert_eq!(answer.finish_of(1), Some(&FinishOwned::Length));
    // One of them is cut.
    assert!(!try_read(&frames[..5]).2);
}

#[test]
fn map_9_annotations_become_citations() {
    let nested = r#""annotations":[{"type":"url_citation","url_citation":{"url":"https:\/\/a","title":"A \"q\"","start_index":2,"end_index":5,"content":"quote"}},{"type":"file","file":{"hash":"x"}}]"#;
    let flat = r#""annotations":[{"type":"url_citation","url":"https://b","title":"B","start_index":0,"end_index":0}]"#;
    let answer = read(&[&delta(r#""content":"Hello""#), &delta(nested), &delta(flat), &end("stop"), DONE]);
    let citations = &answer.blocks[0].citations;
    assert_eq!(answer.blocks.len(), 1);
    assert_eq!((&*citations[0].url, &*citations[0].title), (r"https:\/\/a", r#"A \"q\""#));
    assert_eq!((citations[0].span, &*citations[0].quote), (Some((2, 5)), "quote"));
    // A citation without a URL is ignored.
    assert_eq!((&*citations[1].url, citations[1].span), ("https://b", None));
}

#[test]
fn annotation_nested_deeply_cites_nothing() {
    let nested = format!(r#"{}{{"url":"https://a"}}{}"#, r#"{"url_citation":"#.repeat(300), "}".repeat(300));
    let deep = format!(r#""annotations":[{nested}]"#);
    let answer = read(&[&delta(r#""content":"Hello""#), &delta(&deep), &end("stop"), DONE]);
    assert!(answer.blocks[0].citations.iter().all(|citation| citation.url.is_empty()));
}

#[test]
fn citations_list_of_the_response_is_decoded_once() {
    let with = |frame: &str| {
        frame.replacen("{\"id\"", r#"{"citations":["https://a",{"url":"https://b","title":"B"}],"id""#, 1)
    };
    let frames = [with(&delta(r#""content":"a""#)), with(&delta(r#""content":"b""#)), with(&end("stop"))];
    let whole = completion(r#"{"content":"ab"}"#, "\"stop\"");
    let whole = whole.strip_suffix('}').unwrap().to_owned() + r#","citations":["https://a","https://b"]}"#;
    for answer in [read(&frames), read_whole(&whole)] {
        let urls: Vec<_> = answer.blocks[0].citations.iter().map(|citation| citation.url.as_str()).collect();
        assert_eq!((answer.blocks.len(), urls), (1, vec!["https://a", "https://b"]));
    }
    // Citations in the message take precedence over the list.
    let annotated = delta(r#""content":"a","annotations":[{"type":"url_citation","url":"https://c"}]"#);
    assert_eq!(read(&[annotated, with(&end("stop"))]).blocks[0].citations.len(), 1);
}

#[test]
fn map_2_images_and_audio_are_decoded_as_media() {
    let image = r#""images":[{"type":"image_url","index":0,"image_url":{"url":"data:image/png;base64,QUJD"}},{"type":"image_url","image_url":{"url":"https://a/b.png"}}]"#;
    let answer = read(&[&delta(r#""content":"Here""#), &delta(image), &end("stop"), DONE]);
    assert_eq!(answer.blocks[1].kind, AnswerBlockKind::Media { mime: "image/png".to_owned() });
    assert_eq!(answer.blocks[1].text, "QUJD");
    assert_eq!(answer.blocks[2].url.as_deref(), Some("https://a/b.png"));

    let sound = [
        delta(r#""audio":{"id":"audio_1"}"#),
        delta(r#""audio":{"data":"UklGAAAA"}"#),
        delta(r#""audio":{"data":"BBBB","transcript":"be"}"#),
        delta(r#""audio":{"transcript":"ep"}"#),
        delta(r#""audio":{"expires_at":9}"#),
        end("stop"),
        DONE.to_owned(),
    ];
    let answer = read(&sound);
    assert_eq!(answer.blocks.len(), 1);
    assert_eq!(answer.blocks[0].kind, AnswerBlockKind::Media { mime: "audio/wav".to_owned() });
    assert_eq!(answer.blocks[0].text, "UklGAAAABBBB");
    // Some providers send an empty `audio` with every message.
    let shell = r#"{"content":"a","audio":{"data":"","expires_at":0,"id":"","transcript":""},"refusal":""}"#;
    assert_eq!(read_whole(&completion(shell, "\"stop\"")).blocks.len(), 1);
}

#[test]
fn map_6_logprobs_stay_with_their_text() {
    let some = r#"{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-0.1,"bytes":[97],"top_logprobs":[]}],"refusal":null},"finish_reason":null}"#;
    let none = r#"{"index":0,"delta":{"content":"b"},"logprobs":{"content":[],"refusal":null},"finish_reason":null}"#;
    let early =
        r#"{"index":0,"delta":{"role":"assistant","content":""},"logprobs":{"content":[{"token":"x"}]}}"#;
    let answer = read(&[&chunk(early), &chunk(some), &chunk(none), &chunk(some), &end("stop"), DONE]);
    let logprobs: Value = serde_json::from_str(&format!("[{}]", answer.blocks[0].logprobs)).unwrap();
    assert_eq!(logprobs.as_array().unwrap().len(), 2);
    assert_eq!(logprobs[1]["token"], "a");
}

#[test]
fn refusal_is_not_text() {
    let frames = [delta(r#""refusal":"I ""#), delta(r#""refusal":"can't""#), end("stop"), DONE.to_owned()];
    let answer = read(&frames);
    assert_eq!(text_of(&answer, &AnswerBlockKind::Refusal), "I can't");
    assert_eq!(text_of(&answer, &AnswerBlockKind::Text), "");
}

#[test]
fn text_keeps_its_escapes() {
    let escaped = r#"\"q\" \\ \/ \u00fc \ud83d\ude00 é 世 \n"#;
    let answer = read(&[&delta(&format!(r#""content":"{escaped}""#)), &end("stop"), DONE]);
    assert_eq!(answer.blocks[0].text, escaped);
}
