//! Images: what clients ask for and get (specification, sections 2.9, 4.11 and 8), what providers are asked in, and
//! what they answer, whatever its form.
//!
//! | Provider's form | Images | Usage |
//! |---|---|---|
//! | OpenAI, Ark | `data[]` with `b64_json` or `url`; at Ark an element may be an error | `usage`, with `input_tokens_details` |
//! | Gemini | `candidates[].content.parts[].inlineData` | `usageMetadata` |
//! | Imagen | `predictions[].bytesBase64Encoded` | none |
//! | DashScope | `output.choices[].message.content[].image`; of a task `output.results[].url` | none |
//!
//! What is known of a file is read from its own bytes ([`file()`]), never from what its sender says.

pub mod answer;
pub mod ask;
pub mod check;
pub mod convert;
pub mod file;
pub mod fit;
pub mod predict;
pub mod reply;
pub mod request;
mod sheet;

#[cfg(test)]
mod tests;

pub use file::{File, file};
pub use sheet::sheet;

use crate::error::{ApiError, Kind};

/// A body that is no text.
pub fn not_utf8() -> ApiError {
    ApiError::new(Kind::InvalidJson, "The request body is not UTF-8.")
}

/// A field that is not what it must be.
fn wrong(field: impl Into<String>, wanted: &str) -> ApiError {
    let field = field.into();
    ApiError::new(Kind::InvalidField, format!("'{field}' must be {wanted}.")).param(field)
}

/// A field that this model does not take.
fn unsupported(field: impl Into<String>, why: &str) -> ApiError {
    let field = field.into();
    ApiError::new(Kind::Unsupported, format!("'{field}' {why}.")).param(field)
}
