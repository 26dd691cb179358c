//! Members of a frame, an item, a part or a response object. Each is read in one pass; nested values are not parsed.

use crate::canonical::ServiceTier;
use crate::wire::tier_words::TierWords;
use crate::wire::watch::members;
use json::{Cursor, JsonError, JsonStr, RawJson};

/// Members of one event.
#[derive(Default)]
pub(super) struct EventMembers<'a> {
    pub kind: JsonStr<'a>,
    /// Value of `sequence_number`.
    pub number: Option<RawJson<'a>>,
    pub output: Option<u64>,
    pub content: Option<u64>,
    pub summary: Option<u64>,
    pub delta: JsonStr<'a>,
    pub logprobs: Option<RawJson<'a>>,
    /// Whole text, refusal, arguments or input, in a `done` event.
    pub whole: JsonStr<'a>,
    pub name: JsonStr<'a>,
    pub item: Option<RawJson<'a>>,
    pub part: Option<RawJson<'a>>,
    pub annotation: Option<RawJson<'a>>,
    pub response: Option<RawJson<'a>>,
    pub error: Option<RawJson<'a>>,
    pub code: Option<RawJson<'a>>,
    pub message: Option<RawJson<'a>>,
    pub param: Option<RawJson<'a>>,
    /// Value of `obfuscation`: padding that gives all frames the same length.
    pub padding: JsonStr<'a>,
}

impl<'a> EventMembers<'a> {
    #[inline]
    pub(super) fn read(data: &'a str) -> Result<Self, JsonError> {
        let mut frame = EventMembers::default();
        let mut json = Cursor::new(data);
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match key.escaped() {
                "type" => frame.kind = text(&mut json)?,
                "output_index" => frame.output = json.u64_or_skip()?,
                "content_index" => frame.content = json.u64_or_skip()?,
                "summary_index" => frame.summary = json.u64_or_skip()?,
                "delta" => frame.delta = text(&mut json)?,
                "logprobs" => frame.logprobs = Some(json.raw()?).filter(is_filled),
                "text" | "refusal" | "arguments" | "input" => frame.whole = text(&mut json)?,
                "name" => frame.name = text(&mut json)?,
                "item" => frame.item = object(&mut json)?,
                "part" => frame.part = object(&mut json)?,
                "annotation" => frame.annotation = object(&mut json)?,
                "response" => frame.response = object(&mut json)?,
                "error" => frame.error = present(&mut json)?,
                "code" => frame.code = present(&mut json)?,
                "message" => frame.message = present(&mut json)?,
                "param" => frame.param = present(&mut json)?,
                "sequence_number" => frame.number = Some(json.raw()?),
                "obfuscation" => frame.padding = text(&mut json)?,
                _ => json.skip()?,
            }
        }
        Ok(frame)
    }
}

/// Members of one item of an output.
#[derive(Default)]
pub(super) struct ItemMembers<'a> {
    pub kind: JsonStr<'a>,
    pub id: JsonStr<'a>,
    pub call_id: JsonStr<'a>,
    pub name: JsonStr<'a>,
    pub namespace: JsonStr<'a>,
    /// Arguments of a function as text, or the input of a custom tool.
    pub input: JsonStr<'a>,
    /// Arguments of a function as an object, which some providers send.
    pub object: Option<RawJson<'a>>,
    pub content: Option<RawJson<'a>>,
    pub summary: Option<RawJson<'a>>,
    pub encrypted: JsonStr<'a>,
    pub result: JsonStr<'a>,
    pub output_format: JsonStr<'a>,
}

impl<'a> ItemMembers<'a> {
    pub(super) fn read(raw: RawJson<'a>) -> Result<Self, JsonError> {
        let mut item = ItemMembers::default();
        members(&mut Cursor::new(raw.text()), |key, json| {
            match key.escaped() {
                "type" => item.kind = text(json)?,
                "id" => item.id = text(json)?,
                "call_id" => item.call_id = text(json)?,
                "name" => item.name = text(json)?,
                "namespace" => item.namespace = text(json)?,
                "arguments" | "input" => {
                    let value = json.raw()?;
                    item.input = value.as_str().unwrap_or_default();
                    item.object = Some(value).filter(|value| value.text().starts_with('{'));
                }
                "content" => item.content = list(json)?,
                "summary" => item.summary = list(json)?,
                "encrypted_content" => item.encrypted = text(json)?,
                "result" => item.result = text(json)?,
                "output_format" => item.output_format = text(json)?,
                _ => json.skip()?,
            }
            Ok(())
        })?;
        Ok(item)
    }
}

/// Members of one part of a message or of reasoning.
#[derive(Default)]
pub(super) struct PartMembers<'a> {
    pub kind: JsonStr<'a>,
    /// Text, or the text of a refusal.
    pub text: JsonStr<'a>,
    pub annotations: Option<RawJson<'a>>,
    pub logprobs: Option<RawJson<'a>>,
}

impl<'a> PartMembers<'a> {
    pub(super) fn read(raw: RawJson<'a>) -> Result<Self, JsonError> {
        let mut part = PartMembers::default();
        members(&mut Cursor::new(raw.text()), |key, json| {
            match key.escaped() {
                "type" => part.kind = text(json)?,
                "text" | "refusal" => part.text = text(json)?,
                "annotations" => part.annotations = list(json)?,
                "logprobs" => part.logprobs = Some(json.raw()?).filter(is_filled),
                _ => json.skip()?,
            }
            Ok(())
        })?;
        Ok(part)
    }

    /// Returns whether it is a part of a message.
    pub(super) fn is_known(&self) -> bool {
        matches!(self.kind.escaped(), "output_text" | "text" | "refusal")
    }
}

/// Members of a response object.
#[derive(Default)]
pub(super) struct Response<'a> {
    pub id: JsonStr<'a>,
    pub model: JsonStr<'a>,
    pub created: Option<u64>,
    pub status: JsonStr<'a>,
    pub reason: JsonStr<'a>,
    pub error: Option<RawJson<'a>>,
    pub usage: Option<RawJson<'a>>,
    pub tier: Option<ServiceTier>,
    pub output: Option<RawJson<'a>>,
    pub is_response: bool,
    pub code: Option<RawJson<'a>>,
    pub message: Option<RawJson<'a>>,
    pub param: Option<RawJson<'a>>,
}

impl<'a> Response<'a> {
    pub(super) fn read(raw: RawJson<'a>) -> Result<Self, JsonError> {
        let mut response = Response::default();
        let mut json = Cursor::new(raw.text());
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match key.escaped() {
                "id" => response.id = text(&mut json)?,
                "model" => response.model = text(&mut json)?,
                "created_at" => response.created = seconds(json.raw()?),
                "object" => response.is_response = text(&mut json)?.is("response"),
                "status" => response.status = text(&mut json)?,
                "incomplete_details" => members(&mut json, |key, json| {
                    match key.escaped() {
                        "reason" => response.reason = text(json)?,
                        _ => json.skip()?,
                    }
                    Ok(())
                })?,
                "error" => response.error = present(&mut json)?,
                "usage" => response.usage = object(&mut json)?,
                "service_tier" => {
                    response.tier = json.raw()?.as_str().and_then(|word| TierWords::OpenAi.told(word));
                }
                "output" => response.output = list(&mut json)?,
                "code" => response.code = present(&mut json)?,
                "message" => response.message = present(&mut json)?,
                "param" => response.param = present(&mut json)?,
                _ => json.skip()?,
            }
        }
        json.end()?;
        Ok(response)
    }
}

/// Members of a URL citation.
#[derive(Default)]
pub(super) struct Annotation<'a> {
    pub url: JsonStr<'a>,
    pub title: JsonStr<'a>,
    pub start: Option<u64>,
    pub end: Option<u64>,
}

impl<'a> Annotation<'a> {
    pub(super) fn read(raw: RawJson<'a>) -> Result<Self, JsonError> {
        let mut annotation = Annotation::default();
        members(&mut Cursor::new(raw.text()), |key, json| {
            match key.escaped() {
                "url" => annotation.url = text(json)?,
                "title" => annotation.title = text(json)?,
                "start_index" => annotation.start = json.u64_or_skip()?,
                "end_index" => annotation.end = json.u64_or_skip()?,
                _ => json.skip()?,
            }
            Ok(())
        })?;
        Ok(annotation)
    }
}

/// Reads a string. Any other value is skipped and gives an empty string.
#[inline]
fn text<'a>(json: &mut Cursor<'a>) -> Result<JsonStr<'a>, JsonError> {
    Ok(json.raw()?.as_str().unwrap_or_default())
}

fn object<'a>(json: &mut Cursor<'a>) -> Result<Option<RawJson<'a>>, JsonError> {
    Ok(Some(json.raw()?).filter(|value| value.text().starts_with('{')))
}

fn list<'a>(json: &mut Cursor<'a>) -> Result<Option<RawJson<'a>>, JsonError> {
    Ok(Some(json.raw()?).filter(|value| value.text().starts_with('[')))
}

fn present<'a>(json: &mut Cursor<'a>) -> Result<Option<RawJson<'a>>, JsonError> {
    Ok(Some(json.raw()?).filter(|value| !value.is_null()))
}

fn is_filled(value: &RawJson<'_>) -> bool {
    value.text().strip_prefix('[').is_some_and(|rest| !rest.trim_start().starts_with(']'))
}

/// Reads Unix seconds. Some providers write them with a fraction, which is dropped.
fn seconds(value: RawJson<'_>) -> Option<u64> {
    value.as_u64().or_else(|| value.text().split_once('.')?.0.parse().ok())
}
