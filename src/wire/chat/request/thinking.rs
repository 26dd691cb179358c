//! How reasoning is asked for: one wish in many spellings.

use bytes::BytesMut;

use super::read::{Result, broken, flag, invalid, object, raw, text};
use crate::canonical::dialect::CacheMarks;
use crate::canonical::request::Extra;
use crate::canonical::{Dialect, Effort, Request, Thinking};
use crate::json::{Cursor, Kind, Writer};
use crate::wire::codec::LossNotes;

use super::encode::speaks;

/// The one member of `thinking` that says something besides: whether earlier reasoning is left out.
pub(super) const CLEAR_THINKING: &str = "thinking.clear_thinking";

/// What was said about reasoning, in whatever spelling.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    effort: Option<Effort>,
    budget: Option<u64>,
    switch: Option<bool>,
    adaptive: bool,
}

impl Wishes {
    /// Reads a member of the request, if it is one of the spellings.
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
            "thinking_budget" => self.budget(json)?,
            "include_reasoning" => request.show_thinking = Some(flag(json, name)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What all of it means. Who switches reasoning off means it; a figure says more than a word, a word more than yes.
    pub(super) fn thinking(&self) -> Thinking {
        match *self {
            Wishes { switch: Some(false), .. } => Thinking::Off,
            Wishes { budget: Some(0), .. } => Thinking::Off,
            Wishes { budget: Some(tokens), .. } => Thinking::Budget(tokens),
            Wishes { effort: Some(effort), .. } => Thinking::Effort(effort),
            Wishes { adaptive: true, .. } => Thinking::Adaptive,
            Wishes { switch: Some(true), .. } => Thinking::Effort(Effort::Medium),
            _ => Thinking::Unsaid,
        }
    }

    fn effort(&mut self, json: &mut Cursor<'_>, path: &str) -> Result<()> {
        let word = text(json, path)?;
        match word.escaped() {
            "none" | "off" | "disabled" => self.switch = Some(false),
            "auto" | "dynamic" => self.adaptive = true,
            // The model's own default, in one provider's word.
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

    /// A budget in tokens; a negative one leaves it to the model.
    fn budget(&mut self, json: &mut Cursor<'_>) -> Result<()> {
        match raw(json)?.as_u64() {
            Some(tokens) => self.budget = Some(tokens),
            None => self.adaptive = true,
        }
        Ok(())
    }

    /// `reasoning`: `{effort}`, `{max_tokens}`, `{enabled}`, with `exclude`; or a word, or a switch.
    fn reasoning<'a>(&mut self, json: &mut Cursor<'a>, request: &mut Request<'a>) -> Result<()> {
        match json.kind().map_err(broken)? {
            Kind::String => self.effort(json, "reasoning"),
            Kind::Bool => {
                self.switch = Some(flag(json, "reasoning")?);
                Ok(())
            }
            _ => object(json, "reasoning", |key, json| {
                match key.escaped() {
                    "effort" => self.effort(json, "reasoning.effort")?,
                    "max_tokens" => self.budget(json)?,
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

    /// `thinking`: `{"type":"enabled"}` and the like, or a switch.
    fn switch_object<'a>(&mut self, json: &mut Cursor<'a>, request: &mut Request<'a>) -> Result<()> {
        if json.kind().map_err(broken)? == Kind::Bool {
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
                "budget_tokens" => self.budget(json)?,
                "clear_thinking" => request.extra.push(Extra { name: CLEAR_THINKING, value: raw(json)? }),
                _ => drop(raw(json)?),
            }
            Ok(())
        })
    }
}

/// Writes what a model can be told. The word is OpenAI's own way; the others are for those that name them.
pub(super) fn write(
    json: &mut Writer<'_, BytesMut>,
    request: &Request<'_>,
    dialect: &Dialect<'_>,
    notes: &mut LossNotes,
) {
    let told = dialect.reasoning.tell(request.thinking);
    if told == CacheMarks::Nothing
        && !matches!(request.thinking, Thinking::Unsaid | Thinking::Adaptive | Thinking::Off)
    {
        notes.lose("reasoning_effort");
    }
    let clear = request.extra.iter().find(|extra| extra.name == CLEAR_THINKING);
    let kept = clear.filter(|_| dialect.understands("thinking") && told != CacheMarks::Nothing);
    if clear.is_some() && kept.is_none() {
        notes.lose(CLEAR_THINKING);
    }
    let habits = dialect.habits;
    let by_object = speaks(dialect, "thinking");
    let by_switch = speaks(dialect, "enable_thinking");
    let by_reasoning = speaks(dialect, "reasoning");
    let on = !matches!(told, CacheMarks::Nothing | CacheMarks::Off);
    if (by_object && told != CacheMarks::Nothing) || kept.is_some() {
        json.key("thinking").begin_object();
        json.key("type").string(if told == CacheMarks::Off { "disabled" } else { "enabled" });
        if let (true, CacheMarks::Budget(tokens)) = (by_object, told) {
            json.key("budget_tokens").number(tokens);
        }
        if let Some(clear) = kept {
            json.key("clear_thinking").raw(clear.value);
        }
        json.end_object();
    }
    // Some models cannot both reason and answer as a whole, and must be told so.
    let quiet = habits.quiet_whole && !request.stream;
    if by_switch && (told != CacheMarks::Nothing || quiet) {
        json.key("enable_thinking").boolean(on && !quiet);
        if let (true, Some(tokens)) = (speaks(dialect, "thinking_budget") && !quiet, budget(told)) {
            json.key("thinking_budget").number(tokens);
        }
    }
    let template = "chat_template_kwargs";
    if habits.template_switch
        && told != CacheMarks::Nothing
        && !request.extra.iter().any(|extra| extra.name == template)
    {
        json.key(template).begin_object().key("enable_thinking").boolean(on).end_object();
    }
    if by_reasoning && told != CacheMarks::Nothing {
        json.key("reasoning").begin_object();
        match (told, word(told, false, false)) {
            (CacheMarks::Budget(tokens), _) => json.key("max_tokens").number(tokens),
            (CacheMarks::Effort(_) | CacheMarks::Adaptive(Some(_)), Some(word))
                if !habits.lacks("reasoning_effort") =>
            {
                json.key("effort").string(word)
            }
            _ => json.key("enabled").boolean(on),
        };
        json.end_object();
    } else if let (CacheMarks::Budget(tokens), false) = (told, by_object || by_switch)
        && dialect.understands("reasoning")
    {
        json.key("reasoning").begin_object().key("max_tokens").number(tokens).end_object();
    } else if let Some(word) = word(told, by_object, by_switch).filter(|_| !habits.lacks("reasoning_effort"))
    {
        json.key("reasoning_effort").string(match (habits.efforts, told) {
            (Some(words), CacheMarks::Effort(effort) | CacheMarks::Adaptive(Some(effort))) => {
                own_word(words, effort)
            }
            _ => word,
        });
    }
}

/// A provider's own word for an effort.
fn own_word(words: [&'static str; 6], effort: Effort) -> &'static str {
    let at = Effort::ALL.iter().position(|known| *known == effort).unwrap_or_default();
    words.get(at).copied().unwrap_or_else(|| effort.name())
}

fn budget(told: CacheMarks) -> Option<u64> {
    match told {
        CacheMarks::Budget(tokens) => Some(tokens),
        CacheMarks::Effort(effort) | CacheMarks::Adaptive(Some(effort)) => Some(effort.budget()),
        CacheMarks::Nothing | CacheMarks::Off | CacheMarks::Adaptive(None) => None,
    }
}

fn word(told: CacheMarks, by_object: bool, by_switch: bool) -> Option<&'static str> {
    match told {
        _ if by_switch => None,
        CacheMarks::Off if by_object => None,
        CacheMarks::Off => Some("none"),
        CacheMarks::Effort(effort) | CacheMarks::Adaptive(Some(effort)) => Some(effort.name()),
        CacheMarks::Budget(_) if by_object => None,
        CacheMarks::Budget(tokens) => Some(Effort::of_budget(tokens).name()),
        CacheMarks::Nothing | CacheMarks::Adaptive(None) => None,
    }
}
