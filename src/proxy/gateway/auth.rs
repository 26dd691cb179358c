//! Authentication and authorization: finds the API key of a request, and checks that it may be used from this address,
//! for this endpoint and for these models.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use pingora::http::RequestHeader;

use super::context::Context;
use super::signed_request::missing_signature;
use crate::{Client, Gateway};
use codec::error::{ApiError, ErrorKind};
use codec::wire::Api;
use codec::wire::body_facts::NamedModels;
use codec::wire::path::{self, Endpoint};
use codec::wire::request::Body;
use codec::wire::tasks::TaskEndpoint;
use driver::names;
use routing::account::{
    ClientCertificate, ForwardedHeader, Key, KeyState, Keys, Permission, TokenFault, Tokens, is_mistyped,
    is_token,
};
use routing::route::RoutingTable;

/// Metric label of the endpoints that only count tokens, which are free (docs/specification.md, 4.3).
pub(crate) const COUNTING: &str = "count_tokens";

/// Headers that may carry an API key. An empty value carries none: SDKs send an empty header for a setting that is not
/// set.
static KEY_HEADERS: [HeaderName; 4] =
    [names::X_API_KEY, names::X_GOOG_API_KEY, names::X_VENDOR_API_KEY, names::API_KEY];

static AUTHORIZATION: HeaderName = http::header::AUTHORIZATION;

/// Authenticates a request by its API key, or by an access token on the task endpoints.
///
/// # Errors
/// Returns the error for the client if the key is missing, unknown, disabled or expired, or if two keys differ.
pub(crate) fn authenticate(head: &RequestHeader, ctx: &mut Context) -> Result<Arc<Key>, ApiError> {
    let Some(text) = extract_key(head)? else {
        let message = "You didn't provide an API key. Send it as `Authorization: Bearer <API_KEY>`.";
        return Err(missing_signature(head).unwrap_or_else(|| ApiError::new(ErrorKind::MissingKey, message)));
    };
    let live = ctx.active.clone();
    let found = match (ctx.endpoint(), &live.snapshot.tokens) {
        // A token cannot be used to issue another one.
        (
            Some(Endpoint::Group(
                TaskEndpoint::Submit(_) | TaskEndpoint::Query(_) | TaskEndpoint::Content(_),
            )),
            Some(tokens),
        ) if is_token(&text) => key_of(tokens, &live.snapshot.keys, &text, ctx.now())?,
        _ => live.snapshot.keys.find_at(&text, ctx.now()),
    };
    set_key(ctx, found, &text)
}

/// Returns the API key of a request; `None` if there is none.
///
/// # Errors
/// Returns [`ErrorKind::InvalidKey`] if two places carry different keys.
pub(crate) fn extract_key(head: &RequestHeader) -> Result<Option<Cow<'_, str>>, ApiError> {
    let values = |name: &'static HeaderName| {
        head.headers.get_all(name).iter().map(|value| (name.as_str(), value.as_bytes().trim_ascii()))
    };
    let bearer = values(&AUTHORIZATION).filter_map(|(name, value)| {
        let (scheme, token) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| (name, token.trim_ascii()))
    });
    // A value that is not UTF-8 matches no key, but it counts as one that was sent.
    let in_headers = KEY_HEADERS
        .iter()
        .flat_map(values)
        .chain(bearer)
        .map(|(name, value)| (name, String::from_utf8_lossy(value)));
    let in_query = path::query_values(head.uri.query(), "key").map(|value| ("key", value));
    let mut found: Option<(&str, Cow<'_, str>)> = None;
    for (name, value) in in_headers.chain(in_query).filter(|(_, value)| !value.is_empty()) {
        match &found {
            None => found = Some((name, value)),
            Some((_, first)) if *first == value => {}
            Some((place, _)) => return Err(conflicting_keys(place, name)),
        }
    }
    Ok(found.map(|(_, text)| text))
}

/// Error for a request with two different keys: the account that pays must not depend on the order of headers.
pub(crate) fn conflicting_keys(one: &str, other: &str) -> ApiError {
    let places = if one == other { format!("in '{one}'") } else { format!("in '{one}' and in '{other}'") };
    ApiError::new(ErrorKind::InvalidKey, format!("Two different API keys were sent, {places}; send one."))
}

/// Sets the key of a request, and returns it.
///
/// # Errors
/// Returns the error for the client if the key is unknown, disabled or expired.
pub(crate) fn set_key(ctx: &mut Context, found: Option<&Arc<Key>>, text: &str) -> Result<Arc<Key>, ApiError> {
    let Some(key) = found else {
        let message = if is_mistyped(text) {
            "Incorrect API key provided: it is incomplete or mistyped (its checksum does not match)."
        } else {
            "Incorrect API key provided."
        };
        return Err(ApiError::new(ErrorKind::InvalidKey, message));
    };
    // Set before its state is checked: the log names the key of a refused request.
    ctx.phase.authenticate(key.clone());
    match key.state(ctx.now()) {
        KeyState::Usable => Ok(key.clone()),
        KeyState::Disabled => Err(ApiError::new(ErrorKind::DisabledKey, "This API key is disabled.")),
        KeyState::Expired => Err(ApiError::new(ErrorKind::ExpiredKey, "This API key has expired.")),
    }
}

/// Checks that the key may be used from the client's address, with its certificate, and for this endpoint.
///
/// # Errors
/// Returns [`ErrorKind::NetworkNotPermitted`], [`ErrorKind::CertificateNotPermitted`] or
/// [`ErrorKind::EndpointNotPermitted`].
pub(crate) fn authorize(
    key: &Key,
    client: &Client,
    ctx: &Context,
    endpoint: &Endpoint,
) -> Result<(), ApiError> {
    if !key.rules.permits_address(ctx.address) {
        let message = "This API key may not be used from this network.";
        return Err(ApiError::new(ErrorKind::NetworkNotPermitted, message));
    }
    if !key.rules.permits_certificate(certificate_of(client)) {
        let message = "This API key may not be used without a client certificate that it permits.";
        return Err(ApiError::new(ErrorKind::CertificateNotPermitted, message));
    }
    let api = match endpoint {
        Endpoint::Response { .. } | Endpoint::ResponseItems { .. } => Some(Api::Responses),
        _ if endpoint.label() == COUNTING => Some(Api::CountTokens),
        endpoint => endpoint.api(),
    };
    match api {
        Some(api) if !key.rules.endpoints.permits(api.name()) => {
            let message = format!("This API key may not use the {api} API.");
            Err(ApiError::new(ErrorKind::EndpointNotPermitted, message))
        }
        // The model list needs no permission: it shows only the models that the key may use.
        _ => Ok(()),
    }
}

impl Gateway {
    /// Returns the address of a client: that of its connection, or the one that a trusted proxy names. `None` if it is
    /// unknown.
    pub(crate) fn client_address(&self, client: &Client) -> Option<IpAddr> {
        let peer = client.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip());
        let proxies = &self.trusted_proxies;
        if proxies.networks.is_empty() {
            return peer;
        }
        let name = match proxies.header {
            ForwardedHeader::XForwardedFor => names::X_FORWARDED_FOR,
            ForwardedHeader::Forwarded => http::header::FORWARDED,
        };
        let lines = client.req_header().headers.get_all(name);
        proxies.client(peer, lines.iter().map(HeaderValue::as_bytes))
    }
}

/// Returns the certificate with which the client has authenticated its connection. `None` without TLS or without one.
fn certificate_of(client: &Client) -> Option<&ClientCertificate> {
    client.digest()?.ssl_digest.as_ref()?.extension.get::<ClientCertificate>()
}

/// Checks that the key permits the models that the body names besides the requested one (such as fallback models). They
/// are names at the provider or of this gateway; the key's patterns must permit them either way.
///
/// # Errors
/// Returns [`ErrorKind::ModelNotPermitted`] for the first name that is not permitted or cannot be read.
pub(crate) fn authorize_named_models(
    routes: &RoutingTable,
    key: &Key,
    body: &mut Body,
) -> Result<(), ApiError> {
    let models = &key.rules.models;
    if !body.names_models() || *models == Permission::All {
        return Ok(());
    }
    let permitted = |name: &str| models.permits(routes.resolve(name).map_or(name, |named| &*named.model.id));
    for NamedModels { member, names, unreadable } in body.named_models() {
        let refused = names.iter().find(|name| !permitted(name));
        let message = match refused {
            Some(name) => {
                let name = super::refusals::short(name);
                format!("This API key may not use the model `{name}`, named in '{member}'.")
            }
            None if unreadable => {
                format!(
                    "This API key is restricted to certain models, and '{member}' is not a list of models."
                )
            }
            None => continue,
        };
        return Err(ApiError::new(ErrorKind::ModelNotPermitted, message).param(member));
    }
    Ok(())
}

/// Returns the key of an access token at `now`, in Unix seconds. `None` if the key no longer exists.
///
/// # Errors
/// Returns [`ErrorKind::ExpiredKey`] or [`ErrorKind::InvalidKey`] if the token is not valid.
pub(crate) fn key_of<'k>(
    tokens: &Tokens,
    keys: &'k Keys,
    token: &str,
    now: i64,
) -> Result<Option<&'k Arc<Key>>, ApiError> {
    match tokens.verify(token) {
        Ok(hash) => Ok(keys.of_hash_at(hash, now)),
        Err(TokenFault::Expired) => {
            Err(ApiError::new(ErrorKind::ExpiredKey, "The access token has expired; request a new one."))
        }
        Err(TokenFault::Invalid) => {
            Err(ApiError::new(ErrorKind::InvalidKey, "The access token is not valid."))
        }
    }
}
