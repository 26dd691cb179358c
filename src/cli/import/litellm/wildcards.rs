//! Deployments of LiteLLM whose names are patterns, such as `openai/*`: the gateway lists models by name, so that the
//! provider is taken over, and of the models those that the source names elsewhere.

use super::deployments::{destination, endpoint_credential, report_endpoint};
use super::{Context, endpoint, parameters};
use crate::cli::import::document::{Field, FieldResult};
use crate::cli::import::wildcard::WildcardDraft;

/// Returns whether a text has a placeholder.
pub(super) fn is_pattern(text: &str) -> bool {
    text.contains('*')
}

/// Reads a deployment for which [`is_pattern`] holds of its name, or of its model.
pub(super) fn read(
    context: &mut Context<'_>,
    field: &Field<'_>,
    [name, params, model]: [&Field<'_>; 3],
) -> FieldResult<()> {
    // Of everything that has no outcome of its own.
    let reason = "limits, prices and time-outs of a pattern are set in each [[model]]";
    context.report.impossible(field, reason);
    let mut refuse = |context: &mut Context<'_>, reason: &str| {
        for part in [name, model] {
            context.report.impossible(part, reason);
        }
    };
    let id = name.text()?.trim().to_owned();
    let given = match destination(context, params, model)? {
        Ok(given) => given,
        Err(reason) => return Ok(refuse(context, &reason)),
    };
    if [&id, &given.model].iter().any(|text| text.matches('*').count() > 1) {
        return Ok(refuse(
            context,
            "the gateway has no patterns of models: add one [[model]] for each model",
        ));
    }
    if given.model == "*" && given.base.is_none() && given.provider.is_none() {
        let reason = "the provider depends on what clients ask for: add a [[provider]] for each, and one [[model]] for each \
                      model that clients use";
        return Ok(refuse(context, reason));
    }
    let mut endpoint = match endpoint::resolve(&given) {
        Ok(endpoint) => endpoint,
        Err(reason) => return Ok(refuse(context, &reason)),
    };
    endpoint.provider.credential = match endpoint_credential(context, params, &mut endpoint)? {
        Ok(credential) => credential,
        Err(reason) => return Ok(refuse(context, &reason)),
    };
    let (mut provider, model_name) = (endpoint.provider, endpoint.model);
    provider.timeouts = context.timeouts;
    provider.origin = format!("{} (line {})", field.path, field.node.line);
    parameters::read_headers(context, params, &mut provider)?;
    let origin = provider.origin.clone();
    let provider = context.draft.provider(provider);
    let wildcard = WildcardDraft { id, model: model_name, provider, origin };
    let note = format!(
        "the gateway has no patterns of models. The provider {:?} is there; models that the source names are too. For each \
         other model that clients use, add [[model]] with {}",
        wildcard.provider,
        wildcard.members("NAME").join(", ")
    );
    report_endpoint(context, params, model, &note);
    context.report.changed(name, "model.id", &note);
    context.draft.wildcards.push(wildcard);
    Ok(())
}
