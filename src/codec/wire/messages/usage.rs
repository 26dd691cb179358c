//! Token usage of the messages format, in which cache reads and cache writes are counted beside the input, not inside
//! it.

use crate::canonical::{Region, ServiceTier, Usage};
use crate::wire::tier_words::{TierWords, region};
use crate::wire::watch::{count_member, members};
use json::{Cursor, JsonError, RawJson, Sink, Writer};

/// Usage object as the provider reported it, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Input tokens without cache reads and writes.
    input: Option<u64>,
    read: Option<u64>,
    created: Option<u64>,
    created_5m: Option<u64>,
    created_1h: Option<u64>,
    output: Option<u64>,
    thinking: Option<u64>,
    pub(super) searches: Option<u64>,
    tier: Option<ServiceTier>,
    speed: Option<ServiceTier>,
    region: Option<Option<Region>>,
}

impl Counts {
    /// Parses a usage object.
    pub(super) fn read(value: RawJson<'_>) -> Result<Self, JsonError> {
        let mut counts = Counts::default();
        members(&mut Cursor::new(value.text()), |key, json| {
            match key.escaped() {
                "input_tokens" => counts.input = json.u64_or_skip()?,
                "output_tokens" => counts.output = json.u64_or_skip()?,
                "cache_read_input_tokens" => counts.read = json.u64_or_skip()?,
                "cache_creation_input_tokens" => counts.created = json.u64_or_skip()?,
                "cache_creation" => members(json, |key, json| {
                    match key.escaped() {
                        "ephemeral_5m_input_tokens" => counts.created_5m = json.u64_or_skip()?,
                        "ephemeral_1h_input_tokens" => counts.created_1h = json.u64_or_skip()?,
                        _ => json.skip()?,
                    }
                    Ok(())
                })?,
                "output_tokens_details" => counts.thinking = count_member(json, "thinking_tokens")?,
                "server_tool_use" => counts.searches = count_member(json, "web_search_requests")?,
                "service_tier" => {
                    counts.tier = json.raw()?.as_str().and_then(|word| TierWords::Messages.told(word))
                }
                "speed" => counts.speed = json.raw()?.as_str().and_then(|word| TierWords::Speed.told(word)),
                "inference_geo" => counts.region = json.raw()?.as_str().map(region),
                _ => json.skip()?,
            }
            Ok(())
        })?;
        Ok(counts)
    }

    /// Returns one report for the usage meter, which merges several reports: input without cache, and cache writes
    /// separately.
    pub(super) fn report(&self) -> Usage {
        let mut usage = Usage {
            uncached: self.input,
            cached: self.read,
            output: self.output,
            reasoning: self.thinking,
            searches: self.searches,
            tier: self.served(),
            region: self.region,
            ..Usage::default()
        };
        // The lifetime buckets are parts of the sum; a report may have the sum without buckets.
        match (self.created_5m, self.created, self.created_1h) {
            (None, Some(sum), None) => usage.written = Some(sum),
            (short, sum, long) => {
                usage.cache_write_1h = long;
                usage.cache_write = short.or_else(|| Some(sum?.saturating_sub(long?)));
            }
        }
        usage
    }

    /// Merges a later report. Reports are cumulative, and each may omit some counts.
    pub(super) fn update(&mut self, later: &Counts) {
        // Some providers repeat the input as 0 at the end of the stream.
        if later.input.is_some_and(|input| input > 0) || self.input.is_none() {
            self.input = later.input.or(self.input);
        }
        if later.created.is_some() && later.created_5m.is_none() && later.created_1h.is_none() {
            // The sum has changed, so the buckets of an earlier report no longer add up to it.
            if later.created != self.created {
                (self.created_5m, self.created_1h) = (None, None);
            }
        }
        self.read = later.read.or(self.read);
        self.created = later.created.or(self.created);
        self.created_5m = later.created_5m.or(self.created_5m);
        self.created_1h = later.created_1h.or(self.created_1h);
        self.output = later.output.or(self.output);
        self.thinking = later.thinking.or(self.thinking);
        self.searches = later.searches.or(self.searches);
        self.tier = later.tier.or(self.tier);
        self.speed = later.speed.or(self.speed);
        self.region = later.region.or(self.region);
    }

    /// Returns the canonical usage, whose input includes cache reads and writes.
    pub(super) fn canonical(&self) -> Usage {
        // The buckets are parts of the sum. A provider without buckets uses the short-lived cache.
        let long = self.created_1h;
        let short = match (self.created_5m, self.created) {
            (Some(short), _) => Some(short),
            (None, Some(sum)) => Some(sum.saturating_sub(long.unwrap_or(0))),
            (None, None) => None,
        };
        let cache = [self.read, short, long].into_iter().flatten().fold(0, u64::saturating_add);
        Usage {
            input: self.input.map(|uncached| uncached.saturating_add(cache)),
            cached: self.read,
            cache_write: short,
            cache_write_1h: long,
            output: self.output,
            reasoning: self.thinking,
            searches: self.searches,
            tier: self.served(),
            region: self.region,
            ..Usage::default()
        }
    }

    /// Returns the tier of the response: its speed, if that has a price of its own.
    fn served(&self) -> Option<ServiceTier> {
        self.speed.filter(|speed| *speed != ServiceTier::Standard).or(self.tier).or(self.speed)
    }
}

/// Writes the usage object of a whole message.
pub(super) fn write_whole<B: Sink>(usage: &Usage, json: &mut Writer<'_, B>) {
    write(usage, InputCounts::of(usage), true, json);
}

/// Writes the usage object of `message_start`: the provider's first report, or `expected` input tokens before any.
///
/// Clients show it while the response arrives, and keep it if the response is interrupted. All of an estimate counts as
/// uncached input: a zero at the end does not overwrite a count of the start
/// (<https://docs.anthropic.com/en/docs/build-with-claude/streaming>: usage is cumulative), so that cache counts that
/// turn out to be zero could not be taken back.
pub(super) fn write_start<B: Sink>(usage: &Usage, expected: u64, json: &mut Writer<'_, B>) {
    // As in Anthropic's own streams, the first token is counted already.
    let output = usage.output.or(Some(1));
    // Some providers begin with an input of 0.
    let start = match usage.input {
        Some(1..) => Usage { output, ..*usage },
        _ => Usage { input: Some(expected), output, tier: usage.tier, ..Usage::default() },
    };
    write(&start, InputCounts::of(&start), true, json);
}

/// Writes the usage object of `message_delta`, which is that of the whole response.
pub(super) fn write_end<B: Sink>(usage: &Usage, json: &mut Writer<'_, B>) {
    write(usage, InputCounts::of(usage).with_uncached(), false, json);
}

/// Input tokens as this format counts them.
#[derive(Clone, Copy, Debug)]
struct InputCounts {
    /// Input tokens without cache reads and writes.
    uncached: u64,
    /// Input tokens written to the cache.
    written: u64,
    /// Input tokens read from the cache.
    read: u64,
}

impl InputCounts {
    /// Returns the counts of a usage. More cached tokens than input leave no uncached ones.
    fn of(usage: &Usage) -> Self {
        let part = |count: Option<u64>| count.unwrap_or(0);
        let read = part(usage.cached);
        let written = part(usage.cache_writes());
        let uncached = part(usage.input).saturating_sub(read).saturating_sub(written);
        InputCounts { uncached, written, read }
    }

    /// Returns the same sum with at least one uncached token. Clients keep the count of `message_start` where the end
    /// has zero, and would add an estimate to the tokens that were read from the cache.
    fn with_uncached(mut self) -> Self {
        if self.uncached == 0
            && let Some(from) = [&mut self.read, &mut self.written].into_iter().find(|count| **count > 0)
        {
            *from -= 1;
            self.uncached = 1;
        }
        self
    }
}

/// Writes a usage object. `whole` selects the object of a whole message, which has more members than the one at the end
/// of a stream. The four counts are always present: clients add them up, and older ones fail without them.
fn write<B: Sink>(usage: &Usage, input: InputCounts, whole: bool, json: &mut Writer<'_, B>) {
    json.begin_object().key("input_tokens").number(input.uncached);
    json.key("cache_creation_input_tokens").number(input.written);
    json.key("cache_read_input_tokens").number(input.read);
    if let Some(long) = usage.cache_write_1h.filter(|_| whole) {
        json.key("cache_creation").begin_object();
        json.key("ephemeral_5m_input_tokens").number(usage.cache_write.unwrap_or(0));
        json.key("ephemeral_1h_input_tokens").number(long);
        json.end_object();
    }
    json.key("output_tokens").number(usage.output.unwrap_or(0));
    if let Some(reasoning) = usage.reasoning {
        json.key("output_tokens_details")
            .begin_object()
            .key("thinking_tokens")
            .number(reasoning)
            .end_object();
    }
    if let Some(searches) = usage.searches {
        json.key("server_tool_use").begin_object().key("web_search_requests").number(searches);
        // The SDKs' types require both counts.
        json.key("web_fetch_requests").number(0u8).end_object();
    }
    // Anthropic states the tier at the start of a stream, other providers at the end.
    if let Some(tier) = usage.tier {
        // A tier that the format has no word for is one of its standard tier at another speed.
        let speed = TierWords::Speed.word(tier).filter(|_| tier != ServiceTier::Standard);
        // Requests have more words than responses.
        match TierWords::Messages.word(tier).unwrap_or("standard") {
            word @ ("standard" | "priority" | "batch") if speed.is_none() => {
                json.key("service_tier").string(word);
            }
            _ => {}
        }
        if let Some(speed) = speed {
            json.key("speed").string(speed);
        }
    }
    json.end_object();
}
