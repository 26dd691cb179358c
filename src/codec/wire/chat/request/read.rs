//! Typed readers of request members. Their errors name the member's path.

use std::fmt::Display;

use crate::error::{ApiError, ErrorKind};
use json::{Cursor, JsonError, JsonStr, RawJson, ValueKind};

pub(super) type Result<T> = std::result::Result<T, ApiError>;

/// Returns the error for text that is not valid JSON.
pub(super) fn broken(error: JsonError) -> ApiError {
    ApiError::new(ErrorKind::InvalidJson, format!("The request body is not valid JSON: {error}."))
}

/// Returns the error for a member whose value is invalid.
pub(super) fn invalid(path: impl Display, expected: &str) -> ApiError {
    let message = format!("Invalid value for '{path}': expected {expected}.");
    ApiError::new(ErrorKind::InvalidField, message).param(path.to_string())
}

/// Returns the error for a missing member.
pub(super) fn missing(path: impl Display) -> ApiError {
    let message = format!("Missing required parameter: '{path}'.");
    ApiError::new(ErrorKind::InvalidField, message).param(path.to_string())
}

/// Calls `each` for every member of an object, except those that are null.
pub(super) fn object<'a>(
    json: &mut Cursor<'a>,
    path: impl Display,
    mut each: impl FnMut(JsonStr<'a>, &mut Cursor<'a>) -> Result<()>,
) -> Result<()> {
    if json.kind().map_err(broken)? != ValueKind::Object {
        return Err(invalid(path, "an object"));
    }
    json.begin_object().map_err(broken)?;
    while let Some(key) = json.next_key().map_err(broken)? {
        match json.kind().map_err(broken)? {
            ValueKind::Null => json.skip().map_err(broken)?,
            _ => each(key, json)?,
        }
    }
    Ok(())
}

/// Calls `each` for every element of an array, with its position.
pub(super) fn array<'a>(
    json: &mut Cursor<'a>,
    path: impl Display,
    mut each: impl FnMut(usize, &mut Cursor<'a>) -> Result<()>,
) -> Result<()> {
    if json.kind().map_err(broken)? != ValueKind::Array {
        return Err(invalid(path, "an array"));
    }
    json.begin_array().map_err(broken)?;
    let mut number = 0;
    while json.next_element().map_err(broken)? {
        each(number, json)?;
        number += 1;
    }
    Ok(())
}

/// Reads any value.
pub(super) fn raw<'a>(json: &mut Cursor<'a>) -> Result<RawJson<'a>> {
    json.raw().map_err(broken)
}

/// Reads a string.
pub(super) fn text<'a>(json: &mut Cursor<'a>, path: impl Display) -> Result<JsonStr<'a>> {
    raw(json)?.as_str().ok_or_else(|| invalid(path, "a string"))
}

/// Reads a boolean.
pub(super) fn flag(json: &mut Cursor<'_>, path: impl Display) -> Result<bool> {
    raw(json)?.as_bool().ok_or_else(|| invalid(path, "true or false"))
}

/// Reads a non-negative integer.
pub(super) fn whole(json: &mut Cursor<'_>, path: impl Display) -> Result<u64> {
    raw(json)?.as_u64().ok_or_else(|| invalid(path, "a whole number"))
}

/// Reads a number and returns its text.
pub(super) fn number<'a>(json: &mut Cursor<'a>, path: impl Display) -> Result<RawJson<'a>> {
    let value = raw(json)?;
    match value.text().as_bytes().first() {
        Some(b'-' | b'0'..=b'9') => Ok(value),
        _ => Err(invalid(path, "a number")),
    }
}

/// Reads an object and returns its text.
pub(super) fn raw_object<'a>(json: &mut Cursor<'a>, path: impl Display) -> Result<RawJson<'a>> {
    let value = raw(json)?;
    if value.text().starts_with('{') { Ok(value) } else { Err(invalid(path, "an object")) }
}
