//! Deployments of LiteLLM whose names are patterns, such as `openai/*`: the gateway lists models by name, so that the
//! provider is taken over, and of the models those that the source names elsewhere.

use super::deployments::{destination, endpoint_credential, report_endpoint};
use super::{Context, endpoint, parameters};
use crate::import::document::{Field, FieldResult};
use crate::import::wildcard::WildcardDraft;

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
    context.report.impossible(field, "limits, prices and time-outs of a pattern are set in each [[model]]");
    match wildcard(context, field, [name, params, model])? {
        Ok(wildcard) => {
            let note = format!(
                "the gateway has no patterns of models. The provider {:?} is there; models that the source names are too. \
                 For each other model that clients use, add [[model]] with {}",
                wildcard.provider,
                wildcard.members("NAME").join(", ")
            );
            report_endpoint(context, params, model, &note);
            context.report.changed(name, "model.id", &note);
            context.draft.wildcards.push(wildcard);
        }
        Err(reason) => [name, model].iter().for_each(|part| context.report.impossible(part, &reason)),
    }
    Ok(())
}

/// Adds the provider of a pattern. Returns the pattern, or the reason why its provider is not in the result.
fn wildcard(
    context: &mut Context<'_>,
    field: &Field<'_>,
    [name, params, model]: [&Field<'_>; 3],
) -> FieldResult<Result<WildcardDraft, String>> {
    let id = name.text()?.trim().to_owned();
    let given = match destination(context, params, model)? {
        Ok(given) => given,
        Err(reason) => return Ok(Err(reason)),
    };
    if [&id, &given.model].iter().any(|text| text.matches('*').count() > 1) {
        let reason = "the gateway has no patterns of models: add one [[model]] for each model";
        return Ok(Err(reason.to_owned()));
    }
    if given.model == "*" && given.base.is_none() && given.provider.is_none() {
        let reason = "the provider depends on what clients ask for: add a [[provider]] for each, and one [[model]] for \
                      each model that clients use";
        return Ok(Err(reason.to_owned()));
    }
    let mut endpoint = match endpoint::resolve(&given) {
        Ok(endpoint) => endpoint,
        Err(reason) => return Ok(Err(reason)),
    };
    endpoint.provider.credential = match endpoint_credential(context, params, &mut endpoint)? {
        Ok(credential) => credential,
        Err(reason) => return Ok(Err(reason)),
    };
    let (mut provider, model) = (endpoint.provider, endpoint.model);
    provider.timeouts = context.timeouts;
    let origin = format!("{} (line {})", field.path, field.node.line);
    provider.origin.clone_from(&origin);
    parameters::read_headers(context, params, &mut provider)?;
    let provider = context.draft.provider(provider);
    Ok(Ok(WildcardDraft { id, model, provider, origin }))
}
