//! Requests of the responses format.
//!
//! A conversation is a list of items: messages, reasoning, calls and their results are separate items. In the
//! canonical request, consecutive items of the model (reasoning, a message, calls) are one assistant turn, and the
//! results that follow are one user turn, so that the formats with messages can express them.

mod decode;
mod encode;
mod input;
mod items;
mod options;
mod piece;
mod tools;

pub use decode::{decode, decode_with};
pub use encode::encode;

use std::fmt;

use crate::error::{ApiError, ErrorKind};
use json::JsonError;

/// Path of a value in `input`, for error messages. It is formatted only if an error is reported.
#[derive(Clone, Copy)]
struct Path {
    item: usize,
    member: &'static str,
    part: Option<usize>,
}

impl Path {
    fn item(item: usize) -> Self {
        Path { item, member: "", part: None }
    }

    fn member(self, member: &'static str) -> Self {
        Path { member, ..self }
    }

    fn part(self, part: usize) -> Self {
        Path { part: Some(part), ..self }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "input[{}]", self.item)?;
        if !self.member.is_empty() {
            write!(f, ".{}", self.member)?;
        }
        match self.part {
            Some(part) => write!(f, "[{part}]"),
            None => Ok(()),
        }
    }
}

/// Error of a request that cannot be read, to be returned to the client.
struct Fault(Box<ApiError>);

impl From<JsonError> for Fault {
    fn from(error: JsonError) -> Self {
        Fault(Box::new(ApiError::new(
            ErrorKind::InvalidJson,
            format!("The request body is not valid JSON: {error}."),
        )))
    }
}

impl Fault {
    /// Returns the error of a member with an invalid value; `wanted` describes the valid ones.
    fn at(path: impl fmt::Display, wanted: &str) -> Self {
        let path = path.to_string();
        let message = format!("Invalid value for '{path}': expected {wanted}.");
        Fault(Box::new(ApiError::new(ErrorKind::InvalidField, message).param(path)))
    }

    /// Returns the error with its path below `outer`: `tools[0].name` in an item becomes `input[3].tools[0].name`.
    fn within(mut self, outer: impl fmt::Display) -> Self {
        if let Some(inner) = self.0.param.take() {
            let path = format!("{outer}.{inner}");
            self.0.message = self.0.message.replacen(&*inner, &path, 1).into();
            self.0.param = Some(path.into());
        }
        self
    }

    /// Returns the error of a missing member.
    fn missing(path: String) -> Self {
        let message = format!("Missing required parameter: '{path}'.");
        Fault(Box::new(ApiError::new(ErrorKind::InvalidField, message).param(path)))
    }
}
