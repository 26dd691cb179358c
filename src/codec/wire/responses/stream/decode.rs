//! Stream decoder: reads frames of a responses stream as events.
//!
//! Items are identified by `output_index` and parts by `content_index`, never by ids: one provider changes the ids
//! between the events of one item.

use super::fast_path::{DeltaKind, FastPath};
use super::parse::{Annotation, EventMembers, ItemMembers, PartMembers, Response};
use super::slot::{BlockContent, DecodingItem, ItemBlock, Reasoning};
use crate::canonical::{BlockKind, Delta, Event, Index, IndexKey, Start, ToolKind};
use crate::wire::codec::{CutText, make_id};
use crate::wire::watch::elements;
use json::{Cursor, JsonError, JsonStr, RawJson};

/// Decoder of one stream, or of one whole response.
#[derive(Debug)]
pub struct Decoder {
    seed: Box<str>,
    pub(super) started: bool,
    pub(super) over: bool,
    /// Canonical index of the next block.
    next: u32,
    pub(super) items: Vec<DecodingItem>,
    /// Index in `items` by `output_index`.
    places: Index,
    /// Blocks whose part is complete but which are still open, as (index in `items`, index in its `blocks`). They
    /// stay open until something else begins, because later events may still add annotations.
    complete: Vec<(usize, usize)>,
    /// Whether a client tool was called. The finish reason depends on it.
    pub(super) called: bool,
    /// Number of characters in completed texts: the offset of the next text for citations.
    characters: u64,
    pub(super) searches: u64,
    usual: FastPath,
}

impl Decoder {
    /// Creates the decoder of one stream. Ids that the provider omits are derived from `seed`.
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
            usual: FastPath::default(),
        }
    }

    /// Returns whether the response has ended or failed. Later frames are ignored.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Reports that the upstream closed the stream.
    ///
    /// # Errors
    /// Returns [`CutText`] if no terminal event has arrived.
    pub fn finish(&mut self, _sink: &mut impl FnMut(Event<'_>)) -> Result<(), CutText> {
        if self.over { Ok(()) } else { Err(CutText) }
    }

    /// Decodes the data of one frame.
    ///
    /// # Errors
    /// Returns [`JsonError`] if the data is not valid JSON.
    pub fn frame(&mut self, data: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        // Some gateways end the stream with the terminator of the chat format.
        if self.over || data.starts_with("[DONE]") {
            return Ok(());
        }
        // Fast path: a frame that matches the template of the last delta is not parsed.
        if let Some(frame) = self.usual.read(data) {
            self.some_delta(self.usual.what(), &frame, sink);
            return Ok(());
        }
        let frame = EventMembers::read(data)?;
        let Some(what) = DeltaKind::of(frame.kind.escaped()) else {
            return self.rare(frame.kind.escaped(), &frame, sink);
        };
        // The next delta probably differs only in its text and its number.
        self.usual.store(what, &frame, data);
        self.some_delta(what, &frame, sink);
        Ok(())
    }

    #[inline]
    fn some_delta(&mut self, what: DeltaKind, frame: &EventMembers<'_>, sink: &mut impl FnMut(Event<'_>)) {
        match what {
            DeltaKind::Text => self.text_delta(frame, BlockKind::Text, sink),
            DeltaKind::Refusal => self.text_delta(frame, BlockKind::Refusal, sink),
            DeltaKind::Input => self.input_delta(frame, sink),
            DeltaKind::Reasoning(which) => self.reasoning_delta(frame, which, sink),
        }
    }

    /// Handles the events other than deltas, which occur once per item, part or response.
    fn rare(
        &mut self,
        kind: &str,
        frame: &EventMembers<'_>,
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
                    self.item_added(frame, &ItemMembers::read(item)?, sink);
                }
            }
            "response.content_part.added" => {
                if let Some(part) = frame.part {
                    self.part_text(frame, &PartMembers::read(part)?, false, sink)?;
                }
            }
            "response.output_text.done" => self.text_done(frame, BlockKind::Text, sink),
            "response.refusal.done" => self.text_done(frame, BlockKind::Refusal, sink),
            "response.output_text.annotation.added" => self.annotation_added(frame, sink)?,
            "response.content_part.done" => {
                if let Some(part) = frame.part {
                    self.part_text(frame, &PartMembers::read(part)?, true, sink)?;
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
                let mut response = Response::read(response)?;
                if response.error.is_none() && response.message.is_none() {
                    // Intermediate proxies write the error beside the response.
                    (response.error, response.code) = (frame.error, frame.code);
                    (response.message, response.param) = (frame.message, frame.param);
                }
                self.terminal(&response, word, sink)?;
            }
            "keepalive" | "ping" => sink(Event::Ping),
            "" if frame.error.is_none() => {}
            // Relays name the event otherwise, and intermediate proxies send error frames without a type.
            "error" | "response.error" | "" => {
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

    /// Emits a start event if the provider omitted `response.created`.
    #[inline]
    pub(super) fn ensure_started(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        if !self.started {
            self.start(&Response::default(), sink);
        }
    }

    /// Returns the `output_index` of a frame; the one of the last item if the frame has none.
    #[inline]
    fn position(&self, frame: &EventMembers<'_>) -> u64 {
        frame.output.or_else(|| self.items.last().map(|item| item.at)).unwrap_or(0)
    }

    /// Returns the index in `items` of an `output_index`. The last item is checked first, because most frames refer
    /// to it.
    #[inline]
    pub(super) fn place(&self, at: u64) -> Option<usize> {
        match self.items.last() {
            Some(last) if last.at == at => Some(self.items.len() - 1),
            _ => self.places.last(IndexKey::of(at)),
        }
    }

    /// Returns the item with this `output_index`. Creates it if necessary.
    #[inline]
    pub(super) fn slot(&mut self, at: u64) -> &mut DecodingItem {
        let place = self.place(at).unwrap_or_else(|| self.add(at));
        // `place` was either found or is the index of the item that was just pushed.
        #[expect(clippy::indexing_slicing)]
        &mut self.items[place]
    }

    /// Adds an item and returns its index in `items`.
    #[cold]
    fn add(&mut self, at: u64) -> usize {
        self.places.push(IndexKey::of(at));
        self.items.push(DecodingItem::new(at));
        self.items.len() - 1
    }

    fn item_added(
        &mut self,
        frame: &EventMembers<'_>,
        item: &ItemMembers<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        self.ensure_started(sink);
        let at = frame.output.unwrap_or(self.items.len() as u64);
        self.settle_complete(sink);
        // Without this, the next frame that has no `output_index` is attributed to the previous item.
        self.slot(at);
        if is_call(item.kind) {
            self.open_call(at, item, sink);
        }
    }

    /// Closes the blocks whose part is complete. Called when the next item or part begins.
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
    ) -> &mut ItemBlock {
        self.ensure_started(sink);
        // The indexes of annotations are relative to their part; `base` converts them to offsets in the whole text.
        let (index, base) = (self.next, self.characters);
        self.next += 1;
        sink(Event::BlockStart { index, choice: 0, kind });
        let slot = self.slot(at);
        slot.parts.push(IndexKey::of(part));
        slot.blocks.push(ItemBlock {
            part,
            index,
            holds: BlockContent::of(kind),
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

    /// Returns the block of a message part, and opens it if necessary. If the part was of another kind so far, its
    /// block is closed and a new one opened: a provider that counts its items wrongly sends text where its reasoning
    /// was. Returns `None` if the part is closed.
    #[inline]
    fn part(
        &mut self,
        at: u64,
        part: u64,
        kind: BlockKind<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Option<&mut ItemBlock> {
        // Most frames are deltas of a known block: its item is looked up once.
        let item = self.place(at).unwrap_or_else(|| self.add(at));
        let slot = self.items.get_mut(item)?;
        match slot.place(part) {
            Some(place) if slot.close_if_switched(place, BlockContent::of(kind), sink) => {
                Some(self.open(at, part, kind, sink))
            }
            Some(place) => self
                .items
                .get_mut(item)?
                .blocks
                .get_mut(place)
                .filter(|block| block.open && block.holds != BlockContent::Call),
            None if slot.done => None,
            None => {
                self.settle_complete(sink);
                Some(self.open(at, part, kind, sink))
            }
        }
    }

    #[inline]
    fn text_delta(
        &mut self,
        frame: &EventMembers<'_>,
        kind: BlockKind<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) {
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

    fn text_done(&mut self, frame: &EventMembers<'_>, kind: BlockKind<'_>, sink: &mut impl FnMut(Event<'_>)) {
        let at = self.position(frame);
        self.whole_text(at, frame.content.unwrap_or(0), kind, frame.whole, frame.logprobs, sink);
    }

    /// Handles the whole text of a part: emits it if no delta has arrived, and counts its characters.
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
        // The whole text repeats the deltas: emit it only if there were none.
        if !block.filled && !text.is_empty() {
            block.filled = true;
            sink(Event::Delta { index, delta: Delta::Text(text) });
            if let Some(list) = logprobs {
                sink(Event::Delta { index, delta: Delta::Logprobs(list) });
            }
        }
        // Up to three events have the whole text: count it once.
        if !block.counted && !text.is_empty() {
            block.counted = true;
            if kind == BlockKind::Text {
                self.characters += text.char_count();
            }
        }
    }

    /// Handles an announced (`done` is false) or complete part of a message.
    fn part_text(
        &mut self,
        frame: &EventMembers<'_>,
        part: &PartMembers<'_>,
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
        part: &PartMembers<'_>,
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
            // Annotations that had events of their own are repeated here: emit only the others.
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
        frame: &EventMembers<'_>,
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

    /// Returns the reasoning block of an item. Returns `None` if the item's reasoning is already read from its other
    /// text (summary or content), so that it is not emitted twice, or if the item is complete.
    pub(super) fn reasoning(
        &mut self,
        at: u64,
        which: Reasoning,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Option<&mut ItemBlock> {
        let slot = self.slot(at);
        if slot.done || *slot.reasoning.get_or_insert(which) != which {
            return None;
        }
        self.part(at, 0, BlockKind::Reasoning, sink)
    }

    #[inline]
    fn reasoning_delta(
        &mut self,
        frame: &EventMembers<'_>,
        which: Reasoning,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        if frame.delta.is_empty() {
            return;
        }
        let at = self.position(frame);
        let section = if which == Reasoning::Summary { frame.summary } else { frame.content };
        if let Some(block) = self.reasoning(at, which, sink) {
            block.reason(section.unwrap_or(0), frame.delta, sink);
        }
    }

    pub(super) fn open_call(&mut self, at: u64, item: &ItemMembers<'_>, sink: &mut impl FnMut(Event<'_>)) {
        // A call without a name cannot be emitted yet; `output_item.done` may have the name.
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

    /// Returns the open call of an item; `None` if there is none.
    pub(super) fn call(&mut self, at: u64) -> Option<&mut ItemBlock> {
        self.slot(at).blocks.first_mut().filter(|block| block.open && block.holds == BlockContent::Call)
    }

    #[inline]
    fn input_delta(&mut self, frame: &EventMembers<'_>, sink: &mut impl FnMut(Event<'_>)) {
        let at = self.position(frame);
        if let Some(block) = self.call(at).filter(|_| !frame.delta.is_empty()) {
            block.filled = true;
            sink(Event::Delta { index: block.index, delta: Delta::Arguments(frame.delta) });
        }
    }

    fn input_done(&mut self, frame: &EventMembers<'_>, sink: &mut impl FnMut(Event<'_>)) {
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
