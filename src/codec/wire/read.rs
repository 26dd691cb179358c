//! Readers of request members for formats whose errors name the member by its path and say what it must be.

use std::fmt::Display;

use crate::error::{ApiError, ErrorKind};
use json::{Cursor, JsonError, JsonStr, RawJson, ValueKind};

/// Returns the error for a member with an invalid value.
pub(in crate::wire) fn wrong(path: impl Display, must_be: &str) -> ApiError {
    let path = path.to_string();
    ApiError::new(ErrorKind::InvalidField, format!("'{path}' must be {must_be}.")).param(path)
}

pub(in crate::wire) fn not_json(error: JsonError) -> ApiError {
    ApiError::new(ErrorKind::InvalidJson, format!("The request body is not a JSON object: {error}."))
}

/// Reads a member that must be a string.
pub(in crate::wire) fn text<'a>(path: impl Display, value: RawJson<'a>) -> Result<JsonStr<'a>, ApiError> {
    value.as_str().ok_or_else(|| wrong(path, "a string"))
}

/// Reads a member that must be a number.
pub(in crate::wire) fn number<'a>(path: impl Display, value: RawJson<'a>) -> Result<RawJson<'a>, ApiError> {
    let is_number = value.text().starts_with(|first: char| first == '-' || first.is_ascii_digit());
    if is_number { Ok(value) } else { Err(wrong(path, "a number")) }
}

/// Calls `visit` for every member of an object, except those that are null.
pub(in crate::wire) fn object<'a>(
    path: impl Display,
    value: RawJson<'a>,
    mut visit: impl FnMut(&'a str, RawJson<'a>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    if !value.text().starts_with('{') {
        return Err(wrong(path, "an object"));
    }
    let mut json = Cursor::new(value.text());
    json.begin_object().map_err(not_json)?;
    while let Some(key) = json.next_key().map_err(not_json)? {
        let value = json.raw().map_err(not_json)?;
        if !value.is_null() {
            visit(key.escaped(), value)?;
        }
    }
    Ok(())
}

/// Calls `visit` for every element of an array.
pub(in crate::wire) fn each<'a>(
    path: impl Display,
    value: RawJson<'a>,
    mut visit: impl FnMut(usize, RawJson<'a>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    if !value.text().starts_with('[') {
        return Err(wrong(path, "an array"));
    }
    let mut json = Cursor::new(value.text());
    json.begin_array().map_err(not_json)?;
    let mut index = 0;
    while json.next_element().map_err(not_json)? {
        visit(index, json.raw().map_err(not_json)?)?;
        index += 1;
    }
    Ok(())
}

/// Calls `visit` for every member of the object at the cursor, except those that are null. `visit` must consume the
/// value.
pub(in crate::wire) fn object_in<'a>(
    json: &mut Cursor<'a>,
    path: impl Display,
    mut visit: impl FnMut(&'a str, &mut Cursor<'a>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    if json.kind().map_err(not_json)? != ValueKind::Object {
        return Err(wrong(path, "an object"));
    }
    json.begin_object().map_err(not_json)?;
    while let Some(key) = json.next_key().map_err(not_json)? {
        match json.kind().map_err(not_json)? {
            ValueKind::Null => json.skip().map_err(not_json)?,
            _ => visit(key.escaped(), json)?,
        }
    }
    Ok(())
}

/// Calls `visit` for every element of the array at the cursor. `visit` must consume the element.
pub(in crate::wire) fn each_in<'a>(
    json: &mut Cursor<'a>,
    path: impl Display,
    mut visit: impl FnMut(usize, &mut Cursor<'a>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    if json.kind().map_err(not_json)? != ValueKind::Array {
        return Err(wrong(path, "an array"));
    }
    json.begin_array().map_err(not_json)?;
    let mut index = 0;
    while json.next_element().map_err(not_json)? {
        visit(index, json)?;
        index += 1;
    }
    Ok(())
}

/// Reads any value.
pub(in crate::wire) fn raw<'a>(json: &mut Cursor<'a>) -> Result<RawJson<'a>, ApiError> {
    json.raw().map_err(not_json)
}

/// Reads a value whose faults are reported later, or not at all. It is consumed in any case.
///
/// # Errors
/// Returns [`JsonError`] if the value is not JSON.
pub(in crate::wire) fn attempt<'a, T>(
    json: &mut Cursor<'a>,
    read: impl FnOnce(&mut Cursor<'a>) -> Result<T, ApiError>,
) -> Result<Result<T, ApiError>, JsonError> {
    let before = json.clone();
    let result = read(json);
    if result.is_err() {
        *json = before;
        json.skip()?;
    }
    Ok(result)
}
