//! Who answers, not in which words: a provider's address, its credential, its habits and the APIs that it offers.
//!
//! Here lives everything about a provider that is not a wire format: base URLs, where a resource lies below them, how a
//! request is authenticated, which headers a provider wants, what its models can be asked for. Here must not live: what
//! a body means (`wire`), which provider is chosen (`route`), or connections (`proxy`).

mod address;
mod check;
mod dialect;
mod doc_table;
mod endpoints;
mod imaging;
mod kind;
mod preset;
mod presets;
mod videos;

use std::time::Duration;

use http::{HeaderName, HeaderValue};

pub use address::{BaseUrl, BaseUrlError, Scheme};
pub use check::Check;
pub use doc_table::sheet;
pub use kind::Kind;
pub use preset::Preset;
pub use videos::VideoStep;

use crate::wire::path::{Action, push_path_segment};
use crate::wire::{Api, Format};

/// The version of Anthropic's API that is asked for when the client named none (reference: Anthropic API,
/// "Versioning"). The older of the two live ones: it accepts everything that the newer one does, and sampling
/// parameters beside.
pub const ANTHROPIC_VERSION: &str = "2023-06-01";

/// The version of Azure's older API that is asked for when none is configured: the last that is no preview (reference:
/// Azure OpenAI, "API version lifecycle").
const AZURE_VERSION: &str = "2024-10-21";

/// Which HTTP versions are spoken to a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// Over TLS whatever ALPN gives, HTTP/2 preferred; without TLS HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, without TLS too (prior knowledge).
    Http2,
}

/// How long the gateway waits for a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For TCP and TLS together: for a connection that is new.
    pub connect: Duration,
    /// From the end of the request to the head of the answer.
    pub first_byte: Duration,
    /// Between two pieces of the answer.
    pub idle: Duration,
    /// For the whole exchange.
    pub total: Duration,
    /// Bytes a second that an answer must come at; 0 for any rate.
    pub min_rate: u64,
    /// Over how long they are counted.
    pub rate_window: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            // A connection inside one region takes tens of milliseconds; one lost SYN costs 1 s, two cost 3 s.
            connect: Duration::from_secs(5),
            // The official SDKs wait 10 minutes; reasoning models use them.
            first_byte: Duration::from_secs(600),
            // Providers ping every 15 s or stream; a silence of minutes is a dead connection.
            idle: Duration::from_secs(300),
            total: Duration::from_secs(3_600),
            min_rate: 0,
            rate_window: Duration::from_secs(10),
        }
    }
}

/// A provider as it is used.
#[derive(Debug)]
pub struct Provider {
    /// The name in the configuration, in metrics and in logs.
    pub name: Box<str>,
    /// What kind of provider.
    pub kind: Kind,
    /// Whose manner of speaking it has.
    pub row: Preset,
    /// The version of its API, where a provider wants one in the query (Azure).
    pub api_version: Option<Box<str>>,
    /// The APIs that may be used, preferred first.
    pub apis: Vec<Api>,
    /// Where it is.
    pub base: BaseUrl,
    /// What the credential is sent as, by API; marked as sensitive. Nothing for a provider that wants none.
    credential: Option<Credential>,
    /// The name under which the provider's seals travel through clients.
    issuer: Box<str>,
    /// Headers that every request carries in addition.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// HTTP versions.
    pub http: HttpVersion,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// How it is asked whether it is well; nothing where it is not.
    pub check: Option<Check>,
    /// Certificates (DER) that alone are trusted for this provider; nothing for the system's.
    pub roots: Option<Vec<Vec<u8>>>,
    /// Whether usage is asked for in chat streams (`stream_options.include_usage`). A few servers refuse the field.
    pub ask_usage: bool,
    /// Whether its models may put their reasoning between `<think>` and `</think>` in front of the answer's text.
    pub think_tags: bool,
    /// Whether its models go on with the beginning of an answer, where that is known better than its row does.
    pub prefill: Option<bool>,
    /// Whether errors of the messages format get the types of the specification's table, with the provider's own
    /// beside.
    pub standard_errors: bool,
    /// Whether the client's address is passed on (`x-forwarded-for` and its like): for upstreams of one's own.
    pub forward_client: bool,
}

#[derive(Clone)]
struct Credential {
    plain: HeaderValue,
    bearer: HeaderValue,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// What must be given to make a provider; everything else has a default.
#[derive(Debug)]
pub struct Setup {
    /// See [`Provider::name`].
    pub name: String,
    /// See [`Provider::kind`].
    pub kind: Kind,
    /// See [`Provider::apis`].
    pub apis: Vec<Api>,
    /// See [`Provider::base`].
    pub base: BaseUrl,
}

impl Provider {
    /// A provider with the defaults and without a credential.
    pub fn new(setup: Setup) -> Self {
        Provider {
            issuer: dialect::issuer_of(&setup.name),
            name: setup.name.into_boxed_str(),
            kind: setup.kind,
            row: Preset::of(setup.kind, &setup.base),
            api_version: None,
            apis: setup.apis,
            base: setup.base,
            credential: None,
            headers: Vec::new(),
            http: HttpVersion::default(),
            timeouts: Timeouts::default(),
            check: None,
            roots: None,
            think_tags: false,
            prefill: None,
            ask_usage: true,
            forward_client: false,
            standard_errors: true,
        }
    }

    /// Gives the provider its credential.
    ///
    /// # Errors
    /// The secret cannot stand in a header.
    pub fn set_credential(&mut self, secret: &str) -> Result<(), http::header::InvalidHeaderValue> {
        let mut plain = HeaderValue::from_str(secret)?;
        let mut bearer = HeaderValue::from_str(&format!("Bearer {secret}"))?;
        plain.set_sensitive(true);
        bearer.set_sensitive(true);
        self.credential = Some(Credential { plain, bearer });
        Ok(())
    }

    /// Whether another provider of this name is reached at the same place with the same credential: what is known of
    /// the one holds for the other.
    pub fn is_same_way(&self, other: &Provider) -> bool {
        let secret =
            |provider: &Provider| provider.credential.as_ref().map(|credential| credential.plain.clone());
        self.name == other.name
            && self.kind == other.kind
            && self.base == other.base
            && secret(self) == secret(other)
    }

    /// The name under which its seals travel through clients of other formats.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Whether it has a credential.
    pub fn has_credential(&self) -> bool {
        self.credential.is_some()
    }

    /// Whether it offers this API.
    pub fn offers(&self, api: Api) -> bool {
        self.apis.contains(&api)
    }

    /// The header that carries the credential to this API.
    pub fn credential(&self, api: Api) -> Option<(HeaderName, &HeaderValue)> {
        let credential = self.credential.as_ref()?;
        Some(match (self.kind, api) {
            (Kind::Azure, _) => (HeaderName::from_static("api-key"), &credential.plain),
            (Kind::Vertex | Kind::VertexAnthropic, _) => (http::header::AUTHORIZATION, &credential.bearer),
            (Kind::Anthropic, _) | (_, Api::Messages | Api::CountTokens) => {
                (HeaderName::from_static("x-api-key"), &credential.plain)
            }
            (Kind::Gemini, Api::Generate | Api::EmbedContent | Api::Images | Api::Videos)
            | (_, Api::Generate) => (HeaderName::from_static("x-goog-api-key"), &credential.plain),
            _ => (http::header::AUTHORIZATION, &credential.bearer),
        })
    }

    /// The request path (and query) of a resource for a model.
    pub fn path(&self, api: Api, model: &str, action: Option<Action>) -> String {
        if let Some(path) = self.unusual_path(api, model) {
            return path;
        }
        let mut path = String::with_capacity(self.base.prefix().len() + model.len() + 64);
        path.push_str(self.base.prefix());
        match (api, action) {
            (Api::CountTokens, _) if self.kind == Kind::VertexAnthropic => {
                path.push_str("/publishers/anthropic/models/count-tokens:rawPredict");
            }
            (_, action) if self.kind == Kind::VertexAnthropic => {
                path.push_str("/publishers/anthropic/models/");
                push_path_segment(&mut path, model);
                let streams = matches!(action, Some(Action::Stream { .. }));
                path.push_str(if streams { ":streamRawPredict" } else { ":rawPredict" });
            }
            (api, _) if self.kind == Kind::Azure => self.push_azure(&mut path, api, model),
            (Api::Generate | Api::EmbedContent, Some(action)) => {
                if self.kind == Kind::Vertex {
                    path.push_str("/publishers/google");
                }
                path.push_str("/models/");
                push_path_segment(&mut path, model);
                path.push_str(match action {
                    Action::Generate => ":generateContent",
                    Action::Stream { sse: true } => ":streamGenerateContent?alt=sse",
                    Action::Stream { sse: false } => ":streamGenerateContent",
                    Action::CountTokens => ":countTokens",
                    Action::Embed => ":embedContent",
                    Action::BatchEmbed => ":batchEmbedContents",
                    Action::Predict => ":predict",
                });
            }
            _ => path.push_str(resource(api)),
        }
        path
    }

    /// Azure has two addresses: one where the model stands in the body, as at OpenAI, and an older one where it stands
    /// in the path, as the name of a deployment.
    fn push_azure(&self, path: &mut String, api: Api, model: &str) {
        if !self.base.prefix().contains("/openai") {
            path.push_str("/openai");
        }
        let by_model = self.base.prefix().ends_with("/v1") || api == Api::Responses;
        if !by_model && !self.base.prefix().contains("/deployments/") {
            path.push_str("/deployments/");
            push_path_segment(path, model);
        }
        path.push_str(resource(api));
        let old = !self.base.prefix().ends_with("/v1");
        if let Some(version) = self.api_version.as_deref().or(old.then_some(AZURE_VERSION)) {
            path.push_str("?api-version=");
            push_path_segment(path, version);
        }
    }

    /// Whether the path of a request depends on what is asked for, and not on the API and the model alone.
    pub fn path_needs_action(&self, api: Api) -> bool {
        matches!(api, Api::Generate | Api::EmbedContent) || self.kind == Kind::VertexAnthropic
    }

    /// Takes the provider's credential and address out of a text that a client will see.
    pub fn scrub(&self, text: &str) -> Option<String> {
        let secret = self.credential.as_ref().and_then(|credential| credential.plain.to_str().ok());
        let host = self.base.host();
        let hides = |needle: &str| needle.len() >= 4 && text.contains(needle);
        if !secret.is_some_and(hides) && !hides(host) {
            return None;
        }
        let text = secret.map_or_else(|| text.to_owned(), |secret| text.replace(secret, "***"));
        Some(text.replace(host, "***"))
    }
}

/// The path of an API below the base URL (`docs/configuration`).
fn resource(api: Api) -> &'static str {
    match api {
        Api::Chat => "/chat/completions",
        Api::Messages => "/messages",
        Api::Responses => "/responses",
        Api::CountTokens => "/messages/count_tokens",
        Api::Embeddings => "/embeddings",
        Api::Rerank => "/rerank",
        Api::Images => "/images/generations",
        Api::Videos => "/videos",
        Api::Tasks => "/tasks",
        Api::Generate | Api::EmbedContent => "/models",
    }
}

/// The format of a provider's error bodies for an API; providers with a shape of their own are read by shape anyway.
pub fn error_format(api: Api) -> Format {
    api.error_format()
}
