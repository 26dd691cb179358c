//! Prepared upstream routes: what all requests for one model at one target through one endpoint share. Created once per
//! snapshot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderValue, Uri, header};

use crate::credentials::CredentialHandle;
use codec::canonical::{Dialect, RequestFeatures};
use codec::provider::{ANTHROPIC_VERSION, HttpVersion, Provider, Scheme};
use codec::tokens::TokenizerFamily;
use codec::wire::path::Action;
use codec::wire::{Api, Format};
use driver::names;
use observe::metrics::{Metrics, Series};
use observe::telemetry::conventions::operation_name;
use routing::route::{Model, Target};

/// `User-Agent` of upstream requests.
pub(crate) const USER_AGENT: &str = concat!("model-gateway/", env!("CARGO_PKG_VERSION"));

/// Prepared upstream route of a target: request head, address and metric handles that every request shares.
pub(crate) struct UpstreamRoute {
    /// The API of the upstream request.
    pub(crate) api: Api,
    /// Index of the provider's addresses in the snapshot.
    pub(crate) addresses_index: usize,
    /// Metric handles.
    pub(crate) series: Series,
    /// Model family, for token estimates.
    pub(crate) family: TokenizerFamily,
    /// Capability profile of the target's model, without the names, which the target holds.
    dialect: Dialect<'static>,
    /// Features that the provider has refused, of those that the profile says it refuses: bits of [`RequestFeatures`].
    refused: AtomicU64,
    /// Value of the `x-gateway-target` header. `None` if the names are not valid in a header.
    pub(crate) name: Option<HeaderValue>,
    head: HeaderMap,
    uri: Option<Uri>,
    /// Short-lived credential of the provider; `None` if it has a fixed one, which is in `head`.
    pub(crate) credential: Option<Arc<CredentialHandle>>,
}

impl UpstreamRoute {
    pub(crate) fn new(
        metrics: &Metrics,
        endpoint: &'static str,
        model: &Model,
        target: &Target,
        api: Api,
        link: usize,
    ) -> Self {
        let provider = &target.provider;
        let operation = operation_name(endpoint);
        let series =
            Series::new(metrics, endpoint, operation, &model.id, &provider.name, provider.otel_name());
        // A path that contains an action depends on the request, so it cannot be prepared.
        let fixed = !target.provider.path_needs_action(api);
        let uri = if fixed { address(target, api, None) } else { None };
        let family = first_tokenizer([target].into_iter(), model);
        let name = HeaderValue::try_from(format!("{}/{}", provider.name, target.model)).ok();
        let dialect = Dialect { model: "", issuer: "", ..target.dialect(api) };
        UpstreamRoute {
            api,
            addresses_index: link,
            series,
            family,
            dialect,
            refused: AtomicU64::new(0),
            name,
            head: template(provider, api),
            uri,
            credential: None,
        }
    }

    /// Sets the short-lived credential of the provider.
    pub(crate) fn with_credential(self, credential: Option<Arc<CredentialHandle>>) -> Self {
        UpstreamRoute { credential, ..self }
    }

    /// Returns the capability profile of the target's model.
    pub(crate) fn dialect<'t>(&self, target: &'t Target) -> Dialect<'t> {
        Dialect { model: &target.model, issuer: target.provider.issuer(), ..self.dialect.clone() }
    }

    /// Returns what the target refuses in requests of its own format.
    pub(crate) fn refuses(&self) -> RequestFeatures {
        self.dialect.refuses
    }

    /// Returns the highest output limit that the target takes; `None` if it is not known.
    pub(crate) fn most_output(&self, stream: bool) -> Option<u64> {
        self.dialect.highest_limit(stream)
    }

    /// Returns the features that the provider has refused in a request, and taken without.
    pub(crate) fn refused(&self) -> RequestFeatures {
        RequestFeatures::from_bits(self.refused.load(Ordering::Relaxed))
    }

    /// Remembers features that the provider has refused, until the next reload.
    pub(crate) fn remember_refused(&self, features: RequestFeatures) {
        self.refused.fetch_or(features.bits(), Ordering::Relaxed);
    }

    /// Returns the request URI: a path, and over HTTP/2 also scheme and authority. `None` if it is not a valid URI.
    pub(crate) fn uri(&self, target: &Target, action: Option<Action>) -> Option<Uri> {
        // The prepared address is that of the API itself.
        let fixed = self.uri.clone().filter(|_| action != Some(Action::Compact));
        fixed.or_else(|| address(target, self.api, action))
    }

    /// Returns the shared headers. Headers that differ per request hold a placeholder.
    pub(crate) fn head(&self) -> HeaderMap {
        self.head.clone()
    }
}

/// Returns the tokenizer family of the first target whose model is known by its name at the provider. The client's name for the
/// model comes last, because it may be arbitrary.
pub(crate) fn first_tokenizer<'t>(
    targets: impl Iterator<Item = &'t Target>,
    model: &'t Model,
) -> TokenizerFamily {
    let mut catalogue = None;
    let known = targets.map(|target| {
        catalogue = Some(&target.provider.catalogue);
        TokenizerFamily::listed(&target.provider.catalogue, target.known_model())
    });
    let found = known.into_iter().find(|family| *family != TokenizerFamily::Other);
    let own = || catalogue.map(|catalogue| TokenizerFamily::listed(catalogue, &model.id));
    found.or_else(own).unwrap_or(TokenizerFamily::Other)
}

/// Returns the request URI of an API.
fn address(target: &Target, api: Api, action: Option<Action>) -> Option<Uri> {
    address_of(&target.provider, target.provider.path(api, &target.model, action))
}

/// Returns the request URI of any path of a provider: the path alone for HTTP/1, an absolute URI where HTTP/2 is
/// possible, which needs scheme and authority. `None` if it is not a valid URI.
pub(crate) fn address_of(provider: &Provider, path: String) -> Option<Uri> {
    let scheme = match (provider.http, provider.base.scheme()) {
        (HttpVersion::Http1, _) | (HttpVersion::Auto, Scheme::Http) => return Uri::try_from(path).ok(),
        (HttpVersion::Http2, Scheme::Http) => "http",
        (_, Scheme::Https) => "https",
    };
    let uri = Uri::builder().scheme(scheme).authority(provider.base.authority()).path_and_query(path);
    uri.build().ok()
}

/// Returns the headers that every request to a provider carries.
pub(crate) fn template(provider: &Provider, api: Api) -> HeaderMap {
    let mut head = HeaderMap::with_capacity(16);
    if let Ok(host) = HeaderValue::from_str(provider.base.authority()) {
        head.insert(header::HOST, host);
    }
    if let Some((name, value)) = provider.credential(api) {
        head.insert(name, value.clone());
    }
    head.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    head.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    head.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    // A compressor may hold frames of a stream back, and compressed frames would have to be decoded first.
    head.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    head.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    head.insert(names::X_REQUEST_ID, HeaderValue::from_static("-"));
    if api.error_format() == Format::Messages && !provider.invokes(api) {
        head.insert(names::ANTHROPIC_VERSION, HeaderValue::from_static(ANTHROPIC_VERSION));
    }
    if provider.forward_client {
        head.insert(header::VIA, HeaderValue::from_static("1.1 model-gateway"));
    }
    for (name, value) in &provider.headers {
        head.insert(name.clone(), value.clone());
    }
    head
}

/// Removes a provider's secrets from a text for a client or a log.
pub(crate) fn redact_secrets(provider: Option<&Arc<Provider>>, text: String) -> String {
    provider.and_then(|provider| provider.scrub(&text)).unwrap_or(text)
}

impl std::fmt::Debug for UpstreamRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lane({:?})", self.series)
    }
}
