//! Response envelope of the task group: `code`, `msg` and `data`.

use bytes::{Bytes, BytesMut};

use super::Task;
use crate::canonical::video::{Medium, Stage, VideoReport};
use crate::wire::video::answer::View;
use json::{Cursor, RawJson, Writer};

/// Message of a successful response.
const SUCCESS: &str = "success";

fn envelope(code: u16, message: &str, data: impl FnOnce(&mut Writer<'_, BytesMut>)) -> Bytes {
    let mut out = BytesMut::with_capacity(256 + message.len());
    let mut json = Writer::new(&mut out);
    json.begin_object().key("code").number(code).key("msg").string(message).key("data");
    data(&mut json);
    json.end_object();
    out.freeze()
}

/// Writes an error response. `code` is the HTTP status.
pub fn error(status: u16, message: &str) -> Bytes {
    envelope(status, message, |json| _ = json.null())
}

/// Writes the response to the start of a task. `request` is the request id.
pub fn submitted(task: Task, id: &str, request: &str) -> Bytes {
    envelope(200, SUCCESS, |json| {
        json.begin_object();
        match task {
            Task::FirstLast => _ = json.key("id").string(id),
            Task::FaceMerge => {
                json.key("output").begin_object().key("task_id").string(id);
                json.key("task_status").string("PENDING").end_object();
                json.key("request_id").string(request);
            }
            _ => _ = json.key("task_id").string(id),
        }
        json.end_object();
    })
}

/// Writes an image response with the images' URLs.
pub fn images<S: AsRef<str>>(urls: &[S]) -> Bytes {
    envelope(200, SUCCESS, |json| {
        json.begin_object().key("images").begin_array();
        for url in urls {
            json.begin_object().key("url").string(url.as_ref()).end_object();
        }
        json.end_array().end_object();
    })
}

/// Writes the state of a task. `url` is the address of the finished video.
pub fn queried(view: &View<'_>, url: Option<&str>) -> Bytes {
    envelope(200, SUCCESS, |json| {
        let status = match view.stage {
            None | Some(Stage::Queued) => "PENDING",
            Some(Stage::Running) => "RUNNING",
            Some(Stage::Done) => "SUCCEEDED",
            Some(Stage::Failed) => "FAILED",
        };
        json.begin_object().key("task_id").string(view.id).key("task_status").string(status);
        if let Some(url) = url {
            json.key("video_url").string(url);
        }
        if let Some((code, message)) = view.fault {
            json.key("code").string(code).key("message").string(message);
        }
        json.end_object();
    })
}

/// Writes an access-token response. `seconds` is the lifetime.
pub fn token(text: &str, seconds: u64) -> Bytes {
    envelope(200, SUCCESS, |json| {
        json.begin_object().key("access_token").string(text).key("token_type").string("Bearer");
        json.key("expires_in").number(seconds).end_object();
    })
}

/// Returns the task id from another gateway's response, or `None` if the response starts no task.
pub fn upstream_id(body: &str) -> Option<String> {
    let data = data(body)?;
    let id = member(data, &["id", "task_id", "output.task_id"])?.as_str()?.decode().into_owned();
    (!id.is_empty()).then_some(id)
}

/// Parses another gateway's task state. Returns `None` if the state is unknown, or success comes without a video.
pub fn parse_report(body: &str) -> Option<VideoReport> {
    let data = data(body)?;
    let text = |name| member(data, &[name]).and_then(|value| Some(value.as_str()?.decode().into_owned()));
    let stage = match text("task_status")?.as_str() {
        "PENDING" => Stage::Queued,
        "RUNNING" => Stage::Running,
        "SUCCEEDED" => Stage::Done,
        "FAILED" => Stage::Failed,
        _ => return None,
    };
    let fault = (stage == Stage::Failed).then(|| {
        let usual = || "failed".to_owned();
        (text("code").unwrap_or_else(usual), text("message").unwrap_or_else(usual))
    });
    let media: Vec<Medium> = text("video_url").map(Medium::Public).into_iter().collect();
    (stage != Stage::Done || !media.is_empty()).then_some(VideoReport {
        stage,
        fault,
        media,
        ..VideoReport::default()
    })
}

/// Returns `data` of an envelope. `None` if its code is not 200.
fn data(body: &str) -> Option<RawJson<'_>> {
    let whole = RawJson::from_text(body.trim());
    let code = member(whole, &["code"])?.as_u64()?;
    (code == 200).then(|| member(whole, &["data"])).flatten()
}

/// Returns the first non-null member of the given names. `output.task_id` is a path: `task_id` within `output`.
fn member<'a>(object: RawJson<'a>, names: &[&str]) -> Option<RawJson<'a>> {
    names.iter().find_map(|name| {
        let (first, rest) = name.split_once('.').unwrap_or((name, ""));
        let mut json = Cursor::new(object.text());
        json.begin_object().ok()?;
        while let Some(key) = json.next_key().ok()? {
            let value = json.raw().ok()?;
            if key.is(first) && !value.is_null() {
                return if rest.is_empty() { Some(value) } else { member(value, &[rest]) };
            }
        }
        None
    })
}
