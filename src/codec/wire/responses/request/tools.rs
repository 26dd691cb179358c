//! Decoder of `tools` and `tool_choice`: flat as in this format, or nested as in the chat format.

use super::Fault;
use crate::canonical::request::{Extra, Search};
use crate::canonical::{Request, Tool, ToolChoice, ToolKind};
use crate::wire::ranges::SEARCH_SIZES;
use crate::wire::watch::members;
use json::{Cursor, JsonStr, RawJson};

/// Members of one tool, or of an object in `tool_choice`.
#[derive(Default)]
struct Read<'a> {
    kind: JsonStr<'a>,
    name: JsonStr<'a>,
    description: JsonStr<'a>,
    parameters: Option<RawJson<'a>>,
    strict: Option<bool>,
    format: Option<RawJson<'a>>,
    tools: Option<RawJson<'a>>,
    nested: Option<RawJson<'a>>,
    context: JsonStr<'a>,
    filters: Option<RawJson<'a>>,
    location: Option<RawJson<'a>>,
}

impl<'a> Read<'a> {
    fn tool(raw: RawJson<'a>) -> Result<Self, Fault> {
        let mut read = Read::default();
        read.take(raw)?;
        if let Some(nested) = read.nested.take() {
            read.take(nested)?;
        }
        Ok(read)
    }

    fn take(&mut self, raw: RawJson<'a>) -> Result<(), Fault> {
        members(&mut Cursor::new(raw.text()), |key, json| {
            let value = json.raw()?;
            let object = Some(value).filter(|value| value.text().starts_with('{'));
            match key.escaped() {
                "type" if self.kind.is_empty() => self.kind = value.as_str().unwrap_or_default(),
                "name" => self.name = value.as_str().unwrap_or_default(),
                "description" => self.description = value.as_str().unwrap_or_default(),
                "parameters" => self.parameters = object,
                "strict" => self.strict = value.as_bool(),
                "format" => self.format = object,
                "function" | "custom" => self.nested = object,
                "tools" => self.tools = Some(value),
                "search_context_size" => self.context = value.as_str().unwrap_or_default(),
                "filters" => self.filters = object,
                "user_location" => self.location = object,
                _ => {}
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Namespace that contains tools: its name and its description.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Group<'a> {
    name: JsonStr<'a>,
    about: JsonStr<'a>,
    /// Number of namespaces around the tools.
    depth: u32,
}

/// Namespaces within each other that are read. The format has one level, and each is scanned once more.
const MAX_NAMESPACES: u32 = 4;

/// Reads a list of tools that belong to the namespace `group`, which is empty outside of a namespace.
pub(super) fn read<'a>(list: RawJson<'a>, group: Group<'a>, request: &mut Request<'a>) -> Result<(), Fault> {
    let mut json = Cursor::new(list.text());
    if json.begin_array().is_err() {
        return Err(Fault::at("tools", "an array"));
    }
    let mut number = 0;
    while json.next_element()? {
        let raw = json.raw()?;
        if !raw.text().starts_with('{') {
            return Err(Fault::at(format!("tools[{number}]"), "an object"));
        }
        let tool = Read::tool(raw)?;
        match tool.kind.escaped() {
            "function" | "custom" => {
                if tool.name.is_empty() {
                    return Err(Fault::missing(format!("tools[{number}].name")));
                }
                let is_custom = tool.kind.is("custom");
                let kind = if is_custom { ToolKind::Custom } else { ToolKind::Function };
                request.tools.push(Tool {
                    description: tool.description,
                    schema: tool.parameters.filter(|_| !is_custom),
                    strict: tool.strict,
                    format: tool.format.filter(|_| is_custom),
                    namespace: group.name,
                    namespace_about: group.about,
                    ..Tool::new(tool.name, kind)
                });
            }
            // Nested namespaces are flattened to the inner one: the canonical tool has one namespace name.
            "namespace" => {
                if group.depth >= MAX_NAMESPACES {
                    return Err(Fault::at(
                        format!("tools[{number}].tools"),
                        "tools without a further namespace",
                    ));
                }
                if let Some(tools) = tool.tools {
                    let depth = group.depth + 1;
                    read(tools, Group { name: tool.name, about: tool.description, depth }, request)
                        .map_err(|fault| fault.within(format_args!("tools[{number}]")))?;
                }
            }
            kind if kind.starts_with("web_search") => {
                if !tool.context.is_empty() && !SEARCH_SIZES.contains(&tool.context.escaped()) {
                    let path = format!("tools[{number}].search_context_size");
                    return Err(Fault::at(path, "'low', 'medium' or 'high'"));
                }
                request.search = Some(search(&tool)?);
            }
            "" => return Err(Fault::missing(format!("tools[{number}].type"))),
            kind => request.extra.push(Extra { name: hosted(kind), value: raw }),
        }
        number += 1;
    }
    Ok(())
}

fn search<'a>(tool: &Read<'a>) -> Result<Search<'a>, Fault> {
    let mut search = Search { context: tool.context, location: tool.location, ..Search::default() };
    if let Some(filters) = tool.filters {
        members(&mut Cursor::new(filters.text()), |key, json| {
            let value = json.raw()?;
            let list = Some(value).filter(|value| value.text().starts_with('['));
            match key.escaped() {
                "allowed_domains" => search.allowed_domains = list,
                "blocked_domains" => search.blocked_domains = list,
                _ => {}
            }
            Ok(())
        })?;
    }
    Ok(search)
}

/// Returns the element name under which the loss of a provider-hosted tool is reported.
fn hosted(kind: &str) -> &'static str {
    match kind {
        "file_search" => "tools.file_search",
        "code_interpreter" => "tools.code_interpreter",
        "image_generation" => "tools.image_generation",
        "mcp" => "tools.mcp",
        "computer" | "computer_use_preview" => "tools.computer",
        "local_shell" => "tools.local_shell",
        "shell" => "tools.shell",
        "apply_patch" => "tools.apply_patch",
        "tool_search" => "tools.tool_search",
        "programmatic_tool_calling" => "tools.programmatic_tool_calling",
        _ => "server_tool",
    }
}

/// Reads `tool_choice`.
pub(super) fn choice<'a>(value: RawJson<'a>, request: &mut Request<'a>) -> Result<(), Fault> {
    if let Some(word) = value.as_str() {
        request.tool_choice = Some(match word.escaped() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" | "any" => ToolChoice::Required,
            _ => return Err(Fault::at("tool_choice", "'auto', 'none', 'required' or an object")),
        });
        return Ok(());
    }
    let mut mode = JsonStr::default();
    members(&mut Cursor::new(value.text()), |key, json| {
        match key.escaped() {
            "mode" => mode = json.raw()?.as_str().unwrap_or_default(),
            _ => json.skip()?,
        }
        Ok(())
    })?;
    let read = Read::tool(value)?;
    match read.kind.escaped() {
        "allowed_tools" => {
            let mut names = Vec::new();
            let mut json = Cursor::new(read.tools.unwrap_or(RawJson::from_text("[]")).text());
            json.begin_array()?;
            while json.next_element()? {
                let name = Read::tool(json.raw()?)?.name;
                if !name.is_empty() {
                    names.push(name);
                }
            }
            request.tool_choice = Some(ToolChoice::Allowed { names, required: mode.is("required") });
        }
        "function" | "custom" | "tool" | "" if !read.name.is_empty() => {
            request.tool_choice = Some(ToolChoice::Tool(read.name));
        }
        "function" | "custom" | "" => return Err(Fault::missing("tool_choice.name".to_owned())),
        kind if kind.starts_with("web_search") => request.tool_choice = Some(ToolChoice::Search),
        // Another provider-hosted tool.
        _ => request.extra.push(Extra { name: "tool_choice", value }),
    }
    Ok(())
}
