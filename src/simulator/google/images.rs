//! Images: of language models with image output (`generateContent`), and of Imagen (`predict`).

use serde_json::{Value, json};

use super::super::http::{Reply, stage};
use super::super::ids::{decode_base64, hash};
use super::super::image::picture;
use super::super::{directive, text};
use super::errors::{ApiError, OVERLOADED, for_status};
use super::json::{Style, pretty};
use super::shape::{self, get, list, text as text_of};

/// Tokens per generated image, and per input image.
const TOKENS: u64 = 1_290;
const INPUT: u64 = 258;
const RATIOS: [&str; 10] = ["1:1", "3:2", "2:3", "3:4", "4:3", "4:5", "5:4", "9:16", "16:9", "21:9"];

/// Returns true if a request asks for image output.
pub(super) fn wanted(body: &Value) -> bool {
    let config = get(body, "generationConfig").unwrap_or(&Value::Null);
    list(config, "responseModalities").iter().any(|word| word == "IMAGE")
}

/// Answers `generateContent` with an image.
pub(super) fn draw(body: &Value, model: &str) -> Result<Reply, ApiError> {
    shape::check(body, &shape::GENERATE, "")?;
    if !model.contains("image") {
        let message = format!("Model does not support the requested response modalities: image ({model})");
        return Err(ApiError::invalid(message));
    }
    let config = get(body, "generationConfig").unwrap_or(&Value::Null);
    if let Some(image) = get(config, "imageConfig") {
        if text_of(image, "aspectRatio").is_some_and(|ratio| !RATIOS.contains(&ratio)) {
            return Err(ApiError::invalid("Invalid aspect ratio."));
        }
        if let Some(size) = get(image, "imageSize") {
            if !model.contains("pro") {
                return Err(ApiError::invalid("Image size is not supported for this model."));
            }
            if size != "1K" && size != "2K" && size != "4K" {
                return Err(ApiError::invalid("Invalid image size."));
            }
        }
    }
    let modes = list(config, "responseModalities");
    if !modes.iter().all(|mode| mode == "TEXT" || mode == "IMAGE") {
        return Err(ApiError::invalid("The requested combination of response modalities is not supported."));
    }
    let talks = modes.iter().any(|mode| mode == "TEXT");
    let (mut words, mut images) = (String::new(), 0u64);
    for part in list(body, "contents").iter().flat_map(|content| list(content, "parts")) {
        if let Some(text) = text_of(part, "text") {
            words = text.to_owned();
        }
        if let Some(data) = get(part, "inlineData") {
            let bytes = decode_base64(text_of(data, "data").unwrap_or_default());
            let typed = text_of(data, "mimeType").is_some_and(|media| media.starts_with("image/"));
            if !typed || !bytes.is_some_and(|bytes| picture::is_image(&bytes)) {
                return Err(ApiError::invalid("Unable to process input image."));
            }
            images += 1;
        }
    }
    let (directives, words) = directive::take(&words);
    let seed = hash(format!("{model} {words} {images} {:?}", get(config, "seed")).as_bytes());
    let answer = || {
        let prompt = text::tokens(words.len()) + images * INPUT;
        let mut details = vec![json!({"modality": "TEXT", "tokenCount": text::tokens(words.len())})];
        if images > 0 {
            details.push(json!({"modality": "IMAGE", "tokenCount": images * INPUT}));
        }
        if directives.refuse {
            let candidate = json!({"finishReason": "IMAGE_SAFETY", "index": 0});
            let usage = json!({"promptTokenCount": prompt, "totalTokenCount": prompt, "promptTokensDetails": details});
            let body = json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": model});
            return Reply::new(200, Style::Whole.content_type(), pretty(&body));
        }
        let data = picture::base64(seed, directives.big.unwrap_or(0));
        let mut parts: Vec<Value> = talks.then(|| json!({"text": "Here it is:"})).into_iter().collect();
        if model.contains("pro") {
            let draft = json!({"mimeType": "image/png", "data": picture::base64(seed ^ 1 << 60, 0)});
            parts.insert(0, json!({"thought": true, "inlineData": draft}));
        }
        parts.push(json!({"inlineData": {"mimeType": "image/png", "data": data}}));
        let usage = json!({
            "promptTokenCount": prompt, "candidatesTokenCount": TOKENS + 4, "totalTokenCount": prompt + TOKENS + 4,
            "promptTokensDetails": details, "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": TOKENS}],
        });
        let content = json!({"parts": parts, "role": "model"});
        let body = json!({"candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
                          "usageMetadata": usage, "modelVersion": model});
        Reply::new(200, Style::Whole.content_type(), pretty(&body))
    };
    let error = |status| for_status(status).reply(Style::Whole);
    Ok(stage(&directives, OVERLOADED, error, answer))
}

/// Answers `predict` of Imagen.
pub(super) fn predict(body: &Value, model: &str) -> Result<Reply, ApiError> {
    let prompt = body.pointer("/instances/0/prompt").and_then(Value::as_str).unwrap_or_default();
    if prompt.is_empty() {
        return Err(ApiError::invalid("Prompt cannot be empty."));
    }
    let parameters = get(body, "parameters").unwrap_or(&Value::Null);
    let count = get(parameters, "sampleCount").and_then(Value::as_u64).unwrap_or(4);
    if !(1..=4).contains(&count) {
        return Err(ApiError::invalid("sampleCount must be between 1 and 4."));
    }
    let (directives, words) = directive::take(prompt);
    let seed = hash(format!("{model} {words}").as_bytes());
    let answer = || {
        let one = |number: u64| {
            let data = picture::base64(seed.wrapping_add(number << 40), directives.big.unwrap_or(0));
            json!({"mimeType": "image/png", "bytesBase64Encoded": data})
        };
        let all = if directives.refuse { 0 } else { count };
        let predictions: Vec<Value> = (0..all).map(one).collect();
        let filtered = json!([{"raiFilteredReason": "Unable to show generated images."}]);
        let body = json!({"predictions": if directives.refuse { filtered } else { json!(predictions) }});
        Reply::new(200, Style::Whole.content_type(), pretty(&body))
    };
    let error = |status| for_status(status).reply(Style::Whole);
    Ok(stage(&directives, OVERLOADED, error, answer))
}
