//! Reasoning that nothing follows: a turn of the model that broke off while it thought.
//!
//! Providers refuse it ("The final block in an assistant message cannot be `thinking`", "reasoning was provided without
//! its required following item"), and it stays in the client's history: Codex keeps each finished item of a stream that
//! broke off.

use crate::canonical::{Block, Dialect, Request, Role};
use crate::wire::Format;
use crate::wire::codec::LossNotes;
use json::JsonStr;

/// Leaves out the reasoning at the end of each answer, and turns that have nothing else.
pub(super) fn leave_out(request: &mut Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
    // Google accepts such a turn. Messages of chat completions have no order of reasoning and text.
    if notes.to() == Format::Generate || (notes.from(), notes.to()) == (Format::Chat, Format::Chat) {
        return;
    }
    let ends_open = |blocks: &[Block<'_>]| matches!(blocks.last(), Some(last) if !is_said(last));
    if !request.turns.iter().any(|turn| turn.role == Role::Assistant && ends_open(&turn.blocks)) {
        return;
    }
    // Whether a turn of the model follows that is joined to this one.
    let mut goes_on = false;
    let mut is_left_out = false;
    for turn in request.turns.iter_mut().rev() {
        match turn.role {
            Role::Assistant if !goes_on => {
                let said = turn.blocks.iter().rposition(is_said).map_or(0, |last| last + 1);
                is_left_out |= turn.blocks.iter().skip(said).any(is_reasoning);
                if turn.blocks.iter().skip(said).any(is_reasoning) {
                    turn.blocks.truncate(said);
                }
                goes_on = !turn.blocks.is_empty();
            }
            Role::Assistant => {}
            Role::User => goes_on = false,
            Role::System | Role::Developer => goes_on &= !dialect.system_in_middle,
        }
    }
    if is_left_out {
        notes.lose("thinking_block");
        request.turns.retain(|turn| turn.role != Role::Assistant || !turn.blocks.is_empty());
    }
}

fn is_reasoning(block: &Block<'_>) -> bool {
    matches!(block, Block::Reasoning { .. })
}

/// Returns whether a block is more than reasoning or an empty text, which encoders leave out.
fn is_said(block: &Block<'_>) -> bool {
    match block {
        Block::Reasoning { .. } => false,
        Block::Text { text, signature, .. } => signature.is_some() || !is_blank(*text),
        _ => true,
    }
}

/// Returns whether a text is only white space. Reads no more than its beginning, unless that is an escape.
fn is_blank(text: JsonStr<'_>) -> bool {
    match text.escaped().trim_start().as_bytes() {
        [] => true,
        [b'\\', ..] => text.decode().trim().is_empty(),
        _ => false,
    }
}
