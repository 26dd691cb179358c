//! Tools and tool choice, decoder and encoder.

use super::read::{ReadFault, copy_unknown, last, list, object, object_or_whole, string, strings, wrong};
use crate::canonical::request::{Extra, Search};
use crate::canonical::{Dialect, Index, IndexKey, Request, Tool, ToolChoice, ToolKind};
use crate::wire::Format;
use crate::wire::codec::LossNotes;
use crate::wire::generate::schema;
use json::{Cursor, JsonStr, RawJson, RopeBuilder, Writer};

/// Provider-hosted tools other than the search.
const HOSTED: [&str; 8] = [
    "tools.codeExecution",
    "tools.urlContext",
    "tools.googleMaps",
    "tools.fileSearch",
    "tools.computerUse",
    "tools.mcpServers",
    "tools.retrieval",
    "tools.enterpriseWebSearch",
];

/// Members of `toolConfig` other than `functionCallingConfig`.
const SETTINGS: [&str; 2] = ["toolConfig.retrievalConfig", "toolConfig.includeServerSideToolInvocations"];

/// Names of the extra members with a whole `tools` entry or the whole `toolConfig`, present if it has unknown
/// members.
const UNKNOWN_TOOL: &str = "tools.*";
const UNKNOWN_SETTING: &str = "toolConfig.*";
/// Name of the extra member with the whole object of a search, present if it has members without a canonical field.
const SEARCH_SETTINGS: &str = "web_search_settings";

const DECLARATIONS: &str = "functionDeclarations";
const SEARCHES: [&str; 3] = ["googleSearch", "groundingSearch", "googleSearchRetrieval"];

const CALLING: &str = "functionCallingConfig";
const STREAM_ARGUMENTS: &str = "functionCallingConfig.streamFunctionCallArguments";

/// Reads `tools`.
pub(super) fn read<'a>(json: &mut Cursor<'a>, request: &mut Request<'a>) -> Result<(), ReadFault> {
    list(
        json,
        || "tools".to_owned(),
        |number, json| {
            let whole = object_or_whole(
                json,
                || format!("tools[{number}]"),
                |key, json| {
                    match key {
                        DECLARATIONS => {
                            let path = format!("tools[{number}].functionDeclarations");
                            list(
                                json,
                                || path.clone(),
                                |number, json| {
                                    request.tools.push(declaration(json, &format!("{path}[{number}]"))?);
                                    Ok(())
                                },
                            )?;
                        }
                        _ if SEARCHES.contains(&key) => search(json, request)?,
                        _ => match HOSTED.into_iter().find(|own| last(own) == key) {
                            Some(name) => request.extra.push(Extra { name, value: json.raw()? }),
                            None => return Ok(false),
                        },
                    }
                    Ok(true)
                },
            )?;
            request.extra.extend(whole.map(|value| Extra { name: UNKNOWN_TOOL, value }));
            Ok(())
        },
    )
}

fn declaration<'a>(json: &mut Cursor<'a>, path: &str) -> Result<Tool<'a>, ReadFault> {
    let (mut name, mut description) = (JsonStr::default(), JsonStr::default());
    let (mut openapi, mut plain) = (None, None);
    object(
        json,
        || path.to_owned(),
        |key, _, json| {
            match key {
                "name" => name = string(json, || format!("{path}.name"))?,
                "description" => description = string(json, || format!("{path}.description"))?,
                "parameters" => openapi = Some(json.raw()?),
                "parametersJsonSchema" => plain = Some(json.raw()?),
                // `response` and the like: a schema of the result, which no other format has.
                _ => json.skip()?,
            }
            Ok(())
        },
    )?;
    if name.is_empty() {
        return Err(wrong(format!("{path}.name"), "is missing"));
    }
    Ok(Tool {
        description,
        openapi: plain.is_none() && openapi.is_some(),
        schema: plain.or(openapi),
        ..Tool::new(name, ToolKind::Function)
    })
}

fn search<'a>(json: &mut Cursor<'a>, request: &mut Request<'a>) -> Result<(), ReadFault> {
    let mut search = Search::default();
    let whole = object_or_whole(
        json,
        || "tools.googleSearch".to_owned(),
        |key, json| {
            let known = is_known_search_setting(key);
            if known {
                search.blocked_domains = Some(json.raw()?);
            }
            Ok(known)
        },
    )?;
    request.search = Some(search);
    request.extra.extend(whole.map(|value| Extra { name: SEARCH_SETTINGS, value }));
    Ok(())
}

fn is_known_search_setting(name: &str) -> bool {
    name == "excludeDomains"
}

/// Reads `toolConfig`.
pub(super) fn read_config<'a>(json: &mut Cursor<'a>, request: &mut Request<'a>) -> Result<(), ReadFault> {
    let whole = object_or_whole(
        json,
        || "toolConfig".to_owned(),
        |key, json| {
            match SETTINGS.into_iter().find(|own| last(own) == key) {
                _ if key == CALLING => read_calling(json, request)?,
                Some(name) => request.extra.push(Extra { name, value: json.raw()? }),
                None => return Ok(false),
            }
            Ok(true)
        },
    )?;
    request.extra.extend(whole.map(|value| Extra { name: UNKNOWN_SETTING, value }));
    Ok(())
}

fn is_known_tool(name: &str) -> bool {
    name == DECLARATIONS || SEARCHES.contains(&name) || HOSTED.iter().any(|own| last(own) == name)
}

/// Returns whether an extra member is a whole tool or setting with unknown members.
pub(super) fn is_whole(name: &str) -> bool {
    [UNKNOWN_TOOL, UNKNOWN_SETTING].contains(&name)
}

/// Returns the name and the path of the first unknown member of such a whole.
pub(super) fn unknown(name: &str, whole: RawJson<'_>) -> Option<(String, String)> {
    let is_tool = name == UNKNOWN_TOOL;
    let (parent, is_known) = if is_tool {
        ("tools", is_known_tool as fn(&str) -> bool)
    } else {
        ("toolConfig", is_known_setting as _)
    };
    let mut found = None;
    let read = object(&mut Cursor::new(whole.text()), String::new, |key, name, json| {
        if !is_known(key) && found.is_none() {
            found = Some((name.escaped().to_owned(), format!("{parent}.{}", name.escaped())));
        }
        Ok(json.skip()?)
    });
    read.ok().and(found)
}

fn is_known_setting(name: &str) -> bool {
    name == CALLING || SETTINGS.iter().any(|own| last(own) == name)
}

/// Reads `functionCallingConfig`.
pub(super) fn read_calling<'a>(json: &mut Cursor<'a>, request: &mut Request<'a>) -> Result<(), ReadFault> {
    const MODE: &str = "functionCallingConfig.mode";
    let mut mode = None;
    let mut names = Vec::new();
    object(
        json,
        || CALLING.to_owned(),
        |key, _, json| {
            match key {
                "mode" => mode = Some(json.raw()?),
                "allowedFunctionNames" => {
                    names = strings(json, "functionCallingConfig.allowedFunctionNames")?
                }
                "streamFunctionCallArguments" => {
                    request.extra.push(Extra { name: STREAM_ARGUMENTS, value: json.raw()? });
                }
                _ => json.skip()?,
            }
            Ok(())
        },
    )?;
    let Some(mode) = mode else { return Ok(()) };
    let word = mode.as_str().map_or(mode.text(), JsonStr::escaped).to_ascii_uppercase();
    request.tool_choice = match &*word {
        "AUTO" | "1" => Some(ToolChoice::Auto),
        "ANY" | "2" => Some(match names.as_slice() {
            [] => ToolChoice::Required,
            [name] => ToolChoice::Tool(*name),
            _ => ToolChoice::Allowed { names, required: true },
        }),
        "NONE" | "3" => Some(ToolChoice::None),
        "VALIDATED" | "4" if names.is_empty() => Some(ToolChoice::Auto),
        "VALIDATED" | "4" => Some(ToolChoice::Allowed { names, required: false }),
        "MODE_UNSPECIFIED" | "0" | "" => None,
        _ => return Err(wrong(MODE, "must be one of AUTO, ANY, NONE and VALIDATED")),
    };
    Ok(())
}

/// Writes `tools` and `toolConfig`.
pub(super) fn write(
    request: &Request<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
    json: &mut Writer<'_, RopeBuilder>,
) {
    let both = dialect.signed_calls;
    let allowed: Option<Index> =
        filter(request, dialect).map(|names| names.iter().map(|name| IndexKey::of(*name)).collect());
    let is_allowed =
        |tool: &&Tool<'_>| allowed.as_ref().is_none_or(|names| names.has(IndexKey::of(tool.name)));
    let tools: Vec<_> = request.tools.iter().filter(is_allowed).collect();
    let mut search = request.search.as_ref();
    if search.is_some() && !tools.is_empty() && !both && notes.from() != Format::Generate {
        // Keep the functions rather than the search: the client program depends on its own functions.
        notes.warn("web_search");
        search = None;
    }
    let is_hosted = |name| HOSTED.contains(&name) || name == UNKNOWN_TOOL;
    let hosted = request.extra.iter().filter(|extra| is_hosted(extra.name));
    if !tools.is_empty() || search.is_some() || hosted.clone().next().is_some() {
        json.key("tools").begin_array();
        if !tools.is_empty() {
            json.begin_object().key("functionDeclarations").begin_array();
            tools.iter().for_each(|tool| write_tool(tool, dialect, notes, json));
            json.end_array().end_object();
        }
        if let Some(search) = search {
            let settings = request.extra.iter().rfind(|extra| extra.name == SEARCH_SETTINGS);
            write_search(search, settings.map(|extra| extra.value), notes, json);
        }
        for extra in hosted {
            json.begin_object();
            if extra.name == UNKNOWN_TOOL {
                copy_unknown(extra.value, is_known_tool, json);
            } else {
                json.key(last(extra.name)).raw(extra.value);
            }
            json.end_object();
        }
        json.end_array();
    }
    if request.parallel_tools == Some(false) && !tools.is_empty() {
        notes.lose("parallel_tool_calls");
    }
    write_config(request, dialect, notes, (!tools.is_empty(), search.is_some()), json);
}

/// Returns the names of the tools to declare, if the model cannot be restricted to them by mode; `None` if all tools
/// are declared.
fn filter<'r, 'a>(request: &'r Request<'a>, dialect: &Dialect<'_>) -> Option<&'r Vec<JsonStr<'a>>> {
    match &request.tool_choice {
        Some(ToolChoice::Allowed { names, required: false }) if !dialect.signed_calls => Some(names),
        _ => None,
    }
}

fn write_tool(
    tool: &Tool<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
    json: &mut Writer<'_, RopeBuilder>,
) {
    json.begin_object();
    json.key("name").paste(tool.name);
    if !tool.description.is_empty() {
        json.key("description").paste(tool.description);
    }
    match tool.schema {
        _ if tool.kind == ToolKind::Custom => {
            if tool.format.is_some() {
                notes.lose("custom_tool_grammar");
            }
            json.key("parameters").raw(RawJson::from_text(FREE_TEXT));
        }
        None => {}
        Some(schema) if tool.openapi => {
            json.key("parameters");
            json.raw(schema);
        }
        Some(schema) if dialect.json_schema => {
            json.key("parametersJsonSchema");
            json.raw(schema);
        }
        Some(schema) => {
            let cut = schema::openapi(schema, schema::Root::Arguments);
            if cut.narrowed {
                notes.lose("schema_keywords");
            }
            // The provider rejects an object without properties, but accepts a tool without parameters.
            if let Some(text) = cut.text {
                json.key("parameters").raw(RawJson::from_text(&text));
            }
        }
    }
    json.end_object();
    if tool.cache.is_some() {
        notes.lose("cache_control");
    }
    if tool.strict == Some(true) && !dialect.signed_calls {
        notes.lose("tool_strict");
    }
}

/// Parameters of a tool with free-text input.
const FREE_TEXT: &str = r#"{"type":"OBJECT","properties":{"input":{"type":"STRING"}},"required":["input"]}"#;

fn write_search(
    search: &Search<'_>,
    settings: Option<RawJson<'_>>,
    notes: &mut LossNotes,
    json: &mut Writer<'_, RopeBuilder>,
) {
    json.begin_object().key("googleSearch").begin_object();
    match search.blocked_domains {
        // A client of this format knows what its provider accepts.
        Some(domains) if notes.from() == Format::Generate => {
            json.key("excludeDomains");
            json.raw(domains);
        }
        Some(_) => notes.lose("web_search_filters"),
        None => {}
    }
    if let Some(settings) = settings {
        // The provider rejects the settings of the older `googleSearchRetrieval` here.
        let skipped = |name: &str| is_known_search_setting(name) || name == "dynamicRetrievalConfig";
        copy_unknown(settings, skipped, json);
    }
    json.end_object().end_object();
    if search.allowed_domains.is_some() {
        notes.lose("web_search_filters");
    }
    if search.location.is_some() {
        notes.lose("web_search_location");
    }
    if !search.context.is_empty() || search.max_uses.is_some() {
        notes.lose("web_search_context");
    }
    if search.cache.is_some() {
        notes.lose("cache_control");
    }
}

fn write_config(
    request: &Request<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
    (functions, search): (bool, bool),
    json: &mut Writer<'_, RopeBuilder>,
) {
    let own = notes.from() == Format::Generate;
    let strict = request.tools.iter().any(|tool| tool.strict == Some(true));
    let validated = dialect.signed_calls && (strict || (search && !own));
    let auto = if functions && validated { "VALIDATED" } else { "AUTO" };
    // The provider rejects a tool choice without functions. A client of this format gets what it sent.
    let choice = request.tool_choice.as_ref().filter(|_| functions || own);
    let calling = match choice {
        None if auto == "AUTO" => None,
        // A search cannot be forced: the adaptation has replaced the choice.
        None | Some(ToolChoice::Auto | ToolChoice::Search) => Some((auto, &[][..])),
        Some(ToolChoice::None) => Some(("NONE", &[][..])),
        Some(ToolChoice::Required) => Some(("ANY", &[][..])),
        Some(ToolChoice::Tool(name)) => Some(("ANY", std::slice::from_ref(name))),
        Some(ToolChoice::Allowed { names, required: true }) => Some(("ANY", names.as_slice())),
        Some(ToolChoice::Allowed { names, required: false }) => Some(match filter(request, dialect) {
            Some(_) => ("AUTO", &[][..]),
            None => ("VALIDATED", names.as_slice()),
        }),
    };
    let streamed = request.extra.iter().find(|extra| extra.name == STREAM_ARGUMENTS);
    let is_setting = |name| SETTINGS.contains(&name) || name == UNKNOWN_SETTING;
    let settings = request.extra.iter().filter(|extra| is_setting(extra.name));
    // Functions together with provider-hosted tools must be enabled. Vertex AI, recognized by its lack of call ids,
    // does not have this member.
    let mixed = functions && search && !own && dialect.call_ids;
    if calling.is_none() && streamed.is_none() && settings.clone().next().is_none() && !mixed {
        return;
    }
    json.key("toolConfig").begin_object();
    if calling.is_some() || streamed.is_some() {
        json.key(CALLING).begin_object();
        if let Some((mode, names)) = calling {
            json.key("mode").string(mode);
            if !names.is_empty() {
                json.key("allowedFunctionNames").begin_array();
                names.iter().for_each(|name| {
                    json.paste(*name);
                });
                json.end_array();
            }
        }
        if let Some(extra) = streamed {
            json.key("streamFunctionCallArguments").raw(extra.value);
        }
        json.end_object();
    }
    if mixed {
        json.key("includeServerSideToolInvocations").boolean(true);
    }
    for extra in settings {
        if extra.name == UNKNOWN_SETTING {
            copy_unknown(extra.value, is_known_setting, json);
        } else {
            json.key(last(extra.name)).raw(extra.value);
        }
    }
    json.end_object();
}

/// Returns whether an extra member is written by this file.
pub(super) fn is_own(name: &str) -> bool {
    HOSTED.contains(&name)
        || SETTINGS.contains(&name)
        || [UNKNOWN_TOOL, UNKNOWN_SETTING, SEARCH_SETTINGS, STREAM_ARGUMENTS].contains(&name)
}
