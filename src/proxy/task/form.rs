//! Forms of several parts, as OpenAI's clients send them: turned into the JSON that says the same.

use base64_simd::STANDARD;
use bytes::{Bytes, BytesMut};
use pingora::http::RequestHeader;

use crate::error::{ApiError, Kind};
use crate::json::{EscapedString, JsonStr, Writer};

/// Most parts of one form.
const PARTS: usize = 64;

/// What stands between the parts, if the body is such a form.
pub(super) fn boundary(head: &RequestHeader) -> Option<String> {
    let kind = head.headers.get(http::header::CONTENT_TYPE)?.to_str().ok()?;
    let (kind, rest) = kind.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = rest.split(';').find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"').to_owned())
    })?;
    (1..=200).contains(&boundary.len()).then_some(boundary)
}

fn wrong(what: &str) -> ApiError {
    ApiError::new(Kind::InvalidField, format!("The form is not valid: {what}."))
}

/// Turns a form into JSON: texts into strings, files into data URLs.
///
/// # Errors
/// It is no such form.
pub(super) fn to_json(body: &Bytes, boundary: &str) -> Result<Bytes, ApiError> {
    let mark = format!("--{boundary}");
    let between = format!("\r\n--{boundary}");
    let start =
        body.strip_prefix(mark.as_bytes()).ok_or_else(|| wrong("it does not begin with its boundary"))?;
    let finder = memchr::memmem::Finder::new(between.as_bytes());
    let mut rest = start;
    let mut out = BytesMut::with_capacity(body.len() / 3 * 4 + 1024);
    let mut json = Writer::new(&mut out);
    json.begin_object();
    let mut names: Vec<String> = Vec::new();
    loop {
        if rest.starts_with(b"--") {
            break;
        }
        let part = rest.strip_prefix(b"\r\n").ok_or_else(|| wrong("a boundary stands alone on its line"))?;
        let end = finder.find(part).ok_or_else(|| wrong("its last boundary is missing"))?;
        let (inside, after) = part.split_at_checked(end).ok_or_else(|| wrong("it is cut"))?;
        rest = after.get(between.len()..).unwrap_or_default();
        let at = memchr::memmem::find(inside, b"\r\n\r\n").ok_or_else(|| wrong("a part has no content"))?;
        let head = std::str::from_utf8(inside.get(..at).unwrap_or_default())
            .map_err(|_| wrong("a part's head is not UTF-8"))?;
        let content = inside.get(at + 4..).unwrap_or_default();
        let header = |wanted: &str| {
            head.split("\r\n").find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.trim().eq_ignore_ascii_case(wanted).then(|| value.trim())
            })
        };
        let disposition = header("content-disposition").unwrap_or_default();
        let parameter = |wanted: &str| {
            disposition.split(';').skip(1).find_map(|part| {
                let (name, value) = part.split_once('=')?;
                name.trim().eq_ignore_ascii_case(wanted).then(|| value.trim().trim_matches('"'))
            })
        };
        let name = parameter("name").ok_or_else(|| wrong("a part has no name"))?.to_owned();
        if names.contains(&name) || names.len() >= PARTS {
            return Err(wrong("a part comes twice, or there are too many").param(name));
        }
        let escaped = EscapedString::from(name.as_str());
        json.paste_key(escaped.as_json_str());
        if parameter("filename").is_some() {
            let media = header("content-type").filter(|media| *media != "application/octet-stream");
            let media = media.or_else(|| sniffed(content)).unwrap_or("application/octet-stream").to_owned();
            json.pasted(|out| {
                crate::json::push_escaped(out, &format!("data:{media};base64,"));
                out.extend_from_slice(STANDARD.encode_to_string(content).as_bytes());
            });
        } else {
            let text = std::str::from_utf8(content).map_err(|_| wrong("a text is not UTF-8"))?;
            let text = EscapedString::from(text);
            json.paste(JsonStr::from_escaped(text.as_json_str().escaped()));
        }
        names.push(name);
    }
    json.end_object();
    Ok(out.freeze())
}

/// The type of an image by its first bytes.
fn sniffed(bytes: &[u8]) -> Option<&'static str> {
    const SIGNS: [(&[u8], &str); 4] = [
        (b"\x89PNG", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"RIFF", "image/webp"),
        (b"GIF8", "image/gif"),
    ];
    SIGNS.iter().find(|(sign, _)| bytes.starts_with(sign)).map(|(_, media)| *media)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_says_what_json_says() {
        let body = "--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nA \"cat\"\r\n\
            --b\r\nContent-Disposition: form-data; name=\"input_reference\"; filename=\"x.png\"\r\n\
            Content-Type: application/octet-stream\r\n\r\n\u{0}\r\n--x\r\n--b--\r\n";
        let json = to_json(&Bytes::from_static(body.as_bytes()), "b").unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["prompt"], "A \"cat\"");
        let data = STANDARD.encode_to_string(b"\0\r\n--x");
        assert_eq!(json["input_reference"], format!("data:application/octet-stream;base64,{data}"));
    }

    #[test]
    fn no_bytes_make_it_fail() {
        let whole = b"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--";
        for end in 0..whole.len() {
            let _ = to_json(&Bytes::copy_from_slice(&whole[..end]), "b");
            let mut spoilt = whole.to_vec();
            spoilt[end] = 0xff;
            let _ = to_json(&spoilt.into(), "b");
        }
        assert!(to_json(&Bytes::from_static(whole), "b").is_ok());
        assert!(to_json(&Bytes::from_static(b"--b--"), "b").is_ok());
    }
}
