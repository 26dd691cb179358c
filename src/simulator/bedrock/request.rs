//! Request reader of Converse, ConverseStream and CountTokens.

use serde_json::Value;

use super::super::model_rules;
use super::super::script::{Ask, Choice, Format};
use super::super::text::{tokens, weigh};
use super::errors::{ApiError, Fields, constraint, extraneous, missing};
use super::models::{Family, Model};
use super::tools;
use super::{cache, content};

const MEMBERS: [&str; 12] = [
    "messages",
    "system",
    "inferenceConfig",
    "toolConfig",
    "guardrailConfig",
    "additionalModelRequestFields",
    "promptVariables",
    "additionalModelResponseFieldPaths",
    "requestMetadata",
    "performanceConfig",
    "serviceTier",
    "outputConfig",
];

/// Parsed request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) ask: Ask,
    pub(super) model: Model,
    /// Identifier of the guardrail, and whether its trace is wanted.
    pub(super) guardrail: Option<(String, bool)>,
    /// Pointers into the model's own response.
    pub(super) response_fields: Vec<String>,
    pub(super) tier: Option<String>,
    pub(super) latency: Option<String>,
}

/// Parses a request. `stream` states whether it is for a stream.
pub(super) fn converse(body: &Value, model: Model, stream: bool) -> Result<Asked, ApiError> {
    cache::check(body, &model)?;
    let body = Fields::new(body, "")?;
    body.only(&MEMBERS)?;
    let messages = body.array("messages")?.ok_or_else(|| missing("messages"))?;
    if messages.is_empty() {
        return Err(ApiError::invalid(
            "A conversation must start with a user message. Try again with a conversation that starts with a user \
             message.",
        ));
    }
    let (tools, choice) = tools::tools(&body, &model)?;
    let mut talk = content::conversation(messages, &model, body.get("toolConfig").is_some())?;
    for text in system(&body)? {
        talk.instruct(text);
    }
    let mut ask = talk.ask("Bedrock", &model.name);
    (ask.tools, ask.choice) = (tools, choice);
    let sampling = inference(&body, &mut ask)?;
    ask.format = output(&body)?;
    additional(&body, &model, &mut ask, sampling)?;
    let weight = |name: &str| body.get(name).map_or(0, weigh);
    ask.prompt_tokens = tokens(weight("toolConfig") + weight("system") + weight("messages"));
    metadata(&body)?;
    Ok(Asked {
        ask,
        model,
        guardrail: guardrail(&body, stream)?,
        response_fields: response_fields(&body)?,
        tier: word(&body, "serviceTier", "type", &["priority", "default", "flex", "reserved"])?,
        latency: word(&body, "performanceConfig", "latency", &["standard", "optimized"])?,
    })
}

fn system<'a>(body: &Fields<'a>) -> Result<Vec<&'a str>, ApiError> {
    let mut texts = Vec::new();
    for (at, block) in body.array("system")?.into_iter().flatten().enumerate() {
        let block = Fields::new(block, format!("system.{at}"))?;
        let (kind, value) = block.one()?;
        match kind {
            "text" => match value.as_str() {
                Some(text) if !text.is_empty() => texts.push(text),
                _ => return Err(constraint(&block.at(kind), "", "have length greater than or equal to 1")),
            },
            "guardContent" => {}
            "cachePoint" => content::cache_point(&Fields::new(value, block.at(kind))?)?,
            other => return Err(extraneous(&block.path, other)),
        }
    }
    Ok(texts)
}

/// Reads the limits. Returns whether the request has a temperature other than 1, and a `topP`.
fn inference(body: &Fields<'_>, ask: &mut Ask) -> Result<(bool, bool), ApiError> {
    let Some(config) = body.object("inferenceConfig")? else {
        return Ok((false, false));
    };
    config.only(&["maxTokens", "temperature", "topP", "stopSequences"])?;
    if let Some(value) = config.get("maxTokens") {
        match value.as_u64().filter(|most| *most >= 1) {
            Some(most) => ask.max_tokens = Some(most),
            None => {
                let path = config.at("maxTokens");
                return Err(constraint(&path, &value.to_string(), "have value greater than or equal to 1"));
            }
        }
    }
    let mut present = [false; 2];
    for (slot, name) in present.iter_mut().zip(["temperature", "topP"]) {
        if let Some(number) = config.number(name)? {
            *slot = name == "topP" || (number - 1.0).abs() > f64::EPSILON;
            if !(0.0..=1.0).contains(&number) {
                let rule = "have value less than or equal to 1 and greater than or equal to 0";
                return Err(constraint(&config.at(name), &number.to_string(), rule));
            }
        }
    }
    for (at, sequence) in config.array("stopSequences")?.into_iter().flatten().enumerate() {
        let path = format!("{}.{at}", config.at("stopSequences"));
        match sequence.as_str() {
            Some("") | None => return Err(constraint(&path, "", "have length greater than or equal to 1")),
            Some(text) => ask.stop.push(text.to_owned()),
        }
    }
    if ask.stop.len() > 2_500 {
        return Err(constraint(&config.at("stopSequences"), "", "have length less than or equal to 2500"));
    }
    let [temperature, top_p] = present;
    Ok((temperature, top_p))
}

/// Returns the format of the response.
fn output(body: &Fields<'_>) -> Result<Format, ApiError> {
    let Some(config) = body.object("outputConfig")? else {
        return Ok(Format::Text);
    };
    config.only(&["textFormat", "effort"])?;
    if let Some(effort) = config.string("effort")?
        && !["low", "medium", "high", "xhigh", "max"].contains(&effort)
    {
        return Err(constraint(
            &config.at("effort"),
            effort,
            "satisfy enum value set: [low, medium, high, xhigh, max]",
        ));
    }
    let Some(format) = config.object("textFormat")? else {
        return Ok(Format::Text);
    };
    format.only(&["type", "structure"])?;
    if format.require("type")? != "json_schema" {
        return Err(constraint(&format.at("type"), "", "satisfy enum value set: [json_schema]"));
    }
    let structure = format.object("structure")?.ok_or_else(|| missing(&format.at("structure")))?;
    structure.only(&["jsonSchema"])?;
    let schema = structure.object("jsonSchema")?.ok_or_else(|| missing(&structure.at("jsonSchema")))?;
    schema.only(&["schema", "name", "description"])?;
    let text = schema.require("schema")?;
    let parsed: Option<Value> = serde_json::from_str(text).ok().filter(Value::is_object);
    match parsed {
        Some(parsed) => Ok(Format::Schema(parsed)),
        None => {
            Err(ApiError::invalid(format!("The value at {} isn't a valid JSON schema.", schema.at("schema"))))
        }
    }
}

/// Reads the members of the model's own request.
fn additional(
    body: &Fields<'_>,
    model: &Model,
    ask: &mut Ask,
    (has_temperature, has_top_p): (bool, bool),
) -> Result<(), ApiError> {
    ask.thinking = model.family == Family::DeepSeek && model.name.contains(".r1");
    let Some(fields) = body.object("additionalModelRequestFields")? else {
        return Ok(());
    };
    match model.family {
        Family::Claude => {
            let known = [
                "thinking",
                "reasoning_config",
                "output_config",
                "top_k",
                "anthropic_beta",
                "tool_choice",
                "tools",
                "metadata",
                "context_management",
            ];
            if let Some(name) = fields.object.keys().find(|name| !known.contains(&name.as_str())) {
                return Err(ApiError::of_model(&format!("{name}: Extra inputs are not permitted")));
            }
            let forced = matches!(ask.choice, Choice::Required | Choice::Named(_));
            claude(&fields, model, forced)?;
            ask.one_call = fields
                .object("tool_choice")?
                .is_some_and(|choice| choice.get("disable_parallel_tool_use") == Some(&Value::Bool(true)));
            let name = if fields.get("thinking").is_some() { "thinking" } else { "reasoning_config" };
            let Some(thinking) = fields.object(name)? else {
                return Ok(());
            };
            let kind = thinking.require("type")?;
            ask.thinking = matches!(kind, "enabled" | "adaptive");
            if kind == "enabled" {
                let budget = thinking.get("budget_tokens").and_then(Value::as_u64).unwrap_or(0);
                if budget < 1_024 {
                    return Err(ApiError::of_model(
                        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
                    ));
                }
                if ask.max_tokens.is_some_and(|most| most <= budget) {
                    return Err(ApiError::of_model(
                        "`max_tokens` must be greater than `thinking.budget_tokens`.",
                    ));
                }
                if forced {
                    return Err(ApiError::of_model(
                        "Thinking may not be enabled when tool_choice forces tool use.",
                    ));
                }
            }
            if ask.thinking && (has_temperature || has_top_p || fields.get("top_k").is_some()) {
                return Err(ApiError::of_model(
                    "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.",
                ));
            }
            Ok(())
        }
        Family::Nova => {
            fields.only(&["inferenceConfig", "reasoningConfig"])?;
            let Some(reasoning) = fields.object("reasoningConfig")? else {
                return Ok(());
            };
            reasoning.only(&["type", "maxReasoningEffort"])?;
            ask.thinking = reasoning.require("type")? == "enabled";
            Ok(())
        }
        Family::GptOss => {
            fields.only(&["reasoning_effort"])?;
            ask.thinking = fields.string("reasoning_effort")?.is_some();
            Ok(())
        }
        Family::DeepSeek | Family::Mistral | Family::Other => {
            ask.thinking |= fields.get("reasoning_config").is_some();
            Ok(())
        }
    }
}

/// Refuses what a model of Anthropic does not take.
fn claude(fields: &Fields<'_>, model: &Model, forced: bool) -> Result<(), ApiError> {
    let Some(rules) = model_rules::of(model.claude()) else { return Ok(()) };
    let config = fields.object("output_config")?;
    let effort = config.as_ref().map(|config| config.string("effort")).transpose()?.flatten();
    let thinking = fields.object("thinking")?;
    let kind = thinking.as_ref().map(|thinking| thinking.string("type")).transpose()?.flatten();
    match rules.claude_refusal(effort, kind, forced) {
        Some(why) => Err(ApiError::of_model(&why)),
        None => Ok(()),
    }
}

fn guardrail(body: &Fields<'_>, stream: bool) -> Result<Option<(String, bool)>, ApiError> {
    let Some(config) = body.object("guardrailConfig")? else {
        return Ok(None);
    };
    let known = ["guardrailIdentifier", "guardrailVersion", "trace", "streamProcessingMode"];
    config.only(known.get(..if stream { 4 } else { 3 }).unwrap_or_default())?;
    let id = config.require("guardrailIdentifier")?;
    let version = config.require("guardrailVersion")?;
    if version != "DRAFT" && version.parse::<u32>().is_err() {
        return Err(constraint(
            &config.at("guardrailVersion"),
            version,
            "satisfy regular expression pattern",
        ));
    }
    let trace = config.string("trace")?.is_some_and(|trace| trace != "disabled");
    Ok(Some((id.to_owned(), trace)))
}

fn response_fields(body: &Fields<'_>) -> Result<Vec<String>, ApiError> {
    let paths = body.array("additionalModelResponseFieldPaths")?.into_iter().flatten();
    let paths: Option<Vec<String>> =
        paths.map(|path| path.as_str().filter(|path| path.starts_with('/')).map(str::to_owned)).collect();
    match paths {
        Some(paths) if paths.len() <= 10 => Ok(paths),
        _ => {
            Err(ApiError::invalid("The additionalModelResponseFieldPaths field has an invalid JSON pointer."))
        }
    }
}

fn metadata(body: &Fields<'_>) -> Result<(), ApiError> {
    let Some(metadata) = body.object("requestMetadata")? else {
        return Ok(());
    };
    let legal = |text: &str| {
        text.len() <= 256
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c.is_ascii_whitespace() || "_:@$#=/+,-.".contains(c))
    };
    let is_legal = metadata
        .object
        .iter()
        .all(|(name, value)| legal(name) && !name.is_empty() && value.as_str().is_some_and(legal));
    if is_legal && (1..=16).contains(&metadata.object.len()) {
        return Ok(());
    }
    Err(constraint(
        "requestMetadata",
        "",
        "satisfy regular expression pattern: [a-zA-Z0-9\\s:_@$#=/+,-.]{0,256}",
    ))
}

fn word(body: &Fields<'_>, object: &str, name: &str, words: &[&str]) -> Result<Option<String>, ApiError> {
    let Some(config) = body.object(object)? else {
        return Ok(None);
    };
    config.only(&[name])?;
    let word = config.require(name)?;
    if words.contains(&word) {
        return Ok(Some(word.to_owned()));
    }
    let rule = format!("satisfy enum value set: [{}]", words.join(", "));
    Err(constraint(&config.at(name), word, &rule))
}
