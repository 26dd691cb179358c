//! Client requests for images, as JSON or as a form.

use std::ops::RangeInclusive;

use base64_simd::forgiving_decode_to_vec;
use bytes::Bytes;

use super::{unsupported, wrong};
use crate::canonical::image::{ImageInput, ImagePart, ImageRequest, ImageSource, ImageTurn};
use crate::error::{ApiError, ErrorKind};
use crate::wire::form::FormPart;
use json::{Cursor, JsonError, RawJson, ValueKind as JsonKind};

/// Default and maximum number of images in a sequence (docs/specification.md, 4.11).
const TOGETHER: u32 = 4;

/// Field value, from JSON or from a form.
#[derive(Clone, Copy)]
pub(super) enum FieldValue<'a> {
    Json(RawJson<'a>),
    Text(&'a str),
}

impl<'a> FieldValue<'a> {
    pub(super) fn string(self, name: &str) -> Result<String, ApiError> {
        match self {
            FieldValue::Text(text) => Some(text.to_owned()),
            FieldValue::Json(value) => value.as_str().map(|text| text.decode().into_owned()),
        }
        .ok_or_else(|| wrong(name, "a string"))
    }

    /// Returns the text of a scalar.
    fn scalar(self) -> &'a str {
        match self {
            FieldValue::Json(value) => value.text(),
            FieldValue::Text(text) => text.trim(),
        }
    }

    pub(super) fn boolean(self, name: &str) -> Result<bool, ApiError> {
        match self.scalar() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(wrong(name, "a boolean")),
        }
    }

    pub(super) fn whole(self, name: &str, range: RangeInclusive<u32>) -> Result<u32, ApiError> {
        let number = RawJson::from_text(self.scalar()).as_u64().and_then(|number| u32::try_from(number).ok());
        let wanted = || format!("a whole number from {} to {}", range.start(), range.end());
        number.filter(|number| range.contains(number)).ok_or_else(|| wrong(name, &wanted()))
    }

    pub(super) fn number(self, name: &str, range: RangeInclusive<f64>) -> Result<String, ApiError> {
        let text = self.scalar();
        let number = text.parse::<f64>().ok().filter(|number| range.contains(number));
        // The text is passed on as JSON. Rust parses more than JSON allows, such as `inf`.
        let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
        let wanted = || format!("a number from {} to {}", range.start(), range.end());
        match number {
            Some(_) if plain => Ok(text.to_owned()),
            _ => Err(wrong(name, &wanted())),
        }
    }

    fn json(self, name: &str) -> Result<RawJson<'a>, ApiError> {
        match self {
            FieldValue::Json(value) => Ok(value),
            FieldValue::Text(_) => Err(unsupported(name, "cannot be sent in a form")),
        }
    }

    fn is_null(self) -> bool {
        matches!(self, FieldValue::Json(value) if value.is_null())
    }
}

pub(super) fn not_json(_: JsonError) -> ApiError {
    ApiError::new(ErrorKind::InvalidJson, "The request body must be a JSON object.")
}

/// Values that are interpreted once the whole request is read.
#[derive(Default)]
pub(super) struct PendingValues {
    pub(super) prompt: Option<String>,
    turns: Vec<ImageTurn>,
    pub(super) images: Vec<ImageInput>,
    sequential: bool,
    max_images: Option<u32>,
    options: bool,
}

/// Parses a JSON request.
///
/// # Errors
/// Returns an [`ApiError`] that names the field if the request is malformed.
pub fn decode(body: &str) -> Result<ImageRequest, ApiError> {
    let mut request = ImageRequest::default();
    let mut open = PendingValues::default();
    members(body, |name, value| field(&mut request, &mut open, name, FieldValue::Json(value)))?;
    finish(request, open)
}

/// Parses a form.
///
/// # Errors
/// Returns an [`ApiError`] that names the field if the request is malformed.
pub fn decode_form(parts: &[FormPart]) -> Result<ImageRequest, ApiError> {
    let mut request = ImageRequest::default();
    let mut open = PendingValues::default();
    for part in parts {
        match part.name.as_str() {
            name @ ("image" | "image[]" | "images" | "images[]") if part.is_file => {
                let field = format!("{}[{}]", name.trim_end_matches("[]"), open.images.len());
                open.images.push(ImageInput { field, source: ImageSource::Bytes(part.value.clone()) });
            }
            "mask" if part.is_file => {
                let source = ImageSource::Bytes(part.value.clone());
                request.mask = Some(ImageInput { field: "mask".to_owned(), source });
            }
            name => {
                let text = part.text()?;
                // Clients send an unset field as an empty one.
                if !text.is_empty() {
                    field(&mut request, &mut open, name.trim_end_matches("[]"), FieldValue::Text(text))?;
                }
            }
        }
    }
    finish(request, open)
}

pub(super) fn finish(mut request: ImageRequest, mut open: PendingValues) -> Result<ImageRequest, ApiError> {
    if open.sequential {
        request.sequence = Some(open.max_images.unwrap_or(TOGETHER));
    } else if open.options {
        let why = "is only accepted if 'sequential_image_generation' is 'auto'";
        return Err(unsupported("sequential_image_generation_options", why));
    }
    // `prompt` and `image` beside `contents` form the last user turn.
    let places = request.images.len();
    request.images.append(&mut open.images);
    let texts = open.turns.iter().filter(|turn| !turn.model).flat_map(|turn| &turn.parts);
    let said: Vec<&str> = texts
        .filter_map(|part| match part {
            ImagePart::Text(text) => Some(text.as_str()),
            ImagePart::Image(_) => None,
        })
        .chain(open.prompt.as_deref())
        .collect();
    request.prompt = said.join("\n");
    if !open.turns.is_empty() {
        let own: Vec<ImagePart> = (places..request.images.len())
            .map(ImagePart::Image)
            .chain(open.prompt.take().map(ImagePart::Text))
            .collect();
        if !own.is_empty() {
            open.turns.push(ImageTurn { model: false, parts: own });
        }
    }
    request.turns = open.turns;
    if request.prompt.trim().is_empty() {
        return Err(ApiError::missing("prompt"));
    }
    Ok(request)
}

#[expect(clippy::too_many_lines, reason = "one arm for each field")]
fn field(
    request: &mut ImageRequest,
    open: &mut PendingValues,
    name: &str,
    value: FieldValue<'_>,
) -> Result<(), ApiError> {
    if value.is_null() {
        return Ok(());
    }
    match name {
        "model" => {}
        "stream" => {
            if value.boolean(name)? {
                return Err(unsupported(name, "is not supported for images"));
            }
        }
        "partial_images" => {}
        "prompt" => open.prompt = Some(value.string(name)?).filter(|text| !text.is_empty()),
        "response_format" => {
            request.inline = Some(match value.string(name)?.as_str() {
                "url" => false,
                "b64_json" => true,
                _ => return Err(wrong(name, "'url' or 'b64_json'")),
            });
        }
        "contents" => contents(request, open, value.json(name)?)?,
        "image" | "images" => images(&mut open.images, name, value)?,
        "mask" => {
            let source = match value {
                FieldValue::Text(text) => source(name, text)?,
                FieldValue::Json(value) => any_source(name, value)?,
            };
            request.mask = Some(ImageInput { field: name.to_owned(), source });
        }
        "size" => request.size = Some(value.string(name)?).filter(|size| !size.is_empty()),
        "image_size" => request.tier = Some(value.string(name)?),
        "quality" => request.quality = Some(value.string(name)?),
        "n" => request.count = Some(value.whole(name, 1..=128)?),
        "seed" => request.seed = Some(value.whole(name, 0..=i32::MAX.unsigned_abs())?),
        "temperature" => request.temperature = Some(value.number(name, 0.0..=2.0)?),
        "top_p" => request.top_p = Some(value.number(name, 0.0..=1.0)?),
        "guidance_scale" => request.guidance = Some(value.number(name, 1.0..=10.0)?),
        "watermark" => request.watermark = Some(value.boolean(name)?),
        "mime_type" => {
            let media = value.string(name)?;
            let known = ["image/png", "image/jpeg", "image/webp"];
            if !known.contains(&media.as_str()) {
                return Err(wrong(name, "'image/png', 'image/jpeg' or 'image/webp'"));
            }
            request.media = Some(media);
        }
        "response_modalities" => request.with_text = Some(words(name, value)?),
        "sequential_image_generation" => {
            open.sequential = match value.string(name)?.as_str() {
                "auto" => true,
                "disabled" => false,
                _ => return Err(wrong(name, "'auto' or 'disabled'")),
            };
        }
        "sequential_image_generation_options" => {
            open.options = true;
            object(name, value.json(name)?, |key, value| {
                let path = format!("{name}.{key}");
                if key == "max_images" && !value.is_null() {
                    open.max_images = Some(FieldValue::Json(value).whole(&path, 1..=TOGETHER)?);
                }
                Ok(())
            })?;
        }
        "optimize_prompt_options" => {
            object(name, value.json(name)?, |key, value| {
                if key == "mode" && !value.is_null() {
                    request.optimize = Some(FieldValue::Json(value).string("optimize_prompt_options.mode")?);
                }
                Ok(())
            })?;
        }
        _ => {
            let json = match value {
                FieldValue::Json(value) => value.text().to_owned(),
                FieldValue::Text(text) => {
                    let mut out = Vec::with_capacity(text.len() + 2);
                    json::Writer::new(&mut out).string(text);
                    String::from_utf8_lossy(&out).into_owned()
                }
            };
            request.extra.push((name.to_owned(), json));
        }
    }
    Ok(())
}

/// Parses `response_modalities`, a string or a list. Returns true if text is requested beside images. Images must be
/// requested.
fn words(name: &str, value: FieldValue<'_>) -> Result<bool, ApiError> {
    let text = match value {
        FieldValue::Json(value) if value.text().starts_with('[') => value.text().to_owned(),
        value => value.string(name)?,
    };
    let (mut words, mut images) = (false, false);
    for word in text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        match word.to_ascii_lowercase().as_str() {
            "image" => images = true,
            "text" => words = true,
            _ => return Err(wrong(name, "'image', or 'text' and 'image'")),
        }
    }
    if images { Ok(words) } else { Err(wrong(name, "'image', or 'text' and 'image'")) }
}

/// Parses one image or an array of them.
fn images(into: &mut Vec<ImageInput>, name: &str, value: FieldValue<'_>) -> Result<(), ApiError> {
    let value = match value {
        FieldValue::Text(text) => {
            into.push(ImageInput { field: name.to_owned(), source: source(name, text)? });
            return Ok(());
        }
        FieldValue::Json(value) => value,
    };
    let mut json = Cursor::new(value.text());
    if json.kind().map_err(not_json)? != JsonKind::Array {
        into.push(ImageInput { field: name.to_owned(), source: any_source(name, value)? });
        return Ok(());
    }
    json.begin_array().map_err(not_json)?;
    while json.next_element().map_err(not_json)? {
        let field = format!("{name}[{}]", into.len());
        let source = any_source(&field, json.raw().map_err(not_json)?)?;
        into.push(ImageInput { field, source });
    }
    Ok(())
}

/// Parses an image: a string, or an object with its URL.
fn any_source(field: &str, value: RawJson<'_>) -> Result<ImageSource, ApiError> {
    source_in(field, value, 0)
}

/// Objects within each other in which a URL is looked for: `{"image_url":{"url":"..."}}` has two. Each level is scanned
/// once more.
const MAX_SOURCE_DEPTH: u32 = 3;

fn source_in(field: &str, value: RawJson<'_>, depth: u32) -> Result<ImageSource, ApiError> {
    if let Some(text) = value.as_str() {
        return source(field, &text.decode());
    }
    let mut found = None;
    object(field, value, |key, value| {
        match key {
            "image_url" | "url" if depth < MAX_SOURCE_DEPTH => {
                found = Some(source_in(field, value, depth + 1)?);
            }
            "file_id" => return Err(unsupported(field, "names a file that the gateway does not have")),
            _ => {}
        }
        Ok(())
    })?;
    found.ok_or_else(|| wrong(field, "a URL or an image in base64"))
}

/// Parses an http(s) URL, a data URL, or bare base64.
pub(crate) fn source(field: &str, text: &str) -> Result<ImageSource, ApiError> {
    let begins = |start: &str| text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start));
    if begins("http://") || begins("https://") {
        return Ok(ImageSource::Link(text.to_owned()));
    }
    let base64 = if begins("data:") {
        let (head, data) = text.split_once(',').unwrap_or((text, ""));
        if !head.to_ascii_lowercase().ends_with(";base64") {
            return Err(wrong(field, "a data URL in base64"));
        }
        data
    } else {
        text
    };
    bytes(field, base64)
}

pub(super) fn bytes(field: &str, base64: &str) -> Result<ImageSource, ApiError> {
    let bytes = forgiving_decode_to_vec(base64.as_bytes()).ok().filter(|bytes| !bytes.is_empty());
    let bytes = bytes.ok_or_else(|| wrong(field, "an http or https URL, a data URL or base64"))?;
    Ok(ImageSource::Bytes(Bytes::from(bytes)))
}

/// Parses a conversation in Gemini's form: turns with a role and parts.
fn contents(
    request: &mut ImageRequest,
    open: &mut PendingValues,
    value: RawJson<'_>,
) -> Result<(), ApiError> {
    let mut turns = Cursor::new(value.text());
    turns.begin_array().map_err(|_| wrong("contents", "an array"))?;
    let mut count = 0;
    while turns.next_element().map_err(not_json)? {
        let at = format!("contents[{count}]");
        count += 1;
        let mut turn = ImageTurn::default();
        let value = turns.raw().map_err(not_json)?;
        if let Some(text) = value.as_str() {
            turn.parts.push(ImagePart::Text(text.decode().into_owned()));
        } else {
            object(&at, value, |key, value| match key {
                "role" => {
                    turn.model = match value.as_str().map(|role| role.decode()).as_deref() {
                        Some("model" | "assistant") => true,
                        Some("user") => false,
                        _ if value.is_null() => false,
                        _ => return Err(wrong(format!("{at}.role"), "'user' or 'model'")),
                    };
                    Ok(())
                }
                "parts" | "content" => parts(request, &mut turn, &format!("{at}.{key}"), value),
                _ => Ok(()),
            })?;
        }
        if turn.parts.is_empty() {
            return Err(wrong(format!("{at}.parts"), "an array that is not empty"));
        }
        open.turns.push(turn);
    }
    Ok(())
}

fn parts(
    request: &mut ImageRequest,
    turn: &mut ImageTurn,
    at: &str,
    value: RawJson<'_>,
) -> Result<(), ApiError> {
    if let Some(text) = value.as_str() {
        turn.parts.push(ImagePart::Text(text.decode().into_owned()));
        return Ok(());
    }
    let mut json = Cursor::new(value.text());
    json.begin_array().map_err(|_| wrong(at, "an array"))?;
    let mut count = 0;
    while json.next_element().map_err(not_json)? {
        let at = format!("{at}[{count}]");
        count += 1;
        let value = json.raw().map_err(not_json)?;
        if let Some(text) = value.as_str() {
            turn.parts.push(ImagePart::Text(text.decode().into_owned()));
            continue;
        }
        let mut known = false;
        object(&at, value, |key, value| {
            let field = format!("{at}.{key}");
            let source = match key {
                "text" => {
                    turn.parts.push(ImagePart::Text(FieldValue::Json(value).string(&field)?));
                    known = true;
                    return Ok(());
                }
                "image" | "image_url" => any_source(&field, value)?,
                "inlineData" | "inline_data" => {
                    let data = member(&field, value, &["data"])?;
                    bytes(&field, &data.ok_or_else(|| wrong(&*field, "an object with 'data'"))?)?
                }
                "fileData" | "file_data" => {
                    let uri = member(&field, value, &["fileUri", "file_uri"])?;
                    source(&field, &uri.ok_or_else(|| wrong(&*field, "an object with 'fileUri'"))?)?
                }
                _ => return Ok(()),
            };
            turn.parts.push(ImagePart::Image(request.images.len()));
            request.images.push(ImageInput { field, source });
            known = true;
            Ok(())
        })?;
        if !known {
            return Err(wrong(at, "a text or an image"));
        }
    }
    Ok(())
}

/// Returns a string member by one of its names. `None` if the object has none of them.
pub(super) fn member(field: &str, value: RawJson<'_>, names: &[&str]) -> Result<Option<String>, ApiError> {
    let mut found = None;
    object(field, value, |key, value| {
        if names.contains(&key) {
            found = Some(FieldValue::Json(value).string(&format!("{field}.{key}"))?);
        }
        Ok(())
    })?;
    Ok(found)
}

pub(super) fn members(
    text: &str,
    mut each: impl FnMut(&str, RawJson<'_>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    let mut json = Cursor::new(text);
    json.begin_object().map_err(not_json)?;
    while let Some(key) = json.next_key().map_err(not_json)? {
        let value = json.raw().map_err(not_json)?;
        each(&key.decode(), value)?;
    }
    json.end().map_err(not_json)
}

pub(super) fn object(
    field: &str,
    value: RawJson<'_>,
    each: impl FnMut(&str, RawJson<'_>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    if !value.text().starts_with('{') {
        return Err(wrong(field, "an object"));
    }
    members(value.text(), each)
}
