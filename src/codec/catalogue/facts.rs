//! Facts of a family or a model: what a request to it may contain. A fact that is `None` is not known.

use super::document::{TomlTable, TomlValue};
use super::words::FactValue;
use super::words::{
    ApiFormat, ContentKind, DefaultEffort, InstructionsRole, LimitMember, ModelKind, PrefillRule,
    ReasoningControl, ReasoningOff, SamplingRule, SchemaSupport,
};
use crate::canonical::Effort;
use crate::canonical::image::ImageFamily;
use crate::canonical::video::{PictureRole, Seconds};

impl FactValue for bool {
    fn read(value: &TomlValue<'_>) -> Option<Self> {
        value.boolean()
    }

    fn written(&self) -> String {
        if *self { "yes" } else { "no" }.to_owned()
    }
}

impl FactValue for u64 {
    fn read(value: &TomlValue<'_>) -> Option<Self> {
        value.count()
    }

    fn written(&self) -> String {
        self.to_string()
    }
}

impl FactValue for Box<str> {
    fn read(value: &TomlValue<'_>) -> Option<Self> {
        value.text().map(Box::from)
    }

    fn written(&self) -> String {
        self.to_string()
    }
}

impl<T: FactValue> FactValue for Vec<T> {
    fn read(value: &TomlValue<'_>) -> Option<Self> {
        let mut list = Vec::new();
        if value.is_list() {
            value.elements(|element| list.extend(T::read(element)));
        } else {
            list.push(T::read(value)?);
        }
        Some(list)
    }

    fn written(&self) -> String {
        let words: Vec<String> = self.iter().map(FactValue::written).collect();
        if words.is_empty() { "none".to_owned() } else { words.join(", ") }
    }
}

/// Set of effort names, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EffortNames(u8);

impl EffortNames {
    fn bit(effort: Effort) -> u8 {
        Effort::ALL.iter().position(|each| *each == effort).map_or(0, |at| 1 << at)
    }

    /// Adds an effort.
    pub fn insert(&mut self, effort: Effort) {
        self.0 |= EffortNames::bit(effort);
    }

    /// Returns whether an effort is in the set.
    pub fn contains(self, effort: Effort) -> bool {
        self.0 & EffortNames::bit(effort) != 0
    }

    /// Returns whether the set has no effort.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the efforts, the lowest first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Effort> {
        Effort::ALL.into_iter().filter(move |effort| self.contains(*effort))
    }
}

impl FactValue for EffortNames {
    fn read(value: &TomlValue<'_>) -> Option<Self> {
        let mut set = EffortNames::default();
        value.elements(|element| {
            let Some(text) = element.text() else { return };
            match Effort::ALL.into_iter().find(|effort| effort.name() == text) {
                Some(effort) => set.insert(effort),
                None => {
                    let names = Effort::ALL.map(Effort::name).join(", ");
                    let hint = format!("write some of {names}; that `none` is accepted says off = \"none\"");
                    element.wrong(format!("{text:?} is no effort"), hint);
                }
            }
        });
        Some(set)
    }

    fn written(&self) -> String {
        let names: Vec<&str> = self.iter().map(Effort::name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

/// Range of a reasoning budget, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetRange {
    /// Minimum.
    pub min: u64,
    /// Maximum.
    pub max: u64,
}

impl FactValue for BudgetRange {
    fn read(value: &TomlValue<'_>) -> Option<Self> {
        let mut ends = Vec::new();
        value.elements(|element| ends.extend(element.count()));
        match ends[..] {
            [min, max] if min <= max => Some(BudgetRange { min, max }),
            _ => {
                value.wrong("is not a range", "write the minimum and the maximum, such as [1024, 64000]");
                None
            }
        }
    }

    fn written(&self) -> String {
        format!("{} to {} tokens", self.min, self.max)
    }
}

/// Defines the facts, their rows of a file, and the operations on all of them. The key in the file is the name of the field.
macro_rules! facts {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)*) => {
        /// Facts of a family or a model. `None` is not known.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct ModelFacts {
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        /// Facts of one row: `Some(None)` says that a fact is not known, `None` that the row does not set it.
        #[derive(Clone, Debug, Default)]
        pub(super) struct FactsRow {
            $($field: Option<Option<$type>>,)*
        }

        impl FactsRow {
            /// Reads the facts of a table that has other keys too.
            pub(super) fn read(table: &TomlTable<'_>) -> FactsRow {
                FactsRow { $($field: fact(table, stringify!($field)),)* }
            }

            /// Replaces what this row sets.
            pub(super) fn set(&self, facts: &mut ModelFacts) {
                $(if let Some(value) = &self.$field {
                    facts.$field.clone_from(value);
                })*
            }

            /// Replaces what the upper row sets.
            pub(super) fn lay_over(&mut self, upper: FactsRow) {
                $(if upper.$field.is_some() {
                    self.$field = upper.$field;
                })*
            }
        }

        impl ModelFacts {
            /// Returns the known facts as key and value, in the order of the documentation.
            pub fn entries(&self) -> Vec<(&'static str, String)> {
                let mut entries = Vec::new();
                $(if let Some(value) = &self.$field {
                    entries.push((stringify!($field), FactValue::written(value)));
                })*
                entries
            }
        }
    };
}

facts! {
    /// What the model does. [`ModelFacts::kind_or_chat`] has the default.
    kind: ModelKind,
    /// Company that makes the model.
    maker: Box<str>,
    /// How reasoning is configured.
    reasoning: ReasoningControl,
    /// Efforts that are accepted, without `none`.
    efforts: EffortNames,
    /// Efforts that are accepted in chat completions, if those are others.
    efforts_chat: EffortNames,
    /// Effort of a request that sets none.
    default: DefaultEffort,
    /// Range of the reasoning budget.
    budget: BudgetRange,
    /// Whether a budget is accepted although reasoning is by effort, at Google.
    takes_budget: bool,
    /// How reasoning is switched off.
    off: ReasoningOff,
    /// Highest effort beside which reasoning can be switched off. `None` if the effort does not matter.
    off_up_to: DefaultEffort,
    /// Whether the model reasons in requests that set nothing.
    on_by_default: bool,
    /// Member that switches reasoning on and off, where that is no effort.
    switch: Box<str>,
    /// Whether signatures of reasoning are bound to the model and the turn.
    binds_thinking: bool,
    /// Sampling parameters that are accepted.
    sampling: SamplingRule,
    /// Members of requests that are refused.
    refuses: Vec<Box<str>>,
    /// Whether a tool choice that requires a call is accepted.
    forced: bool,
    /// Whether the conversation may end with the beginning of the response.
    prefill: PrefillRule,
    /// Support of structured output.
    structured: SchemaSupport,
    /// Role of the instructions in chat completions.
    role: InstructionsRole,
    /// Name of the output token limit in chat completions.
    limit: LimitMember,
    /// The only API that serves the model.
    api: ApiFormat,
    /// API for requests with function tools and reasoning.
    tools_api: ApiFormat,
    /// APIs of the maker that serve the model.
    apis: Vec<ApiFormat>,
    /// Kinds of content that the model reads.
    input: Vec<ContentKind>,
    /// Kinds of content that the model writes. `None` for text.
    gives: Vec<ContentKind>,
    /// Shortest prompt prefix that is cached, in tokens.
    cache_min: u64,
    /// Vocabulary by which tokens are estimated.
    tokenizer: Box<str>,
    /// Family of settings that requests for images may have. `None`: the provider judges them.
    images: ImageFamily,
    /// Most images of one request.
    max_images: u64,
    /// Lengths of videos.
    seconds: Seconds,
    /// Highest resolution of videos.
    resolution: Box<str>,
    /// Images that a request for a video may have.
    frames: Vec<PictureRole>,
    /// Whether a video is made of an image only, and not of a text alone.
    needs_image: bool,
    /// Whether it can be chosen that a video has sound.
    sound: bool,
    /// Most output tokens of one request. Of a family: what its models have in common.
    output: u64,
    /// Most output tokens of one request that does not stream, if fewer than of a stream.
    output_unstreamed: u64,
    /// Whether instructions may stand in the middle of a conversation of the messages format.
    system_in_middle: bool,
    /// Whether calls must be sent with their signature. Such models also take files in results, functions beside the
    /// provider's search, and schemas that bind without a forced call.
    signed_calls: bool,
    /// Whether the model takes `verbosity`, and custom tools, whose input is free text.
    verbosity: bool,
    /// Whether schemas may be plain JSON schema. If false, they are those of OpenAPI 3.0.
    json_schema: bool,
    /// Whether the model answers in streams only.
    streams_only: bool,
    /// Whether the model reasons in streams only, and a request without one must switch reasoning off.
    reasons_in_streams: bool,
    /// Whether a turn with calls must have its reasoning while reasoning is on.
    calls_need_reasoning: bool,
    /// Whether the model takes explicit cache marks.
    cache_marks: bool,
    /// Whether it takes them on tools.
    cache_tools: bool,
    /// Whether it takes them with a lifetime of an hour.
    cache_long: bool,
    /// Whether several calls in one turn can be forbidden beside the tool choice, at Amazon Bedrock.
    call_limit: bool,
    /// Whether the number of dimensions of an embedding can be chosen.
    dimensions: bool,
    /// Form of requests at a provider whose models have different ones.
    form: Box<str>,
}

/// Reads one fact of a table.
fn fact<T: FactValue>(table: &TomlTable<'_>, key: &'static str) -> Option<Option<T>> {
    let value = table.get(key)?;
    if value.is_unknown() { Some(None) } else { T::read(&value).map(Some) }
}

impl ModelFacts {
    /// Returns what the model does; a row that says nothing is of a model for conversations.
    pub fn kind_or_chat(&self) -> ModelKind {
        self.kind.unwrap_or(ModelKind::Chat)
    }

    /// Returns whether the model reads a kind of content. `None` if that is not known.
    pub fn reads(&self, kind: ContentKind) -> Option<bool> {
        self.input.as_ref().map(|kinds| kinds.contains(&kind))
    }

    /// Returns what is contradictory in the facts, with what would be right.
    pub(super) fn contradiction(&self) -> Option<(String, &'static str)> {
        let none = self.off == Some(ReasoningOff::None);
        let listed = |default: DefaultEffort| {
            let effort = Effort::ALL.into_iter().find(|effort| effort.name() == default.name());
            effort.is_none_or(|effort| self.efforts.is_none_or(|set| set.contains(effort)))
        };
        match self.reasoning {
            Some(ReasoningControl::Effort) if self.efforts.is_none_or(EffortNames::is_empty) => {
                return Some((
                    "reasoning by effort without efforts".to_owned(),
                    "write efforts = [\"low\", ...]",
                ));
            }
            Some(ReasoningControl::Budget) if self.budget.is_none() => {
                return Some(("reasoning by budget without a range".to_owned(), "write budget = [MIN, MAX]"));
            }
            Some(ReasoningControl::Fixed) if self.efforts.is_some_and(|set| !set.is_empty()) => {
                return Some(("fixed reasoning with efforts".to_owned(), "write efforts = []"));
            }
            _ => {}
        }
        match self.default {
            Some(DefaultEffort::None) if !none => {
                return Some(("default = \"none\" is not accepted".to_owned(), "write off = \"none\" too"));
            }
            Some(default) if !listed(default) => {
                let message = format!("default = {:?} is not one of the efforts", default.name());
                return Some((message, "write one of them, or \"?\""));
            }
            _ => {}
        }
        if let (Some(chat), Some(all)) = (self.efforts_chat, self.efforts)
            && chat.iter().any(|effort| !all.contains(effort))
        {
            return Some(("efforts_chat has one that efforts has not".to_owned(), "write fewer"));
        }
        if self.off_up_to.is_some() && matches!(self.off, None | Some(ReasoningOff::No)) {
            return Some((
                "off_up_to without a way to switch off".to_owned(),
                "write off, or off_up_to = \"?\"",
            ));
        }
        None
    }
}
