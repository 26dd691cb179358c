//! Google: long-running operations of the Gemini API and of Vertex AI.

use base64_simd::STANDARD;
use http::Method;
use serde_json::{Value, json};

use super::super::http::Reply;
use super::super::server::Call;
use super::{Film, Refusal, Stage, Task, fetched, is, object, one_of, only, staged, stuck, text};

pub(super) fn answer(film: &Film, call: &Call<'_>, path: &str, host: &str) -> Option<Reply> {
    let request = call.request;
    let vertex = path.contains("/publishers/google/");
    let (name, action) = path.rsplit_once(':').unwrap_or((path, ""));
    let model = name.rsplit_once("/models/").map(|(_, model)| model).unwrap_or_default();
    let known = matches!(action, "predictLongRunning" | "fetchPredictOperation" | "download")
        || (path.contains("/operations/") && is(request, &Method::GET));
    if !known {
        return None;
    }
    let key =
        if vertex { request.bearer() } else { request.header("x-goog-api-key").or(request.query("key")) };
    if call.credential.is_some() && key != call.credential {
        return Some(error(401, "UNAUTHENTICATED", "API key not valid."));
    }
    let answered = match action {
        "predictLongRunning" if is(request, &Method::POST) => create(film, call, model, vertex, name),
        "fetchPredictOperation" if is(request, &Method::POST) => object(request).and_then(|body| {
            let name = text(body.get("operationName"), "operationName")?;
            look(film, &name, true, host)
        }),
        "download" if is(request, &Method::GET) => {
            let id = name.rsplit_once("/files/").map(|(_, id)| id).unwrap_or_default();
            match film.find(id) {
                None => Err(Refusal(404, "File not found.".to_owned())),
                Some(task) if task.directive("gone").is_some() => {
                    Err(Refusal(404, "File not found.".to_owned()))
                }
                // The first address redirects to the video, as Google's does.
                Some(_) if !name.starts_with("/download") => Ok(Reply::new(302, "text/plain", "")
                    .with("location", format!("http://{host}/download{path}?alt=media"))),
                Some(task) => Ok(fetched(&task)),
            }
        }
        _ => look(film, path, false, host),
    };
    Some(answered.unwrap_or_else(|Refusal(status, message)| {
        let word = match status {
            400 => "INVALID_ARGUMENT",
            404 => "NOT_FOUND",
            429 => "RESOURCE_EXHAUSTED",
            _ => "INTERNAL",
        };
        error(status, word, &message)
    }))
}

fn error(status: u16, word: &str, message: &str) -> Reply {
    let body = json!({"error": {"code": status, "message": message, "status": word}});
    Reply::json(status, &body).with_retry_after()
}

fn create(film: &Film, call: &Call<'_>, model: &str, vertex: bool, name: &str) -> Result<Reply, Refusal> {
    let body = object(call.request)?;
    only(&body, &["instances", "parameters"])?;
    if model.starts_with("missing-") {
        return Err(Refusal(404, format!("models/{model} is not found.")));
    }
    let instances = body.get("instances").and_then(Value::as_array).filter(|all| all.len() == 1);
    let instance = instances.and_then(|all| all.first()).and_then(Value::as_object);
    let instance = instance.ok_or_else(|| Refusal(400, "one instance is required".to_owned()))?;
    only(instance, &["prompt", "image", "lastFrame", "video", "referenceImages"])?;
    let prompt = text(instance.get("prompt"), "prompt")?;
    for name in ["image", "lastFrame"] {
        if let Some(image) = instance.get(name) {
            let data = text(image.get("bytesBase64Encoded"), "bytesBase64Encoded")?;
            text(image.get("mimeType"), "mimeType")?;
            STANDARD.decode_to_vec(data).map_err(|_| Refusal(400, format!("'{name}' is not base64")))?;
        }
    }
    let none = serde_json::Map::new();
    let parameters = body.get("parameters").and_then(Value::as_object).unwrap_or(&none);
    let mut known = vec![
        "aspectRatio",
        "resolution",
        "durationSeconds",
        "negativePrompt",
        "personGeneration",
        "sampleCount",
        "enhancePrompt",
    ];
    if vertex {
        known.extend(["generateAudio", "seed", "storageUri", "compressionQuality", "fps", "addWatermark"]);
    }
    only(parameters, &known)?;
    let size = one_of(parameters.get("resolution"), "resolution", &["720p", "1080p"], "720p")?;
    one_of(parameters.get("aspectRatio"), "aspectRatio", &["16:9", "9:16"], "16:9")?;
    let seconds = parameters.get("durationSeconds").map_or(Some(8), Value::as_u64);
    let seconds = seconds.filter(|seconds| matches!(seconds, 4 | 6 | 8));
    let seconds = seconds.ok_or_else(|| Refusal(400, "durationSeconds must be 4, 6 or 8".to_owned()))?;
    if !vertex && size == "1080p" && seconds != 8 {
        return Err(Refusal(400, "The number of seconds must be 8 when the resolution is 1080p.".to_owned()));
    }
    let last = instance.contains_key("lastFrame");
    if last && !(model.contains("3.1") && instance.contains_key("image")) {
        return Err(Refusal(400, "`lastFrame` isn't supported by this model.".to_owned()));
    }
    let people = &["allow_all", "allow_adult", "dont_allow"];
    one_of(parameters.get("personGeneration"), "personGeneration", people, "allow_all")?;
    let task = Task { model: model.to_owned(), prompt, seconds, size, ..Task::default() };
    let prompt = task.prompt.clone();
    Ok(staged(
        &prompt,
        |status| error(status, "INTERNAL", "simulated"),
        || {
            let task = film.begin(call, "", task);
            let name = match vertex {
                true => format!("{}/operations/{}", name.trim_start_matches("/v1/"), task.id),
                false => format!("models/{model}/operations/{}", task.id),
            };
            Reply::json(200, &json!({"name": name}))
        },
    ))
}

fn look(film: &Film, name: &str, vertex: bool, host: &str) -> Result<Reply, Refusal> {
    let id = name.rsplit_once("/operations/").map(|(_, id)| id).unwrap_or_default();
    let task = film.look(id).ok_or_else(|| Refusal(404, "Operation not found.".to_owned()))?;
    if let Some(status) = stuck(&task) {
        return Err(Refusal(status, "simulated".to_owned()));
    }
    let name = name.trim_start_matches("/v1beta/");
    Ok(Reply::json(
        200,
        &match task.stage() {
            Stage::Queued | Stage::Running => json!({"name": name}),
            Stage::Failed => json!({"name": name, "done": true, "response": {"generateVideoResponse": {
            "raiMediaFilteredCount": 1,
            "raiMediaFilteredReasons": ["The video was held back because it may break our rules. Support code: 15236754"]}}}),
            Stage::Cancelled => {
                json!({"name": name, "done": true, "error": {"code": 1, "message": "The operation was cancelled."}})
            }
            Stage::Expired => {
                json!({"name": name, "done": true, "error": {"code": 4, "message": "Deadline expired."}})
            }
            Stage::Done if vertex => json!({"name": name, "done": true, "response": {
            "@type": "type.googleapis.com/cloud.ai.large_models.vision.GenerateVideoResponse",
            "videos": [{"bytesBase64Encoded": STANDARD.encode_to_string(task.bytes()), "mimeType": "video/mp4"}]}}),
            Stage::Done => json!({"name": name, "done": true, "response": {
            "@type": "type.googleapis.com/google.ai.generativelanguage.v1beta.PredictLongRunningResponse",
            "generateVideoResponse": {"generatedSamples": [{"video": {
                "uri": format!("http://{host}/v1beta/files/{}:download?alt=media", task.id)}}]}}}),
        },
    ))
}
