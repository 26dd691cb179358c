//! What is written into a stream that is silent, so that nobody on the way gives it up: what every reader of the format
//! steps over.

use super::Format;

/// A comment, which is nothing to a reader of server-sent events.
const COMMENT: &str = ": keep-alive\n\n";

/// The filler of a format's streams. It stands between frames.
pub const fn filler(format: Format) -> &'static str {
    match format {
        Format::Chat | Format::Responses => COMMENT,
        // The provider's own.
        Format::Messages => "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        // google-genai takes every line that is not empty for data. Between the elements of an array this is white
        // space.
        Format::Generate => "\r\n",
    }
}
