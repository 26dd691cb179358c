//! What a body asks for beyond its model, as far as money and permission depend on it: how much output it permits, which
//! other models it names, and what its provider has kept for it. Read from the members that the scanner found.

use std::ops::Range;

use smallvec::SmallVec;

use super::fields::Fields;
use super::watch;
use crate::json::{Cursor, JsonError, Kind, Member, RawJson, Rope};

/// The most output that a client wants, as far as it says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Most {
    /// Tokens of each answer: the largest limit, where there are several.
    pub output: Option<u64>,
    /// Tokens that a limit permits whose spelling belongs to other APIs. A provider that does not know it has no limit by
    /// it, so that it never lowers what is expected.
    pub unsure: u64,
    /// Answers at once.
    pub answers: Option<u64>,
}

/// Where the members stand.
#[derive(Clone, Debug, Default)]
pub(super) struct BodyFacts {
    caps: SmallVec<[Place; 1]>,
    counts: SmallVec<[Place; 1]>,
    models: SmallVec<[Place; 1]>,
    kept: SmallVec<[Place; 1]>,
}

#[derive(Clone, Debug)]
struct Place {
    name: &'static str,
    kind: Kind,
    at: Range<usize>,
    /// The name is written as the API has it.
    exact: bool,
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

impl BodyFacts {
    /// Those among the members of a body.
    pub(super) fn of(fields: &Fields, members: &[Member]) -> BodyFacts {
        let mut facts = BodyFacts::default();
        for member in members {
            let Some(index) = member.wanted.or(member.folded) else { continue };
            let Some(list) = facts.list(fields, index) else { continue };
            list.push(Place {
                name: fields.sought.names().get(index).copied().unwrap_or_default(),
                kind: member.kind,
                at: member.value.clone(),
                exact: member.wanted.is_some() && !fields.loose.contains(&index),
            });
        }
        facts
    }

    fn list(&mut self, fields: &Fields, index: usize) -> Option<&mut SmallVec<[Place; 1]>> {
        if fields.caps.contains(&index) || fields.loose.contains(&index) {
            return Some(&mut self.caps);
        }
        if fields.counts.contains(&index) {
            return Some(&mut self.counts);
        }
        if fields.models.contains(&index) {
            return Some(&mut self.models);
        }
        let kept = fields.conversing.is_some_and(|by| by.kept.contains(&index));
        kept.then_some(&mut self.kept)
    }

    /// The most output that is wanted. A limit that is no whole number counts as if it were endless.
    pub(super) fn most(&self, body: &mut Rope) -> Most {
        let mut most = Most::default();
        for count in &self.counts {
            most.answers = most.answers.max(amount(&body.slice(count.at.clone())));
        }
        for cap in &self.caps {
            let text = body.slice(cap.at.clone());
            if cap.kind == Kind::Object {
                let mut said = Most::default();
                // The scanner found the text to be sound.
                let _ = of_settings(std::str::from_utf8(&text).unwrap_or_default(), &mut said);
                most.answers = most.answers.max(said.answers);
                if cap.exact {
                    most.output = most.output.max(said.output);
                } else {
                    most.unsure = most.unsure.max(said.output.unwrap_or(0));
                }
            } else if cap.exact && cap.kind != Kind::Array {
                most.output = most.output.max(amount(&text));
            } else if cap.kind != Kind::Array {
                most.unsure = most.unsure.max(amount(&text).unwrap_or(0));
            }
        }
        most
    }

    /// Whether other models may be named.
    pub(super) fn names_models(&self) -> bool {
        !self.models.is_empty()
    }

    /// Whether anything is said of what the provider has kept.
    pub(super) fn goes_on(&self) -> bool {
        !self.kept.is_empty()
    }

    /// The models that are named besides the one that is asked, by member.
    pub(super) fn named_models(&self, body: &mut Rope) -> Vec<NamedModels> {
        let read = |place: &Place| {
            let text = body.slice(place.at.clone());
            let mut others = NamedModels { member: place.name, ..NamedModels::default() };
            let mut json = Cursor::new(std::str::from_utf8(&text).unwrap_or_default());
            let read = match place.name {
                "providerOptions" => of_options(&mut json, &mut others),
                _ => others.read(&mut json),
            };
            others.unreadable |= read.is_err();
            others
        };
        self.models.iter().map(read).collect()
    }

    /// The ids of what the provider has kept and the request goes on from, with their members; an empty one where it
    /// cannot be read.
    pub(super) fn kept(&self, body: &mut Rope) -> SmallVec<[(&'static str, String); 1]> {
        let mut ids = SmallVec::new();
        for place in self.kept.iter().filter(|place| place.kind != Kind::Null) {
            let text = body.slice(place.at.clone());
            let text = std::str::from_utf8(&text).unwrap_or_default();
            let before = ids.len();
            let mut take = |value: RawJson<'_>| {
                let id = value.as_str().map(|id| id.decode().into_owned()).unwrap_or_default();
                ids.push((place.name, id));
            };
            if place.kind == Kind::Object {
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
                ids.push((place.name, String::new()));
            }
        }
        ids
    }
}

/// The limits in Gemini's settings. Whoever says a thing twice means the larger one.
fn of_settings(text: &str, most: &mut Most) -> Result<(), JsonError> {
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
