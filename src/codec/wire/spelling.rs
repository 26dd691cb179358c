//! Edits of a request body for a provider of the same format: replaces spellings that only the gateway's specification
//! defines (docs/specification.md) by those of the provider.
//!
//! The scan of the body reports whether such a spelling may occur; only then the places are searched and edited. All
//! other bytes stay as they are. Each format's own rules are in `spellings.rs` of its folder; this module holds the
//! tools: the byte ranges of the members of an object, and their edits.

use std::ops::Range;

use bytes::Bytes;

use super::fields::{chat as c, generate as g, messages as m, responses as r};
use super::request::Body;
use super::{Api, chat, features, generate, messages, provenance, refused_elements, responses};
use crate::canonical::{Dialect, Index, IndexKey, RequestFeatures};
use crate::wire::watch;
use json::{Cursor, Edit, JsonRope, JsonText, RawJson, ValueKind};

/// Edits that adapt a body to a provider of its own format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Respelling {
    /// Edits of the body. They do not overlap.
    pub edits: Vec<Edit>,
    /// Elements that the edits remove.
    pub dropped: Vec<&'static str>,
    /// Elements whose values the edits move into the provider's range.
    pub clamped: Vec<&'static str>,
    /// Whether edits are not enough: the body must be encoded again.
    pub encode_again: bool,
}

/// Member of an object with its byte ranges in the body.
#[derive(Clone, Debug)]
pub(super) struct MemberRange<'a> {
    /// Name of the member.
    pub(super) name: &'a str,
    /// Byte range of the name, quotes included.
    pub(super) name_at: Range<usize>,
    /// Value of the member.
    pub(super) value: RawJson<'a>,
    /// Byte range of the value.
    pub(super) at: Range<usize>,
}

/// Returns the members of an object that starts at byte `from` of the body. Empty for any other value.
pub(super) fn member_ranges(text: &str, from: usize) -> Vec<MemberRange<'_>> {
    let mut found = Vec::new();
    let mut json = Cursor::new(text);
    // Cannot fail: the scan has validated the text.
    let _ = watch::members(&mut json, |key, json| {
        let name = key.escaped();
        let start = from + place_of(name, text);
        let value = json.raw()?;
        let end = from + json.offset();
        found.push(MemberRange {
            name,
            name_at: start - 1..start + name.len() + 1,
            value,
            at: end - value.text().len()..end,
        });
        Ok(())
    });
    found
}

/// Returns the elements of an array that starts at byte `from` of the body, with their byte ranges.
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

/// Returns the byte offset of a part within the text that it borrows from.
fn place_of(part: &str, whole: &str) -> usize {
    (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize)
}

/// Returns the member with this name. `None` if it is absent.
pub(super) fn find<'p, 'a>(places: &'p [MemberRange<'a>], name: &str) -> Option<&'p MemberRange<'a>> {
    places.iter().find(|place| place.name == name)
}

/// Returns whether the member with this name is the string `word`.
pub(super) fn has_word(places: &[MemberRange<'_>], name: &str, word: &str) -> bool {
    find(places, name).and_then(|place| place.value.as_str()).is_some_and(|text| text.escaped() == word)
}

pub(super) fn is_object(value: RawJson<'_>) -> bool {
    value.text().starts_with('{')
}

impl Respelling {
    /// Replaces a byte range by a text.
    pub(super) fn replace(&mut self, range: Range<usize>, text: impl Into<Bytes>) {
        self.edits.push(Edit { range, text: text.into() });
    }

    /// Records an element as dropped, once.
    pub(super) fn note_dropped(&mut self, element: &'static str) {
        if !self.dropped.contains(&element) {
            self.dropped.push(element);
        }
    }

    /// Removes the members with these indexes from an object. `places` are all members of the object.
    pub(super) fn remove(&mut self, places: &[MemberRange<'_>], indexes: &[usize]) {
        let mut at = 0;
        while let Some(first) = places.get(at) {
            if !indexes.contains(&at) {
                at += 1;
                continue;
            }
            // Remove adjacent members with one edit; two edits would share a comma and overlap.
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

    /// Removes the elements with these indexes from a list. `places` are all elements of the list.
    pub(super) fn remove_elements(&mut self, places: &[Range<usize>], indexes: &[usize]) {
        let mut at = 0;
        while let Some(first) = places.get(at) {
            if !indexes.contains(&at) {
                at += 1;
                continue;
            }
            let run = (at..places.len()).take_while(|index| indexes.contains(index)).count();
            let before = at.checked_sub(1).and_then(|before| places.get(before));
            let end = places.get(at + run - 1).map_or(first.end, |last| last.end);
            let range = match (before, places.get(at + run)) {
                (_, Some(behind)) => first.start..behind.start,
                (Some(before), None) => before.end..end,
                (None, None) => first.start..end,
            };
            self.replace(range, Bytes::new());
            at += run;
        }
    }

    /// Replaces a member that holds an object by the members of that object. Members that the outer object has already
    /// take precedence.
    pub(super) fn flatten(&mut self, outer: &[MemberRange<'_>], name: &str) {
        let Some(index) = outer.iter().position(|place| place.name == name) else { return };
        let Some(wrapped) = outer.get(index) else { return };
        let inner = member_ranges(wrapped.value.text(), wrapped.at.start);
        let mut text = String::new();
        let known: Index = outer.iter().map(|place| IndexKey::of(place.name)).collect();
        for place in inner.iter().filter(|place| !known.has(IndexKey::of(place.name))) {
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

/// Returns the byte range that removes a member, with one comma, from an object of which only the text is known. `at`
/// begins at the quote of its name and ends behind its value.
pub(super) fn removal(text: &mut JsonRope, at: Range<usize>) -> Range<usize> {
    if let Some((b',', comma)) = next_byte(text, at.end) {
        return at.start..comma + 1;
    }
    match last_byte(text, at.start) {
        Some((b',', comma)) => comma..at.end,
        _ => at,
    }
}

/// Bytes that are read at a time to find the next byte beside white space.
const LOOK: usize = 64;

/// Returns the next byte that is not white space, and its offset. `None` at the end of the text.
pub(super) fn next_byte(text: &mut JsonRope, from: usize) -> Option<(u8, usize)> {
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

fn last_byte(text: &mut JsonRope, to: usize) -> Option<(u8, usize)> {
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

/// Member of the outermost object, as text.
pub(super) struct TopLevelMember {
    text: JsonText,
    /// Byte range of the name, quotes included.
    pub(super) name_at: Range<usize>,
    /// Byte range of the value.
    pub(super) at: Range<usize>,
}

impl TopLevelMember {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the byte range from the name to the end of the value.
    pub(super) fn whole(&self) -> Range<usize> {
        self.name_at.start..self.at.end
    }
}

impl Body {
    /// Returns whether the body may need edits for a provider of its own format.
    pub fn may_be_spelled(&self) -> bool {
        // A cache mark or a compaction item by itself needs no other spelling.
        let words = match self.api {
            Api::Messages => m::PERSISTENT,
            Api::Responses => r::PARTS | r::NESTED,
            Api::Generate => g::SEARCH,
            _ => 0,
        };
        self.spelled != 0 || self.words_found & words != 0
    }

    /// Returns the edits that adapt the body to a provider of its own format.
    pub fn respelled(&self, dialect: &Dialect<'_>) -> Respelling {
        let mut out = Respelling::default();
        let mut text = self.text.clone();
        match self.api {
            Api::Chat => self.respell_chat(dialect, &mut text, &mut out),
            Api::Messages => self.respell_messages(dialect, &mut text, &mut out),
            Api::Responses => self.respell_responses(dialect, &mut text, &mut out),
            Api::Generate => self.respell_generate(&mut text, &mut out),
            _ => {}
        }
        self.edit_refused(dialect, &mut text, &mut out);
        // The rope applies edits in ascending order.
        out.edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
        out
    }

    /// Adds the edits for what the target refuses of the body.
    fn edit_refused(&self, dialect: &Dialect<'_>, text: &mut JsonRope, out: &mut Respelling) {
        let held = self.held(dialect.refuses, dialect.most_output);
        if held.intersects(RequestFeatures::OUTPUT_LIMIT)
            && let Some(most) = dialect.most_output
        {
            for Edit { range, text } in self.limit_edits(most) {
                out.replace(range, text);
            }
            out.clamped.push("max_tokens");
        }
        if held.intersects(features::PROVENANCE.with(RequestFeatures::MESSAGE_MEMBER))
            && let Some(content) = self.top(super::fields::CONTENT, text)
        {
            provenance::edit(self.api, content.text(), content.at.start, dialect, out);
        }
        if held.intersects(RequestFeatures::IMAGE)
            && let Some(content) = self.top(super::fields::CONTENT, text)
        {
            refused_elements::images(self.api, content.text(), content.at.start, out);
        }
        let tools = match self.api {
            Api::Messages => m::TOOLS,
            Api::Responses => r::TOOLS,
            _ => super::fields::EXTRA,
        };
        if held.intersects(RequestFeatures::ROOT_UNION)
            && let Some(tools) = self.top(tools, text)
        {
            refused_elements::schemas(self.api, tools.text(), tools.at.start, out);
        }
        self.edit_settings(held, dialect, text, out);
    }

    /// Returns a member of the outermost object; `None` if it is absent.
    pub(super) fn top(&self, index: usize, text: &mut JsonRope) -> Option<TopLevelMember> {
        let member = self.member(index)?;
        let at = member.value.clone();
        let name_at = member.name.start.saturating_sub(1)..member.name.end + 1;
        Some(TopLevelMember { text: text.text(at.clone()), name_at, at })
    }

    fn respell_chat(&self, dialect: &Dialect<'_>, text: &mut JsonRope, out: &mut Respelling) {
        if let Some(search) = self.top(c::WEB_SEARCH_OPTIONS, text) {
            chat::spellings::search(search.text(), search.at.start, out);
        }
        let (old, new) = (self.top(c::MAX_TOKENS, text), self.top(c::MAX_COMPLETION_TOKENS, text));
        if let Some(old) = old.filter(|_| chat::spellings::needs_max_completion_tokens(dialect)) {
            match new {
                None => out.replace(old.name_at.clone(), "\"max_completion_tokens\""),
                Some(_) => out.replace(removal(text, old.whole()), ""),
            }
        }
    }

    /// Returns whether a messages request may have members that a platform of the format refuses: those of tools and of
    /// cache marks.
    pub fn may_have_refused_members(&self) -> bool {
        self.api == Api::Messages && (self.words_found & m::MARK != 0 || self.member(m::TOOLS).is_some())
    }

    fn respell_messages(&self, dialect: &Dialect<'_>, text: &mut JsonRope, out: &mut Respelling) {
        let quirks = dialect.quirks;
        // Only searched if the scan has seen the word `persistent`, or for a provider that refuses the scope of a mark.
        let is_persistent = self.words_found & m::PERSISTENT != 0;
        let may_have_scope = self.words_found & m::MARK != 0 && quirks.lacks(messages::spellings::SCOPE);
        let marked = [m::SYSTEM, super::fields::CONTENT, m::TOOLS, m::CACHE_CONTROL];
        for index in marked.into_iter().filter(|_| is_persistent || may_have_scope) {
            if let Some(member) = self.top(index, text)
                && (is_persistent || messages::spellings::names(member.text(), "scope"))
            {
                let is_mark = index == m::CACHE_CONTROL;
                messages::spellings::marks(member.text(), member.at.start, is_mark, quirks, out);
            }
        }
        if !quirks.lacks.is_empty()
            && let Some(tools) = self.top(m::TOOLS, text)
        {
            messages::spellings::tools(tools.text(), tools.at.start, quirks, out);
        }
        if let (Some(thinking), Some(top_p)) = (self.top(m::THINKING, text), self.top(m::TOP_P, text))
            && messages::spellings::drops_top_p(thinking.text(), top_p.text())
        {
            out.replace(removal(text, top_p.whole()), "");
            out.dropped.push("top_p");
        }
    }

    fn respell_responses(&self, dialect: &Dialect<'_>, text: &mut JsonRope, out: &mut Respelling) {
        if self.words_found & r::PARTS != 0
            && let Some(input) = self.top(super::fields::CONTENT, text)
        {
            responses::spellings::input(input.text(), input.at.start, out);
        }
        if self.words_found & r::NESTED != 0
            && let Some(tools) = self.top(r::TOOLS, text)
        {
            responses::spellings::tools(tools.text(), tools.at.start, out);
        }
        if let Some(choice) = self.top(r::TOOL_CHOICE, text) {
            responses::spellings::choice(choice.text(), choice.at.start, out);
        }
        if let Some(reasoning) = self.top(r::REASONING, text) {
            responses::spellings::reasoning(reasoning.text(), reasoning.at.start, dialect.reasoning, out);
        }
    }

    fn respell_generate(&self, text: &mut JsonRope, out: &mut Respelling) {
        if self.words_found & g::SEARCH != 0
            && let Some(tools) = self.top(g::TOOLS, text)
        {
            generate::spellings::tools(tools.text(), tools.at.start, out);
        }
        let calling = g::FUNCTION_CALLING_CONFIG.into_iter().find_map(|index| self.top(index, text));
        let config = g::TOOL_CONFIG.into_iter().find_map(|index| self.top(index, text));
        let Some(calling) = calling else { return };
        match config {
            None => {
                let text = format!("\"toolConfig\":{{\"functionCallingConfig\":{}}}", calling.text());
                out.replace(calling.whole(), text);
            }
            Some(config) => {
                out.replace(removal(text, calling.whole()), "");
                generate::spellings::calling(calling.text(), config.text(), config.at.start, out);
            }
        }
    }

    /// Returns the beta features of a messages request that its provider accepts only with an `anthropic-beta` header.
    pub fn betas(&self) -> Betas {
        if self.api != Api::Messages {
            return Betas::default();
        }
        let is_there = |index| self.member(index).is_some_and(|member| member.kind != ValueKind::Null);
        let mcp = is_there(m::MCP_SERVERS);
        // Toolsets matter only together with servers, and the search costs time in a long list.
        let tools = self.member(m::TOOLS).filter(|_| mcp).map(|tools| self.text.slice(tools.value.clone()));
        Betas {
            mcp,
            toolsets: tools.is_some_and(|tools| memchr::memmem::find(&tools, b"\"mcp_toolset\"").is_some()),
            context: is_there(m::CONTEXT_MANAGEMENT),
            named: self
                .member(m::BETAS)
                .map(|list| beta_names(&self.text.view(list.value.clone())))
                .unwrap_or_default(),
        }
    }

    /// Returns whether the request sets a stop sequence. Only for messages and generate; false for other APIs.
    pub fn has_stop_sequence(&self) -> bool {
        let text = self.text.clone();
        let value = |index: usize| self.member(index).map(|member| text.text(member.value.clone()));
        let has = |list: &str| !elements(list, 0).is_empty() || list.starts_with('"');
        match self.api {
            Api::Messages => value(m::STOP_SEQUENCES).is_some_and(|list| has(&list)),
            Api::Generate => g::GENERATION_CONFIG.into_iter().find_map(value).is_some_and(|config| {
                let config = member_ranges(&config, 0);
                let list = find(&config, "stopSequences").or_else(|| find(&config, "stop_sequences"));
                list.is_some_and(|list| has(list.value.text()))
            }),
            _ => false,
        }
    }
}

/// Beta features of a messages request; see [`Body::betas`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Betas {
    /// Whether the request names MCP servers (`mcp_servers`).
    pub mcp: bool,
    /// Whether tools refer to those servers by `mcp_toolset`, which requires the newer version of that beta.
    pub toolsets: bool,
    /// Whether the request edits its context (`context_management`).
    pub context: bool,
    /// Beta features that the body names (`anthropic_beta`), at most [`MAX_BETAS`].
    pub named: Box<[Box<str>]>,
}

/// Largest number of beta features that are read from a body.
pub const MAX_BETAS: usize = 32;
/// Longest name of a beta feature, in bytes.
const MAX_BETA_NAME: usize = 128;

/// Returns whether a text can be the name of a beta feature, in a header and in a body.
pub fn is_beta_name(name: &str) -> bool {
    let is_clean = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    !name.is_empty() && name.len() <= MAX_BETA_NAME && is_clean
}

/// Returns the names in the member `anthropic_beta`. Anything that is no name is left out.
fn beta_names(list: &str) -> Box<[Box<str>]> {
    let mut names = Vec::new();
    let mut json = Cursor::new(list);
    // The scanner has validated the text; a value of another type has no elements.
    let _ = watch::elements(&mut json, |json| {
        let name = json.raw()?.as_str().map(|name| name.decode().into_owned());
        names.extend(name.filter(|name| is_beta_name(name)).map(String::into_boxed_str));
        Ok(())
    });
    names.truncate(MAX_BETAS);
    names.into_boxed_slice()
}

/// Returns the body after the edits.
#[cfg(test)]
pub(super) fn applied(body: &Body, dialect: &Dialect<'_>) -> String {
    let edits = body.respelled(dialect).edits;
    String::from_utf8_lossy(&body.text.clone().edited(&edits).into_contiguous()).into_owned()
}
