//! Scripted providers for continuation tests: some break their stream, others continue from a prefill.

use serde_json::{Value, json};

use crate::support::form::{Form, provider_error};
use crate::support::upstream::{Conn, Request, Upstream};
use crate::support::{Gate, reply};

/// Full text that every provider would generate.
pub(super) const STORY: &str =
    "Grüße aus \"Köln\" 😀 und dann:\n\n  eine Zeile,   noch eine.\tDas war es \\ fast schon.\nEnde.";

/// Input and output tokens that a provider reports in its usage.
pub(super) const USED: (u64, u64) = (50, 5);

/// Splits the story into words, each with the white space that follows it.
pub(super) fn pieces(story: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = story;
    while !rest.is_empty() {
        let word = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let end = rest[word..].find(|c: char| !c.is_whitespace()).map_or(rest.len(), |space| word + space);
        pieces.push(&rest[..end]);
        rest = &rest[end..];
    }
    pieces
}

/// Frames of a stream: those before the content, one for each piece, and those after the content.
pub(super) struct Frames {
    pub(super) opening: String,
    pub(super) content: Vec<String>,
    pub(super) closing: String,
}

fn named(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

/// Returns the frames of a response with these pieces of text.
pub(super) fn frames(form: Form, id: &str, pieces: &[&str]) -> Frames {
    let (input, output) = USED;
    match form {
        Form::Chat => {
            let chunk = |choices: Value, usage: Value| {
                let chunk = json!({"id": id, "object": "chat.completion.chunk", "created": 1_700_000_000,
                                   "model": "m", "system_fingerprint": "fp", "choices": choices, "usage": usage});
                format!("data: {chunk}\n\n")
            };
            let delta = |delta: Value| {
                chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]), Value::Null)
            };
            let end = json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]);
            let usage =
                json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
            Frames {
                opening: delta(json!({"role": "assistant", "content": ""})),
                content: pieces.iter().map(|piece| delta(json!({"content": piece}))).collect(),
                closing: chunk(end, Value::Null) + &chunk(json!([]), usage) + "data: [DONE]\n\n",
            }
        }
        Form::Messages => {
            let start = json!({"type": "message_start", "message": {
                "id": id, "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
                "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": input, "output_tokens": 1}}});
            let begin = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
            let delta = |piece: &&str| {
                named(&json!({"type": "content_block_delta", "index": 0,
                              "delta": {"type": "text_delta", "text": piece}}))
            };
            let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
                             "usage": {"output_tokens": output}});
            Frames {
                opening: named(&start) + &named(&begin) + &named(&json!({"type": "ping"})),
                content: pieces.iter().map(delta).collect(),
                closing: named(&json!({"type": "content_block_stop", "index": 0}))
                    + &named(&end)
                    + &named(&json!({"type": "message_stop"})),
            }
        }
        Form::Generate => {
            let chunk = |candidate: Value, made: u64| {
                let chunk = json!({"candidates": [candidate], "modelVersion": "m", "responseId": id,
                    "usageMetadata": {"promptTokenCount": input, "candidatesTokenCount": made,
                                      "totalTokenCount": input + made}});
                format!("data: {chunk}\r\n\r\n")
            };
            let part = |piece: &str| json!({"parts": [{"text": piece}], "role": "model"});
            Frames {
                opening: String::new(),
                content: pieces
                    .iter()
                    .map(|piece| chunk(json!({"content": part(piece), "index": 0}), 1))
                    .collect(),
                closing: chunk(json!({"content": part(""), "finishReason": "STOP", "index": 0}), output),
            }
        }
        Form::Responses => panic!("no provider of this format is asked"),
    }
}

/// Returns a complete HTTP response with a stream.
pub(super) fn stream(form: Form, id: &str, text: &str) -> Vec<u8> {
    let Frames { opening, content, closing } = frames(form, id, &pieces(text));
    let mut out = reply::stream_head().into_bytes();
    for frame in std::iter::once(opening).chain(content).chain([closing]) {
        if !frame.is_empty() {
            out.extend_from_slice(&reply::chunk(frame));
        }
    }
    out.extend_from_slice(reply::LAST_CHUNK);
    out
}

/// Concatenates the texts of a message's content.
fn texts(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(|part| part["text"].as_str().unwrap_or_default()).collect(),
        _ => String::new(),
    }
}

/// Returns the prefill of a request: the text of its last message if that is the model's, otherwise an empty string.
pub(super) fn beginning(form: Form, request: &Request) -> String {
    let body = request.json();
    let (list, role, member) = match form {
        Form::Generate => (&body["contents"], "model", "parts"),
        _ => (&body["messages"], "assistant", "content"),
    };
    let last = list.as_array().unwrap().last().unwrap();
    if last["role"] == role { texts(&last[member]) } else { String::new() }
}

/// Starts a provider that continues the story after the prefill. If `repeats`, its stream repeats the prefill.
pub(super) async fn going_on(form: Form, repeats: bool) -> Upstream {
    Upstream::start(move |mut conn| async move {
        while let Some(request) = conn.request().await {
            let begun = beginning(form, &request);
            assert_eq!(begun, begun.trim_end(), "some providers refuse white space at the end");
            let rest = STORY.strip_prefix(&*begun).unwrap_or_else(|| panic!("not the story: {begun:?}"));
            conn.send(stream(form, "chatcmpl-second", if repeats { STORY } else { rest })).await;
        }
    })
    .await
}

/// Way in which a stream breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// The connection is closed in the middle of the body.
    Cut,
    /// The body is complete, but the stream in it is not.
    End,
    /// The connection is reset.
    Reset,
    /// No more bytes arrive, and the connection stays open.
    Stall,
    /// The stream contains an error event.
    Error,
    /// The stream contains invalid JSON.
    Garbage,
}

pub(super) const BREAKS: [Break; 6] =
    [Break::Cut, Break::End, Break::Reset, Break::Stall, Break::Error, Break::Garbage];

/// Sends the beginning of a stream, waits for the gate and breaks the stream. Returns the connection if it can be
/// reused.
pub(super) async fn break_off(
    mut conn: Conn,
    form: Form,
    beginning: impl AsRef<[u8]>,
    how: Break,
    gate: &Gate,
) -> Option<Conn> {
    conn.send(reply::stream_head()).await;
    if !beginning.as_ref().is_empty() {
        conn.send(reply::chunk(beginning)).await;
    }
    gate.passed().await;
    match how {
        Break::Cut => return None,
        Break::End => conn.send(reply::LAST_CHUNK).await,
        Break::Reset => {
            conn.reset();
            return None;
        }
        Break::Stall => {
            conn.closed().await;
            return None;
        }
        Break::Error => {
            let name = if form == Form::Messages { "event: error\n" } else { "" };
            conn.send(reply::chunk(format!("{name}data: {}\n\n", provider_error(form, 503, "overloaded"))))
                .await;
            conn.send(reply::LAST_CHUNK).await;
        }
        Break::Garbage => {
            conn.send(reply::chunk("data: {\"choices\":[{]}\n\n")).await;
            conn.send(reply::LAST_CHUNK).await;
        }
    }
    Some(conn)
}

/// Starts a provider that sends the first `after` pieces of the story and then breaks its stream.
pub(super) async fn breaking(form: Form, after: usize, how: Break, gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::start(move |conn| begin(conn, form, after, how, gate.clone())).await
}

async fn begin(mut conn: Conn, form: Form, after: usize, how: Break, gate: Gate) {
    while conn.request().await.is_some() {
        let Frames { opening, content, .. } = frames(form, "chatcmpl-first", &pieces(STORY));
        let beginning = opening + &content[..after].concat();
        let Some(goes_on) = break_off(conn, form, beginning, how, &gate).await else { return };
        conn = goes_on;
    }
}
