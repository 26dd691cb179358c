//! DashScope: video synthesis tasks.

use http::Method;
use serde_json::{Map, Value, json};

use super::super::http::Reply;
use super::super::ids::Ids;
use super::super::server::Call;
use super::{Film, Refusal, Stage, Task, add, is, link, object, one_of, only, staged, stuck, text};

pub(super) fn answer(film: &Film, call: &Call<'_>, path: &str, host: &str) -> Option<Reply> {
    let request = call.request;
    let rest = path.strip_prefix("/api/v1/")?;
    let id = Ids::new(call.serial, &request.body).hex("", 32);
    // The image module serves image tasks.
    let known = rest.strip_prefix("tasks/").is_some_and(|task| film.find(task).is_some());
    let ours = known || rest.ends_with("/video-synthesis");
    if !ours {
        return None;
    }
    if call.credential.is_some() && request.bearer() != call.credential {
        return Some(error(401, "InvalidApiKey", "Invalid API-key provided.", &id));
    }
    let answered = match rest {
        "services/aigc/video-generation/video-synthesis" | "services/aigc/image2video/video-synthesis"
            if is(request, &Method::POST) =>
        {
            create(film, call, rest.contains("image2video"), &id)
        }
        _ => match rest.strip_prefix("tasks/").filter(|_| is(request, &Method::GET)) {
            Some(task) => look(film, task, host, &id),
            None => return None,
        },
    };
    Some(answered.unwrap_or_else(|Refusal(status, message)| {
        let code = match status {
            403 => "AccessDenied",
            404 => "ModelNotFound",
            429 => "Throttling.RateQuota",
            400..500 => "InvalidParameter",
            _ => "InternalError",
        };
        error(status, code, &message, &id)
    }))
}

fn error(status: u16, code: &str, message: &str, id: &str) -> Reply {
    Reply::json(status, &json!({"code": code, "message": message, "request_id": id})).with_retry_after()
}

fn part<'b>(body: &'b Map<String, Value>, name: &str) -> Result<&'b Map<String, Value>, Refusal> {
    body.get(name).and_then(Value::as_object).ok_or_else(|| Refusal(400, format!("'{name}' is required")))
}

fn create(film: &Film, call: &Call<'_>, framed: bool, id: &str) -> Result<Reply, Refusal> {
    let request = call.request;
    if request.header("x-dashscope-async") != Some("enable") {
        return Err(Refusal(403, "current user api does not support synchronous calls.".to_owned()));
    }
    let body = object(request)?;
    only(&body, &["model", "input", "parameters"])?;
    let model = text(body.get("model"), "model")?;
    let input = part(&body, "input")?;
    let empty = Map::new();
    let parameters = body.get("parameters").and_then(Value::as_object).unwrap_or(&empty);
    let animate = model.contains("animate");
    let inputs: &[&str] = match (animate, framed) {
        (true, _) => &["image_url", "video_url", "watermark"],
        (_, true) => &["prompt", "negative_prompt", "first_frame_url", "last_frame_url"],
        _ => &["prompt", "negative_prompt", "img_url", "audio_url", "template", "media"],
    };
    only(input, inputs)?;
    only(
        parameters,
        &[
            "size",
            "resolution",
            "ratio",
            "duration",
            "prompt_extend",
            "seed",
            "watermark",
            "shot_type",
            "audio",
            "mode",
        ],
    )?;
    for name in ["image_url", "video_url", "first_frame_url", "last_frame_url", "img_url"] {
        if inputs.contains(&name) && (animate || framed || model.contains("i2v") && name == "img_url") {
            text(input.get(name), name)?;
        }
    }
    let size = one_of(parameters.get("size"), "size", SIZES, "1280*720")?;
    let lines = one_of(parameters.get("resolution"), "resolution", &["480P", "720P", "1080P"], "720P")?;
    let from_image = model.contains("i2v");
    let newest = model.contains("wan2.7") || model.contains("wan3");
    let wrong = match () {
        () if newest || animate => None,
        () if from_image => parameters.get("size").map(|_| "size"),
        () if framed => None,
        () => parameters.get("resolution").map(|_| "resolution"),
    };
    if let Some(name) = wrong {
        return Err(Refusal(400, format!("{name} is not supported by this model")));
    }
    if !from_image && !newest && input.contains_key("img_url") {
        return Err(Refusal(400, "img_url is not supported by this model".to_owned()));
    }
    let prompt = input.get("prompt").and_then(Value::as_str).unwrap_or_default().to_owned();
    if prompt.is_empty() && !animate {
        return Err(Refusal(400, "'input.prompt' is required".to_owned()));
    }
    let seconds = parameters.get("duration").and_then(Value::as_u64).unwrap_or(5);
    if model.contains("wan2.5") && !matches!(seconds, 5 | 10) {
        return Err(Refusal(400, "duration must be 5 or 10".to_owned()));
    }
    let size = match parameters.get("size") {
        Some(_) => lines_of(&size),
        None => lines.trim_end_matches('P').to_owned(),
    };
    let task = Task { model, prompt, seconds, size, ..Task::default() };
    let prompt = task.prompt.clone();
    Ok(staged(
        &prompt,
        |status| error(status, "InternalError", "simulated", id),
        || {
            let task = film.begin(call, "", task);
            Reply::json(
                200,
                &json!({"output": {"task_id": task.id, "task_status": "PENDING"}, "request_id": id}),
            )
        },
    ))
}

/// Sizes of videos from text.
const SIZES: &[&str] = &[
    "832*480",
    "480*832",
    "624*624",
    "1280*720",
    "720*1280",
    "960*960",
    "1088*832",
    "832*1088",
    "1920*1080",
    "1080*1920",
    "1440*1440",
    "1632*1248",
    "1248*1632",
];

/// Returns the resolution of a size, in lines, by its number of pixels.
fn lines_of(size: &str) -> String {
    let points =
        size.split_once('*').and_then(|(w, h)| Some(w.parse::<u64>().ok()? * h.parse::<u64>().ok()?));
    let lines = match points.unwrap_or(0) {
        0..=500_000 => "480",
        500_001..=1_000_000 => "720",
        _ => "1080",
    };
    lines.to_owned()
}

fn look(film: &Film, task: &str, host: &str, id: &str) -> Result<Reply, Refusal> {
    let Some(task) = film.look(task) else {
        let output = json!({"task_id": task, "task_status": "UNKNOWN"});
        return Ok(Reply::json(200, &json!({"output": output, "request_id": id})));
    };
    if let Some(status) = stuck(&task) {
        return Err(Refusal(status, "simulated".to_owned()));
    }
    let word = match task.stage() {
        Stage::Queued => "PENDING",
        Stage::Running => "RUNNING",
        Stage::Done => "SUCCEEDED",
        Stage::Failed => "FAILED",
        Stage::Cancelled => "CANCELED",
        Stage::Expired => "UNKNOWN",
    };
    let mut output =
        json!({"task_id": task.id, "task_status": word, "submit_time": "2026-11-21 20:00:00.000"});
    let (more, usage) = match task.stage() {
        Stage::Done if task.model.contains("animate") => (
            json!({"results": {"video_url": link(host, &task)}}),
            json!({"video_duration": 3.5, "video_ratio": "standard"}),
        ),
        Stage::Done => (
            json!({"video_url": link(host, &task), "orig_prompt": task.prompt}),
            json!({"duration": task.lasts(), "SR": task.made().parse::<u64>().unwrap_or(720), "video_count": 1}),
        ),
        Stage::Failed => (
            json!({"code": "DataInspectionFailed", "message": "Output data may contain inappropriate content."}),
            json!({}),
        ),
        _ => (json!({}), json!({})),
    };
    add(&mut output, more);
    Ok(Reply::json(200, &json!({"output": output, "usage": usage, "request_id": id})))
}
