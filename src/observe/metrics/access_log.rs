//! Access log: one JSON line per request, written by a dedicated thread.
//!
//! A request appends its line to a buffer in memory; the thread swaps the buffer out and writes it. A destination that
//! is too slow loses lines, which are counted, and never delays a request.

use std::cell::RefCell;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::lines::{LineSink, Lines, open};
use codec::canonical::Usage;
use json::{RawJson, Writer};
use sync::Buffering;
use sync::supervise::{self, Supervised};

const TERMS: Buffering = Buffering {
    flush: Duration::from_millis(200),
    batch: 64 * 1024,
    // About 30,000 requests.
    max_buffered: 16 * 1024 * 1024,
};
/// Maximum time that the end of the process waits for unwritten lines.
const END: Duration = Duration::from_secs(2);

/// Destination of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Disabled.
    Off,
    /// Standard output.
    Stdout,
    /// File, opened for appending.
    File(PathBuf),
}

/// Access log line of a finished request. Contains no secret and no body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line<'a> {
    /// Time when the request head was complete, in Unix milliseconds.
    pub time: u64,
    /// Request id of the gateway.
    pub request_id: &'a str,
    /// Trace id, 32 hexadecimal digits; empty or `None` without a trace.
    pub trace_id: Option<&'a str>,
    /// Client address.
    pub client: Option<IpAddr>,
    /// HTTP method.
    pub method: &'a str,
    /// Path without the query, which may contain a key.
    pub path: &'a str,
    /// Endpoint name.
    pub endpoint: &'a str,
    /// HTTP version: 10, 11 or 20 for 1.0, 1.1 and 2.
    pub http: u8,
    /// Whether the request came over a WebSocket.
    pub websocket: bool,
    /// HTTP status sent to the client.
    pub status: u16,
    /// Error kind; `None` without an error.
    pub error: Option<&'a str>,
    /// Details of the error that the client does not get.
    pub detail: Option<&'a str>,
    /// Key name.
    pub key: Option<&'a str>,
    /// Account that is charged.
    pub account: Option<&'a str>,
    /// Requested model.
    pub model: Option<&'a str>,
    /// Provider that responded.
    pub provider: Option<&'a str>,
    /// Model name at the provider.
    pub upstream_model: Option<&'a str>,
    /// HTTP status of the provider.
    pub upstream_status: Option<u16>,
    /// Id of the request or response at the provider.
    pub upstream_id: Option<&'a str>,
    /// Whether the response was a stream.
    pub stream: bool,
    /// Finish reason as the provider spelled it.
    pub finish: Option<&'a str>,
    /// First section of the prompt that differs from the request before, if the provider's prompt cache was missed.
    pub cache_changed: Option<&'a str>,
    /// Token usage.
    pub usage: Usage,
    /// Charge in nano-units; `None` if the request cannot be charged.
    pub cost: Option<i64>,
    /// Service tier that is charged; `None` for the standard one, and for a request without a charge.
    pub tier: Option<&'static str>,
    /// Request body bytes.
    pub request_bytes: u64,
    /// Response body bytes.
    pub response_bytes: u64,
    /// Frames of the stream.
    pub frames: u64,
    /// Upstream attempts.
    pub attempts: u32,
    /// Targets that failed before a successful attempt, with the reasons.
    pub tried: Option<&'a str>,
    /// Total duration, in microseconds.
    pub micros: u64,
    /// Time to the first content of the response, in microseconds.
    pub first_token_micros: Option<u64>,
    /// Time until the provider's response head, in microseconds.
    pub upstream_micros: Option<u64>,
}

impl Line<'_> {
    fn write(&self, day: &mut Clock, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"time\":\"");
        day.push(self.time, out);
        out.push(b'"');
        if let Some(client) = self.client {
            out.extend_from_slice(b",\"client\":\"");
            push_address(client, out);
            out.push(b'"');
        }
        out.extend_from_slice(b",\"request_id\":");
        let mut json = Writer::new(out);
        json.string(self.request_id);
        text(&mut json, "trace_id", self.trace_id);
        json.key("method").string(self.method).key("path").string(self.path);
        json.key("endpoint").string(self.endpoint);
        json.key("http").string(match self.http {
            10 => "1.0",
            20 => "2",
            _ => "1.1",
        });
        if self.websocket {
            json.key("websocket").boolean(true);
        }
        json.key("status").number(self.status);
        text(&mut json, "error", self.error);
        text(&mut json, "detail", self.detail);
        text(&mut json, "key", self.key);
        text(&mut json, "account", self.account);
        text(&mut json, "model", self.model);
        text(&mut json, "provider", self.provider);
        text(&mut json, "upstream_model", self.upstream_model);
        number(&mut json, "upstream_status", self.upstream_status.map(u64::from));
        text(&mut json, "upstream_id", self.upstream_id);
        json.key("stream").boolean(self.stream);
        text(&mut json, "finish", self.finish);
        number(&mut json, "input_tokens", self.usage.input);
        number(&mut json, "cached_input_tokens", self.usage.cached);
        text(&mut json, "cache_changed", self.cache_changed);
        number(&mut json, "output_tokens", self.usage.output);
        number(&mut json, "reasoning_tokens", self.usage.reasoning);
        decimal(&mut json, "cost", self.cost.map(i64::unsigned_abs), 9);
        text(&mut json, "tier", self.tier);
        json.key("request_bytes").number(self.request_bytes);
        json.key("response_bytes").number(self.response_bytes);
        number(&mut json, "frames", Some(self.frames).filter(|frames| *frames > 0));
        number(&mut json, "attempts", Some(u64::from(self.attempts)).filter(|attempts| *attempts > 0));
        text(&mut json, "tried", self.tried);
        millis(&mut json, "duration_ms", Some(self.micros));
        millis(&mut json, "first_token_ms", self.first_token_micros);
        millis(&mut json, "upstream_ms", self.upstream_micros);
        json.end_object();
        out.push(b'\n');
    }
}

/// Writes the event of a live request: the fields of the line that have its shape, timing and price. Neither the client's
/// address nor the path, which may have what a client wrote into it.
pub(super) fn push_live(line: &Line<'_>, out: &mut Vec<u8>) {
    let mut json = Writer::new(out);
    json.begin_object();
    json.key("time_ms").number(line.time);
    json.key("request_id").string(line.request_id);
    json.key("endpoint").string(line.endpoint);
    json.key("status").number(line.status);
    text(&mut json, "error", line.error);
    text(&mut json, "key", line.key);
    text(&mut json, "account", line.account);
    text(&mut json, "model", line.model);
    text(&mut json, "provider", line.provider);
    text(&mut json, "upstream_model", line.upstream_model);
    number(&mut json, "upstream_status", line.upstream_status.map(u64::from));
    json.key("stream").boolean(line.stream);
    text(&mut json, "finish", line.finish);
    number(&mut json, "input_tokens", line.usage.input);
    number(&mut json, "cached_input_tokens", line.usage.cached);
    number(&mut json, "output_tokens", line.usage.output);
    number(&mut json, "reasoning_tokens", line.usage.reasoning);
    decimal(&mut json, "cost", line.cost.map(i64::unsigned_abs), 9);
    text(&mut json, "tier", line.tier);
    json.key("request_bytes").number(line.request_bytes);
    json.key("response_bytes").number(line.response_bytes);
    number(&mut json, "frames", Some(line.frames).filter(|frames| *frames > 0));
    json.key("attempts").number(line.attempts);
    text(&mut json, "tried", line.tried);
    millis(&mut json, "duration_ms", Some(line.micros));
    millis(&mut json, "first_token_ms", line.first_token_micros);
    millis(&mut json, "upstream_ms", line.upstream_micros);
    json.end_object();
}

/// Request that begins, as live events show it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestStart<'a> {
    /// Time when the request head was complete, in Unix milliseconds.
    pub time: u64,
    /// Request id of the gateway.
    pub request_id: &'a str,
    /// Endpoint name.
    pub endpoint: &'a str,
    /// Key name.
    pub key: Option<&'a str>,
    /// Account that is charged.
    pub account: Option<&'a str>,
    /// Requested model.
    pub model: Option<&'a str>,
    /// Provider that is asked first.
    pub provider: Option<&'a str>,
    /// Model name at the provider.
    pub upstream_model: Option<&'a str>,
    /// Whether the response is to be a stream.
    pub stream: bool,
    /// Request body bytes.
    pub request_bytes: u64,
}

/// Appends the JSON of a request that begins.
pub(super) fn push_start(start: &RequestStart<'_>, out: &mut Vec<u8>) {
    let mut json = Writer::new(out);
    json.begin_object();
    json.key("time_ms").number(start.time);
    json.key("request_id").string(start.request_id);
    json.key("endpoint").string(start.endpoint);
    text(&mut json, "key", start.key);
    text(&mut json, "account", start.account);
    text(&mut json, "model", start.model);
    text(&mut json, "provider", start.provider);
    text(&mut json, "upstream_model", start.upstream_model);
    json.key("stream").boolean(start.stream);
    json.key("request_bytes").number(start.request_bytes);
    json.end_object();
}

fn text(json: &mut Writer<'_, Vec<u8>>, name: &str, value: Option<&str>) {
    if let Some(value) = value.filter(|value| !value.is_empty()) {
        json.key(name).string(value);
    }
}

fn number(json: &mut Writer<'_, Vec<u8>>, name: &str, value: Option<u64>) {
    if let Some(value) = value {
        json.key(name).number(value);
    }
}

/// Writes microseconds as milliseconds with three decimals, without floating point.
fn millis(json: &mut Writer<'_, Vec<u8>>, name: &str, micros: Option<u64>) {
    decimal(json, name, micros, 3);
}

/// Writes a fixed-point number with `behind` decimals.
fn decimal(json: &mut Writer<'_, Vec<u8>>, name: &str, number: Option<u64>, behind: u32) {
    let Some(number) = number else { return };
    let unit = 10u64.pow(behind);
    let mut text = SmallVec::<[u8; 24]>::new();
    text.extend_from_slice(itoa::Buffer::new().format(number / unit).as_bytes());
    text.push(b'.');
    push_digits(number % unit, behind, &mut |digit| text.push(digit));
    json.key(name).raw(RawJson::from_text(std::str::from_utf8(&text).unwrap_or("0")));
}

/// Pushes the last `count` digits of a number, with leading zeros.
fn push_digits(number: u64, count: u32, push: &mut impl FnMut(u8)) {
    for place in (0..count).rev() {
        let digit = number / 10u64.pow(place) % 10;
        push(b'0' + u8::try_from(digit).unwrap_or(0));
    }
}

fn push_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            for (at, part) in address.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                out.extend_from_slice(itoa::Buffer::new().format(part).as_bytes());
            }
        }
        IpAddr::V6(address) => out.extend_from_slice(address.to_string().as_bytes()),
    }
}

/// Formatter of RFC 3339 time stamps. Converts to calendar time once per second only.
#[derive(Debug, Default)]
struct Clock {
    second: u64,
    /// Formatted second without the `Z`.
    text: String,
}

impl Clock {
    fn push(&mut self, millis: u64, out: &mut Vec<u8>) {
        let second = millis / 1000;
        if second != self.second || self.text.is_empty() {
            self.text = codec::canonical::time::rfc3339(i64::try_from(second).unwrap_or(0));
            self.text.truncate(self.text.len().saturating_sub(1));
            self.second = second;
        }
        out.extend_from_slice(self.text.as_bytes());
        out.push(b'.');
        push_digits(millis % 1000, 3, &mut |digit| out.push(digit));
        out.push(b'Z');
    }
}

thread_local! {
    /// Scratch buffer of a thread: lines are formatted here, so that the shared buffer is locked only to append.
    static SCRATCH: RefCell<(Clock, Vec<u8>)> = RefCell::default();
}

/// Access log of the process.
#[derive(Debug)]
pub struct AccessLog {
    lines: Option<Arc<Lines>>,
    thread: Option<Arc<Supervised>>,
    writer: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl AccessLog {
    /// Opens the destination and starts the writing thread.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened or the thread cannot be started.
    pub fn open(destination: Destination, lost: prometheus::IntCounter) -> std::io::Result<Self> {
        let mut sink = match destination {
            Destination::Off => return Ok(AccessLog { lines: None, thread: None, writer: Mutex::new(None) }),
            Destination::Stdout => LineSink::Stdout,
            Destination::File(path) => LineSink::File(open(&path)?, path),
        };
        let lines = Lines::new(TERMS, lost);
        let (own, mut taken) = (lines.clone(), Vec::new());
        let (thread, writer) = supervise::spawn("access-log", move || own.run(&mut sink, &mut taken))?;
        Ok(AccessLog { lines: Some(lines), thread: Some(thread), writer: Mutex::new(Some(writer)) })
    }

    /// Returns whether the access log is enabled.
    pub fn is_on(&self) -> bool {
        self.lines.is_some()
    }

    /// Returns the writing thread, or `None` if the access log is disabled.
    pub fn thread(&self) -> Option<&Arc<Supervised>> {
        self.thread.as_ref()
    }

    /// Appends a line.
    pub fn write(&self, line: &Line<'_>) {
        let Some(lines) = &self.lines else { return };
        SCRATCH.with_borrow_mut(|(clock, text)| {
            text.clear();
            line.write(clock, text);
            lines.append(text);
        });
    }

    /// Reopens the file, which a log rotation may have renamed.
    pub fn reopen(&self) {
        if let Some(lines) = &self.lines {
            lines.reopen();
        }
    }

    /// Flushes unwritten lines and ends the thread. Waits at most 2 s for a destination that does not accept data.
    pub fn close(&self) {
        let (Some(lines), Some(writer)) = (&self.lines, self.writer.lock().take()) else { return };
        lines.stop();
        lines.flush(END);
        // A thread that is blocked in a write cannot be joined; it ends with the process.
        if lines.is_written() {
            let _ = writer.join();
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_log_line_is_json_with_the_request_facts() {
        let line = Line {
            time: 1_752_000_000_123,
            request_id: "req_1",
            client: Some("::1".parse().unwrap()),
            method: "POST",
            path: "/v1/chat/completions",
            endpoint: "chat",
            status: 200,
            model: Some("m\"x"),
            micros: 1_234_567,
            first_token_micros: Some(7),
            ..Line::default()
        };
        let mut out = Vec::new();
        line.write(&mut Clock::default(), &mut out);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["time"], "2025-07-08T18:40:00.123Z");
        assert_eq!(value["client"], "::1");
        assert_eq!(value["model"], "m\"x");
        assert_eq!(value["duration_ms"].to_string(), "1234.567");
        assert_eq!(value["first_token_ms"].to_string(), "0.007");
        assert!(value.get("error").is_none());
        assert!(out.ends_with(b"}\n"));
    }

    #[test]
    fn access_log_lines_go_to_a_new_file_after_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let dropped = prometheus::IntCounter::new("d", "d").unwrap();
        let log = AccessLog::open(Destination::File(path.clone()), dropped).unwrap();
        log.write(&Line { request_id: "one", ..Line::default() });
        let wait = |path: &std::path::Path, needle: &str| {
            for _ in 0..500 {
                if std::fs::read_to_string(path).is_ok_and(|text| text.contains(needle)) {
                    return true;
                }
                std::thread::park_timeout(Duration::from_millis(10));
            }
            false
        };
        assert!(wait(&path, "one"));
        std::fs::rename(&path, folder.path().join("old.log")).unwrap();
        log.reopen();
        assert!(wait(&path, ""));
        log.write(&Line { request_id: "two", ..Line::default() });
        log.close();
        assert!(std::fs::read_to_string(&path).unwrap().contains("two"));
    }
}
