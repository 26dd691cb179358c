//! What a provider that speaks a format takes of it, where it is not the one whose format it is.

/// Deviations of a provider from the format that it speaks. Data from the provider tables; encoders read it and know no
/// provider.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quirks {
    /// Elements of a request that it refuses, or takes without heeding them: lists of names from the table of losses.
    pub lacks: &'static [&'static [&'static str]],
    /// Members that it knows by another name: the usual one, and its own.
    pub renames: &'static [(&'static str, &'static str)],
    /// Members that it wants in every request: the name, and the value as JSON.
    pub adds: &'static [(&'static str, &'static str)],
    /// A member that must be true for the arguments of calls to come in pieces.
    pub tool_stream: Option<&'static str>,
    /// The tool that searches the web, as JSON, for providers that have such a tool instead of a member.
    pub search_tool: Option<&'static str>,
    /// What stands where the format names the model, for providers that have the model in the address.
    pub instead_of_model: Option<(&'static str, &'static str)>,
    /// How its models can be told to call a tool.
    pub choices: Choices,
    /// The range of `temperature`, as numbers are written.
    pub temperature: Option<(&'static str, &'static str)>,
    /// The range of `top_p`, as numbers are written.
    pub top_p: Option<(&'static str, &'static str)>,
    /// Its words for the six efforts, from the least, where they are not the usual ones.
    pub efforts: Option<[&'static str; 6]>,
    /// Whether several texts in one turn must be one string.
    pub joins_texts: bool,
    /// Whether ids of calls must be exactly nine letters and digits.
    pub nine_letter_ids: bool,
    /// Whether it knows tools that take free text.
    pub custom_tools: bool,
    /// Whether a file's members stand beside its type, not in an object of their own.
    pub flat_files: bool,
    /// Whether the model answers in streams only.
    pub streams_only: bool,
    /// Whether a turn with calls must have reasoning while the model reasons, be it empty.
    pub calls_need_reasoning: bool,
    /// Whether switching reasoning on and off is a matter of the model's template, which takes arguments.
    pub template_switch: bool,
    /// Whether reasoning must be switched off in so many words when a whole answer is asked for.
    pub quiet_whole: bool,
    /// Members of a request that say that the conversation ends with the beginning of the answer: the name, and the
    /// value as JSON. Nothing where a mark at the turn says so, or nothing need be said.
    pub prefill_members: &'static [(&'static str, &'static str)],
    /// Whether the answer repeats the beginning that it was given.
    pub repeats_prefill: bool,
}

/// How a model can be told to call a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choices {
    /// Whether it can be told not to.
    pub none: bool,
    /// The word for "at least one"; nothing where that cannot be said.
    pub any: Option<&'static str>,
    /// Whether one tool can be named.
    pub named: bool,
    /// Whether a part of the tools can be named.
    pub some: bool,
    /// Whether it can be made to call while it reasons.
    pub while_reasoning: bool,
}

impl Choices {
    /// All that the format has.
    pub const ALL: Choices =
        Choices { none: true, any: Some("required"), named: true, some: true, while_reasoning: true };
    /// All but a part of the tools, which only the format's own provider knows.
    pub const USUAL: Choices = Choices { some: false, ..Choices::ALL };
    /// The model decides.
    pub const AUTO: Choices =
        Choices { none: false, any: None, named: false, some: false, while_reasoning: false };
}

impl Quirks {
    /// Those of the provider whose format it is.
    pub const PLAIN: Quirks = Quirks {
        lacks: &[],
        renames: &[],
        adds: &[],
        tool_stream: None,
        search_tool: None,
        instead_of_model: None,
        choices: Choices::ALL,
        temperature: None,
        top_p: None,
        efforts: None,
        joins_texts: false,
        nine_letter_ids: false,
        custom_tools: true,
        flat_files: false,
        streams_only: false,
        calls_need_reasoning: false,
        template_switch: false,
        quiet_whole: false,
        prefill_members: &[],
        repeats_prefill: false,
    };

    /// Whether an element is refused or not heeded.
    pub fn lacks(&self, element: &str) -> bool {
        self.lacks.iter().any(|list| list.contains(&element))
    }

    /// What a member is called here.
    pub fn member(&self, usual: &'static str) -> &'static str {
        self.renames.iter().find(|(name, _)| *name == usual).map_or(usual, |(_, own)| own)
    }
}
