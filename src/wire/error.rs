//! Errors: what a provider's error body says, whatever its shape, and an error in a client's own shape.
//!
//! Shapes seen in recordings: `{"error":{message,type,param,code}}` (OpenAI; the code may be an integer),
//! `{"type":"error","error":{type,message}}` (Anthropic), `{"error":{code,message,status,details}}` (Google, also
//! inside a one-element array), `{"error":"text"}`, `{"code":…,"error":"text"}` (xAI),
//! `{"object":"error","message":…}` (Mistral, vLLM), `{"code","message","request_id"}` (DashScope),
//! `{"id","message"}` (Cohere), `{"detail":"text"}` or `{"detail":[{"msg":…}]}` (FastAPI), HTML, plain text, nothing.

use bytes::BytesMut;

use super::Format;
use crate::error::{ApiError, Kind, RetryAfter};
use crate::json::{Cursor, JsonError, RawJson, Writer};

/// A provider's message is cut at this length: beyond it nobody reads, and some providers echo the whole prompt.
const MAX_MESSAGE: usize = 4096;

/// What a provider's error body says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderError {
    /// The text for people; empty when none was found.
    pub message: String,
    /// `type` (OpenAI, Anthropic) or `status` (Google).
    pub kind: Option<String>,
    /// A code for programs.
    pub code: Option<String>,
    /// The field at fault.
    pub param: Option<String>,
    /// How long to wait, when the body says so (Google's `RetryInfo`).
    pub retry_after: Option<RetryAfter>,
}

impl ProviderError {
    /// Reads an error body of any shape. Never fails: what is not understood gives an empty message.
    pub fn decode(body: &[u8]) -> ProviderError {
        let text = String::from_utf8_lossy(body);
        let text = text.trim().trim_start_matches('[').trim_start();
        let mut error = ProviderError::default();
        if text.starts_with('{') {
            // What was read before the text broke off is kept.
            let _ = error.read_object(&mut Cursor::new(text), 0);
        } else if !text.starts_with(['<', ']']) {
            error.message = text.to_owned();
        }
        truncate(&mut error.message, MAX_MESSAGE);
        error
    }

    fn read_object(&mut self, json: &mut Cursor<'_>, depth: u32) -> Result<(), JsonError> {
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            let value = json.raw()?;
            match key.escaped() {
                "message" | "msg" => self.read_message(value),
                "error" | "detail" | "errors" if depth < 3 => self.read_nested(value, depth + 1)?,
                "type" if self.kind.is_none() || depth > 0 => self.kind = text_of(value).or(self.kind.take()),
                "status" => self.kind = self.kind.take().or_else(|| text_of(value)),
                "code" => self.code = self.code.take().or_else(|| scalar_of(value)),
                "param" => self.param = self.param.take().or_else(|| text_of(value)),
                "details" if value.text().starts_with('[') => self.read_details(value)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn read_message(&mut self, value: RawJson<'_>) {
        if self.message.is_empty() {
            self.message = text_of(value).unwrap_or_default();
        }
        if self.message.is_empty() && value.text().starts_with('{') {
            let _ = self.read_nested(value, 2);
        }
    }

    fn read_nested(&mut self, value: RawJson<'_>, depth: u32) -> Result<(), JsonError> {
        match value.text().as_bytes().first() {
            Some(b'"') => self.read_message(value),
            Some(b'{') => self.read_object(&mut Cursor::new(value.text()), depth)?,
            Some(b'[') => {
                let mut json = Cursor::new(value.text());
                json.begin_array()?;
                while json.next_element()? {
                    let element = json.raw()?;
                    self.read_nested(element, depth)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Google: `google.rpc.RetryInfo` says how long to wait, `ErrorInfo` why.
    fn read_details(&mut self, value: RawJson<'_>) -> Result<(), JsonError> {
        let mut json = Cursor::new(value.text());
        json.begin_array()?;
        while json.next_element()? {
            super::watch::members(&mut json, |key, json| {
                let value = json.raw()?;
                match key.escaped() {
                    "retryDelay" => self.retry_after = text_of(value).as_deref().and_then(parse_delay),
                    "reason" => self.code = text_of(value).or(self.code.take()),
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// A protocol buffer duration: `32s`, `1.5s`.
fn parse_delay(text: &str) -> Option<RetryAfter> {
    let seconds = text.strip_suffix('s')?.parse::<f64>().ok()?;
    std::time::Duration::try_from_secs_f64(seconds).ok().map(RetryAfter::Wait)
}

fn text_of(value: RawJson<'_>) -> Option<String> {
    value.as_str().map(|text| text.decode().into_owned())
}

fn scalar_of(value: RawJson<'_>) -> Option<String> {
    match value.text().as_bytes().first() {
        Some(b'"') => text_of(value),
        Some(b'-' | b'0'..=b'9') => Some(value.text().to_owned()),
        _ => None,
    }
}

fn truncate(text: &mut String, limit: usize) {
    if text.len() > limit {
        let end = (0..=limit).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

/// What a provider's error means to the client: whose fault it is and which status it gets.
///
/// A refused credential is the gateway's, not the client's, whatever status says so (Google and xAI say 400).
pub fn from_provider(status: u16, provider: ProviderError, retry_after: Option<RetryAfter>) -> ApiError {
    let code = provider.code.as_deref().unwrap_or_default();
    let google_key = code == "API_KEY_INVALID";
    let refused_key = matches!(status, 401..=403) || google_key || says_invalid_key(&provider.message);
    let kind = match status {
        _ if refused_key => Kind::UpstreamAuth,
        429 => Kind::UpstreamRateLimit,
        408 => Kind::UpstreamTimeout,
        400..=499 => Kind::UpstreamRejected,
        _ => Kind::UpstreamFailed,
    };
    let row = kind.row();
    if kind == Kind::UpstreamAuth {
        // Nothing of the provider's text, which may hold a part of the credential or the account's name; Google's is
        // a fixed sentence.
        let mut message = "The upstream provider refused the gateway's credential or account.".to_owned();
        if google_key {
            message = format!("The upstream provider refused the gateway's credential: {}", provider.message);
        }
        // A 401 would make the client's SDK blame the client's key.
        let status = if status == 400 { status } else { row.status };
        return ApiError::new(kind, message).status(status);
    }
    let message = if provider.message.trim().is_empty() {
        format!("The upstream provider answered with HTTP status {status}.")
    } else {
        provider.message
    };
    ApiError {
        kind,
        // 3xx and unheard-of codes would confuse every client.
        status: if (400..600).contains(&status) { status } else { row.status },
        message: message.into(),
        param: provider.param.map(Into::into),
        // A code that only repeats the status says nothing that the client's own format would not say better.
        code: provider
            .code
            .filter(|_| kind == Kind::UpstreamRejected || kind == Kind::UpstreamRateLimit)
            .filter(|code| *code != status.to_string())
            .map(Into::into),
        retry_after: retry_after.or(provider.retry_after),
    }
}

/// xAI and others answer 400 to a wrong key.
fn says_invalid_key(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    message.contains("api key")
        && ["incorrect", "invalid", "not valid"].iter().any(|word| message.contains(word))
}

/// The body of an error response in a format. `request_id` is the gateway's own.
pub fn body(format: Format, error: &ApiError, request_id: &str) -> BytesMut {
    let mut out = BytesMut::with_capacity(192 + error.message.len());
    match format {
        Format::Chat | Format::Responses => super::chat::error::encode(error, &mut out),
        Format::Messages => super::messages::error::encode(error, request_id, &mut out),
        Format::Generate => super::generate::error::encode(error, &mut out),
    }
    out
}

/// What is appended to a stream that cannot go on: the error in the format's own way, never something that looks
/// like an end.
///
/// `array` tells Gemini's JSON array from server-sent events, and what of it has been sent.
pub fn stream_tail(
    format: Format,
    error: &ApiError,
    request_id: &str,
    array: Option<ArrayState>,
) -> BytesMut {
    let mut out = BytesMut::with_capacity(256 + error.message.len());
    match (format, array) {
        (Format::Chat, _) => {
            out.extend_from_slice(b"data: ");
            super::chat::error::encode(error, &mut out);
            out.extend_from_slice(b"\n\ndata: [DONE]\n\n");
        }
        (Format::Messages, _) => {
            out.extend_from_slice(b"event: error\ndata: ");
            super::messages::error::encode(error, request_id, &mut out);
            out.extend_from_slice(b"\n\n");
        }
        (Format::Responses, _) => super::responses::error::encode_event(error, &mut out),
        (Format::Generate, None) => {
            out.extend_from_slice(b"data: ");
            super::generate::error::encode(error, &mut out);
            out.extend_from_slice(b"\r\n\r\n");
        }
        (Format::Generate, Some(state)) => {
            out.extend_from_slice(match state {
                ArrayState::Nothing => &b"["[..],
                ArrayState::Elements => b",\r\n",
            });
            super::generate::error::encode(error, &mut out);
            out.extend_from_slice(b"]");
        }
    }
    out
}

/// What has been sent of a JSON array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayState {
    /// Not even the opening bracket.
    Nothing,
    /// At least one element.
    Elements,
}

/// Whether a provider's error body already is what a client of this format expects, so that it may pass as it is with
/// all that the provider put into it.
pub fn is_in_shape(format: Format, status: u16, body: &str) -> bool {
    match format {
        Format::Chat | Format::Responses => super::chat::error::is_in_shape(body),
        Format::Messages => super::messages::error::is_in_shape(body),
        Format::Generate => super::generate::error::is_in_shape(status, body),
    }
}

/// Reads an `error` member into what its own members are, for the shape checks.
pub(super) fn error_member(body: &str, mut each: impl FnMut(&str, RawJson<'_>)) -> Result<bool, JsonError> {
    let mut found = false;
    let mut json = Cursor::new(body);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        if key.is("error") {
            found = json.kind()? == crate::json::Kind::Object;
            super::watch::members(&mut json, |key, json| {
                each(key.escaped(), json.raw()?);
                Ok(())
            })?;
        } else {
            json.skip()?;
        }
    }
    json.end()?;
    Ok(found)
}

/// Writes `name: "text"` or `name: null`.
pub(super) fn nullable<B: bytes::BufMut>(json: &mut Writer<'_, B>, name: &str, text: Option<&str>) {
    json.key(name);
    match text {
        Some(text) => json.string(text),
        None => json.null(),
    };
}
