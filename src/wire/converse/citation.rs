//! Citations of the Converse format.

use bytes::BufMut;

use crate::canonical::Citation;
use crate::canonical::answer::CitationOwned;
use crate::json::{Cursor, JsonError, RawJson, Writer};
use crate::wire::watch::{elements, members};

/// Reads a citation. Its source may be a page of the web or a place in a document; only the first has an address.
pub(super) fn read(value: RawJson<'_>) -> Result<CitationOwned, JsonError> {
    let mut citation = CitationOwned::default();
    members(&mut Cursor::new(value.text()), |key, json| {
        match key.escaped() {
            "title" => set(&mut citation.title, json.raw()?),
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
            "location" => members(json, |key, json| {
                if !key.is("web") {
                    return json.skip();
                }
                members(json, |key, json| {
                    let value = json.raw()?;
                    if key.is("url") {
                        set(&mut citation.url, value);
                    }
                    Ok(())
                })
            })?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    Ok(citation)
}

fn set(slot: &mut String, value: RawJson<'_>) {
    if let Some(text) = value.as_str() {
        text.escaped().clone_into(slot);
    }
}

/// Writes a citation.
pub(super) fn write<B: BufMut>(citation: &Citation<'_>, json: &mut Writer<'_, B>) {
    json.begin_object();
    if !citation.title.is_empty() {
        json.key("title").paste(citation.title);
    }
    if !citation.quote.is_empty() {
        json.key("sourceContent").begin_array();
        json.begin_object().key("text").paste(citation.quote).end_object().end_array();
    }
    if !citation.url.is_empty() {
        json.key("location").begin_object().key("web").begin_object();
        json.key("url").paste(citation.url).end_object().end_object();
    }
    json.end_object();
}
