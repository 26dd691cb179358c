//! Request reader of `POST /v1/messages` and its token counting.

use serde_json::Value;

use super::super::model_rules;
use super::super::script::{Ask, Choice};
use super::super::text::{tokens, weigh};
use super::Version;
use super::errors::{ApiError, Fields, required, should_be, wrong_tag};
use super::{cache, content, tools};

/// Members of both requests. Sources: `MessageCreateParams` and `MessageCountTokensParams` of anthropic-python 2.11.
const SHARED: [&str; 11] = [
    "cache_control",
    "messages",
    "model",
    "output_config",
    "speed",
    "system",
    "thinking",
    "tool_choice",
    "tools",
    "user_profile_id",
    "workspace_id",
];
/// Members of message requests only.
const CREATE: [&str; 8] = [
    "container",
    "diagnostics",
    "inference_geo",
    "max_tokens",
    "metadata",
    "service_tier",
    "stop_sequences",
    "stream",
];
/// Members of version 2023-06-01 only.
const SAMPLING: [&str; 3] = ["temperature", "top_p", "top_k"];
/// Members of betas.
const BETA: [&str; 6] =
    ["output_format", "billing_policy", "compaction", "fallback_credit_token", "fallbacks", "thread"];

/// Thinking mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thinking {
    Off,
    /// The response has the text of the thinking.
    Shown,
    /// The response has only the signature of the thinking.
    Omitted,
}

/// Parsed request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) ask: Ask,
    pub(super) stream: bool,
    pub(super) thinking: Thinking,
    /// The request asks for the fast mode.
    pub(super) fast: bool,
}

/// Parses a message request.
pub(super) fn messages(body: &Value, version: Version) -> Result<Asked, ApiError> {
    let fields = Fields::new(body, "");
    let sampling: &[&str] = if version.strict { &[] } else { &SAMPLING };
    let beta: &[&str] = if version.beta { &BETA } else { &[] };
    let (mcp, context) = of_betas(version);
    fields.only(&[&SHARED, &CREATE, sampling, beta, mcp, context])?;
    let max_tokens = fields.integer("max_tokens")?;
    let mut asked = shared(&fields, version, max_tokens)?;
    let max_tokens = max_tokens.ok_or_else(|| required("max_tokens"))?;
    asked.ask.max_tokens = match u64::try_from(max_tokens) {
        Ok(most) => Some(most),
        Err(_) => return Err(ApiError::invalid("max_tokens: Input should be greater than or equal to 0")),
    };
    check_sampling(&fields, &asked)?;
    check_model(&fields, &asked, max_tokens)?;
    asked.ask.stop = stop(&fields)?;
    asked.stream = fields.boolean("stream")?.unwrap_or(false);
    asked.fast = match fields.string("speed")? {
        None | Some("standard") => false,
        Some("fast") => true,
        Some(_) => return Err(should_be("speed", "'standard' or 'fast'")),
    };
    match fields.string("service_tier")? {
        None | Some("auto" | "standard_only") => Ok(asked),
        Some(_) => Err(should_be("service_tier", "'auto' or 'standard_only'")),
    }
}

/// Returns the members of the MCP beta and of the context management beta, if the request names them.
fn of_betas(version: Version) -> (&'static [&'static str], &'static [&'static str]) {
    (
        if version.mcp { &["mcp_servers"] } else { &[] },
        if version.context { &["context_management"] } else { &[] },
    )
}

/// Parses a token counting request.
pub(super) fn count(body: &Value, version: Version) -> Result<Asked, ApiError> {
    let fields = Fields::new(body, "");
    let beta: &[&str] = if version.beta { &BETA } else { &[] };
    let (mcp, context) = of_betas(version);
    fields.only(&[&SHARED, beta, mcp, context])?;
    shared(&fields, version, None)
}

fn shared(fields: &Fields<'_>, version: Version, max_tokens: Option<i64>) -> Result<Asked, ApiError> {
    let model = fields.require("model")?;
    if model.is_empty() {
        return Err(ApiError::invalid("model: String should have at least 1 character"));
    }
    if model.starts_with("missing-") {
        return Err(ApiError::new(404, "not_found_error", format!("model: {model}")));
    }
    let messages = fields.array("messages")?.ok_or_else(|| required("messages"))?;
    if messages.is_empty() {
        return Err(ApiError::invalid("messages: at least one message is required"));
    }
    cache::check(fields.value)?;
    let (thinking, manual) = thinking(fields, model, max_tokens)?;
    let rules =
        content::Rules { strict: version.strict, manual_thinking: manual, prefill: can_prefill(model) };
    let mut talk = content::conversation(messages, rules)?;
    check_system(messages, model)?;
    for text in system(fields)? {
        talk.instruct(text);
    }
    let mut ask = talk.ask("Anthropic", model);
    ask.tools = tools::tools(fields)?;
    (ask.choice, ask.one_call) = tools::choice(fields, &ask.tools)?;
    if manual && matches!(ask.choice, Choice::Required | Choice::Named(_)) {
        return Err(ApiError::invalid("Thinking may not be enabled when tool_choice forces tool use."));
    }
    ask.format = tools::format(fields)?;
    ask.thinking = thinking != Thinking::Off;
    let weight = |name: &str| fields.get(name).map_or(0, weigh);
    ask.prompt_tokens = tokens(weight("tools") + weight("system") + weight("messages"));
    Ok(Asked { ask, stream: false, thinking, fast: false })
}

/// Checks the places of instructions in the conversation: models from 4.8 on take them behind a turn of the user and before one
/// of the model, each in one turn; earlier ones take none.
fn check_system(messages: &[Value], model: &str) -> Result<(), ApiError> {
    let Some(generation) = generation(model) else { return Ok(()) };
    let role = |at: Option<usize>| at.and_then(|at| messages.get(at)?.get("role")?.as_str());
    for at in (0..messages.len()).filter(|at| role(Some(*at)) == Some("system")) {
        if generation < (4, 8) {
            return Err(ApiError::invalid(format!(
                "messages.{at}: role 'system' is not supported on this model"
            )));
        }
        let is_placed = role(at.checked_sub(1)) == Some("user")
            && matches!(role(at.checked_add(1)), None | Some("assistant"));
        if !is_placed {
            return Err(ApiError::invalid(format!(
                "messages.{at}: role 'system' must follow a user turn, and precede an assistant turn or end the conversation"
            )));
        }
    }
    Ok(())
}

/// Returns the texts of the system prompt.
fn system<'a>(fields: &Fields<'a>) -> Result<Vec<&'a str>, ApiError> {
    match fields.get("system") {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text]),
        Some(Value::Array(blocks)) => blocks
            .iter()
            .enumerate()
            .map(|(at, block)| {
                let block = Fields::new(block, format!("system.{at}"));
                match block.require("type")? {
                    "text" => block.require("text"),
                    _ => Err(should_be(&block.at("type"), "'text'")),
                }
            })
            .collect(),
        Some(_) => Err(should_be("system", "a valid list")),
    }
}

/// Returns the thinking mode, and whether the client set a budget.
fn thinking(fields: &Fields<'_>, model: &str, max_tokens: Option<i64>) -> Result<(Thinking, bool), ApiError> {
    let Some(thinking) = fields.object("thinking")? else {
        return Ok((Thinking::Off, false));
    };
    // From this generation on, thinking is only adaptive, and its text is omitted by default.
    let newer = generation(model) >= Some((4, 7));
    let shown = match thinking.string("display")? {
        // `updates` is a beta of August 2026.
        Some("summarized" | "updates") => Thinking::Shown,
        Some("omitted") => Thinking::Omitted,
        None if newer => Thinking::Omitted,
        None => Thinking::Shown,
        Some(_) => return Err(should_be("thinking.display", "'summarized' or 'omitted'")),
    };
    match thinking.require("type")? {
        "disabled" => Ok((Thinking::Off, false)),
        "adaptive" | "between_tools" => Ok((shown, false)),
        "enabled" if newer => Err(ApiError::invalid(
            "\"thinking.type.enabled\" is not supported for this model. Use \"thinking.type.adaptive\" and \
             \"output_config.effort\" to control thinking behavior.",
        )),
        "enabled" => {
            let enabled = Fields::new(thinking.value, "thinking.enabled");
            let budget = enabled.integer("budget_tokens")?;
            let budget = budget.ok_or_else(|| required("thinking.enabled.budget_tokens"))?;
            if budget < 1024 {
                return Err(should_be("thinking.enabled.budget_tokens", "greater than or equal to 1024"));
            }
            if max_tokens.is_some_and(|most| most <= budget) {
                return Err(ApiError::invalid(
                    "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at \
                     https://docs.claude.com/en/docs/build-with-claude/extended-thinking#max-tokens-and-context-window-size-differences",
                ));
            }
            Ok((shown, true))
        }
        other => Err(wrong_tag("thinking", other, &["adaptive", "between_tools", "disabled", "enabled"])),
    }
}

/// Refuses what this model does not take.
fn check_model(fields: &Fields<'_>, asked: &Asked, max_tokens: i64) -> Result<(), ApiError> {
    let model = asked.ask.model.as_str();
    let Some(rules) = model_rules::of(model) else { return Ok(()) };
    let config = fields.object("output_config")?;
    let effort = config.map(|config| config.string("effort")).transpose()?.flatten();
    let thinking = fields.object("thinking")?;
    let kind = thinking.map(|thinking| thinking.string("type")).transpose()?.flatten();
    let forced = matches!(asked.ask.choice, Choice::Required | Choice::Named(_));
    if let Some(why) = rules.claude_refusal(effort, kind, forced) {
        return Err(ApiError::invalid(why));
    }
    if u64::try_from(max_tokens).is_ok_and(|most| most > rules.output) {
        let most = rules.output;
        return Err(ApiError::invalid(format!(
            "max_tokens: {max_tokens} > {most}, which is the maximum allowed number of output tokens for {model}"
        )));
    }
    Ok(())
}

fn check_sampling(fields: &Fields<'_>, asked: &Asked) -> Result<(), ApiError> {
    let generation = generation(&asked.ask.model);
    for name in SAMPLING {
        let Some(value) = fields.get(name) else {
            continue;
        };
        let number = value.as_f64().ok_or_else(|| should_be(name, "a valid number"))?;
        // Any value but the default is refused (Anthropic, "What's new in Claude Opus 4.7").
        if generation >= Some((4, 7)) && (name == "top_k" || (number - 1.0).abs() > f64::EPSILON) {
            return Err(ApiError::invalid(format!("`{name}` is deprecated for this model.")));
        }
        if name != "top_k" && number > 1.0 {
            return Err(should_be(name, "less than or equal to 1"));
        }
        if number < 0.0 {
            return Err(should_be(name, "greater than or equal to 0"));
        }
        let thinks = asked.thinking != Thinking::Off;
        if thinks && name == "temperature" && (number - 1.0).abs() > f64::EPSILON {
            return Err(ApiError::invalid(
                "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode. Please consult our \
                 documentation at https://platform.claude.com/docs/en/build-with-claude/extended-thinking",
            ));
        }
        if thinks && name == "top_p" && number < 0.95 {
            return Err(ApiError::invalid(
                "`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled or in adaptive mode.",
            ));
        }
        if thinks && name == "top_k" {
            return Err(ApiError::invalid(
                "`top_k` must be unset when thinking is enabled or in adaptive mode.",
            ));
        }
    }
    if generation >= Some((4, 5)) && fields.get("temperature").is_some() && fields.get("top_p").is_some() {
        return Err(ApiError::invalid(
            "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
        ));
    }
    Ok(())
}

fn stop(fields: &Fields<'_>) -> Result<Vec<String>, ApiError> {
    let sequences = fields.array("stop_sequences")?.into_iter().flatten().enumerate();
    sequences
        .map(|(at, sequence)| match sequence.as_str() {
            None => Err(should_be(&format!("stop_sequences.{at}"), "a valid string")),
            Some(text) if text.trim().is_empty() => {
                Err(ApiError::invalid("stop_sequences: each stop sequence must contain non-whitespace"))
            }
            Some(text) => Ok(text.to_owned()),
        })
        .collect()
}

/// Returns true if a model supports prefill. Models since 4.6 require the last turn to be the user's.
fn can_prefill(model: &str) -> bool {
    generation(model) < Some((4, 6))
}

/// Returns the generation of a model by its name: `claude-opus-4-6` is 4.6, `claude-3-5-sonnet-20241022` 3.5. `None`
/// for other names.
fn generation(model: &str) -> Option<(u32, u32)> {
    let mut parts = model.strip_prefix("claude-")?.split('-').map(|part| part.parse::<u32>().ok());
    let small = |number: Option<u32>| number.filter(|n| *n < 100);
    let major = parts.find_map(small)?;
    Some((major, parts.next().flatten().filter(|n| *n < 100).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_generation_is_derived_from_the_name() {
        for (model, expected) in [
            ("claude-opus-4-6", Some((4, 6))),
            ("claude-3-5-sonnet-20241022", Some((3, 5))),
            ("claude-sonnet-4-20250514", Some((4, 0))),
            ("claude-haiku-4-5-20251001", Some((4, 5))),
            ("claude-fable-5", Some((5, 0))),
            ("something", None),
        ] {
            assert_eq!(generation(model), expected, "{model}");
        }
        assert!(can_prefill("other-model") && !can_prefill("claude-opus-4-8"));
    }
}
