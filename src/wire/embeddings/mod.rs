//! Embeddings: texts into vectors.
//!
//! Here live the two formats that clients speak, the list (`list`) and contents of parts (`parts`), what providers are
//! asked in ([`ask`](ask::encode)), what they answer, whatever its form (`answer`), and vectors as numbers and as
//! base64 ([`number`]).
//!
//! Here must not live: who speaks in which form, or how a request is cut into several.

mod answer;
pub mod ask;
mod list;
pub mod number;
mod parts;

#[cfg(test)]
mod tests;

pub use answer::{Answer, Vector, corrected, decode as decode_answer, sight as answer};
pub use list::{decode as decode_list, encode as encode_list};
pub use parts::{decode as decode_parts, decode_one as decode_part, encode as encode_parts};

use crate::error::{ApiError, Kind};

/// Why a provider's answer cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// It is not JSON.
    #[error("the answer is not JSON")]
    NotJson,
    /// It has no vector where one must be.
    #[error("a vector is missing, or is none")]
    NoVector,
    /// It has another number of vectors than were asked for.
    #[error("the answer has another number of vectors than were asked for")]
    Number,
}

/// A member of a wrong kind.
fn wrong(name: impl Into<String>, wanted: &str) -> ApiError {
    let name = name.into();
    ApiError::new(Kind::InvalidField, format!("'{name}' must be {wanted}.")).param(name)
}

fn not_json(_: crate::json::JsonError) -> ApiError {
    ApiError::new(Kind::InvalidJson, "The request body must be a JSON object.")
}

/// A whole number that is 1 or more.
fn dimensions(name: &str, value: crate::json::RawJson<'_>) -> Result<Option<u64>, ApiError> {
    if value.is_null() {
        return Ok(None);
    }
    let number = value.as_u64().filter(|number| *number > 0);
    number.map(Some).ok_or_else(|| wrong(name, "a whole number greater than 0"))
}
