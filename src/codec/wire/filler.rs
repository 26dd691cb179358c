//! Keep-alive filler for silent streams: bytes that every reader of the format skips, sent so that no proxy or client
//! on the way times out.

use super::Format;

/// Comment line of server-sent events, which readers skip
/// (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).
const COMMENT: &str = ": keep-alive\n\n";

/// Returns the keep-alive filler of a format; empty if it has none. It may only be written between two frames.
pub const fn filler(format: Format) -> &'static str {
    match format {
        Format::Chat | Format::Responses => COMMENT,
        // Anthropic's own keep-alive event.
        Format::Messages => "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        // The google-genai SDK parses every line that is not empty as data, so a comment would break it. In a JSON
        // array stream this is white space between elements.
        Format::Generate => "\r\n",
        // Every message of an event stream is an event, and SDKs hand events that they do not know to the application.
        Format::Converse => "",
    }
}
