//! Usage estimates: of a request before it is sent, and of a response whose provider reports no usage.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use smallvec::SmallVec;

use super::price::TokenKind;
use codec::canonical::{CacheBreakpoint, CachePolicy, Product, Region, TierSet};

/// Output tokens that are reserved for if the client sets no limit.
const OUTPUT: u64 = 4_096;
/// Maximum output tokens of the client's limit that count for tokens per minute before the response arrives. Clients
/// set limits far above what responses use.
const OUTPUT_PER_MINUTE: u64 = 4_096;

/// Expected usage of a request, for its reservation.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExpectedUsage<'m> {
    /// Input tokens.
    pub input: u64,
    /// The client's limit of output tokens for one response. `None` if it sets none.
    pub output: Option<u64>,
    /// Output limit from members that belong to other APIs, in tokens; 0 if there is none. A provider may ignore these
    /// members, so they can only raise the expected output.
    pub uncertain_output: u64,
    /// Number of responses requested; 0 counts as 1.
    pub responses: u64,
    /// Kinds of input in the request that cost more than plain input.
    pub premium_input: PremiumInputKinds,
    /// Products other than tokens that the request may make.
    pub products: &'m [Product],
    /// Start of the request, in Unix seconds.
    pub at: i64,
    /// Service tiers in which the request may be served.
    pub tiers: TierSet,
    /// Region that the request asks for, or that serves it. `None` for none with a price of its own.
    pub region: Option<Region>,
}

impl ExpectedUsage<'_> {
    /// Returns the output tokens to reserve for.
    pub fn reserved_output(&self) -> u64 {
        self.output.unwrap_or(OUTPUT).max(self.uncertain_output).saturating_mul(self.responses.max(1))
    }

    /// Returns the tokens to count for tokens per minute until the response arrives.
    pub fn minute_tokens(&self) -> u64 {
        let output = self.output.unwrap_or(0).min(OUTPUT_PER_MINUTE);
        self.input.saturating_add(output.saturating_mul(self.responses.max(1)))
    }
}

/// Kinds of input tokens whose price may be higher than that of plain input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PremiumInputKinds(u8);

impl PremiumInputKinds {
    /// Kinds that a set can contain.
    pub const KINDS: [TokenKind; 5] = [
        TokenKind::CacheWrite,
        TokenKind::CacheWrite1h,
        TokenKind::CacheWrite12h,
        TokenKind::AudioInput,
        TokenKind::ImageInput,
    ];

    /// Creates a set of these kinds.
    pub fn of(kinds: impl Iterator<Item = TokenKind>) -> PremiumInputKinds {
        PremiumInputKinds(kinds.fold(0, |set, kind| set | PremiumInputKinds::bit(kind)))
    }

    fn bit(kind: TokenKind) -> u8 {
        PremiumInputKinds::KINDS.iter().position(|known| *known == kind).map_or(0, |at| 1 << at)
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the kinds in the set.
    pub fn kinds(self) -> impl Iterator<Item = TokenKind> {
        PremiumInputKinds::KINDS.into_iter().filter(move |kind| self.0 & PremiumInputKinds::bit(*kind) != 0)
    }

    /// Returns the kinds of this set that automatic prompt-cache breakpoints of a policy may cause.
    pub fn of_policy(self, policy: CachePolicy) -> PremiumInputKinds {
        let caused = PremiumInputKinds::of(policy.lifetimes().iter().map(|lifetime| match lifetime {
            CacheBreakpoint::Short => TokenKind::CacheWrite,
            CacheBreakpoint::Long => TokenKind::CacheWrite1h,
        }));
        PremiumInputKinds(self.0 & caused.0)
    }

    /// Returns the kinds of both sets.
    pub fn or(self, other: PremiumInputKinds) -> PremiumInputKinds {
        PremiumInputKinds(self.0 | other.0)
    }

    /// Returns the kinds of this set that a body, given in pieces, may contain: those whose keyword occurs in it. A
    /// body with JSON escapes of ASCII letters (`\u00..`) may hide a keyword, so it may contain all.
    pub fn in_body<'p>(self, pieces: impl Iterator<Item = &'p [u8]> + Clone) -> PremiumInputKinds {
        if self.is_empty() || contains_word(pieces.clone(), b"\\u00") {
            return self;
        }
        let words = |kind: &TokenKind| -> &[&[u8]] {
            match kind {
                // `cache_control`, and `cachePoint` of Converse.
                TokenKind::CacheWrite => &[b"\"cache"],
                TokenKind::CacheWrite1h => &[b"\"1h\""],
                // Of `prompt_cache_options` and `prompt_cache_retention`.
                TokenKind::CacheWrite12h => &[b"\"12h\"", b"\"24h\""],
                TokenKind::AudioInput => &[b"audio", b"video"],
                _ => &[b"image"],
            }
        };
        PremiumInputKinds::of(
            self.kinds().filter(|kind| words(kind).iter().any(|word| contains_word(pieces.clone(), word))),
        )
    }
}

/// Returns true if a text in pieces contains a word, also across the boundaries of pieces.
fn contains_word<'p>(pieces: impl Iterator<Item = &'p [u8]>, word: &[u8]) -> bool {
    let finder = memchr::memmem::Finder::new(word);
    // `before` joins the end of the previous pieces with the start of this one, so that a word across both is found.
    let (mut before, rest) = (SmallVec::<[u8; 32]>::new(), word.len().saturating_sub(1));
    for piece in pieces {
        let joined = before.len().saturating_add(piece.len().min(rest));
        before.extend_from_slice(piece.get(..rest).unwrap_or(piece));
        if finder.find(&before).is_some() || finder.find(piece).is_some() {
            return true;
        }
        if piece.len() >= rest {
            before.clear();
            before.extend_from_slice(piece.get(piece.len().saturating_sub(rest)..).unwrap_or_default());
        } else {
            before.drain(..joined.saturating_sub(rest));
        }
    }
    false
}

/// Bytes of text per token, as a general estimate: about right for English and for code. Most other scripts take more
/// bytes per character, so that their tokens are overestimated.
const BYTES_PER_TOKEN: u64 = 4;
/// Estimated tokens of an image or other medium: about 1000 for an image.
const MEDIA_TOKENS: u64 = 1_000;
/// Media are searched for in steps of this many bytes; a shorter run is counted as text.
const STEP: usize = 1_024;
/// Number of consecutive base64 characters at the end of a step that mark it as base64: text has spaces and
/// punctuation.
const SAMPLE: usize = 48;
/// Bodies up to this size, in bytes, count as text whatever they contain.
const SMALL: u64 = 16 * 1_024;

/// Returns the estimated tokens of a text of this many bytes.
pub fn text(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// Estimate of the input tokens of a request body: a quarter of its bytes, but 1000 tokens for each base64 medium as a
/// whole. Inspects a twentieth of a large body.
///
/// Pieces are added as they arrive, while they are in the processor's cache: looked up later, each of those places is a
/// wait for the memory, which took a sixth of the time of a 5 MB request.
#[derive(Clone, Copy, Debug, Default)]
pub struct InputEstimate {
    /// Bytes so far, and those of them that are base64.
    length: u64,
    encoded: u64,
    media: u64,
    /// Whether the last step is base64.
    inside: bool,
}

impl InputEstimate {
    /// Returns the estimate of a body that is at hand, in pieces.
    pub fn of<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> Self {
        let mut estimate = InputEstimate::default();
        pieces.for_each(|piece| estimate.add(piece));
        estimate
    }

    /// Adds the next piece of the body.
    pub fn add(&mut self, piece: &[u8]) {
        self.length = self.length.saturating_add(piece.len() as u64);
        for step in piece.chunks(STEP) {
            let sample = step.get(step.len().saturating_sub(SAMPLE)..).unwrap_or_default();
            let base64 = step.len() == STEP && sample.iter().all(|byte| is_base64(*byte));
            if base64 {
                self.encoded = self.encoded.saturating_add(STEP as u64);
                self.media = self.media.saturating_add(u64::from(!self.inside));
            }
            self.inside = base64;
        }
    }

    /// Returns the estimated tokens.
    pub fn tokens(&self) -> u64 {
        if self.length <= SMALL {
            return text(self.length);
        }
        // Saturating: an estimate that overflows must stay the largest, so that it is refused.
        text(self.length.saturating_sub(self.encoded)).saturating_add(self.media.saturating_mul(MEDIA_TOKENS))
    }
}

/// Returns true for a base64 character as JSON spells it: a slash may have a backslash before it.
fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_' | b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> u64 {
        InputEstimate::of(pieces).tokens()
    }

    fn pieces<'p>(all: &'p [&'p [u8]]) -> impl Iterator<Item = &'p [u8]> + Clone {
        all.iter().copied()
    }

    #[test]
    fn premium_kinds_are_found_in_a_body_at_every_split() {
        let all = PremiumInputKinds::of(PremiumInputKinds::KINDS.into_iter());
        for (text, kinds) in [
            (r#"{"a":"plain \n ü"}"#, &[][..]),
            (r#"{"cache_control":{"type":"ephemeral"}}"#, &[TokenKind::CacheWrite]),
            (r#"{"cachePoint":{"type":"default"}}"#, &[TokenKind::CacheWrite]),
            (r#"{"cache_control":{"ttl":"1h"}}"#, &[TokenKind::CacheWrite, TokenKind::CacheWrite1h]),
            (r#"{"prompt_cache_retention":"24h"}"#, &[TokenKind::CacheWrite12h]),
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
    fn premium_kinds_of_a_policy_are_the_writes_of_its_lifetimes() {
        let all = PremiumInputKinds::of(PremiumInputKinds::KINDS.into_iter());
        for (policy, kinds) in [
            (CachePolicy::Off, &[][..]),
            (CachePolicy::Auto, &[TokenKind::CacheWrite, TokenKind::CacheWrite1h]),
            (CachePolicy::Short, &[TokenKind::CacheWrite]),
            (CachePolicy::Hour, &[TokenKind::CacheWrite, TokenKind::CacheWrite1h]),
        ] {
            let expected = PremiumInputKinds::of(kinds.iter().copied());
            assert_eq!(all.of_policy(policy), expected);
            assert!(PremiumInputKinds::default().of_policy(policy).is_empty());
            assert_eq!(all.or(expected), all);
        }
    }

    #[test]
    fn expected_usage_output_is_multiplied_by_answers() {
        let expected =
            ExpectedUsage { input: 10, output: Some(100), responses: 3, ..ExpectedUsage::default() };
        assert_eq!((expected.reserved_output(), expected.minute_tokens()), (300, 310));
        let open = ExpectedUsage { input: 10, output: None, ..expected };
        assert_eq!((open.reserved_output(), open.minute_tokens()), (3 * 4_096, 10));
        assert_eq!(ExpectedUsage { responses: 0, ..open }.reserved_output(), 4_096);
    }

    #[test]
    fn input_estimate_of_text_is_a_quarter_of_its_bytes() {
        assert_eq!(tokens(pieces(&[])), 0);
        assert_eq!(tokens(pieces(&[b"12345"])), 2);
        let words = b"some words ".repeat(10_000);
        assert_eq!(tokens(pieces(&[&words])), 27_500);
        let chinese = "\u{6587}\u{5b57}".repeat(10_000);
        assert_eq!(tokens(pieces(&[chinese.as_bytes()])), 15_000);
    }

    #[test]
    fn input_estimate_of_an_inline_image_ignores_its_size() {
        let image = b"iVBORw0KGgoAAAANSUhEUg".repeat(100_000);
        let words = b"some words ".repeat(1_000);
        let image_tokens = tokens(pieces(&[&words, &image, &words]));
        assert!((6_000..8_000).contains(&image_tokens), "{image_tokens}");
        let two = tokens(pieces(&[&words, &image, &words, &image]));
        assert!((7_000..9_000).contains(&two), "{two}");
    }
}
