//! Request spellings that only the gateway's specification defines, rewritten for providers of the messages format.

use crate::json::RawJson;
use crate::wire::spelling::{Respelling, elements, find, has_word, is_object, member_ranges};

/// Rewrites cache marks of type `persistent` to marks with a lifetime of one hour. `text` is a member of the request
/// that may contain marks: a list of blocks, turns or tools, or (`is_mark`) a mark itself.
pub(in crate::wire) fn marks(text: &str, at: usize, is_mark: bool, out: &mut Respelling) {
    if is_mark {
        mark(text, at, out);
    } else {
        list(text, at, 0, out);
    }
}

/// Maximum nesting of blocks: a text in a document in a tool result in a turn.
const DEPTH: usize = 4;

/// Rewrites a list of blocks, turns or tools. Inputs and schemas of tools are the client's data and are not touched.
fn list(text: &str, at: usize, depth: usize, out: &mut Respelling) {
    for (element, place) in elements(text, at) {
        block(element, place.start, depth, out);
    }
}

fn block(value: RawJson<'_>, at: usize, depth: usize, out: &mut Respelling) {
    for place in member_ranges(value.text(), at) {
        match place.name {
            "cache_control" => mark(place.value.text(), place.at.start, out),
            "content" if depth < DEPTH => list(place.value.text(), place.at.start, depth + 1, out),
            "source" if depth < DEPTH => block(place.value, place.at.start, depth + 1, out),
            _ => {}
        }
    }
}

fn mark(text: &str, at: usize, out: &mut Respelling) {
    let members = member_ranges(text, at);
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
