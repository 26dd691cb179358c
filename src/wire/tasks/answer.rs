//! The envelope, and what stands in it.

use bytes::{Bytes, BytesMut};

use super::Task;
use crate::canonical::video::Stage;
use crate::json::Writer;
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
