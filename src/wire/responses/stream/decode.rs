//! Frames of a responses stream, read as events.
//!
//! Items are told apart by their `output_index` and parts by their `content_index`, never by ids: there is a provider
//! whose ids change between the events of one item.

use super::fast_path::{Usual, What};
use super::parse::{Annotation, Frame, Item, Part, Response};
use super::slot::{Block, Holds, Reasoning, Slot};
use crate::canonical::{BlockKind, Delta, Event, Index, Key, Start, ToolKind};
use crate::json::{Cursor, JsonError, JsonStr, RawJson};
use crate::wire::codec::{CutText, make_id};
use crate::wire::watch::elements;

/// Reads a stream.
#[derive(Debug)]
pub struct Decoder {
    seed: Box<str>,
    pub(super) started: bool,
    pub(super) over: bool,
    /// The index of the next block.
    next: u32,
    pub(super) items: Vec<Slot>,
    /// Where items stand, by their positions.
    places: Index,
    /// Blocks that are open and complete: their items' places here, and their own in these.
    complete: Vec<(usize, usize)>,
    /// A tool of the client was called.
    pub(super) called: bool,
    /// Characters in the texts that are complete.
    characters: u64,
    pub(super) searches: u64,
    usual: Usual,
}

impl Decoder {
    /// For one stream. `seed` is what ids are made from where the provider gives none.
    pub fn new(seed: &str) -> Self {
        Decoder {
            seed: seed.into(),
            started: false,
            over: false,
            next: 0,
            items: Vec::new(),
            places: Index::default(),
            complete: Vec::new(),
            called: false,
            characters: 0,
            searches: 0,
            usual: Usual::default(),
        }
    }

    /// Whether the answer has come to its end, or to an error. Frames after it are ignored.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// The upstream has closed the stream.
    ///
    /// # Errors
    /// The answer was not complete.
    pub fn finish(&mut self, _sink: &mut impl FnMut(Event<'_>)) -> Result<(), CutText> {
        if self.over { Ok(()) } else { Err(CutText) }
    }

    /// Reads the data of one frame.
    ///
    /// # Errors
    /// The data is not JSON.
    pub fn frame(&mut self, data: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        // Some gateways end the stream in the way of the chat format.
        if self.over || data.starts_with("[DONE]") {
            return Ok(());
        }
        if let Some(frame) = self.usual.read(data) {
            self.some_delta(self.usual.what(), &frame, sink);
            return Ok(());
        }
        let frame = Frame::read(data)?;
        let Some(what) = What::of(frame.kind.escaped()) else {
            return self.rare(frame.kind.escaped(), &frame, sink);
        };
        self.usual.keep(what, &frame, data);
        self.some_delta(what, &frame, sink);
        Ok(())
    }

    #[inline]
    fn some_delta(&mut self, what: What, frame: &Frame<'_>, sink: &mut impl FnMut(Event<'_>)) {
        match what {
            What::Text => self.text_delta(frame, BlockKind::Text, sink),
            What::Refusal => self.text_delta(frame, BlockKind::Refusal, sink),
            What::Input => self.input_delta(frame, sink),
            What::Reasoning(which) => self.reasoning_delta(frame, which, sink),
        }
    }

    /// What comes once for an item or an answer.
    fn rare(
        &mut self,
        kind: &str,
        frame: &Frame<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        match kind {
            "response.created" | "response.queued" | "response.in_progress" => {
                if let Some(response) = frame.response.filter(|_| !self.started) {
                    self.start(&Response::read(response)?, sink);
                }
            }
            "response.output_item.added" => {
                if let Some(item) = frame.item {
                    self.item_added(frame, &Item::read(item)?, sink);
                }
            }
            "response.content_part.added" => {
                if let Some(part) = frame.part {
                    self.part_text(frame, &Part::read(part)?, false, sink)?;
                }
            }
            "response.output_text.done" => self.text_done(frame, BlockKind::Text, sink),
            "response.refusal.done" => self.text_done(frame, BlockKind::Refusal, sink),
            "response.output_text.annotation.added" => self.annotation_added(frame, sink)?,
            "response.content_part.done" => {
                if let Some(part) = frame.part {
                    self.part_text(frame, &Part::read(part)?, true, sink)?;
                }
            }
            "response.function_call_arguments.done" | "response.custom_tool_call_input.done" => {
                self.input_done(frame, sink)
            }
            "response.output_item.done" => {
                if let Some(item) = frame.item {
                    let at = self.position(frame);
                    self.item_done(at, item, sink)?;
                }
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                let response = frame.response.unwrap_or(RawJson::from_text("{}"));
                let word = kind.strip_prefix("response.").unwrap_or_default();
                self.terminal(&Response::read(response)?, word, sink)?;
            }
            "error" => self.error(frame.error, [frame.code, frame.message, frame.param], sink),
            "keepalive" | "ping" => sink(Event::Ping),
            // A frame without a type that has an error is what a proxy in between sends.
            "" if frame.error.is_some() => {
                self.error(frame.error, [frame.code, frame.message, frame.param], sink)
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn start(&mut self, response: &Response<'_>, sink: &mut impl FnMut(Event<'_>)) {
        if !self.started {
            self.started = true;
            sink(Event::Start(Start { id: response.id, model: response.model, created: response.created }));
        }
    }

    /// A provider's first word may be missing.
    #[inline]
    pub(super) fn ensure_started(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        if !self.started {
            self.start(&Response::default(), sink);
        }
    }

    /// Which item a frame speaks of: the last one where it does not say.
    #[inline]
    fn position(&self, frame: &Frame<'_>) -> u64 {
        frame.output.or_else(|| self.items.last().map(|item| item.at)).unwrap_or(0)
    }

    /// Where the item of this position stands: most frames speak of the last one.
    #[inline]
    pub(super) fn place(&self, at: u64) -> Option<usize> {
        match self.items.last() {
            Some(last) if last.at == at => Some(self.items.len() - 1),
            _ => self.places.last(Key::of(at)),
        }
    }

    /// The item at this position; a new one where there is none.
    #[inline]
    pub(super) fn slot(&mut self, at: u64) -> &mut Slot {
        let known = self.place(at);
        let place = known.unwrap_or(self.items.len());
        if known.is_none() {
            self.places.push(Key::of(at));
            self.items.push(Slot::new(at));
        }
        // The place is there: it was found, or pushed.
        #[expect(clippy::indexing_slicing)]
        &mut self.items[place]
    }

    fn item_added(&mut self, frame: &Frame<'_>, item: &Item<'_>, sink: &mut impl FnMut(Event<'_>)) {
        self.ensure_started(sink);
        let at = frame.output.unwrap_or(self.items.len() as u64);
        self.settle_complete(sink);
        self.slot(at);
        if is_call(item.kind) {
            self.open_call(at, item, sink);
        }
    }

    /// Parts that are complete are closed when something else begins.
    fn settle_complete(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        for (item, block) in self.complete.drain(..) {
            let block = self.items.get_mut(item).and_then(|item| item.blocks.get_mut(block));
            if let Some(block) = block.filter(|block| block.open) {
                block.open = false;
                sink(Event::BlockStop { index: block.index });
            }
        }
    }

    pub(super) fn open(
        &mut self,
        at: u64,
        part: u64,
        kind: BlockKind<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> &mut Block {
        self.ensure_started(sink);
        let (index, base) = (self.next, self.characters);
        self.next += 1;
        sink(Event::BlockStart { index, choice: 0, kind });
        let slot = self.slot(at);
        slot.parts.push(Key::of(part));
        slot.blocks.push(Block {
            part,
            index,
            holds: Holds::of(kind),
            open: true,
            filled: false,
            base,
            counted: false,
            citations: 0,
            section: 0,
        });
        let last = slot.blocks.len() - 1;
        #[expect(clippy::indexing_slicing)]
        &mut slot.blocks[last]
    }

    /// The block of a part of a message; opened where it is not there, or where the part was something else until now
    /// (a provider that counts its items wrongly has text where its reasoning was). Nothing for a part that is closed.
    #[inline]
    fn part(
        &mut self,
        at: u64,
        part: u64,
        kind: BlockKind<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Option<&mut Block> {
        match self.slot(at).place(part) {
            Some(place) if self.slot(at).turns(place, Holds::of(kind), sink) => {
                Some(self.open(at, part, kind, sink))
            }
            Some(place) => {
                self.slot(at).blocks.get_mut(place).filter(|block| block.open && block.holds != Holds::Call)
            }
            None if self.slot(at).done => None,
            None => {
                self.settle_complete(sink);
                Some(self.open(at, part, kind, sink))
            }
        }
    }

    #[inline]
    fn text_delta(&mut self, frame: &Frame<'_>, kind: BlockKind<'_>, sink: &mut impl FnMut(Event<'_>)) {
        if frame.delta.is_empty() && frame.logprobs.is_none() {
            return;
        }
        let at = self.position(frame);
        if let Some(block) = self.part(at, frame.content.unwrap_or(0), kind, sink) {
            let index = block.index;
            block.filled = true;
            if !frame.delta.is_empty() {
                sink(Event::Delta { index, delta: Delta::Text(frame.delta) });
            }
            if let Some(list) = frame.logprobs {
                sink(Event::Delta { index, delta: Delta::Logprobs(list) });
            }
        }
    }

    fn text_done(&mut self, frame: &Frame<'_>, kind: BlockKind<'_>, sink: &mut impl FnMut(Event<'_>)) {
        let at = self.position(frame);
        self.whole_text(at, frame.content.unwrap_or(0), kind, frame.whole, frame.logprobs, sink);
    }

    /// The whole text of a part: said if it was not, and counted.
    fn whole_text(
        &mut self,
        at: u64,
        part: u64,
        kind: BlockKind<'_>,
        text: JsonStr<'_>,
        logprobs: Option<RawJson<'_>>,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        let Some(block) = self.part(at, part, kind, sink) else { return };
        let index = block.index;
        if !block.filled && !text.is_empty() {
            block.filled = true;
            sink(Event::Delta { index, delta: Delta::Text(text) });
            if let Some(list) = logprobs {
                sink(Event::Delta { index, delta: Delta::Logprobs(list) });
            }
        }
        if !block.counted && !text.is_empty() {
            block.counted = true;
            if kind == BlockKind::Text {
                self.characters += text.char_count();
            }
        }
    }

    /// A part of a message, announced or complete.
    fn part_text(
        &mut self,
        frame: &Frame<'_>,
        part: &Part<'_>,
        done: bool,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let at = self.position(frame);
        self.message_part(at, frame.content.unwrap_or(0), part, done, sink)
    }

    pub(super) fn message_part(
        &mut self,
        at: u64,
        number: u64,
        part: &Part<'_>,
        done: bool,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let kind = match part.kind.escaped() {
            "output_text" | "text" => BlockKind::Text,
            "refusal" => BlockKind::Refusal,
            _ => return Ok(()),
        };
        if !done {
            self.part(at, number, kind, sink);
            return Ok(());
        }
        self.whole_text(at, number, kind, part.text, part.logprobs, sink);
        if let (Some(list), Some(block)) = (part.annotations, self.part(at, number, kind, sink)) {
            let (known, mut count) = (block.citations, 0);
            elements(&mut Cursor::new(list.text()), |json| {
                let annotation = json.raw()?;
                count += 1;
                if count > known {
                    block.cite(&Annotation::read(annotation)?, sink);
                }
                Ok(())
            })?;
            block.citations = count.max(known);
        }
        if self.part(at, number, kind, sink).is_some()
            && let Some(item) = self.place(at)
            && let Some(place) = self.slot(at).place(number)
        {
            self.complete.push((item, place));
        }
        Ok(())
    }

    fn annotation_added(
        &mut self,
        frame: &Frame<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let Some(annotation) = frame.annotation else { return Ok(()) };
        let at = self.position(frame);
        if let Some(block) = self.part(at, frame.content.unwrap_or(0), BlockKind::Text, sink) {
            block.citations += 1;
            block.cite(&Annotation::read(annotation)?, sink);
        }
        Ok(())
    }

    /// Opens the block of reasoning; nothing where the item speaks in its other text already.
    pub(super) fn reasoning(
        &mut self,
        at: u64,
        which: Reasoning,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Option<&mut Block> {
        let slot = self.slot(at);
        if slot.done || *slot.reasoning.get_or_insert(which) != which {
            return None;
        }
        self.part(at, 0, BlockKind::Reasoning, sink)
    }

    #[inline]
    fn reasoning_delta(&mut self, frame: &Frame<'_>, which: Reasoning, sink: &mut impl FnMut(Event<'_>)) {
        if frame.delta.is_empty() {
            return;
        }
        let at = self.position(frame);
        let section = if which == Reasoning::Summary { frame.summary } else { frame.content };
        if let Some(block) = self.reasoning(at, which, sink) {
            block.reason(section.unwrap_or(0), frame.delta, sink);
        }
    }

    pub(super) fn open_call(&mut self, at: u64, item: &Item<'_>, sink: &mut impl FnMut(Event<'_>)) {
        // Without a name there is nothing to call; the item's end may have it.
        if item.name.is_empty() || !self.slot(at).blocks.is_empty() {
            return;
        }
        self.called = true;
        let kind = if item.kind.is("custom_tool_call") { ToolKind::Custom } else { ToolKind::Function };
        let made;
        let id = match () {
            () if !item.call_id.is_empty() => item.call_id,
            () if !item.id.is_empty() => item.id,
            () => {
                made = make_id("call_", &self.seed, at);
                JsonStr::from_escaped(&made)
            }
        };
        let kind = BlockKind::ToolUse { id, name: item.name, kind, namespace: item.namespace };
        self.open(at, 0, kind, sink);
    }

    /// The call at this position, if it is open.
    pub(super) fn call(&mut self, at: u64) -> Option<&mut Block> {
        self.slot(at).blocks.first_mut().filter(|block| block.open && block.holds == Holds::Call)
    }

    #[inline]
    fn input_delta(&mut self, frame: &Frame<'_>, sink: &mut impl FnMut(Event<'_>)) {
        let at = self.position(frame);
        if let Some(block) = self.call(at).filter(|_| !frame.delta.is_empty()) {
            block.filled = true;
            sink(Event::Delta { index: block.index, delta: Delta::Arguments(frame.delta) });
        }
    }

    fn input_done(&mut self, frame: &Frame<'_>, sink: &mut impl FnMut(Event<'_>)) {
        let at = self.position(frame);
        if let Some(block) = self.call(at).filter(|block| !block.filled && !frame.whole.is_empty()) {
            block.filled = true;
            sink(Event::Delta { index: block.index, delta: Delta::Arguments(frame.whole) });
        }
    }
}

fn is_call(kind: JsonStr<'_>) -> bool {
    matches!(kind.escaped(), "function_call" | "custom_tool_call")
}
