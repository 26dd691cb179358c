//! Input of the benchmarks and tests of translation: responses in all formats, frame by frame, and requests, the same
//! in every run.
//!
//! Texts, and the set-up of translators for them. Measurement must not live here.

pub(crate) mod requests;
mod texts;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use codec::canonical::{Dialect, Thinking};
use codec::translate::translated::Route;
use codec::translate::verbatim::Arrival;
use codec::translate::{
    Outgoing, PromptCaching, Restore, StoreOptions, TranslateRequest, Translated, outgoing_stored,
};
use codec::wire::Format;
use codec::wire::codec::ReplyOptions;
use framing::event_stream::{HeaderValue, MessageWriter, put_header};
use json::{EscapedString, JsonText};

use texts::{HEAD, chunk, event, generate, id, item, names, word};

/// Returns the pairs of different formats: the provider's and the client's.
pub(crate) fn pairs() -> impl Iterator<Item = (Format, Format)> {
    Format::ALL
        .into_iter()
        .flat_map(|provider| Format::ALL.into_iter().map(move |client| (provider, client)))
        .filter(|(provider, client)| provider != client)
}

/// Content to which a frame adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Text,
    Reasoning,
    Arguments,
}

/// Size of a frame, in bytes. Frames whose envelope is longer exceed it.
const FRAME: usize = 250;

/// Amount of text in a frame of text or reasoning.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fill {
    /// Text that fills the frame up to this size in bytes, so that all formats have the same bytes.
    Frame(usize),
    /// Text of at least this length in bytes, rounded up to whole words, so that all formats have the same text.
    Text(usize),
}

/// Returns one piece for each text, all in one allocation, as they are after a read.
pub(crate) fn shared<T: AsRef<[u8]>>(texts: &[T]) -> Vec<Bytes> {
    let whole = Bytes::from(texts.iter().flat_map(AsRef::as_ref).copied().collect::<Vec<u8>>());
    let mut from = 0;
    let cut = |text: &T| {
        let length = text.as_ref().len();
        let piece = whole.slice(from..from + length);
        from += length;
        piece
    };
    texts.iter().map(cut).collect()
}

/// Returns the translation of a stream of server-sent events.
pub(crate) fn translated(provider: Format, client: Format) -> Translated {
    translated_from(provider, client, Arrival::Events)
}

/// Returns the translation of a stream with this framing.
pub(crate) fn translated_from(provider: Format, client: Format, arrival: Arrival) -> Translated {
    let reply = ReplyOptions {
        model: EscapedString::from("the-model"),
        seed: "01JXG3ZQK5V7W8Y9A0B1C2D3E4".into(),
        created: 1_750_000_000,
        usage_wanted: true,
        show_thinking: true,
        issuer: "provider".into(),
        ..ReplyOptions::default()
    };
    let route = Route { client, provider, stream: true };
    Translated::new(&route, arrival, Arc::new(reply), Restore::default(), 1 << 20)
}

/// Returns the message of an event stream with the event of a frame of Converse.
pub(crate) fn event_message(frame: &str) -> Vec<u8> {
    let event = frame.trim().strip_prefix("data: {\"").and_then(|rest| rest.strip_suffix('}'));
    let (name, payload) = event.and_then(|event| event.split_once("\":")).unwrap_or_default();
    let mut headers = Vec::new();
    for (header, value) in
        [(":event-type", name), (":content-type", "application/json"), (":message-type", "event")]
    {
        put_header(header, HeaderValue::Text(value), &mut headers);
    }
    let mut out = BytesMut::new();
    let writer = MessageWriter::begin(&headers, &mut out);
    out.extend_from_slice(payload.as_bytes());
    writer.end(&mut out);
    out.to_vec()
}

/// Translates a request.
pub(crate) fn translate(client: Format, provider: Format, body: &JsonText) -> Outgoing {
    translate_cached(client, provider, body, PromptCaching::default())
}

/// Translates a request with automatic prompt caching.
pub(crate) fn translate_cached(
    client: Format,
    provider: Format,
    body: &JsonText,
    caching: PromptCaching<'_>,
) -> Outgoing {
    let dialect = Dialect::plain("model-of-the-provider", "provider");
    let model = EscapedString::from("the-model");
    let ask = TranslateRequest {
        client,
        provider,
        stream: true,
        array: false,
        thinking: Thinking::Unset,
        dialect: &dialect,
        model: &model,
        id: "01JXG3ZQK5V7W8Y9A0B1C2D3E4",
        seed: "01JXG3ZQK5V7W8Y9A0B1C2D3E4",
        now: 1_750_000_000,
    };
    outgoing_stored(body, &ask, StoreOptions { caching, ..StoreOptions::default() }).unwrap()
}

/// Returns the frames of a response with reasoning, text and a tool call.
pub(crate) fn realistic(format: Format, frames: usize) -> Vec<String> {
    let mut script = Script::new(format);
    script.begin();
    script.block(Said::Reasoning, frames / 10);
    script.block(Said::Text, frames);
    script.block(Said::Arguments, frames / 10);
    script.end("tool_calls");
    script.frames
}

/// Returns the frames of a response with text only.
pub(crate) fn text(format: Format, frames: usize) -> Vec<String> {
    filled_text(format, frames, Fill::Frame(FRAME))
}

/// Returns the frames of a response with text only, with this amount of text in each.
pub(crate) fn filled_text(format: Format, frames: usize, fill: Fill) -> Vec<String> {
    let mut script = Script { fill, ..Script::new(format) };
    script.begin();
    script.block(Said::Text, frames);
    script.end("stop");
    script.frames
}

/// Writer of a response, frame by frame.
pub(crate) struct Script {
    format: Format,
    pub(crate) fill: Fill,
    /// Frames so far.
    pub(crate) frames: Vec<String>,
    /// Index of the next block.
    block: usize,
    /// Number of the next frame, for the format that numbers its frames.
    number: usize,
    /// Content of the open block.
    held: String,
}

impl Script {
    /// Creates an empty response.
    pub(crate) fn new(format: Format) -> Self {
        let fill = Fill::Frame(FRAME);
        Script { format, fill, frames: Vec::new(), block: 0, number: 0, held: String::new() }
    }

    /// Writes a block with this many frames.
    pub(crate) fn block(&mut self, said: Said, frames: usize) {
        self.open(said);
        for n in 0..frames {
            self.delta(said, n);
        }
        self.close(said);
    }

    /// Writes the frames before the first block.
    pub(crate) fn begin(&mut self) {
        match self.format {
            Format::Chat => self.chunk("{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}", "null"),
            Format::Messages => {
                self.event(
                    "message_start",
                    "\"message\":{\"model\":\"claude-sonnet-4-5-20250929\",\"id\":\"msg_01PfXq2Vt7hC4mKbYz8RwL3d\",\
                     \"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\
                     \"usage\":{\"input_tokens\":90,\"cache_read_input_tokens\":0,\"output_tokens\":1}}",
                );
                self.event("ping", "");
            }
            Format::Responses => {
                for name in ["response.created", "response.in_progress"] {
                    self.response(name, "in_progress", "null");
                }
            }
            Format::Generate => {}
            Format::Converse => self.frames.push(requests::union("messageStart", "\"role\":\"assistant\"")),
        }
    }

    /// Writes the start of a block.
    pub(crate) fn open(&mut self, said: Said) {
        self.held.clear();
        let block = self.block;
        match (self.format, said) {
            (Format::Chat, Said::Arguments) => self.chunk(
                "{\"tool_calls\":[{\"index\":0,\"id\":\"call_w7Tq2nVb0sK9fYcXhRjLpMzD\",\"type\":\"function\",\
                 \"function\":{\"name\":\"write_lines\",\"arguments\":\"\"}}]}",
                "null",
            ),
            (Format::Messages, _) => {
                let content = match said {
                    Said::Text => "{\"type\":\"text\",\"text\":\"\"}",
                    Said::Reasoning => "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}",
                    Said::Arguments => {
                        "{\"type\":\"tool_use\",\"id\":\"toolu_01A9kLmNpQrStUvWxYz2b3C4\",\"name\":\"write_lines\",\"input\":{}}"
                    }
                };
                self.event("content_block_start", &format!("\"index\":{block},\"content_block\":{content}"));
            }
            (Format::Responses, _) => {
                let item = item(said, block, "in_progress", "");
                self.event("response.output_item.added", &format!("\"output_index\":{block},\"item\":{item}"));
                self.part(said, "added");
            }
            (Format::Converse, Said::Arguments) => self.frames.push(requests::union("contentBlockStart",
                &format!(
                    "\"contentBlockIndex\":{block},\"start\":{{\"toolUse\":{{\"name\":\"write_lines\",\
                     \"toolUseId\":\"tooluse_hsyz7O0QqkhdTHrpQhVYXj\"}}}}"
                ),
            )),
            _ => {}
        }
    }

    /// Writes a frame that adds to the block.
    pub(crate) fn delta(&mut self, said: Said, n: usize) {
        let mut piece = match said {
            Said::Arguments if n == 0 => "{\\\"lines\\\":[\\\"first\\\"".to_owned(),
            Said::Arguments => format!(",\\\"{}{n}\\\"", word(n).replace(['\\', '"'], "")),
            Said::Text | Said::Reasoning => word(n).to_owned(),
        };
        if said != Said::Arguments {
            let wanted = match self.fill {
                Fill::Frame(size) => size.saturating_sub(self.around(said, "").len()),
                Fill::Text(size) => size,
            };
            let mut at = n;
            while piece.len() < wanted {
                at += 1;
                piece.push_str(word(at));
            }
        }
        self.held.push_str(&piece);
        let frame = self.around(said, &piece);
        if !frame.is_empty() {
            self.frames.push(frame);
            self.number += 1;
        }
    }

    /// Writes the end of a block.
    pub(crate) fn close(&mut self, said: Said) {
        let block = self.block;
        if said == Said::Arguments {
            // The last fragment closes the object.
            self.held.push_str("]}");
            let frame = self.around(said, "]}");
            if !frame.is_empty() {
                self.frames.push(frame);
                self.number += 1;
            }
        }
        match self.format {
            Format::Chat => {}
            Format::Messages => self.event("content_block_stop", &format!("\"index\":{block}")),
            Format::Responses => {
                let (event, place, member) = names(said);
                let held = std::mem::take(&mut self.held);
                let id = id(said);
                self.event(
                    &format!("{event}.done"),
                    &format!("\"item_id\":\"{id}\",\"output_index\":{block},{place}\"{member}\":\"{held}\""),
                );
                self.held = held;
                self.part(said, "done");
                let item = item(said, block, "completed", &self.held);
                self.event("response.output_item.done", &format!("\"output_index\":{block},\"item\":{item}"));
            }
            Format::Generate if said == Said::Arguments => {
                let arguments = self.held.replace("\\\"", "\"");
                let call = format!("{{\"functionCall\":{{\"name\":\"write_lines\",\"args\":{arguments}}}}}");
                self.frames.push(generate(&call, "", self.number));
                self.number += 1;
            }
            Format::Generate => {}
            Format::Converse => self
                .frames
                .push(requests::union("contentBlockStop", &format!("\"contentBlockIndex\":{block}"))),
        }
        self.block += 1;
    }

    /// Writes the frames after the last block.
    pub(crate) fn end(&mut self, finish: &str) {
        match self.format {
            Format::Chat => {
                self.chunk("{}", &format!("\"{finish}\""));
                self.frames.push(format!(
                    "data: {{{HEAD},\"choices\":[],\"usage\":{{\"prompt_tokens\":90,\"completion_tokens\":500,\
                     \"total_tokens\":590,\"prompt_tokens_details\":{{\"cached_tokens\":0}}}}}}\n\n"
                ));
                self.frames.push("data: [DONE]\n\n".to_owned());
            }
            Format::Messages => {
                let reason = if finish == "stop" { "end_turn" } else { "tool_use" };
                self.event(
                    "message_delta",
                    &format!(
                        "\"delta\":{{\"stop_reason\":\"{reason}\",\"stop_sequence\":null}},\"usage\":{{\"output_tokens\":500}}"
                    ),
                );
                self.event("message_stop", "");
            }
            Format::Responses => {
                let usage = "{\"input_tokens\":90,\"output_tokens\":500,\"total_tokens\":590}";
                self.response("response.completed", "completed", usage);
            }
            Format::Converse => {
                let reason = if finish == "stop" { "end_turn" } else { "tool_use" };
                let usage = "\"usage\":{\"inputTokens\":90,\"outputTokens\":500,\"totalTokens\":590}";
                self.frames.push(requests::union("messageStop", &format!("\"stopReason\":\"{reason}\"")));
                self.frames.push(requests::union("metadata", usage));
            }
            Format::Generate => {
                self.frames.push(generate("{\"text\": \"\"}", "\"finishReason\": \"STOP\",", self.number))
            }
        }
    }

    /// Returns the frame of a delta, or an empty text if the format has no such frame.
    fn around(&self, said: Said, piece: &str) -> String {
        let block = self.block;
        match (self.format, said) {
            (Format::Chat, _) => {
                let delta = match said {
                    Said::Text => format!("{{\"content\":\"{piece}\"}}"),
                    Said::Reasoning => format!("{{\"reasoning_content\":\"{piece}\"}}"),
                    Said::Arguments => {
                        format!(
                            "{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"arguments\":\"{piece}\"}}}}]}}"
                        )
                    }
                };
                chunk(&delta, "null")
            }
            (Format::Messages, _) => {
                let delta = match said {
                    Said::Text => format!("\"text_delta\",\"text\":\"{piece}\""),
                    Said::Reasoning => format!("\"thinking_delta\",\"thinking\":\"{piece}\""),
                    Said::Arguments => format!("\"input_json_delta\",\"partial_json\":\"{piece}\""),
                };
                event("content_block_delta", &format!("\"index\":{block},\"delta\":{{\"type\":{delta}}}"))
            }
            (Format::Responses, _) => {
                let (name, place, _) = names(said);
                let logprobs = if said == Said::Text { ",\"logprobs\":[]" } else { "" };
                let (number, id) = (self.number, id(said));
                event(
                    &format!("{name}.delta"),
                    &format!(
                        "\"sequence_number\":{number},\"item_id\":\"{id}\",\"output_index\":{block},{place}\
                         \"delta\":\"{piece}\"{logprobs},\"obfuscation\":\"aB3dE5\""
                    ),
                )
            }
            (Format::Generate, Said::Text) => {
                generate(&format!("{{\"text\": \"{piece}\"}}"), "", self.number)
            }
            (Format::Generate, Said::Reasoning) => {
                generate(&format!("{{\"text\": \"{piece}\",\"thought\": true}}"), "", self.number)
            }
            (Format::Generate, Said::Arguments) => String::new(),
            (Format::Converse, _) => {
                let delta = match said {
                    Said::Text => format!("{{\"text\":\"{piece}\"}}"),
                    Said::Reasoning => format!("{{\"reasoningContent\":{{\"text\":\"{piece}\"}}}}"),
                    Said::Arguments => format!("{{\"toolUse\":{{\"input\":\"{piece}\"}}}}"),
                };
                let members = format!("\"contentBlockIndex\":{block},\"delta\":{delta},\"p\":\"abcdefghij\"");
                requests::union("contentBlockDelta", &members)
            }
        }
    }

    fn chunk(&mut self, delta: &str, finish: &str) {
        self.frames.push(chunk(delta, finish));
    }

    fn event(&mut self, name: &str, rest: &str) {
        let number = self.number;
        self.frames.push(match self.format {
            Format::Responses => event(name, &format!("\"sequence_number\":{number},{rest}")),
            _ => event(name, rest),
        });
        self.number += 1;
    }

    fn part(&mut self, said: Said, step: &str) {
        let (block, id, held) =
            (self.block, id(said), if step == "done" { self.held.clone() } else { String::new() });
        let (name, place, part) = match said {
            Said::Text => (
                "response.content_part",
                "\"content_index\":0",
                format!(
                    "{{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":\"{held}\"}}"
                ),
            ),
            Said::Reasoning => (
                "response.reasoning_summary_part",
                "\"summary_index\":0",
                format!("{{\"type\":\"summary_text\",\"text\":\"{held}\"}}"),
            ),
            Said::Arguments => return,
        };
        self.event(
            &format!("{name}.{step}"),
            &format!("\"item_id\":\"{id}\",\"output_index\":{block},{place},\"part\":{part}"),
        );
    }

    fn response(&mut self, name: &str, status: &str, usage: &str) {
        self.event(
            name,
            &format!(
                "\"response\":{{\"id\":\"resp_68a1f0c2d3e4b5a69788796a5b4c3d2e1f00\",\"object\":\"response\",\
                 \"created_at\":1750000000,\"status\":\"{status}\",\"error\":null,\"model\":\"gpt-5-2025-08-07\",\
                 \"output\":[],\"usage\":{usage}}}"
            ),
        );
    }
}
