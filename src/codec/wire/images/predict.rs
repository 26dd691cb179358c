//! Client requests for images in the Imagen format of Google's SDK (`:predict`).

use super::request::{FieldValue, PendingValues, bytes, finish, member, members, not_json, object};
use super::{unsupported, wrong};
use crate::canonical::image::{ImageInput, ImageRequest};
use crate::error::ApiError;
use json::{Cursor, RawJson};

/// Parses a `:predict` request. The format has the same settings for all families, so a setting that the family lacks
/// is dropped, not refused.
///
/// # Errors
/// Returns an [`ApiError`] that names the field if the request is malformed.
pub fn decode(body: &str) -> Result<ImageRequest, ApiError> {
    let mut request = ImageRequest { lenient: true, inline: Some(true), ..ImageRequest::default() };
    let mut open = PendingValues::default();
    members(body, |name, value| match name {
        "instances" => {
            let mut json = Cursor::new(value.text());
            json.begin_array().map_err(|_| wrong(name, "an array"))?;
            let mut count = 0;
            while json.next_element().map_err(not_json)? {
                if count == 1 {
                    return Err(wrong(name, "an array of one"));
                }
                count += 1;
                object("instances[0]", json.raw().map_err(not_json)?, |key, value| {
                    let field = format!("instances[0].{key}");
                    match key {
                        "prompt" => open.prompt = Some(FieldValue::Json(value).string(&field)?),
                        "image" => {
                            let data = member(&field, value, &["bytesBase64Encoded"])?;
                            let data = data.ok_or_else(|| wrong(&*field, "an image in base64"))?;
                            open.images.push(ImageInput { source: bytes(&field, &data)?, field });
                        }
                        _ => {}
                    }
                    Ok(())
                })?;
            }
            Ok(())
        }
        "parameters" if !value.is_null() => {
            object(name, value, |key, value| parameter(&mut request, key, value))
        }
        _ => Ok(()),
    })?;
    finish(request, open).map_err(|error| {
        if error.param.as_deref() == Some("prompt") {
            ApiError::missing("instances[0].prompt")
        } else {
            error
        }
    })
}

fn parameter(request: &mut ImageRequest, key: &str, value: RawJson<'_>) -> Result<(), ApiError> {
    if value.is_null() {
        return Ok(());
    }
    let field = format!("parameters.{key}");
    let given = FieldValue::Json(value);
    match key {
        "sampleCount" => request.count = Some(given.whole(&field, 1..=8)?),
        "aspectRatio" => request.size = Some(given.string(&field)?),
        "sampleImageSize" | "imageSize" => request.tier = Some(given.string(&field)?),
        "seed" => request.seed = Some(given.whole(&field, 0..=i32::MAX.unsigned_abs())?),
        "guidanceScale" => request.guidance = Some(given.number(&field, 0.0..=1_000.0)?),
        "negativePrompt" => request.extra.push(("negative_prompt".to_owned(), value.text().to_owned())),
        "storageUri" => return Err(unsupported(field, "is not supported: images are part of the response")),
        _ => {
            if key == "addWatermark" {
                request.watermark = Some(given.boolean(&field)?);
            }
            request.extra.push((key.to_owned(), value.text().to_owned()));
        }
    }
    Ok(())
}
