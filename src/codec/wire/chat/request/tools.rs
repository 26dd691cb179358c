//! Decoder of tools and tool choice.

use std::fmt::Arguments;

use super::media::{CACHE_CONTROL, cache_mark};
use super::read::{Result, array, broken, flag, invalid, missing, object, raw, raw_object, text};
use super::response_format;
use crate::canonical::request::Extra;
use crate::canonical::{Request, Tool, ToolChoice, ToolKind};
use json::{Cursor, JsonStr, RawJson, ValueKind};

/// Decodes `tools`. Tools that the provider runs itself are passed on unread, except web search.
pub(super) fn list<'a>(json: &mut Cursor<'a>, request: &mut Request<'a>) -> Result<()> {
    array(json, "tools", |number, json| {
        let value = raw_object(json, format_args!("tools[{number}]"))?;
        let mut kind = JsonStr::default();
        let (mut inner, mut flat, mut cache) = (None, false, None);
        object(&mut Cursor::new(value.text()), format_args!("tools[{number}]"), |key, json| {
            match key.escaped() {
                "type" => kind = text(json, format_args!("tools[{number}].type"))?,
                "function" | "custom" => inner = Some(raw(json)?),
                "name" => {
                    flat = true;
                    raw(json)?;
                }
                CACHE_CONTROL => cache = cache_mark(raw(json)?),
                _ => drop(raw(json)?),
            }
            Ok(())
        })?;
        match kind.escaped() {
            // Without a `type` it can only be a function.
            "function" | "" if inner.is_some() || flat => {
                let path = format_args!("tools[{number}].function");
                let tool = tool(inner.unwrap_or(value), ToolKind::Function, path)?;
                request.tools.push(Tool { cache, ..tool });
            }
            "custom" if inner.is_some() || flat => {
                let path = format_args!("tools[{number}].custom");
                let tool = tool(inner.unwrap_or(value), ToolKind::Custom, path)?;
                request.tools.push(Tool { cache, ..tool });
            }
            "function" | "custom" | "" => return Err(missing(format_args!("tools[{number}].function"))),
            word if word.starts_with("web_search") && request.search.is_none() => {
                request.search = Some(response_format::search(&mut Cursor::new(value.text()))?);
            }
            _ => request.extra.push(Extra { name: "server_tool", value }),
        }
        Ok(())
    })
}

/// Decodes `functions`, the deprecated form of `tools`.
pub(super) fn functions<'a>(json: &mut Cursor<'a>, request: &mut Request<'a>) -> Result<()> {
    array(json, "functions", |number, json| {
        let value = raw(json)?;
        request.tools.push(tool(value, ToolKind::Function, format_args!("functions[{number}]"))?);
        Ok(())
    })
}

fn tool<'a>(value: RawJson<'a>, kind: ToolKind, path: Arguments<'_>) -> Result<Tool<'a>> {
    let mut tool = Tool::new(JsonStr::default(), kind);
    object(&mut Cursor::new(value.text()), path, |key, json| {
        match key.escaped() {
            "name" => tool.name = text(json, format_args!("{path}.name"))?,
            "description" => tool.description = text(json, format_args!("{path}.description"))?,
            "parameters" => tool.schema = Some(raw_object(json, format_args!("{path}.parameters"))?),
            "strict" => tool.strict = Some(flag(json, format_args!("{path}.strict"))?),
            "format" if kind == ToolKind::Custom => tool.format = Some(raw(json)?),
            _ => drop(raw(json)?),
        }
        Ok(())
    })?;
    if tool.name.is_empty() {
        return Err(missing(format_args!("{path}.name")));
    }
    Ok(tool)
}

/// Decodes `tool_choice`.
pub(super) fn choice<'a>(json: &mut Cursor<'a>) -> Result<ToolChoice<'a>> {
    const EXPECTED: &str = "'none', 'auto', 'required' or the name of a tool";
    if json.kind().map_err(broken)? == ValueKind::String {
        return match text(json, "tool_choice")?.escaped() {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" | "any" => Ok(ToolChoice::Required),
            _ => Err(invalid("tool_choice", EXPECTED)),
        };
    }
    let (mut kind, mut name) = (JsonStr::default(), JsonStr::default());
    let mut allowed = None;
    object(json, "tool_choice", |key, json| {
        match key.escaped() {
            "type" => kind = text(json, "tool_choice.type")?,
            "function" | "custom" => name = name_in(json, "tool_choice.function")?,
            "name" => name = text(json, "tool_choice.name")?,
            "allowed_tools" => allowed = Some(allowed_tools(json)?),
            _ => drop(raw(json)?),
        }
        Ok(())
    })?;
    match (kind.escaped(), allowed) {
        (_, Some(allowed)) => Ok(allowed),
        _ if !name.is_empty() => Ok(ToolChoice::Tool(name)),
        ("auto", _) => Ok(ToolChoice::Auto),
        ("none", _) => Ok(ToolChoice::None),
        ("required" | "any", _) => Ok(ToolChoice::Required),
        (word, _) if word.starts_with("web_search") => Ok(ToolChoice::Search),
        ("function" | "custom" | "tool", _) => Err(missing("tool_choice.function.name")),
        _ => Err(invalid("tool_choice", EXPECTED)),
    }
}

/// Decodes `function_call`, the deprecated form of `tool_choice`.
pub(super) fn function_call<'a>(json: &mut Cursor<'a>) -> Result<ToolChoice<'a>> {
    if json.kind().map_err(broken)? == ValueKind::String {
        return match text(json, "function_call")?.escaped() {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            _ => Err(invalid("function_call", "'none', 'auto' or the name of a function")),
        };
    }
    Ok(ToolChoice::Tool(name_in(json, "function_call")?))
}

fn name_in<'a>(json: &mut Cursor<'a>, path: &str) -> Result<JsonStr<'a>> {
    let mut name = JsonStr::default();
    object(json, path, |key, json| {
        match key.escaped() {
            "name" => name = text(json, format_args!("{path}.name"))?,
            _ => drop(raw(json)?),
        }
        Ok(())
    })?;
    if name.is_empty() { Err(missing(format_args!("{path}.name"))) } else { Ok(name) }
}

fn allowed_tools<'a>(json: &mut Cursor<'a>) -> Result<ToolChoice<'a>> {
    let (mut names, mut required) = (Vec::new(), false);
    object(json, "tool_choice.allowed_tools", |key, json| {
        match key.escaped() {
            "mode" => required = text(json, "tool_choice.allowed_tools.mode")?.is("required"),
            "tools" => array(json, "tool_choice.allowed_tools.tools", |number, json| {
                let mut name = JsonStr::default();
                let path = format!("tool_choice.allowed_tools.tools[{number}]");
                object(json, &path, |key, json| {
                    match key.escaped() {
                        "function" | "custom" => name = name_in(json, &path)?,
                        "name" => name = text(json, &path)?,
                        _ => drop(raw(json)?),
                    }
                    Ok(())
                })?;
                if name.is_empty() {
                    return Err(missing(format_args!("{path}.function.name")));
                }
                names.push(name);
                Ok(())
            })?,
            _ => drop(raw(json)?),
        }
        Ok(())
    })?;
    Ok(ToolChoice::Allowed { names, required })
}
