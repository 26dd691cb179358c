//! What a model takes at one provider: the facts of its family, with what the provider makes of it, and of names that
//! resemble none the family that the provider's unknown models are taken for.

use super::entry::How;
use super::facts::{FactsRow, ModelFacts};
use super::{Catalogue, Family};

/// What a provider makes of the models that it serves.
#[derive(Clone, Debug)]
pub(super) struct Serving {
    pub(super) provider: Box<str>,
    pub(super) families: Vec<Box<str>>,
    pub(super) makers: Vec<Box<str>>,
    pub(super) facts: FactsRow,
}

/// Pattern of names: a text that may stand at the beginning of any part of a name, in which `*` stands for any characters
/// and `#` for a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamePattern(Box<str>);

impl NamePattern {
    pub(super) fn new(text: &str) -> NamePattern {
        NamePattern(text.into())
    }

    /// Returns the number of characters that stand for themselves: of two patterns the longer one is meant.
    pub(super) fn length(&self) -> usize {
        self.0.bytes().filter(|byte| !matches!(byte, b'*' | b'#')).count()
    }

    /// Returns whether a part of the name begins with the pattern.
    pub(super) fn is_in(&self, name: &str) -> bool {
        let parts = name.match_indices(['-', '.', '_', ':']).map(|(at, _)| at);
        let starts = std::iter::once(0).chain(parts.flat_map(|at| [at, at.saturating_add(1)]));
        starts.filter_map(|start| name.as_bytes().get(start..)).any(|rest| begins(self.0.as_bytes(), rest))
    }
}

/// Returns whether a text begins with a pattern.
fn begins(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => true,
        Some((b'*', rest)) => (0..=text.len()).filter_map(|at| text.get(at..)).any(|text| begins(rest, text)),
        Some((b'#', rest)) => {
            let digits = text.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
            digits > 0 && text.get(digits..).is_some_and(|text| begins(rest, text))
        }
        Some((byte, rest)) => {
            text.split_first().is_some_and(|(first, text)| first == byte && begins(rest, text))
        }
    }
}

impl Catalogue {
    /// Returns what a model takes at a provider of the catalogue, and how its name was found; `None` for a name that resembles
    /// none, whose facts are those of the provider's unknown models. `providers` are the ids of its rows; later ones come first.
    pub fn facts_at(&self, providers: &[&str], name: &str) -> (ModelFacts, Option<How>) {
        let found = self.family_of(name);
        let how = found.map(|(_, how)| how);
        let family = found.map(|(family, _)| family).or_else(|| self.unknown_at(providers));
        let own = self.model(name).map(|model| &model.facts);
        let mut facts = own.or_else(|| family.map(|family| &family.facts)).cloned().unwrap_or_default();
        let servings = providers
            .iter()
            .flat_map(|provider| self.servings.iter().filter(move |serving| &*serving.provider == *provider));
        for serving in servings {
            let is_maker = facts.maker.as_ref().is_some_and(|maker| serving.makers.contains(maker));
            if is_maker || family.is_some_and(|family| self.is_among(family, &serving.families)) {
                serving.facts.set(&mut facts);
            }
        }
        (facts, how)
    }

    /// Returns the facts of models that a provider serves and that are not known.
    pub fn unknown_facts(&self, providers: &[&str]) -> ModelFacts {
        self.unknown_at(providers).map(|family| family.facts.clone()).unwrap_or_default()
    }

    fn unknown_at(&self, providers: &[&str]) -> Option<&Family> {
        let family = |id: &&str| self.family(self.provider(id)?.family.as_deref()?);
        providers.iter().rev().find_map(family)
    }

    /// Returns whether a family is one of these, or inherits from one.
    fn is_among(&self, family: &Family, ids: &[Box<str>]) -> bool {
        let parent = |family: &&Family| family.like.as_deref().and_then(|id| self.family(id));
        // The rows have been checked for circles; the bound is for a catalogue that has not.
        std::iter::successors(Some(family), parent).take(32).any(|family| ids.contains(&family.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_is_found_at_the_beginning_of_a_part() {
        for (pattern, name, found) in [
            ("qwen#-#b", "qwen3-32b", true),
            ("qwen#-#b", "qwen3.5-397b-a17b", true),
            ("qwen#-#b", "qwen3-max-beta", false),
            ("qwen#*omni", "qwen3-omni-flash", true),
            ("-tts", "gpt-4o-mini-tts", true),
            ("tts", "gpt-4o-mini-tts", true),
            ("tts", "matts", false),
            ("qwen#:#b", "qwen3:8b", true),
        ] {
            assert_eq!(NamePattern::new(pattern).is_in(name), found, "{pattern} in {name}");
        }
        assert_eq!(NamePattern::new("qwen#*-#b").length(), 6);
    }
}
