//! What is expected of a request before it is asked, and of an answer whose provider does not say.

use smallvec::SmallVec;

use super::price::TokenKind;
use crate::canonical::Product;

/// Output that money is held for where the client sets no limit of its own.
const OUTPUT: u64 = 4_096;
/// Output tokens of a client's own limit that count for the tokens of a minute before the answer is there: what clients
/// ask for at most is far more than what they get.
const OUTPUT_PER_MINUTE: u64 = 4_096;

/// Expected usage of a request, for its reservation.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExpectedUsage<'m> {
    /// Input tokens.
    pub input: u64,
    /// The client's own limit of the output tokens of one answer.
    pub output: Option<u64>,
    /// What a limit permits at least that the provider may not know.
    pub unsure: u64,
    /// Answers that the client wants at once; none and one are the same.
    pub answers: u64,
    /// Kinds of input that it may have, dearer than plain input.
    pub dear: PremiumInputKinds,
    /// What may be made besides tokens.
    pub made: &'m [Product],
}

impl ExpectedUsage<'_> {
    /// Output tokens that money is held for.
    pub fn all_output(&self) -> u64 {
        self.output.unwrap_or(OUTPUT).max(self.unsure).saturating_mul(self.answers.max(1))
    }

    /// Tokens that count for the minute until the answer is there.
    pub fn of_minute(&self) -> u64 {
        let output = self.output.unwrap_or(0).min(OUTPUT_PER_MINUTE);
        self.input.saturating_add(output.saturating_mul(self.answers.max(1)))
    }
}

/// Kinds of input tokens whose price may be higher than that of plain input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PremiumInputKinds(u8);

impl PremiumInputKinds {
    /// Those that may be in it.
    pub const KINDS: [TokenKind; 4] =
        [TokenKind::CacheWrite, TokenKind::CacheWrite1h, TokenKind::AudioInput, TokenKind::ImageInput];

    /// A set of these kinds.
    pub fn of(kinds: impl Iterator<Item = TokenKind>) -> PremiumInputKinds {
        PremiumInputKinds(kinds.fold(0, |set, kind| set | PremiumInputKinds::bit(kind)))
    }

    fn bit(kind: TokenKind) -> u8 {
        PremiumInputKinds::KINDS.iter().position(|known| *known == kind).map_or(0, |at| 1 << at)
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those in it.
    pub fn kinds(self) -> impl Iterator<Item = TokenKind> {
        PremiumInputKinds::KINDS.into_iter().filter(move |kind| self.0 & PremiumInputKinds::bit(*kind) != 0)
    }

    /// Those of them that a body may have, given in pieces: it has none without naming it. A body that spells plain
    /// letters as escapes may hide a name, and may have all.
    pub fn in_body<'p>(self, pieces: impl Iterator<Item = &'p [u8]> + Clone) -> PremiumInputKinds {
        if self.is_empty() || names(pieces.clone(), b"\\u00") {
            return self;
        }
        let words = |kind: &TokenKind| -> &[&[u8]] {
            match kind {
                TokenKind::CacheWrite => &[b"cache_control"],
                TokenKind::CacheWrite1h => &[b"\"1h\""],
                TokenKind::AudioInput => &[b"audio", b"video"],
                _ => &[b"image"],
            }
        };
        PremiumInputKinds::of(
            self.kinds().filter(|kind| words(kind).iter().any(|word| names(pieces.clone(), word))),
        )
    }
}

/// Whether a text in pieces has a word, also across their bounds.
fn names<'p>(pieces: impl Iterator<Item = &'p [u8]>, word: &[u8]) -> bool {
    let finder = memchr::memmem::Finder::new(word);
    let (mut before, rest) = (SmallVec::<[u8; 32]>::new(), word.len().saturating_sub(1));
    for piece in pieces {
        let joined = before.len() + piece.len().min(rest);
        before.extend_from_slice(piece.get(..rest).unwrap_or(piece));
        if finder.find(&before).is_some() || finder.find(piece).is_some() {
            return true;
        }
        if piece.len() >= rest {
            before.clear();
            before.extend_from_slice(piece.get(piece.len() - rest..).unwrap_or_default());
        } else {
            before.drain(..joined.saturating_sub(rest));
        }
    }
    false
}

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
    fn a_body_has_what_it_names_wherever_it_is_cut() {
        let all = PremiumInputKinds::of(PremiumInputKinds::KINDS.into_iter());
        for (text, kinds) in [
            (r#"{"a":"plain \n ü"}"#, &[][..]),
            (r#"{"cache_control":{"type":"ephemeral"}}"#, &[TokenKind::CacheWrite]),
            (r#"{"cache_control":{"ttl":"1h"}}"#, &[TokenKind::CacheWrite, TokenKind::CacheWrite1h]),
            (r#"{"type":"input_audio"}"#, &[TokenKind::AudioInput]),
            (r#"{"mimeType":"video/mp4"}"#, &[TokenKind::AudioInput]),
            (r#"{"type":"image_url"}"#, &[TokenKind::ImageInput]),
            (r#"{"c\u0061che_control":1}"#, &PremiumInputKinds::KINDS),
        ] {
            let expected = PremiumInputKinds::of(kinds.iter().copied());
            for size in 1..=text.len() {
                let pieces = text.as_bytes().chunks(size);
                assert_eq!(all.in_body(pieces), expected, "{text} in pieces of {size}");
            }
            assert!(PremiumInputKinds::default().in_body(pieces(&[text.as_bytes()])).is_empty());
        }
    }

    #[test]
    fn several_answers_are_expected_to_have_the_output_of_several() {
        let expected = ExpectedUsage { input: 10, output: Some(100), answers: 3, ..ExpectedUsage::default() };
        assert_eq!((expected.all_output(), expected.of_minute()), (300, 310));
        let open = ExpectedUsage { input: 10, output: None, ..expected };
        assert_eq!((open.all_output(), open.of_minute()), (3 * 4_096, 10));
        assert_eq!(ExpectedUsage { answers: 0, ..open }.all_output(), 4_096);
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
