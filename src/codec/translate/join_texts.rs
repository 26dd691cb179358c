//! Merging of fragmented model texts. Clients of the generate format store each frame of a stream as a separate part or
//! content; the fragments of one text are merged before the request is sent to another format.

use bumpalo::Bump;

use crate::canonical::{Block, Request, Role, Turn};
use json::JsonStr;

/// Merges adjacent turns of the model, and adjacent texts within each turn. A text with a provider signature stays
/// separate, because the signature covers exactly that text.
pub(super) fn join_pieces<'a>(request: &mut Request<'a>, bump: &'a Bump) {
    let mut turns: Vec<Turn<'a>> = Vec::with_capacity(request.turns.len());
    for turn in std::mem::take(&mut request.turns) {
        match turns.last_mut() {
            Some(before) if is_one(before, &turn) => before.blocks.extend(turn.blocks),
            _ => turns.push(turn),
        }
    }
    for turn in turns.iter_mut().filter(|turn| turn.role == Role::Assistant) {
        join_texts(turn, bump);
    }
    request.turns = turns;
}

fn is_one(before: &Turn<'_>, turn: &Turn<'_>) -> bool {
    before.role == Role::Assistant
        && turn.role == Role::Assistant
        && before.name == turn.name
        && before.phase == turn.phase
        && !before.prefix
        && !turn.prefix
}

fn plain<'a>(block: &Block<'a>) -> Option<JsonStr<'a>> {
    match block {
        Block::Text { text, cache: None, signature: None } => Some(*text),
        _ => None,
    }
}

fn join_texts<'a>(turn: &mut Turn<'a>, bump: &'a Bump) {
    let is_divided = turn.blocks.windows(2).any(|pair| pair.iter().all(|block| plain(block).is_some()));
    // Most turns have whole texts, which need not be moved.
    if !is_divided {
        return;
    }
    let mut blocks = Vec::with_capacity(turn.blocks.len());
    let mut texts: Vec<JsonStr<'a>> = Vec::new();
    let end = |texts: &mut Vec<JsonStr<'a>>, blocks: &mut Vec<Block<'a>>| match texts.as_slice() {
        [] => {}
        [one] => {
            blocks.push(Block::text(*one));
            texts.clear();
        }
        several => {
            let all = several.iter().map(|text| text.escaped()).collect::<String>();
            blocks.push(Block::text(JsonStr::from_escaped(bump.alloc_str(&all))));
            texts.clear();
        }
    };
    for block in std::mem::take(&mut turn.blocks) {
        match plain(&block) {
            Some(text) => texts.push(text),
            None => {
                end(&mut texts, &mut blocks);
                blocks.push(block);
            }
        }
    }
    end(&mut texts, &mut blocks);
    turn.blocks = blocks;
}
