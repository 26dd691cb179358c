//! What a client may write for a model besides its id: a provider before it, and how much to reason behind it.

use std::sync::Arc;

use super::{Model, RoutingTable};
use crate::canonical::{Effort, Thinking};

/// A model as a client named it.
#[derive(Clone, Debug)]
pub struct Named<'t> {
    /// The model.
    pub model: &'t Arc<Model>,
    /// What the name says about reasoning.
    pub thinking: Thinking,
    /// The only provider whose targets may answer, where the name begins with one.
    pub provider: Option<&'t str>,
}

impl RoutingTable {
    /// The model that a name means: an id as it is listed comes first; then `<provider>/<id>`, and ids with
    /// `-thinking`, `-nothinking`, `-thinking-<budget>` or `-thinking-<effort>` behind them (specification, 4.1 and
    /// 4.7), or both.
    pub fn resolve(&self, name: &str) -> Option<Named<'_>> {
        let plain = |model, thinking| Named { model, thinking, provider: None };
        if let Some(model) = self.model(name) {
            return Some(plain(model, Thinking::Unsaid));
        }
        if let Some((base, thinking)) = split_suffix(name)
            && let Some(model) = self.model(base)
        {
            return Some(plain(model, thinking));
        }
        let (first, rest) = name.split_once('/')?;
        let provider = self.providers().iter().find(|provider| &*provider.name == first)?;
        let (model, thinking) = match self.model(rest) {
            Some(model) => (model, Thinking::Unsaid),
            None => {
                let (base, thinking) = split_suffix(rest)?;
                (self.model(base)?, thinking)
            }
        };
        let served = model.targets.iter().any(|target| Arc::ptr_eq(&target.provider, provider));
        served.then(|| Named { model, thinking, provider: Some(&provider.name) })
    }
}

/// Takes what a name says about reasoning off its end.
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
    fn suffixes_say_how_much_to_reason() {
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
