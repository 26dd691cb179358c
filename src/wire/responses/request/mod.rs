//! Requests of the responses format.
//!
//! A conversation is a list of items: messages, reasoning, calls and their results, each for itself. What the model
//! said between two things that others said (reasoning, a message, calls) is one turn in the hub, and the results that
//! follow are one turn of the user, so that other formats can say it in their messages.

mod decode;
mod encode;
mod input;
mod items;
mod options;
mod piece;
mod tools;

pub use decode::decode;
pub use encode::encode;

use std::fmt;

use crate::error::{ApiError, Kind};
use crate::json::JsonError;

/// Where something stands in an input, written out only if it must be named.
#[derive(Clone, Copy)]
struct Path {
    item: usize,
    member: &'static str,
    part: Option<usize>,
}

impl Path {
    /// An item.
    fn item(item: usize) -> Self {
        Path { item, member: "", part: None }
    }

    /// A member of it.
    fn member(self, member: &'static str) -> Self {
        Path { member, ..self }
    }

    /// A part of that member.
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

/// Why a request cannot be read.
struct Fault(Box<ApiError>);

impl From<JsonError> for Fault {
    fn from(error: JsonError) -> Self {
        Fault(Box::new(ApiError::new(
            Kind::InvalidJson,
            format!("The request body is not valid JSON: {error}."),
        )))
    }
}

impl Fault {
    /// A member is not what it must be.
    fn at(path: impl fmt::Display, wanted: &str) -> Self {
        let path = path.to_string();
        let message = format!("Invalid value for '{path}': expected {wanted}.");
        Fault(Box::new(ApiError::new(Kind::InvalidField, message).param(path)))
    }

    /// A member is missing.
    fn missing(path: String) -> Self {
        let message = format!("Missing required parameter: '{path}'.");
        Fault(Box::new(ApiError::new(Kind::InvalidField, message).param(path)))
    }
}
