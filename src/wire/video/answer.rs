//! What a client is told of a task: in the gateway's own words, as OpenAI's video, and as Google's operation.

use bytes::{Bytes, BytesMut};

use crate::canonical::video::Stage;
use crate::json::Writer;

/// What every link to a video that stands in an answer begins with.
pub const DATA: &str = "data:video/mp4;base64,";

/// A task as it is told.
#[derive(Clone, Copy, Debug, Default)]
pub struct View<'a> {
    /// Its id.
    pub id: &'a str,
    /// The model, as the client named it.
    pub model: &'a str,
    /// How far it is; nothing while the provider has not been asked since it began.
    pub stage: Option<Stage>,
    /// In percent.
    pub progress: Option<u64>,
    /// Why there is no video: a word for programs and a text.
    pub fault: Option<(&'a str, &'a str)>,
    /// When it began, in Unix seconds.
    pub created: i64,
    /// When it ended.
    pub ended: Option<i64>,
    /// When its video is gone.
    pub expires: Option<i64>,
    /// Its length.
    pub seconds: u64,
    /// Its size or resolution.
    pub size: &'a str,
    /// What it shows.
    pub prompt: &'a str,
    /// The video that it was made from.
    pub remixed: Option<&'a str>,
}

/// The answer to a submission (specification, 2.8).
pub fn submitted(id: &str) -> Bytes {
    let mut out = BytesMut::with_capacity(128);
    let mut json = Writer::new(&mut out);
    json.begin_object().key("task_id").string(id).key("status").string("submitted");
    json.key("format").string("mp4").end_object();
    out.freeze()
}

/// The word for a stage.
pub fn status(stage: Option<Stage>) -> &'static str {
    match stage {
        None => "submitted",
        Some(Stage::Queued) => "queued",
        Some(Stage::Running) => "in_progress",
        Some(Stage::Done) => "succeeded",
        Some(Stage::Failed) => "failed",
    }
}

/// The answer to a query (specification, 2.8). Its end is missing: the address of the video, if there is one, stands
/// there.
fn query(view: &View<'_>, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object().key("task_id").string(view.id).key("status").string(status(view.stage));
    json.key("format").string("mp4").key("model").string(view.model);
    json.key("created_at").number(view.created);
    if let Some(progress) = view.progress {
        json.key("progress").number(progress);
    }
    if let Some(ended) = view.ended {
        json.key("completed_at").number(ended);
    }
    if let Some(expires) = view.expires {
        json.key("expires_at").number(expires);
    }
    fault(view, &mut json);
}

fn fault(view: &View<'_>, json: &mut Writer<'_, BytesMut>) {
    if let Some((code, message)) = view.fault {
        json.key("error").begin_object().key("code").string(code).key("message").string(message).end_object();
    }
}

/// The answer to a query, with the addresses of the videos, if there are some.
pub fn queried(view: &View<'_>, urls: &[&str]) -> Bytes {
    let mut out = BytesMut::with_capacity(512);
    query(view, &mut out);
    if let Some((first, others)) = urls.split_first() {
        out.extend_from_slice(b",");
        let mut json = Writer::new(&mut out);
        json.key("url").string(first);
        if !others.is_empty() {
            json.key("urls").begin_array();
            urls.iter().for_each(|url| _ = json.string(url));
            json.end_array();
        }
    }
    out.extend_from_slice(b"}");
    out.freeze()
}

/// The same with the video itself, as Google's clients of Vertex AI know it.
pub fn operation_whole(view: &View<'_>) -> Frame {
    let mut head = BytesMut::with_capacity(512);
    let mut json = Writer::new(&mut head);
    json.begin_object().key("name").string(&format!("models/{}/operations/{}", view.model, view.id));
    json.key("done").boolean(true).key("response").begin_object();
    json.key("@type").string("type.googleapis.com/cloud.ai.large_models.vision.GenerateVideoResponse");
    json.key("videos").begin_array().begin_object().key("mimeType").string("video/mp4");
    head.extend_from_slice(b",\"bytesBase64Encoded\":\"");
    Frame { head: head.freeze(), middle: None, tail: Bytes::from_static(b"\"}]}}") }
}

/// What an answer with a video in it consists of: a text before it, the video in base64, a text between, the video
/// again where that is wanted, and a text at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Before the video.
    pub head: Bytes,
    /// Between the first and the second time; nothing where it stands there once.
    pub middle: Option<Bytes>,
    /// Behind it.
    pub tail: Bytes,
}

impl Frame {
    /// How long all of it is with a video of so many bytes.
    pub fn len(&self, size: u64) -> u64 {
        let text = size.div_ceil(3) * 4;
        let twice = self.middle.as_ref().map_or(0, |middle| middle.len() as u64 + text);
        self.head.len() as u64 + text + twice + self.tail.len() as u64
    }
}

/// The answer to a query, with the video itself.
pub fn queried_whole(view: &View<'_>) -> Frame {
    let mut head = BytesMut::with_capacity(512);
    query(view, &mut head);
    head.extend_from_slice(b",\"url\":\"");
    head.extend_from_slice(DATA.as_bytes());
    Frame { head: head.freeze(), middle: None, tail: Bytes::from_static(b"\"}") }
}

/// The answer to a download of a video of so many bytes (specification, 2.8).
pub fn downloaded(id: &str, size: u64) -> Frame {
    let mut head = BytesMut::with_capacity(256);
    let mut json = Writer::new(&mut head);
    json.begin_object().key("success").boolean(true);
    json.key("generation_id").string(id).key("task_id").string(id);
    json.key("format").string("mp4").key("size").number(size).key("base64");
    head.extend_from_slice(b"\"");
    Frame {
        head: head.freeze(),
        middle: Some(Bytes::from_static(b"\",\"data_url\":\"data:video/mp4;base64,")),
        tail: Bytes::from_static(b"\"}"),
    }
}

/// The same of a video whose length nobody knows before its end: it is told there, by [`downloaded_end`].
pub fn downloaded_unmeasured(id: &str) -> Frame {
    let mut frame = downloaded(id, 0);
    let head = String::from_utf8_lossy(&frame.head).replace("\"size\":0,", "");
    frame.head = Bytes::from(head.into_bytes());
    frame
}

/// The end of an answer to a download, with the length of the video.
pub fn downloaded_end(size: u64) -> Bytes {
    Bytes::from(format!("\",\"size\":{size}}}").into_bytes())
}

/// The task as OpenAI's clients know it.
pub fn openai(view: &View<'_>) -> Bytes {
    let mut out = BytesMut::with_capacity(512);
    let mut json = Writer::new(&mut out);
    let status = match view.stage {
        None | Some(Stage::Queued) => "queued",
        Some(Stage::Running) => "in_progress",
        Some(Stage::Done) => "completed",
        Some(Stage::Failed) => "failed",
    };
    json.begin_object().key("id").string(view.id).key("object").string("video");
    json.key("model").string(view.model).key("status").string(status);
    let done = if view.stage == Some(Stage::Done) { 100 } else { 0 };
    json.key("progress").number(view.progress.unwrap_or(done));
    json.key("created_at").number(view.created);
    for (name, time) in [("completed_at", view.ended), ("expires_at", view.expires)] {
        json.key(name);
        match time {
            Some(time) => _ = json.number(time),
            None => _ = json.null(),
        }
    }
    json.key("seconds").string(&view.seconds.to_string()).key("size").string(view.size);
    json.key("prompt").string(view.prompt);
    json.key("remixed_from_video_id");
    match view.remixed {
        Some(from) => _ = json.string(from),
        None => _ = json.null(),
    }
    match view.fault {
        Some(_) => fault(view, &mut json),
        None => _ = json.key("error").null(),
    }
    json.end_object();
    out.freeze()
}

/// The task as Google's clients know it. `base` is the address that the client reached the gateway under.
pub fn operation(view: &View<'_>, base: &str, videos: usize) -> Bytes {
    let mut out = BytesMut::with_capacity(512);
    let mut json = Writer::new(&mut out);
    json.begin_object().key("name").string(&format!("models/{}/operations/{}", view.model, view.id));
    match (view.stage, view.fault) {
        (Some(Stage::Failed), Some((code, message))) => {
            json.key("done").boolean(true);
            json.key("error").begin_object().key("code").number(3).key("message").string(message);
            json.key("status").string(code).end_object();
        }
        (Some(Stage::Done), _) => {
            json.key("done").boolean(true);
            json.key("response").begin_object();
            json.key("@type")
                .string("type.googleapis.com/google.ai.generativelanguage.v1beta.PredictLongRunningResponse");
            json.key("generateVideoResponse").begin_object().key("generatedSamples").begin_array();
            for number in 0..videos {
                // The first one needs no number.
                let number = if number == 0 { String::new() } else { format!("-{number}") };
                let uri = format!("{base}/v1beta/files/{}{number}:download?alt=media", view.id);
                json.begin_object().key("video").begin_object().key("uri").string(&uri);
                json.end_object().end_object();
            }
            json.end_array().end_object().end_object();
        }
        _ => {}
    }
    json.end_object();
    out.freeze()
}
