//! Endpoints by URL path: parsing of request paths, and of query strings.
//!
//! Clients configure a base address to which their SDK appends a resource path. `{base}/v1`, `{base}/v1/` and
//! `{base}/v1/chat/completions` all lead to `/v1/chat/completions`, `/v1/v1/chat/completions` or
//! `/v1//chat/completions`, and all of them are accepted. A base address may also be the full path of an endpoint, or
//! end in a query (see [`crate::wire::query_path`]): `/v1/chat/completions/chat/completions`,
//! `/v1?api-version=2025-04-01/responses`.

pub use super::query::{
    percent_decode, push_path_label, push_path_segment, query_value, query_values, query_without,
};
use super::query_path::resource_in_query;
use super::{Api, Format, tasks, video};

/// Method of a model: `/models/{model}:{action}`, or the one of the responses API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `:generateContent`
    Generate,
    /// `:streamGenerateContent`: server-sent events with `alt=sse`, otherwise one JSON array in pieces.
    Stream {
        /// Whether the query contains `alt=sse`.
        sse: bool,
    },
    /// `:countTokens`
    CountTokens,
    /// `:embedContent`
    Embed,
    /// `:batchEmbedContents`
    BatchEmbed,
    /// `:predict`: image generation.
    Predict,
    /// `/responses/compact`: the model is in the body.
    Compact,
}

/// An endpoint of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/messages/count_tokens`
    CountTokens,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/responses/compact`: makes a conversation shorter.
    Compact,
    /// `POST /v1/responses/input_tokens`
    InputTokens,
    /// `GET` and `DELETE /v1/responses/{id}`: a stored response.
    Response {
        /// Response id, percent-decoded.
        id: String,
    },
    /// `GET /v1/responses/{id}/input_items`: the input of a stored response.
    ResponseItems {
        /// Response id, percent-decoded.
        id: String,
    },
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/images/generations`
    Images,
    /// `POST /v1/images/edits`: image generation with input images, as JSON or as a form.
    ImageEdits,
    /// `POST /v1/rerank`, and `/v2/rerank`, which Cohere's SDK uses.
    Rerank,
    /// `POST /v1beta/models/{model}:{action}`, and the same under `/v1`.
    Native {
        /// Model, percent-decoded and without `models/`.
        model: String,
        /// Method to call on the model.
        action: Action,
    },
    /// `POST /model/{model}/converse` and `/model/{model}/converse-stream`.
    Converse {
        /// Model, percent-decoded.
        model: String,
        /// Whether the response is a stream.
        stream: bool,
    },
    /// `POST /model/{model}/invoke` and `/model/{model}/invoke-with-response-stream`: a messages request in the form of
    /// Amazon Bedrock.
    Invoke {
        /// Model, percent-decoded.
        model: String,
        /// Whether the response is a stream.
        stream: bool,
    },
    /// Video generation and the state of video tasks.
    Video(video::VideoEndpoint),
    /// Endpoint of the task group.
    Group(tasks::TaskEndpoint),
    /// `GET /v1/models`
    Models,
    /// `GET /v1/models/{id}`
    Model {
        /// Model, percent-decoded and without `models/`.
        id: String,
    },
    /// `/` and `/api/hello`: some clients use them as a reachability check.
    Root,
}

impl Endpoint {
    /// Returns the methods of the endpoint, in the form of the `allow` header.
    pub fn allow(&self) -> &'static str {
        match self {
            Endpoint::Models | Endpoint::Model { .. } | Endpoint::ResponseItems { .. } | Endpoint::Root => {
                "GET, HEAD"
            }
            Endpoint::Response { .. } => "GET, HEAD, DELETE",
            Endpoint::Video(place) => place.allow(),
            Endpoint::Group(place) => place.allow(),
            _ => "POST",
        }
    }

    /// Returns whether the path names no endpoint although it parsed: an unknown path of the task group, or an unknown
    /// method of a model (`POST /v1beta/models/{model}:{method}`). The response is a 404 in the error format of its
    /// neighbors.
    pub fn is_unknown(&self, method: &str) -> bool {
        match self {
            Endpoint::Group(tasks::TaskEndpoint::Unknown) => true,
            Endpoint::Model { id } => method == "POST" && id.contains(':'),
            _ => false,
        }
    }

    /// Returns whether the endpoint accepts this method.
    pub fn allows(&self, method: &str) -> bool {
        self.allow().split(", ").any(|allowed| allowed == method)
    }

    /// Returns the format of the endpoint's errors, if it differs from that of its responses. `None` otherwise.
    pub fn error_format(&self) -> Option<Format> {
        // Errors of Amazon Bedrock have one form, whatever the format of the model.
        matches!(self, Endpoint::Invoke { .. }).then_some(Format::Converse)
    }

    /// Returns the member with which a request of this endpoint limits the tokens of its response. `None` if it has none.
    pub fn output_limit_member(&self) -> Option<&'static str> {
        match self {
            Endpoint::Chat => Some("max_completion_tokens"),
            Endpoint::Messages | Endpoint::Invoke { .. } => Some("max_tokens"),
            Endpoint::Responses => Some("max_output_tokens"),
            Endpoint::Converse { .. } => Some("inferenceConfig.maxTokens"),
            Endpoint::Native { action: Action::Generate | Action::Stream { .. }, .. } => {
                Some("generationConfig.maxOutputTokens")
            }
            _ => None,
        }
    }

    /// Returns the upstream API that serves the endpoint in its own format. `None` for endpoints that the gateway
    /// answers itself.
    pub fn api(&self) -> Option<Api> {
        match self {
            Endpoint::Chat => Some(Api::Chat),
            Endpoint::Messages | Endpoint::Invoke { .. } => Some(Api::Messages),
            Endpoint::CountTokens => Some(Api::CountTokens),
            Endpoint::Responses | Endpoint::Compact | Endpoint::InputTokens => Some(Api::Responses),
            Endpoint::Embeddings => Some(Api::Embeddings),
            Endpoint::Rerank => Some(Api::Rerank),
            Endpoint::Images | Endpoint::ImageEdits | Endpoint::Native { action: Action::Predict, .. } => {
                Some(Api::Images)
            }
            Endpoint::Native { action: Action::Embed | Action::BatchEmbed, .. } => Some(Api::EmbedContent),
            Endpoint::Native { .. } => Some(Api::Generate),
            Endpoint::Converse { .. } => Some(Api::Converse),
            Endpoint::Video(_) => Some(Api::Videos),
            Endpoint::Group(_) => Some(Api::Tasks),
            Endpoint::Response { .. } | Endpoint::ResponseItems { .. } => None,
            Endpoint::Models | Endpoint::Model { .. } | Endpoint::Root => None,
        }
    }

    /// Returns whether the body may be a multipart form.
    pub fn accepts_forms(&self) -> bool {
        matches!(
            self,
            Endpoint::ImageEdits
                | Endpoint::Video(video::VideoEndpoint::Create | video::VideoEndpoint::Remix(_))
        )
    }

    /// Returns the model that the path names. `None` if the body names it.
    pub fn model(&self) -> Option<&str> {
        match self {
            Endpoint::Native { model, .. }
            | Endpoint::Converse { model, .. }
            | Endpoint::Invoke { model, .. } => Some(model),
            _ => None,
        }
    }

    /// Returns the method that the path calls on a model. `None` for other endpoints.
    pub fn action(&self) -> Option<Action> {
        match self {
            Endpoint::Native { action, .. } => Some(*action),
            Endpoint::Converse { stream: true, .. } => Some(Action::Stream { sse: true }),
            Endpoint::Converse { stream: false, .. } => Some(Action::Generate),
            Endpoint::Compact => Some(Action::Compact),
            _ => None,
        }
    }

    /// Returns the format of the request whose tokens are to be counted. `None` unless the endpoint only counts tokens.
    pub fn counts(&self) -> Option<Format> {
        match self {
            Endpoint::CountTokens => Some(Format::Messages),
            Endpoint::InputTokens => Some(Format::Responses),
            Endpoint::Native { action: Action::CountTokens, .. } => Some(Format::Generate),
            _ => None,
        }
    }

    /// Returns the name in metrics and logs: one of a fixed, small set.
    pub fn label(&self) -> &'static str {
        match self {
            Endpoint::Chat => "chat",
            Endpoint::Messages => "messages",
            Endpoint::CountTokens | Endpoint::InputTokens => "count_tokens",
            Endpoint::Responses | Endpoint::Compact => "responses",
            Endpoint::Response { .. } | Endpoint::ResponseItems { .. } => "stored_responses",
            Endpoint::Embeddings => "embeddings",
            Endpoint::Rerank => "rerank",
            Endpoint::Images | Endpoint::ImageEdits | Endpoint::Native { action: Action::Predict, .. } => {
                "images"
            }
            Endpoint::Native { action: Action::Embed | Action::BatchEmbed, .. } => "embed_content",
            Endpoint::Native { action: Action::CountTokens, .. } => "count_tokens",
            Endpoint::Native { .. } => "generate",
            Endpoint::Video(_) => "videos",
            Endpoint::Converse { .. } => "converse",
            Endpoint::Invoke { .. } => "invoke",
            Endpoint::Group(_) => "tasks",
            Endpoint::Models | Endpoint::Model { .. } => "models",
            Endpoint::Root => "root",
        }
    }
}

/// Result of parsing a request path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedPath {
    /// Endpoint. `None` for an unknown path.
    pub endpoint: Option<Endpoint>,
    /// Whether the path lies under `/v1beta`, which only clients of the generate format use.
    pub beta: bool,
    /// Whether the path is one of Amazon Bedrock's runtime, so that also an unknown operation has errors of AWS.
    pub aws: bool,
}

impl ParsedPath {
    /// Returns the client format that the path alone determines. `None` if it depends on the headers.
    pub fn format(&self) -> Option<Format> {
        if self.beta {
            return Some(Format::Generate);
        }
        match &self.endpoint {
            Some(Endpoint::Response { .. } | Endpoint::ResponseItems { .. }) => Some(Format::Responses),
            Some(Endpoint::Native { .. }) => Some(Format::Generate),
            None if self.aws => Some(Format::Converse),
            endpoint => endpoint.as_ref().and_then(Endpoint::api).map(Api::error_format),
        }
    }
}

/// First segments of the resource paths that SDKs append to their base address.
pub(super) const RESOURCES: [&str; 14] = [
    "chat",
    "messages",
    "responses",
    "embeddings",
    "rerank",
    "v2",
    "images",
    "models",
    "tunedModels",
    "publishers",
    "projects",
    "video",
    "videos",
    "files",
];

/// First segments of the paths of Amazon Bedrock's runtime.
const AWS: [&str; 4] = ["model", "async-invoke", "guardrail", "guardrail-checks"];

/// Endpoints whose full path is accepted as a base address. A path must precede its own prefixes.
const BASES: [&[&str]; 11] = [
    &["chat", "completions"],
    &["messages", "count_tokens"],
    &["messages"],
    &["responses"],
    &["embeddings"],
    &["rerank"],
    &["v2", "rerank"],
    &["images", "generations"],
    &["images", "edits"],
    &["video", "generations"],
    &["videos"],
];

/// Segments of a path without its leading version segments.
struct Segments<'p> {
    segments: Vec<&'p str>,
    /// Whether one of the versions belongs to the generate format.
    beta: bool,
}

impl<'p> Segments<'p> {
    fn of(path: &'p str) -> Self {
        let mut segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let (versions, beta) = leading_versions(&segments);
        segments.drain(..versions);
        Segments { segments, beta }
    }

    /// Removes a base address that is the full path of an endpoint.
    fn without_base(mut self) -> Self {
        let mut begin = 0;
        while let Some(base) = self.segments.get(begin..).and_then(base_length) {
            let after = begin + base;
            let rest = self.segments.get(after..).unwrap_or_default();
            let (versions, beta) = leading_versions(rest);
            // Without a resource path behind it, this is the endpoint itself and not a base address.
            if !rest.get(versions).is_some_and(|first| RESOURCES.contains(first)) {
                break;
            }
            begin = after + versions;
            self.beta |= beta;
        }
        self.segments.drain(..begin);
        self
    }

    fn is_base(&self) -> bool {
        self.segments.is_empty() || base_length(&self.segments) == Some(self.segments.len())
    }
}

/// Returns the number of leading segments that name a version, and whether one of them belongs to the generate format.
/// There may be several: a base address may end in a version, and an SDK appends its own. `AzureOpenAI` of OpenAI's SDKs
/// has `openai` and `deployments/{model}` there, with the model in the body as well.
fn leading_versions(segments: &[&str]) -> (usize, bool) {
    let (mut count, mut beta) = (0, false);
    loop {
        match segments.get(count..).unwrap_or_default() {
            ["v1" | "openai", ..] => count += 1,
            ["v1beta" | "v1beta1", ..] => (count, beta) = (count + 1, true),
            ["deployments", _, resource, ..] if RESOURCES.contains(resource) => count += 2,
            _ => return (count, beta),
        }
    }
}

/// Returns the number of segments of a leading base address. `None` if the path does not begin with a full endpoint
/// path.
fn base_length(segments: &[&str]) -> Option<usize> {
    if let Some(base) = BASES.iter().find(|base| segments.starts_with(base)) {
        return Some(base.len());
    }
    let named = segments.first() == Some(&"models");
    let method =
        |segment: &&str| segment.rsplit_once(':').is_some_and(|(_, name)| action(name, None).is_some());
    segments.iter().position(method).filter(|_| named).map(|at| at + 1)
}

/// Parses a request path (without the query) and the query.
pub fn parse(path: &str, query: Option<&str>) -> ParsedPath {
    let mut whole = Segments::of(path).without_base();
    let mut query = query;
    // A query with a slash is common (`after_id=openai/chat`). It holds a path only if the path so far is a base address.
    let inside = query.filter(|_| whole.is_base()).and_then(resource_in_query);
    if let Some((resource, own)) = &inside {
        let beta = whole.beta;
        whole = Segments::of(resource).without_base();
        whole.beta |= beta;
        query = *own;
    }
    let Segments { segments: rest, beta } = whole;
    let endpoint = match rest.as_slice() {
        // Claude Code sends `HEAD /api/hello` when it starts.
        [] | ["api", "hello"] => Some(Endpoint::Root),
        ["chat", "completions"] => Some(Endpoint::Chat),
        ["messages"] => Some(Endpoint::Messages),
        ["messages", "count_tokens"] => Some(Endpoint::CountTokens),
        ["responses"] => Some(Endpoint::Responses),
        ["responses", "compact"] => Some(Endpoint::Compact),
        ["responses", "input_tokens"] => Some(Endpoint::InputTokens),
        // Names of other methods, not response ids.
        ["responses", "compact" | "input_tokens", ..] => None,
        ["responses", id] => Some(Endpoint::Response { id: percent_decode(id).into_owned() }),
        ["responses", id, "input_items"] => {
            Some(Endpoint::ResponseItems { id: percent_decode(id).into_owned() })
        }
        // The model is one segment: SDKs encode the slashes of a resource name.
        ["model", model, operation @ ("converse" | "converse-stream")] => Some(Endpoint::Converse {
            model: percent_decode(model).into_owned(),
            stream: *operation == "converse-stream",
        }),
        ["model", model, operation @ ("invoke" | "invoke-with-response-stream")] => Some(Endpoint::Invoke {
            model: percent_decode(model).into_owned(),
            stream: *operation == "invoke-with-response-stream",
        }),
        ["embeddings"] => Some(Endpoint::Embeddings),
        ["rerank"] | ["v2", "rerank"] => Some(Endpoint::Rerank),
        ["images", "generations"] => Some(Endpoint::Images),
        ["images", "edits"] => Some(Endpoint::ImageEdits),
        ["models"] => Some(Endpoint::Models),
        ["video" | "videos" | "files", ..] | ["models", .., "operations", _] => {
            video::place(&rest).map(Endpoint::Video)
        }
        ["prod-api", "svc", "v4", "api", place @ ..] => Some(Endpoint::Group(tasks::place(place))),
        ["models", model @ ..] => parse_model(model, query),
        // Paths of Google's SDK for Vertex AI, with an API key or with a project.
        ["publishers", "google", "models", model @ ..]
        | ["projects", _, "locations", _, "publishers", "google", "models", model @ ..] => {
            parse_model(model, query)
        }
        ["tunedModels", ..] => parse_model(&rest, query),
        _ => None,
    };
    ParsedPath { endpoint, beta, aws: rest.first().is_some_and(|first| AWS.contains(first)) }
}

/// Parses `{model}:{action}` or `{model}`. A model id may contain slashes and, before its last colon, colons. `None` if
/// the model is empty.
fn parse_model(segments: &[&str], query: Option<&str>) -> Option<Endpoint> {
    let whole = percent_decode(&segments.join("/")).into_owned();
    let bare = |model: &str| {
        let model = model.strip_prefix("models/").unwrap_or(model);
        (!model.is_empty()).then(|| model.to_owned())
    };
    // The last colon separates the action, because model ids contain colons too (`model:free`).
    if let Some((model, action)) = whole.rsplit_once(':') {
        if action == "predictLongRunning" {
            return Some(Endpoint::Video(video::VideoEndpoint::Predict { model: bare(model)? }));
        }
        if action == "fetchPredictOperation" {
            return Some(Endpoint::Video(video::VideoEndpoint::Fetch));
        }
        if let Some(action) = self::action(action, query) {
            return Some(Endpoint::Native { model: bare(model)?, action });
        }
    }
    Some(Endpoint::Model { id: bare(&whole)? })
}

/// Returns the action of a method name. `None` for an unknown method.
fn action(name: &str, query: Option<&str>) -> Option<Action> {
    Some(match name {
        "generateContent" => Action::Generate,
        "streamGenerateContent" => {
            Action::Stream { sse: query_value(query, "alt").as_deref() == Some("sse") }
        }
        "countTokens" => Action::CountTokens,
        "embedContent" => Action::Embed,
        "batchEmbedContents" => Action::BatchEmbed,
        "predict" => Action::Predict,
        _ => return None,
    })
}
