//! The choice of a target.

use super::{Model, Target};
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

/// Picks a target of `model` that fits, by weight. `point` is uniform over all of `u64`.
pub fn by_weight(model: &Model, point: u64, fits: impl Fn(&Target) -> bool) -> Option<&Target> {
    let fitting = || model.targets.iter().filter(|target| target.weight > 0 && fits(target));
    let total: u64 = fitting().map(|target| u64::from(target.weight)).sum();
    // The high half of the product maps the point onto [0, total) without a division.
    let mut left = u64::try_from((u128::from(point) * u128::from(total)) >> 64).unwrap_or(0);
    for target in fitting() {
        let weight = u64::from(target.weight);
        if left < weight {
            return Some(target);
        }
        left -= weight;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::EscapedString;
    use crate::vendor::{BaseUrl, Kind, Provider, Setup};
    use std::sync::Arc;

    fn model(weights: &[(u32, &[Api])]) -> Model {
        let targets = weights
            .iter()
            .map(|(weight, apis)| Target {
                provider: Arc::new(Provider::new(Setup {
                    name: format!("p{weight}"),
                    kind: Kind::OpenAi,
                    apis: apis.to_vec(),
                    base: BaseUrl::parse("http://127.0.0.1:1/v1").unwrap(),
                })),
                model: "m".into(),
                weight: *weight,
            })
            .collect();
        Model {
            index: 0,
            id: "m".into(),
            escaped_id: EscapedString::from("m"),
            owned_by: "x".into(),
            created: 0,
            targets,
            price: Arc::default(),
        }
    }

    #[test]
    fn shares_follow_the_weights() {
        let model = model(&[(1, &[Api::Chat]), (3, &[Api::Chat]), (0, &[Api::Chat]), (5, &[Api::Messages])]);
        let mut counts = [0u32; 2];
        let steps = 40_000u64;
        for step in 0..steps {
            let chats = |target: &Target| target.provider.offers(Api::Chat);
            let target = by_weight(&model, u64::MAX / steps * step, chats).unwrap();
            counts[usize::from(target.weight == 3)] += 1;
        }
        assert!((9_900..=10_100).contains(&counts[0]), "{counts:?}");
        let offers = |api| move |target: &Target| target.provider.offers(api);
        assert_eq!(by_weight(&model, u64::MAX, offers(Api::Messages)).unwrap().weight, 5);
        assert!(by_weight(&model, 7, offers(Api::Generate)).is_none());
    }

    #[test]
    fn the_same_format_comes_first_and_any_chat_format_serves() {
        let model = model(&[(1, &[Api::Embeddings, Api::Responses, Api::Chat]), (1, &[Api::Embeddings])]);
        let api = |target: usize, api| upstream_api(&model.targets[target], api);
        assert_eq!(api(0, Api::Chat), Some(Api::Chat));
        assert_eq!(api(0, Api::Messages), Some(Api::Responses));
        assert_eq!(api(0, Api::EmbedContent), Some(Api::Embeddings));
        assert_eq!(api(0, Api::Rerank), None);
        assert_eq!(api(1, Api::Chat), None);
    }
}
