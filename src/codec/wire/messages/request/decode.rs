//! Decoder of a messages request: its parameters and tools.

use super::blocks;
use crate::canonical::request::{Extra, Search};
use crate::canonical::{
    Block, Effort, OutputFormat, Request, Role, Thinking, Tool, ToolChoice, ToolKind, Turn,
};
use crate::error::ApiError;
use crate::wire::ranges::is_unset;
use crate::wire::read::{each, not_json, number};
pub(super) use crate::wire::read::{each_in, object, object_in, raw, text, wrong};
use json::{Cursor, JsonStr, RawJson, ValueKind};

/// Beginning of the types of the provider's tools that search the list of tools. Other formats need none: they offer
/// the whole list.
pub(super) const TOOL_SEARCH: &str = "tool_search_tool";

/// Decodes a client's request.
///
/// # Errors
/// Returns [`ApiError`] if the request is malformed. The error names the member. Unknown members are not errors.
pub fn decode(body: &str) -> Result<Request<'_>, ApiError> {
    let mut reader = Reader::default();
    let mut json = Cursor::new(body);
    json.begin_object().map_err(not_json)?;
    while let Some(key) = json.next_key().map_err(not_json)? {
        // The bulk of a request. Decode it in place instead of skipping it first.
        if key.escaped() == "messages" && json.kind().map_err(not_json)? != ValueKind::Null {
            reader.has_messages = true;
            blocks::turns(&mut json, &mut reader.request.turns, &mut reader.noted)?;
            continue;
        }
        let value = json.raw().map_err(not_json)?;
        if !value.is_null() {
            reader.member(key.escaped(), value)?;
        }
    }
    reader.finish()
}

/// Decodes the definition of a tool of the client. `None` for a tool that the provider runs.
pub(super) fn decode_tool(value: RawJson<'_>) -> Result<Option<Tool<'_>>, ApiError> {
    let mut reader = Reader::default();
    reader.tool(0, value)?;
    Ok(reader.request.tools.pop())
}

/// State of the decoder, with members that depend on others.
#[derive(Default)]
struct Reader<'a> {
    request: Request<'a>,
    /// Extras found in blocks and tools, each recorded once.
    noted: Vec<Extra<'a>>,
    system: Option<RawJson<'a>>,
    has_messages: bool,
    thinking: Option<(JsonStr<'a>, Option<u64>, JsonStr<'a>)>,
    effort: Option<RawJson<'a>>,
}

impl<'a> Reader<'a> {
    fn member(&mut self, name: &'a str, value: RawJson<'a>) -> Result<(), ApiError> {
        let request = &mut self.request;
        match name {
            // Evaluated by routing.
            "model" => {}
            // The encoders of cloud platforms write their own version; beta features go into a header or a member.
            "anthropic_version" | "anthropic_beta" => {}
            // Decoded already, or null.
            "messages" => {}
            "system" => self.system = Some(value),
            "max_tokens" => match value.as_u64() {
                Some(0) | None => return Err(wrong("max_tokens", "a whole number greater than 0")),
                some => request.max_output = some,
            },
            "stream" => request.stream = value.as_bool().ok_or_else(|| wrong("stream", "a boolean"))?,
            "temperature" => request.sampling.temperature = Some(number(name, value)?),
            // Some SDKs send -1 for "not set".
            "top_p" => {
                request.sampling.top_p = Some(number(name, value)?).filter(|figure| !is_unset(figure.text()))
            }
            "top_k" => {
                request.sampling.top_k = Some(number(name, value)?).filter(|figure| !is_unset(figure.text()))
            }
            "stop_sequences" => self.stop(value)?,
            "tools" => self.tools(value)?,
            "tool_choice" => self.tool_choice(value)?,
            "thinking" => self.thinking(value)?,
            "output_config" => self.output_config(value)?,
            "output_format" => self.output_format("output_format", value)?,
            "metadata" => self.metadata(value)?,
            "service_tier" => request.service_tier = value.as_str(),
            _ => request.extra.push(Extra { name, value }),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Request<'a>, ApiError> {
        if let Some(system) = self.system {
            let blocks = blocks::system(system, &mut self.noted)?;
            // An empty prompt is none, and costs no tokens.
            let is_nothing = |block: &Block<'_>| matches!(block, Block::Text { text, .. } if text.is_empty());
            if !blocks.iter().all(is_nothing) {
                self.request.turns.insert(0, Turn::new(Role::System, blocks));
            }
        }
        if !self.has_messages {
            return Err(ApiError::missing("messages"));
        }
        self.settle_thinking();
        for noted in self.noted {
            blocks::record_extra(&mut self.request.extra, noted.name, noted.value);
        }
        Ok(self.request)
    }

    /// Combines the two members that set reasoning, `thinking` and `output_config.effort`, which may come in any order.
    fn settle_thinking(&mut self) {
        let effort = self.effort.and_then(|word| Effort::from_name(&word.as_str()?.decode()));
        let mut used = false;
        let request = &mut self.request;
        if let Some((kind, budget, display)) = self.thinking {
            request.thinking = match (kind.escaped(), budget) {
                ("disabled", _) => Thinking::Off,
                ("enabled", Some(budget)) => Thinking::Budget(budget),
                _ => {
                    used = effort.is_some();
                    effort.map_or(Thinking::Adaptive, Thinking::Effort)
                }
            };
            // Clients see reasoning unless they request its omission.
            let shown = request.thinking != Thinking::Off && display.escaped() != "omitted";
            request.show_thinking = Some(shown);
        } else if let Some(effort) = effort {
            used = true;
            request.thinking = Thinking::Effort(effort);
        }
        if let Some(value) = self.effort.filter(|_| !used) {
            request.extra.push(Extra { name: "output_config.effort", value });
        }
    }

    fn stop(&mut self, value: RawJson<'a>) -> Result<(), ApiError> {
        if let Some(text) = value.as_str() {
            self.request.stop.push(text);
            return Ok(());
        }
        each("stop_sequences", value, |_, value| {
            let text = value.as_str().ok_or_else(|| wrong("stop_sequences", "an array of strings"))?;
            self.request.stop.push(text);
            Ok(())
        })
    }

    fn thinking(&mut self, value: RawJson<'a>) -> Result<(), ApiError> {
        let (mut kind, mut budget, mut display) = (JsonStr::default(), None, JsonStr::default());
        object("thinking", value, |key, value| {
            match key {
                "type" => kind = text("thinking.type", value)?,
                "budget_tokens" => {
                    let tokens = value.as_u64();
                    let error = || wrong("thinking.budget_tokens", "a whole number");
                    budget = Some(tokens.ok_or_else(error)?);
                }
                "display" => display = text("thinking.display", value)?,
                _ => {}
            }
            Ok(())
        })?;
        match kind.escaped() {
            "enabled" if budget.is_none() => Err(wrong("thinking.budget_tokens", "given with this type")),
            "enabled" | "adaptive" | "disabled" => {
                self.thinking = Some((kind, budget, display));
                Ok(())
            }
            "" => Err(wrong("thinking.type", "given")),
            // An unknown type: treat it as adaptive reasoning for other formats, and keep the name for this one.
            _ => {
                object("thinking", value, |key, value| {
                    if key == "type" {
                        self.request.extra.push(Extra { name: "thinking.type", value });
                    }
                    Ok(())
                })?;
                self.thinking = Some((kind, None, display));
                Ok(())
            }
        }
    }

    fn output_config(&mut self, value: RawJson<'a>) -> Result<(), ApiError> {
        object("output_config", value, |key, value| {
            match key {
                "effort" => self.effort = Some(value),
                "format" => self.output_format("output_config.format", value)?,
                "task_budget" => {
                    self.request.extra.push(Extra { name: "output_config.task_budget", value });
                }
                _ => {}
            }
            Ok(())
        })
    }

    fn output_format(&mut self, path: &'static str, value: RawJson<'a>) -> Result<(), ApiError> {
        let (mut kind, mut schema) = (JsonStr::default(), None);
        object(path, value, |key, value| {
            match key {
                "type" => kind = text(path, value)?,
                "schema" => schema = Some(value),
                _ => {}
            }
            Ok(())
        })?;
        let Some(schema) = schema.filter(|schema| schema.text().starts_with('{')) else {
            return Err(wrong(path, "of type json_schema, with a schema"));
        };
        // Some SDKs omit the type, so it is not checked.
        self.request.output = OutputFormat::Schema {
            name: JsonStr::default(),
            description: JsonStr::default(),
            schema,
            openapi: false,
            strict: None,
        };
        Ok(())
    }

    fn metadata(&mut self, value: RawJson<'a>) -> Result<(), ApiError> {
        let request = &mut self.request;
        let mut more = false;
        object("metadata", value, |key, value| {
            match key {
                "user_id" => request.user = Some(text("metadata.user_id", value)?),
                _ => more = true,
            }
            Ok(())
        })?;
        request.metadata = more.then_some(value);
        Ok(())
    }

    fn tools(&mut self, value: RawJson<'a>) -> Result<(), ApiError> {
        each("tools", value, |index, value| self.tool(index, value))
    }

    fn tool(&mut self, index: usize, value: RawJson<'a>) -> Result<(), ApiError> {
        let mut kind = JsonStr::default();
        let mut tool = Tool::new(JsonStr::default(), ToolKind::Function);
        let mut search = Search::default();
        let mut extra: [Option<(&'static str, RawJson<'a>)>; 4] = [None; 4];
        object(format_args!("tools[{index}]"), value, |key, value| {
            let mut later = |slot: usize, name: &'static str| {
                if let Some(slot) = extra.get_mut(slot).filter(|_| value.as_bool() != Some(false)) {
                    *slot = Some((name, value));
                }
            };
            match key {
                "type" => kind = value.as_str().unwrap_or_default(),
                "name" => tool.name = value.as_str().unwrap_or_default(),
                "description" => tool.description = value.as_str().unwrap_or_default(),
                "input_schema" => tool.schema = Some(value),
                "strict" => tool.strict = value.as_bool(),
                "cache_control" => tool.cache = Some(blocks::cache_mark(value)),
                "max_uses" => search.max_uses = value.as_u64(),
                "allowed_domains" => search.allowed_domains = Some(value),
                "blocked_domains" => search.blocked_domains = Some(value),
                "user_location" => search.location = Some(value),
                "input_examples" => later(0, "input_examples"),
                "eager_input_streaming" => later(1, "eager_input_streaming"),
                "defer_loading" => later(2, "defer_loading"),
                "allowed_callers" => later(3, "allowed_callers"),
                _ => {}
            }
            Ok(())
        })?;
        match kind.escaped() {
            "" | "custom" => {
                if tool.name.is_empty() {
                    return Err(wrong(format_args!("tools[{index}].name"), "a string that is not empty"));
                }
                if tool.schema.is_some_and(|schema| !schema.text().starts_with('{')) {
                    return Err(wrong(format_args!("tools[{index}].input_schema"), "an object"));
                }
                for (name, value) in extra.into_iter().flatten() {
                    blocks::record_extra(&mut self.noted, name, value);
                    tool.extra.push(Extra { name, value });
                }
                self.request.tools.push(tool);
            }
            kind if kind.starts_with("web_search") => {
                self.request.search = Some(Search { cache: tool.cache, ..search });
            }
            kind if kind.starts_with(TOOL_SEARCH) => {
                self.request.extra.push(Extra { name: TOOL_SEARCH, value });
            }
            _ => self.request.extra.push(Extra { name: "server_tool", value }),
        }
        Ok(())
    }

    fn tool_choice(&mut self, value: RawJson<'a>) -> Result<(), ApiError> {
        let (mut kind, mut name) = (value.as_str().unwrap_or_default(), JsonStr::default());
        if value.as_str().is_none() {
            object("tool_choice", value, |key, value| {
                match key {
                    "type" => kind = text("tool_choice.type", value)?,
                    "name" => name = text("tool_choice.name", value)?,
                    "disable_parallel_tool_use" => {
                        self.request.parallel_tools = value.as_bool().map(|off| !off);
                    }
                    _ => {}
                }
                Ok(())
            })?;
        }
        self.request.tool_choice = Some(match kind.escaped() {
            "auto" => ToolChoice::Auto,
            "any" => ToolChoice::Required,
            "none" => ToolChoice::None,
            "tool" if name.is_empty() => return Err(wrong("tool_choice.name", "given with this type")),
            "tool" => ToolChoice::Tool(name),
            _ => return Err(wrong("tool_choice.type", "one of auto, any, tool and none")),
        });
        Ok(())
    }
}
