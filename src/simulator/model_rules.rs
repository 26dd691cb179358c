//! What single models refuse: the simulator's own copy of the providers' rules, written from their pages of November 2026
//! and not from the gateway's catalogue. A model that is not listed refuses nothing.

/// Rules of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelRules {
    /// Accepted efforts.
    pub(super) efforts: &'static [&'static str],
    /// Whether the effort `none`, or `disabled`, is accepted.
    pub(super) off: Off,
    /// Whether a call can be required.
    pub(super) forced: bool,
    /// Whether sampling parameters are accepted: always, never, or while the model does not reason.
    pub(super) sampling: Sampling,
    /// Whether the conversation may end with a turn of the model.
    pub(super) prefill: bool,
    /// Whether chat completions refuse function tools while the model reasons.
    pub(super) tools_by_responses: bool,
    /// Whether the model reasons unasked.
    pub(super) by_default: bool,
    /// Highest output limit; 0 if it is not known.
    pub(super) output: u64,
}

/// How reasoning is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Off {
    Never,
    Always,
    /// Beside efforts up to `high`.
    UpToHigh,
}

/// When sampling parameters are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sampling {
    Always,
    WhileOff,
    Never,
}

const ALL: &[&str] = &["low", "medium", "high", "xhigh", "max"];

/// OpenAI: pages of the models.
const GPT: ModelRules = ModelRules {
    efforts: ALL,
    off: Off::Always,
    forced: true,
    sampling: Sampling::WhileOff,
    prefill: true,
    tools_by_responses: true,
    by_default: true,
    output: 128_000,
};
const GPT_ALWAYS: ModelRules = ModelRules { off: Off::Never, sampling: Sampling::Never, ..GPT };
const GPT_5_2: ModelRules = ModelRules {
    efforts: &["low", "medium", "high", "xhigh"],
    tools_by_responses: false,
    by_default: false,
    ..GPT
};
/// Anthropic: "What's new" and "Effort".
const CLAUDE: ModelRules = ModelRules {
    efforts: ALL,
    off: Off::Never,
    forced: false,
    sampling: Sampling::Never,
    prefill: false,
    tools_by_responses: false,
    by_default: true,
    output: 128_000,
};
const CLAUDE_5: ModelRules = ModelRules { off: Off::UpToHigh, forced: true, ..CLAUDE };
/// Google: guides of the models.
const GEMINI: ModelRules = ModelRules {
    efforts: &["low", "medium", "high"],
    off: Off::Never,
    forced: true,
    sampling: Sampling::Never,
    prefill: false,
    tools_by_responses: false,
    by_default: true,
    output: 65_536,
};

/// Rules by the beginning of the name; the first one counts.
const ROWS: [(&str, ModelRules); 27] = [
    ("gpt-6-sol", GPT),
    ("gpt-6-luna", GPT),
    ("gpt-6.1-terra", GPT),
    ("gpt-6", GPT_ALWAYS),
    ("gpt-5.6", GPT),
    ("gpt-5.5-pro", ModelRules { efforts: &["medium", "high", "xhigh"], ..GPT_ALWAYS }),
    ("gpt-5.5", ModelRules { efforts: &["low", "medium", "high", "xhigh"], ..GPT }),
    ("gpt-5.4-pro", ModelRules { efforts: &["medium", "high", "xhigh"], ..GPT_ALWAYS }),
    ("gpt-5.4", ModelRules { tools_by_responses: true, ..GPT_5_2 }),
    ("gpt-5.2-pro", ModelRules { efforts: &["medium", "high", "xhigh"], ..GPT_ALWAYS }),
    ("gpt-5.2", GPT_5_2),
    ("gpt-5.1", ModelRules { efforts: &["low", "medium", "high"], ..GPT_5_2 }),
    ("claude-opus-5-5", CLAUDE),
    ("claude-sonnet-5-5", CLAUDE),
    ("claude-fable-5-", CLAUDE),
    ("claude-mythos-5-", CLAUDE),
    ("claude-haiku-5-5", CLAUDE_5),
    ("claude-sonnet-5", ModelRules { off: Off::Always, ..CLAUDE_5 }),
    ("claude-opus-5", CLAUDE_5),
    ("claude-opus-4-8", ModelRules { off: Off::Always, by_default: false, ..CLAUDE_5 }),
    ("claude-opus-4-6", CLAUDE_4_6),
    ("claude-sonnet-4-6", CLAUDE_4_6),
    ("gemini-4-hydrogen", ModelRules { efforts: &["low", "medium", "high", "xhigh"], ..GEMINI }),
    ("gemini-4", GEMINI),
    ("gemini-3.8-flash", GEMINI),
    ("gemini-3.7-flash", GEMINI),
    ("gemini-3.6-flash", ModelRules { efforts: &["minimal", "low", "medium", "high"], ..GEMINI }),
];

const CLAUDE_4_6: ModelRules = ModelRules {
    efforts: &["low", "medium", "high", "max"],
    off: Off::Always,
    sampling: Sampling::Always,
    by_default: false,
    ..CLAUDE_5
};

/// Returns the rules of a model. `None` if it is not listed.
pub(super) fn of(model: &str) -> Option<&'static ModelRules> {
    ROWS.iter().find(|(start, _)| model.starts_with(start)).map(|(_, rules)| rules)
}

impl ModelRules {
    /// Returns whether the model reasons in a request with this effort.
    pub(super) fn reasons(&self, effort: Option<&str>) -> bool {
        match effort {
            None => self.by_default,
            Some(word) => word != "none",
        }
    }

    /// Returns whether an effort is accepted.
    pub(super) fn takes(&self, effort: &str) -> bool {
        let effort = effort.to_ascii_lowercase();
        if effort == "none" { self.off != Off::Never } else { self.efforts.contains(&effort.as_str()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_those_of_the_longest_beginning() {
        assert_eq!(of("gpt-6-sol").unwrap().off, Off::Always);
        assert_eq!(of("gpt-6.2-sol").unwrap().off, Off::Never);
        assert_eq!(of("claude-opus-5-20260801").unwrap().off, Off::UpToHigh);
        assert!(!of("claude-opus-5-5").unwrap().forced && of("claude-fable-5").is_none());
        assert!(
            of("gemini-3.6-flash").unwrap().takes("MINIMAL")
                && !of("gemini-3.8-flash").unwrap().takes("minimal")
        );
    }
}
