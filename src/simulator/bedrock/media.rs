//! Images, documents, videos and recordings of a Converse request, and their limits.
//!
//! Source of the limits: the user guide of the service, November 2026.

use super::super::ids::decode_base64;
use super::super::script::Media;
use super::errors::{ApiError, Fields, constraint, missing};
use super::models::Model;

/// Maximum number of images in a message.
const IMAGES: usize = 20;
/// Maximum size of an image in bytes: 3.75 MB.
const IMAGE_BYTES: usize = 3_932_160;
/// Maximum number of documents in a message.
const DOCUMENTS: usize = 5;
/// Maximum size of a document in bytes: 4.5 MB.
const DOCUMENT_BYTES: usize = 4_718_592;
/// Maximum size of other media in bytes: 25 MB.
const MEDIA_BYTES: usize = 25_000_000;

const IMAGE_FORMATS: &[&str] = &["png", "jpeg", "gif", "webp"];
const DOCUMENT_FORMATS: &[&str] = &["pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"];
const VIDEO_FORMATS: &[&str] = &["mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"];
const AUDIO_FORMATS: &[&str] = &[
    "mp3", "opus", "wav", "aac", "flac", "mp4", "ogg", "mkv", "mka", "x-aac", "m4a", "mpeg", "mpga", "pcm",
    "webm",
];

/// Media of a message, and the names of all documents of the request.
#[derive(Debug, Default)]
pub(super) struct Attachments<'a> {
    images: usize,
    documents: usize,
    names: Vec<&'a str>,
}

impl<'a> Attachments<'a> {
    /// Returns the state for the next message.
    pub(super) fn next_turn(&mut self) -> Attachments<'a> {
        Attachments { images: 0, documents: 0, names: std::mem::take(&mut self.names) }
    }

    /// Checks and counts an item.
    pub(super) fn add(
        &mut self,
        kind: &str,
        item: &Fields<'a>,
        model: &Model,
        count: &mut Media,
    ) -> Result<(), ApiError> {
        let unsupported = || {
            ApiError::invalid(format!(
                "This model doesn't support the {kind} content block that you provided. Update the content block and \
                 try again."
            ))
        };
        match kind {
            "image" => {
                item.only(&["format", "source"])?;
                format(item, IMAGE_FORMATS, true)?;
                source(item, &["bytes", "s3Location"], IMAGE_BYTES, model)?;
                self.images += 1;
                count.images += 1;
                if self.images > IMAGES {
                    return Err(ApiError::invalid(format!(
                        "Too many images: the maximum is {IMAGES} in a message."
                    )));
                }
            }
            "document" => {
                item.only(&["format", "name", "source", "context", "citations"])?;
                format(item, DOCUMENT_FORMATS, false)?;
                source(item, &["bytes", "s3Location", "text", "content"], DOCUMENT_BYTES, model)?;
                self.name(item)?;
                self.documents += 1;
                count.documents += 1;
                if self.documents > DOCUMENTS {
                    return Err(ApiError::invalid(format!(
                        "Too many documents: the maximum is {DOCUMENTS} in a message."
                    )));
                }
            }
            "video" => {
                if !model.takes_video() {
                    return Err(unsupported());
                }
                item.only(&["format", "source"])?;
                format(item, VIDEO_FORMATS, true)?;
                source(item, &["bytes", "s3Location"], MEDIA_BYTES, model)?;
                count.videos += 1;
            }
            _ => {
                if !model.takes_audio() {
                    return Err(unsupported());
                }
                item.only(&["format", "source"])?;
                format(item, AUDIO_FORMATS, true)?;
                source(item, &["bytes", "s3Location"], MEDIA_BYTES, model)?;
                count.recordings += 1;
            }
        }
        Ok(())
    }

    fn name(&mut self, document: &Fields<'a>) -> Result<(), ApiError> {
        let name = document.require("name")?;
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '(' | ')' | '[' | ']');
        if !(1..=200).contains(&name.len()) || !name.chars().all(legal) || name.contains("  ") {
            return Err(ApiError::invalid(
                "The document file name can only contain alphanumeric characters, whitespace characters, hyphens, \
                 parentheses, and square brackets. The name can't contain more than one consecutive whitespace \
                 character.",
            ));
        }
        if self.names.contains(&name) {
            return Err(ApiError::invalid("The messages field contains duplicate document names."));
        }
        self.names.push(name);
        Ok(())
    }
}

fn format(item: &Fields<'_>, known: &[&str], required: bool) -> Result<(), ApiError> {
    match item.string("format")? {
        Some(format) if known.contains(&format) => Ok(()),
        Some(format) => {
            let rule = format!("satisfy enum value set: [{}]", known.join(", "));
            Err(constraint(&item.at("format"), format, &rule))
        }
        None if required => Err(missing(&item.at("format"))),
        None => Ok(()),
    }
}

fn source(item: &Fields<'_>, known: &[&str], most: usize, model: &Model) -> Result<(), ApiError> {
    let source = item.object("source")?.ok_or_else(|| missing(&item.at("source")))?;
    source.only(known)?;
    let (kind, value) = source.one()?;
    match kind {
        "bytes" => {
            let path = source.at("bytes");
            let bytes = value.as_str().and_then(decode_base64).ok_or_else(|| invalid_base64(&path))?;
            if bytes.is_empty() || bytes.len() > most {
                return Err(ApiError::invalid(format!(
                    "The value at {path} has {} bytes; the minimum is 1 and the maximum {most}.",
                    bytes.len()
                )));
            }
            Ok(())
        }
        "s3Location" => {
            let location = Fields::new(value, source.at(kind))?;
            location.only(&["uri", "bucketOwner"])?;
            if !location.require("uri")?.starts_with("s3://") {
                return Err(ApiError::invalid("The provided S3 URI is invalid."));
            }
            if model.takes_video() {
                return Ok(());
            }
            Err(ApiError::invalid("This model doesn't support the s3Uri field. Remove s3Uri and try again."))
        }
        _ => Ok(()),
    }
}

/// Returns the error of the service's reader for a blob that is not base64.
pub(super) fn invalid_base64(path: &str) -> ApiError {
    ApiError::new(400, "SerializationException", format!("Unable to decode the base64 value at {path}."))
}
