//! Citations of the messages format.

use crate::canonical::answer::CitationOwned;
use crate::canonical::{Citation, LocationUnit, SourceLocation};
use crate::wire::watch::members;
use json::{Cursor, JsonError, JsonStr, RawJson, Sink, Writer};

/// Form of a citation of a document or a search result: its type and the names of its numbers.
struct LocationForm {
    unit: LocationUnit,
    name: &'static str,
    index: &'static str,
    start: &'static str,
    end: &'static str,
}

/// Source: the types `CitationCharLocation`, `CitationPageLocation`, `CitationContentBlockLocation` and
/// `CitationsSearchResultLocation` of Anthropic's SDKs.
const FORMS: [LocationForm; 4] = [
    LocationForm {
        unit: LocationUnit::Characters,
        name: "char_location",
        index: "document_index",
        start: "start_char_index",
        end: "end_char_index",
    },
    LocationForm {
        unit: LocationUnit::Pages,
        name: "page_location",
        index: "document_index",
        start: "start_page_number",
        end: "end_page_number",
    },
    LocationForm {
        unit: LocationUnit::DocumentBlocks,
        name: "content_block_location",
        index: "document_index",
        start: "start_block_index",
        end: "end_block_index",
    },
    LocationForm {
        unit: LocationUnit::SearchResultBlocks,
        name: "search_result_location",
        index: "search_result_index",
        start: "start_block_index",
        end: "end_block_index",
    },
];

/// Reads a citation.
pub(super) fn read(value: RawJson<'_>) -> Result<CitationOwned, JsonError> {
    let mut citation = CitationOwned::default();
    let (mut name, mut index, mut start, mut end) = (JsonStr::default(), None, None, None);
    members(&mut Cursor::new(value.text()), |key, json| {
        let value = json.raw()?;
        let set = |slot: &mut String| {
            if let Some(text) = value.as_str() {
                text.escaped().clone_into(slot);
            }
        };
        match key.escaped() {
            "type" => name = value.as_str().unwrap_or_default(),
            "url" => set(&mut citation.url),
            "title" | "document_title" => set(&mut citation.title),
            "cited_text" => set(&mut citation.quote),
            "source" => set(&mut citation.source),
            "document_index" | "search_result_index" => index = value.as_u64(),
            "start_char_index" | "start_page_number" | "start_block_index" => start = value.as_u64(),
            "end_char_index" | "end_page_number" | "end_block_index" => end = value.as_u64(),
            _ => {}
        }
        Ok(())
    })?;
    let form = FORMS.iter().find(|form| name.is(form.name));
    let known = form.zip(index).zip(start.zip(end));
    citation.location =
        known.map(|((form, index), (start, end))| SourceLocation { unit: form.unit, index, start, end });
    Ok(citation)
}

/// Returns whether the format has a form for a citation: it needs an address or a location.
pub(super) fn has_form(citation: &Citation<'_>) -> bool {
    !citation.url.is_empty() || citation.location.is_some()
}

/// Writes a citation that has an address or a location.
pub(super) fn write<B: Sink>(citation: &Citation<'_>, json: &mut Writer<'_, B>) {
    let location = citation.location.filter(|_| citation.url.is_empty());
    let found = location.and_then(|location| Some((location, form_of(location.unit)?)));
    let Some((location, form)) = found else {
        json.begin_object().key("type").string("web_search_result_location");
        json.key("url").paste(citation.url).key("title");
        put_title(citation.title, json);
        json.key("cited_text").paste(citation.quote).key("encrypted_index").string("").end_object();
        return;
    };
    json.begin_object().key("type").string(form.name).key("cited_text").paste(citation.quote);
    if location.unit == LocationUnit::SearchResultBlocks {
        json.key("source").paste(citation.source).key("title");
    } else {
        json.key("document_title");
    }
    put_title(citation.title, json);
    json.key(form.index).number(location.index).key(form.start).number(location.start);
    json.key(form.end).number(location.end).end_object();
}

fn form_of(unit: LocationUnit) -> Option<&'static LocationForm> {
    FORMS.iter().find(|form| form.unit == unit)
}

/// Writes a title; null if there is none.
fn put_title<B: Sink>(title: JsonStr<'_>, json: &mut Writer<'_, B>) {
    if title.is_empty() {
        json.null();
    } else {
        json.paste(title);
    }
}
