//! Simulated model providers on loopback: each speaks its API for real, and the text it answers is made up.
//!
//! Here live: the listener and what it counts ([`Simulator`]), the plan of an answer that no provider's name appears in
//! (`conversation`, `script`, `text`, `schema`, `embedding`), the staging of failures (`directive`, `stream`, `body`)
//! and one folder per provider (`openai`, `anthropic`, `google`), or for several (`search`, `image`, `video`), that
//! reads that provider's requests and writes its answers, headers, streams and errors. Here must not live: anything
//! that the gateway itself needs to answer a request. Nothing in this folder is used by the gateway to serve, and
//! nothing of the gateway is used here, so that the two cannot agree on the same mistake.
//!
//! # What is answered
//! Any model name is accepted, except names that start with `missing-`: those get the provider's own 404. The answer
//! repeats the last user text, names the model, and says which pictures, documents and tool results arrived. It is
//! the same for the same request: no clock and no chance is in the text, and identifiers are made from a counter
//! and a hash of the request.
//!
//! * **Tools** are called when `tool_choice` forces it or the user's text mentions their name, unless the last turn
//!   is a tool result. The arguments are made from the tool's JSON schema.
//! * **Structured output** is made from its JSON schema.
//! * **Thinking** comes in the provider's own form, with signatures that are verified when they come back.
//! * **Limits** (maximum of tokens, stop sequences) are kept. A token is four bytes.
//!
//! # Directives
//! The last user text (of embeddings: the last input) may contain directives in double square brackets, several of
//! them separated by spaces or each in brackets of its own. They are taken out of the text before it is repeated.
//! Brackets that hold anything else are left in the text.
//!
//! | Directive | Effect |
//! |---|---|
//! | `[[status 429]]` | the provider's own error for this HTTP status (200 to 599); 429 and 503 say `retry-after: 7` |
//! | `[[retry-after 3]]` | the answer, whatever it is, carries `retry-after: 3` |
//! | `[[delay 1500]]` | milliseconds before the head of the answer |
//! | `[[first 800]]` | streams: milliseconds between the head and the first token |
//! | `[[pace 50]]` | streams: milliseconds per token |
//! | `[[words 300]]` | the text of the answer has so many words |
//! | `[[big 5000000]]` | the text of the answer has so many bytes, in frames of up to 100 kB, no token limit applies; of images: each has so many bytes |
//! | `[[cached 1000]]` | so many of the prompt's tokens are reported as read from the provider's cache |
//! | `[[error 3]]` | an error in the stream, in the provider's own form, after 3 deltas (0: it is the first frame) |
//! | `[[cut 3]]` | the connection is aborted after 3 deltas |
//! | `[[end 3]]` | the body ends cleanly after 3 deltas, but the answer is not finished |
//! | `[[stall 3]]` | nothing more comes after 3 deltas; the connection stays open |
//! | `[[hang]]` | there is never an answer |
//! | `[[refuse]]` | the model refuses, in the provider's own form |
//! | `[[html]]` | 200 with an HTML page |
//! | `[[empty]]` | 200 with an empty body |
//! | `[[truncate]]` | half of the JSON answer under a content length for all of it; a stream breaks off in a frame |
//! | `[[garbage]]` | a JSON answer, or the third frame of a stream, that is not JSON |
//!
//! Videos have directives of their own: `video`.
//!
//! A delta is a frame with a piece of text, of thinking or of tool arguments. When there are fewer deltas than the
//! directive asks for, it takes effect after the last one. With an answer that is not a stream, `error` is the
//! provider's overload error as a status, and `cut`, `end` and `stall` take effect in the middle of the body.

mod anthropic;
mod body;
mod clock;
mod conversation;
mod directive;
mod embedding;
mod google;
mod http;
mod ids;
mod image;
mod openai;
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

/// Which provider's API a simulator speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SimulatedProvider {
    /// Chat completions, responses, embeddings, images and models of the OpenAI API.
    OpenAi,
    /// Messages, token counting and models of the Anthropic API.
    Anthropic,
    /// Content generation (whole and streamed), token counting, embeddings, images and models of the Gemini API.
    Google,
    /// Images and videos of Volcengine's Ark.
    Ark,
    /// Vectors and orders of the Cohere API.
    Cohere,
    /// Images, vectors and orders of DashScope, at its own address and at those for other providers' clients.
    DashScope,
    /// Vectors and orders of the Jina API.
    Jina,
    /// Vectors and orders of a server of Text embeddings inference.
    Tei,
    /// Orders of a server of vLLM.
    Vllm,
    /// Vectors and orders of the Voyage API.
    Voyage,
}

impl fmt::Display for SimulatedProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SimulatedProvider::OpenAi => "OpenAI",
            SimulatedProvider::Anthropic => "Anthropic",
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

/// How a simulator listens and how fast it answers.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; port 0 is any free port.
    pub addr: SocketAddr,
    /// The key that requests must carry in the provider's own way, or else they get the provider's own error.
    /// `None`: any key will do, also none.
    pub credential: Option<String>,
    /// Pause of a stream between its head and its first token. Zero: none.
    pub first_token: Duration,
    /// Pause of a stream before each further token. Zero: as fast as possible.
    pub per_token: Duration,
}

impl Default for Options {
    /// Loopback, any port, no credential, no pauses.
    fn default() -> Self {
        Options {
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            credential: None,
            first_token: Duration::ZERO,
            per_token: Duration::ZERO,
        }
    }
}

/// Why a simulator could not start.
#[derive(Debug, thiserror::Error)]
pub enum SimulatorError {
    /// The address is taken, not local, or not permitted.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// The address that was asked for.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// What the last request looked like when it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The method, in capitals.
    pub method: String,
    /// The path with the query, as it was sent.
    pub path: String,
    /// Names in lower case, values as text (bytes that are not UTF-8 are replaced), in the order of arrival;
    /// values of a name that occurs several times stand together.
    pub headers: Vec<(String, String)>,
    /// The body, unchunked; empty when it was larger than 100 MB.
    pub body: Bytes,
    /// The HTTP version: HTTP/1.1 or HTTP/2.0.
    pub version: ::http::Version,
}

/// A simulated provider on a socket of its own. It runs on the tokio runtime that it was started on, answers HTTP/1.1
/// and HTTP/2 with prior knowledge on the same port, and stops when it is dropped.
#[derive(Debug)]
pub struct Simulator {
    server: server::Server,
    provider: SimulatedProvider,
}

impl Simulator {
    /// Starts to listen; requests can be sent as soon as this returns.
    ///
    /// # Errors
    /// [`SimulatorError::Listen`] when the address cannot be bound.
    pub async fn start(provider: SimulatedProvider, options: Options) -> Result<Simulator, SimulatorError> {
        let addr = options.addr;
        let server = server::Server::start(provider, options)
            .await
            .map_err(|source| SimulatorError::Listen { addr, source })?;
        Ok(Simulator { server, provider })
    }

    /// The address that it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// What a client takes as the provider's base URL: `http://127.0.0.1:PORT/v1`, for Google `/v1beta`. Google's
    /// methods are also served under `/v1`, as the provider does.
    pub fn base_url(&self) -> String {
        let version = match self.provider {
            SimulatedProvider::OpenAi
            | SimulatedProvider::Anthropic
            | SimulatedProvider::Jina
            | SimulatedProvider::Vllm
            | SimulatedProvider::Voyage => "v1",
            SimulatedProvider::Google => "v1beta",
            SimulatedProvider::Ark => "api/v3",
            SimulatedProvider::Cohere => "v2",
            SimulatedProvider::DashScope => "compatible-mode/v1",
            SimulatedProvider::Tei => return format!("http://{}", self.addr()),
        };
        format!("http://{}/{version}", self.addr())
    }

    /// How many requests have been read to their end and answered, whatever the answer was. Counted before the
    /// first byte of the answer leaves.
    pub fn requests(&self) -> u64 {
        self.server.requests()
    }

    /// How many requests lost their client before the answer was complete, also before its first byte. Answers that
    /// the simulator broke off itself are not counted.
    pub fn aborted(&self) -> u64 {
        self.server.aborted()
    }

    /// The last request that was read to its end.
    pub fn last_request(&self) -> Option<Recorded> {
        self.server.last_request()
    }
}
