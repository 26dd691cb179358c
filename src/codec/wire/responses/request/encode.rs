//! Encoder of a request. The conversation is written last, so that successive requests of a conversation share a
//! prefix.

use super::input;
use super::options::LOGPROBS;
use crate::canonical::dialect::{self, ReasoningParameter, ReasoningSupport};
use crate::canonical::request::{Extra, Search};
use crate::canonical::{
    Dialect, Effort, Index, IndexKey, OutputFormat, Request, Thinking, Tool, ToolChoice, ToolKind,
};
use crate::wire::codec::LossNotes;
use crate::wire::watch::{elements, members};
use crate::wire::{Format, schema};
use json::{Cursor, JsonStr, RawJson, RopeBuilder, Writer};

/// Minimum of `max_output_tokens` at OpenAI, in tokens.
const MIN_OUTPUT: u64 = 16;

/// Value of `include` that requests encrypted reasoning, which the client can send back in its next request.
const ENCRYPTED: &str = "reasoning.encrypted_content";

/// Members that have the same meaning in the chat format.
const SHARED: [&str; 6] = [
    "max_tool_calls",
    "moderation",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "user",
];

/// Standard members of the chat format (no extensions) that the responses format does not have.
const CHAT_ONLY: [&str; 8] = [
    "audio",
    "function_call",
    "functions",
    "logit_bias",
    "prediction",
    "stop",
    "stream_options",
    "web_search_options",
];

type Json<'o> = Writer<'o, RopeBuilder>;

/// Writes a request. Elements that the format or the model does not support are recorded in `notes`.
pub fn encode(request: &Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes, out: &mut RopeBuilder) {
    let mut json = Writer::new(out);
    json.begin_object().key("model").string(dialect.model);
    if request.stream {
        json.key("stream").boolean(true);
    }
    if let Some(limit) = request.max_output {
        if limit < MIN_OUTPUT {
            notes.clamp(if notes.from() == Format::Generate { "maxOutputTokens" } else { "max_tokens" });
        }
        json.key("max_output_tokens").number(limit.max(MIN_OUTPUT));
    }
    put_sampling(request, dialect, notes, &mut json);
    put_reasoning(request, dialect, notes, &mut json);
    put_text(request, notes, &mut json);
    put_tools(request, notes, &mut json);
    put_choice(request, notes, &mut json);
    if let Some(parallel) = request.parallel_tools {
        json.key("parallel_tool_calls").boolean(parallel);
    }
    put_account(request, notes.from(), &mut json);
    put_include(request, dialect, notes, &mut json);
    for extra in &request.extra {
        put_extra(extra, dialect, notes, &mut json);
    }
    if !request.stop.is_empty() {
        notes.lose("stop");
    }
    if request.choices.is_some_and(|count| count > 1) {
        notes.lose("n");
    }
    let is = |word: &JsonStr<'_>, name: &str| word.escaped().eq_ignore_ascii_case(name);
    if request.modalities.iter().any(|word| !is(word, "text") && !is(word, "image")) {
        notes.lose("modalities");
    }
    input::put(request, dialect, notes, &mut json);
    json.end_object();
}

fn put_sampling(request: &Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes, json: &mut Json<'_>) {
    let sampling = &request.sampling;
    let chosen = dialect.sampling_beside(request.thinking);
    let none = chosen == dialect::SamplingSupport::None;
    let one = chosen == dialect::SamplingSupport::One && sampling.temperature.is_some();
    for (name, value, dropped) in
        [("temperature", sampling.temperature, none), ("top_p", sampling.top_p, none || one)]
    {
        match value {
            Some(value) if dropped => notes.lose_sampling(name, value),
            Some(value) => {
                json.key(name).raw(value);
            }
            None => {}
        }
    }
    for (name, value) in [
        ("top_k", sampling.top_k),
        ("presence_penalty", sampling.presence_penalty),
        ("frequency_penalty", sampling.frequency_penalty),
        ("seed", sampling.seed),
    ] {
        match value {
            Some(value) if dialect.supports(name) => {
                json.key(name).raw(value);
            }
            Some(value) => notes.lose_sampling(name, value),
            None => {}
        }
    }
}

fn put_reasoning(request: &Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes, json: &mut Json<'_>) {
    let own = |name: &str| {
        let known = |extra: &&Extra<'_>| extra.name == name;
        request
            .extra
            .iter()
            .find(known)
            .filter(|_| notes.from() == Format::Responses)
            .map(|extra| extra.value)
    };
    let told = dialect.reasoning.reasoning_parameter(request.thinking);
    let effort = match told {
        ReasoningParameter::Omitted | ReasoningParameter::Adaptive(None) => None,
        ReasoningParameter::Off | ReasoningParameter::BetweenTools => Some("none"),
        ReasoningParameter::Effort(effort) | ReasoningParameter::Adaptive(Some(effort)) => {
            Some(effort.name())
        }
        ReasoningParameter::Budget(tokens) => Some(Effort::of_budget(tokens).name()),
    };
    let fixed = dialect.reasoning == ReasoningSupport::Fixed;
    let shown = request.show_thinking == Some(true) && !fixed && told != ReasoningParameter::Off;
    let (word, context, mode) = (own("reasoning_effort"), own("reasoning.context"), own("reasoning.mode"));
    let summary = own("reasoning.summary");
    if effort.is_some() || shown || word.is_some() || context.is_some() || mode.is_some() {
        json.key("reasoning").begin_object();
        match (effort, word) {
            (Some(effort), _) => {
                json.key("effort").string(effort);
            }
            (None, Some(word)) => {
                json.key("effort").raw(word);
            }
            (None, None) => {}
        }
        if shown {
            json.key("summary").raw(summary.unwrap_or(RawJson::from_text("\"auto\"")));
        }
        for (name, value) in [("context", context), ("mode", mode)] {
            if let Some(value) = value {
                json.key(name).raw(value);
            }
        }
        json.end_object();
    }
    if fixed && matches!(request.thinking, Thinking::Effort(_) | Thinking::Budget(1..)) {
        notes.lose("reasoning_effort");
    }
}

fn put_text(request: &Request<'_>, notes: &mut LossNotes, json: &mut Json<'_>) {
    let verbosity = request.verbosity.filter(|word| !word.is_empty());
    if verbosity.is_none() && request.output == OutputFormat::Text {
        return;
    }
    json.key("text").begin_object();
    match request.output {
        OutputFormat::Text => {}
        OutputFormat::Json => {
            json.key("format").begin_object().key("type").string("json_object").end_object();
        }
        OutputFormat::Schema { name, description, schema, openapi, strict } => {
            json.key("format").begin_object().key("type").string("json_schema");
            json.key("name").string(&legal_name(name));
            if !description.is_empty() {
                json.key("description").paste(description);
            }
            put_schema(schema, openapi, json);
            if let Some(strict) = strict {
                json.key("strict").boolean(strict);
            }
            json.end_object();
        }
        OutputFormat::Choice { schema } => {
            json.key("format").begin_object().key("type").string("json_schema");
            json.key("name").string("response");
            put_schema(schema, true, json);
            json.end_object();
            notes.warn("response_format");
        }
    }
    if let Some(word) = verbosity {
        json.key("verbosity").paste(word);
    }
    json.end_object();
}

/// Returns a valid schema name: 1 to 64 letters, digits, `_` or `-`. Other characters become `_`.
fn legal_name(name: JsonStr<'_>) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    match name.decode() {
        empty if empty.is_empty() => "response".to_owned(),
        name => name.chars().map(fits).take(64).collect(),
    }
}

fn put_schema(raw: RawJson<'_>, openapi: bool, json: &mut Json<'_>) {
    put_schema_as("schema", raw, openapi, json);
}

fn put_schema_as(member: &str, raw: RawJson<'_>, openapi: bool, json: &mut Json<'_>) {
    if !openapi {
        json.key(member).raw(raw);
        return;
    }
    let mut text = Vec::new();
    schema::from_openapi(raw, &mut text);
    json.key(member).raw(RawJson::from_text(std::str::from_utf8(&text).unwrap_or("{}")));
}

fn put_tools(request: &Request<'_>, notes: &mut LossNotes, json: &mut Json<'_>) {
    let own = notes.from() == Format::Responses;
    let is_hosted = |extra: &&Extra<'_>| own && is_tool(extra.name);
    let mut hosted = request.extra.iter().filter(is_hosted).peekable();
    // Clients of other formats ask for images with a modality; here it takes the tool that generates them.
    let images = notes.from() != Format::Responses
        && request.modalities.iter().any(|word| word.escaped().eq_ignore_ascii_case("image"));
    // A result of a search in the input offers the tools that it has loaded.
    let is_offered = |tool: &Tool<'_>| own && tool.loaded;
    if request.tools.iter().all(is_offered) && request.search.is_none() && hosted.peek().is_none() && !images
    {
        return;
    }
    json.key("tools").begin_array();
    // Tools of one namespace are adjacent: the decoder reads a namespace as a whole.
    let is_group =
        |one: &Tool<'_>, next: &Tool<'_>| one.namespace == next.namespace && one.loaded == next.loaded;
    for group in request.tools.chunk_by(is_group).filter(|group| !group.iter().all(is_offered)) {
        let namespace = group.first().filter(|tool| !tool.namespace.is_empty());
        if let Some(first) = namespace {
            json.begin_object().key("type").string("namespace").key("name").paste(first.namespace);
            // `description` is required; fall back to the namespace's name.
            let about =
                if first.namespace_about.is_empty() { first.namespace } else { first.namespace_about };
            json.key("description").paste(about).key("tools").begin_array();
        }
        for tool in group {
            put_tool(tool, notes, json);
        }
        if namespace.is_some() {
            json.end_array().end_object();
        }
    }
    if let Some(search) = &request.search {
        put_search(search, notes, json);
    }
    if images {
        json.begin_object().key("type").string("image_generation").end_object();
    }
    for extra in hosted {
        json.raw(extra.value);
    }
    json.end_array();
}

fn put_tool(tool: &Tool<'_>, notes: &mut LossNotes, json: &mut Json<'_>) {
    if tool.cache.is_some() {
        notes.lose("cache_control");
    }
    json.begin_object().key("type");
    json.string(if tool.kind == ToolKind::Custom { "custom" } else { "function" });
    json.key("name").paste(tool.name);
    if !tool.description.is_empty() {
        json.key("description").paste(tool.description);
    }
    match (tool.kind, tool.format) {
        (ToolKind::Custom, Some(format)) => put_grammar(format, json),
        (ToolKind::Custom, None) => {}
        (ToolKind::Function, _) => {
            match tool.schema {
                Some(schema) => put_schema_as("parameters", schema, tool.openapi, json),
                None => {
                    json.key("parameters").null();
                }
            }
            // If `strict` is absent, OpenAI enforces the schema, and refuses schemas that cannot be enforced.
            json.key("strict").boolean(tool.strict.unwrap_or(false));
        }
    }
    json.end_object();
}

/// Writes the input format of a custom tool: flat here, nested under `grammar` in the chat format.
fn put_grammar(format: RawJson<'_>, json: &mut Json<'_>) {
    let mut nested = None;
    let read = members(&mut Cursor::new(format.text()), |key, json| {
        match key.escaped() {
            "grammar" => nested = Some(json.raw()?).filter(|value| value.text().starts_with('{')),
            _ => json.skip()?,
        }
        Ok(())
    });
    let Some(nested) = nested.filter(|_| read.is_ok()) else {
        json.key("format").raw(format);
        return;
    };
    json.key("format").begin_object().key("type").string("grammar");
    // The decoder has already parsed this text, so reading it again cannot fail.
    let _ = members(&mut Cursor::new(nested.text()), |key, from| {
        let value = from.raw()?;
        if let "syntax" | "definition" = key.escaped() {
            json.paste_key(key).raw(value);
        }
        Ok(())
    });
    json.end_object();
}

fn put_search(search: &Search<'_>, notes: &mut LossNotes, json: &mut Json<'_>) {
    json.begin_object().key("type").string("web_search");
    if !search.context.is_empty() {
        json.key("search_context_size").paste(search.context);
    }
    if let Some(domains) = search.allowed_domains {
        json.key("filters").begin_object().key("allowed_domains").raw(domains).end_object();
    }
    if search.blocked_domains.is_some() {
        notes.lose("web_search_filters");
    }
    if search.max_uses.is_some() {
        notes.lose("web_search_max_uses");
    }
    if search.cache.is_some() {
        notes.lose("cache_control");
    }
    if let Some(location) = search.location {
        json.key("user_location").begin_object().key("type").string("approximate");
        let _ = members(&mut Cursor::new(location.text()), |key, from| {
            let value = from.raw()?;
            if let "city" | "country" | "region" | "timezone" = key.escaped() {
                json.paste_key(key).raw(value);
            }
            Ok(())
        });
        json.end_object();
    }
    json.end_object();
}

fn put_choice(request: &Request<'_>, notes: &LossNotes, json: &mut Json<'_>) {
    let custom = request.tools.iter().filter(|tool| tool.kind == ToolKind::Custom);
    let custom: Index = custom.map(|tool| IndexKey::of(tool.name)).collect();
    let kind = |name: &JsonStr<'_>| if custom.has(IndexKey::of(*name)) { "custom" } else { "function" };
    match &request.tool_choice {
        None => {
            // A choice of a provider-hosted tool, which has no canonical form.
            let own = |extra: &&Extra<'_>| extra.name == "tool_choice" && notes.from() == Format::Responses;
            if let Some(extra) = request.extra.iter().find(own) {
                json.key("tool_choice").raw(extra.value);
            }
        }
        Some(ToolChoice::Auto) => {
            json.key("tool_choice").string("auto");
        }
        Some(ToolChoice::None) => {
            json.key("tool_choice").string("none");
        }
        Some(ToolChoice::Required) => {
            json.key("tool_choice").string("required");
        }
        Some(ToolChoice::Search) => {
            json.key("tool_choice").begin_object().key("type").string("web_search").end_object();
        }
        Some(ToolChoice::Tool(name)) => {
            json.key("tool_choice").begin_object().key("type").string(kind(name));
            json.key("name").paste(*name).end_object();
        }
        Some(ToolChoice::Allowed { names, required }) => {
            json.key("tool_choice").begin_object().key("type").string("allowed_tools");
            json.key("mode").string(if *required { "required" } else { "auto" });
            json.key("tools").begin_array();
            for name in names {
                json.begin_object().key("type").string(kind(name)).key("name").paste(*name).end_object();
            }
            json.end_array().end_object();
        }
    }
}

fn put_account(request: &Request<'_>, from: Format, json: &mut Json<'_>) {
    if let Some(metadata) = request.metadata {
        json.key("metadata").raw(metadata);
    }
    for (name, value) in [
        ("user", request.user),
        ("service_tier", request.service_tier.map(tier)),
        ("prompt_cache_key", request.cache_key),
        ("previous_response_id", request.previous),
    ] {
        if let Some(value) = value {
            json.key(name).paste(value);
        }
    }
    // The provider's default is true, and that of clients of this format. For others nothing is stored at the provider
    // unless they request it.
    json.key("store").boolean(request.store.unwrap_or(from == Format::Responses));
}

/// Translates a service tier to this format's term.
fn tier(word: JsonStr<'_>) -> JsonStr<'_> {
    match word.escaped() {
        "standard" | "standard_only" => JsonStr::from_escaped("default"),
        _ => word,
    }
}

fn put_include(request: &Request<'_>, dialect: &Dialect<'_>, notes: &LossNotes, json: &mut Json<'_>) {
    if let Some(count) = request.logprobs.filter(|count| *count > 0) {
        json.key("top_logprobs").number(count);
    }
    let own = |extra: &&Extra<'_>| extra.name == "include" && notes.from() == Format::Responses;
    let asked = request.extra.iter().find(own).map_or("[]", |extra| extra.value.text());
    let asks = |word: &str| asked.contains(word);
    // If the provider does not store the response, the client must send the reasoning back, so request it encrypted.
    // Models without reasoning refuse that value.
    let kept = request.store == Some(true);
    let encrypted = !kept && dialect.reasoning != ReasoningSupport::Fixed && !asks(ENCRYPTED);
    let logprobs = request.logprobs.is_some() && !asks(LOGPROBS);
    if !encrypted && !logprobs && asked == "[]" {
        return;
    }
    json.key("include").begin_array();
    // The decoder has already parsed this text, so reading it again cannot fail.
    let _ = elements(&mut Cursor::new(asked), |from| {
        let word = from.raw()?;
        json.raw(word);
        Ok(())
    });
    for (word, wanted) in [(ENCRYPTED, encrypted), (LOGPROBS, logprobs)] {
        if wanted {
            json.string(word);
        }
    }
    json.end_array();
}

/// Returns whether an extra member is a provider-hosted tool.
fn is_tool(name: &str) -> bool {
    name.starts_with("tools.") || name == "server_tool"
}

fn put_extra(extra: &Extra<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes, json: &mut Json<'_>) {
    let name = extra.name;
    let carried = match notes.from() {
        // Already written by `put_tools`, `put_reasoning`, `put_choice` or `put_include`.
        Format::Responses if is_tool(name) || name.contains('.') => return,
        Format::Responses if matches!(name, "include" | "tool_choice" | "reasoning_effort") => return,
        Format::Responses => true,
        Format::Chat => SHARED.contains(&name) || (dialect.supports(name) && is_extension(name)),
        _ => SHARED.contains(&name),
    };
    if carried {
        json.paste_key(JsonStr::from_escaped(name)).raw(extra.value);
    } else {
        notes.lose(name.to_owned());
    }
}

fn is_extension(name: &str) -> bool {
    !name.contains('.') && !CHAT_ONLY.contains(&name)
}
