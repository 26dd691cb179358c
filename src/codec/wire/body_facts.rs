//! Facts of a request body that pricing and permission checks need besides its model: the output limit, other models
//! that it names, and stored responses that it refers to. They are read from the members that the scanner found.

use bytes::Bytes;
use smallvec::SmallVec;

use super::fields::{CONTENT, Fields, STORE, messages, responses};
use super::prompt::name_in;
use super::request::Body;
use super::responses::references::{ItemReference, references};
use super::{Api, watch};
use json::{Cursor, Edit, JsonError, RawJson, ValueKind};

/// Minimum of a thinking budget at Anthropic, in tokens.
const MIN_THINKING_BUDGET: u64 = 1_024;

/// Output limits that the client sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputCaps {
    /// Maximum output of each response, in tokens; the largest value if several members set it. `None` if no member
    /// does.
    pub output: Option<u64>,
    /// Output limit in tokens from members that belong to other APIs; 0 if there is none. A provider that ignores such
    /// a member has no limit from it, so this value can only raise the expected usage, never lower it.
    pub unsure: u64,
    /// Number of responses requested (`n`, `candidateCount`). `None` if the request does not say.
    pub answers: Option<u64>,
}

/// Names of other models in one member.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NamedModels {
    /// Name of the member.
    pub member: &'static str,
    /// Model names.
    pub names: Vec<String>,
    /// Whether the member holds something that cannot be read as a model name.
    pub unreadable: bool,
}

impl Body {
    /// Returns the output limits that the client sets. A limit that is not a valid number counts as unlimited.
    pub fn output_caps(&mut self) -> OutputCaps {
        let mut most = OutputCaps::default();
        let Fields { caps, loose, counts, .. } = *self.fields;
        for (index, member) in self.members.with_any(caps | loose | counts) {
            let text = self.text.view(member.value.clone());
            // Three kinds of members: number of responses, `generationConfig` with limits inside, and plain limits.
            let is_cap = counts >> index & 1 == 0;
            let exact = member.wanted.is_some() && loose >> index & 1 == 0;
            if !is_cap {
                most.answers = most.answers.max(amount(&text));
            } else if member.kind == ValueKind::Object {
                let mut said = OutputCaps::default();
                // Cannot fail: the scanner has validated the text.
                let _ = of_settings(&text, &mut said);
                most.answers = most.answers.max(said.answers);
                if exact {
                    most.output = most.output.max(said.output);
                } else {
                    most.unsure = most.unsure.max(said.output.unwrap_or(0));
                }
            } else if exact && member.kind != ValueKind::Array {
                most.output = most.output.max(amount(&text));
            } else if member.kind != ValueKind::Array {
                most.unsure = most.unsure.max(amount(&text).unwrap_or(0));
            }
        }
        most
    }

    /// Lowers the output limits that the client sets to `most` tokens, in place: a provider refuses a request with a
    /// limit beyond its model's. Spaces fill up the place of the longer number, so that nothing else moves. Limits that
    /// are not whole numbers stay. A thinking budget of the messages API is lowered with the limit that it is a part of.
    pub fn clamp_output(&mut self, most: u64) {
        let edits = self.limit_edits(most);
        if !edits.is_empty() {
            self.text.overwrite(&edits);
        }
    }

    /// Returns whether the client sets an output limit beyond `most` tokens.
    pub fn is_over_limit(&self, most: u64) -> bool {
        !self.limit_edits(most).is_empty()
    }

    /// Returns the edits of [`Body::clamp_output`], in ascending order.
    pub(super) fn limit_edits(&self, most: u64) -> SmallVec<[Edit; 2]> {
        let Fields { caps, loose, .. } = *self.fields;
        let mut edits: SmallVec<[Edit; 2]> = SmallVec::new();
        let mut limit = None;
        for (_, member) in self.members.with_any(caps & !loose).filter(|(_, member)| member.wanted.is_some())
        {
            let text = self.text.view(member.value.clone());
            let start = member.value.start;
            let mut lower = |at: usize, number: &str| {
                let tokens = number.parse::<u64>().ok();
                if tokens > Some(most) {
                    limit = limit.max(tokens);
                    edits.push(replace_number(start + at, number, most));
                }
            };
            match member.kind {
                ValueKind::Number => lower(0, &text),
                ValueKind::Object => {
                    // Cannot fail: the scanner has validated the text.
                    let _ = watch::members(&mut Cursor::new(&text), |key, json| {
                        let value = json.raw()?.text();
                        if matches!(
                            key.decode().as_ref(),
                            "maxOutputTokens" | "max_output_tokens" | "maxTokens"
                        ) {
                            lower(json.offset() - value.len(), value);
                        }
                        Ok(())
                    });
                }
                _ => {}
            }
        }
        edits.extend(limit.and_then(|limit| self.lower_budget(limit, most)));
        edits.sort_by_key(|edit| edit.range.start);
        edits
    }

    /// Returns the edit that fits the thinking budget of a messages request into an output limit that is lowered from
    /// `limit` to `most` tokens: Anthropic refuses a budget that is not below it. `None` if there is nothing to lower.
    fn lower_budget(&self, limit: u64, most: u64) -> Option<Edit> {
        let thinking = self.members.find(messages::THINKING).filter(|_| self.api == Api::Messages)?;
        let start = thinking.value.start;
        let text = self.text.view(thinking.value.clone());
        let mut edit = None;
        // An error, of a value that is no object, leaves it unchanged.
        let _ = watch::members(&mut Cursor::new(&text), |key, json| {
            let value = json.raw()?.text();
            if key.decode() == "budget_tokens" {
                let budget = value.parse().ok().and_then(|budget| fitting_budget(budget, limit, most));
                let at = start + json.offset() - value.len();
                edit = budget.map(|budget| replace_number(at, value, budget));
            }
            Ok(())
        });
        edit
    }

    /// Returns whether the body may name models besides `model`.
    pub fn names_models(&self) -> bool {
        self.members.has_any(self.fields.models)
    }

    /// Returns the fallback models that the body names, by member. Some providers answer with one of them instead.
    pub fn named_models(&mut self) -> Vec<NamedModels> {
        let mut found = Vec::new();
        for (index, member) in self.members.with_any(self.fields.models) {
            let text = self.text.view(member.value.clone());
            let mut others = NamedModels { member: self.fields.name(index), ..NamedModels::default() };
            let mut json = Cursor::new(&text);
            let read = match others.member {
                "providerOptions" => of_options(&mut json, &mut others),
                _ => others.read(&mut json),
            };
            others.unreadable |= read.is_err();
            found.push(others);
        }
        found
    }

    /// Returns whether the provider may store the response: a responses request without `store: false`.
    pub fn may_be_stored(&mut self) -> bool {
        self.api == Api::Responses
            && self.members.find(STORE).is_none_or(|store| self.text.view(store.value.clone()) != "false")
    }

    /// Returns whether the input may have compaction items, or a trigger of one.
    pub fn may_have_compaction(&self) -> bool {
        self.api == Api::Responses && self.words_found & responses::COMPACTION != 0
    }

    /// Returns whether the provider may store the response, or whether the request continues a stored one.
    pub fn refers_to_stored(&mut self) -> bool {
        self.members.has_any(self.fields.stored_refs) || self.may_have_references() || self.may_be_stored()
    }

    /// Returns whether the input may have item references: whether one of its items has an id.
    pub fn may_have_references(&self) -> bool {
        self.api == Api::Responses && self.words_found & responses::ITEM_ID != 0
    }

    /// Returns the item references of the input, with their byte ranges in the body.
    pub fn item_references(&mut self) -> Vec<ItemReference> {
        let mut found = Vec::new();
        if !self.may_have_references() {
            return found;
        }
        for (_, member) in self.members.with_any(1 << CONTENT) {
            let text = self.text.view(member.value.clone());
            // Cannot fail: the scanner has validated the text.
            let read = references(&text).unwrap_or_default();
            let start = member.value.start;
            found.extend(read.into_iter().map(|one| {
                let range = start + one.range.start..start + one.range.end;
                ItemReference { range, ..one }
            }));
        }
        found
    }

    /// Returns the id of the stored response or conversation that the request continues, as raw text. `None` if there
    /// is none.
    pub fn stored_id(&self) -> Option<Bytes> {
        let kept = (0..u32::BITS as usize).filter(|index| self.fields.stored_refs >> index & 1 == 1);
        let mut members = kept.filter_map(|index| self.members.find(index));
        members
            .find(|member| matches!(member.kind, ValueKind::String | ValueKind::Object))
            .and_then(|member| name_in(member, b"\"id\"", &self.text))
    }

    /// Returns the ids of stored responses or conversations that the request continues, each with the name of its
    /// member. An id that cannot be read is an empty string, so that the caller can refuse it.
    pub fn stored_ids(&mut self) -> SmallVec<[(&'static str, String); 1]> {
        let mut ids = SmallVec::new();
        for (index, member) in self.members.with_any(self.fields.stored_refs) {
            if member.kind == ValueKind::Null {
                continue;
            }
            let name = self.fields.name(index);
            let text = self.text.view(member.value.clone());
            let before = ids.len();
            let mut take = |value: RawJson<'_>| {
                let id = value.as_str().map(|id| id.decode().into_owned()).unwrap_or_default();
                ids.push((name, id));
            };
            if member.kind == ValueKind::Object {
                let mut json = Cursor::new(&text);
                // Cannot fail: the scanner has validated the text.
                let _ = watch::members(&mut json, |key, json| {
                    let value = json.raw()?;
                    if key.decode().eq_ignore_ascii_case("id") {
                        take(value);
                    }
                    Ok(())
                });
            } else {
                take(RawJson::from_text(&text));
            }
            // An object without an id still refers to stored content.
            if ids.len() == before {
                ids.push((name, String::new()));
            }
        }
        ids
    }
}

/// Returns the edit that replaces the number at this offset by a smaller one, with spaces in the place of further digits.
fn replace_number(at: usize, number: &str, by: u64) -> Edit {
    let text = format!("{by:<width$}", width = number.len());
    Edit { range: at..at + number.len(), text: Bytes::from(text) }
}

/// Returns the thinking budget that replaces one of an output limit that is lowered from `limit` to `most` tokens. The
/// room for the response beside it stays, up to a fifth of the new limit. `None` if the budget still fits, if it did not
/// fit the client's own limit (which interleaved thinking permits), or if no budget fits.
fn fitting_budget(budget: u64, limit: u64, most: u64) -> Option<u64> {
    if !(most..limit).contains(&budget) {
        return None;
    }
    let room = (limit - budget).min(most / 5).max(1);
    let fitting = most.saturating_sub(room).max(MIN_THINKING_BUDGET);
    (fitting < most).then_some(fitting)
}

/// Reads the limits in `generationConfig` of the generate format or `inferenceConfig` of Converse. If a member occurs twice, the larger value counts.
fn of_settings(text: &str, most: &mut OutputCaps) -> Result<(), JsonError> {
    watch::members(&mut Cursor::new(text), |key, json| {
        match key.decode().as_ref() {
            "maxOutputTokens" | "max_output_tokens" | "maxTokens" => {
                most.output = most.output.max(amount(json.raw()?.text()));
            }
            "candidateCount" | "candidate_count" => {
                most.answers = most.answers.max(amount(json.raw()?.text()));
            }
            _ => json.skip()?,
        }
        Ok(())
    })
}

/// Returns the number of tokens or responses that a limit permits. `None` for `null`. `u64::MAX` for a negative number
/// or anything that is not a number, because each provider treats it differently. A number in quotes counts as a
/// number, because lenient providers accept it.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn amount(text: &str) -> Option<u64> {
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

/// Reads the fallback models in `providerOptions.gateway.models` of Vercel's AI gateway.
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
    /// Reads a name, a list of names, or an object that names a model or holds such a list.
    fn read(&mut self, json: &mut Cursor<'_>) -> Result<(), JsonError> {
        match json.kind()? {
            ValueKind::Null => json.skip(),
            ValueKind::String => {
                self.names.push(json.string()?.decode().into_owned());
                Ok(())
            }
            ValueKind::Array => watch::elements(json, |json| self.read(json)).map(|_| ()),
            ValueKind::Object => {
                let before = self.names.len();
                watch::members(json, |key, json| match json.kind()? {
                    ValueKind::Array => self.read(json),
                    ValueKind::String if key.decode().eq_ignore_ascii_case("model") => self.read(json),
                    _ => json.skip(),
                })?;
                // An object without any model name has a shape that this code does not know.
                self.unreadable |= self.names.len() == before;
                Ok(())
            }
            ValueKind::Number | ValueKind::Bool => {
                self.unreadable = true;
                json.skip()
            }
        }
    }
}
