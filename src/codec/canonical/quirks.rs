//! Deviations of providers that speak a format which another provider defined.

/// Deviations of a provider from the format that it speaks. Data from the provider tables; encoders read it and know no
/// provider.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quirks {
    /// Request elements that the provider refuses or ignores: lists of names from the loss table.
    pub lacks: &'static [&'static [&'static str]],
    /// Renamed members: the usual name and the provider's name.
    pub renames: &'static [(&'static str, &'static str)],
    /// Members that the provider requires in every request: the name, and the value as JSON.
    pub adds: &'static [(&'static str, &'static str)],
    /// Member that must be true so that tool-call arguments are streamed in fragments.
    pub tool_stream: Option<&'static str>,
    /// Web search tool, as JSON, for providers that have a tool instead of a request member.
    pub search_tool: Option<&'static str>,
    /// Member and value that replace the model member, for providers that name the model in the URL.
    pub model_replacement: Option<(&'static str, &'static str)>,
    /// Whether the path, not a member of the body, selects a stream.
    pub streams_by_path: bool,
    /// Supported tool choices.
    pub choices: ToolChoiceSupport,
    /// Range of `temperature`, as number literals.
    pub temperature: Option<(&'static str, &'static str)>,
    /// Range of `top_p`, as number literals.
    pub top_p: Option<(&'static str, &'static str)>,
    /// Names of the six reasoning efforts in ascending order, if they are not the usual ones.
    pub efforts: Option<[&'static str; 6]>,
    /// Whether several text blocks of one turn must be joined into one string.
    pub joins_texts: bool,
    /// Whether tool-call ids must consist of exactly nine letters and digits.
    pub nine_letter_ids: bool,
    /// Whether custom tools (free-text input) are supported.
    pub custom_tools: bool,
    /// Whether the members of a file are beside its `type`, not in a nested object.
    pub flat_files: bool,
    /// Whether the model supports streamed responses only.
    pub streams_only: bool,
    /// Whether a turn with tool calls must have a reasoning member, possibly empty, while reasoning is on.
    pub calls_need_reasoning: bool,
    /// Whether a user message behind tool messages needs a message of the model in between.
    pub bridges_results: bool,
    /// Whether reasoning is switched by arguments of the model's prompt template.
    pub template_switch: bool,
    /// Whether a request without `stream` must switch reasoning off explicitly.
    pub quiet_whole: bool,
    /// Request members that mark the conversation as ending with a prefill: the name, and the value as JSON. Empty if a
    /// mark on the turn does that, or if no mark is needed.
    pub prefill_members: &'static [(&'static str, &'static str)],
    /// Whether the response repeats the prefill.
    pub repeats_prefill: bool,
    /// Whether a conversation that ends with a turn of the model is refused unless the turn is marked as a prefill.
    pub needs_prefill_mark: bool,
}

/// Supported tool choices of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolChoiceSupport {
    /// Whether tool calls can be forbidden.
    pub none: bool,
    /// Name of the choice "at least one tool"; `None` if it is not supported.
    pub any: Option<&'static str>,
    /// Whether one tool can be required by name.
    pub named: bool,
    /// Whether the choice can be limited to a subset of the tools.
    pub some: bool,
    /// Whether a tool call can be required while the model reasons.
    pub while_reasoning: bool,
}

impl ToolChoiceSupport {
    /// All choices that the format has.
    pub const ALL: ToolChoiceSupport = ToolChoiceSupport {
        none: true,
        any: Some("required"),
        named: true,
        some: true,
        while_reasoning: true,
    };
    /// All choices except a subset of the tools, which only the format's own provider supports.
    pub const USUAL: ToolChoiceSupport = ToolChoiceSupport { some: false, ..ToolChoiceSupport::ALL };
    /// The model decides; no other choice is supported.
    pub const AUTO: ToolChoiceSupport =
        ToolChoiceSupport { none: false, any: None, named: false, some: false, while_reasoning: false };
}

impl Quirks {
    /// No deviations: the provider that defined the format.
    pub const PLAIN: Quirks = Quirks {
        lacks: &[],
        renames: &[],
        adds: &[],
        tool_stream: None,
        search_tool: None,
        model_replacement: None,
        streams_by_path: false,
        choices: ToolChoiceSupport::ALL,
        temperature: None,
        top_p: None,
        efforts: None,
        joins_texts: false,
        nine_letter_ids: false,
        custom_tools: true,
        flat_files: false,
        streams_only: false,
        calls_need_reasoning: false,
        bridges_results: false,
        template_switch: false,
        quiet_whole: false,
        prefill_members: &[],
        repeats_prefill: false,
        needs_prefill_mark: false,
    };

    /// Returns true if the provider refuses or ignores an element.
    pub fn lacks(&self, element: &str) -> bool {
        self.lacks.iter().any(|list| list.contains(&element))
    }

    /// Returns the provider's name of a member.
    pub fn member(&self, usual: &'static str) -> &'static str {
        self.renames.iter().find(|(name, _)| *name == usual).map_or(usual, |(_, own)| own)
    }
}
