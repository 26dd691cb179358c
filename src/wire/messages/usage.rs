//! Token usage of the messages format, in which cache reads and cache writes are counted beside the input, not inside
//! it.

use bytes::BufMut;

use crate::canonical::Usage;
use crate::json::{Cursor, JsonError, RawJson, Writer};
use crate::wire::watch::{count_member, members};

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
            ..Usage::default()
        }
    }
}

/// Writes a usage object. `whole` selects the object of a whole message, which has more members than the one at the end
/// of a stream.
pub(super) fn write<B: BufMut>(usage: &Usage, whole: bool, json: &mut Writer<'_, B>) {
    let part = |count: Option<u64>| count.unwrap_or(0);
    let written = part(usage.cache_write).saturating_add(part(usage.cache_write_1h));
    let uncached = part(usage.input).saturating_sub(part(usage.cached)).saturating_sub(written);
    json.begin_object().key("input_tokens").number(uncached);
    if usage.cache_write.is_some() || usage.cache_write_1h.is_some() {
        json.key("cache_creation_input_tokens").number(written);
    }
    if let Some(cached) = usage.cached {
        json.key("cache_read_input_tokens").number(cached);
    }
    if let Some(long) = usage.cache_write_1h.filter(|_| whole) {
        json.key("cache_creation").begin_object();
        json.key("ephemeral_5m_input_tokens").number(part(usage.cache_write));
        json.key("ephemeral_1h_input_tokens").number(long);
        json.end_object();
    }
    json.key("output_tokens").number(part(usage.output));
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
    json.end_object();
}
