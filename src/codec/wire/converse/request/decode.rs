//! Decoder of a Converse request: its parameters and tools.

use super::blocks;
use super::fields::ModelFields;
use super::read::{
    cache_point, each, each_in, not_json, number, object, object_in, raw, text, union, union_in, wrong,
};
use crate::canonical::request::{Extra, Search};
use crate::canonical::{CacheBreakpoint, OutputFormat, Request, Role, Tool, ToolChoice, ToolKind, Turn};
use crate::error::ApiError;
use json::{Cursor, JsonStr, RawJson, ValueKind};

/// Name of the tool with which models of Amazon search the web.
pub(super) const GROUNDING: &str = "nova_grounding";

/// Decodes a client's request.
///
/// # Errors
/// Returns [`ApiError`] if the request is malformed. The error names the member. Unknown members are not errors.
pub fn decode(body: &str) -> Result<Request<'_>, ApiError> {
    let mut reader = Reader::default();
    let mut json = Cursor::new(body);
    json.begin_object().map_err(not_json)?;
    while let Some(key) = json.next_key().map_err(not_json)? {
        match json.kind().map_err(not_json)? {
            ValueKind::Null => json.skip().map_err(not_json)?,
            _ => reader.member(key.escaped(), &mut json)?,
        }
    }
    json.end().map_err(not_json)?;
    reader.finish()
}

/// State of the decoder, with members that depend on others.
#[derive(Default)]
struct Reader<'a> {
    request: Request<'a>,
    /// Extras found in blocks, each recorded once.
    noted: Vec<Extra<'a>>,
    system: Vec<Turn<'a>>,
    has_messages: bool,
    fields: ModelFields<'a>,
}

impl<'a> Reader<'a> {
    fn member(&mut self, name: &'a str, json: &mut Cursor<'a>) -> Result<(), ApiError> {
        let request = &mut self.request;
        match name {
            // The bulk of a request is decoded in place, instead of being delimited first.
            "messages" => {
                self.has_messages = true;
                blocks::turns(json, &mut request.turns, &mut self.noted)?;
            }
            "system" => {
                let blocks = blocks::content("system", json, &mut self.noted)?;
                self.system.push(Turn::new(Role::System, blocks));
            }
            "toolConfig" => self.tool_config(json)?,
            _ => self.setting(name, raw(json)?)?,
        }
        Ok(())
    }

    fn setting(&mut self, name: &'a str, value: RawJson<'a>) -> Result<(), ApiError> {
        let request = &mut self.request;
        match name {
            "inferenceConfig" => self.inference_config(value)?,
            "additionalModelRequestFields" => self.fields.read(value)?,
            "outputConfig" => self.output_config(value)?,
            "requestMetadata" => {
                object(name, value, |_, _| Ok(()))?;
                request.metadata = Some(value);
            }
            "serviceTier" => object(name, value, |key, value| {
                if key == "type" {
                    request.service_tier = Some(text("serviceTier.type", value)?);
                }
                Ok(())
            })?,
            // Routing has read it; the service has it in the path.
            "modelId" => {}
            _ => request.extra.push(Extra { name, value }),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Request<'a>, ApiError> {
        if !self.has_messages {
            return Err(ApiError::missing("messages"));
        }
        self.request.turns.splice(0..0, self.system);
        self.fields.settle(&mut self.request);
        for noted in self.noted {
            blocks::record_extra(&mut self.request.extra, noted.name, noted.value);
        }
        Ok(self.request)
    }

    fn inference_config(&mut self, value: RawJson<'a>) -> Result<(), ApiError> {
        let request = &mut self.request;
        object("inferenceConfig", value, |key, value| {
            match key {
                "maxTokens" => match value.as_u64() {
                    Some(0) | None => {
                        return Err(wrong("inferenceConfig.maxTokens", "a whole number greater than 0"));
                    }
                    some => request.max_output = some,
                },
                "temperature" => {
                    request.sampling.temperature = Some(number("inferenceConfig.temperature", value)?);
                }
                "topP" => request.sampling.top_p = Some(number("inferenceConfig.topP", value)?),
                // No member of the format; SDKs of models that have it send it.
                "topK" => request.sampling.top_k = Some(number("inferenceConfig.topK", value)?),
                "stopSequences" => each("inferenceConfig.stopSequences", value, |index, value| {
                    request.stop.push(text(format_args!("inferenceConfig.stopSequences[{index}]"), value)?);
                    Ok(())
                })?,
                _ => {}
            }
            Ok(())
        })
    }

    fn output_config(&mut self, value: RawJson<'a>) -> Result<(), ApiError> {
        object("outputConfig", value, |key, value| match key {
            "textFormat" => self.text_format(value),
            "effort" => {
                self.fields.effort = Some(text("outputConfig.effort", value)?);
                Ok(())
            }
            _ => Ok(()),
        })
    }

    fn text_format(&mut self, value: RawJson<'a>) -> Result<(), ApiError> {
        const PATH: &str = "outputConfig.textFormat.structure.jsonSchema";
        let mut written = None;
        object("outputConfig.textFormat", value, |key, value| match key {
            "structure" => object("outputConfig.textFormat.structure", value, |key, value| {
                if key == "jsonSchema" {
                    written = Some(value);
                }
                Ok(())
            }),
            _ => Ok(()),
        })?;
        let (mut schema, mut name, mut description) = (None, JsonStr::default(), JsonStr::default());
        object(PATH, written.ok_or_else(|| wrong(PATH, "given"))?, |key, value| {
            match key {
                "schema" => schema = Some(value),
                "name" => name = value.as_str().unwrap_or_default(),
                "description" => description = value.as_str().unwrap_or_default(),
                _ => {}
            }
            Ok(())
        })?;
        // The schema is the text of an object, as a string.
        let is_schema = |schema: &RawJson<'_>| match schema.as_str() {
            Some(text) => crate::wire::codec::is_object(&text.decode()),
            None => schema.text().starts_with('{'),
        };
        let must_be = "a string with a JSON object";
        let schema = schema.filter(is_schema).ok_or_else(|| wrong(format_args!("{PATH}.schema"), must_be))?;
        self.request.output =
            OutputFormat::Schema { name, description, schema, openapi: false, strict: Some(true) };
        Ok(())
    }

    fn tool_config(&mut self, json: &mut Cursor<'a>) -> Result<(), ApiError> {
        object_in(json, "toolConfig", |key, json| match key {
            "tools" => each_in(json, "toolConfig.tools", |index, json| self.tool(index, json)),
            "toolChoice" => self.tool_choice(raw(json)?),
            _ => raw(json).map(drop),
        })
    }

    fn tool(&mut self, index: usize, json: &mut Cursor<'a>) -> Result<(), ApiError> {
        let path = format_args!("toolConfig.tools[{index}]");
        union_in(json, path, |kind, json| self.tool_member(index, kind, json))
    }

    fn tool_member(&mut self, index: usize, kind: &str, json: &mut Cursor<'a>) -> Result<(), ApiError> {
        let path = format_args!("toolConfig.tools[{index}]");
        match kind {
            "toolSpec" => {
                let tool = tool_spec(index, json)?;
                self.request.tools.push(tool);
            }
            "cachePoint" => {
                let lifetime = cache_point(path, raw(json)?)?;
                self.mark_last_tool(lifetime);
            }
            "systemTool" => {
                let value = raw(json)?;
                let mut name = JsonStr::default();
                object(path, value, |key, value| {
                    if key == "name" {
                        name = value.as_str().unwrap_or_default();
                    }
                    Ok(())
                })?;
                if name.is(GROUNDING) {
                    self.request.search = Some(Search::default());
                } else {
                    self.request.extra.push(Extra { name: "server_tool", value });
                }
            }
            _ => self.request.extra.push(Extra { name: "server_tool", value: raw(json)? }),
        }
        Ok(())
    }

    fn mark_last_tool(&mut self, lifetime: CacheBreakpoint) {
        if let Some(tool) = self.request.tools.last_mut() {
            tool.cache = Some(lifetime);
        }
    }

    fn tool_choice(&mut self, value: RawJson<'a>) -> Result<(), ApiError> {
        let (kind, value) = union("toolConfig.toolChoice", value)?;
        self.request.tool_choice = Some(match kind {
            "auto" => ToolChoice::Auto,
            "any" => ToolChoice::Required,
            "tool" => {
                let mut name = JsonStr::default();
                object("toolConfig.toolChoice.tool", value, |key, value| {
                    if key == "name" {
                        name = value.as_str().unwrap_or_default();
                    }
                    Ok(())
                })?;
                if name.is_empty() {
                    return Err(wrong("toolConfig.toolChoice.tool.name", "a string that is not empty"));
                }
                ToolChoice::Tool(name)
            }
            _ => return Err(wrong("toolConfig.toolChoice", "one of auto, any and tool")),
        });
        Ok(())
    }
}

/// Decodes the definition of a tool.
fn tool_spec<'a>(index: usize, json: &mut Cursor<'a>) -> Result<Tool<'a>, ApiError> {
    let path = format_args!("toolConfig.tools[{index}].toolSpec");
    let mut tool = Tool::new(JsonStr::default(), ToolKind::Function);
    object_in(json, path, |key, json| {
        match key {
            "name" => tool.name = raw(json)?.as_str().unwrap_or_default(),
            "description" => tool.description = raw(json)?.as_str().unwrap_or_default(),
            "strict" => tool.strict = raw(json)?.as_bool(),
            "inputSchema" => object_in(json, format_args!("{path}.inputSchema"), |key, json| {
                let value = raw(json)?;
                if key == "json" {
                    if !value.text().starts_with('{') {
                        return Err(wrong(format_args!("{path}.inputSchema.json"), "an object"));
                    }
                    tool.schema = Some(value);
                }
                Ok(())
            })?,
            _ => drop(raw(json)?),
        }
        Ok(())
    })?;
    if tool.name.is_empty() {
        return Err(wrong(format_args!("{path}.name"), "a string that is not empty"));
    }
    Ok(tool)
}
