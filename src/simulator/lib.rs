//! Simulated model providers on loopback: each implements its provider's HTTP API and returns generated text.
//!
//! This module has the listener and its counters ([`Simulator`]), the provider-independent plan of a response
//! (`conversation`, `script`, `text`, `schema`, `embedding`), the prompt cache (`prefix_cache`), the refusal of envelopes (`envelope`), the injection of faults (`directive`, `stream`, `body`),
//! and one folder per provider (`openai`, `anthropic`, `google`, `bedrock`) or for several (`search`, `image`, `video`) that reads
//! the provider's requests and writes its responses, headers, streams and errors. Code that the gateway needs to serve
//! requests must not live here. The gateway and the simulator share no code, so that they cannot share a mistake.
//!
//! # Responses
//! Any model name is accepted, except names that start with `missing-`: those get the provider's 404. The response
//! repeats the last user text, names the model, and states how many images, documents and tool results arrived. It is
//! deterministic: the text depends on neither time nor chance, and identifiers derive from a counter and a hash of the
//! request.
//!
//! * **Tools** are called if `tool_choice` forces it or the user's text mentions their name outside of a block
//!   `<system-reminder>`, unless the last turn has tool results. The arguments are generated from the tool's JSON schema.
//! * **Structured output** is generated from its JSON schema.
//! * **Thinking** has the provider's format, with signatures that are verified when the client sends them back.
//! * **Limits** (maximum tokens, stop sequences) are enforced. A token is four bytes.
//!
//! A test can prescribe the responses of a conversation instead: see [`Simulator::prescribe`].
//!
//! # Directives
//! The last user text (for embeddings: the last input) may contain directives in double square brackets, several of
//! them separated by spaces or each in its own brackets. They are removed from the text before it is repeated. Brackets
//! with other content stay in the text.
//!
//! | Directive | Effect |
//! |---|---|
//! | `[[status 429]]` | the provider's error for this HTTP status (200 to 599); 429 and 503 have `retry-after: 7` |
//! | `[[delay 1500]]` | milliseconds before the response head |
//! | `[[first 800]]` | streams: milliseconds between the head and the first token |
//! | `[[pace 50]]` | streams: milliseconds per token |
//! | `[[words 300]]` | number of words in the response text |
//! | `[[big 5000000]]` | bytes of response text, in frames up to 100 kB, without token limit; bytes of each image |
//! | `[[cached 1000]]` | number of prompt tokens that are reported as read from the provider's cache |
//! | `[[error 3]]` | an error in the stream, in the provider's format, after 3 deltas (0: it is the first frame) |
//! | `[[bare error 3]]` | chat completions: that error as an object without a member `error`; in place of a document with status 200 |
//! | `[[twice]]`, `[[led]]` | chat completions: the arguments of calls are encoded as JSON twice, or stand behind an empty object |
//! | `[[other-usage]]` | chat completions: usage has the names of the responses format |
//! | `[[error-status 429]]` | Bedrock: the status whose error `error` sends, in place of overload |
//! | `[[cut 3]]` | the connection is reset after 3 deltas |
//! | `[[end 3]]` | the body ends cleanly after 3 deltas, with the response unfinished |
//! | `[[spoil 3]]` | the frame behind 3 deltas has a wrong byte, or in Bedrock's streams a wrong checksum; the stream goes on |
//! | `[[stall 3]]` | no further data after 3 deltas; the connection stays open |
//! | `[[hang]]` | no response at all |
//! | `[[refuse]]` | the model refuses, in the provider's format |
//! | `[[finish network_error]]` | the finish reason, in the letters in which it is given; in the responses format that of an incomplete response |
//! | `[[html]]` | 200 with an HTML page |
//! | `[[empty]]` | 200 with an empty body |
//! | `[[void]]` | 200 with an empty object |
//! | `[[truncate]]` | half of the JSON response with the content length of all of it; a stream ends within a frame |
//! | `[[garbage]]` | a JSON response, or the third frame of a stream, is invalid JSON |
//!
//! Videos have further directives: see `video`.
//!
//! A delta is a frame with a piece of text, of thinking or of tool arguments. If there are fewer deltas than a
//! directive states, it takes effect after the last one. For a response that is not streamed, `error` is the provider's
//! overload status, and `cut`, `end` and `stall` take effect in the middle of the body.

mod anthropic;
mod bedrock;
mod body;
mod clock;
mod compatible;
mod conversation;
mod directive;
mod embedding;
mod envelope;
mod google;
mod http;
mod ids;
mod image;
mod model_rules;
mod open_rules;
mod openai;
mod prefix_cache;
mod refusal;
mod scenario;
mod schema;
mod script;
mod search;
mod server;
mod stream;
mod text;
mod video;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;

pub use refusal::{CheckedRequest, ConversationApi, refusal};
pub use scenario::PrescribedResponse;

/// Provider whose API a simulator implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SimulatedProvider {
    /// OpenAI: chat completions, responses (also over WebSocket), embeddings, images, videos and models.
    OpenAi,
    /// Anthropic: messages, token counting and models.
    Anthropic,
    /// Amazon Bedrock: Converse, InvokeModel (Claude, embeddings, reranking), token counting, reranking and models.
    Bedrock,
    /// Claude in Microsoft Foundry: messages and token counting.
    ClaudeFoundry,
    /// Claude on Vertex AI: messages.
    ClaudeVertex,
    /// Azure OpenAI: the APIs of OpenAI, below `/openai/v1` or with the deployment in the path.
    AzureOpenAi,
    /// Gemini on Vertex AI: content generation, token counting and embeddings, with a token, or in express mode a key.
    GeminiVertex,
    /// Gemini API: content generation (whole and streamed), token counting, embeddings, images, videos and models.
    Google,
    /// Volcengine Ark: images and videos.
    Ark,
    /// Cohere: embeddings and reranking.
    Cohere,
    /// DashScope: images, videos, embeddings and reranking, with its native API and its compatibility APIs.
    DashScope,
    /// Jina: embeddings and reranking.
    Jina,
    /// Text Embeddings Inference (TEI): embeddings and reranking.
    Tei,
    /// vLLM: reranking.
    Vllm,
    /// Voyage: embeddings and reranking.
    Voyage,
}

impl fmt::Display for SimulatedProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SimulatedProvider::OpenAi => "OpenAI",
            SimulatedProvider::Anthropic => "Anthropic",
            SimulatedProvider::Bedrock => "Bedrock",
            SimulatedProvider::ClaudeFoundry => "Foundry",
            SimulatedProvider::ClaudeVertex => "Vertex AI",
            SimulatedProvider::AzureOpenAi => "Azure OpenAI",
            SimulatedProvider::GeminiVertex => "Gemini on Vertex AI",
            SimulatedProvider::Google => "Google",
            SimulatedProvider::Ark => "Ark",
            SimulatedProvider::Cohere => "Cohere",
            SimulatedProvider::DashScope => "DashScope",
            SimulatedProvider::Jina => "Jina",
            SimulatedProvider::Tei => "TEI",
            SimulatedProvider::Vllm => "vLLM",
            SimulatedProvider::Voyage => "Voyage",
        })
    }
}

/// Access key of AWS, with which requests to a simulated Bedrock are signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsAccessKey {
    /// Access key id.
    pub id: String,
    /// Secret access key.
    pub secret: String,
    /// Session token that requests must have. `None` for a key without session.
    pub session_token: Option<String>,
    /// Region that requests must be signed for. `None` for any.
    pub region: Option<String>,
    /// The session has expired: requests get `ExpiredTokenException`.
    pub expired: bool,
}

impl AwsAccessKey {
    /// Returns a key without session, for any region.
    pub fn new(id: impl Into<String>, secret: impl Into<String>) -> Self {
        AwsAccessKey {
            id: id.into(),
            secret: secret.into(),
            session_token: None,
            region: None,
            expired: false,
        }
    }
}

/// Options of a simulator: address, credential and pacing.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address to listen on. Port 0 selects any free port.
    pub addr: SocketAddr,
    /// API key that requests must have in the provider's header; other requests get its authentication error. `None`
    /// accepts any key, and none.
    pub credential: Option<String>,
    /// Bedrock: access keys that requests may be signed with. Without any, and without `credential`, every signature is
    /// accepted.
    pub access_keys: Vec<AwsAccessKey>,
    /// Pause between the head and the first token of a stream. Zero for no pause.
    pub first_token: Duration,
    /// Pause before each further token of a stream. Zero for no pause.
    pub per_token: Duration,
    /// Lifetime of a WebSocket. OpenAI closes one after 60 minutes.
    pub websocket_lifetime: Duration,
}

impl Default for Options {
    /// Returns options for loopback, any port, no credential and no pauses.
    fn default() -> Self {
        Options {
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            credential: None,
            access_keys: Vec::new(),
            first_token: Duration::ZERO,
            per_token: Duration::ZERO,
            websocket_lifetime: Duration::from_secs(3_600),
        }
    }
}

/// Reason why a simulator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SimulatorError {
    /// The address is in use, not local, or not permitted.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// Address of the attempt.
        addr: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Record of the last request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Method, in upper case.
    pub method: String,
    /// Path with the query, as sent.
    pub path: String,
    /// Header names in lower case, and values as text (invalid UTF-8 is replaced), in the order of arrival. Values of a
    /// repeated name are adjacent.
    pub headers: Vec<(String, String)>,
    /// Body without transfer coding. Empty if it was larger than 100 MB.
    pub body: Bytes,
    /// HTTP version: HTTP/1.1 or HTTP/2.0.
    pub version: ::http::Version,
}

/// Simulated provider on its own socket. It runs on the Tokio runtime that started it, serves HTTP/1.1 and HTTP/2 with
/// prior knowledge on one port, and stops when it is dropped.
#[derive(Debug)]
pub struct Simulator {
    server: server::Server,
    provider: SimulatedProvider,
}

impl Simulator {
    /// Starts to listen. The simulator accepts requests as soon as this returns.
    ///
    /// # Errors
    /// Returns [`SimulatorError::Listen`] if the address cannot be bound.
    pub async fn start(provider: SimulatedProvider, options: Options) -> Result<Simulator, SimulatorError> {
        let addr = options.addr;
        let server = server::Server::start(provider, options)
            .await
            .map_err(|source| SimulatorError::Listen { addr, source })?;
        Ok(Simulator { server, provider })
    }

    /// Returns the listening address.
    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// Returns the provider's base URL for clients: `http://127.0.0.1:PORT/v1`, for Google `/v1beta`. Google's methods
    /// are also served below `/v1`, as by the provider.
    pub fn base_url(&self) -> String {
        let version = match self.provider {
            SimulatedProvider::OpenAi
            | SimulatedProvider::Anthropic
            | SimulatedProvider::Jina
            | SimulatedProvider::Vllm
            | SimulatedProvider::Voyage => "v1",
            SimulatedProvider::ClaudeFoundry => "anthropic/v1",
            SimulatedProvider::AzureOpenAi => "openai/v1",
            SimulatedProvider::ClaudeVertex | SimulatedProvider::GeminiVertex => {
                "v1/projects/simulated/locations/global"
            }
            SimulatedProvider::Google => "v1beta",
            SimulatedProvider::Ark => "api/v3",
            SimulatedProvider::Cohere => "v2",
            SimulatedProvider::DashScope => "compatible-mode/v1",
            SimulatedProvider::Bedrock | SimulatedProvider::Tei => return format!("http://{}", self.addr()),
        };
        format!("http://{}/{version}", self.addr())
    }

    /// Bedrock: replaces the access keys, as a rotation of credentials does. Without effect for other providers.
    pub fn set_access_keys(&self, keys: Vec<AwsAccessKey>) {
        if let Some(site) = self.server.bedrock() {
            site.set_access_keys(keys);
        }
    }

    /// Bedrock: sets by how many seconds the provider's clock is ahead of that of this machine. Its responses have that
    /// time in `date`. Without effect for other providers.
    pub fn set_clock_offset(&self, seconds: i64) {
        if let Some(site) = self.server.bedrock() {
            site.set_clock_offset(seconds);
        }
    }

    /// Returns the number of requests that were read completely and answered, with any status. A request counts before
    /// the first byte of its response is sent.
    pub fn requests(&self) -> u64 {
        self.server.requests()
    }

    /// Returns the number of requests whose client disconnected before the response was complete, or before it started.
    /// Responses that the simulator broke off itself do not count.
    pub fn aborted(&self) -> u64 {
        self.server.aborted()
    }

    /// Returns the last request that was read completely.
    pub fn last_request(&self) -> Option<Recorded> {
        self.server.last_request()
    }

    /// Prescribes responses, in place of those of an earlier call. Each request for a conversation receives the next one,
    /// whole or streamed; when none is left, responses are generated again. With `tool`, only requests that offer this
    /// tool count: a client's side requests, such as for a title, offer none.
    pub fn prescribe(&self, tool: Option<&str>, responses: Vec<PrescribedResponse>) {
        self.server.scenario().set(tool, responses);
    }

    /// Returns the number of prescribed responses that no request has received.
    pub fn prescribed_left(&self) -> usize {
        self.server.scenario().left()
    }

    /// Returns the bodies of the requests that received a prescribed response, in their order.
    pub fn prescribed_requests(&self) -> Vec<Bytes> {
        self.server.scenario().requests()
    }
}
