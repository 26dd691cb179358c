//! Decoder of the request members other than the conversation and the tools.

use super::Fault;
use super::decode::{store_extra, string};
use crate::canonical::{Effort, OutputFormat, Request, Thinking};
use crate::wire::watch::{elements, members};
use json::{Cursor, JsonStr, RawJson};

/// Value of `include` that requests log probabilities.
pub(super) const LOGPROBS: &str = "message.output_text.logprobs";

/// Reads one member whose value is not null.
pub(super) fn read<'a>(name: &'a str, value: RawJson<'a>, request: &mut Request<'a>) -> Result<(), Fault> {
    match name {
        "stream" => request.stream = boolean(value, name)?,
        "max_output_tokens" => request.max_output = Some(count(value, name)?),
        "temperature" => request.sampling.temperature = Some(number(value, name)?),
        "top_p" => request.sampling.top_p = Some(number(value, name)?),
        "top_k" => request.sampling.top_k = Some(number(value, name)?),
        "presence_penalty" => request.sampling.presence_penalty = Some(number(value, name)?),
        "frequency_penalty" => request.sampling.frequency_penalty = Some(number(value, name)?),
        "seed" => request.sampling.seed = Some(number(value, name)?),
        "stop" => stop(value, request)?,
        "parallel_tool_calls" => request.parallel_tools = Some(boolean(value, name)?),
        "reasoning" => reasoning(value, request)?,
        // An extension of Ark and other providers.
        "thinking" => thinking(value, request)?,
        "text" => text(value, request)?,
        "top_logprobs" => request.logprobs = Some(count(value, name)?),
        "include" => include(value, request)?,
        "metadata" => request.metadata = Some(value),
        "user" => request.user = Some(string(value, name)?),
        // The newer name of `user`. It becomes the user if the body has no other one (`settle_user`).
        "safety_identifier" => {
            string(value, name)?;
            store_extra(name, value, request);
        }
        "service_tier" => request.service_tier = Some(string(value, name)?),
        "prompt_cache_key" => request.cache_key = Some(string(value, name)?),
        "store" => request.store = Some(boolean(value, name)?),
        "previous_response_id" => request.previous = Some(string(value, name)?),
        // These values are the defaults.
        "background" if value.as_bool() == Some(false) => {}
        "truncation" if value.as_str().is_some_and(|word| word.is("disabled")) => {}
        _ => store_extra(name, value, request),
    }
    Ok(())
}

/// Combines `user` and `safety_identifier`, which may come in any order. If they differ, the latter is an extra member.
pub(super) fn settle_user(request: &mut Request<'_>) {
    let Some(at) = request.extra.iter().position(|extra| extra.name == "safety_identifier") else { return };
    let identifier = request.extra.get(at).and_then(|extra| extra.value.as_str());
    if request.user.is_none() || request.user == identifier {
        request.user = identifier;
        request.extra.remove(at);
    }
}

fn boolean(value: RawJson<'_>, path: &str) -> Result<bool, Fault> {
    value.as_bool().ok_or_else(|| Fault::at(path, "true or false"))
}

fn count(value: RawJson<'_>, path: &str) -> Result<u64, Fault> {
    value.as_u64().ok_or_else(|| Fault::at(path, "a whole number that is not negative"))
}

fn number<'a>(value: RawJson<'a>, path: &str) -> Result<RawJson<'a>, Fault> {
    if value.text().starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        Ok(value)
    } else {
        Err(Fault::at(path, "a number"))
    }
}

/// Reads `stop`, which this format does not have. Clients that send it get stop sequences where the provider's format
/// supports them.
fn stop<'a>(value: RawJson<'a>, request: &mut Request<'a>) -> Result<(), Fault> {
    if let Some(one) = value.as_str() {
        request.stop.push(one);
        return Ok(());
    }
    elements(&mut Cursor::new(value.text()), |json| {
        request.stop.extend(json.raw()?.as_str());
        Ok(())
    })?;
    Ok(())
}

/// Reads `reasoning`. Its members count in this order: `effort` of `none`, a budget, another effort, `enabled`. All of
/// them count more than the member `thinking` of the body.
fn reasoning<'a>(value: RawJson<'a>, request: &mut Request<'a>) -> Result<(), Fault> {
    if !value.text().starts_with('{') {
        return Err(Fault::at("reasoning", "an object"));
    }
    let (mut effort, mut budget, mut enabled) = (None, None, None);
    let mut unknown = false;
    members(&mut Cursor::new(value.text()), |key, json| {
        let value = json.raw()?;
        if value.is_null() {
            return Ok(());
        }
        match key.escaped() {
            "effort" => match value.as_str().map(JsonStr::escaped) {
                Some("none") => effort = Some(Thinking::Off),
                word => match word.and_then(Effort::from_name) {
                    Some(word) => effort = Some(Thinking::Effort(word)),
                    None => unknown = true,
                },
            },
            "max_tokens" => budget = value.as_u64().map(Thinking::Budget),
            "enabled" => {
                let off = value.as_bool() == Some(false);
                enabled = Some(if off { Thinking::Off } else { Thinking::Adaptive });
            }
            "summary" | "generate_summary" => match value.as_str().map(JsonStr::escaped) {
                Some("none") => {}
                Some("auto") => request.show_thinking = Some(true),
                _ => {
                    request.show_thinking = Some(true);
                    store_extra("reasoning.summary", value, request);
                }
            },
            "context" => store_extra("reasoning.context", value, request),
            "mode" => store_extra("reasoning.mode", value, request),
            _ => {}
        }
        Ok(())
    })?;
    if unknown {
        let words = "'none', 'minimal', 'low', 'medium', 'high', 'xhigh' or 'max'";
        return Err(Fault::at("reasoning.effort", words));
    }
    let off = effort.filter(|effort| *effort == Thinking::Off);
    if let Some(thinking) = off.or(budget).or(effort).or(enabled) {
        request.thinking = thinking;
    }
    Ok(())
}

fn thinking<'a>(value: RawJson<'a>, request: &mut Request<'a>) -> Result<(), Fault> {
    members(&mut Cursor::new(value.text()), |key, json| {
        let value = json.raw()?;
        if key.is("type") && request.thinking == Thinking::Unset {
            request.thinking = match value.as_str().map(JsonStr::escaped) {
                Some("disabled") => Thinking::Off,
                Some("enabled" | "auto") => Thinking::Adaptive,
                _ => Thinking::Unset,
            };
        }
        Ok(())
    })?;
    Ok(())
}

fn text<'a>(value: RawJson<'a>, request: &mut Request<'a>) -> Result<(), Fault> {
    let mut format = None;
    members(&mut Cursor::new(value.text()), |key, json| {
        let value = json.raw()?;
        match key.escaped() {
            "format" => format = Some(value).filter(|value| value.text().starts_with('{')),
            "verbosity" => request.verbosity = value.as_str(),
            _ => {}
        }
        Ok(())
    })?;
    if let Some(format) = format {
        request.output = output(format)?;
    }
    Ok(())
}

/// Members of `text.format`.
#[derive(Default)]
struct Format<'a> {
    kind: JsonStr<'a>,
    name: JsonStr<'a>,
    description: JsonStr<'a>,
    schema: Option<RawJson<'a>>,
    strict: Option<bool>,
    nested: Option<RawJson<'a>>,
}

impl<'a> Format<'a> {
    fn take(&mut self, raw: RawJson<'a>) -> Result<(), Fault> {
        members(&mut Cursor::new(raw.text()), |key, json| {
            let value = json.raw()?;
            match key.escaped() {
                "type" if self.kind.is_empty() => self.kind = value.as_str().unwrap_or_default(),
                "name" => self.name = value.as_str().unwrap_or_default(),
                "description" => self.description = value.as_str().unwrap_or_default(),
                "schema" => self.schema = Some(value).filter(|value| value.text().starts_with('{')),
                "strict" => self.strict = value.as_bool(),
                "json_schema" => self.nested = Some(value),
                _ => {}
            }
            Ok(())
        })?;
        Ok(())
    }
}

fn output(raw: RawJson<'_>) -> Result<OutputFormat<'_>, Fault> {
    let mut format = Format::default();
    format.take(raw)?;
    if let Some(nested) = format.nested.take() {
        format.take(nested)?;
    }
    Ok(match format.kind.escaped() {
        "" | "text" => OutputFormat::Text,
        "json_object" => OutputFormat::Json,
        "json_schema" => OutputFormat::Schema {
            name: format.name,
            description: format.description,
            schema: format.schema.ok_or_else(|| Fault::missing("text.format.schema".to_owned()))?,
            openapi: false,
            strict: format.strict,
        },
        _ => return Err(Fault::at("text.format.type", "'text', 'json_object' or 'json_schema'")),
    })
}

fn include<'a>(value: RawJson<'a>, request: &mut Request<'a>) -> Result<(), Fault> {
    let mut others = false;
    let mut logprobs = false;
    elements(&mut Cursor::new(value.text()), |json| {
        match json.raw()?.as_str() {
            Some(word) if word.is(LOGPROBS) => logprobs = true,
            _ => others = true,
        }
        Ok(())
    })?;
    if logprobs {
        request.logprobs.get_or_insert(0);
    }
    if others {
        store_extra("include", value, request);
    }
    Ok(())
}
