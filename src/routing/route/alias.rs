//! Aliases of models for Claude Code, whose model discovery shows only ids that contain `claude` or `anthropic`
//! (<https://code.claude.com/docs/en/llm-gateway>, November 2026).

use std::sync::Arc;

use super::{Model, Target};
use json::EscapedString;

/// Prefix of aliases if the configuration sets none.
pub const DEFAULT_PREFIX: &str = "claude-gw-";

/// Alias of a model.
#[derive(Debug)]
pub struct Alias {
    /// Id of the alias: the prefix and the id of the model.
    pub id: Box<str>,
    /// Id of the alias, JSON-escaped, as it is written into responses.
    pub escaped_id: Arc<EscapedString>,
}

/// Aliases of all models that have one.
#[derive(Debug, Default)]
pub struct Aliases {
    prefix: Box<str>,
    /// Aliases by the index of their model. `None` for a model without one.
    by_model: Vec<Option<Alias>>,
}

impl Aliases {
    /// Builds the aliases. A model has one if it serves conversations, has no id that Claude Code shows anyway, and the
    /// alias is not the id of another model (`exists`).
    pub(super) fn new(prefix: &str, models: &[Arc<Model>], exists: impl Fn(&str) -> bool) -> Self {
        if prefix.is_empty() {
            return Aliases::default();
        }
        let alias = |model: &Arc<Model>| {
            let id = format!("{prefix}{}", model.id);
            let has_one = !is_shown(&model.id)
                && !exists(&id)
                && model.enabled_targets().any(Target::is_conversational);
            let escaped_id = Arc::new(EscapedString::from(id.as_str()));
            has_one.then(|| Alias { id: id.into(), escaped_id })
        };
        Aliases { prefix: prefix.into(), by_model: models.iter().map(alias).collect() }
    }

    /// Returns the prefix of all aliases; empty if there are none.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the alias of a model. `None` if it has none.
    pub fn of(&self, model: &Model) -> Option<&Alias> {
        self.by_model.get(model.index)?.as_ref()
    }

    /// Returns a name without the prefix of aliases. `None` if it does not begin with it.
    pub(super) fn strip<'n>(&self, name: &'n str) -> Option<&'n str> {
        if self.prefix.is_empty() { None } else { name.strip_prefix(&*self.prefix) }
    }
}

/// Returns whether Claude Code's model discovery shows an id.
fn is_shown(id: &str) -> bool {
    let id = id.to_ascii_lowercase();
    id.contains("claude") || id.contains("anthropic")
}
