//! Encoder of `generationConfig`.

use super::{config, read};
use crate::canonical::dialect::{ReasoningParameter, ReasoningSupport, SamplingSupport};
use crate::canonical::{Dialect, Effort, OutputFormat, Request, Thinking};
use crate::wire::Format;
use crate::wire::codec::LossNotes;
use crate::wire::generate::schema;
use json::{RawJson, RopeBuilder, Writer};

/// Maximum number of stop sequences.
const MAX_STOP: usize = 5;

/// Maximum number of alternatives per token.
const MAX_LOGPROBS: u64 = 20;

/// Writes `generationConfig`; nothing if it has no members.
pub(super) fn write(
    request: &Request<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
    json: &mut Writer<'_, RopeBuilder>,
) {
    let mut inside = RopeBuilder::default();
    let mut members = Writer::new(&mut inside);
    members.begin_object();
    limits(request, notes, &mut members);
    sampling(request, dialect, notes, &mut members);
    output(request, dialect, notes, &mut members);
    thinking(request, dialect, notes, &mut members);
    for extra in request.extra.iter().filter(|extra| config::OWN.contains(&extra.name)) {
        members.key(read::last(extra.name)).raw(extra.value);
    }
    for extra in request.extra.iter().filter(|extra| extra.name == config::ALL) {
        read::copy_unknown(extra.value, config::is_known, &mut members);
    }
    members.end_object();
    let inside = inside.finish().into_contiguous();
    if inside.len() > 2 {
        json.key("generationConfig").raw(RawJson::from_text(std::str::from_utf8(&inside).unwrap_or("{}")));
    }
}

fn limits(request: &Request<'_>, notes: &mut LossNotes, json: &mut Writer<'_, RopeBuilder>) {
    if let Some(tokens) = request.max_output {
        json.key("maxOutputTokens").number(tokens);
    }
    if let Some(choices) = request.choices {
        json.key("candidateCount").number(choices);
    }
    if !request.stop.is_empty() {
        if request.stop.len() > MAX_STOP && notes.from() != Format::Generate {
            notes.refuse("stop", format!("This model accepts at most {MAX_STOP} stop sequences."));
        }
        json.key("stopSequences").begin_array();
        for sequence in &request.stop {
            json.paste(*sequence);
        }
        json.end_array();
    }
    if let Some(alternatives) = request.logprobs {
        json.key("responseLogprobs").boolean(true);
        if alternatives > 0 {
            json.key("logprobs").number(alternatives.min(MAX_LOGPROBS));
        }
    }
}

fn sampling(
    request: &Request<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
    json: &mut Writer<'_, RopeBuilder>,
) {
    let given = &request.sampling;
    let mut top_p = given.top_p;
    let takes = dialect.sampling_beside(request.thinking);
    if takes == SamplingSupport::One
        && given.temperature.is_some()
        && let Some(value) = top_p.take()
    {
        notes.lose_sampling("top_p", value);
    }
    for (element, name, value, range) in [
        ("temperature", "temperature", given.temperature, 0.0..=2.0),
        ("top_p", "topP", top_p, 0.0..=1.0),
        ("top_k", "topK", given.top_k, 0.0..=f64::MAX),
        ("presence_penalty", "presencePenalty", given.presence_penalty, -2.0..=2.0),
        ("frequency_penalty", "frequencyPenalty", given.frequency_penalty, -2.0..=2.0),
    ] {
        let Some(value) = value else { continue };
        if takes == SamplingSupport::None {
            notes.lose_sampling(element, value);
            continue;
        }
        json.key(name);
        match value.text().parse::<f64>() {
            // A client of this format gets the provider's own error for a value out of range.
            Ok(number) if range.contains(&number) || notes.from() == Format::Generate => json.raw(value),
            Ok(number) => {
                notes.clamp(element);
                let nearest = if number < *range.start() { *range.start() } else { *range.end() };
                json.raw(RawJson::from_text(&format!("{nearest}")))
            }
            // Not a number: leave the error to the provider.
            Err(_) => json.raw(value),
        };
    }
    if let Some(seed) = given.seed {
        // The field has 32 bits in this format.
        if seed.text().parse::<i32>().is_ok() || notes.from() == Format::Generate {
            json.key("seed").raw(seed);
        } else {
            notes.lose("seed");
        }
    }
}

fn output(
    request: &Request<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
    json: &mut Writer<'_, RopeBuilder>,
) {
    match request.output {
        OutputFormat::Text => {}
        OutputFormat::Json => {
            json.key("responseMimeType").string("application/json");
        }
        OutputFormat::Choice { schema } => {
            json.key("responseMimeType").string("text/x.enum");
            json.key("responseSchema");
            json.raw(schema);
        }
        OutputFormat::Schema { schema, openapi, .. } => {
            json.key("responseMimeType").string("application/json");
            if openapi {
                json.key("responseSchema");
                json.raw(schema);
            } else if dialect.json_schema {
                json.key("responseJsonSchema");
                json.raw(schema);
            } else {
                let cut = schema::openapi(schema, schema::Root::Answer);
                if cut.narrowed {
                    notes.lose("schema_keywords");
                }
                if let Some(text) = cut.text {
                    json.key("responseSchema").raw(RawJson::from_text(&text));
                }
            }
        }
    }
    if !request.modalities.is_empty() {
        json.key("responseModalities").begin_array();
        for modality in &request.modalities {
            json.string(&modality.decode().to_ascii_uppercase());
        }
        json.end_array();
    }
}

fn thinking(
    request: &Request<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
    json: &mut Writer<'_, RopeBuilder>,
) {
    let told = dialect.reasoning.reasoning_parameter(request.thinking);
    if dialect.reasoning == ReasoningSupport::Fixed {
        if !matches!(request.thinking, Thinking::Unset | Thinking::Off) {
            notes.lose("reasoning_effort");
        }
        return;
    }
    // In other formats a request for reasoning also makes it visible; this format needs `includeThoughts` for that.
    let asked = !matches!(request.thinking, Thinking::Unset | Thinking::Off | Thinking::Budget(0));
    let shown = request.show_thinking.or_else(|| (asked && notes.from() != Format::Generate).then_some(true));
    if told == ReasoningParameter::Omitted && shown.is_none() {
        return;
    }
    json.key("thinkingConfig").begin_object();
    match (told, dialect.reasoning) {
        (
            ReasoningParameter::Off | ReasoningParameter::BetweenTools,
            ReasoningSupport::Effort { efforts, .. } | ReasoningSupport::Adaptive { efforts, .. },
        ) => level(efforts.lowest().unwrap_or(Effort::Minimal), json),
        (ReasoningParameter::Off | ReasoningParameter::BetweenTools, _) => {
            json.key("thinkingBudget").number(0u64);
        }
        (ReasoningParameter::Budget(tokens), _) => {
            json.key("thinkingBudget").number(tokens);
        }
        (ReasoningParameter::Effort(effort) | ReasoningParameter::Adaptive(Some(effort)), _) => {
            level(effort, json)
        }
        (ReasoningParameter::Adaptive(None), ReasoningSupport::Budget { .. }) => {
            json.key("thinkingBudget").number(-1i64);
        }
        (ReasoningParameter::Adaptive(None) | ReasoningParameter::Omitted, _) => {}
    }
    if let Some(shown) = shown {
        json.key("includeThoughts").boolean(shown);
    }
    json.end_object();
}

fn level(effort: Effort, json: &mut Writer<'_, RopeBuilder>) {
    json.key("thinkingLevel").string(match effort {
        Effort::Minimal => "MINIMAL",
        Effort::Low => "LOW",
        Effort::Medium => "MEDIUM",
        Effort::High => "HIGH",
        Effort::XHigh | Effort::Max => "XHIGH",
    });
}
