//! Upstream image responses of all providers: images, a task, or a refusal.

use bytes::Bytes;

use crate::canonical::Usage;
use json::{Cursor, JsonError, JsonStr, RawJson, ValueKind};

/// Parsed upstream response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageAnswer {
    /// Images in response order.
    pub images: Vec<Image>,
    /// Usage, as far as the provider reports it.
    pub usage: Usage,
    /// Refusals, each of one image or of the whole request: code and message.
    pub refusals: Vec<(String, String)>,
    /// The body of a 200 response is an error object.
    pub failed: bool,
    /// Task to poll for the images.
    pub task: Option<ImageTask>,
    /// Size of the images, if the provider reports it.
    pub size: Option<String>,
    /// Quality of the images, if the provider reports it.
    pub quality: Option<String>,
}

/// Image of a response.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Location of the image.
    pub location: ImageLocation,
    /// Prompt as the provider rewrote it.
    pub revised: Option<String>,
}

/// Location of an image.
#[derive(Clone, Debug, PartialEq)]
pub enum ImageLocation {
    /// URL.
    Link(String),
    /// Base64, a slice of the response body.
    Base64(Bytes),
}

/// Asynchronous task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageTask {
    /// Task id at the provider.
    pub id: String,
    /// Task state.
    pub state: ImageTaskState,
}

/// Task state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageTaskState {
    /// Queued or running.
    Open,
    /// Succeeded.
    Done,
    /// Failed, canceled or unknown; there will be no images.
    Failed,
}

/// Error for a response that is not JSON, or has neither images, a task, refusals nor an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response contains no images")]
pub struct BrokenImageAnswer;

impl From<JsonError> for BrokenImageAnswer {
    fn from(_: JsonError) -> Self {
        BrokenImageAnswer
    }
}

/// Parses a response.
///
/// # Errors
/// Returns [`BrokenImageAnswer`] if the body is not JSON, or not a response to an images request.
pub fn decode(body: &Bytes) -> Result<ImageAnswer, BrokenImageAnswer> {
    let text = json::from_utf8(body).map_err(|_| BrokenImageAnswer)?;
    let mut reader = Reader { body, answer: ImageAnswer::default(), code: None, message: None };
    let mut json = Cursor::new(text);
    reader.object(&mut json, true)?;
    json.end()?;
    let Reader { mut answer, code, message, .. } = reader;
    if let Some(task) = &mut answer.task
        && task.state == ImageTaskState::Failed
    {
        let message = message.unwrap_or_else(|| "The task failed.".to_owned());
        answer.refusals.push((code.unwrap_or_default(), message));
        return Ok(answer);
    }
    // DashScope's errors have `code` and `message` at the top level, not in an `error` object.
    answer.failed |= code.is_some() && answer.images.is_empty() && answer.task.is_none();
    let empty = answer.images.is_empty() && answer.refusals.is_empty();
    if empty && answer.task.is_none() && !answer.failed { Err(BrokenImageAnswer) } else { Ok(answer) }
}

struct Reader<'b> {
    body: &'b Bytes,
    answer: ImageAnswer,
    code: Option<String>,
    message: Option<String>,
}

fn text_of(value: RawJson<'_>) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(|text| text.decode().into_owned())
}

fn members<'a>(
    value: RawJson<'a>,
    mut each: impl FnMut(&str, RawJson<'a>) -> Result<(), BrokenImageAnswer>,
) -> Result<(), BrokenImageAnswer> {
    if !value.text().starts_with('{') {
        return Ok(());
    }
    let mut json = Cursor::new(value.text());
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        let value = json.raw()?;
        each(key.escaped(), value)?;
    }
    Ok(())
}

fn elements<'a>(
    value: RawJson<'a>,
    mut each: impl FnMut(RawJson<'a>) -> Result<(), BrokenImageAnswer>,
) -> Result<(), BrokenImageAnswer> {
    if !value.text().starts_with('[') {
        return Ok(());
    }
    let mut json = Cursor::new(value.text());
    json.begin_array()?;
    while json.next_element()? {
        each(json.raw()?)?;
    }
    Ok(())
}

impl Reader<'_> {
    /// Reads the outermost object, and DashScope's `output` object within it. A deeper `output` is skipped: no provider
    /// has one, and each level would be scanned once more.
    fn object(&mut self, json: &mut Cursor<'_>, outermost: bool) -> Result<(), BrokenImageAnswer> {
        if json.kind()? != ValueKind::Object {
            return Err(BrokenImageAnswer);
        }
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            let value = json.raw()?;
            match key.escaped() {
                "data" | "results" => elements(value, |item| self.item(item))?,
                "predictions" => elements(value, |item| self.item(item))?,
                "candidates" => elements(value, |item| self.candidate(item))?,
                "choices" => elements(value, |item| self.choice(item))?,
                "output" if outermost && value.text().starts_with('{') => {
                    self.object(&mut Cursor::new(value.text()), false)?;
                }
                "usage" | "usageMetadata" => usage(value, &mut self.answer.usage)?,
                "promptFeedback" => members(value, |key, value| {
                    if key == "blockReason" {
                        self.refuse(text_of(value), "The prompt was blocked");
                    }
                    Ok(())
                })?,
                "size" => self.answer.size = text_of(value),
                "quality" => self.answer.quality = text_of(value),
                "task_id" => {
                    if let Some(id) = text_of(value) {
                        self.task().id = id;
                    }
                }
                "task_status" => {
                    self.task().state = match text_of(value).as_deref() {
                        Some("SUCCEEDED") => ImageTaskState::Done,
                        Some("FAILED" | "CANCELED" | "UNKNOWN") => ImageTaskState::Failed,
                        _ => ImageTaskState::Open,
                    };
                }
                "error" => self.answer.failed |= !value.is_void(),
                "code" => self.code = text_of(value).or(self.code.take()),
                "message" => self.message = text_of(value).or(self.message.take()),
                _ => {}
            }
        }
        Ok(())
    }

    fn task(&mut self) -> &mut ImageTask {
        self.answer.task.get_or_insert(ImageTask { id: String::new(), state: ImageTaskState::Open })
    }

    fn refuse(&mut self, reason: Option<String>, told: &str) {
        let reason = reason.unwrap_or_default();
        let message = if reason.is_empty() { format!("{told}.") } else { format!("{told}: {reason}.") };
        self.answer.refusals.push((reason, message));
    }

    /// Returns the place of a base64 image as a slice of the body: images are the largest part of a response and must
    /// not be copied.
    fn base64(&self, text: JsonStr<'_>) -> Result<Option<ImageLocation>, BrokenImageAnswer> {
        if text.is_empty() {
            return Ok(None);
        }
        let bytes = if text.escaped().contains('\\') {
            Bytes::from(text.decode().into_owned())
        } else {
            self.body.slice_ref(text.escaped().as_bytes())
        };
        // The text is pasted unescaped into the gateway's own JSON, so it must not contain quotes or backslashes. The
        // check for standard base64 is vectorized; the slow check also admits URL-safe text.
        let sound = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=-_".contains(byte);
        let is_sound = base64_simd::STANDARD.check(&bytes).is_ok() || bytes.iter().all(sound);
        if is_sound { Ok(Some(ImageLocation::Base64(bytes))) } else { Err(BrokenImageAnswer) }
    }

    /// Reads one element of a list: an image, or the reason why it was not made.
    fn item(&mut self, value: RawJson<'_>) -> Result<(), BrokenImageAnswer> {
        let (mut link, mut here, mut revised) = (None, None, None);
        let (mut code, mut message) = (None, None);
        let mut size = None;
        members(value, |key, value| {
            match key {
                "b64_json" | "bytesBase64Encoded" => {
                    here =
                        value.as_str().map(|text| self.base64(text)).transpose()?.flatten().or(here.take());
                }
                "url" => link = text_of(value).map(ImageLocation::Link),
                "revised_prompt" | "actual_prompt" => revised = text_of(value),
                "size" => size = text_of(value),
                "code" => code = text_of(value),
                "message" | "raiFilteredReason" => message = text_of(value),
                "error" => members(value, |key, value| {
                    match key {
                        "code" => code = text_of(value),
                        "message" => message = text_of(value),
                        _ => {}
                    }
                    Ok(())
                })?,
                _ => {}
            }
            Ok(())
        })?;
        match here.or(link) {
            Some(place) => {
                self.answer.images.push(Image { location: place, revised });
                self.answer.size = self.answer.size.take().or(size);
            }
            None if code.is_some() || message.is_some() => {
                let message = message.unwrap_or_else(|| "An image was not generated.".to_owned());
                self.answer.refusals.push((code.unwrap_or_default(), message));
            }
            None => {}
        }
        Ok(())
    }

    /// Reads a Gemini candidate. Skips thought parts, which hold drafts, and text, which the client's response has no
    /// member for.
    fn candidate(&mut self, value: RawJson<'_>) -> Result<(), BrokenImageAnswer> {
        let before = self.answer.images.len();
        let mut reason = None;
        members(value, |key, value| {
            match key {
                "content" => members(value, |key, value| {
                    if key != "parts" {
                        return Ok(());
                    }
                    elements(value, |part| self.part(part))
                })?,
                "finishReason" => reason = text_of(value),
                _ => {}
            }
            Ok(())
        })?;
        if self.answer.images.len() == before {
            self.refuse(reason, "The model generated no image");
        }
        Ok(())
    }

    fn part(&mut self, value: RawJson<'_>) -> Result<(), BrokenImageAnswer> {
        let (mut thought, mut here) = (false, None);
        members(value, |key, value| {
            match key {
                "thought" => thought = value.as_bool() == Some(true),
                "inlineData" | "inline_data" => members(value, |key, value| {
                    if key == "data" {
                        here = value.as_str().map(|text| self.base64(text)).transpose()?.flatten();
                    }
                    Ok(())
                })?,
                _ => {}
            }
            Ok(())
        })?;
        if let Some(place) = here.filter(|_| !thought) {
            self.answer.images.push(Image { location: place, revised: None });
        }
        Ok(())
    }

    fn choice(&mut self, value: RawJson<'_>) -> Result<(), BrokenImageAnswer> {
        members(value, |key, value| {
            if key != "message" {
                return Ok(());
            }
            members(value, |key, value| {
                if key != "content" {
                    return Ok(());
                }
                elements(value, |item| {
                    members(item, |key, value| {
                        if key == "image"
                            && let Some(url) = text_of(value)
                        {
                            self.answer
                                .images
                                .push(Image { location: ImageLocation::Link(url), revised: None });
                        }
                        Ok(())
                    })
                })
            })
        })
    }
}

fn usage(value: RawJson<'_>, usage: &mut Usage) -> Result<(), BrokenImageAnswer> {
    let (mut thoughts, mut modal) = (None, [None, None]);
    members(value, |key, value| {
        let number = value.as_u64();
        let image_tokens = |slot: &mut Option<u64>| {
            members(value, |key, value| {
                if key == "image_tokens" {
                    *slot = value.as_u64();
                }
                Ok(())
            })
        };
        match key {
            "input_tokens" | "prompt_tokens" | "promptTokenCount" => usage.input = number.or(usage.input),
            "output_tokens" | "completion_tokens" | "candidatesTokenCount" => {
                usage.output = number.or(usage.output);
            }
            "thoughtsTokenCount" => thoughts = number,
            "input_tokens_details" => image_tokens(&mut usage.image_input)?,
            "output_tokens_details" => image_tokens(&mut usage.image_output)?,
            "promptTokensDetails" => modal[0] = images_of(value)?,
            "candidatesTokensDetails" => modal[1] = images_of(value)?,
            _ => {}
        }
        Ok(())
    })?;
    let [input, output] = modal;
    usage.image_input = usage.image_input.or(input);
    usage.image_output = usage.image_output.or(output);
    if let Some(thoughts) = thoughts {
        usage.reasoning = Some(thoughts);
        usage.output = Some(usage.output.unwrap_or(0).saturating_add(thoughts));
    }
    Ok(())
}

/// Returns the image tokens of a list of token counts by modality.
fn images_of(value: RawJson<'_>) -> Result<Option<u64>, BrokenImageAnswer> {
    let mut found = None;
    elements(value, |entry| {
        let (mut image, mut count) = (false, None);
        members(entry, |key, value| {
            match key {
                "modality" => image = text_of(value).as_deref() == Some("IMAGE"),
                "tokenCount" => count = value.as_u64(),
                _ => {}
            }
            Ok(())
        })?;
        if image {
            found = count;
        }
        Ok(())
    })?;
    Ok(found)
}
