//! Request spellings that only the gateway's specification defines, rewritten for providers of the messages format.

use crate::canonical::Quirks;
use crate::wire::spelling::{MemberRange, Respelling, elements, find, has_word, is_object, member_ranges};
use json::RawJson;

/// Rewrites cache marks of type `persistent` to marks with a lifetime of one hour, and removes the scope of marks for a
/// provider that does not take it. `text` is a member of the request that may contain marks: a list of blocks, turns or
/// tools, or (`is_mark`) a mark itself.
pub(in crate::wire) fn marks(text: &str, at: usize, is_mark: bool, quirks: &Quirks, out: &mut Respelling) {
    let rules = MarkRules { removes_scope: quirks.lacks(SCOPE) };
    if is_mark {
        mark(text, at, rules, out);
    } else {
        list(text, at, 0, rules, out);
    }
}

/// Name of the scope of a cache mark among the elements that a provider does not take.
pub(in crate::wire) const SCOPE: &str = "cache_control.scope";

/// Edits of cache marks.
#[derive(Clone, Copy)]
struct MarkRules {
    removes_scope: bool,
}

/// Members of tools that a platform may refuse.
pub(in crate::wire) const TOOL_MEMBERS: [&str; 4] =
    ["eager_input_streaming", "allowed_callers", "defer_loading", "input_examples"];

/// Returns whether a text has the name of a member, in quotes.
pub(in crate::wire) fn names(text: &str, member: &str) -> bool {
    memchr::memmem::find_iter(text.as_bytes(), member.as_bytes()).any(|at| {
        let before = at.checked_sub(1).and_then(|before| text.as_bytes().get(before));
        before == Some(&b'"') && text.as_bytes().get(at + member.len()) == Some(&b'"')
    })
}

/// Removes the members of tools that the provider refuses. `text` is the list of tools.
pub(in crate::wire) fn tools(text: &str, at: usize, quirks: &Quirks, out: &mut Respelling) {
    // The search costs less than to read the members of all tools.
    if !TOOL_MEMBERS.iter().any(|member| quirks.lacks(member) && names(text, member)) {
        return;
    }
    for (tool, place) in elements(text, at) {
        let members = member_ranges(tool.text(), place.start);
        let refused =
            |place: &MemberRange<'_>| TOOL_MEMBERS.contains(&place.name) && quirks.lacks(place.name);
        let indexes: Vec<usize> = (0..).zip(&members).filter(|(_, it)| refused(it)).map(|(i, _)| i).collect();
        out.remove(&members, &indexes);
        // `false` is the default of the members that are switches.
        let set = members.iter().filter(|place| place.value.as_bool() != Some(false));
        set.filter_map(|place| TOOL_MEMBERS.into_iter().find(|name| *name == place.name))
            .filter(|name| quirks.lacks(name))
            .for_each(|name| out.note_dropped(name));
    }
}

/// Maximum nesting of blocks: a text in a document in a tool result in a turn.
const DEPTH: usize = 4;

/// Rewrites a list of blocks, turns or tools. Inputs and schemas of tools are the client's data and are not touched.
fn list(text: &str, at: usize, depth: usize, rules: MarkRules, out: &mut Respelling) {
    for (element, place) in elements(text, at) {
        block(element, place.start, depth, rules, out);
    }
}

fn block(value: RawJson<'_>, at: usize, depth: usize, rules: MarkRules, out: &mut Respelling) {
    for place in member_ranges(value.text(), at) {
        match place.name {
            "cache_control" => mark(place.value.text(), place.at.start, rules, out),
            "content" if depth < DEPTH => list(place.value.text(), place.at.start, depth + 1, rules, out),
            "source" if depth < DEPTH => block(place.value, place.at.start, depth + 1, rules, out),
            _ => {}
        }
    }
}

fn mark(text: &str, at: usize, rules: MarkRules, out: &mut Respelling) {
    let members = member_ranges(text, at);
    if rules.removes_scope {
        let indexes: Vec<usize> =
            (0..).zip(&members).filter(|(_, place)| place.name == "scope").map(|(index, _)| index).collect();
        if !indexes.is_empty() {
            out.remove(&members, &indexes);
            out.note_dropped(SCOPE);
        }
    }
    if !has_word(&members, "type", "persistent") {
        return;
    }
    let lifetime = find(&members, "ttl");
    for place in members.iter().filter(|place| place.name == "type") {
        let text = if lifetime.is_some() { "\"ephemeral\"" } else { "\"ephemeral\",\"ttl\":\"1h\"" };
        out.replace(place.at.clone(), text);
    }
    if let Some(lifetime) = lifetime {
        out.replace(lifetime.at.clone(), "\"1h\"");
    }
}

/// Returns whether `top_p` must be removed: the specification recommends 0 with extended thinking, but the provider
/// then accepts only values from 0.95, or none.
pub(in crate::wire) fn drops_top_p(thinking: &str, top_p: &str) -> bool {
    let is_object = is_object(RawJson::from_text(thinking));
    let members = member_ranges(thinking, 0);
    let reasons = is_object && ["enabled", "adaptive"].iter().any(|kind| has_word(&members, "type", kind));
    reasons && top_p.parse::<f64>() == Ok(0.0)
}
