//! Request reader of `POST /v1/chat/completions`.

use serde_json::Value;

use super::super::conversation::Conversation;
use super::super::http::{Reply, stage};
use super::super::ids::Ids;
use super::super::script::{Ask, Choice, Format, Tool};
use super::super::server::Call;
use super::super::text::{tokens, weigh};
use super::chat_answer;
use super::errors::{
    ApiError, Fields, OVERLOADED, empty_array, for_status, missing, wrong_type, wrong_value,
};
use super::tools::{check_image, check_location, function_tool, mentions_json, read_choice, read_schema};

/// Members of a request. Source: `CompletionCreateParams` of openai-python 3.52.
const KNOWN: [&str; 37] = [
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "modalities",
    "model",
    "moderation",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
];

/// Parsed request.
#[derive(Debug)]
pub(super) struct Chat {
    pub(super) ask: Ask,
    /// Number of choices.
    pub(super) choices: usize,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    /// Number of alternatives per token in the log probabilities. `None` without log probabilities.
    pub(super) logprobs: Option<usize>,
    /// The request has the older `functions` instead of `tools`.
    pub(super) functions: bool,
    /// Service tier that the answer states.
    pub(super) tier: &'static str,
}

pub(super) fn answer(call: &Call<'_>, body: &Value, ids: Ids) -> Result<Reply, ApiError> {
    let mut chat = read(body)?;
    call.scenario.apply(&mut chat.ask, &call.request.body);
    let reply = || chat_answer::reply(&chat, call.pacing, ids);
    Ok(stage(&chat.ask.directives, OVERLOADED, |status| for_status(status).reply(), reply))
}

pub(super) fn read(body: &Value) -> Result<Chat, ApiError> {
    let fields = Fields(body);
    let model = super::model(fields.string("model")?)?;
    if super::is_for_responses(model) {
        let message = "This model is only supported in v1/responses and not in v1/chat/completions.";
        return Err(ApiError::new(404, "invalid_request_error", message).param("model"));
    }
    check_members(fields, model)?;
    if let Some(location) = fields
        .object("web_search_options")?
        .map(|search| search.object("user_location"))
        .transpose()?
        .flatten()
    {
        check_location(location, "web_search_options.user_location")?;
        if location.get("approximate").is_none() {
            return Err(missing("web_search_options.user_location.approximate"));
        }
    }
    let messages = fields.get("messages").ok_or_else(|| missing("messages"))?;
    let messages =
        messages.as_array().ok_or_else(|| wrong_type("messages", "an array of objects", messages))?;
    if messages.is_empty() {
        return Err(empty_array("messages"));
    }
    let mut ask = conversation(messages)?.ask("OpenAI", model);
    check_sampling(fields, model)?;
    let choices = fields.integer("n", 1)?.unwrap_or(1).min(128) as usize;
    let (tools, functions) = tools(fields)?;
    ask.choice = choice(fields, functions, !tools.is_empty())?;
    ask.prompt_tokens = tokens(
        weigh(fields.0.get("messages").unwrap_or(&Value::Null))
            + weigh(fields.0.get("tools").or_else(|| fields.0.get("functions")).unwrap_or(&Value::Null)),
    );
    ask.one_call = functions || fields.boolean("parallel_tool_calls")? == Some(false);
    if tools.is_empty() && fields.get("parallel_tool_calls").is_some() {
        return Err(only_with_tools("parallel_tool_calls"));
    }
    super::check_chat_model(fields, model, !tools.is_empty())?;
    ask.tools = tools;
    ask.format = format(fields, messages)?;
    ask.thinking = match fields.string("reasoning_effort")? {
        None | Some("none" | "minimal") => false,
        Some("low" | "medium" | "high" | "xhigh" | "max") => true,
        Some(other) => {
            let supported = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
            return Err(wrong_value("reasoning_effort", other, &supported));
        }
    };
    let most = fields.integer("max_tokens", 1)?;
    ask.max_tokens = fields.integer("max_completion_tokens", 1)?.or(most);
    ask.stop = stop(fields)?;
    let stream = fields.boolean("stream")?.unwrap_or(false);
    let options = fields.object("stream_options")?;
    if options.is_some() && !stream {
        return Err(ApiError::invalid(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        )
        .param("stream_options"));
    }
    let include_usage = match options {
        Some(options) => options.boolean("include_usage")?.unwrap_or(false),
        None => false,
    };
    let logprobs = match fields.boolean("logprobs")? {
        Some(true) => Some(fields.integer("top_logprobs", 0)?.unwrap_or(0).min(20) as usize),
        _ => None,
    };
    let tier = super::service_tier::served_tier(fields, &[])?;
    Ok(Chat { ask, choices, stream, include_usage, logprobs, functions, tier })
}

/// Refuses unknown members. Reasoning models and older ones have different error texts.
fn check_members(fields: Fields<'_>, model: &str) -> Result<(), ApiError> {
    if super::is_reasoning_model(model) {
        return fields.only(&KNOWN);
    }
    let members = fields.0.as_object().into_iter().flatten();
    match members.map(|(name, _)| name).find(|name| !KNOWN.contains(&name.as_str())) {
        Some(name) => Err(ApiError::invalid(format!("Unrecognized request argument supplied: {name}"))),
        None => Ok(()),
    }
}

fn check_sampling(fields: Fields<'_>, model: &str) -> Result<(), ApiError> {
    let temperature = fields.decimal("temperature", 0.0, 2.0)?;
    let top_p = fields.decimal("top_p", 0.0, 1.0)?;
    fields.decimal("presence_penalty", -2.0, 2.0)?;
    fields.decimal("frequency_penalty", -2.0, 2.0)?;
    if !super::is_reasoning_model(model) {
        return Ok(());
    }
    let unsupported = |name: &str, message: String| {
        Err(ApiError::invalid(message).param(name).code("unsupported_parameter"))
    };
    if fields.get("max_tokens").is_some() {
        return unsupported(
            "max_tokens",
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' \
             instead."
                .to_owned(),
        );
    }
    for name in ["stop", "logprobs", "logit_bias"] {
        if fields.get(name).is_some_and(|value| *value != Value::Bool(false)) {
            return unsupported(
                name,
                format!("Unsupported parameter: '{name}' is not supported with this model."),
            );
        }
    }
    for (name, value) in [("temperature", temperature), ("top_p", top_p)] {
        if let Some(value) = value.filter(|value| (*value - 1.0).abs() > f64::EPSILON) {
            return Err(ApiError::invalid(format!(
                "Unsupported value: '{name}' does not support {value} with this model. Only the default (1) value is \
                 supported."
            ))
            .param(name)
            .code("unsupported_value"));
        }
    }
    Ok(())
}

/// Reads the messages, and checks that calls and results match.
fn conversation(messages: &[Value]) -> Result<Conversation, ApiError> {
    let mut talk = Conversation::default();
    // Calls of the last model message without a result so far.
    let mut open: Vec<&str> = Vec::new();
    let mut answering = false;
    for (at, message) in messages.iter().enumerate() {
        let path = format!("messages[{at}]");
        if !message.is_object() {
            return Err(wrong_type(&path, "an object", message));
        }
        super::tools::check_message(message, at)?;
        let fields = Fields(message);
        let role =
            message.get("role").and_then(Value::as_str).ok_or_else(|| missing(&format!("{path}.role")))?;
        if role != "tool" {
            check_answered(&open, at)?;
            answering = false;
        }
        let content = |required: bool| match fields.get("content") {
            None if required => Err(no_content(at)),
            None => Ok(&Value::Null),
            Some(value) => Ok(value),
        };
        match role {
            "system" | "developer" => {
                for text in texts(content(true)?, &path)? {
                    talk.instruct(text);
                }
            }
            "user" => {
                talk.user();
                user_content(content(true)?, &path, &mut talk)?;
            }
            "assistant" => {
                talk.assistant();
                let calls = assistant_calls(message, &path)?;
                let bare =
                    ["refusal", "audio", "function_call"].iter().all(|name| fields.get(name).is_none());
                texts(content(calls.is_empty() && bare)?, &path)?;
                for (id, name) in calls {
                    talk.call(id, name);
                    open.push(id);
                    answering = true;
                }
                if let Some(name) = message.pointer("/function_call/name").and_then(Value::as_str) {
                    talk.call(name, name);
                }
            }
            "tool" => {
                let id =
                    fields.string("tool_call_id")?.ok_or_else(|| missing(&format!("{path}.tool_call_id")))?;
                if !answering {
                    return Err(ApiError::invalid(
                        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message \
                         with 'tool_calls'.",
                    )
                    .param(format!("messages.[{at}].role")));
                }
                let Some(found) = open.iter().position(|call| *call == id) else {
                    return Err(ApiError::invalid(format!(
                        "Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message."
                    ))
                    .param(format!("messages.[{at}].tool_call_id")));
                };
                open.remove(found);
                talk.result(id, texts(content(true)?, &path)?.join("\n"));
            }
            "function" => {
                let name = fields.string("name")?.ok_or_else(|| missing(&format!("{path}.name")))?;
                talk.result(name, texts(content(false)?, &path)?.join("\n"));
            }
            other => {
                let supported = ["system", "assistant", "user", "function", "tool", "developer"];
                return Err(wrong_value(&format!("{path}.role"), other, &supported));
            }
        }
    }
    check_answered(&open, messages.len().saturating_sub(1))?;
    Ok(talk)
}

fn check_answered(open: &[&str], at: usize) -> Result<(), ApiError> {
    if open.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
         'tool_call_id'. The following tool_call_ids did not have response messages: {}",
        open.join(", ")
    ))
    .param(format!("messages.[{at}].role")))
}

fn no_content(at: usize) -> ApiError {
    ApiError::invalid("Invalid value for 'content': expected a string, got null.")
        .param(format!("messages.[{at}].content"))
}

/// Returns the texts of a content that must consist of text.
fn texts<'a>(content: &'a Value, path: &str) -> Result<Vec<&'a str>, ApiError> {
    match content {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![text]),
        Value::Array(parts) => parts
            .iter()
            .enumerate()
            .map(|(at, part)| match part.get("type").and_then(Value::as_str) {
                Some(kind @ ("text" | "refusal")) => part
                    .get(kind)
                    .and_then(Value::as_str)
                    .ok_or_else(|| missing(&format!("{path}.content[{at}].{kind}"))),
                Some(other) => {
                    Err(wrong_value(&format!("{path}.content[{at}].type"), other, &["text", "refusal"]))
                }
                None => Err(missing(&format!("{path}.content[{at}].type"))),
            })
            .collect(),
        other => Err(wrong_type(&format!("{path}.content"), "one of a string or array of objects", other)),
    }
}

fn user_content(content: &Value, path: &str, talk: &mut Conversation) -> Result<(), ApiError> {
    let parts = match content {
        Value::String(text) => {
            talk.say(text);
            return Ok(());
        }
        Value::Array(parts) if parts.is_empty() => return Err(empty_array(&format!("{path}.content"))),
        Value::Array(parts) => parts,
        other => {
            return Err(wrong_type(&format!("{path}.content"), "one of a string or array of objects", other));
        }
    };
    for (at, part) in parts.iter().enumerate() {
        let path = format!("{path}.content[{at}]");
        let required = |name: &str| {
            let value = part.pointer(&format!("/{}", name.replace('.', "/"))).and_then(Value::as_str);
            value.ok_or_else(|| missing(&format!("{path}.{name}")))
        };
        match required("type")? {
            "text" => talk.say(required("text")?),
            "image_url" => {
                check_image(required("image_url.url")?, &format!("{path}.image_url.url"))?;
                talk.media.images += 1;
            }
            "input_audio" => {
                required("input_audio.data")?;
                required("input_audio.format")?;
                talk.media.recordings += 1;
            }
            "file" => {
                if required("file.file_id").is_err() {
                    required("file.file_data")?;
                }
                talk.media.documents += 1;
            }
            other => {
                let supported = ["text", "image_url", "input_audio", "refusal", "audio", "file"];
                return Err(wrong_value(&format!("{path}.type"), other, &supported));
            }
        }
    }
    Ok(())
}

/// Returns identifiers and names of the calls in a model message.
fn assistant_calls<'a>(message: &'a Value, path: &str) -> Result<Vec<(&'a str, &'a str)>, ApiError> {
    let Some(calls) = Fields(message).array("tool_calls")? else {
        return Ok(Vec::new());
    };
    if calls.is_empty() {
        return Err(empty_array(&format!("{path}.tool_calls")));
    }
    let read = |(at, call): (usize, &'a Value)| {
        let path = format!("{path}.tool_calls[{at}]");
        let string = |pointer: &str| {
            let value = call.pointer(&format!("/{}", pointer.replace('.', "/"))).and_then(Value::as_str);
            value.ok_or_else(|| missing(&format!("{path}.{pointer}")))
        };
        let id = super::tools::check_call_id(string("id")?, &format!("{path}.id"), 40)?;
        match string("type")? {
            "function" => {
                string("function.arguments")?;
                Ok((id, string("function.name")?))
            }
            "custom" => {
                string("custom.input")?;
                Ok((id, string("custom.name")?))
            }
            other => Err(wrong_value(&format!("{path}.type"), other, &["function", "custom"])),
        }
    };
    calls.iter().enumerate().map(read).collect()
}

/// Returns the tools, and whether they came as `functions`.
fn tools(fields: Fields<'_>) -> Result<(Vec<Tool>, bool), ApiError> {
    if let Some(functions) = fields.array("functions")? {
        let read = |(at, function)| function_tool(function, &format!("functions[{at}]"), false);
        return Ok((functions.iter().enumerate().map(read).collect::<Result<_, _>>()?, true));
    }
    let Some(tools) = fields.array("tools")? else {
        return Ok((Vec::new(), false));
    };
    if tools.is_empty() {
        return Err(empty_array("tools"));
    }
    let mut read = Vec::new();
    for (at, tool) in tools.iter().enumerate() {
        let path = format!("tools[{at}]");
        match tool.get("type").and_then(Value::as_str) {
            Some("function") => {
                let function = tool.get("function").ok_or_else(|| missing(&format!("{path}.function")))?;
                read.push(function_tool(function, &format!("{path}.function"), true)?);
            }
            Some("custom") => {
                let name = tool.pointer("/custom/name").and_then(Value::as_str);
                let name = name.ok_or_else(|| missing(&format!("{path}.custom.name")))?;
                read.push(Tool { name: name.to_owned(), schema: Value::Null, custom: true });
            }
            Some(other) => return Err(wrong_value(&format!("{path}.type"), other, &["function", "custom"])),
            None => return Err(missing(&format!("{path}.type"))),
        }
    }
    Ok((read, false))
}

fn only_with_tools(name: &str) -> ApiError {
    ApiError::invalid(format!(
        "Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified."
    ))
    .param(name)
}

fn choice(fields: Fields<'_>, functions: bool, tools: bool) -> Result<Choice, ApiError> {
    let name = if functions { "function_call" } else { "tool_choice" };
    let Some(value) = fields.get(name) else {
        return Ok(Choice::Auto);
    };
    if !tools && !functions {
        return Err(only_with_tools(name));
    }
    read_choice(value, name)
}

fn format(fields: Fields<'_>, messages: &[Value]) -> Result<Format, ApiError> {
    let Some(format) = fields.object("response_format")? else {
        return Ok(Format::Text);
    };
    match format.0.get("type").and_then(Value::as_str) {
        Some("text") => Ok(Format::Text),
        Some("json_object") => {
            if !mentions_json(&Value::Array(messages.to_vec())) {
                return Err(ApiError::invalid(
                    "'messages' must contain the word 'json' in some form, to use 'response_format' of type \
                     'json_object'.",
                )
                .param("messages"));
            }
            Ok(Format::Json)
        }
        Some("json_schema") => {
            let inner = format.0.get("json_schema");
            let inner = inner.ok_or_else(|| missing("response_format.json_schema"))?;
            read_schema(inner, "response_format.json_schema", "response_format")
        }
        Some(other) => {
            Err(wrong_value("response_format.type", other, &["json_object", "json_schema", "text"]))
        }
        None => Err(missing("response_format.type")),
    }
}

fn stop(fields: Fields<'_>) -> Result<Vec<String>, ApiError> {
    match fields.get("stop") {
        None => Ok(Vec::new()),
        Some(Value::String(one)) => Ok(vec![one.clone()]),
        Some(Value::Array(many)) if many.len() > 4 => Err(ApiError::invalid(format!(
            "Invalid 'stop': array too long. Expected an array with maximum length 4, but got an array with length {} \
             instead.",
            many.len()
        ))
        .param("stop")
        .code("array_above_max_length")),
        Some(Value::Array(many)) => many
            .iter()
            .enumerate()
            .map(|(at, one)| {
                let text = one.as_str().map(str::to_owned);
                text.ok_or_else(|| wrong_type(&format!("stop[{at}]"), "a string", one))
            })
            .collect(),
        Some(other) => Err(wrong_type("stop", "one of a string or array of strings", other)),
    }
}
