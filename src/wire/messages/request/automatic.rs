//! Automatic cache marks of an encoded request: behind the last tool, the last system block and two user turns.

use super::plan::{Message, Plan, is_blank};
use crate::canonical::breakpoints::TurnSearch;
use crate::canonical::{Block, BreakpointRule, CacheBreakpoint, Request, Tool};

/// Elements that are selected for an automatic cache mark. Empty if the client has set a mark or the gateway sets none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AutomaticMarks<'r, 'a> {
    rule: Option<BreakpointRule>,
    tool: Option<&'r Tool<'a>>,
    /// Whether the web search is the last tool.
    search: bool,
    blocks: [Option<&'r Block<'a>>; 3],
}

impl<'r, 'a> AutomaticMarks<'r, 'a> {
    /// Selects the elements. `tools` are those that are offered, and `search` is whether a web search follows them.
    pub(super) fn new(
        request: &Request<'_>,
        plan: &Plan<'r, 'a>,
        tools: impl Iterator<Item = &'r Tool<'a>>,
        search: bool,
    ) -> Self {
        let Some(rule) = request.breakpoints else { return AutomaticMarks::default() };
        let mut has_tools = search;
        let mut last = None;
        for tool in tools {
            has_tools = true;
            if !is_deferred(tool) {
                last = Some(tool);
            }
        }
        let mut turns = TurnSearch::default();
        for message in plan.messages.iter().rev() {
            if turns.wants(message.role)
                && let Some(block) = last_block(message)
            {
                turns.set(block);
            }
            if turns.is_complete() {
                break;
            }
        }
        let [answered, current] = turns.finish(has_tools);
        let system = plan.system.iter().rev().copied().find(|block| can_have_mark(block));
        AutomaticMarks {
            rule: Some(rule),
            tool: last.filter(|_| !search),
            search,
            blocks: [system, answered, current],
        }
    }

    /// Returns whether a tool is selected.
    pub(super) fn has_tool(&self, tool: &Tool<'_>) -> bool {
        self.tool.is_some_and(|last| is_same(last, tool))
    }

    /// Returns whether the web search is selected.
    pub(super) fn has_search(&self) -> bool {
        self.search
    }

    /// Returns whether a block is selected.
    pub(super) fn has_block(&self, block: &Block<'_>) -> bool {
        self.blocks.iter().flatten().any(|marked| is_same(*marked, block))
    }

    /// Returns the mark of a selected element. `None` if the prompt up to it, of `prefix` bytes, is below the minimum.
    pub(super) fn mark(&self, prefix: usize) -> Option<CacheBreakpoint> {
        self.rule.filter(|rule| rule.may_cache(prefix)).map(|rule| rule.lifetime)
    }
}

/// Returns whether two references are to the same element: equal elements may occur twice in a conversation.
fn is_same<A, B>(one: &A, other: &B) -> bool {
    std::ptr::eq(std::ptr::from_ref(one).cast::<()>(), std::ptr::from_ref(other).cast::<()>())
}

fn is_deferred(tool: &Tool<'_>) -> bool {
    tool.extra.iter().any(|extra| extra.name == "defer_loading" && extra.value.as_bool() == Some(true))
}

fn last_block<'r, 'a>(message: &Message<'r, 'a>) -> Option<&'r Block<'a>> {
    message.blocks.iter().rev().copied().find(|block| can_have_mark(block))
}

/// Returns whether a block can have a cache mark: the provider refuses one on an empty text.
fn can_have_mark(block: &Block<'_>) -> bool {
    match block {
        Block::Text { text, .. } => !is_blank(*text),
        Block::Image { .. } | Block::File { .. } | Block::ToolResult { .. } => true,
        _ => false,
    }
}
