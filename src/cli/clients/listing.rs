//! Models of a running gateway: `GET /v1/models` with the key, bounded in time and size.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::address::{ClientKey, GatewayAddress};
use super::error::ClientSetupError;

/// Time-out of a request to the gateway.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a listing (bytes): some ten thousand models.
const MAX_LISTING: u64 = 4 * 1024 * 1024;
/// Number of models that an error names.
const NAMED: usize = 12;

/// Model of the listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GatewayModel {
    /// Model id, as requests name it.
    pub(super) id: String,
    /// Context window (tokens). `None` if the gateway does not say it.
    pub(super) window: Option<u64>,
    /// Maximum output of a response (tokens). `None` if the gateway does not say it.
    pub(super) max_output: Option<u64>,
}

/// Listing of a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GatewayModels {
    /// Models in listing order.
    pub(super) models: Vec<GatewayModel>,
    /// Whether the gateway also has the model catalogue of Codex.
    pub(super) codex_catalogue: bool,
    /// Whether the gateway serves the responses API over WebSocket. False unless the client may use it.
    pub(super) websockets: bool,
}

impl GatewayModels {
    /// Returns a model, or `None` if it is not listed.
    pub(super) fn get(&self, id: &str) -> Option<&GatewayModel> {
        self.models.iter().find(|model| model.id == id)
    }

    /// Returns the model that a name means: a listed id, or one with the prefix `<provider>/` or a suffix such as
    /// `-thinking-low`. `None` if it means none.
    pub(super) fn find(&self, name: &str) -> Option<&GatewayModel> {
        let without_suffix = |name| {
            ["-thinking", "-nothinking"].iter().find_map(|mark| {
                let at = str::rfind(name, mark)?;
                self.get(name.get(..at)?)
            })
        };
        let rest = name.split_once('/').map(|(_, rest)| rest);
        self.get(name)
            .or_else(|| without_suffix(name))
            .or_else(|| rest.and_then(|rest| self.get(rest).or_else(|| without_suffix(rest))))
    }

    /// Returns the ids for an error message, those that resemble `wanted` first.
    pub(super) fn named(&self, wanted: &str) -> String {
        if self.models.is_empty() {
            return "no model for this key".to_owned();
        }
        let mut ids: Vec<&str> = self.models.iter().map(|model| model.id.as_str()).collect();
        ids.sort_by_key(|id| std::cmp::Reverse(common_prefix(id, wanted)));
        let more = ids.len().saturating_sub(NAMED);
        ids.truncate(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{more}", ids.join(", "))
    }
}

fn common_prefix(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

/// Asks a gateway for its models. Failures name the address, never the key.
///
/// # Errors
/// Returns an error if the gateway cannot be reached, refuses the key, or answers with something else.
pub(super) fn fetch(
    address: &GatewayAddress,
    key: &ClientKey,
    with_catalogue: bool,
) -> Result<GatewayModels, ClientSetupError> {
    let agent = agent(address);
    let url = format!("{}/models", address.v1());
    let body = get(&agent, &url, key)?;
    let models = parse(&body).map_err(|what| ClientSetupError::Listing { url: url.clone(), what })?;
    let catalogue = with_catalogue
        && get(&agent, &format!("{url}?client_version=0.169.0"), key).is_ok_and(|body| is_catalogue(&body));
    let websockets = with_catalogue && has_websockets(&agent, address, key);
    Ok(GatewayModels { models, codex_catalogue: catalogue, websockets })
}

/// Asks for a WebSocket in a version that does not exist. A server that supports another one names it (RFC 6455,
/// section 4.4), and no socket is opened.
fn has_websockets(agent: &ureq::Agent, address: &GatewayAddress, key: &ClientKey) -> bool {
    let bearer = format!("Bearer {}", key.expose());
    let asking = agent.get(format!("{}/responses", address.v1()));
    let answer = asking.header("authorization", bearer).header("sec-websocket-version", "0").call();
    answer.is_ok_and(|answer| {
        let supported = answer.headers().get("sec-websocket-version").and_then(|value| value.to_str().ok());
        answer.status().as_u16() == 426 && supported == Some("13")
    })
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

fn get(agent: &ureq::Agent, url: &str, key: &ClientKey) -> Result<Vec<u8>, ClientSetupError> {
    let connect =
        |error: ureq::Error| ClientSetupError::Connect { url: url.to_owned(), what: reason(&error) };
    let bearer = format!("Bearer {}", key.expose());
    let mut response = agent.get(url).header("authorization", bearer).call().map_err(connect)?;
    match response.status().as_u16() {
        200 => {}
        status @ (401 | 403) => {
            return Err(ClientSetupError::Unauthorized {
                url: url.to_owned(),
                from: key.from().to_owned(),
                status,
            });
        }
        status => return Err(ClientSetupError::Status { url: url.to_owned(), status }),
    }
    response.body_mut().with_config().limit(MAX_LISTING).read_to_vec().map_err(|error| match error {
        ureq::Error::BodyExceedsLimit(_) => {
            ClientSetupError::Listing { url: url.to_owned(), what: "it is larger than 4 MiB".to_owned() }
        }
        other => connect(other),
    })
}

fn reason(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(_) => format!("no answer within {} s", TIMEOUT.as_secs()),
        ureq::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// Listing in OpenAI's shape.
#[derive(Deserialize)]
struct Listing {
    data: Vec<Entry>,
}

/// Entry of a listing. Gateways have different names for the limits of a model; an entry can have several of them.
#[derive(Deserialize)]
struct Entry {
    id: String,
    context_window: Option<serde_json::Value>,
    context_length: Option<serde_json::Value>,
    max_input_tokens: Option<serde_json::Value>,
    max_output_tokens: Option<serde_json::Value>,
    max_completion_tokens: Option<serde_json::Value>,
    max_tokens: Option<serde_json::Value>,
}

/// Parses a listing in OpenAI's shape.
fn parse(body: &[u8]) -> Result<Vec<GatewayModel>, String> {
    let listing: Listing = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let models = listing.data.into_iter().filter(|entry| is_model_id(&entry.id));
    Ok(models
        .map(|entry| GatewayModel {
            window: first([entry.context_window, entry.context_length, entry.max_input_tokens]),
            max_output: first([entry.max_output_tokens, entry.max_completion_tokens, entry.max_tokens]),
            id: entry.id,
        })
        .collect())
}

/// Returns the first value that is a number of tokens.
fn first(values: [Option<serde_json::Value>; 3]) -> Option<u64> {
    values.into_iter().flatten().find_map(|value| value.as_u64().filter(|tokens| *tokens > 0))
}

/// Whether a text can be a model id: it goes into settings files and command lines.
pub(super) fn is_model_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= 256 && !text.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// Whether a body is the model catalogue of Codex: an object with the member `models`.
fn is_catalogue(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Catalogue {
        models: Vec<serde::de::IgnoredAny>,
    }
    serde_json::from_slice::<Catalogue>(body).is_ok_and(|catalogue| !catalogue.models.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{GatewayModel, GatewayModels, is_catalogue, parse};

    #[test]
    fn listing_limits_are_read_under_their_names() {
        let body = br#"{"object":"list","data":[
            {"id":"a","context_window":200000,"max_input_tokens":null,"max_output_tokens":32000},
            {"id":"b","context_length":128000,"max_completion_tokens":0},
            {"id":"c","max_input_tokens":null},
            {"id":"bad id"}, {"id":""}]}"#;
        let model = |id: &str, window, max_output| GatewayModel { id: id.to_owned(), window, max_output };
        let expected = vec![
            model("a", Some(200_000), Some(32_000)),
            model("b", Some(128_000), None),
            model("c", None, None),
        ];
        assert_eq!(parse(body).unwrap(), expected);
        assert!(parse(b"<html>").is_err());
        assert!(parse(br#"{"models":[]}"#).is_err());
    }

    #[test]
    fn listing_finds_models_and_names_similar_ones() {
        let models = ["gpt-4o", "claude-sonnet-4-6", "claude-haiku-4-5"];
        let models = models.map(|id| GatewayModel { id: id.to_owned(), ..GatewayModel::default() }).to_vec();
        let listing = GatewayModels { models, codex_catalogue: false, websockets: false };
        for (name, found) in [
            ("gpt-4o", Some("gpt-4o")),
            ("openai/gpt-4o", Some("gpt-4o")),
            ("claude-haiku-4-5-thinking-8192", Some("claude-haiku-4-5")),
            ("anthropic/claude-haiku-4-5-nothinking", Some("claude-haiku-4-5")),
            ("gpt-4o-mini", None),
            ("thinking", None),
        ] {
            assert_eq!(listing.find(name).map(|model| model.id.as_str()), found, "{name}");
        }
        assert_eq!(listing.named("claude-h"), "claude-haiku-4-5, claude-sonnet-4-6, gpt-4o");
    }

    #[test]
    fn catalogue_is_recognized_by_its_models() {
        assert!(is_catalogue(br#"{"models":[{"slug":"x"}]}"#));
        assert!(!is_catalogue(br#"{"models":[]}"#) && !is_catalogue(br#"{"object":"list","data":[]}"#));
    }
}
