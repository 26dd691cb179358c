//! Documents: their formats, and names that the service accepts.

use std::collections::HashSet;

use base64_simd::STANDARD;

use crate::canonical::MediaSource;
use crate::wire::converse::media::{self, MediaKind};
use json::JsonStr;

/// Maximum length of a document name, in characters.
const MAX_NAME: usize = 200;

/// Name of a document that has none. The model reads names, so that a neutral one is best.
const UNNAMED: &str = "document";

/// Names of the documents of a request, which must be unique.
#[derive(Default)]
pub(super) struct DocumentNames(HashSet<String, foldhash::fast::RandomState>);

impl DocumentNames {
    /// Returns a valid and unique name: letters, digits, single spaces, hyphens, parentheses and brackets. The
    /// extension is left out.
    pub(super) fn unique(&mut self, name: JsonStr<'_>) -> String {
        let name = name.decode();
        let stem = match media::format_of_name(&name) {
            Some(_) => name.rsplit_once('.').map_or(&*name, |(stem, _)| stem),
            None => &name,
        };
        let is_kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '(' | ')' | '[' | ']');
        let mut valid = String::new();
        for c in stem.chars().take(MAX_NAME) {
            if is_kept(c) {
                valid.push(c);
            } else if !valid.ends_with(' ') {
                valid.push(' ');
            }
        }
        // Room for a number.
        let valid: String = valid.trim().chars().take(MAX_NAME - 16).collect();
        let valid = if valid.trim().is_empty() { UNNAMED.to_owned() } else { valid.trim().to_owned() };
        if self.0.insert(valid.clone()) {
            return valid;
        }
        // The number of names bounds the search, and it starts where a list of equal names has arrived.
        let first = self.0.len().saturating_add(1);
        let numbered = |number: usize| format!("{valid} ({number})");
        let mut number = first;
        while !self.0.insert(numbered(number)) {
            number = number.saturating_add(1);
        }
        numbered(number)
    }
}

/// Content of a document in this format.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DocumentContent<'a> {
    /// Bytes in base64, with their format.
    Bytes(&'static str, JsonStr<'a>),
    /// Text, whose bytes are still to be encoded.
    Text(JsonStr<'a>),
    /// An image, which is a block of its own.
    Image(&'static str, JsonStr<'a>),
    /// Object in the storage of the provider.
    Stored(&'static str, JsonStr<'a>),
    /// A type that this format does not support.
    Unknown,
}

impl<'a> DocumentContent<'a> {
    /// Detects the format: by the first bytes, the media type, the extension of the name, and by whether the data is
    /// text. `None` for a source that the service cannot read.
    pub(super) fn of(source: MediaSource<'a>, name: JsonStr<'a>) -> Option<Self> {
        match source {
            MediaSource::Base64 { mime, data } => Some(DocumentContent::of_bytes(mime, data, name)),
            MediaSource::Text { text } => Some(DocumentContent::Text(text)),
            MediaSource::Url { url, mime } if is_stored(url) => {
                let format = MediaKind::Document.format(&mime.decode());
                Some(DocumentContent::Stored(format.or_else(|| media::format_of_name(&url.decode()))?, url))
            }
            MediaSource::Url { .. } | MediaSource::Id { .. } => None,
        }
    }

    fn of_bytes(mime: JsonStr<'a>, data: JsonStr<'a>, name: JsonStr<'a>) -> Self {
        if data.escaped().starts_with("JVBERi0") {
            return DocumentContent::Bytes("pdf", data);
        }
        let media_type = mime.decode();
        if let Some(format) = MediaKind::Document.format(&media_type).filter(|format| *format != "txt") {
            return DocumentContent::Bytes(format, data);
        }
        let image = media::format_of_bytes(data.escaped()).filter(|_| !media_type.starts_with("audio/"));
        if let Some(format) = image.or_else(|| MediaKind::Image.format(&media_type)) {
            return DocumentContent::Image(format, data);
        }
        if let Some(format) = media::format_of_name(&name.decode()) {
            return DocumentContent::Bytes(format, data);
        }
        match STANDARD.decode_to_vec(data.decode().as_bytes()) {
            Ok(bytes) if std::str::from_utf8(&bytes).is_ok_and(|text| !text.contains('\0')) => {
                DocumentContent::Bytes("txt", data)
            }
            _ => DocumentContent::Unknown,
        }
    }
}

/// Returns whether an address is one of the provider's storage.
pub(super) fn is_stored(url: JsonStr<'_>) -> bool {
    url.escaped().starts_with("s3:")
}
