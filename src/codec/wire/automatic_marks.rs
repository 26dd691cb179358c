//! Automatic cache marks of an encoded request: behind the last tool, the last system block and two user turns.
//!
//! The encoders of formats with cache marks share the choice of the elements; how a mark is written is the format's own
//! concern. Which turns are marked by their place in the conversation is `canonical::breakpoints`.

use crate::canonical::breakpoints::TurnSearch;
use crate::canonical::{Block, BreakpointRule, CacheBreakpoint, Role, Tool};
use json::JsonStr;

/// Elements that are selected for an automatic cache mark. Empty if the client has set a mark or the gateway sets none.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wire) struct AutomaticMarks<'r, 'a> {
    rule: Option<BreakpointRule>,
    tool: Option<&'r Tool<'a>>,
    /// Whether a tool of the provider is the last tool.
    search: bool,
    /// Last block of the system prompt.
    system: Option<&'r Block<'a>>,
    /// Last blocks of the last answered user turn and of the last one.
    turns: [Option<&'r Block<'a>>; 2],
}

impl<'r, 'a> AutomaticMarks<'r, 'a> {
    /// Selects the elements. `tools` are those that are offered, and `search` is whether a tool of the provider follows
    /// them. `system` are the blocks of the system prompt, and `turns` the role and blocks of each turn, from the last
    /// to the first.
    pub(in crate::wire) fn new<'p>(
        rule: BreakpointRule,
        tools: impl Iterator<Item = &'r Tool<'a>>,
        search: bool,
        system: &[&'r Block<'a>],
        turns: impl Iterator<Item = (Role, &'p [&'r Block<'a>])>,
    ) -> Self
    where
        'r: 'p,
        'a: 'p,
    {
        let mut has_tools = search;
        let mut last = None;
        for tool in tools {
            has_tools = true;
            if !is_deferred(tool) {
                last = Some(tool);
            }
        }
        let mut places = TurnSearch::default();
        for (role, blocks) in turns {
            if places.wants(role)
                && let Some(block) = last_block(blocks)
            {
                places.set(block);
            }
            if places.is_complete() {
                break;
            }
        }
        AutomaticMarks {
            rule: Some(rule),
            tool: last.filter(|_| !search && rule.tools),
            search: search && rule.tools,
            system: last_block(system),
            turns: places.finish(has_tools),
        }
    }

    /// Returns the mark of a tool. `None` if it is not selected.
    pub(in crate::wire) fn of_tool(&self, tool: &Tool<'_>) -> Option<CacheBreakpoint> {
        self.tool.filter(|last| is_same(*last, tool))?;
        self.rule.map(|rule| rule.instructions)
    }

    /// Returns the mark of the provider's tool. `None` if it is not selected.
    pub(in crate::wire) fn of_search(&self) -> Option<CacheBreakpoint> {
        self.rule.filter(|_| self.search).map(|rule| rule.instructions)
    }

    /// Returns the mark of a block. `None` if it is not selected.
    pub(in crate::wire) fn of_block(&self, block: &Block<'_>) -> Option<CacheBreakpoint> {
        let rule = self.rule?;
        let is_it = |marked: &Option<&Block<'_>>| marked.is_some_and(|marked| is_same(marked, block));
        if self.turns.iter().any(is_it) {
            return Some(rule.turns);
        }
        is_it(&self.system).then_some(rule.instructions)
    }

    /// Returns whether the prompt up to a selected element, of `prefix` bytes, may have the minimum length.
    pub(in crate::wire) fn may_cache(&self, prefix: usize) -> bool {
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

/// Returns the last block that can have a cache mark: providers refuse one on an empty text.
fn last_block<'r, 'a>(blocks: &[&'r Block<'a>]) -> Option<&'r Block<'a>> {
    blocks.iter().rev().copied().find(|block| match block {
        Block::Text { text, .. } => !is_blank(*text),
        Block::Image { .. } | Block::File { .. } | Block::SearchResult(_) | Block::ToolResult { .. } => true,
        _ => false,
    })
}

/// Returns whether a text is only white space, which providers treat as empty.
pub(in crate::wire) fn is_blank(text: JsonStr<'_>) -> bool {
    let mut rest = text.escaped();
    loop {
        rest = rest.trim_start();
        match rest.as_bytes() {
            [b'\\', b'n' | b't' | b'r', ..] => rest = rest.get(2..).unwrap_or_default(),
            left => return left.is_empty(),
        }
    }
}
