//! Elements of requests and responses in the Converse format. Streams are written as the data of server-sent events: an
//! object with one member, which is named like the event.

/// Returns the events of a block whose deltas are these, with its start if it has one.
pub(crate) fn block(i: usize, start: Option<&str>, deltas: &[String]) -> Vec<String> {
    let member = format!(r#""contentBlockIndex":{i}"#);
    let start = start.map(|start| union("contentBlockStart", &format!(r#"{member},"start":{start}"#)));
    let deltas =
        deltas.iter().map(|delta| union("contentBlockDelta", &format!(r#"{member},"delta":{delta}"#)));
    start.into_iter().chain(deltas).chain([union("contentBlockStop", &member)]).collect()
}

/// Returns the frame of an event.
pub(crate) fn union(name: &str, members: &str) -> String {
    format!("data: {{\"{name}\":{{{members}}}}}\n\n")
}

/// Returns the events before and after the blocks.
pub(crate) fn around() -> ([String; 1], [String; 2]) {
    let usage = r#""usage":{"inputTokens":1,"outputTokens":5,"totalTokens":6}"#;
    (
        [union("messageStart", r#""role":"assistant""#)],
        [union("messageStop", r#""stopReason":"end_turn""#), union("metadata", usage)],
    )
}

/// Returns a document with these blocks.
pub(crate) fn document(blocks: &str, finish: &str) -> String {
    let finish = if finish == "tool" { "tool_use" } else { "end_turn" };
    format!(
        r#"{{"output":{{"message":{{"role":"assistant","content":[{blocks}]}}}},"stopReason":"{finish}","usage":{{"inputTokens":1,"outputTokens":1,"totalTokens":2}}}}"#
    )
}

pub(crate) fn text(text: &str) -> String {
    format!(r#"{{"text":"{text}"}}"#)
}

pub(crate) fn cited(text: &str, citations: &str) -> String {
    format!(r#"{{"citationsContent":{{"content":[{{"text":"{text}"}}],"citations":[{citations}]}}}}"#)
}

pub(crate) fn citation(i: usize) -> String {
    format!(r#"{{"title":"t","location":{{"web":{{"url":"https://example.com/{i}"}}}}}}"#)
}

pub(crate) fn reasoning(i: usize) -> String {
    format!(
        r#"{{"reasoningContent":{{"reasoningText":{{"text":"thought {i}","signature":"c2lnbmVk{i}"}}}}}}"#
    )
}

pub(crate) fn image(data: &str) -> String {
    format!(r#"{{"image":{{"format":"png","source":{{"bytes":"{data}"}}}}}}"#)
}

pub(crate) fn document_block(i: usize, data: &str) -> String {
    format!(r#"{{"document":{{"format":"pdf","name":"paper {i}","source":{{"bytes":"{data}"}}}}}}"#)
}

pub(crate) fn tool(name: &str, schema: &str) -> String {
    format!(r#"{{"toolSpec":{{"name":"{name}","description":"x","inputSchema":{{"json":{schema}}}}}}}"#)
}

pub(crate) fn call(i: usize, name: &str) -> String {
    format!(r#"{{"toolUse":{{"toolUseId":"call_{i}","name":"{name}","input":{{}}}}}}"#)
}

pub(crate) fn result(i: usize, content: &str) -> String {
    format!(r#"{{"toolResult":{{"toolUseId":"call_{i}","content":[{content}]}}}}"#)
}

/// Returns a call of a tool that the provider runs.
pub(crate) fn server_call(i: usize) -> String {
    let call =
        format!(r#"{{"toolUseId":"srv_{i}","name":"nova_grounding","type":"server_tool_use","input":{{}}}}"#);
    format!(r#"{{"toolUse":{call}}}"#)
}

/// Returns the member for a response of this schema, which is a string in this format.
pub(crate) fn answered(schema: &str) -> String {
    let schema = schema.replace('\\', "\\\\").replace('"', "\\\"");
    format!(r#""outputConfig":{{"textFormat":{{"structure":{{"jsonSchema":{{"schema":"{schema}"}}}}}}}}"#)
}
