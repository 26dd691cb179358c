//! Capability profiles of models: the rules of each format, with what the catalogue knows of the model.
//!
//! An unknown model gets the profile of a recent model of its provider.

use super::bedrock::{INVOKE_CLAUDE, ToolBetas};
use super::imaging::ImagingRules;
use super::profile::{self, KnownModel};
use super::{Preset, Provider, ProviderKind, presets};
use crate::canonical::dialect::{ReasoningSupport, SamplingSupport, Structured};
use crate::canonical::request::EffortSetting;
use crate::canonical::video::VideoDialect;
use crate::canonical::{BreakpointSupport, Dialect, Quirks, Thinking};
use crate::catalogue::ApiFormat;
use crate::wire::Api;

/// Makers of models whose format has rules of its own.
pub(super) const ANTHROPIC: &str = "anthropic";
const GOOGLE: &str = "google";
const OPENAI: &str = "openai";

/// How a model is served at a provider: what decides on the API of a request.
#[derive(Clone, Copy, Debug)]
pub struct ModelRules {
    /// Whether the model serves conversations.
    pub is_chat: bool,
    /// Whether the provider serves the model through the responses API only.
    pub responses_only: bool,
    /// Whether requests with function tools need the responses API, by their effort.
    tools_by_responses: [bool; 3],
    /// Whether chat requests can have stop sequences, which the responses API lacks.
    pub stops_in_chat: bool,
    /// APIs that serve the model, one bit each.
    served: u16,
    /// Cache marks of messages and Converse requests.
    marks: [Option<BreakpointSupport>; 2],
    /// What is known of the model as one of images.
    pub images: ImagingRules,
    /// Video profile of the model.
    pub video: VideoDialect,
}

impl ModelRules {
    /// Returns whether requests with function tools and this effort need the responses API.
    pub fn needs_responses_for_tools(&self, effort: EffortSetting) -> bool {
        let [unset, off, on] = self.tools_by_responses;
        match effort {
            EffortSetting::Unset => unset,
            EffortSetting::Off => off,
            EffortSetting::On => on,
        }
    }

    /// Returns whether an API serves the model.
    pub const fn serves(&self, api: Api) -> bool {
        self.served & api_bit(api) != 0
    }

    /// Returns the explicit cache marks that the model takes in requests through `api`. `None` if it takes none.
    pub const fn breakpoints(&self, api: Api) -> Option<BreakpointSupport> {
        let [messages, converse] = self.marks;
        match api {
            Api::Messages => messages,
            Api::Converse => converse,
            _ => None,
        }
    }
}

const fn api_bit(api: Api) -> u16 {
    1 << api as u16
}

/// Default output token limit for models with an unknown limit, where the format requires a value: the limit of the
/// oldest models that are still served.
const MAX_OUTPUT: u64 = 8_192;

impl Provider {
    /// Returns the capability profile of `model` for requests through `api`. It is looked up when a configuration is loaded;
    /// requests use the one of their target.
    pub fn dialect<'d>(&'d self, api: Api, model: &'d str) -> Dialect<'d> {
        let known = self.known(model);
        let dialect = self.usual_dialect(api, model, &known);
        let prefill = self.prefill.unwrap_or(dialect.prefill);
        // None of these providers signs anything in chat completions.
        let signs = dialect.signs && !super::refusals::refuses_message_members(self.preset, api);
        let dialect = Dialect { prefill, signs, ..dialect };
        Dialect { refuses: super::refusals::refused(self, api, &dialect, &known), ..dialect }
    }

    /// Returns the profile without the provider's configured overrides.
    fn usual_dialect<'d>(&'d self, api: Api, model: &'d str, known: &KnownModel) -> Dialect<'d> {
        let plain = Dialect::plain(model, &self.issuer);
        let base = known.see(Dialect { max_output: MAX_OUTPUT, think_tags: self.think_tags, ..plain });
        match api {
            Api::Messages | Api::CountTokens => {
                let base = Dialect {
                    quirks: match self.kind {
                        ProviderKind::VertexAnthropic => const { &VERTEX_CLAUDE },
                        ProviderKind::Bedrock => const { &INVOKE_CLAUDE },
                        _ => base.quirks,
                    },
                    // Bedrock fetches no media.
                    media_urls: base.media_urls && self.kind != ProviderKind::Bedrock,
                    ..base
                };
                messages(base, known)
            }
            Api::Generate => {
                // Vertex AI rejects tool-call ids.
                let base = Dialect { call_ids: self.kind != ProviderKind::Vertex, ..base };
                generate(base, &self.known_of(GOOGLE, known))
            }
            Api::Converse => super::bedrock::dialect(base, model, known),
            _ if matches!(self.preset, Preset::OpenAi | Preset::Azure) => {
                openai(base, &self.known_of(OPENAI, known), api)
            }
            _ => {
                let own = profile::maker_of(self.preset).map(|maker| self.known_of(maker, known));
                let is_beta = self.base.prefix().ends_with("/beta");
                presets::dialect(self.preset, base, own.as_ref().unwrap_or(known), api, is_beta)
            }
        }
    }

    /// Returns whether even a request in the provider's own format may have to be rewritten, because the provider does
    /// not support all of that format.
    pub fn needs_adaptation(&self) -> bool {
        !matches!(
            self.preset,
            Preset::OpenAi | Preset::Azure | Preset::Anthropic | Preset::Gemini | Preset::Compatible
        )
    }

    /// Returns how a model is served: what decides on the API of a request. It is looked up once for each target.
    pub fn model_rules(&self, model: &str) -> ModelRules {
        let known = self.known(model);
        let is_openai = matches!(self.preset, Preset::OpenAi | Preset::Azure);
        let responses_only = is_openai && known.facts.api == Some(ApiFormat::Responses);
        let chat = self.usual_dialect(Api::Chat, model, &known);
        let serves = |api: &Api| self.serves_known(*api, &known);
        let served = Api::ALL.iter().filter(|api| serves(api)).fold(0, |set, api| set | api_bit(*api));
        // 400 "Function tools with reasoning_effort are not supported in /v1/chat/completions" (OpenAI API, November 2026).
        let for_tools =
            is_openai && self.offers(Api::Responses) && known.facts.tools_api == Some(ApiFormat::Responses);
        let is_on = |effort| match effort {
            EffortSetting::Unset => chat.reasons_by_default,
            // An effort that the model refuses is replaced by its lowest one.
            EffortSetting::Off => chat.reasons(Thinking::Off),
            EffortSetting::On => true,
        };
        ModelRules {
            is_chat: known.is_chat(),
            responses_only,
            tools_by_responses: EffortSetting::ALL.map(|effort| for_tools && is_on(effort)),
            stops_in_chat: self.offers(Api::Chat)
                && !responses_only
                && matches!(chat.sampling, SamplingSupport::All | SamplingSupport::One),
            served,
            marks: [Api::Messages, Api::Converse].map(|api| self.breakpoints_known(api, &known)),
            images: ImagingRules::of(&known),
            video: self.video(model),
        }
    }

    /// Returns whether requests for a model through `api` can have what OpenAI introduced with GPT-5: `verbosity`, and
    /// custom tools, whose input is free text (OpenAI API, "Function calling").
    pub fn has_gpt5_parameters(&self, api: Api, model: &str) -> bool {
        matches!(api, Api::Chat | Api::Responses)
            && matches!(self.preset, Preset::OpenAi | Preset::Azure)
            && self.known(model).facts.verbosity == Some(true)
    }

    /// Returns whether chat streams can request usage.
    pub fn takes_stream_options(&self) -> bool {
        !self.dialect(Api::Chat, "").quirks.lacks("stream_options")
    }

    /// Returns the member, with its value, that replaces the model name in the body. `None` if the body names the
    /// model.
    pub fn model_replacement(&self, api: Api) -> Option<(&'static str, &'static str)> {
        match (self.kind, api) {
            (ProviderKind::VertexAnthropic, _) => VERTEX_CLAUDE.model_replacement,
            (ProviderKind::Bedrock, Api::Messages) => INVOKE_CLAUDE.model_replacement,
            _ => None,
        }
    }

    /// Returns whether requests of the messages format go to Bedrock's InvokeModel, where the path selects a stream, beta
    /// features are a member of the body, and a stream arrives as an event stream.
    pub fn invokes(&self, api: Api) -> bool {
        self.kind == ProviderKind::Bedrock && api == Api::Messages
    }

    /// Returns a profile for a request with these beta features, which decide which members of tools InvokeModel takes.
    pub fn with_betas<'d>(&self, dialect: Dialect<'d>, api: Api, betas: ToolBetas) -> Dialect<'d> {
        if self.invokes(api) { Dialect { quirks: betas.quirks(), ..dialect } } else { dialect }
    }

    /// Returns whether requests through an API can have a guardrail of Amazon Bedrock.
    pub fn takes_guardrail(&self, api: Api) -> bool {
        self.invokes(api) || self.kind == ProviderKind::Bedrock && api == Api::Converse
    }
}

/// The model is in the path, and the API version in the body. Source: Vertex AI, "Claude models".
const VERTEX_CLAUDE: Quirks =
    Quirks { model_replacement: Some(("anthropic_version", "vertex-2023-10-16")), ..Quirks::PLAIN };

/// Returns the profile of a model in the messages format. Source: Anthropic, "Models overview", "Mid-conversation system
/// messages", "Tool use", November 2026; what differs between models is in the catalogue.
pub(super) fn messages<'d>(base: Dialect<'d>, known: &KnownModel) -> Dialect<'d> {
    if !known.is_of(ANTHROPIC) {
        // The subset that servers of other models implement.
        let reasoning = ReasoningSupport::Budget { min: 1_024, max: 128_000, off: true };
        // Only Claude is served in this format by cloud platforms.
        let own_envelopes = *base.quirks == Quirks::PLAIN;
        return Dialect { reasoning, max_output: 8_192, system_in_middle: false, own_envelopes, ..base };
    }
    let base = Dialect { system_follows_user: true, max_call_id: Some(64), ..base };
    known.apply(base, Api::Messages, false)
}

/// Returns the profile of a model in the generate format. Source: Gemini API, "Models", "Thinking", "Structured output";
/// what differs between models is in the catalogue.
fn generate<'d>(base: Dialect<'d>, known: &KnownModel) -> Dialect<'d> {
    let is_chat = known.is_chat();
    let base = Dialect {
        media_urls: is_chat && known.facts.signed_calls == Some(true),
        system_in_middle: false,
        prefill: true,
        max_output: 65_536,
        structured: if is_chat { base.structured } else { Structured::NativeWithoutTools },
        ..base
    };
    known.apply(base, Api::Generate, false)
}

/// Returns the profile of a model of OpenAI. Source: OpenAI API, "Models", "Reasoning models"; what differs between models
/// is in the catalogue.
fn openai<'d>(base: Dialect<'d>, known: &KnownModel, api: Api) -> Dialect<'d> {
    // Both APIs refuse longer ids: "string too long".
    let base = Dialect { max_call_id: Some(if api == Api::Chat { 40 } else { 64 }), ..base };
    known.apply(base, api, false)
}

/// Returns the issuer name of a provider: letters, digits and single dashes, so that it can be parsed out of an id.
pub(super) fn issuer_of(name: &str) -> Box<str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if !name.is_empty() && name.bytes().all(fits) {
        return name.into();
    }
    // FNV-1a hash: different names need different issuers.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("p{hash:016x}").into_boxed_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuer_name_is_made_safe_for_an_id() {
        assert_eq!(&*issuer_of("anthropic-eu"), "anthropic-eu");
        for name in ["", "a__b", "a.b", "ü"] {
            let issuer = issuer_of(name);
            assert!(issuer.len() == 17 && issuer.bytes().all(|b| b.is_ascii_alphanumeric()), "{issuer}");
        }
        assert_ne!(issuer_of("a_b"), issuer_of("a.b"));
    }
}
