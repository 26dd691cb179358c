//! Forms of several parts, as OpenAI's clients send them: turned into the JSON that says the same.

use base64_simd::STANDARD;
use bytes::{Bytes, BytesMut};

use crate::error::ApiError;
use crate::json::{EscapedString, Writer};
use crate::wire::images::file::file;
use crate::wire::images::form;

/// Turns a form into JSON: texts into strings, files into data URLs.
///
/// # Errors
/// It is no such form.
pub(super) fn to_json(body: &Bytes, boundary: &str) -> Result<Bytes, ApiError> {
    let parts = form::read(body, boundary)?;
    let mut out = BytesMut::with_capacity(body.len() / 3 * 4 + 1024);
    let mut json = Writer::new(&mut out);
    json.begin_object();
    for part in &parts {
        json.paste_key(EscapedString::from(&*part.name).as_json_str());
        if part.is_file {
            let media = file(&part.value).map_or("application/octet-stream", |file| file.picture.media());
            json.pasted(|out| {
                crate::json::push_escaped(out, &format!("data:{media};base64,"));
                out.extend_from_slice(STANDARD.encode_to_string(&part.value).as_bytes());
            });
        } else {
            json.string(part.text()?);
        }
    }
    json.end_object();
    Ok(out.freeze())
}
