//! Multipart forms (`multipart/form-data`, RFC 7578): a reader that does not copy, a writer, and the conversion to
//! JSON.
//!
//! All endpoints that accept forms read them here. The meaning of the fields is left to them.

mod json;

pub use json::to_json;

use bytes::{BufMut as _, Bytes, BytesMut};
use memchr::memmem;

use crate::error::{ApiError, ErrorKind};

/// Maximum number of parts: the fields of a request and sixteen images.
const PARTS: usize = 64;
/// Maximum boundary length in bytes (RFC 2046, section 5.1.1).
const BOUNDARY: usize = 70;
/// Maximum length of a part's header in bytes.
const HEAD: usize = 4 * 1024;

/// Part of a form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormPart {
    /// Field name.
    pub name: String,
    /// True if the part is a file, that is, has a file name.
    pub is_file: bool,
    /// Content of the part; a slice of the form's body.
    pub value: Bytes,
}

impl FormPart {
    /// Returns the content as text.
    ///
    /// # Errors
    /// Returns [`ApiError`] if the content is not UTF-8.
    pub fn text(&self) -> Result<&str, ApiError> {
        std::str::from_utf8(&self.value).map_err(|_| {
            let message = format!("'{}' must be text in UTF-8.", self.name);
            ApiError::new(ErrorKind::InvalidField, message).param(self.name.clone())
        })
    }
}

/// Returns the boundary from a `Content-Type` value. `None` if it is not a multipart form or the boundary is invalid.
pub fn boundary(content_type: &str) -> Option<String> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let value = parameter(parameters, "boundary")?;
    (!value.is_empty() && value.len() <= BOUNDARY && value.bytes().all(|byte| (b' '..0x7f).contains(&byte)))
        .then_some(value)
}

/// Returns the value of a header parameter (`; name=value; name="value"`), or `None` if it is missing.
fn parameter(text: &str, wanted: &str) -> Option<String> {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([';', ' ', '\t']);
        let (name, after) = rest.split_once('=')?;
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted_string(quoted)?,
            None => {
                let end = after.find(';').unwrap_or(after.len());
                let (value, next) = after.split_at_checked(end)?;
                (value.trim().to_owned(), next)
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = next;
    }
}

/// Parses a quoted string from behind its opening quote. Returns its value and the rest, or `None` if it is not closed.
fn quoted_string(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            // Browsers escape only quotes; backslashes of a path are sent unescaped.
            '\\' if chars.as_str().starts_with('"') => {
                chars.next();
                value.push('"');
            }
            c => value.push(c),
        }
    }
}

fn broken(what: &str) -> ApiError {
    ApiError::new(ErrorKind::InvalidField, format!("The form is not valid: {what}."))
}

/// Parses a form into its parts.
///
/// # Errors
/// Returns [`ApiError`] if the form is malformed, or has more than `PARTS` parts or a part header above `HEAD` bytes.
pub fn read(body: &Bytes, boundary: &str) -> Result<Vec<FormPart>, ApiError> {
    let delimiter = format!("\r\n--{boundary}");
    let finder = memmem::Finder::new(delimiter.as_bytes());
    // The first delimiter may be the start of the body, without a line break before it.
    let opening = delimiter.get(2..).unwrap_or_default().as_bytes();
    let mut at = if body.starts_with(opening) {
        opening.len()
    } else {
        finder.find(body).ok_or_else(|| broken("its boundary is missing"))? + delimiter.len()
    };
    let mut parts = Vec::new();
    loop {
        let rest = body.get(at..).unwrap_or_default();
        if rest.starts_with(b"--") {
            return Ok(parts);
        }
        // RFC 2046 allows white space behind a boundary.
        let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        if !rest.get(padding..).is_some_and(|rest| rest.starts_with(b"\r\n")) {
            return Err(broken("unexpected bytes follow a boundary"));
        }
        let head_at = at + padding + 2;
        let rest = body.get(head_at..).unwrap_or_default();
        // A part without header fields starts with the empty line.
        let (head, value_at) = if rest.starts_with(b"\r\n") {
            (&[][..], head_at + 2)
        } else {
            // Search `HEAD` bytes only, so that a malformed large file is not scanned for the end of a header.
            let window = rest.get(..HEAD.min(rest.len())).unwrap_or_default();
            let end = memmem::find(window, b"\r\n\r\n").ok_or_else(|| broken("a part has no headers"))?;
            (rest.get(..end).unwrap_or_default(), head_at + end + 4)
        };
        let rest = body.get(value_at..).unwrap_or_default();
        let length = finder.find(rest).ok_or_else(|| broken("its closing boundary is missing"))?;
        if parts.len() == PARTS {
            return Err(broken("it has too many parts"));
        }
        // The slice shares the memory of the body: files are not copied.
        parts.push(part(head, body.slice(value_at..value_at + length))?);
        at = value_at + length + delimiter.len();
    }
}

fn part(head: &[u8], value: Bytes) -> Result<FormPart, ApiError> {
    let head = String::from_utf8_lossy(head);
    let fields = head.split("\r\n").filter_map(|line| line.split_once(':'));
    let mut said = fields.filter(|(name, _)| name.trim().eq_ignore_ascii_case("content-disposition"));
    let parameters = said.next().and_then(|(_, text)| text.split_once(';')).map(|(_, parameters)| parameters);
    let name = parameters.and_then(|parameters| parameter(parameters, "name"));
    let (Some(parameters), Some(name)) = (parameters, name) else {
        return Err(broken("a part has no name"));
    };
    let is_file = ["filename", "filename*"].iter().any(|name| parameter(parameters, name).is_some());
    Ok(FormPart { name, is_file, value })
}

/// Form writer.
#[derive(Debug, Default)]
pub struct FormWriter {
    parts: Vec<(String, Bytes)>,
}

impl FormWriter {
    /// Adds a text field.
    pub fn field(&mut self, name: &str, value: &str) {
        let head = format!("Content-Disposition: form-data; name=\"{}\"\r\n\r\n", quoted(name));
        self.parts.push((head, Bytes::copy_from_slice(value.as_bytes())));
    }

    /// Adds a file.
    pub fn file(&mut self, name: &str, filename: &str, media: &str, value: Bytes) {
        let head = format!(
            "Content-Disposition: form-data; name=\"{}\"; filename=\"{}\"\r\nContent-Type: {media}\r\n\r\n",
            quoted(name),
            quoted(filename)
        );
        self.parts.push((head, value));
    }

    /// Returns the content type, with the boundary, and the body.
    pub fn finish(self) -> (String, Bytes) {
        // The lowest-numbered boundary that occurs nowhere in the content.
        let free = |boundary: &String| {
            let finder = memmem::Finder::new(boundary.as_bytes());
            !self
                .parts
                .iter()
                .any(|(head, value)| finder.find(value).is_some() || finder.find(head.as_bytes()).is_some())
        };
        let mut candidates = (0u64..).map(|number| format!("form-boundary-{number:016x}"));
        let boundary = candidates.find(free).unwrap_or_default();
        let size: usize = self.parts.iter().map(|(head, value)| head.len() + value.len() + 64).sum();
        let mut out = BytesMut::with_capacity(size + 64);
        for (head, value) in &self.parts {
            out.put_slice(b"--");
            out.put_slice(boundary.as_bytes());
            out.put_slice(b"\r\n");
            out.put_slice(head.as_bytes());
            out.put_slice(value);
            out.put_slice(b"\r\n");
        }
        out.put_slice(b"--");
        out.put_slice(boundary.as_bytes());
        out.put_slice(b"--\r\n");
        (format!("multipart/form-data; boundary={boundary}"), out.freeze())
    }
}

/// Escapes a name or file name as browsers do: quotes as `%22`, line breaks as spaces.
fn quoted(text: &str) -> String {
    text.replace('"', "%22").replace(['\r', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SENT: &[u8] = b"preamble\r\n--x y\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\na \"red\"\r\n--x\r\n\
        --x y \t\r\ncontent-type: image/png\r\ncontent-disposition: form-data; filename=\"a;b\\\"c.png\"; name=image[]\r\n\r\n\
        \x89PNG\r\n\r\n--x y\r\nContent-Disposition: form-data; name=empty\r\n\r\n\r\n--x y--\r\nrest";

    #[test]
    fn form_is_parsed_with_quoted_boundary_and_files() {
        let boundary = boundary("Multipart/Form-Data; charset=utf-8; boundary=\"x y\"").unwrap();
        assert_eq!(boundary, "x y");
        let parts = read(&Bytes::from_static(SENT), &boundary).unwrap();
        let expected = [
            FormPart {
                name: "prompt".into(),
                is_file: false,
                value: Bytes::from_static(b"a \"red\"\r\n--x"),
            },
            FormPart { name: "image[]".into(), is_file: true, value: Bytes::from_static(b"\x89PNG\r\n") },
            FormPart { name: "empty".into(), is_file: false, value: Bytes::new() },
        ];
        assert_eq!(parts, expected);
        for none in [
            "application/json",
            "multipart/form-data",
            "multipart/mixed; boundary=x",
            "multipart/form-data; boundary=",
        ] {
            assert_eq!(super::boundary(none), None, "{none}");
        }
    }

    #[test]
    fn form_that_is_broken_is_refused() {
        for (broken, why) in [
            (&b""[..], "boundary is missing"),
            (b"--x", "unexpected bytes"),
            (b"--xy\r\n", "unexpected bytes"),
            (b"--x\r\nContent-Disposition: form-data; name=a\r\n", "no headers"),
            (b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\nvalue", "closing boundary is missing"),
            (b"--x\r\nContent-Disposition: form-data\r\n\r\nvalue\r\n--x--", "no name"),
            (b"--x\r\n\r\nvalue\r\n--x--", "no name"),
        ] {
            let error = read(&Bytes::copy_from_slice(broken), "x").unwrap_err();
            assert!(
                error.message.contains(why),
                "{} for {:?}",
                error.message,
                String::from_utf8_lossy(broken)
            );
        }
        let many = b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n".repeat(65);
        let many = Bytes::from([&many[..], b"--x--"].concat());
        assert!(read(&many, "x").unwrap_err().message.contains("too many"));
    }

    proptest! {
        #[test]
        fn form_of_arbitrary_bytes_never_panics(pieces in proptest::collection::vec(
            prop_oneof![
                Just(b"--x".to_vec()), Just(b"\r\n--x\r\n".to_vec()), Just(b"\r\n\r\n".to_vec()),
                Just(b"--x--".to_vec()), Just(b"; filename=\"".to_vec()),
                Just(b"Content-Disposition: form-data; name=\"a\\\"".to_vec()),
                proptest::collection::vec(any::<u8>(), 0..20),
            ], 0..12), head in ".{0,40}")
        {
            let _ = read(&Bytes::from(pieces.concat()), "x");
            let _ = boundary(&format!("multipart/form-data;{head}"));
        }

        #[test]
        fn form_round_trips(values in proptest::collection::vec(
            (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..60)), 0..6))
        {
            let mut form = FormWriter::default();
            // Content that looks like the form's closing delimiter.
            let end = Bytes::from_static(b"\r\n--form-boundary-0000000000000000--");
            form.file("image", "a.png", "image/png", end);
            for (is_file, value) in &values {
                let text = String::from_utf8_lossy(value).into_owned();
                match is_file {
                    true => form.file("image[]", "x.png", "image/png", Bytes::from(value.clone())),
                    false => form.field("text", &text),
                }
            }
            let (media, body) = form.finish();
            let parts = read(&body, &boundary(&media).unwrap()).unwrap();
            prop_assert_eq!(parts.len(), values.len() + 1);
            for (part, (is_file, value)) in parts.iter().skip(1).zip(&values) {
                let lossy = String::from_utf8_lossy(value).into_owned().into_bytes();
                prop_assert_eq!(part.is_file, *is_file);
                prop_assert_eq!(&part.value[..], if *is_file { &value[..] } else { &lossy[..] });
            }
        }
    }
}
