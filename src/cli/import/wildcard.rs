//! Patterns of models in a source, such as `openai/*`. The result has none: a model is listed by name.

/// Pattern of the source that stands for models of a provider. The result has no patterns.
#[derive(Clone, Debug)]
pub(super) struct WildcardDraft {
    /// Names that clients use, with at most one `*`.
    pub(super) id: String,
    /// Name at the provider; a `*` is what the name has in its place.
    pub(super) model: String,
    pub(super) provider: String,
    pub(super) origin: String,
}

impl WildcardDraft {
    /// Returns what a name has in the place of the `*`; `None` if the pattern does not fit.
    pub(super) fn part<'n>(&self, id: &'n str) -> Option<&'n str> {
        let Some((head, tail)) = self.id.split_once('*') else { return (self.id == id).then_some("") };
        let rest = id.strip_prefix(head)?.strip_suffix(tail)?;
        (!rest.is_empty()).then_some(rest)
    }

    /// Returns the members of a `[[model]]` for what stands in the place of the `*`.
    pub(super) fn members(&self, part: &str) -> [String; 2] {
        let text = |value: &str| toml_edit::Value::from(value).to_string();
        let (id, provider) = (text(&self.id.replace('*', part)), text(&self.provider));
        let model = text(&self.model.replace('*', part));
        [format!("id = {id}"), format!("targets = [{{ provider = {provider}, model = {model} }}]")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_takes_the_name_apart_and_puts_it_together() {
        let wildcard = |id: &str, model: &str| WildcardDraft {
            id: id.to_owned(),
            model: model.to_owned(),
            provider: "p".to_owned(),
            origin: String::new(),
        };
        let all = wildcard("openai/*", "*");
        assert_eq!(
            (all.part("openai/gpt-4o"), all.part("openai/"), all.part("gpt-4o")),
            (Some("gpt-4o"), None, None)
        );
        let middle = wildcard("eu-*-fast", "x/*");
        assert_eq!((middle.part("eu-a-fast"), middle.part("eu-fast")), (Some("a"), None));
        let [id, targets] = middle.members("a\"b");
        assert_eq!(id, "id = 'eu-a\"b-fast'");
        assert_eq!(targets, "targets = [{ provider = \"p\", model = 'x/a\"b' }]");
        assert_eq!(wildcard("fixed", "x/*").part("fixed"), Some(""));
    }
}
