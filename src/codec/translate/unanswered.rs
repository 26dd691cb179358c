//! Calls and results that do not match: calls of an interrupted agent, which have no result, results whose call is not in the
//! conversation, second results of a call, and results that stand behind a later turn of the model.
//!
//! Every provider refuses them, in this and every later turn, and the client's history keeps them. A call without a result
//! gets one that says so, a late result moves behind its call, and any other result becomes text.

use std::mem::{replace, take};

use bumpalo::Bump;
use smallvec::SmallVec;

use crate::canonical::{Block, Index, IndexKey, Request, Role, ToolKind, Turn};
use crate::wire::Format;
use crate::wire::codec::{LossNotes, PLACEHOLDER};
use crate::wire::responses::references;
use json::JsonStr;

/// Result of a call that has none.
const INTERRUPTED: &str = "The call was interrupted and has no result.";

/// Call of the model.
struct Call<'a> {
    id: JsonStr<'a>,
    name: JsonStr<'a>,
    kind: ToolKind,
    /// Number of the run of turns of the model that it stands in.
    run: usize,
    answer: Answer<'a>,
}

/// Where the result of a call is.
enum Answer<'a> {
    None,
    /// Behind the run of the call.
    InPlace,
    /// It stood behind a later run, and moves.
    Late(Block<'a>),
}

/// Gives each call one result in its place. `bump` owns text that must be created.
pub(super) fn settle<'a>(request: &mut Request<'a>, notes: &mut LossNotes, bump: &'a Bump) {
    if matches(&request.turns) || is_continued(request, notes) {
        return;
    }
    let mut calls = assign(&mut request.turns, notes, bump);
    let mut turns = Vec::with_capacity(request.turns.len() + 4);
    let mut rest = take(&mut request.turns).into_iter().peekable();
    let (mut run, mut next) = (0, 0);
    while let Some(turn) = rest.next() {
        let ends_run = turn.role == Role::Assistant
            && rest.peek().is_none_or(|following| following.role != Role::Assistant);
        turns.push(turn);
        if !ends_run {
            continue;
        }
        let mut missing = Vec::new();
        while let Some(call) = calls.get_mut(next).filter(|call| call.run == run) {
            missing.extend(call.missing(notes));
            next += 1;
        }
        run += 1;
        if !missing.is_empty() {
            turns.push(Turn::new(Role::User, missing));
        }
    }
    turns.retain(|turn| !turn.blocks.is_empty() || turn.role != Role::User);
    request.turns = turns;
}

impl<'a> Call<'a> {
    /// Returns the result that must be put behind the run of the call.
    fn missing(&mut self, notes: &mut LossNotes) -> Option<Block<'a>> {
        match replace(&mut self.answer, Answer::InPlace) {
            Answer::InPlace => None,
            Answer::Late(result) => Some(result),
            Answer::None => {
                notes.warn(PLACEHOLDER);
                Some(Block::ToolResult {
                    id: self.id,
                    name: self.name,
                    content: vec![Block::text(JsonStr::from_escaped(INTERRUPTED))],
                    object: None,
                    error: true,
                    kind: self.kind,
                    cache: None,
                })
            }
        }
    }
}

/// Returns whether the provider has turns or items that are not in the request.
fn is_continued(request: &Request<'_>, notes: &LossNotes) -> bool {
    let is_reference =
        |block: &Block<'_>| matches!(block, Block::Opaque { name, .. } if name.is(references::ITEM));
    notes.from() == Format::Responses
        && notes.to() == Format::Responses
        && (request.previous.is_some()
            || request.turns.iter().flat_map(|turn| &turn.blocks).any(is_reference))
}

/// Returns whether each run of calls is followed by its results, in the order of the calls. Nearly every conversation is so.
fn matches(turns: &[Turn<'_>]) -> bool {
    let mut calls: SmallVec<[&str; 8]> = SmallVec::new();
    let mut answered = 0;
    let mut is_answering = false;
    for turn in turns {
        if turn.role == Role::Assistant && take(&mut is_answering) {
            if answered != calls.len() {
                return false;
            }
            calls.clear();
            answered = 0;
        }
        is_answering |= turn.role == Role::User && !calls.is_empty();
        for block in &turn.blocks {
            match block {
                Block::ToolUse { id, .. } => calls.push(id.escaped()),
                Block::ToolResult { id, .. } if calls.get(answered) == Some(&id.escaped()) => answered += 1,
                Block::ToolResult { .. } => return false,
                _ => {}
            }
        }
    }
    answered == calls.len()
}

/// Assigns the results to their calls: those that cannot stay where they are are taken out or become texts. Returns the calls.
fn assign<'a>(turns: &mut [Turn<'a>], notes: &mut LossNotes, bump: &'a Bump) -> Vec<Call<'a>> {
    let (mut calls, mut index) = (Vec::new(), Index::default());
    // Number of the current run of the model, and whether the turn before is one of it.
    let (mut run, mut is_in_run, mut runs) = (0, false, 0);
    for turn in turns {
        if turn.role == Role::Assistant && !is_in_run {
            (run, runs) = (runs, runs + 1);
        }
        is_in_run = turn.role == Role::Assistant;
        let mut blocks = Vec::with_capacity(turn.blocks.len());
        for block in take(&mut turn.blocks) {
            match block {
                Block::ToolUse { id, name, kind, .. } => {
                    index.push(IndexKey::of(id));
                    calls.push(Call { id, name, kind, run, answer: Answer::None });
                    blocks.push(block);
                }
                Block::ToolResult { id, .. } => {
                    let call: Option<&mut Call<'a>> =
                        index.last(IndexKey::of(id)).and_then(|at| calls.get_mut(at));
                    match call.filter(|call| matches!(call.answer, Answer::None)) {
                        Some(call) if call.run == run => {
                            call.answer = Answer::InPlace;
                            blocks.push(block);
                        }
                        Some(call) => call.answer = Answer::Late(block),
                        None => as_text(block, &mut blocks, notes, bump),
                    }
                }
                block => blocks.push(block),
            }
        }
        turn.blocks = blocks;
    }
    calls
}

/// Writes a result as the text and media of the user.
fn as_text<'a>(block: Block<'a>, blocks: &mut Vec<Block<'a>>, notes: &mut LossNotes, bump: &'a Bump) {
    let Block::ToolResult { id, content, object, .. } = block else { return };
    notes.warn("tool_result");
    let said = bump
        .alloc_str(&format!("[Result of the tool call {}, which is not in this conversation]", id.escaped()));
    blocks.push(Block::text(JsonStr::from_escaped(said)));
    if let Some(object) = object {
        let mut text = Vec::with_capacity(object.raw().text().len() + 16);
        json::push_escaped(&mut text, object.raw().text());
        let text = std::str::from_utf8(bump.alloc_slice_copy(&text)).unwrap_or_default();
        blocks.push(Block::text(JsonStr::from_escaped(text)));
    }
    blocks.extend(content);
}
