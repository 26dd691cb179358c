//! Parameters of a deployment of LiteLLM that do not decide where it leads to: limits, time-outs, prices, headers.

use super::deployments::Deployment;
use super::{Context, REFERENCE};
use crate::import::document::{Field, FieldResult};
use crate::import::draft::{ProviderDraft, limit};
use codec::provider::ProviderKind;
use codec::wire::Api;
use routing::account::amount::{self, Amount};

/// Costs per token, and the keys of `model.price`, which are per million tokens.
const TOKEN_COSTS: &[(&str, &str)] = &[
    ("input_cost_per_token", "input"),
    ("output_cost_per_token", "output"),
    ("cache_read_input_token_cost", "cached_input"),
    ("cache_creation_input_token_cost", "cache_write"),
    ("output_cost_per_reasoning_token", "reasoning"),
    ("input_cost_per_audio_token", "audio_input"),
    ("output_cost_per_audio_token", "audio_output"),
];

/// Smallest `stream_timeout` that becomes an idle time-out, in milliseconds.
const LEAST_IDLE: u64 = 1_000;

const DEFAULTS: &str = "the gateway does not change what a request says; clients set this themselves";

/// Parameters without a counterpart, with the reason.
const PARAMETERS: &[(&str, &str)] = &[
    ("temperature", DEFAULTS),
    ("top_p", DEFAULTS),
    ("top_k", DEFAULTS),
    ("max_tokens", DEFAULTS),
    ("max_completion_tokens", DEFAULTS),
    ("stop", DEFAULTS),
    ("seed", DEFAULTS),
    ("n", DEFAULTS),
    ("user", DEFAULTS),
    ("presence_penalty", DEFAULTS),
    ("frequency_penalty", DEFAULTS),
    ("reasoning_effort", DEFAULTS),
    ("thinking", DEFAULTS),
    ("extra_body", DEFAULTS),
    ("num_ctx", "set it in the model file of Ollama; the gateway does not change what a request says"),
    ("max_retries", "a target is tried once for each request: retry.attempts counts targets"),
    ("ssl_verify", "certificates are always verified: put the server's CA into provider.ca"),
    (
        "additional_drop_params",
        "docs/translation.md lists what is dropped; remove the parameter at the client",
    ),
    (
        "allowed_openai_params",
        "docs/translation.md lists what is dropped; unknown parameters pass within a format",
    ),
    ("modify_params", "docs/translation.md lists how a request is adapted to its provider"),
    ("region_name", "name the region in provider.base_url"),
    ("tags", "targets are not chosen by tags; make a model of its own for them"),
    ("max_budget", "a deployment has no budget; limit keys and accounts (docs/accounts.md)"),
    ("budget_duration", "a deployment has no budget; limit keys and accounts (docs/accounts.md)"),
    ("mock_response", "the gateway does not invent responses; model-gateway demo has simulated providers"),
    ("mock_timeout", "the gateway does not invent failures"),
    ("use_in_pass_through", "the gateway has no pass-through endpoints"),
    ("merge_reasoning_content_in_choices", "reasoning is sent where the client's format has it"),
    ("input_cost_per_second", "prices are per token, image, second of video, search and request"),
    ("output_cost_per_second", "prices are per token, image, second of video, search and request"),
];

/// Members of `model_info` without a counterpart, with the reason.
const INFO: &[(&str, &str)] = &[
    ("id", "targets have no ids: provider and model name them in logs and metrics"),
    ("description", "model listings have no descriptions"),
    ("base_model", "the price of a model is set in model.price or a price file"),
    ("health_check_timeout", "health checks are of providers: provider.check"),
    ("health_check_model", "health checks are of providers: provider.check"),
    ("access_groups", "key.models lists models by name and pattern"),
    ("team_id", "key.models restricts a key to models"),
    ("metadata", "models have no metadata"),
];

/// Reports the parameters that nothing else reads.
pub(super) fn report_rest(context: &mut Context<'_>, params: &Field<'_>) {
    for (key, reason) in PARAMETERS {
        if let Some(field) = params.get(key) {
            context.report.impossible(&field, reason);
        }
    }
    if let Some(field) = params.get("drop_params") {
        let note = "a setting of keys here: key.losses = \"allow\" drops without a warning, and the default drops with one";
        context.report.changed(&field, "key.losses", note);
    }
}

/// Reads `headers` and `extra_headers`. One that may be a secret is not written into the configuration.
pub(super) fn read_headers(
    context: &mut Context<'_>,
    params: &Field<'_>,
    provider: &mut ProviderDraft,
) -> FieldResult<()> {
    const MANAGED: [&str; 6] =
        ["host", "connection", "content-length", "content-type", "transfer-encoding", "accept"];
    if let Some(field) = params.set("organization") {
        let text = field.text()?;
        if text.starts_with(REFERENCE) {
            context.report.impossible(&field, "set the header openai-organization in provider.headers");
        } else {
            provider.headers.push(("openai-organization".to_owned(), text.to_owned()));
            context.report.taken(&field, "provider.headers");
        }
    }
    for key in ["headers", "extra_headers"] {
        let Some(headers) = params.get(key) else { continue };
        for (name, field) in headers.members()? {
            let lower = name.to_ascii_lowercase();
            let value = field.text()?;
            let secret = ["auth", "key", "token", "secret", "cookie"].iter().any(|word| lower.contains(word));
            if MANAGED.contains(&lower.as_str()) {
                context.report.changed(&field, "", "the gateway sets this header itself");
            } else if secret || value.starts_with(REFERENCE) {
                let reason =
                    "a header with a secret: use provider.credential, or set it in provider.headers yourself";
                context.report.impossible(&field, reason);
            } else if http::HeaderName::from_bytes(name.as_bytes()).is_err()
                || http::HeaderValue::from_str(value).is_err()
                || provider.headers.iter().any(|(known, _)| *known == lower)
            {
                context.report.impossible(&field, "not a valid header, or one that is set twice");
            } else {
                provider.headers.push((lower, value.to_owned()));
                context.report.taken(&field, "provider.headers");
            }
        }
    }
    Ok(())
}

/// Reads the limits and the weight, which occur in `litellm_params` and beside it.
pub(super) fn read_limits(
    context: &mut Context<'_>,
    field: &Field<'_>,
    params: &Field<'_>,
    deployment: &mut Deployment,
) -> FieldResult<()> {
    let note = "the gateway always enforces it; LiteLLM with some routing strategies only";
    for place in [field, params] {
        if let Some(rpm) = context.number(place, "rpm")? {
            deployment.rpm = limit(rpm.integer()?);
            context.report.changed(&rpm, "model.targets.requests_per_minute", note);
        }
        if let Some(tpm) = context.number(place, "tpm")? {
            deployment.tpm = limit(tpm.integer()?);
            context.report.changed(&tpm, "model.targets.tokens_per_minute", note);
        }
    }
    if let Some(weight) = context.number(params, "weight")? {
        deployment.weight = weight.number()?.parse::<f64>().ok();
        context.report.taken(&weight, "model.targets.weight");
    }
    if let Some(order) = context.number(params, "order")? {
        deployment.order = order.integer()?;
        context.report.taken(&order, "model.targets.tier");
    }
    if let Some(parallel) = context.number(params, "max_parallel_requests")? {
        deployment.concurrent = limit(parallel.integer()?);
        context.report.taken(&parallel, "model.targets.concurrent");
    }
    Ok(())
}

pub(super) fn read_timeouts(
    context: &mut Context<'_>,
    params: &Field<'_>,
    deployment: &mut Deployment,
) -> FieldResult<()> {
    if let Some(field) = context.number(params, "timeout")? {
        deployment.timeouts.first_byte = Some(field.millis()?.max(1));
        let note =
            "the time until the response begins; of several deployments of a model the longest applies";
        context.report.changed(&field, "model.timeouts.first_byte", note);
    }
    if let Some(field) = context.number(params, "stream_timeout")? {
        let idle = field.millis()?;
        if idle >= LEAST_IDLE {
            deployment.timeouts.idle = Some(idle);
            let note = "the time between two reads of a response; of several deployments of a model the longest applies";
            context.report.changed(&field, "model.timeouts.idle", note);
        } else {
            let reason = "time-outs apply to all responses, and those that are no streams would fail with less than a second";
            context.report.impossible(&field, reason);
        }
    }
    Ok(())
}

/// Reads the costs from `litellm_params` or `model_info`.
pub(super) fn read_costs(
    context: &mut Context<'_>,
    place: &Field<'_>,
    info: Option<&Field<'_>>,
    deployment: &mut Deployment,
) -> FieldResult<()> {
    for (key, target) in TOKEN_COSTS {
        let Some(field) = context.number(place, key)? else { continue };
        match per_million(&field.number()?) {
            Some(amount) => {
                deployment.price.insert(target, amount);
                context.report.taken(&field, &format!("model.price.{target}"));
            }
            None => context.report.impossible(&field, "not an amount that the gateway can count exactly"),
        }
    }
    let mode = info.and_then(|info| info.set("mode")).and_then(|mode| mode.text().ok());
    for key in ["input_cost_per_image", "output_cost_per_image"] {
        let Some(field) = context.number(place, key)? else { continue };
        let amount = amount::parse(&field.number()?).ok().filter(|_| mode == Some("image_generation"));
        match amount {
            Some(nanos) => {
                deployment.price.insert("image", Amount(nanos).to_string());
                context.report.taken(&field, "model.price.image");
            }
            None => context.report.impossible(
                &field,
                "images in a conversation are charged by their tokens: model.price.image_input",
            ),
        }
    }
    Ok(())
}

/// Converts a cost per token to an exact price per million tokens. `None` if it is not an amount.
fn per_million(cost: &str) -> Option<String> {
    let (mantissa, exponent) = cost.split_once(['e', 'E']).unwrap_or((cost, "0"));
    let exponent = exponent.parse::<i32>().ok()?.checked_add(6)?;
    amount::parse(&format!("{mantissa}e{exponent}")).ok().map(|nanos| Amount(nanos).to_string())
}

pub(super) fn read_info(
    context: &mut Context<'_>,
    info: &Field<'_>,
    deployment: &mut Deployment,
) -> FieldResult<()> {
    if let Some(field) = context.number(info, "max_input_tokens")? {
        deployment.context_window = limit(field.integer()?);
        context.report.changed(
            &field,
            "model.context_window",
            "shown in model listings; it does not limit requests",
        );
    }
    for key in ["max_output_tokens", "max_tokens"] {
        let Some(field) = context.number(info, key)? else { continue };
        if deployment.max_output.is_none() {
            deployment.max_output = limit(field.integer()?);
        }
        context.report.changed(
            &field,
            "model.max_output_tokens",
            "shown in model listings, and the most that a request can ask for",
        );
    }
    if let Some(field) = info.get("mode") {
        let is_images = field.text().is_ok_and(|mode| mode == "image_generation");
        if is_images && deployment.provider.kind == ProviderKind::OpenAiCompatible {
            deployment.provider.apis = &[Api::Images];
            let note = "a server of OpenAI's API offers images only if its provider says so";
            context.report.changed(&field, "provider.apis", note);
        } else {
            let note = "the gateway knows the APIs of a provider by its kind: provider.apis restricts them";
            context.report.changed(&field, "", note);
        }
    }
    for (key, reason) in INFO {
        if let Some(field) = info.get(key) {
            context.report.impossible(&field, reason);
        }
    }
    for (key, field) in info.members()? {
        if key.starts_with("supports_") {
            context.report.changed(
                &field,
                "",
                "the gateway knows what models support by their names (docs/providers.md)",
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_per_token_is_an_exact_price_per_million() {
        for (cost, price) in [
            ("0.00000125", "1.25"),
            ("1.25e-06", "1.25"),
            ("0.0", "0"),
            ("3e-7", "0.3"),
            ("0.000000000000001", "0.000000001"),
        ] {
            assert_eq!(per_million(cost).as_deref(), Some(price), "{cost}");
        }
        for cost in ["1e-20", "x", "1e999999999999", "-1"] {
            assert_eq!(per_million(cost), None, "{cost}");
        }
    }
}
