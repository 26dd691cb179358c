//! Checker of the event grammar that [`Event`](super::Event) documents, for tests and fuzzing.

use super::{BlockKind, Delta, Event, ToolKind};

/// Event grammar checker of one response.
#[derive(Clone, Debug, Default)]
pub struct Grammar {
    started: bool,
    ended: bool,
    blocks: Vec<State>,
    finished: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    choice: u32,
    kind: Family,
    open: bool,
    sealed: bool,
    /// Whether a content delta arrived.
    filled: bool,
    /// Whether that delta was a whole value, so that no fragment may follow.
    whole: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Text,
    Refusal,
    Reasoning,
    Hidden,
    Function,
    Custom,
    Media,
    Opaque,
}

impl Grammar {
    /// Checks the next event.
    ///
    /// # Errors
    /// Returns a description of the violation if the event breaks the grammar.
    pub fn check(&mut self, event: &Event<'_>) -> Result<(), &'static str> {
        if self.ended {
            return Err("an event after the end");
        }
        match *event {
            Event::Start(_) if self.started => Err("a second start"),
            Event::Start(_) => {
                self.started = true;
                Ok(())
            }
            // An error may be the only event of a response.
            Event::Error(_) => {
                self.ended = true;
                Ok(())
            }
            Event::Ping | Event::Usage(_) => Ok(()),
            _ if !self.started => Err("an event before the start"),
            Event::BlockStart { index, choice, kind } => self.start(index, choice, kind),
            Event::Delta { index, delta } => self.delta(index, delta),
            Event::BlockStop { index } => {
                let block = self.open(index)?;
                block.open = false;
                Ok(())
            }
            Event::Finish { choice, .. } => self.finish(choice),
            Event::End => self.end(),
        }
    }

    fn start(&mut self, index: u32, choice: u32, kind: BlockKind<'_>) -> Result<(), &'static str> {
        if index as usize != self.blocks.len() {
            return Err("a block's index is not the next one");
        }
        if self.finished.contains(&choice) {
            return Err("a block after its choice has finished");
        }
        let kind = match kind {
            BlockKind::Text => Family::Text,
            BlockKind::Refusal => Family::Refusal,
            BlockKind::Reasoning => Family::Reasoning,
            BlockKind::HiddenReasoning => Family::Hidden,
            BlockKind::ToolUse { id, .. } if id.is_empty() => return Err("a call without an id"),
            BlockKind::ToolUse { name, .. } if name.is_empty() => return Err("a call without a name"),
            BlockKind::ToolUse { kind: ToolKind::Function, .. } => Family::Function,
            BlockKind::ToolUse { kind: ToolKind::Custom, .. } => Family::Custom,
            BlockKind::Media { .. } => Family::Media,
            BlockKind::Opaque { .. } => Family::Opaque,
        };
        self.blocks.push(State { choice, kind, open: true, sealed: false, filled: false, whole: false });
        Ok(())
    }

    fn open(&mut self, index: u32) -> Result<&mut State, &'static str> {
        self.blocks.get_mut(index as usize).filter(|block| block.open).ok_or("the block is not open")
    }

    fn delta(&mut self, index: u32, delta: Delta<'_>) -> Result<(), &'static str> {
        use Family as F;
        let block = self.open(index)?;
        let fits = match delta {
            Delta::Text(_) => matches!(block.kind, F::Text | F::Refusal | F::Reasoning),
            Delta::Arguments(_) => matches!(block.kind, F::Function | F::Custom),
            Delta::Object(_) => block.kind == F::Function,
            Delta::Data(_) | Delta::Url(_) => block.kind == F::Media,
            Delta::Signature(_) => block.kind != F::Refusal && !std::mem::replace(&mut block.sealed, true),
            Delta::Citation(_) | Delta::Logprobs(_) => matches!(block.kind, F::Text | F::Refusal),
        };
        if !fits {
            return Err("the delta does not fit its block");
        }
        match delta {
            Delta::Object(_) | Delta::Url(_) if block.filled => return Err("more than one whole value"),
            Delta::Arguments(_) | Delta::Data(_) if block.whole => return Err("a part after the whole"),
            Delta::Object(_) | Delta::Url(_) => block.whole = true,
            _ => {}
        }
        block.filled |= !matches!(delta, Delta::Signature(_) | Delta::Citation(_) | Delta::Logprobs(_));
        Ok(())
    }

    fn finish(&mut self, choice: u32) -> Result<(), &'static str> {
        if self.finished.contains(&choice) {
            return Err("a choice finished twice");
        }
        if self.blocks.iter().any(|block| block.choice == choice && block.open) {
            return Err("a choice finished with an open block");
        }
        self.finished.push(choice);
        Ok(())
    }

    fn end(&mut self) -> Result<(), &'static str> {
        if self.finished.is_empty() || self.blocks.iter().any(|block| !self.finished.contains(&block.choice))
        {
            return Err("the end before every choice has finished");
        }
        self.ended = true;
        Ok(())
    }
}
