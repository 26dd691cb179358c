//! Edits of a body for a provider of its own format: what another provider signed is taken out, what this one signed is
//! unpacked, and ids of tool calls become legal. All other bytes stay as they are.

use std::ops::Range;

use super::codec::make_id;
use super::spelling::{MemberRange, Respelling, elements, find, member_ranges};
use super::{Api, chat, converse, generate};
use crate::canonical::seal::{RenamedCallId, SignedCallId, is_marked};
use crate::canonical::{Dialect, ProviderSignature, RequestFeatures};
use json::JsonStr;

/// Edits the conversation of a request. `at` is where its text begins in the body.
pub(super) fn edit(api: Api, text: &str, at: usize, dialect: &Dialect<'_>, out: &mut Respelling) {
    if !text.starts_with('[') {
        return;
    }
    let edits = Edits { dialect, out };
    match api {
        Api::Messages => edits.messages(text, at),
        Api::Responses => edits.responses(text, at),
        Api::Generate => edits.generate(text, at),
        Api::Converse => edits.converse(text, at),
        Api::Chat => edits.chat(text, at),
        _ => {}
    }
}

/// What becomes of a signature.
enum Seal {
    /// It stays: it came from a provider of the client's own format.
    Stays,
    /// This provider issued it: it is unpacked. The inside of a JSON string.
    Unpacked(String),
    /// Another provider issued it, or none.
    Foreign,
}

struct Edits<'d, 'o> {
    dialect: &'d Dialect<'d>,
    out: &'o mut Respelling,
}

impl Edits<'_, '_> {
    fn seal(&self, read: Option<ProviderSignature<'_>>) -> Seal {
        match read {
            None => Seal::Foreign,
            // A host of several makers' models issued it for another one.
            Some(_) if !self.dialect.signs => Seal::Foreign,
            Some(seal) => match &seal.issuer {
                None => Seal::Stays,
                Some(issuer) if **issuer == *self.dialect.issuer => Seal::Unpacked(seal.text.into_owned()),
                Some(_) => Seal::Foreign,
            },
        }
    }

    /// Unpacks the signature at a place. Returns false if the element must not be sent.
    fn keeps(&mut self, read: Option<ProviderSignature<'_>>, at: &Range<usize>) -> bool {
        match self.seal(read) {
            Seal::Stays => true,
            Seal::Unpacked(text) => {
                self.out.replace(at.clone(), format!("\"{text}\""));
                true
            }
            Seal::Foreign => false,
        }
    }

    /// Makes the id at a place legal.
    fn id(&mut self, place: Option<&MemberRange<'_>>, fits: fn(u8) -> bool) {
        let Some(place) = place else { return };
        let Some(id) = place.value.as_str() else { return };
        if let Some(legal) = legal_id(id, self.dialect, fits) {
            self.out.replace(place.at.clone(), format!("\"{legal}\""));
        }
    }

    /// Edits the blocks of each message. `keeps` gets a block, where it begins in the body, and its index, and returns false for a block that is removed. A message that would be left
    /// without blocks is one for the encoder, which knows what may stand in its place.
    fn blocks(
        &mut self,
        text: &str,
        at: usize,
        list: &str,
        mut keeps: impl FnMut(&mut Self, &str, usize, usize) -> bool,
    ) {
        for (message, place) in elements(text, at) {
            let members = member_ranges(message.text(), place.start);
            let Some(list) = find(&members, list).filter(|list| list.value.text().starts_with('[')) else {
                continue;
            };
            let blocks = elements(list.value.text(), list.at.start);
            let mut removed = Vec::new();
            for (index, (block, place)) in blocks.iter().enumerate() {
                if !keeps(self, block.text(), place.start, index) {
                    removed.push(index);
                }
            }
            if !removed.is_empty() && removed.len() == blocks.len() {
                self.out.encode_again = true;
            }
            let places: Vec<Range<usize>> = blocks.into_iter().map(|(_, place)| place).collect();
            self.out.remove_elements(&places, &removed);
        }
    }

    fn messages(mut self, text: &str, at: usize) {
        self.blocks(text, at, "content", |edits, block, at, _| {
            let members = member_ranges(block, at);
            let kind = find(&members, "type").and_then(|kind| kind.value.as_str()).unwrap_or_default();
            match kind.escaped() {
                "thinking" | "redacted_thinking" => {
                    let name = if kind.is("thinking") { "signature" } else { "data" };
                    let place = find(&members, name);
                    let read = place.and_then(|place| place.value.as_str()).and_then(ProviderSignature::read);
                    let at = place.map_or(0..0, |place| place.at.clone());
                    if !edits.dialect.own_envelopes {
                        return edits.keeps(read, &at);
                    }
                    match edits.seal(read) {
                        Seal::Unpacked(text) => edits.out.replace(at, format!("\"{text}\"")),
                        Seal::Stays if !edits.dialect.refuses.intersects(RequestFeatures::SIGNED) => {}
                        _ if kind.is("redacted_thinking") => return false,
                        // The model reads the reasoning of others, too, and some require it before a call.
                        _ if place.is_some() => edits.out.replace(at, "\"\""),
                        _ => {}
                    }
                    true
                }
                "tool_use" => {
                    edits.id(find(&members, "id"), is_plain);
                    true
                }
                "tool_result" => {
                    edits.id(find(&members, "tool_use_id"), is_plain);
                    true
                }
                _ => true,
            }
        });
    }

    fn converse(mut self, text: &str, at: usize) {
        self.blocks(text, at, "content", |edits, block, at, _| {
            let members = member_ranges(block, at);
            for name in ["toolUse", "toolResult"] {
                if let Some(tool) = find(&members, name) {
                    let inner = member_ranges(tool.value.text(), tool.at.start);
                    edits.id(find(&inner, "toolUseId"), is_dotted);
                }
            }
            let Some(reasoning) = find(&members, "reasoningContent") else { return true };
            let inner = member_ranges(reasoning.value.text(), reasoning.at.start);
            if let Some(blob) = find(&inner, "redactedContent") {
                let read = blob.value.as_str().and_then(converse::request::blob_signature);
                return edits.keeps(read, &blob.at);
            }
            let Some(said) = find(&inner, "reasoningText") else { return true };
            let said = member_ranges(said.value.text(), said.at.start);
            let Some(seal) = find(&said, "signature") else {
                return !edits.dialect.refuses.intersects(RequestFeatures::BARE_REASONING);
            };
            let read = seal.value.as_str().and_then(ProviderSignature::read);
            edits.keeps(read, &seal.at)
        });
    }

    fn generate(mut self, text: &str, at: usize) {
        let requires = self.dialect.signed_calls;
        // Calls of the content so far: the provider signs the first one.
        let mut calls = 0;
        self.blocks(text, at, "parts", |edits, part, at, index| {
            if index == 0 {
                calls = 0;
            }
            let members = member_ranges(part, at);
            let is_call = members.iter().any(|place| matches!(place.name, "functionCall" | "function_call"));
            let is_first = is_call && calls == 0;
            calls += usize::from(is_call);
            let named =
                |place: &MemberRange<'_>| matches!(place.name, "thoughtSignature" | "thought_signature");
            let Some((index, place)) = members.iter().enumerate().find(|(_, place)| named(place)) else {
                // The signature of the turn stood elsewhere, and is another model's.
                if let Some(last) = members.last().filter(|_| is_first && requires) {
                    let text = format!(",\"thoughtSignature\":\"{}\"", generate::SKIP);
                    edits.out.replace(last.at.end..last.at.end, text);
                }
                return true;
            };
            let read = place.value.as_str().and_then(generate::read_signature).map(|(seal, _)| seal);
            match edits.seal(read) {
                Seal::Stays => {}
                Seal::Unpacked(text) => edits.out.replace(place.at.clone(), format!("\"{text}\"")),
                Seal::Foreign if is_first && requires => {
                    edits.out.replace(place.at.clone(), format!("\"{}\"", generate::SKIP));
                }
                Seal::Foreign if members.len() == 1 => return false,
                Seal::Foreign => edits.out.remove(&members, &[index]),
            }
            true
        });
    }

    /// Removes the members of messages and calls that other providers have added.
    fn chat(self, text: &str, at: usize) {
        for (message, place) in elements(text, at) {
            let members = member_ranges(message.text(), place.start);
            self.out.remove_added(&members, self.dialect);
            let Some(calls) = find(&members, "tool_calls").filter(|list| list.value.text().starts_with('['))
            else {
                continue;
            };
            for (call, place) in elements(calls.value.text(), calls.at.start) {
                let members = member_ranges(call.text(), place.start);
                self.out.remove_added(&members, self.dialect);
                if let Some(function) = find(&members, "function") {
                    let members = member_ranges(function.value.text(), function.at.start);
                    self.out.remove_added(&members, self.dialect);
                }
            }
        }
    }

    fn responses(self, text: &str, at: usize) {
        let mut edits = self;
        let items = elements(text, at);
        let mut removed = Vec::new();
        for (index, (item, place)) in items.iter().enumerate() {
            let members = member_ranges(item.text(), place.start);
            edits.id(find(&members, "call_id"), |_| true);
            if let Some(id) = find(&members, "id")
                && let Some(said) = id.value.as_str()
                && SignedCallId::read(said).signature.is_some()
            {
                edits.out.replace(id.at.clone(), format!("\"{}\"", SignedCallId::read(said).id.escaped()));
            }
            let Some(seal) = find(&members, "encrypted_content") else { continue };
            let Some(said) = seal.value.as_str().filter(|said| !said.is_empty()) else { continue };
            // An item of a compaction has a seal of its own, which `compaction` has opened.
            if !edits.keeps(ProviderSignature::read(said), &seal.at) {
                removed.push(index);
            }
        }
        let places: Vec<Range<usize>> = items.into_iter().map(|(_, place)| place).collect();
        edits.out.remove_elements(&places, &removed);
    }
}

impl Respelling {
    fn remove_added(&mut self, members: &[MemberRange<'_>], dialect: &Dialect<'_>) {
        let is_refused = |place: &MemberRange<'_>| !chat::request::takes_in_message(place.name, dialect);
        let removed: Vec<usize> = members
            .iter()
            .enumerate()
            .filter(|(_, place)| is_refused(place))
            .map(|(index, _)| index)
            .collect();
        for place in removed.iter().filter_map(|index| members.get(*index)) {
            if !place.value.is_void() {
                self.note_dropped(chat::request::loss_in_message(place.name));
            }
        }
        self.remove(members, &removed);
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn is_dotted(byte: u8) -> bool {
    is_plain(byte) || matches!(byte, b'.' | b':')
}

/// Returns the id of a call for a provider, as the inside of a JSON string: its own one as it gave it. `None` if the id
/// stays as it is.
fn legal_id(id: JsonStr<'_>, dialect: &Dialect<'_>, fits: fn(u8) -> bool) -> Option<String> {
    let bare = SignedCallId::read(id).id;
    let renamed = RenamedCallId::read(bare);
    if let Some(own) = renamed.as_ref().and_then(|renamed| renamed.for_issuer(dialect.issuer)) {
        return Some(own.to_owned());
    }
    let is_long = dialect.max_call_id.is_some_and(|most| bare.escaped().len() > most);
    if is_long || is_marked(bare) || !bare.escaped().bytes().all(fits) {
        return Some(make_id("call_", bare.escaped(), 0));
    }
    (bare.escaped().len() != id.escaped().len()).then(|| bare.escaped().to_owned())
}
