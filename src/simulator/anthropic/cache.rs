//! Prompt cache: the breakpoints of a request, and the prefixes of its prompt.

use serde_json::{Value, json};

use super::super::clock::unix;
pub(super) use super::super::prefix_cache::Cached;
use super::super::prefix_cache::{PrefixCache, Prefixes};
use super::super::script::Ask;
use super::errors::{ApiError, Fields, required, should_be, wrong_tag};

/// Maximum number of cache breakpoints per request.
const MAX_BREAKPOINTS: usize = 4;

/// Known prefixes.
#[derive(Debug, Default)]
pub(super) struct Cache(PrefixCache);

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
        let minimum = min_tokens(body.get("model").and_then(Value::as_str).unwrap_or_default());
        self.0.account(&prefixes(body), minimum, now)
    }
}

/// Returns the minimum length of a cached prefix in tokens. Shorter prefixes are silently not cached.
pub(super) fn min_tokens(model: &str) -> u64 {
    match model {
        _ if model.starts_with("claude-opus-4-5") || model.starts_with("claude-opus-4-6") => 4_096,
        _ if model.starts_with("claude-haiku-4-5") => 4_096,
        _ if model.starts_with("claude-opus-5") || model.starts_with("claude-fable-5") => 512,
        _ => 1_024,
    }
}

/// Returns all prefixes of a prompt in the provider's order: tools, system, messages.
fn prefixes(body: &Value) -> Prefixes {
    let mut all = Prefixes::of(body.get("model").and_then(Value::as_str).unwrap_or_default());
    for tool in body.get("tools").and_then(Value::as_array).into_iter().flatten() {
        add(&mut all, "tool", tool);
    }
    add_content(&mut all, "system", body.get("system"));
    for message in body.get("messages").and_then(Value::as_array).into_iter().flatten() {
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
        add_content(&mut all, role, message.get("content"));
    }
    // `cache_control` on the request itself applies to the last block.
    if let Some(long) = breakpoint(body) {
        all.mark(long);
    }
    all
}

fn add_content(all: &mut Prefixes, label: &str, content: Option<&Value>) {
    match content {
        Some(Value::Array(blocks)) => blocks.iter().for_each(|block| add(all, label, block)),
        // A string is the short form of one text block.
        Some(Value::String(text)) => add(all, label, &json!({"type": "text", "text": text})),
        Some(other) => add(all, label, other),
        None => {}
    }
}

fn add(all: &mut Prefixes, label: &str, block: &Value) {
    let mut plain = block.clone();
    if let Some(members) = plain.as_object_mut() {
        members.remove("cache_control");
    }
    all.add(label, &plain);
    if let Some(long) = breakpoint(block) {
        all.mark(long);
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
