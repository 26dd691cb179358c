//! Guardrails of Amazon Bedrock: the policy that the service applies to what is sent to a model and to what it answers.
//!
//! Source: Amazon Bedrock API Reference, "GuardrailConfiguration", and "InvokeModel" (request headers), November 2026.

/// Guardrail of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guardrail {
    /// Identifier or ARN.
    pub id: Box<str>,
    /// Version: a number, or `DRAFT`.
    pub version: Box<str>,
    /// Whether responses have the guardrail's assessment.
    pub trace: GuardrailTrace,
}

/// Extent of the assessment in the responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuardrailTrace {
    /// None.
    #[default]
    Disabled,
    /// What the guardrail found.
    Enabled,
    /// Also what it checked and did not find.
    Full,
}

impl GuardrailTrace {
    /// All values, in the order of the documentation.
    pub const ALL: [GuardrailTrace; 3] =
        [GuardrailTrace::Disabled, GuardrailTrace::Enabled, GuardrailTrace::Full];

    /// Returns the name in the configuration and in Converse. InvokeModel has it in capitals.
    pub const fn name(self) -> &'static str {
        match self {
            GuardrailTrace::Disabled => "disabled",
            GuardrailTrace::Enabled => "enabled",
            GuardrailTrace::Full => "enabled_full",
        }
    }

    /// Returns the value with this name in small letters or capitals. `None` if there is none.
    pub fn from_name(name: &str) -> Option<GuardrailTrace> {
        GuardrailTrace::ALL.into_iter().find(|trace| trace.name().eq_ignore_ascii_case(name))
    }
}

/// Returns whether a text can be the identifier or ARN of a guardrail.
pub fn is_guardrail_id(text: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'/' | b'-' | b'.' | b'_');
    (1..=2_048).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Returns whether a text can be the version of a guardrail: a number, or `DRAFT`.
pub fn is_guardrail_version(text: &str) -> bool {
    let is_number = (1..=8).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text == "DRAFT" || is_number && !text.starts_with('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guardrail_names_are_checked() {
        for (version, is_valid) in [
            ("1", true),
            ("12345678", true),
            ("DRAFT", true),
            ("", false),
            ("0", false),
            ("draft", false),
            ("123456789", false),
        ] {
            assert_eq!(is_guardrail_version(version), is_valid, "{version}");
        }
        assert!(is_guardrail_id("arn:aws:bedrock:us-east-1:123456789012:guardrail/ff6ujrregl1q"));
        assert!(!is_guardrail_id("") && !is_guardrail_id("a b") && !is_guardrail_id("a\"b"));
        for trace in GuardrailTrace::ALL {
            assert_eq!(GuardrailTrace::from_name(&trace.name().to_ascii_uppercase()), Some(trace));
        }
    }
}
