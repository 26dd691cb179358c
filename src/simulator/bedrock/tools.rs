//! Tools and tool choice of a Converse request.

use serde_json::Value;

use super::super::script::{Choice, Tool};
use super::content::cache_point;
use super::errors::{ApiError, Fields, constraint, extraneous, missing};
use super::models::Model;

/// Returns the tools that the model may call, and the choice. Tools of the service are accepted and never called.
pub(super) fn tools(body: &Fields<'_>, model: &Model) -> Result<(Vec<Tool>, Choice), ApiError> {
    let Some(config) = body.object("toolConfig")? else {
        return Ok((Vec::new(), Choice::Auto));
    };
    config.only(&["tools", "toolChoice"])?;
    let listed = config.array("tools")?.ok_or_else(|| missing(&config.at("tools")))?;
    if listed.is_empty() {
        return Err(constraint(&config.at("tools"), "[]", "have length greater than or equal to 1"));
    }
    let mut tools: Vec<Tool> = Vec::new();
    for (at, tool) in listed.iter().enumerate() {
        let tool = Fields::new(tool, format!("toolConfig.tools.{at}"))?;
        let (kind, value) = tool.one()?;
        let inner = Fields::new(value, tool.at(kind))?;
        match kind {
            "toolSpec" => {
                let tool = specification(&inner)?;
                if tools.iter().any(|other| other.name == tool.name) {
                    return Err(ApiError::invalid(format!(
                        "The tool name {} is duplicated. Tool names must be unique.",
                        tool.name
                    )));
                }
                tools.push(tool);
            }
            "systemTool" => drop(inner.require("name")?),
            "cachePoint" => cache_point(&inner)?,
            other => return Err(extraneous(&tool.path, other)),
        }
    }
    let choice = choice(&config, &tools, model)?;
    Ok((tools, choice))
}

fn specification(tool: &Fields<'_>) -> Result<Tool, ApiError> {
    tool.only(&["name", "description", "inputSchema", "strict"])?;
    let name = tool.require("name")?;
    check_name(&tool.at("name"), name)?;
    if tool.string("description")? == Some("") {
        return Err(constraint(&tool.at("description"), "", "have length greater than or equal to 1"));
    }
    tool.boolean("strict")?;
    let schema = tool.object("inputSchema")?.ok_or_else(|| missing(&tool.at("inputSchema")))?;
    schema.only(&["json"])?;
    let json = schema.object("json")?.ok_or_else(|| missing(&schema.at("json")))?;
    if json.get("type").and_then(Value::as_str) != Some("object") {
        return Err(ApiError::invalid(format!(
            "The value at {}.type must be one of the following: object.",
            json.path
        )));
    }
    let schema = Value::Object(json.object.clone());
    Ok(Tool { name: name.to_owned(), schema, custom: false })
}

fn choice(config: &Fields<'_>, tools: &[Tool], model: &Model) -> Result<Choice, ApiError> {
    let Some(choice) = config.object("toolChoice")? else {
        return Ok(Choice::Auto);
    };
    let (kind, value) = choice.one()?;
    let inner = Fields::new(value, choice.at(kind))?;
    if matches!(kind, "any" | "tool") && !model.forces_tools() {
        return Err(ApiError::invalid(format!(
            "This model doesn't support the toolConfig.toolChoice.{kind} field. Remove toolConfig.toolChoice.{kind} \
             and try again."
        )));
    }
    match kind {
        "auto" => inner.only(&[]).map(|()| Choice::Auto),
        "any" => inner.only(&[]).map(|()| Choice::Required),
        "tool" => {
            inner.only(&["name"])?;
            let name = inner.require("name")?;
            if !tools.iter().any(|tool| tool.name == name) {
                return Err(ApiError::invalid(format!(
                    "The tool {name} at {} isn't in toolConfig.tools.",
                    inner.at("name")
                )));
            }
            Ok(Choice::Named(vec![name.to_owned()]))
        }
        other => Err(extraneous(&choice.path, other)),
    }
}

/// Checks the name of a tool.
pub(super) fn check_name(path: &str, name: &str) -> Result<(), ApiError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=64).contains(&name.len()) && name.chars().all(legal) {
        return Ok(());
    }
    Err(constraint(
        path,
        name,
        "satisfy regular expression pattern: [a-zA-Z0-9_-]+ and have at most 64 characters",
    ))
}
