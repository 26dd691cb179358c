//! Compatibility check: whether a provider with a reduced chat format accepts a request unchanged.
//!
//! Most clients of such a provider are written for it, and their requests pass unchanged. A request with an element
//! that the provider refuses is decoded and encoded again for it.

use super::extensions::{is_added, takes_in_message};
use crate::canonical::dialect::{ReasoningSupport, SamplingSupport, Structured};
use crate::canonical::{Dialect, Effort, RequestFeatures};
use crate::wire::watch::{elements, members};
use json::{Cursor, JsonError, JsonStr, RawJson, ValueKind};

/// Returns whether a valid request can be sent to the provider unchanged.
pub fn fits(body: &str, dialect: &Dialect<'_>) -> bool {
    let refuses_added = dialect.refuses.intersects(RequestFeatures::ADDED_MEMBER);
    let mut fit = Fit { dialect, refuses_added, stream: false, fits: true, last: Last::Start };
    let read = members(&mut Cursor::new(body), |key, json| fit.member(key, json));
    let is_marked = fit.last != Last::Unmarked || !dialect.quirks.needs_prefill_mark;
    read.is_ok()
        && fit.fits
        && is_marked
        && (fit.stream || !(dialect.quirks.streams_only || dialect.quirks.quiet_whole))
}

struct Fit<'r, 'd> {
    dialect: &'r Dialect<'d>,
    /// Whether the provider refuses members that others have added.
    refuses_added: bool,
    stream: bool,
    fits: bool,
    /// Last message of the conversation so far.
    last: Last,
}

/// Kind of a message that decides what may follow it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Start,
    System,
    Tool,
    /// One of the model that is not marked as a prefill.
    Unmarked,
    Other,
}

impl Fit<'_, '_> {
    fn member(&mut self, key: JsonStr<'_>, json: &mut Cursor<'_>) -> Result<(), JsonError> {
        let habits = self.dialect.quirks;
        match key.escaped() {
            "messages" => elements(json, |json| self.message(json)).map(|_| ())?,
            "tools" => elements(json, |json| self.tool(json)).map(|_| ())?,
            "tool_choice" => {
                let choice = json.raw()?;
                self.fits &= choice.is_null() || self.takes_choice(choice);
            }
            "stream" => self.stream = json.raw()?.as_bool() == Some(true),
            "response_format" => {
                let format = json.raw()?;
                let schema = self.dialect.structured == Structured::Json && is_type(format, "json_schema");
                self.fits &= !schema;
            }
            name => {
                let value = json.raw()?;
                let own = match name {
                    "max_completion_tokens" => self.dialect.max_completion_tokens,
                    "n" => value.as_u64() == Some(1) || !self.dialect.lacks(name),
                    "logprobs" => value.as_bool() != Some(true) || !self.dialect.lacks(name),
                    "parallel_tool_calls" => value.as_bool() != Some(false) || !self.dialect.lacks(name),
                    "temperature" => self.takes_figure(value, habits.temperature),
                    "top_p" => self.takes_figure(value, habits.top_p),
                    "presence_penalty" | "frequency_penalty" => {
                        value.as_u64() == Some(0) || !(self.tunes_nothing() || self.dialect.lacks(name))
                    }
                    "reasoning_effort" => self.takes_effort(value),
                    "web_search_options" => {
                        let speaks = self.dialect.extensions.contains(&"enable_search");
                        !(habits.lacks("web_search") || habits.search_tool.is_some() || speaks)
                    }
                    // Members that one provider invented and whose clients send them to other providers too.
                    // A provider that does not know a member refuses it as null, too.
                    "thinking" | "enable_thinking" | "parameters" | "reasoning" => {
                        self.fits &= self.dialect.supports(name);
                        name != "thinking" || !is_type(value, "disabled") || self.can_be_off()
                    }
                    name if self.refuses_added && is_added(name) => {
                        let is_own = self.dialect.quirks.renames.iter().any(|(_, own)| *own == name);
                        self.fits &= is_own || self.dialect.supports(name);
                        true
                    }
                    _ => !self.dialect.lacks(name) && !habits.renames.iter().any(|(usual, _)| *usual == name),
                };
                self.fits &= own || value.is_null();
            }
        }
        Ok(())
    }

    fn message(&mut self, json: &mut Cursor<'_>) -> Result<(), JsonError> {
        let habits = self.dialect.quirks;
        let (mut role, mut named, mut called, mut reasons) = (JsonStr::default(), false, false, false);
        let (mut marked, mut shows) = (false, false);
        members(json, |key, json| {
            match key.escaped() {
                "role" => role = json.raw()?.as_str().unwrap_or_default(),
                "name" => named = !json.raw()?.is_null(),
                "content"
                    if (habits.joins_texts || !self.dialect.image_input || self.refuses_added)
                        && json.kind()? == ValueKind::Array =>
                {
                    let (mut texts, mut others) = (0, 0);
                    elements(json, |json| {
                        let part = json.raw()?;
                        *(if is_type(part, "text") { &mut texts } else { &mut others }) += 1;
                        let is_image = is_type(part, "image_url");
                        shows |= is_image;
                        self.fits &= self.dialect.image_input || !is_image;
                        Ok(())
                    })?;
                    // Only a list of nothing but texts must be joined to a string.
                    self.fits &= !habits.joins_texts || others > 0 || texts == 0;
                }
                "prefix" | "partial" => marked = json.raw()?.as_bool() == Some(true),
                "tool_calls" => {
                    let calls = json.raw()?;
                    called = !calls.is_void();
                    self.calls(calls);
                }
                "tool_call_id" if habits.nine_letter_ids => {
                    let id = json.raw()?.as_str().unwrap_or_default();
                    self.fits &= id.escaped().len() == 9;
                }
                name @ ("reasoning_content" | "reasoning") => {
                    reasons = !json.raw()?.is_void();
                    self.fits &=
                        !(reasons && self.dialect.lacks(name)) && takes_in_message(name, self.dialect);
                }
                name => {
                    self.fits &= takes_in_message(name, self.dialect);
                    json.skip()?;
                }
            }
            Ok(())
        })?;
        let kind = match role.escaped() {
            "system" | "developer" => Last::System,
            "tool" | "function" => Last::Tool,
            "assistant" if !marked => Last::Unmarked,
            _ => Last::Other,
        };
        // Providers that take nothing beyond the format take texts as results only.
        self.fits &= !(shows && kind == Last::Tool && self.refuses_added);
        let is_later = kind == Last::System && !matches!(self.last, Last::Start | Last::System);
        self.fits &= self.dialect.system_in_middle || !is_later;
        self.fits &= !(habits.bridges_results && self.last == Last::Tool && role.is("user"));
        self.last = kind;
        // Tool results carry the name of their tool, which even providers without other names accept.
        self.fits &= !(named && habits.lacks("name")) || role.is("tool");
        self.fits &= !(role.is("developer") && habits.lacks("developer_role"));
        // The encoder adds the reasoning member that the provider requires.
        self.fits &= !(called && habits.calls_need_reasoning && !reasons);
        Ok(())
    }

    /// Checks the members of calls and of their functions.
    fn calls(&mut self, calls: RawJson<'_>) {
        if !self.dialect.refuses.intersects(RequestFeatures::MESSAGE_MEMBER) {
            return;
        }
        let _ = elements(&mut Cursor::new(calls.text()), |json| {
            members(json, |key, json| {
                self.fits &= takes_in_message(key.escaped(), self.dialect);
                if !key.is("function") {
                    return json.skip();
                }
                members(json, |key, json| {
                    self.fits &= takes_in_message(key.escaped(), self.dialect);
                    json.skip()
                })
            })
        });
    }

    fn tool(&mut self, json: &mut Cursor<'_>) -> Result<(), JsonError> {
        let tool = json.raw()?;
        self.fits &= self.dialect.quirks.custom_tools || !is_type(tool, "custom");
        if self.dialect.quirks.lacks("tool_strict") {
            members(&mut Cursor::new(tool.text()), |key, json| {
                if key.is("function") {
                    return members(json, |key, json| {
                        let value = json.raw()?;
                        self.fits &= !(key.is("strict") && value.as_bool() == Some(true));
                        Ok(())
                    });
                }
                json.skip()
            })?;
        }
        Ok(())
    }

    /// Returns whether the model accepts no sampling parameters.
    fn tunes_nothing(&self) -> bool {
        // A model that takes them while it does not reason is asked with the reasoning setting at hand: encode again.
        matches!(self.dialect.sampling, SamplingSupport::None | SamplingSupport::IfOff)
    }

    fn takes_figure(&self, value: RawJson<'_>, range: Option<(&str, &str)>) -> bool {
        let figure = |text: &str| text.parse::<f64>().ok();
        let Some(said) = figure(value.text()) else { return true };
        if self.tunes_nothing() {
            return value.as_u64() == Some(1);
        }
        let range = range.and_then(|(least, most)| figure(least).zip(figure(most)));
        range.is_none_or(|(least, most)| (least..=most).contains(&said))
    }

    fn takes_effort(&self, value: RawJson<'_>) -> bool {
        let habits = self.dialect.quirks;
        let Some(word) = value.as_str() else { return true };
        let known = match (self.dialect.reasoning, Effort::from_name(word.escaped())) {
            _ if habits.efforts.is_some() => {
                habits.efforts.is_some_and(|words| word.is("none") || words.iter().any(|own| word.is(own)))
            }
            (ReasoningSupport::Effort { efforts, .. }, Some(effort)) => {
                efforts.has(effort) || !self.dialect.knows_efforts
            }
            // Where another member switches reasoning off, the word is no effort.
            (ReasoningSupport::Effort { off, .. }, None) if word.is("none") => {
                let is_word = !self.dialect.extensions.contains(&"thinking");
                is_word && off.is_full() || !self.dialect.knows_efforts
            }
            _ => true,
        };
        self.dialect.reasoning != ReasoningSupport::Fixed && !self.dialect.lacks("reasoning_effort") && known
    }

    /// Returns whether reasoning can be switched off, as far as it is known.
    fn can_be_off(&self) -> bool {
        match self.dialect.reasoning {
            ReasoningSupport::Effort { off, .. } => off.is_full() || !self.dialect.knows_efforts,
            _ => true,
        }
    }

    fn takes_choice(&self, choice: RawJson<'_>) -> bool {
        let choices = self.dialect.quirks.choices;
        match choice.as_str() {
            Some(word) if word.is("auto") => true,
            Some(word) if word.is("none") => choices.none,
            Some(word) if word.is("required") => choices.any == Some("required") && choices.while_reasoning,
            // A provider-specific value.
            Some(_) => true,
            None if is_type(choice, "allowed_tools") => choices.some,
            None => choices.named && choices.while_reasoning,
        }
    }
}

fn is_type(object: RawJson<'_>, name: &str) -> bool {
    let mut is = false;
    let _ = members(&mut Cursor::new(object.text()), |key, json| {
        let value = json.raw()?;
        if key.is("type") {
            is = value.as_str().is_some_and(|kind| kind.is(name));
        }
        Ok(())
    });
    is
}
