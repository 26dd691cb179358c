//! Images: client requests and responses (docs/specification.md, 2.9, 4.11 and 8), the writers of upstream requests,
//! and the reader of upstream responses of every provider.
//!
//! | Provider's form | Images | Usage |
//! |---|---|---|
//! | OpenAI, Ark | `data[]` with `b64_json` or `url`; Ark: or an error | `usage` with `input_tokens_details` |
//! | Gemini | `candidates[].content.parts[].inlineData` | `usageMetadata` |
//! | Imagen | `predictions[].bytesBase64Encoded` | none |
//! | DashScope | `output.choices[].message.content[].image`; of a task `output.results[].url` | none |
//!
//! Image format and dimensions are read from the file's own bytes ([`file()`]), never from the declared media type.

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

pub use file::{ImageFile, file};
pub use sheet::family_table;

use crate::error::{ApiError, ErrorKind};

/// Returns the error for a field with an invalid value.
fn wrong(field: impl Into<String>, wanted: &str) -> ApiError {
    let field = field.into();
    ApiError::new(ErrorKind::InvalidField, format!("'{field}' must be {wanted}.")).param(field)
}

/// Returns the error for a field that the model does not support.
fn unsupported(field: impl Into<String>, why: &str) -> ApiError {
    let field = field.into();
    ApiError::new(ErrorKind::Unsupported, format!("'{field}' {why}.")).param(field)
}
