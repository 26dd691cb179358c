//! Which endpoint a client's path means.
//!
//! Clients are given a base address and append to it what their SDK has: `{base}/v1`, `{base}/v1/` and
//! `{base}/v1/chat/completions` all lead to `/v1/chat/completions`, `/v1/v1/chat/completions` or
//! `/v1//chat/completions` (specification, sections 1 and 9). A base address may also be the full path of an endpoint,
//! or end in a query: `/v1/chat/completions/chat/completions`, `/v1?api-version=2025-04-01/responses`.

use std::borrow::Cow;

use super::{Api, Format, tasks, video};

/// What is done with a model named in a path (`/models/{model}:{action}`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `:generateContent`
    Generate,
    /// `:streamGenerateContent`; as server-sent events with `alt=sse`, otherwise as one JSON array in pieces.
    Stream {
        /// `alt=sse` was asked for.
        sse: bool,
    },
    /// `:countTokens`
    CountTokens,
    /// `:embedContent`
    Embed,
    /// `:batchEmbedContents`
    BatchEmbed,
    /// `:predict`: images
    Predict,
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
    /// `POST /v1/responses/input_tokens`
    InputTokens,
    /// `GET` and `DELETE /v1/responses/{id}`: a response that was kept.
    Response {
        /// The response's id, decoded.
        id: String,
    },
    /// `GET /v1/responses/{id}/input_items`: the conversation that it answered.
    ResponseItems {
        /// The response's id, decoded.
        id: String,
    },
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/images/generations`
    Images,
    /// `POST /v1/images/edits`: the same, with images to begin with, also as a form.
    ImageEdits,
    /// `POST /v1/rerank`; under `/v2` too, where Cohere's SDK looks for it.
    Rerank,
    /// `POST /v1beta/models/{model}:{action}`, under `/v1` too.
    Native {
        /// The model, decoded and without `models/`.
        model: String,
        /// What to do with it.
        action: Action,
    },
    /// Videos, and how far they are.
    Video(video::Place),
    /// The task group.
    Group(tasks::Place),
    /// `GET /v1/models`
    Models,
    /// `GET /v1/models/{id}`
    Model {
        /// The model, decoded and without `models/`.
        id: String,
    },
    /// `/`: some clients look whether anybody is there.
    Root,
}

impl Endpoint {
    /// The methods that it answers, as the `allow` header lists them.
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

    /// Path without an endpoint, answered 404 in the shape of its neighbours: an unknown path of the task group, or an
    /// unknown method of a model (`POST /v1beta/models/{model}:{method}`).
    pub fn is_unknown(&self, method: &str) -> bool {
        match self {
            Endpoint::Group(tasks::Place::Unknown) => true,
            Endpoint::Model { id } => method == "POST" && id.contains(':'),
            _ => false,
        }
    }

    /// Whether it answers this method.
    pub fn allows(&self, method: &str) -> bool {
        self.allow().split(", ").any(|allowed| allowed == method)
    }

    /// The upstream API that serves it in its own format.
    pub fn api(&self) -> Option<Api> {
        match self {
            Endpoint::Chat => Some(Api::Chat),
            Endpoint::Messages => Some(Api::Messages),
            Endpoint::CountTokens => Some(Api::CountTokens),
            Endpoint::Responses | Endpoint::InputTokens => Some(Api::Responses),
            Endpoint::Embeddings => Some(Api::Embeddings),
            Endpoint::Rerank => Some(Api::Rerank),
            Endpoint::Images | Endpoint::ImageEdits | Endpoint::Native { action: Action::Predict, .. } => {
                Some(Api::Images)
            }
            Endpoint::Native { action: Action::Embed | Action::BatchEmbed, .. } => Some(Api::EmbedContent),
            Endpoint::Native { .. } => Some(Api::Generate),
            Endpoint::Video(_) => Some(Api::Videos),
            Endpoint::Group(_) => Some(Api::Tasks),
            Endpoint::Response { .. } | Endpoint::ResponseItems { .. } => None,
            Endpoint::Models | Endpoint::Model { .. } | Endpoint::Root => None,
        }
    }

    /// Whether its body may be a form.
    pub fn takes_forms(&self) -> bool {
        matches!(self, Endpoint::ImageEdits | Endpoint::Video(video::Place::Create | video::Place::Remix(_)))
    }

    /// The model that the path names.
    pub fn model(&self) -> Option<&str> {
        match self {
            Endpoint::Native { model, .. } => Some(model),
            _ => None,
        }
    }

    /// What is done with that model.
    pub fn action(&self) -> Option<Action> {
        match self {
            Endpoint::Native { action, .. } => Some(*action),
            _ => None,
        }
    }

    /// The format of the request whose tokens are to be counted, for endpoints that do nothing else.
    pub fn counts(&self) -> Option<Format> {
        match self {
            Endpoint::CountTokens => Some(Format::Messages),
            Endpoint::InputTokens => Some(Format::Responses),
            Endpoint::Native { action: Action::CountTokens, .. } => Some(Format::Generate),
            _ => None,
        }
    }

    /// The name in metrics and logs: one of a fixed, small set.
    pub fn label(&self) -> &'static str {
        match self {
            Endpoint::Chat => "chat",
            Endpoint::Messages => "messages",
            Endpoint::CountTokens | Endpoint::InputTokens => "count_tokens",
            Endpoint::Responses => "responses",
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
            Endpoint::Group(_) => "tasks",
            Endpoint::Models | Endpoint::Model { .. } => "models",
            Endpoint::Root => "root",
        }
    }
}

/// A path that was understood as far as possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The endpoint; nothing for an unknown path.
    pub endpoint: Option<Endpoint>,
    /// The path lies under `/v1beta`, which only clients of the generate format use.
    pub beta: bool,
}

impl Target {
    /// The format that the path alone tells; nothing where headers must decide.
    pub fn format(&self) -> Option<Format> {
        if self.beta {
            return Some(Format::Generate);
        }
        match &self.endpoint {
            Some(Endpoint::Response { .. } | Endpoint::ResponseItems { .. }) => Some(Format::Responses),
            Some(Endpoint::Native { .. }) => Some(Format::Generate),
            endpoint => endpoint.as_ref().and_then(Endpoint::api).map(Api::error_format),
        }
    }
}

/// First segments of the resource paths that SDKs append to their base address.
const RESOURCES: [&str; 13] = [
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
];

/// Endpoints whose full path is accepted as a base address. A path comes before its prefixes.
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

/// Segments of a path without the leading versions.
struct Segments<'p> {
    segments: Vec<&'p str>,
    /// A version was one of the generate format.
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

/// Number of versions at the beginning, and whether one of them is of the generate format. A base address may end in a
/// version, and an SDK appends its own.
fn leading_versions(segments: &[&str]) -> (usize, bool) {
    let versions = segments.iter().take_while(|segment| matches!(**segment, "v1" | "v1beta" | "v1beta1"));
    versions.fold((0, false), |(count, beta), version| (count + 1, beta || *version != "v1"))
}

/// Number of segments of the base address at the beginning. `None` if there is no full endpoint path.
fn base_length(segments: &[&str]) -> Option<usize> {
    if let Some(base) = BASES.iter().find(|base| segments.starts_with(base)) {
        return Some(base.len());
    }
    let named = segments.first() == Some(&"models");
    let method =
        |segment: &&str| segment.rsplit_once(':').is_some_and(|(_, name)| action(name, None).is_some());
    segments.iter().position(method).filter(|_| named).map(|at| at + 1)
}

/// Resource path, and the query behind it, in the query of a base address that has one:
/// `api-version=2025-04-01/responses`.
fn resource_in_query(query: &str) -> Option<(Segments<'_>, Option<&str>)> {
    let (_, resource) = query.split_once('/')?;
    let (path, query) =
        resource.split_once('?').map_or((resource, None), |(path, query)| (path, Some(query)));
    let segments = Segments::of(path);
    segments.segments.first().is_some_and(|first| RESOURCES.contains(first)).then_some((segments, query))
}

/// Reads a request path (without the query) and the query.
pub fn parse(path: &str, query: Option<&str>) -> Target {
    let mut whole = Segments::of(path).without_base();
    let mut query = query;
    if let Some((resource, own)) = query.and_then(resource_in_query)
        && whole.is_base()
    {
        let beta = whole.beta;
        whole = resource.without_base();
        whole.beta |= beta;
        query = own;
    }
    let Segments { segments: rest, beta } = whole;
    let endpoint = match rest.as_slice() {
        [] => Some(Endpoint::Root),
        ["chat", "completions"] => Some(Endpoint::Chat),
        ["messages"] => Some(Endpoint::Messages),
        ["messages", "count_tokens"] => Some(Endpoint::CountTokens),
        ["responses"] => Some(Endpoint::Responses),
        ["responses", "input_tokens"] => Some(Endpoint::InputTokens),
        // Words in the place of an id.
        ["responses", "compact" | "input_tokens", ..] => None,
        ["responses", id] => Some(Endpoint::Response { id: percent_decode(id).into_owned() }),
        ["responses", id, "input_items"] => {
            Some(Endpoint::ResponseItems { id: percent_decode(id).into_owned() })
        }
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
        // As Google's SDK has it for Vertex AI, with a key or with a project.
        ["publishers", "google", "models", model @ ..]
        | ["projects", _, "locations", _, "publishers", "google", "models", model @ ..] => {
            parse_model(model, query)
        }
        ["tunedModels", ..] => parse_model(&rest, query),
        _ => None,
    };
    Target { endpoint, beta }
}

/// `{model}:{action}` or `{model}`; a model id may hold slashes and, before its last colon, colons.
fn parse_model(segments: &[&str], query: Option<&str>) -> Option<Endpoint> {
    let whole = percent_decode(&segments.join("/")).into_owned();
    let bare = |model: &str| {
        let model = model.strip_prefix("models/").unwrap_or(model);
        (!model.is_empty()).then(|| model.to_owned())
    };
    if let Some((model, action)) = whole.rsplit_once(':') {
        if action == "predictLongRunning" {
            return Some(Endpoint::Video(video::Place::Predict { model: bare(model)? }));
        }
        if action == "fetchPredictOperation" {
            return Some(Endpoint::Video(video::Place::Fetch));
        }
        if let Some(action) = self::action(action, query) {
            return Some(Endpoint::Native { model: bare(model)?, action });
        }
    }
    Some(Endpoint::Model { id: bare(&whole)? })
}

/// Action of a method name. `None` for an unknown method.
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

/// The decoded value of a query parameter; the first one of that name.
pub fn query_value<'q>(query: Option<&'q str>, name: &str) -> Option<Cow<'q, str>> {
    query_values(query, name).next()
}

/// The decoded values of all query parameters of a name.
pub fn query_values<'q>(query: Option<&'q str>, name: &str) -> impl Iterator<Item = Cow<'q, str>> {
    query.unwrap_or_default().split('&').filter_map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (percent_decode(key) == name).then(|| percent_decode(value))
    })
}

/// The query without the parameters of these names, other bytes as they were.
pub fn query_without(query: &str, names: &[&str]) -> String {
    let mut out = String::with_capacity(query.len());
    for pair in query.split('&') {
        let key = percent_decode(pair.split_once('=').map_or(pair, |(key, _)| key));
        if !pair.is_empty() && !names.contains(&&*key) {
            if !out.is_empty() {
                out.push('&');
            }
            out.push_str(pair);
        }
    }
    out
}

/// Decodes `%xx`; what is not a valid escape, or would not be UTF-8, stays as it is.
pub fn percent_decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = (byte == b'%').then(|| after.get(..2)).flatten();
        let value = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match value {
            Some(value) if !after.starts_with(b"+") => {
                bytes.push(value);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Appends `segment` with everything escaped that would not stay inside one path segment. A slash stays: providers
/// whose model ids hold one take it as it is.
pub fn push_path_segment(out: &mut String, segment: &str) {
    for byte in segment.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b'@' | b':' => {
                out.push(char::from(byte));
            }
            _ => {
                out.push('%');
                for nibble in [byte >> 4, byte & 15] {
                    out.push(char::from(if nibble < 10 { b'0' + nibble } else { b'A' + nibble - 10 }));
                }
            }
        }
    }
}
