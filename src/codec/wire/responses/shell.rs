//! Response envelope: the members of the response object around `output`, prepared once per response.

use std::ops::Range;

use bytes::{BufMut, BytesMut};

use crate::canonical::{Start, Usage};
use crate::wire::codec::{ReplyOptions, bare_id, make_id};
use crate::wire::tier_words::TierWords;
use crate::wire::watch::named_members;
use json::{Cursor, JsonError, JsonStr, RawJson, Writer};

/// Members that echo the request, with the value that is written if the request omits them: the value that the
/// official SDKs require, otherwise null or the documented default.
const REPEATED: [(&str, &str); 20] = [
    ("background", "false"),
    ("completed_at", "null"),
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("max_tool_calls", "null"),
    ("parallel_tool_calls", "true"),
    ("previous_response_id", "null"),
    ("prompt_cache_key", "null"),
    ("reasoning", r#"{"effort":null,"summary":null}"#),
    ("safety_identifier", "null"),
    ("service_tier", "null"),
    ("store", "true"),
    ("temperature", "null"),
    ("text", r#"{"format":{"type":"text"}}"#),
    ("tool_choice", r#""auto""#),
    ("tools", "[]"),
    ("top_logprobs", "null"),
    ("top_p", "null"),
    ("truncation", r#""disabled""#),
    ("user", "null"),
];

/// Returns the names of the members that echo the request.
pub fn repeated() -> impl Iterator<Item = &'static str> {
    REPEATED.into_iter().map(|member| member.0).chain(["metadata"])
}

/// Status of a response.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResponseStatus<'a> {
    InProgress,
    Completed,
    /// Ended early, for this reason (`incomplete_details.reason`).
    Incomplete(&'a str),
    /// Failed, with this error code and message.
    Failed(&'a str, &'a str),
}

impl ResponseStatus<'_> {
    /// Returns the value of the `status` member.
    pub(super) fn name(self) -> &'static str {
        match self {
            ResponseStatus::InProgress => "in_progress",
            ResponseStatus::Completed => "completed",
            ResponseStatus::Incomplete(_) => "incomplete",
            ResponseStatus::Failed(..) => "failed",
        }
    }
}

/// Response envelope: the text that all response objects of one stream share.
#[derive(Debug, Default)]
pub(super) struct ResponseEnvelope {
    /// Text from the opening brace up to `status`, exclusive.
    head: Vec<u8>,
    /// Text after the value of `usage`, with the closing brace.
    tail: Vec<u8>,
    /// Place of the value of `service_tier` in `tail`.
    tier_at: Range<usize>,
}

impl ResponseEnvelope {
    /// Builds the envelope of a response from its start event.
    pub(super) fn new(reply: &ReplyOptions, start: &Start<'_>) -> Self {
        let mut head = Vec::with_capacity(96);
        let id = match bare_id(start.id.escaped()) {
            _ if !reply.store_as.is_empty() => reply.store_as.to_string(),
            bare if bare.is_empty() => make_id("resp_", &reply.seed, 0),
            bare => format!("resp_{bare}"),
        };
        let mut json = Writer::new(&mut head);
        json.begin_object().key("id").string(&id).key("object").string("response");
        json.key("created_at").number(start.created.unwrap_or(reply.created));
        head.put_u8(b',');

        let mut tail = Vec::with_capacity(640 + reply.echo.len());
        tail.put_slice(b",\"model\":\"");
        tail.put_slice(reply.model.as_json_str().escaped().as_bytes());
        tail.put_u8(b'"');
        let mut said: Vec<&str> = Vec::new();
        let mut tier_at = 0..0;
        let mut put = |tail: &mut Vec<u8>, name: &str, value: &str| {
            put_member(tail, name, value);
            if name == "service_tier" {
                tier_at = tail.len() - value.len()..tail.len();
            }
        };
        // An echo that is not valid JSON is ignored; the defaults are written instead.
        let _ = each_member(&reply.echo, |name, value| {
            if !said.contains(&name) {
                put(&mut tail, name, value.text());
                said.push(name);
            }
        });
        for (name, value) in REPEATED.into_iter().chain([("metadata", "{}")]) {
            if !said.contains(&name) {
                put(&mut tail, name, value);
            }
        }
        tail.put_u8(b'}');
        ResponseEnvelope { head, tail, tier_at }
    }

    /// Writes a response object; `output` writes the elements of the `output` array.
    pub(super) fn write(
        &self,
        status: ResponseStatus<'_>,
        usage: Option<&Usage>,
        out: &mut BytesMut,
        output: impl FnOnce(&mut BytesMut),
    ) {
        out.extend_from_slice(&self.head);
        out.extend_from_slice(b"\"status\":\"");
        out.extend_from_slice(status.name().as_bytes());
        out.extend_from_slice(b"\",\"error\":");
        match status {
            ResponseStatus::Failed(code, message) => {
                Writer::new(out)
                    .begin_object()
                    .key("code")
                    .string(code)
                    .key("message")
                    .string(message)
                    .end_object();
            }
            _ => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"incomplete_details\":");
        match status {
            ResponseStatus::Incomplete(reason) => {
                Writer::new(out).begin_object().key("reason").string(reason).end_object();
            }
            _ => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"output\":[");
        output(out);
        out.extend_from_slice(b"],\"usage\":");
        match usage {
            Some(usage) => put_usage(usage, out),
            None => out.extend_from_slice(b"null"),
        }
        let tier = usage.and_then(|usage| TierWords::OpenAi.word(usage.tier?));
        let around = tier.and_then(|word| {
            let Range { start, end } = self.tier_at;
            Some((self.tail.get(..start)?, word, self.tail.get(end..)?)).filter(|_| end > start)
        });
        match around {
            // The tier that served the response, in the place of the one that was asked for.
            Some((before, word, behind)) => {
                out.extend_from_slice(before);
                Writer::new(out).string(word);
                out.extend_from_slice(behind);
            }
            None => out.extend_from_slice(&self.tail),
        }
    }
}

fn put_member(out: &mut Vec<u8>, name: &str, value: &str) {
    out.put_slice(b",\"");
    out.put_slice(name.as_bytes());
    out.put_slice(b"\":");
    out.put_slice(value.as_bytes());
}

/// Calls `each` for every echoed member in text of the form `"name":value,...`. Unknown members are skipped.
fn each_member(echo: &str, mut each: impl FnMut(&'static str, RawJson<'_>)) -> Result<(), JsonError> {
    let object = format!("{{{echo}}}");
    let mut json = Cursor::new(&object);
    json.begin_object()?;
    while let Some(name) = json.next_key()? {
        let value = json.raw()?;
        if let Some(name) = repeated().find(|known| name.is(known)) {
            each(name, value);
        }
    }
    Ok(())
}

/// Writes a usage object. All counts are present, 0 if unknown, because the SDKs' types require them.
pub(super) fn put_usage(usage: &Usage, out: &mut BytesMut) {
    let input = usage.input.unwrap_or(0);
    let output = usage.output.unwrap_or(0);
    let written = usage.cache_writes().unwrap_or(0);
    let mut json = Writer::new(out);
    json.begin_object();
    json.key("input_tokens").number(input);
    json.key("input_tokens_details").begin_object();
    json.key("cached_tokens").number(usage.cached.unwrap_or(0));
    json.key("cache_write_tokens").number(written).end_object();
    json.key("output_tokens").number(output);
    json.key("output_tokens_details").begin_object();
    json.key("reasoning_tokens").number(usage.reasoning.unwrap_or(0)).end_object();
    json.key("total_tokens").number(input.saturating_add(output)).end_object();
}

/// Returns the members of a request that its response echoes, in the form of [`ReplyOptions::echo`]. `tools` and
/// `tool_choice` are normalized to the flat form that the SDKs' types have, also if the request nests them.
///
/// # Errors
/// Returns [`JsonError`] if the request is not valid JSON.
pub fn echo(body: &str) -> Result<String, JsonError> {
    let mut out = Vec::new();
    let mut json = Cursor::new(body);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        let value = json.raw()?;
        let Some(name) = repeated().find(|known| key.is(known)) else { continue };
        if value.is_null() {
            continue;
        }
        if !out.is_empty() {
            out.put_u8(b',');
        }
        out.put_u8(b'"');
        out.put_slice(name.as_bytes());
        out.put_slice(b"\":");
        match name {
            "tools" => put_tools(value, &mut out)?,
            "tool_choice" => put_choice(value, &mut out)?,
            _ => out.put_slice(value.text().as_bytes()),
        }
    }
    Ok(String::from_utf8(out).unwrap_or_default())
}

fn put_tools(tools: RawJson<'_>, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let mut json = Cursor::new(tools.text());
    if json.begin_array().is_err() {
        out.put_slice(b"[]");
        return Ok(());
    }
    let mut first = true;
    out.put_u8(b'[');
    while json.next_element()? {
        if !std::mem::take(&mut first) {
            out.put_u8(b',');
        }
        put_tool(json.raw()?, out)?;
    }
    out.put_u8(b']');
    Ok(())
}

fn put_tool(tool: RawJson<'_>, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let [kind, function] = named_members(tool, ["type", "function"])?;
    if kind.and_then(RawJson::as_str).is_none_or(|kind| !kind.is("function")) {
        out.put_slice(tool.text().as_bytes());
        return Ok(());
    }
    let function = function.filter(|value| value.text().starts_with('{')).unwrap_or(tool);
    let [name, description, parameters, strict] =
        named_members(function, ["name", "description", "parameters", "strict"])?;
    let mut json = Writer::new(out);
    json.begin_object().key("type").string("function");
    json.key("name").raw(name.unwrap_or(RawJson::from_text("\"\"")));
    if let Some(description) = description {
        json.key("description").raw(description);
    }
    json.key("parameters").raw(parameters.unwrap_or(RawJson::NULL));
    json.key("strict").raw(strict.unwrap_or(RawJson::from_text("false"))).end_object();
    Ok(())
}

fn put_choice(choice: RawJson<'_>, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let nested = match choice.text().starts_with('{') {
        true => named_members(choice, ["function"])?[0].filter(|value| value.text().starts_with('{')),
        false => None,
    };
    let name = match nested {
        Some(function) => named_members(function, ["name"])?[0].and_then(RawJson::as_str),
        None => None,
    };
    match name {
        Some(name) => {
            put_named(name, out);
        }
        None => out.put_slice(choice.text().as_bytes()),
    }
    Ok(())
}

fn put_named(name: JsonStr<'_>, out: &mut Vec<u8>) {
    Writer::new(out).begin_object().key("type").string("function").key("name").paste(name).end_object();
}
