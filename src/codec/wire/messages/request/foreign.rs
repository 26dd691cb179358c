//! Elements of a client's request that only Anthropic understands, replaced by what providers of other formats do.
//!
//! Claude Code sends all of them to every model behind a gateway.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::decode::{decode_tool, object};
use crate::canonical::{Block, Request, Role, Tool};
use crate::wire::codec::LossNotes;
use json::{JsonStr, RawJson};

/// Name of the line that Claude Code puts first into its system prompt, for the billing of Anthropic.
const BILLING: &str = "x-anthropic-billing-header";
/// Text before the names of tools that a tool search has found.
const FOUND: &str = "These tools can be called now:";
/// Maximum length of a user's name at OpenAI, in characters; longer ones are refused. Claude Code's is a JSON object
/// with its device, account and session.
const MAX_USER: usize = 64;

/// Prepares a request for a provider of another format.
pub fn prepare(request: &mut Request<'_>, notes: &mut LossNotes) {
    if take_billing_line(request) {
        notes.lose(BILLING);
    }
    change_tools(request);
    for block in request.turns.iter_mut().flat_map(|turn| &mut turn.blocks) {
        if let Block::ToolResult { content, .. } = block {
            name_found_tools(content);
        }
    }
    if request.user.is_some_and(|user| user.decode().chars().count() > MAX_USER) {
        request.user = None;
        notes.lose("user");
    }
}

/// Takes the billing line out of the system prompt, whose first line it is, if it has a number that changes with every
/// request (`cch=...`, as some versions of Claude Code write it): a prompt that begins with it is never found in the
/// cache of another provider. Returns whether there was one. Without that number the line is prompt text like any other.
fn take_billing_line(request: &mut Request<'_>) -> bool {
    let first = request.turns.first_mut().filter(|turn| turn.role == Role::System);
    let Some(Block::Text { text, .. }) = first.and_then(|turn| turn.blocks.first_mut()) else { return false };
    // A line break is an escape; the line itself has no backslash.
    let (line, rest) = text.escaped().split_once("\\n").unwrap_or((text.escaped(), ""));
    let is_billing = line.strip_prefix(BILLING).is_some_and(|rest| rest.starts_with(':'));
    if !is_billing || !line.contains(" cch=") {
        return false;
    }
    *text = JsonStr::from_escaped(rest);
    if rest.is_empty()
        && let Some(turn) = request.turns.first_mut()
    {
        turn.blocks.remove(0);
        if turn.blocks.is_empty() {
            request.turns.remove(0);
        }
    }
    true
}

/// State of a tool after all changes.
#[derive(Default)]
struct ToolChange<'a> {
    is_removed: bool,
    definition: Option<Tool<'a>>,
    /// Number of the change with the definition.
    at: usize,
}

/// Applies the changes of tools in the middle of the conversation (`tool_addition`, `tool_removal`) to the list of tools:
/// other formats have no such blocks. Deferred tools are in the list already, so that an addition by reference changes
/// nothing (<https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages>).
fn change_tools(request: &mut Request<'_>) {
    let mut changes: HashMap<&str, ToolChange<'_>, RandomState> = HashMap::default();
    let mut number = 0;
    for turn in request.turns.iter_mut().filter(|turn| turn.role == Role::System) {
        turn.blocks.retain(|block| {
            let Block::Opaque { name: kind, raw } = block else { return true };
            let is_removed = kind.is("tool_removal");
            if !is_removed && !kind.is("tool_addition") {
                return true;
            }
            let (name, definition) = changed_tool(*raw);
            let Some(name) = name else { return true };
            number += 1;
            let change = changes.entry(name).or_default();
            change.is_removed = is_removed;
            if definition.is_some() {
                (change.definition, change.at) = (definition, number);
            }
            false
        });
    }
    if changes.is_empty() {
        return;
    }
    request.turns.retain(|turn| turn.role != Role::System || !turn.blocks.is_empty());
    request.tools.retain(|tool| {
        changes
            .get(tool.name.escaped())
            .is_none_or(|change| !change.is_removed && change.definition.is_none())
    });
    let added = changes.into_values().filter(|change| !change.is_removed);
    let mut added: Vec<(usize, Tool<'_>)> =
        added.filter_map(|change| Some((change.at, change.definition?))).collect();
    added.sort_by_key(|(at, _)| *at);
    request.tools.extend(added.into_iter().map(|(_, tool)| tool));
}

/// Returns the name of the tool that a block adds or removes, and its definition if the block has one. The name is
/// `None` if the block cannot be read.
fn changed_tool(block: RawJson<'_>) -> (Option<&str>, Option<Tool<'_>>) {
    let (mut name, mut definition) = (None, None);
    let read = object("tool", block, |key, value| match key {
        "tool" => object("tool", value, |key, value| {
            match key {
                "name" | "tool_name" => name = value.as_str(),
                "definition" => definition = Some(decode_tool(value)?),
                _ => {}
            }
            Ok(())
        }),
        _ => Ok(()),
    });
    let definition = definition.filter(|_| read.is_ok()).flatten();
    let name = definition.as_ref().map_or(name, |tool: &Tool<'_>| Some(tool.name));
    (name.map(|name: JsonStr<'_>| name.escaped()), definition)
}

/// Writes the tools that a search has found as text. Their definitions are in the list of tools.
fn name_found_tools(content: &mut Vec<Block<'_>>) {
    let is_reference =
        |block: &Block<'_>| matches!(block, Block::Opaque { name, .. } if name.is("tool_reference"));
    if !content.iter().any(is_reference) {
        return;
    }
    let mut is_first = true;
    *content = std::mem::take(content)
        .into_iter()
        .flat_map(|block| {
            let Block::Opaque { name, raw } = &block else { return [Some(block), None] };
            let found = if name.is("tool_reference") { found_name(*raw) } else { None };
            let Some(found) = found else { return [Some(block), None] };
            let title = std::mem::take(&mut is_first).then(|| Block::text(JsonStr::from_escaped(FOUND)));
            [title, Some(Block::text(found))]
        })
        .flatten()
        .collect();
}

/// Returns the name of the tool that a `tool_reference` block has. `None` if it has none.
fn found_name(block: RawJson<'_>) -> Option<JsonStr<'_>> {
    let mut name = None;
    object("tool_reference", block, |key, value| {
        if key == "tool_name" {
            name = value.as_str();
        }
        Ok(())
    })
    .ok()?;
    name.filter(|name| !name.is_empty())
}
