//! Reasoning settings: many spellings in requests, one setting in the canonical form.

use super::read::{Result, broken, flag, invalid, object, raw, text};
use crate::canonical::dialect::ReasoningParameter;
use crate::canonical::request::Extra;
use crate::canonical::{Dialect, Effort, Request, Thinking};
use crate::wire::codec::LossNotes;
use json::{Cursor, RopeBuilder, ValueKind, Writer};

use super::encode::supports_extension;

/// Loss name of `thinking.clear_thinking`, which removes earlier reasoning from the context.
pub(super) const CLEAR_THINKING: &str = "thinking.clear_thinking";

/// Reasoning settings of a request, in all spellings.
#[derive(Debug, Default)]
pub(super) struct ReasoningOptions {
    effort: Option<Effort>,
    budget: Option<u64>,
    switch: Option<bool>,
    adaptive: bool,
}

impl ReasoningOptions {
    /// Decodes a member of the request. Returns false if it is not a reasoning setting.
    pub(super) fn member<'a>(
        &mut self,
        name: &str,
        json: &mut Cursor<'a>,
        request: &mut Request<'a>,
    ) -> Result<bool> {
        match name {
            "reasoning_effort" => self.effort(json, name)?,
            "reasoning" => self.reasoning(json, request)?,
            "thinking" => self.switch_object(json, request)?,
            "enable_thinking" => self.switch = Some(flag(json, name)?),
            "thinking_budget" => self.budget(json, name)?,
            "include_reasoning" => request.show_thinking = Some(flag(json, name)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the combined setting. Switching off takes precedence, then a budget, then an effort, then a plain
    /// switch.
    pub(super) fn thinking(&self) -> Thinking {
        match *self {
            ReasoningOptions { switch: Some(false), .. } => Thinking::Off,
            ReasoningOptions { budget: Some(0), .. } => Thinking::Off,
            ReasoningOptions { budget: Some(tokens), .. } => Thinking::Budget(tokens),
            ReasoningOptions { effort: Some(effort), .. } => Thinking::Effort(effort),
            ReasoningOptions { adaptive: true, .. } => Thinking::Adaptive,
            ReasoningOptions { switch: Some(true), .. } => Thinking::Effort(Effort::Medium),
            _ => Thinking::Unset,
        }
    }

    fn effort(&mut self, json: &mut Cursor<'_>, path: &str) -> Result<()> {
        let word = text(json, path)?;
        match word.escaped() {
            "none" | "off" | "disabled" => self.switch = Some(false),
            "auto" | "dynamic" => self.adaptive = true,
            // One provider's word for the model's default.
            "default" => {}
            word => match Effort::from_name(word) {
                Some(effort) => self.effort = Some(effort),
                None => {
                    let expected = "'none', 'minimal', 'low', 'medium', 'high', 'xhigh' or 'max'";
                    return Err(invalid(path, expected));
                }
            },
        }
        Ok(())
    }

    /// Reads a budget in tokens. -1 leaves it to the model.
    fn budget(&mut self, json: &mut Cursor<'_>, path: &str) -> Result<()> {
        let value = raw(json)?;
        match value.as_u64() {
            Some(tokens) => self.budget = Some(tokens),
            None if value.text() == "-1" => self.adaptive = true,
            None => return Err(invalid(path, "a number of tokens, or -1 for no fixed budget")),
        }
        Ok(())
    }

    /// Decodes `reasoning`: `{effort}`, `{max_tokens}`, `{enabled}`, with `exclude`; or an effort, or a boolean.
    fn reasoning<'a>(&mut self, json: &mut Cursor<'a>, request: &mut Request<'a>) -> Result<()> {
        match json.kind().map_err(broken)? {
            ValueKind::String => self.effort(json, "reasoning"),
            ValueKind::Bool => {
                self.switch = Some(flag(json, "reasoning")?);
                Ok(())
            }
            _ => object(json, "reasoning", |key, json| {
                match key.escaped() {
                    "effort" => self.effort(json, "reasoning.effort")?,
                    "max_tokens" => self.budget(json, "reasoning.max_tokens")?,
                    "enabled" => self.switch = Some(flag(json, "reasoning.enabled")?),
                    "exclude" => {
                        if flag(json, "reasoning.exclude")? {
                            request.show_thinking = Some(false);
                        }
                    }
                    _ => drop(raw(json)?),
                }
                Ok(())
            }),
        }
    }

    /// Decodes `thinking`: `{"type":"enabled"}` and similar objects, or a boolean.
    fn switch_object<'a>(&mut self, json: &mut Cursor<'a>, request: &mut Request<'a>) -> Result<()> {
        if json.kind().map_err(broken)? == ValueKind::Bool {
            self.switch = Some(flag(json, "thinking")?);
            return Ok(());
        }
        object(json, "thinking", |key, json| {
            match key.escaped() {
                "type" => match text(json, "thinking.type")?.escaped() {
                    "enabled" => self.switch = Some(true),
                    "disabled" => self.switch = Some(false),
                    "adaptive" | "auto" => self.adaptive = true,
                    _ => return Err(invalid("thinking.type", "'enabled', 'disabled' or 'adaptive'")),
                },
                "budget_tokens" => self.budget(json, "thinking.budget_tokens")?,
                "clear_thinking" => request.extra.push(Extra { name: CLEAR_THINKING, value: raw(json)? }),
                _ => drop(raw(json)?),
            }
            Ok(())
        })
    }
}

/// Encodes the reasoning setting as far as the model supports it. `reasoning_effort` is OpenAI's own member; the others
/// are written for providers that list them as extensions.
pub(super) fn write(
    json: &mut Writer<'_, RopeBuilder>,
    request: &Request<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
) {
    let told = match dialect.reasoning.reasoning_parameter(request.thinking) {
        // This format has no such setting: the nearest one is off.
        ReasoningParameter::BetweenTools => ReasoningParameter::Off,
        told => told,
    };
    if told == ReasoningParameter::Omitted
        && !matches!(request.thinking, Thinking::Unset | Thinking::Adaptive | Thinking::Off)
    {
        notes.lose("reasoning_effort");
    }
    let clear = request.extra.iter().find(|extra| extra.name == CLEAR_THINKING);
    // The member is sent only together with a reasoning setting, because its object requires a `type`.
    let kept = clear.filter(|_| dialect.supports("thinking") && told != ReasoningParameter::Omitted);
    if clear.is_some() && kept.is_none() {
        notes.lose(CLEAR_THINKING);
    }
    let habits = dialect.quirks;
    let by_object = supports_extension(dialect, "thinking");
    let by_switch = supports_extension(dialect, "enable_thinking");
    let by_reasoning = supports_extension(dialect, "reasoning");
    let on = !matches!(told, ReasoningParameter::Omitted | ReasoningParameter::Off);
    if (by_object && told != ReasoningParameter::Omitted) || kept.is_some() {
        json.key("thinking").begin_object();
        json.key("type").string(if told == ReasoningParameter::Off { "disabled" } else { "enabled" });
        if let (true, ReasoningParameter::Budget(tokens)) = (by_object, told) {
            json.key("budget_tokens").number(tokens);
        }
        if let Some(clear) = kept {
            json.key("clear_thinking").raw(clear.value);
        }
        json.end_object();
    }
    // Some models can reason only in streams and refuse other requests unless reasoning is switched off explicitly.
    let quiet = habits.quiet_whole && !request.stream;
    if quiet && on {
        notes.lose("reasoning_effort");
    }
    if by_switch && (told != ReasoningParameter::Omitted || quiet) {
        json.key("enable_thinking").boolean(on && !quiet);
        if let (true, Some(tokens)) = (supports_extension(dialect, "thinking_budget") && !quiet, budget(told))
        {
            json.key("thinking_budget").number(tokens);
        }
    }
    let template = "chat_template_kwargs";
    if habits.template_switch
        && told != ReasoningParameter::Omitted
        && !request.extra.iter().any(|extra| extra.name == template)
    {
        json.key(template).begin_object().key("enable_thinking").boolean(on).end_object();
    }
    if by_reasoning && told != ReasoningParameter::Omitted {
        json.key("reasoning").begin_object();
        match (told, word(told, false, false)) {
            (ReasoningParameter::Budget(tokens), _) => json.key("max_tokens").number(tokens),
            (ReasoningParameter::Effort(_) | ReasoningParameter::Adaptive(Some(_)), Some(word))
                if !dialect.lacks("reasoning_effort") =>
            {
                json.key("effort").string(word)
            }
            _ => json.key("enabled").boolean(on),
        };
        json.end_object();
    // A provider that tolerates any extension gets the exact budget instead of an approximate effort.
    } else if let (ReasoningParameter::Budget(tokens), false) = (told, by_object || by_switch)
        && dialect.supports("reasoning")
    {
        json.key("reasoning").begin_object().key("max_tokens").number(tokens).end_object();
    } else if let Some(word) = word(told, by_object, by_switch).filter(|_| !dialect.lacks("reasoning_effort"))
    {
        json.key("reasoning_effort").string(match (habits.efforts, told) {
            (
                Some(words),
                ReasoningParameter::Effort(effort) | ReasoningParameter::Adaptive(Some(effort)),
            ) => own_word(words, effort),
            _ => word,
        });
    }
}

/// Returns a provider's own word for an effort.
fn own_word(words: [&'static str; 6], effort: Effort) -> &'static str {
    let at = Effort::ALL.iter().position(|known| *known == effort).unwrap_or_default();
    words.get(at).copied().unwrap_or_else(|| effort.name())
}

fn budget(told: ReasoningParameter) -> Option<u64> {
    match told {
        ReasoningParameter::Budget(tokens) => Some(tokens),
        ReasoningParameter::Effort(effort) | ReasoningParameter::Adaptive(Some(effort)) => {
            Some(effort.budget())
        }
        ReasoningParameter::Omitted
        | ReasoningParameter::Off
        | ReasoningParameter::BetweenTools
        | ReasoningParameter::Adaptive(None) => None,
    }
}

fn word(told: ReasoningParameter, by_object: bool, by_switch: bool) -> Option<&'static str> {
    match told {
        _ if by_switch => None,
        ReasoningParameter::Off if by_object => None,
        ReasoningParameter::Off | ReasoningParameter::BetweenTools => Some("none"),
        ReasoningParameter::Effort(effort) | ReasoningParameter::Adaptive(Some(effort)) => {
            Some(effort.name())
        }
        ReasoningParameter::Budget(_) if by_object => None,
        ReasoningParameter::Budget(tokens) => Some(Effort::of_budget(tokens).name()),
        ReasoningParameter::Omitted | ReasoningParameter::Adaptive(None) => None,
    }
}
