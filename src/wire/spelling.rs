//! Requests in the specification's spellings, for providers of the same format that do not know them all.
//!
//! The scan of a body tells whether one of these spellings may be in it; then the places are looked for, and edited.
//! Everything else of the body stays as it is. What is spelled how is each format's own matter (`spellings.rs` in its
//! folder); here are the tools: where the members of an object stand, and edits of them.

use std::ops::Range;

use bytes::Bytes;

use super::fields::{chat as c, generate as g, messages as m, responses as r};
use super::request::Body;
use super::{Api, chat, generate, messages, responses};
use crate::canonical::{Dialect, Index, Key};
use crate::json::{Cursor, Edit, Kind, RawJson, Rope};
use crate::wire::watch;

/// What must be said differently to a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Respelling {
    /// The edits that say it, in no order; none of them overlap.
    pub edits: Vec<Edit>,
    /// Elements that are left out.
    pub dropped: Vec<&'static str>,
    /// Elements that are brought into the provider's range.
    pub clamped: Vec<&'static str>,
}

/// A member of an object, and where it stands in the body.
#[derive(Clone, Debug)]
pub(super) struct Place<'a> {
    /// The name.
    pub(super) name: &'a str,
    /// Where the name stands, quotes included.
    pub(super) name_at: Range<usize>,
    /// The value.
    pub(super) value: RawJson<'a>,
    /// Where the value stands.
    pub(super) at: Range<usize>,
}

/// The members of an object that stands at `from` in the body; none of any other value.
pub(super) fn places(text: &str, from: usize) -> Vec<Place<'_>> {
    let mut found = Vec::new();
    let mut json = Cursor::new(text);
    // The scan found the text to be sound.
    let _ = watch::members(&mut json, |key, json| {
        let name = key.escaped();
        let start = from + place_of(name, text);
        let value = json.raw()?;
        let end = from + json.offset();
        found.push(Place {
            name,
            name_at: start - 1..start + name.len() + 1,
            value,
            at: end - value.text().len()..end,
        });
        Ok(())
    });
    found
}

/// The elements of an array that stands at `from` in the body, and where they stand.
pub(super) fn elements(text: &str, from: usize) -> Vec<(RawJson<'_>, Range<usize>)> {
    let mut found = Vec::new();
    let _ = watch::elements(&mut Cursor::new(text), |json| {
        let value = json.raw()?;
        let end = from + json.offset();
        found.push((value, end - value.text().len()..end));
        Ok(())
    });
    found
}

/// Where a part of a text stands in it.
fn place_of(part: &str, whole: &str) -> usize {
    (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize)
}

/// The member of this name.
pub(super) fn find<'p, 'a>(places: &'p [Place<'a>], name: &str) -> Option<&'p Place<'a>> {
    places.iter().find(|place| place.name == name)
}

/// Whether the member of this name is the string `word`.
pub(super) fn says(places: &[Place<'_>], name: &str, word: &str) -> bool {
    find(places, name).and_then(|place| place.value.as_str()).is_some_and(|text| text.escaped() == word)
}

pub(super) fn is_object(value: RawJson<'_>) -> bool {
    value.text().starts_with('{')
}

impl Respelling {
    /// Puts a text in the place of a range.
    pub(super) fn replace(&mut self, range: Range<usize>, text: impl Into<Bytes>) {
        self.edits.push(Edit { range, text: text.into() });
    }

    /// Takes the members with these indexes out of an object. The places are all members of the object.
    pub(super) fn remove(&mut self, places: &[Place<'_>], indexes: &[usize]) {
        let mut at = 0;
        while let Some(first) = places.get(at) {
            if !indexes.contains(&at) {
                at += 1;
                continue;
            }
            let run = (at..places.len()).take_while(|index| indexes.contains(index)).count();
            let before = at.checked_sub(1).and_then(|before| places.get(before));
            let end = places.get(at + run - 1).map_or(first.at.end, |last| last.at.end);
            let range = match (before, places.get(at + run)) {
                (_, Some(behind)) => first.name_at.start..behind.name_at.start,
                (Some(before), None) => before.at.end..end,
                (None, None) => first.name_at.start..end,
            };
            self.replace(range, Bytes::new());
            at += run;
        }
    }

    /// Puts the members of an inner object in the place of the member that holds it. Members that the outer object has
    /// already count.
    pub(super) fn flatten(&mut self, outer: &[Place<'_>], name: &str) {
        let Some(index) = outer.iter().position(|place| place.name == name) else { return };
        let Some(wrapped) = outer.get(index) else { return };
        let inner = places(wrapped.value.text(), wrapped.at.start);
        let mut text = String::new();
        let known: Index = outer.iter().map(|place| Key::of(place.name)).collect();
        for place in inner.iter().filter(|place| !known.has(Key::of(place.name))) {
            if !text.is_empty() {
                text.push(',');
            }
            text.push('"');
            text.push_str(place.name);
            text.push_str("\":");
            text.push_str(place.value.text());
        }
        if text.is_empty() {
            self.remove(outer, &[index]);
        } else {
            self.replace(wrapped.name_at.start..wrapped.at.end, text);
        }
    }
}

/// The range that takes a member out of an object of which only the text is known: its name's quote is at `at.start`,
/// and its value ends at `at.end`.
pub(super) fn removal(text: &mut Rope, at: Range<usize>) -> Range<usize> {
    if let Some((b',', comma)) = next_byte(text, at.end) {
        return at.start..comma + 1;
    }
    match last_byte(text, at.start) {
        Some((b',', comma)) => comma..at.end,
        _ => at,
    }
}

/// How much is looked at at once for what stands beside white space.
const LOOK: usize = 64;

/// The next byte that is not white space, and where it stands.
pub(super) fn next_byte(text: &mut Rope, from: usize) -> Option<(u8, usize)> {
    let mut at = from;
    while at < text.len() {
        let piece = text.slice(at..(at + LOOK).min(text.len()));
        if let Some(found) = piece.iter().position(|byte| !byte.is_ascii_whitespace()) {
            return Some((*piece.get(found)?, at + found));
        }
        at += LOOK;
    }
    None
}

fn last_byte(text: &mut Rope, to: usize) -> Option<(u8, usize)> {
    let mut end = to;
    while end > 0 {
        let start = end.saturating_sub(LOOK);
        let piece = text.slice(start..end);
        if let Some(found) = piece.iter().rposition(|byte| !byte.is_ascii_whitespace()) {
            return Some((*piece.get(found)?, start + found));
        }
        end = start;
    }
    None
}

/// One member of the request itself, as text.
pub(super) struct Top {
    text: Bytes,
    /// Where its name stands, quotes included.
    pub(super) name_at: Range<usize>,
    /// Where its value stands.
    pub(super) at: Range<usize>,
}

impl Top {
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.text).unwrap_or_default()
    }

    /// From its name to the end of its value.
    pub(super) fn whole(&self) -> Range<usize> {
        self.name_at.start..self.at.end
    }
}

impl Body {
    /// Whether the body may hold something that a provider of its own format must be told differently.
    pub fn may_be_spelled(&self) -> bool {
        self.spelled != 0 || self.seen != 0
    }

    /// What must be told differently to a provider of the body's own format.
    pub fn respelled(&self, dialect: &Dialect<'_>) -> Respelling {
        let mut out = Respelling::default();
        let mut text = self.text.clone();
        let mut top = |index: usize| {
            let member = self.member(index)?;
            let at = member.value.clone();
            let name_at = member.name.start.saturating_sub(1)..member.name.end + 1;
            Some(Top { text: text.slice(at.clone()), name_at, at })
        };
        match self.api {
            Api::Chat => {
                if let Some(search) = top(c::WEB_SEARCH_OPTIONS) {
                    chat::spellings::search(search.text(), search.at.start, &mut out);
                }
                let (old, new) = (top(c::MAX_TOKENS), top(c::MAX_COMPLETION_TOKENS));
                if let Some(old) = old.filter(|_| chat::spellings::wants_newer_cap(dialect)) {
                    match new {
                        None => out.replace(old.name_at.clone(), "\"max_completion_tokens\""),
                        Some(_) => out.replace(removal(&mut text, old.whole()), ""),
                    }
                }
            }
            Api::Messages => {
                let marked = [m::SYSTEM, super::fields::CONTENT, m::TOOLS, m::CACHE_CONTROL];
                for index in marked.into_iter().filter(|_| self.seen != 0) {
                    if let Some(member) = top(index) {
                        let is_mark = index == m::CACHE_CONTROL;
                        messages::spellings::marks(member.text(), member.at.start, is_mark, &mut out);
                    }
                }
                if let (Some(thinking), Some(top_p)) = (top(m::THINKING), top(m::TOP_P))
                    && messages::spellings::drops_top_p(thinking.text(), top_p.text())
                {
                    out.replace(removal(&mut text, top_p.whole()), "");
                    out.dropped.push("top_p");
                }
            }
            Api::Responses => {
                if self.seen & r::PARTS != 0
                    && let Some(input) = top(super::fields::CONTENT)
                {
                    responses::spellings::input(input.text(), input.at.start, &mut out);
                }
                if self.seen & r::NESTED != 0
                    && let Some(tools) = top(r::TOOLS)
                {
                    responses::spellings::tools(tools.text(), tools.at.start, &mut out);
                }
                if let Some(choice) = top(r::TOOL_CHOICE) {
                    responses::spellings::choice(choice.text(), choice.at.start, &mut out);
                }
                if let Some(reasoning) = top(r::REASONING) {
                    responses::spellings::reasoning(
                        reasoning.text(),
                        reasoning.at.start,
                        dialect.reasoning,
                        &mut out,
                    );
                }
            }
            Api::Generate => {
                if self.seen != 0
                    && let Some(tools) = top(g::TOOLS)
                {
                    generate::spellings::tools(tools.text(), tools.at.start, &mut out);
                }
                let calling = g::FUNCTION_CALLING_CONFIG.into_iter().find_map(&mut top);
                let config = g::TOOL_CONFIG.into_iter().find_map(&mut top);
                if let Some(calling) = calling {
                    match config {
                        None => {
                            let text =
                                format!("\"toolConfig\":{{\"functionCallingConfig\":{}}}", calling.text());
                            out.replace(calling.whole(), text);
                        }
                        Some(config) => {
                            out.replace(removal(&mut text, calling.whole()), "");
                            generate::spellings::calling(
                                calling.text(),
                                config.text(),
                                config.at.start,
                                &mut out,
                            );
                        }
                    }
                }
            }
            _ => {}
        }
        out.edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
        out
    }

    /// Members of a messages request that its provider takes only from who says in a header that it knows them.
    pub fn betas(&self) -> Betas {
        if self.api != Api::Messages {
            return Betas::default();
        }
        let is_there = |index| self.member(index).is_some_and(|member| member.kind != Kind::Null);
        let mcp = is_there(m::MCP_SERVERS);
        let tools =
            self.member(m::TOOLS).filter(|_| mcp).map(|tools| self.text.clone().slice(tools.value.clone()));
        Betas {
            mcp,
            toolsets: tools.is_some_and(|tools| memchr::memmem::find(&tools, b"\"mcp_toolset\"").is_some()),
            context: is_there(m::CONTEXT_MANAGEMENT),
        }
    }

    /// Whether a sequence that ends the answer is asked for.
    pub fn asks_to_stop(&self) -> bool {
        let mut text = self.text.clone();
        let mut value = |index: usize| self.member(index).map(|member| text.slice(member.value.clone()));
        let has = |list: &str| !elements(list, 0).is_empty() || list.starts_with('"');
        match self.api {
            Api::Messages => {
                value(m::STOP_SEQUENCES).is_some_and(|list| std::str::from_utf8(&list).is_ok_and(has))
            }
            Api::Generate => g::GENERATION_CONFIG.into_iter().find_map(value).is_some_and(|config| {
                let config = places(std::str::from_utf8(&config).unwrap_or_default(), 0);
                let list = find(&config, "stopSequences").or_else(|| find(&config, "stop_sequences"));
                list.is_some_and(|list| has(list.value.text()))
            }),
            _ => false,
        }
    }
}

/// See [`Body::betas`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Betas {
    /// Servers of tools.
    pub mcp: bool,
    /// Tools name those servers, as the newer version of that interface wants it.
    pub toolsets: bool,
    /// Edits of the context.
    pub context: bool,
}

/// The body as a provider gets it.
#[cfg(test)]
pub(super) fn applied(body: &Body, dialect: &Dialect<'_>) -> String {
    let edits = body.respelled(dialect).edits;
    String::from_utf8_lossy(&body.text.clone().edited(&edits).into_contiguous()).into_owned()
}
