//! What is taken for tokens without being read: pictures, documents, sounds, videos.
//!
//! Providers count these after decoding them, each in another way (pictures by tiles, documents by pages, sounds and
//! videos by the second). Here they are not decoded: what is known is how many bytes they have.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::canonical::Source;

/// A picture (specification, sections 4.3 and 8).
pub const IMAGE: u64 = 1_000;
/// A page of a document: 1,500 to 3,000 (Anthropic, "PDF support"), as text and as a picture.
const PAGE: u64 = 2_000;
/// Bytes of a page, in documents that do not tell how many pages they have.
const PAGE_BYTES: u64 = 50_000;
/// A document behind an address or an id: its length is not known.
const UNSEEN: u64 = 3_000;
/// A second of sound (Gemini API, "Audio understanding").
const SOUND_SECOND: u64 = 32;
/// A second of video with sound, one picture a second (Gemini API, "Video understanding").
const VIDEO_SECOND: u64 = 290;
/// Bytes of a second of sound: 128 kbit/s, and 24,000 samples of 16 bits.
const PACKED_SOUND: u64 = 16_000;
const PLAIN_SOUND: u64 = 48_000;
/// Bytes of a second of video: 2 Mbit/s.
const VIDEO_BYTES: u64 = 250_000;
/// Seconds of a sound or a video behind an address or an id.
const UNSEEN_SECONDS: u64 = 60;
/// So much of a document is looked through for pages.
const LOOK: usize = 8 << 20;

/// A document; nothing for one that is text, which is counted as such.
pub(super) fn document(source: &Source<'_>) -> Option<u64> {
    match source {
        Source::Text { .. } => None,
        Source::Url { .. } | Source::Id { .. } => Some(UNSEEN),
        Source::Base64 { mime, data } => {
            let data = data.escaped();
            if mime.escaped().starts_with("text/") {
                // The bytes of the text, four to a token.
                return Some(decoded_length(data) / 4);
            }
            let pages = pages(data).unwrap_or(decoded_length(data) / PAGE_BYTES);
            Some(pages.max(1) * PAGE)
        }
    }
}

/// A sound.
pub(super) fn audio(source: &Source<'_>) -> u64 {
    let seconds = match source {
        Source::Base64 { mime, data } => {
            let plain = ["wav", "pcm", "l16", "x-wav"].iter().any(|kind| mime.escaped().ends_with(kind));
            decoded_length(data.escaped()) / if plain { PLAIN_SOUND } else { PACKED_SOUND } + 1
        }
        _ => UNSEEN_SECONDS,
    };
    seconds * SOUND_SECOND
}

/// A video.
pub(super) fn video(source: &Source<'_>) -> u64 {
    let seconds = match source {
        Source::Base64 { data, .. } => decoded_length(data.escaped()) / VIDEO_BYTES + 1,
        _ => UNSEEN_SECONDS,
    };
    seconds * VIDEO_SECOND
}

fn decoded_length(base64: &str) -> u64 {
    base64.len() as u64 / 4 * 3
}

/// The pages that a PDF names; nothing where they stand in a compressed part of it.
fn pages(base64: &str) -> Option<u64> {
    let length = base64.len().min(LOOK) / 4 * 4;
    let bytes = STANDARD.decode(base64.get(..length)?).ok()?;
    let mut pages = 0;
    for at in memchr::memmem::find_iter(&bytes, b"/Type") {
        let rest = bytes.get(at + 5..).unwrap_or_default().trim_ascii_start();
        let page = rest.strip_prefix(b"/Page");
        pages += u64::from(page.is_some_and(|rest| !rest.first().is_some_and(u8::is_ascii_alphanumeric)));
    }
    (pages > 0).then_some(pages)
}
