//! Sample responses of each format, made for these tests, with everything that providers send between frames.

use crate::canonical::Usage;
use crate::translate::verbatim::Arrival;
use crate::wire::Api;

/// Style in which events are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// Line end.
    pub end: &'static str,
    /// Whether a space follows the colon.
    pub space: bool,
    /// Whether there are `event:` lines, in formats that have them.
    pub names: bool,
    /// Whether there are comments, ids and blank lines between the events.
    pub noise: bool,
    /// Whether the stream starts with a byte order mark.
    pub mark: bool,
}

impl Style {
    /// Style of most providers.
    pub(super) const PLAIN: Style = Style { end: "\n", space: true, names: true, noise: false, mark: false };

    /// All styles.
    pub(super) fn all() -> Vec<Style> {
        let mut all = Vec::new();
        for end in ["\n", "\r\n", "\r"] {
            for (space, names, noise, mark) in
                [(true, true, false, false), (false, true, true, false), (true, false, true, true)]
            {
                all.push(Style { end, space, names, noise, mark });
            }
        }
        all
    }

    /// One style per line end, for tests that cut at every byte.
    pub(super) fn few() -> [Style; 3] {
        [
            Style { end: "\n", names: false, noise: true, mark: true, ..Style::PLAIN },
            Style { end: "\r\n", ..Style::PLAIN },
            Style { end: "\r", space: false, ..Style::PLAIN },
        ]
    }

    fn write(self, frames: &[(&str, String)]) -> String {
        let Style { end, space, names, noise, mark } = self;
        let space = if space { " " } else { "" };
        let mut out = String::from(if mark { "\u{feff}" } else { "" });
        for (index, (name, data)) in frames.iter().enumerate() {
            if noise && index % 3 == 0 {
                out += &format!(": waiting é{end}{end}");
            }
            if noise && index % 4 == 1 {
                out += &format!("{end}id:{index}{end}");
            }
            if names && !name.is_empty() {
                out += &format!("event:{space}{name}{end}");
            }
            out += &format!("data:{space}{data}{end}{end}");
        }
        out
    }
}

/// Response and what the meter must record of it.
#[derive(Clone, Debug)]
pub(super) struct SampleResponse {
    pub api: Api,
    pub arrival: Arrival,
    pub text: String,
    pub id: &'static str,
    pub finish: &'static str,
    pub usage: Usage,
    /// Text that occurs only in the frame that completes the response.
    pub complete_at: &'static str,
}

const WORDS: [&str; 12] =
    ["Hel", "lo", " wörld", "\\n", "🌍", "\\u00e9", " \\\"data: x\\\"", "{", "}]", "[DONE]", "模", "."];

/// Chat chunks: text, a tool call, a finish reason, the usage chunk, the terminator.
pub(super) fn chat(style: Style) -> SampleResponse {
    let chunk = |rest: &str| {
        ("", format!(r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m-1",{rest}}}"#))
    };
    let delta = |delta: &str| {
        chunk(&format!(
            r#""choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":null}}],"usage":null"#
        ))
    };
    let mut frames = vec![delta(r#"{"role":"assistant","content":""}"#)];
    frames.extend(WORDS.map(|word| delta(&format!(r#"{{"content":"{word}"}}"#))));
    frames.push(delta(
        r#"{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]}"#,
    ));
    frames.push(delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":1}"}}]}"#));
    frames.push(chunk(r#""choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":null"#));
    frames.push(chunk(
        r#""choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0}}"#,
    ));
    frames.push(("", "[DONE]".to_owned()));
    SampleResponse {
        api: Api::Chat,
        arrival: Arrival::Events,
        text: style.write(&frames),
        id: "chatcmpl-1",
        finish: "tool_calls",
        usage: Usage { input: Some(11), output: Some(7), cached: Some(0), ..Usage::default() },
        complete_at: "\"finish_reason\":\"tool_calls\"",
    }
}

/// Messages events: thinking, a ping inside a block, text, cumulative usage.
pub(super) fn messages(style: Style) -> SampleResponse {
    let mut frames = vec![
        (
            "message_start",
            r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m-1","stop_reason":null,"usage":{"input_tokens":9,"cache_read_input_tokens":100,"cache_creation_input_tokens":0,"output_tokens":2}}}"#.to_owned(),
        ),
        (
            "content_block_start",
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#.to_owned(),
        ),
        ("ping", r#"{"type": "ping"}"#.to_owned()),
        (
            "content_block_delta",
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}"#.to_owned(),
        ),
        ("content_block_stop", r#"{"type":"content_block_stop","index":0}"#.to_owned()),
    ];
    frames.extend(WORDS.map(|word| {
        let data = format!(
            r#"{{"type":"content_block_delta","index":1,"delta":{{"type":"text_delta","text":"{word}"}}}}"#
        );
        ("content_block_delta", data)
    }));
    frames.push((
        "message_delta",
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":33}}"#.to_owned(),
    ));
    frames.push(("message_stop", r#"{"type":"message_stop"}"#.to_owned()));
    SampleResponse {
        api: Api::Messages,
        arrival: Arrival::Events,
        text: style.write(&frames),
        id: "msg_1",
        finish: "end_turn",
        usage: Usage {
            input: Some(109),
            output: Some(33),
            cached: Some(100),
            cache_write: Some(0),
            uncached: Some(9),
            ..Usage::default()
        },
        complete_at: "{\"type\":\"message_stop\"}",
    }
}

/// Responses events.
pub(super) fn responses(style: Style) -> SampleResponse {
    let mut frames = vec![(
        "response.created",
        r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","model":"m-1","output":[],"usage":null,"error":null}}"#.to_owned(),
    )];
    frames.extend(WORDS.map(|word| {
        let data = format!(
            r#"{{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"delta":"{word}","obfuscation":"aX"}}"#
        );
        ("response.output_text.delta", data)
    }));
    frames.push((
        "response.completed",
        r#"{"type":"response.completed","sequence_number":13,"response":{"id":"resp_1","object":"response","status":"completed","model":"m-1","output":[],"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":4},"output_tokens":6,"output_tokens_details":{"reasoning_tokens":3}}}}"#.to_owned(),
    ));
    SampleResponse {
        api: Api::Responses,
        arrival: Arrival::Events,
        text: style.write(&frames),
        id: "resp_1",
        finish: "completed",
        usage: Usage {
            input: Some(5),
            output: Some(6),
            cached: Some(4),
            reasoning: Some(3),
            ..Usage::default()
        },
        complete_at: "\"reasoning_tokens\":3}}}}",
    }
}

fn chunks() -> Vec<(&'static str, String)> {
    let chunk = |part: String, candidates: u64, rest: &str| {
        let data = format!(
            r#"{{"candidates":[{{"content":{{"parts":[{part}],"role":"model"}},"index":0{rest}}}],"usageMetadata":{{"promptTokenCount":4,"candidatesTokenCount":{candidates},"thoughtsTokenCount":20,"totalTokenCount":{}}},"modelVersion":"m-1","responseId":"r-1"}}"#,
            24 + candidates
        );
        ("", data)
    };
    let mut frames: Vec<(&str, String)> =
        (1..).zip(WORDS).map(|(count, word)| chunk(format!(r#"{{"text":"{word}"}}"#), count, "")).collect();
    let call = r#"{"functionCall":{"name":"f","args":{"a":[1,{"b":"]"}]}},"thoughtSignature":"c2ln"}"#;
    frames.push(chunk(call.to_owned(), 15, r#","finishReason":"STOP""#));
    frames
}

/// Gemini chunks as events: there is no terminator.
pub(super) fn generate(style: Style) -> SampleResponse {
    SampleResponse {
        api: Api::Generate,
        arrival: Arrival::Events,
        text: style.write(&chunks()),
        id: "r-1",
        finish: "STOP",
        usage: Usage { input: Some(4), output: Some(35), reasoning: Some(20), ..Usage::default() },
        complete_at: "\"totalTokenCount\":39},\"modelVersion\":\"m-1\",\"responseId\":\"r-1\"}",
    }
}

/// Gemini chunks as the elements of one JSON array.
pub(super) fn array() -> SampleResponse {
    let elements: Vec<String> = chunks().into_iter().map(|(_, data)| data).collect();
    SampleResponse {
        arrival: Arrival::Array,
        text: format!("[{}\n]\n", elements.join(",\r\n")),
        complete_at: "\n]",
        ..generate(Style::PLAIN)
    }
}

/// Responses of all formats in one style.
pub(super) fn all(style: Style) -> [SampleResponse; 5] {
    [chat(style), messages(style), responses(style), generate(style), array()]
}
