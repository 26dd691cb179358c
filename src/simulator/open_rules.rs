//! What single models of providers of chat completions refuse: as in `model_rules`, written from the providers' pages and from
//! measurements of third parties, September to November 2026. A model that is not listed refuses nothing.

/// How reasoning is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    /// It is not.
    None,
    /// By `reasoning_effort`; `none` switches it off, if anything does.
    Effort,
    /// By `reasoning_effort`; `thinking` switches it off, if anything does.
    EffortAndThinking,
    /// By `thinking` alone.
    Thinking,
    /// By `enable_thinking` and `thinking_budget`.
    Budget,
}

/// Rules of a model.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenRules {
    pub(super) control: Control,
    /// Accepted efforts, without `none`.
    pub(super) efforts: &'static [&'static str],
    /// Whether reasoning can be off.
    pub(super) off: bool,
    /// Whether the model reasons unasked.
    pub(super) by_default: bool,
    /// Whether another temperature than 1, and another `top_p`, is accepted.
    pub(super) sampling: bool,
    /// Whether images are read.
    pub(super) images: bool,
    /// Whether a call can be required at all.
    pub(super) forced: bool,
    /// Whether a schema of the response is accepted.
    pub(super) schema: bool,
    /// Whether a turn with calls needs its reasoning while the model reasons.
    pub(super) needs_reasoning: bool,
    /// Refused members.
    pub(super) refuses: &'static [&'static str],
}

const PLAIN: OpenRules = OpenRules {
    control: Control::None,
    efforts: &[],
    off: false,
    by_default: false,
    sampling: true,
    images: true,
    forced: true,
    schema: true,
    needs_reasoning: false,
    refuses: &[],
};
/// docs.x.ai, "Models".
const GROK: OpenRules = OpenRules {
    control: Control::Effort,
    efforts: &["low", "medium", "high", "xhigh"],
    by_default: true,
    refuses: &["presence_penalty", "frequency_penalty", "stop", "logit_bias"],
    ..PLAIN
};
const GROK_HIGH: OpenRules = OpenRules { efforts: &["low", "medium", "high"], ..GROK };
/// api-docs.deepseek.com, "Models and pricing", "Thinking mode".
const DEEPSEEK: OpenRules = OpenRules {
    control: Control::EffortAndThinking,
    efforts: &["low", "high", "max"],
    off: true,
    by_default: true,
    images: false,
    schema: false,
    needs_reasoning: true,
    ..PLAIN
};
/// platform.kimi.ai, "Models"; Moonshot's parameter reference.
const KIMI: OpenRules = OpenRules {
    control: Control::Effort,
    efforts: &["low", "high", "max"],
    by_default: true,
    sampling: false,
    needs_reasoning: true,
    ..PLAIN
};
const KIMI_SWITCHED: OpenRules = OpenRules { control: Control::Thinking, efforts: &[], off: true, ..KIMI };
/// docs.z.ai, "Thinking mode", "Chat completion".
const GLM: OpenRules = OpenRules {
    control: Control::EffortAndThinking,
    efforts: &["low", "high", "max"],
    by_default: true,
    images: false,
    schema: false,
    ..PLAIN
};
const GLM_SWITCHED: OpenRules = OpenRules { control: Control::Thinking, efforts: &[], off: true, ..GLM };
/// docs.mistral.ai, "Reasoning".
const MISTRAL: OpenRules = OpenRules { control: Control::Effort, efforts: &["high"], off: true, ..PLAIN };
/// Alibaba Cloud Model Studio, "Deep thinking", "Structured output".
const QWEN: OpenRules = OpenRules { control: Control::Budget, off: true, ..PLAIN };
/// Volcengine Ark, "Deep thinking".
const DOUBAO: OpenRules = OpenRules {
    control: Control::EffortAndThinking,
    efforts: &["minimal", "low", "medium", "high"],
    off: true,
    by_default: true,
    ..PLAIN
};

/// Rules by the beginning of the name, without path and in lower case; the first one counts.
const ROWS: &[(&str, OpenRules)] = &[
    ("grok-4.7", GROK),
    ("grok-4.6", GROK),
    ("grok-4.5", GROK_HIGH),
    ("grok-4.3", OpenRules { off: true, ..GROK_HIGH }),
    (
        "grok-4.20",
        OpenRules {
            control: Control::None,
            refuses: &[
                "reasoning_effort",
                "logprobs",
                "presence_penalty",
                "frequency_penalty",
                "stop",
                "logit_bias",
            ],
            ..GROK
        },
    ),
    ("grok-build", OpenRules { control: Control::None, ..GROK }),
    ("grok-3-mini", OpenRules { efforts: &["low", "high"], refuses: &["logit_bias"], ..GROK }),
    ("deepseek-flash", OpenRules { images: true, ..DEEPSEEK }),
    ("deepseek-v4", DEEPSEEK),
    ("deepseek-chat", DEEPSEEK),
    ("deepseek-reasoner", DEEPSEEK),
    ("kimi-k3", KIMI),
    ("kimi-k2.7-code", OpenRules { forced: false, ..KIMI_SWITCHED }),
    ("kimi-k2.6", KIMI_SWITCHED),
    ("kimi-k2.5", KIMI_SWITCHED),
    (
        "kimi-k2",
        OpenRules {
            control: Control::None,
            sampling: true,
            images: false,
            needs_reasoning: false,
            efforts: &[],
            ..KIMI
        },
    ),
    ("glm-5.3-flash", OpenRules { images: true, ..GLM }),
    ("glm-5.3", GLM),
    ("glm-5.2", OpenRules { efforts: &["high", "max"], off: true, ..GLM }),
    ("glm-5v", OpenRules { images: true, ..GLM_SWITCHED }),
    ("glm-4.6v", OpenRules { images: true, ..GLM_SWITCHED }),
    ("glm-4.5v", OpenRules { images: true, ..GLM_SWITCHED }),
    ("glm-5", GLM_SWITCHED),
    ("glm-4", GLM_SWITCHED),
    ("minimax-m2", OpenRules { images: false, ..PLAIN }),
    (
        "mistral-large-4",
        OpenRules { efforts: &["low", "medium", "high"], off: false, by_default: true, ..MISTRAL },
    ),
    ("mistral-medium-3-5", MISTRAL),
    ("mistral-small-2603", MISTRAL),
    ("magistral", MISTRAL),
    ("codestral", OpenRules { images: false, ..PLAIN }),
    ("qwen3.7-m", OpenRules { images: false, ..QWEN }),
    ("qwen3.7-plus", OpenRules { images: false, ..QWEN }),
    ("qwen3-max", OpenRules { images: false, schema: false, ..QWEN }),
    ("qwen3.", QWEN),
    ("qwq", OpenRules { images: false, schema: false, ..QWEN }),
    ("qwen3-", OpenRules { schema: false, ..QWEN }),
    ("doubao-seed", DOUBAO),
    (
        "gpt-oss",
        OpenRules {
            control: Control::Effort,
            efforts: &["low", "medium", "high"],
            by_default: true,
            images: false,
            ..PLAIN
        },
    ),
];

/// Returns the rules of a model. `None` if it is not listed.
pub(super) fn of(model: &str) -> Option<&'static OpenRules> {
    let name = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    ROWS.iter().find(|(start, _)| name.starts_with(start)).map(|(_, rules)| rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_those_of_the_longest_beginning() {
        assert!(of("zai-org/GLM-5.3-Flash").unwrap().images && !of("glm-5.3").unwrap().images);
        assert!(!of("kimi-k2.7-code").unwrap().forced && of("llama-4").is_none());
        assert_eq!(of("qwen3.8-max").unwrap().control, Control::Budget);
    }
}
