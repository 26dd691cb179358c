//! Helpers of the request decoder: names in either spelling, null as absence, errors with the path of a field.

use std::borrow::Cow;

use crate::error::{ApiError, ErrorKind};
use json::{Cursor, JsonError, JsonStr, RawJson, Sink, ValueKind, Writer};

/// Error of a request that cannot be read.
pub(super) enum ReadFault {
    /// The body is not valid JSON.
    Json(JsonError),
    /// A field is invalid.
    Field(Box<ApiError>),
}

impl From<JsonError> for ReadFault {
    fn from(error: JsonError) -> Self {
        ReadFault::Json(error)
    }
}

impl From<ReadFault> for ApiError {
    fn from(fault: ReadFault) -> Self {
        match fault {
            ReadFault::Json(error) => {
                ApiError::new(ErrorKind::InvalidJson, format!("The request is not valid JSON: {error}."))
            }
            ReadFault::Field(error) => *error,
        }
    }
}

/// Returns the error of an invalid field; `what` completes the sentence "'path' ...".
pub(super) fn wrong(path: impl Into<String>, what: &str) -> ReadFault {
    let path = path.into();
    let message = format!("'{path}' {what}.");
    ReadFault::Field(Box::new(ApiError::new(ErrorKind::InvalidField, message).param(path)))
}

/// Converts a name to camelCase.
pub(super) fn camel(name: &str) -> Cow<'_, str> {
    // Byte by byte: names are short.
    if name.bytes().all(|byte| byte != b'_') {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len());
    let mut raise = false;
    for c in name.chars() {
        match c {
            '_' => raise = !out.is_empty(),
            c if raise => {
                out.push(c.to_ascii_uppercase());
                raise = false;
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Calls `each` for the members of an object that are not null, with the name in camelCase, the original name and the
/// cursor at the value, which `each` must consume.
pub(super) fn object<'a>(
    json: &mut Cursor<'a>,
    path: impl FnOnce() -> String,
    mut each: impl FnMut(&str, JsonStr<'a>, &mut Cursor<'a>) -> Result<(), ReadFault>,
) -> Result<(), ReadFault> {
    if json.kind()? != ValueKind::Object {
        return Err(wrong(path(), "must be an object"));
    }
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        if json.kind()? == ValueKind::Null {
            json.skip()?;
        } else {
            each(&camel(key.escaped()), key, json)?;
        }
    }
    Ok(())
}

/// Reads an object like [`object`]. `each` returns false for an unknown member, whose value it leaves unread. Returns the
/// whole object if it has an unknown member, so that an encoder of this format can copy it ([`copy_unknown`]).
pub(super) fn object_or_whole<'a>(
    json: &mut Cursor<'a>,
    path: impl FnOnce() -> String,
    mut each: impl FnMut(&str, &mut Cursor<'a>) -> Result<bool, ReadFault>,
) -> Result<Option<RawJson<'a>>, ReadFault> {
    let (mut whole, mut unknown) = (json.clone(), false);
    object(json, path, |key, _, json| {
        if !each(key, json)? {
            unknown = true;
            json.skip()?;
        }
        Ok(())
    })?;
    Ok(if unknown { Some(whole.raw()?) } else { None })
}

/// Calls `each` for the elements of an array, with their indexes. A single object counts as an array of one, as for
/// Google's API; null elements are skipped.
pub(super) fn list<'a>(
    json: &mut Cursor<'a>,
    path: impl FnOnce() -> String,
    mut each: impl FnMut(usize, &mut Cursor<'a>) -> Result<(), ReadFault>,
) -> Result<(), ReadFault> {
    match json.kind()? {
        ValueKind::Array => {
            json.begin_array()?;
            let mut number = 0;
            while json.next_element()? {
                if json.kind()? == ValueKind::Null {
                    json.skip()?;
                } else {
                    each(number, json)?;
                }
                number += 1;
            }
            Ok(())
        }
        ValueKind::Object => each(0, json),
        _ => Err(wrong(path(), "must be an array")),
    }
}

/// Reads a string.
pub(super) fn string<'a>(
    json: &mut Cursor<'a>,
    path: impl FnOnce() -> String,
) -> Result<JsonStr<'a>, ReadFault> {
    json.raw()?.as_str().ok_or_else(|| wrong(path(), "must be a string"))
}

/// Reads an array of strings.
pub(super) fn strings<'a>(json: &mut Cursor<'a>, path: &str) -> Result<Vec<JsonStr<'a>>, ReadFault> {
    let mut all = Vec::new();
    list(
        json,
        || path.to_owned(),
        |_, json| {
            all.push(string(json, || path.to_owned())?);
            Ok(())
        },
    )?;
    Ok(all)
}

/// Writes the members of an object for which `is_known` is false.
pub(super) fn copy_unknown(
    value: RawJson<'_>,
    is_known: impl Fn(&str) -> bool,
    out: &mut Writer<'_, impl Sink>,
) {
    // The decoder has already parsed this text with the same function.
    let _ = object(&mut Cursor::new(value.text()), String::new, |key, name, json| {
        let value = json.raw()?;
        if !is_known(key) {
            out.paste_key(name).raw(value);
        }
        Ok(())
    });
}

/// Returns the last step of a path.
pub(super) fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or_default()
}

/// Reads a boolean.
pub(super) fn boolean(json: &mut Cursor<'_>, path: &str) -> Result<bool, ReadFault> {
    json.raw()?.as_bool().ok_or_else(|| wrong(path, "must be true or false"))
}

/// Reads a number, in its original spelling. Numbers in quotes are accepted too, as proto JSON does.
pub(super) fn number<'a>(json: &mut Cursor<'a>, path: &str) -> Result<RawJson<'a>, ReadFault> {
    let value = json.raw()?;
    let value = value.as_str().map_or(value, |text| RawJson::from_text(text.escaped()));
    let is_number = |text: &str| {
        // Exclude spellings that Rust parses but JSON does not have: `+1`, `.5`, `inf`.
        let first = text.trim_start_matches('-').as_bytes().first();
        first.is_some_and(u8::is_ascii_digit) && text.parse::<f64>().is_ok_and(f64::is_finite)
    };
    if is_number(value.text()) { Ok(value) } else { Err(wrong(path, "must be a number")) }
}

/// Reads a non-negative integer.
pub(super) fn count(json: &mut Cursor<'_>, path: &str) -> Result<u64, ReadFault> {
    number(json, path)?.as_u64().ok_or_else(|| wrong(path, "must be a whole number that is not negative"))
}
