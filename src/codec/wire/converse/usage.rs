//! Usage of the Converse format: `inputTokens` excludes cache reads and writes, `totalTokens` includes them.

use crate::canonical::{ServiceTier, Usage};
use crate::wire::codec::ReplyOptions;
use crate::wire::tier_words::TierWords;
use crate::wire::watch::{elements, members};
use json::{Cursor, JsonError, JsonStr, RawJson, Sink, Writer};

/// Reads a usage object. Figures that it lacks are `None`.
///
/// # Errors
/// Returns [`JsonError`] if the text is not valid JSON.
pub(super) fn read(value: RawJson<'_>) -> Result<Usage, JsonError> {
    let mut usage = Usage::default();
    let (mut uncached, mut written, mut long) = (None, None, None);
    members(&mut Cursor::new(value.text()), |key, json| {
        match key.escaped() {
            "inputTokens" => uncached = json.u64_or_skip()?,
            "outputTokens" => usage.output = json.u64_or_skip()?,
            // The older names are not in the service model, but responses still have them.
            "cacheReadInputTokens" | "cacheReadInputTokenCount" => {
                usage.cached = json.u64_or_skip()?.or(usage.cached);
            }
            "cacheWriteInputTokens" | "cacheWriteInputTokenCount" => {
                written = json.u64_or_skip()?.or(written);
            }
            "cacheDetails" => {
                elements(json, |json| {
                    let (mut ttl, mut tokens) = (JsonStr::default(), None);
                    members(json, |key, json| {
                        match key.escaped() {
                            "ttl" => ttl = json.raw()?.as_str().unwrap_or_default(),
                            "inputTokens" => tokens = json.u64_or_skip()?,
                            _ => json.skip()?,
                        }
                        Ok(())
                    })?;
                    if ttl.is("1h") {
                        long = tokens;
                    }
                    Ok(())
                })?;
            }
            _ => json.skip()?,
        }
        Ok(())
    })?;
    usage.cache_write_1h = long;
    // Without a lifetime the writes are for five minutes.
    usage.cache_write = written.map(|written| written.saturating_sub(long.unwrap_or(0)));
    let cache = [usage.cached, usage.cache_write, usage.cache_write_1h];
    usage.input = uncached.map(|uncached| cache.into_iter().flatten().fold(uncached, u64::saturating_add));
    Ok(usage)
}

/// Reads the service tier of a response. `None` if it states none.
///
/// # Errors
/// Returns [`JsonError`] if the text is not valid JSON.
pub(super) fn tier(value: RawJson<'_>) -> Result<Option<ServiceTier>, JsonError> {
    let mut tier = None;
    members(&mut Cursor::new(value.text()), |key, json| {
        let value = json.raw()?;
        if key.is("type") {
            tier = value.as_str().and_then(|word| TierWords::Converse.told(word));
        }
        Ok(())
    })?;
    Ok(tier)
}

/// Writes the service tier of the response as the member `serviceTier`, if it is known.
pub(super) fn write_tier<B: Sink>(usage: &Usage, json: &mut Writer<'_, B>) {
    if let Some(word) = usage.tier.and_then(|tier| TierWords::Converse.word(tier)) {
        json.key("serviceTier").begin_object().key("type").string(word).end_object();
    }
}

/// Writes the duration of the response up to now as the member `metrics`, if it is known.
pub(super) fn write_metrics<B: Sink>(reply: &ReplyOptions, json: &mut Writer<'_, B>) {
    if let Some(duration) = reply.clock.map(|clock| clock.elapsed()) {
        json.key("metrics").begin_object().key("latencyMs").number(duration).end_object();
    }
}

/// Writes a usage object.
pub(super) fn write<B: Sink>(usage: &Usage, json: &mut Writer<'_, B>) {
    let part = |count: Option<u64>| count.unwrap_or(0);
    let (read, short, long) = (part(usage.cached), part(usage.cache_write), part(usage.cache_write_1h));
    let written = short.saturating_add(long);
    let uncached = part(usage.input).saturating_sub(read).saturating_sub(written);
    let output = part(usage.output);
    let total = [uncached, read, written, output].into_iter().fold(0, u64::saturating_add);
    json.begin_object();
    json.key("inputTokens").number(uncached).key("outputTokens").number(output);
    json.key("totalTokens").number(total);
    if usage.cached.is_some() || written > 0 {
        json.key("cacheReadInputTokens").number(read);
        json.key("cacheWriteInputTokens").number(written);
    }
    if written > 0 {
        json.key("cacheDetails").begin_array();
        for (lifetime, tokens) in [("5m", short), ("1h", long)] {
            if tokens > 0 {
                json.begin_object().key("ttl").string(lifetime).key("inputTokens").number(tokens);
                json.end_object();
            }
        }
        json.end_array();
    }
    json.end_object();
}
