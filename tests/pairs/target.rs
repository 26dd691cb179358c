//! Targets: a model of the catalogue at a provider that offers it, through one of its APIs.

use bytes::Bytes;
use serde_json::Value;

use model_gateway::canonical::{Dialect, RequestFeatures, Thinking};
use model_gateway::catalogue::{Catalogue, ModelKind};
use model_gateway::json::EscapedString;
use model_gateway::provider::{BaseUrl, Preset, Provider, ProviderKind, Setup};
use model_gateway::simulator::{CheckedRequest, ConversationApi, refusal};
use model_gateway::translate::{TranslateRequest, outgoing};
use model_gateway::wire::request::BodyReader;
use model_gateway::wire::{Api, Format, chat};

use crate::talk::Talk;

/// Hosts of open models, which the catalogue lists at their makers only, with models that they serve.
const HOSTS: [(Preset, &[&str]); 8] = [
    (
        Preset::Groq,
        &["openai/gpt-oss-120b", "qwen/qwen3-32b", "llama-3.3-70b-versatile", "moonshotai/kimi-k3"],
    ),
    (
        Preset::OpenRouter,
        &["anthropic/claude-opus-5.5", "openai/gpt-6-sol", "z-ai/glm-5.3", "deepseek/deepseek-v4-pro"],
    ),
    (Preset::Together, &["openai/gpt-oss-20b", "zai-org/GLM-4.6", "deepseek-ai/DeepSeek-V4-Pro"]),
    (Preset::Fireworks, &["accounts/fireworks/models/glm-5.3", "accounts/fireworks/models/deepseek-v4-pro"]),
    (Preset::Vllm, &["Qwen/Qwen3.5-397B-A17B", "zai-org/GLM-5.3", "openai/gpt-oss-20b"]),
    (Preset::Ollama, &["qwen3:8b", "gpt-oss:20b", "llama3.3"]),
    (Preset::Qwen, &["qwen3-32b", "qwq-plus"]),
    (Preset::Compatible, &["MiniMax-M3", "MiniMax-M2.5", "my-model"]),
];

/// Result of sending a request.
pub(crate) enum Outcome {
    /// The gateway refuses it.
    Refused,
    /// The provider takes it.
    Taken,
    /// The provider refuses it, with the reason and what it got.
    Violation(String, String),
}

/// Target.
pub(crate) struct Target {
    pub(crate) provider_name: &'static str,
    pub(crate) model: String,
    pub(crate) format: Format,
    provider: Provider,
}

fn provider(kind: ProviderKind, preset: Option<Preset>, apis: Vec<Api>) -> Provider {
    let base = BaseUrl::parse("http://127.0.0.1:1/v1").unwrap();
    let mut provider = Provider::new(Setup { name: "p".to_owned(), kind, apis, base });
    provider.preset = preset.unwrap_or(provider.preset);
    provider
}

/// Returns the kinds and formats by which a provider of the catalogue is reached.
fn ways(id: &str) -> Vec<(&'static str, ProviderKind, Option<Preset>, Vec<Format>)> {
    let openai = vec![Format::Chat, Format::Responses];
    let compatible =
        |name, preset| vec![(name, ProviderKind::OpenAiCompatible, Some(preset), vec![Format::Chat])];
    match id {
        "openai" => vec![
            ("openai", ProviderKind::OpenAi, None, openai.clone()),
            ("azure", ProviderKind::Azure, None, openai),
        ],
        "anthropic" => vec![
            ("anthropic", ProviderKind::Anthropic, None, vec![Format::Messages]),
            ("vertex-anthropic", ProviderKind::VertexAnthropic, None, vec![Format::Messages]),
        ],
        "gemini" => vec![
            ("gemini", ProviderKind::Gemini, None, vec![Format::Generate]),
            ("vertex", ProviderKind::Vertex, None, vec![Format::Generate]),
        ],
        "bedrock" => vec![("bedrock", ProviderKind::Bedrock, None, vec![Format::Converse, Format::Messages])],
        "deepseek" => compatible("deepseek", Preset::DeepSeek),
        "qwen" => compatible("qwen", Preset::Qwen),
        "moonshot" => compatible("moonshot", Preset::Moonshot),
        "glm" => compatible("glm", Preset::Glm),
        "xai" => compatible("xai", Preset::Xai),
        "mistral" => compatible("mistral", Preset::Mistral),
        "ark" => compatible("ark", Preset::Ark),
        "minimax" | "cohere" => compatible("compatible", Preset::Compatible),
        other => panic!("a provider without targets: {other}"),
    }
}

/// Returns all targets.
pub(crate) fn all() -> Vec<Target> {
    let mut targets = Vec::new();
    let mut add = |name, kind, preset, format: Format, model: &str| {
        // At Bedrock only Claude is reached in the messages format.
        let apis = if kind == ProviderKind::Bedrock {
            vec![Api::Converse, Api::Messages]
        } else {
            vec![format.api()]
        };
        let provider = provider(kind, preset, apis);
        let rules = provider.model_rules(model);
        let is_reached = rules.serves(format.api()) && !(format == Format::Chat && rules.responses_only);
        if is_reached {
            targets.push(Target { provider_name: name, model: model.to_owned(), format, provider });
        }
    };
    let catalogue = Catalogue::embedded();
    for model in catalogue.models().iter().filter(|model| model.facts.kind_or_chat() == ModelKind::Chat) {
        for offer in &model.offers {
            // Vertex AI and Azure are reached by the offers of Gemini and OpenAI.
            if catalogue.provider(&offer.provider).is_some_and(|provider| provider.same_as.is_some()) {
                continue;
            }
            for (name, kind, preset, formats) in ways(&offer.provider) {
                for format in formats {
                    add(name, kind, preset, format, &offer.name);
                }
            }
        }
    }
    for (preset, models) in HOSTS {
        for model in models {
            add(preset.name(), ProviderKind::OpenAiCompatible, Some(preset), Format::Chat, model);
        }
    }
    targets
}

impl Target {
    /// Sends a request of a client.
    pub(crate) fn send(&self, client: Format, talk: &Talk, stream: bool) -> Outcome {
        let body = talk.body(client, &self.model, stream);
        let api = self.format.api();
        // Requests with function tools and reasoning go to another API.
        if self.format == Format::Chat && client == Format::Chat && self.needs_responses(&body) {
            return Outcome::Refused;
        }
        let Some(sent) = self.leaves(client, &body, stream) else { return Outcome::Refused };
        if self.format == Format::Chat && self.needs_responses(&sent) {
            return Outcome::Refused;
        }
        let checked = CheckedRequest {
            provider: self.provider_name,
            api: match self.format {
                Format::Chat => ConversationApi::Chat,
                Format::Responses => ConversationApi::Responses,
                Format::Messages => ConversationApi::Messages,
                Format::Generate => ConversationApi::Generate,
                Format::Converse => ConversationApi::Converse,
            },
            model: &self.model,
            body: &sent,
            stream,
        };
        debug_assert_eq!(api.format(), Some(self.format));
        match refusal(&checked) {
            None => Outcome::Taken,
            // The provider says what the gateway would have said.
            Some(_) if client == self.format && self.is_refused(client, &body, stream) => Outcome::Refused,
            Some(why) => Outcome::Violation(why, sent.to_string()),
        }
    }

    /// Returns whether the gateway refuses a request that it encodes.
    fn is_refused(&self, client: Format, body: &Value, stream: bool) -> bool {
        let dialect = self.provider.dialect(self.format.api(), &self.model);
        self.encoded(&dialect, client, &body.to_string(), stream).is_none()
    }

    /// Returns whether a chat request belongs to the responses API of the provider.
    fn needs_responses(&self, body: &Value) -> bool {
        let provider =
            provider(self.provider.kind, Some(self.provider.preset), vec![Api::Chat, Api::Responses]);
        let text = Bytes::from(body.to_string());
        let mut reader = BodyReader::new(Api::Chat, false);
        reader.push(text).unwrap();
        let body = reader.finish().unwrap();
        body.has_tools() && provider.model_rules(&self.model).needs_responses_for_tools(body.effort_setting())
    }

    /// Returns what leaves for the provider, as at a target that the gateway chose; `None` if the gateway refuses the request.
    fn leaves(&self, client: Format, body: &Value, stream: bool) -> Option<Value> {
        let dialect = self.provider.dialect(self.format.api(), &self.model);
        let dialect = Dialect { most_output: dialect.highest_limit(stream), ..dialect };
        let text = body.to_string();
        let passed = (client == self.format).then(|| self.passed(&dialect, &text)).flatten();
        if passed.is_some() {
            return passed;
        }
        self.encoded(&dialect, client, &text, stream)
    }

    fn encoded(&self, dialect: &Dialect<'_>, client: Format, text: &str, stream: bool) -> Option<Value> {
        let asked = TranslateRequest {
            client,
            provider: self.format,
            stream,
            array: false,
            thinking: Thinking::Unset,
            dialect,
            model: &EscapedString::from(&*self.model),
            id: "req_1",
            seed: "req_1",
            now: 0,
        };
        let sent = outgoing(&text.into(), &asked).ok()?;
        Some(serde_json::from_slice(&sent.text()).unwrap())
    }

    /// Returns a body of the target's own format, with its edits. `None` if it is encoded again.
    fn passed(&self, dialect: &Dialect<'_>, text: &str) -> Option<Value> {
        let mut reader = BodyReader::new(self.format.api(), false);
        reader.push(Bytes::from(text.to_owned())).unwrap();
        let body = reader.finish().unwrap();
        let held = body.held(dialect.refuses, dialect.most_output);
        if self.format == Format::Chat && self.provider.needs_adaptation() {
            // Members are judged by whether they fit.
            let members = RequestFeatures::ADDED_MEMBER.with(RequestFeatures::MESSAGE_MEMBER);
            let fits = body.is_settled_by_edits(held.without(members)) && chat::request::fits(text, dialect);
            return fits.then(|| serde_json::from_str(text).unwrap());
        }
        let spelled = body.respelled(dialect);
        if !body.is_settled_by_edits(held) || spelled.encode_again {
            return None;
        }
        let edited = body.text.edited(&spelled.edits).into_contiguous();
        let edited = std::str::from_utf8(&edited).unwrap();
        let fits = self.format != Format::Chat || chat::request::fits(edited, dialect);
        fits.then(|| serde_json::from_str(edited).unwrap())
    }
}
