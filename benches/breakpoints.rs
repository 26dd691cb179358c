//! Cost of automatic prompt-cache breakpoints in a body that is forwarded: finding the places and inserting the marks,
//! beside the scan that every body gets, for conversations of several lengths.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark"
)]

mod measure;

use bytes::Bytes;
use measure::{Subject, copy, criterion, print_summary};
use model_gateway::canonical::{BreakpointRule, CacheBreakpoint};
use model_gateway::wire::Api;
use model_gateway::wire::request::{Body, BodyReader};

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
    }
    print_summary(&summary);
}
