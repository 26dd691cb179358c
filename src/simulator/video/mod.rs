//! Videos, simulated: tasks that are begun, looked at until they have ended, and fetched, as OpenAI, Google (at both of
//! its addresses), DashScope and Ark have them.
//!
//! Here live the tasks of one provider and the directives that stage them (this file), and a file per provider with its
//! paths, what it refuses, its answers and its errors. A task goes one step further whenever it is looked at: it waits,
//! is being made, and is there. The video is a box that players know, and bytes that are the same for the same prompt.
//!
//! Directives stand in the prompt, beside those of other requests:
//!
//! | Directive | Effect |
//! |---|---|
//! | `[[film looks 5]]` | so many looks until it has ended, in place of two |
//! | `[[film fail]]` | it fails in the end, in the provider's own form |
//! | `[[film cancel]]` | it is cancelled |
//! | `[[film expire]]` | it expires |
//! | `[[film forget]]` | the provider does not know it when it is looked at |
//! | `[[film stuck 503]]` | looks are answered with this status |
//! | `[[film gone]]` | the video is not there when it is fetched |
//! | `[[film bytes 1000000]]` | the size of the video |
//! | `[[film makes 1080p]]` | what the provider says that it has made, in place of what it was asked for |
//! | `[[film lasts 12]]` | how long it says that this is, in seconds |

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

/// Size of a video where nothing is said.
const SIZE: usize = 4_096;

/// The tasks of a provider.
#[derive(Debug, Default)]
pub(super) struct Film {
    tasks: Mutex<HashMap<String, Task>>,
}

/// One task.
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

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Queued,
    Running,
    Done,
    Failed,
    Cancelled,
    Expired,
}

/// Why a request is refused: a status and a text.
struct Refusal(u16, String);

impl Task {
    /// What a directive of films says; empty where it says no more than its name.
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

    /// What is said of its resolution or size.
    fn made(&self) -> &str {
        self.directive("makes").unwrap_or(&self.size)
    }

    /// What is said of its length.
    fn lasts(&self) -> u64 {
        self.number("lasts").unwrap_or(self.seconds)
    }

    /// The video.
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
    /// Answers requests for videos; nothing for others.
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

    /// Begins a task.
    fn begin(&self, call: &Call<'_>, prefix: &str, task: Task) -> Task {
        let id = Ids::new(call.serial, &call.request.body).hex(prefix, 32);
        let task = Task { id: id.clone(), ..task };
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).insert(id, task.clone());
        task
    }

    /// Looks at a task, which goes one step further.
    fn look(&self, id: &str) -> Option<Task> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let task = tasks.get_mut(id)?;
        task.looks += 1;
        Some(task.clone()).filter(|task| task.directive("forget").is_none())
    }

    fn find(&self, id: &str) -> Option<Task> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// A video behind an address that everybody may read.
    fn public(&self, id: &str) -> Reply {
        match self.find(id) {
            Some(task) if task.directive("gone").is_none() => fetched(&task),
            _ => Reply::new(403, "application/xml", "<Error><Code>AccessDenied</Code></Error>"),
        }
    }
}

/// The answer to a fetch.
fn fetched(task: &Task) -> Reply {
    Reply::new(200, "video/mp4", task.bytes())
}

/// An address that is valid for a day.
fn link(host: &str, task: &Task) -> String {
    let sign = hash(task.id.as_bytes());
    format!("http://{host}/films/{}.mp4?Expires=86400&Signature={sign:016x}", task.id)
}

/// The status that looks are answered with, if one is staged.
fn stuck(task: &Task) -> Option<u16> {
    task.number("stuck").and_then(|status| u16::try_from(status).ok())
}

/// A submission after what the prompt's directives want.
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

/// The options in a prompt: `--rs 720p`, by their longer names.
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

/// Adds members to an object.
fn add(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}
