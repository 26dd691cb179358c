//! Model name resolution: an id, optionally with a provider prefix and a reasoning suffix.

use std::sync::Arc;

use super::alias::Alias;
use super::{Model, RoutingTable};
use codec::canonical::{Effort, Thinking};

/// Resolved model name.
#[derive(Clone, Debug)]
pub struct Named<'t> {
    /// Resolved model.
    pub model: &'t Arc<Model>,
    /// Reasoning setting of the suffix.
    pub thinking: Thinking,
    /// Provider prefix: only targets of this provider may serve the request. `None` without a prefix.
    pub provider: Option<&'t str>,
    /// Alias under which the model was named. `None` if it was named by its id.
    pub alias: Option<&'t Alias>,
}

impl RoutingTable {
    /// Resolves a model name: an id of the table first, then `<provider>/<id>`, or an id with the suffix `-thinking`,
    /// `-nothinking`, `-thinking-<budget>` or `-thinking-<effort>`, or both; last an alias of any of these. Returns
    /// `None` if no model matches, or if the named provider does not serve the model.
    pub fn resolve(&self, name: &str) -> Option<Named<'_>> {
        self.resolve_id(name).or_else(|| {
            let named = self.resolve_id(self.aliases().strip(name)?)?;
            let alias = self.aliases().of(named.model)?;
            Some(Named { alias: Some(alias), ..named })
        })
    }

    fn resolve_id(&self, name: &str) -> Option<Named<'_>> {
        let plain = |model, thinking| Named { model, thinking, provider: None, alias: None };
        // An exact id wins: model ids may contain slashes and end in `-thinking` themselves.
        if let Some(model) = self.model(name) {
            return Some(plain(model, Thinking::Unset));
        }
        if let Some((base, thinking)) = split_suffix(name)
            && let Some(model) = self.model(base)
        {
            return Some(plain(model, thinking));
        }
        let (first, rest) = name.split_once('/')?;
        let provider = self.providers().iter().find(|provider| &*provider.name == first)?;
        let (model, thinking) = match self.model(rest) {
            Some(model) => (model, Thinking::Unset),
            None => {
                let (base, thinking) = split_suffix(rest)?;
                (self.model(base)?, thinking)
            }
        };
        // A fallback target counts as well, because fallbacks are part of `targets`.
        let served = model.targets.iter().any(|target| Arc::ptr_eq(&target.provider, provider));
        served.then(|| Named { model, thinking, provider: Some(&provider.name), alias: None })
    }
}

/// Splits the reasoning suffix off a name. Returns `None` if the name has none.
fn split_suffix(name: &str) -> Option<(&str, Thinking)> {
    if let Some(base) = name.strip_suffix("-nothinking") {
        return Some((base, Thinking::Off));
    }
    if let Some(base) = name.strip_suffix("-thinking") {
        return Some((base, Thinking::Effort(Effort::Medium)));
    }
    let (base, word) = name.rsplit_once("-thinking-")?;
    let thinking = match word.parse::<u64>() {
        Ok(0) => Thinking::Off,
        Ok(tokens) => Thinking::Budget(tokens),
        Err(_) if word == "none" => Thinking::Off,
        Err(_) => Thinking::Effort(Effort::from_name(word)?),
    };
    Some((base, thinking))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffix_of_the_model_name_sets_reasoning() {
        for (name, expected) in [
            ("m-thinking", Some(("m", Thinking::Effort(Effort::Medium)))),
            ("m-nothinking", Some(("m", Thinking::Off))),
            ("m-thinking-8192", Some(("m", Thinking::Budget(8192)))),
            ("m-thinking-low", Some(("m", Thinking::Effort(Effort::Low)))),
            ("m-thinking-high", Some(("m", Thinking::Effort(Effort::High)))),
            ("qwen3-235b-thinking-2507", Some(("qwen3-235b", Thinking::Budget(2507)))),
            ("m-thinking-deep", None),
            ("m", None),
        ] {
            assert_eq!(split_suffix(name), expected, "{name}");
        }
    }
}
