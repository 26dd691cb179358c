//! Encoder of a Converse request: its parameters, and the additional members of the model.

use super::document::DocumentNames;
use super::fields;
use super::plan::Plan;
use crate::canonical::dialect::{ReasoningParameter, ReasoningSupport, SamplingSupport};
use crate::canonical::request::Extra;
use crate::canonical::{Block, Dialect, Effort, OutputFormat, Request, Thinking, ToolChoice};
use crate::wire::Format;
use crate::wire::automatic_marks::{AutomaticMarks, is_blank};
use crate::wire::codec::{LossNotes, WrittenIds};
use crate::wire::strict_schema::{self, Rules};
use crate::wire::watch::{members, named_members};
use json::{Cursor, JsonStr, RawJson, RopeBuilder, Writer};

/// Maximum number of cache points. The service refuses a request with more.
const MAX_MARKS: usize = 4;

/// Minimum reasoning budget in tokens. Models refuse a smaller one.
const MIN_BUDGET: u64 = 1_024;

/// Maximum number of members of `requestMetadata`, and maximum length of its names and values.
const METADATA: (usize, usize) = (16, 256);

/// Encodes a request. The model is not part of the body: the path names it. Elements that cannot be carried are recorded
/// in `notes`.
pub fn encode(request: &Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes, out: &mut RopeBuilder) {
    let plan = Plan::new(request, dialect, notes);
    let cites = request.extra.iter().any(|extra| extra.name == "citations")
        && matches!(notes.from(), Format::Converse | Format::Messages);
    let mut writer = RequestWriter {
        json: Writer::new(out),
        request,
        dialect,
        notes,
        surplus_marks: 0,
        automatic: AutomaticMarks::default(),
        prompt_start: None,
        cites,
        ids: WrittenIds::default(),
        names: DocumentNames::default(),
    };
    // Count all marks before writing: the first ones are dropped, and the output is written in one pass.
    let marks = writer.marks(&plan);
    writer.surplus_marks = marks.saturating_sub(MAX_MARKS);
    if marks == 0
        && let Some(rule) = request.breakpoints
    {
        // Without a choice "none", the tools themselves are left out.
        let is_left_out = request.tool_choice == Some(ToolChoice::None) && !plan.has_tools();
        let tools = writer.offered().filter(|_| !is_left_out);
        let turns = plan.messages.iter().rev().map(|message| (message.role, message.blocks.as_slice()));
        writer.automatic =
            AutomaticMarks::new(rule, tools, writer.offers_provider_tool(), &plan.system, turns);
    }
    writer.request(&plan);
}

/// Writer of one request.
pub(super) struct RequestWriter<'o, 'r, 'a> {
    pub(super) json: Writer<'o, RopeBuilder>,
    pub(super) request: &'r Request<'a>,
    pub(super) dialect: &'r Dialect<'r>,
    pub(super) notes: &'r mut LossNotes,
    /// Number of cache points that are still to be dropped.
    pub(super) surplus_marks: usize,
    /// Elements that get an automatic cache point.
    pub(super) automatic: AutomaticMarks<'r, 'a>,
    /// Offset of the prompt (tools, system and messages) in the buffer. `None` before it begins.
    pub(super) prompt_start: Option<usize>,
    /// Whether the response is to cite the documents.
    pub(super) cites: bool,
    pub(super) ids: WrittenIds,
    pub(super) names: DocumentNames,
}

/// Reasoning setting of the encoded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reasoning {
    Unset,
    Off,
    BetweenTools,
    Budget(u64),
    Adaptive(Option<Effort>),
    Effort(Effort),
}

impl<'a> RequestWriter<'_, '_, 'a> {
    fn request(&mut self, plan: &Plan<'_, '_>) {
        let (reasoning, max_tokens) = self.reasoning_setting(plan);
        let signed = matches!(reasoning, Reasoning::Budget(_) | Reasoning::Adaptive(_));
        self.json.begin_object();
        self.inference_config(signed, max_tokens);
        self.model_fields(reasoning, signed);
        self.output_config();
        self.account();
        self.extras();
        self.losses();
        // The prompt, in the order in which the model reads it. What grows with the conversation comes last.
        self.tools(plan, matches!(reasoning, Reasoning::Budget(_)));
        self.conversation(plan);
        self.json.end_object();
    }

    /// Returns the reasoning setting and `maxTokens`, which includes the reasoning budget in this format.
    fn reasoning_setting(&mut self, plan: &Plan<'_, '_>) -> (Reasoning, Option<u64>) {
        let limit = self.request.max_output;
        let parameter = self.dialect.reasoning.reasoning_parameter(self.request.thinking);
        let budget = |tokens: u64| Reasoning::Budget(tokens.max(MIN_BUDGET));
        let reasoning = match (parameter, self.dialect.reasoning) {
            (ReasoningParameter::Omitted, _) => {
                if matches!(self.request.thinking, Thinking::Effort(_) | Thinking::Budget(1..)) {
                    self.notes.lose("reasoning_effort");
                }
                Reasoning::Unset
            }
            (ReasoningParameter::Off, _) => Reasoning::Off,
            (ReasoningParameter::BetweenTools, _) => Reasoning::BetweenTools,
            (ReasoningParameter::Effort(effort), _) => Reasoning::Effort(effort),
            (ReasoningParameter::Budget(tokens), _) => budget(tokens),
            // Such a model requires a budget: four fifths of the output limit, within its range.
            (ReasoningParameter::Adaptive(_), ReasoningSupport::Budget { min, max, .. }) => {
                let limit = limit.unwrap_or(self.dialect.max_output);
                budget((limit / 5 * 4).min(Effort::High.budget()).clamp(min, max.max(min)))
            }
            (ReasoningParameter::Adaptive(effort), _) => Reasoning::Adaptive(effort),
        };
        match (reasoning, limit) {
            // The provider requires the signed reasoning before a call, and the history does not have it.
            (Reasoning::Budget(_), _) if plan.lacks_reasoning() => {
                self.notes.warn("thinking");
                (Reasoning::Unset, limit)
            }
            // The budget must be smaller than `maxTokens`: add it to the client's limit, which covers the text only.
            (Reasoning::Budget(tokens), Some(limit)) if limit <= tokens => {
                let (fitted, sum) = self.dialect.budget_beside(tokens, limit, MIN_BUDGET);
                if fitted != tokens {
                    self.notes.clamp("budget_tokens");
                }
                (Reasoning::Budget(fitted), Some(sum))
            }
            // Without a limit the service takes the maximum of the model.
            _ => (reasoning, limit),
        }
    }

    /// Writes `inferenceConfig`. With `signed`, the model reasons in a way that excludes sampling parameters.
    fn inference_config(&mut self, signed: bool, max_tokens: Option<u64>) {
        let given = self.request.sampling;
        let takes = self.dialect.sampling_beside(self.request.thinking);
        let number = |value: RawJson<'_>| value.text().parse::<f64>().unwrap_or(1.0);
        let near = |value: RawJson<'_>, least: f64| {
            takes != SamplingSupport::None && (!signed || (least..=1.0).contains(&number(value)))
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
        // The service refuses stop sequences of white space only.
        let (stop, blank): (Vec<&JsonStr<'_>>, Vec<_>) =
            self.request.stop.iter().partition(|text| !is_blank(**text));
        if !blank.is_empty() {
            self.notes.warn("stop");
        }
        if max_tokens.is_none() && temperature.is_none() && top_p.is_none() && stop.is_empty() {
            return;
        }
        self.json.key("inferenceConfig").begin_object();
        if let Some(max_tokens) = max_tokens {
            self.json.key("maxTokens").number(max_tokens.max(1));
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
            self.json.key("topP").raw(value);
        }
        if !stop.is_empty() {
            self.json.key("stopSequences").begin_array();
            for text in stop {
                self.json.paste(*text);
            }
            self.json.end_array();
        }
        self.json.end_object();
    }

    /// Writes `additionalModelRequestFields`, in the model's own names. Those of a client of this format are written as
    /// they came: it knows its model.
    fn model_fields(&mut self, reasoning: Reasoning, signed: bool) {
        let own = self.notes.from() == Format::Converse;
        if let Some(fields) = self.extra(fields::NAME).filter(|_| own) {
            self.json.key(fields::NAME).raw(fields);
            return;
        }
        let name = self.dialect.quirks.member("reasoning_effort");
        let top_k = self.request.sampling.top_k;
        let takes = own || self.dialect.supports("top_k");
        let takes_top_k = takes && self.dialect.sampling != SamplingSupport::None && !signed;
        if top_k.is_some() && !takes_top_k {
            self.notes.lose("top_k");
        }
        let top_k = top_k.filter(|_| takes_top_k);
        // A model whose reasoning has an effort is switched off by its lowest one, if at all.
        let is_silent = matches!(reasoning, Reasoning::Unset)
            || (reasoning == Reasoning::Off && matches!(self.dialect.reasoning, ReasoningSupport::Fixed));
        let is_single = self.forbids_parallel_calls();
        if top_k.is_none() && is_silent && !is_single {
            return;
        }
        self.json.key(fields::NAME).begin_object();
        if is_single {
            self.json.key("tool_choice").begin_object().key("type").string("auto");
            self.json.key("disable_parallel_tool_use").boolean(true).end_object();
        }
        match (top_k, self.dialect.quirks.member("top_k")) {
            (Some(value), "inferenceConfig.topK") => {
                self.json.key("inferenceConfig").begin_object().key("topK").raw(value).end_object();
            }
            (Some(value), name) => {
                self.json.key(name).raw(value);
            }
            (None, _) => {}
        }
        match reasoning {
            Reasoning::Unset => {}
            Reasoning::Off if matches!(self.dialect.reasoning, ReasoningSupport::Effort { .. }) => {
                self.effort(name, None);
            }
            Reasoning::Off | Reasoning::BetweenTools => {
                let kind = if reasoning == Reasoning::Off { "disabled" } else { "between_tools" };
                self.json.key("thinking").begin_object().key("type").string(kind).end_object();
            }
            Reasoning::Budget(tokens) => {
                self.json.key("thinking").begin_object().key("type").string("enabled");
                self.json.key("budget_tokens").number(tokens).end_object();
            }
            Reasoning::Adaptive(effort) => {
                self.json.key("thinking").begin_object().key("type").string("adaptive").end_object();
                if let Some(effort) = effort {
                    // The lowest effort of these models is `low`.
                    let effort = effort.max(Effort::Low).name();
                    self.json.key("output_config").begin_object().key("effort").string(effort).end_object();
                }
            }
            Reasoning::Effort(effort) => self.effort(name, Some(effort)),
        }
        self.json.end_object();
    }

    /// Writes a reasoning effort under the model's name for it; `None` switches reasoning off.
    fn effort(&mut self, name: &str, effort: Option<Effort>) {
        let word = effort.map_or("none", |effort| {
            let names = self.dialect.quirks.efforts;
            let at = Effort::ALL.iter().position(|known| *known == effort).unwrap_or_default();
            names.and_then(|names| names.get(at).copied()).unwrap_or(effort.name())
        });
        self.json.key(name);
        if name != "reasoningConfig" {
            self.json.string(word);
            return;
        }
        self.json.begin_object().key("type").string(if effort.is_some() { "enabled" } else { "disabled" });
        if effort.is_some() {
            self.json.key("maxReasoningEffort").string(word);
        }
        self.json.end_object();
    }

    /// Writes `outputConfig`: the schema of the response, as a string.
    fn output_config(&mut self) {
        // A client of this format may have put it among the model's own members, which are written as they came.
        let is_written = |fields| {
            let found = named_members(fields, ["output_config"]);
            found.is_ok_and(|[config]| config.is_some_and(|config| config.text().contains("\"json_schema\"")))
        };
        if self.notes.from() == Format::Converse && self.extra(fields::NAME).is_some_and(is_written) {
            return;
        }
        let OutputFormat::Schema { name, description, schema, openapi, .. } = self.request.output else {
            if self.request.output != OutputFormat::Text {
                self.notes.lose("response_format");
            }
            return;
        };
        self.json.key("outputConfig").begin_object().key("textFormat").begin_object();
        self.json.key("type").string("json_schema").key("structure").begin_object();
        self.json.key("jsonSchema").begin_object().key("schema");
        let rules = Rules { openapi, strict: self.notes.from() != Format::Converse };
        self.json.string(&strict_schema::text(schema, rules));
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if !name.is_empty() && name.escaped().len() <= 64 && name.escaped().chars().all(is_plain) {
            self.json.key("name").paste(name);
        }
        if !description.is_empty() {
            self.json.key("description").paste(description);
        }
        self.json.end_object().end_object().end_object().end_object();
    }

    /// Writes the metadata and the service tier.
    fn account(&mut self) {
        match self.request.metadata {
            Some(metadata) if is_request_metadata(metadata) => {
                self.json.key("requestMetadata").raw(metadata);
            }
            Some(_) => self.notes.lose("metadata"),
            None => {}
        }
        if self.request.user.is_some() {
            self.notes.lose("user");
        }
        let tier = match self.request.service_tier.map_or("", JsonStr::escaped) {
            "" | "auto" => return,
            "standard_only" | "standard" | "default" => "default",
            tier @ ("priority" | "flex" | "reserved") => tier,
            _ => return self.notes.lose("service_tier"),
        };
        self.json.key("serviceTier").begin_object().key("type").string(tier).end_object();
    }

    fn extras(&mut self) {
        let own = self.notes.from() == Format::Converse;
        let fields = self.extra(fields::NAME);
        let is_field = |name: &str| {
            fields.is_some_and(|fields| named_members(fields, [name]).is_ok_and(|[found]| found.is_some()))
        };
        let request = self.request;
        for Extra { name, value } in &request.extra {
            match *name {
                // Written by `tools`, by `model_fields`, or beside the element that they belong to.
                "server_tool" => {}
                "citations" if self.cites => {}
                fields::NAME if own => {}
                // Their texts are written, without what marks them.
                "guardContent" | "citations" | "citationsContent" if own => {
                    self.notes.lose((*name).to_owned());
                }
                // Part of the model's own members, which are written as a whole.
                name if own && is_field(name) => {}
                name if own && is_plain(name) => {
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
        for (value, element) in [
            (request.sampling.presence_penalty, "presence_penalty"),
            (request.sampling.frequency_penalty, "frequency_penalty"),
            (request.sampling.seed, "seed"),
        ] {
            if let Some(value) = value {
                self.notes.lose_sampling(element, value);
            }
        }
    }

    pub(super) fn extra(&self, name: &str) -> Option<RawJson<'a>> {
        self.request.extra.iter().find(|extra| extra.name == name).map(|extra| extra.value)
    }

    /// Returns the number of cache points that the request would be written with, if the model took all of them.
    fn marks(&self, plan: &Plan<'_, '_>) -> usize {
        let tools = self.offered().filter(|tool| tool.cache.is_some()).count();
        let blocks = plan.messages.iter().flat_map(|message| &message.blocks).chain(&plan.system);
        let has_mark = |block: &&&Block<'_>| match block {
            Block::Text { cache, .. }
            | Block::Image { cache, .. }
            | Block::File { cache, .. }
            | Block::ToolUse { cache, .. }
            | Block::ToolResult { cache, .. } => cache.is_some(),
            Block::SearchResult(result) => result.cache.is_some(),
            _ => false,
        };
        tools + blocks.filter(has_mark).count()
    }
}

/// Returns whether an extra is a top-level member with a name that needs no escapes. Paths of losses contain a dot.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// Returns whether metadata of a client is what `requestMetadata` may be: up to 16 strings of some characters.
fn is_request_metadata(metadata: RawJson<'_>) -> bool {
    let (most, longest) = METADATA;
    let fits = |text: JsonStr<'_>| {
        let text = text.decode();
        let plain =
            |c: char| c.is_ascii_alphanumeric() || c.is_ascii_whitespace() || ":_@$#=/+,-.".contains(c);
        text.len() <= longest && text.chars().all(plain)
    };
    let (mut count, mut all) = (0_usize, metadata.text().starts_with('{'));
    let read = members(&mut Cursor::new(metadata.text()), |key, json| {
        let value = json.raw()?;
        count += 1;
        all &= !key.is_empty() && fits(key) && value.as_str().is_some_and(fits);
        Ok(())
    });
    read.is_ok() && all && (1..=most).contains(&count)
}
