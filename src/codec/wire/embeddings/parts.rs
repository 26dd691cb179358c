//! Gemini's embeddings format (`:embedContent` and `:batchEmbedContents`) on the client's side: request reader and
//! response writer.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};

use super::{Broken, Vector, dimensions, not_json, wrong};
use crate::canonical::embed::{Embed, EmbedInput, EmbedItem, PurposeWords};
use crate::canonical::request::Extra;
use crate::error::{ApiError, ErrorKind};
use json::{Cursor, JsonStr, RawJson};

/// Parses an `embedContent` request. `model` is the model name from the path.
///
/// # Errors
/// Returns an [`ApiError`] that names the member if the request is malformed.
pub fn decode_one<'a>(body: &'a str, model: &str) -> Result<Embed<'a>, ApiError> {
    let item = item(body, model, "")?;
    Ok(Embed { items: vec![item], ..Embed::default() })
}

/// Parses a `batchEmbedContents` request. `model` is the model name from the path.
///
/// # Errors
/// Returns an [`ApiError`] that names the member if the request is malformed.
pub fn decode<'a>(body: &'a str, model: &str) -> Result<Embed<'a>, ApiError> {
    let mut embed = Embed::default();
    let mut given = false;
    let mut json = Cursor::new(body);
    json.begin_object().map_err(not_json)?;
    while let Some(key) = json.next_key().map_err(not_json)? {
        let value = json.raw().map_err(not_json)?;
        match key.escaped() {
            "model" => check_model("model", value, model)?,
            "requests" => {
                given = true;
                let mut list = Cursor::new(value.text());
                list.begin_array().map_err(|_| wrong("requests", "an array"))?;
                while list.next_element().map_err(not_json)? {
                    let place = format!("requests[{}]", embed.items.len());
                    let request = list.raw().map_err(not_json)?;
                    if !request.text().starts_with('{') {
                        return Err(wrong(place, "an object"));
                    }
                    embed.items.push(item(request.text(), model, &format!("{place}."))?);
                }
            }
            _ => {}
        }
    }
    if !given {
        return Err(ApiError::missing("requests"));
    }
    if embed.items.is_empty() {
        return Err(wrong("requests", "not empty"));
    }
    Ok(embed)
}

/// Parses one request object. `place` is the prefix of member names in errors.
fn item<'a>(body: &'a str, model: &str, place: &str) -> Result<EmbedItem<'a>, ApiError> {
    let (mut input, mut purpose, mut size) = (None, None, None);
    let mut extra = Vec::new();
    let mut json = Cursor::new(body);
    json.begin_object().map_err(not_json)?;
    while let Some(key) = json.next_key().map_err(not_json)? {
        let value = json.raw().map_err(not_json)?;
        match key.escaped() {
            "model" => check_model(&format!("{place}model"), value, model)?,
            "content" => input = Some(content(value, &format!("{place}content"))?),
            "taskType" | "task_type" if value.is_null() => {}
            "taskType" | "task_type" => {
                let name = format!("{place}taskType");
                let word = value.as_str().ok_or_else(|| wrong(&*name, "a string"))?;
                purpose = PurposeWords::purpose(&word.decode());
                if purpose.is_none() && !word.is("TASK_TYPE_UNSPECIFIED") {
                    return Err(wrong(name, "a task type such as RETRIEVAL_QUERY or RETRIEVAL_DOCUMENT"));
                }
            }
            "outputDimensionality" | "output_dimensionality" => {
                size = dimensions(&format!("{place}outputDimensionality"), value)?;
            }
            name => {
                if !value.is_null() {
                    extra.push(Extra { name, value });
                }
            }
        }
    }
    let missing = || {
        let name = format!("{place}content");
        ApiError::new(ErrorKind::InvalidField, format!("Missing required parameter: '{name}'.")).param(name)
    };
    Ok(EmbedItem { input: input.ok_or_else(missing)?, purpose, dimensions: size, extra })
}

/// Checks a `model` member. Official SDKs repeat the model of the path in each request, as `models/{name}`; any other
/// name is an error.
fn check_model(name: &str, value: RawJson<'_>, model: &str) -> Result<(), ApiError> {
    let said = value.as_str().map(JsonStr::decode).unwrap_or_default();
    let said = said.strip_prefix("models/").unwrap_or(&said);
    if value.is_null() || said == model {
        return Ok(());
    }
    Err(wrong(name, "the model of the path, or be left out"))
}

/// Parses a content: its texts joined by line breaks, or the raw content if one of its parts is not text.
fn content<'a>(value: RawJson<'a>, name: &str) -> Result<EmbedInput<'a>, ApiError> {
    let parts_name = format!("{name}.parts");
    let mut json = Cursor::new(value.text());
    json.begin_object().map_err(|_| wrong(name, "an object with parts"))?;
    let mut parts = None;
    while let Some(key) = json.next_key().map_err(not_json)? {
        let value = json.raw().map_err(not_json)?;
        if key.is("parts") {
            parts = Some(value);
        }
    }
    let parts = parts.ok_or_else(|| {
        ApiError::new(ErrorKind::InvalidField, format!("Missing required parameter: '{parts_name}'."))
            .param(parts_name.clone())
    })?;
    let mut json = Cursor::new(parts.text());
    json.begin_array().map_err(|_| wrong(&*parts_name, "an array of parts"))?;
    let mut texts: Vec<&'a str> = Vec::new();
    let mut other = false;
    let mut index = 0;
    while json.next_element().map_err(not_json)? {
        let part = json.raw().map_err(not_json)?;
        let name = || format!("{parts_name}[{index}]");
        let mut members = Cursor::new(part.text());
        members.begin_object().map_err(|_| wrong(name(), "an object"))?;
        let mut text = None;
        while let Some(key) = members.next_key().map_err(not_json)? {
            let value = members.raw().map_err(not_json)?;
            if key.is("text") {
                let given = value.as_str().ok_or_else(|| wrong(format!("{}.text", name()), "a string"))?;
                text = Some(given.escaped());
            }
        }
        match text {
            Some(text) => texts.push(text),
            None => other = true,
        }
        index += 1;
    }
    if other {
        return Ok(EmbedInput::Parts(value));
    }
    texts.retain(|text| !text.is_empty());
    Ok(EmbedInput::Text(match texts.as_slice() {
        [] => return Err(wrong(parts_name, "parts of which at least one has a text that is not empty")),
        [text] => Cow::Borrowed(text),
        several => Cow::Owned(several.join("\\n")),
    }))
}

/// Writes a response: `embedding` if `one` is set, otherwise `embeddings`.
///
/// # Errors
/// Returns [`Broken::Number`] if `one` is set and there is no vector, and [`Broken::NoVector`] if a vector cannot be
/// converted.
pub fn encode(vectors: &[Vector<'_>], one: bool, tokens: u64, out: &mut BytesMut) -> Result<(), Broken> {
    out.reserve(vectors.iter().map(|vector| vector.size(false) + 16).sum::<usize>() + 256);
    let embedding = |vector: &Vector<'_>, out: &mut BytesMut| {
        out.put_slice(br#"{"values":"#);
        vector.write(false, out)?;
        out.put_u8(b'}');
        Ok(())
    };
    if one {
        out.put_slice(br#"{"embedding":"#);
        embedding(vectors.first().ok_or(Broken::Number)?, out)?;
    } else {
        out.put_slice(br#"{"embeddings":["#);
        for (index, vector) in vectors.iter().enumerate() {
            if index > 0 {
                out.put_u8(b',');
            }
            embedding(vector, out)?;
        }
        out.put_u8(b']');
    }
    // The specification puts usage in `metadata.usage`, Gemini in `usageMetadata`: write both.
    out.put_slice(br#","metadata":{"usage":"#);
    super::list::usage(tokens, out);
    out.put_slice(br#"},"usageMetadata":{"promptTokenCount":"#);
    out.put_slice(itoa::Buffer::new().format(tokens).as_bytes());
    out.put_slice(b"}}");
    Ok(())
}
