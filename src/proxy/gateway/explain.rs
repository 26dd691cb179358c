//! Explanation of a request: what each of its targets would get, without sending anything.

use bytes::Bytes;

use super::plan::respelling_losses;
use super::refit::doubtful;
use crate::Gateway;
use admin::{ExplainRequest, ExplainedTarget, Explanation};
use codec::canonical::{Dialect, RequestFeatures, Thinking, Usage};
use codec::tokens::{TokenizerFamily, count_request};
use codec::translate::{StoreOptions, TranslateRequest, decode_request, outgoing_stored};
use codec::wire::codec::Loss;
use codec::wire::request::{Body, BodyReader};
use codec::wire::{Api, chat};
use json::{EscapedString, JsonText};
use routing::account::price::Terms;
use routing::route::{Target, upstream_api};

/// Targets that are explained; a model with more shows the first ones.
const TARGETS: usize = 32;
/// Id of a request that is not sent.
const ID: &str = "req_explained";

impl Gateway {
    /// Explains a request. `None` if no model has the name.
    pub(crate) fn explain(&self, request: &ExplainRequest<'_>) -> Option<Explanation> {
        let live = self.live.load_full();
        let named = live.snapshot.routes.resolve(request.model)?;
        let is_meant = |target: &&Target| named.provider.is_none_or(|name| *target.provider.name == *name);
        let targets = named.model.targets.iter().filter(is_meant).take(TARGETS);
        let input_tokens = count(live.tokenizer(named.model), request);
        let usage = Usage { input: input_tokens, ..Usage::default() };
        let now = Terms { at: routing::account::price::now(), ..Terms::default() };
        let is_charged = !named.model.price.is_empty() && input_tokens.is_some();
        Some(Explanation {
            model: named.model.id.to_string(),
            input_tokens,
            input_cost: is_charged.then(|| named.model.price.cost(&usage, &[], &now)),
            targets: targets.map(|target| explain_target(target, request, named.thinking)).collect(),
        })
    }
}

fn count(tokenizer: TokenizerFamily, request: &ExplainRequest<'_>) -> Option<u64> {
    let decoded = decode_request(request.format, request.body).ok()?;
    Some(count_request(tokenizer, &decoded))
}

fn explain_target(target: &Target, request: &ExplainRequest<'_>, thinking: Thinking) -> ExplainedTarget {
    let explained = ExplainedTarget {
        provider: target.provider.name.to_string(),
        model: target.model.to_string(),
        ..ExplainedTarget::default()
    };
    let api = upstream_api(target, request.format.api());
    let Some((api, format)) = api.and_then(|api| Some((api, api.format()?))) else {
        let error = Some("no API of this target serves the request".to_owned());
        return ExplainedTarget { error, ..explained };
    };
    let asks_first =
        format == request.format && thinking == Thinking::Unset && asks_first(target, api, request);
    let explained = ExplainedTarget { format: Some(format), asks_first, ..explained };
    let dialect = Dialect { model: &target.model, ..target.provider.dialect(api, target.known_model()) };
    let fits = || {
        let may_differ = api == Api::Chat && target.provider.needs_adaptation();
        !may_differ || chat::request::fits(request.body, &dialect)
    };
    if format == request.format && thinking == Thinking::Unset && fits() {
        match edited(api, request, &dialect) {
            Some(None) => return ExplainedTarget { verbatim: true, ..explained },
            Some(Some((body, losses))) => {
                return ExplainedTarget { body: Some(body), losses: shown(&losses), ..explained };
            }
            None => {}
        }
    }
    let translated = outgoing_stored(
        &JsonText::from(request.body),
        &TranslateRequest {
            client: request.format,
            provider: format,
            stream: request.stream,
            array: false,
            thinking,
            dialect: &dialect,
            model: &EscapedString::from(request.model),
            id: ID,
            seed: ID,
            now: 0,
        },
        StoreOptions::default(),
    );
    match translated {
        Ok(outgoing) => ExplainedTarget {
            body: Some(String::from_utf8_lossy(&outgoing.text()).into_owned()),
            losses: shown(&outgoing.losses),
            ..explained
        },
        Err(refused) => ExplainedTarget {
            losses: shown(&refused.losses),
            error: Some(refused.error.message.into_owned()),
            ..explained
        },
    }
}

/// Returns whether the provider is asked about the client's settings before the body is adapted, if it is the first target.
fn asks_first(target: &Target, api: Api, request: &ExplainRequest<'_>) -> bool {
    let Some(body) = read(api, request) else { return false };
    let dialect = target.dialect(api);
    let most = dialect.highest_limit(request.stream);
    doubtful(dialect.refuses, RequestFeatures::NONE, most, api, &body) != RequestFeatures::NONE
}

fn read(api: Api, request: &ExplainRequest<'_>) -> Option<Body> {
    let mut reader = BodyReader::new(api, false);
    reader.push(Bytes::copy_from_slice(request.body.as_bytes())).ok()?;
    reader.finish().ok()
}

/// Returns the body of a target of the client's format with what the target refuses edited: the inner `None` if the bytes
/// pass unchanged. The outer `None` if the body is encoded again.
fn edited(
    api: Api,
    request: &ExplainRequest<'_>,
    dialect: &Dialect<'_>,
) -> Option<Option<(String, Vec<Loss>)>> {
    let body = read(api, request)?;
    let held = body.held(dialect.refuses, dialect.most_output);
    if held == RequestFeatures::NONE {
        return Some(None);
    }
    if !body.is_settled_by_edits(held) {
        return None;
    }
    let spelled = body.respelled(dialect);
    if spelled.encode_again {
        return None;
    }
    let text = body.text.clone().edited(&spelled.edits).into_contiguous();
    Some(Some((String::from_utf8_lossy(&text).into_owned(), respelling_losses(&spelled))))
}

fn shown(losses: &[Loss]) -> Vec<(String, &'static str, bool)> {
    losses.iter().map(|loss| (loss.element.to_string(), loss.policy.name(), loss.clamped)).collect()
}
