//! Server events: what the gateway writes itself, and what it reads of the events of a stream that it passes on.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::client::Steer;
use super::steering::SteerEvent;
use crate::canonical::{Start, Usage};
use crate::error::ApiError;
use crate::wire::codec::ReplyOptions;
use crate::wire::error::{ProviderError, nullable};
use crate::wire::responses::shell::{ResponseEnvelope, ResponseStatus};
use crate::wire::watch::named_members;
use json::{Cursor, EscapedString, JsonError, RawJson, ValueKind, Writer, from_utf8, push_escaped};

/// Error of one response, as an event.
#[derive(Clone, Copy, Debug)]
pub enum ErrorEvent<'a> {
    /// An error that the gateway raises for the socket itself.
    Own(&'a ApiError),
    /// The body of an HTTP error response.
    Body(&'a [u8]),
    /// An error that a stream ends with.
    Streamed(&'a ProviderError),
}

/// Returns the event of an error, with the status and the headers that the HTTP response would have. Codex and the SDKs
/// treat it as they treat that response.
pub fn error_event<'h>(
    status: u16,
    error: ErrorEvent<'_>,
    headers: impl Iterator<Item = (&'h str, &'h str)>,
    lane: Option<&str>,
) -> Bytes {
    let mut out = BytesMut::with_capacity(256);
    let mut json = Writer::new(&mut out);
    json.begin_object().key("type").string("error").key("status").number(status);
    json.key("error");
    match error {
        ErrorEvent::Own(error) => {
            let row = error.kind.row();
            json.begin_object().key("type").string(row.openai_type);
            nullable(&mut json, "code", error.code.as_deref().or(row.openai_code));
            json.key("message").string(&error.message);
            nullable(&mut json, "param", error.param.as_deref());
            json.end_object();
        }
        ErrorEvent::Body(body) => match error_member(body) {
            Some(error) => {
                json.raw(error);
            }
            None => {
                let message = format!("The response has the status {status}.");
                json.begin_object().key("type").string("server_error").key("code").null();
                json.key("message").string(&message).key("param").null().end_object();
            }
        },
        ErrorEvent::Streamed(error) => {
            // Many streams say no more than `error` here, which is the type of the event.
            let kind = error.kind.as_deref().filter(|kind| *kind != "error");
            let fallback = if status < 500 { "invalid_request_error" } else { "server_error" };
            json.begin_object().key("type").string(kind.unwrap_or(fallback));
            nullable(&mut json, "code", error.code.as_deref());
            json.key("message").string(&error.message);
            nullable(&mut json, "param", error.param.as_deref());
            json.end_object();
        }
    }
    let mut headers = headers.peekable();
    if headers.peek().is_some() {
        json.key("headers").begin_object();
        for (name, value) in headers {
            // Header names are tokens: none of their characters needs an escape.
            json.key(name).string(value);
        }
        json.end_object();
    }
    if let Some(lane) = lane {
        json.key("stream_id").string(lane);
    }
    json.end_object();
    out.freeze()
}

/// Returns the `error` object of a body; `None` if the body has none.
fn error_member(body: &[u8]) -> Option<RawJson<'_>> {
    let text = from_utf8(body).ok()?.trim_ascii();
    let mut json = Cursor::new(text);
    json.skip().ok()?;
    json.end().ok()?;
    let [error] = named_members(RawJson::from_text(text), ["error"]).ok()?;
    error.filter(|error| error.text().starts_with('{'))
}

/// Returns the event that rejects `response.steer`.
pub fn steer_failed(steer: &Steer, code: &str, message: &str) -> Bytes {
    let mut out = BytesMut::with_capacity(steer.input.len() + 256);
    let mut json = Writer::new(&mut out);
    json.begin_object().key("type").string("response.steer.failed").key("sequence_number").number(0u32);
    json.key("steer").begin_object().key("previous_response_id").string(&steer.previous);
    json.key("input").raw(RawJson::from_text(from_utf8(&steer.input).unwrap_or("null"))).end_object();
    json.key("error").begin_object().key("type").string("invalid_request_error");
    json.key("code").string(code).key("message").string(message).end_object().end_object();
    out.freeze()
}

/// Windows of [`rate_limits_event`], each with its prefix in the names of the headers.
const LIMIT_WINDOWS: [(&str, &str); 2] =
    [("primary", "x-codex-primary-"), ("secondary", "x-codex-secondary-")];

/// Returns the event from which Codex shows limits (observed with Codex CLI 0.169): over HTTP it reads the same from
/// the response head. `header` returns the value of a header. `None` if the head has no window.
pub fn rate_limits_event<'h>(header: impl Fn(&str) -> Option<&'h str>) -> Option<Bytes> {
    let used = |prefix: &str| -> Option<f64> {
        let percent: f64 = header(&format!("{prefix}used-percent"))?.parse().ok()?;
        percent.is_finite().then_some(percent)
    };
    used(LIMIT_WINDOWS[0].1)?;
    let mut out = BytesMut::with_capacity(256);
    let mut json = Writer::new(&mut out);
    json.begin_object().key("type").string("codex.rate_limits").key("rate_limits").begin_object();
    for (name, prefix) in LIMIT_WINDOWS {
        let Some(percent) = used(prefix) else { continue };
        json.key(name).begin_object().key("used_percent").fixed(percent, 1);
        for (member, header_name) in [("window_minutes", "window-minutes"), ("reset_at", "reset-at")] {
            let value = header(&format!("{prefix}{header_name}")).and_then(|value| value.parse::<u64>().ok());
            if let Some(value) = value {
                json.key(member).number(value);
            }
        }
        json.end_object();
    }
    json.end_object().end_object();
    Some(out.freeze())
}

/// Returns the member that marks the events of a lane, to be written behind the opening brace of each event.
pub fn lane_member(lane: &str) -> Bytes {
    let mut out = BytesMut::with_capacity(lane.len() + 16);
    out.put_slice(b"\"stream_id\":\"");
    push_escaped(&mut out, lane);
    out.put_slice(b"\",");
    out.freeze()
}

/// Returns the two events of a response without output (`generate: false`).
pub fn empty_response(id: &str, model: &str, previous: Option<&str>, created: u64) -> [Bytes; 2] {
    let mut echo = String::new();
    if let Some(previous) = previous {
        let mut value = Vec::with_capacity(previous.len() + 32);
        Writer::new(&mut value).string(previous);
        echo = format!("\"previous_response_id\":{}", String::from_utf8(value).unwrap_or_default());
    }
    let reply = ReplyOptions {
        model: EscapedString::from(model),
        store_as: id.into(),
        echo: echo.into(),
        created,
        ..ReplyOptions::default()
    };
    let envelope = ResponseEnvelope::new(&reply, &Start::default());
    let event = |number: u32, name: &str, status, usage: Option<&Usage>| {
        let mut out = BytesMut::with_capacity(1024);
        out.put_slice(b"{\"type\":\"");
        out.put_slice(name.as_bytes());
        out.put_slice(b"\",\"sequence_number\":");
        out.put_slice(itoa::Buffer::new().format(number).as_bytes());
        out.put_slice(b",\"response\":");
        envelope.write(status, usage, &mut out, |_| {});
        out.put_u8(b'}');
        out.freeze()
    };
    [
        event(0, "response.created", ResponseStatus::InProgress, None),
        event(1, "response.completed", ResponseStatus::Completed, Some(&Usage::default())),
    ]
}

/// Returns the last event of a stream for a response that arrived as one document.
pub fn response_completed(document: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(document.len() + 80);
    out.put_slice(br#"{"type":"response.completed","sequence_number":0,"response":"#);
    out.put_slice(document);
    out.put_u8(b'}');
    out.freeze()
}

/// What the memory of a connection needs of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched<'a> {
    /// Nothing.
    Other,
    /// An item of the output is complete.
    Item(RawJson<'a>),
    /// The response has ended and can be continued.
    End {
        /// Its id, unescaped ids only: those with escapes cannot be continued.
        id: &'a str,
        /// The elements of its output, without the brackets; empty if the event has none.
        output: &'a str,
        /// Whether it has ended for the input of a `response.steer`: a successor follows.
        is_steered: bool,
    },
    /// A response begins.
    Created,
    /// An answer to `response.steer`.
    Steer(SteerEvent),
    /// The response has failed and cannot be continued.
    Failed,
    /// The same, as an `error` event without a status. Over a connection such an event is not the end of a response for
    /// Codex, which would wait for more.
    ErrorWithoutStatus,
}

/// Reads an event. `name` is that of the server-sent event, if it has one. Without `reads_output`, the output of the last
/// event is not read.
///
/// # Errors
/// Returns [`JsonError`] if the data is not JSON, as far as it is read.
pub fn watch<'a>(name: Option<&[u8]>, data: &'a str, reads_output: bool) -> Result<Watched<'a>, JsonError> {
    let kind = match name {
        Some(name) => std::str::from_utf8(name).unwrap_or_default(),
        None => {
            let [kind] = named_members(RawJson::from_text(data), ["type"])?;
            kind.and_then(RawJson::as_str).map_or("", |kind| kind.escaped())
        }
    };
    Ok(match kind {
        "response.output_item.done" => {
            let [item] = named_members(RawJson::from_text(data), ["item"])?;
            item.map_or(Watched::Other, Watched::Item)
        }
        "response.completed" | "response.incomplete" => {
            let (id, output) = end_of(data, reads_output)?;
            let output = output.strip_prefix('[').and_then(|output| output.strip_suffix(']'));
            let is_steered = kind == "response.incomplete" && is_steered(data);
            Watched::End { id, output: output.unwrap_or_default().trim_ascii(), is_steered }
        }
        "response.created" => Watched::Created,
        "response.failed" => Watched::Failed,
        "error" => {
            let [status] = named_members(RawJson::from_text(data), ["status"])?;
            if status.is_some() { Watched::Failed } else { Watched::ErrorWithoutStatus }
        }
        _ => SteerEvent::read(kind, data).map_or(Watched::Other, Watched::Steer),
    })
}

/// Returns a member of an object; `None` if it is absent, null, or in no object.
fn inner<'a>(value: RawJson<'a>, name: &str) -> Option<RawJson<'a>> {
    named_members(value, [name]).ok().and_then(|[found]| found)
}

/// Returns whether a response has ended for the input of a `response.steer`.
pub(super) fn is_steered(data: &str) -> bool {
    let details =
        inner(RawJson::from_text(data), "response").and_then(|value| inner(value, "incomplete_details"));
    let reason = details.and_then(|details| inner(details, "reason")).and_then(RawJson::as_str);
    reason.is_some_and(|reason| reason.is("steered"))
}

/// Returns the id of the response in its last event, without its quotes, and the text of its output; empty if they are
/// absent, or not read. Stops when it has them: the rest of the event repeats the request.
pub(super) fn end_of(data: &str, reads_output: bool) -> Result<(&str, &str), JsonError> {
    let (mut id, mut output) = (None, None);
    let mut json = Cursor::new(data);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        if !key.is("response") || json.kind()? != ValueKind::Object {
            json.skip()?;
            continue;
        }
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            if key.is("id") {
                id = Some(json.raw()?.as_str().map_or("", |id| id.escaped()));
            } else if key.is("output") && reads_output {
                output = Some(json.raw()?.text());
            } else {
                json.skip()?;
            }
            if id.is_some() && (output.is_some() || !reads_output) {
                return Ok((id.unwrap_or_default(), output.unwrap_or_default()));
            }
        }
    }
    Ok((id.unwrap_or_default(), output.unwrap_or_default()))
}
