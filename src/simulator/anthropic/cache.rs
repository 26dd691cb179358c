//! Prompt cache: the prompt prefixes of earlier requests, and the cache usage of a request.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::super::ids::{combine, hash};
use super::super::script::Ask;
use super::super::text::{tokens, weigh};
use super::errors::{ApiError, Fields, required, should_be, wrong_tag};

/// Minimum length of a cached prefix in tokens. The provider's minimum depends on the model (512 to 4,096); shorter
/// prefixes are silently not cached.
const MIN_TOKENS: u64 = 1024;
/// Maximum number of remembered prefixes. The oldest one is evicted first.
const MAX_PREFIXES: usize = 4096;
/// Maximum number of cache breakpoints per request.
const MAX_BREAKPOINTS: usize = 4;

/// Known prefixes, as hashes.
#[derive(Debug, Default)]
pub(super) struct Cache {
    prefixes: Mutex<VecDeque<u64>>,
}

/// Cached tokens of a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cached {
    pub(super) read: u64,
    /// Tokens written with a lifetime of five minutes.
    pub(super) short: u64,
    /// Tokens written with a lifetime of an hour.
    pub(super) long: u64,
}

/// Prefix of a prompt.
#[derive(Debug)]
struct Prefix {
    hash: u64,
    tokens: u64,
    /// Cache breakpoint at the end of the prefix: true for an hour, false for five minutes. `None` without a
    /// breakpoint.
    breakpoint: Option<bool>,
}

impl Cache {
    /// Returns the tokens that the prompt reads from and writes to the cache, and remembers the written prefixes.
    pub(super) fn account(&self, body: &Value, ask: &Ask) -> Cached {
        if ask.directives.cached.is_some() {
            return Cached { read: ask.cached_tokens(), ..Cached::default() };
        }
        let prefixes = prefixes(body);
        let Some(last) = prefixes.iter().rposition(|prefix| prefix.breakpoint.is_some()) else {
            return Cached::default();
        };
        let cacheable = prefixes.get(..=last).unwrap_or_default();
        if cacheable.last().is_none_or(|prefix| prefix.tokens < MIN_TOKENS) {
            return Cached::default();
        }
        let mut known = self.prefixes.lock().unwrap_or_else(PoisonError::into_inner);
        let hit = cacheable.iter().rposition(|prefix| known.contains(&prefix.hash));
        let read = hit.and_then(|at| cacheable.get(at)).map_or(0, |prefix| prefix.tokens);
        let mut cached = Cached { read, ..Cached::default() };
        let mut done = read;
        for prefix in cacheable.iter().skip(hit.map_or(0, |at| at + 1)) {
            if let Some(long) = prefix.breakpoint {
                let written = prefix.tokens.saturating_sub(done);
                *(if long { &mut cached.long } else { &mut cached.short }) += written;
                done = done.max(prefix.tokens);
                known.push_back(prefix.hash);
            }
        }
        while known.len() > MAX_PREFIXES {
            known.pop_front();
        }
        cached
    }
}

/// Returns all prefixes of a prompt in the provider's order: tools, system, messages.
fn prefixes(body: &Value) -> Vec<Prefix> {
    let mut walk = Walk { prefixes: Vec::new(), state: 0, bytes: 0 };
    walk.state = hash(body.get("model").and_then(Value::as_str).unwrap_or_default().as_bytes());
    for tool in body.get("tools").and_then(Value::as_array).into_iter().flatten() {
        walk.add("tool", tool);
    }
    walk.add_content("system", body.get("system"));
    for message in body.get("messages").and_then(Value::as_array).into_iter().flatten() {
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        walk.add_content(role, message.get("content"));
    }
    // `cache_control` on the request itself applies to the last block.
    if let Some((long, last)) = breakpoint(body).zip(walk.prefixes.last_mut()) {
        last.breakpoint = Some(long);
    }
    walk.prefixes
}

struct Walk {
    prefixes: Vec<Prefix>,
    state: u64,
    bytes: usize,
}

impl Walk {
    fn add_content(&mut self, label: &str, content: Option<&Value>) {
        match content {
            Some(Value::Array(blocks)) => blocks.iter().for_each(|block| self.add(label, block)),
            Some(other) => self.add(label, other),
            None => {}
        }
    }

    fn add(&mut self, label: &str, block: &Value) {
        let mut plain = block.clone();
        if let Some(members) = plain.as_object_mut() {
            members.remove("cache_control");
        }
        self.state = combine(combine(self.state, hash(label.as_bytes())), hash(plain.to_string().as_bytes()));
        self.bytes += weigh(&plain);
        self.prefixes.push(Prefix {
            hash: self.state,
            tokens: tokens(self.bytes),
            breakpoint: breakpoint(block),
        });
    }
}

fn breakpoint(block: &Value) -> Option<bool> {
    let control = block.get("cache_control").filter(|control| !control.is_null())?;
    Some(control.get("ttl").and_then(Value::as_str) == Some("1h"))
}

pub(super) fn check(body: &Value) -> Result<(), ApiError> {
    let mut found = 0;
    check_in(&Fields::new(body, ""), &mut found)?;
    for (list, at) in ["tools", "system", "messages"].iter().filter_map(|name| Some((body.get(name)?, name)))
    {
        for (index, item) in list.as_array().into_iter().flatten().enumerate() {
            let item = Fields::new(item, format!("{at}.{index}"));
            check_in(&item, &mut found)?;
            for (index, block) in
                item.get("content").and_then(Value::as_array).into_iter().flatten().enumerate()
            {
                check_in(&Fields::new(block, format!("{}.content.{index}", item.path)), &mut found)?;
            }
        }
    }
    if found > MAX_BREAKPOINTS {
        return Err(ApiError::invalid(format!(
            "A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {found}."
        )));
    }
    Ok(())
}

fn check_in(block: &Fields<'_>, found: &mut usize) -> Result<(), ApiError> {
    let Some(control) = block.object("cache_control")? else {
        return Ok(());
    };
    *found += 1;
    match control.string("type")? {
        Some("ephemeral") => {}
        Some(other) => return Err(wrong_tag(&control.path, other, &["ephemeral"])),
        None => return Err(required(&control.at("type"))),
    }
    match control.string("ttl")? {
        None | Some("5m" | "1h") => Ok(()),
        Some(_) => Err(should_be(&format!("{}.ephemeral.ttl", control.path), "'5m' or '1h'")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(system: &str, question: &str, ttl: &str) -> Value {
        json!({"model": "m", "system": [{"type": "text", "text": system,
                                         "cache_control": {"type": "ephemeral", "ttl": ttl}}],
               "messages": [{"role": "user", "content": question}]})
    }

    #[test]
    fn cache_is_written_first_and_read_afterwards() {
        let (cache, ask) = (Cache::default(), Ask::default());
        let long = "word ".repeat(2000);
        let first = cache.account(&body(&long, "a", "5m"), &ask);
        assert_eq!((first.read, first.short, first.long), (0, 2500, 0));
        let second = cache.account(&body(&long, "b", "5m"), &ask);
        assert_eq!((second.read, second.short), (2500, 0));
        assert_eq!(cache.account(&body("short", "a", "5m"), &ask), Cached::default());
        assert!(cache.account(&body(&"other ".repeat(2000), "a", "1h"), &ask).long > 2000);
    }

    #[test]
    fn cache_control_is_validated() {
        assert!(check(&body("s", "q", "5m")).is_ok());
        assert!(
            check(&body("s", "q", "2h")).is_err_and(|e| e.to_string().contains("system.0.cache_control"))
        );
        let block = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}});
        let many = json!({"messages": [{"role": "user", "content": vec![block; 5]}]});
        assert!(check(&many).is_err_and(|e| e.to_string().ends_with("Found 5.")));
        let alias = json!({"cache_control": {"type": "persistent"}});
        assert!(check(&alias).is_err_and(|e| e.to_string().contains("Input tag 'persistent'")));
    }
}
