//! Names of media formats: Converse names the format of media, other formats its media type.

/// Names of image formats and their media types.
const IMAGES: [(&str, &str); 4] =
    [("png", "image/png"), ("jpeg", "image/jpeg"), ("gif", "image/gif"), ("webp", "image/webp")];

/// Names of document formats and their media types.
const DOCUMENTS: [(&str, &str); 9] = [
    ("pdf", "application/pdf"),
    ("csv", "text/csv"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("html", "text/html"),
    ("txt", "text/plain"),
    ("md", "text/markdown"),
];

/// Names of audio formats and their media types.
const AUDIO: [(&str, &str); 14] = [
    ("mp3", "audio/mp3"),
    ("mp3", "audio/mpeg"),
    ("mpeg", "audio/mpeg"),
    ("wav", "audio/wav"),
    ("wav", "audio/x-wav"),
    ("aac", "audio/aac"),
    ("flac", "audio/flac"),
    ("ogg", "audio/ogg"),
    ("opus", "audio/opus"),
    ("m4a", "audio/m4a"),
    ("mp4", "audio/mp4"),
    ("mka", "audio/x-matroska"),
    ("pcm", "audio/pcm"),
    ("webm", "audio/webm"),
];

/// Names of video formats and their media types.
const VIDEO: [(&str, &str); 9] = [
    ("mp4", "video/mp4"),
    ("mov", "video/quicktime"),
    ("mkv", "video/x-matroska"),
    ("webm", "video/webm"),
    ("flv", "video/x-flv"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpg"),
    ("wmv", "video/x-ms-wmv"),
    ("three_gp", "video/3gpp"),
];

/// Kind of media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MediaKind {
    Image,
    Document,
    Audio,
    Video,
}

impl MediaKind {
    fn table(self) -> &'static [(&'static str, &'static str)] {
        match self {
            MediaKind::Image => &IMAGES,
            MediaKind::Document => &DOCUMENTS,
            MediaKind::Audio => &AUDIO,
            MediaKind::Video => &VIDEO,
        }
    }

    /// Returns the member that a block of this kind has.
    pub(super) const fn member(self) -> &'static str {
        match self {
            MediaKind::Image => "image",
            MediaKind::Document => "document",
            MediaKind::Audio => "audio",
            MediaKind::Video => "video",
        }
    }

    /// Returns the media type of a format. Empty for an unknown one. Bedrock accepts a media type in place of a format.
    pub(super) fn media_type(self, format: &str) -> &'static str {
        let own = |(name, media_type): &&(&str, &str)| {
            name.eq_ignore_ascii_case(format) || media_type.eq_ignore_ascii_case(format)
        };
        self.table().iter().find(own).map_or("", |(_, media_type)| media_type)
    }

    /// Returns the format of a media type, whose parameters do not count. `None` if Converse has no such format.
    pub(super) fn format(self, media_type: &str) -> Option<&'static str> {
        let plain = media_type.split(';').next().unwrap_or_default().trim();
        let plain = if plain.eq_ignore_ascii_case("image/jpg") { "image/jpeg" } else { plain };
        let own = |(_, known): &&(&str, &str)| known.eq_ignore_ascii_case(plain);
        self.table().iter().find(own).map(|(name, _)| *name)
    }
}

/// Returns the format of a document by the extension of its name. `None` for an unknown one.
pub(super) fn format_of_name(name: &str) -> Option<&'static str> {
    let (_, extension) = name.rsplit_once('.')?;
    let extension = if extension.eq_ignore_ascii_case("htm") { "html" } else { extension };
    DOCUMENTS.iter().find(|(format, _)| format.eq_ignore_ascii_case(extension)).map(|(format, _)| *format)
}

/// Returns the format of an image by its first bytes, in base64. `None` if they are of none.
pub(super) fn format_of_bytes(base64: &str) -> Option<&'static str> {
    const STARTS: [(&str, &str); 5] = [
        ("iVBORw0KGgo", "png"),
        ("/9j/", "jpeg"),
        ("\\/9j\\/", "jpeg"),
        ("R0lGOD", "gif"),
        ("UklGR", "webp"),
    ];
    STARTS.iter().find(|(start, _)| base64.starts_with(start)).map(|(_, format)| *format)
}
