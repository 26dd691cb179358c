//! Tokens and other things that are billed, under one arithmetic: totals include their parts.

/// Something that was made and is paid for by the piece or by its length, besides tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Product {
    /// Images of one size and quality.
    Images {
        /// How many.
        count: u64,
        /// Their size, as requests name it (`1024x1024`); empty while it is not known.
        size: Box<str>,
        /// Their quality, likewise.
        quality: Box<str>,
    },
    /// A video.
    Video {
        /// Its length.
        millis: u64,
        /// Its resolution (`720p`); empty while it is not known.
        resolution: Box<str>,
    },
}

/// What a request used, as far as the provider said. Nothing means that the provider did not say; zero means that it
/// said zero. All figures are tokens unless named otherwise.
///
/// The formats count differently (whether cached input is part of the input, whether reasoning is part of the
/// output); `wire` converts. Here `input` includes cached and cache-writing input and tool-use prompts, and `output`
/// includes reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All input.
    pub input: Option<u64>,
    /// Input read from the provider's prompt cache.
    pub cached: Option<u64>,
    /// Input written to the provider's prompt cache for 5 minutes, or for an unstated time.
    pub cache_write: Option<u64>,
    /// Input written to the provider's prompt cache for 1 hour.
    pub cache_write_1h: Option<u64>,
    /// All output.
    pub output: Option<u64>,
    /// Output that was reasoning.
    pub reasoning: Option<u64>,
    /// Input that was audio.
    pub audio_input: Option<u64>,
    /// Input that was images.
    pub image_input: Option<u64>,
    /// Output that was audio.
    pub audio_output: Option<u64>,
    /// Output that was images.
    pub image_output: Option<u64>,
    /// Web searches that the provider ran (a count).
    pub searches: Option<u64>,
    /// Input outside of the prompt cache, where the provider counts it apart from what it read from and wrote to the
    /// cache: [`update`](Self::update) makes `input` the sum of all of them, whichever report named which.
    pub uncached: Option<u64>,
    /// All input written to the cache, where a report does not say for how long: [`update`](Self::update) takes what
    /// is known to be there for 1 hour out of it.
    pub written: Option<u64>,
}

impl Usage {
    /// Takes over what `later` says; what it does not say stays. Usage in a stream is cumulative: a later report
    /// replaces an earlier one and is never added to it. A later zero counts, except for input, which cannot shrink:
    /// providers exist whose last report has a zero there for "as I said".
    pub fn update(&mut self, later: &Usage) {
        fn take(slot: &mut Option<u64>, value: Option<u64>) {
            if value.is_some() {
                *slot = value;
            }
        }
        take(&mut self.input, later.input);
        take(&mut self.cached, later.cached);
        take(&mut self.cache_write, later.cache_write);
        take(&mut self.cache_write_1h, later.cache_write_1h);
        take(&mut self.output, later.output);
        take(&mut self.reasoning, later.reasoning);
        take(&mut self.audio_input, later.audio_input);
        take(&mut self.image_input, later.image_input);
        take(&mut self.audio_output, later.audio_output);
        take(&mut self.image_output, later.image_output);
        take(&mut self.searches, later.searches);
        if let Some(written) = later.written {
            let long = self.cache_write_1h.unwrap_or(0).min(written);
            self.cache_write_1h = self.cache_write_1h.map(|_| long);
            self.cache_write = Some(written - long);
        }
        let shrinks = later.uncached == Some(0) && self.uncached.is_some();
        take(&mut self.uncached, later.uncached.filter(|_| !shrinks));
        if let Some(uncached) = self.uncached {
            let cache = [self.cached, self.cache_write, self.cache_write_1h];
            self.input = Some(cache.into_iter().flatten().fold(uncached, u64::saturating_add));
        }
    }

    /// Whether the provider said anything.
    pub fn is_known(&self) -> bool {
        self.input.is_some() || self.output.is_some()
    }
}
