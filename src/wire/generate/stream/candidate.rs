//! A candidate as it stands in a frame, read in one go: its index stands behind its content, and events need it first.

use smallvec::SmallVec;

use super::fast_path::Said;
use crate::canonical::answer::FinishOwned;
use crate::json::{Cursor, JsonError, JsonStr, Kind, RawJson};
use crate::wire::generate::{finish, watch};
use crate::wire::watch::{elements, members};

/// What a frame says of a candidate.
#[derive(Default)]
pub(super) struct Candidate<'a> {
    pub(super) index: u32,
    pub(super) parts: SmallVec<[Part<'a>; 4]>,
    pub(super) finish: Option<FinishOwned>,
    pub(super) grounding: Option<RawJson<'a>>,
    pub(super) logprobs: Option<RawJson<'a>>,
}

impl<'a> Candidate<'a> {
    /// Its text, if it has nothing else.
    pub(super) fn only_text(&self) -> Option<(Said, JsonStr<'a>)> {
        let [part] = self.parts.as_slice() else { return None };
        let Data::Text(text) = part.data else { return None };
        let more = self.finish.is_some() || self.grounding.is_some() || self.logprobs.is_some();
        let said = Said { choice: self.index, thought: part.thought };
        (!more && part.signature.is_empty() && !text.is_empty()).then_some((said, text))
    }
}

/// A part: one kind of data, and its modifiers.
#[derive(Clone, Copy, Default)]
pub(super) struct Part<'a> {
    pub(super) data: Data<'a>,
    pub(super) thought: bool,
    pub(super) signature: JsonStr<'a>,
}

#[derive(Clone, Copy, Default)]
pub(super) enum Data<'a> {
    /// Nothing but modifiers, or not even these.
    #[default]
    None,
    Text(JsonStr<'a>),
    Call(Call<'a>),
    Inline {
        mime: JsonStr<'a>,
        data: JsonStr<'a>,
    },
    File {
        mime: JsonStr<'a>,
        uri: JsonStr<'a>,
    },
    /// What no other format knows; the whole part.
    Other {
        name: JsonStr<'a>,
        raw: RawJson<'a>,
    },
}

/// A `functionCall`.
#[derive(Clone, Copy, Default)]
pub(super) struct Call<'a> {
    pub(super) id: JsonStr<'a>,
    pub(super) name: JsonStr<'a>,
    pub(super) args: Option<RawJson<'a>>,
    pub(super) partial: Option<RawJson<'a>>,
    pub(super) will_continue: bool,
}

/// Reads one candidate.
pub(super) fn read<'a>(json: &mut Cursor<'a>) -> Result<Candidate<'a>, JsonError> {
    let mut candidate = Candidate::default();
    members(json, |key, json| {
        match key.escaped() {
            "content" => members(json, |key, json| match key.escaped() {
                "parts" => elements(json, |json| {
                    candidate.parts.push(part(json)?);
                    Ok(())
                })
                .map(|_| ()),
                _ => json.skip(),
            })?,
            "index" => candidate.index = json.u64_or_skip()?.and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            "finishReason" | "finish_reason" => {
                candidate.finish = watch::reason(json.raw()?).map(finish::read);
            }
            "groundingMetadata" | "grounding_metadata" => candidate.grounding = object(json)?,
            "logprobsResult" | "logprobs_result" => candidate.logprobs = object(json)?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    Ok(candidate)
}

/// An object, if it is one.
fn object<'a>(json: &mut Cursor<'a>) -> Result<Option<RawJson<'a>>, JsonError> {
    Ok(Some(json.raw()?).filter(|value| value.text().starts_with('{')))
}

fn string<'a>(json: &mut Cursor<'a>) -> Result<JsonStr<'a>, JsonError> {
    Ok(json.raw()?.as_str().unwrap_or_default())
}

fn part<'a>(json: &mut Cursor<'a>) -> Result<Part<'a>, JsonError> {
    let mut whole = json.clone();
    let mut part = Part::default();
    members(json, |key, json| {
        match key.escaped() {
            "text" => {
                if let Some(text) = json.raw()?.as_str() {
                    part.data = Data::Text(text);
                }
            }
            "thought" => part.thought = json.raw()?.as_bool() == Some(true),
            "thoughtSignature" | "thought_signature" => part.signature = string(json)?,
            "functionCall" | "function_call" => part.data = Data::Call(call(json)?),
            "inlineData" | "inline_data" => {
                let (mime, data) = blob(json)?;
                part.data = Data::Inline { mime, data };
            }
            "fileData" | "file_data" => {
                let (mime, uri) = blob(json)?;
                part.data = Data::File { mime, uri };
            }
            "videoMetadata" | "video_metadata" | "mediaResolution" | "media_resolution" | "partMetadata"
            | "part_metadata" => json.skip()?,
            _ => {
                if json.kind()? == Kind::Object && matches!(part.data, Data::None) {
                    part.data = Data::Other { name: key, raw: RawJson::NULL };
                }
                json.skip()?;
            }
        }
        Ok(())
    })?;
    if let Data::Other { raw, .. } = &mut part.data {
        // Rare, so that it may be read twice.
        *raw = whole.raw()?;
    }
    Ok(part)
}

fn call<'a>(json: &mut Cursor<'a>) -> Result<Call<'a>, JsonError> {
    let mut call = Call::default();
    members(json, |key, json| {
        match key.escaped() {
            "id" => call.id = string(json)?,
            "name" => call.name = string(json)?,
            "args" => call.args = Some(json.raw()?).filter(|args| !args.is_null()),
            "partialArgs" | "partial_args" => call.partial = Some(json.raw()?),
            "willContinue" | "will_continue" => call.will_continue = json.raw()?.as_bool() == Some(true),
            _ => json.skip()?,
        }
        Ok(())
    })?;
    Ok(call)
}

/// The media type, and the bytes or the address.
fn blob<'a>(json: &mut Cursor<'a>) -> Result<(JsonStr<'a>, JsonStr<'a>), JsonError> {
    let (mut mime, mut data) = (JsonStr::default(), JsonStr::default());
    members(json, |key, json| {
        match key.escaped() {
            "mimeType" | "mime_type" => mime = string(json)?,
            "data" | "fileUri" | "file_uri" => data = string(json)?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    Ok((mime, data))
}
