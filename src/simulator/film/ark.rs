//! Ark: tasks of content generation.

use http::Method;
use serde_json::{Value, json};

use super::super::http::Reply;
use super::super::server::Call;
use super::{Film, Refusal, Stage, Task, add, is, link, object, one_of, only, staged, stuck, text};

pub(super) fn answer(film: &Film, call: &Call<'_>, path: &str, host: &str) -> Option<Reply> {
    let request = call.request;
    let rest = path.strip_prefix("/api/v3/")?;
    let ours = rest.starts_with("contents/generations/tasks");
    if !ours {
        return None;
    }
    if call.credential.is_some() && request.bearer() != call.credential {
        return Some(error(401, "AuthenticationError", "The API key in the request is missing or invalid."));
    }
    let answered = match rest.strip_prefix("contents/generations/tasks") {
        Some("") if is(request, &Method::POST) => create(film, call),
        Some(id) if is(request, &Method::GET) => look(film, id.trim_start_matches('/'), host),
        _ => return None,
    };
    Some(answered.unwrap_or_else(|Refusal(status, message)| {
        let code = match status {
            404 => "NotFound",
            429 => "RateLimitExceeded",
            400..500 => "InvalidParameter",
            _ => "InternalServiceError",
        };
        error(status, code, &message)
    }))
}

fn error(status: u16, code: &str, message: &str) -> Reply {
    let body = json!({"error": {"code": code, "message": message, "param": "", "type": "BadRequest"}});
    Reply::json(status, &body).with_retry_after()
}

fn create(film: &Film, call: &Call<'_>) -> Result<Reply, Refusal> {
    let body = object(call.request)?;
    only(
        &body,
        &[
            "model",
            "content",
            "callback_url",
            "return_last_frame",
            "service_tier",
            "execution_expires_after",
            "generate_audio",
            "resolution",
            "ratio",
            "duration",
            "frames",
            "seed",
            "camera_fixed",
            "watermark",
        ],
    )?;
    let model = text(body.get("model"), "model")?;
    if model.ends_with("-noAudio") || model.starts_with("missing-") {
        return Err(Refusal(404, format!("The model or endpoint {model} does not exist.")));
    }
    let items = body.get("content").and_then(Value::as_array).filter(|items| !items.is_empty());
    let items = items.ok_or_else(|| Refusal(400, "content is required".to_owned()))?;
    let mut prompt = String::new();
    for item in items {
        match item.get("type").and_then(Value::as_str) {
            Some("text") => prompt += &text(item.get("text"), "text")?,
            Some("image_url") => {
                text(item.get("image_url").and_then(|image| image.get("url")), "image_url.url")?;
                let roles = &["first_frame", "last_frame", "reference_image"];
                one_of(item.get("role"), "role", roles, "first_frame")?;
            }
            Some("video_url" | "audio_url") => {}
            _ => return Err(Refusal(400, format!("content item {item} is not supported"))),
        }
    }
    one_of(body.get("resolution"), "resolution", &["480p", "720p", "1080p", "4k"], "720p")?;
    let seconds = body.get("duration").map_or(Some(5), Value::as_u64);
    let seconds = seconds.ok_or_else(|| Refusal(400, "duration must be an integer".to_owned()))?;
    let size = body.get("resolution").and_then(Value::as_str).unwrap_or("720p").to_owned();
    let task = Task { model, prompt, seconds, size, ..Task::default() };
    let prompt = task.prompt.clone();
    Ok(staged(
        &prompt,
        |status| error(status, "InternalServiceError", "simulated"),
        || Reply::json(200, &json!({"id": film.begin(call, "cgt-", task).id})),
    ))
}

fn look(film: &Film, id: &str, host: &str) -> Result<Reply, Refusal> {
    let task = film.look(id).ok_or_else(|| Refusal(404, format!("The task {id} does not exist.")))?;
    if let Some(status) = stuck(&task) {
        return Err(Refusal(status, "simulated".to_owned()));
    }
    let status = match task.stage() {
        Stage::Queued => "queued",
        Stage::Running => "running",
        Stage::Done => "succeeded",
        Stage::Failed => "failed",
        Stage::Cancelled => "cancelled",
        Stage::Expired => "expired",
    };
    let mut body = json!({
        "id": task.id, "model": task.model, "status": status, "error": null,
        "created_at": 1_760_000_000, "updated_at": 1_760_000_060, "service_tier": "default",
    });
    let tokens = 21_600 * task.seconds;
    let more = match task.stage() {
        Stage::Done => json!({
            "content": {"video_url": link(host, &task)}, "resolution": task.size, "ratio": "16:9",
            "usage": {"completion_tokens": tokens, "total_tokens": tokens},
            "duration": task.seconds, "framespersecond": 24,
        }),
        Stage::Failed => json!({"error": {"code": "OutputVideoSensitiveContentDetected",
            "message": "The request failed because the output video may contain sensitive information."}}),
        _ => json!({}),
    };
    add(&mut body, more);
    Ok(Reply::json(200, &body))
}
