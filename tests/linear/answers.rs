//! Responses with many of one element, as documents and as streams, in each format that has the element.
//!
//! Here live texts. What measures them lives in `measured`.

use codec::wire::Format;

use crate::converse;
use crate::frames::{
    Answer, CHAT, CHUNK, call, call_frames, chat_chunk, chat_whole, event, generate, grounding,
    pieces_of_a_call, reasoning, reasoning_frames, side_by_side, source, streamed, text, text_frames,
    text_frames_of, whole,
};
use crate::words::{list, members};

/// Builds a response with `n` elements. `None` if the format does not have the element.
pub(crate) type Build = fn(Format, usize) -> Option<Answer>;

/// Name and builder of each shape of a response.
pub(crate) const SHAPES: [(&str, Build); 19] = [
    ("an answer: calls", |format, n| Some(whole(format, &list(n, |i| call(format, i)), "tool"))),
    ("an answer: texts", |format, n| Some(whole(format, &list(n, |i| text(format, i, "")), "stop"))),
    ("an answer: reasoning", |format, n| match format {
        Format::Chat => {
            let details = list(n, |i| {
                format!(
                    r#"{{"type":"reasoning.text","text":"thought","signature":"c2ln","format":"x","index":{i}}}"#
                )
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
            Format::Converse => Some(whole(format, &converse::cited("words", &sources), "stop")),
            Format::Chat => Some(chat_whole(&format!(r#""content":"x","annotations":[{sources}]"#), "stop")),
            _ => Some(whole(format, &text(format, 0, &sources), "stop")),
        }
    }),
    ("an answer: choices", |format, n| match format {
        Format::Chat => {
            let choices = list(n, |i| {
                format!(
                    r#"{{"index":{i},"message":{{"role":"assistant","content":"x"}},"finish_reason":"stop"}}"#
                )
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
        Format::Generate => Some(whole(
            format,
            &list(n, |_| r#"{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgoA"}}"#.to_owned()),
            "stop",
        )),
        Format::Responses => Some(whole(
            format,
            &list(n, |i| {
                format!(
                    r#"{{"type":"image_generation_call","id":"ig_{i}","status":"completed","result":"iVBORw0KGgoA"}}"#
                )
            }),
            "stop",
        )),
        Format::Chat => {
            let images = list(n, |_| {
                r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgoA"}}"#.to_owned()
            });
            Some(chat_whole(&format!(r#""content":"x","images":[{images}]"#), "stop"))
        }
        Format::Converse => Some(whole(format, &list(n, |_| converse::image("iVBORw0KGgoA")), "stop")),
        Format::Messages => None,
    }),
    ("an answer: parts of the provider's own", |format, n| match format {
        Format::Messages => Some(whole(
            format,
            &list(n, |i| {
                format!(
                    r#"{{"type":"server_tool_use","id":"srvtoolu_{i}","name":"web_search","input":{{}}}},{{"type":"web_search_tool_result","tool_use_id":"srvtoolu_{i}","content":[]}}"#
                )
            }),
            "stop",
        )),
        Format::Responses => Some(whole(
            format,
            &list(n, |i| format!(r#"{{"type":"web_search_call","id":"ws_{i}","status":"completed"}}"#)),
            "stop",
        )),
        Format::Generate => Some(whole(
            format,
            &list(n, |i| format!(r#"{{"executableCode":{{"language":"PYTHON","code":"{i}"}}}}"#)),
            "stop",
        )),
        Format::Converse => Some(whole(format, &list(n, converse::server_call), "stop")),
        Format::Chat => None,
    }),
    ("a stream: calls", |format, n| Some(streamed(format, (0..n).map(|i| call_frames(format, i))))),
    ("a stream: texts", |format, n| Some(streamed(format, (0..n).map(|i| text_frames(format, i, ""))))),
    ("a stream: pieces of a text", |format, n| {
        Some(streamed(format, [text_frames_of(format, n)].into_iter()))
    }),
    ("a stream: pieces of a call", |format, n| {
        (format != Format::Generate).then(|| pieces_of_a_call(format, n))
    }),
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
    ("a stream: choices", |format, n| {
        match format {
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
    }
    }),
    ("a stream: reasoning and texts", |format, n| {
        Some(streamed(
            format,
            (0..n).map(|i| {
                let mut frames = reasoning_frames(format, 2 * i);
                frames.extend(text_frames(format, 2 * i + 1, ""));
                frames
            }),
        ))
    }),
    ("a stream: sources", |format, n| {
        let frames: Vec<String> = match format {
            Format::Chat => (0..n)
                .map(|i| {
                    chat_chunk(&format!(r#"{{"content":"x","annotations":[{}]}}"#, source(format, i)), "null")
                })
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
            Format::Converse => {
                let mut deltas = vec![converse::text("x")];
                deltas.extend((0..n).map(|i| format!(r#"{{"citation":{}}}"#, source(format, i))));
                converse::block(0, None, &deltas)
            }
            Format::Generate => {
                let frame = format!(
                    "data: {}\n\n",
                    generate(r#"{"text":"some words that are cited"}"#, &format!("{},", grounding(n)))
                );
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
