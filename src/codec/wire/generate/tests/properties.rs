use std::sync::Arc;

use bytes::BytesMut;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::dialect;
use crate::canonical::answer::AnswerBlockKind;
use crate::canonical::{Answer, Event, Grammar};
use crate::wire::Format;
use crate::wire::codec::{LossNotes, ReplyOptions};
use crate::wire::generate::request::{decode, encode};
use crate::wire::generate::stream::{Decoder, Encoder};
use json::{EscapedString, RopeBuilder};

fn text() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "a", "\n\"\\", "Grüße 世界 🌍", " "]).prop_map(str::to_owned)
}

fn part() -> impl Strategy<Value = Value> {
    let data = prop_oneof![
        4 => text().prop_map(|text| json!({"text": text})),
        2 => text().prop_map(|text| json!({"text": text, "thought": true})),
        2 => prop::sample::select(vec!["", "f", "g"]).prop_map(|name| json!({"functionCall": {"name": name, "args": {"a": name}}})),
        1 => Just(json!({"functionCall": {"name": "p", "willContinue": true}})),
        1 => text().prop_map(|text| json!({"functionCall": {"partialArgs": [{"jsonPath": "$.x[1].y", "stringValue": text}], "willContinue": true}})),
        1 => Just(json!({"functionCall": {}})),
        1 => Just(json!({"inlineData": {"mimeType": "image/png", "data": "QQ=="}})),
        1 => Just(json!({"executableCode": {"code": "1"}})),
        1 => Just(json!({})),
    ];
    (data, prop::option::weighted(0.2, Just("U0lH"))).prop_map(|(mut part, signature)| {
        if let Some(signature) = signature {
            part["thoughtSignature"] = json!(signature);
        }
        part
    })
}

fn frame() -> impl Strategy<Value = Value> {
    let finish =
        prop::option::weighted(0.3, prop::sample::select(vec!["STOP", "MAX_TOKENS", "SAFETY", "NO_IMAGE"]));
    let grounding = prop::option::weighted(0.1, (0u64..30, 0u64..30));
    let candidate = (0u32..2, prop::collection::vec(part(), 0..4), finish, grounding);
    let candidate = candidate.prop_map(|(index, parts, finish, grounding)| {
        let mut candidate = json!({"content": {"parts": parts}, "index": index});
        if let Some(finish) = finish {
            candidate["finishReason"] = json!(finish);
        }
        if let Some((start, end)) = grounding {
            candidate["groundingMetadata"] = json!({
                "groundingChunks": [{"web": {"uri": "https://a"}}],
                "groundingSupports": [{"segment": {"startIndex": start, "endIndex": end}, "groundingChunkIndices": [0]}]
            });
        }
        candidate
    });
    (prop::collection::vec(candidate, 0..3), prop::option::of(0u64..9)).prop_map(|(candidates, tokens)| {
        let mut frame = json!({"candidates": candidates, "modelVersion": "m"});
        if let Some(tokens) = tokens {
            frame["usageMetadata"] = json!({"promptTokenCount": tokens, "candidatesTokenCount": tokens});
        }
        frame
    })
}

/// Returns the content of each choice, independent of its division into blocks.
fn said(answer: &Answer) -> Vec<(u32, String, String, usize)> {
    (0..answer.choices())
        .map(|choice| {
            let text = |kind: &AnswerBlockKind| -> String {
                let blocks = answer.blocks_of(choice).filter(|block| block.kind == *kind);
                blocks.map(|block| &*block.text).collect()
            };
            let others = answer.blocks_of(choice).filter(|block| {
                matches!(
                    block.kind,
                    AnswerBlockKind::ToolUse { .. }
                        | AnswerBlockKind::Media { .. }
                        | AnswerBlockKind::Opaque { .. }
                )
            });
            (choice, text(&AnswerBlockKind::Text), text(&AnswerBlockKind::Reasoning), others.count())
        })
        .collect()
}

proptest! {
    /// All streams keep the event grammar, and what is encoded from them decodes to the same response.
    #[test]
    fn frames_in_any_mix_keep_the_grammar_and_round_trip(frames in prop::collection::vec(frame(), 0..8), array in any::<bool>()) {
        let (mut grammar, mut answer) = (Grammar::default(), Answer::default());
        let reply = ReplyOptions { model: EscapedString::from("m"), show_thinking: true, array, ..ReplyOptions::default() };
        let (mut encoder, mut out) = (Encoder::new(Arc::new(reply)), BytesMut::new());
        let mut wrong = None;
        let mut sink = |event: Event<'_>| {
            wrong = wrong.or(grammar.check(&event).err());
            answer.take(&event);
            encoder.event(&event, &mut out);
        };
        let mut decoder = Decoder::new("seed");
        for frame in &frames {
            decoder.frame(&frame.to_string(), &mut sink).unwrap();
        }
        let end = decoder.finish(&mut sink);
        prop_assert_eq!(wrong, None);
        if end.is_err() {
            return Ok(());
        }
        let out = String::from_utf8(out.to_vec()).unwrap();
        let written: Vec<Value> = if array {
            serde_json::from_str(&out).unwrap()
        } else {
            let data = out.split_terminator("\r\n\r\n").map(|frame| frame.strip_prefix("data: ").unwrap());
            data.map(|frame| serde_json::from_str(frame).unwrap()).collect()
        };
        let written: Vec<String> = written.iter().map(Value::to_string).collect();
        let again = super::whole(&written.iter().map(String::as_str).collect::<Vec<_>>());
        prop_assert_eq!(said(&again), said(&answer));
        let reasons = |answer: &Answer| format!("{:?}", answer.finishes);
        prop_assert_eq!(reasons(&again), reasons(&answer));
    }

    /// All requests are either rejected or encoded as a valid request.
    #[test]
    fn contents_in_any_mix_are_refused_or_encoded_validly(
        contents in prop::collection::vec((prop::sample::select(vec!["user", "model", "function", ""]), prop::collection::vec(part(), 0..4)), 0..6),
        from_own in any::<bool>(),
        third in any::<bool>(),
    ) {
        let contents: Vec<Value> = contents.into_iter().map(|(role, parts)| json!({"role": role, "parts": parts})).collect();
        let body = json!({"contents": contents}).to_string();
        let Ok(request) = decode(&body) else { return Ok(()) };
        let from = if from_own { Format::Generate } else { Format::Messages };
        let (mut notes, mut out) = (LossNotes::new(from, Format::Generate), RopeBuilder::default());
        let dialect = dialect(if third { "gemini-3-pro" } else { "gemini-2.5-pro" });
        encode(&request, &dialect, &mut notes, &mut out);
        let out = out.finish().into_contiguous();
        let written: Value = serde_json::from_slice(&out).unwrap();
        let contents = written["contents"].as_array().unwrap();
        prop_assert!(!contents.is_empty());
        prop_assert!(contents.iter().all(|content| !content["parts"].as_array().unwrap().is_empty()));
        if !from_own {
            prop_assert_eq!(&contents[0]["role"], "user");
        }
        // Encoding is deterministic.
        let mut again = RopeBuilder::default();
        encode(&request, &dialect, &mut notes, &mut again);
        prop_assert_eq!(out, again.finish().into_contiguous());
    }

    #[test]
    fn decode_of_arbitrary_text_never_panics(text in "[{}\\[\\]\":,a1]{0,16}", at in 0usize..120) {
        let body = r#"{"contents":[{"role":"user","parts":[{"functionCall":{"name":"f","args":{}}}]}],"candidates":[{"content":{"parts":[{"text":"a"}]}}]}"#;
        let cut = format!("{}{text}", &body[..at.min(body.len())]);
        for body in [&text, &cut] {
            let _ = decode(body);
            let mut grammar = Grammar::default();
            let _ = Decoder::new("s").frame(body, &mut |event| grammar.check(&event).unwrap());
        }
    }
}
