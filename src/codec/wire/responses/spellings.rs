//! Request spellings that the gateway accepts (docs/specification.md) and that a provider of this format does not.
//! Each function adds the edits for one member of the body; `at` is the byte offset of the member's value in the
//! body.

use crate::canonical::dialect::{ReasoningOff, ReasoningSupport};
use crate::wire::spelling::{MemberRange, Respelling, elements, find, has_word, is_object, member_ranges};
use json::RawJson;

/// Wraps message parts that stand in place of items: each run of adjacent parts becomes one user message.
pub(in crate::wire) fn input(text: &str, at: usize, out: &mut Respelling) {
    const BEFORE: &str = r#"{"role":"user","content":["#;
    let mut open: Option<usize> = None;
    for (item, place) in elements(text, at) {
        if is_part(item) {
            if open.is_none() {
                out.replace(place.start..place.start, BEFORE);
            }
            open = Some(place.end);
        } else if let Some(end) = open.take() {
            out.replace(end..end, "]}");
        }
    }
    if let Some(end) = open {
        out.replace(end..end, "]}");
    }
}

fn is_part(item: RawJson<'_>) -> bool {
    if !is_object(item) {
        return false;
    }
    // Search for `role` first: almost every item is a message, which may be long and has its `role` near the front.
    let members = member_ranges(item.text(), 0);
    find(&members, "role").is_none()
        && ["input_text", "input_image", "input_file"].iter().any(|kind| has_word(&members, "type", kind))
}

/// Flattens functions that are nested as in the chat format, and adds the missing type to `user_location`.
pub(in crate::wire) fn tools(text: &str, at: usize, out: &mut Respelling) {
    for (tool, place) in elements(text, at) {
        let members = member_ranges(tool.text(), place.start);
        flatten(&members, out);
        locate(&members, out);
    }
}

fn flatten(members: &[MemberRange<'_>], out: &mut Respelling) {
    for kind in ["function", "custom"] {
        let nested = find(members, kind).is_some_and(|place| is_object(place.value));
        if nested && has_word(members, "type", kind) {
            out.flatten(members, kind);
        }
    }
}

fn locate(members: &[MemberRange<'_>], out: &mut Respelling) {
    let Some(location) = find(members, "user_location").filter(|place| is_object(place.value)) else {
        return;
    };
    let inner = member_ranges(location.value.text(), location.at.start);
    if let Some(nested) = find(&inner, "approximate").filter(|place| is_object(place.value)) {
        let nested = member_ranges(nested.value.text(), nested.at.start);
        let beside = inner.iter().filter(|place| !matches!(place.name, "type" | "approximate"));
        let parts: Vec<String> = beside
            .chain(nested.iter().filter(|place| place.name != "type"))
            .map(|place| format!(",\"{}\":{}", place.name, place.value.text()))
            .collect();
        out.replace(location.at.clone(), format!("{{\"type\":\"approximate\"{}}}", parts.concat()));
    } else if find(&inner, "type").is_none() && !inner.is_empty() {
        let start = location.at.start + 1;
        out.replace(start..start, "\"type\":\"approximate\",");
    }
}

/// Flattens the functions of a `tool_choice` that nests them as in the chat format.
pub(in crate::wire) fn choice(text: &str, at: usize, out: &mut Respelling) {
    let members = member_ranges(text, at);
    flatten(&members, out);
    if has_word(&members, "type", "allowed_tools")
        && let Some(list) = find(&members, "tools")
    {
        for (tool, place) in elements(list.value.text(), list.at.start) {
            flatten(&member_ranges(tool.text(), place.start), out);
        }
    }
}

/// Removes `summary: "none"`, which providers do not accept: omission means the same. Replaces the effort `none` by
/// the model's lowest effort if the model cannot turn reasoning off.
pub(in crate::wire) fn reasoning(text: &str, at: usize, model: ReasoningSupport, out: &mut Respelling) {
    let members = member_ranges(text, at);
    let is_none = |place: &MemberRange<'_>| place.value.as_str().is_some_and(|word| word.escaped() == "none");
    let summaries: Vec<usize> = members
        .iter()
        .enumerate()
        .filter(|(_, place)| matches!(place.name, "summary" | "generate_summary") && is_none(place))
        .map(|(index, _)| index)
        .collect();
    out.remove(&members, &summaries);
    if let ReasoningSupport::Effort { efforts, off: ReasoningOff::Never } = model
        && let Some(least) = efforts.lowest()
        && let Some(effort) = find(&members, "effort").filter(|place| is_none(place))
    {
        out.replace(effort.at.clone(), format!("\"{}\"", least.name()));
        out.clamped.push("reasoning.effort");
    }
}
