//! Usage split into the kinds of tokens that are charged: each token once.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

use super::kind::TokenKind;
use codec::canonical::Usage;

/// Kinds of output.
pub(super) const OUTPUT: [TokenKind; 4] =
    [TokenKind::Output, TokenKind::Reasoning, TokenKind::AudioOutput, TokenKind::ImageOutput];

/// Input by kind. If the reported parts exceed the reported total, the excess is not charged.
pub(super) struct InputParts {
    pub(super) total: u64,
    pub(super) parts: [(TokenKind, u64); 9],
}

pub(super) fn input_parts(usage: &Usage) -> InputParts {
    // Cached audio is both cached and audio: each token counts once, as the narrower kind.
    let less = |whole: Option<u64>, parts: [Option<u64>; 2]| {
        whole.map(|whole| parts.into_iter().flatten().fold(whole, u64::saturating_sub))
    };
    let cached = less(usage.cached, [usage.cached_audio_input, usage.cached_image_input]);
    let named = [
        (TokenKind::CachedAudioInput, usage.cached_audio_input),
        (TokenKind::CachedImageInput, usage.cached_image_input),
        (TokenKind::CachedInput, cached),
        (TokenKind::CacheWrite, usage.cache_write),
        (TokenKind::CacheWrite1h, usage.cache_write_1h),
        (TokenKind::CacheWrite12h, usage.cache_write_12h),
        (TokenKind::AudioInput, less(usage.audio_input, [usage.cached_audio_input, None])),
        (TokenKind::ImageInput, less(usage.image_input, [usage.cached_image_input, None])),
    ];
    let (total, [audio, image, cached, write, hour, long, heard, seen], plain) = split(usage.input, named);
    let plain = (TokenKind::Input, plain);
    InputParts { total, parts: [plain, cached, write, hour, long, heard, seen, audio, image] }
}

pub(super) fn output_parts(usage: &Usage) -> [(TokenKind, u64); 4] {
    let named = [
        (TokenKind::Reasoning, usage.reasoning),
        (TokenKind::AudioOutput, usage.audio_output),
        (TokenKind::ImageOutput, usage.image_output),
    ];
    let (_, [reasoning, audio, image], plain) = split(usage.output, named);
    [(TokenKind::Output, plain), reasoning, audio, image]
}

/// Splits a total into the named parts, in order, and the rest. Without a total, the sum of the parts is the total.
/// Parts beyond the total are cut off.
fn split<const N: usize>(
    total: Option<u64>,
    named: [(TokenKind, Option<u64>); N],
) -> (u64, [(TokenKind, u64); N], u64) {
    let sum = || named.iter().filter_map(|(_, tokens)| *tokens).fold(0, u64::saturating_add);
    let total = total.unwrap_or_else(sum);
    let mut left = total;
    let parts = named.map(|(kind, tokens)| {
        let taken = tokens.unwrap_or(0).min(left);
        // `taken` is at most `left`.
        left = left.saturating_sub(taken);
        (kind, taken)
    });
    (total, parts, left)
}
