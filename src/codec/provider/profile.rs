//! Capability profile from what the catalogue knows of a model. Only here facts become a [`Dialect`]; what belongs to the
//! provider (members, names, extensions) stands in the presets.

use smallvec::SmallVec;

use super::{Preset, Provider, ProviderKind};
use crate::canonical::dialect::{ReasoningOff, ReasoningSupport, SamplingSupport, Structured};
use crate::canonical::{BreakpointSupport, Dialect, Effort, EffortSet, MemberSet};
use crate::catalogue::{
    Catalogue, ContentKind, DefaultEffort, EffortNames, How, InstructionsRole, LimitMember, ModelFacts,
    ModelKind, PrefillRule, ReasoningControl, ReasoningOff as OffForm, SamplingRule, SchemaSupport,
};
use crate::wire::Api;

/// What is known of a model at a provider.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownModel {
    /// Facts of the model at this provider.
    pub(super) facts: ModelFacts,
    /// How the name was found; `None` for a name that resembles none.
    pub(super) how: Option<How>,
}

impl Provider {
    /// Returns the provider's id in the catalogue.
    pub fn catalogue_id(&self) -> &'static str {
        match self.kind {
            ProviderKind::Bedrock => "bedrock",
            ProviderKind::VertexAnthropic => "vertex-anthropic",
            ProviderKind::Vertex => "vertex",
            _ => self.preset.name(),
        }
    }

    /// Looks a model up. This is done when a configuration is loaded, and not for a request.
    pub(super) fn known(&self, model: &str) -> KnownModel {
        let (facts, how) = self.catalogue.facts_at(&self.catalogue_rows(), model);
        KnownModel { facts, how }
    }

    /// Returns what the catalogue of the configuration knows of a model at this provider.
    pub fn facts_of(&self, model: &str) -> ModelFacts {
        self.known(model).facts
    }

    /// Returns the ids of the rows that apply to the provider: that of its kind or preset, and one that the operator has added
    /// under its name.
    fn catalogue_rows(&self) -> SmallVec<[&str; 2]> {
        let is_added = self.catalogue.provider(&self.name).is_some()
            && Catalogue::embedded().provider(&self.name).is_none();
        let own = is_added.then_some(&*self.name);
        std::iter::once(self.catalogue_id()).chain(own).collect()
    }

    /// Returns what is known of the model if it is one of this maker, and otherwise what an unknown model of the provider is
    /// taken for, at best with the content that the model reads.
    pub(super) fn known_of(&self, maker: &str, known: &KnownModel) -> KnownModel {
        if known.is_of(maker) {
            return known.clone();
        }
        let mut facts = self.catalogue.unknown_facts(&self.catalogue_rows());
        facts.input.clone_from(&known.facts.input);
        KnownModel { facts, how: None }
    }
}

impl KnownModel {
    /// Returns whether a company makes the model.
    pub(super) fn is_of(&self, maker: &str) -> bool {
        self.facts.maker.as_deref() == Some(maker)
    }

    /// Returns whether the model serves conversations.
    pub(super) fn is_chat(&self) -> bool {
        self.facts.kind_or_chat() == ModelKind::Chat
    }

    /// Returns whether the model reasons, if it is configured to.
    pub(super) fn is_fixed(&self) -> bool {
        self.facts.reasoning.is_none_or(|control| control == ReasoningControl::Fixed) && !self.is_switched()
    }

    /// Returns whether reasoning is switched on and off, without an effort.
    pub(super) fn is_switched(&self) -> bool {
        self.facts.reasoning == Some(ReasoningControl::Fixed) && self.facts.switch.is_some()
    }

    /// Returns the form of requests, at a provider whose models have different ones. Empty for the usual one.
    pub(super) fn form(&self) -> &str {
        self.facts.form.as_deref().unwrap_or_default()
    }

    /// Returns the cache marks that the model takes. `None` if it takes none.
    pub(super) fn breakpoints(&self) -> Option<BreakpointSupport> {
        let facts = &self.facts;
        facts.cache_marks.unwrap_or(false).then(|| BreakpointSupport {
            min_tokens: facts.cache_min.and_then(|least| u32::try_from(least).ok()).unwrap_or(0),
            tools: facts.cache_tools.unwrap_or(true),
            long: facts.cache_long.unwrap_or(true),
        })
    }

    /// Returns whether the model reads a kind of content; unknown ones read everything.
    fn reads_images(&self) -> bool {
        self.facts.reads(ContentKind::Image).unwrap_or(true)
    }

    /// Returns a profile with what is known of the model. `beta` is true at an address of preview features.
    pub(super) fn apply<'d>(&self, base: Dialect<'d>, api: Api, beta: bool) -> Dialect<'d> {
        let facts = &self.facts;
        let output = facts.output;
        let is_listed = self.how == Some(How::Listed);
        let dialect = self.reason(self.see(base), api);
        Dialect {
            max_output: output.unwrap_or(dialect.max_output),
            most_output: output.filter(|_| is_listed),
            most_output_whole: facts.output_unstreamed.filter(|_| is_listed),
            sampling: facts.sampling.map_or(dialect.sampling, sampling),
            structured: facts.structured.map_or(dialect.structured, structured),
            json_schema: facts.json_schema.unwrap_or(dialect.json_schema),
            developer_role: facts
                .role
                .map_or(dialect.developer_role, |role| role == InstructionsRole::Developer),
            max_completion_tokens: facts
                .limit
                .map_or(dialect.max_completion_tokens, |limit| limit == LimitMember::MaxCompletionTokens),
            system_in_middle: dialect.system_in_middle && facts.system_in_middle.unwrap_or(true),
            forced_tools: facts.forced.unwrap_or(dialect.forced_tools),
            prefill: facts.prefill.map_or(dialect.prefill, |rule| match rule {
                PrefillRule::Yes => true,
                PrefillRule::Beta => beta,
                PrefillRule::No => false,
            }),
            signed_calls: facts.signed_calls.unwrap_or(dialect.signed_calls),
            refused: self.refused(dialect.refused),
            ..dialect
        }
    }

    /// Returns a profile with the content that the model reads, and the members that it refuses.
    pub(super) fn see<'d>(&self, base: Dialect<'d>) -> Dialect<'d> {
        Dialect { image_input: base.image_input && self.reads_images(), ..base }
    }

    /// Returns a profile with the model's reasoning settings.
    pub(super) fn reason<'d>(&self, base: Dialect<'d>, api: Api) -> Dialect<'d> {
        let facts = &self.facts;
        let of = |names: Option<EffortNames>| EffortSet::of(names.unwrap_or_default().iter());
        let efforts = match facts.efforts_chat.filter(|_| api == Api::Chat) {
            Some(chat) => of(Some(chat)),
            None => of(facts.efforts),
        };
        let reasoning = match facts.reasoning {
            None => base.reasoning,
            Some(ReasoningControl::Fixed) if facts.switch.is_some() => ReasoningSupport::Effort {
                efforts: EffortSet::range(Effort::Low, Effort::High),
                off: self.off(),
            },
            Some(ReasoningControl::Fixed) => ReasoningSupport::Fixed,
            Some(ReasoningControl::Effort) => ReasoningSupport::Effort { efforts, off: self.off() },
            Some(ReasoningControl::Adaptive) => ReasoningSupport::Adaptive { efforts, off: self.off() },
            Some(ReasoningControl::Budget) => match facts.budget {
                None => base.reasoning,
                Some(range) => {
                    ReasoningSupport::Budget { min: range.min, max: range.max, off: self.off().is_full() }
                }
            },
        };
        let by_effort = match facts.default {
            Some(default) => default != DefaultEffort::None,
            None => facts.off == Some(OffForm::No) && facts.reasoning == Some(ReasoningControl::Effort),
        };
        Dialect {
            reasoning,
            reasons_by_default: facts.on_by_default.unwrap_or(by_effort || base.reasons_by_default),
            knows_efforts: self.how.is_some() && !efforts.is_empty(),
            effort_beside_budget: if facts.reasoning.is_some() {
                !efforts.is_empty()
            } else {
                base.effort_beside_budget
            },
            ..base
        }
    }

    fn off(&self) -> ReasoningOff {
        let highest = self.facts.off_up_to.and_then(|word| Effort::from_name(word.name()));
        match (self.facts.off, highest) {
            (None | Some(OffForm::No), _) => ReasoningOff::Never,
            (Some(OffForm::BetweenTools), _) => ReasoningOff::BetweenTools,
            (Some(OffForm::None | OffForm::Disabled), Some(highest)) => ReasoningOff::UpTo(highest),
            (Some(OffForm::None | OffForm::Disabled), None) => ReasoningOff::Full,
        }
    }

    fn refused(&self, base: MemberSet) -> MemberSet {
        let switch = self.is_switched().then_some("reasoning_effort");
        let names = self.facts.refuses.iter().flatten().map(|name| &**name).chain(switch);
        names.fold(base, |set, name| set.with(name).unwrap_or(set))
    }
}

fn sampling(rule: SamplingRule) -> SamplingSupport {
    match rule {
        SamplingRule::All => SamplingSupport::All,
        SamplingRule::One => SamplingSupport::One,
        SamplingRule::IfOff => SamplingSupport::IfOff,
        SamplingRule::No => SamplingSupport::None,
    }
}

fn structured(support: SchemaSupport) -> Structured {
    match support {
        SchemaSupport::Native => Structured::Native,
        SchemaSupport::NativeWithoutTools => Structured::NativeWithoutTools,
        SchemaSupport::Json => Structured::Json,
        SchemaSupport::Tool => Structured::Tool,
        SchemaSupport::Hint => Structured::Hint,
    }
}

/// Returns the company whose models a preset serves under their own rules. `None` for a host of models of many companies.
pub(super) const fn maker_of(preset: Preset) -> Option<&'static str> {
    Some(match preset {
        Preset::OpenAi | Preset::Azure => "openai",
        Preset::Anthropic => "anthropic",
        Preset::Gemini => "google",
        Preset::DeepSeek => "deepseek",
        Preset::Qwen => "alibaba",
        Preset::Moonshot => "moonshot",
        Preset::Glm => "zai",
        Preset::Xai => "xai",
        Preset::Mistral => "mistral",
        Preset::Groq
        | Preset::OpenRouter
        | Preset::Together
        | Preset::Fireworks
        | Preset::Ark
        | Preset::Vllm
        | Preset::Ollama
        | Preset::Compatible => return None,
    })
}
