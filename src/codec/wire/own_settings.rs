//! Reasoning efforts and sampling parameters of a body in its own format: which of them it has, and the edits for a target
//! that takes other ones.
//!
//! Must not live here: what a target takes, which its capability profile says.

use std::ops::Range;

use super::Api;
use super::fields::{chat, generate, messages, responses};
use super::request::Body;
use super::spelling::{MemberRange, Respelling, find, member_ranges};
use crate::canonical::dialect::{ReasoningOff, ReasoningSupport};
use crate::canonical::request::EffortSetting;
use crate::canonical::{Dialect, Effort, RequestFeatures as Features};
use json::{JsonRope, RawJson, ValueKind};

/// Features that this module finds.
pub(super) const EDITED: Features = Features::EFFORTS
    .with(Features::NO_EFFORT)
    .with(Features::OFF_BESIDE_EFFORTS)
    .with(Features::SAMPLING)
    .with(Features::SAMPLING_ALONE)
    .with(Features::SAMPLING_BESIDE_EFFORT);

/// Features that need a look at the effort.
const NEEDS_EFFORT: Features = Features::EFFORTS
    .with(Features::NO_EFFORT)
    .with(Features::OFF_BESIDE_EFFORTS)
    .with(Features::SAMPLING_ALONE)
    .with(Features::SAMPLING_BESIDE_EFFORT);

/// Members of `generationConfig` that set sampling.
const SAMPLING_MEMBERS: [(&str, &str); 9] = [
    ("temperature", "temperature"),
    ("topP", "top_p"),
    ("top_p", "top_p"),
    ("topK", "top_k"),
    ("top_k", "top_k"),
    ("presencePenalty", "presence_penalty"),
    ("presence_penalty", "presence_penalty"),
    ("frequencyPenalty", "frequency_penalty"),
    ("frequency_penalty", "frequency_penalty"),
];

/// Reasoning effort as a body says it.
struct EffortPlace {
    /// Effort; `None` for the word `none`.
    effort: Option<Effort>,
    /// Byte range of the value in the body.
    at: Range<usize>,
    /// Name in warnings.
    name: &'static str,
}

impl Body {
    /// Returns whether the request sets a reasoning effort, in the members of its format for it.
    pub fn effort_setting(&self) -> EffortSetting {
        match self.effort_place() {
            None if self.api == Api::Messages || self.api == Api::Generate => {
                let found = self.features(Features::NONE);
                match () {
                    () if found.intersects(Features::REASONING_OFF) => EffortSetting::Off,
                    () if found.intersects(Features::BUDGET.with(Features::ADAPTIVE)) => EffortSetting::On,
                    () => EffortSetting::Unset,
                }
            }
            None => EffortSetting::Unset,
            Some(EffortPlace { effort: None, .. }) => EffortSetting::Off,
            Some(_) => EffortSetting::On,
        }
    }

    /// Returns the features of the effort and of what is refused beside it.
    pub(super) fn effort_features(&self, asked: Features, found: Features) -> Features {
        if !asked.intersects(NEEDS_EFFORT) {
            return Features::NONE;
        }
        let effort = self.effort_place().map(|place| place.effort);
        let is_off = found.intersects(Features::REASONING_OFF);
        let samples = found.intersects(Features::SAMPLING);
        match effort {
            None => Features::SAMPLING_ALONE.when(samples),
            Some(None) => Features::NO_EFFORT,
            Some(Some(effort)) => Features::effort(effort)
                .with(Features::off_beside(effort).when(is_off))
                .with(Features::SAMPLING_BESIDE_EFFORT.when(samples)),
        }
    }

    /// Returns whether a generate request sets sampling parameters.
    pub(super) fn generation_sampling(&self) -> Features {
        let mut text = self.text.clone();
        let is_set = generate::GENERATION_CONFIG.into_iter().any(|index| {
            let Some(config) = self.top(index, &mut text) else { return false };
            member_ranges(config.text(), 0).iter().any(is_sampling)
        });
        Features::SAMPLING.when(is_set)
    }

    fn effort_place(&self) -> Option<EffortPlace> {
        let mut text = self.text.clone();
        let (indexes, path, name): (&[usize], [&[&str]; 2], _) = match self.api {
            Api::Chat => (&[chat::REASONING_EFFORT], [&[], &[]], "reasoning_effort"),
            Api::Messages => (&[messages::OUTPUT_CONFIG], [&["effort"], &[]], "output_config.effort"),
            Api::Responses => (&[responses::REASONING], [&["effort"], &[]], "reasoning.effort"),
            Api::Generate => (
                &generate::GENERATION_CONFIG,
                [&["thinkingConfig", "thinking_config"], &["thinkingLevel", "thinking_level"]],
                "thinkingConfig.thinkingLevel",
            ),
            _ => return None,
        };
        indexes.iter().find_map(|index| {
            let member = self.member(*index).filter(|member| member.kind != ValueKind::Null)?;
            let top = self.top(*index, &mut text)?;
            let mut at = member.value.clone();
            for names in path.into_iter().filter(|names| !names.is_empty()) {
                let offset = at.start - member.value.start;
                let inner = top.text().get(offset..at.end - member.value.start)?;
                let members = member_ranges(inner, at.start);
                at = members.iter().find(|place| names.contains(&place.name))?.at.clone();
            }
            let value = top.text().get(at.start - member.value.start..at.end - member.value.start)?;
            let word = RawJson::from_text(value).as_str()?;
            let effort = match Effort::from_name(word.escaped()) {
                Some(effort) => Some(effort),
                None if word.is("none") => None,
                // Not one of the words: the provider answers it.
                None => return None,
            };
            Some(EffortPlace { effort, at, name })
        })
    }

    /// Adds the edits for efforts and sampling parameters that the target refuses of the body.
    pub(super) fn edit_settings(
        &self,
        held: Features,
        dialect: &Dialect<'_>,
        text: &mut JsonRope,
        out: &mut Respelling,
    ) {
        if held.intersects(NEEDS_EFFORT)
            && let Some(place) = self.effort_place()
        {
            self.edit_effort(place, held, dialect, out);
            if dialect.reasoning == ReasoningSupport::Fixed {
                self.remove_effort(text, out);
            }
        }
        let sampling =
            Features::SAMPLING.with(Features::SAMPLING_ALONE).with(Features::SAMPLING_BESIDE_EFFORT);
        if !held.intersects(sampling) {
            return;
        }
        let members: &[(usize, &'static str)] = match self.api {
            Api::Chat => &[(chat::TEMPERATURE, "temperature"), (chat::TOP_P, "top_p")],
            Api::Responses => &[(responses::TEMPERATURE, "temperature"), (responses::TOP_P, "top_p")],
            Api::Generate => return self.remove_sampling(text, out),
            _ => return,
        };
        for (index, name) in members {
            if let Some(member) = self.top(*index, text).filter(|member| member.text() != "null") {
                out.replace(member.at.clone(), "null");
                out.note_dropped(name);
            }
        }
    }

    /// Takes out the reasoning settings, for a model that does not reason.
    fn remove_effort(&self, text: &mut JsonRope, out: &mut Respelling) {
        let (index, name) = match self.api {
            Api::Chat => (chat::REASONING_EFFORT, "reasoning_effort"),
            Api::Responses => (responses::REASONING, "reasoning"),
            _ => return,
        };
        if let Some(member) = self.top(index, text) {
            out.edits
                .retain(|edit| !(member.at.start <= edit.range.start && edit.range.end <= member.at.end));
            out.replace(member.at, "null");
            out.note_dropped(name);
        }
    }

    fn edit_effort(&self, place: EffortPlace, held: Features, dialect: &Dialect<'_>, out: &mut Respelling) {
        let (ReasoningSupport::Effort { efforts, off } | ReasoningSupport::Adaptive { efforts, off }) =
            dialect.reasoning
        else {
            return;
        };
        let instead = match (place.effort, off) {
            // The spellings of the format see to it.
            (None, _) if self.api == Api::Responses => return,
            (None, _) if held.intersects(Features::NO_EFFORT) => efforts.lowest(),
            (Some(effort), ReasoningOff::UpTo(highest)) if held.intersects(Features::off_beside(effort)) => {
                efforts.up_to(highest)
            }
            (Some(effort), _) if held.intersects(Features::effort(effort)) => efforts.nearest(effort),
            _ => None,
        };
        let Some(instead) = instead else { return };
        let upper = self.api == Api::Generate;
        let word = if upper { instead.name().to_ascii_uppercase() } else { instead.name().to_owned() };
        out.replace(place.at, format!("\"{word}\""));
        out.clamped.push(place.name);
    }

    /// Removes the sampling parameters of a generate request.
    fn remove_sampling(&self, text: &mut JsonRope, out: &mut Respelling) {
        for index in generate::GENERATION_CONFIG {
            let Some(config) = self.top(index, text) else { continue };
            let members = member_ranges(config.text(), config.at.start);
            let indexes: Vec<usize> =
                (0..).zip(&members).filter(|(_, place)| is_sampling(place)).map(|(index, _)| index).collect();
            for (_, name) in SAMPLING_MEMBERS.iter().filter(|(own, _)| find(&members, own).is_some()) {
                out.note_dropped(name);
            }
            out.remove(&members, &indexes);
        }
    }
}

fn is_sampling(place: &MemberRange<'_>) -> bool {
    !place.value.is_null() && SAMPLING_MEMBERS.iter().any(|(own, _)| *own == place.name)
}
