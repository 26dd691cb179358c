//! OpenAI's embeddings format (`POST /v1/embeddings`) on the client's side: request reader and response writer.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};

use super::{Broken, Vector, dimensions, not_json, wrong};
use crate::canonical::embed::{Embed, EmbedInput, EmbedItem, PurposeWords};
use crate::canonical::request::Extra;
use crate::error::ApiError;
use json::{Cursor, EscapedString, JsonStr, RawJson, ValueKind, Writer};

/// Members that state the purpose of a vector: `input_type` of Cohere and Voyage, `task_type` of Gemini's compatible
/// endpoint, `task` of Jina.
const PURPOSES: [&str; 3] = ["input_type", "task_type", "task"];

/// Parses a request.
///
/// # Errors
/// Returns an [`ApiError`] that names the member if the request is malformed.
pub fn decode(body: &str) -> Result<Embed<'_>, ApiError> {
    let mut embed = Embed::default();
    let (mut inputs, mut size, mut purpose) = (None, None, None);
    let mut json = Cursor::new(body);
    json.begin_object().map_err(not_json)?;
    while let Some(key) = json.next_key().map_err(not_json)? {
        let value = json.raw().map_err(not_json)?;
        match key.escaped() {
            "model" | "stream" => {}
            "input" => inputs = Some(self::inputs(value)?),
            "encoding_format" => {
                embed.base64 = match value.as_str().map(JsonStr::escaped) {
                    _ if value.is_null() => false,
                    Some("float") => false,
                    Some("base64") => true,
                    _ => return Err(wrong("encoding_format", "'float' or 'base64'")),
                }
            }
            "dimensions" => size = dimensions("dimensions", value)?,
            name => {
                if PURPOSES.contains(&name) {
                    purpose =
                        value.as_str().and_then(|word| PurposeWords::purpose(&word.decode())).or(purpose);
                }
                if !value.is_null() {
                    embed.extra.push(Extra { name, value });
                }
            }
        }
    }
    let inputs = inputs.ok_or_else(|| ApiError::missing("input"))?;
    let item = |input| EmbedItem { input, purpose, dimensions: size, extra: Vec::new() };
    embed.items = inputs.into_iter().map(item).collect();
    Ok(embed)
}

/// Parses `input`: a string, an array of strings, an array of token ids, or an array of such arrays.
fn inputs(value: RawJson<'_>) -> Result<Vec<EmbedInput<'_>>, ApiError> {
    const WANTED: &str = "a string, an array of strings, or an array of tokens";
    let mut json = Cursor::new(value.text());
    match json.kind().map_err(not_json)? {
        ValueKind::String => return Ok(vec![text("input", value)?]),
        ValueKind::Array => {}
        _ => return Err(wrong("input", WANTED)),
    }
    let mut inputs = Vec::new();
    json.begin_array().map_err(not_json)?;
    while json.next_element().map_err(not_json)? {
        let element = json.raw().map_err(not_json)?;
        let name = || format!("input[{}]", inputs.len());
        match element.text().as_bytes().first() {
            Some(b'"') => inputs.push(text(&name(), element)?),
            Some(b'[') => {
                tokens(&name(), element)?;
                inputs.push(EmbedInput::Tokens(element));
            }
            Some(b'0'..=b'9') if inputs.is_empty() => {
                tokens("input", value)?;
                return Ok(vec![EmbedInput::Tokens(value)]);
            }
            _ => return Err(wrong(name(), WANTED)),
        }
    }
    if inputs.is_empty() {
        return Err(wrong("input", "not empty"));
    }
    Ok(inputs)
}

fn text<'a>(name: &str, value: RawJson<'a>) -> Result<EmbedInput<'a>, ApiError> {
    let text = value.as_str().filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| wrong(name, "a string that is not empty"))?;
    Ok(EmbedInput::Text(Cow::Borrowed(text.escaped())))
}

/// Checks that a value is a non-empty array of token ids.
fn tokens(name: &str, value: RawJson<'_>) -> Result<(), ApiError> {
    let all = super::ask::tokens(value).filter(|tokens| !tokens.is_empty());
    all.map(|_| ()).ok_or_else(|| wrong(name, "an array of tokens: whole numbers, at least one"))
}

/// Writes a response in the list format.
///
/// # Errors
/// Returns [`Broken::NoVector`] if a vector cannot be converted to base64.
pub fn encode(
    vectors: &[Vector<'_>],
    base64: bool,
    model: &EscapedString,
    tokens: u64,
    out: &mut BytesMut,
) -> Result<(), Broken> {
    out.reserve(vectors.iter().map(|vector| vector.size(base64) + 64).sum::<usize>() + 256);
    out.put_slice(br#"{"object":"list","data":["#);
    for (index, vector) in vectors.iter().enumerate() {
        if index > 0 {
            out.put_u8(b',');
        }
        out.put_slice(br#"{"object":"embedding","index":"#);
        out.put_slice(itoa::Buffer::new().format(index).as_bytes());
        out.put_slice(br#","embedding":"#);
        vector.write(base64, out)?;
        out.put_u8(b'}');
    }
    out.put_slice(br#"],"model":"#);
    Writer::new(out).paste(model.as_json_str());
    out.put_slice(br#","usage":"#);
    usage(tokens, out);
    out.put_u8(b'}');
    Ok(())
}

/// Writes `{"prompt_tokens":n,"total_tokens":n}`. The two are equal: vectors have no output tokens.
pub(super) fn usage(tokens: u64, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object();
    json.key("prompt_tokens").number(tokens).key("total_tokens").number(tokens);
    json.end_object();
}
