//! Ark: images of the Seedream family.

use http::Method;
use serde_json::{Map, Value, json};

use super::{Refusal, invalid, mark, only, picture, source, text, whole};
use crate::http::{Reply, Request, stage};
use crate::ids::{Ids, hash};
use crate::server::Call;
use crate::{clock, directive};

/// Members that all models accept, and the additional ones of Seedream 3.0 and of later models.
const COMMON: &[&str] =
    &["model", "prompt", "image", "size", "response_format", "watermark", "stream", "safety_identifier"];
const THIRD: &[&str] = &["seed", "guidance_scale"];
const FOURTH: &[&str] =
    &["sequential_image_generation", "sequential_image_generation_options", "optimize_prompt_options"];
/// Status of an overloaded provider.
const OVERLOADED: u16 = 429;
/// Tokens per image.
const TOKENS: u64 = 4_096;

#[derive(Debug, Default)]
pub(crate) struct Site;

impl Site {
    pub(crate) fn answer(&self, call: &Call<'_>) -> Reply {
        let id = Ids::new(call.serial, &call.request.body).hex("021", 40);
        if let Some(linked) = super::linked(call.request) {
            return linked;
        }
        let reply = route(call).unwrap_or_else(|refusal| refuse(&refusal, &id));
        reply.with_retry_after().with("x-request-id", id)
    }
}

fn refuse(Refusal(status, code, message): &Refusal, id: &str) -> Reply {
    let kind = match status {
        401 => "Unauthorized",
        404 => "NotFound",
        429 => "TooManyRequests",
        500.. => "InternalServerError",
        _ => "BadRequest",
    };
    let message = format!("{message} Request id: {id}");
    Reply::json(*status, &json!({"error": {"code": code, "message": message, "param": "", "type": kind}}))
}

fn route(call: &Call<'_>) -> Result<Reply, Refusal> {
    let request = call.request;
    match (call.credential, request.bearer()) {
        (Some(expected), key) if key != Some(expected) => {
            let message = "The API key doesn't exist.".to_owned();
            return Err(Refusal(401, "AuthenticationError", message));
        }
        _ => {}
    }
    if request.path != "/api/v3/images/generations" || request.method != Method::POST {
        return Err(Refusal(404, "NotFound", "The requested path does not exist.".to_owned()));
    }
    let body: Value = serde_json::from_slice(&request.body).map_err(|_| invalid("The body is not JSON."))?;
    let body = body.as_object().ok_or_else(|| invalid("The body is not an object."))?;
    images(request, body)
}

/// Returns true if a model makes images of a size: one of its named sizes, or any within its bounds.
fn has_size(model: &str, size: &str) -> bool {
    let sides =
        size.split_once('x').and_then(|(w, h)| Some((w.parse::<u64>().ok()?, h.parse::<u64>().ok()?)));
    let points = sides.map_or(0, |(width, height)| width.saturating_mul(height));
    match () {
        () if model.contains("seededit") => size == "adaptive",
        () if model.contains("-3-0") => {
            sides.is_some_and(|(w, h)| (512..=2_048).contains(&w) && (512..=2_048).contains(&h))
        }
        () if model.contains("4-5") => {
            matches!(size, "2K" | "4K") || (3_686_400..=16_777_216).contains(&points)
        }
        () => matches!(size, "1K" | "2K" | "4K") || (921_600..=16_777_216).contains(&points),
    }
}

fn images(request: &Request, body: &Map<String, Value>) -> Result<Reply, Refusal> {
    let model = text(body, "model")?.unwrap_or_default();
    if model.is_empty() || model.starts_with("missing-") {
        let message =
            format!("The model or endpoint {model} does not exist or you do not have access to it.");
        return Err(Refusal(404, "InvalidEndpointOrModel.NotFound", message));
    }
    let third = model.contains("-3-0");
    only(body, &[COMMON, if third { THIRD } else { FOURTH }].concat())?;
    let prompt = text(body, "prompt")?.filter(|prompt| !prompt.is_empty());
    let prompt = prompt.ok_or_else(|| invalid("The parameter `prompt` is required."))?;
    let inputs = match body.get("image") {
        None => 0,
        Some(Value::Array(images)) if !third => {
            images.iter().map(source).collect::<Result<Vec<_>, _>>()?.len()
        }
        Some(image) => source(image).map(|()| 1)?,
    };
    match (model.contains("seededit"), inputs) {
        (true, 1) => {}
        (true, _) => return Err(invalid("The parameter `image` is required.")),
        (false, 1..) if third => return Err(invalid("The parameter `image` is not valid for this model.")),
        _ => {}
    }
    let usual = if model.contains("seededit") {
        "adaptive"
    } else if third {
        "1024x1024"
    } else {
        "2048x2048"
    };
    let size = text(body, "size")?.unwrap_or(usual);
    check_options(body, model, size)?;
    let inline = match text(body, "response_format")? {
        None | Some("url") => false,
        Some("b64_json") => true,
        Some(_) => return Err(invalid("The parameter `response_format` is not valid.")),
    };
    whole(body, "seed", 2_147_483_647)?;
    let marked = mark(body)?;
    let sequence = text(body, "sequential_image_generation")? == Some("auto");
    let options = body.get("sequential_image_generation_options").and_then(Value::as_object);
    let most = match options {
        Some(options) => whole(options, "max_images", 15)?.unwrap_or(15),
        None => 15,
    };
    // The real model follows the prompt. The maximum suffices for tests.
    let count = if sequence { most } else { 1 };
    if count + inputs as u64 > 15 {
        return Err(invalid("The number of input and output images exceeds 15."));
    }
    let (directives, words) = directive::take(prompt);
    let least = directives.big.unwrap_or(0);
    let seed = hash(format!("{model} {words} {marked} {inputs} {:?}", body.get("seed")).as_bytes());
    let answer = || {
        let shown = if size.contains('x') { size } else { "2048x2048" };
        let one = |number: u64| {
            let seed = seed.wrapping_add(number << 40);
            if directives.refuse && (number > 0 || count == 1) {
                let message =
                    "The request failed because the output image may contain sensitive information.";
                return json!({"error": {"code": "OutputImageSensitiveContentDetected", "message": message}});
            }
            match inline {
                true => json!({"b64_json": picture::base64(seed, least), "size": shown}),
                false => json!({"url": picture::link(request, seed, least), "size": shown}),
            }
        };
        let data: Vec<Value> = (0..count).map(one).collect();
        let made = data.iter().filter(|item| item.get("error").is_none()).count() as u64;
        let usage =
            json!({"generated_images": made, "output_tokens": made * TOKENS, "total_tokens": made * TOKENS});
        Reply::json(200, &json!({"model": model, "created": clock::unix(), "data": data, "usage": usage}))
    };
    let error = |status| {
        let code = if status == 429 { "RateLimitExceeded" } else { "InternalServiceError" };
        refuse(&Refusal(status, code, "The request was staged to fail.".to_owned()), "0")
    };
    Ok(stage(&directives, OVERLOADED, error, answer))
}

/// Checks the options that change nothing in what is simulated.
fn check_options(body: &Map<String, Value>, model: &str, size: &str) -> Result<(), Refusal> {
    if !has_size(model, size) {
        return Err(invalid("The parameter `size` is not valid for this model."));
    }
    let scale = body.get("guidance_scale").map_or(Some(2.5), Value::as_f64);
    if !scale.is_some_and(|scale| (1.0..=10.0).contains(&scale)) {
        return Err(invalid("The parameter `guidance_scale` is not valid."));
    }
    if body.contains_key("sequential_image_generation_options")
        && text(body, "sequential_image_generation")? != Some("auto")
    {
        return Err(invalid(
            "`sequential_image_generation_options` needs `sequential_image_generation` to be auto.",
        ));
    }
    let mode =
        body.get("optimize_prompt_options").and_then(|options| options.get("mode")).and_then(Value::as_str);
    let known = match mode {
        None | Some("standard") => true,
        Some("fast") => model.contains("4-0"),
        Some(_) => false,
    };
    if !known {
        return Err(invalid("The parameter `optimize_prompt_options.mode` is not valid for this model."));
    }
    Ok(())
}
