//! Spellings of the specification that the provider of this format does not know.

use crate::json::RawJson;
use crate::wire::spelling::{Respelling, elements, find, is_object, places, says};

/// Marks of type `persistent` become marks that last an hour. `text` is a member of the request that may hold marks: a
/// list of blocks, turns or tools, or (`is_mark`) a mark itself.
pub(in crate::wire) fn marks(text: &str, at: usize, is_mark: bool, out: &mut Respelling) {
    if is_mark {
        mark(text, at, out);
    } else {
        list(text, at, 0, out);
    }
}

/// How deep blocks stand in blocks: a text in a document in the result of a tool in a turn.
const DEPTH: usize = 4;

/// Blocks, turns or tools. What a tool is called with and what it takes is the client's own, whatever is in it.
fn list(text: &str, at: usize, depth: usize, out: &mut Respelling) {
    for (element, place) in elements(text, at) {
        block(element, place.start, depth, out);
    }
}

fn block(value: RawJson<'_>, at: usize, depth: usize, out: &mut Respelling) {
    for place in places(value.text(), at) {
        match place.name {
            "cache_control" => mark(place.value.text(), place.at.start, out),
            "content" if depth < DEPTH => list(place.value.text(), place.at.start, depth + 1, out),
            "source" if depth < DEPTH => block(place.value, place.at.start, depth + 1, out),
            _ => {}
        }
    }
}

fn mark(text: &str, at: usize, out: &mut Respelling) {
    let members = places(text, at);
    if !says(&members, "type", "persistent") {
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

/// Whether `top_p` must be left out: the specification recommends 0 with extended thinking, where the provider takes
/// nothing below 0.95, or none.
pub(in crate::wire) fn drops_top_p(thinking: &str, top_p: &str) -> bool {
    let is_object = is_object(RawJson::from_text(thinking));
    let members = places(thinking, 0);
    let reasons = is_object && ["enabled", "adaptive"].iter().any(|kind| says(&members, "type", kind));
    reasons && top_p.parse::<f64>() == Ok(0.0)
}
