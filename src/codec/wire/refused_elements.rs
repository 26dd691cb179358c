//! Edits of a body for a provider of its own format that refuses an element: images for a model that reads none, and
//! unions at the roots of the schemas of tools.

use super::Api;
use super::root_schema::plain_object;
use super::spelling::{Respelling, elements, find, has_word, member_ranges};
use json::RawJson;

/// Text in the place of an image that the model does not read.
pub const NO_IMAGE: &str = "[An image was here. This model does not read images.]";

/// Replaces the images of a conversation by a text. `at` is where its text begins in the body.
pub(super) fn images(api: Api, text: &str, at: usize, out: &mut Respelling) {
    for (item, place) in elements(text, at) {
        let members = member_ranges(item.text(), place.start);
        for list in members.iter().filter(|place| matches!(place.name, "content" | "output")) {
            parts(api, list.value.text(), list.at.start, out);
        }
    }
}

fn parts(api: Api, text: &str, at: usize, out: &mut Respelling) {
    if !text.starts_with('[') {
        return;
    }
    for (part, place) in elements(text, at) {
        let members = member_ranges(part.text(), place.start);
        let replaced = match api {
            Api::Converse if find(&members, "image").is_some() => {
                Some(format!("{{\"text\":\"{NO_IMAGE}\"}}"))
            }
            Api::Messages if has_word(&members, "type", "image") => {
                Some(format!("{{\"type\":\"text\",\"text\":\"{NO_IMAGE}\"}}"))
            }
            Api::Chat if has_word(&members, "type", "image_url") => {
                Some(format!("{{\"type\":\"text\",\"text\":\"{NO_IMAGE}\"}}"))
            }
            Api::Responses if has_word(&members, "type", "input_image") => {
                Some(format!("{{\"type\":\"input_text\",\"text\":\"{NO_IMAGE}\"}}"))
            }
            _ => None,
        };
        if let Some(text) = replaced {
            out.replace(place, text);
            out.note_dropped("image");
            continue;
        }
        if let Some(list) = find(&members, "content") {
            parts(api, list.value.text(), list.at.start, out);
        }
        if let Some(result) = find(&members, "toolResult") {
            let inner = member_ranges(result.value.text(), result.at.start);
            if let Some(list) = find(&inner, "content") {
                parts(api, list.value.text(), list.at.start, out);
            }
        }
    }
}

/// Makes plain objects of the schemas of tools.
pub(super) fn schemas(api: Api, text: &str, at: usize, out: &mut Respelling) {
    let mut path: &[&str] = match api {
        Api::Messages => &["input_schema"],
        Api::Responses => &["parameters"],
        Api::Converse => &["toolSpec", "inputSchema", "json"],
        _ => return,
    };
    let config = member_ranges(text, at);
    let (text, at) = match find(&config, "tools") {
        Some(list) if api == Api::Converse => (list.value.text(), list.at.start),
        _ => (text, at),
    };
    for (tool, place) in elements(text, at) {
        let (mut value, mut at) = (tool, place);
        let names = path;
        while let Some((name, rest)) = path.split_first() {
            let members = member_ranges(value.text(), at.start);
            let Some(next) = find(&members, name) else { break };
            (value, at, path) = (RawJson::from_text(next.value.text()), next.at.clone(), rest);
        }
        let is_schema = path.is_empty();
        path = names;
        if let Some(plain) = plain_object(value, true).filter(|_| is_schema) {
            out.replace(at, plain);
        }
    }
}
