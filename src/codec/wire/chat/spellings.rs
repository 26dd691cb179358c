//! Request spellings that only the gateway's specification defines, rewritten for providers of the chat format.

use crate::canonical::Dialect;
use crate::canonical::dialect::SamplingSupport;
use crate::wire::spelling::{Respelling, find, is_object, member_ranges};

/// Rewrites `web_search_options.user_location`: adds the `type` that the provider requires, and the `approximate`
/// object around the location if it is missing.
pub(in crate::wire) fn search(text: &str, at: usize, out: &mut Respelling) {
    let options = member_ranges(text, at);
    let Some(location) = find(&options, "user_location").filter(|place| is_object(place.value)) else {
        return;
    };
    let members = member_ranges(location.value.text(), location.at.start);
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

/// Returns whether the model refuses `max_tokens` and requires `max_completion_tokens`: OpenAI's reasoning models.
pub(in crate::wire) fn needs_max_completion_tokens(dialect: &Dialect<'_>) -> bool {
    dialect.max_completion_tokens
        && matches!(dialect.sampling, SamplingSupport::None | SamplingSupport::IfOff)
}
