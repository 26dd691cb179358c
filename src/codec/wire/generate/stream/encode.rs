//! Stream encoder: writes events as `data:` lines with CRLF, or as the elements of one JSON array.
//!
//! Only data may be written: official SDKs fail on comments, event names and `[DONE]`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::BytesMut;

use crate::canonical::answer::FinishOwned;
use crate::canonical::{BlockKind, Delta, Event, SealedSignature, Slots, Start, ToolKind, Usage};
use crate::error::ApiError;
use crate::wire::codec::ReplyOptions;
use crate::wire::generate::grounding::Grounding;
use crate::wire::generate::offsets::Offsets;
use crate::wire::generate::{error, finish, logprobs, part, signature, usage};
use crate::wire::{Format, filler};
use json::{JsonStr, RawJson, Writer};

/// Beginning of a frame, up to its first part.
const HEAD: &[u8] = b"{\"candidates\":[{\"content\":{\"parts\":[";

/// Encoder of one stream.
#[derive(Debug)]
pub struct Encoder {
    reply: Arc<ReplyOptions>,
    /// Text after the candidates of the last frame: model and response id.
    names: Vec<u8>,
    /// Text after the parts of every other frame: the input tokens, if they are known from the start, model and response
    /// id.
    tail: Vec<u8>,
    /// Text after the text of a frame of candidate 0, and after that of a thought.
    text_tail: Vec<u8>,
    thought_tail: Vec<u8>,
    /// Whether the first frame (in an array: the first element) has been written.
    begun: bool,
    over: bool,
    open: Slots<Open>,
    choices: BTreeMap<u32, Choice>,
    usage: Usage,
    /// Whether text of candidate 0 is written by the fast path: in an event stream, after the first frame.
    is_fast: bool,
}

/// Open block.
#[derive(Debug)]
struct Open {
    choice: u32,
    kind: Kind,
    /// Characters in the choice's text before the block.
    start: u64,
    /// Arguments of a call or data of a file so far. They are collected, because a part cannot be written in pieces.
    text: String,
    /// Whether `text` is a JSON object of arguments, or the URL of a file.
    whole: bool,
    /// Provider signature of a call or of media.
    seal: String,
}

#[derive(Debug)]
enum Kind {
    Text,
    Refusal,
    Thought,
    Hidden,
    Call { id: String, name: String, kind: ToolKind },
    Media { mime: String },
    Other,
}

/// State of a choice that the last frame reports.
#[derive(Debug, Default)]
struct Choice {
    offsets: Offsets,
    grounding: Grounding,
    logprobs: String,
    refused: bool,
    finish: Option<FinishOwned>,
}

impl Encoder {
    /// Creates the encoder of one stream.
    pub fn new(reply: Arc<ReplyOptions>) -> Self {
        Encoder {
            is_fast: false,
            reply,
            names: Vec::new(),
            tail: Vec::new(),
            text_tail: Vec::new(),
            thought_tail: Vec::new(),
            begun: false,
            over: false,
            open: Slots::default(),
            choices: BTreeMap::new(),
            usage: Usage::default(),
        }
    }

    /// Replaces the reply options, because another provider resumes the response.
    pub fn set_reply_options(&mut self, reply: Arc<ReplyOptions>) {
        self.reply = reply;
    }

    /// Uses the id of this start unchanged, because the client has received it in earlier frames. Has no effect if
    /// the id is empty.
    pub fn continue_as(&mut self, start: &Start<'_>) {
        if start.id.is_empty() {
            return;
        }
        self.name(|reply, tail| {
            let mut json = Writer::new(tail);
            json.key("modelVersion").paste(reply.model.as_json_str()).key("responseId").paste(start.id);
        });
    }

    /// Prepares the text after the parts of each frame, so that a text frame is written with three copies.
    ///
    /// Input tokens that the provider reports at the start are in each frame, as in Google's own streams, and others only
    /// in the last one: clients that add frames up count the last figure again for a frame without one
    /// (`@langchain/google-genai`).
    fn name(&mut self, write: impl FnOnce(&ReplyOptions, &mut BytesMut)) {
        let mut names = BytesMut::from(&b","[..]);
        write(&self.reply, &mut names);
        names.extend_from_slice(if self.reply.array { b"}" } else { b"}\r\n\r\n" });
        self.names = names.to_vec();
        self.prepare_tails();
    }

    fn prepare_tails(&mut self) {
        let mut tail = BytesMut::from(&b"]"[..]);
        // Some providers begin with an input of 0.
        if let Some(input) = self.usage.input.filter(|input| *input > 0) {
            let usage = Usage { input: Some(input), cached: self.usage.cached, ..Usage::default() };
            tail.extend_from_slice(b",");
            usage::write(&usage, &mut Writer::new(&mut tail));
        }
        tail.extend_from_slice(&self.names);
        self.tail = tail.to_vec();
        self.text_tail = [AFTER_TEXT, FIRST, &self.tail].concat();
        self.thought_tail = [AFTER_THOUGHT, FIRST, &self.tail].concat();
    }

    /// Writes the frames of one event. Events after the end are ignored.
    pub fn event(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        if self.over {
            return;
        }
        match *event {
            Event::Start(start) => {
                self.name(|reply, tail| part::names(start.id.escaped(), reply, &mut Writer::new(tail)));
            }
            Event::BlockStart { index, choice, kind } => self.start(index, choice, kind, out),
            Event::Delta { index, delta } => self.delta(index, delta, out),
            Event::BlockStop { index } => self.stop(index, out),
            Event::Usage(usage) => {
                self.usage.update(&usage);
                if !self.begun {
                    self.prepare_tails();
                }
            }
            Event::Finish { choice, finish } => {
                // Written with the last frame, after the citations and the final usage are known.
                self.choice(choice).finish = Some(FinishOwned::own(finish));
            }
            // The proxy sends keep-alive filler itself (`keep_alive`).
            Event::Ping => {}
            Event::Error(raw) => {
                let provider = crate::wire::error::ProviderError::decode(raw.text().as_bytes());
                self.fail(&crate::wire::error::from_provider(500, provider, None), out);
            }
            Event::End => self.end(out),
        }
    }

    /// Writes an error frame and ends the stream.
    pub fn fail(&mut self, error: &ApiError, out: &mut BytesMut) {
        if self.over {
            return;
        }
        self.over = true;
        self.begin_frame(out);
        error::encode(error, out);
        out.extend_from_slice(if self.reply.array { b"]" } else { b"\r\n\r\n" });
    }

    /// Writes keep-alive filler, an empty line: ignored between server-sent events, white space between array
    /// elements.
    pub fn keep_alive(&mut self, out: &mut BytesMut) {
        if !self.over {
            out.extend_from_slice(filler(Format::Generate).as_bytes());
        }
    }

    #[inline]
    fn begin_frame(&mut self, out: &mut BytesMut) {
        out.extend_from_slice(match (self.reply.array, self.begun) {
            (false, _) => b"data: ",
            (true, false) => b"[",
            (true, true) => b",\r\n",
        });
        self.begun = true;
    }

    /// Writes a frame with one part of one candidate.
    #[inline]
    fn frame(&mut self, choice: u32, out: &mut BytesMut, part: impl FnOnce(&mut BytesMut)) {
        self.begin_frame(out);
        self.is_fast = !self.reply.array;
        out.extend_from_slice(HEAD);
        part(out);
        if choice == 0 {
            out.extend_from_slice(FIRST);
        } else {
            out.extend_from_slice(b"],\"role\":\"model\"},\"index\":");
            out.extend_from_slice(itoa::Buffer::new().format(choice).as_bytes());
            out.extend_from_slice(b"}");
        }
        out.extend_from_slice(&self.tail);
    }

    /// Writes a frame with text.
    #[inline]
    fn text(&mut self, choice: u32, text: JsonStr<'_>, thought: bool, out: &mut BytesMut) {
        let text = text.escaped().as_bytes();
        if choice != 0 || !self.is_fast {
            let after = if thought { AFTER_THOUGHT } else { AFTER_TEXT };
            return self.frame(choice, out, |out| {
                for part in [b"{\"text\":\"", text, after] {
                    out.extend_from_slice(part);
                }
            });
        }
        // Hot path: candidate 0 of an event stream after its first frame. The whole frame is the text between two constant slices.
        let head = b"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"";
        let tail = if thought { &self.thought_tail } else { &self.text_tail };
        out.reserve(head.len() + text.len() + tail.len());
        out.extend_from_slice(head);
        out.extend_from_slice(text);
        out.extend_from_slice(tail);
    }

    fn start(&mut self, index: u32, choice: u32, kind: BlockKind<'_>, out: &mut BytesMut) {
        let own = |text: JsonStr<'_>| text.escaped().to_owned();
        let start = self.choice(choice).offsets.chars();
        let kind = match kind {
            BlockKind::Text => Kind::Text,
            BlockKind::Refusal => {
                self.choice(choice).refused = true;
                Kind::Refusal
            }
            BlockKind::Reasoning => Kind::Thought,
            BlockKind::HiddenReasoning => Kind::Hidden,
            BlockKind::ToolUse { id, name, kind, .. } => Kind::Call { id: own(id), name: own(name), kind },
            BlockKind::Media { mime } => Kind::Media { mime: own(mime) },
            BlockKind::Opaque { name, raw } => {
                // Opaque blocks of other formats have no counterpart here.
                if part::is_own(name) {
                    self.frame(choice, out, |out| part::paste(raw, &mut Writer::new(out)));
                }
                Kind::Other
            }
        };
        let (text, seal) = (String::new(), String::new());
        self.open.push(index.into(), Open { choice, kind, start, text, whole: false, seal });
    }

    #[inline]
    fn delta(&mut self, index: u32, delta: Delta<'_>, out: &mut BytesMut) {
        let Some(open) = self.open.get_mut(index.into()) else { return };
        let number = open.choice;
        match (delta, &open.kind) {
            (Delta::Text(text), Kind::Thought) => {
                if self.reply.show_thinking && !text.is_empty() {
                    self.text(number, text, true, out);
                }
            }
            (Delta::Text(text), _) if !text.is_empty() => {
                self.choice(number).offsets.push(text);
                self.text(number, text, false, out);
            }
            (Delta::Arguments(text) | Delta::Data(text), _) => open.text.push_str(text.escaped()),
            (Delta::Object(object), _) => {
                open.whole = true;
                object.text().clone_into(&mut open.text);
            }
            (Delta::Url(url), _) => {
                open.whole = true;
                url.escaped().clone_into(&mut open.text);
            }
            // Written with the part, when the block ends.
            (Delta::Signature(seal), Kind::Call { .. } | Kind::Media { .. }) => {
                seal.escaped().clone_into(&mut open.seal);
            }
            (Delta::Signature(seal), kind) => {
                let hidden = matches!(kind, Kind::Hidden);
                let before: &[u8] = match kind {
                    Kind::Thought | Kind::Hidden => b"{\"text\":\"\",\"thought\":true,",
                    _ => b"{\"text\":\"\",",
                };
                let reply = Arc::clone(&self.reply);
                self.frame(number, out, |out| {
                    out.extend_from_slice(before);
                    out.extend_from_slice(b"\"thoughtSignature\":\"");
                    let sealed = SealedSignature { issuer: &reply.issuer, text: seal };
                    signature::write(sealed, hidden, out);
                    out.extend_from_slice(b"\"}");
                });
            }
            (Delta::Citation(citation), _) => self.choice(number).grounding.add(citation),
            (Delta::Logprobs(list), _) => logprobs::join(list, &mut self.choice(number).logprobs),
            (Delta::Text(_), _) => {}
        }
    }

    fn stop(&mut self, index: u32, out: &mut BytesMut) {
        let Some(open) = self.open.remove(index.into()) else { return };
        match &open.kind {
            Kind::Text | Kind::Refusal => {
                let choice = self.choice(open.choice);
                choice.grounding.complete_block(open.start, choice.offsets.chars());
            }
            Kind::Call { id, name, kind } => {
                let reply = Arc::clone(&self.reply);
                let call = part::CompleteCall {
                    id: JsonStr::from_escaped(id),
                    name: JsonStr::from_escaped(name),
                    kind: *kind,
                    text: JsonStr::from_escaped(if open.whole { "" } else { &open.text }),
                    object: open.whole.then(|| RawJson::from_text(&open.text)),
                };
                self.frame(open.choice, out, |out| {
                    let mut json = Writer::new(out);
                    part::begin_call(&mut json, &call);
                    part::end(&mut json, &open.seal, &reply.issuer, false);
                });
            }
            Kind::Media { mime } => {
                let reply = Arc::clone(&self.reply);
                let (mime, data) = (JsonStr::from_escaped(mime), JsonStr::from_escaped(&open.text));
                self.frame(open.choice, out, |out| {
                    let mut json = Writer::new(out);
                    match open.whole {
                        true => part::begin_file(&mut json, mime, data, JsonStr::default()),
                        false => part::begin_inline(&mut json, mime, data, JsonStr::default()),
                    }
                    part::end(&mut json, &open.seal, &reply.issuer, false);
                });
            }
            Kind::Thought | Kind::Hidden | Kind::Other => {}
        }
    }

    /// Returns the state of a choice, creating it if necessary.
    #[inline]
    fn choice(&mut self, index: u32) -> &mut Choice {
        self.choices.entry(index).or_default()
    }

    /// Writes the last frame, the only one with finish reasons.
    fn end(&mut self, out: &mut BytesMut) {
        self.over = true;
        self.begin_frame(out);
        out.extend_from_slice(b"{\"candidates\":[");
        let mut json = Writer::new(out);
        for (index, choice) in &self.choices {
            json.begin_object().key("content").begin_object();
            // Write an empty text, as the provider does: clients treat content without parts as a broken response.
            json.key("parts").begin_array();
            part::begin_text(&mut json, JsonStr::default(), false);
            json.end_object().end_array();
            json.key("role").string("model").end_object();
            if let Some(reason) = &choice.finish {
                json.key("finishReason").string(finish::write(reason.borrow(), choice.refused));
            }
            json.key("index").number(*index);
            choice.grounding.write(&choice.offsets, &mut json);
            logprobs::write(&choice.logprobs, &mut json);
            json.end_object();
        }
        out.extend_from_slice(b"]");
        if self.usage.is_known() {
            out.extend_from_slice(b",");
            usage::write(&self.usage, &mut Writer::new(out));
        }
        out.extend_from_slice(&self.names);
        if self.reply.array {
            out.extend_from_slice(b"]");
        }
    }
}

/// Text after the text of a part.
const AFTER_TEXT: &[u8] = b"\"}";
/// Text after the text of a thought.
const AFTER_THOUGHT: &[u8] = b"\",\"thought\":true}";
/// Text after the parts of candidate 0.
const FIRST: &[u8] = b"],\"role\":\"model\"},\"index\":0}";
