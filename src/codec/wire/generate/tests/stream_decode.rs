use super::{read, whole};
use crate::canonical::answer::{AnswerBlockKind, FinishOwned};
use crate::canonical::{Event, ToolKind, Usage};
use crate::wire::codec::CutText;
use crate::wire::generate::stream::Decoder;

/// Returns a frame with these parts; `rest` follows the content in the candidate.
fn parts(parts: &str, rest: &str) -> String {
    format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}}{rest}}}]}}"#)
}

fn kinds(answer: &crate::canonical::Answer) -> Vec<(&'static str, &str)> {
    let name = |kind: &AnswerBlockKind| match kind {
        AnswerBlockKind::Text => "text",
        AnswerBlockKind::Refusal => "refusal",
        AnswerBlockKind::Reasoning => "reasoning",
        AnswerBlockKind::HiddenReasoning => "hidden",
        AnswerBlockKind::ToolUse { .. } => "call",
        AnswerBlockKind::Media { .. } => "media",
        AnswerBlockKind::Opaque { .. } => "opaque",
    };
    answer.blocks.iter().map(|block| (name(&block.kind), &*block.text)).collect()
}

const STOP: &str = r#","finishReason":"STOP","index":0"#;

#[test]
fn stream_of_thoughts_and_text_is_decoded() {
    let answer = whole(&[
        r#"{"candidates":[{"content":{"parts":[{"text":"Hm\n","thought":true}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":9,"totalTokenCount":9},"modelVersion":"gemini-2.5-flash","responseId":"r1","createTime":"2026-04-02T17:03:50.399550Z"}"#,
        r#"{"candidates":[{"content":{"parts":[{"thought":true,"text":"so."}],"role":"model"},"index":0}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"Grü"}],"role":"model"},"index":0}]}"#,
        "{}",
        r#"{"candidates":[{"content":{"parts":[{"text":"ße"}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":3,"thoughtsTokenCount":4,"totalTokenCount":16}}"#,
    ]);
    assert_eq!(
        (&*answer.id, &*answer.model, answer.created),
        ("r1", "gemini-2.5-flash", Some(1_775_149_430))
    );
    assert_eq!(kinds(&answer), [("reasoning", "Hm\\nso."), ("text", "Grüße")]);
    assert_eq!(answer.finishes, [(0, FinishOwned::Stop)]);
    let usage = Usage { input: Some(9), output: Some(7), reasoning: Some(4), ..Usage::default() };
    assert_eq!(answer.usage, usage);
}

#[test]
fn fact_34_bug_14_finish_reason_with_calls_or_as_a_number_is_decoded() {
    let call = r#"{"functionCall":{"name":"now","args":{}}}"#;
    assert_eq!(whole(&[&parts(call, STOP)]).finishes, [(0, FinishOwned::ToolUse)]);
    let text = r#"{"text":"x"}"#;
    for (reason, finish) in [
        ("1", FinishOwned::Stop),
        ("2", FinishOwned::Length),
        ("3", FinishOwned::ContentFilter),
        ("\"MODEL_ARMOR\"", FinishOwned::ContentFilter),
        ("\"SOMETHING_NEW\"", FinishOwned::Other("SOMETHING_NEW".into())),
    ] {
        let frame = parts(text, &format!(r#","finishReason":{reason},"finishMessage":"m""#));
        assert_eq!(whole(&[&frame]).finishes, [(0, finish)], "{reason}");
    }
}

#[test]
fn mapping_7_bug_17_finish_reason_is_decoded_from_each_word() {
    let other = |word: &str| FinishOwned::Other(word.to_owned());
    let filtered = [
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "MODEL_ARMOR",
        "ESCALATION",
        "PUP_LIMITED_DISABLED",
    ];
    let others = ["NO_IMAGE", "SOMETHING_NEW"];
    let table = [
        ("STOP", FinishOwned::Stop),
        ("MAX_TOKENS", FinishOwned::Length),
        ("CONTINUATION", FinishOwned::Length),
    ]
    .into_iter()
    .chain(filtered.map(|word| (word, FinishOwned::ContentFilter)))
    .chain(others.map(|word| (word, other(word))));
    for (word, finish) in table {
        let frame = format!(r#"{{"candidates":[{{"finishReason":"{word}"}}]}}"#);
        assert_eq!(whole(&[&frame]).finishes, [(0, finish)], "{word}");
    }
    for word in [
        "OTHER",
        "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "MALFORMED_RESPONSE",
        "IMAGE_OTHER",
        "MISSING_THOUGHT_SIGNATURE",
    ] {
        let answer = whole(&[&format!(r#"{{"candidates":[{{"finishReason":"{word}"}}]}}"#)]);
        assert!(answer.error.is_some_and(|error| error.contains(word)) && !answer.complete, "{word}");
    }
    let unspecified = r#"{"candidates":[{"finishReason":"FINISH_REASON_UNSPECIFIED"}]}"#;
    assert_eq!(read(&[unspecified]).1, Err(CutText));
}

#[test]
fn fact_35_signature_is_kept_on_every_kind_of_part() {
    let answer = whole(&[
        &parts(r#"{"text":"a"}"#, ""),
        &parts(r#"{"text":"","thoughtSignature":"S1"}"#, ""),
        &parts(r#"{"functionCall":{"id":"x","name":"f","args":{"a":1}},"thoughtSignature":"S2"}"#, ""),
        &parts(r#"{"functionCall":{"id":"y","name":"f"}}"#, ""),
        &parts(r#"{"inlineData":{"mimeType":"image/png","data":"QQ=="},"thought_signature":"S3"}"#, ""),
        &parts(r#"{"thoughtSignature":"S4","text":""}"#, STOP),
    ]);
    let seals: Vec<_> = answer.blocks.iter().map(|block| &*block.signature).collect();
    assert_eq!(seals, ["S1", "S2", "", "S3", "S4"]);
    assert_eq!(kinds(&answer), [("text", "a"), ("call", ""), ("call", ""), ("media", "QQ=="), ("text", "")]);
    assert_eq!(answer.blocks[1].object.as_deref(), Some(r#"{"a":1}"#));
}

#[test]
fn signature_is_one_per_block() {
    let answer = whole(&[
        &parts(
            r#"{"text":"a","thoughtSignature":"S1"},{"text":"b"},{"text":"c","thoughtSignature":"S2"}"#,
            "",
        ),
        &parts(r#"{"text":"","thoughtSignature":"S3"}"#, STOP),
    ]);
    let blocks: Vec<_> = answer.blocks.iter().map(|block| (&*block.text, &*block.signature)).collect();
    assert_eq!(blocks, [("ab", "S1"), ("c", "S2"), ("", "S3")]);
}

#[test]
fn fact_36_tool_calls_without_ids_or_arguments_are_decoded() {
    let answer = whole(&[
        &parts(r#"{"functionCall":{"name":"f"}},{"functionCall":{"name":"f","args":null}}"#, ""),
        &parts(r#"{"functionCall":{"name":"g","id":"own","args":{"b":[1,2.50]}}},{"functionCall":{}}"#, STOP),
    ]);
    let calls: Vec<_> = answer
        .blocks
        .iter()
        .map(|block| match &block.kind {
            AnswerBlockKind::ToolUse { id, name, kind: ToolKind::Function, .. } => {
                (&**id, &**name, block.object.as_deref())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(calls.len(), 3);
    assert!(calls[0].0.starts_with("call_") && calls[0].0.len() == 29 && calls[0].0 != calls[1].0);
    assert_eq!((calls[0].1, calls[0].2), ("f", None));
    assert_eq!(calls[2], ("own", "g", Some(r#"{"b":[1,2.50]}"#)));
}

#[test]
fn fact_36_tool_call_partial_arguments_are_joined() {
    let answer = whole(&[
        &parts(r#"{"functionCall":{"name":"w","willContinue":true},"thoughtSignature":"S"}"#, ""),
        &parts(
            r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.ops[0].place","stringValue":"New \"Y","willContinue":true}],"willContinue":true}}"#,
            "",
        ),
        &parts(
            r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.ops[0].place","stringValue":"ork"}],"willContinue":true}}"#,
            "",
        ),
        &parts(
            r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.ops[1]['a b']","numberValue":0.50},{"jsonPath":"$.ok","boolValue":true},{"jsonPath":"$.no","nullValue":"NULL_VALUE"}],"willContinue":true}}"#,
            "",
        ),
        &parts(r#"{"functionCall":{}}"#, ""),
        // Calls without the empty call at their end.
        &parts(r#"{"functionCall":{"name":"v","willContinue":true}}"#, ""),
        &parts(r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.n","numberValue":1}]}}"#, ""),
        &parts(r#"{"functionCall":{"name":"u","willContinue":true}}"#, ""),
        &parts(r#"{"text":""}"#, STOP),
    ]);
    let objects: Vec<_> = answer.blocks.iter().map(|block| block.object.as_deref()).collect();
    assert_eq!(
        objects,
        [
            Some(r#"{"ops":[{"place":"New \"York"},{"a b":0.50}],"ok":true,"no":null}"#),
            Some(r#"{"n":1}"#),
            None,
        ]
    );
    assert_eq!(answer.blocks[0].signature, "S");
    assert_eq!(answer.finishes, [(0, FinishOwned::ToolUse)]);
}

#[test]
fn argument_whose_path_is_no_path_is_left_out() {
    let steps = |count: usize| format!("${}", ".a".repeat(count));
    let cases = [
        (steps(64), true),
        (steps(65), true),
        (steps(66), false),
        (steps(1_000), false),
        ("$.a[10000]".to_owned(), false),
        ("$.a[x].b".to_owned(), false),
        ("$.a['b".to_owned(), false),
        ("$[0]".to_owned(), false),
    ];
    for (path, is_read) in cases {
        let call = format!(
            r#"{{"functionCall":{{"name":"f","partialArgs":[{{"jsonPath":"$.first","numberValue":1}},{{"jsonPath":"{path}","numberValue":2}}],"willContinue":true}}}}"#
        );
        let answer =
            whole(&[&parts(&call, ""), &parts(r#"{"functionCall":{}}"#, ""), &parts(r#"{"text":""}"#, STOP)]);
        let object = answer.blocks[0].object.as_deref().unwrap();
        assert_eq!(object != r#"{"first":1}"#, is_read, "{path}: {object}");
    }
}

#[test]
fn arguments_in_arrays_of_arrays_are_bounded() {
    let values: Vec<String> =
        (0..400).map(|n| format!(r#"{{"jsonPath":"$.a[{n}][9999]","numberValue":1}}"#)).collect();
    let call = format!(
        r#"{{"functionCall":{{"name":"f","partialArgs":[{}],"willContinue":true}}}}"#,
        values.join(",")
    );
    let answer =
        whole(&[&parts(&call, ""), &parts(r#"{"functionCall":{}}"#, ""), &parts(r#"{"text":""}"#, STOP)]);
    assert!(answer.blocks[0].object.as_deref().unwrap().len() < 1_000_000);
}

#[test]
fn fact_37_candidate_members_may_be_missing() {
    for (frame, finish) in [
        (r#"{"candidates":[{"finishReason":"SAFETY"}],"responseId":"r"}"#, FinishOwned::ContentFilter),
        (
            r#"{"candidates":[{"content":{"role":"model"},"finishReason":"MAX_TOKENS","index":0}]}"#,
            FinishOwned::Length,
        ),
        (r#"{"candidates":[{"content":null,"finishReason":"STOP"}]}"#, FinishOwned::Stop),
        (r#"{"candidates":[{"content":{"parts":[{}]},"finishReason":"STOP"}]}"#, FinishOwned::Stop),
        (
            r#"{"candidates":[{"content":{"parts":null},"finishReason":"RECITATION"}]}"#,
            FinishOwned::ContentFilter,
        ),
        (r#"{"promptFeedback":{"blockReason":"SAFETY","safetyRatings":[]}}"#, FinishOwned::ContentFilter),
    ] {
        let answer = whole(&[frame]);
        assert_eq!(answer.finishes, [(0, finish)], "{frame}");
        assert!(answer.blocks.is_empty());
    }
    let answer = whole(&[
        r#"{"usageMetadata":{"promptTokenCount":3,"totalTokenCount":3},"modelVersion":"m"}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"x"}]}}]}"#,
        r#"{"candidates":[{"finishReason":"STOP"}]}"#,
    ]);
    assert_eq!(kinds(&answer), [("text", "x")]);
    assert_eq!(answer.model, "m");
}

#[test]
fn fact_37_server_tool_parts_stay_unchanged() {
    let code = r#"{"executableCode":{"language":"PYTHON","code":"1"},"thoughtSignature":"S"}"#;
    let search = r#"{"thoughtSignature":"T","toolCall":{"id":"1","toolType":"GOOGLE_SEARCH_WEB","args":{}}}"#;
    let answer = whole(&[&parts(&format!("{code},{search}"), STOP)]);
    let raws: Vec<_> = answer
        .blocks
        .iter()
        .map(|block| match &block.kind {
            AnswerBlockKind::Opaque { name, raw } => (&**name, &**raw),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(raws, [("executableCode", code), ("toolCall", search)]);
    assert_eq!(answer.finishes, [(0, FinishOwned::Stop)]);
}

#[test]
fn bug_32_server_tool_signatures_are_both_kept() {
    let both = r#"{"toolCall":{"id":"1"},"thoughtSignature":"S"},{"toolResponse":{"id":"1"},"thoughtSignature":"S"}"#;
    let answer = whole(&[&parts(both, STOP)]);
    let signed = |kind: &AnswerBlockKind| matches!(kind, AnswerBlockKind::Opaque { raw, .. } if raw.contains(r#""thoughtSignature":"S""#));
    assert!(answer.blocks.len() == 2 && answer.blocks.iter().all(|block| signed(&block.kind)));
}

#[test]
fn fact_38_mapping_8_usage_is_cumulative_and_thoughts_count_as_output() {
    let answer = whole(&[
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":10,"thoughtsTokenCount":5,"totalTokenCount":15}}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"b"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":0,"candidatesTokenCount":2,"thoughtsTokenCount":5,"toolUsePromptTokenCount":7,"totalTokenCount":24}}"#,
    ]);
    assert_eq!(
        answer.usage,
        Usage { input: Some(17), cached: Some(0), output: Some(7), reasoning: Some(5), ..Usage::default() }
    );
}

#[test]
fn fact_39_error_in_the_stream_ends_it() {
    let mut errors = Vec::new();
    let mut decoder = Decoder::new("s");
    for frame in [
        r#"{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"late"}]}}]}"#,
    ] {
        decoder
            .frame(frame, &mut |event| match event {
                Event::Error(raw) => errors.push(raw.text().to_owned()),
                other => panic!("{other:?}"),
            })
            .unwrap();
    }
    assert!(decoder.is_over());
    assert_eq!(errors, [r#"{"code":503,"message":"busy","status":"UNAVAILABLE"}"#]);
    assert_eq!(decoder.finish(&mut |event| panic!("{event:?}")), Ok(()));
}

#[test]
fn bug_20_finish_reason_in_every_frame_does_not_end_the_block() {
    let answer = whole(&[&parts(r#"{"text":"a"}"#, STOP), &parts(r#"{"text":"b"}"#, STOP)]);
    assert_eq!(kinds(&answer), [("text", "ab")]);
    assert_eq!(answer.finishes, [(0, FinishOwned::Stop)]);
}

#[test]
fn bug_19_finish_reason_null_is_none() {
    let nothing = r#","finishReason":null,"index":0"#;
    let (answer, end) = read(&[&parts(r#"{"text":"a"}"#, nothing)]);
    assert_eq!((end, answer.finishes.len()), (Err(CutText), 0));
}

#[test]
fn bug_47_stream_without_a_finish_reason_is_cut() {
    assert_eq!(read(&[&parts(r#"{"text":"a"}"#, "")]).1, Err(CutText));
    assert_eq!(read(&[]).1, Err(CutText));
    assert_eq!(read(&["{}"]).1, Err(CutText));
    assert_eq!(read(&[r#"{"usageMetadata":{"promptTokenCount":3}}"#]).1, Err(CutText));
}

#[test]
fn candidates_have_their_own_blocks() {
    let answer = whole(&[
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"index":0},{"content":{"parts":[{"text":"x"}]},"index":1}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"y"}]},"finishReason":"MAX_TOKENS","index":1}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f"}}]},"finishReason":"STOP","index":0}]}"#,
    ]);
    assert_eq!(kinds(&answer), [("text", "a"), ("text", "xy"), ("call", "")]);
    assert_eq!(answer.blocks.iter().map(|block| block.choice).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!(answer.finishes, [(0, FinishOwned::ToolUse), (1, FinishOwned::Length)]);
    let (_, end) = read(&[r#"{"candidates":[{"finishReason":"STOP"},{"content":{},"index":1}]}"#]);
    assert_eq!(end, Err(CutText));
}

#[test]
fn mapping_9_bug_69_grounding_becomes_citations_in_characters() {
    let answer = whole(&[
        &parts(r#"{"text":"Grüße: "},{"text":"\u4e16\n5\u00b0 warm."}"#, r#","groundingMetadata":{}"#),
        r#"{"candidates":[{"finishReason":"STOP","groundingMetadata":{
            "groundingSupports":[{"segment":{"startIndex":9,"endIndex":22,"text":"…"},"groundingChunkIndices":[0,2,9]},{"segment":{"endIndex":7},"groundingChunkIndices":[1]}],
            "groundingChunks":[{"web":{"uri":"https://a","title":"A"}},{"retrievedContext":{"text":"t"}},{"web":{"uri":"https://b"}}]}}]}"#,
        r#"{"usageMetadata":{"promptTokenCount":1,"totalTokenCount":1}}"#,
    ]);
    let citations: Vec<_> = answer.blocks[0].citations.iter().map(|c| (&*c.url, &*c.title, c.span)).collect();
    assert_eq!(citations, [("https://a", "A", Some((7, 17))), ("https://b", "", Some((7, 17)))]);
}

#[test]
fn grounding_without_passages_becomes_citations_without_a_span() {
    let metadata =
        r#","finishReason":"STOP","groundingMetadata":{"groundingChunks":[{"web":{"uri":"https://a"}}]}"#;
    let answer = whole(&[&parts(r#"{"text":"a"},{"functionCall":{"name":"f"}}"#, metadata)]);
    assert_eq!(kinds(&answer), [("text", "a"), ("call", ""), ("text", "")]);
    assert_eq!(
        (&*answer.blocks[2].citations[0].url, answer.blocks[2].citations[0].span),
        ("https://a", None)
    );
    // An image has no text to cite.
    let picture = r#"{"inlineData":{"mimeType":"image/png","data":"QQ=="}}"#;
    assert_eq!(whole(&[&parts(picture, metadata)]).blocks.len(), 1);
}

#[test]
fn logprobs_are_decoded_from_two_lists() {
    let metadata = r#","finishReason":"STOP","logprobsResult":{"chosenCandidates":[{"token":"é","tokenId":1,"logProbability":-0.5},{"token":"b","logProbability":-1}],"topCandidates":[{"candidates":[{"token":"é","logProbability":-0.5},{"token":"x","logProbability":-2}]}]}"#;
    let answer = whole(&[&parts(r#"{"text":"éb"}"#, metadata)]);
    assert_eq!(
        answer.blocks[0].logprobs,
        r#"{"token":"é","logprob":-0.5,"bytes":[195,169],"top_logprobs":[{"token":"é","logprob":-0.5,"bytes":[195,169]},{"token":"x","logprob":-2,"bytes":[120]}]},{"token":"b","logprob":-1,"bytes":[98],"top_logprobs":[]}"#
    );
}

#[test]
fn media_may_be_a_url_and_thought_images_are_omitted() {
    let answer = whole(&[&parts(
        r#"{"thought":true,"inlineData":{"mimeType":"image/png","data":"QQ=="}},{"fileData":{"mimeType":"video/mp4","fileUri":"https://v"}}"#,
        STOP,
    )]);
    assert_eq!(answer.blocks.len(), 1);
    assert_eq!(answer.blocks[0].kind, AnswerBlockKind::Media { mime: "video/mp4".into() });
    assert_eq!(answer.blocks[0].url.as_deref(), Some("https://v"));
}

#[test]
fn frame_that_is_not_json_is_an_error_and_decoding_continues() {
    let mut decoder = Decoder::new("s");
    assert!(decoder.frame("[DONE]", &mut |event| panic!("{event:?}")).is_err());
    assert!(decoder.frame(r#"{"candidates":[{"content""#, &mut |event| panic!("{event:?}")).is_err());
    let mut events = 0;
    decoder.frame(&parts(r#"{"text":"a"}"#, STOP), &mut |_| events += 1).unwrap();
    decoder.finish(&mut |_| events += 1).unwrap();
    // Start, block start, delta; block stop, finish, end.
    assert_eq!(events, 6);
}

/// Returns a frame; two of them differ only in their text and their numbers.
fn like(n: u64, text: &str) -> String {
    format!(
        r#"{{"candidates":[{{"content":{{"parts":[{{"text":"{text}"}}],"role":"model"}},"index":0}}],"usageMetadata":{{"promptTokenCount":9,"candidatesTokenCount":{n},"totalTokenCount":{}}},"responseId":"r1"}}"#,
        n + 9
    )
}

#[test]
fn usage_of_the_last_similar_frame_counts() {
    let frames = [&*like(1, "a"), &like(22, "\\\"b\\n"), &like(333, ""), &like(0, "ü")];
    let (answer, end) = read(&frames);
    assert_eq!((end, kinds(&answer)), (Err(CutText), vec![("text", "a\\\"b\\nü")]));
    assert_eq!((answer.usage.input, answer.usage.output), (Some(9), Some(0)), "a stream that was cut");

    let last = parts(r#"{"text":"c"}"#, STOP);
    let answer = whole(&[frames[0], frames[2], &last]);
    assert_eq!((kinds(&answer), answer.usage.output), (vec![("text", "ac")], Some(333)));

    // `settle` emits the usage that was left unread, once.
    let mut decoder = Decoder::new("seed");
    let mut told = Vec::new();
    let mut sink = |event: Event<'_>| {
        if let Event::Usage(usage) = event {
            told.push(usage.output);
        }
    };
    frames.iter().for_each(|frame| decoder.frame(frame, &mut sink).unwrap());
    for _ in 0..2 {
        decoder.parse_deferred(&mut sink).unwrap();
    }
    // The first usage precedes the start as well.
    assert_eq!(told, [Some(1), Some(1), Some(0)]);
}

#[test]
fn frame_similar_to_the_last_one_is_decoded() {
    let other = like(3, "b").replace(r#""index":0"#, r#""index":1"#);
    let thought = like(3, "t").replace(r#""t"}"#, r#""t","thought":true}"#);
    let ended = like(4, "c").replace(r#","index":0"#, r#","finishReason":"STOP","index":0"#);
    let answer = whole(&[&like(1, "a"), &like(2, "a"), &thought, &like(3, "b"), &ended]);
    assert_eq!(kinds(&answer), [("text", "aa"), ("reasoning", "t"), ("text", "bc")]);
    let (answer, _) = read(&[&like(1, "a"), &other, &other]);
    assert_eq!(
        answer.blocks.iter().map(|block| (block.choice, &*block.text)).collect::<Vec<_>>(),
        [(0, "a"), (1, "bb")]
    );
    let mut decoder = Decoder::new("seed");
    decoder.frame(&like(1, "a"), &mut |_| ()).unwrap();
    assert!(decoder.frame(&like(1, "a\u{1}"), &mut |_| ()).is_err());
    assert!(decoder.frame(like(1, "a").trim_end_matches('}'), &mut |_| ()).is_err());
}
