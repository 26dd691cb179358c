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
    /// Last block of the system prompt.
    system: Option<&'r Block<'a>>,
    /// Last blocks of the last answered user turn and of the last one.
    turns: [Option<&'r Block<'a>>; 2],
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
        let system = plan.system.iter().rev().copied().find(|block| can_have_mark(block));
        AutomaticMarks {
            rule: Some(rule),
            tool: last.filter(|_| !search),
            search,
            system,
            turns: turns.finish(has_tools),
        }
    }

    /// Returns the mark of a tool. `None` if it is not selected.
    pub(super) fn of_tool(&self, tool: &Tool<'_>) -> Option<CacheBreakpoint> {
        self.tool.filter(|last| is_same(*last, tool))?;
        self.rule.map(|rule| rule.instructions)
    }

    /// Returns the mark of the web search. `None` if it is not selected.
    pub(super) fn of_search(&self) -> Option<CacheBreakpoint> {
        self.rule.filter(|_| self.search).map(|rule| rule.instructions)
    }

    /// Returns the mark of a block. `None` if it is not selected.
    pub(super) fn of_block(&self, block: &Block<'_>) -> Option<CacheBreakpoint> {
        let rule = self.rule?;
        let is_it = |marked: &Option<&Block<'_>>| marked.is_some_and(|marked| is_same(marked, block));
        if self.turns.iter().any(is_it) {
            return Some(rule.turns);
        }
        is_it(&self.system).then_some(rule.instructions)
    }

    /// Returns whether the prompt up to a selected element, of `prefix` bytes, may have the minimum length.
    pub(super) fn may_cache(&self, prefix: usize) -> bool {
        self.rule.is_some_and(|rule| rule.may_cache(prefix))
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
