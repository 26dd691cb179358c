//! Tests of random mixes of chunks of all providers: events stay in a valid order, and the encoded stream is valid.

use proptest::prelude::*;

use super::*;

/// Members that a delta may have, with a number to fill in.
const DELTAS: [&str; 30] = [
    r#""content":"a""#,
    r#""content":"""#,
    r#""content":[{"type":"text","text":"b"},{"type":"thinking","thinking":[{"text":"c"}]},"d"]"#,
    r#""reasoning_content":"r","content":"t""#,
    r#""reasoning":"r""#,
    r#""reasoning_details":[{"type":"reasoning.text","text":"r","index":N}]"#,
    r#""reasoning":"r","reasoning_details":[{"type":"reasoning.text","text":"r","signature":"s"}]"#,
    r#""reasoning_details":[{"type":"reasoning.summary","summary":"z"},{"type":"reasoning.encrypted","data":"e"}]"#,
    r#""reasoning_details":[{"type":"reasoning.text","signature":"s"},{"type":"reasoning.encrypted","data":"e"}]"#,
    r#""refusal":"no""#,
    r#""tool_calls":[{"index":N,"id":"cN","type":"function","function":{"name":"f","arguments":""}}]"#,
    r#""tool_calls":[{"index":N,"id":"cN","function":{"name":"f","arguments":"{}"}}]"#,
    r#""tool_calls":[{"index":N,"function":{"arguments":"{\"a\":"}}]"#,
    r#""tool_calls":[{"index":N,"function":{"arguments":"1}"}}]"#,
    r#""tool_calls":[{"index":N,"id":"","function":{"name":"","arguments":" "}}]"#,
    r#""tool_calls":[{"function":{"name":"g","arguments":"{}"}}]"#,
    r#""tool_calls":[{"id":"cN","function":{"arguments":"{"}}]"#,
    r#""tool_calls":[{"id":"x","function":{"name":"f","arguments":{"o":1}}}]"#,
    r#""tool_calls":[{"index":N,"function":{"arguments":{"o":1}}}]"#,
    r#""tool_calls":[{"index":N,"id":"u","custom":{"name":"run","input":"i"}}]"#,
    r#""tool_calls":[{"index":N,"extra_content":{"google":{"thought_signature":"s"}},"function":{"name":"h"}}]"#,
    r#""function_call":{"name":"f","arguments":"{"}"#,
    r#""extra_content":{"google":{"thought_signature":"s"}},"content":"x""#,
    r#""images":[{"image_url":{"url":"data:image/png;base64,QQ=="}}]"#,
    r#""audio":{"data":"UklG"}"#,
    r#""audio":{"data":"QQ=="}"#,
    r#""annotations":[{"type":"url_citation","url_citation":{"url":"https://a"}}]"#,
    r#""role":"assistant""#,
    r#""content":null,"tool_calls":[]"#,
    "",
];

/// Members that a choice may have besides its delta.
const BESIDE: [&str; 6] = [
    "",
    r#","finish_reason":"stop""#,
    r#","finish_reason":"tool_calls""#,
    r#","logprobs":{"content":[{"token":"a"}],"refusal":[{"token":"b"}]}"#,
    r#","finish_reason":"","usage":{"prompt_tokens":1,"completion_tokens":1}"#,
    r#","message":{"content":"m"}"#,
];

fn any_chunk() -> impl Strategy<Value = String> {
    (0..DELTAS.len(), 0..BESIDE.len() * 3, 0u32..3, 0u32..2).prop_map(|(delta, beside, number, choice)| {
        let delta = DELTAS[delta].replace('N', &number.to_string());
        let beside = BESIDE.get(beside).unwrap_or(&"");
        chunk(&format!(r#"{{"index":{choice},"delta":{{{delta}}}{beside}}}"#))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn chunks_in_any_mix_keep_the_event_order_and_round_trip(frames in proptest::collection::vec(any_chunk(), 1..24)) {
        let mut frames = frames;
        // The first choice is always present.
        frames.insert(0, delta(r#""role":"assistant""#));
        frames.push(DONE.to_owned());
        if !try_read(&frames).2 {
            // Half a call without a finish reason.
            let end = |choice| chunk(&format!(r#"{{"index":{choice},"delta":{{}},"finish_reason":"length"}}"#));
            frames.splice(frames.len() - 1.., [end(0), end(1), DONE.to_owned()]);
        }
        // Decoding asserts the order of the events.
        let answer = read(&frames);

        let (mut out, mut encoder) = (BytesMut::new(), stream::Encoder::new(Arc::new(reply())));
        let mut decoder = stream::Decoder::new("seed");
        for frame in &frames {
            decoder.frame(frame, &mut |event| encoder.event(&event, &mut out)).unwrap();
        }
        // Decoding the encoded stream gives the same response, except for blocks that this format does not keep apart.
        let text = String::from_utf8(out.to_vec()).unwrap();
        let mut again: Vec<String> = chunks_in(&text).iter().map(Value::to_string).collect();
        again.push(DONE.to_owned());
        let again = read(&again);
        for kind in [AnswerBlockKind::Text, AnswerBlockKind::Refusal, AnswerBlockKind::Reasoning] {
            for choice in 0..answer.choices() {
                let said = |answer: &Answer| {
                    let blocks = answer.blocks_of(choice).filter(|block| block.kind == kind);
                    blocks.map(|block| block.text.as_str()).collect::<String>()
                };
                prop_assert_eq!(said(&answer), said(&again));
            }
        }
        for (finish, again) in answer.finishes.iter().zip(&again.finishes) {
            // The end of a turn with calls that has none is a plain end.
            let has_calls =
                answer.blocks_of(finish.0).any(|block| matches!(block.kind, AnswerBlockKind::ToolUse { .. }));
            let expected = match &finish.1 {
                FinishOwned::ToolUse if !has_calls => &FinishOwned::Stop,
                finish => finish,
            };
            prop_assert_eq!((finish.0, expected), (again.0, &again.1));
        }
        prop_assert_eq!(answer.finishes.len(), again.finishes.len());
        prop_assert_eq!(calls_of(&answer).len(), calls_of(&again).len());
    }

    #[test]
    fn decode_of_arbitrary_text_never_panics(body in "[\\[\\]{}\\\\\":,a-z0-9 ]{0,60}") {
        let _ = whole::decode(&body, "seed", false, &mut |_| {});
        let _ = request::decode(&body);
        let _ = request::decode(&asking(&format!(",{body}")));
    }
}
