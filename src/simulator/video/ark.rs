//! Ark: content generation tasks.

use http::Method;
use serde_json::{Value, json};

use super::super::http::Reply;
use super::super::server::Call;
use super::{Film, Refusal, Stage, Task, add, is, link, object, one_of, only, options, staged, stuck, text};

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
    let roles: Vec<&str> = items
        .iter()
        .filter(|item| item.get("image_url").is_some())
        .map(|item| item.get("role").and_then(Value::as_str).unwrap_or("first_frame"))
        .collect();
    let does = Does::of(&model);
    does.takes(&roles)?;
    // A request member overrides the marker of the same name in the prompt.
    let marked = options(&prompt);
    let said = |name: &str| body.get(name).cloned().or(marked.get(name).map(|text| json!(text)));
    let size = one_of(said("resolution").as_ref(), "resolution", does.resolutions, does.usual)?;
    let mut ratios = vec!["16:9", "9:16", "1:1", "4:3", "3:4", "21:9"];
    if does.adaptive {
        ratios.push("adaptive");
    }
    one_of(said("ratio").as_ref(), "ratio", &ratios, "16:9")?;
    let seconds = match (body.get("duration"), marked.get("duration")) {
        (Some(number), _) => number.as_u64(),
        (None, Some(text)) => text.parse().ok(),
        (None, None) => Some(5),
    };
    let fault = || Refusal(400, "duration is not valid for this model".to_owned());
    let seconds = seconds.filter(|seconds| (does.least..=12).contains(seconds)).ok_or_else(fault)?;
    if body.contains_key("generate_audio") && !does.sound {
        return Err(Refusal(400, "generate_audio is not valid for this model".to_owned()));
    }
    let task = Task { model, prompt, seconds, size, ..Task::default() };
    let prompt = task.prompt.clone();
    Ok(staged(
        &prompt,
        |status| error(status, "InternalServiceError", "simulated"),
        || Reply::json(200, &json!({"id": film.begin(call, "cgt-", task).id})),
    ))
}

/// Capabilities of a model.
struct Does {
    resolutions: &'static [&'static str],
    /// Default resolution.
    usual: &'static str,
    least: u64,
    text: bool,
    first: bool,
    last: bool,
    reference: bool,
    adaptive: bool,
    sound: bool,
}

impl Does {
    fn of(model: &str) -> Does {
        let has = |part| model.contains(part);
        let all = Does {
            resolutions: &["480p", "720p", "1080p"],
            usual: "720p",
            least: 2,
            text: true,
            first: true,
            last: true,
            reference: true,
            adaptive: true,
            sound: false,
        };
        match () {
            () if has("lite-t2v") => {
                Does { first: false, last: false, reference: false, adaptive: false, ..all }
            }
            () if has("lite-i2v") => Does { text: false, ..all },
            () if has("1-5-pro") => {
                Does { resolutions: &["480p", "720p"], least: 4, reference: false, sound: true, ..all }
            }
            () if has("1-0-pro") => Does { usual: "1080p", last: false, reference: false, ..all },
            () => Does { resolutions: &["480p", "720p", "1080p", "4k"], sound: true, ..all },
        }
    }

    /// Checks the roles of the images.
    fn takes(&self, roles: &[&str]) -> Result<(), Refusal> {
        let count = |role: &str| roles.iter().filter(|other| **other == role).count();
        let (first, last, reference) = (count("first_frame"), count("last_frame"), count("reference_image"));
        let good = (self.text || !roles.is_empty())
            && (self.first || first == 0)
            && (self.last || last == 0)
            && (self.reference || reference == 0)
            && first <= 1
            && last <= first
            && (reference == 0 || first + last == 0);
        let fault = || Refusal(400, "the images of content are not valid for this model".to_owned());
        good.then_some(()).ok_or_else(fault)
    }
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
    let tokens = 21_600 * task.lasts();
    let more = match task.stage() {
        Stage::Done => json!({
            "content": {"video_url": link(host, &task)}, "resolution": task.made(), "ratio": "16:9",
            "usage": {"completion_tokens": tokens, "total_tokens": tokens},
            "duration": task.lasts(), "framespersecond": 24,
        }),
        Stage::Failed => json!({"error": {"code": "OutputVideoSensitiveContentDetected",
            "message": "The request failed because the output video may contain sensitive information."}}),
        _ => json!({}),
    };
    add(&mut body, more);
    Ok(Reply::json(200, &body))
}
