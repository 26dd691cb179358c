//! Encoder of a request to a provider of the generate format.

use super::read::camel;
use super::{config, decode, settings, tools, turns};
use crate::canonical::{Block, Dialect, Request};
use crate::wire::Format;
use crate::wire::codec::LossNotes;
use crate::wire::generate::part;
use json::{JsonStr, RopeBuilder, Writer};

/// Writes a request. Members that are the same in every turn come first, for the provider's prompt cache. Elements
/// that the format or the model does not support are recorded in `notes`.
pub fn encode(request: &Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes, out: &mut RopeBuilder) {
    let mut json = Writer::new(out);
    json.begin_object();
    instructions(request, notes, &mut json);
    tools::write(request, dialect, notes, &mut json);
    members(request, notes, &mut json);
    settings::write(request, dialect, notes, &mut json);
    turns::write(request, dialect, notes, &mut json);
    json.end_object();
}

/// Writes `systemInstruction`, with each text as a part. Instructions in the middle of a conversation are moved there
/// too.
fn instructions(request: &Request<'_>, notes: &mut LossNotes, json: &mut Writer<'_, RopeBuilder>) {
    let mut begun = false;
    for block in request.turns.iter().filter(|turn| turn.role.is_system()).flat_map(|turn| &turn.blocks) {
        let Block::Text { text, cache, .. } = block else {
            notes.lose("system_content");
            continue;
        };
        if cache.is_some() {
            notes.lose("cache_control");
        }
        if text.is_empty() {
            continue;
        }
        if !begun {
            begun = true;
            json.key("systemInstruction").begin_object().key("parts").begin_array();
        }
        part::begin_text(json, *text, false);
        json.end_object();
    }
    if begun {
        json.end_array().end_object();
    }
}

/// Writes the other members of the request, and records the loss of those that the format does not have.
fn members(request: &Request<'_>, notes: &mut LossNotes, json: &mut Writer<'_, RopeBuilder>) {
    for extra in &request.extra {
        let elsewhere = tools::is_own(extra.name)
            || config::OWN.contains(&extra.name)
            || [config::ALL, decode::VIDEO].contains(&extra.name);
        if elsewhere {
            continue;
        }
        // A member from a client of this format is passed on even if it is unknown here: the provider may support it.
        if decode::OWN.contains(&extra.name) || notes.from() == Format::Generate {
            json.paste_key(JsonStr::from_escaped(extra.name)).raw(extra.value);
        } else {
            notes.lose(extra.name.to_owned());
        }
    }
    if let Some(tier) = request.service_tier {
        match service_tier(tier) {
            Some("") => {}
            Some(word) => {
                json.key("serviceTier").string(word);
            }
            None => notes.lose("service_tier"),
        }
    }
    match request.store {
        Some(store) if notes.from() == Format::Generate => {
            json.key("store").boolean(store);
        }
        Some(_) => notes.lose("store"),
        None => {}
    }
    for (element, given) in [
        ("user", request.user.is_some()),
        ("metadata", request.metadata.is_some()),
        ("prompt_cache_key", request.cache_key.is_some()),
        ("previous_response_id", request.previous.is_some()),
        ("verbosity", request.verbosity.is_some()),
    ] {
        if given {
            notes.lose(element);
        }
    }
}

/// Returns the value for a service tier: empty if the member is omitted, `None` if the format has no such tier.
fn service_tier(word: JsonStr<'_>) -> Option<&'static str> {
    match camel(word.escaped()).to_ascii_lowercase().as_str() {
        "auto" => Some(""),
        "default" | "standard" | "standardonly" => Some("standard"),
        "flex" => Some("flex"),
        "priority" | "fast" => Some("priority"),
        _ => None,
    }
}
