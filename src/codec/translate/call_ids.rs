//! Ids of tool calls, as the target takes them: its own ones as it gave them, all others within its length.

use bumpalo::Bump;

use crate::canonical::seal::{RenamedCallId, is_marked};
use crate::canonical::{Block, Dialect, Request};
use crate::wire::codec::make_id;
use json::JsonStr;

/// Makes the ids of calls and results legal. The same id becomes the same one everywhere.
pub(super) fn settle<'a>(request: &mut Request<'a>, dialect: &Dialect<'_>, bump: &'a Bump) {
    for block in request.turns.iter_mut().flat_map(|turn| &mut turn.blocks) {
        if let Block::ToolUse { id, .. } | Block::ToolResult { id, .. } = block {
            *id = settled(*id, dialect, bump);
        }
    }
}

fn settled<'a>(id: JsonStr<'a>, dialect: &Dialect<'_>, bump: &'a Bump) -> JsonStr<'a> {
    let is_marked = is_marked(id);
    let renamed = if is_marked { RenamedCallId::read(id) } else { None };
    if let Some(own) = renamed.as_ref().and_then(|renamed| renamed.for_issuer(dialect.issuer)) {
        return JsonStr::from_escaped(bump.alloc_str(own));
    }
    let is_long = dialect.max_call_id.is_some_and(|most| id.escaped().len() > most);
    if is_long || is_marked {
        return JsonStr::from_escaped(bump.alloc_str(&make_id("call_", id.escaped(), 0)));
    }
    id
}
