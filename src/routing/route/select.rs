//! Selects the upstream API through which a target serves a request.

use super::Target;
use codec::wire::Api;

/// Returns the API through which `target` can serve a request that came through `api`: the same one if the provider
/// offers it, otherwise one that the request can be translated to. Returns `None` if the target cannot serve it.
pub fn upstream_api(target: &Target, api: Api) -> Option<Api> {
    if target.serves(api) && !(api == Api::Chat && is_for_responses(target)) {
        return Some(api);
    }
    // The two embedding APIs translate into each other.
    match api {
        Api::Embeddings | Api::EmbedContent => {
            let other = if api == Api::Embeddings { Api::EmbedContent } else { Api::Embeddings };
            return target.serves(other).then_some(other);
        }
        _ => {}
    }
    // Any of the four formats translates into any other; an API without a format translates into none.
    api.format()?;
    let apis = target.provider.apis.iter().copied();
    let apis = apis.filter(|offered| target.serves(*offered));
    let mut fitting = apis.filter(|offered| *offered != Api::Chat || !is_for_responses(target));
    fitting.find(|offered| offered.format().is_some())
}

/// Returns whether the provider serves this model through the responses API only, and offers that API.
fn is_for_responses(target: &Target) -> bool {
    target.provider.offers(Api::Responses) && target.rules().responses_only
}

/// Returns the chat API if the target supports stop sequences there, which the responses API lacks. Returns `None` if
/// the target does not offer chat for this model, or the model takes no sampling parameters.
pub fn stop_sequence_api(target: &Target) -> Option<Api> {
    (target.rules().stops_in_chat && !is_for_responses(target)).then_some(Api::Chat)
}
