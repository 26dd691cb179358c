//! Kinds of tokens, and prices by kind.

// Money and quotas: arithmetic that overflows must not wrap, so each operation says what it does instead.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

/// Kind of tokens that may have a price of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Input.
    Input,
    /// Input read from the provider's prompt cache.
    CachedInput,
    /// Input written to the provider's prompt cache for 5 minutes, or for an unstated time.
    CacheWrite,
    /// Input written to the provider's prompt cache for 1 hour.
    CacheWrite1h,
    /// Input written to the provider's prompt cache for 12 hours.
    CacheWrite12h,
    /// Output.
    Output,
    /// Output that is reasoning.
    Reasoning,
    /// Input that is audio.
    AudioInput,
    /// Output that is audio.
    AudioOutput,
    /// Input that is images.
    ImageInput,
    /// Output that is images.
    ImageOutput,
    /// Input that is audio and was read from the provider's prompt cache.
    CachedAudioInput,
    /// Input that is images and was read from the provider's prompt cache.
    CachedImageInput,
}

impl TokenKind {
    /// Returns whether the kind is output.
    pub const fn is_output(self) -> bool {
        matches!(
            self,
            TokenKind::Output | TokenKind::Reasoning | TokenKind::AudioOutput | TokenKind::ImageOutput
        )
    }

    /// All kinds, in the order of the documentation.
    pub const ALL: [TokenKind; 13] = [
        TokenKind::Input,
        TokenKind::CachedInput,
        TokenKind::CacheWrite,
        TokenKind::CacheWrite1h,
        TokenKind::CacheWrite12h,
        TokenKind::Output,
        TokenKind::Reasoning,
        TokenKind::AudioInput,
        TokenKind::AudioOutput,
        TokenKind::ImageInput,
        TokenKind::ImageOutput,
        TokenKind::CachedAudioInput,
        TokenKind::CachedImageInput,
    ];

    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            TokenKind::Input => "input",
            TokenKind::CachedInput => "cached_input",
            TokenKind::CacheWrite => "cache_write",
            TokenKind::CacheWrite1h => "cache_write_1h",
            TokenKind::CacheWrite12h => "cache_write_12h",
            TokenKind::Output => "output",
            TokenKind::Reasoning => "reasoning",
            TokenKind::AudioInput => "audio_input",
            TokenKind::AudioOutput => "audio_output",
            TokenKind::ImageInput => "image_input",
            TokenKind::ImageOutput => "image_output",
            TokenKind::CachedAudioInput => "cached_audio_input",
            TokenKind::CachedImageInput => "cached_image_input",
        }
    }

    /// Returns the kind whose price applies if this kind has none. `None` for plain input and output.
    pub const fn falls_back_to(self) -> Option<TokenKind> {
        match self {
            TokenKind::Input | TokenKind::Output => None,
            TokenKind::CacheWrite12h => Some(TokenKind::CacheWrite1h),
            TokenKind::CacheWrite1h => Some(TokenKind::CacheWrite),
            TokenKind::CachedAudioInput | TokenKind::CachedImageInput => Some(TokenKind::CachedInput),
            TokenKind::CachedInput
            | TokenKind::CacheWrite
            | TokenKind::AudioInput
            | TokenKind::ImageInput => Some(TokenKind::Input),
            TokenKind::Reasoning | TokenKind::AudioOutput | TokenKind::ImageOutput => Some(TokenKind::Output),
        }
    }
}

/// Configured prices by kind of token, in nano-units per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates([Option<i64>; TokenKind::ALL.len()]);

impl Rates {
    /// Sets the price of a kind.
    pub fn set(&mut self, kind: TokenKind, nanos: i64) {
        if let Some(slot) = self.0.get_mut(kind as usize) {
            *slot = Some(nanos);
        }
    }

    /// Returns the configured price of a kind; `None` if it has none.
    pub fn configured(&self, kind: TokenKind) -> Option<i64> {
        self.0.get(kind as usize).copied().flatten()
    }

    /// Returns the effective price of a kind: its own, or that of the kind it falls back to, or 0.
    pub fn rate(&self, kind: TokenKind) -> i64 {
        let mut kind = kind;
        loop {
            match (self.configured(kind), kind.falls_back_to()) {
                (Some(rate), _) => return rate,
                (None, Some(next)) => kind = next,
                (None, None) => return 0,
            }
        }
    }

    pub(super) fn or(mut self, below: &Rates) -> Rates {
        for (slot, other) in self.0.iter_mut().zip(below.0) {
            *slot = slot.or(other);
        }
        self
    }
}
