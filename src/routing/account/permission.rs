//! Model permissions of a key.

/// Pattern of model ids: an id, a prefix (`claude-*`), or a text with stars anywhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern(Box<str>);

impl Pattern {
    /// Creates a pattern. `*` matches any number of characters; everything else matches itself.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Pattern(text.into())
    }

    /// Returns the pattern as it was written.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns true if an id matches.
    pub fn matches(&self, id: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = id.strip_prefix(first) else {
            return false;
        };
        let Some(last) = parts.next_back() else {
            return rest.is_empty();
        };
        for part in parts {
            // The earliest match leaves the most text for the parts that follow.
            match rest.find(part) {
                Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

/// Set of permitted models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Permission {
    /// All models.
    #[default]
    All,
    /// Models that match one of the patterns.
    Some(Box<[Pattern]>),
}

impl Permission {
    /// Returns true if a model is permitted.
    pub fn permits(&self, model: &str) -> bool {
        match self {
            Permission::All => true,
            Permission::Some(patterns) => patterns.iter().any(|pattern| pattern.matches(model)),
        }
    }

    /// Returns true if none of these models is permitted, although not all are.
    pub fn permits_none<'m>(&self, mut models: impl Iterator<Item = &'m str>) -> bool {
        matches!(self, Permission::Some(_)) && !models.any(|model| self.permits(model))
    }

    /// Returns the patterns that match none of these models: names that are misspelt, or of models that are gone.
    pub fn unmatched<'m>(&self, models: impl Iterator<Item = &'m str> + Clone) -> Vec<&str> {
        let Permission::Some(patterns) = self else { return Vec::new() };
        let without = |pattern: &&Pattern| !models.clone().any(|model| pattern.matches(model));
        patterns.iter().filter(without).map(Pattern::text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_names_what_matches_no_model() {
        let of =
            |patterns: &[&str]| Permission::Some(patterns.iter().map(|text| Pattern::new(*text)).collect());
        let models = ["claude-sonnet", "gpt"];
        let shown = |permission: &Permission| {
            let ids = models.iter().copied();
            (permission.permits_none(ids.clone()), permission.unmatched(ids).join(","))
        };
        assert_eq!(shown(&Permission::All), (false, String::new()));
        assert_eq!(shown(&of(&[])), (true, String::new()));
        assert_eq!(shown(&of(&["claud-nope"])), (true, "claud-nope".to_owned()));
        assert_eq!(shown(&of(&["claude-*", "claud-nope", ""])), (false, "claud-nope,".to_owned()));
    }

    #[test]
    fn pattern_star_matches_any_text() {
        for (pattern, id, fits) in [
            ("gpt-4o", "gpt-4o", true),
            ("gpt-4o", "gpt-4o-mini", false),
            ("gpt-4o*", "gpt-4o-mini", true),
            ("*", "anything", true),
            ("claude-*", "gpt", false),
            ("*-mini", "gpt-4o-mini", true),
            ("*-mini", "gpt-4o-mini-2", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "ac", false),
            ("a*a", "a", false),
            ("a**b", "ab", true),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(id), fits, "{pattern} {id}");
        }
    }
}
