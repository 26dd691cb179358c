//! Additional members that a model takes beside those of the Converse format (`additionalModelRequestFields`).
//!
//! Their names and values are those of the model's own interface: `thinking` and `output_config` of Claude,
//! `inferenceConfig` and `reasoningConfig` of Nova, `reasoning_effort` of GPT, `reasoning_config` of Qwen
//! (<https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters.html>).

use super::read::{number, object, wrong};
use crate::canonical::request::Extra;
use crate::canonical::{Effort, OutputFormat, Request, Thinking};
use crate::error::ApiError;
use json::{JsonStr, RawJson};

/// Name of the member.
pub(super) const NAME: &str = "additionalModelRequestFields";

/// Members that were read.
#[derive(Default)]
pub(super) struct ModelFields<'a> {
    /// The whole member.
    whole: Option<RawJson<'a>>,
    /// Members that have no field in the canonical model.
    unread: Vec<Extra<'a>>,
    top_k: Option<RawJson<'a>>,
    thinking: Option<Thinking>,
    show_thinking: Option<bool>,
    /// Effort, of this member or of `outputConfig`.
    pub(super) effort: Option<JsonStr<'a>>,
    /// Form of the response, which counts less than that of `outputConfig`.
    output: OutputFormat<'a>,
    parallel_tools: Option<bool>,
}

impl<'a> ModelFields<'a> {
    /// Reads the member.
    pub(super) fn read(&mut self, value: RawJson<'a>) -> Result<(), ApiError> {
        self.whole = Some(value);
        object(NAME, value, |key, field| {
            let is_read = match key {
                "top_k" | "topK" => {
                    self.top_k = Some(number(format_args!("{NAME}.{key}"), field)?);
                    true
                }
                "thinking" | "reasoning_config" | "reasoningConfig" if field.text().starts_with('{') => {
                    self.reasoning(key, field)?
                }
                "reasoning_effort" | "reasoning_config" => {
                    self.effort = field.as_str();
                    self.effort.is_some()
                }
                "output_config" => self.members_are_read(field, |own, key, value| match key {
                    "effort" => {
                        own.effort = value.as_str().or(own.effort);
                        true
                    }
                    "format" => own.output_format(value),
                    _ => false,
                })?,
                // Claude's own, which the format has in `toolConfig` as far as it has it.
                "tool_choice" => self.members_are_read(field, |own, key, value| match key {
                    "type" => value.as_str().is_some_and(|kind| kind.is("auto")),
                    "disable_parallel_tool_use" => {
                        own.parallel_tools = value.as_bool().map(|off| !off);
                        own.parallel_tools.is_some()
                    }
                    _ => false,
                })?,
                "inferenceConfig" => self.members_are_read(field, |own, key, value| {
                    own.top_k = Some(value).filter(|_| key == "topK").or(own.top_k);
                    key == "topK"
                })?,
                _ => false,
            };
            if !is_read {
                self.unread.push(Extra { name: key, value: field });
            }
            Ok(())
        })
    }

    /// Calls `read` for the members of an object. Returns whether it has read all of them.
    fn members_are_read(
        &mut self,
        value: RawJson<'a>,
        mut read: impl FnMut(&mut Self, &'a str, RawJson<'a>) -> bool,
    ) -> Result<bool, ApiError> {
        let mut all = true;
        object(NAME, value, |key, value| {
            all &= read(self, key, value);
            Ok(())
        })?;
        Ok(all)
    }

    /// Reads the form of the response as Claude's own interface has it, which the AI SDK sends. Returns whether it is a
    /// schema.
    fn output_format(&mut self, value: RawJson<'a>) -> bool {
        let (mut kind, mut schema) = (JsonStr::default(), None);
        let read = object(NAME, value, |key, value| {
            match key {
                "type" => kind = value.as_str().unwrap_or_default(),
                "schema" => schema = Some(value).filter(|value| value.text().starts_with('{')),
                _ => {}
            }
            Ok(())
        });
        let Some(schema) = schema.filter(|_| read.is_ok() && kind.is("json_schema")) else { return false };
        self.output = OutputFormat::Schema {
            name: JsonStr::default(),
            description: JsonStr::default(),
            schema,
            openapi: false,
            strict: Some(true),
        };
        true
    }

    /// Reads a reasoning setting of Claude or Nova. Returns whether all of it has a field in the canonical model.
    fn reasoning(&mut self, name: &str, value: RawJson<'a>) -> Result<bool, ApiError> {
        let (mut kind, mut budget, mut effort, mut all) = (JsonStr::default(), None, None, true);
        object(format_args!("{NAME}.{name}"), value, |key, value| {
            match key {
                "type" => kind = value.as_str().unwrap_or_default(),
                "budget_tokens" => {
                    let error = || wrong(format_args!("{NAME}.{name}.budget_tokens"), "a whole number");
                    budget = Some(value.as_u64().ok_or_else(error)?);
                }
                "maxReasoningEffort" => effort = value.as_str(),
                "display" => self.show_thinking = value.as_str().map(|display| !display.is("omitted")),
                _ => all = false,
            }
            Ok(())
        })?;
        self.effort = effort.or(self.effort);
        self.thinking = match (kind.escaped(), budget) {
            ("disabled", _) => Some(Thinking::Off),
            ("enabled", Some(budget)) => Some(Thinking::Budget(budget)),
            ("enabled" | "adaptive", None) => Some(Thinking::Adaptive),
            _ => return Ok(false),
        };
        Ok(all)
    }

    /// Sets the fields of the request, whose members may come in any order.
    pub(super) fn settle(self, request: &mut Request<'a>) {
        let effort = self.effort.and_then(|word| Effort::from_name(&word.decode()));
        request.sampling.top_k = self.top_k.or(request.sampling.top_k);
        request.parallel_tools = self.parallel_tools;
        if request.output == OutputFormat::Text {
            request.output = self.output;
        }
        request.thinking = match (self.thinking, effort) {
            (Some(Thinking::Adaptive) | None, Some(effort)) => Thinking::Effort(effort),
            (Some(thinking), _) => thinking,
            (None, None) => Thinking::Unset,
        };
        request.show_thinking = self.show_thinking;
        request.extra.extend(self.unread);
        // For a provider of the same format: its models know all of it.
        request.extra.extend(self.whole.map(|value| Extra { name: NAME, value }));
    }
}
