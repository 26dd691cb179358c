//! What the errors of several phases have in common.

/// Cuts a client's text to 100 characters, for an error message.
pub(in crate::proxy) fn short(text: &str) -> String {
    text.chars().take(100).collect()
}
