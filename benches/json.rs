//! JSON readers compared on documents that the gateway consumes whole: the reader of `src/json`, the tape of simd-json
//! and the lazy values of sonic-rs. Each contestant makes the same output from the same input.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use codec::wire::embeddings::number;
use json::{Cursor, JsonStr, push_escaped};
use simd_json::prelude::*;
use sonic_rs::{JsonValueTrait as _, LazyValue};

/// Sizes of the documents, in bytes.
const SIZES: [(&str, usize); 3] = [("2 KB", 2_000), ("200 KB", 200_000), ("5 MB", 5_000_000)];
/// Rounds of which the median is printed. Contestants take turns within a round, so that noise meets all of them.
const ROUNDS: usize = 15;
/// Time of one contestant in one round.
const SPAN: Duration = Duration::from_millis(30);

/// Text whose escaped form has about `size` bytes.
fn text(content: &str, size: usize) -> String {
    let line = match content {
        "ascii" => "The quick brown fox jumps over the lazy dog and reads on. ".to_owned(),
        "cjk" => "今天天气很好，我们去公园散步吧。明天也许会下雨。".to_owned(),
        "base64" => "aGVsbG8gd29ybGQhIHRoaXMgaXMgYmFzZTY0IGVuY29kZWQgZGF0YQ".to_owned(),
        _ => "fn main() {\n\tprintln!(\"{}\\n\", \"x\");\n}\n".to_owned(),
    };
    let escaped = serde_json::to_string(&line).unwrap().len() - 2;
    line.repeat(size / escaped + 1)
}

/// A chat completion with that much text.
fn answer(content: &str, size: usize) -> String {
    let text = serde_json::to_string(&text(content, size)).unwrap();
    format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"gpt-4o","choices":[{{"index":0,"message":{{"role":"assistant","content":{text},"refusal":null,"annotations":[]}},"logprobs":null,"finish_reason":"stop"}}],"usage":{{"prompt_tokens":12,"completion_tokens":34,"total_tokens":46,"prompt_tokens_details":{{"cached_tokens":0,"audio_tokens":0}}}},"system_fingerprint":"fp_1"}}"#
    )
}

/// A chat request of that size with turns of 300 bytes, as agents write them.
fn request(content: &str, size: usize) -> String {
    let mut out = String::from(r#"{"model":"gpt-4o","stream":true,"messages":["#);
    let turn = serde_json::to_string(&text(content, 240)).unwrap();
    for at in 0.. {
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        let comma = if at == 0 { "" } else { "," };
        write!(out, r#"{comma}{{"role":"{role}","content":{turn}}}"#).unwrap();
        if out.len() > size {
            break;
        }
    }
    out.push_str(r#"],"temperature":0.5,"max_tokens":1000}"#);
    out
}

/// A chat request of that size whose tools are most of it, as agents write them. Only the model is read.
fn tools(size: usize) -> String {
    let tool = r#"{"type":"function","function":{"name":"get_weather","description":"Returns the weather of a place, now or on a day of the next week.","parameters":{"type":"object","properties":{"place":{"type":"string","description":"City and country"},"day":{"type":["string","null"],"enum":["today","tomorrow"]}},"required":["place"],"additionalProperties":false}}}"#;
    let tools = vec![tool; size / tool.len() + 1].join(",");
    format!(r#"{{"model":"gpt-4o","tools":[{tools}],"messages":[{{"role":"user","content":"hello"}}]}}"#)
}

/// Vectors of 256 numbers.
fn vectors(size: usize) -> String {
    let mut out = String::from(r#"{"object":"list","data":["#);
    let mut state = 1u32;
    for at in 0.. {
        let comma = if at == 0 { "" } else { "," };
        write!(out, r#"{comma}{{"object":"embedding","index":{at},"embedding":["#).unwrap();
        for each in 0..if size < 5_000 { 64 } else { 256 } {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = (state >> 8) as f32 / 16_777_216.0 - 0.5;
            // As most providers write them: the float's digits as those of a double.
            write!(out, "{}{}", if each == 0 { "" } else { "," }, f64::from(number / 16.0)).unwrap();
        }
        out.push_str("]}");
        if out.len() > size {
            break;
        }
    }
    out.push_str(r#"],"model":"text-embedding-3-small","usage":{"prompt_tokens":8,"total_tokens":8}}"#);
    out
}

/// What becomes of the text of a document.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    /// It is written into another document, still escaped where a contestant can leave it so.
    PassedOn,
    /// It is read: tokens are counted, or it is stored.
    Decoded,
}

fn passed(text: &str, out: &mut BytesMut) {
    out.extend_from_slice(b"\"");
    push_escaped(out, text);
    out.extend_from_slice(b"\"");
}

mod reader {
    use super::*;

    fn put(text: JsonStr<'_>, usage: Use, out: &mut BytesMut) {
        match usage {
            Use::PassedOn => {
                out.extend_from_slice(b"\"");
                out.extend_from_slice(text.escaped().as_bytes());
                out.extend_from_slice(b"\"");
            }
            Use::Decoded => out.extend_from_slice(text.decode().as_bytes()),
        }
    }

    fn message(json: &mut Cursor<'_>, usage: Use, out: &mut BytesMut) {
        json.begin_object().unwrap();
        while let Some(key) = json.next_key().unwrap() {
            match key.escaped() {
                "role" | "content" => {
                    if let Some(text) = json.string_or_null().unwrap() {
                        put(text, usage, out);
                    }
                }
                _ => json.skip().unwrap(),
            }
        }
    }

    pub(super) fn conversation(text: &[u8], usage: Use, out: &mut BytesMut) {
        let text = simdutf8::basic::from_utf8(text).unwrap();
        let mut json = Cursor::new(text);
        json.begin_object().unwrap();
        while let Some(key) = json.next_key().unwrap() {
            match key.escaped() {
                "model" => put(json.string().unwrap(), usage, out),
                "messages" => {
                    json.begin_array().unwrap();
                    while json.next_element().unwrap() {
                        message(&mut json, usage, out);
                    }
                }
                "choices" => {
                    json.begin_array().unwrap();
                    while json.next_element().unwrap() {
                        json.begin_object().unwrap();
                        while let Some(key) = json.next_key().unwrap() {
                            match key.escaped() {
                                "message" => message(&mut json, usage, out),
                                _ => json.skip().unwrap(),
                            }
                        }
                    }
                }
                "usage" => {
                    json.begin_object().unwrap();
                    while let Some(key) = json.next_key().unwrap() {
                        match key.escaped() {
                            "prompt_tokens" | "completion_tokens" => {
                                out.extend_from_slice(&json.u64_or_skip().unwrap().unwrap().to_le_bytes());
                            }
                            _ => json.skip().unwrap(),
                        }
                    }
                }
                _ => json.skip().unwrap(),
            }
        }
        json.end().unwrap();
    }

    pub(super) fn vectors(text: &[u8], out: &mut BytesMut) {
        let text = simdutf8::basic::from_utf8(text).unwrap();
        let mut json = Cursor::new(text);
        json.begin_object().unwrap();
        while let Some(key) = json.next_key().unwrap() {
            match key.escaped() {
                "data" => {
                    json.begin_array().unwrap();
                    while json.next_element().unwrap() {
                        json.begin_object().unwrap();
                        while let Some(key) = json.next_key().unwrap() {
                            match key.escaped() {
                                "embedding" => number::push_base64(json.raw().unwrap(), out).unwrap(),
                                _ => json.skip().unwrap(),
                            }
                        }
                    }
                }
                _ => json.skip().unwrap(),
            }
        }
        json.end().unwrap();
    }
}

mod tape {
    use super::*;

    pub(super) struct Room {
        copy: Vec<u8>,
        buffers: simd_json::Buffers,
        tape: Option<simd_json::Tape<'static>>,
    }

    impl Room {
        pub(super) fn new() -> Self {
            Room {
                copy: Vec::new(),
                buffers: simd_json::Buffers::default(),
                tape: Some(simd_json::Tape::null()),
            }
        }
    }

    fn put(text: &str, usage: Use, out: &mut BytesMut) {
        match usage {
            Use::PassedOn => passed(text, out),
            Use::Decoded => out.extend_from_slice(text.as_bytes()),
        }
    }

    fn message(value: simd_json::tape::Value<'_, '_>, usage: Use, out: &mut BytesMut) {
        for (key, value) in &value.as_object().unwrap() {
            if matches!(key, "role" | "content")
                && let Some(text) = value.as_str()
            {
                put(text, usage, out);
            }
        }
    }

    // The tape is built over a copy: the bytes that came are shared, and simd-json unescapes in place.
    pub(super) fn conversation(text: &[u8], usage: Use, room: &mut Room, out: &mut BytesMut) {
        room.copy.clear();
        room.copy.extend_from_slice(text);
        let mut tape = room.tape.take().unwrap().reset();
        simd_json::fill_tape(&mut room.copy, &mut room.buffers, &mut tape).unwrap();
        for (key, value) in &tape.as_value().as_object().unwrap() {
            match key {
                "model" => put(value.as_str().unwrap(), usage, out),
                "messages" => value.as_array().unwrap().iter().for_each(|value| message(value, usage, out)),
                "choices" => {
                    for value in &value.as_array().unwrap() {
                        if let Some(value) = value.as_object().unwrap().get("message") {
                            message(value, usage, out);
                        }
                    }
                }
                "usage" => {
                    let value = value.as_object().unwrap();
                    for key in ["prompt_tokens", "completion_tokens"] {
                        out.extend_from_slice(&value.get(key).unwrap().as_u64().unwrap().to_le_bytes());
                    }
                }
                _ => {}
            }
        }
        room.tape = Some(tape.reset());
    }

    pub(super) fn vectors(text: &[u8], room: &mut Room, out: &mut BytesMut) {
        room.copy.clear();
        room.copy.extend_from_slice(text);
        let mut tape = room.tape.take().unwrap().reset();
        simd_json::fill_tape(&mut room.copy, &mut room.buffers, &mut tape).unwrap();
        let value = tape.as_value().as_object().unwrap().get("data").unwrap();
        let mut floats = Vec::new();
        for value in &value.as_array().unwrap() {
            let numbers = value.as_object().unwrap().get("embedding").unwrap();
            floats.clear();
            floats.extend(numbers.as_array().unwrap().iter().map(|value| value.cast_f64().unwrap() as f32));
            number::push_floats(&floats, out);
        }
        room.tape = Some(tape.reset());
    }
}

mod lazy {
    use super::*;

    fn put(value: &LazyValue<'_>, usage: Use, out: &mut BytesMut) {
        match usage {
            Use::PassedOn => out.extend_from_slice(value.as_raw_str().as_bytes()),
            Use::Decoded => out.extend_from_slice(value.as_str().unwrap().as_bytes()),
        }
    }

    fn message(value: LazyValue<'_>, usage: Use, out: &mut BytesMut) {
        for entry in value.into_object_iter().unwrap() {
            let (key, value) = entry.unwrap();
            if matches!(&*key, "role" | "content") && value.is_str() {
                put(&value, usage, out);
            }
        }
    }

    pub(super) fn conversation(text: &[u8], usage: Use, out: &mut BytesMut) {
        for entry in sonic_rs::to_object_iter(text) {
            let (key, value) = entry.unwrap();
            match &*key {
                "model" => put(&value, usage, out),
                "messages" => {
                    for value in value.into_array_iter().unwrap() {
                        message(value.unwrap(), usage, out);
                    }
                }
                "choices" => {
                    for value in value.into_array_iter().unwrap() {
                        for entry in value.unwrap().into_object_iter().unwrap() {
                            let (key, value) = entry.unwrap();
                            if &*key == "message" {
                                message(value, usage, out);
                            }
                        }
                    }
                }
                "usage" => {
                    for entry in value.into_object_iter().unwrap() {
                        let (key, value) = entry.unwrap();
                        if matches!(&*key, "prompt_tokens" | "completion_tokens") {
                            out.extend_from_slice(&value.as_u64().unwrap().to_le_bytes());
                        }
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn vectors(text: &[u8], out: &mut BytesMut) {
        let mut floats = Vec::new();
        for entry in sonic_rs::to_object_iter(text) {
            let (key, value) = entry.unwrap();
            if &*key != "data" {
                continue;
            }
            for value in value.into_array_iter().unwrap() {
                for entry in value.unwrap().into_object_iter().unwrap() {
                    let (key, value) = entry.unwrap();
                    if &*key == "embedding" {
                        floats.clear();
                        sonic_rs::from_str::<Vec<f32>>(value.as_raw_str())
                            .map(|list| floats.extend(list))
                            .unwrap();
                        number::push_floats(&floats, out);
                    }
                }
            }
        }
    }
}

/// Writes the output of one contestant.
type Run<'a> = Box<dyn FnMut(&mut BytesMut) + 'a>;

/// Returns the median time of one run of each contestant, in nanoseconds.
fn measure(contestants: &mut [Run<'_>]) -> Vec<f64> {
    let mut times = vec![Vec::new(); contestants.len()];
    let mut out = BytesMut::new();
    let mut outputs = Vec::new();
    for contestant in contestants.iter_mut() {
        out.clear();
        contestant(&mut out);
        outputs.push(out.to_vec());
    }
    assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]), "the contestants disagree");
    for _ in 0..ROUNDS {
        for (contestant, times) in contestants.iter_mut().zip(&mut times) {
            let (begin, mut runs) = (Instant::now(), 0u32);
            while begin.elapsed() < SPAN {
                out.clear();
                contestant(black_box(&mut out));
                runs += 1;
            }
            times.push(begin.elapsed().as_nanos() as f64 / f64::from(runs));
        }
    }
    times
        .into_iter()
        .map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        })
        .collect()
}

fn row(name: &str, size: &str, bytes: usize, times: &[f64]) {
    let rate = |time: f64| bytes as f64 / time;
    println!(
        "| {name} | {size} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
        rate(times[0]),
        rate(times[1]),
        rate(times[2]),
        times[1] / times[0],
        times[2] / times[0]
    );
}

fn main() {
    println!(
        "| Document | Size | Reader, GB/s | simd-json tape, GB/s | sonic-rs lazy, GB/s | simd-json / reader, time | sonic-rs / reader, time |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|");
    type Made = fn(&str, usize) -> String;
    let kinds: [(&str, Made); 2] = [("answer", answer), ("request", request)];
    for (kind, make) in kinds {
        for (usage, name) in [(Use::PassedOn, "passed on"), (Use::Decoded, "decoded")] {
            for content in ["ascii", "cjk", "base64", "escapes"] {
                for (size, bytes) in SIZES {
                    let text = make(content, bytes).into_bytes();
                    let mut room = tape::Room::new();
                    let times = measure(&mut [
                        Box::new(|out| reader::conversation(&text, usage, out)),
                        Box::new(|out| tape::conversation(&text, usage, &mut room, out)),
                        Box::new(|out| lazy::conversation(&text, usage, out)),
                    ]);
                    row(&format!("{kind}, {content}, {name}"), size, text.len(), &times);
                }
            }
        }
    }
    for (size, bytes) in SIZES {
        let text = tools(bytes).into_bytes();
        let mut room = tape::Room::new();
        let times = measure(&mut [
            Box::new(|out| reader::conversation(&text, Use::PassedOn, out)),
            Box::new(|out| tape::conversation(&text, Use::PassedOn, &mut room, out)),
            Box::new(|out| lazy::conversation(&text, Use::PassedOn, out)),
        ]);
        row("request, tools, skipped", size, text.len(), &times);
    }
    for (size, bytes) in SIZES {
        let text = vectors(bytes).into_bytes();
        let mut room = tape::Room::new();
        let times = measure(&mut [
            Box::new(|out| reader::vectors(&text, out)),
            Box::new(|out| tape::vectors(&text, &mut room, out)),
            Box::new(|out| lazy::vectors(&text, out)),
        ]);
        row("vectors, numbers to base64", size, text.len(), &times);
    }
}
