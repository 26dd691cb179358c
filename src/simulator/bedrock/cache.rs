//! Prompt cache of Converse: which cache points a request may have, and the prefixes of its prompt.
//!
//! Sources: the service's user guide, "Prompt caching for faster model inference", November 2026, and the refusals that
//! users of the service quote.

use serde_json::Value;

use super::super::clock::unix;
use super::super::prefix_cache::{Cached, PrefixCache, Prefixes};
use super::super::script::Ask;
use super::anthropic;
use super::errors::{ApiError, extraneous};
use super::models::{Family, Model};

/// Maximum number of cache points of a request.
const MAX_POINTS: usize = 4;
/// Minimum length of a cached prefix of Nova, in tokens.
const NOVA_MINIMUM: u64 = 1_000;

/// Element of the prompt in the order in which the model reads it: its role, and itself.
type Element<'b> = (&'b str, &'b Value);

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn elements(body: &Value) -> impl Iterator<Item = Element<'_>> {
    let tools = list(body.pointer("/toolConfig/tools")).iter().map(|tool| ("tool", tool));
    let system = list(body.get("system")).iter().map(|block| ("system", block));
    let turns = list(body.get("messages")).iter().flat_map(|message| {
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        list(message.get("content")).iter().map(move |block| (role, block))
    });
    tools.chain(system).chain(turns)
}

/// Returns whether a cache point lives for an hour; `None` for any other element.
fn point(element: &Value) -> Option<bool> {
    let point = element.get("cachePoint").filter(|point| !point.is_null())?;
    Some(point.get("ttl").and_then(Value::as_str) == Some("1h"))
}

/// Checks number, places and lifetimes of the cache points of a request.
pub(super) fn check(body: &Value, model: &Model) -> Result<(), ApiError> {
    let (mut count, mut has_short) = (0, false);
    for (role, element) in elements(body) {
        let Some(long) = point(element) else { continue };
        let of_claude = model.family == Family::Claude;
        let generation = model.generation().unwrap_or((u32::MAX, 0));
        let is_known = match model.family {
            Family::Claude => generation >= (3, 7) || (generation == (3, 5) && model.name.contains("haiku")),
            Family::Nova => true,
            _ => false,
        };
        if !is_known {
            let message = "You invoked an unsupported model or your request did not allow prompt caching. See the \
                           documentation for more information.";
            return Err(ApiError::forbidden("AccessDeniedException", message));
        }
        if role == "tool" && !of_claude {
            return Err(extraneous("toolConfig.tools", "cachePoint"));
        }
        if long && !of_claude {
            return Err(ApiError::invalid(
                "Extended TTL prompt caching is only supported for Anthropic models",
            ));
        }
        if long && generation < (4, 5) {
            return Err(ApiError::of_model("cache_control.ttl: Extra inputs are not permitted"));
        }
        if long && has_short {
            return Err(ApiError::of_model(
                "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are \
                 processed in the following order: `tools`, `system`, `messages`.",
            ));
        }
        has_short |= !long;
        count += 1;
    }
    if count > MAX_POINTS {
        return Err(ApiError::invalid(format!(
            "A maximum of {MAX_POINTS} cachePoint blocks may be provided. Found {count}."
        )));
    }
    Ok(())
}

/// Returns the tokens that the prompt reads from and writes to the cache, and remembers the written prefixes.
pub(super) fn account(cache: &PrefixCache, body: &Value, model: &Model, ask: &Ask) -> Cached {
    if ask.directives.cached.is_some() {
        return Cached { read: ask.cached_tokens(), ..Cached::default() };
    }
    let mut prefixes = Prefixes::of(&model.name);
    for (role, element) in elements(body) {
        match point(element) {
            Some(long) => prefixes.mark(long),
            None => prefixes.add(role, element),
        }
    }
    let minimum = match model.family {
        Family::Nova => NOVA_MINIMUM,
        _ => anthropic::min_cached_tokens(model.claude()),
    };
    cache.account(&prefixes, minimum, unix())
}
