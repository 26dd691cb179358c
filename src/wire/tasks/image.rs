//! Videos with another face, and the pictures that another gateway of the group answers with.

use bytes::BytesMut;

use super::ask::Face;
use crate::json::{Cursor, JsonError, RawJson, Writer};

/// Writes a request for a video with another face.
pub fn encode_face(face: &Face<'_>, model: &str, out: &mut BytesMut) {
    let mut json = Writer::new(out);
    json.begin_object().key("model").string(model);
    json.key("input").begin_object().key("image_url").string(&face.image);
    json.key("video_url").string(&face.video).key("watermark").boolean(false).end_object();
    json.key("parameters").begin_object().key("mode").string("wan-std").end_object();
    json.end_object();
}

/// What an answer has: the addresses of pictures, of which some may be the pictures themselves, as data URLs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Addresses.
    pub urls: Vec<String>,
    /// There is an error in it.
    pub failed: bool,
}

/// Reads an answer of any form.
///
/// # Errors
/// It is no JSON.
pub fn decode(body: &str) -> Result<Made, JsonError> {
    let mut made = Made::default();
    visit(RawJson::from_text(body.trim()), 0, &mut made)?;
    Ok(made)
}

/// Pictures stand in `data[]`, in `images[]`, or in `output.choices[].message.content[]`.
fn visit(value: RawJson<'_>, depth: u32, made: &mut Made) -> Result<(), JsonError> {
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
