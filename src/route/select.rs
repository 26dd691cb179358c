//! Through which API a target is asked.

use super::Target;
use crate::canonical::dialect::Sampling;
use crate::wire::Api;

/// Whether a target can answer a request that came through `api`, as it is or translated.
pub fn upstream_api(target: &Target, api: Api) -> Option<Api> {
    if target.provider.offers(api) && !(api == Api::Chat && is_for_responses(target)) {
        return Some(api);
    }
    // Vectors are vectors, in whichever of two formats they are asked for.
    match api {
        Api::Embeddings => return target.provider.offers(Api::EmbedContent).then_some(Api::EmbedContent),
        Api::EmbedContent => return target.provider.offers(Api::Embeddings).then_some(Api::Embeddings),
        _ => {}
    }
    // Any of the four formats can be had from any other.
    api.format()?;
    let apis = target.provider.apis.iter().copied();
    let mut fitting = apis.filter(|offered| *offered != Api::Chat || !is_for_responses(target));
    fitting.find(|offered| offered.format().is_some())
}

/// Whether the model is one of those that its provider serves through the responses API alone, and the provider has
/// that.
fn is_for_responses(target: &Target) -> bool {
    target.provider.offers(Api::Responses) && target.provider.serves_responses_only(&target.model)
}

/// The API of a target that has a word for what ends an answer, where its first one has none.
pub fn api_that_stops(target: &Target) -> Option<Api> {
    let provider = &target.provider;
    let takes_it = provider.offers(Api::Chat)
        && !is_for_responses(target)
        && provider.dialect(Api::Chat, &target.model).sampling != Sampling::None;
    takes_it.then_some(Api::Chat)
}
