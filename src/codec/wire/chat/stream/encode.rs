//! Stream encoder of the chat format: events to the chunks that OpenAI's own SDKs read.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};

use crate::canonical::answer::CitationOwned;
use crate::canonical::{BlockKind, Delta, Event, Finish, SealedSignature, Start, Usage};
use crate::error::ApiError;
use crate::wire::chat::enums::finish_word;
use crate::wire::chat::write::{self, SignatureOwner};
use crate::wire::codec::ReplyOptions;
use crate::wire::error::{ProviderError, from_provider};
use crate::wire::{Format, filler};
use json::{JsonStr, RawJson, Writer, push_escaped};

use super::pending::{Media, PendingCall};
use super::writer_state::{ChoiceState, Choices, DeltaMember, ReasoningBlock};

/// Text between the index of a choice and the members of its delta.
const DELTA: &[u8] = b",\"delta\":{";
/// Text behind the members of a delta.
const TAIL: &[u8] = b"},\"finish_reason\":null}]}\n\n";
/// The same for a stream whose client requested usage.
const TAIL_USAGE: &[u8] = b"},\"finish_reason\":null}],\"usage\":null}\n\n";

/// Encoder of a chat stream.
#[derive(Debug)]
pub struct Encoder {
    reply: Arc<ReplyOptions>,
    /// Beginning of every chunk, up to the index of its choice.
    head: BytesMut,
    /// End of every chunk, behind the members of its delta.
    tail: &'static [u8],
    /// Beginning of the last chunk with text, up to the text, and its choice and member. Most chunks begin like the
    /// previous one, so that a chunk costs three copies.
    prefix: BytesMut,
    prefix_of: Option<(u32, DeltaMember)>,
    blocks: Vec<Slot>,
    choices: Choices,
    usage: Usage,
    over: bool,
}

#[derive(Debug)]
enum Slot {
    Text {
        choice: u32,
        from: u64,
        /// Position of its first citation among those of its choice.
        cited: usize,
    },
    Refusal {
        choice: u32,
    },
    Reasoning(ReasoningBlock),
    Call(Box<PendingCall>),
    Media(Box<Media>),
    /// A block that this format cannot carry, or that has ended.
    Nothing,
}

impl Encoder {
    /// Creates an encoder of one response.
    pub fn new(reply: Arc<ReplyOptions>) -> Self {
        let tail = if reply.usage_wanted { TAIL_USAGE } else { TAIL };
        Encoder {
            reply,
            head: BytesMut::new(),
            tail,
            prefix: BytesMut::new(),
            prefix_of: None,
            blocks: Vec::new(),
            choices: Choices::default(),
            usage: Usage::default(),
            over: false,
        }
    }

    /// Replaces the options, because another provider continues the response.
    pub fn set_reply_options(&mut self, reply: Arc<ReplyOptions>) {
        self.reply = reply;
    }

    /// Uses the id of this start unchanged, because the client has received it in earlier chunks.
    pub fn continue_as(&mut self, start: &Start<'_>) {
        if !start.id.is_empty() {
            self.begin(|json, reply| write::head_as(json, start, reply));
        }
    }

    /// Writes the beginning that all chunks share.
    fn begin(&mut self, write: impl FnOnce(&mut Writer<'_, BytesMut>, &ReplyOptions)) {
        self.head.clear();
        self.prefix_of = None;
        self.head.put_slice(b"data: ");
        let mut json = Writer::new(&mut self.head);
        json.begin_object();
        write(&mut json, &self.reply);
        json.key("choices").begin_array().begin_object().key("index");
    }

    /// Encodes one event.
    #[inline]
    pub fn event(&mut self, event: &Event<'_>, out: &mut BytesMut) {
        if self.over {
            return;
        }
        match *event {
            Event::Delta { index, delta } => self.delta(index, delta, out),
            Event::Start(start) => self.start(&start, out),
            Event::BlockStart { index, choice, kind } => self.block(index, choice, kind, out),
            Event::BlockStop { index } => self.stop(index, out),
            Event::Usage(usage) => self.usage.update(&usage),
            Event::Finish { choice, finish } => self.finish(choice, finish, out),
            Event::Ping => {}
            Event::Error(error) => {
                let provider = ProviderError::decode(error.text().as_bytes());
                self.fail(&from_provider(500, provider, None), out);
            }
            Event::End => self.end(out),
        }
    }

    /// Ends the stream with an error, at which SDKs raise an exception. Without a terminator, which would mean a whole response.
    pub fn fail(&mut self, error: &ApiError, out: &mut BytesMut) {
        if self.over {
            return;
        }
        self.over = true;
        out.put_slice(b"data: ");
        crate::wire::chat::error::encode(error, out);
        out.put_slice(b"\n\n");
    }

    /// Writes keep-alive filler, which all SDKs skip.
    pub fn keep_alive(&mut self, out: &mut BytesMut) {
        if !self.over {
            out.put_slice(filler(Format::Chat).as_bytes());
        }
    }

    fn start(&mut self, start: &Start<'_>, out: &mut BytesMut) {
        self.begin(|json, reply| write::head(json, "chat.completion.chunk", start, reply));
        self.choice(0, out);
    }

    /// Returns the choice with this index. The first access writes its first chunk, which carries the role.
    fn choice(&mut self, index: u32, out: &mut BytesMut) -> Option<&mut ChoiceState> {
        if self.choices.get_mut(index).is_none() {
            self.open(index, out);
            out.put_slice(br#""role":"assistant","content":"""#);
            out.put_slice(self.tail);
            self.choices.push(ChoiceState {
                index,
                calls: 0,
                reasoning_blocks: 0,
                images: 0,
                details: 0,
                characters: 0,
                citations: Vec::new(),
            });
        }
        self.choices.get_mut(index)
    }

    /// Writes the beginning of a chunk up to the members of its delta.
    #[inline]
    fn open(&self, choice: u32, out: &mut BytesMut) {
        out.put_slice(&self.head);
        match choice {
            0 => out.put_u8(b'0'),
            _ => out.put_slice(itoa::Buffer::new().format(choice).as_bytes()),
        }
        out.put_slice(DELTA);
    }

    /// Writes a chunk that appends text to a member.
    #[inline]
    fn text(&mut self, choice: u32, member: DeltaMember, text: JsonStr<'_>, out: &mut BytesMut) {
        if self.prefix_of != Some((choice, member)) {
            self.prepare(choice, member);
        }
        let text = text.escaped().as_bytes();
        let behind: &[u8] = match member {
            DeltaMember::Content | DeltaMember::Reasoning | DeltaMember::Refusal => b"\"",
            DeltaMember::Input(_) => b"\"}}]",
        };
        out.reserve(self.prefix.len() + text.len() + behind.len() + self.tail.len());
        out.put_slice(&self.prefix);
        out.put_slice(text);
        out.put_slice(behind);
        out.put_slice(self.tail);
    }

    /// Prepares the beginning of the chunks that append text to this member.
    #[cold]
    fn prepare(&mut self, choice: u32, member: DeltaMember) {
        let mut prefix = BytesMut::with_capacity(self.head.len() + 64);
        self.open(choice, &mut prefix);
        match member {
            DeltaMember::Content => prefix.put_slice(br#""content":""#),
            DeltaMember::Reasoning => prefix.put_slice(br#""reasoning_content":""#),
            DeltaMember::Refusal => prefix.put_slice(br#""refusal":""#),
            DeltaMember::Input(block) => {
                if let Some(Slot::Call(call)) = self.blocks.get(block as usize) {
                    prefix.put_slice(br#""tool_calls":[{"index":"#);
                    prefix.put_slice(itoa::Buffer::new().format(call.number).as_bytes());
                    prefix.put_slice(call.before_input());
                }
            }
        }
        self.prefix = prefix;
        self.prefix_of = Some((choice, member));
    }

    fn chunk(&self, choice: u32, out: &mut BytesMut, write: impl FnOnce(&mut Writer<'_, BytesMut>)) {
        self.open(choice, out);
        write(&mut Writer::new(out));
        out.put_slice(self.tail);
    }

    fn block(&mut self, index: u32, choice: u32, kind: BlockKind<'_>, out: &mut BytesMut) {
        let Some(lane) = self.choice(choice, out) else { return };
        let slot = match kind {
            BlockKind::Text => Slot::Text { choice, from: lane.characters, cited: lane.citations.len() },
            BlockKind::Refusal => Slot::Refusal { choice },
            BlockKind::Reasoning | BlockKind::HiddenReasoning => {
                lane.reasoning_blocks += 1;
                Slot::Reasoning(ReasoningBlock {
                    choice,
                    first: lane.reasoning_blocks == 1,
                    filled: false,
                    place: None,
                })
            }
            BlockKind::ToolUse { id, name, kind, .. } => {
                Slot::Call(Box::new(PendingCall::new(choice, id, name, kind)))
            }
            BlockKind::Media { mime } => {
                let number = lane.images;
                lane.images += 1;
                Slot::Media(Box::new(Media::new(choice, number, mime)))
            }
            BlockKind::Opaque { .. } => Slot::Nothing,
        };
        debug_assert_eq!(index as usize, self.blocks.len(), "blocks are numbered in their order");
        self.blocks.push(slot);
    }

    #[inline]
    fn delta(&mut self, index: u32, delta: Delta<'_>, out: &mut BytesMut) {
        let Some(slot) = self.blocks.get_mut(index as usize) else { return };
        match (slot, delta) {
            (Slot::Text { choice, .. }, Delta::Text(text)) => {
                let choice = *choice;
                if !text.is_empty() {
                    self.text(choice, DeltaMember::Content, text, out);
                    self.count(choice, text);
                }
            }
            (Slot::Reasoning(thought), Delta::Text(text)) if !text.is_empty() => {
                thought.filled = true;
                let (choice, first) = (thought.choice, thought.first);
                match self.reply.show_thinking {
                    false => {}
                    true if first => self.text(choice, DeltaMember::Reasoning, text, out),
                    true => self.later_thought(index, text, out),
                }
            }
            (Slot::Call(call), Delta::Arguments(text)) if !text.is_empty() => {
                call.filled = true;
                if !call.started {
                    self.start_call(index, out);
                }
                self.arguments(index, text, out);
            }
            (Slot::Refusal { choice }, Delta::Text(text)) if !text.is_empty() => {
                let choice = *choice;
                self.text(choice, DeltaMember::Refusal, text, out);
            }
            _ => self.seldom(index, delta, out),
        }
    }

    fn seldom(&mut self, index: u32, delta: Delta<'_>, out: &mut BytesMut) {
        let Some(slot) = self.blocks.get_mut(index as usize) else { return };
        match (slot, delta) {
            (Slot::Call(_), Delta::Object(object)) => {
                let mut text = Vec::with_capacity(object.text().len() + 16);
                push_escaped(&mut text, object.text());
                let text = String::from_utf8(text).unwrap_or_default();
                self.delta(index, Delta::Arguments(JsonStr::from_escaped(&text)), out);
            }
            (Slot::Call(call), Delta::Signature(seal)) if !call.started => call.hold_signature(seal),
            (Slot::Call(call), Delta::Signature(seal)) => {
                let (choice, id) = (call.choice, call.id.clone());
                self.detail(choice, SignatureOwner::Call(&id), Some(seal), out);
            }
            (Slot::Media(media), Delta::Data(data)) => media.data.push_str(data.escaped()),
            (Slot::Media(media), Delta::Url(url)) => url.escaped().clone_into(&mut media.url),
            (Slot::Media(media), Delta::Signature(seal)) => {
                let (choice, number) = (media.choice, media.number);
                self.detail(choice, SignatureOwner::Image(number), Some(seal), out);
            }
            (Slot::Reasoning(thought), Delta::Signature(seal)) => {
                let filled = thought.filled;
                // The provider checks the signature against the text; without the text the client could not return
                // both.
                if self.reply.show_thinking || !filled {
                    let of = if filled { SignatureOwner::Reasoning(None) } else { SignatureOwner::Hidden };
                    self.detail_of(index, of, Some(seal), out);
                }
            }
            (Slot::Text { choice, .. }, Delta::Signature(seal)) => {
                let choice = *choice;
                self.detail(choice, SignatureOwner::Text, Some(seal), out);
            }
            (Slot::Text { choice, .. }, Delta::Citation(citation)) if !citation.url.is_empty() => {
                let choice = *choice;
                if let Some(choice) = self.choice(choice, out) {
                    choice.citations.push((index as usize, CitationOwned::own(&citation)));
                }
            }
            (Slot::Text { choice, .. } | Slot::Refusal { choice }, Delta::Logprobs(list)) => {
                let choice = *choice;
                let refusal = matches!(self.blocks.get(index as usize), Some(Slot::Refusal { .. }));
                self.logprobs(choice, refusal, list, out);
            }
            _ => {}
        }
    }

    #[inline]
    fn count(&mut self, choice: u32, text: JsonStr<'_>) {
        if let Some(choice) = self.choices.get_mut(choice) {
            choice.characters += text.char_count();
        }
    }

    /// Writes a part of a later reasoning block. SDKs join all reasoning into one text; `reasoning_details` keeps
    /// blocks apart.
    fn later_thought(&mut self, index: u32, text: JsonStr<'_>, out: &mut BytesMut) {
        let Some((choice, place)) = self.place_of(index) else { return };
        self.chunk(choice, out, |json| {
            json.key("reasoning_content").paste(text);
            json.key("reasoning_details").begin_array();
            write::detail(json, SignatureOwner::Reasoning(Some(text)), place, None);
            json.end_array();
        });
    }

    fn place_of(&mut self, index: u32) -> Option<(u32, u32)> {
        let Some(Slot::Reasoning(thought)) = self.blocks.get_mut(index as usize) else { return None };
        let choice = self.choices.get_mut(thought.choice)?;
        let place = *thought.place.get_or_insert_with(|| choice.next_detail());
        Some((thought.choice, place))
    }

    fn detail_of(
        &mut self,
        index: u32,
        of: SignatureOwner<'_>,
        seal: Option<JsonStr<'_>>,
        out: &mut BytesMut,
    ) {
        if let Some((choice, place)) = self.place_of(index) {
            self.put_detail(choice, of, place, seal, out);
        }
    }

    fn detail(&mut self, choice: u32, of: SignatureOwner<'_>, seal: Option<JsonStr<'_>>, out: &mut BytesMut) {
        if let Some(lane) = self.choices.get_mut(choice) {
            let place = lane.next_detail();
            self.put_detail(choice, of, place, seal, out);
        }
    }

    fn put_detail(
        &self,
        choice: u32,
        of: SignatureOwner<'_>,
        place: u32,
        seal: Option<JsonStr<'_>>,
        out: &mut BytesMut,
    ) {
        let seal = seal.map(|text| SealedSignature { issuer: &self.reply.issuer, text });
        self.chunk(choice, out, |json| {
            json.key("reasoning_details").begin_array();
            write::detail(json, of, place, seal);
            json.end_array();
        });
    }

    fn logprobs(&self, choice: u32, refusal: bool, list: RawJson<'_>, out: &mut BytesMut) {
        self.open(choice, out);
        out.put_slice(b"},\"logprobs\":");
        let mut json = Writer::new(out);
        let (content, refused) = if refusal { (RawJson::NULL, list) } else { (list, RawJson::NULL) };
        json.begin_object();
        json.key("content").raw(content);
        json.key("refusal").raw(refused);
        json.end_object();
        out.put_slice(self.tail.get(1..).unwrap_or_default());
    }

    /// Writes the first chunk of a call. Calls are numbered in the order of these chunks, so that there are no gaps.
    fn start_call(&mut self, index: u32, out: &mut BytesMut) {
        let Some(Slot::Call(call)) = self.blocks.get_mut(index as usize) else { return };
        if let Some(choice) = self.choices.get_mut(call.choice) {
            // SDKs take the number for a list position, so it is assigned at the first chunk and not at the start of
            // the block.
            call.number = choice.calls;
            choice.calls += 1;
        }
        call.start(&self.reply.issuer);
        if let Some(Slot::Call(call)) = self.blocks.get(index as usize) {
            self.chunk(call.choice, out, |json| call.write(json));
        }
    }

    #[inline]
    fn arguments(&mut self, index: u32, text: JsonStr<'_>, out: &mut BytesMut) {
        if let Some(Slot::Call(call)) = self.blocks.get(index as usize) {
            self.text(call.choice, DeltaMember::Input(index), text, out);
        }
    }

    fn stop(&mut self, index: u32, out: &mut BytesMut) {
        match self.blocks.get(index as usize) {
            Some(Slot::Text { choice, from, cited }) => {
                let (choice, from, cited) = (*choice, *from, *cited);
                self.cite(index as usize, choice, from, cited);
            }
            Some(Slot::Call(call)) => {
                // SDKs parse the input as JSON, and an empty string would fail.
                let empty = if call.filled { None } else { call.empty_input() };
                if !call.started {
                    self.start_call(index, out);
                }
                if let Some(empty) = empty {
                    self.arguments(index, empty, out);
                }
            }
            Some(Slot::Media(media)) => {
                self.chunk(media.choice, out, |json| media.write(json, &self.reply));
            }
            _ => {}
        }
        if let Some(slot) = self.blocks.get_mut(index as usize) {
            *slot = Slot::Nothing;
        }
    }

    /// Sets the range of citations that have none to the whole text block.
    fn cite(&mut self, block: usize, choice: u32, from: u64, first: usize) {
        let Some(choice) = self.choices.get_mut(choice) else { return };
        let to = choice.characters;
        let own = choice.citations.get_mut(first..).unwrap_or_default();
        for (_, citation) in own.iter_mut().filter(|(of, _)| *of == block) {
            citation.span.get_or_insert((from, to));
        }
    }

    fn finish(&mut self, choice: u32, finish: Finish<'_>, out: &mut BytesMut) {
        let Some(lane) = self.choice(choice, out) else { return };
        let (called, citations) = (lane.calls > 0, std::mem::take(&mut lane.citations));
        if !citations.is_empty() {
            self.chunk(choice, out, |json| {
                json.key("annotations").begin_array();
                for (_, citation) in &citations {
                    write::annotation(json, &citation.borrow(), (0, 0));
                }
                json.end_array();
            });
        }
        let (word, native) = finish_word(finish, called);
        self.open(choice, out);
        out.put_slice(b"},\"finish_reason\":\"");
        out.put_slice(word.as_bytes());
        if let Some(native) = native {
            out.put_slice(b"\",\"native_finish_reason\":\"");
            out.put_slice(native.escaped().as_bytes());
        }
        write::end_choices(b"\"}]", &self.usage, out);
        out.put_slice(if self.reply.usage_wanted { &b",\"usage\":null}\n\n"[..] } else { b"}\n\n" });
    }

    fn end(&mut self, out: &mut BytesMut) {
        self.over = true;
        if self.reply.usage_wanted && self.usage.is_known() {
            // The usage chunk has no choice: close the list that the head has opened.
            let head = self.head.strip_suffix(&b"{\"index\":"[..]).unwrap_or_default();
            out.put_slice(head);
            write::end_with_usage(&self.usage, out);
        }
        out.put_slice(b"data: [DONE]\n\n");
    }
}
