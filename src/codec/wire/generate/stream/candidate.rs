//! Candidate of a frame, read in one pass before any event is emitted: the events need its index, which follows its
//! content.

use smallvec::SmallVec;

use super::fast_path::TemplateFacts;
use crate::canonical::answer::FinishOwned;
use crate::wire::Format;
use crate::wire::finish_words::{self, BrokenOff};
use crate::wire::generate::watch;
use crate::wire::watch::{elements, members};
use json::{Cursor, JsonError, JsonStr, RawJson, ValueKind};

/// Contents of a candidate in one frame.
#[derive(Default)]
pub(super) struct Candidate<'a> {
    pub(super) index: u32,
    pub(super) parts: SmallVec<[CandidatePart<'a>; 4]>,
    /// Its finish reason, or the end of a response that broke off. The format has no word for tool calls: they end with
    /// `STOP`, and the decoder recognizes them by their parts.
    pub(super) finish: Option<Result<FinishOwned, BrokenOff>>,
    pub(super) grounding: Option<RawJson<'a>>,
    pub(super) logprobs: Option<RawJson<'a>>,
}

impl<'a> Candidate<'a> {
    /// Returns the text of the candidate; `None` if it has anything else.
    pub(super) fn only_text(&self) -> Option<(TemplateFacts, JsonStr<'a>)> {
        let [part] = self.parts.as_slice() else { return None };
        let Data::Text(text) = part.data else { return None };
        let more = self.finish.is_some() || self.grounding.is_some() || self.logprobs.is_some();
        let said = TemplateFacts { choice: self.index, is_reasoning: part.is_reasoning };
        (!more && part.signature.is_empty() && !text.is_empty()).then_some((said, text))
    }
}

/// Part: one kind of data, and its modifiers.
#[derive(Clone, Copy, Default)]
pub(super) struct CandidatePart<'a> {
    pub(super) data: Data<'a>,
    pub(super) is_reasoning: bool,
    pub(super) signature: JsonStr<'a>,
}

#[derive(Clone, Copy, Default)]
pub(super) enum Data<'a> {
    /// No data, with or without modifiers.
    #[default]
    None,
    Text(JsonStr<'a>),
    Call(CandidateCall<'a>),
    Inline {
        mime: JsonStr<'a>,
        data: JsonStr<'a>,
    },
    File {
        mime: JsonStr<'a>,
        uri: JsonStr<'a>,
    },
    /// Part that only this format has, as a whole.
    Other {
        name: JsonStr<'a>,
        raw: RawJson<'a>,
    },
}

#[derive(Clone, Copy, Default)]
pub(super) struct CandidateCall<'a> {
    pub(super) id: JsonStr<'a>,
    pub(super) name: JsonStr<'a>,
    pub(super) args: Option<RawJson<'a>>,
    pub(super) partial: Option<RawJson<'a>>,
    pub(super) will_continue: bool,
}

/// Reads one candidate.
pub(super) fn read<'a>(json: &mut Cursor<'a>) -> Result<Candidate<'a>, JsonError> {
    let mut candidate = Candidate::default();
    let (mut word, mut reason) = (None, JsonStr::default());
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
                word = watch::reason(json.raw()?);
            }
            "finishMessage" | "finish_message" => reason = string(json)?,
            "groundingMetadata" | "grounding_metadata" => candidate.grounding = object(json)?,
            "logprobsResult" | "logprobs_result" => candidate.logprobs = object(json)?,
            _ => json.skip()?,
        }
        Ok(())
    })?;
    candidate.finish = word.map(|word| {
        finish_words::decode(Format::Generate, word, None, false).map_err(|broken| broken.because(reason))
    });
    Ok(candidate)
}

/// Reads an object; `None` for any other value.
fn object<'a>(json: &mut Cursor<'a>) -> Result<Option<RawJson<'a>>, JsonError> {
    Ok(Some(json.raw()?).filter(|value| value.text().starts_with('{')))
}

fn string<'a>(json: &mut Cursor<'a>) -> Result<JsonStr<'a>, JsonError> {
    Ok(json.raw()?.as_str().unwrap_or_default())
}

fn part<'a>(json: &mut Cursor<'a>) -> Result<CandidatePart<'a>, JsonError> {
    let mut whole = json.clone();
    let mut part = CandidatePart::default();
    members(json, |key, json| {
        match key.escaped() {
            "text" => {
                if let Some(text) = json.raw()?.as_str() {
                    part.data = Data::Text(text);
                }
            }
            "thought" => part.is_reasoning = json.raw()?.as_bool() == Some(true),
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
                // An unknown object is the data of a part of a new kind; unknown scalars are modifiers.
                if json.kind()? == ValueKind::Object && matches!(part.data, Data::None) {
                    part.data = Data::Other { name: key, raw: RawJson::NULL };
                }
                json.skip()?;
            }
        }
        Ok(())
    })?;
    if let Data::Other { raw, .. } = &mut part.data {
        // These parts are rare, so reading the part again costs little.
        *raw = whole.raw()?;
    }
    Ok(part)
}

fn call<'a>(json: &mut Cursor<'a>) -> Result<CandidateCall<'a>, JsonError> {
    let mut call = CandidateCall::default();
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

/// Reads `inlineData` or `fileData`: the media type, and the base64 data or the URI.
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
