//! Allocations of the chat codec on the hot path, counted: none per frame.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "allocations/counting.rs"]
mod counting;

use std::sync::Arc;

use bytes::BytesMut;
use codec::wire::chat::stream::{Decoder, Encoder};
use codec::wire::codec::ReplyOptions;
use counting::{Count, count};
use json::EscapedString;

/// Frames that are processed before the count starts, until every buffer has reached its final size.
const WARM: usize = 20;
const FRAMES: usize = 1_000;

fn frame(delta: &str) -> String {
    format!(
        r#"{{"id":"c","object":"chat.completion.chunk","created":1,"model":"v","choices":[{{"index":0,"delta":{{{delta}}},"finish_reason":null}}],"usage":null}}"#
    )
}

/// Counts the allocations of decoding and encoding frames with this delta, after a first frame.
fn allocated(first: &str, delta: impl Fn(usize) -> String) -> Count {
    let reply = ReplyOptions {
        model: EscapedString::from("m"),
        seed: "seed".into(),
        show_thinking: true,
        usage_wanted: true,
        ..ReplyOptions::default()
    };
    let (mut decoder, mut encoder) = (Decoder::new("seed"), Encoder::new(Arc::new(reply)));
    let mut out = BytesMut::with_capacity(1 << 20);
    let frames: Vec<String> = (0..WARM + FRAMES).map(|n| frame(&delta(n))).collect();
    let mut pass =
        |frame: &String| decoder.frame(frame, &mut |event| encoder.event(&event, &mut out)).unwrap();
    pass(&frame(first));
    frames[..WARM].iter().for_each(&mut pass);
    let (count, ()) = count(|| frames[WARM..].iter().for_each(&mut pass));
    assert!(out.len() > FRAMES * 100, "nothing was written");
    count
}

#[test]
fn chat_codec_frames_allocate_nothing() {
    const NOTHING: Count = Count { calls: 0, bytes: 0 };
    assert_eq!(allocated("", |n| format!(r#""content":" w\u00f6rd\n {n}""#)), NOTHING);
    assert_eq!(
        allocated("", |n| format!(r#""role":"assistant","reasoning_content":" word {n}","content":null"#)),
        NOTHING
    );
    let detail = |n| {
        format!(
            r#""reasoning":" {n}","reasoning_details":[{{"type":"reasoning.text","text":" {n}","index":0}}]"#
        )
    };
    assert_eq!(allocated("", detail), NOTHING);
    let call =
        r#""tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":""}}]"#;
    let arguments = |n| format!(r#""tool_calls":[{{"index":0,"function":{{"arguments":"\"{n}\","}}}}]"#);
    assert_eq!(allocated(call, arguments), NOTHING);
    let repeated = |n| {
        format!(
            r#""tool_calls":[{{"index":0,"id":"c","type":"function","function":{{"name":"f","arguments":" {n}"}}}}]"#
        )
    };
    assert_eq!(allocated(call, repeated), NOTHING);
}
