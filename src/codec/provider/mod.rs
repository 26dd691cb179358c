//! Providers: addresses, credentials, API sets and quirks.
//!
//! Contains the parts of a provider that are independent of message bodies: base URLs, resource paths below them,
//! authentication, required headers, and the capabilities of its models. The content of bodies (`wire`), the selection
//! of a provider (`route`) and connections (`proxy`) must not live here.

mod address;
mod bedrock;
mod check;
mod client_identity;
mod cloud;
mod dialect;
mod doc_table;
mod endpoints;
pub mod guardrail;
mod imaging;
mod kind;
mod metadata_address;
#[cfg(test)]
mod model_rules;
mod open_presets;
mod preset;
mod presets;
mod profile;
mod prompt_cache;
mod refusals;
mod region;
mod videos;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

pub use address::{BaseUrl, BaseUrlError, Scheme};
pub use bedrock::ToolBetas;
pub use check::Check;
pub use client_identity::PresentedCertificate;
pub use cloud::{CloudAccess, SigningScope};
pub use dialect::ModelRules;
pub use doc_table::preset_table;
pub use kind::ProviderKind;
pub use metadata_address::is_metadata_address;
pub use preset::Preset;
pub use videos::VideoStep;

use crate::catalogue::Catalogue;
use crate::wire::path::{Action, push_path_label, push_path_segment};
use crate::wire::{Api, Format};

/// Default `anthropic-version` header, for clients that send none. It is the older of the two supported versions: it
/// accepts everything that the newer one does, and sampling parameters as well. Source: Anthropic API, "Versioning"
/// (<https://docs.anthropic.com/en/api/versioning>).
pub const ANTHROPIC_VERSION: &str = "2023-06-01";

/// Default `api-version` of Azure's older API: the last version that is not a preview. Source: Azure OpenAI, "API
/// version lifecycle".
const AZURE_VERSION: &str = "2024-10-21";

/// HTTP version of the connections to a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// With TLS by ALPN, HTTP/2 preferred; without TLS HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only; without TLS with prior knowledge (RFC 9113, section 3.3).
    Http2,
}

/// Upstream time-outs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Connect time-out of a new connection: name lookup, TCP and TLS together.
    pub connect: Duration,
    /// Time from the end of the request to the response head.
    pub first_byte: Duration,
    /// Maximum time between two reads of the response.
    pub idle: Duration,
    /// Maximum time of the whole exchange.
    pub total: Duration,
    /// Minimum rate of the response body in bytes per second; 0 disables the check.
    pub min_rate: u64,
    /// Window over which the rate is measured.
    pub rate_window: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            // Inside a region, a connection takes tens of milliseconds; one lost SYN adds 1 s, two add 3 s.
            connect: Duration::from_secs(5),
            // The official SDKs wait 10 minutes, and reasoning models need that long.
            first_byte: Duration::from_secs(600),
            // Providers stream or ping every 15 s: minutes without a byte mean a dead connection.
            idle: Duration::from_secs(300),
            total: Duration::from_secs(3_600),
            min_rate: 0,
            rate_window: Duration::from_secs(10),
        }
    }
}

/// Hosts of providers that have a well-known name in OpenTelemetry's conventions, and no preset.
pub const OTEL_HOSTS: &[(&str, &str)] =
    &[("api.perplexity.ai", "perplexity"), ("api.cohere.ai", "cohere"), ("api.cohere.com", "cohere")];

/// Configured provider.
#[derive(Debug)]
pub struct Provider {
    /// Name in the configuration, metrics and logs.
    pub name: Box<str>,
    /// Kind of provider.
    pub kind: ProviderKind,
    /// Preset, which selects capabilities and quirks.
    pub preset: Preset,
    /// API version in the query string (Azure); `None` for the default.
    pub api_version: Option<Box<str>>,
    /// Enabled APIs, in order of preference.
    pub apis: Vec<Api>,
    /// Base URL.
    pub base: BaseUrl,
    /// Credential as header values, marked as sensitive. `None` for a provider without authentication.
    credential: Option<Credential>,
    /// End of that credential as it states it itself, as Unix time in seconds; `None` if it states none.
    pub credential_end: Option<i64>,
    /// Access to a cloud platform, whose credentials are short-lived. `None` for a provider with a fixed credential.
    pub cloud: Option<CloudAccess>,
    /// Issuer of provider signatures (reasoning signatures) as it appears in ids that clients send back.
    issuer: Box<str>,
    /// Additional headers of every request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// HTTP version.
    pub http: HttpVersion,
    /// Upstream time-outs.
    pub timeouts: Timeouts,
    /// Active health check; `None` if it is disabled.
    pub check: Option<Check>,
    /// Trusted root certificates (DER) instead of the system's; `None` for the system's.
    pub roots: Option<Vec<Vec<u8>>>,
    /// Certificate that is presented to the provider; `None` for none.
    pub client_identity: Option<PresentedCertificate>,
    /// Whether chat streams request usage (`stream_options.include_usage`). Some servers reject the field.
    pub ask_usage: bool,
    /// Whether models may write reasoning between `<think>` and `</think>` before the text of the response.
    pub think_tags: bool,
    /// Whether models continue a prefill; `None` for the value of the preset.
    pub prefill: Option<bool>,
    /// Whether errors of the messages format get normalized types, with the provider's own type beside.
    pub standard_errors: bool,
    /// Whether to forward the client's address (`x-forwarded-for` and similar headers), for trusted upstreams.
    pub forward_client: bool,
    /// Whether streams of the responses API go over WebSockets.
    pub websocket: bool,
    /// Whether the service tier that a response states is the one that is charged, or the one that was requested: some
    /// backends state the default tier whatever they served.
    pub states_tier: bool,
    /// Guardrail that Bedrock applies to all requests; `None` for none but those that clients request.
    pub guardrail: Option<Box<guardrail::Guardrail>>,
    /// Catalogue in which its models are looked up: the one of the configuration, with the operator's file.
    pub catalogue: Arc<Catalogue>,
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

/// Required settings of a provider; all others have defaults.
#[derive(Debug)]
pub struct Setup {
    /// See [`Provider::name`].
    pub name: String,
    /// See [`Provider::kind`].
    pub kind: ProviderKind,
    /// See [`Provider::apis`].
    pub apis: Vec<Api>,
    /// See [`Provider::base`].
    pub base: BaseUrl,
}

#[cfg(test)]
impl Provider {
    /// Creates a provider of this kind with the kind's APIs.
    pub(crate) fn at(kind: ProviderKind, base: &str) -> Provider {
        let base = BaseUrl::parse(base).unwrap();
        Provider::new(Setup { name: "p".to_owned(), kind, apis: kind.default_apis().to_vec(), base })
    }
}

impl Provider {
    /// Creates a provider with default settings and without a credential.
    pub fn new(setup: Setup) -> Self {
        Provider {
            issuer: dialect::issuer_of(&setup.name),
            name: setup.name.into_boxed_str(),
            kind: setup.kind,
            preset: Preset::of(setup.kind, &setup.base),
            api_version: None,
            apis: setup.apis,
            base: setup.base,
            credential: None,
            credential_end: None,
            cloud: None,
            headers: Vec::new(),
            http: HttpVersion::default(),
            timeouts: Timeouts::default(),
            check: None,
            roots: None,
            client_identity: None,
            think_tags: false,
            prefill: None,
            ask_usage: true,
            forward_client: false,
            websocket: false,
            states_tier: true,
            guardrail: None,
            catalogue: Catalogue::embedded().clone(),
            standard_errors: true,
        }
    }

    /// Returns the value of `gen_ai.provider.name` (OpenTelemetry GenAI semantic conventions).
    pub fn otel_name(&self) -> &'static str {
        match self.kind {
            ProviderKind::OpenAiCompatible if self.preset == Preset::Compatible => {
                let host = self.base.host();
                let known = OTEL_HOSTS.iter().find(|(known, _)| *known == host);
                known.map_or(self.kind.otel_name(), |(_, name)| name)
            }
            ProviderKind::OpenAiCompatible => self.preset.otel_name(),
            kind => kind.otel_name(),
        }
    }

    /// Returns a warning about a fixed credential that states its end: nothing renews it. `now` is in Unix seconds.
    /// `None` if it has no end.
    pub fn end_of_credential(&self, now: i64) -> Option<String> {
        let end = self.credential_end?;
        let verb = if end <= now { "has ended" } else { "ends" };
        let end = jiff::Timestamp::from_second(end).ok()?;
        let what = "the API key is a short-term one, which";
        Some(format!("{what} {verb} at {end} and is not renewed: the credentials of `provider.aws` are"))
    }

    /// Sets the credential.
    ///
    /// # Errors
    /// Returns an error if the secret contains bytes that are not permitted in a header value.
    pub fn set_credential(&mut self, secret: &str) -> Result<(), http::header::InvalidHeaderValue> {
        let mut plain = HeaderValue::from_str(secret)?;
        let mut bearer = HeaderValue::from_str(&format!("Bearer {secret}"))?;
        plain.set_sensitive(true);
        bearer.set_sensitive(true);
        self.credential = Some(Credential { plain, bearer });
        let is_aws = self.kind == ProviderKind::Bedrock || self.base.host().ends_with(".amazonaws.com");
        self.credential_end = is_aws.then(|| ::cloud::aws::api_key_end(secret)).flatten();
        Ok(())
    }

    /// Returns whether two providers have the same name, kind, address and credential, so that the state of one is
    /// valid for the other after a reload.
    pub fn is_same_way(&self, other: &Provider) -> bool {
        let secret =
            |provider: &Provider| provider.credential.as_ref().map(|credential| credential.plain.clone());
        self.name == other.name
            && self.kind == other.kind
            && self.base == other.base
            && secret(self) == secret(other)
            && match (&self.cloud, &other.cloud) {
                (None, None) => true,
                (Some(one), Some(other)) => one.is_same(other),
                _ => false,
            }
    }

    /// Returns the issuer of the provider's signatures, as it appears in ids that clients of other formats send back.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Returns whether a credential is set.
    pub fn has_credential(&self) -> bool {
        self.credential.is_some() || self.cloud.is_some()
    }

    /// Returns whether the API is enabled.
    pub fn offers(&self, api: Api) -> bool {
        self.apis.contains(&api)
    }

    /// Returns whether the API is enabled, and serves the model.
    pub fn serves(&self, api: Api, model: &str) -> bool {
        self.serves_known(api, &self.known(model))
    }

    fn serves_known(&self, api: Api, known: &profile::KnownModel) -> bool {
        let by_kind = match (self.kind, api) {
            // Without Converse the configuration says that all models are of Anthropic, such as those behind the ARN of an
            // inference profile.
            (ProviderKind::Bedrock, Api::Messages) => {
                known.is_of(dialect::ANTHROPIC) || !self.offers(Api::Converse)
            }
            (ProviderKind::Vertex, Api::Embeddings) => known.form() != "content",
            (ProviderKind::Vertex, Api::EmbedContent) => known.form() == "content",
            _ => true,
        };
        self.offers(api) && by_kind
    }

    /// Returns the authentication header for an API, or `None` if no credential is set.
    pub fn credential(&self, api: Api) -> Option<(HeaderName, &HeaderValue)> {
        let credential = self.credential.as_ref()?;
        Some(match (self.kind, api) {
            (ProviderKind::Bedrock, _) => (http::header::AUTHORIZATION, &credential.bearer),
            (ProviderKind::Azure | ProviderKind::AzureAnthropic, _) => {
                (HeaderName::from_static("api-key"), &credential.plain)
            }
            // Express mode has API keys, and paths without a project (Vertex AI, "API keys in express mode").
            (ProviderKind::Vertex, _) if !self.base.prefix().contains("/projects/") => {
                (HeaderName::from_static("x-goog-api-key"), &credential.plain)
            }
            (ProviderKind::Vertex | ProviderKind::VertexAnthropic, _) => {
                (http::header::AUTHORIZATION, &credential.bearer)
            }
            // Other providers of the messages format take Anthropic's header as well.
            (ProviderKind::Anthropic, _) | (_, Api::Messages | Api::CountTokens) => {
                (HeaderName::from_static("x-api-key"), &credential.plain)
            }
            // Gemini's OpenAI-compatible API, however, takes the key as a bearer token.
            (ProviderKind::Gemini, Api::Generate | Api::EmbedContent | Api::Images | Api::Videos)
            | (_, Api::Generate) => (HeaderName::from_static("x-goog-api-key"), &credential.plain),
            _ => (http::header::AUTHORIZATION, &credential.bearer),
        })
    }

    /// Returns the request path, with query, of a resource for a model.
    pub fn path(&self, api: Api, model: &str, action: Option<Action>) -> String {
        if let Some(path) = self.special_path(api, model) {
            return path;
        }
        let mut path = String::with_capacity(self.base.prefix().len() + model.len() + 64);
        path.push_str(self.base.prefix());
        match (api, action) {
            (Api::CountTokens, _) if self.kind == ProviderKind::VertexAnthropic => {
                path.push_str("/publishers/anthropic/models/count-tokens:rawPredict");
            }
            (_, action) if self.kind == ProviderKind::VertexAnthropic => {
                path.push_str("/publishers/anthropic/models/");
                push_path_segment(&mut path, model);
                let streams = matches!(action, Some(Action::Stream { .. }));
                path.push_str(if streams { ":streamRawPredict" } else { ":rawPredict" });
            }
            (api, action) if self.kind == ProviderKind::Azure => {
                self.push_azure(&mut path, api, model, action)
            }
            (api, action) if self.kind == ProviderKind::AzureAnthropic => {
                // The base URL of a resource may stand alone, as Foundry shows it.
                if !self.base.prefix().contains("/anthropic") {
                    path.push_str("/anthropic/v1");
                }
                path.push_str(resource(api, action));
            }
            (Api::Embeddings, _) if self.kind == ProviderKind::Vertex => {
                path.push_str("/publishers/google/models/");
                push_path_segment(&mut path, model);
                path.push_str(":predict");
            }
            (Api::Generate | Api::EmbedContent, Some(action)) => {
                if self.kind == ProviderKind::Vertex {
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
                    // A method of another API.
                    Action::Compact => "",
                });
            }
            (Api::Messages | Api::Embeddings | Api::Rerank, action) if self.kind == ProviderKind::Bedrock => {
                path.push_str("/model/");
                push_path_label(&mut path, model);
                let streams = matches!(action, Some(Action::Stream { .. }));
                path.push_str(if streams { "/invoke-with-response-stream" } else { "/invoke" });
            }
            (Api::Converse, action) => {
                path.push_str("/model/");
                push_path_label(&mut path, model);
                let streams = matches!(action, Some(Action::Stream { .. }));
                path.push_str(if streams { "/converse-stream" } else { "/converse" });
            }
            _ => path.push_str(resource(api, action)),
        }
        path
    }

    /// Appends a path of Azure OpenAI. Azure has two address schemes: `/openai/v1` with the model in the body, as at
    /// OpenAI, and the older one with the model's deployment in the path.
    fn push_azure(&self, path: &mut String, api: Api, model: &str, action: Option<Action>) {
        if !self.base.prefix().contains("/openai") {
            path.push_str("/openai");
        }
        let by_model = self.base.prefix().ends_with("/v1") || api == Api::Responses;
        if !by_model && !self.base.prefix().contains("/deployments/") {
            path.push_str("/deployments/");
            push_path_segment(path, model);
        }
        path.push_str(resource(api, action));
        // Only the older API requires a version.
        let old = !self.base.prefix().ends_with("/v1");
        if let Some(version) = self.api_version.as_deref().or(old.then_some(AZURE_VERSION)) {
            path.push_str("?api-version=");
            push_path_segment(path, version);
        }
    }

    /// Returns whether the request path depends on the action, not only on the API and the model.
    pub fn path_needs_action(&self, api: Api) -> bool {
        matches!(api, Api::Generate | Api::EmbedContent | Api::Converse)
            || self.kind == ProviderKind::VertexAnthropic
            || self.invokes(api)
    }

    /// Returns whether the provider makes and reads the compaction items of the responses API itself (OpenAI API,
    /// "Compact a response"; Azure, "Compact a conversation"). Of all other providers the gateway requests a summary.
    pub fn compacts(&self, api: Api) -> bool {
        api == Api::Responses && matches!(self.preset, Preset::OpenAi | Preset::Azure)
    }

    /// Returns whether the provider routes the requests of a turn by the header `x-codex-turn-state`, which it sets in
    /// the first response (observed with Codex CLI 0.169).
    pub fn has_turn_state(&self, api: Api) -> bool {
        self.compacts(api)
    }

    /// Redacts the provider's credential and host in a text for clients. Returns `None` if the text contains neither.
    pub fn scrub(&self, text: &str) -> Option<String> {
        let secret = self.credential.as_ref().and_then(|credential| credential.plain.to_str().ok());
        let host = self.base.host();
        // Shorter strings would match ordinary text.
        let hides = |needle: &str| needle.len() >= 4 && text.contains(needle);
        if !secret.is_some_and(hides) && !hides(host) {
            return None;
        }
        let text = secret.map_or_else(|| text.to_owned(), |secret| text.replace(secret, "***"));
        Some(text.replace(host, "***"))
    }
}

/// Returns the path of an API below the base URL (docs/configuration.md).
fn resource(api: Api, action: Option<Action>) -> &'static str {
    match api {
        Api::Responses if action == Some(Action::Compact) => "/responses/compact",
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
        Api::Converse => "/model",
    }
}

/// Returns the format of a provider's error bodies for an API. Providers with other error formats are recognized by the
/// shape of the body.
pub fn error_format(api: Api) -> Format {
    api.error_format()
}
