//! OpenAI: `/v1/videos`.

use http::Method;
use serde_json::{Value, json};

use super::super::http::Reply;
use super::super::server::Call;
use super::{Film, Refusal, Stage, Task, fetched, is, object, one_of, only, staged, stuck, text};

const SIZES: &[&str] = &["720x1280", "1280x720", "1024x1792", "1792x1024", "1080x1920", "1920x1080"];

pub(super) fn answer(film: &Film, call: &Call<'_>, path: &str) -> Option<Reply> {
    let request = call.request;
    let rest = path.strip_prefix("/v1/videos").or_else(|| path.strip_prefix("/openai/v1/videos"))?;
    let key = request.bearer().or(request.header("api-key"));
    if call.credential.is_some() && key != call.credential {
        return Some(error(401, "invalid_api_key", "Incorrect API key provided."));
    }
    let segments: Vec<&str> = rest.split('/').filter(|segment| !segment.is_empty()).collect();
    let answered = match segments.as_slice() {
        [] if is(request, &Method::POST) => create(film, call),
        [id, "remix"] if is(request, &Method::POST) => remix(film, call, id),
        [id] if is(request, &Method::GET) => match film.look(id) {
            None => Err(Refusal(404, format!("Video with id '{id}' not found."))),
            Some(task) => match stuck(&task) {
                Some(status) => Err(Refusal(status, "simulated".to_owned())),
                None => Ok(Reply::json(200, &video(&task))),
            },
        },
        [id, "content"] if is(request, &Method::GET) => match film.find(id) {
            Some(task) if task.stage() == Stage::Done && task.directive("gone").is_none() => {
                Ok(fetched(&task))
            }
            _ => Err(Refusal(404, "Video content is not available.".to_owned())),
        },
        _ => return None,
    };
    Some(answered.unwrap_or_else(|Refusal(status, message)| error(status, "invalid_value", &message)))
}

fn error(status: u16, code: &str, message: &str) -> Reply {
    let kind = if status >= 500 { "server_error" } else { "invalid_request_error" };
    let body = json!({"error": {"message": message, "type": kind, "param": null, "code": code}});
    Reply::json(status, &body).with_retry_after()
}

fn create(film: &Film, call: &Call<'_>) -> Result<Reply, Refusal> {
    let body = object(call.request)?;
    only(&body, &["model", "prompt", "seconds", "size", "input_reference"])?;
    let model = text(body.get("model"), "model")?;
    if model.starts_with("missing-") {
        return Err(Refusal(404, format!("The model '{model}' does not exist.")));
    }
    let prompt = text(body.get("prompt"), "prompt")?;
    let seconds = one_of(body.get("seconds"), "seconds", &["4", "8", "12"], "4")?;
    let sizes = if model.contains("pro") { SIZES } else { SIZES.get(..2).unwrap_or_default() };
    let size = one_of(body.get("size"), "size", sizes, "720x1280")?;
    if let Some(reference) = body.get("input_reference") {
        text(reference.get("image_url"), "input_reference.image_url")?;
    }
    let task = Task { model, prompt, seconds: seconds.parse().unwrap_or(4), size, ..Task::default() };
    Ok(begin(film, call, task))
}

fn remix(film: &Film, call: &Call<'_>, id: &str) -> Result<Reply, Refusal> {
    let body = object(call.request)?;
    only(&body, &["prompt"])?;
    let prompt = text(body.get("prompt"), "prompt")?;
    let from = film.find(id).ok_or_else(|| Refusal(404, format!("Video with id '{id}' not found.")))?;
    let task = Task { prompt, remixed: Some(id.to_owned()), looks: 0, ..from };
    Ok(begin(film, call, task))
}

fn begin(film: &Film, call: &Call<'_>, task: Task) -> Reply {
    let prompt = task.prompt.clone();
    let refuse = |status| error(status, "simulated", "simulated");
    staged(&prompt, refuse, || Reply::json(200, &video(&film.begin(call, "video_", task))))
}

fn video(task: &Task) -> Value {
    let (status, progress) = match task.stage() {
        Stage::Queued => ("queued", 0),
        Stage::Running => ("in_progress", 50),
        Stage::Done => ("completed", 100),
        Stage::Failed => ("failed", 50),
        Stage::Cancelled => ("cancelled", 0),
        Stage::Expired => ("expired", 0),
    };
    let failed = (status == "failed")
        .then(|| json!({"code": "moderation_blocked", "message": "Your request was blocked by our moderation system."}));
    json!({
        "id": task.id, "object": "video", "model": task.model, "status": status, "progress": progress,
        "created_at": 1_760_000_000, "completed_at": null, "expires_at": null, "prompt": task.prompt,
        "seconds": task.lasts().to_string(), "size": task.made(),
        "remixed_from_video_id": task.remixed, "error": failed,
    })
}
