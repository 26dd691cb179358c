//! Deployments of one name, which LiteLLM balances: the targets of one model.

use std::collections::BTreeMap;

use super::Context;
use super::deployments::Deployment;
use crate::import::draft::{MAX_WEIGHT, TargetDraft};

/// Adds deployments of one model to the result, with their weights.
pub(super) fn join(context: &mut Context<'_>, deployments: &[Deployment]) {
    let shuffled = context.policy.is_none();
    // LiteLLM draws by the first of these that the first deployment has.
    let weight = |deployment: &Deployment| -> Option<f64> {
        let first = deployments.first()?;
        match (first.weight, first.rpm, first.tpm) {
            (Some(_), _, _) => deployment.weight.or(Some(0.0)),
            (None, Some(_), _) => deployment.rpm.map(|rpm| rpm as f64).or(Some(0.0)),
            (None, None, Some(_)) => deployment.tpm.map(|tpm| tpm as f64).or(Some(0.0)),
            (None, None, None) => None,
        }
    };
    let weights: Vec<Option<f64>> =
        deployments.iter().map(|deployment| weight(deployment).filter(|_| shuffled)).collect();
    let weights = whole_weights(&weights);
    let mut orders: Vec<u64> = deployments.iter().map(|deployment| deployment.order).collect();
    orders.sort_unstable();
    orders.dedup();
    let common = common_price(deployments);
    for (deployment, weight) in deployments.iter().zip(weights) {
        let mut provider = deployment.provider.clone();
        provider.origin.clone_from(&deployment.origin);
        let provider = context.draft.provider(provider);
        let tier = orders.iter().position(|order| *order == deployment.order).unwrap_or(0).min(15);
        let target = TargetDraft {
            family: deployment.family.clone(),
            weight,
            tier: u8::try_from(tier).unwrap_or(15),
            concurrent: deployment.concurrent,
            requests_per_minute: deployment.rpm,
            tokens_per_minute: deployment.tpm,
            price: common.and_then(|common| own_price(context, deployment, common)),
            ..TargetDraft::new(provider, deployment.model.as_str())
        };
        if !context.draft.target(&deployment.id, &deployment.origin, target) {
            context.report.remark(format!(
                "the model {:?} has more than 64 targets: those from {} on are left out",
                deployment.id, deployment.origin
            ));
            break;
        }
    }
    let Some(id) = deployments.first().map(|deployment| deployment.id.clone()) else { return };
    let Some(model) = context.draft.model(&id) else { return };
    // LiteLLM draws evenly if no deployment has a weight above 0.
    if model.targets.iter().all(|target| target.weight == 0) {
        model.targets.iter_mut().for_each(|target| target.weight = 1);
    }
    model.policy = context.policy.filter(|_| model.targets.len() > 1);
    let longest = |time: fn(&Deployment) -> Option<u64>| deployments.iter().filter_map(time).max();
    model.timeouts.first_byte = longest(|deployment| deployment.timeouts.first_byte);
    model.timeouts.idle = longest(|deployment| deployment.timeouts.idle);
    model.context_window = longest(|deployment| deployment.context_window);
    model.max_output_tokens = longest(|deployment| deployment.max_output);
    if model.context_window.is_some() && model.max_output_tokens > model.context_window {
        model.max_output_tokens = model.context_window;
    }
    if let Some(price) = common_price(deployments) {
        model.price.clone_from(price);
    }
}

/// Returns the price of the model: that of its first deployment that has one. `None` if no deployment has one.
fn common_price(deployments: &[Deployment]) -> Option<&BTreeMap<&'static str, String>> {
    deployments.iter().map(|deployment| &deployment.price).find(|price| !price.is_empty())
}

/// Returns the entry of prices.toml for a deployment whose price is not that of its model; `None` for any other.
fn own_price(
    context: &mut Context<'_>,
    deployment: &Deployment,
    common: &BTreeMap<&'static str, String>,
) -> Option<String> {
    if deployment.price.is_empty() || deployment.price == *common {
        return None;
    }
    let known = context.draft.prices.iter().find(|(_, price)| **price == deployment.price);
    if let Some((name, _)) = known {
        return Some(name.clone());
    }
    let name = format!("deployment-price-{}", context.draft.prices.len().saturating_add(1));
    context.draft.prices.insert(name.clone(), deployment.price.clone());
    Some(name)
}

/// Scales weights to whole numbers with at most three significant decimals of the smallest ones; without weights, all
/// are 1.
pub(in crate::import) fn whole_weights(weights: &[Option<f64>]) -> Vec<u64> {
    let largest = weights.iter().flatten().fold(0.0_f64, |largest, weight| largest.max(*weight));
    let whole = weights.iter().flatten().all(|weight| weight.fract() == 0.0);
    let scale = match largest {
        largest if largest <= 0.0 => 1.0,
        largest if whole && largest <= MAX_WEIGHT as f64 => 1.0,
        largest => (MAX_WEIGHT as f64 / largest).min(1000.0),
    };
    let scaled = |weight: f64| match weight {
        weight if weight <= 0.0 => 0,
        weight => ((weight * scale).round() as u64).clamp(1, MAX_WEIGHT),
    };
    weights.iter().map(|weight| weight.map_or(1, scaled)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_become_whole_numbers() {
        assert_eq!(whole_weights(&[Some(60.0), Some(40.0)]), [60, 40]);
        assert_eq!(whole_weights(&[Some(0.9), Some(0.1), None]), [900, 100, 1]);
        assert_eq!(whole_weights(&[Some(0.0), Some(2e6)]), [0, 1_000_000]);
        assert_eq!(whole_weights(&[None, None]), [1, 1]);
    }
}
