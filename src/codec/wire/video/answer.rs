//! Client responses of video endpoints: in the gateway's own format, OpenAI's, and Google's operations.

use bytes::{Bytes, BytesMut};

use crate::canonical::video::Stage;
use json::Writer;

/// Prefix of the data URL of an inline video.
pub const DATA: &str = "data:video/mp4;base64,";

/// Task state for a client response.
#[derive(Clone, Copy, Debug, Default)]
pub struct View<'a> {
    /// Task id.
    pub id: &'a str,
    /// Model, as the client named it.
    pub model: &'a str,
    /// Stage. `None` until the provider's state is polled for the first time.
    pub stage: Option<Stage>,
    /// Progress in percent.
    pub progress: Option<u64>,
    /// Failure: code and message.
    pub fault: Option<(&'a str, &'a str)>,
    /// Creation time in Unix seconds.
    pub created: i64,
    /// End time in Unix seconds.
    pub ended: Option<i64>,
    /// Expiry time of the video in Unix seconds.
    pub expires: Option<i64>,
    /// Length in seconds.
    pub seconds: u64,
    /// Size or resolution.
    pub size: &'a str,
    /// Prompt.
    pub prompt: &'a str,
    /// Id of the video that this one remixes.
    pub remixed: Option<&'a str>,
}

/// Writes the response to a submission (docs/specification.md, 2.8).
pub fn submitted(id: &str) -> Bytes {
    let mut out = BytesMut::with_capacity(128);
    let mut json = Writer::new(&mut out);
    json.begin_object().key("task_id").string(id).key("status").string("submitted");
    json.key("format").string("mp4").end_object();
    out.freeze()
}

/// Returns the status word of a stage.
pub fn status(stage: Option<Stage>) -> &'static str {
    match stage {
        None => "submitted",
        Some(Stage::Queued) => "queued",
        Some(Stage::Running) => "in_progress",
        Some(Stage::Done) => "succeeded",
        Some(Stage::Failed) => "failed",
    }
}

/// Writes the response to a query (docs/specification.md, 2.8) without its closing brace, so that a video URL can
/// follow.
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

/// Writes the response to a query. `urls` are the addresses of the videos.
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

/// Writes a Vertex AI operation with the video inline.
pub fn operation_whole(view: &View<'_>) -> InlineVideoFrame {
    let mut head = BytesMut::with_capacity(512);
    let mut json = Writer::new(&mut head);
    json.begin_object().key("name").string(&format!("models/{}/operations/{}", view.model, view.id));
    json.key("done").boolean(true).key("response").begin_object();
    json.key("@type").string("type.googleapis.com/cloud.ai.large_models.vision.GenerateVideoResponse");
    json.key("videos").begin_array().begin_object().key("mimeType").string("video/mp4");
    head.extend_from_slice(b",\"bytesBase64Encoded\":\"");
    InlineVideoFrame { head: head.freeze(), middle: None, tail: Bytes::from_static(b"\"}]}}") }
}

/// Text around an inline video: `head`, the video in base64, and `tail`; with `middle`, the video occurs twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineVideoFrame {
    /// Text before the video.
    pub head: Bytes,
    /// Text between the two copies of the video. `None` if it occurs once.
    pub middle: Option<Bytes>,
    /// Text behind the video.
    pub tail: Bytes,
}

impl InlineVideoFrame {
    /// Returns the length of the whole response in bytes, for a video of `size` bytes. Saturates.
    pub fn len(&self, size: u64) -> u64 {
        // The size is what the server of the video announces.
        let text = size.div_ceil(3).saturating_mul(4);
        let twice = self.middle.as_ref().map_or(0, |middle| text.saturating_add(middle.len() as u64));
        let around = (self.head.len() + self.tail.len()) as u64;
        text.saturating_add(twice).saturating_add(around)
    }
}

/// Writes the response to a query with the video inline.
pub fn queried_whole(view: &View<'_>) -> InlineVideoFrame {
    let mut head = BytesMut::with_capacity(512);
    query(view, &mut head);
    head.extend_from_slice(b",\"url\":\"");
    head.extend_from_slice(DATA.as_bytes());
    InlineVideoFrame { head: head.freeze(), middle: None, tail: Bytes::from_static(b"\"}") }
}

/// Writes the response to a download of a video of `size` bytes (docs/specification.md, 2.8).
pub fn downloaded(id: &str, size: u64) -> InlineVideoFrame {
    let mut head = BytesMut::with_capacity(256);
    let mut json = Writer::new(&mut head);
    json.begin_object().key("success").boolean(true);
    json.key("generation_id").string(id).key("task_id").string(id);
    json.key("format").string("mp4").key("size").number(size).key("base64");
    head.extend_from_slice(b"\"");
    InlineVideoFrame {
        head: head.freeze(),
        middle: Some(Bytes::from_static(b"\",\"data_url\":\"data:video/mp4;base64,")),
        tail: Bytes::from_static(b"\"}"),
    }
}

/// Writes the response to a download of a video of unknown length. [`downloaded_end`] adds the length at the end.
pub fn downloaded_unmeasured(id: &str) -> InlineVideoFrame {
    let mut frame = downloaded(id, 0);
    let head = String::from_utf8_lossy(&frame.head).replace("\"size\":0,", "");
    frame.head = Bytes::from(head.into_bytes());
    frame
}

/// Returns the end of a download response, with the video's length in bytes.
pub fn downloaded_end(size: u64) -> Bytes {
    Bytes::from(format!("\",\"size\":{size}}}").into_bytes())
}

/// Writes the task as OpenAI's video object.
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

/// Writes the task as Google's operation. `base` is the gateway's address as the client reached it.
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
                // The first file id has no number.
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
