//! Conversion of a form to the equivalent JSON body, for endpoints that accept both.

use base64_simd::STANDARD;
use bytes::{Bytes, BytesMut};

use crate::error::ApiError;
use crate::wire::images::file::file;
use json::{EscapedString, Writer};

/// Converts a form to a JSON object: text fields to strings, files to data URLs.
///
/// # Errors
/// Returns [`ApiError`] if the form is malformed or a text field is not UTF-8.
pub fn to_json(body: &Bytes, boundary: &str) -> Result<Bytes, ApiError> {
    let parts = super::read(body, boundary)?;
    let mut out = BytesMut::with_capacity(body.len() / 3 * 4 + 1024);
    let mut json = Writer::new(&mut out);
    json.begin_object();
    for part in &parts {
        json.paste_key(EscapedString::from(&*part.name).as_json_str());
        if part.is_file {
            let media = file(&part.value).map_or("application/octet-stream", |file| file.picture.media());
            json.pasted(|out| {
                json::push_escaped(out, &format!("data:{media};base64,"));
                out.extend_from_slice(STANDARD.encode_to_string(&part.value).as_bytes());
            });
        } else {
            json.string(part.text()?);
        }
    }
    json.end_object();
    Ok(out.freeze())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{FormWriter, boundary, read};
    use super::*;

    /// Returns the form as parsed JSON, or `None` if it is malformed.
    fn json(body: &Bytes, boundary: &str) -> Option<serde_json::Map<String, serde_json::Value>> {
        let text = to_json(body, boundary).ok()?;
        Some(serde_json::from_slice(&text).unwrap())
    }

    proptest! {
        #[test]
        fn json_has_the_fields_and_files_of_the_form(
            texts in proptest::collection::btree_map("[a-z\\[\\]\u{e9} ]{1,8}", ".{0,20}", 0..5),
            file in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let mut form = FormWriter::default();
            for (name, text) in &texts {
                form.field(name, text);
            }
            form.file("THE FILE", "a", "text/plain", Bytes::from(file.clone()));
            let (media, body) = form.finish();
            let boundary = boundary(&media).unwrap();
            let said = json(&body, &boundary).unwrap();
            prop_assert_eq!(said.len(), texts.len() + 1);
            for (name, text) in &texts {
                prop_assert_eq!(said[name].as_str().unwrap(), text);
            }
            let (head, base64) = said["THE FILE"].as_str().unwrap().split_once(',').unwrap();
            prop_assert!(head.starts_with("data:") && head.ends_with(";base64"));
            prop_assert_eq!(STANDARD.decode_to_vec(base64).unwrap(), file);
            // A truncated form is an error, unless only the end of its closing delimiter is missing.
            for end in 0..body.len() {
                let parts = read(&body.slice(..end), &boundary);
                let whole = end + 4 >= body.len();
                prop_assert!(parts.is_err() || whole, "cut at {} of {}", end, body.len());
            }
        }

        #[test]
        fn json_of_arbitrary_form_bytes_never_panics(pieces in proptest::collection::vec(
            prop_oneof![
                Just(b"--x\r\n".to_vec()), Just(b"\r\n--x\r\n".to_vec()), Just(b"\r\n\r\n".to_vec()),
                Just(b"\r\n--x--".to_vec()), Just(b"; filename=\"".to_vec()),
                Just(b"Content-Disposition: form-data; name=\"a\\\"".to_vec()),
                Just(b"Content-Disposition: form-data; name=b\r\n\r\n".to_vec()),
                proptest::collection::vec(any::<u8>(), 0..20),
            ], 0..12))
        {
            let _ = json(&Bytes::from(pieces.concat()), "x");
        }
    }
}
