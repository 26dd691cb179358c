//! Validation of request members: types and ranges that hold for every provider.

use super::Api;
use super::body_members::BodyMembers;
use super::fields::{CONTENT, EXTRA, Fields, responses};
use super::watch::members;
use crate::error::{ApiError, ErrorKind};
use json::{Cursor, JsonRope, JsonStr, RawJson, ValueKind};

/// Rule for the value of a member. `null` is always allowed and counts as absent.
#[derive(Clone, Copy, Debug)]
pub(super) enum RangeRule {
    /// A number in this range, bounds included.
    Figure {
        /// Lower bound.
        least: f64,
        /// Upper bound.
        most: f64,
    },
    /// A number from 0 to 1, or -1, which some SDKs send for "not set" and which the provider accepts.
    FractionOrUnset,
    /// A number of at least 1.
    Positive,
    /// A number of at least 1 without a fraction.
    Whole,
    /// A value of one of these kinds, described by the text. It is not read.
    Kinds(&'static [ValueKind], &'static str),
    /// An object whose members, as far as they are present, follow these rules.
    Members(&'static [(&'static str, RangeRule)]),
    /// `reasoning` of the chat format: an effort, a switch, or an object with a budget.
    Reasoning,
    /// An array with at least one element.
    NotEmpty,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// `thinking` of the messages format: a budget of at least 1,024 tokens.
    Thinking,
    /// `parameters` of the chat format, which repeats the sampling members.
    Parameters,
    /// `generationConfig` of the generate format.
    GenerationConfig,
    /// `inferenceConfig` of the Converse format.
    InferenceConfig,
}

/// Values of `search_context_size` (OpenAI API, "Web search", and the API document, sections 4.1 and 4.4).
pub(in crate::wire) const SEARCH_SIZES: [&str; 3] = ["low", "medium", "high"];

/// Members of `web_search_options`.
pub(super) const WEB_SEARCH: RangeRule = RangeRule::Members(&[
    ("search_context_size", RangeRule::OneOf(&SEARCH_SIZES)),
    ("user_location", RangeRule::Kinds(&[ValueKind::Object], "an object")),
]);

/// Members of `reasoning` in the responses format. Efforts are left to the provider, because models have different ones.
/// Sources: OpenAI's API reference (`auto`, `concise`, `detailed`), the API document (`none`).
pub(super) const REASONING: RangeRule =
    RangeRule::Members(&[("summary", RangeRule::OneOf(&["auto", "concise", "detailed", "none"]))]);

/// Minimum reasoning budget of the messages format, in tokens. The gateway's specification requires more than this, but
/// the provider accepts exactly this value.
const MIN_BUDGET: f64 = 1_024.0;

impl RangeRule {
    /// Returns whether every value of this length in bytes meets the rule, so that it need not be read.
    pub(super) fn needs_no_look(self, kind: ValueKind, length: usize) -> bool {
        match self {
            // Only short arrays can be empty. Long content is never read for this check.
            RangeRule::NotEmpty => length > 64,
            RangeRule::Kinds(kinds, _) => kinds.contains(&kind),
            _ => false,
        }
    }

    /// Checks a value. Returns an error that names the member if the value breaks the rule.
    pub(super) fn check(self, name: &str, kind: ValueKind, text: &str) -> Result<(), ApiError> {
        if kind == ValueKind::Null {
            return Ok(());
        }
        match self {
            RangeRule::Figure { least, most } => figure(name, kind, text, least, most),
            RangeRule::FractionOrUnset if kind == ValueKind::Number && is_unset(text) => Ok(()),
            RangeRule::FractionOrUnset => figure(name, kind, text, 0.0, 1.0),
            RangeRule::Positive => positive(name, kind, text),
            RangeRule::Whole => whole(name, kind, text),
            RangeRule::Kinds(kinds, _) if kinds.contains(&kind) => Ok(()),
            RangeRule::Kinds(_, told) => Err(wrong(name, told)),
            RangeRule::Members(_) if kind != ValueKind::Object => Err(wrong(name, "an object")),
            RangeRule::Members(rules) => {
                inside(text, |key, value| match rules.iter().find(|(member, _)| key.is(member)) {
                    Some((member, rule)) => {
                        rule.check(&format!("{name}.{member}"), kind_of(value), value.text())
                    }
                    None => Ok(()),
                })
            }
            RangeRule::Reasoning => reasoning(name, kind, text),
            RangeRule::NotEmpty if text.trim_matches(['[', ']', ' ', '\n', '\r', '\t']).is_empty() => {
                Err(wrong(name, "an array that is not empty"))
            }
            RangeRule::NotEmpty => Ok(()),
            RangeRule::OneOf(words) => {
                let word = RawJson::from_text(text).as_str();
                if word.is_some_and(|word| words.iter().any(|known| word.is(known))) {
                    return Ok(());
                }
                let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
                Err(wrong(name, &words.join(" or ")))
            }
            RangeRule::Thinking => thinking(name, text),
            RangeRule::Parameters => parameters(name, text),
            RangeRule::GenerationConfig => generation_config(name, text),
            RangeRule::InferenceConfig => inference_config(name, text),
        }
    }
}

/// Checks the members of a body. Returns the members that may need a different spelling, one bit each, or an error that
/// names the first invalid member.
pub(super) fn check_values(
    api: Api,
    members: &BodyMembers,
    fields: &Fields,
    body: &JsonRope,
) -> Result<u32, ApiError> {
    for (index, rule) in fields.rules {
        let Some(member) = members.find(*index) else { continue };
        if rule.needs_no_look(member.kind, member.value.len()) {
            continue;
        }
        let text = body.view(member.value.clone());
        rule.check(fields.name(*index), member.kind, &text)?;
    }
    if api == Api::Responses && has_no_input(members, body) {
        return Err(empty_input());
    }
    Ok(members.there() & fields.spelled)
}

/// Returns whether a responses request has an empty input and no other member (`prompt`, `previous_response_id`,
/// `conversation`) that supplies one.
fn has_no_input(members: &BodyMembers, body: &JsonRope) -> bool {
    let find = |index: usize| members.find(index).filter(|member| member.kind != ValueKind::Null);
    let elsewhere = [EXTRA, responses::PREVIOUS_RESPONSE_ID, responses::CONVERSATION];
    // Only a short input can be empty.
    let Some(input) = find(CONTENT).filter(|input| input.value.len() <= 64) else { return false };
    let text = body.view(input.value.clone());
    let is_nothing = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'[' | b']' | b'"');
    text.as_bytes().iter().all(is_nothing) && elsewhere.into_iter().all(|index| find(index).is_none())
}

fn empty_input() -> ApiError {
    let message = "Invalid value for 'input': it must not be empty unless another member provides input.";
    ApiError::new(ErrorKind::InvalidField, message).param("input")
}

fn wrong(name: &str, must_be: &str) -> ApiError {
    let message = format!("'{name}' must be {must_be}.");
    ApiError::new(ErrorKind::InvalidField, message).param(name.to_owned())
}

fn figure(name: &str, kind: ValueKind, text: &str, least: f64, most: f64) -> Result<(), ApiError> {
    // Fast path: most values are a few digits behind "0.", which are in range for every rule that begins at 0.
    if text.len() <= 8
        && let Some(digits) = text.strip_prefix("0.")
        && digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Ok(());
    }
    let is_in =
        kind == ValueKind::Number && text.parse().is_ok_and(|said: f64| (least..=most).contains(&said));
    if is_in { Ok(()) } else { Err(wrong(name, &format!("a number from {least} to {most}"))) }
}

/// Returns whether a sampling value of the messages format means "not set" (-1).
pub(super) fn is_unset(figure: &str) -> bool {
    figure.parse() == Ok(-1.0_f64)
}

fn positive(name: &str, kind: ValueKind, text: &str) -> Result<(), ApiError> {
    let is_it = kind == ValueKind::Number && text.parse().is_ok_and(|said: f64| said >= 1.0);
    if is_it { Ok(()) } else { Err(wrong(name, "greater than 0")) }
}

fn whole(name: &str, kind: ValueKind, text: &str) -> Result<(), ApiError> {
    let is_it = text.parse().is_ok_and(|said: f64| said >= 1.0 && said.fract() == 0.0);
    if kind == ValueKind::Number && is_it {
        return Ok(());
    }
    Err(wrong(name, "a whole number greater than 0"))
}

fn reasoning(name: &str, kind: ValueKind, text: &str) -> Result<(), ApiError> {
    match kind {
        ValueKind::Object => inside(text, |key, value| {
            let is_budget = value.as_u64().is_some() || value.text() == "-1";
            if key.is("max_tokens") && !is_budget {
                let told = "a number of tokens, or -1 for no fixed budget";
                return Err(wrong(&format!("{name}.max_tokens"), told));
            }
            Ok(())
        }),
        ValueKind::String | ValueKind::Bool => Ok(()),
        _ => Err(wrong(name, "an object")),
    }
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

/// Checks the members of an object and returns the first error. A value that is not an object passes; the decoder
/// rejects it.
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
    if !text.starts_with('{') {
        return Err(wrong(name, "an object"));
    }
    inside(text, |key, value| {
        let most = match key.escaped() {
            "temperature" => 2.0,
            "top_p" => 1.0,
            _ => return Ok(()),
        };
        figure(&format!("{name}.{}", key.escaped()), kind_of(value), value.text(), 0.0, most)
    })
}

fn kind_of(value: RawJson<'_>) -> ValueKind {
    Cursor::new(value.text()).kind().unwrap_or(ValueKind::Null)
}

/// Parses a number as the Gemini API accepts it: a JSON number, or a string that holds one. `None` for anything else,
/// which the decoder rejects.
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
            "stopSequences" | "stop_sequences" if !value.text().starts_with('[') => {
                Err(wrong(&path(key.escaped()), "an array of strings"))
            }
            "thinkingConfig" | "thinking_config" => inside(value.text(), |inner, value| {
                let is_budget = matches!(inner.escaped(), "thinkingBudget" | "thinking_budget");
                if is_budget && number(value).is_some_and(|said| said < -1.0) {
                    let path = format!("{}.{}", path(key.escaped()), inner.escaped());
                    return Err(wrong(
                        &path,
                        "a number of tokens, 0 for no thinking or -1 for no fixed budget",
                    ));
                }
                Ok(())
            }),
            _ => Ok(()),
        }
    })
}

fn inference_config(name: &str, text: &str) -> Result<(), ApiError> {
    inside(text, |key, value| {
        let path = format!("{name}.{}", key.escaped());
        match key.escaped() {
            "temperature" | "topP" => figure(&path, kind_of(value), value.text(), 0.0, 1.0),
            "maxTokens" => positive(&path, kind_of(value), value.text()),
            _ => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(rule: RangeRule, text: &str) -> Option<String> {
        let error = rule.check("x", kind_of(RawJson::from_text(text)), text).err()?;
        assert_eq!(error.status, 400);
        error.param.map(|param| param.into_owned())
    }

    #[test]
    fn range_of_numbers_is_enforced() {
        let rule = RangeRule::Figure { least: 0.0, most: 1.0 };
        for text in ["0", "1", "0.5", "1.0", "1e-1", "0.123456789", "10e-1", "-0", "null"] {
            assert_eq!(refused(rule, text), None, "{text}");
        }
        for text in ["1.1", "-0.1", "2", "1e1", "0.5e1", "\"0.5\"", "true", "[]", "{}", "1e999"] {
            assert_eq!(refused(rule, text).as_deref(), Some("x"), "{text}");
        }
        for (text, fits) in
            [("-1", true), ("-1.0", true), ("0.5", true), ("-0.5", false), ("-2", false), ("1.5", false)]
        {
            assert_eq!(refused(RangeRule::FractionOrUnset, text).is_none(), fits, "{text}");
        }
        for (text, fits) in [("1", true), ("4096", true), ("0", false), ("-1", false), ("\"many\"", false)] {
            assert_eq!(refused(RangeRule::Positive, text).is_none(), fits, "{text}");
        }
    }

    #[test]
    fn range_of_thinking_budget_has_a_minimum() {
        let of = |text: &str| refused(RangeRule::Thinking, text);
        for budget in ["500", "1023", "0", "-1"] {
            let text = format!("{{\"type\":\"enabled\",\"budget_tokens\":{budget}}}");
            assert_eq!(of(&text).as_deref(), Some("x.budget_tokens"));
        }
        assert_eq!(of(r#"{"budget_tokens":1024,"type":"enabled"}"#), None);
        assert_eq!(of(r#"{"type":"disabled","budget_tokens":0}"#), None);
        assert_eq!(of(r#"{"type":"adaptive"}"#), None);
    }

    #[test]
    fn range_fault_in_a_nested_member_has_its_path() {
        for (rule, text, path) in [
            (RangeRule::Parameters, r#"{"temperature":3}"#, "x.temperature"),
            (RangeRule::Parameters, r#"{"enable_search":true,"top_p":-1}"#, "x.top_p"),
            (RangeRule::GenerationConfig, r#"{"temperature":2.5}"#, "x.temperature"),
            (RangeRule::GenerationConfig, r#"{"topP":"1.5"}"#, "x.topP"),
            (RangeRule::GenerationConfig, r#"{"max_output_tokens":0}"#, "x.max_output_tokens"),
            (
                RangeRule::GenerationConfig,
                r#"{"thinkingConfig":{"thinkingBudget":-2}}"#,
                "x.thinkingConfig.thinkingBudget",
            ),
            (RangeRule::NotEmpty, "[ ]", "x"),
            (RangeRule::OneOf(&["auto"]), "\"weird\"", "x"),
            (RangeRule::OneOf(&["auto"]), "3", "x"),
            (RangeRule::Kinds(&[ValueKind::Object], "an object"), "[]", "x"),
        ] {
            assert_eq!(refused(rule, text).as_deref(), Some(path), "{text}");
        }
        for (rule, text) in [
            (RangeRule::Parameters, r#"{"temperature":0.4,"top_p":null}"#),
            (
                RangeRule::GenerationConfig,
                r#"{"temperature":"1.5","topP":1,"thinkingConfig":{"thinkingBudget":-1}}"#,
            ),
            (RangeRule::NotEmpty, "[{}]"),
            (RangeRule::OneOf(&["auto"]), "\"auto\""),
            (RangeRule::Kinds(&[ValueKind::Object], "an object"), "{}"),
        ] {
            assert_eq!(refused(rule, text), None, "{text}");
        }
    }
}
