//! The envelope, and what stands in it.

use bytes::{Bytes, BytesMut};

use super::Task;
use crate::canonical::video::{Medium, Report, Stage};
use crate::json::{Cursor, RawJson, Writer};
use crate::wire::video::answer::View;

/// The words of success.
const SUCCESS: &str = "success";

fn envelope(code: u16, message: &str, data: impl FnOnce(&mut Writer<'_, BytesMut>)) -> Bytes {
    let mut out = BytesMut::with_capacity(256 + message.len());
    let mut json = Writer::new(&mut out);
    json.begin_object().key("code").number(code).key("msg").string(message).key("data");
    data(&mut json);
    json.end_object();
    out.freeze()
}

/// An error: its status is the code.
pub fn error(status: u16, message: &str) -> Bytes {
    envelope(status, message, |json| _ = json.null())
}

/// A task has begun.
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

/// Pictures, by their addresses.
pub fn images<S: AsRef<str>>(urls: &[S]) -> Bytes {
    envelope(200, SUCCESS, |json| {
        json.begin_object().key("images").begin_array();
        for url in urls {
            json.begin_object().key("url").string(url.as_ref()).end_object();
        }
        json.end_array().end_object();
    })
}

/// How far a task is.
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

/// A token.
pub fn token(text: &str, seconds: u64) -> Bytes {
    envelope(200, SUCCESS, |json| {
        json.begin_object().key("access_token").string(text).key("token_type").string("Bearer");
        json.key("expires_in").number(seconds).end_object();
    })
}

/// The id of the task that another gateway's answer begins.
pub fn upstream_id(body: &str) -> Option<String> {
    let data = data(body)?;
    let id = member(data, &["id", "task_id", "output.task_id"])?.as_str()?.decode().into_owned();
    (!id.is_empty()).then_some(id)
}

/// What another gateway says of a task.
pub fn looked(body: &str) -> Option<Report> {
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
    (stage != Stage::Done || !media.is_empty()).then_some(Report { stage, fault, media, ..Report::default() })
}

/// What stands in an envelope of success.
fn data(body: &str) -> Option<RawJson<'_>> {
    let whole = RawJson::from_text(body.trim());
    let code = member(whole, &["code"])?.as_u64()?;
    (code == 200).then(|| member(whole, &["data"])).flatten()
}

/// A member by the first of its names that is there; `output.task_id` stands in `output`.
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
