//! Parsed choice of a chunk. Its members may come in any order, so all are collected before any is interpreted.

use crate::canonical::Citation;
use crate::wire::watch::members;
use json::{Cursor, JsonError, JsonStr, RawJson};

/// Members of one choice in one chunk.
#[derive(Debug, Default)]
pub(super) struct ChoiceMembers<'a> {
    pub(super) index: u32,
    pub(super) delta: Option<DeltaMembers<'a>>,
    pub(super) message: Option<RawJson<'a>>,
    pub(super) logprobs: Option<RawJson<'a>>,
    pub(super) finish: JsonStr<'a>,
    pub(super) sequence: JsonStr<'a>,
}

/// Members of a `delta` or of a `message`. `None` where absent or null.
#[derive(Debug, Default)]
pub(super) struct DeltaMembers<'a> {
    pub(super) content: Option<RawJson<'a>>,
    pub(super) reasoning_content: Option<RawJson<'a>>,
    pub(super) reasoning: Option<RawJson<'a>>,
    pub(super) details: Option<RawJson<'a>>,
    pub(super) refusal: Option<RawJson<'a>>,
    pub(super) calls: Option<RawJson<'a>>,
    pub(super) legacy: Option<RawJson<'a>>,
    pub(super) images: Option<RawJson<'a>>,
    pub(super) audio: Option<RawJson<'a>>,
    pub(super) annotations: Option<RawJson<'a>>,
    pub(super) extra: Option<RawJson<'a>>,
}

impl<'a> DeltaMembers<'a> {
    pub(super) fn read(json: &mut Cursor<'a>) -> Result<Self, JsonError> {
        let mut words = DeltaMembers::default();
        members(json, |key, json| {
            let slot = match key.escaped() {
                "content" => &mut words.content,
                "reasoning_content" => &mut words.reasoning_content,
                "reasoning" => &mut words.reasoning,
                "reasoning_details" => &mut words.details,
                "refusal" => &mut words.refusal,
                "tool_calls" => &mut words.calls,
                "function_call" => &mut words.legacy,
                "images" => &mut words.images,
                "audio" => &mut words.audio,
                "annotations" => &mut words.annotations,
                "extra_content" => &mut words.extra,
                _ => return json.skip(),
            };
            let value = json.raw()?;
            if !value.is_null() {
                *slot = Some(value);
            }
            Ok(())
        })?;
        Ok(words)
    }
}

/// Reads a citation: `{"type":"url_citation","url_citation":{...}}`, or the same without the inner object.
pub(super) fn read_citation<'a>(value: RawJson<'a>, citation: &mut Citation<'a>) -> Result<(), JsonError> {
    if let Some(inner) = citation_members(value, citation)? {
        citation_members(inner, citation)?;
    }
    Ok(())
}

/// Reads the members of a citation. Returns its inner object, if it has one.
fn citation_members<'a>(
    value: RawJson<'a>,
    citation: &mut Citation<'a>,
) -> Result<Option<RawJson<'a>>, JsonError> {
    let (mut start, mut end) = (None, None);
    let mut inner = None;
    members(&mut Cursor::new(value.text()), |key, json| {
        let value = json.raw()?;
        match key.escaped() {
            "url_citation" => inner = Some(value),
            "url" => citation.url = value.as_str().unwrap_or_default(),
            "title" => citation.title = value.as_str().unwrap_or_default(),
            "content" => citation.quote = value.as_str().unwrap_or_default(),
            "start_index" => start = value.as_u64(),
            "end_index" => end = value.as_u64(),
            _ => {}
        }
        Ok(())
    })?;
    if let (Some(start), Some(end)) = (start, end) {
        citation.span = (start < end).then_some((start, end));
    }
    Ok(inner)
}
