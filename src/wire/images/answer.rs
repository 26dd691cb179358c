//! What providers answer, whatever its form: images, a task, or a refusal.

use bytes::Bytes;

use crate::canonical::Usage;
use crate::json::{Cursor, JsonError, JsonStr, Kind, RawJson};

/// What an answer says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// In the order in which they came.
    pub images: Vec<Image>,
    /// As far as the provider says it.
    pub usage: Usage,
    /// Why an image, or all of them, were not made: a code and a text.
    pub refusals: Vec<(String, String)>,
    /// An error instead, in a 200.
    pub failed: bool,
    /// What is to be asked for again.
    pub task: Option<Task>,
    /// Their size, where the provider says it.
    pub size: Option<String>,
    /// Their quality, likewise.
    pub quality: Option<String>,
}

/// An image.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Where it is.
    pub place: Place,
    /// What was made of the prompt.
    pub revised: Option<String>,
}

/// Where an image is.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// Behind a link.
    Link(String),
    /// Here, in base64: a part of the answer.
    Base64(Bytes),
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its id at the provider.
    pub id: String,
    /// How far it is.
    pub state: State,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits, or it is under way.
    Open,
    /// It is done.
    Done,
    /// There will be nothing.
    Failed,
}

/// Why a provider's answer cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer holds no images")]
pub struct Broken;

impl From<JsonError> for Broken {
    fn from(_: JsonError) -> Self {
        Broken
    }
}

/// Reads an answer.
///
/// # Errors
/// It is not JSON, or nothing that a request for images is answered with.
pub fn decode(body: &Bytes) -> Result<Answer, Broken> {
    let text = std::str::from_utf8(body).map_err(|_| Broken)?;
    let mut reader = Reader { body, answer: Answer::default(), code: None, message: None };
    let mut json = Cursor::new(text);
    reader.object(&mut json)?;
    json.end()?;
    let Reader { mut answer, code, message, .. } = reader;
    if let Some(task) = &mut answer.task
        && task.state == State::Failed
    {
        let message = message.unwrap_or_else(|| "The task failed.".to_owned());
        answer.refusals.push((code.unwrap_or_default(), message));
        return Ok(answer);
    }
    answer.failed |= code.is_some() && answer.images.is_empty() && answer.task.is_none();
    let empty = answer.images.is_empty() && answer.refusals.is_empty();
    if empty && answer.task.is_none() && !answer.failed { Err(Broken) } else { Ok(answer) }
}

struct Reader<'b> {
    body: &'b Bytes,
    answer: Answer,
    code: Option<String>,
    message: Option<String>,
}

fn text_of(value: RawJson<'_>) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(|text| text.decode().into_owned())
}

fn members<'a>(
    value: RawJson<'a>,
    mut each: impl FnMut(&str, RawJson<'a>) -> Result<(), Broken>,
) -> Result<(), Broken> {
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
    mut each: impl FnMut(RawJson<'a>) -> Result<(), Broken>,
) -> Result<(), Broken> {
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
    fn object(&mut self, json: &mut Cursor<'_>) -> Result<(), Broken> {
        if json.kind()? != Kind::Object {
            return Err(Broken);
        }
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            let value = json.raw()?;
            match key.escaped() {
                "data" | "results" => elements(value, |item| self.item(item))?,
                "predictions" => elements(value, |item| self.item(item))?,
                "candidates" => elements(value, |item| self.candidate(item))?,
                "choices" => elements(value, |item| self.choice(item))?,
                "output" if value.text().starts_with('{') => {
                    self.object(&mut Cursor::new(value.text()))?;
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
                        Some("SUCCEEDED") => State::Done,
                        Some("FAILED" | "CANCELED" | "UNKNOWN") => State::Failed,
                        _ => State::Open,
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

    fn task(&mut self) -> &mut Task {
        self.answer.task.get_or_insert(Task { id: String::new(), state: State::Open })
    }

    fn refuse(&mut self, reason: Option<String>, told: &str) {
        let reason = reason.unwrap_or_default();
        let message = if reason.is_empty() { format!("{told}.") } else { format!("{told}: {reason}.") };
        self.answer.refusals.push((reason, message));
    }

    /// Text in base64, which may be a large part of the answer: it stays where it is.
    fn base64(&self, text: JsonStr<'_>) -> Result<Option<Place>, Broken> {
        if text.is_empty() {
            return Ok(None);
        }
        let bytes = if text.escaped().contains('\\') {
            Bytes::from(text.decode().into_owned())
        } else {
            self.body.slice_ref(text.escaped().as_bytes())
        };
        // It will stand within JSON of ours. The usual one is checked many bytes at a time.
        let sound = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=-_".contains(byte);
        let is_sound = base64_simd::STANDARD.check(&bytes).is_ok() || bytes.iter().all(sound);
        if is_sound { Ok(Some(Place::Base64(bytes))) } else { Err(Broken) }
    }

    /// An image, or why there is none.
    fn item(&mut self, value: RawJson<'_>) -> Result<(), Broken> {
        let (mut link, mut here, mut revised) = (None, None, None);
        let (mut code, mut message) = (None, None);
        let mut size = None;
        members(value, |key, value| {
            match key {
                "b64_json" | "bytesBase64Encoded" => {
                    here =
                        value.as_str().map(|text| self.base64(text)).transpose()?.flatten().or(here.take());
                }
                "url" => link = text_of(value).map(Place::Link),
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
                self.answer.images.push(Image { place, revised });
                self.answer.size = self.answer.size.take().or(size);
            }
            None if code.is_some() || message.is_some() => {
                let message = message.unwrap_or_else(|| "An image was not made.".to_owned());
                self.answer.refusals.push((code.unwrap_or_default(), message));
            }
            None => {}
        }
        Ok(())
    }

    /// Thoughts are drafts; what is said beside images has no place in the client's answer.
    fn candidate(&mut self, value: RawJson<'_>) -> Result<(), Broken> {
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
            self.refuse(reason, "The model made no image");
        }
        Ok(())
    }

    fn part(&mut self, value: RawJson<'_>) -> Result<(), Broken> {
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
            self.answer.images.push(Image { place, revised: None });
        }
        Ok(())
    }

    fn choice(&mut self, value: RawJson<'_>) -> Result<(), Broken> {
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
                            self.answer.images.push(Image { place: Place::Link(url), revised: None });
                        }
                        Ok(())
                    })
                })
            })
        })
    }
}

fn usage(value: RawJson<'_>, usage: &mut Usage) -> Result<(), Broken> {
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

/// Tokens of images in a list by modality.
fn images_of(value: RawJson<'_>) -> Result<Option<u64>, Broken> {
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
