//! Spellings of the specification that the provider of this format does not know.

use crate::canonical::dialect::Reasoning;
use crate::json::RawJson;
use crate::wire::spelling::{Place, Respelling, elements, find, is_object, places, says};

/// Parts of a message that stand where items should: those beside each other become one message of the user.
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
    // A message may be long, and is none by its first member mostly.
    let members = places(item.text(), 0);
    find(&members, "role").is_none()
        && ["input_text", "input_image", "input_file"].iter().any(|kind| says(&members, "type", kind))
}

/// Functions as the chat format nests them are written flat, and where the user is gets its type.
pub(in crate::wire) fn tools(text: &str, at: usize, out: &mut Respelling) {
    for (tool, place) in elements(text, at) {
        let members = places(tool.text(), place.start);
        flatten(&members, out);
        locate(&members, out);
    }
}

fn flatten(members: &[Place<'_>], out: &mut Respelling) {
    for kind in ["function", "custom"] {
        let nested = find(members, kind).is_some_and(|place| is_object(place.value));
        if nested && says(members, "type", kind) {
            out.flatten(members, kind);
        }
    }
}

fn locate(members: &[Place<'_>], out: &mut Respelling) {
    let Some(location) = find(members, "user_location").filter(|place| is_object(place.value)) else {
        return;
    };
    let inner = places(location.value.text(), location.at.start);
    if let Some(nested) = find(&inner, "approximate").filter(|place| is_object(place.value)) {
        let nested = places(nested.value.text(), nested.at.start);
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

/// A choice that names a function as the chat format nests it.
pub(in crate::wire) fn choice(text: &str, at: usize, out: &mut Respelling) {
    let members = places(text, at);
    flatten(&members, out);
    if says(&members, "type", "allowed_tools")
        && let Some(list) = find(&members, "tools")
    {
        for (tool, place) in elements(list.value.text(), list.at.start) {
            flatten(&places(tool.text(), place.start), out);
        }
    }
}

/// No summary is said by saying nothing; no reasoning, to a model that always reasons, by its least effort.
pub(in crate::wire) fn reasoning(text: &str, at: usize, model: Reasoning, out: &mut Respelling) {
    let members = places(text, at);
    let is_none = |place: &Place<'_>| place.value.as_str().is_some_and(|word| word.escaped() == "none");
    let summaries: Vec<usize> = members
        .iter()
        .enumerate()
        .filter(|(_, place)| matches!(place.name, "summary" | "generate_summary") && is_none(place))
        .map(|(index, _)| index)
        .collect();
    out.remove(&members, &summaries);
    if let Reasoning::Effort { min, off: false, .. } = model
        && let Some(effort) = find(&members, "effort").filter(|place| is_none(place))
    {
        out.replace(effort.at.clone(), format!("\"{}\"", min.name()));
        out.clamped.push("reasoning.effort");
    }
}
