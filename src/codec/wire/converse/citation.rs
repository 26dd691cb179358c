//! Citations of the Converse format.

use crate::canonical::answer::CitationOwned;
use crate::canonical::{Citation, LocationUnit, SourceLocation};
use crate::wire::watch::{elements, members};
use json::{Cursor, JsonError, RawJson, Sink, Writer};

/// Members of a location, with the unit that each has. Source: Amazon Bedrock API Reference, "CitationLocation".
const LOCATIONS: [(&str, LocationUnit); 4] = [
    ("documentChar", LocationUnit::Characters),
    ("documentPage", LocationUnit::Pages),
    ("documentChunk", LocationUnit::DocumentBlocks),
    ("searchResultLocation", LocationUnit::SearchResultBlocks),
];

/// Reads a citation. Its source is a page of the web, or a document or search result of the request.
pub(super) fn read(value: RawJson<'_>) -> Result<CitationOwned, JsonError> {
    let mut citation = CitationOwned::default();
    members(&mut Cursor::new(value.text()), |key, json| {
        match key.escaped() {
            "title" => set(&mut citation.title, json.raw()?),
            "source" => set(&mut citation.source, json.raw()?),
            "sourceContent" => {
                elements(json, |json| {
                    members(json, |key, json| {
                        let value = json.raw()?;
                        if key.is("text")
                            && let Some(text) = value.as_str()
                        {
                            citation.quote.push_str(text.escaped());
                        }
                        Ok(())
                    })
                })?;
            }
            "location" => members(json, |key, json| match key.escaped() {
                "web" => members(json, |key, json| {
                    let value = json.raw()?;
                    if key.is("url") {
                        set(&mut citation.url, value);
                    }
                    Ok(())
                }),
                name => {
                    let unit = LOCATIONS.iter().find(|(known, _)| *known == name).map(|(_, unit)| *unit);
                    let Some(unit) = unit else { return json.skip() };
                    citation.location = read_location(unit, json)?;
                    Ok(())
                }
            })?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    Ok(citation)
}

/// Reads the object of a location. `None` if a number is missing.
fn read_location(unit: LocationUnit, json: &mut Cursor<'_>) -> Result<Option<SourceLocation>, JsonError> {
    let (mut index, mut start, mut end) = (None, None, None);
    members(json, |key, json| {
        let value = json.raw()?.as_u64();
        match key.escaped() {
            "documentIndex" | "searchResultIndex" => index = value,
            "start" => start = value,
            "end" => end = value,
            _ => {}
        }
        Ok(())
    })?;
    let known = index.zip(start).zip(end);
    Ok(known.map(|((index, start), end)| SourceLocation { unit, index, start, end }))
}

fn set(slot: &mut String, value: RawJson<'_>) {
    if let Some(text) = value.as_str() {
        text.escaped().clone_into(slot);
    }
}

/// Writes a citation.
pub(super) fn write<B: Sink>(citation: &Citation<'_>, json: &mut Writer<'_, B>) {
    json.begin_object();
    if !citation.title.is_empty() {
        json.key("title").paste(citation.title);
    }
    if !citation.source.is_empty() {
        json.key("source").paste(citation.source);
    }
    if !citation.quote.is_empty() {
        json.key("sourceContent").begin_array();
        json.begin_object().key("text").paste(citation.quote).end_object().end_array();
    }
    if !citation.url.is_empty() {
        json.key("location").begin_object().key("web").begin_object();
        json.key("url").paste(citation.url).end_object().end_object();
    } else if let Some(location) = &citation.location {
        write_location(location, json);
    }
    json.end_object();
}

fn write_location<B: Sink>(location: &SourceLocation, json: &mut Writer<'_, B>) {
    let Some((name, _)) = LOCATIONS.iter().find(|(_, unit)| *unit == location.unit) else { return };
    let index = match location.unit {
        LocationUnit::SearchResultBlocks => "searchResultIndex",
        LocationUnit::Characters | LocationUnit::Pages | LocationUnit::DocumentBlocks => "documentIndex",
    };
    json.key("location").begin_object().key(name).begin_object();
    json.key(index).number(location.index).key("start").number(location.start);
    json.key("end").number(location.end).end_object().end_object();
}
