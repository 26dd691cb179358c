//! Upstream task states, parsed from the responses of the four shapes.
//!
//! | Shape | Task id | Pending | Finished |
//! |---|---|---|---|
//! | remix | `id` | `status`, `progress` | `completed`; `failed` with `error` |
//! | preview | `name` | no `done` | `done` with samples or inline videos; with `error`; or empty, with filter reasons |
//! | nested | `output.task_id` | `output.task_status` | `SUCCEEDED` with `video_url`; `FAILED` with `code`, `message` |
//! | bundled | `id` | `status` | `succeeded` with `content.video_url`; `failed` with `error`, `cancelled`, `expired` |

use crate::canonical::video::{Medium, Stage, VideoReport, VideoShape};
use json::{Cursor, JsonError, RawJson};

/// Error for a response that does not state what became of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response does not state the status of the task")]
pub struct BrokenVideoAnswer;

impl From<JsonError> for BrokenVideoAnswer {
    fn from(_: JsonError) -> Self {
        BrokenVideoAnswer
    }
}

/// Returns members of an object by name, `None` for those absent or null. `output.task_id` is a path.
fn find<'a, const N: usize>(text: &'a str, names: [&str; N]) -> Result<[Option<RawJson<'a>>; N], JsonError> {
    let mut found = [None; N];
    let mut json = Cursor::new(text);
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        let value = json.raw()?;
        for (name, slot) in names.iter().zip(&mut found) {
            let (first, rest) = name.split_once('.').unwrap_or((name, ""));
            if key.is(first) && !value.is_null() {
                *slot = if rest.is_empty() {
                    Some(value)
                } else if value.text().starts_with('{') {
                    let [inner] = find(value.text(), [rest])?;
                    inner
                } else {
                    None
                };
            }
        }
    }
    Ok(found)
}

fn text(value: Option<RawJson<'_>>) -> Option<String> {
    let text = value?.as_str()?.decode().into_owned();
    (!text.is_empty()).then_some(text)
}

/// Returns an error code, a string or a number, as text.
fn code(value: Option<RawJson<'_>>) -> Option<String> {
    let value = value?;
    match value.as_str() {
        Some(_) => text(Some(value)),
        None => value.as_u64().map(|number| number.to_string()),
    }
}

/// Returns the task id from the response to a submission.
///
/// # Errors
/// Returns [`BrokenVideoAnswer`] if the response has no task id of at most 1,024 printable ASCII characters.
pub fn submitted(shape: VideoShape, body: &str) -> Result<String, BrokenVideoAnswer> {
    let name = match shape {
        VideoShape::Remix | VideoShape::Bundled => "id",
        VideoShape::Preview => "name",
        VideoShape::Nested => "output.task_id",
    };
    let [id] = find(body, [name])?;
    // The id becomes part of upstream paths and is stored: reject text that cannot be an id.
    text(id)
        .filter(|id| id.len() <= 1024 && id.bytes().all(|byte| byte.is_ascii_graphic()))
        .ok_or(BrokenVideoAnswer)
}

/// Parses a task state.
///
/// # Errors
/// Returns [`BrokenVideoAnswer`] if the response is malformed, or its status is unknown.
pub fn looked(shape: VideoShape, body: &str) -> Result<VideoReport, BrokenVideoAnswer> {
    match shape {
        VideoShape::Remix => remix(body),
        VideoShape::Preview => preview(body),
        VideoShape::Nested => nested(body),
        VideoShape::Bundled => bundled(body),
    }
}

/// Returns the report of a failed task. `usual` is the default code.
fn failed(code: Option<String>, message: Option<String>, usual: &str) -> VideoReport {
    let message = message.unwrap_or_else(|| format!("The video was not generated: {usual}."));
    VideoReport {
        stage: Stage::Failed,
        fault: Some((code.unwrap_or_else(|| usual.to_owned()), message)),
        ..VideoReport::default()
    }
}

fn remix(body: &str) -> Result<VideoReport, BrokenVideoAnswer> {
    let [status, progress, seconds, size, error_code, message] =
        find(body, ["status", "progress", "seconds", "size", "error.code", "error.message"])?;
    let status = text(status).ok_or(BrokenVideoAnswer)?;
    let stage = match status.as_str() {
        "queued" | "submitted" | "pending" => Stage::Queued,
        "in_progress" | "processing" | "running" => Stage::Running,
        "completed" | "succeeded" => Stage::Done,
        "failed" => return Ok(failed(code(error_code), text(message), "failed")),
        "cancelled" | "canceled" => {
            return Ok(failed(Some("cancelled".to_owned()), text(message), "cancelled"));
        }
        "expired" => return Ok(failed(Some("expired".to_owned()), text(message), "expired")),
        _ => return Err(BrokenVideoAnswer),
    };
    let seconds =
        text(seconds).and_then(|text| text.parse::<u64>().ok()).or(seconds.and_then(RawJson::as_u64));
    Ok(VideoReport {
        stage,
        progress: progress.and_then(RawJson::as_u64).map(|percent| percent.min(100)),
        media: if stage == Stage::Done { vec![Medium::Content] } else { Vec::new() },
        millis: seconds.and_then(|seconds| seconds.checked_mul(1_000)),
        resolution: text(size),
        ..VideoReport::default()
    })
}

fn preview(body: &str) -> Result<VideoReport, BrokenVideoAnswer> {
    const RESPONSE: &str = "response";
    let [name, done, response, error_code, message, percent] =
        find(body, ["name", "done", RESPONSE, "error.code", "error.message", "metadata.progressPercent"])?;
    if !done.and_then(RawJson::as_bool).unwrap_or(false) {
        name.ok_or(BrokenVideoAnswer)?;
        let progress = percent.and_then(RawJson::as_u64);
        return Ok(VideoReport { stage: Stage::Running, progress, ..VideoReport::default() });
    }
    if error_code.is_some() || message.is_some() {
        return Ok(failed(code(error_code), text(message), "failed"));
    }
    let response = response.ok_or(BrokenVideoAnswer)?;
    let [wrapped, videos, own_reasons] =
        find(response.text(), ["generateVideoResponse", "videos", "raiMediaFilteredReasons"])?;
    let (samples, reasons) = match wrapped {
        Some(wrapped) => {
            let [samples, reasons] = find(wrapped.text(), ["generatedSamples", "raiMediaFilteredReasons"])?;
            (samples, reasons)
        }
        None => (videos, own_reasons),
    };
    let mut media = Vec::new();
    for sample in elements(samples)? {
        let [uri, inline, gcs, own] =
            find(sample.text(), ["video.uri", "bytesBase64Encoded", "gcsUri", "video.encodedVideo"])?;
        if let Some(uri) = text(uri) {
            media.push(Medium::Keyed(uri));
        } else if inline.or(own).is_some() {
            media.push(Medium::Inline);
        } else if gcs.is_some() {
            return Err(BrokenVideoAnswer);
        }
    }
    // Done without videos: the safety filter withheld all of them.
    if media.is_empty() {
        let reason = elements(reasons)?.into_iter().next();
        return Ok(failed(Some("content_filtered".to_owned()), text(reason), "content_filtered"));
    }
    Ok(VideoReport { stage: Stage::Done, media, ..VideoReport::default() })
}

/// Returns the elements of an array, none if it is absent.
fn elements(array: Option<RawJson<'_>>) -> Result<Vec<RawJson<'_>>, BrokenVideoAnswer> {
    let mut elements = Vec::new();
    if let Some(array) = array {
        let mut json = Cursor::new(array.text());
        json.begin_array()?;
        while json.next_element()? {
            elements.push(json.raw()?);
        }
    }
    Ok(elements)
}

/// Returns the inline videos of a state, as base64 strings in their order.
///
/// # Errors
/// Returns [`BrokenVideoAnswer`] if the response is malformed.
pub fn inline(body: &str) -> Result<Vec<RawJson<'_>>, BrokenVideoAnswer> {
    let [videos] = find(body, ["response.videos"])?;
    let mut found = Vec::new();
    for video in elements(videos)? {
        let [inline] = find(video.text(), ["bytesBase64Encoded"])?;
        found.extend(inline);
    }
    Ok(found)
}

fn nested(body: &str) -> Result<VideoReport, BrokenVideoAnswer> {
    let [status, url, results, error_code, message, duration, video_duration, sr] = find(
        body,
        [
            "output.task_status",
            "output.video_url",
            "output.results.video_url",
            "output.code",
            "output.message",
            "usage.duration",
            "usage.video_duration",
            "usage.SR",
        ],
    )?;
    let stage = match text(status).ok_or(BrokenVideoAnswer)?.as_str() {
        "PENDING" | "SUSPENDED" => Stage::Queued,
        "RUNNING" => Stage::Running,
        "SUCCEEDED" => Stage::Done,
        "FAILED" => return Ok(failed(code(error_code), text(message), "failed")),
        "CANCELED" => return Ok(failed(Some("cancelled".to_owned()), text(message), "cancelled")),
        "UNKNOWN" => return Ok(failed(Some("expired".to_owned()), text(message), "expired")),
        _ => return Err(BrokenVideoAnswer),
    };
    let url = text(url).or_else(|| text(results));
    if stage == Stage::Done && url.is_none() {
        return Err(BrokenVideoAnswer);
    }
    Ok(VideoReport {
        stage,
        media: url.map(Medium::Public).into_iter().collect(),
        millis: millis(duration.or(video_duration)),
        resolution: sr.and_then(RawJson::as_u64).map(|lines| format!("{lines}p")),
        ..VideoReport::default()
    })
}

fn bundled(body: &str) -> Result<VideoReport, BrokenVideoAnswer> {
    let [status, url, error_code, message, tokens, resolution, duration, frames, rate] = find(
        body,
        [
            "status",
            "content.video_url",
            "error.code",
            "error.message",
            "usage.completion_tokens",
            "resolution",
            "duration",
            "frames",
            "framespersecond",
        ],
    )?;
    let stage = match text(status).ok_or(BrokenVideoAnswer)?.as_str() {
        "queued" => Stage::Queued,
        "running" => Stage::Running,
        "succeeded" => Stage::Done,
        "failed" => return Ok(failed(code(error_code), text(message), "failed")),
        word @ ("cancelled" | "expired") => return Ok(failed(Some(word.to_owned()), text(message), word)),
        _ => return Err(BrokenVideoAnswer),
    };
    let url = text(url);
    if stage == Stage::Done && url.is_none() {
        return Err(BrokenVideoAnswer);
    }
    Ok(VideoReport {
        stage,
        media: url.map(Medium::Public).into_iter().collect(),
        millis: millis(duration).or_else(|| {
            let rate = rate.and_then(RawJson::as_u64).filter(|rate| *rate > 0)?;
            frames.and_then(RawJson::as_u64)?.checked_mul(1_000).map(|frames| frames.div_ceil(rate))
        }),
        resolution: text(resolution),
        tokens: tokens.and_then(RawJson::as_u64),
        ..VideoReport::default()
    })
}

/// Parses seconds, an integer or a fraction, into milliseconds. Returns `None` unless they are between 0 and 1,000,000.
fn millis(seconds: Option<RawJson<'_>>) -> Option<u64> {
    let seconds = seconds?.text().parse::<f64>().ok()?;
    (seconds > 0.0 && seconds < 1_000_000.0).then_some((seconds * 1_000.0).round() as u64)
}
