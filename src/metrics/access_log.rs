//! The access log: one JSON line for every request, written by a thread of its own.
//!
//! A request appends its line to a buffer in memory and goes on; a thread takes the buffer over and writes it. A
//! destination that does not keep up costs lines, never a request's time, and what was lost is counted.

use std::cell::RefCell;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::lines::{Lines, Sink, Terms, open};
use crate::canonical::Usage;
use crate::json::{RawJson, Writer};
use crate::supervise::{self, Supervised};

const TERMS: Terms = Terms {
    flush: Duration::from_millis(200),
    batch: 64 * 1024,
    // About 30,000 requests.
    full: 16 * 1024 * 1024,
};
/// How long the end of the process waits for lines to be written.
const END: Duration = Duration::from_secs(2);

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// A file, appended to.
    File(PathBuf),
}

/// One finished request. No secret and no body is in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line<'a> {
    /// When the request's head had come, in Unix milliseconds.
    pub time: u64,
    /// The gateway's id of the request.
    pub request_id: &'a str,
    /// Address of the client.
    pub client: Option<IpAddr>,
    /// HTTP method.
    pub method: &'a str,
    /// Path without its query, which may hold a key.
    pub path: &'a str,
    /// The endpoint's name.
    pub endpoint: &'a str,
    /// HTTP version: 10, 11 or 20.
    pub http: u8,
    /// HTTP status that the client saw.
    pub status: u16,
    /// The error's kind, if any.
    pub error: Option<&'a str>,
    /// What the gateway knows about the error beyond what the client was told.
    pub detail: Option<&'a str>,
    /// The key's name.
    pub key: Option<&'a str>,
    /// The account that pays.
    pub account: Option<&'a str>,
    /// The model that was asked for.
    pub model: Option<&'a str>,
    /// The provider that answered.
    pub provider: Option<&'a str>,
    /// The model's name there.
    pub upstream_model: Option<&'a str>,
    /// The provider's HTTP status.
    pub upstream_status: Option<u16>,
    /// The provider's own id of the request or of the answer.
    pub upstream_id: Option<&'a str>,
    /// Whether the answer was a stream.
    pub stream: bool,
    /// The finish reason in the provider's word.
    pub finish: Option<&'a str>,
    /// Tokens.
    pub usage: Usage,
    /// What was charged, in nano-units; nothing where nothing can be.
    pub cost: Option<i64>,
    /// Request body bytes.
    pub request_bytes: u64,
    /// Answer body bytes.
    pub response_bytes: u64,
    /// Frames of a stream.
    pub frames: u64,
    /// Tries.
    pub attempts: u32,
    /// Targets that failed without the client hearing of it, and how.
    pub tried: Option<&'a str>,
    /// Whole time, in microseconds.
    pub micros: u64,
    /// To the first content of the answer, in microseconds.
    pub first_token_micros: Option<u64>,
    /// Waiting for the provider's head, in microseconds.
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
        json.key("method").string(self.method).key("path").string(self.path);
        json.key("endpoint").string(self.endpoint);
        json.key("http").string(match self.http {
            10 => "1.0",
            20 => "2",
            _ => "1.1",
        });
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
        number(&mut json, "output_tokens", self.usage.output);
        number(&mut json, "reasoning_tokens", self.usage.reasoning);
        decimal(&mut json, "cost", self.cost.map(i64::unsigned_abs), 9);
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

/// Microseconds as milliseconds with three decimals, without floating point.
fn millis(json: &mut Writer<'_, Vec<u8>>, name: &str, micros: Option<u64>) {
    decimal(json, name, micros, 3);
}

/// A number whose last digits stand behind the point.
fn decimal(json: &mut Writer<'_, Vec<u8>>, name: &str, number: Option<u64>, behind: u32) {
    let Some(number) = number else { return };
    let unit = 10u64.pow(behind);
    let mut text = SmallVec::<[u8; 24]>::new();
    text.extend_from_slice(itoa::Buffer::new().format(number / unit).as_bytes());
    text.push(b'.');
    push_digits(number % unit, behind, &mut |digit| text.push(digit));
    json.key(name).raw(RawJson::from_text(std::str::from_utf8(&text).unwrap_or("0")));
}

/// The last digits of a number, with zeros in front.
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

/// Writes times as RFC 3339 does. The calendar is asked once a second.
#[derive(Debug, Default)]
struct Clock {
    second: u64,
    /// The second without its `Z`.
    text: String,
}

impl Clock {
    fn push(&mut self, millis: u64, out: &mut Vec<u8>) {
        let second = millis / 1000;
        if second != self.second || self.text.is_empty() {
            self.text = crate::wire::models::rfc3339(i64::try_from(second).unwrap_or(0));
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
    /// Where a thread writes its line before it appends it to everybody's.
    static SCRATCH: RefCell<(Clock, Vec<u8>)> = RefCell::default();
}

/// The access log of the process.
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
    /// The file cannot be opened or the thread not started.
    pub fn open(destination: Destination, lost: prometheus::IntCounter) -> std::io::Result<Self> {
        let mut sink = match destination {
            Destination::Off => return Ok(AccessLog { lines: None, thread: None, writer: Mutex::new(None) }),
            Destination::Stdout => Sink::Stdout,
            Destination::File(path) => Sink::File(open(&path)?, path),
        };
        let lines = Lines::new(TERMS, lost);
        let (own, mut taken) = (lines.clone(), Vec::new());
        let (thread, writer) = supervise::spawn("access-log", move || own.run(&mut sink, &mut taken))?;
        Ok(AccessLog { lines: Some(lines), thread: Some(thread), writer: Mutex::new(Some(writer)) })
    }

    /// Whether lines go anywhere.
    pub fn is_on(&self) -> bool {
        self.lines.is_some()
    }

    /// The writing thread.
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

    /// Opens the file again, which may have been renamed by a log rotation.
    pub fn reopen(&self) {
        if let Some(lines) = &self.lines {
            lines.reopen();
        }
    }

    /// Writes what is left and ends the thread. A destination that stands still is not waited for.
    pub fn close(&self) {
        let (Some(lines), Some(writer)) = (&self.lines, self.writer.lock().take()) else { return };
        lines.stop();
        lines.flush(END);
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
    fn a_line_is_json_and_says_what_happened() {
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
    fn lines_reach_the_file_and_a_new_one_after_rotation() {
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
