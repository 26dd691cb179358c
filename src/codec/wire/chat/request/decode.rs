//! Decoder of a chat request: its top-level members.

use super::message::conversation;
use super::read::{
    Result, array, broken, flag, invalid, missing, number, object, raw, raw_object, text, whole,
};
use super::response_format;
use super::thinking::ReasoningOptions;
use super::tools;
use crate::canonical::request::{Extra, Search};
use crate::canonical::{Index, IndexKey, Request};
use json::{Cursor, JsonStr, RawJson, ValueKind};

/// Decodes a request.
///
/// # Errors
/// Returns [`ApiError`](crate::error::ApiError) if a member is missing or has an invalid value.
pub fn decode(body: &str) -> Result<Request<'_>> {
    let mut reader = Reader::default();
    let mut json = Cursor::new(body);
    object(&mut json, "body", |key, json| reader.member(key, json))?;
    json.end().map_err(broken)?;
    if let Some(parameters) = reader.parameters.take() {
        reader.parameters(parameters, body)?;
    }
    reader.done()
}

/// State of the decoder.
#[derive(Default)]
struct Reader<'a> {
    request: Request<'a>,
    wishes: ReasoningOptions,
    has_messages: bool,
    /// `max_tokens`, which counts only without `max_completion_tokens`.
    max_tokens: Option<u64>,
    /// `web_search_options`, which counts more than a search tool.
    search: Option<Search<'a>>,
    /// Value of `enable_search`, which counts only without settings of the search.
    enable_search: Option<bool>,
    logprobs: Option<bool>,
    top_logprobs: Option<u64>,
    safety_identifier: Option<RawJson<'a>>,
    /// `parameters`, in which one family of models has its extensions. Decoded last, because members at the top level
    /// take precedence.
    parameters: Option<RawJson<'a>>,
}

impl<'a> Reader<'a> {
    fn member(&mut self, key: JsonStr<'a>, json: &mut Cursor<'a>) -> Result<()> {
        let name = key.escaped();
        let request = &mut self.request;
        match name {
            "model" => drop(raw(json)?),
            "messages" => {
                self.has_messages = true;
                request.turns = conversation(json)?;
            }
            "stream" => request.stream = flag(json, name)?,
            "stream_options" => object(json, name, |key, json| {
                let value = raw(json)?;
                if key.is("include_usage") {
                    request.usage_wanted = value.as_bool() == Some(true);
                }
                Ok(())
            })?,
            "max_completion_tokens" => request.max_output = Some(whole(json, name)?),
            "max_tokens" => self.max_tokens = Some(whole(json, name)?),
            "temperature" => request.sampling.temperature = Some(number(json, name)?),
            "top_p" => request.sampling.top_p = Some(number(json, name)?),
            "top_k" => request.sampling.top_k = Some(number(json, name)?),
            "presence_penalty" => request.sampling.presence_penalty = Some(number(json, name)?),
            "frequency_penalty" => request.sampling.frequency_penalty = Some(number(json, name)?),
            "seed" | "random_seed" => request.sampling.seed = Some(number(json, name)?),
            "n" => request.choices = Some(whole(json, name)?),
            "logprobs" => self.logprobs = Some(flag(json, name)?),
            "top_logprobs" => self.top_logprobs = Some(whole(json, name)?),
            "stop" => request.stop = texts(json, name)?,
            "modalities" => request.modalities = texts(json, name)?,
            "verbosity" => request.verbosity = Some(text(json, name)?),
            "user" => request.user = Some(text(json, name)?),
            "safety_identifier" => self.safety_identifier = Some(raw(json)?),
            "metadata" => request.metadata = Some(raw_object(json, name)?),
            "service_tier" => request.service_tier = Some(text(json, name)?),
            "prompt_cache_key" => request.cache_key = Some(text(json, name)?),
            "store" => request.store = Some(flag(json, name)?),
            "tools" => tools::list(json, request)?,
            "functions" => tools::functions(json, request)?,
            "tool_choice" => request.tool_choice = Some(tools::choice(json)?),
            // The deprecated member never overrides `tool_choice`, in either order.
            "function_call" => {
                let choice = tools::function_call(json)?;
                request.tool_choice.get_or_insert(choice);
            }
            "parallel_tool_calls" => request.parallel_tools = Some(flag(json, name)?),
            "response_format" => request.output = response_format::output(json)?,
            "web_search_options" => self.search = Some(response_format::search(json)?),
            "enable_search" => self.enable_search = Some(flag(json, name)?),
            "parameters" => self.parameters = Some(raw(json)?),
            // Reasoning settings have many spellings. Everything else is an extra, and the encoder decides about it.
            _ if self.wishes.member(name, json, request)? => {}
            _ => request.extra.push(Extra { name, value: raw(json)? }),
        }
        Ok(())
    }

    /// Combines the members that depend on each other.
    fn done(self) -> Result<Request<'a>> {
        if !self.has_messages {
            return Err(missing("messages"));
        }
        let Reader { mut request, wishes, max_tokens, logprobs, top_logprobs, safety_identifier, .. } = self;
        let switched = self.enable_search.filter(|on| *on).map(|_| Search::default());
        request.search = self.search.or(request.search).or(switched);
        if self.enable_search == Some(false) && request.search.is_none() {
            // For a provider whose models may search unless they are told not to.
            request.extra.push(Extra { name: SEARCH_SWITCH, value: RawJson::from_text("false") });
        }
        request.max_output = request.max_output.or(max_tokens);
        request.logprobs = match (logprobs, top_logprobs) {
            (Some(false), _) | (None, None) => None,
            (_, top) => Some(top.unwrap_or(0)),
        };
        // `safety_identifier` replaces `user`. If both are present and differ, both are sent.
        match (safety_identifier, request.user) {
            (Some(value), None) if value.as_str().is_some() => request.user = value.as_str(),
            (Some(value), Some(user)) if value.as_str() != Some(user) => {
                request.extra.push(Extra { name: "safety_identifier", value });
            }
            _ => {}
        }
        request.thinking = wishes.thinking();
        Ok(request)
    }

    /// Decodes `parameters`. Members that the body has at the top level are ignored.
    fn parameters(&mut self, parameters: RawJson<'a>, body: &'a str) -> Result<()> {
        let mut json = Cursor::new(parameters.text());
        if json.kind().map_err(broken)? != ValueKind::Object {
            return Err(invalid("parameters", "an object"));
        }
        let mut known = Index::default();
        object(&mut Cursor::new(body), "body", |key, json| {
            let name = key.escaped();
            known.push(IndexKey::of(usual_name(name)));
            // `top_logprobs` alone requests log probabilities too.
            if name == "top_logprobs" {
                known.push(IndexKey::of("logprobs"));
            }
            raw(json).map(drop)
        })?;
        object(&mut json, "parameters", |key, json| {
            let name = key.escaped();
            let before = self.request.extra.len();
            match name {
                // Members of the request itself are not valid here.
                "messages" | "model" | "stream" | "tools" | "functions" | "parameters" => drop(raw(json)?),
                _ if known.has(IndexKey::of(usual_name(name))) => drop(raw(json)?),
                _ => self.member(key, json)?,
            }
            let new = self.request.extra.get(before..).unwrap_or_default();
            new.iter().for_each(|extra| known.push(IndexKey::of(extra.name)));
            Ok(())
        })
    }
}

/// Member that switches the search of a provider on and off. Other providers do not search unless they are asked to.
pub(super) const SEARCH_SWITCH: &str = "enable_search";

/// Returns the usual name of a member that has several.
fn usual_name(name: &str) -> &str {
    match name {
        "max_tokens" => "max_completion_tokens",
        "random_seed" => "seed",
        "function_call" => "tool_choice",
        name => name,
    }
}

/// Reads a string or a list of strings.
fn texts<'a>(json: &mut Cursor<'a>, name: &str) -> Result<Vec<JsonStr<'a>>> {
    if json.kind().map_err(broken)? == ValueKind::String {
        return Ok(vec![text(json, name)?]);
    }
    let mut texts = Vec::new();
    array(json, name, |number, json| {
        texts.push(text(json, format_args!("{name}[{number}]"))?);
        Ok(())
    })?;
    Ok(texts)
}
