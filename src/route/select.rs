//! The choice of a target.

use super::{Model, Target};
use crate::wire::Api;

/// Picks a target of `model` that offers `api`, by weight. `point` is uniform over all of `u64`.
pub fn by_weight(model: &Model, api: Api, point: u64) -> Option<&Target> {
    let fitting = || model.targets.iter().filter(|target| target.weight > 0 && target.provider.offers(api));
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
    use crate::route::Price;
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
            price: Price::default(),
        }
    }

    #[test]
    fn shares_follow_the_weights() {
        let model = model(&[(1, &[Api::Chat]), (3, &[Api::Chat]), (0, &[Api::Chat]), (5, &[Api::Messages])]);
        let mut counts = [0u32; 2];
        let steps = 40_000u64;
        for step in 0..steps {
            let target = by_weight(&model, Api::Chat, u64::MAX / steps * step).unwrap();
            counts[usize::from(target.weight == 3)] += 1;
        }
        assert!((9_900..=10_100).contains(&counts[0]), "{counts:?}");
        assert_eq!(by_weight(&model, Api::Messages, u64::MAX).unwrap().weight, 5);
        assert!(by_weight(&model, Api::Generate, 7).is_none());
    }
}
