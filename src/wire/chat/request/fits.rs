//! Whether a provider that takes less than all of this format takes a request as it is.
//!
//! Most clients that speak to such a provider have been written for it, and what they say passes untouched. A request
//! with a word that the provider refuses is said anew.

use crate::canonical::Dialect;
use crate::canonical::dialect::{Reasoning, Sampling, Structured};
use crate::json::{Cursor, JsonError, JsonStr, Kind, RawJson};
use crate::wire::watch::{elements, members};

/// Whether a sound request can go to the provider as the client wrote it.
pub fn fits(body: &str, dialect: &Dialect<'_>) -> bool {
    let mut fit = Fit { dialect, stream: false, fits: true };
    let read = members(&mut Cursor::new(body), |key, json| fit.member(key, json));
    read.is_ok() && fit.fits && (fit.stream || !(dialect.habits.streams_only || dialect.habits.quiet_whole))
}

struct Fit<'r, 'd> {
    dialect: &'r Dialect<'d>,
    stream: bool,
    fits: bool,
}

impl Fit<'_, '_> {
    fn member(&mut self, key: JsonStr<'_>, json: &mut Cursor<'_>) -> Result<(), JsonError> {
        let habits = self.dialect.habits;
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
                    "n" => value.as_u64() == Some(1) || !habits.lacks(name),
                    "logprobs" => value.as_bool() != Some(true) || !habits.lacks(name),
                    "parallel_tool_calls" => value.as_bool() != Some(false) || !habits.lacks(name),
                    "temperature" => self.takes_figure(value, habits.temperature),
                    "top_p" => self.takes_figure(value, habits.top_p),
                    "presence_penalty" | "frequency_penalty" => {
                        value.as_u64() == Some(0) || !(self.tunes_nothing() || habits.lacks(name))
                    }
                    "reasoning_effort" => self.takes_effort(value),
                    "web_search_options" => {
                        let speaks = self.dialect.extensions.contains(&"enable_search");
                        !(habits.lacks("web_search") || habits.search_tool.is_some() || speaks)
                    }
                    // Members that one provider has invented, and its clients send to others too.
                    "thinking" | "enable_thinking" | "parameters" | "reasoning" => {
                        self.dialect.understands(name)
                    }
                    _ => !habits.lacks(name) && !habits.renames.iter().any(|(usual, _)| *usual == name),
                };
                self.fits &= own || value.is_null();
            }
        }
        Ok(())
    }

    fn message(&mut self, json: &mut Cursor<'_>) -> Result<(), JsonError> {
        let habits = self.dialect.habits;
        let (mut role, mut called, mut reasons) = (JsonStr::default(), false, false);
        members(json, |key, json| {
            match key.escaped() {
                "role" => role = json.raw()?.as_str().unwrap_or_default(),
                "name" => {
                    json.skip()?;
                    // A result has its tool's name, which providers take who take no other.
                    self.fits &= role.is("tool") || !habits.lacks("name");
                }
                "content" if habits.joins_texts && json.kind()? == Kind::Array => {
                    let (mut texts, mut others) = (0, 0);
                    elements(json, |json| {
                        *(if is_type(json.raw()?, "text") { &mut texts } else { &mut others }) += 1;
                        Ok(())
                    })?;
                    self.fits &= others > 0 || texts == 0;
                }
                "tool_calls" => called = !json.raw()?.is_void(),
                "tool_call_id" if habits.nine_letter_ids => {
                    let id = json.raw()?.as_str().unwrap_or_default();
                    self.fits &= id.escaped().len() == 9;
                }
                "reasoning_content" | "reasoning" => reasons = !json.raw()?.is_void(),
                _ => json.skip()?,
            }
            Ok(())
        })?;
        self.fits &= !(role.is("developer") && habits.lacks("developer_role"));
        self.fits &= !(called && habits.calls_need_reasoning && !reasons);
        Ok(())
    }

    fn tool(&mut self, json: &mut Cursor<'_>) -> Result<(), JsonError> {
        let tool = json.raw()?;
        self.fits &= self.dialect.habits.custom_tools || !is_type(tool, "custom");
        if self.dialect.habits.lacks("tool_strict") {
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

    /// The model cannot be tuned at all.
    fn tunes_nothing(&self) -> bool {
        self.dialect.sampling == Sampling::None
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
        let habits = self.dialect.habits;
        let Some(word) = value.as_str() else { return true };
        let known =
            habits.efforts.is_none_or(|words| word.is("none") || words.iter().any(|own| word.is(own)));
        self.dialect.reasoning != Reasoning::Fixed && !habits.lacks("reasoning_effort") && known
    }

    fn takes_choice(&self, choice: RawJson<'_>) -> bool {
        let choices = self.dialect.habits.choices;
        match choice.as_str() {
            Some(word) if word.is("auto") => true,
            Some(word) if word.is("none") => choices.none,
            Some(word) if word.is("required") => choices.any == Some("required") && choices.while_reasoning,
            // A word of the provider's own.
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
