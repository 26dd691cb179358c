//! Grounding: the sources that support passages of a response.

use bytes::BytesMut;

use super::offsets::Offsets;
use crate::canonical::{Citation, Index, IndexKey};
use crate::wire::watch::{elements, members};
use json::{Cursor, JsonError, JsonStr, RawJson, Writer};

/// Maximum number of sources that are read; real responses have a few dozen.
const MAX_SOURCES: usize = 1_000;

/// Reads `groundingMetadata` as citations: one for each source of each supported passage, or one for each source if
/// there are no passages. Sources other than web pages are left out, because their addresses are of no value to a
/// client.
pub(super) fn read<'a>(
    metadata: RawJson<'a>,
    offsets: &Offsets,
    each: &mut impl FnMut(Citation<'a>),
) -> Result<(), JsonError> {
    let (mut chunks, mut supports) = (RawJson::NULL, RawJson::NULL);
    members(&mut Cursor::new(metadata.text()), |key, json| {
        match key.escaped() {
            "groundingChunks" | "grounding_chunks" => chunks = json.raw()?,
            "groundingSupports" | "grounding_supports" => supports = json.raw()?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    let sources = read_chunks(chunks)?;
    let mut any = false;
    elements(&mut Cursor::new(supports.text()), |json| {
        let support = read_support(json)?;
        let span = support.end.map(|end| (offsets.char_of(support.start), offsets.char_of(end)));
        elements(&mut Cursor::new(support.indices.text()), |json| {
            let index = json.u64_or_skip()?.and_then(|index| usize::try_from(index).ok());
            if let Some(Some(source)) = index.and_then(|index| sources.get(index)) {
                any = true;
                each(Citation { span, ..*source });
            }
            Ok(())
        })?;
        Ok(())
    })?;
    if !any && supports.is_null() {
        sources.into_iter().flatten().for_each(each);
    }
    Ok(())
}

/// Returns the sources by index; `None` for a source that is not a web page.
fn read_chunks(chunks: RawJson<'_>) -> Result<Vec<Option<Citation<'_>>>, JsonError> {
    let mut sources = Vec::new();
    elements(&mut Cursor::new(chunks.text()), |json| {
        let mut source = Citation::default();
        members(json, |key, json| match key.escaped() {
            "web" => members(json, |key, json| {
                let value = json.raw()?.as_str().unwrap_or_default();
                match key.escaped() {
                    "uri" => source.url = value,
                    "title" => source.title = value,
                    _ => {}
                }
                Ok(())
            }),
            _ => json.skip(),
        })?;
        if sources.len() < MAX_SOURCES {
            sources.push((!source.url.is_empty()).then_some(source));
        }
        Ok(())
    })?;
    Ok(sources)
}

struct Support<'a> {
    start: u64,
    end: Option<u64>,
    indices: RawJson<'a>,
}

fn read_support<'a>(json: &mut Cursor<'a>) -> Result<Support<'a>, JsonError> {
    let mut support = Support { start: 0, end: None, indices: RawJson::NULL };
    members(json, |key, json| {
        match key.escaped() {
            "segment" => members(json, |key, json| {
                match key.escaped() {
                    // Proto JSON omits zero.
                    "startIndex" | "start_index" => support.start = json.u64_or_skip()?.unwrap_or(0),
                    "endIndex" | "end_index" => support.end = json.u64_or_skip()?,
                    _ => json.skip()?,
                }
                Ok(())
            })?,
            "groundingChunkIndices" | "grounding_chunk_indices" => support.indices = json.raw()?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    Ok(support)
}

/// Citations of one choice, to be written as grounding.
#[derive(Clone, Debug, Default)]
pub(super) struct Grounding {
    sources: Vec<(String, String)>,
    /// Index in `sources` by URL and title.
    known: Index,
    /// Number of passages whose span is final.
    settled: usize,
    /// Span in characters of the choice's text, and index of the source.
    passages: Vec<(Option<(u64, u64)>, usize)>,
}

impl Grounding {
    /// Adds a citation. One without an address is left out: sources of grounding are web pages.
    pub(super) fn add(&mut self, citation: Citation<'_>) {
        let (url, title) = (citation.url.escaped(), citation.title.escaped());
        if url.is_empty() {
            return;
        }
        let key = IndexKey::of((url, title));
        let source = self.known.first(key).unwrap_or_else(|| {
            self.known.push(key);
            self.sources.push((url.to_owned(), title.to_owned()));
            self.sources.len() - 1
        });
        self.passages.push((citation.span, source));
    }

    /// Completes a block: its citations without a span get the span of the whole block, in characters.
    pub(super) fn complete_block(&mut self, start: u64, end: u64) {
        for (span, _) in self.passages.iter_mut().skip(self.settled) {
            span.get_or_insert((start, end));
        }
        self.settled = self.passages.len();
    }

    /// Writes `"groundingMetadata":{...}` as a member, with positions in bytes. Writes nothing if there are no
    /// sources.
    pub(super) fn write(&self, offsets: &Offsets, json: &mut Writer<'_, BytesMut>) {
        if self.sources.is_empty() {
            return;
        }
        json.key("groundingMetadata").begin_object();
        json.key("groundingChunks").begin_array();
        for (url, title) in &self.sources {
            json.begin_object().key("web").begin_object();
            json.key("uri").paste(JsonStr::from_escaped(url));
            json.key("title").paste(JsonStr::from_escaped(title));
            json.end_object().end_object();
        }
        json.end_array();
        json.key("groundingSupports").begin_array();
        for (span, source) in &self.passages {
            let (start, end) = span.unwrap_or_default();
            json.begin_object().key("segment").begin_object();
            json.key("startIndex").number(offsets.byte_of(start));
            json.key("endIndex").number(offsets.byte_of(end));
            json.end_object();
            json.key("groundingChunkIndices").begin_array().number(*source as u64).end_array();
            json.end_object();
        }
        json.end_array().end_object();
    }
}
