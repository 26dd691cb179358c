//! Simulated video generation: tasks that are submitted, polled until they end, and downloaded, with the APIs of
//! OpenAI, Google (Gemini API and Vertex AI), DashScope and Ark.
//!
//! This file has the task table and the directives; each provider's file has its paths, checks, responses and errors. A
//! task advances by polls, not by time: queued, running, ended. The video is a valid MP4 header and bytes that are
//! equal for equal prompts.
//!
//! The prompt may contain these directives, beside the general ones:
//!
//! | Directive | Effect |
//! |---|---|
//! | `[[film looks 5]]` | number of polls until the task ends, instead of two |
//! | `[[film fail]]` | the task fails, in the provider's format |
//! | `[[film cancel]]` | the task is canceled |
//! | `[[film expire]]` | the task expires |
//! | `[[film forget]]` | polls find no such task |
//! | `[[film stuck 503]]` | polls are answered with this status |
//! | `[[film gone]]` | the download finds no video |
//! | `[[film bytes 1000000]]` | size of the video in bytes |
//! | `[[film makes 1080p]]` | resolution that the provider reports, instead of the requested one |
//! | `[[film lasts 12]]` | length in seconds that the provider reports |

mod ark;
mod dashscope;
mod google;
mod openai;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value};

use super::SimulatedProvider;
use super::directive;
use super::http::{Reply, Request, stage};
use super::ids::{Ids, hash};
use super::server::Call;

/// Default size of a video in bytes.
const SIZE: usize = 4_096;

/// Task table of a provider.
#[derive(Debug, Default)]
pub(super) struct Film {
    tasks: Mutex<HashMap<String, Task>>,
}

/// Video task.
#[derive(Clone, Debug, Default)]
struct Task {
    id: String,
    model: String,
    prompt: String,
    seconds: u64,
    size: String,
    remixed: Option<String>,
    looks: u64,
}

/// Stage of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Queued,
    Running,
    Done,
    Failed,
    Cancelled,
    Expired,
}

/// Reason why a request is refused: status and message.
struct Refusal(u16, String);

impl Task {
    /// Returns the argument of a video directive, empty if it has none. `None` if the prompt does not have the
    /// directive.
    fn directive(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.prompt.split_once(&format!("[[film {name}"))?;
        Some(rest.split_once("]]")?.0.trim())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.directive(name)?.parse().ok()
    }

    fn stage(&self) -> Stage {
        let until = self.number("looks").unwrap_or(2);
        match self.looks {
            _ if self.looks <= until / 2 => Stage::Queued,
            looks if looks <= until => Stage::Running,
            _ if self.directive("fail").is_some() => Stage::Failed,
            _ if self.directive("cancel").is_some() => Stage::Cancelled,
            _ if self.directive("expire").is_some() => Stage::Expired,
            _ => Stage::Done,
        }
    }

    /// Returns the reported resolution or size.
    fn made(&self) -> &str {
        self.directive("makes").unwrap_or(&self.size)
    }

    /// Returns the reported length in seconds.
    fn lasts(&self) -> u64 {
        self.number("lasts").unwrap_or(self.seconds)
    }

    fn bytes(&self) -> Bytes {
        let size = self.number("bytes").and_then(|size| usize::try_from(size).ok()).unwrap_or(SIZE).max(24);
        let mut video = Vec::with_capacity(size + 8);
        video.extend_from_slice(b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom");
        let mut ids = Ids::seeded(hash(self.prompt.as_bytes()));
        while video.len() < size {
            video.extend_from_slice(&ids.next().to_le_bytes());
        }
        video.truncate(size);
        video.into()
    }
}

impl Film {
    /// Answers video requests. Returns `None` for other paths.
    pub(super) fn answer(&self, provider: SimulatedProvider, call: &Call<'_>, host: &str) -> Option<Reply> {
        let request = call.request;
        let path = request.path.trim_end_matches('/');
        if let Some(name) = path.strip_prefix("/films/") {
            return Some(self.public(name.trim_end_matches(".mp4")));
        }
        match provider {
            SimulatedProvider::OpenAi => openai::answer(self, call, path),
            SimulatedProvider::Google => google::answer(self, call, path, host),
            SimulatedProvider::DashScope => dashscope::answer(self, call, path, host),
            SimulatedProvider::Ark => ark::answer(self, call, path, host),
            _ => None,
        }
    }

    /// Adds a task.
    fn begin(&self, call: &Call<'_>, prefix: &str, task: Task) -> Task {
        let id = Ids::new(call.serial, &call.request.body).hex(prefix, 32);
        let task = Task { id: id.clone(), ..task };
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).insert(id, task.clone());
        task
    }

    /// Polls a task, which advances it. Returns `None` if it is unknown.
    fn look(&self, id: &str) -> Option<Task> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let task = tasks.get_mut(id)?;
        task.looks += 1;
        Some(task.clone()).filter(|task| task.directive("forget").is_none())
    }

    fn find(&self, id: &str) -> Option<Task> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Returns the video behind a public link.
    fn public(&self, id: &str) -> Reply {
        match self.find(id) {
            Some(task) if task.directive("gone").is_none() => fetched(&task),
            _ => Reply::new(403, "application/xml", "<Error><Code>AccessDenied</Code></Error>"),
        }
    }
}

/// Returns the response to a download.
fn fetched(task: &Task) -> Reply {
    Reply::new(200, "video/mp4", task.bytes())
}

/// Returns a public link, valid for a day.
fn link(host: &str, task: &Task) -> String {
    let sign = hash(task.id.as_bytes());
    format!("http://{host}/films/{}.mp4?Expires=86400&Signature={sign:016x}", task.id)
}

/// Returns the status that polls fail with, if a directive sets one.
fn stuck(task: &Task) -> Option<u16> {
    task.number("stuck").and_then(|status| u16::try_from(status).ok())
}

/// Returns the response to a submission, subject to the directives in the prompt.
fn staged(prompt: &str, error: impl Fn(u16) -> Reply, answer: impl FnOnce() -> Reply) -> Reply {
    let (directives, _) = directive::take(prompt);
    stage(&directives, 503, error, answer)
}

fn object(request: &Request) -> Result<Map<String, Value>, Refusal> {
    match serde_json::from_slice(&request.body) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(Refusal(400, "the body is no JSON object".to_owned())),
    }
}

fn only(object: &Map<String, Value>, names: &[&str]) -> Result<(), Refusal> {
    match object.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(Refusal(400, format!("unknown parameter: '{name}'"))),
        None => Ok(()),
    }
}

fn text(value: Option<&Value>, name: &str) -> Result<String, Refusal> {
    match value.and_then(Value::as_str).filter(|text| !text.is_empty()) {
        Some(text) => Ok(text.to_owned()),
        None => Err(Refusal(400, format!("'{name}' is required and must be a string"))),
    }
}

fn one_of(value: Option<&Value>, name: &str, all: &[&str], usual: &str) -> Result<String, Refusal> {
    match value {
        None => Ok(usual.to_owned()),
        Some(value) => match value.as_str().filter(|word| all.contains(word)) {
            Some(word) => Ok(word.to_owned()),
            None => Err(Refusal(400, format!("'{name}' must be one of {all:?}, not {value}"))),
        },
    }
}

/// Returns the markers in a prompt (`--rs 720p`) by their full names.
fn options(prompt: &str) -> HashMap<String, String> {
    const SHORT: [(&str, &str); 7] = [
        ("rs", "resolution"),
        ("rt", "ratio"),
        ("dur", "duration"),
        ("fps", "framespersecond"),
        ("sd", "seed"),
        ("cf", "camerafixed"),
        ("wm", "watermark"),
    ];
    let mut found = HashMap::new();
    let mut rest = prompt;
    while let Some((_, after)) = rest.split_once("--") {
        let end = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
        let (name, value) = after.split_at_checked(end).unwrap_or_default();
        rest = value;
        let value = value.trim_start();
        let value = value.split(char::is_whitespace).next().unwrap_or_default();
        if !name.is_empty() && !value.is_empty() {
            let name = SHORT.iter().find(|(short, _)| *short == name).map_or(name, |(_, name)| name);
            found.insert(name.to_owned(), value.to_owned());
        }
    }
    found
}

fn is(request: &Request, method: &Method) -> bool {
    request.method == *method
}

fn add(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}
