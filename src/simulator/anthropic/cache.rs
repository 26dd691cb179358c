//! Prompt cache: the prompt prefixes of earlier requests, and the cache usage of a request.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::super::clock::unix;
use super::super::ids::{combine, hash};
use super::super::script::Ask;
use super::super::text::{tokens, weigh};
use super::errors::{ApiError, Fields, required, should_be, wrong_tag};

/// Maximum number of remembered prefixes. The oldest one is evicted first.
const MAX_PREFIXES: usize = 4096;
/// Maximum number of cache breakpoints per request.
const MAX_BREAKPOINTS: usize = 4;
/// Number of blocks, from a breakpoint backwards, that are searched for a known prefix.
const LOOKBACK: usize = 20;
/// Lifetimes of an entry in seconds. A read renews the lifetime.
const SHORT_LIFETIME: u64 = 300;
const LONG_LIFETIME: u64 = 3_600;

/// Known prefixes.
#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: Mutex<VecDeque<Entry>>,
}

/// Cache entry of one prefix.
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    /// Lifetime in seconds.
    lifetime: u64,
    /// Unix time in seconds from which on the entry is not read.
    expires: u64,
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
        self.account_at(body, unix())
    }

    /// Same as `account`, at this Unix time in seconds.
    fn account_at(&self, body: &Value, now: u64) -> Cached {
        let prefixes = prefixes(body);
        let minimum = min_tokens(body.get("model").and_then(Value::as_str).unwrap_or_default());
        let at_breakpoint = |prefix: &Prefix| prefix.breakpoint.is_some() && prefix.tokens >= minimum;
        let breakpoints: Vec<usize> =
            (0..prefixes.len()).filter(|at| prefixes.get(*at).is_some_and(at_breakpoint)).collect();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.expires > now);
        let mut renew = |at: usize| {
            let hash = prefixes.get(at).map(|prefix| prefix.hash);
            let entry = entries.iter_mut().find(|entry| Some(entry.hash) == hash)?;
            entry.expires = now + entry.lifetime;
            Some(at)
        };
        let mut search = |at: usize| (at.saturating_sub(LOOKBACK - 1)..=at).rev().find_map(&mut renew);
        let hit = breakpoints.iter().filter_map(|at| search(*at)).max();
        let read = hit.and_then(|at| prefixes.get(at)).map_or(0, |prefix| prefix.tokens);
        let mut cached = Cached { read, ..Cached::default() };
        let mut done = read;
        for prefix in breakpoints.iter().filter_map(|at| prefixes.get(*at)) {
            if entries.iter().any(|entry| entry.hash == prefix.hash) {
                continue;
            }
            let long = prefix.breakpoint == Some(true);
            let written = prefix.tokens.saturating_sub(done);
            *(if long { &mut cached.long } else { &mut cached.short }) += written;
            done = done.max(prefix.tokens);
            let lifetime = if long { LONG_LIFETIME } else { SHORT_LIFETIME };
            entries.push_back(Entry { hash: prefix.hash, lifetime, expires: now + lifetime });
        }
        while entries.len() > MAX_PREFIXES {
            entries.pop_front();
        }
        cached
    }
}

/// Returns the minimum length of a cached prefix in tokens. Shorter prefixes are silently not cached.
fn min_tokens(model: &str) -> u64 {
    match model {
        _ if model.starts_with("claude-opus-4-5") || model.starts_with("claude-opus-4-6") => 4_096,
        _ if model.starts_with("claude-haiku-4-5") => 4_096,
        _ if model.starts_with("claude-opus-5") || model.starts_with("claude-fable-5") => 512,
        _ => 1_024,
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
            // A string is the short form of one text block.
            Some(Value::String(text)) => self.add(label, &json!({"type": "text", "text": text})),
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
    let mut found = Breakpoints::default();
    check_in(&Fields::new(body, ""), &mut found)?;
    // The breakpoint of the request itself is behind all others.
    found.has_short = false;
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
    let found = found.count;
    if found > MAX_BREAKPOINTS {
        return Err(ApiError::invalid(format!(
            "A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {found}."
        )));
    }
    Ok(())
}

/// Breakpoints of the blocks that were checked, in the provider's order.
#[derive(Default)]
struct Breakpoints {
    count: usize,
    /// Whether one of them lives for five minutes.
    has_short: bool,
}

fn check_in(block: &Fields<'_>, found: &mut Breakpoints) -> Result<(), ApiError> {
    let Some(control) = block.object("cache_control")? else {
        return Ok(());
    };
    found.count += 1;
    match control.string("type")? {
        Some("ephemeral") => {}
        Some(other) => return Err(wrong_tag(&control.path, other, &["ephemeral"])),
        None => return Err(required(&control.at("type"))),
    }
    match control.string("ttl")? {
        Some("1h") if found.has_short => Err(ApiError::invalid(format!(
            "{}: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are \
             processed in the following order: `tools`, `system`, `messages`.",
            control.at("ttl")
        ))),
        Some("1h") => Ok(()),
        None | Some("5m") => {
            found.has_short = true;
            Ok(())
        }
        Some(_) => Err(should_be(&format!("{}.ephemeral.ttl", control.path), "'5m' or '1h'")),
    }
}

#[cfg(test)]
mod tests {
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

    /// Conversation of this many turns of one block each. The turns with these indexes have a breakpoint.
    fn turns(count: usize, marked: &[usize]) -> Value {
        let turn = |at: usize| {
            let mut block = json!({"type": "text", "text": format!("{at} {}", "x".repeat(4_000))});
            if marked.contains(&at) {
                block["cache_control"] = json!({"type": "ephemeral"});
            }
            json!({"role": "user", "content": [block]})
        };
        json!({"model": "m", "messages": (0..count).map(turn).collect::<Vec<_>>()})
    }

    #[test]
    fn cache_breakpoints_of_an_hour_come_first() {
        let mark = |ttl: &str| json!({"type": "ephemeral", "ttl": ttl});
        let body = |tool: &str, turn: &str| {
            json!({"tools": [{"name": "f", "cache_control": mark(tool)}],
                   "messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": mark(turn)}]}]})
        };
        for (tool, turn, valid) in
            [("1h", "5m", true), ("1h", "1h", true), ("5m", "5m", true), ("5m", "1h", false)]
        {
            assert_eq!(check(&body(tool, turn)).is_ok(), valid, "{tool} {turn}");
        }
    }

    #[test]
    fn cache_entry_is_found_within_the_lookback() {
        for (count, hit) in [(22, true), (23, false)] {
            let cache = Cache::default();
            let first = cache.account_at(&turns(3, &[2]), 0);
            assert!(first.read == 0 && first.short > 3_000);
            let second = cache.account_at(&turns(count, &[count - 1]), 0);
            assert_eq!(second.read, if hit { first.short } else { 0 }, "{count}");
            // A breakpoint at the old end finds it at any distance.
            let third = cache.account_at(&turns(60, &[2, 59]), 0);
            assert_eq!(third.read, first.short);
        }
    }

    #[test]
    fn cache_entry_expires_unless_it_is_read() {
        let cache = Cache::default();
        let written = cache.account_at(&turns(3, &[2]), 1_000).short;
        for now in [1_299, 1_598, 1_897] {
            assert_eq!(cache.account_at(&turns(3, &[2]), now).read, written, "{now}");
        }
        assert_eq!(cache.account_at(&turns(3, &[2]), 2_197).read, 0);
    }

    #[test]
    fn cache_minimum_depends_on_the_model() {
        let mut body = turns(3, &[2]);
        body["model"] = json!("claude-haiku-4-5-20251001");
        assert_eq!(Cache::default().account_at(&body, 0), Cached::default());
        body["model"] = json!("claude-sonnet-4-5-20250929");
        assert!(Cache::default().account_at(&body, 0).short > 3_000);
    }

    #[test]
    fn cache_prefix_of_a_string_is_that_of_its_text_block() {
        let cache = Cache::default();
        let text = "word ".repeat(2_000);
        let block = json!({"type": "text", "text": text, "cache_control": {"type": "ephemeral"}});
        let first = json!({"model": "m", "messages": [{"role": "user", "content": [block]}]});
        let written = cache.account_at(&first, 0).short;
        let end = json!({"type": "text", "text": "more", "cache_control": {"type": "ephemeral"}});
        let second = json!({"model": "m", "messages": [{"role": "user", "content": text},
                                                       {"role": "user", "content": [end]}]});
        assert_eq!(cache.account_at(&second, 0).read, written);
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
