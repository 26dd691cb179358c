//! Encoder of a chat request for a provider of this format.

use super::decode::SEARCH_SWITCH;
use super::extensions::is_added;
use super::media::PartsEncoder;
use super::{conversation, thinking};
use crate::canonical::dialect::SamplingSupport;
use crate::canonical::quirks::ToolChoiceSupport;
use crate::canonical::request::{Extra, Search};
use crate::canonical::{
    Dialect, Index, IndexKey, OutputFormat, Request, RequestFeatures, ToolChoice, ToolKind,
};
use crate::wire::Format;
use crate::wire::codec::LossNotes;
use crate::wire::schema::from_openapi;
use json::{JsonStr, RawJson, RopeBuilder, Writer};

/// Maximum number of stop sequences (<https://platform.openai.com/docs/api-reference/chat/create>).
const MAX_STOPS: usize = 4;

/// Members of this format without a canonical equivalent, which are passed on.
const OWN: [&str; 7] = [
    "audio",
    "logit_bias",
    "moderation",
    "prediction",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
];

/// Returns whether a provider is known to support an extension, as opposed to ignoring unknown members.
pub(super) fn supports_extension(dialect: &Dialect<'_>, extension: &str) -> bool {
    dialect.extensions.contains(&extension)
}

/// Encodes a request. Elements that cannot be carried are recorded in `notes`.
pub fn encode(request: &Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes, out: &mut RopeBuilder) {
    let mut json = Writer::new(out);
    json.begin_object();
    json.key("model").string(dialect.model);
    if request.stream || dialect.quirks.streams_only {
        json.key("stream").boolean(true);
        // Without it streams carry no usage.
        if request.usage_wanted {
            json.key("stream_options").begin_object().key("include_usage").boolean(true).end_object();
        }
    }
    limits(&mut json, request, dialect, notes);
    sampling(&mut json, request, dialect, notes);
    thinking::write(&mut json, request, dialect, notes);
    if let (Some(show), true) = (request.show_thinking, supports_extension(dialect, "include_reasoning")) {
        json.key("include_reasoning").boolean(show);
    }
    output(&mut json, request, notes);
    account(&mut json, request, dialect, notes);
    search(&mut json, request, dialect, notes);
    extras(&mut json, request, dialect, notes);
    for (name, value) in dialect.quirks.adds {
        if !request.extra.iter().any(|extra| extra.name == *name) {
            json.key(name).raw(RawJson::from_text(value));
        }
    }
    let mut parts = PartsEncoder { dialect, notes, has_prefill: false };
    tools(&mut json, request, &mut parts);
    conversation::write(&mut json, request, &mut parts);
    if parts.has_prefill {
        for (name, value) in dialect.quirks.prefill_members {
            if !request.extra.iter().any(|extra| extra.name == *name) {
                json.key(name).raw(RawJson::from_text(value));
            }
        }
    }
    json.end_object();
}

fn limits(
    json: &mut Writer<'_, RopeBuilder>,
    request: &Request<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
) {
    if let Some(limit) = request.max_output {
        let name = if dialect.max_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
        json.key(name).number(limit);
    }
    if request.stop.len() > MAX_STOPS {
        notes.lose("stop");
    } else if !request.stop.is_empty() {
        json.key("stop").begin_array();
        for stop in &request.stop {
            json.paste(*stop);
        }
        json.end_array();
    }
    if let Some(choices) = request.choices {
        json.key("n").number(choices);
    }
}

fn sampling(
    json: &mut Writer<'_, RopeBuilder>,
    request: &Request<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
) {
    let said = &request.sampling;
    let taken = dialect.sampling_beside(request.thinking);
    let all = taken == SamplingSupport::All;
    let any = taken != SamplingSupport::None;
    // Some models accept temperature or `top_p`, but not both.
    let top_p = all || (any && said.temperature.is_none());
    let rows = [
        ("temperature", said.temperature, any),
        ("top_p", said.top_p, top_p),
        ("presence_penalty", said.presence_penalty, any),
        ("frequency_penalty", said.frequency_penalty, any),
        ("seed", said.seed, true),
        ("top_k", said.top_k, any && dialect.supports("top_k")),
    ];
    for (name, value, taken) in rows {
        match value {
            Some(value) if taken => {
                json.key(dialect.quirks.member(name)).raw(value);
            }
            Some(value) => notes.lose_sampling(name, value),
            None => {}
        }
    }
    match request.logprobs {
        Some(top) if any => {
            json.key("logprobs").boolean(true);
            if top > 0 {
                json.key("top_logprobs").number(top);
            }
        }
        Some(_) => notes.lose("logprobs"),
        None => {}
    }
}

fn output(json: &mut Writer<'_, RopeBuilder>, request: &Request<'_>, notes: &LossNotes) {
    match request.output {
        OutputFormat::Text => {}
        OutputFormat::Json => {
            json.key("response_format").begin_object().key("type").string("json_object").end_object();
        }
        OutputFormat::Schema { name, description, schema, openapi, strict } => {
            // Other formats have no schema name, and OpenAI requires one. Clients of this format that omit it use a
            // provider that does not expect it.
            let named = !name.is_empty() || notes.from() != Format::Chat;
            let name = named.then(|| schema_name(name));
            json_schema(json, name, description, schema, openapi, strict);
        }
        OutputFormat::Choice { schema } => {
            let none = JsonStr::default();
            json_schema(json, Some(schema_name(none)), none, schema, true, None);
        }
    }
}

fn json_schema(
    json: &mut Writer<'_, RopeBuilder>,
    name: Option<String>,
    description: JsonStr<'_>,
    schema: RawJson<'_>,
    openapi: bool,
    strict: Option<bool>,
) {
    json.key("response_format").begin_object();
    json.key("type").string("json_schema");
    json.key("json_schema").begin_object();
    if let Some(name) = name {
        json.key("name").string(&name);
    }
    if !description.is_empty() {
        json.key("description").paste(description);
    }
    json.key("schema");
    put_schema(json, schema, openapi);
    if let Some(strict) = strict {
        json.key("strict").boolean(strict);
    }
    json.end_object().end_object();
}

/// Writes a schema as plain JSON schema.
fn put_schema(json: &mut Writer<'_, RopeBuilder>, schema: RawJson<'_>, openapi: bool) {
    if !openapi {
        json.raw(schema);
        return;
    }
    let mut text = Vec::with_capacity(schema.text().len() + 32);
    from_openapi(schema, &mut text);
    json.raw(RawJson::from_text(std::str::from_utf8(&text).unwrap_or("{}")));
}

/// Returns a valid schema name: letters, digits, `_` and `-`, at most 64 characters.
fn schema_name(name: JsonStr<'_>) -> String {
    if name.is_empty() {
        return "response".to_owned();
    }
    let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    name.decode().chars().take(64).map(fits).collect()
}

fn account(
    json: &mut Writer<'_, RopeBuilder>,
    request: &Request<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
) {
    let same_format = notes.from() == Format::Chat;
    if let Some(verbosity) = request.verbosity {
        json.key("verbosity").paste(verbosity);
    }
    if let Some(user) = request.user {
        json.key(dialect.quirks.member("user")).paste(user);
    }
    if let Some(key) = request.cache_key {
        json.key("prompt_cache_key").paste(key);
    }
    // OpenAI accepts metadata only for stored responses. For clients of other formats the gateway decides about
    // storing, so neither is sent.
    match request.metadata {
        Some(metadata) if same_format => {
            json.key("metadata").raw(metadata);
        }
        Some(_) => notes.lose("metadata"),
        None => {}
    }
    match request.store {
        Some(store) if same_format => {
            json.key("store").boolean(store);
        }
        Some(_) => notes.lose("store"),
        None => {}
    }
    if let Some(tier) = request.service_tier {
        match service_tier(tier, same_format) {
            Some(tier) => {
                json.key("service_tier").paste(tier);
            }
            None => notes.lose("service_tier"),
        }
    }
    if request.previous.is_some() {
        notes.lose("previous_response_id");
    }
    modalities(json, request, dialect, notes);
}

/// Returns the equivalent service tier of this format. `None` if there is none.
fn service_tier(tier: JsonStr<'_>, same_format: bool) -> Option<JsonStr<'_>> {
    if same_format {
        return Some(tier);
    }
    let word = match tier.escaped().to_ascii_lowercase().as_str() {
        "auto" => "auto",
        "default" | "standard" | "standard_only" => "default",
        "flex" => "flex",
        "priority" => "priority",
        "scale" => "scale",
        "fast" => "fast",
        _ => return None,
    };
    Some(JsonStr::from_escaped(word))
}

fn modalities(
    json: &mut Writer<'_, RopeBuilder>,
    request: &Request<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
) {
    let is_text = |word: &JsonStr<'_>| word.escaped().eq_ignore_ascii_case("text");
    if request.modalities.is_empty()
        || (notes.from() != Format::Chat && request.modalities.iter().all(is_text))
    {
        return;
    }
    if notes.from() != Format::Chat && !supports_extension(dialect, "modalities") {
        return notes.lose("modalities");
    }
    json.key("modalities").begin_array();
    for word in &request.modalities {
        json.string(&word.decode().to_ascii_lowercase());
    }
    json.end_array();
}

fn search(
    json: &mut Writer<'_, RopeBuilder>,
    request: &Request<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
) {
    let Some(search) = &request.search else { return };
    let Search { context, max_uses, allowed_domains, blocked_domains, location, .. } = search;
    if max_uses.is_some() {
        notes.lose("web_search_max_uses");
    }
    if allowed_domains.is_some() || blocked_domains.is_some() {
        notes.lose("web_search_filters");
    }
    // A tool of the provider, written by `tools`, or a switch: neither has settings.
    let by_tool = dialect.quirks.search_tool.is_some();
    if by_tool || supports_extension(dialect, "enable_search") {
        if !by_tool {
            json.key("enable_search").boolean(true);
        }
        if !context.is_empty() {
            notes.lose("web_search_context");
        }
        if location.is_some() {
            notes.lose("web_search_location");
        }
        return;
    }
    json.key("web_search_options").begin_object();
    if !context.is_empty() {
        json.key("search_context_size").paste(*context);
    }
    if let Some(location) = location {
        json.key("user_location").begin_object();
        json.key("type").string("approximate");
        json.key("approximate").begin_object();
        place(json, *location);
        json.end_object().end_object();
    }
    json.end_object();
}

/// Writes the user's location with the members that this format knows.
fn place(json: &mut Writer<'_, RopeBuilder>, location: RawJson<'_>) {
    let mut cursor = json::Cursor::new(location.text());
    let _ = crate::wire::watch::members(&mut cursor, |key, cursor| {
        let value = cursor.raw()?;
        let name = ["country", "region", "city", "timezone"].into_iter().find(|name| key.is(name));
        if let Some(name) = name.filter(|_| !value.is_null()) {
            json.key(name).raw(value);
        }
        Ok(())
    });
}

fn extras(
    json: &mut Writer<'_, RopeBuilder>,
    request: &Request<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
) {
    let same_format = notes.from() == Format::Chat;
    let refuses_added = dialect.refuses.intersects(RequestFeatures::ADDED_MEMBER);
    for Extra { name, value } in &request.extra {
        let is_refused = refuses_added && is_added(name);
        let known = OWN.contains(name)
            || (same_format && dialect.supports(name) && !is_refused)
            || supports_extension(dialect, name);
        match *name {
            thinking::CLEAR_THINKING => {}
            // `EVERYTHING` of a compatible provider is no reason to send what it may not know.
            SEARCH_SWITCH if !supports_extension(dialect, SEARCH_SWITCH) => notes.lose(SEARCH_SWITCH),
            // Written by `tools`.
            "server_tool" if same_format => {}
            // An extension never has a name with escapes or dots; those are paths of losses or invalid names.
            name if known && !name.contains(['\\', '.']) => {
                json.key(name).raw(*value);
            }
            name => notes.lose(name.to_owned()),
        }
    }
}

fn tools(json: &mut Writer<'_, RopeBuilder>, request: &Request<'_>, parts: &mut PartsEncoder<'_, '_>) {
    let own = |extra: &&Extra<'_>| extra.name == "server_tool" && parts.same_format();
    let mut served: Vec<_> = request.extra.iter().filter(own).map(|extra| extra.value).collect();
    if request.search.is_some() {
        served.extend(parts.dialect.quirks.search_tool.map(RawJson::from_text));
    }
    if request.tools.is_empty() && served.is_empty() {
        return;
    }
    json.key("tools").begin_array();
    for tool in &request.tools {
        let (word, custom) = match tool.kind {
            ToolKind::Function => ("function", false),
            ToolKind::Custom => ("custom", true),
        };
        json.begin_object();
        json.key("type").string(word);
        json.key(word).begin_object();
        json.key("name").paste(tool.name);
        if !tool.description.is_empty() {
            json.key("description").paste(tool.description);
        }
        match tool.schema {
            Some(parameters) if !custom => {
                json.key("parameters");
                put_schema(json, parameters, tool.openapi);
            }
            _ => {}
        }
        match (tool.format, tool.strict) {
            (Some(format), _) if custom => {
                json.key("format").raw(format);
            }
            (_, Some(strict)) if !custom => {
                json.key("strict").boolean(strict);
            }
            _ => {}
        }
        json.end_object();
        parts.write_cache_mark(json, tool.cache);
        json.end_object();
    }
    for tool in served {
        json.raw(tool);
    }
    json.end_array();
    if let Some(choice) = &request.tool_choice {
        tool_choice(json, choice, request, parts.dialect.quirks.choices);
    }
    if let Some(name) = parts.dialect.quirks.tool_stream.filter(|_| request.stream) {
        json.key(name).boolean(true);
    }
    if let Some(parallel) = request.parallel_tools {
        json.key("parallel_tool_calls").boolean(parallel);
    }
}

fn tool_choice(
    json: &mut Writer<'_, RopeBuilder>,
    choice: &ToolChoice<'_>,
    request: &Request<'_>,
    choices: ToolChoiceSupport,
) {
    json.key("tool_choice");
    match choice {
        ToolChoice::Auto => {
            json.string("auto");
        }
        ToolChoice::None => {
            json.string("none");
        }
        ToolChoice::Required => {
            json.string(choices.any.unwrap_or("required"));
        }
        ToolChoice::Tool(name) => named(json, *name, &custom(request)),
        // The format has no tool for it: the adaptation has replaced the choice.
        ToolChoice::Search => {
            json.string("auto");
        }
        ToolChoice::Allowed { names, required } => {
            json.begin_object();
            json.key("type").string("allowed_tools");
            json.key("allowed_tools").begin_object();
            json.key("mode").string(if *required { "required" } else { "auto" });
            json.key("tools").begin_array();
            let custom = custom(request);
            names.iter().for_each(|name| named(json, *name, &custom));
            json.end_array().end_object().end_object();
        }
    }
}

/// Returns the names of custom tools.
fn custom(request: &Request<'_>) -> Index {
    let custom = request.tools.iter().filter(|tool| tool.kind == ToolKind::Custom);
    custom.map(|tool| IndexKey::of(tool.name)).collect()
}

fn named(json: &mut Writer<'_, RopeBuilder>, name: JsonStr<'_>, custom: &Index) {
    let word = if custom.has(IndexKey::of(name)) { "custom" } else { "function" };
    json.begin_object();
    json.key("type").string(word);
    json.key(word).begin_object().key("name").paste(name).end_object();
    json.end_object();
}
