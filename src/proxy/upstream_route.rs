//! What all requests for one model at one provider through one endpoint have in common: made once per snapshot, used
//! for every request.

use http::{HeaderMap, HeaderValue, Uri, header};

use super::names;
use crate::canonical::Dialect;
use crate::metrics::{Metrics, Series};
use crate::provider::{ANTHROPIC_VERSION, HttpVersion, Provider, Scheme};
use crate::route::{Model, Target};
use crate::tokens::Family;
use crate::wire::path::Action;
use crate::wire::{Api, Format};

/// How the gateway names itself to providers.
pub(super) const USER_AGENT: &str = concat!("model-gateway/", env!("CARGO_PKG_VERSION"));

/// Prepared upstream route of a target: request head, address and metric handles that every request shares.
pub(super) struct UpstreamRoute {
    /// The API that the provider is asked through.
    pub(super) api: Api,
    /// Where the way to the provider stands among the snapshot's.
    pub(super) link: usize,
    /// Handles of the series.
    pub(super) series: Series,
    /// The family of the model that is asked.
    pub(super) family: Family,
    /// How the target's model is spoken to, but for the names, which the target has.
    dialect: Dialect<'static>,
    /// How clients are told of the target.
    pub(super) name: Option<HeaderValue>,
    head: HeaderMap,
    uri: Option<Uri>,
}

impl UpstreamRoute {
    pub(super) fn new(
        metrics: &Metrics,
        endpoint: &'static str,
        model: &Model,
        target: &Target,
        api: Api,
        link: usize,
    ) -> Self {
        let provider = &target.provider;
        let series = Series::new(metrics, endpoint, &model.id, &provider.name, provider.kind.otel_name());
        // An action stands in the path; it is a part of the request.
        let fixed = !target.provider.path_needs_action(api);
        let uri = if fixed { address(target, api, None) } else { None };
        let known = [&*target.model, &*model.id].map(Family::of);
        let family = known.into_iter().find(|family| *family != Family::Other).unwrap_or(Family::Other);
        let name = HeaderValue::try_from(format!("{}/{}", provider.name, target.model)).ok();
        let dialect = Dialect { model: "", issuer: "", ..provider.dialect(api, &target.model) };
        UpstreamRoute { api, link, series, family, dialect, name, head: template(provider, api), uri }
    }

    /// How the model of the lane's target is spoken to.
    pub(super) fn dialect<'t>(&self, target: &'t Target) -> Dialect<'t> {
        Dialect { model: &target.model, issuer: target.provider.issuer(), ..self.dialect.clone() }
    }

    /// Where the request goes: a path, and over HTTP/2 scheme and authority before it.
    pub(super) fn uri(&self, target: &Target, action: Option<Action>) -> Option<Uri> {
        self.uri.clone().or_else(|| address(target, self.api, action))
    }

    /// The headers that every request carries; those that differ hold a value to be replaced.
    pub(super) fn head(&self) -> HeaderMap {
        self.head.clone()
    }
}

/// The path of a request; the whole address where HTTP/2 may be spoken, which needs its parts.
fn address(target: &Target, api: Api, action: Option<Action>) -> Option<Uri> {
    address_of(&target.provider, target.provider.path(api, &target.model, action))
}

/// The same for any path of a provider.
pub(super) fn address_of(provider: &Provider, path: String) -> Option<Uri> {
    let scheme = match (provider.http, provider.base.scheme()) {
        (HttpVersion::Http1, _) | (HttpVersion::Auto, Scheme::Http) => return Uri::try_from(path).ok(),
        (HttpVersion::Http2, Scheme::Http) => "http",
        (_, Scheme::Https) => "https",
    };
    let uri = Uri::builder().scheme(scheme).authority(provider.base.authority()).path_and_query(path);
    uri.build().ok()
}

/// The headers that every request to a provider carries.
pub(super) fn template(provider: &Provider, api: Api) -> HeaderMap {
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
    // A stream must not be held back by a compressor, and frames must be readable.
    head.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    head.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    head.insert(names::X_REQUEST_ID, HeaderValue::from_static("-"));
    if api.error_format() == Format::Messages {
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

impl std::fmt::Debug for UpstreamRoute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lane({:?})", self.series)
    }
}
