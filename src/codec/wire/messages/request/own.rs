//! What a request of this format has beyond the canonical model: copied from the client's text into a request that is
//! encoded again in this format.

use super::encode::RequestWriter;
use crate::canonical::Block;
use crate::wire::Format;
use crate::wire::codec::put_rest;
use json::{JsonStr, RawJson};

/// Members of a text block that the encoder writes.
pub(super) const TEXT: &[&str] = &["type", "text", "cache_control"];
/// Members of an image that the encoder writes.
pub(super) const IMAGE: &[&str] = &["type", "source", "cache_control"];
/// Members of a call that the encoder writes.
pub(super) const TOOL_USE: &[&str] = &["type", "id", "name", "input", "cache_control"];
/// Members of a result that the encoder writes.
pub(super) const TOOL_RESULT: &[&str] = &["type", "tool_use_id", "content", "is_error", "cache_control"];
/// Members of a tool that the encoder writes.
pub(super) const TOOL: &[&str] = &[
    "name",
    "description",
    "input_schema",
    "strict",
    "cache_control",
    "input_examples",
    "eager_input_streaming",
    "defer_loading",
    "allowed_callers",
];

/// Returns the type of an element that the decoder splits into several blocks; `None` for all others. A document that the
/// gateway may have to fetch is a block of its own.
pub fn split_element(kind: &str, element: RawJson<'_>) -> Option<&'static str> {
    match kind {
        "search_result" => Some("search_result"),
        "document" if !element.text().contains("\"url\"") => Some("document"),
        _ => None,
    }
}

impl<'a> RequestWriter<'_, '_, 'a> {
    /// Returns the client's element of one of these types that a part of its text is in.
    pub(super) fn element(&self, part: &str, kinds: &[&str]) -> Option<RawJson<'a>> {
        let source = self.request.source.as_deref()?;
        source.around(part).find(|(kind, _)| kinds.contains(kind)).map(|(_, element)| element)
    }

    /// Returns the client's reasoning block if its own provider signed it: it goes back exactly as it is.
    pub(super) fn own_reasoning(&self, block: &Block<'_>) -> Option<RawJson<'a>> {
        let Block::Reasoning { text, signature: Some(seal), .. } = block else { return None };
        if seal.issuer.is_some() {
            return None;
        }
        let part = text.first().map_or(&*seal.text, |text| text.escaped());
        self.element(part, &["thinking", "redacted_thinking"])
    }

    /// Writes the members of the client's element that the encoder does not write.
    pub(super) fn rest(&mut self, element: Option<RawJson<'_>>, written: &[&str]) {
        if let Some(element) = element {
            put_rest(element, written, &mut self.json);
        }
    }

    /// Returns the client's member of the request, in a request of this format.
    pub(super) fn own_member(&self, name: &str) -> Option<RawJson<'a>> {
        self.request.source.as_deref()?.member(name).filter(|value| !value.is_null())
    }

    /// Returns the client's definition of a tool.
    pub(super) fn own_tool(&self, part: JsonStr<'_>) -> Option<RawJson<'a>> {
        self.request.source.as_deref()?.around(part.escaped()).last().map(|(_, tool)| tool)
    }

    /// Returns the client's definition of the provider's web search.
    pub(super) fn own_search(&self) -> Option<RawJson<'a>> {
        debug_assert!(self.request.source.is_none() || self.notes.from() == Format::Messages);
        self.request
            .source
            .as_deref()?
            .list("tools")
            .find(|tool| crate::wire::codec::type_of(*tool).escaped().starts_with("web_search"))
    }
}
