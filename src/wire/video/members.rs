//! The members of a request, taken one after the other, whichever of its names one has.

use std::borrow::Cow;

use crate::error::{ApiError, Kind};
use crate::json::{Cursor, JsonError, RawJson};

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its path in the request.
    pub path: String,
    /// Its name.
    pub name: &'a str,
    /// Its value, which is not `null`.
    pub value: RawJson<'a>,
}

/// What is left of a request's members.
#[derive(Clone, Debug, Default)]
pub struct Members<'a>(Vec<Field<'a>>);

impl<'a> Members<'a> {
    /// Reads an object.
    ///
    /// # Errors
    /// The text is none.
    pub fn read(text: &'a str) -> Result<Self, ApiError> {
        let mut members = Members::default();
        members.add(text, "").map_err(|_| not_json())?;
        Ok(members)
    }

    /// Adds the members of an object that stands in the request. What has been there before comes first.
    ///
    /// # Errors
    /// The text is no object.
    pub fn add(&mut self, text: &'a str, prefix: &str) -> Result<(), JsonError> {
        let mut json = Cursor::new(text);
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            let value = json.raw()?;
            if !value.is_null() {
                let name = key.escaped();
                self.0.push(Field { path: format!("{prefix}{name}"), name, value });
            }
        }
        Ok(())
    }

    /// Takes a member that may have several names; the first name counts, and the others are gone.
    pub fn take(&mut self, names: &[&str]) -> Option<Field<'a>> {
        let found = names.iter().find_map(|name| self.0.iter().position(|field| field.name == *name));
        let found = found.map(|at| self.0.remove(at));
        self.0.retain(|field| !names.contains(&field.name));
        found
    }

    /// The path of the member that [`take`](Self::take) would take.
    pub fn path(&self, names: &[&str]) -> Option<&str> {
        let found = names.iter().find_map(|name| self.0.iter().find(|field| field.name == *name));
        found.map(|field| field.path.as_str())
    }

    /// Takes a text.
    ///
    /// # Errors
    /// It is something else.
    pub fn text(&mut self, names: &[&str]) -> Result<Option<(String, Cow<'a, str>)>, ApiError> {
        let Some(field) = self.take(names) else { return Ok(None) };
        let text = field.value.as_str().ok_or_else(|| wrong(&field.path, "a string"))?.decode();
        Ok(Some((field.path, text)))
    }

    /// Takes a text that must be there and must not be empty.
    ///
    /// # Errors
    /// It is not there, or something else.
    pub fn required(&mut self, names: &[&'static str]) -> Result<Cow<'a, str>, ApiError> {
        let name = names.first().copied().unwrap_or_default();
        let (path, text) = self.text(names)?.ok_or_else(|| ApiError::missing(name))?;
        if text.trim().is_empty() {
            return Err(wrong(&path, "a string that is not empty"));
        }
        Ok(text)
    }

    /// Takes a whole number; some clients send it as a text.
    ///
    /// # Errors
    /// It is something else.
    pub fn whole(&mut self, names: &[&str]) -> Result<Option<(String, u64)>, ApiError> {
        let Some(field) = self.take(names) else { return Ok(None) };
        let number = match field.value.as_str() {
            Some(text) => text.decode().trim().parse().ok(),
            None => field.value.as_u64(),
        };
        let number = number.ok_or_else(|| wrong(&field.path, "a whole number"))?;
        Ok(Some((field.path, number)))
    }

    /// Takes a boolean.
    ///
    /// # Errors
    /// It is something else.
    pub fn boolean(&mut self, names: &[&str]) -> Result<Option<bool>, ApiError> {
        let Some(field) = self.take(names) else { return Ok(None) };
        let value = field.value.as_bool().ok_or_else(|| wrong(&field.path, "a boolean"))?;
        Ok(Some(value))
    }

    /// What nobody took.
    pub fn rest(self) -> Vec<Field<'a>> {
        self.0
    }
}

/// A field that is not what it should be.
pub fn wrong(path: &str, wanted: impl std::fmt::Display) -> ApiError {
    ApiError::new(Kind::InvalidField, format!("'{path}' must be {wanted}.")).param(path.to_owned())
}

/// A field that the model does not take.
pub fn unsupported(path: &str) -> ApiError {
    let message = format!("This model does not take '{path}'.");
    ApiError::new(Kind::Unsupported, message).param(path.to_owned())
}

/// A body that is no object.
pub fn not_json() -> ApiError {
    ApiError::new(Kind::InvalidJson, "The request body must be a JSON object.")
}

/// Words as they are listed in messages.
pub fn one_of(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    match words.as_slice() {
        [one] => one.clone(),
        _ => format!("one of {}", words.join(", ")),
    }
}
