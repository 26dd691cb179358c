//! Requests to a running gateway with the user's key, bounded in time and size. None of them has a model generate.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use ureq::RequestBuilder;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::typestate::WithoutBody;

use super::address::{ClientKey, GatewayAddress};
use super::error::ClientSetupError;
use super::listing::{
    Discovered, GatewayModel, GatewayModels, is_catalogue, parse, parse_discovery, parse_one,
};

/// Time-out of a request to the gateway.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a listing (bytes): some ten thousand models.
const MAX_LISTING: u64 = 4 * 1024 * 1024;
/// Version of Codex whose model catalogue is requested.
const CODEX_VERSION: &str = "0.169.0";
/// Name of Claude Code's model discovery (version 2.1.330): gateways list aliases for it only.
const CLAUDE_DISCOVERY: &str = "claude-code/2.1.330";
/// Header of a listing that says whether the gateway serves the responses API over WebSocket.
const WEBSOCKET: &str = "x-gateway-websocket";

/// Connections to a gateway.
pub(super) struct GatewayClient<'a> {
    agent: ureq::Agent,
    address: &'a GatewayAddress,
    key: &'a ClientKey,
}

/// Response with status 200.
struct Received {
    body: Vec<u8>,
    /// Value of the header [`WEBSOCKET`]. `None` if there is none.
    websocket: Option<String>,
}

impl<'a> GatewayClient<'a> {
    pub(super) fn new(address: &'a GatewayAddress, key: &'a ClientKey) -> Self {
        GatewayClient { agent: agent(address), address, key }
    }

    /// Requests the models of the gateway. `for_codex` also requests the model catalogue of Codex. Failures name the
    /// address, never the key.
    ///
    /// # Errors
    /// Returns an error if the gateway cannot be reached, refuses the key, or answers with something else.
    pub(super) fn listing(&self, for_codex: bool) -> Result<GatewayModels, ClientSetupError> {
        let url = format!("{}/models", self.address.v1());
        let received = self.get(&url, &[])?;
        let mut listing = parse(&received.body).map_err(|what| listing_error(&url, what))?;
        listing.websockets =
            received.websocket.is_some_and(|apis| apis.split(',').any(|api| api.trim() == "responses"));
        listing.codex_catalogue = for_codex
            && self
                .get(&format!("{url}?client_version={CODEX_VERSION}"), &[])
                .is_ok_and(|received| is_catalogue(&received.body));
        Ok(listing)
    }

    /// Requests the entry of a model by any name that requests can use, such as an alias. `None` if the gateway has none.
    ///
    /// # Errors
    /// Returns an error if the gateway cannot be reached, refuses the key, or answers with something else.
    pub(super) fn model(&self, name: &str) -> Result<Option<GatewayModel>, ClientSetupError> {
        let mut url = url::Url::parse(&format!("{}/models", self.address.v1()))
            .map_err(|error| ClientSetupError::Url(error.to_string()))?;
        if let Ok(mut segments) = url.path_segments_mut() {
            // A slash in a name stays one: `openai/gpt-5`.
            segments.extend(name.split('/'));
        }
        match self.get(url.as_str(), &[]) {
            Ok(received) => parse_one(&received.body).map_err(|what| listing_error(url.as_str(), what)),
            Err(ClientSetupError::Status { status: 400 | 404 | 405 | 501, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Requests the models as the model discovery of Claude Code does.
    ///
    /// # Errors
    /// Returns an error if the gateway cannot be reached, refuses the key, or does not answer with a list in Anthropic's
    /// shape.
    pub(super) fn discovery(&self) -> Result<Vec<Discovered>, ClientSetupError> {
        let url = format!("{}/models?limit=1000", self.address.v1());
        let headers = [("anthropic-version", "2023-06-01"), ("user-agent", CLAUDE_DISCOVERY)];
        let received = self.get(&url, &headers)?;
        parse_discovery(&received.body).map_err(|what| listing_error(&url, what))
    }

    /// Requests the number of tokens of a short message, as Claude Code does. No model is called.
    ///
    /// # Errors
    /// Returns an error if the gateway cannot be reached, or does not answer with a number above zero.
    pub(super) fn count_tokens(&self, model: &str) -> Result<u64, ClientSetupError> {
        let url = format!("{}/messages/count_tokens?beta=true", self.address.v1());
        let body = json!({ "model": model, "messages": [{ "role": "user", "content": "How many tokens are these?" }] });
        let request = self.agent.post(&url).header("authorization", self.bearer());
        let request =
            request.header("anthropic-version", "2023-06-01").header("content-type", "application/json");
        let response = request.send(body.to_string().as_bytes());
        let received = self.receive(&url, response)?;
        let counted: Option<Value> = serde_json::from_slice(&received.body).ok();
        counted
            .and_then(|counted| counted.get("input_tokens")?.as_u64())
            .filter(|tokens| *tokens > 0)
            .ok_or_else(|| ClientSetupError::Listing { url, what: "it has no input_tokens".to_owned() })
    }

    /// Attempts a WebSocket handshake in a version that does not exist: a server names the version that it supports (RFC
    /// 6455, section 4.4), and no socket is opened. Returns the status, and whether the server supports version 13.
    ///
    /// # Errors
    /// Returns an error if the gateway cannot be reached.
    pub(super) fn attempt_websocket(&self) -> Result<(u16, bool), ClientSetupError> {
        let url = format!("{}/responses", self.address.v1());
        let request = self.agent.get(&url).header("authorization", self.bearer());
        let request = request.header("connection", "upgrade").header("upgrade", "websocket");
        let request = request.header("sec-websocket-version", "0");
        let response = request.call().map_err(|error| connect_error(&url, &error))?;
        let supported = response.headers().get("sec-websocket-version").is_some_and(|value| value == "13");
        Ok((response.status().as_u16(), supported))
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.key.expose())
    }

    fn get(&self, url: &str, headers: &[(&str, &str)]) -> Result<Received, ClientSetupError> {
        let request = self.agent.get(url).header("authorization", self.bearer());
        let add = |request: RequestBuilder<WithoutBody>, (name, value): &(&str, &str)| {
            request.header(*name, *value)
        };
        self.receive(url, headers.iter().fold(request, add).call())
    }

    /// Checks the status of a response, and reads it.
    fn receive(
        &self,
        url: &str,
        response: Result<http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Received, ClientSetupError> {
        let mut response = response.map_err(|error| connect_error(url, &error))?;
        match response.status().as_u16() {
            200 => {}
            status @ (401 | 403) => {
                let from = self.key.from().to_owned();
                return Err(ClientSetupError::Unauthorized { url: url.to_owned(), from, status });
            }
            status => return Err(ClientSetupError::Status { url: url.to_owned(), status }),
        }
        let websocket =
            response.headers().get(WEBSOCKET).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = response.body_mut().with_config().limit(MAX_LISTING).read_to_vec();
        let body = body.map_err(|error| match error {
            ureq::Error::BodyExceedsLimit(_) => listing_error(url, "it is larger than 4 MiB".to_owned()),
            other => connect_error(url, &other),
        })?;
        Ok(Received { body, websocket })
    }
}

fn listing_error(url: &str, what: String) -> ClientSetupError {
    ClientSetupError::Listing { url: url.to_owned(), what }
}

fn connect_error(url: &str, error: &ureq::Error) -> ClientSetupError {
    let what = match error {
        ureq::Error::Timeout(_) => format!("no answer within {} s", TIMEOUT.as_secs()),
        ureq::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    };
    ClientSetupError::Connect { url: url.to_owned(), what }
}

fn agent(address: &GatewayAddress) -> ureq::Agent {
    let mut config = ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        // A redirect would take the key to another address.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("model-gateway/", env!("CARGO_PKG_VERSION")));
    if address.is_loopback() {
        config = config.proxy(None);
    } else {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(RootCerts::Specific(Arc::new(roots())))
            .build();
        config = config.tls_config(tls);
    }
    config.build().new_agent()
}

/// Returns the root certificates of the system; the bundled ones if it has none.
fn roots() -> Vec<Certificate<'static>> {
    let native = rustls_native_certs::load_native_certs().certs;
    if native.is_empty() {
        let bundled = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
        return bundled.map(|certificate| Certificate::from_der(certificate)).collect();
    }
    native.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect()
}
