//! The values that members of a request must have, whichever provider serves it (specification, sections 4 and 8).

use super::Api;
use super::body_members::BodyMembers;
use super::fields::{CONTENT, EXTRA, Fields, responses};
use super::watch::members;
use crate::error::{ApiError, Kind as ErrorKind};
use crate::json::{Cursor, JsonStr, Kind, RawJson, Rope};

/// What the value of a member must be. `null` is always allowed, and says nothing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// A number in this range.
    Figure {
        /// The least.
        least: f64,
        /// The most.
        most: f64,
    },
    /// A number from 0 to 1, or -1, which some SDKs send for none and which the provider takes.
    FractionOrUnset,
    /// A number of at least 1.
    Positive,
    /// An object.
    Object,
    /// An array with an element.
    NotEmpty,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// `thinking` of the messages format: a budget of at least 1,024.
    Thinking,
    /// `parameters` of the chat format, which hold sampling again.
    Parameters,
    /// `generationConfig`.
    GenerationConfig,
}

/// The least budget of reasoning in the messages format (tokens). The specification wants more than this, and its
/// provider takes this very figure.
const MIN_BUDGET: f64 = 1_024.0;

impl Rule {
    /// Whether any value of this size meets the rule, without reading it.
    pub(super) fn needs_no_look(self, length: usize) -> bool {
        // The content of a request is never looked at for whether there is any.
        matches!(self, Rule::NotEmpty) && length > 64
    }

    /// Holds a value to the rule.
    pub(super) fn check(self, name: &str, kind: Kind, text: &str) -> Result<(), ApiError> {
        if kind == Kind::Null {
            return Ok(());
        }
        match self {
            Rule::Figure { least, most } => figure(name, kind, text, least, most),
            Rule::FractionOrUnset if kind == Kind::Number && is_unset(text) => Ok(()),
            Rule::FractionOrUnset => figure(name, kind, text, 0.0, 1.0),
            Rule::Positive => positive(name, kind, text),
            Rule::Object if kind == Kind::Object => Ok(()),
            Rule::Object => Err(wrong(name, "an object")),
            Rule::NotEmpty if text.trim_matches(['[', ']', ' ', '\n', '\r', '\t']).is_empty() => {
                Err(wrong(name, "an array that is not empty"))
            }
            Rule::NotEmpty => Ok(()),
            Rule::OneOf(words) => {
                let word = RawJson::from_text(text).as_str();
                if word.is_some_and(|word| words.iter().any(|known| word.is(known))) {
                    return Ok(());
                }
                let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
                Err(wrong(name, &words.join(" or ")))
            }
            Rule::Thinking => thinking(name, text),
            Rule::Parameters => parameters(name, text),
            Rule::GenerationConfig => generation_config(name, text),
        }
    }
}

/// Holds the members to the specification's rules. Which of them may have to be spelled differently is the result.
pub(super) fn check_values(
    api: Api,
    members: &BodyMembers,
    fields: &Fields,
    body: &mut Rope,
) -> Result<u32, ApiError> {
    for (index, rule) in fields.rules {
        let Some(member) = members.find(*index) else { continue };
        if rule.needs_no_look(member.value.len()) {
            continue;
        }
        let text = body.look(member.value.clone());
        rule.check(fields.name(*index), member.kind, std::str::from_utf8(&text).unwrap_or_default())?;
    }
    if api == Api::Responses && has_no_input(members, body) {
        return Err(empty_input());
    }
    Ok(members.there() & fields.spelled)
}

/// Nothing is asked, and nothing else says what the answer is to.
fn has_no_input(members: &BodyMembers, body: &mut Rope) -> bool {
    let find = |index: usize| members.find(index).filter(|member| member.kind != Kind::Null);
    let elsewhere = [EXTRA, responses::PREVIOUS_RESPONSE_ID, responses::CONVERSATION];
    let Some(input) = find(CONTENT).filter(|input| input.value.len() <= 64) else { return false };
    let text = body.look(input.value.clone());
    let is_nothing = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'[' | b']' | b'"');
    text.iter().all(is_nothing) && elsewhere.into_iter().all(|index| find(index).is_none())
}

fn empty_input() -> ApiError {
    let message =
        "Invalid value for 'input': it must not be empty where no other member says what to answer.";
    ApiError::new(ErrorKind::InvalidField, message).param("input")
}

fn wrong(name: &str, must_be: &str) -> ApiError {
    let message = format!("'{name}' must be {must_be}.");
    ApiError::new(ErrorKind::InvalidField, message).param(name.to_owned())
}

fn figure(name: &str, kind: Kind, text: &str, least: f64, most: f64) -> Result<(), ApiError> {
    // Most figures are a few digits behind the point, which lie in every range that begins with 0.
    if text.len() <= 8
        && let Some(digits) = text.strip_prefix("0.")
        && digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Ok(());
    }
    let is_in = kind == Kind::Number && text.parse().is_ok_and(|said: f64| (least..=most).contains(&said));
    if is_in { Ok(()) } else { Err(wrong(name, &format!("a number from {least} to {most}"))) }
}

/// Whether a figure of sampling in the messages format stands for none.
pub(super) fn is_unset(figure: &str) -> bool {
    figure.parse() == Ok(-1.0_f64)
}

fn positive(name: &str, kind: Kind, text: &str) -> Result<(), ApiError> {
    let is_it = kind == Kind::Number && text.parse().is_ok_and(|said: f64| said >= 1.0);
    if is_it { Ok(()) } else { Err(wrong(name, "greater than 0")) }
}

fn thinking(name: &str, text: &str) -> Result<(), ApiError> {
    let (mut enabled, mut budget) = (false, None);
    let _ = members(&mut Cursor::new(text), |key, json| {
        let value = json.raw()?;
        match key.escaped() {
            "type" => enabled = value.as_str().is_some_and(|kind| kind.is("enabled")),
            "budget_tokens" => budget = value.text().parse::<f64>().ok(),
            _ => {}
        }
        Ok(())
    });
    match budget {
        Some(budget) if enabled && budget < MIN_BUDGET => {
            Err(wrong(&format!("{name}.budget_tokens"), "at least 1024, and for some models more"))
        }
        _ => Ok(()),
    }
}

/// The first fault among the members of an object. What is no object is for whoever reads it to refuse.
fn inside(
    text: &str,
    check: impl Fn(JsonStr<'_>, RawJson<'_>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    let mut result = Ok(());
    let _ = members(&mut Cursor::new(text), |key, json| {
        let value = json.raw()?;
        if result.is_ok() && !value.is_null() {
            result = check(key, value);
        }
        Ok(())
    });
    result
}

fn parameters(name: &str, text: &str) -> Result<(), ApiError> {
    inside(text, |key, value| {
        let most = match key.escaped() {
            "temperature" => 2.0,
            "top_p" => 1.0,
            _ => return Ok(()),
        };
        figure(&format!("{name}.{}", key.escaped()), kind_of(value), value.text(), 0.0, most)
    })
}

fn kind_of(value: RawJson<'_>) -> Kind {
    Cursor::new(value.text()).kind().unwrap_or(Kind::Null)
}

/// A figure as this format's provider takes it: a number, or a string that holds one. Everything else is for whoever
/// reads it to refuse.
fn number(value: RawJson<'_>) -> Option<f64> {
    value.as_str().map_or(value.text(), JsonStr::escaped).parse().ok()
}

fn generation_config(name: &str, text: &str) -> Result<(), ApiError> {
    inside(text, |key, value| {
        let path = |member: &str| format!("{name}.{member}");
        let in_range = |least: f64, most: f64| match number(value) {
            Some(said) if !(least..=most).contains(&said) => {
                Err(wrong(&path(key.escaped()), &format!("a number from {least} to {most}")))
            }
            _ => Ok(()),
        };
        match key.escaped() {
            "temperature" => in_range(0.0, 2.0),
            "topP" | "top_p" => in_range(0.0, 1.0),
            "maxOutputTokens" | "max_output_tokens" if number(value).is_some_and(|said| said < 1.0) => {
                Err(wrong(&path(key.escaped()), "greater than 0"))
            }
            "thinkingConfig" | "thinking_config" => inside(value.text(), |inner, value| {
                let is_budget = matches!(inner.escaped(), "thinkingBudget" | "thinking_budget");
                if is_budget && number(value).is_some_and(|said| said < -1.0) {
                    let path = format!("{}.{}", path(key.escaped()), inner.escaped());
                    return Err(wrong(&path, "a number of tokens, 0 for none or -1 for as many as it needs"));
                }
                Ok(())
            }),
            _ => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(rule: Rule, text: &str) -> Option<String> {
        let error = rule.check("x", kind_of(RawJson::from_text(text)), text).err()?;
        assert_eq!(error.status, 400);
        error.param.map(|param| param.into_owned())
    }

    #[test]
    fn figures_have_ranges() {
        let rule = Rule::Figure { least: 0.0, most: 1.0 };
        for text in ["0", "1", "0.5", "1.0", "1e-1", "0.123456789", "10e-1", "-0", "null"] {
            assert_eq!(refused(rule, text), None, "{text}");
        }
        for text in ["1.1", "-0.1", "2", "1e1", "0.5e1", "\"0.5\"", "true", "[]", "{}", "1e999"] {
            assert_eq!(refused(rule, text).as_deref(), Some("x"), "{text}");
        }
        for (text, fits) in
            [("-1", true), ("-1.0", true), ("0.5", true), ("-0.5", false), ("-2", false), ("1.5", false)]
        {
            assert_eq!(refused(Rule::FractionOrUnset, text).is_none(), fits, "{text}");
        }
        for (text, fits) in [("1", true), ("4096", true), ("0", false), ("-1", false), ("\"many\"", false)] {
            assert_eq!(refused(Rule::Positive, text).is_none(), fits, "{text}");
        }
    }

    #[test]
    fn a_budget_of_reasoning_has_a_least_figure_where_there_is_one() {
        let of = |text: &str| refused(Rule::Thinking, text);
        for budget in ["500", "1023", "0", "-1"] {
            let text = format!("{{\"type\":\"enabled\",\"budget_tokens\":{budget}}}");
            assert_eq!(of(&text).as_deref(), Some("x.budget_tokens"));
        }
        assert_eq!(of(r#"{"budget_tokens":1024,"type":"enabled"}"#), None);
        assert_eq!(of(r#"{"type":"disabled","budget_tokens":0}"#), None);
        assert_eq!(of(r#"{"type":"adaptive"}"#), None);
    }

    #[test]
    fn what_is_nested_is_named_by_its_path() {
        for (rule, text, path) in [
            (Rule::Parameters, r#"{"temperature":3}"#, "x.temperature"),
            (Rule::Parameters, r#"{"enable_search":true,"top_p":-1}"#, "x.top_p"),
            (Rule::GenerationConfig, r#"{"temperature":2.5}"#, "x.temperature"),
            (Rule::GenerationConfig, r#"{"topP":"1.5"}"#, "x.topP"),
            (Rule::GenerationConfig, r#"{"max_output_tokens":0}"#, "x.max_output_tokens"),
            (
                Rule::GenerationConfig,
                r#"{"thinkingConfig":{"thinkingBudget":-2}}"#,
                "x.thinkingConfig.thinkingBudget",
            ),
            (Rule::NotEmpty, "[ ]", "x"),
            (Rule::OneOf(&["auto"]), "\"weird\"", "x"),
            (Rule::OneOf(&["auto"]), "3", "x"),
            (Rule::Object, "[]", "x"),
        ] {
            assert_eq!(refused(rule, text).as_deref(), Some(path), "{text}");
        }
        for (rule, text) in [
            (Rule::Parameters, r#"{"temperature":0.4,"top_p":null}"#),
            (
                Rule::GenerationConfig,
                r#"{"temperature":"1.5","topP":1,"thinkingConfig":{"thinkingBudget":-1}}"#,
            ),
            (Rule::NotEmpty, "[{}]"),
            (Rule::OneOf(&["auto"]), "\"auto\""),
            (Rule::Object, "{}"),
        ] {
            assert_eq!(refused(rule, text), None, "{text}");
        }
    }
}
