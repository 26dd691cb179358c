//! What the name of a model tells: its generation. What else a model can do is in the dialect.

/// The first number in the model's name (`gemini-3-pro-preview` is 3), or nothing for one without.
fn generation(model: &str) -> Option<u32> {
    let name = model.rsplit('/').next().unwrap_or(model);
    let rest = name.strip_prefix("gemini-")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    match rest.get(..digits) {
        // An alias that moves with the newest (`gemini-flash-latest`).
        Some("") if rest.ends_with("-latest") => Some(u32::MAX),
        Some(digits) => digits.parse().ok(),
        None => None,
    }
}

fn is_third(model: &str) -> bool {
    generation(model).is_some_and(|number| number >= 3)
}

/// Whether a call without a signature is refused.
pub(super) fn wants_signatures(model: &str) -> bool {
    is_third(model)
}

/// Whether files may stand inside a function's response, and images say how closely to look at them.
pub(super) fn takes_files_in_responses(model: &str) -> bool {
    is_third(model)
}

/// Whether functions may stand beside the provider's own search.
pub(super) fn takes_functions_beside_search(model: &str) -> bool {
    is_third(model)
}

/// Whether calls can be held to their schemas without being forced.
pub(super) fn knows_validated(model: &str) -> bool {
    is_third(model)
}

#[cfg(test)]
mod tests {
    use super::is_third;

    #[test]
    fn generations_are_told_by_name() {
        for model in
            ["gemini-3-pro-preview", "models/gemini-3.1-pro", "gemini-10-flash", "gemini-flash-latest"]
        {
            assert!(is_third(model), "{model}");
        }
        for model in ["gemini-2.5-flash", "gemini-1.5-pro-latest", "gemini-pro", "gemma-3-27b", "gpt-3", ""] {
            assert!(!is_third(model), "{model}");
        }
    }
}
