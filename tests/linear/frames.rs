//! Parts and frames of responses in each format.

use codec::wire::Format;

use crate::converse;
use crate::words::list;

/// Response as the provider sends it.
pub(crate) enum Answer {
    /// JSON document.
    Whole(String),
    /// Event stream, in frames.
    Stream(Vec<String>),
}

pub(crate) const CHAT: &str = r#""id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","#;
pub(crate) const CHUNK: &str =
    r#""id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","#;

pub(crate) fn chat_whole(message: &str, finish: &str) -> Answer {
    Answer::Whole(format!(
        r#"{{{CHAT}"choices":[{{"index":0,"message":{{"role":"assistant",{message}}},"finish_reason":"{finish}"}}],"usage":{{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}}}"#
    ))
}

pub(crate) fn generate(parts: &str, members: &str) -> String {
    format!(
        r#"{{"candidates":[{{"content":{{"parts":[{parts}],"role":"model"}},"finishReason":"STOP",{members}"index":0}}],"usageMetadata":{{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2}},"modelVersion":"m","responseId":"x"}}"#
    )
}

/// Returns a document with these parts, blocks or items.
pub(crate) fn whole(format: Format, parts: &str, finish: &str) -> Answer {
    match format {
        Format::Chat if finish == "tool" => {
            chat_whole(&format!(r#""content":null,"tool_calls":[{parts}]"#), "tool_calls")
        }
        Format::Chat => chat_whole(&format!(r#""content":[{parts}]"#), "stop"),
        Format::Messages => {
            let finish = if finish == "tool" { "tool_use" } else { "end_turn" };
            Answer::Whole(format!(
                r#"{{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{parts}],"stop_reason":"{finish}","stop_sequence":null,"usage":{{"input_tokens":1,"output_tokens":1}}}}"#
            ))
        }
        Format::Responses => Answer::Whole(response(parts, "completed")),
        Format::Generate => Answer::Whole(generate(parts, "")),
        Format::Converse => Answer::Whole(converse::document(parts, finish)),
    }
}

pub(crate) fn response(items: &str, status: &str) -> String {
    format!(
        r#"{{"id":"resp_1","object":"response","created_at":1,"status":"{status}","error":null,"model":"m","output":[{items}],"usage":{{"input_tokens":1,"output_tokens":1,"total_tokens":2}}}}"#
    )
}

pub(crate) fn call(format: Format, i: usize) -> String {
    match format {
        Format::Chat => {
            format!(r#"{{"id":"call_{i}","type":"function","function":{{"name":"get","arguments":"{{}}"}}}}"#)
        }
        Format::Messages => format!(r#"{{"type":"tool_use","id":"call_{i}","name":"get","input":{{}}}}"#),
        Format::Responses => format!(
            r#"{{"type":"function_call","id":"fc_{i}","status":"completed","call_id":"call_{i}","name":"get","arguments":"{{}}"}}"#
        ),
        Format::Generate => {
            format!(r#"{{"functionCall":{{"id":"call_{i}","name":"get","args":{{"x":{i}}}}}}}"#)
        }
        Format::Converse => converse::call(i, "get"),
    }
}

pub(crate) fn text(format: Format, i: usize, sources: &str) -> String {
    match format {
        Format::Chat => format!(r#"{{"type":"text","text":"part {i}"}}"#),
        Format::Messages if sources.is_empty() => format!(r#"{{"type":"text","text":"part {i}"}}"#),
        Format::Messages => format!(r#"{{"type":"text","text":"part {i}","citations":[{sources}]}}"#),
        Format::Responses => format!(
            r#"{{"type":"message","id":"msg_{i}","status":"completed","role":"assistant","content":[{{"type":"output_text","text":"part {i}","annotations":[{sources}]}}]}}"#
        ),
        Format::Generate => format!(r#"{{"text":"part {i}","thoughtSignature":"c2ln"}}"#),
        Format::Converse => converse::text(&format!("part {i}")),
    }
}

pub(crate) fn reasoning(format: Format, i: usize) -> String {
    match format {
        Format::Chat => String::new(),
        Format::Messages => format!(r#"{{"type":"thinking","thinking":"thought {i}","signature":"c2ln"}}"#),
        Format::Responses => format!(
            r#"{{"type":"reasoning","id":"rs_{i}","summary":[{{"type":"summary_text","text":"thought {i}"}}],"encrypted_content":"c2ln"}}"#
        ),
        Format::Generate => format!(r#"{{"text":"thought {i}","thought":true}}"#),
        Format::Converse => converse::reasoning(i),
    }
}

pub(crate) fn source(format: Format, i: usize) -> String {
    match format {
        Format::Converse => converse::citation(i),
        Format::Messages => format!(
            r#"{{"type":"web_search_result_location","url":"https://example.com/{i}","title":"t","cited_text":"words","encrypted_index":"x"}}"#
        ),
        Format::Chat => format!(
            r#"{{"type":"url_citation","url_citation":{{"url":"https://example.com/{i}","title":"t","start_index":0,"end_index":1}}}}"#
        ),
        _ => format!(
            r#"{{"type":"url_citation","url":"https://example.com/{i}","title":"t","start_index":0,"end_index":1}}"#
        ),
    }
}

pub(crate) fn grounding(n: usize) -> String {
    let chunks = list(n, |i| format!(r#"{{"web":{{"uri":"https://example.com/{i}","title":"t"}}}}"#));
    let supports = list(n, |i| {
        format!(
            r#"{{"segment":{{"startIndex":0,"endIndex":4,"text":"some"}},"groundingChunkIndices":[{i}]}}"#
        )
    });
    format!(r#""groundingMetadata":{{"groundingChunks":[{chunks}],"groundingSupports":[{supports}]}}"#)
}

pub(crate) fn event(name: &str, rest: &str) -> String {
    let comma = if rest.is_empty() { "" } else { "," };
    format!("event: {name}\ndata: {{\"type\":\"{name}\"{comma}{rest}}}\n\n")
}

pub(crate) fn chat_chunk(delta: &str, finish: &str) -> String {
    format!("data: {{{CHUNK}\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n")
}

/// Returns a stream of these blocks, with the frames that the format has before and after them.
pub(crate) fn streamed(format: Format, blocks: impl Iterator<Item = Vec<String>>) -> Answer {
    let blocks = blocks.flatten();
    Answer::Stream(match format {
        Format::Chat => {
            let end = [chat_chunk("{}", "\"stop\""), "data: [DONE]\n\n".to_owned()];
            [chat_chunk(r#"{"role":"assistant","content":""}"#, "null")]
                .into_iter()
                .chain(blocks)
                .chain(end)
                .collect()
        }
        Format::Messages => {
            let start = event(
                "message_start",
                r#""message":{"model":"m","id":"msg_1","type":"message","role":"assistant","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}"#,
            );
            let end = [
                event(
                    "message_delta",
                    r#""delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":5}"#,
                ),
                event("message_stop", ""),
            ];
            [start].into_iter().chain(blocks).chain(end).collect()
        }
        Format::Responses => {
            let start = event("response.created", &format!(r#""response":{}"#, response("", "in_progress")));
            let end = event("response.completed", &format!(r#""response":{}"#, response("", "completed")));
            [start].into_iter().chain(blocks).chain([end]).collect()
        }
        Format::Generate => {
            let end = format!("data: {}\n\n", generate(r#"{"text":""}"#, ""));
            blocks.chain([end]).collect()
        }
        Format::Converse => {
            let (start, end) = converse::around();
            start.into_iter().chain(blocks).chain(end).collect()
        }
    })
}

pub(crate) fn generate_frame(part: &str) -> String {
    format!("data: {}\n\n", generate(part, "").replace(r#""finishReason":"STOP","#, ""))
}

pub(crate) fn call_frames(format: Format, i: usize) -> Vec<String> {
    match format {
        Format::Chat => vec![
            chat_chunk(
                &format!(
                    r#"{{"tool_calls":[{{"index":{i},"id":"call_{i}","type":"function","function":{{"name":"get","arguments":""}}}}]}}"#
                ),
                "null",
            ),
            chat_chunk(
                &format!(r#"{{"tool_calls":[{{"index":{i},"function":{{"arguments":"{{}}"}}}}]}}"#),
                "null",
            ),
        ],
        Format::Messages => vec![
            event(
                "content_block_start",
                &format!(
                    r#""index":{i},"content_block":{{"type":"tool_use","id":"call_{i}","name":"get","input":{{}}}}"#
                ),
            ),
            event(
                "content_block_delta",
                &format!(r#""index":{i},"delta":{{"type":"input_json_delta","partial_json":"{{}}"}}"#),
            ),
            event("content_block_stop", &format!(r#""index":{i}"#)),
        ],
        Format::Responses => vec![
            item_added(i, &call(format, i).replace("completed", "in_progress").replace("{}", "")),
            event(
                "response.function_call_arguments.delta",
                &format!(r#""item_id":"fc_{i}","output_index":{i},"delta":"{{}}""#),
            ),
            event(
                "response.function_call_arguments.done",
                &format!(r#""item_id":"fc_{i}","output_index":{i},"arguments":"{{}}""#),
            ),
            item_done(i, &call(format, i)),
        ],
        Format::Generate => vec![generate_frame(&call(format, i))],
        Format::Converse => {
            let start = format!(r#"{{"toolUse":{{"toolUseId":"call_{i}","name":"get"}}}}"#);
            converse::block(i, Some(&start), &[r#"{"toolUse":{"input":"{}"}}"#.to_owned()])
        }
    }
}

pub(crate) fn item_added(i: usize, item: &str) -> String {
    event("response.output_item.added", &format!(r#""output_index":{i},"item":{item}"#))
}

pub(crate) fn item_done(i: usize, item: &str) -> String {
    event("response.output_item.done", &format!(r#""output_index":{i},"item":{item}"#))
}

pub(crate) fn text_frames(format: Format, i: usize, sources: &str) -> Vec<String> {
    text_frames_with(format, i, sources, 1)
}

pub(crate) fn text_frames_of(format: Format, pieces: usize) -> Vec<String> {
    text_frames_with(format, 0, "", pieces)
}

pub(crate) fn text_frames_with(format: Format, i: usize, sources: &str, pieces: usize) -> Vec<String> {
    match format {
        Format::Chat => vec![chat_chunk(r#"{"content":"part "}"#, "null"); pieces],
        Format::Messages => {
            let mut frames = vec![event(
                "content_block_start",
                &format!(r#""index":{i},"content_block":{{"type":"text","text":""}}"#),
            )];
            frames.extend(vec![
                event(
                    "content_block_delta",
                    &format!(r#""index":{i},"delta":{{"type":"text_delta","text":"part "}}"#)
                );
                pieces
            ]);
            frames.push(event("content_block_stop", &format!(r#""index":{i}"#)));
            frames
        }
        Format::Responses => {
            let place = format!(r#""item_id":"msg_{i}","output_index":{i},"content_index":0"#);
            let part = r#""part":{"type":"output_text","text":"","annotations":[]}"#;
            let text = "part ".repeat(pieces);
            let mut frames = vec![
                item_added(
                    i,
                    &format!(
                        r#"{{"type":"message","id":"msg_{i}","status":"in_progress","role":"assistant","content":[]}}"#
                    ),
                ),
                event("response.content_part.added", &format!("{place},{part}")),
            ];
            frames.extend(vec![
                event("response.output_text.delta", &format!(r#"{place},"delta":"part ""#));
                pieces
            ]);
            frames.extend([
                event("response.output_text.done", &format!(r#"{place},"text":"{text}""#)),
                event(
                    "response.content_part.done",
                    &format!("{place},{}", part.replace(r#""text":"""#, &format!(r#""text":"{text}""#))),
                ),
                item_done(i, &super_text(i, &text, sources)),
            ]);
            frames
        }
        Format::Generate => vec![generate_frame(r#"{"text":"part "}"#); pieces],
        Format::Converse => converse::block(i, None, &vec![converse::text("part "); pieces]),
    }
}

pub(crate) fn super_text(i: usize, text: &str, sources: &str) -> String {
    format!(
        r#"{{"type":"message","id":"msg_{i}","status":"completed","role":"assistant","content":[{{"type":"output_text","text":"{text}","annotations":[{sources}]}}]}}"#
    )
}

pub(crate) fn reasoning_frames(format: Format, i: usize) -> Vec<String> {
    match format {
        Format::Chat => vec![chat_chunk(r#"{"reasoning_content":"thought"}"#, "null")],
        Format::Messages => vec![
            event(
                "content_block_start",
                &format!(r#""index":{i},"content_block":{{"type":"thinking","thinking":"","signature":""}}"#),
            ),
            event(
                "content_block_delta",
                &format!(r#""index":{i},"delta":{{"type":"thinking_delta","thinking":"thought"}}"#),
            ),
            event(
                "content_block_delta",
                &format!(r#""index":{i},"delta":{{"type":"signature_delta","signature":"c2ln"}}"#),
            ),
            event("content_block_stop", &format!(r#""index":{i}"#)),
        ],
        Format::Responses => {
            let item = format!(r#"{{"type":"reasoning","id":"rs_{i}","summary":[]}}"#);
            vec![item_added(i, &item), item_done(i, &reasoning(format, i))]
        }
        Format::Generate => vec![generate_frame(&reasoning(format, i))],
        Format::Converse => {
            let delta = |member: &str| format!(r#"{{"reasoningContent":{{"{member}":"c2ln"}}}}"#);
            converse::block(i, None, &["text", "signature"].map(delta))
        }
    }
}

pub(crate) fn pieces_of_a_call(format: Format, n: usize) -> Answer {
    let mut frames = call_frames(format, 0);
    if let Some(piece) = frames.get(1).cloned() {
        let piece = piece.replace("{}", "[1],");
        frames.splice(1..2, vec![piece; n]);
    }
    streamed(format, [frames].into_iter())
}

/// Returns a stream in which all tool calls are open at once and grow in turn.
pub(crate) fn side_by_side(format: Format, n: usize) -> Option<Answer> {
    let calls: Vec<Vec<String>> = (0..n).map(|i| call_frames(format, i)).collect();
    let steps = calls.first().map(Vec::len).filter(|_| format != Format::Generate)?;
    let frames = (0..steps).map(|step| calls.iter().filter_map(|call| call.get(step).cloned()).collect());
    Some(streamed(format, frames))
}
