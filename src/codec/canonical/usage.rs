//! Usage: tokens and other billing units. Totals include their parts.

use super::service_tier::{Region, ServiceTier};

/// Product that is billed per item or per length instead of per token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Product {
    /// Images of one size and quality.
    Images {
        /// Number of images.
        count: u64,
        /// Size, as requests name it (`1024x1024`); empty while it is unknown.
        size: Box<str>,
        /// Quality, as requests name it; empty while it is unknown.
        quality: Box<str>,
    },
    /// A video.
    Video {
        /// Length in milliseconds.
        millis: u64,
        /// Resolution (`720p`); empty while it is unknown.
        resolution: Box<str>,
    },
}

/// Usage of a response as the provider reports it. `None` means that the provider did not report the figure; zero means
/// that it reported zero. All figures are tokens unless stated otherwise.
///
/// Formats count differently (whether cached input is part of the input, whether reasoning is part of the output);
/// `wire` converts. Here `input` includes cached input, cache writes and tool-use prompts, and `output` includes
/// reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Total input.
    pub input: Option<u64>,
    /// Input read from the provider's prompt cache.
    pub cached: Option<u64>,
    /// Input written to the provider's prompt cache for 5 minutes, or for an unstated time.
    pub cache_write: Option<u64>,
    /// Input written to the provider's prompt cache for 1 hour.
    pub cache_write_1h: Option<u64>,
    /// Input written to the provider's prompt cache for 12 hours.
    pub cache_write_12h: Option<u64>,
    /// Total output.
    pub output: Option<u64>,
    /// Reasoning part of the output.
    pub reasoning: Option<u64>,
    /// Audio part of the input.
    pub audio_input: Option<u64>,
    /// Image part of the input.
    pub image_input: Option<u64>,
    /// Audio part of the input that was read from the provider's prompt cache.
    pub cached_audio_input: Option<u64>,
    /// Image part of the input that was read from the provider's prompt cache.
    pub cached_image_input: Option<u64>,
    /// Audio part of the output.
    pub audio_output: Option<u64>,
    /// Image part of the output.
    pub image_output: Option<u64>,
    /// Number of web searches that the provider ran.
    pub searches: Option<u64>,
    /// Input outside the prompt cache, from providers that report it separately from cache reads and cache writes.
    /// [`update`](Self::update) sets `input` to the sum of all of them, even if they arrive in different reports.
    pub uncached: Option<u64>,
    /// Total cache writes, from reports that do not split them by lifetime. [`update`](Self::update) subtracts the
    /// known 1-hour part and stores the rest in `cache_write`.
    pub written: Option<u64>,
    /// Service tier in which the provider served the response, as it says.
    pub tier: Option<ServiceTier>,
    /// Service tier that the provider says in words for its traffic, which formats of clients do not have: it is charged,
    /// and not told. The tier itself counts first.
    pub traffic: Option<ServiceTier>,
    /// Region in which the provider served the response, as it says. `Some(None)` for none with a price of its own.
    pub region: Option<Option<Region>>,
}

impl Usage {
    /// Merges a later report: its figures replace the earlier ones, figures that it omits stay. Usage in a stream is
    /// cumulative, so figures are never added up. A later zero replaces the earlier figure, except in `uncached`: the
    /// last report of some providers has a zero there that means "unchanged".
    pub fn update(&mut self, later: &Usage) {
        self.tier = later.tier.or(self.tier);
        self.traffic = later.traffic.or(self.traffic);
        self.region = later.region.or(self.region);
        fn take(slot: &mut Option<u64>, value: Option<u64>) {
            if value.is_some() {
                *slot = value;
            }
        }
        take(&mut self.input, later.input);
        take(&mut self.cached, later.cached);
        take(&mut self.cache_write, later.cache_write);
        take(&mut self.cache_write_1h, later.cache_write_1h);
        take(&mut self.cache_write_12h, later.cache_write_12h);
        take(&mut self.cached_audio_input, later.cached_audio_input);
        take(&mut self.cached_image_input, later.cached_image_input);
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
            let cache = [self.cached, self.cache_write, self.cache_write_1h, self.cache_write_12h];
            self.input = Some(cache.into_iter().flatten().fold(uncached, u64::saturating_add));
        }
    }

    /// Adds the usage of another response. Unknown figures count as zero if the other response has them.
    pub fn add(&mut self, other: &Usage) {
        self.tier = other.tier.or(self.tier);
        self.traffic = other.traffic.or(self.traffic);
        self.region = other.region.or(self.region);
        let sum = |slot: &mut Option<u64>, value: Option<u64>| {
            if let Some(value) = value {
                *slot = Some(slot.unwrap_or(0).saturating_add(value));
            }
        };
        sum(&mut self.input, other.input);
        sum(&mut self.cached, other.cached);
        sum(&mut self.cache_write, other.cache_write);
        sum(&mut self.cache_write_1h, other.cache_write_1h);
        sum(&mut self.cache_write_12h, other.cache_write_12h);
        sum(&mut self.cached_audio_input, other.cached_audio_input);
        sum(&mut self.cached_image_input, other.cached_image_input);
        sum(&mut self.output, other.output);
        sum(&mut self.reasoning, other.reasoning);
        sum(&mut self.audio_input, other.audio_input);
        sum(&mut self.image_input, other.image_input);
        sum(&mut self.audio_output, other.audio_output);
        sum(&mut self.image_output, other.image_output);
        sum(&mut self.searches, other.searches);
        sum(&mut self.uncached, other.uncached);
        sum(&mut self.written, other.written);
    }

    /// Returns the input written to the provider's prompt cache, whatever its lifetime. `None` if it is not known.
    pub fn cache_writes(&self) -> Option<u64> {
        let writes = [self.cache_write, self.cache_write_1h, self.cache_write_12h].into_iter().flatten();
        writes.reduce(u64::saturating_add)
    }

    /// Returns true if the input or the output is known.
    pub fn is_known(&self) -> bool {
        self.input.is_some() || self.output.is_some()
    }
}
