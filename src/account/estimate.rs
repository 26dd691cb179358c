//! What is expected of a request before it is asked, and of an answer whose vendor does not say.

/// Bytes of text that make a token, where nothing better is known: about right for English and for code, and more
/// tokens than there are for most other writing, whose characters take more bytes.
const BYTES_PER_TOKEN: u64 = 4;
/// Tokens of an image or another medium (specification, section 8: about 1000 for an image).
const MEDIUM: u64 = 1_000;
/// Media are looked for in steps of so many bytes: what is shorter is counted as text.
const STEP: usize = 1_024;
/// So many bytes in a row without anything that text has are base64.
const SAMPLE: usize = 48;
/// Bodies up to this size hold no medium worth looking for.
const SMALL: usize = 16 * 1_024;

/// Tokens of a text of so many bytes.
pub fn text(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// Tokens of a request's body, given in pieces: a quarter of its bytes, but base64, of which a whole medium counts as
/// one image. Looks at a twentieth of a large body, and at nothing of a small one.
pub fn body<'p>(pieces: impl Iterator<Item = &'p [u8]> + Clone) -> u64 {
    let length: usize = pieces.clone().map(<[u8]>::len).sum();
    if length <= SMALL {
        return text(length as u64);
    }
    let (mut encoded, mut media, mut inside) = (0u64, 0u64, false);
    for piece in pieces {
        for step in piece.chunks(STEP) {
            let sample = step.get(step.len().saturating_sub(SAMPLE)..).unwrap_or_default();
            let base64 = step.len() == STEP && sample.iter().all(|byte| is_base64(*byte));
            if base64 {
                encoded += STEP as u64;
                media += u64::from(!inside);
            }
            inside = base64;
        }
    }
    text((length as u64).saturating_sub(encoded)) + media * MEDIUM
}

/// As JSON spells it: a slash may have a backslash before it.
fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_' | b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces<'p>(all: &'p [&'p [u8]]) -> impl Iterator<Item = &'p [u8]> + Clone {
        all.iter().copied()
    }

    #[test]
    fn text_is_a_quarter_of_its_bytes() {
        assert_eq!(body(pieces(&[])), 0);
        assert_eq!(body(pieces(&[b"12345"])), 2);
        let words = b"some words ".repeat(10_000);
        assert_eq!(body(pieces(&[&words])), 27_500);
        let chinese = "\u{6587}\u{5b57}".repeat(10_000);
        assert_eq!(body(pieces(&[chinese.as_bytes()])), 15_000);
    }

    #[test]
    fn an_image_is_not_counted_by_its_bytes() {
        let image = b"iVBORw0KGgoAAAANSUhEUg".repeat(100_000);
        let words = b"some words ".repeat(1_000);
        let tokens = body(pieces(&[&words, &image, &words]));
        assert!((6_000..8_000).contains(&tokens), "{tokens}");
        let two = body(pieces(&[&words, &image, &words, &image]));
        assert!((7_000..9_000).contains(&two), "{two}");
    }
}
