//! What must be remembered of the items of an answer and of their blocks while it is read.

use smallvec::SmallVec;

use super::parse::Annotation;
use crate::canonical::{BlockKind, Citation, Delta, Event, Index, Key};
use crate::json::JsonStr;

/// An item, as far as it has come.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) at: u64,
    /// Which of the two texts that reasoning may have is being read: the first one that comes.
    pub(super) reasoning: Option<Reasoning>,
    pub(super) blocks: SmallVec<[Block; 1]>,
    /// Where blocks stand, by their parts.
    pub(super) parts: Index,
    pub(super) done: bool,
}

/// A block of an item.
#[derive(Debug)]
pub(super) struct Block {
    /// The part that it is: the `content_index`, or 0 where an item is one block.
    pub(super) part: u64,
    pub(super) index: u32,
    pub(super) holds: Holds,
    pub(super) open: bool,
    /// Text or arguments have come.
    pub(super) filled: bool,
    /// Characters of the texts before it.
    pub(super) base: u64,
    /// Its own are counted.
    pub(super) counted: bool,
    /// Annotations that were told.
    pub(super) citations: u64,
    /// Which part of reasoning it has come to.
    pub(super) section: u64,
}

/// What a block takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// Text or a refusal, with citations and probabilities.
    Text,
    /// Reasoning, with a seal.
    Reasoning,
    /// The input of a call.
    Call,
    /// Nothing that a stream has in parts.
    Whole,
}

impl Holds {
    pub(super) fn of(kind: BlockKind<'_>) -> Holds {
        match kind {
            BlockKind::Text | BlockKind::Refusal => Holds::Text,
            BlockKind::Reasoning => Holds::Reasoning,
            BlockKind::ToolUse { .. } => Holds::Call,
            BlockKind::HiddenReasoning | BlockKind::Media { .. } | BlockKind::Opaque { .. } => Holds::Whole,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reasoning {
    /// A summary, in parts.
    Summary,
    /// The reasoning itself, of models that show it.
    Content,
}

impl Slot {
    pub(super) fn new(at: u64) -> Self {
        Slot { at, reasoning: None, blocks: SmallVec::new(), parts: Index::default(), done: false }
    }

    /// Where the block of a part stands: most items have one.
    #[inline]
    pub(super) fn place(&self, part: u64) -> Option<usize> {
        match self.blocks.last() {
            Some(last) if last.part == part => Some(self.blocks.len() - 1),
            None => None,
            Some(_) => self.parts.last(Key::of(part)),
        }
    }

    /// Whether an open block of text must make room for one of reasoning, or the other way round; it is closed then.
    #[inline]
    pub(super) fn turns(&mut self, place: usize, holds: Holds, sink: &mut impl FnMut(Event<'_>)) -> bool {
        let Some(block) = self.blocks.get_mut(place) else { return false };
        let other =
            matches!((block.holds, holds), (Holds::Text, Holds::Reasoning) | (Holds::Reasoning, Holds::Text));
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

impl Block {
    pub(super) fn cite(&self, annotation: &Annotation<'_>, sink: &mut impl FnMut(Event<'_>)) {
        if annotation.url.is_empty() {
            return;
        }
        let span = annotation.start.zip(annotation.end);
        let citation = Citation {
            url: annotation.url,
            title: annotation.title,
            quote: JsonStr::default(),
            span: span.map(|(start, end)| (self.base + start, self.base + end)),
        };
        sink(Event::Delta { index: self.index, delta: Delta::Citation(citation) });
    }

    /// Text of reasoning, behind a blank line where another part of it begins.
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
