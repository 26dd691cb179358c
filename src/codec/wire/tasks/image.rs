//! Upstream formats of the task group: face-replacement videos, and image responses of another gateway that serves the
//! group.

use bytes::BytesMut;

use super::ask::Face;
use json::{Cursor, JsonError, RawJson, Writer};

/// Writes a request for a face-replacement video in DashScope's format.
pub fn encode_face(face: &Face<'_>, model: &str, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object().key("model").string(model);
    json.key("input").begin_object().key("image_url").string(&face.image);
    json.key("video_url").string(&face.video).key("watermark").boolean(false).end_object();
    json.key("parameters").begin_object().key("mode").string("wan-std").end_object();
    json.end_object();
}

/// Parsed image response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskImages {
    /// Image URLs. An image that came as base64 is a data URL.
    pub urls: Vec<String>,
    /// The response contains an error.
    pub failed: bool,
}

/// Parses an image response of any known form.
///
/// # Errors
/// Returns [`JsonError`] if the body is not JSON.
pub fn decode(body: &str) -> Result<TaskImages, JsonError> {
    let mut made = TaskImages::default();
    visit(RawJson::from_text(body.trim()), 0, &mut made)?;
    Ok(made)
}

/// Collects images from `data[]`, `images[]` and `output.choices[].message.content[]`.
fn visit(value: RawJson<'_>, depth: u32, made: &mut TaskImages) -> Result<(), JsonError> {
    // Bounds the recursion on hostile input; the deepest known form has fewer than eight levels.
    if depth > 8 {
        return Ok(());
    }
    let mut json = Cursor::new(value.text());
    if value.text().starts_with('[') {
        json.begin_array()?;
        while json.next_element()? {
            visit(json.raw()?, depth + 1, made)?;
        }
        return Ok(());
    }
    if depth > 0 && !value.text().starts_with('{') {
        return Ok(());
    }
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        let inner = json.raw()?;
        let text = inner.as_str().map(|text| text.decode()).filter(|text| !text.is_empty());
        match (key.escaped(), text) {
            ("url" | "image", Some(url)) => made.urls.push(url.into_owned()),
            ("b64_json", Some(base64)) => made.urls.push(format!("data:image/png;base64,{base64}")),
            ("error", _) if inner.text().starts_with('{') => made.failed = true,
            ("code", Some(_)) if depth == 0 => made.failed = true,
            ("data" | "output" | "choices" | "message" | "content" | "images", None) => {
                visit(inner, depth + 1, made)?;
            }
            _ => {}
        }
    }
    Ok(())
}
