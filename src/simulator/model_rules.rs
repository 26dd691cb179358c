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
    /// Highest output limit of an answer that is not streamed, if it is lower; otherwise 0.
    pub(super) unstreamed: u64,
    /// Range of the reasoning budget. `None` if there is no rule.
    pub(super) budget: Option<(u64, u64)>,
    /// Forms of `thinking` that Claude takes, beside `disabled`.
    pub(super) thinking: &'static [&'static str],
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
    unstreamed: 0,
    budget: None,
    thinking: &[],
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
    unstreamed: 0,
    budget: None,
    thinking: &["adaptive"],
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
    unstreamed: 0,
    budget: None,
    thinking: &[],
};

/// Rules by the beginning of the name; the first one counts.
const ROWS: &[(&str, ModelRules)] = &[
    ("gpt-6-sol", GPT),
    ("gpt-6-luna", GPT),
    ("gpt-6.1-terra", GPT),
    ("gpt-6", GPT_ALWAYS),
    ("gpt-5.6", GPT),
    ("gpt-5.5-pro", GPT_PRO),
    ("gpt-5.5", ModelRules { efforts: &["low", "medium", "high", "xhigh"], ..GPT }),
    ("gpt-5.4-pro", GPT_PRO),
    ("gpt-5.4", ModelRules { tools_by_responses: true, ..GPT_5_2 }),
    ("gpt-5.3-codex", ModelRules { tools_by_responses: true, ..GPT_5_2 }),
    ("gpt-5.3-chat", GPT_CHAT),
    ("gpt-5.2-chat", GPT_CHAT),
    ("gpt-5.1-chat", GPT_CHAT),
    ("gpt-5-chat", GPT_CHAT),
    ("chat-latest", GPT_CHAT),
    ("gpt-5.2-pro", GPT_PRO),
    ("gpt-5.2", GPT_5_2),
    (
        "gpt-5.1-codex",
        ModelRules { efforts: &["low", "medium", "high"], tools_by_responses: false, ..GPT_ALWAYS },
    ),
    ("gpt-5.1", ModelRules { efforts: &["low", "medium", "high"], ..GPT_5_2 }),
    ("gpt-5-pro", ModelRules { efforts: &["high"], tools_by_responses: false, ..GPT_ALWAYS }),
    (
        "gpt-5-codex",
        ModelRules { efforts: &["low", "medium", "high"], tools_by_responses: false, ..GPT_ALWAYS },
    ),
    (
        "gpt-5",
        ModelRules {
            efforts: &["minimal", "low", "medium", "high"],
            tools_by_responses: false,
            ..GPT_ALWAYS
        },
    ),
    ("o1", O_SERIES),
    ("o3", O_SERIES),
    ("o4", O_SERIES),
    ("gpt-4.1", ModelRules { output: 32_768, ..GPT_4 }),
    ("gpt-4o", ModelRules { output: 16_384, ..GPT_4 }),
    ("claude-opus-5-5", CLAUDE),
    ("claude-sonnet-5-5", ModelRules { thinking: &["adaptive", "between_tools"], ..CLAUDE }),
    ("claude-fable-5-", CLAUDE),
    ("claude-mythos-5-", CLAUDE),
    ("claude-haiku-5-5", CLAUDE_5),
    ("claude-sonnet-5", ModelRules { off: Off::Always, ..CLAUDE_5 }),
    ("claude-opus-5", CLAUDE_5),
    ("claude-opus-4-8", ModelRules { off: Off::Always, by_default: false, ..CLAUDE_5 }),
    ("claude-opus-4-7", ModelRules { off: Off::Always, by_default: false, ..CLAUDE_5 }),
    ("claude-opus-4-6", CLAUDE_4_6),
    ("claude-sonnet-4-6", CLAUDE_4_6),
    ("claude-opus-4-5", ModelRules { efforts: &["low", "medium", "high"], ..CLAUDE_4_5 }),
    ("claude-sonnet-4-5", CLAUDE_4_5),
    ("claude-haiku-4-5", CLAUDE_4_5),
    ("claude-opus-4", ModelRules { output: 32_000, ..CLAUDE_4_5 }),
    ("claude-3-7", CLAUDE_4_5),
    ("claude-3-5", ModelRules { output: 8_192, thinking: &[], ..CLAUDE_4_5 }),
    ("claude-3-", ModelRules { output: 4_096, thinking: &[], ..CLAUDE_4_5 }),
    ("gemini-4-hydrogen", ModelRules { efforts: &["low", "medium", "high", "xhigh"], ..GEMINI_4 }),
    ("gemini-4", GEMINI_4),
    ("gemini-3.8-flash", GEMINI),
    ("gemini-3.7-flash", GEMINI),
    ("gemini-3.6-flash", ModelRules { efforts: &["minimal", "low", "medium", "high"], ..GEMINI }),
    ("gemini-3.5-flash-lite", ModelRules { efforts: &["minimal", "low", "medium", "high"], ..GEMINI }),
    ("gemini-3.5-flash", GEMINI_FLASH),
    ("gemini-3.1-flash", GEMINI_FLASH),
    ("gemini-3-flash", GEMINI_FLASH),
    ("gemini-3.1-pro", GEMINI_PRO),
    ("gemini-3-pro-preview", GEMINI_PRO),
    ("gemini-2.5-pro", ModelRules { budget: Some((128, 32_768)), efforts: &[], ..GEMINI_PRO }),
    (
        "gemini-2.5-flash-lite",
        ModelRules { budget: Some((512, 24_576)), off: Off::Always, efforts: &[], ..GEMINI_PRO },
    ),
    (
        "gemini-2.5-flash",
        ModelRules { budget: Some((1, 24_576)), off: Off::Always, efforts: &[], ..GEMINI_PRO },
    ),
];

/// OpenAI: models that think longer, in the responses API only.
const GPT_PRO: ModelRules =
    ModelRules { efforts: &["medium", "high", "xhigh"], tools_by_responses: false, ..GPT_ALWAYS };
/// OpenAI: the models of ChatGPT, whose effort is fixed.
const GPT_CHAT: ModelRules = ModelRules { efforts: &["medium"], tools_by_responses: false, ..GPT_ALWAYS };
const O_SERIES: ModelRules = ModelRules {
    efforts: &["low", "medium", "high"],
    tools_by_responses: false,
    output: 100_000,
    ..GPT_ALWAYS
};
/// OpenAI: models that do not reason.
const GPT_4: ModelRules = ModelRules {
    efforts: &[],
    off: Off::Never,
    sampling: Sampling::Always,
    tools_by_responses: false,
    by_default: false,
    ..GPT
};
const CLAUDE_4_6: ModelRules = ModelRules {
    efforts: &["low", "medium", "high", "max"],
    off: Off::Always,
    sampling: Sampling::Always,
    by_default: false,
    thinking: &["adaptive", "enabled"],
    ..CLAUDE_5
};
/// Anthropic: models whose thinking has a budget.
const CLAUDE_4_5: ModelRules = ModelRules {
    efforts: &[],
    off: Off::Always,
    sampling: Sampling::Always,
    prefill: true,
    by_default: false,
    output: 64_000,
    thinking: &["enabled"],
    ..CLAUDE_5
};
const GEMINI_4: ModelRules = ModelRules { unstreamed: 32_768, ..GEMINI };
const GEMINI_PRO: ModelRules = ModelRules { sampling: Sampling::Always, prefill: true, ..GEMINI };
const GEMINI_FLASH: ModelRules = ModelRules { efforts: &["minimal", "low", "medium", "high"], ..GEMINI_PRO };

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

    /// Returns why Claude refuses a request with this effort and this form of thinking, which requires a call or not. `None` if
    /// it takes it.
    pub(super) fn claude_refusal(
        &self,
        effort: Option<&str>,
        thinking: Option<&str>,
        forced: bool,
    ) -> Option<String> {
        if let Some(effort) = effort.filter(|effort| !self.takes(effort)) {
            return Some(format!("output_config.effort: '{effort}' is not supported by this model."));
        }
        let is_high = matches!(effort, Some("xhigh" | "max"));
        match thinking {
            Some("disabled") if self.off == Off::Never || self.off == Off::UpToHigh && is_high => {
                return Some("\"thinking.type.disabled\" is not supported for this model.".to_owned());
            }
            Some("disabled") | None => {}
            Some(kind) if !self.thinking.contains(&kind) => {
                return Some(format!("\"thinking.type.{kind}\" is not supported for this model."));
            }
            Some(_) => {}
        }
        let refused = forced && !self.forced;
        refused.then(|| "tool_choice: forced tool use is not supported for this model.".to_owned())
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
