//! Decoder state of the items of a response and of their blocks.

use smallvec::SmallVec;

use super::parse::Annotation;
use crate::canonical::{BlockKind, Citation, Delta, Event, Index, IndexKey};
use json::JsonStr;

/// Item that is being decoded.
#[derive(Debug)]
pub(super) struct DecodingItem {
    pub(super) at: u64,
    /// The text of reasoning that is read, of the two that an item may have: the first one to arrive.
    pub(super) reasoning: Option<Reasoning>,
    pub(super) blocks: SmallVec<[ItemBlock; 1]>,
    /// Index in `blocks` by part number.
    pub(super) parts: Index,
    pub(super) done: bool,
}

/// A block of an item.
#[derive(Debug)]
pub(super) struct ItemBlock {
    /// Part number: the `content_index`, or 0 if the item is a single block.
    pub(super) part: u64,
    pub(super) index: u32,
    pub(super) holds: BlockContent,
    pub(super) open: bool,
    /// Whether text or arguments have arrived.
    pub(super) filled: bool,
    /// Characters in the texts before this one.
    pub(super) base: u64,
    /// Whether its own characters have been counted.
    pub(super) counted: bool,
    /// Number of annotations that have been emitted.
    pub(super) citations: u64,
    /// Current part of reasoning (`summary_index` or `content_index`).
    pub(super) section: u64,
}

/// Content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockContent {
    /// Text or a refusal, with citations and log probabilities.
    Text,
    /// Reasoning, with a provider signature.
    Reasoning,
    /// Arguments or input of a call.
    Call,
    /// Content that arrives as a whole.
    Whole,
}

impl BlockContent {
    pub(super) fn of(kind: BlockKind<'_>) -> BlockContent {
        match kind {
            BlockKind::Text | BlockKind::Refusal => BlockContent::Text,
            BlockKind::Reasoning => BlockContent::Reasoning,
            BlockKind::ToolUse { .. } => BlockContent::Call,
            BlockKind::HiddenReasoning | BlockKind::Media { .. } | BlockKind::Opaque { .. } => {
                BlockContent::Whole
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reasoning {
    /// Summary of the reasoning, in parts.
    Summary,
    /// Reasoning text, of models that show it.
    Content,
}

impl DecodingItem {
    pub(super) fn new(at: u64) -> Self {
        DecodingItem { at, reasoning: None, blocks: SmallVec::new(), parts: Index::default(), done: false }
    }

    /// Returns the index of the block of a part; `None` if there is none. The last block is checked first, because
    /// most items have one.
    #[inline]
    pub(super) fn place(&self, part: u64) -> Option<usize> {
        match self.blocks.last() {
            Some(last) if last.part == part => Some(self.blocks.len() - 1),
            None => None,
            Some(_) => self.parts.last(IndexKey::of(part)),
        }
    }

    /// Closes a text block if reasoning follows for the same part, and the reverse. Returns whether it closed the
    /// block.
    #[inline]
    pub(super) fn close_if_switched(
        &mut self,
        place: usize,
        holds: BlockContent,
        sink: &mut impl FnMut(Event<'_>),
    ) -> bool {
        let Some(block) = self.blocks.get_mut(place) else { return false };
        let other = matches!(
            (block.holds, holds),
            (BlockContent::Text, BlockContent::Reasoning) | (BlockContent::Reasoning, BlockContent::Text)
        );
        if block.open && other {
            block.open = false;
            sink(Event::BlockStop { index: block.index });
            return true;
        }
        false
    }

    pub(super) fn close(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        for block in self.blocks.iter_mut().filter(|block| block.open) {
            block.open = false;
            sink(Event::BlockStop { index: block.index });
        }
    }
}

impl ItemBlock {
    pub(super) fn cite(&self, annotation: &Annotation<'_>, sink: &mut impl FnMut(Event<'_>)) {
        // Citations of files have no URL.
        if annotation.url.is_empty() {
            return;
        }
        let span = annotation.start.zip(annotation.end);
        let citation = Citation {
            url: annotation.url,
            title: annotation.title,
            span: span.map(|(start, end)| (self.base.saturating_add(start), self.base.saturating_add(end))),
            ..Citation::default()
        };
        sink(Event::Delta { index: self.index, delta: Delta::Citation(citation) });
    }

    /// Emits reasoning text. A blank line separates two parts.
    #[inline]
    pub(super) fn reason(&mut self, section: u64, text: JsonStr<'_>, sink: &mut impl FnMut(Event<'_>)) {
        if self.filled && self.section != section {
            let between = JsonStr::from_escaped("\\n\\n");
            sink(Event::Delta { index: self.index, delta: Delta::Text(between) });
        }
        self.section = section;
        self.filled = true;
        sink(Event::Delta { index: self.index, delta: Delta::Text(text) });
    }
}
