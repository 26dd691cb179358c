mod families;
mod fitting;
mod providers;

use serde_json::{Value, json};

use super::check::check;
use super::request;
use crate::canonical::image::{ImageFamily, ImageRequest};
use crate::error::{ApiError, ErrorKind};

/// Returns the start of a PNG with these dimensions.
pub(super) fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    bytes.extend([width.to_be_bytes(), height.to_be_bytes()].concat());
    bytes.extend([8, 2, 0, 0, 0]);
    bytes
}

pub(super) fn base64(bytes: &[u8]) -> String {
    base64_simd::STANDARD.encode_to_string(bytes)
}

pub(super) fn read(body: Value) -> Result<ImageRequest, ApiError> {
    request::decode(&body.to_string())
}

/// Parses a request with these members and a prompt, and checks it against a family.
pub(super) fn asked(family: ImageFamily, members: Value) -> Result<ImageRequest, ApiError> {
    let mut body = json!({"model": "m", "prompt": "a red circle"});
    for (name, value) in members.as_object().unwrap() {
        body[name] = value.clone();
    }
    let mut request = read(body)?;
    check(&mut request, &family.rules())?;
    Ok(request)
}

pub(super) fn refused(family: ImageFamily, members: Value) -> String {
    let error = asked(family, members.clone()).expect_err(&format!("{family:?} took {members}"));
    assert!(matches!(error.kind, ErrorKind::InvalidField | ErrorKind::Unsupported), "{error:?}");
    assert!(error.message.contains('\''), "{}", error.message);
    error.param.unwrap().into_owned()
}
