//! Image endpoints: `POST /v1/images/generations` and `/v1/images/edits`.

use serde_json::{Value, json};

use super::super::directive;
use super::super::http::{Reply, Request, stage};
use super::super::ids::hash;
use super::super::image::picture;
use super::super::{clock, text};
use super::errors::{ApiError, Fields, OVERLOADED, for_status, missing};

const FIELDS: [&str; 12] = [
    "model",
    "prompt",
    "n",
    "size",
    "quality",
    "background",
    "output_format",
    "output_compression",
    "moderation",
    "partial_images",
    "stream",
    "user",
];
/// Members of older models only.
const OLDER: [&str; 2] = ["response_format", "style"];
/// Tokens per generated image, and per input image.
const TOKENS: u64 = 272;
const INPUT: u64 = 194;

/// Answers `generations`, which has a JSON body.
pub(super) fn make(request: &Request, body: &Value) -> Result<Reply, ApiError> {
    answer(request, body, 0)
}

/// Answers `edits`, which has a form body.
pub(super) fn edit(request: &Request) -> Result<Reply, ApiError> {
    let content_type = request.header("content-type").unwrap_or_default();
    let boundary = content_type.split_once("boundary=").map(|(_, boundary)| boundary.trim_matches('"'));
    let boundary = boundary.filter(|_| content_type.starts_with("multipart/form-data"));
    let boundary = boundary.ok_or_else(|| ApiError::invalid("Unsupported content type."))?;
    let mut body = serde_json::Map::new();
    let mut images = 0;
    let delimiter = format!("--{boundary}");
    for part in parts(&request.body, delimiter.as_bytes()) {
        let end =
            find(part, b"\r\n\r\n").ok_or_else(|| ApiError::invalid("Could not parse multipart form"))?;
        let (head, value) = part.split_at(end);
        let value = value.get(4..).and_then(|value| value.strip_suffix(b"\r\n")).unwrap_or_default();
        let head = String::from_utf8_lossy(head);
        let name =
            head.split_once(" name=\"").and_then(|(_, rest)| rest.split_once('"')).map(|(name, _)| name);
        match name.unwrap_or_default() {
            name @ ("image" | "image[]" | "mask") => {
                if !picture::is_image(value) || value.starts_with(b"GIF8") || !head.contains("filename=\"") {
                    let message = "Invalid image file or mode for image 1, please check your image file.";
                    return Err(ApiError::invalid(message).param(name).code("invalid_image_file"));
                }
                images += u64::from(name != "mask");
            }
            name => {
                let text = String::from_utf8_lossy(value).into_owned();
                let value = match name {
                    "n" | "output_compression" | "partial_images" => {
                        text.parse::<u64>().map_or(json!(text), |n| json!(n))
                    }
                    _ => json!(text),
                };
                body.insert(name.to_owned(), value);
            }
        }
    }
    if images == 0 {
        return Err(missing("image"));
    }
    if images > 16 {
        return Err(ApiError::invalid("You can use at most 16 images.").param("image"));
    }
    answer(request, &Value::Object(body), images)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, what)
}

/// Splits a form at its delimiters. Each part starts behind the line break of its delimiter.
fn parts<'b>(body: &'b [u8], delimiter: &[u8]) -> Vec<&'b [u8]> {
    let mut parts = Vec::new();
    let mut rest = body;
    let mut begun = false;
    while let Some(at) = find(rest, delimiter) {
        let (before, after) = rest.split_at(at);
        if begun {
            parts.push(before.strip_prefix(b"\r\n").unwrap_or(before));
        }
        begun = true;
        rest = after.get(delimiter.len()..).unwrap_or_default();
    }
    parts
}

fn answer(request: &Request, body: &Value, images: u64) -> Result<Reply, ApiError> {
    let fields = Fields(body);
    let model = super::model(fields.string("model")?)?;
    let newer = model.contains("gpt-image");
    let mut known = FIELDS.to_vec();
    if !newer {
        known.extend(OLDER);
    }
    if images > 0 {
        known.push("input_fidelity");
    }
    fields.only(&known)?;
    let prompt =
        fields.string("prompt")?.filter(|prompt| !prompt.is_empty()).ok_or_else(|| missing("prompt"))?;
    let count = fields.integer("n", 1)?.unwrap_or(1);
    if count > if model == "dall-e-3" { 1 } else { 10 } {
        return Err(ApiError::invalid(format!("Invalid 'n': {count} is too many.")).param("n"));
    }
    let size = fields.string("size")?.unwrap_or("auto");
    let sizes = ["1024x1024", "1024x1536", "1536x1024", "auto"];
    if newer && !model.contains("gpt-image-2") && !sizes.contains(&size) {
        return Err(ApiError::invalid(format!(
            "Invalid value: '{size}'. Supported values are: '1024x1024', '1024x1536', '1536x1024', and 'auto'."
        ))
        .param("size")
        .code("invalid_value"));
    }
    let quality = fields.string("quality")?.unwrap_or("high");
    let format = fields.string("output_format")?.unwrap_or("png");
    let qualities = ["low", "medium", "high", "auto"];
    if newer && (!qualities.contains(&quality) || !["png", "jpeg", "webp"].contains(&format)) {
        return Err(ApiError::invalid("Invalid value of 'quality' or 'output_format'.").code("invalid_value"));
    }
    let inline = newer || fields.string("response_format")? == Some("b64_json");
    let (directives, words) = directive::take(prompt);
    if directives.refuse {
        let message = "Your request was rejected by the safety system.";
        return Err(ApiError::new(400, "image_generation_user_error", message).code("moderation_blocked"));
    }
    let least = directives.big.unwrap_or(0);
    let seed = hash(format!("{model} {words} {images}").as_bytes());
    let reply = || {
        let one = |number: u64| {
            let seed = seed.wrapping_add(number << 40);
            match inline {
                true => json!({"b64_json": picture::base64(seed, least)}),
                false => {
                    json!({"url": picture::link(request, seed, least), "revised_prompt": format!("{words}, in detail")})
                }
            }
        };
        let data: Vec<Value> = (0..count).map(one).collect();
        if !newer {
            return Reply::json(200, &json!({"created": clock::unix(), "data": data}));
        }
        let words = text::tokens(words.len());
        let (input, output) = (words + images * INPUT, count * TOKENS);
        let size = if size == "auto" { "1024x1024" } else { size };
        Reply::json(
            200,
            &json!({"created": clock::unix(), "background": "opaque", "data": data, "output_format": format,
                    "quality": quality, "size": size,
                    "usage": {"input_tokens": input,
                              "input_tokens_details": {"image_tokens": images * INPUT, "text_tokens": words},
                              "output_tokens": output,
                              "output_tokens_details": {"image_tokens": output, "text_tokens": 0},
                              "total_tokens": input + output}}),
        )
    };
    Ok(stage(&directives, OVERLOADED, |status| for_status(status).reply(), reply))
}
