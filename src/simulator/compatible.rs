//! Requests of chat completions at providers other than OpenAI: what each of them refuses. No server simulates them.
//!
//! Sources: the providers' pages of September to November 2026 ("Create chat completion" and its like), as far as they state
//! it; else what adapters of several clients leave out for the provider.

use serde_json::Value;

use super::open_rules::{self, Control, OpenRules};

/// Range of a number, as the provider states it.
#[derive(Debug, Clone, Copy)]
struct Range {
    least: f64,
    most: f64,
    /// Whether the ends themselves are refused.
    open: [bool; 2],
}

impl Range {
    const fn closed(least: f64, most: f64) -> Range {
        Range { least, most, open: [false, false] }
    }

    fn has(self, number: f64) -> bool {
        let [below, above] = self.open;
        (number > self.least || number >= self.least && !below)
            && (number < self.most || number <= self.most && !above)
    }
}

/// Rules of a provider.
#[derive(Debug, Clone, Copy)]
struct Provider {
    name: &'static str,
    /// Members that are refused, or have no effect.
    refuses: &'static [&'static str],
    /// Members of messages that are refused.
    message_refuses: &'static [&'static str],
    temperature: Range,
    top_p: Range,
    /// Words of the tool choice.
    choices: &'static [&'static str],
    /// Whether one tool can be required by name.
    named: bool,
    /// Whether a call can be required while the model reasons.
    forced_while_reasoning: bool,
    /// Whether the role `developer` is known.
    developer: bool,
    /// Whether ids of calls are nine letters and digits.
    nine_letters: bool,
    /// Whether an array of texts alone is refused as content.
    joins_texts: bool,
    /// Whether `strict` is refused in a tool.
    loose_tools: bool,
    /// Whether the conversation has its instructions first, and no user turn behind a result.
    strict_turns: bool,
    /// Whether unknown members are refused.
    closed: bool,
}

/// What OpenAI alone has.
const OWN: [&str; 9] = [
    "metadata",
    "moderation",
    "prediction",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "verbosity",
];

/// Members that hosts and other gateways have added to messages and calls.
const FOREIGN: [&str; 4] =
    ["extra_content", "provider_specific_fields", "reasoning_details", "thinking_blocks"];

const USUAL: Provider = Provider {
    name: "",
    refuses: &[],
    message_refuses: &[],
    temperature: Range::closed(0.0, 2.0),
    top_p: Range::closed(0.0, 1.0),
    choices: &["none", "auto", "required"],
    named: true,
    forced_while_reasoning: true,
    developer: false,
    nine_letters: false,
    joins_texts: false,
    loose_tools: false,
    strict_turns: false,
    closed: false,
};

const PROVIDERS: [Provider; 12] = [
    Provider {
        name: "deepseek",
        refuses: &[
            "logit_bias",
            "max_completion_tokens",
            "n",
            "parallel_tool_calls",
            "prompt_cache_key",
            "seed",
            "user",
            "web_search_options",
        ],
        top_p: Range { least: 0.0, most: 1.0, open: [true, false] },
        forced_while_reasoning: false,
        joins_texts: true,
        loose_tools: true,
        ..USUAL
    },
    Provider {
        name: "qwen",
        refuses: &["logit_bias", "max_completion_tokens", "prompt_cache_key", "reasoning_effort", "user"],
        temperature: Range { least: 0.0, most: 2.0, open: [false, true] },
        top_p: Range { least: 0.0, most: 1.0, open: [true, false] },
        choices: &["none", "auto"],
        forced_while_reasoning: false,
        loose_tools: true,
        ..USUAL
    },
    Provider {
        name: "moonshot",
        refuses: &[
            "logit_bias",
            "logprobs",
            "max_completion_tokens",
            "parallel_tool_calls",
            "seed",
            "user",
            "web_search_options",
        ],
        temperature: Range::closed(0.0, 1.0),
        joins_texts: true,
        ..USUAL
    },
    Provider {
        name: "glm",
        refuses: &[
            "frequency_penalty",
            "logit_bias",
            "logprobs",
            "max_completion_tokens",
            "n",
            "parallel_tool_calls",
            "presence_penalty",
            "prompt_cache_key",
            "seed",
            "user",
            "web_search_options",
        ],
        temperature: Range { least: 0.0, most: 1.0, open: [true, true] },
        top_p: Range::closed(0.01, 1.0),
        choices: &["auto"],
        named: false,
        loose_tools: true,
        ..USUAL
    },
    Provider { name: "xai", refuses: &["logit_bias", "web_search_options"], ..USUAL },
    Provider {
        name: "groq",
        refuses: &["logit_bias", "logprobs", "n", "prompt_cache_key", "user", "web_search_options"],
        message_refuses: &["name", "reasoning", "reasoning_content"],
        ..USUAL
    },
    Provider {
        name: "mistral",
        refuses: &[
            "logit_bias",
            "logprobs",
            "max_completion_tokens",
            "seed",
            "stream_options",
            "user",
            "web_search_options",
        ],
        message_refuses: &["reasoning", "reasoning_content"],
        choices: &["none", "auto", "any", "required"],
        named: false,
        nine_letters: true,
        strict_turns: true,
        closed: true,
        loose_tools: true,
        ..USUAL
    },
    Provider { name: "ark", refuses: &["prompt_cache_key", "seed", "user", "web_search_options"], ..USUAL },
    Provider {
        name: "fireworks",
        refuses: &["prompt_cache_key", "web_search_options"],
        choices: &["none", "auto", "any", "required"],
        loose_tools: true,
        ..USUAL
    },
    Provider { name: "together", refuses: &["prompt_cache_key", "user", "web_search_options"], ..USUAL },
    Provider {
        name: "ollama",
        refuses: &[
            "logit_bias",
            "logprobs",
            "max_completion_tokens",
            "n",
            "parallel_tool_calls",
            "prompt_cache_key",
            "tool_choice",
            "user",
            "web_search_options",
        ],
        loose_tools: true,
        ..USUAL
    },
    Provider { name: "openrouter", developer: true, ..USUAL },
];

/// Members that a provider with a closed request takes (Mistral API, "Chat completion").
const CLOSED: [&str; 24] = [
    "frequency_penalty",
    "guardrails",
    "max_tokens",
    "messages",
    "metadata",
    "model",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_mode",
    "random_seed",
    "reasoning_effort",
    "response_format",
    "safe_prompt",
    "service_tier",
    "stop",
    "stream",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
    "verbosity",
];

/// Providers that serve models of their own.
const MAKERS: [&str; 7] = ["deepseek", "qwen", "moonshot", "glm", "xai", "mistral", "ark"];

type Checked = Result<(), String>;

fn refuse(what: impl Into<String>) -> Checked {
    Err(what.into())
}

/// Returns why a provider refuses a request; `None` if it takes it, or is not known.
pub(super) fn refusal(provider: &str, body: &Value) -> Option<String> {
    let rules = PROVIDERS.iter().find(|rules| rules.name == provider)?;
    let model = open_rules::of(body["model"].as_str().unwrap_or_default());
    // A host of models of others has rules of its own; what a model reads is the same everywhere.
    let is_maker = MAKERS.contains(&provider);
    let images = model.is_none_or(|model| model.images);
    check(rules, model.filter(|_| is_maker), images, body).err()
}

fn check(provider: &Provider, model: Option<&OpenRules>, images: bool, body: &Value) -> Checked {
    members(provider, model, body)?;
    sampling(provider, model, body)?;
    let reasons = reasoning(model, body)?;
    choice(provider, model, body, reasons)?;
    if model.is_some_and(|model| !model.schema)
        && body.pointer("/response_format/type").is_some_and(|kind| kind == "json_schema")
    {
        return refuse("response_format: json_schema is not supported by this model");
    }
    let needs_reasoning = reasons && model.is_some_and(|model| model.needs_reasoning);
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    for (at, message) in messages.iter().enumerate() {
        one(provider, message, images, needs_reasoning).map_err(|why| format!("messages[{at}]: {why}"))?;
    }
    answered(messages)?;
    if provider.strict_turns { order(messages) } else { Ok(()) }
}

/// Checks that each call has its result right behind it ("An assistant message with 'tool_calls' must be followed by tool messages
/// responding to each 'tool_call_id'", DeepSeek, Moonshot, GLM; "Not the same number of function calls and responses", Mistral).
fn answered(messages: &[Value]) -> Checked {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            match open.iter().position(|call| *call == id) {
                Some(at) => {
                    open.remove(at);
                }
                None => return refuse(format!("the result '{id}' has no call")),
            }
            continue;
        }
        if !open.is_empty() {
            return refuse("tool_calls must be followed by tool messages");
        }
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        open.extend(calls.filter_map(|call| call["id"].as_str()));
    }
    if open.is_empty() { Ok(()) } else { refuse("tool_calls must be followed by tool messages") }
}

/// Returns whether a member has the value that it has if it is absent.
fn is_default(name: &str, value: &Value) -> bool {
    match name {
        "n" => value == 1,
        "parallel_tool_calls" => value == true,
        "logprobs" | "store" => value == false,
        "service_tier" | "tool_choice" => value == "auto",
        _ => value.is_null(),
    }
}

fn members(provider: &Provider, model: Option<&OpenRules>, body: &Value) -> Checked {
    let of_model = model.map_or(&[][..], |model| model.refuses);
    for (name, value) in body.as_object().into_iter().flatten() {
        let own: &[&str] = if provider.name == "openrouter" || provider.closed { &[] } else { &OWN };
        let mut refused = [provider.refuses, of_model, own].into_iter().flatten();
        if refused.any(|refused| refused == name) && !is_default(name, value) && !value.is_null() {
            return refuse(format!("{name} is not supported"));
        }
        if provider.closed && !CLOSED.contains(&name.as_str()) {
            return refuse(format!("{name}: extra_forbidden"));
        }
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        if tool["type"] == "custom" {
            return refuse("tools: the type custom is not supported");
        }
        if provider.loose_tools && tool["function"].get("strict").is_some() {
            return refuse("tools: strict is not supported");
        }
    }
    Ok(())
}

fn sampling(provider: &Provider, model: Option<&OpenRules>, body: &Value) -> Checked {
    for (name, range) in [("temperature", provider.temperature), ("top_p", provider.top_p)] {
        let Some(number) = body[name].as_f64() else { continue };
        if !range.has(number) {
            return refuse(format!("{name}: {number} is out of range"));
        }
        if model.is_some_and(|model| !model.sampling) && (number - 1.0).abs() > f64::EPSILON {
            return refuse(format!("{name}: only 1 is allowed for this model"));
        }
    }
    Ok(())
}

/// Checks the settings of reasoning. Returns whether the model reasons.
fn reasoning(model: Option<&OpenRules>, body: &Value) -> Result<bool, String> {
    let Some(model) = model else { return Ok(false) };
    let effort = body["reasoning_effort"].as_str();
    let thinking = body.pointer("/thinking/type").and_then(Value::as_str);
    let by_effort = matches!(model.control, Control::Effort | Control::EffortAndThinking);
    if let Some(effort) = effort {
        let is_off = effort == "none" && model.off && model.control == Control::Effort;
        if !(by_effort && model.efforts.contains(&effort) || is_off) {
            return Err(format!("reasoning_effort: '{effort}' is not supported by this model"));
        }
    }
    if let Some(thinking) = thinking {
        let known = matches!(model.control, Control::EffortAndThinking | Control::Thinking);
        if !known
            || !["enabled", "disabled", "auto"].contains(&thinking)
            || thinking == "disabled" && !model.off
        {
            return Err(format!("thinking: '{thinking}' is not supported by this model"));
        }
    }
    if let Some(budget) = body["thinking_budget"].as_u64()
        && (model.control != Control::Budget || !(1..=81_920).contains(&budget))
    {
        return Err(format!("thinking_budget: {budget} is not supported by this model"));
    }
    let switched = body["enable_thinking"].as_bool();
    Ok(match (effort, thinking, switched) {
        (Some("none"), _, _) | (_, Some("disabled"), _) | (_, _, Some(false)) => false,
        (Some(_), _, _) | (_, Some(_), _) | (_, _, Some(true)) => true,
        _ => model.by_default,
    })
}

fn choice(provider: &Provider, model: Option<&OpenRules>, body: &Value, reasons: bool) -> Checked {
    let choice = &body["tool_choice"];
    if choice.is_null() {
        return Ok(());
    }
    let word = choice.as_str();
    if body["tools"].as_array().is_none_or(Vec::is_empty) {
        return refuse("tool_choice without tools");
    }
    let is_known = match word {
        Some(word) => provider.choices.contains(&word),
        None => provider.named && choice["type"] == "function",
    };
    if !is_known {
        return refuse(format!("tool_choice: {choice} is not supported"));
    }
    let is_forced = !matches!(word, Some("auto" | "none"));
    if is_forced && (model.is_some_and(|model| !model.forced) || reasons && !provider.forced_while_reasoning)
    {
        return refuse(format!("tool_choice: {choice} is not supported by this model, or while it reasons"));
    }
    Ok(())
}

/// Checks one message.
fn one(provider: &Provider, message: &Value, images: bool, needs_reasoning: bool) -> Checked {
    let role = message["role"].as_str().unwrap_or_default();
    let is_known =
        ["system", "user", "assistant", "tool"].contains(&role) || provider.developer && role == "developer";
    if !is_known {
        return refuse(format!("role: '{role}' is not known"));
    }
    // A host that sells other providers' models reads them; the rest know none of them.
    if !matches!(provider.name, "openrouter" | "together" | "xai") {
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let objects = calls.flat_map(|call| [call, &call["function"]]).chain([message]);
        for object in objects {
            if let Some(name) = FOREIGN.iter().find(|name| object.get(**name).is_some()) {
                return refuse(format!("{name}: extra_forbidden"));
            }
        }
    }
    for name in provider.message_refuses {
        // Messages of tools have the tool's name.
        if message.get(name).is_some_and(|value| !value.is_null()) && !(*name == "name" && role == "tool") {
            return refuse(format!("{name} is not supported"));
        }
    }
    let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
    let ids = calls.iter().map(|call| &call["id"]).chain(message.get("tool_call_id"));
    for id in ids.filter_map(Value::as_str) {
        if provider.nine_letters && !(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
            return refuse(format!("the id '{id}' has not nine letters and digits"));
        }
    }
    if needs_reasoning && !calls.is_empty() && message.get("reasoning_content").is_none() {
        return refuse("reasoning_content is missing beside tool_calls");
    }
    let Some(parts) = message["content"].as_array() else { return Ok(()) };
    if provider.joins_texts && !parts.is_empty() && parts.iter().all(|part| part["type"] == "text") {
        return refuse("content: an array of texts");
    }
    match parts.iter().find(|part| part["type"] == "image_url" && !images) {
        Some(_) => refuse("content: this model reads no images"),
        None => Ok(()),
    }
}

/// Checks the order of turns: instructions first, and none of the user behind a result.
fn order(messages: &[Value]) -> Checked {
    for (before, message) in messages.iter().zip(messages.iter().skip(1)) {
        let (before, role) = (before["role"].as_str().unwrap_or_default(), message["role"].as_str());
        let is_wrong = match role {
            Some("system") => before != "system",
            Some("user") => before == "tool",
            _ => false,
        };
        if is_wrong {
            return refuse(format!("unexpected role '{}' after role '{before}'", role.unwrap_or_default()));
        }
    }
    match messages.last() {
        Some(last) if last["role"] == "assistant" && last["prefix"] != true => {
            refuse("expected last role user or tool (or assistant with prefix true)")
        }
        _ => Ok(()),
    }
}
