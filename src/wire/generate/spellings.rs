//! Spellings of the specification that the provider of this format does not know.

use crate::wire::spelling::{Respelling, elements, find, places};

/// `groundingSearch` is the provider's `googleSearch`.
pub(in crate::wire) fn tools(text: &str, at: usize, out: &mut Respelling) {
    let mut list: Vec<_> = elements(text, at);
    if list.is_empty() {
        // One tool may stand without a list around it.
        list.push((crate::json::RawJson::from_text(text), at..at + text.len()));
    }
    for (tool, place) in list {
        let members = places(tool.text(), place.start);
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

/// Puts `functionCallingConfig`, which stood in the request itself, into `toolConfig`; what stands there already
/// counts.
pub(in crate::wire) fn calling(calling: &str, config: &str, at: usize, out: &mut Respelling) {
    let members = places(config, at);
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
