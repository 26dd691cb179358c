//! Spellings of the specification that a provider of this format does not know.

use crate::canonical::Dialect;
use crate::canonical::dialect::Sampling;
use crate::wire::spelling::{Respelling, find, is_object, places};

/// `web_search_options`: where the user is must have a type, which the specification does not show. Some write the
/// place without `approximate` around it.
pub(in crate::wire) fn search(text: &str, at: usize, out: &mut Respelling) {
    let options = places(text, at);
    let Some(location) = find(&options, "user_location").filter(|place| is_object(place.value)) else {
        return;
    };
    let members = places(location.value.text(), location.at.start);
    if find(&members, "approximate").is_none() && !members.is_empty() {
        let parts: Vec<String> = members
            .iter()
            .filter(|place| place.name != "type")
            .map(|place| format!("\"{}\":{}", place.name, place.value.text()))
            .collect();
        let text = format!("{{\"type\":\"approximate\",\"approximate\":{{{}}}}}", parts.join(","));
        out.replace(location.at.clone(), text);
    } else if find(&members, "type").is_none() && !members.is_empty() {
        let start = location.at.start + 1;
        out.replace(start..start, "\"type\":\"approximate\",");
    }
}

/// Whether the model is one of those that refuse the older name of the limit.
pub(in crate::wire) fn wants_newer_cap(dialect: &Dialect<'_>) -> bool {
    dialect.max_completion_tokens && dialect.sampling == Sampling::None
}
