//! Whose a request is: the key that it carries, and whether that may be used from where it comes, and for this.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderName;
use pingora::http::RequestHeader;

use super::context::Context;
use super::names;
use super::request::COUNTING;
use super::task::key_of;
use crate::account::{Key, KeyState, Permission, is_mistyped, is_token};
use crate::error::{ApiError, Kind};
use crate::route::RoutingTable;
use crate::wire::Api;
use crate::wire::body_facts::NamedModels;
use crate::wire::path::{self, Endpoint};
use crate::wire::request::Body;
use crate::wire::tasks::Place;

/// Headers that a key may stand in (specification, section 5). Those that are empty carry no key: SDKs send one for a
/// setting that is not set.
static KEY_HEADERS: [HeaderName; 4] =
    [names::X_API_KEY, names::X_GOOG_API_KEY, names::X_VENDOR_API_KEY, names::API_KEY];

/// The header of a bearer token.
static AUTHORIZATION: HeaderName = http::header::AUTHORIZATION;

/// Finds the key and whether it may be used.
pub(super) fn authenticate(head: &RequestHeader, ctx: &mut Context) -> Result<(), ApiError> {
    let Some(text) = only_key(head)? else {
        return Err(ApiError::new(
            Kind::MissingKey,
            "You didn't provide an API key. Send it as `Authorization: Bearer <API_KEY>`.",
        ));
    };
    let live = ctx.live.clone();
    let found = match (&ctx.endpoint, &live.snapshot.tokens) {
        // A token does not bring another one.
        (Some(Endpoint::Group(Place::Submit(_) | Place::Query(_) | Place::Content(_))), Some(tokens))
            if is_token(&text) =>
        {
            key_of(tokens, &live.snapshot.keys, &text)?
        }
        _ => live.snapshot.keys.find(&text),
    };
    use_key(ctx, found, &text)
}

/// The key of a request: the same in every place where one stands, or `None` where none stands.
pub(super) fn only_key(head: &RequestHeader) -> Result<Option<Cow<'_, str>>, ApiError> {
    let values = |name: &'static HeaderName| {
        head.headers.get_all(name).iter().map(|value| (name.as_str(), value.as_bytes().trim_ascii()))
    };
    let bearer = values(&AUTHORIZATION).filter_map(|(name, value)| {
        let (scheme, token) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| (name, token.trim_ascii()))
    });
    // What is not UTF-8 is no key that anybody has, but it is not nothing either.
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
            Some((place, _)) => return Err(two_keys(place, name)),
        }
    }
    Ok(found.map(|(_, text)| text))
}

/// A request with two different keys: whose it is, and who pays, must not depend on the order of headers.
pub(super) fn two_keys(one: &str, other: &str) -> ApiError {
    let places = if one == other { format!("in '{one}'") } else { format!("in '{one}' and in '{other}'") };
    ApiError::new(Kind::InvalidKey, format!("Two different API keys were sent, {places}; send one."))
}

/// Takes the key that was found, if it may be used.
pub(super) fn use_key(ctx: &mut Context, found: Option<&Arc<Key>>, text: &str) -> Result<(), ApiError> {
    let Some(key) = found else {
        let message = if is_mistyped(text) {
            "Incorrect API key provided: it is incomplete or mistyped (its checksum does not match)."
        } else {
            "Incorrect API key provided."
        };
        return Err(ApiError::new(Kind::InvalidKey, message));
    };
    ctx.key = Some(key.clone());
    match key.state(ctx.now()) {
        KeyState::Usable => Ok(()),
        KeyState::Disabled => Err(ApiError::new(Kind::DisabledKey, "This API key is disabled.")),
        KeyState::Expired => Err(ApiError::new(Kind::ExpiredKey, "This API key has expired.")),
    }
}

/// Whether the key may be used from here, and for this.
pub(super) fn permit(ctx: &Context, address: Option<IpAddr>, endpoint: &Endpoint) -> Result<(), ApiError> {
    let Some(key) = &ctx.key else { return Ok(()) };
    if !key.rules.permits_address(address) {
        let message = "This API key may not be used from this network.";
        return Err(ApiError::new(Kind::NetworkNotPermitted, message));
    }
    let api = match endpoint {
        Endpoint::Response { .. } | Endpoint::ResponseItems { .. } => Some(Api::Responses),
        _ if endpoint.label() == COUNTING => Some(Api::CountTokens),
        endpoint => endpoint.api(),
    };
    match api {
        Some(api) if !key.rules.endpoints.permits(api.name()) => {
            let message = format!("This API key may not use the {api} API.");
            Err(ApiError::new(Kind::EndpointNotPermitted, message))
        }
        // The list shows no more than the key may use.
        _ => Ok(()),
    }
}

/// Whether the key may use the models that the body names besides the one that it asks for. They are names at the
/// provider, or of this gateway: either way the key's patterns must permit them.
pub(super) fn permit_named_models(
    routes: &RoutingTable,
    ctx: &Context,
    body: &mut Body,
) -> Result<(), ApiError> {
    let Some(key) = &ctx.key else { return Ok(()) };
    let models = &key.rules.models;
    if !body.names_models() || *models == Permission::All {
        return Ok(());
    }
    let permitted = |name: &str| models.permits(routes.resolve(name).map_or(name, |named| &*named.model.id));
    for NamedModels { member, names, unreadable } in body.named_models() {
        let refused = names.iter().find(|name| !permitted(name));
        let message = match refused {
            Some(name) => {
                let name = super::request::short(name);
                format!("This API key may not use the model `{name}`, which '{member}' names.")
            }
            None if unreadable => {
                format!("This API key may use certain models only, and '{member}' is no list of models.")
            }
            None => continue,
        };
        return Err(ApiError::new(Kind::ModelNotPermitted, message).param(member));
    }
    Ok(())
}
