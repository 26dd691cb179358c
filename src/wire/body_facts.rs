//! What a body asks for beyond its model, as far as money and permission depend on it: how much output it permits,
//! which other models it names, and what its provider has kept for it. Read from the members that the scanner found.

use smallvec::SmallVec;

use super::fields::{Fields, STORE};
use super::request::Body;
use super::{Api, watch};
use crate::json::{Cursor, JsonError, Kind, RawJson};

/// The most output that a client wants, as far as it says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputCaps {
    /// Tokens of each answer: the largest limit, where there are several.
    pub output: Option<u64>,
    /// Tokens that a limit permits whose spelling belongs to other APIs. A provider that does not know it has no limit
    /// by it, so that it never lowers what is expected.
    pub unsure: u64,
    /// Answers at once.
    pub answers: Option<u64>,
}

/// Names of other models in a member.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NamedModels {
    /// The member.
    pub member: &'static str,
    /// The names.
    pub names: Vec<String>,
    /// Something in it is no name of a model, as far as can be told.
    pub unreadable: bool,
}

impl Body {
    /// The most output that the client wants. A limit that is no whole number counts as if it were endless.
    pub fn most(&mut self) -> OutputCaps {
        let mut most = OutputCaps::default();
        let Fields { caps, loose, counts, .. } = *self.fields;
        for (index, member) in self.members.with_any(caps | loose | counts) {
            let text = self.text.look(member.value.clone());
            let is_cap = counts >> index & 1 == 0;
            let exact = member.wanted.is_some() && loose >> index & 1 == 0;
            if !is_cap {
                most.answers = most.answers.max(amount(&text));
            } else if member.kind == Kind::Object {
                let mut said = OutputCaps::default();
                // The scanner found the text to be sound.
                let _ = of_settings(std::str::from_utf8(&text).unwrap_or_default(), &mut said);
                most.answers = most.answers.max(said.answers);
                if exact {
                    most.output = most.output.max(said.output);
                } else {
                    most.unsure = most.unsure.max(said.output.unwrap_or(0));
                }
            } else if exact && member.kind != Kind::Array {
                most.output = most.output.max(amount(&text));
            } else if member.kind != Kind::Array {
                most.unsure = most.unsure.max(amount(&text).unwrap_or(0));
            }
        }
        most
    }

    /// Whether the body may name models besides the one that it asks for.
    pub fn names_models(&self) -> bool {
        self.members.has_any(self.fields.models)
    }

    /// The models that it names besides, by member: some providers let them answer instead.
    pub fn named_models(&mut self) -> Vec<NamedModels> {
        let mut found = Vec::new();
        for (index, member) in self.members.with_any(self.fields.models) {
            let text = self.text.look(member.value.clone());
            let mut others = NamedModels { member: self.fields.name(index), ..NamedModels::default() };
            let mut json = Cursor::new(std::str::from_utf8(&text).unwrap_or_default());
            let read = match others.member {
                "providerOptions" => of_options(&mut json, &mut others),
                _ => others.read(&mut json),
            };
            others.unreadable |= read.is_err();
            found.push(others);
        }
        found
    }

    /// Whether the provider may keep the answer, because the client does not forbid it.
    pub fn may_be_kept(&mut self) -> bool {
        self.api == Api::Responses
            && self
                .members
                .find(STORE)
                .is_none_or(|store| &self.text.look(store.value.clone())[..] != b"false")
    }

    /// Whether the provider may keep the answer, or the request goes on from what it has kept.
    pub fn is_about_kept(&mut self) -> bool {
        self.members.has_any(self.fields.kept) || self.may_be_kept()
    }

    /// The ids of all that the provider has kept and the request goes on from, with the members that name them; an
    /// empty one where it cannot be read.
    pub fn all_kept(&mut self) -> SmallVec<[(&'static str, String); 1]> {
        let mut ids = SmallVec::new();
        for (index, member) in self.members.with_any(self.fields.kept) {
            if member.kind == Kind::Null {
                continue;
            }
            let name = self.fields.name(index);
            let text = self.text.look(member.value.clone());
            let text = std::str::from_utf8(&text).unwrap_or_default();
            let before = ids.len();
            let mut take = |value: RawJson<'_>| {
                let id = value.as_str().map(|id| id.decode().into_owned()).unwrap_or_default();
                ids.push((name, id));
            };
            if member.kind == Kind::Object {
                let mut json = Cursor::new(text);
                // The scanner found the text to be sound.
                let _ = watch::members(&mut json, |key, json| {
                    let value = json.raw()?;
                    if key.decode().eq_ignore_ascii_case("id") {
                        take(value);
                    }
                    Ok(())
                });
            } else {
                take(RawJson::from_text(text));
            }
            if ids.len() == before {
                ids.push((name, String::new()));
            }
        }
        ids
    }
}

/// The limits in Gemini's settings. Whoever says a thing twice means the larger one.
fn of_settings(text: &str, most: &mut OutputCaps) -> Result<(), JsonError> {
    watch::members(&mut Cursor::new(text), |key, json| {
        match key.decode().as_ref() {
            "maxOutputTokens" | "max_output_tokens" => {
                most.output = most.output.max(amount(json.raw()?.text().as_bytes()));
            }
            "candidateCount" | "candidate_count" => {
                most.answers = most.answers.max(amount(json.raw()?.text().as_bytes()));
            }
            _ => json.skip()?,
        }
        Ok(())
    })
}

/// How much a value permits. Nothing for `null`; for what is no number that is not negative, all there is, since what
/// its provider makes of that is open. A number in quotes counts as one, because lenient providers read it so.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "out of range is all there is")]
fn amount(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).unwrap_or_default();
    if text == "null" {
        return None;
    }
    let number = text.trim_matches('"').trim();
    let whole = number.parse::<u64>().ok();
    let rounded = || {
        let number = number.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)?;
        Some(number.ceil() as u64)
    };
    Some(whole.or_else(rounded).unwrap_or(u64::MAX))
}

/// The models that Vercel's gateway falls back to.
fn of_options(json: &mut Cursor<'_>, others: &mut NamedModels) -> Result<(), JsonError> {
    watch::members(json, |key, json| {
        if !key.decode().eq_ignore_ascii_case("gateway") {
            return json.skip();
        }
        watch::members(json, |key, json| {
            if key.decode().eq_ignore_ascii_case("models") { others.read(json) } else { json.skip() }
        })
    })
}

impl NamedModels {
    /// A name, a list of names, or objects that name a model or have such a list.
    fn read(&mut self, json: &mut Cursor<'_>) -> Result<(), JsonError> {
        match json.kind()? {
            Kind::Null => json.skip(),
            Kind::String => {
                self.names.push(json.string()?.decode().into_owned());
                Ok(())
            }
            Kind::Array => watch::elements(json, |json| self.read(json)).map(|_| ()),
            Kind::Object => {
                let before = self.names.len();
                watch::members(json, |key, json| match json.kind()? {
                    Kind::Array => self.read(json),
                    Kind::String if key.decode().eq_ignore_ascii_case("model") => self.read(json),
                    _ => json.skip(),
                })?;
                self.unreadable |= self.names.len() == before;
                Ok(())
            }
            Kind::Number | Kind::Bool => {
                self.unreadable = true;
                json.skip()
            }
        }
    }
}
