//! Encoder of a messages request: its parameters, in an order in which the conversation comes last.

use super::decode::TOOL_SEARCH;
use super::plan::{Plan, check_result_block};
use crate::canonical::dialect::{ReasoningOff, ReasoningParameter, ReasoningSupport, SamplingSupport};
use crate::canonical::request::Extra;
use crate::canonical::{Block, Dialect, Effort, OutputFormat, Request, Thinking};
use crate::wire::automatic_marks::{AutomaticMarks, is_blank};
use crate::wire::codec::{LossNotes, WrittenIds, has_type};
use crate::wire::watch::{elements, members};
use crate::wire::{Format, strict_schema};
use json::{Cursor, JsonStr, RawJson, RopeBuilder, ValueKind, Writer};

/// Maximum number of cache marks. The provider refuses a request with more.
const MAX_MARKS: usize = 4;

/// Minimum reasoning budget in tokens. The provider refuses a smaller one.
const MIN_BUDGET: u64 = 1024;

/// Encodes a request. Elements that cannot be carried are recorded in `notes`.
pub fn encode(request: &Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes, out: &mut RopeBuilder) {
    let plan = Plan::new(request, dialect, notes);
    let citations = request.extra.iter().find(|extra| extra.name == "citations").map(|extra| extra.value);
    let citations = citations.filter(|_| matches!(notes.from(), Format::Messages | Format::Converse));
    let json = Writer::new(out);
    let mut scribe = RequestWriter {
        json,
        request,
        dialect,
        notes,
        surplus_marks: 0,
        automatic: AutomaticMarks::default(),
        prompt_start: None,
        citations,
        ids: WrittenIds::default(),
    };
    // Count all marks before writing: the first ones are dropped, and the output is written in one pass.
    let marks = scribe.marks(&plan);
    scribe.surplus_marks = marks.saturating_sub(MAX_MARKS);
    if marks == 0
        && let Some(rule) = request.breakpoints
    {
        let search = scribe.search_offered().is_some();
        let turns = plan.messages.iter().rev().map(|message| (message.role, message.blocks.as_slice()));
        scribe.automatic = AutomaticMarks::new(rule, scribe.offered(), search, &plan.system, turns);
    }
    scribe.request(&plan);
}

/// Writer of one request.
pub(super) struct RequestWriter<'o, 'r, 'a> {
    pub(super) json: Writer<'o, RopeBuilder>,
    pub(super) request: &'r Request<'a>,
    pub(super) dialect: &'r Dialect<'r>,
    pub(super) notes: &'r mut LossNotes,
    /// Number of cache marks that are still to be dropped.
    pub(super) surplus_marks: usize,
    /// Elements that get an automatic cache mark.
    pub(super) automatic: AutomaticMarks<'r, 'a>,
    /// Offset of the prompt (tools, system and messages) in the buffer. `None` before it begins.
    pub(super) prompt_start: Option<usize>,
    /// Citation settings, which apply to all documents.
    pub(super) citations: Option<RawJson<'a>>,
    pub(super) ids: WrittenIds,
}

/// Reasoning setting of the encoded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Think {
    Unsaid,
    Off,
    BetweenTools,
    Budget(u64),
    Adaptive(Option<Effort>),
    Effort(Effort),
}

impl<'a> RequestWriter<'_, '_, 'a> {
    fn request(&mut self, plan: &Plan<'_, '_>) {
        let (think, max_tokens) = self.reasoning(plan);
        let reasoning = matches!(think, Think::Budget(_) | Think::Adaptive(_));
        self.json.begin_object();
        match self.dialect.quirks.model_replacement {
            Some((name, value)) => self.json.key(name).string(value),
            None => self.json.key("model").string(self.dialect.model),
        };
        self.json.key("max_tokens").number(max_tokens);
        if self.request.stream && !self.dialect.quirks.streams_by_path {
            self.json.key("stream").boolean(true);
        }
        self.sampling(reasoning);
        self.stop();
        self.thinking(think);
        self.output_config(think);
        self.account();
        self.extras();
        self.losses();
        // Only models with adaptive reasoning accept a forced tool call; with a budget the provider refuses it.
        self.tools(matches!(think, Think::Budget(_)));
        self.conversation(plan);
        self.json.end_object();
    }

    /// Returns the reasoning setting and `max_tokens`, which includes the reasoning budget in this format.
    fn reasoning(&mut self, plan: &Plan<'_, '_>) -> (Think, u64) {
        let limit = self.request.max_output.unwrap_or(self.dialect.max_output).max(1);
        let budget = |tokens: u64| Think::Budget(tokens.max(MIN_BUDGET));
        let told = self.dialect.reasoning.reasoning_parameter(self.request.thinking);
        let think = match (told, self.dialect.reasoning) {
            (ReasoningParameter::Omitted, _) => {
                let wished = matches!(self.request.thinking, Thinking::Effort(_) | Thinking::Budget(1..));
                if wished {
                    self.notes.lose("reasoning_effort");
                }
                Think::Unsaid
            }
            (ReasoningParameter::Off, _) => Think::Off,
            (ReasoningParameter::BetweenTools, _) => Think::BetweenTools,
            (ReasoningParameter::Effort(effort), _) => Think::Effort(effort),
            (ReasoningParameter::Budget(tokens), _) => budget(tokens),
            // Such a model requires a budget: four fifths of the output limit, within its range.
            (ReasoningParameter::Adaptive(_), ReasoningSupport::Budget { min, max, .. }) => {
                budget((limit / 5 * 4).min(Effort::High.budget()).clamp(min, max.max(min)))
            }
            (ReasoningParameter::Adaptive(effort), _) => Think::Adaptive(effort),
        };
        match think {
            // The provider requires the signed reasoning before a call, and the history does not have it.
            Think::Budget(_) if plan.lacks_reasoning() => {
                self.notes.warn("thinking");
                (Think::Unsaid, limit)
            }
            // The budget must be smaller than `max_tokens`: add it to the client's limit, which covers the text only.
            Think::Budget(tokens) if limit <= tokens => self.fitting(tokens, limit),
            _ => (think, limit),
        }
    }

    /// Returns a budget and `max_tokens` for a budget that the client's limit, which covers the text only, is to be added
    /// to: both within the output limit of the model.
    fn fitting(&mut self, budget: u64, limit: u64) -> (Think, u64) {
        let (fitted, sum) = self.dialect.budget_beside(budget, limit, MIN_BUDGET);
        if fitted != budget {
            self.notes.clamp("budget_tokens");
        }
        (Think::Budget(fitted), sum)
    }

    fn sampling(&mut self, reasoning: bool) {
        let given = self.request.sampling;
        let takes = self.dialect.sampling_beside(self.request.thinking);
        let number = |value: RawJson<'_>| value.text().parse::<f64>().unwrap_or(1.0);
        // With reasoning, the provider accepts only a temperature of 1 and a `top_p` from 0.95 to 1.
        let near = |value: RawJson<'_>, least: f64| {
            takes != SamplingSupport::None && (!reasoning || (least..=1.0).contains(&number(value)))
        };
        let temperature = given.temperature.filter(|value| near(*value, 1.0));
        if let (None, Some(value)) = (temperature, given.temperature) {
            self.notes.lose_sampling("temperature", value);
        }
        let one = takes == SamplingSupport::One && temperature.is_some();
        let top_p = given.top_p.filter(|value| !one && near(*value, 0.95));
        if let (None, Some(value)) = (top_p, given.top_p) {
            self.notes.lose_sampling("top_p", value);
        }
        let top_k = given.top_k.filter(|_| takes != SamplingSupport::None && !reasoning);
        if top_k.is_none() && given.top_k.is_some() {
            self.notes.lose("top_k");
        }
        if let Some(value) = temperature {
            self.json.key("temperature");
            if number(value) > 1.0 {
                self.json.number(1u8);
                self.notes.clamp("temperature");
            } else {
                self.json.raw(value);
            }
        }
        if let Some(value) = top_p {
            self.json.key("top_p").raw(value);
        }
        if let Some(value) = top_k {
            match value.as_u64() {
                Some(whole) => self.json.key("top_k").number(whole),
                None => self.json.key("top_k").raw(value),
            };
        }
        for (value, element) in [
            (given.presence_penalty, "presence_penalty"),
            (given.frequency_penalty, "frequency_penalty"),
            (given.seed, "seed"),
        ] {
            if let Some(value) = value {
                self.notes.lose_sampling(element, value);
            }
        }
    }

    fn stop(&mut self) {
        // The provider refuses stop sequences of white space only.
        let (kept, blank): (Vec<&JsonStr<'_>>, Vec<_>) =
            self.request.stop.iter().partition(|text| !is_blank(**text));
        if !blank.is_empty() {
            self.notes.warn("stop");
        }
        if !kept.is_empty() {
            self.json.key("stop_sequences").begin_array();
            for text in kept {
                self.json.paste(*text);
            }
            self.json.end_array();
        }
    }

    /// Returns the client's own reasoning setting, if it is the one that is sent.
    fn own_thinking(&self, think: Think) -> Option<RawJson<'a>> {
        let said = self.own_member("thinking")?;
        let is_same = match (think, self.request.thinking) {
            (Think::Budget(sent), Thinking::Budget(wished)) => sent == wished,
            (Think::Off, Thinking::Off) => true,
            (Think::Adaptive(_), Thinking::Adaptive | Thinking::Effort(_)) => has_type(said, "adaptive"),
            _ => false,
        };
        Some(said).filter(|_| is_same)
    }

    fn thinking(&mut self, think: Think) {
        if let Some(said) = self.own_thinking(think) {
            self.json.key("thinking").raw(said);
            return;
        }
        let own = self.notes.from() == Format::Messages;
        let shown = self.request.show_thinking;
        let display = match think {
            Think::Unsaid | Think::Effort(_) => return,
            Think::Off | Think::BetweenTools => {
                let kind = if think == Think::Off { "disabled" } else { "between_tools" };
                self.json.key("thinking").begin_object().key("type").string(kind).end_object();
                return;
            }
            Think::Budget(tokens) => {
                self.json.key("thinking").begin_object().key("type").string("enabled");
                self.json.key("budget_tokens").number(tokens);
                // These models show their reasoning by default, and older ones refuse `display`.
                (own && shown == Some(false)).then_some("omitted")
            }
            Think::Adaptive(_) => {
                self.json.key("thinking").begin_object().key("type");
                match self.extra("thinking.type").and_then(RawJson::as_str) {
                    Some(kind) if own => self.json.paste(kind),
                    _ => self.json.string("adaptive"),
                };
                Some(if shown == Some(false) { "omitted" } else { "summarized" })
            }
        };
        if let Some(display) = display {
            self.json.key("display").string(display);
        }
        self.json.end_object();
    }

    fn output_config(&mut self, think: Think) {
        let own = self.notes.from() == Format::Messages;
        let effort = match think {
            Think::Adaptive(effort) => effort,
            Think::Effort(effort) => Some(effort),
            _ => None,
        };
        let kept_effort = self.extra("output_config.effort").filter(|_| own && effort.is_none());
        let refused = kept_effort.filter(|_| !self.dialect.effort_beside_budget);
        if refused.is_some() {
            self.notes.lose("reasoning_effort");
        }
        let kept_effort = kept_effort.filter(|_| refused.is_none());
        let effort = effort.or_else(|| self.effort_beside_off(think, kept_effort));
        let kept_effort = kept_effort.filter(|_| effort.is_none());
        let task_budget = self.extra("output_config.task_budget").filter(|_| own);
        let schema = match self.request.output {
            OutputFormat::Text => None,
            OutputFormat::Schema { schema, openapi, .. } => {
                Some((schema, strict_schema::Rules { openapi, strict: !own }))
            }
            OutputFormat::Json | OutputFormat::Choice { .. } => {
                self.notes.lose("response_format");
                None
            }
        };
        if effort.is_none() && kept_effort.is_none() && task_budget.is_none() && schema.is_none() {
            return;
        }
        self.json.key("output_config").begin_object();
        if let Some(effort) = effort {
            // The lowest effort of this format is `low`.
            self.json.key("effort").string(effort.max(Effort::Low).name());
        }
        if let Some(effort) = kept_effort {
            self.json.key("effort").raw(effort);
        }
        if let Some(budget) = task_budget {
            self.json.key("task_budget").raw(budget);
        }
        if let Some((schema, rules)) = schema {
            self.json.key("format").begin_object().key("type").string("json_schema").key("schema");
            strict_schema::write(schema, rules, false, &mut self.json);
            self.json.end_object();
        }
        self.rest(self.own_member("output_config"), &["effort", "task_budget", "format"]);
        self.json.end_object();
    }

    /// Returns the highest effort beside which the model's reasoning can be off, if the client's effort is a higher one.
    fn effort_beside_off(&mut self, think: Think, kept: Option<RawJson<'_>>) -> Option<Effort> {
        let ReasoningSupport::Adaptive { efforts, off: ReasoningOff::UpTo(highest) } = self.dialect.reasoning
        else {
            return None;
        };
        let said = Effort::from_name(kept?.as_str()?.escaped())?;
        if think != Think::Off || said <= highest {
            return None;
        }
        self.notes.clamp("output_config.effort");
        efforts.up_to(highest)
    }

    /// Writes the user id and the service tier.
    fn account(&mut self) {
        if self.request.source.is_some() {
            for name in ["metadata", "service_tier"] {
                if let Some(value) = self.own_member(name) {
                    self.json.key(name).raw(value);
                }
            }
            return;
        }
        let safety_identifier = self.extra("safety_identifier").and_then(RawJson::as_str);
        if let Some(user) = self.request.user.or(safety_identifier) {
            self.json.key("metadata").begin_object().key("user_id").paste(user).end_object();
        }
        if self.request.metadata.is_some() {
            self.notes.lose("metadata");
        }
        match self.request.service_tier.map_or("", JsonStr::escaped) {
            "" => {}
            "auto" | "priority" => {
                self.json.key("service_tier").string("auto");
            }
            "standard_only" | "default" | "standard" => {
                self.json.key("service_tier").string("standard_only");
            }
            "fast" => {
                self.json.key("speed").string("fast");
            }
            _ => self.notes.lose("service_tier"),
        }
    }

    fn extras(&mut self) {
        let own = self.notes.from() == Format::Messages;
        let request = self.request;
        for Extra { name, value } in &request.extra {
            match *name {
                // Written by `tools`, or beside the element that they belong to.
                "server_tool" | TOOL_SEARCH => {}
                "safety_identifier" if request.user.is_none() && value.as_str().is_some() => {}
                "citations" if self.citations.is_some() => {}
                "output_config.effort"
                | "output_config.task_budget"
                | "thinking.type"
                | "search_result"
                | "input_examples"
                | "eager_input_streaming"
                | "defer_loading"
                | "allowed_callers"
                    if own => {}
                "input_examples"
                | "eager_input_streaming"
                | "defer_loading"
                | "allowed_callers"
                | "citations" => self.notes.lose((*name).to_owned()),
                // The gateway has written its own.
                name if self.dialect.quirks.model_replacement.is_some_and(|(written, _)| written == name) => {
                }
                name if (own || self.dialect.supports(name)) && is_plain(name) => {
                    self.json.key(name).raw(*value);
                }
                name => self.notes.lose(name.to_owned()),
            }
        }
    }

    /// Records parameters that this format does not have.
    fn losses(&mut self) {
        let request = self.request;
        let text_only = |word: &JsonStr<'_>| word.escaped().eq_ignore_ascii_case("text");
        for (lost, element) in [
            (request.choices.is_some_and(|choices| choices > 1), "n"),
            (request.logprobs.is_some(), "logprobs"),
            (request.verbosity.is_some(), "verbosity"),
            (request.cache_key.is_some(), "prompt_cache_key"),
            (request.store.is_some(), "store"),
            (request.previous.is_some(), "previous_response_id"),
            (!request.modalities.iter().all(text_only), "modalities"),
        ] {
            if lost {
                self.notes.lose(element);
            }
        }
    }

    fn extra(&self, name: &str) -> Option<RawJson<'a>> {
        self.request.extra.iter().find(|extra| extra.name == name).map(|extra| extra.value)
    }

    /// Returns the number of cache marks that the request would be written with, including those of elements that are
    /// written unchanged.
    fn marks(&self, plan: &Plan<'_, '_>) -> usize {
        let tools = self.offered().filter(|tool| tool.cache.is_some()).count();
        let search = self.search_offered().is_some_and(|search| search.cache.is_some());
        let own = self.notes.from() == Format::Messages;
        let whole = (own || self.dialect.supports("cache_control")) && self.extra("cache_control").is_some();
        let server = self
            .request
            .extra
            .iter()
            .filter(|extra| own && matches!(extra.name, "server_tool" | TOOL_SEARCH));
        let blocks = plan.messages.iter().flat_map(|message| &message.blocks).chain(&plan.system);
        tools
            + usize::from(search)
            + usize::from(whole)
            + server.map(|tool| raw_marks(tool.value)).sum::<usize>()
            + blocks.map(|block| self.block_marks(block)).sum::<usize>()
    }

    /// Returns the number of cache marks in a block.
    fn block_marks(&self, block: &Block<'_>) -> usize {
        match block {
            Block::Text { cache, .. }
            | Block::Image { cache, .. }
            | Block::File { cache, .. }
            | Block::ToolUse { cache, .. } => usize::from(cache.is_some()),
            Block::SearchResult(result) => usize::from(result.cache.is_some()),
            Block::ToolResult { content, cache, .. } => {
                let (dialect, from) = (self.dialect, self.notes.from());
                let written = content.iter().filter(|part| check_result_block(part, dialect, from).is_ok());
                usize::from(cache.is_some()) + written.map(|part| self.block_marks(part)).sum::<usize>()
            }
            Block::Opaque { raw, .. } => raw_marks(*raw),
            _ => 0,
        }
    }
}

/// Returns the number of cache marks of an element that is written unchanged, and of the blocks in its content.
fn raw_marks(element: RawJson<'_>) -> usize {
    let mut marks = own_marks(element);
    // Most elements have none and are not parsed. Parsing cannot fail: the decoder has read the element.
    if element.text().contains("cache_control") {
        let _ = members(&mut Cursor::new(element.text()), |key, json| {
            if !key.is("content") || json.kind()? != ValueKind::Array {
                return json.skip();
            }
            elements(json, |json| {
                marks += own_marks(json.raw()?);
                Ok(())
            })
            .map(|_| ())
        });
    }
    marks
}

/// Returns the number of cache marks of an element itself.
fn own_marks(element: RawJson<'_>) -> usize {
    let mut marks = 0;
    if element.text().contains("cache_control") && element.text().starts_with('{') {
        let _ = members(&mut Cursor::new(element.text()), |key, json| {
            marks += usize::from(!json.raw()?.is_null() && key.is("cache_control"));
            Ok(())
        });
    }
    marks
}

/// Returns whether an extra is a top-level member with a name that needs no escapes. Paths of losses contain a dot.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}
