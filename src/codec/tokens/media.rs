//! Token estimates for images, documents, audio and video.
//!
//! Providers decode these and count each in another way: images by tiles, documents by pages, audio and video by the
//! second. The gateway does not decode them; it estimates from the size in bytes.

use base64_simd::STANDARD;

use crate::canonical::MediaSource;

/// Tokens of an image, whatever its size (docs/token-counting.md).
pub const IMAGE: u64 = 1_000;
/// Tokens of a page: 1,500 to 3,000 (Anthropic, "PDF support"), because pages are processed as text and as an image.
const PAGE: u64 = 2_000;
/// Bytes of a page, for documents without a readable page count.
const PAGE_BYTES: u64 = 50_000;
/// Tokens of a document given by URL or id, whose length is unknown.
const UNSEEN: u64 = 3_000;
/// Tokens of a second of audio (Gemini API, "Audio understanding").
const SOUND_SECOND: u64 = 32;
/// Tokens of a second of video with audio, at one frame per second (Gemini API, "Video understanding").
const VIDEO_SECOND: u64 = 290;
/// Bytes of a second of audio: compressed at 128 kbit/s, and uncompressed with 24,000 samples of 16 bits.
const PACKED_SOUND: u64 = 16_000;
const PLAIN_SOUND: u64 = 48_000;
/// Bytes of a second of video, at 2 Mbit/s.
const VIDEO_BYTES: u64 = 250_000;
/// Assumed seconds of audio or video given by URL or id.
const UNSEEN_SECONDS: u64 = 60;
/// Bytes of base64 that are searched for pages.
const LOOK: usize = 8 << 20;

/// Returns the tokens of a document, or `None` for a text document, which the tokenizer counts.
pub(super) fn document(source: &MediaSource<'_>) -> Option<u64> {
    match source {
        MediaSource::Text { .. } => None,
        MediaSource::Url { .. } | MediaSource::Id { .. } => Some(UNSEEN),
        MediaSource::Base64 { mime, data } => {
            let data = data.escaped();
            if mime.escaped().starts_with("text/") {
                // Encoded text: about four bytes per token.
                return Some(decoded_length(data) / 4);
            }
            let pages = pages(data).unwrap_or(decoded_length(data) / PAGE_BYTES);
            Some(pages.max(1) * PAGE)
        }
    }
}

/// Returns the tokens of audio.
pub(super) fn audio(source: &MediaSource<'_>) -> u64 {
    let seconds = match source {
        MediaSource::Base64 { mime, data } => {
            let plain = ["wav", "pcm", "l16", "x-wav"].iter().any(|kind| mime.escaped().ends_with(kind));
            decoded_length(data.escaped()) / if plain { PLAIN_SOUND } else { PACKED_SOUND } + 1
        }
        _ => UNSEEN_SECONDS,
    };
    seconds * SOUND_SECOND
}

/// Returns the tokens of a video.
pub(super) fn video(source: &MediaSource<'_>) -> u64 {
    let seconds = match source {
        MediaSource::Base64 { data, .. } => decoded_length(data.escaped()) / VIDEO_BYTES + 1,
        _ => UNSEEN_SECONDS,
    };
    seconds * VIDEO_SECOND
}

fn decoded_length(base64: &str) -> u64 {
    base64.len() as u64 / 4 * 3
}

/// Returns the number of `/Type /Page` objects in a PDF, or `None` if there are none outside of its compressed parts.
fn pages(base64: &str) -> Option<u64> {
    let length = base64.len().min(LOOK) / 4 * 4;
    let bytes = STANDARD.decode_to_vec(base64.get(..length)?).ok()?;
    let mut pages = 0;
    for at in memchr::memmem::find_iter(&bytes, b"/Type") {
        let rest = bytes.get(at + 5..).unwrap_or_default().trim_ascii_start();
        let page = rest.strip_prefix(b"/Page");
        pages += u64::from(page.is_some_and(|rest| !rest.first().is_some_and(u8::is_ascii_alphanumeric)));
    }
    (pages > 0).then_some(pages)
}
