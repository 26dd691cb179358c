//! DashScope's native API: images, synchronously and as tasks.

use std::time::{SystemTime, UNIX_EPOCH};

use http::Method;
use serde_json::{Map, Value, json};

use super::{Refusal, invalid, mark, only, picture, source, text, whole};
use crate::directive::{self, Directives};
use crate::http::{Reply, Request, stage};
use crate::ids::{Ids, hash};
use crate::server::Call;

/// Status of an overloaded provider.
const OVERLOADED: u16 = 503;
/// Age of a task in milliseconds at which it runs, and at which it is done.
const BEGUN: u64 = 200;
const DONE: u64 = 700;

/// Answers image requests. Returns `None` for other paths.
pub(crate) fn answer(call: &Call<'_>) -> Option<Reply> {
    let request = call.request;
    if let Some(linked) = super::linked(request) {
        return Some(linked);
    }
    let path = request.path.as_str();
    let kind = match path.strip_prefix("/api/v1/services/aigc/") {
        Some("multimodal-generation/generation") => Kind::Turns { later: false },
        Some("image-generation/generation") => Kind::Turns { later: true },
        Some("text2image/image-synthesis") => Kind::Prompt,
        Some(_) => return None,
        None => Kind::Task(path.strip_prefix("/api/v1/tasks/").filter(|id| id.starts_with("1"))?),
    };
    let id = Ids::new(call.serial, &request.body).hex("", 32);
    let reply = route(call, kind, &id).unwrap_or_else(|refusal| refuse(&refusal, &id));
    Some(reply.with_retry_after().with("x-request-id", id))
}

enum Kind<'a> {
    Turns { later: bool },
    Prompt,
    Task(&'a str),
}

fn refuse(Refusal(status, code, message): &Refusal, id: &str) -> Reply {
    Reply::json(*status, &json!({"code": code, "message": message, "request_id": id}))
}

fn route(call: &Call<'_>, kind: Kind<'_>, id: &str) -> Result<Reply, Refusal> {
    let request = call.request;
    match (call.credential, request.bearer()) {
        (Some(expected), key) if key != Some(expected) => {
            return Err(Refusal(401, "InvalidApiKey", "Invalid API-key provided.".to_owned()));
        }
        _ => {}
    }
    if let Kind::Task(task) = kind {
        return Ok(Reply::json(200, &task_now(request, task, id)?));
    }
    if request.method != Method::POST {
        return Err(Refusal(405, "MethodNotAllowed", "Request method is not supported.".to_owned()));
    }
    let body: Value = serde_json::from_slice(&request.body).map_err(|_| invalid("The body is not JSON."))?;
    let body = body.as_object().ok_or_else(|| invalid("The body is not an object."))?;
    only(body, &["model", "input", "parameters"])?;
    let model = text(body, "model")?.unwrap_or_default();
    if model.is_empty() || model.starts_with("missing-") {
        return Err(Refusal(404, "ModelNotFound", "Model can not be found.".to_owned()));
    }
    let input = object(body, "input")?;
    let later = match kind {
        Kind::Turns { later } => later,
        _ => true,
    };
    let asynchronous = request.header("x-dashscope-async") == Some("enable");
    if later && !asynchronous {
        let message = "current user api does not support synchronous calls.".to_owned();
        return Err(Refusal(403, "AccessDenied", message));
    }
    if !later && asynchronous {
        let message = "current user api does not support asynchronous calls.".to_owned();
        return Err(Refusal(403, "AccessDenied", message));
    }
    let (prompt, images) = match kind {
        Kind::Prompt => {
            only(input, &["prompt", "negative_prompt"])?;
            (text(input, "prompt")?.unwrap_or_default(), 0)
        }
        _ => turns(input)?,
    };
    if prompt.is_empty() {
        return Err(invalid(
            "Required parameter(prompt) missing or invalid, please check the request parameters.",
        ));
    }
    if model.contains("edit") && images == 0 {
        return Err(invalid("Input should contain an image."));
    }
    let count = parameters(body, model)?;
    let (directives, words) = directive::take(prompt);
    let seed = hash(format!("{model} {words} {images} {:?}", body.get("parameters")).as_bytes());
    let error =
        |status| refuse(&Refusal(status, "InternalError", "The request was staged to fail.".to_owned()), id);
    if directives.refuse && !later {
        let message = "Output data may contain inappropriate content.".to_owned();
        return Err(Refusal(400, "DataInspectionFailed", message));
    }
    let least = directives.big.unwrap_or(0);
    Ok(stage(&directives, OVERLOADED, error, || {
        if later {
            let task = task_id(seed, count, &directives);
            let output = json!({"task_id": task, "task_status": "PENDING"});
            return Reply::json(200, &json!({"output": output, "request_id": id}));
        }
        let content: Vec<Value> =
            (0..count).map(|number| json!({"image": link_of(request, seed, number, least)})).collect();
        let message = json!({"role": "assistant", "content": content});
        let choices = json!([{"finish_reason": "stop", "message": message}]);
        let usage = json!({"width": 1328, "height": 1328, "image_count": count});
        Reply::json(200, &json!({"output": {"choices": choices}, "usage": usage, "request_id": id}))
    }))
}

fn link_of(request: &Request, seed: u64, number: u64, least: usize) -> String {
    picture::link(request, seed.wrapping_add(number << 40), least)
}

fn object<'a>(body: &'a Map<String, Value>, name: &str) -> Result<&'a Map<String, Value>, Refusal> {
    let object = body.get(name).and_then(Value::as_object);
    object.ok_or_else(|| invalid(format!("Required parameter({name}) missing or invalid.")))
}

/// Returns the text of the single message, and its number of images.
fn turns(input: &Map<String, Value>) -> Result<(&str, usize), Refusal> {
    only(input, &["messages"])?;
    let content = input.get("messages").and_then(|messages| messages.pointer("/0/content"));
    let items = content.and_then(Value::as_array).ok_or_else(|| invalid("messages must have a content."))?;
    let mut images = 0;
    let mut prompt = None;
    for item in items.iter().filter_map(Value::as_object) {
        only(item, &["text", "image"])?;
        if let Some(image) = item.get("image") {
            source(image)?;
            images += 1;
        }
        if let Some(text) = text(item, "text")?
            && prompt.replace(text).is_some()
        {
            return Err(invalid("The content must have one text."));
        }
    }
    if images > 3 {
        return Err(invalid("The content must have at most 3 images."));
    }
    Ok((prompt.unwrap_or_default(), images))
}

/// Returns the number of images that the parameters request.
fn parameters(body: &Map<String, Value>, model: &str) -> Result<u64, Refusal> {
    let empty = Map::new();
    let parameters = body.get("parameters").and_then(Value::as_object).unwrap_or(&empty);
    only(parameters, &["size", "n", "negative_prompt", "prompt_extend", "watermark", "seed"])?;
    if let Some(size) = text(parameters, "size")?
        && !size.split_once('*').is_some_and(|(w, h)| w.parse::<u32>().is_ok() && h.parse::<u32>().is_ok())
    {
        return Err(invalid("size must be in the format of `width*height`."));
    }
    const QWEN: [&str; 7] =
        ["1328*1328", "1664*928", "928*1664", "1472*1140", "1140*1472", "1472*1104", "1104*1472"];
    if model.contains("qwen") && text(parameters, "size")?.is_some_and(|size| !QWEN.contains(&size)) {
        return Err(invalid("size is not supported by this model."));
    }
    whole(parameters, "seed", 2_147_483_647)?;
    mark(parameters)?;
    let several = model.contains("edit-plus") || model.contains("edit-max");
    let most = match () {
        () if model.starts_with("wan") => 4,
        () if several => 6,
        () => 1,
    };
    let count = whole(parameters, "n", 100)?.unwrap_or(1);
    if (1..=most).contains(&count) {
        Ok(count)
    } else {
        Err(invalid(format!("num_images_per_prompt must be 1..{most}")))
    }
}

fn millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}

/// Encodes the state of a task in its id, so that the server stores nothing. The first digit separates it from video
/// tasks.
fn task_id(seed: u64, count: u64, directives: &Directives) -> String {
    let fails = u64::from(directives.refuse);
    let id = format!("1{fails:x}{count:02x}{:012x}{seed:016x}", millis());
    let (a, rest) = id.split_at(8);
    let (b, rest) = rest.split_at(4);
    let (c, rest) = rest.split_at(4);
    let (d, e) = rest.split_at(4);
    format!("{a}-{b}-{c}-{d}-{e}")
}

fn task_now(request: &Request, task: &str, id: &str) -> Result<Value, Refusal> {
    let digits: String = task.chars().filter(|c| *c != '-').collect();
    let number = |from: usize, to: usize| u64::from_str_radix(digits.get(from..to).unwrap_or("x"), 16).ok();
    let read = (|| Some((number(1, 2)?, number(2, 4)?, number(4, 16)?, number(16, 32)?)))();
    let Some((fails, count, begun, seed)) = read.filter(|_| digits.len() == 32) else {
        let output = json!({"task_id": task, "task_status": "UNKNOWN"});
        return Ok(json!({"output": output, "request_id": id}));
    };
    if request.method != Method::GET {
        return Err(Refusal(405, "MethodNotAllowed", "Request method is not supported.".to_owned()));
    }
    let output = match millis().saturating_sub(begun) {
        0..BEGUN => json!({"task_id": task, "task_status": "PENDING"}),
        BEGUN..DONE => json!({"task_id": task, "task_status": "RUNNING"}),
        _ if fails > 0 => {
            let message = "Output data may contain inappropriate content.";
            json!({"task_id": task, "task_status": "FAILED", "code": "DataInspectionFailed", "message": message})
        }
        _ => {
            let one = |number| json!({"url": link_of(request, seed, number, 0), "orig_prompt": "x", "actual_prompt": "A picture."});
            let results: Vec<Value> = (0..count).map(one).collect();
            let counts = json!({"TOTAL": count, "SUCCEEDED": count, "FAILED": 0});
            json!({"task_id": task, "task_status": "SUCCEEDED", "results": results, "task_metrics": counts})
        }
    };
    Ok(json!({"output": output, "usage": {"image_count": count}, "request_id": id}))
}
