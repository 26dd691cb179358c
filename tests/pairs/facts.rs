//! What a request can hold that not every model takes, one by one.

use crate::talk::{History, Reasoned, Talk};

/// Name of a fact, and what it does to a request.
pub(crate) type Fact = (&'static str, fn(&mut Talk));

/// An id as another provider makes it, of 71 characters.
const OVERLONG: &str = "call_0123456789012345678901234567890123456789012345678901234567890123456";

/// All facts.
pub(crate) const FACTS: &[Fact] = &[
    ("plain", |_| {}),
    ("system", |talk| talk.system = true),
    ("system in the middle", |talk| talk.middle = Some("system")),
    ("developer in the middle", |talk| talk.middle = Some("developer")),
    ("image", |talk| talk.image = true),
    ("image in a result", |talk| (talk.history, talk.image_in_result) = (History::Calls, true)),
    ("document", |talk| talk.document = true),
    ("audio", |talk| talk.audio = true),
    ("foreign reasoning", |talk| {
        (talk.history, talk.reasoned) = (History::Calls, Some(Reasoned::Foreign));
    }),
    ("unsigned reasoning", |talk| {
        (talk.history, talk.reasoned) = (History::Calls, Some(Reasoned::Unsigned));
    }),
    ("reasoning of a text", |talk| {
        (talk.history, talk.reasoned) = (History::Texts, Some(Reasoned::Foreign));
    }),
    ("members of another host", |talk| (talk.history, talk.hosted) = (History::Calls, true)),
    ("result at the end", |talk| (talk.history, talk.ends_with_result) = (History::Calls, true)),
    ("two calls", |talk| (talk.history, talk.two_calls) = (History::Calls, true)),
    ("interrupted call", |talk| (talk.history, talk.interrupted) = (History::Calls, true)),
    ("failed call", |talk| (talk.history, talk.failed) = (History::Calls, true)),
    ("tools", |talk| talk.tools = true),
    ("custom tool", |talk| (talk.tools, talk.custom_tool) = (true, true)),
    ("strict tool", |talk| (talk.tools, talk.strict_tool) = (true, true)),
    ("union at the root", |talk| (talk.tools, talk.root_union) = (true, true)),
    ("choice auto", |talk| (talk.tools, talk.choice) = (true, Some("auto"))),
    ("choice none", |talk| (talk.tools, talk.choice) = (true, Some("none"))),
    ("choice required", |talk| (talk.tools, talk.choice) = (true, Some("required"))),
    ("choice named", |talk| (talk.tools, talk.choice) = (true, Some("named"))),
    ("choice allowed", |talk| (talk.tools, talk.choice) = (true, Some("allowed"))),
    ("one call at a time", |talk| (talk.tools, talk.several) = (true, Some(false))),
    ("several calls at a time", |talk| (talk.tools, talk.several) = (true, Some(true))),
    ("effort none", |talk| talk.effort = Some("none")),
    ("effort minimal", |talk| talk.effort = Some("minimal")),
    ("effort low", |talk| talk.effort = Some("low")),
    ("effort medium", |talk| talk.effort = Some("medium")),
    ("effort high", |talk| talk.effort = Some("high")),
    ("effort xhigh", |talk| talk.effort = Some("xhigh")),
    ("effort max", |talk| talk.effort = Some("max")),
    ("thinking off", |talk| talk.thinking = Some("off")),
    ("thinking on", |talk| talk.thinking = Some("on")),
    ("thinking adaptive", |talk| talk.thinking = Some("adaptive")),
    ("small budget", |talk| talk.budget = Some(1024)),
    ("large budget", |talk| (talk.budget, talk.limit) = (Some(60_000), Some(64_000))),
    ("large limit", |talk| talk.limit = Some(120_000)),
    ("small limit", |talk| talk.limit = Some(64)),
    ("temperature 0", |talk| talk.temperature = Some(0.0)),
    ("temperature 0.5", |talk| talk.temperature = Some(0.5)),
    ("temperature 2", |talk| talk.temperature = Some(2.0)),
    ("top_p 0", |talk| talk.top_p = Some(0.0)),
    ("top_p 0.9", |talk| talk.top_p = Some(0.9)),
    ("temperature and top_p", |talk| (talk.temperature, talk.top_p) = (Some(0.5), Some(0.9))),
    ("top_k", |talk| talk.top_k = Some(40)),
    ("penalties", |talk| talk.penalties = true),
    ("seed", |talk| (talk.seed, talk.limit) = (true, Some(900))),
    ("stop", |talk| talk.stop = true),
    ("logprobs", |talk| talk.logprobs = true),
    ("logit_bias", |talk| talk.bias = true),
    ("two choices", |talk| talk.choices = Some(2)),
    ("user", |talk| talk.user = true),
    ("name", |talk| talk.name = true),
    ("metadata", |talk| (talk.metadata, talk.store) = (true, true)),
    ("tier", |talk| talk.tier = true),
    ("verbosity", |talk| talk.verbosity = true),
    ("cache key", |talk| talk.cache_key = true),
    ("cache marks", |talk| (talk.system, talk.marks) = (true, true)),
    ("search", |talk| talk.search = true),
    ("json", |talk| talk.output = Some("json")),
    ("schema", |talk| talk.output = Some("schema")),
    ("strict schema", |talk| talk.output = Some("strict")),
    ("schema beside tools", |talk| (talk.tools, talk.output) = (true, Some("schema"))),
    ("prefill", |talk| talk.prefill = true),
    ("odd id", |talk| (talk.history, talk.id) = (History::Calls, Some("call.1:2|x"))),
    ("long id", |talk| {
        (talk.history, talk.id) = (History::Calls, Some("call_01234567890123456789012345678901234567890"));
    }),
    ("overlong id", |talk| (talk.history, talk.id) = (History::Calls, Some(OVERLONG))),
    ("added members", |talk| talk.added = true),
];
