//! Request members, taken one by one, by any of a member's alternative names.

use std::borrow::Cow;

use crate::error::{ApiError, ErrorKind};
use json::{Cursor, JsonError, RawJson};

/// Member of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoField<'a> {
    /// Path in the request.
    pub path: String,
    /// Name.
    pub name: &'a str,
    /// Value, never `null`.
    pub value: RawJson<'a>,
}

/// Members of a request that are not taken yet.
#[derive(Clone, Debug, Default)]
pub struct VideoMembers<'a>(Vec<VideoField<'a>>);

impl<'a> VideoMembers<'a> {
    /// Reads an object.
    ///
    /// # Errors
    /// Returns an [`ApiError`] if the text is not a JSON object.
    pub fn read(text: &'a str) -> Result<Self, ApiError> {
        let mut members = VideoMembers::default();
        members.add(text, "").map_err(|_| not_json())?;
        Ok(members)
    }

    /// Adds the members of an object nested in the request. Of equal names, the one added earlier wins.
    ///
    /// # Errors
    /// Returns [`JsonError`] if the text is not a JSON object.
    pub fn add(&mut self, text: &'a str, prefix: &str) -> Result<(), JsonError> {
        let mut json = Cursor::new(text);
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            let value = json.raw()?;
            if !value.is_null() {
                let name = key.escaped();
                self.0.push(VideoField { path: format!("{prefix}{name}"), name, value });
            }
        }
        Ok(())
    }

    /// Takes the member of the first name that is present, and removes the members of all other names.
    /// Returns `None` if no name is present.
    pub fn take(&mut self, names: &[&str]) -> Option<VideoField<'a>> {
        let found = names.iter().find_map(|name| self.0.iter().position(|field| field.name == *name));
        let found = found.map(|at| self.0.remove(at));
        self.0.retain(|field| !names.contains(&field.name));
        found
    }

    /// Returns the path of the member that [`take`](Self::take) would return.
    pub fn path(&self, names: &[&str]) -> Option<&str> {
        let found = names.iter().find_map(|name| self.0.iter().find(|field| field.name == *name));
        found.map(|field| field.path.as_str())
    }

    /// Takes a string, with its path. Returns `Ok(None)` if it is absent.
    ///
    /// # Errors
    /// Returns an [`ApiError`] if the value is not a string.
    pub fn text(&mut self, names: &[&str]) -> Result<Option<(String, Cow<'a, str>)>, ApiError> {
        let Some(field) = self.take(names) else { return Ok(None) };
        let text = field.value.as_str().ok_or_else(|| wrong(&field.path, "a string"))?.decode();
        Ok(Some((field.path, text)))
    }

    /// Takes a required string.
    ///
    /// # Errors
    /// Returns an [`ApiError`] if it is absent, not a string or blank.
    pub fn required(&mut self, names: &[&'static str]) -> Result<Cow<'a, str>, ApiError> {
        let name = names.first().copied().unwrap_or_default();
        let (path, text) = self.text(names)?.ok_or_else(|| ApiError::missing(name))?;
        if text.trim().is_empty() {
            return Err(wrong(&path, "a string that is not empty"));
        }
        Ok(text)
    }

    /// Takes an integer, with its path. Accepts a string of digits, which some clients send. Returns `Ok(None)` if it
    /// is absent.
    ///
    /// # Errors
    /// Returns an [`ApiError`] if the value is not a non-negative integer.
    pub fn whole(&mut self, names: &[&str]) -> Result<Option<(String, u64)>, ApiError> {
        let Some(field) = self.take(names) else { return Ok(None) };
        let number = match field.value.as_str() {
            Some(text) => text.decode().trim().parse().ok(),
            None => field.value.as_u64(),
        };
        let number = number.ok_or_else(|| wrong(&field.path, "a whole number"))?;
        Ok(Some((field.path, number)))
    }

    /// Takes a boolean. Returns `Ok(None)` if it is absent.
    ///
    /// # Errors
    /// Returns an [`ApiError`] if the value is not a boolean.
    pub fn boolean(&mut self, names: &[&str]) -> Result<Option<bool>, ApiError> {
        let Some(field) = self.take(names) else { return Ok(None) };
        let value = field.value.as_bool().ok_or_else(|| wrong(&field.path, "a boolean"))?;
        Ok(Some(value))
    }

    /// Returns the members that were not taken.
    pub fn rest(self) -> Vec<VideoField<'a>> {
        self.0
    }
}

/// Returns the error for a field with an invalid value.
pub fn wrong(path: &str, wanted: impl std::fmt::Display) -> ApiError {
    ApiError::new(ErrorKind::InvalidField, format!("'{path}' must be {wanted}.")).param(path.to_owned())
}

/// Returns the error for a field that the model does not support.
pub fn unsupported(path: &str) -> ApiError {
    let message = format!("This model does not accept '{path}'.");
    ApiError::new(ErrorKind::Unsupported, message).param(path.to_owned())
}

/// Returns the error for a body that is not a JSON object.
pub fn not_json() -> ApiError {
    ApiError::new(ErrorKind::InvalidJson, "The request body must be a JSON object.")
}

/// Formats words as a list for error messages.
pub fn one_of(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    match words.as_slice() {
        [one] => one.clone(),
        _ => format!("one of {}", words.join(", ")),
    }
}
