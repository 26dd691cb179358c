//! Request spellings that the gateway accepts (docs/specification.md) and that a provider of this format does not.
//! `at` is the byte offset of the member's value in the body.

use crate::wire::spelling::{Respelling, elements, find, member_ranges};

/// Renames `groundingSearch` to the provider's `googleSearch`; removes it if both are present.
pub(in crate::wire) fn tools(text: &str, at: usize, out: &mut Respelling) {
    let mut list: Vec<_> = elements(text, at);
    if list.is_empty() {
        // A single tool may come without an array.
        list.push((json::RawJson::from_text(text), at..at + text.len()));
    }
    for (tool, place) in list {
        let members = member_ranges(tool.text(), place.start);
        let grounding: Vec<usize> = members
            .iter()
            .enumerate()
            .filter(|(_, place)| matches!(place.name, "groundingSearch" | "grounding_search"))
            .map(|(index, _)| index)
            .collect();
        let searches = find(&members, "googleSearch").or_else(|| find(&members, "google_search")).is_some();
        match grounding.as_slice() {
            [] => {}
            indexes if searches => out.remove(&members, indexes),
            [first, others @ ..] => {
                if let Some(place) = members.get(*first) {
                    out.replace(place.name_at.clone(), "\"googleSearch\"");
                }
                out.remove(&members, others);
            }
        }
    }
}

/// Moves a top-level `functionCallingConfig` into `toolConfig`, unless `toolConfig` already has one.
pub(in crate::wire) fn calling(calling: &str, config: &str, at: usize, out: &mut Respelling) {
    let members = member_ranges(config, at);
    let has = |name| find(&members, name).is_some_and(|place| !place.value.is_null());
    if has("functionCallingConfig") || has("function_calling_config") {
        return;
    }
    if config == "null" {
        out.replace(at..at + config.len(), format!("{{\"functionCallingConfig\":{calling}}}"));
        return;
    }
    if !config.starts_with('{') {
        return;
    }
    let comma = if members.is_empty() { "" } else { "," };
    let start = at + 1;
    out.replace(start..start, format!("\"functionCallingConfig\":{calling}{comma}"));
}
