//! Results of tools, in the form that the target's format can carry.

use bumpalo::Bump;

use crate::canonical::{Block, ResultObject};
use crate::wire::Format;
use crate::wire::codec::LossNotes;
use json::{Cursor, JsonStr, RawJson, push_escaped};

/// Text of a failed call that came without one: providers refuse an empty failure, and to formats without a flag the
/// text is all that says it.
const FAILED: &str = "error";

/// Result of one tool call.
pub(super) struct ToolOutput<'r, 'a> {
    pub content: &'r mut Vec<Block<'a>>,
    pub object: &'r mut Option<ResultObject<'a>>,
    pub error: &'r mut bool,
}

impl<'a> ToolOutput<'_, 'a> {
    /// Adapts the result. `behind` receives the parts that may not be in it: they follow the results of the turn.
    pub(super) fn settle(mut self, notes: &LossNotes, behind: &mut Vec<Block<'a>>, bump: &'a Bump) {
        let (from, to) = (notes.from(), notes.to());
        if to != Format::Converse {
            self.object_as_text(bump);
        }
        if !*self.error && !self.object.is_some_and(ResultObject::wraps_error) {
            return;
        }
        // Anthropic: "all content must be type `text` if `is_error` is true".
        // Blocks of its own that the format has in results only stay, and the provider decides.
        let is_movable = |block: &Block<'_>| !is_text(block) && !matches!(block, Block::Opaque { .. });
        if to == Format::Messages && self.content.iter().any(is_movable) {
            *self.error = true;
            behind.extend(self.content.extract_if(.., |block| is_movable(block)));
        }
        self.name_failure(from != to);
    }

    /// Replaces JSON values behind the first one, which only Converse has, by their text.
    pub(super) fn values_as_text(&mut self, notes: &LossNotes, bump: &'a Bump) {
        if notes.from() != Format::Converse || notes.to() == Format::Converse {
            return;
        }
        for block in &mut *self.content {
            if let Block::Opaque { name, raw } = block
                && name.is("json")
                && let Some(value) = value_of(*raw)
            {
                *block = Block::text(as_text(value, bump));
            }
        }
    }

    /// Replaces an object beside texts by its text: other formats carry an object alone.
    fn object_as_text(&mut self, bump: &'a Bump) {
        let Some(object) = self.object.filter(|_| self.content.iter().any(is_text)) else { return };
        *self.object = None;
        *self.error |= object.wraps_error();
        let text = object.wrapped_text().unwrap_or_else(|| as_text(object.raw(), bump));
        self.content.insert(0, Block::text(text));
    }

    /// Gives a failed result without a word one.
    fn name_failure(&mut self, is_translated: bool) {
        let says = |block: &Block<'_>| match block {
            Block::Text { text, .. } | Block::Refusal { text } => has_words(*text),
            _ => true,
        };
        let object_says = self.object.is_some_and(|object| {
            !is_translated || !object.wraps_error() || object.wrapped_text().is_some_and(has_words)
        });
        if object_says || self.content.iter().any(says) {
            return;
        }
        *self.error = true;
        *self.object = None;
        self.content.clear();
        self.content.push(Block::text(JsonStr::from_escaped(FAILED)));
    }
}

fn is_text(block: &Block<'_>) -> bool {
    matches!(block, Block::Text { .. } | Block::Refusal { .. })
}

/// Returns whether a text is more than white space.
fn has_words(text: JsonStr<'_>) -> bool {
    !text.decode().trim().is_empty()
}

/// Returns the value of a block `{"json":...}`.
fn value_of(block: RawJson<'_>) -> Option<RawJson<'_>> {
    let mut json = Cursor::new(block.text());
    json.begin_object().ok()?;
    json.next_key().ok()??;
    json.raw().ok()
}

fn as_text<'a>(value: RawJson<'_>, bump: &'a Bump) -> JsonStr<'a> {
    let mut escaped = Vec::with_capacity(value.text().len() + 16);
    push_escaped(&mut escaped, value.text());
    JsonStr::from_escaped(std::str::from_utf8(bump.alloc_slice_copy(&escaped)).unwrap_or_default())
}
