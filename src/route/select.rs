//! Through which API a target is asked.

use super::Target;
use crate::wire::Api;

/// Whether a target can answer a request that came through `api`, as it is or translated.
pub fn upstream_api(target: &Target, api: Api) -> Option<Api> {
    if target.provider.offers(api) {
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
    target.provider.apis.iter().copied().find(|offered| offered.format().is_some())
}
