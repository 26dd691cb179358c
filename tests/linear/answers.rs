//! Answers that have many of one thing, in each format that has it: whole, and as streams.
//!
//! Here live texts. What must not live here: anything that measures.

use model_gateway::wire::Format;

use super::requests::{list, members};

/// An answer, as it comes.
pub(crate) enum Answer {
    /// A document.
    Whole(String),
    /// A stream, in frames.
    Stream(Vec<String>),
}

/// An answer with so many of the thing, where the format has it.
pub(crate) type Build = fn(Format, usize) -> Option<Answer>;

/// The shapes: what there are many of.
pub(crate) const SHAPES: [(&str, Build); 19] = [
    ("an answer: calls", |format, n| Some(whole(format, &list(n, |i| call(format, i)), "tool"))),
    ("an answer: texts", |format, n| Some(whole(format, &list(n, |i| text(format, i, "")), "stop"))),
    ("an answer: reasoning", |format, n| match format {
        Format::Chat => {
            let details = list(n, |i| {
                format!(r#"{{"type":"reasoning.text","text":"thought","signature":"c2ln","format":"x","index":{i}}}"#)
            });
            Some(chat_whole(&format!(r#""content":"x","reasoning_details":[{details}]"#), "stop"))
        }
        _ => Some(whole(format, &list(n, |i| [reasoning(format, i), text(format, i, "")].join(",")), "stop")),
    }),
    ("an answer: sources", |format, n| {
        let sources = list(n, |i| source(format, i));
        match format {
            Format::Generate => Some(Answer::Whole(generate(
                r#"{"text":"some words that are cited"}"#,
                &format!("{},", grounding(n)),
            ))),
            Format::Chat => Some(chat_whole(&format!(r#""content":"x","annotations":[{sources}]"#), "stop")),
            _ => Some(whole(format, &text(format, 0, &sources), "stop")),
        }
    }),
    ("an answer: choices", |format, n| match format {
        Format::Chat => {
            let choices = list(n, |i| {
                format!(r#"{{"index":{i},"message":{{"role":"assistant","content":"x"}},"finish_reason":"stop"}}"#)
            });
            Some(Answer::Whole(format!(r#"{{{CHAT}"choices":[{choices}]}}"#)))
        }
        Format::Generate => {
            let choices = list(n, |i| {
                format!(
                    r#"{{"index":{i},"content":{{"role":"model","parts":[{{"text":"x"}}]}},"finishReason":"STOP"}}"#
                )
            });
            Some(Answer::Whole(format!(r#"{{"candidates":[{choices}],"responseId":"x"}}"#)))
        }
        _ => None,
    }),
    ("an answer: chances of tokens", |format, n| {
        (format == Format::Chat).then(|| {
            let tokens = list(n, |i| {
                format!(r#"{{"token":"t{i}","logprob":-1.5,"bytes":[116],"top_logprobs":[{{"token":"a","logprob":-2,"bytes":null}}]}}"#)
            });
            Answer::Whole(format!(
                r#"{{{CHAT}"choices":[{{"index":0,"message":{{"role":"assistant","content":"x"}},"logprobs":{{"content":[{tokens}]}},"finish_reason":"stop"}}]}}"#
            ))
        })
    }),
    ("an answer: unknown members", |format, n| {
        let Answer::Whole(mut body) = whole(format, &text(format, 0, ""), "stop") else { return None };
        body.pop();
        Some(Answer::Whole(format!("{body},{}}}", members(n))))
    }),
    ("an answer: images", |format, n| match format {
        Format::Generate => {
            Some(whole(format, &list(n, |_| r#"{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgoA"}}"#.to_owned()), "stop"))
        }
        Format::Responses => Some(whole(
            format,
            &list(n, |i| format!(r#"{{"type":"image_generation_call","id":"ig_{i}","status":"completed","result":"iVBORw0KGgoA"}}"#)),
            "stop",
        )),
        Format::Chat => {
            let images = list(n, |_| r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgoA"}}"#.to_owned());
            Some(chat_whole(&format!(r#""content":"x","images":[{images}]"#), "stop"))
        }
        Format::Messages => None,
    }),
    ("an answer: parts of the vendor's own", |format, n| match format {
        Format::Messages => Some(whole(
            format,
            &list(n, |i| {
                format!(r#"{{"type":"server_tool_use","id":"srvtoolu_{i}","name":"web_search","input":{{}}}},{{"type":"web_search_tool_result","tool_use_id":"srvtoolu_{i}","content":[]}}"#)
            }),
            "stop",
        )),
        Format::Responses => Some(whole(
            format,
            &list(n, |i| format!(r#"{{"type":"web_search_call","id":"ws_{i}","status":"completed"}}"#)),
            "stop",
        )),
        Format::Generate => {
            Some(whole(format, &list(n, |i| format!(r#"{{"executableCode":{{"language":"PYTHON","code":"{i}"}}}}"#)), "stop"))
        }
        Format::Chat => None,
    }),
    ("a stream: calls", |format, n| Some(streamed(format, (0..n).map(|i| call_frames(format, i))))),
    ("a stream: texts", |format, n| Some(streamed(format, (0..n).map(|i| text_frames(format, i, ""))))),
    ("a stream: pieces of a text", |format, n| {
        Some(streamed(format, [text_frames_of(format, n)].into_iter()))
    }),
    ("a stream: pieces of a call", |format, n| (format != Format::Generate).then(|| pieces_of_a_call(format, n))),
    ("a stream: calls side by side", |format, n| side_by_side(format, n)),
    ("a stream: calls without places or ids", |format, n| {
        (format == Format::Chat).then(|| {
            streamed(
                format,
                (0..n).map(|i| {
                    vec![chat_chunk(
                        &format!(
                            r#"{{"tool_calls":[{{"id":"call_{i}","type":"function","function":{{"name":"get","arguments":"{{}}"}}}}]}}"#
                        ),
                        "null",
                    )]
                }),
            )
        })
    }),
    ("a stream: choices", |format, n| match format {
        Format::Chat => Some(Answer::Stream(
            (0..2 * n)
                .map(|i| {
                    let (i, finish) = (i % n, if i < n { "null" } else { "\"stop\"" });
                    format!(
                        "data: {{{CHUNK}\"choices\":[{{\"index\":{i},\"delta\":{{\"content\":\"x\"}},\"finish_reason\":{finish}}}]}}\n\n"
                    )
                })
                .chain(["data: [DONE]\n\n".to_owned()])
                .collect(),
        )),
        Format::Generate => Some(Answer::Stream(
            (0..2 * n)
                .map(|i| {
                    let (i, finish) = (i % n, if i < n { "" } else { r#","finishReason":"STOP""# });
                    format!(
                        "data: {{\"candidates\":[{{\"index\":{i},\"content\":{{\"role\":\"model\",\"parts\":[{{\"text\":\"x\"}}]}}{finish}}}],\"responseId\":\"x\"}}\n\n"
                    )
                })
                .collect(),
        )),
        _ => None,
    }),
    ("a stream: reasoning and texts", |format, n| {
        Some(streamed(format, (0..n).map(|i| {
            let mut frames = reasoning_frames(format, 2 * i);
            frames.extend(text_frames(format, 2 * i + 1, ""));
            frames
        })))
    }),
    ("a stream: sources", |format, n| {
        let frames: Vec<String> = match format {
            Format::Chat => (0..n)
                .map(|i| chat_chunk(&format!(r#"{{"content":"x","annotations":[{}]}}"#, source(format, i)), "null"))
                .collect(),
            Format::Messages => {
                let mut frames = vec![event(
                    "content_block_start",
                    r#""index":0,"content_block":{"type":"text","text":""}"#,
                )];
                frames.extend((0..n).map(|i| {
                    let source = source(format, i);
                    event(
                        "content_block_delta",
                        &format!(r#""index":0,"delta":{{"type":"citations_delta","citation":{source}}}"#),
                    )
                }));
                frames.push(event("content_block_stop", r#""index":0"#));
                frames
            }
            Format::Responses => {
                let mut frames = text_frames(format, 0, "");
                let last = frames.split_off(frames.len() - 3);
                frames.extend((0..n).map(|i| {
                    let source = source(format, i);
                    event(
                        "response.output_text.annotation.added",
                        &format!(r#""item_id":"msg_0","output_index":0,"content_index":0,"annotation_index":{i},"annotation":{source}"#),
                    )
                }));
                frames.extend(last);
                frames
            }
            Format::Generate => {
                let frame = format!("data: {}\n\n", generate(r#"{"text":"some words that are cited"}"#, &format!("{},", grounding(n))));
                return Some(Answer::Stream(vec![frame]));
            }
        };
        Some(streamed(format, [frames].into_iter()))
    }),
    ("a stream: arguments in parts", |format, n| {
        (format == Format::Generate).then(|| {
            let mut frames = vec![format!(
                "data: {}\n\n",
                generate(r#"{"functionCall":{"id":"call_0","name":"get","willContinue":true}}"#, "").replace(r#""finishReason":"STOP","#, "")
            )];
            frames.extend((0..n).map(|i| {
                let part = format!(r#"{{"functionCall":{{"partialArgs":[{{"jsonPath":"$.p{i}","stringValue":"x"}}],"willContinue":true}}}}"#);
                format!("data: {}\n\n", generate(&part, "").replace(r#""finishReason":"STOP","#, ""))
            }));
            frames.push(format!("data: {}\n\n", generate(r#"{"functionCall":{}}"#, "")));
            Answer::Stream(frames)
        })
    }),
];

const CHAT: &str = r#""id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","#;
const CHUNK: &str = r#""id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","#;

fn chat_whole(message: &str, finish: &str) -> Answer {
    Answer::Whole(format!(
        r#"{{{CHAT}"choices":[{{"index":0,"message":{{"role":"assistant",{message}}},"finish_reason":"{finish}"}}],"usage":{{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}}}"#
    ))
}

fn generate(parts: &str, members: &str) -> String {
    format!(
        r#"{{"candidates":[{{"content":{{"parts":[{parts}],"role":"model"}},"finishReason":"STOP",{members}"index":0}}],"usageMetadata":{{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2}},"modelVersion":"m","responseId":"x"}}"#
    )
}

/// A document of these parts, blocks or items.
fn whole(format: Format, parts: &str, finish: &str) -> Answer {
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
    }
}

fn response(items: &str, status: &str) -> String {
    format!(
        r#"{{"id":"resp_1","object":"response","created_at":1,"status":"{status}","error":null,"model":"m","output":[{items}],"usage":{{"input_tokens":1,"output_tokens":1,"total_tokens":2}}}}"#
    )
}

fn call(format: Format, i: usize) -> String {
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
    }
}

fn text(format: Format, i: usize, sources: &str) -> String {
    match format {
        Format::Chat => format!(r#"{{"type":"text","text":"part {i}"}}"#),
        Format::Messages if sources.is_empty() => format!(r#"{{"type":"text","text":"part {i}"}}"#),
        Format::Messages => format!(r#"{{"type":"text","text":"part {i}","citations":[{sources}]}}"#),
        Format::Responses => format!(
            r#"{{"type":"message","id":"msg_{i}","status":"completed","role":"assistant","content":[{{"type":"output_text","text":"part {i}","annotations":[{sources}]}}]}}"#
        ),
        Format::Generate => format!(r#"{{"text":"part {i}","thoughtSignature":"c2ln"}}"#),
    }
}

fn reasoning(format: Format, i: usize) -> String {
    match format {
        Format::Chat => String::new(),
        Format::Messages => format!(r#"{{"type":"thinking","thinking":"thought {i}","signature":"c2ln"}}"#),
        Format::Responses => format!(
            r#"{{"type":"reasoning","id":"rs_{i}","summary":[{{"type":"summary_text","text":"thought {i}"}}],"encrypted_content":"c2ln"}}"#
        ),
        Format::Generate => format!(r#"{{"text":"thought {i}","thought":true}}"#),
    }
}

fn source(format: Format, i: usize) -> String {
    match format {
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

fn grounding(n: usize) -> String {
    let chunks = list(n, |i| format!(r#"{{"web":{{"uri":"https://example.com/{i}","title":"t"}}}}"#));
    let supports = list(n, |i| {
        format!(
            r#"{{"segment":{{"startIndex":0,"endIndex":4,"text":"some"}},"groundingChunkIndices":[{i}]}}"#
        )
    });
    format!(r#""groundingMetadata":{{"groundingChunks":[{chunks}],"groundingSupports":[{supports}]}}"#)
}

fn event(name: &str, rest: &str) -> String {
    let comma = if rest.is_empty() { "" } else { "," };
    format!("event: {name}\ndata: {{\"type\":\"{name}\"{comma}{rest}}}\n\n")
}

fn chat_chunk(delta: &str, finish: &str) -> String {
    format!("data: {{{CHUNK}\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n")
}

/// A stream of these blocks, with what comes before and behind them.
fn streamed(format: Format, blocks: impl Iterator<Item = Vec<String>>) -> Answer {
    let blocks = blocks.flatten();
    Answer::Stream(match format {
        Format::Chat => {
            let end = [chat_chunk("{}", "\"stop\""), "data: [DONE]\n\n".to_owned()];
            [chat_chunk(r#"{"role":"assistant","content":""}"#, "null")].into_iter().chain(blocks).chain(end).collect()
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
    })
}

fn generate_frame(part: &str) -> String {
    format!("data: {}\n\n", generate(part, "").replace(r#""finishReason":"STOP","#, ""))
}

fn call_frames(format: Format, i: usize) -> Vec<String> {
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
    }
}

fn item_added(i: usize, item: &str) -> String {
    event("response.output_item.added", &format!(r#""output_index":{i},"item":{item}"#))
}

fn item_done(i: usize, item: &str) -> String {
    event("response.output_item.done", &format!(r#""output_index":{i},"item":{item}"#))
}

fn text_frames(format: Format, i: usize, sources: &str) -> Vec<String> {
    text_frames_with(format, i, sources, 1)
}

fn text_frames_of(format: Format, pieces: usize) -> Vec<String> {
    text_frames_with(format, 0, "", pieces)
}

fn text_frames_with(format: Format, i: usize, sources: &str, pieces: usize) -> Vec<String> {
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
                event("response.content_part.done", &format!("{place},{}", part.replace(r#""text":"""#, &format!(r#""text":"{text}""#)))),
                item_done(i, &super_text(i, &text, sources)),
            ]);
            frames
        }
        Format::Generate => vec![generate_frame(r#"{"text":"part "}"#); pieces],
    }
}

fn super_text(i: usize, text: &str, sources: &str) -> String {
    format!(
        r#"{{"type":"message","id":"msg_{i}","status":"completed","role":"assistant","content":[{{"type":"output_text","text":"{text}","annotations":[{sources}]}}]}}"#
    )
}

fn reasoning_frames(format: Format, i: usize) -> Vec<String> {
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
    }
}

fn pieces_of_a_call(format: Format, n: usize) -> Answer {
    let mut frames = call_frames(format, 0);
    if let Some(piece) = frames.get(1).cloned() {
        let piece = piece.replace("{}", "[1],");
        frames.splice(1..2, vec![piece; n]);
    }
    streamed(format, [frames].into_iter())
}

/// All calls are open at once, and each is added to in turn.
fn side_by_side(format: Format, n: usize) -> Option<Answer> {
    let calls: Vec<Vec<String>> = (0..n).map(|i| call_frames(format, i)).collect();
    let steps = calls.first().map(Vec::len).filter(|_| format != Format::Generate)?;
    let frames = (0..steps).map(|step| calls.iter().filter_map(|call| call.get(step).cloned()).collect());
    Some(streamed(format, frames))
}
