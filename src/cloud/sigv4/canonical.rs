//! Canonical form of a request: the text whose hash is signed.

use percent_encoding::percent_decode_str;
use sha2::{Digest as _, Sha256};

use super::{SigningDate, hex, push_hex};

/// Hash of a request body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadHash(String);

impl PayloadHash {
    /// Hashes a body that is held in pieces.
    pub fn of<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Self {
        let mut hasher = PayloadHasher::default();
        for piece in pieces {
            hasher.update(piece);
        }
        hasher.finish()
    }

    /// Returns the hash, in lower-case hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Hash of a request body that arrives in pieces.
#[derive(Clone, Debug, Default)]
pub struct PayloadHasher(Sha256);

impl PayloadHasher {
    /// Adds a piece of the body.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Returns the hash of all pieces.
    pub fn finish(self) -> PayloadHash {
        PayloadHash(hex(&self.0.finalize()))
    }
}

/// Encoding of the path in the canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathEncoding {
    /// Dot segments and repeated slashes are resolved, and every byte of the path as sent is encoded once more: `%3A`
    /// becomes `%253A`. All services except S3.
    Normalized,
    /// Every byte is encoded once more; the segments stay as they are.
    Segments,
}

/// Request to be signed or verified.
#[derive(Clone, Copy, Debug)]
pub struct CanonicalRequest<'a> {
    /// Method, in capitals.
    pub method: &'a str,
    /// Path and query exactly as they are sent, with their percent-encoding.
    pub target: &'a str,
    /// Headers to sign, in any order and case. The host must be among them; the date must not, because it is added.
    pub headers: &'a [(&'a str, &'a str)],
    /// Hash of the body exactly as it is sent.
    pub payload: &'a PayloadHash,
    /// Encoding of the path.
    pub path_encoding: PathEncoding,
}

/// Canonical form with the names of its headers.
#[derive(Debug)]
pub(super) struct Canonical {
    /// Text whose hash is signed.
    pub(super) text: Vec<u8>,
    /// Names of the signed headers in lower case, sorted and joined with semicolons.
    pub(super) signed_headers: String,
}

impl CanonicalRequest<'_> {
    /// Builds the canonical form. `date` becomes the header `x-amz-date`, `token` the header `x-amz-security-token`.
    pub(super) fn build(&self, date: &SigningDate, token: Option<&str>) -> Canonical {
        let (path, query) = self.target.split_once('?').unwrap_or((self.target, ""));
        let mut text = Vec::with_capacity(512 + self.target.len() * 2);
        text.extend_from_slice(self.method.as_bytes());
        text.push(b'\n');
        match self.path_encoding {
            PathEncoding::Normalized => push_normalized(path, &mut text),
            PathEncoding::Segments => push_encoded(path.as_bytes(), true, &mut text),
        }
        text.push(b'\n');
        push_query(query, &mut text);
        text.push(b'\n');
        let mut headers: Vec<(String, &str)> =
            self.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), *value)).collect();
        headers.push(("x-amz-date".to_owned(), date.as_str()));
        headers.extend(token.map(|token| ("x-amz-security-token".to_owned(), token)));
        // Stable: values of a repeated header keep their order.
        headers.sort_by(|one, other| one.0.cmp(&other.0));
        let mut signed_headers = String::new();
        for group in headers.chunk_by(|one, other| one.0 == other.0) {
            let Some((name, _)) = group.first() else { continue };
            if !signed_headers.is_empty() {
                signed_headers.push(';');
            }
            signed_headers.push_str(name);
            text.extend_from_slice(name.as_bytes());
            for (index, (_, value)) in group.iter().enumerate() {
                text.push(if index == 0 { b':' } else { b',' });
                push_trimmed(value, &mut text);
            }
            text.push(b'\n');
        }
        text.push(b'\n');
        text.extend_from_slice(signed_headers.as_bytes());
        text.push(b'\n');
        text.extend_from_slice(self.payload.as_str().as_bytes());
        Canonical { text, signed_headers }
    }
}

impl Canonical {
    /// Appends the hash of the canonical form to the string to sign.
    pub(super) fn push_hash(&self, out: &mut Vec<u8>) {
        push_hex(&Sha256::digest(&self.text), out);
    }
}

/// Returns whether a byte stands for itself in the canonical form.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Appends bytes with percent-encoding in capitals. With `is_path`, slashes stand for themselves.
fn push_encoded(bytes: &[u8], is_path: bool, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if is_plain(byte) || (is_path && byte == b'/') {
            out.push(byte);
        } else {
            out.push(b'%');
            out.extend(DIGITS.get(usize::from(byte >> 4)));
            out.extend(DIGITS.get(usize::from(byte & 15)));
        }
    }
}

/// Returns whether the path of a target has neither empty nor dot segments. A slash at its end is part of it.
pub fn is_normalized(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    path.is_empty() && !target.starts_with("//")
        || !path.is_empty() && path.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
}

/// Appends a path without empty and dot segments, encoded.
fn push_normalized(path: &str, out: &mut Vec<u8>) {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    for segment in &segments {
        out.push(b'/');
        push_encoded(segment.as_bytes(), false, out);
    }
    if segments.is_empty() || path.ends_with('/') {
        out.push(b'/');
    }
}

/// Appends the parameters of a query, each encoded once and sorted by their encoded form.
fn push_query(query: &str, out: &mut Vec<u8>) {
    let encoded = |text: &str| {
        let bytes: Vec<u8> = percent_decode_str(text).collect();
        let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 2);
        push_encoded(&bytes, false, &mut out);
        out
    };
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    let mut parameters: Vec<(Vec<u8>, Vec<u8>)> = parameters
        .map(|parameter| {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            (encoded(name), encoded(value))
        })
        .collect();
    parameters.sort_unstable();
    for (index, (name, value)) in parameters.iter().enumerate() {
        if index > 0 {
            out.push(b'&');
        }
        out.extend_from_slice(name);
        out.push(b'=');
        out.extend_from_slice(value);
    }
}

/// Appends the value of a header without space around it, and with one space for each run of white space inside.
fn push_trimmed(value: &str, out: &mut Vec<u8>) {
    for (index, word) in value.split_ascii_whitespace().enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(word.as_bytes());
    }
}
