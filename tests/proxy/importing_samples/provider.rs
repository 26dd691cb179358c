//! Simulated providers in the places of those of a configuration, and requests in their own formats.

use std::net::SocketAddr;

use model_gateway::simulator::{AwsAccessKey, Options, SimulatedProvider, Simulator};
use serde_json::{Value, json};

use super::super::support::client::{ask, post_with};
use super::source::Deployment;

/// Credential of all simulated providers.
pub(super) const CREDENTIAL: &str = "sk-of-the-simulated-providers";
/// Access key of the simulated Bedrock: its id and its secret.
pub(super) const AWS_KEY: (&str, &str) = ("AKIASIMULATED", "secret-of-the-simulated-access-key");
/// Text of each request.
pub(super) const WORDS: &str = "hello from an application";
pub(super) const DOCUMENTS: [&str; 3] = ["an application says hello", "a river", "hello"];

/// Version of the path of Azure in requests of the test.
const AZURE_VERSION: &str = "2024-10-21";

/// Prefixes of servers with OpenAI's API.
const OPENAI_API: [&str; 14] = [
    "openai",
    "ollama",
    "ollama_chat",
    "mistral",
    "groq",
    "github",
    "huggingface",
    "nvidia_nim",
    "xai",
    "perplexity",
    "deepseek",
    "ai21",
    "cohere",
    "openrouter",
];

/// What a model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Conversation,
    Embedding,
    Image,
    Rerank,
}

/// Provider as a configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Server with OpenAI's API.
    OpenAi,
    /// Ollama: its root is the address.
    Ollama,
    Azure,
    Anthropic,
    Gemini,
    /// Gemini on Vertex AI, with a project.
    Vertex,
    /// Gemini on Vertex AI in express mode.
    VertexExpress,
    Bedrock,
}

impl Place {
    /// Returns the provider of a model by LiteLLM's rules. `None` for one that it does not know, or that has no simulator.
    pub(super) fn of(model: &str, has_base: bool) -> Option<Place> {
        let prefix = model.split_once('/').map_or("", |(prefix, _)| prefix);
        match prefix {
            "ollama" | "ollama_chat" => Some(Place::Ollama),
            "azure" => Some(Place::Azure),
            "anthropic" => Some(Place::Anthropic),
            "gemini" => Some(Place::Gemini),
            "vertex_ai" => Some(Place::Vertex),
            "bedrock" => Some(Place::Bedrock),
            prefix if OPENAI_API.contains(&prefix) => Some(Place::OpenAi),
            "" if model.starts_with("gpt-") || has_base && !is_guessed(model) => Some(Place::OpenAi),
            "" if model.starts_with("claude-") => Some(Place::Anthropic),
            "" if model.starts_with("gemini-") => Some(Place::Gemini),
            _ => None,
        }
    }
}

/// Returns whether LiteLLM knows the provider of a model without a prefix.
fn is_guessed(model: &str) -> bool {
    ["claude-", "gemini-"].iter().any(|start| model.starts_with(start))
}

/// Simulated providers.
pub(super) struct Providers {
    openai: Simulator,
    ollama: Simulator,
    azure: Simulator,
    anthropic: Simulator,
    gemini: Simulator,
    vertex: Simulator,
    bedrock: Simulator,
}

impl Providers {
    pub(super) async fn start() -> Providers {
        let (id, secret) = AWS_KEY;
        let start = |provider| {
            let credential = Some(CREDENTIAL.to_owned());
            let access_keys = vec![AwsAccessKey::new(id, secret)];
            Simulator::start(provider, Options { credential, access_keys, ..Options::default() })
        };
        Providers {
            openai: start(SimulatedProvider::OpenAi).await.unwrap(),
            // It needs no credential.
            ollama: Simulator::start(SimulatedProvider::OpenAi, Options::default()).await.unwrap(),
            azure: start(SimulatedProvider::AzureOpenAi).await.unwrap(),
            anthropic: start(SimulatedProvider::Anthropic).await.unwrap(),
            gemini: start(SimulatedProvider::Google).await.unwrap(),
            vertex: start(SimulatedProvider::GeminiVertex).await.unwrap(),
            bedrock: start(SimulatedProvider::Bedrock).await.unwrap(),
        }
    }

    fn addr(&self, place: Place) -> SocketAddr {
        match place {
            Place::OpenAi => self.openai.addr(),
            Place::Ollama => self.ollama.addr(),
            Place::Azure => self.azure.addr(),
            Place::Anthropic => self.anthropic.addr(),
            Place::Gemini => self.gemini.addr(),
            Place::Vertex | Place::VertexExpress => self.vertex.addr(),
            Place::Bedrock => self.bedrock.addr(),
        }
    }

    /// Returns the address of a provider as a configuration of LiteLLM has it.
    pub(super) fn base_url(&self, place: Place) -> String {
        let path = match place {
            Place::OpenAi => "/v1",
            Place::Vertex => "/v1/projects/simulated/locations/global",
            Place::VertexExpress => "/v1/publishers/google",
            Place::Ollama | Place::Azure | Place::Anthropic | Place::Gemini | Place::Bedrock => "",
        };
        format!("http://{}{path}", self.addr(place))
    }

    /// Sends a request of a task to the provider of a deployment. `None` if the provider refuses it.
    pub(super) async fn answer(&self, deployment: &Deployment, task: Task) -> Option<Value> {
        let place = deployment.place?;
        let model = deployment.model.split_once('/').map_or(&*deployment.model, |(_, model)| model);
        let (path, body) = request(place, model, task);
        let bearer = format!("Bearer {CREDENTIAL}");
        let headers: &[(&str, &str)] = match place {
            Place::OpenAi | Place::Ollama | Place::Vertex | Place::Bedrock => &[("authorization", &bearer)],
            Place::Azure => &[("api-key", CREDENTIAL)],
            Place::Anthropic => &[("x-api-key", CREDENTIAL), ("anthropic-version", "2023-06-01")],
            Place::Gemini | Place::VertexExpress => &[("x-goog-api-key", CREDENTIAL)],
        };
        let answer = ask(self.addr(place), post_with(&path, headers, body.to_string())).await;
        if answer.status() != 200 {
            return None;
        }
        let said = essence(task, &answer.json());
        Some(said.unwrap_or_else(|| panic!("{place:?} does not answer: {}", answer.text())))
    }
}

/// Checks that an imported configuration leads to simulated providers only.
pub(super) fn check_addresses(routes: &str) {
    let routes: toml::Table = routes.parse().unwrap();
    for provider in routes.get("provider").and_then(toml::Value::as_array).into_iter().flatten() {
        let url = provider.get("base_url").and_then(toml::Value::as_str).unwrap_or_default();
        assert!(url.starts_with("http://127.0.0.1:"), "not a simulated provider: {provider}");
    }
}

/// Returns the path and the body of a request in a provider's own format.
fn request(place: Place, model: &str, task: Task) -> (String, Value) {
    let turns = json!([{ "role": "user", "content": WORDS }]);
    let contents = json!([{ "role": "user", "parts": [{ "text": WORDS }] }]);
    match (place, task) {
        (Place::OpenAi | Place::Ollama | Place::Azure, _) => {
            let (method, body) = match task {
                Task::Conversation => ("chat/completions", json!({ "model": model, "messages": turns })),
                Task::Embedding => ("embeddings", json!({ "model": model, "input": WORDS })),
                Task::Image => ("images/generations", json!({ "model": model, "prompt": WORDS })),
                Task::Rerank => ("rerank", json!({ "model": model, "query": WORDS, "documents": DOCUMENTS })),
            };
            let path = match place {
                Place::Azure => {
                    format!("/openai/deployments/{model}/{method}?api-version={AZURE_VERSION}")
                }
                _ => format!("/v1/{method}"),
            };
            (path, body)
        }
        (Place::Anthropic, _) => {
            ("/v1/messages".to_owned(), json!({ "model": model, "max_tokens": 1024, "messages": turns }))
        }
        (Place::Gemini | Place::Vertex | Place::VertexExpress, _) => {
            let start = match place {
                Place::Vertex => "/v1/projects/simulated/locations/global/publishers/google",
                Place::VertexExpress => "/v1/publishers/google",
                _ => "/v1beta",
            };
            let mut body = json!({ "contents": contents });
            if task == Task::Image {
                body["generationConfig"] = json!({ "responseModalities": ["IMAGE"] });
            }
            (format!("{start}/models/{model}:generateContent"), body)
        }
        (Place::Bedrock, Task::Conversation) => {
            let messages = json!([{ "role": "user", "content": [{ "text": WORDS }] }]);
            (format!("/model/{}/converse", encoded(model)), json!({ "messages": messages }))
        }
        (Place::Bedrock, _) => {
            let body = match task {
                Task::Rerank if model.starts_with("cohere.") => {
                    json!({ "query": WORDS, "documents": DOCUMENTS, "api_version": 2 })
                }
                Task::Rerank => json!({ "query": WORDS, "documents": DOCUMENTS }),
                _ if model.starts_with("cohere.") => {
                    json!({ "texts": [WORDS], "input_type": "search_document" })
                }
                _ => json!({ "inputText": WORDS }),
            };
            (format!("/model/{}/invoke", encoded(model)), body)
        }
    }
}

/// Returns a model's name as a segment of a path.
fn encoded(model: &str) -> String {
    model.replace(':', "%3A").replace('/', "%2F")
}

/// Returns what an answer says, whatever its format is: the text, the vector, the image in Base64, or the places and
/// scores of the documents. `None` if it says nothing of the kind.
pub(super) fn essence(task: Task, answer: &Value) -> Option<Value> {
    let places: &[&str] = match task {
        Task::Conversation => &[
            "/choices/0/message/content",
            "/content/0/text",
            "/candidates/0/content/parts/0/text",
            "/output/message/content/0/text",
        ],
        Task::Embedding => &["/data/0/embedding", "/embedding", "/embeddings/0"],
        Task::Image => {
            // Parts of Gemini that are thoughts are drafts of the image.
            let parts = answer.pointer("/candidates/0/content/parts").and_then(Value::as_array);
            let mut finished = parts.into_iter().flatten().filter(|part| part.get("thought").is_none());
            let data = finished.find_map(|part| part.pointer("/inlineData/data"));
            return data.or(answer.pointer("/data/0/b64_json")).cloned();
        }
        Task::Rerank => {
            let results = answer["results"].as_array()?;
            let place = |result: &Value| json!([result["index"], result["relevance_score"]]);
            return Some(results.iter().map(place).collect());
        }
    };
    places.iter().find_map(|place| answer.pointer(place)).cloned()
}
