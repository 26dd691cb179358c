//! Fallbacks and aliases of LiteLLM, which name models and are read after them.

use super::Context;
use crate::import::document::{Field, FieldResult, SourceValue};
use crate::import::draft::ModelDraft;

/// Reads aliases and fallbacks of `router_settings`, or else of `litellm_settings`.
pub(super) fn read(context: &mut Context<'_>, root: &Field<'_>) -> FieldResult<()> {
    let sections = ["router_settings", "litellm_settings"].map(|name| root.get(name));
    let mut known = Vec::new();
    for section in sections.iter().flatten() {
        if let Some(field) = section.get("model_group_alias") {
            aliases(context, &field, &mut known)?;
        }
    }
    for key in ["fallbacks", "context_window_fallbacks", "default_fallbacks", "content_policy_fallbacks"] {
        let mut earlier = false;
        for field in sections.iter().flatten().filter_map(|section| section.get(key)) {
            if field.elements()?.is_empty() {
                context.report.changed(&field, "", "there is nothing to take over");
            } else if earlier {
                context.report.impossible(&field, "router_settings has precedence over litellm_settings");
            } else {
                earlier = true;
                match key {
                    "default_fallbacks" => default_fallbacks(context, &field)?,
                    "content_policy_fallbacks" => {
                        let reason = "a refusal of a provider for its content policy is an answer, and no reason for another target";
                        context.report.impossible(&field, reason);
                    }
                    key => fallbacks(context, &field, key == "context_window_fallbacks")?,
                }
            }
        }
    }
    // An alias falls back as its model does. A fallback that is refused for the alias would lead back to it.
    for (alias, name) in known {
        let Some(model) = context.draft.model(&name) else { continue };
        let (others, also_context) = (model.fallback.clone(), model.also_context);
        for other in others {
            let _ = context.draft.fallback(&alias, &other);
        }
        if let Some(model) = context.draft.model(&alias).filter(|model| !model.fallback.is_empty()) {
            model.also_context |= also_context;
        }
    }
    for remark in context.draft.settle_fallbacks() {
        context.report.remark(remark);
    }
    Ok(())
}

/// Reads `model_group_alias`: other names of models, which are added to `known` with the name of the model.
fn aliases(
    context: &mut Context<'_>,
    section: &Field<'_>,
    known: &mut Vec<(String, String)>,
) -> FieldResult<()> {
    for (alias, field) in section.members()? {
        let name = match field.get("model") {
            Some(model) => model.text()?.to_owned(),
            None => field.text()?.to_owned(),
        };
        if let Some(hidden) = field.get("hidden") {
            context.report.impossible(&hidden, "every model is listed for the keys that may use it");
        }
        let place = field.get("model").unwrap_or_else(|| field.clone());
        let valid = !alias.is_empty() && alias.len() <= 256;
        context.draft.ensure_model(&name);
        if context.draft.model(alias).is_some() || !valid {
            context.report.impossible(&place, "the alias is the name of a model, or not a valid name");
            continue;
        }
        let Some(model) = context.draft.model(&name) else {
            context.report.impossible(&place, "the model does not exist in the result");
            continue;
        };
        let origin = format!("{} (line {}): another name of {name}", field.path, field.node.line);
        let copy = ModelDraft { id: alias.to_owned(), origin, ..model.clone() };
        context.draft.add_model(copy);
        known.push((alias.to_owned(), name.clone()));
        context.report.taken(&place, "model");
    }
    Ok(())
}

/// Reads a list of mappings from a model to its fallbacks.
fn fallbacks(context: &mut Context<'_>, list: &Field<'_>, for_context: bool) -> FieldResult<()> {
    for element in list.elements()? {
        for (model, others) in element.members()? {
            for other in others.elements()? {
                fallback(context, model, &other, for_context);
            }
        }
    }
    Ok(())
}

fn fallback(context: &mut Context<'_>, model: &str, field: &Field<'_>, for_context: bool) {
    let SourceValue::Text(other) = &field.node.value else {
        context.report.impossible(
            field,
            "a fallback is the name of a model; the gateway does not change what a request says",
        );
        return;
    };
    let models: Vec<String> = match model {
        "*" => context.draft.models.iter().map(|known| known.id.clone()).filter(|id| id != other).collect(),
        model => vec![model.to_owned()],
    };
    context.draft.ensure_model(other);
    let mut failed = None;
    for model in &models {
        context.draft.ensure_model(model);
        match context.draft.fallback(model, other) {
            Ok(()) => {
                if let Some(draft) = context.draft.model(model).filter(|_| for_context) {
                    draft.also_context = true;
                }
            }
            Err(reason) => failed = Some(reason),
        }
    }
    match failed {
        Some(reason) => context.report.impossible(field, reason),
        None if for_context => {
            let note = "a model has one list of fallbacks for all failures; retry.also adds this one";
            context.report.changed(field, "model.fallback, model.retry.also", note);
        }
        None => context.report.taken(field, "model.fallback"),
    }
}

/// Reads fallbacks of every model that has none of its own.
fn default_fallbacks(context: &mut Context<'_>, list: &Field<'_>) -> FieldResult<()> {
    let bare: Vec<String> = {
        let models = context.draft.models.iter().filter(|model| model.fallback.is_empty());
        models.map(|model| model.id.clone()).collect()
    };
    for field in list.elements()? {
        let other = field.text()?;
        context.draft.ensure_model(other);
        let failed: Vec<&str> = bare
            .iter()
            .filter(|model| *model != other)
            .filter(|model| context.draft.fallback(model, other).is_err())
            .map(String::as_str)
            .collect();
        if failed.is_empty() {
            context.report.taken(&field, "model.fallback");
        } else if failed.len() < bare.len() {
            let note = format!(
                "not of these models, for which it would form a cycle or be one too many: {}",
                failed.join(", ")
            );
            context.report.changed(&field, "model.fallback", &note);
        } else {
            context
                .report
                .impossible(&field, "the fallback does not exist in the result, or would form a cycle");
        }
    }
    Ok(())
}
