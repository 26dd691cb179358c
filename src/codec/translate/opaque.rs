//! Blocks of one format only, in the translation to another.

use crate::canonical::Block;
use crate::wire::codec::LossNotes;
use crate::wire::responses::references;

/// Returns whether a block can be carried: a block of one format only is lost in others.
pub(super) fn keep_opaque(block: &Block<'_>, notes: &mut LossNotes) -> bool {
    match block {
        _ if notes.from() == notes.to() => return true,
        // The model would answer without the item that the client means.
        Block::Opaque { name, raw } if name.is(references::ITEM) => {
            notes.refuse_as(references::unresolved(*raw));
        }
        Block::Opaque { .. } => notes.lose("server_tool_block"),
        _ => return true,
    }
    false
}
