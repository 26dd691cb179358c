//! Tool choices that name a tool which the provider runs: the web search, or one that the target does not have.

use crate::canonical::{Request, ToolChoice};
use crate::wire::Format;
use crate::wire::codec::LossNotes;
use json::{Cursor, JsonStr, RawJson};

/// Extras that are tools which the provider runs, with a name.
const HOSTED: [&str; 2] = ["server_tool", "tool_search_tool"];

/// Recognizes a choice of the web search, and drops the choice of another hosted tool, which the target does not get.
/// Before the tool choice is adapted.
pub(super) fn recognize(request: &mut Request<'_>, notes: &mut LossNotes) {
    let Some(ToolChoice::Tool(name)) = request.tool_choice else { return };
    if request.tools.iter().any(|tool| tool.name == name) {
        return;
    }
    let is_search = name.escaped().starts_with("web_search") || name.is("nova_grounding");
    if request.search.is_some() && is_search {
        request.tool_choice = Some(ToolChoice::Search);
    } else if notes.from() != notes.to()
        && request.extra.iter().any(|extra| HOSTED.contains(&extra.name) && is_named(extra.value, name))
    {
        drop_choice(request, notes);
    }
}

/// Drops the choice of a web search where it cannot be forced, or where the target does not have it.
pub(super) fn settle(request: &mut Request<'_>, notes: &mut LossNotes) {
    if request.tool_choice != Some(ToolChoice::Search) || notes.from() == notes.to() {
        return;
    }
    let takes = match notes.to() {
        Format::Responses => true,
        // The name of the search is fixed, and a tool of the client may have it.
        Format::Messages => !request.tools.iter().any(|tool| tool.name.is("web_search")),
        Format::Chat | Format::Generate | Format::Converse => false,
    };
    if request.search.is_none() || !takes {
        drop_choice(request, notes);
    }
}

fn drop_choice(request: &mut Request<'_>, notes: &mut LossNotes) {
    notes.warn("tool_choice");
    // By default the model decides; not every provider takes the word for it.
    request.tool_choice = None;
}

fn is_named(tool: RawJson<'_>, name: JsonStr<'_>) -> bool {
    let mut json = Cursor::new(tool.text());
    if json.begin_object().is_err() {
        return false;
    }
    while let Ok(Some(key)) = json.next_key() {
        let Ok(value) = json.raw() else { return false };
        if key.is("name") {
            return value.as_str() == Some(name);
        }
    }
    false
}
