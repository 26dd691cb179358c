//! Embeddings formats: requests and responses of embeddings endpoints.
//!
//! This module has the two client formats, the list format of OpenAI (`list`) and the content format of Gemini
//! (`parts`), the writer of upstream requests ([`ask`](ask::encode)), the reader of upstream responses of every
//! provider (`answer`), and the conversion of vectors between JSON numbers and base64 ([`number`]).
//!
//! It does not decide which provider takes which form, and does not split a request into several calls.

mod answer;
pub mod ask;
mod list;
pub mod number;
mod parts;

#[cfg(test)]
mod tests;

pub use answer::{EmbeddingsAnswer, Vector, corrected, decode as decode_answer, sight as answer};
pub use list::{decode as decode_list, encode as encode_list};
pub use parts::{decode as decode_parts, decode_one as decode_part, encode as encode_parts};

use crate::error::{ApiError, ErrorKind};

/// Reason why an upstream embeddings response cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The body is not JSON.
    #[error("the response is not JSON")]
    NotJson,
    /// An element is missing or is not a vector.
    #[error("a vector is missing or invalid")]
    NoVector,
    /// The number of vectors differs from the number of inputs.
    #[error("the number of vectors in the response differs from the number of inputs")]
    Number,
}

/// Returns the error for a member of the wrong type.
fn wrong(name: impl Into<String>, wanted: &str) -> ApiError {
    let name = name.into();
    ApiError::new(ErrorKind::InvalidField, format!("'{name}' must be {wanted}.")).param(name)
}

fn not_json(_: json::JsonError) -> ApiError {
    ApiError::new(ErrorKind::InvalidJson, "The request body must be a JSON object.")
}

/// Parses the number of dimensions: an integer of at least 1. Returns `Ok(None)` for `null`.
fn dimensions(name: &str, value: json::RawJson<'_>) -> Result<Option<u64>, ApiError> {
    if value.is_null() {
        return Ok(None);
    }
    let number = value.as_u64().filter(|number| *number > 0);
    number.map(Some).ok_or_else(|| wrong(name, "a whole number greater than 0"))
}
