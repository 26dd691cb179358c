//! Embeddings endpoint: `POST /v1/embeddings`.

use serde_json::{Value, json};

use super::super::http::{Reply, stage};
use super::super::{directive, embedding, text};
use super::errors::{ApiError, Fields, OVERLOADED, for_status};

/// Maximum number of inputs per request.
const MAX_INPUTS: usize = 2048;

/// Embedding input.
enum Input<'a> {
    Text(&'a str),
    /// Token ids, at least one.
    Tokens(Vec<u64>),
}

/// Answers with one vector per input.
pub(super) fn answer(body: &Value) -> Result<Reply, ApiError> {
    let fields = Fields(body);
    fields.only(&["model", "input", "dimensions", "encoding_format", "user"])?;
    let model = super::model(fields.string("model")?)?;
    let inputs = inputs(fields.get("input"))?;
    let dimensions = dimensions(fields, model)?;
    let base64 = match fields.get("encoding_format").map(|format| format.as_str().unwrap_or_default()) {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => {
            return Err(ApiError::invalid(format!(
                "'{other}' is not one of ['float', 'base64'] - 'encoding_format'"
            )));
        }
    };
    let last = inputs.iter().rev().find_map(|input| match input {
        Input::Text(text) => Some(*text),
        Input::Tokens(_) => None,
    });
    let (directives, _) = directive::take(last.unwrap_or_default());
    let reply = || {
        let data: Vec<Value> = inputs
            .iter()
            .enumerate()
            .map(|(index, input)| {
                let vector = embedding::vector(&input.bytes(), dimensions);
                let vector =
                    if base64 { json!(embedding::base64(&vector)) } else { embedding::numbers(&vector) };
                json!({"object": "embedding", "index": index, "embedding": vector})
            })
            .collect();
        let tokens: u64 = inputs.iter().map(Input::tokens).sum();
        Reply::json(
            200,
            &json!({"object": "list", "data": data, "model": model,
                    "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}),
        )
    };
    Ok(stage(&directives, OVERLOADED, |status| for_status(status).reply(), reply))
}

impl Input<'_> {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Input::Text(text) => directive::take(text).1.into_bytes(),
            Input::Tokens(tokens) => tokens.iter().flat_map(|token| token.to_le_bytes()).collect(),
        }
    }

    fn tokens(&self) -> u64 {
        match self {
            Input::Text(text) => text::tokens(text.len()),
            Input::Tokens(tokens) => tokens.len() as u64,
        }
    }
}

fn dimensions(fields: Fields<'_>, model: &str) -> Result<usize, ApiError> {
    let full = embedding::dimension(model);
    let Some(value) = fields.get("dimensions") else {
        return Ok(full);
    };
    let Some(asked) = value.as_i64() else {
        return Err(ApiError::invalid(format!("{value} is not of type 'integer' - 'dimensions'")));
    };
    if asked < 1 {
        return Err(ApiError::invalid(format!("{asked} is less than the minimum of 1 - 'dimensions'")));
    }
    if model == "text-embedding-ada-002" {
        return Err(ApiError::invalid("This model does not support specifying dimensions."));
    }
    usize::try_from(asked).ok().filter(|asked| *asked <= full).ok_or_else(|| {
        ApiError::invalid(format!(
            "Invalid value for 'dimensions' = {asked}. Must be less than or equal to {full}."
        ))
    })
}

/// Parses the input: a text, texts, token ids, or lists of token ids.
fn inputs(value: Option<&Value>) -> Result<Vec<Input<'_>>, ApiError> {
    let invalid = || {
        ApiError::invalid(
            "'$.input' is invalid. Please check the API reference: https://platform.openai.com/docs/api-reference.",
        )
    };
    let inputs = match value {
        Some(Value::String(text)) => vec![Input::Text(text)],
        Some(Value::Array(items)) if items.first().is_some_and(Value::is_u64) => {
            vec![Input::Tokens(tokens(items).ok_or_else(invalid)?)]
        }
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| match item {
                Value::String(text) => Some(Input::Text(text)),
                Value::Array(items) => tokens(items).map(Input::Tokens),
                _ => None,
            })
            .collect::<Option<Vec<Input<'_>>>>()
            .ok_or_else(invalid)?,
        _ => return Err(invalid()),
    };
    if inputs.len() > MAX_INPUTS {
        return Err(ApiError::invalid(format!(
            "Invalid 'input': array too long. Expected an array with maximum length {MAX_INPUTS}, but got an array \
             with length {} instead.",
            inputs.len()
        ))
        .param("input")
        .code("array_above_max_length"));
    }
    let empty = |input: &Input<'_>| {
        matches!(input, Input::Text("")) || matches!(input, Input::Tokens(t) if t.is_empty())
    };
    if inputs.is_empty() || inputs.iter().any(empty) {
        return Err(invalid());
    }
    Ok(inputs)
}

fn tokens(items: &[Value]) -> Option<Vec<u64>> {
    items.iter().map(Value::as_u64).collect()
}
