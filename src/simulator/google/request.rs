//! Request reader of `generateContent`, `streamGenerateContent` and `countTokens`.

use serde_json::{Value, json};

use super::super::model_rules::{self, Off, Sampling};
use super::super::script::{Ask, Choice, Format, Tool};
use super::super::text::{tokens, weigh};
use super::errors::{ApiError, listed};
use super::shape::{self, get, list, number, text};
use super::turns;

/// Parsed request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) ask: Ask,
    pub(super) candidates: usize,
    /// The response has the thoughts, not only their token count.
    pub(super) show_thoughts: bool,
    /// The model signs its calls and texts.
    pub(super) signs: bool,
    pub(super) call_ids: bool,
    /// Service tier that the answer states.
    pub(super) tier: &'static str,
}

/// Parses a generation request.
pub(super) fn generate(body: &Value, model: &str) -> Result<Asked, ApiError> {
    shape::check(body, &shape::GENERATE, "")?;
    read(body, model)
}

/// Parses a counting request: contents, or a whole generation request.
pub(super) fn count(body: &Value, model: &str) -> Result<Asked, ApiError> {
    shape::check(body, &shape::COUNT, "")?;
    match get(body, "generateContentRequest") {
        Some(request) => read(request, model),
        None => read(body, model),
    }
}

fn read(body: &Value, model: &str) -> Result<Asked, ApiError> {
    let third = is_third(model);
    let mut ask = turns::conversation(body, third)?.ask("Google", model);
    let config = get(body, "generationConfig").unwrap_or(&Value::Null);
    let (tools, built_in) = tools(body)?;
    if !tools.is_empty() && built_in && !third {
        return Err(ApiError::invalid("Tool use with function calling is unsupported"));
    }
    ask.choice = choice(body);
    ask.format = format(config)?;
    if !matches!(ask.format, Format::Text) && !tools.is_empty() && !third {
        return Err(ApiError::invalid(
            "Function calling with a response mime type: 'application/json' is unsupported",
        ));
    }
    ask.tools = tools;
    let (thinks, show_thoughts) = thinking(config, model)?;
    check_model(body, config, model)?;
    ask.thinking = thinks;
    let within = |name: &str, least: f64, most: f64| match number(config, name) {
        Some(value) if !(least..=most).contains(&value) => {
            let spelled = shape::snake(name);
            Err(listed(&format!(
                "generation_config.{spelled}: {spelled} must be in the range [{least:?}, {most:?}]."
            )))
        }
        other => Ok(other),
    };
    within("temperature", 0.0, 2.0)?;
    within("topP", 0.0, 1.0)?;
    let candidates = within("candidateCount", 1.0, 8.0)?.unwrap_or(1.0) as usize;
    ask.max_tokens = match number(config, "maxOutputTokens") {
        Some(most) if most < 1.0 => {
            return Err(listed("generation_config.max_output_tokens: max_output_tokens must be positive."));
        }
        other => other.map(|most| most as u64),
    };
    ask.stop = list(config, "stopSequences").iter().filter_map(|s| s.as_str().map(str::to_owned)).collect();
    let weight = |name: &str| get(body, name).map_or(0, weigh);
    ask.prompt_tokens = tokens(weight("contents") + weight("systemInstruction") + weight("tools"));
    let tier = match get(body, "serviceTier").and_then(Value::as_str) {
        None | Some("unspecified" | "standard") => "standard",
        Some("flex") => "flex",
        Some("priority") => "priority",
        Some(other) => {
            return Err(ApiError::invalid(format!("Invalid value at 'service_tier': \"{other}\"")));
        }
    };
    Ok(Asked { ask, candidates, show_thoughts, signs: third || thinks, call_ids: third, tier })
}

/// Returns whether a model is of the third generation or a later one.
fn is_third(model: &str) -> bool {
    let generation = model.rsplit("gemini-").next().filter(|_| model.contains("gemini-"));
    generation.and_then(|rest| rest.chars().next()?.to_digit(10)).is_some_and(|generation| generation >= 3)
}

/// Refuses an output limit that this model does not have.
pub(super) fn check_limit(body: &Value, model: &str, stream: bool) -> Result<(), ApiError> {
    let (Some(rules), Some(config)) = (model_rules::of(model), get(body, "generationConfig")) else {
        return Ok(());
    };
    let most = if stream || rules.unstreamed == 0 { rules.output } else { rules.unstreamed };
    match number(config, "maxOutputTokens") {
        Some(limit) if most > 0 && limit > most as f64 => Err(ApiError::invalid(format!(
            "Unable to submit request because it has a maxOutputTokens value of {limit} but the supported range is from 1 \
             (inclusive) to {} (exclusive).",
            most + 1
        ))),
        _ => Ok(()),
    }
}

/// Refuses what this model does not take.
fn check_model(body: &Value, config: &Value, model: &str) -> Result<(), ApiError> {
    let Some(rules) = model_rules::of(model) else { return Ok(()) };
    let thinking = get(config, "thinkingConfig");
    let level = thinking.and_then(|config| text(config, "thinkingLevel"));
    let budget = thinking.and_then(|config| number(config, "thinkingBudget"));
    if let (Some(budget), Some((least, most))) = (budget, rules.budget) {
        let is_within = (least as f64..=most as f64).contains(&budget);
        if !(is_within || budget == -1.0 || budget == 0.0 && rules.off != Off::Never) {
            return Err(ApiError::invalid(format!(
                "The thinking budget {budget} is invalid. Please choose a value between {least} and {most}."
            )));
        }
    }
    if budget.is_some() && model.starts_with("gemini-4") {
        return Err(ApiError::invalid("Thinking budget is not supported for this model."));
    }
    if let Some(level) = level.filter(|level| !rules.takes(level)) {
        return Err(ApiError::invalid(format!("Thinking level {level} is not supported for this model.")));
    }
    let last = list(body, "contents").last().and_then(|content| text(content, "role"));
    if !rules.prefill && last == Some("model") {
        return Err(ApiError::invalid("Requests ending with a model turn are not supported by this model."));
    }
    let sampling = ["temperature", "topP", "topK"].into_iter().find(|name| get(config, name).is_some());
    match sampling.filter(|_| rules.sampling == Sampling::Never) {
        Some(name) => Err(ApiError::invalid(format!("{name} is not supported for this model."))),
        None => Ok(()),
    }
}

/// Returns the declared functions, and whether there are tools that the provider runs itself.
fn tools(body: &Value) -> Result<(Vec<Tool>, bool), ApiError> {
    let mut tools: Vec<Tool> = Vec::new();
    let mut built_in = false;
    for (at, entry) in list(body, "tools").iter().enumerate() {
        let names = entry.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        built_in |= names.into_iter().any(|(name, _)| !name.starts_with("function"));
        for (index, function) in list(entry, "functionDeclarations").iter().enumerate() {
            let path = format!("tools[{at}].function_declarations[{index}]");
            let name = text(function, "name").unwrap_or_default();
            check_name(name, &path)?;
            if tools.iter().any(|tool| tool.name == name) {
                return Err(ApiError::invalid(format!("Duplicate function declaration found: {name}")));
            }
            let schemas = [get(function, "parameters"), get(function, "parametersJsonSchema")];
            let schema = match schemas {
                [Some(_), Some(_)] => {
                    return Err(listed(&format!(
                        "{path}: only one of parameters and parameters_json_schema may be set."
                    )));
                }
                [one, other] => one.or(other).cloned().unwrap_or(json!({"type": "OBJECT"})),
            };
            tools.push(Tool { name: name.to_owned(), schema, custom: false });
        }
    }
    Ok((tools, built_in))
}

fn check_name(name: &str, path: &str) -> Result<(), ApiError> {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let legal = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    if begins && name.len() <= 128 && name.chars().all(legal) {
        return Ok(());
    }
    Err(listed(&format!(
        "{path}.name: Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, \
         0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 128."
    )))
}

fn choice(body: &Value) -> Choice {
    let config = get(body, "toolConfig").and_then(|config| get(config, "functionCallingConfig"));
    let config = config.unwrap_or(&Value::Null);
    let names: Vec<String> = list(config, "allowedFunctionNames")
        .iter()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    let mode = text(config, "mode").unwrap_or_default().to_ascii_uppercase();
    match (mode.as_str(), names.is_empty()) {
        ("NONE", _) => Choice::None,
        ("ANY", true) => Choice::Required,
        ("ANY", false) => Choice::Named(names),
        ("VALIDATED", false) => Choice::Allowed(names),
        _ => Choice::Auto,
    }
}

fn format(config: &Value) -> Result<Format, ApiError> {
    let json = text(config, "responseMimeType") == Some("application/json");
    let schemas = [get(config, "responseSchema"), get(config, "responseJsonSchema")];
    match schemas {
        [Some(_), Some(_)] => Err(listed(
            "generation_config.response_json_schema: only one of response_schema and response_json_schema may be set.",
        )),
        [None, None] if json => Ok(Format::Json),
        [None, None] => Ok(Format::Text),
        [one, other] => match (json, text(config, "responseMimeType"), one.or(other)) {
            (true, _, Some(schema)) => Ok(Format::Schema(schema.clone())),
            // An enumeration as plain text.
            (false, Some("text/x.enum"), _) => Ok(Format::Text),
            _ => Err(listed(
                "generation_config.response_schema: only allowed when response_mime_type is 'application/json'.",
            )),
        },
    }
}

/// Returns whether the model thinks, and whether the response shows the thoughts.
fn thinking(config: &Value, model: &str) -> Result<(bool, bool), ApiError> {
    let Some(config) = get(config, "thinkingConfig") else {
        return Ok((false, false));
    };
    let (budget, level) = (number(config, "thinkingBudget"), get(config, "thinkingLevel"));
    if budget.is_some() && level.is_some() {
        return Err(ApiError::invalid("You can only set only one of thinking budget and thinking level."));
    }
    if level.is_some() && model.contains("gemini-2") {
        return Err(ApiError::invalid("Thinking level is not supported for this model."));
    }
    if budget == Some(0.0) && model.contains("gemini-2.5-pro") {
        return Err(ApiError::invalid("Budget 0 is invalid. This model only works in thinking mode."));
    }
    let shown = get(config, "includeThoughts").and_then(Value::as_bool).unwrap_or(false);
    let minimal = level.and_then(Value::as_str).is_some_and(|level| level.eq_ignore_ascii_case("minimal"));
    let thinks = match (budget, level) {
        (Some(budget), _) => budget != 0.0,
        (None, Some(_)) => !minimal,
        (None, None) => shown,
    };
    Ok((thinks, thinks && shown))
}
