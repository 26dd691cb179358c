//! Decoder of `generationConfig`: sampling, output format, reasoning.

use super::read::{ReadFault, boolean, count, last, number, object, object_or_whole, string, strings, wrong};
use crate::canonical::request::Extra;
use crate::canonical::{Effort, OutputFormat, Request, Thinking};
use json::{Cursor, JsonStr, RawJson};

/// Members that only this format has, by the name under which they are extra members of the request.
pub(super) const OWN: [&str; 12] = [
    "generationConfig.imageConfig",
    "generationConfig.speechConfig",
    "generationConfig.mediaResolution",
    "generationConfig.responseFormat",
    "generationConfig.routingConfig",
    "generationConfig.modelSelectionConfig",
    "generationConfig.modelConfig",
    "generationConfig.audioTimestamp",
    "generationConfig.enableAffectiveDialog",
    "generationConfig.enableEnhancedCivicAnswers",
    "generationConfig.translationConfig",
    "generationConfig.enableVerboseLogging",
];

/// Name of the extra member with the whole `generationConfig`, present if it has unknown members. The encoder copies
/// these from it.
pub(super) const ALL: &str = "generationConfig.*";

/// Members with a canonical field.
const READ: [&str; 16] = [
    "temperature",
    "topP",
    "topK",
    "presencePenalty",
    "frequencyPenalty",
    "seed",
    "maxOutputTokens",
    "candidateCount",
    "stopSequences",
    "responseModalities",
    "responseLogprobs",
    "logprobs",
    "responseMimeType",
    "responseSchema",
    "responseJsonSchema",
    "thinkingConfig",
];

/// Returns whether a member of this name, in camelCase, is known.
pub(super) fn is_known(name: &str) -> bool {
    READ.contains(&name) || OWN.iter().any(|own| last(own) == name)
}

/// Returns the name and the path of the first unknown member of a `generationConfig`; `None` if all are known.
pub(super) fn unknown(config: RawJson<'_>) -> Option<(String, String)> {
    let mut found = None;
    let read = object(&mut Cursor::new(config.text()), String::new, |key, name, json| {
        if !is_known(key) && found.is_none() {
            found = Some((name.escaped().to_owned(), format!("generationConfig.{}", name.escaped())));
        }
        Ok(json.skip()?)
    });
    read.ok().and(found)
}

/// Output format, in the members that define it.
#[derive(Default)]
struct Output<'a> {
    mime: JsonStr<'a>,
    schema: Option<RawJson<'a>>,
    json_schema: Option<RawJson<'a>>,
}

pub(super) fn read<'a>(json: &mut Cursor<'a>, request: &mut Request<'a>) -> Result<(), ReadFault> {
    let mut output = Output::default();
    let (mut logprobs, mut alternatives) = (false, 0);
    let path = |key: &str| format!("generationConfig.{key}");
    let whole = object_or_whole(
        json,
        || "generationConfig".to_owned(),
        |key, json| {
            let sampling = &mut request.sampling;
            match key {
                "temperature" => sampling.temperature = Some(number(json, &path(key))?),
                "topP" => sampling.top_p = Some(number(json, &path(key))?),
                "topK" => sampling.top_k = Some(number(json, &path(key))?),
                "presencePenalty" => sampling.presence_penalty = Some(number(json, &path(key))?),
                "frequencyPenalty" => sampling.frequency_penalty = Some(number(json, &path(key))?),
                "seed" => sampling.seed = Some(number(json, &path(key))?),
                "maxOutputTokens" => request.max_output = Some(count(json, &path(key))?),
                "candidateCount" => request.choices = Some(count(json, &path(key))?),
                "stopSequences" => request.stop = strings(json, &path(key))?,
                "responseModalities" => request.modalities = strings(json, &path(key))?,
                "responseLogprobs" => logprobs = boolean(json, &path(key))?,
                "logprobs" => alternatives = count(json, &path(key))?,
                "responseMimeType" => output.mime = string(json, || path(key))?,
                "responseSchema" => output.schema = Some(json.raw()?),
                "responseJsonSchema" => output.json_schema = Some(json.raw()?),
                "thinkingConfig" => thinking(json, request)?,
                _ => match OWN.into_iter().find(|own| last(own) == key) {
                    Some(name) => request.extra.push(Extra { name, value: json.raw()? }),
                    None => return Ok(false),
                },
            }
            Ok(true)
        },
    )?;
    request.extra.extend(whole.map(|value| Extra { name: ALL, value }));
    request.logprobs = logprobs.then_some(alternatives);
    request.output = output.format();
    Ok(())
}

impl<'a> Output<'a> {
    fn format(self) -> OutputFormat<'a> {
        let (name, description) = (JsonStr::default(), JsonStr::default());
        let openapi = self.json_schema.is_none();
        match (self.mime.decode().as_ref(), self.json_schema.or(self.schema)) {
            ("text/x.enum", Some(schema)) => OutputFormat::Choice { schema },
            (_, Some(schema)) => OutputFormat::Schema { name, description, schema, openapi, strict: None },
            ("application/json", None) => OutputFormat::Json,
            _ => OutputFormat::Text,
        }
    }
}

fn thinking<'a>(json: &mut Cursor<'a>, request: &mut Request<'a>) -> Result<(), ReadFault> {
    const BUDGET: &str = "generationConfig.thinkingConfig.thinkingBudget";
    const LEVEL: &str = "generationConfig.thinkingConfig.thinkingLevel";
    const SHOWN: &str = "generationConfig.thinkingConfig.includeThoughts";
    let mut level = None;
    object(
        json,
        || "generationConfig.thinkingConfig".to_owned(),
        |key, _, json| {
            match key {
                "includeThoughts" => request.show_thinking = Some(boolean(json, SHOWN)?),
                "thinkingBudget" => {
                    let budget = number(json, BUDGET)?;
                    request.thinking = match budget.as_u64() {
                        Some(0) => Thinking::Off,
                        Some(tokens) => Thinking::Budget(tokens),
                        None if budget.text() == "-1" => Thinking::Adaptive,
                        None => return Err(wrong(BUDGET, "must be a whole number, or -1")),
                    };
                }
                "thinkingLevel" => {
                    let word = string(json, || LEVEL.to_owned())?;
                    level = match word.escaped() {
                        "" | "THINKING_LEVEL_UNSPECIFIED" => None,
                        word => Some(
                            Effort::from_name(word).ok_or_else(|| wrong(LEVEL, "is not a known level"))?,
                        ),
                    };
                }
                _ => json.skip()?,
            }
            Ok(())
        },
    )?;
    // A level takes precedence over a budget.
    if let Some(level) = level {
        request.thinking = Thinking::Effort(level);
    }
    Ok(())
}
