//! Whose a request is: the key that it carries, and whether that may be used from where it comes, and for this.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderName;
use pingora::http::RequestHeader;

use super::context::Context;
use super::names;
use super::request::COUNTING;
use super::task::key_of;
use crate::account::{Key, Permission, State, is_mistyped, is_token};
use crate::error::{ApiError, Kind};
use crate::route::Table;
use crate::wire::Api;
use crate::wire::body_facts::NamedModels;
use crate::wire::path::{self, Endpoint};
use crate::wire::request::Body;
use crate::wire::tasks::Place;

/// Headers that a key may stand in, in the order in which they are looked at (specification, section 5; Anthropic's
/// SDK prefers `x-api-key` when both are there).
const KEY_HEADERS: [HeaderName; 4] =
    [names::X_API_KEY, names::X_GOOG_API_KEY, names::X_VENDOR_API_KEY, names::API_KEY];

/// Finds the key and whether it may be used.
pub(super) fn authenticate(head: &RequestHeader, ctx: &mut Context) -> Result<(), ApiError> {
    let in_header = KEY_HEADERS.iter().find_map(|name| head.headers.get(name)).map(|value| value.as_bytes());
    let bearer = || {
        let value = head.headers.get(http::header::AUTHORIZATION)?.as_bytes();
        let (scheme, token) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
    };
    let in_query = || path::query_value(head.uri.query(), "key");
    let from_head = in_header.or_else(bearer).and_then(|key| std::str::from_utf8(key).ok());
    let text = match from_head {
        Some(key) => Some(key.into()),
        None => in_query(),
    };
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Err(ApiError::new(
            Kind::MissingKey,
            "You didn't provide an API key. Send it as `Authorization: Bearer <API_KEY>`.",
        ));
    };
    let live = ctx.live.clone();
    let found = match (&ctx.endpoint, &live.snapshot.tokens) {
        // A token does not bring another one.
        (Some(Endpoint::Group(Place::Submit(_) | Place::Query(_))), Some(tokens)) if is_token(&text) => {
            key_of(tokens, &live.snapshot.keys, &text)?
        }
        _ => live.snapshot.keys.find(&text),
    };
    use_key(ctx, found, &text)
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
        State::Usable => Ok(()),
        State::Disabled => Err(ApiError::new(Kind::DisabledKey, "This API key is disabled.")),
        State::Expired => Err(ApiError::new(Kind::ExpiredKey, "This API key has expired.")),
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
pub(super) fn permit_named_models(routes: &Table, ctx: &Context, body: &mut Body) -> Result<(), ApiError> {
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
