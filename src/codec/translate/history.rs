//! Earlier turns of a conversation, as the target takes them: names of tools, provider signatures, and the order of tool
//! results.

use bumpalo::Bump;

use super::adapt::{has_custom_tools, renamed};
use super::opaque::keep_opaque;
use super::open_reasoning;
use super::restore::Restore;
use super::results::ToolOutput;
use crate::canonical::{
    Block, Dialect, Index, IndexKey, Input, ProviderSignature, Request, RequestFeatures, Role, ToolKind, Turn,
};
use crate::wire::Format;
use crate::wire::codec::LossNotes;
use json::{JsonStr, RawJson, Writer};

/// Adapts earlier turns: tool names, provider signatures, and the order of tool results.
pub(super) fn settle<'a>(
    request: &mut Request<'a>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
    tools: &Restore,
    bump: &'a Bump,
) {
    let to = notes.to();
    let custom_tools = has_custom_tools(to, dialect);
    // Names of tools that are only in the history are renamed in a copy: the model cannot call these tools, so the
    // response needs no entry for them.
    let mut restore = tools.clone();
    // Calls of the latest assistant turns, in order; their results are expected next.
    let mut calls = Index::default();
    let (mut all_calls, mut names) = (Index::default(), Vec::new());
    let mut behind = Vec::new();
    for turn in &mut request.turns {
        if turn.role == Role::Assistant && !calls.is_empty() && !has_calls(turn) {
            calls.clear();
        }
        for block in &mut turn.blocks {
            match block {
                Block::ToolUse { id, name, namespace, kind, input, signature: seal, .. } => {
                    keep_own_seal(seal, dialect, notes);
                    if *kind == ToolKind::Custom && !custom_tools {
                        *kind = ToolKind::Function;
                        *input = wrap_input(*input, bump);
                    }
                    *name = renamed(*name, *namespace, to, &mut restore, bump);
                    if to != Format::Responses {
                        *namespace = JsonStr::default();
                    }
                    let key = IndexKey::of(*id);
                    calls.push(key);
                    all_calls.push(key);
                    names.push(*name);
                }
                Block::ToolResult { id, name, kind, content, object, error, .. } => {
                    // Before the encoders choose the form of the result by its blocks.
                    let mut output = ToolOutput { content, object, error };
                    output.values_as_text(notes, bump);
                    output.content.retain(|block| keep_opaque(block, notes));
                    output.settle(notes, &mut behind, bump);
                    if !custom_tools {
                        *kind = ToolKind::Function;
                    }
                    let called = all_calls.last(IndexKey::of(*id)).and_then(|at| names.get(at));
                    match called {
                        Some(called) => *name = *called,
                        // The call is not in this request. The generate format identifies results by tool name, which
                        // is unknown here.
                        None if name.is_empty() && to == Format::Generate => {
                            let message =
                                format!("No tool call has the id '{}' of this result.", id.escaped());
                            notes.refuse("tool_call_id", message);
                        }
                        None => *name = renamed(*name, JsonStr::default(), to, &mut restore, bump),
                    }
                }
                Block::Reasoning { signature: seal, .. }
                | Block::Text { signature: seal, .. }
                | Block::Image { signature: seal, .. } => {
                    keep_own_seal(seal, dialect, notes);
                }
                _ => {}
            }
        }
        turn.blocks.retain(|block| match block {
            Block::Reasoning { text, signature: None, hidden } => !hidden && !text.is_empty(),
            block => keep_opaque(block, notes),
        });
        turn.blocks.append(&mut behind);
        order_results(turn, &calls);
    }
    open_reasoning::leave_out(request, dialect, notes);
    order_result_turns(&mut request.turns);
}

fn has_calls(turn: &Turn<'_>) -> bool {
    turn.blocks.iter().any(|block| matches!(block, Block::ToolUse { .. }))
}

/// Removes a provider signature that another issuer issued. A signature without an envelope comes from a provider of
/// the client's own format, and stays only if the format does not change.
fn keep_own_seal(seal: &mut Option<ProviderSignature<'_>>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
    let same_format = notes.from() == notes.to();
    let takes_bare =
        same_format && !(dialect.own_envelopes && dialect.refuses.intersects(RequestFeatures::SIGNED));
    let foreign = |seal: &ProviderSignature<'_>| match &seal.issuer {
        None => !takes_bare,
        Some(issuer) => **issuer != *dialect.issuer,
    };
    if seal.as_ref().is_some_and(|seal| !dialect.signs || foreign(seal)) {
        *seal = None;
        notes.lose("thinking_signature");
    }
}

/// Wraps the free-text input of a custom tool into function arguments.
fn wrap_input<'a>(input: Input<'a>, bump: &'a Bump) -> Input<'a> {
    let Input::Text(text) = input else { return input };
    let mut out = Vec::with_capacity(text.escaped().len() + 12);
    Writer::new(&mut out).begin_object().key("input").paste(text).end_object();
    let out = bump.alloc_slice_copy(&out);
    Input::Object(RawJson::from_text(std::str::from_utf8(out).unwrap_or("{}")))
}

/// Sorts the tool results of a turn by the order of their calls. Other blocks follow behind them, in their order.
fn order_results(turn: &mut Turn<'_>, calls: &Index) {
    let place = |block: &Block<'_>| match block {
        Block::ToolResult { id, .. } => calls.first(IndexKey::of(*id)).unwrap_or(usize::MAX - 1),
        _ => usize::MAX,
    };
    if turn.role == Role::User && turn.blocks.iter().any(|block| matches!(block, Block::ToolResult { .. })) {
        turn.blocks.sort_by_cached_key(place);
    }
}

/// Sorts adjacent turns that have only tool results by the order of the calls before them.
fn order_result_turns(turns: &mut [Turn<'_>]) {
    let is_results = |turn: &Turn<'_>| {
        turn.role == Role::User
            && !turn.blocks.is_empty()
            && turn.blocks.iter().all(|block| matches!(block, Block::ToolResult { .. }))
    };
    let mut at = 0;
    while at < turns.len() {
        let run = turns.get(at..).unwrap_or_default().iter().take_while(|turn| is_results(turn)).count();
        if run > 1 {
            let calls = calls_before(turns.get(..at).unwrap_or_default());
            let place = |turn: &Turn<'_>| match turn.blocks.first() {
                Some(Block::ToolResult { id, .. }) => calls.first(IndexKey::of(*id)).unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            if let Some(run) = turns.get_mut(at..at + run) {
                run.sort_by_cached_key(place);
            }
        }
        at += run.max(1);
    }
}

/// Returns the ids of the calls in the assistant turns directly before.
fn calls_before(turns: &[Turn<'_>]) -> Index {
    let run = turns.iter().rev().take_while(|turn| turn.role == Role::Assistant).count();
    let turns = turns.get(turns.len() - run..).unwrap_or_default();
    let calls = turns.iter().flat_map(|turn| &turn.blocks).filter_map(|block| match block {
        Block::ToolUse { id, .. } => Some(IndexKey::of(*id)),
        _ => None,
    });
    calls.collect()
}
