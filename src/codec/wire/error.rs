//! Error bodies: reading a provider's error of any shape, and writing an error in a client's format.
//!
//! Provider shapes seen in recordings: `{"error":{message,type,param,code}}` (OpenAI; the code may be an integer),
//! `{"type":"error","error":{type,message}}` (Anthropic), `{"error":{code,message,status,details}}` (Google, also
//! inside a one-element array), `{"message","__type"}` and `{"throttlingException":{"message"}}` (AWS), `{"error":"text"}`, `{"code":...,"error":"text"}` (xAI),
//! `{"object":"error","message":...}` (Mistral, vLLM), `{"code","message","request_id"}` (DashScope),
//! `{"id","message"}` (Cohere), `{"base_resp":{"status_code","status_msg"}}` (MiniMax), `{"detail":"text"}` or `{"detail":[{"msg":...}]}` (FastAPI), HTML, plain text, nothing.

use bytes::BytesMut;

use super::{Format, base_resp, overflow};
use crate::error::{ApiError, ErrorKind, RetryAfter};
use json::{Cursor, JsonError, RawJson, Sink, Writer};

/// Maximum length of a provider's message in bytes. Longer messages are useless to readers, and some providers echo the
/// whole prompt.
const MAX_MESSAGE: usize = 4096;

/// Maximum nesting depth of error objects and lists that are read. Each level is scanned once more, and no known form
/// has more than four.
const MAX_DEPTH: u32 = 6;

/// Facts of a provider's error body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderError {
    /// Message for people. Empty if none was found.
    pub message: String,
    /// `type` (OpenAI, Anthropic) or `status` (Google).
    pub kind: Option<String>,
    /// Machine-readable error code.
    pub code: Option<String>,
    /// Request member at fault.
    pub param: Option<String>,
    /// Time to wait before a retry, if the body states it (Google's `RetryInfo`).
    pub retry_after: Option<RetryAfter>,
}

impl ProviderError {
    /// Returns the HTTP status that fits an error inside a 200 response.
    pub fn status(&self) -> u16 {
        let numeric = self.code.as_deref().and_then(|code| code.parse::<u16>().ok());
        if let Some(status) = numeric.filter(|status| (400..600).contains(status)) {
            return status;
        }
        let says = |word: &str| {
            [&self.kind, &self.code]
                .into_iter()
                .flatten()
                .any(|text| text.to_ascii_lowercase().contains(word))
        };
        match () {
            // 529 is Anthropic's status for an overload.
            () if says("overloaded") => 529,
            () if says("throttling") || says("modelnotready") || says("servicequotaexceeded") => 429,
            () if says("validationexception") => 400,
            () if says("modeltimeout") || says("timeout_error") => 408,
            () if says("authentication_error") => 401,
            () if says("rate_limit") || says("resource_exhausted") || says("insufficient_quota") => 429,
            () if says("invalid_") || says("context_length") => 400,
            () if says("unavailable") => 503,
            () => 500,
        }
    }

    /// Reads an error body of any shape. Never fails: a body that cannot be understood gives an empty message.
    pub fn decode(body: &[u8]) -> ProviderError {
        ProviderError::read(&String::from_utf8_lossy(body), 0)
    }

    /// Returns whether a whole response with status 200, which is none of its format, is an error: JSON with a message.
    #[cold]
    pub fn is_in(text: &str) -> bool {
        let mut json = Cursor::new(text);
        let is_whole =
            text.trim_ascii_start().starts_with(['{', '[']) && json.skip().and_then(|()| json.end()).is_ok();
        is_whole && !ProviderError::read(text, 0).message.trim().is_empty()
    }

    fn read(text: &str, depth: u32) -> ProviderError {
        let text = text.trim().trim_start_matches('[').trim_start();
        let mut error = ProviderError::default();
        if text.starts_with('{') {
            // A truncated body is common; keep the members that were read before the error.
            let _ = error.read_object(&mut Cursor::new(text), depth);
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
                "message" | "Message" | "msg" | "error_msg" => self.read_message(value, depth),
                // OAuth, RFC 6749: the word is in `error`.
                "error_description" => {
                    self.message = text_of(value).unwrap_or(std::mem::take(&mut self.message))
                }
                "metadata" if depth > 0 => self.read_metadata(value, depth)?,
                "error" | "detail" | "errors" => self.read_nested(value, depth + 1)?,
                "choices" if depth == 0 => self.read_choices(value)?,
                // AWS: `namespace#ValidationException`.
                "__type" => self.kind = text_of(value).map(|name| exception_name(&name)).or(self.kind.take()),
                "type" if self.kind.is_none() || depth > 0 => self.kind = text_of(value).or(self.kind.take()),
                "status" => self.kind = self.kind.take().or_else(|| text_of(value)),
                "code" | "error_code" => self.code = self.code.take().or_else(|| scalar_of(value)),
                "base_resp" => self.read_base_resp(value)?,
                "param" => self.param = self.param.take().or_else(|| text_of(value)),
                // An exception of an AWS event stream, by its name.
                name if name.ends_with("Exception") && value.text().starts_with('{') => {
                    self.kind = Some(name.to_owned());
                    self.read_nested(value, depth + 1)?;
                }
                "details" if value.text().starts_with('[') => self.read_details(value)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads what OpenRouter says of the error of its own provider, whose answer is in `raw` ("Errors and debugging", November
    /// 2026): its own message is "Provider returned error".
    fn read_metadata(&mut self, value: RawJson<'_>, depth: u32) -> Result<(), JsonError> {
        if depth > MAX_DEPTH {
            return Ok(());
        }
        let [raw] = super::watch::named_members(value, ["raw"])?;
        let Some(raw) = raw else { return Ok(()) };
        let text = text_of(raw).unwrap_or_else(|| raw.text().to_owned());
        let relayed = ProviderError::read(&text, depth + 1).message;
        match (self.message.is_empty(), relayed.is_empty() || self.message.contains(&relayed)) {
            (_, true) => {}
            (true, false) => self.message = relayed,
            (false, false) => self.message = format!("{}: {relayed}", self.message),
        }
        Ok(())
    }

    /// Reads MiniMax's result: `{"status_code","status_msg"}`, in a response with status 200.
    fn read_base_resp(&mut self, value: RawJson<'_>) -> Result<(), JsonError> {
        let [code, message] = super::watch::named_members(value, ["status_code", "status_msg"])?;
        let Some(row) = code.and_then(RawJson::as_u64).and_then(base_resp::error) else { return Ok(()) };
        self.kind = Some(row.kind.to_owned());
        self.code = Some(row.kind.to_owned());
        if let Some(message) = message {
            self.read_message(message, MAX_DEPTH);
        }
        Ok(())
    }

    /// Reads the errors of choices: an error of OpenRouter's own provider ("Errors and debugging", November 2026).
    fn read_choices(&mut self, choices: RawJson<'_>) -> Result<(), JsonError> {
        super::watch::elements(&mut Cursor::new(choices.text()), |json| {
            let [error] = super::watch::named_members(json.raw()?, ["error"])?;
            error.map_or(Ok(()), |error| self.read_nested(error, 1))
        })
        .map(drop)
    }

    fn read_message(&mut self, value: RawJson<'_>, depth: u32) {
        if self.message.is_empty() {
            self.message = text_of(value).unwrap_or_default();
        }
        if self.message.is_empty() && value.text().starts_with('{') {
            let _ = self.read_nested(value, depth + 1);
        }
    }

    fn read_nested(&mut self, value: RawJson<'_>, depth: u32) -> Result<(), JsonError> {
        if depth > MAX_DEPTH {
            return Ok(());
        }
        match value.text().as_bytes().first() {
            Some(b'"') => self.read_message(value, depth),
            Some(b'{') => self.read_object(&mut Cursor::new(value.text()), depth)?,
            Some(b'[') => {
                let mut json = Cursor::new(value.text());
                json.begin_array()?;
                while json.next_element()? {
                    let element = json.raw()?;
                    self.read_nested(element, depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads Google's error details: `google.rpc.RetryInfo` holds the retry delay, `ErrorInfo` the reason.
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

/// Parses a protocol buffer duration: `32s`, `1.5s`. `None` for anything else.
fn parse_delay(text: &str) -> Option<RetryAfter> {
    let seconds = text.strip_suffix('s')?.parse::<f64>().ok()?;
    std::time::Duration::try_from_secs_f64(seconds).ok().map(RetryAfter::Wait)
}

/// Returns the name of an exception of AWS without the namespace before it and the address behind it.
fn exception_name(name: &str) -> String {
    let name = name.split(':').next().unwrap_or_default();
    name.rsplit('#').next().unwrap_or_default().to_owned()
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

/// Converts a provider's error to the client's error: fault domain and status.
///
/// A refused credential is the gateway's fault, not the client's, whatever the status says (Google and xAI answer 400).
pub fn from_provider(status: u16, provider: ProviderError, retry_after: Option<RetryAfter>) -> ApiError {
    let code = provider.code.as_deref().unwrap_or_default();
    let google_key = code == "API_KEY_INVALID";
    let refused_key = matches!(status, 401..=403) || google_key || says_invalid_key(&provider.message);
    let kind = match status {
        _ if refused_key => ErrorKind::UpstreamAuth,
        _ if overflow::is_overflow(status, &provider) => ErrorKind::ContextOverflow,
        429 => ErrorKind::UpstreamRateLimit,
        // Amazon Bedrock has a status of its own for the quota of an account.
        400 if says_quota(&provider) => ErrorKind::UpstreamRateLimit,
        408 => ErrorKind::UpstreamTimeout,
        // The model failed: Amazon Bedrock (`ModelErrorException`) and Text Embeddings Inference.
        424 => ErrorKind::UpstreamFailed,
        400..=499 => ErrorKind::UpstreamRejected,
        _ => ErrorKind::UpstreamFailed,
    };
    let row = kind.row();
    if kind == ErrorKind::UpstreamAuth {
        // Do not forward the provider's text: it may contain part of the credential or the account's name. Google's
        // message is a fixed sentence without either.
        let mut message = "The upstream provider refused the gateway's credential or account.".to_owned();
        if google_key {
            message = format!("The upstream provider refused the gateway's credential: {}", provider.message);
        }
        // Do not forward 401: the client's SDK would blame the client's own key.
        let status = if status == 400 { status } else { row.status };
        return ApiError::new(kind, message).status(status);
    }
    let message = if provider.message.trim().is_empty() {
        format!("The upstream provider responded with HTTP status {status}.")
    } else {
        provider.message
    };
    ApiError {
        kind,
        // Status 3xx and undefined codes would confuse every client.
        status: match kind {
            // Clients recover from an overflow with the status that most providers have for it.
            ErrorKind::ContextOverflow => row.status,
            ErrorKind::UpstreamRateLimit if status == 400 => row.status,
            _ if (400..600).contains(&status) => status,
            _ => row.status,
        },
        message: message.into(),
        param: provider.param.map(Into::into),
        // Drop a code that only repeats the status: the client's format has a more precise one.
        code: provider
            .code
            .filter(|_| kind == ErrorKind::UpstreamRejected || kind == ErrorKind::UpstreamRateLimit)
            .filter(|code| *code != status.to_string())
            .map(Into::into),
        retry_after: retry_after.or(provider.retry_after),
    }
}

/// Returns whether an error says that a quota or balance is used up, which no waiting of seconds restores.
pub fn is_quota_exhausted(error: &ApiError) -> bool {
    error.code.as_deref().is_some_and(|code| {
        matches!(code, "insufficient_quota" | "billing_hard_limit_reached" | "billing_not_active")
    })
}

/// Returns whether the exception of AWS says that a quota of the account is used up.
fn says_quota(provider: &ProviderError) -> bool {
    provider.kind.as_deref().is_some_and(|kind| kind.starts_with("ServiceQuotaExceeded"))
}

/// Returns whether a message reports an invalid API key. xAI and others answer 400 in this case.
fn says_invalid_key(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    message.contains("api key")
        && ["incorrect", "invalid", "not valid"].iter().any(|word| message.contains(word))
}

/// Returns the status with which clients of a format receive an error.
pub fn client_status(format: Format, error: &ApiError) -> u16 {
    match format {
        // The status of Amazon Bedrock and of Text Embeddings Inference for a failure of the model, which no client of these
        // formats knows.
        Format::Chat | Format::Responses if error.kind == ErrorKind::UpstreamFailed && error.status < 500 => {
            error.kind.row().status
        }
        Format::Chat | Format::Responses => error.status,
        Format::Messages => super::messages::error::status(error),
        Format::Generate => super::generate::error::status(error),
        Format::Converse => super::converse::error::status(error),
    }
}

/// Returns the body of an error response in a format. `request_id` is the gateway's own id of the request.
pub fn body(format: Format, error: &ApiError, request_id: &str) -> BytesMut {
    let mut out = BytesMut::with_capacity(192 + error.message.len());
    match format {
        Format::Responses if error.resets_at().is_some() => {
            super::responses::error::encode_usage_limit(error, &mut out);
        }
        Format::Chat | Format::Responses => super::chat::error::encode(error, &mut out),
        Format::Messages => super::messages::error::encode(error, request_id, &mut out),
        Format::Generate => super::generate::error::encode(error, &mut out),
        Format::Converse => super::converse::error::encode(error, &mut out),
    }
    out
}

/// Returns the bytes to append to a stream that cannot continue: an error event of the format, never a regular end.
///
/// `array` is `Some` for Gemini's JSON array streams, with the part of the array that was sent, and `None` for
/// server-sent events.
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
            out.extend_from_slice(b"\n\n");
        }
        (Format::Messages, _) => {
            super::messages::error::encode_event(error, request_id, &mut out);
        }
        (Format::Responses, _) => super::responses::error::encode_event(error, &mut out),
        (Format::Converse, _) => super::converse::error::encode_event(error, &mut out),
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

/// Part of a JSON array stream that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayState {
    /// No byte, not even the opening bracket.
    Nothing,
    /// At least one element.
    Elements,
}

/// Returns whether a provider's error body already has the shape that clients of this format expect, so that it can be
/// forwarded unchanged with all details.
pub fn is_in_shape(format: Format, status: u16, body: &str) -> bool {
    match format {
        Format::Chat | Format::Responses => super::chat::error::is_in_shape(body),
        Format::Messages => super::messages::error::is_in_shape(body),
        Format::Generate => super::generate::error::is_in_shape(status, body),
        Format::Converse => super::converse::error::is_in_shape(body),
    }
}

/// Calls `each` for every member of the `error` object. Returns whether `error` is an object. For the shape checks.
pub(super) fn error_member(body: &str, mut each: impl FnMut(&str, RawJson<'_>)) -> Result<bool, JsonError> {
    let mut found = false;
    let mut json = Cursor::new(body);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        if key.is("error") {
            found = json.kind()? == json::ValueKind::Object;
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
pub(super) fn nullable<B: Sink>(json: &mut Writer<'_, B>, name: &str, text: Option<&str>) {
    json.key(name);
    match text {
        Some(text) => json.string(text),
        None => json.null(),
    };
}
