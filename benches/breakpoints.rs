//! Cost of automatic prompt-cache breakpoints, for conversations of several lengths. In a body that is forwarded:
//! finding the places and inserting the marks, beside the scan that every body gets. In a request that is translated,
//! to the messages format and to Converse: the translation with marks, beside the one without.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark"
)]

mod measure;

use bytes::Bytes;
use codec::canonical::{BreakpointRule, CacheBreakpoint, Dialect, Thinking};
use codec::translate::{PromptCaching, StoreOptions, TranslateRequest, outgoing_stored};
use codec::wire::request::{Body, BodyReader};
use codec::wire::{Api, Format};
use json::{EscapedString, JsonText};
use measure::{Subject, copy, criterion, print_summary};

const RULE: BreakpointRule = BreakpointRule {
    instructions: CacheBreakpoint::Short,
    turns: CacheBreakpoint::Short,
    min_tokens: 512,
    tools: true,
};

/// Returns the request of a coding agent: tools, a system prompt, and calls with results of about 1 KiB.
fn request(turns: usize) -> Bytes {
    let tool = format!(
        r#"{{"name":"read","description":"{}","input_schema":{{"type":"object"}}}}"#,
        "d ".repeat(400)
    );
    let mut messages = r#"{"role":"user","content":"Fix the tests."}"#.to_owned();
    for turn in 0..turns {
        let lines = format!("let x = \\\"{turn}\\\";\\n").repeat(45);
        messages += &format!(
            r#",{{"role":"assistant","content":[{{"type":"text","text":"Next."}},{{"type":"tool_use","id":"t{turn}","name":"read","input":{{"path":"src/{turn}.rs"}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{turn}","content":"{lines}"}}]}}"#
        );
    }
    let system = "You are a coding agent. ".repeat(80);
    let text = format!(
        r#"{{"model":"claude-sonnet-4-5","max_tokens":1024,"tools":[{tool},{tool}],"system":"{system}","messages":[{messages}]}}"#
    );
    Bytes::from(text)
}

fn scan(text: &Bytes) -> Body {
    let mut reader = BodyReader::new(Api::Messages, false);
    reader.push(text.clone()).unwrap();
    reader.finish().unwrap()
}

/// Returns the same conversation as a chat request.
fn chat_request(turns: usize) -> String {
    let tool = format!(
        r#"{{"type":"function","function":{{"name":"read","description":"{}","parameters":{{"type":"object"}}}}}}"#,
        "d ".repeat(400)
    );
    let system = "You are a coding agent. ".repeat(80);
    let mut messages =
        format!(r#"{{"role":"system","content":"{system}"}},{{"role":"user","content":"Fix the tests."}}"#);
    for turn in 0..turns {
        let lines = format!("let x = \\\"{turn}\\\";\\n").repeat(45);
        messages += &format!(
            r#",{{"role":"assistant","content":"Next.","tool_calls":[{{"id":"t{turn}","type":"function","function":{{"name":"read","arguments":"{{\"path\":\"src/{turn}.rs\"}}"}}}}]}},{{"role":"tool","tool_call_id":"t{turn}","content":"{lines}"}}"#
        );
    }
    format!(r#"{{"model":"m","max_tokens":1024,"tools":[{tool},{tool}],"messages":[{messages}]}}"#)
}

/// Translates a chat request. Returns the length of the result.
fn translate(text: &JsonText, provider: Format, breakpoints: Option<BreakpointRule>) -> usize {
    let dialect = Dialect::plain("claude-sonnet-4-5", "p");
    let model = EscapedString::from("m");
    let ask = TranslateRequest {
        client: Format::Chat,
        provider,
        stream: false,
        array: false,
        thinking: Thinking::Unset,
        dialect: &dialect,
        model: &model,
        id: "req_1",
        seed: "1",
        now: 1,
    };
    let caching = PromptCaching { breakpoints, key: None };
    let stored = StoreOptions { caching, ..StoreOptions::default() };
    let translated = outgoing_stored(text, &ask, stored).unwrap();
    assert_eq!(translated.breakpoints > 0, breakpoints.is_some());
    translated.body.len()
}

fn main() {
    let mut criterion = criterion(200, 1_000);
    let (mut summary, mut place) = (Vec::new(), Vec::new());
    for turns in [1, 20, 200] {
        let text = request(turns);
        let body = scan(&text);
        let name = format!("{turns} turns, {} bytes", text.len());
        let mut subject = Subject::new(&mut criterion, name, text.len(), 1);
        subject.case("copy", || copy(std::slice::from_ref(&text), &mut place));
        subject.case("scan", || scan(&text));
        subject.case("breakpoints", || body.breakpoints(&RULE));
        subject.case("breakpoints and edit", || {
            let edits = body.breakpoints(&RULE).edits;
            body.text.clone().edited(&edits)
        });
        subject.case("trees", || serde_json::from_slice::<serde_json::Value>(&text).unwrap());
        summary.extend(subject.lines());
        let text = JsonText::from(chat_request(turns));
        let name = format!("{turns} turns, translated, {} bytes", text.len());
        let mut subject = Subject::new(&mut criterion, name, text.len(), 1);
        subject.case("copy", || copy(std::slice::from_ref(text.as_bytes()), &mut place));
        for (format, plain, marked) in [
            (Format::Messages, "messages", "messages with marks"),
            (Format::Converse, "Converse", "Converse with marks"),
        ] {
            subject.case(plain, || translate(&text, format, None));
            subject.case(marked, || translate(&text, format, Some(RULE)));
        }
        summary.extend(subject.lines());
    }
    print_summary(&summary);
}
