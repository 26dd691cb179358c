//! Request reader of `POST /v1/responses`.

use serde_json::{Value, json};

use super::super::http::{Reply, stage};
use super::super::ids::Ids;
use super::super::script::{Ask, Choice, Format, Tool};
use super::super::server::Call;
use super::super::text::{tokens, weigh};
use super::errors::{ApiError, Fields, OVERLOADED, for_status, missing, wrong_type, wrong_value};
use super::store::{Store, StoreView};
use super::tools::{check_location, function_tool, mentions_json, read_choice, read_schema};
use super::{compaction, input, response_answer};

/// Members of a request. Source: `ResponseCreateParams` of openai-python 3.52, and `client_metadata`: OpenAI does not
/// document it, but its API accepts it, and Codex sends it with every request.
const KNOWN: [&str; 34] = [
    "access_programs",
    "background",
    "client_metadata",
    "context_management",
    "conversation",
    "image",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "moderation",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

/// Members of chat completions that have other names here.
const MOVED: [(&str, &str); 6] = [
    ("messages", "input"),
    ("response_format", "text.format"),
    ("max_tokens", "max_output_tokens"),
    ("max_completion_tokens", "max_output_tokens"),
    ("reasoning_effort", "reasoning.effort"),
    ("verbosity", "text.verbosity"),
];

/// Parsed request.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) ask: Ask,
    pub(super) body: Fields<'a>,
    pub(super) stream: bool,
    pub(super) store: bool,
    /// The reasoning item has a summary.
    pub(super) summary: bool,
    /// The reasoning item has encrypted content.
    pub(super) encrypted: bool,
    /// The request asks for a compaction instead of a message.
    pub(super) compacts: bool,
    /// Service tier that the answer states.
    pub(super) tier: &'static str,
    /// Items of the previous responses.
    pub(super) history: Vec<Value>,
    /// Items of this request.
    pub(super) input: Vec<Value>,
}

pub(super) fn answer(
    call: &Call<'_>,
    store: StoreView<'_>,
    body: &Value,
    ids: Ids,
) -> Result<Reply, ApiError> {
    let mut asked = read(body, store, &KNOWN, true)?;
    call.scenario.apply(&mut asked.ask, &call.request.body);
    let reply = || response_answer::reply(&asked, store, call.pacing, ids);
    Ok(stage(&asked.ask.directives, OVERLOADED, |status| for_status(status).reply(), reply))
}

/// Answers a request with `generate: false`, which exists over a WebSocket only: a response without output and usage,
/// which can be continued.
pub(super) fn prepare(store: StoreView<'_>, body: &Value, ids: Ids) -> Result<Reply, ApiError> {
    let asked = read(body, store, &KNOWN, false)?;
    Ok(response_answer::empty(&asked, store, ids))
}

/// Answers `POST /v1/responses/compact`.
pub(super) fn compact(store: &Store, body: &Value, ids: Ids) -> Result<Reply, ApiError> {
    let asked = read(body, StoreView { stored: store, connection: None }, &compaction::KNOWN, true)?;
    let reply = || compaction::reply(&asked, ids);
    Ok(stage(&asked.ask.directives, OVERLOADED, |status| for_status(status).reply(), reply))
}

/// Answers `POST /v1/responses/input_tokens` with the number of input tokens.
pub(super) fn input_tokens(store: &Store, body: &Value) -> Result<Reply, ApiError> {
    let asked = read(body, StoreView { stored: store, connection: None }, &KNOWN, true)?;
    let count = asked.ask.prompt_tokens;
    Ok(Reply::json(200, &json!({"object": "response.input_tokens", "input_tokens": count})))
}

/// Checks a request that continues no stored response.
pub(super) fn check(body: &Value) -> Result<(), ApiError> {
    let store = Store::default();
    read(body, StoreView { stored: &store, connection: None }, &KNOWN, true).map(drop)
}

fn read<'a>(
    body: &'a Value,
    store: StoreView<'_>,
    known: &[&str],
    generates: bool,
) -> Result<Asked<'a>, ApiError> {
    let fields = Fields(body);
    for (name, moved) in MOVED {
        if fields.get(name).is_some() {
            return Err(ApiError::invalid(format!(
                "Unsupported parameter: '{name}'. In the Responses API, this parameter has moved to '{moved}'. Try \
                 again with the new parameter. See the API documentation for more information: \
                 https://platform.openai.com/docs/api-reference/responses/create."
            ))
            .param(name)
            .code("unsupported_parameter"));
        }
    }
    fields.only(known)?;
    let model = super::model(Some(fields.string("model")?.ok_or_else(|| missing("model"))?))?;
    let tier = super::service_tier::served_tier(fields, &["ultrafast"])?;
    check_sampling(fields, model)?;
    let history = match fields.string("previous_response_id")? {
        None => Vec::new(),
        Some(id) => store.get(id).map(|stored| stored.history.clone()).ok_or_else(|| {
            ApiError::invalid(format!("Previous response with id '{id}' not found."))
                .param("previous_response_id")
                .code("previous_response_not_found")
        })?,
    };
    let items = match fields.get("input") {
        Some(value) => input::items(value, store)?,
        None => Vec::new(),
    };
    if generates && items.is_empty() && history.is_empty() && fields.get("prompt").is_none() {
        return Err(input::none_given());
    }
    let compacts = compaction::is_triggered(&items)?;
    let everything: Vec<Value> = history.iter().chain(&items).cloned().collect();
    let instructions = fields.string("instructions")?.unwrap_or_default();
    let mut ask = input::conversation(instructions, &everything)?.ask("OpenAI", model);
    ask.tools = tools(fields, &everything)?;
    ask.choice = match fields.get("tool_choice") {
        Some(choice) if choice.get("function").is_some() => return Err(unknown("tool_choice.function")),
        Some(choice) => read_choice(choice, "tool_choice")?,
        None => Choice::Auto,
    };
    check_named(&ask.choice, &ask.tools)?;
    ask.one_call = fields.boolean("parallel_tool_calls")? == Some(false);
    ask.format = format(fields, &everything)?;
    ask.max_tokens = fields.integer("max_output_tokens", 16)?;
    ask.prompt_tokens = tokens(
        instructions.len()
            + everything.iter().map(weigh).sum::<usize>()
            + fields.get("tools").map_or(0, weigh),
    );
    match fields.string("truncation")? {
        None | Some("auto" | "disabled") => {}
        Some(other) => return Err(wrong_value("truncation", other, &["auto", "disabled"])),
    }
    fields.integer("max_tool_calls", 1)?;
    fields.object("metadata")?;
    check_client_metadata(fields)?;
    let (thinking, summary) = read_reasoning(fields)?;
    let reasoning = fields.object("reasoning")?;
    let effort = reasoning.map(|reasoning| reasoning.string("effort")).transpose()?.flatten();
    super::check_model(fields, model, effort, "reasoning.effort")?;
    ask.thinking = thinking;
    let include = fields.array("include")?.map_or(&[][..], Vec::as_slice);
    let encrypted = include.iter().any(|name| name == "reasoning.encrypted_content");
    Ok(Asked {
        ask,
        body: fields,
        stream: fields.boolean("stream")?.unwrap_or(false),
        store: fields.boolean("store")?.unwrap_or(true),
        summary,
        encrypted,
        compacts,
        tier,
        history,
        input: items,
    })
}

/// Returns whether the model reasons before it answers, and whether a summary of its reasoning is requested.
fn read_reasoning(fields: Fields<'_>) -> Result<(bool, bool), ApiError> {
    let reasoning = fields.object("reasoning")?;
    let effort = reasoning.map(|reasoning| reasoning.string("effort")).transpose()?.flatten();
    for name in ["summary", "generate_summary"] {
        match reasoning.map(|reasoning| reasoning.string(name)).transpose()?.flatten() {
            None | Some("auto" | "concise" | "detailed") => {}
            Some(other) => {
                let path = format!("reasoning.{name}");
                return Err(wrong_value(&path, other, &["concise", "detailed", "auto"]));
            }
        }
    }
    let summary = reasoning.is_some_and(|r| r.get("summary").or(r.get("generate_summary")).is_some());
    let thinking = match effort {
        None => summary,
        Some("none" | "minimal") => false,
        Some("low" | "medium" | "high" | "xhigh" | "max") => true,
        Some(other) => {
            let supported = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
            return Err(wrong_value("reasoning.effort", other, &supported));
        }
    };
    Ok((thinking, summary))
}

/// Checks `client_metadata`: an object of strings.
fn check_client_metadata(fields: Fields<'_>) -> Result<(), ApiError> {
    let Some(metadata) = fields.object("client_metadata")? else { return Ok(()) };
    match metadata.0.as_object().into_iter().flatten().find(|(_, value)| !value.is_string()) {
        None => Ok(()),
        Some((name, value)) => Err(wrong_type(&format!("client_metadata.{name}"), "a string", value)),
    }
}

fn unknown(path: &str) -> ApiError {
    ApiError::invalid(format!("Unknown parameter: '{path}'.")).param(path).code("unknown_parameter")
}

fn check_sampling(fields: Fields<'_>, model: &str) -> Result<(), ApiError> {
    fields.decimal("temperature", 0.0, 2.0)?;
    fields.decimal("top_p", 0.0, 1.0)?;
    for name in ["temperature", "top_p"] {
        if super::is_reasoning_model(model) && fields.get(name).is_some_and(|v| v.as_f64() != Some(1.0)) {
            return Err(ApiError::invalid(format!(
                "Unsupported parameter: '{name}' is not supported with this model."
            ))
            .param(name));
        }
    }
    Ok(())
}

/// Checks that the tools that must be called are offered.
fn check_named(choice: &Choice, tools: &[Tool]) -> Result<(), ApiError> {
    let Choice::Named(names) = choice else { return Ok(()) };
    match names.iter().find(|name| !tools.iter().any(|tool| tool.name == **name)) {
        None => Ok(()),
        Some(unknown) => {
            let message = format!("Tool choice '{unknown}' not found in 'tools' parameter.");
            Err(ApiError::invalid(message).param("tool_choice"))
        }
    }
}

/// Reads the tools of the member `tools`, and of the items `additional_tools`.
fn tools(fields: Fields<'_>, items: &[Value]) -> Result<Vec<Tool>, ApiError> {
    let mut read = Vec::new();
    read_tools(fields.array("tools")?.map_or(&[][..], Vec::as_slice), "tools", &mut read)?;
    for (at, item) in items.iter().enumerate() {
        if item.get("type").and_then(Value::as_str) == Some("additional_tools") {
            let tools = item.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            read_tools(tools, &format!("input[{at}].tools"), &mut read)?;
        }
    }
    Ok(read)
}

fn read_tools(list: &[Value], path: &str, read: &mut Vec<Tool>) -> Result<(), ApiError> {
    for (at, tool) in list.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let string = |name: &str| tool.get(name).and_then(Value::as_str);
        let required = |name: &str| string(name).ok_or_else(|| missing(&format!("{path}.{name}")));
        if let Some(location) = Fields(tool).object("user_location")? {
            check_location(location, &format!("{path}.user_location"))?;
        }
        if tool.get("function").is_some() {
            return Err(unknown(&format!("{path}.function")));
        }
        match required("type")? {
            "function" => read.push(function_tool(tool, &path, true)?),
            "custom" => {
                let name = required("name")?.to_owned();
                read.push(Tool { name, schema: Value::Null, custom: true });
            }
            "namespace" => {
                required("name")?;
                required("description")?;
                let inner = tool.get("tools").and_then(Value::as_array);
                let inner = inner.ok_or_else(|| missing(&format!("{path}.tools")))?;
                // Checked like the others, and never called.
                read_tools(inner, &format!("{path}.tools"), &mut Vec::new())?;
            }
            // Tools that the provider runs itself are accepted and never called.
            _ => {}
        }
    }
    Ok(())
}

fn format(fields: Fields<'_>, items: &[Value]) -> Result<Format, ApiError> {
    let Some(text) = fields.object("text")? else {
        return Ok(Format::Text);
    };
    let Some(format) = text.get("format") else {
        return Ok(Format::Text);
    };
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(Format::Text),
        Some("json_object") => {
            if items.iter().any(mentions_json) || fields.get("instructions").is_some_and(mentions_json) {
                return Ok(Format::Json);
            }
            Err(ApiError::invalid(
                "Response input messages must contain the word 'json' in some form to use 'text.format' of type \
                 'json_object'.",
            )
            .param("input"))
        }
        Some("json_schema") => {
            if format.get("schema").is_none() {
                return Err(missing("text.format.schema"));
            }
            read_schema(format, "text.format", "text.format.schema")
        }
        Some(other) => Err(wrong_value("text.format.type", other, &["json_object", "json_schema", "text"])),
        None => Err(missing("text.format.type")),
    }
}
