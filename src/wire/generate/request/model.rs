//! Capabilities that follow from a model's generation, which its name contains. The dialect describes the others.

/// Returns the generation in the model's name (`gemini-3-pro-preview` is 3); `None` if it has none.
fn generation(model: &str) -> Option<u32> {
    let name = model.rsplit('/').next().unwrap_or(model);
    let rest = name.strip_prefix("gemini-")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    match rest.get(..digits) {
        // An alias of the newest model (`gemini-flash-latest`).
        Some("") if rest.ends_with("-latest") => Some(u32::MAX),
        Some(digits) => digits.parse().ok(),
        None => None,
    }
}

fn is_third(model: &str) -> bool {
    generation(model).is_some_and(|number| number >= 3)
}

/// Returns whether the model rejects a call without a signature.
pub(in crate::wire) fn requires_signatures(model: &str) -> bool {
    is_third(model)
}

/// Returns whether the model accepts files inside of a function response, and a resolution for single images.
pub(super) fn takes_files_in_responses(model: &str) -> bool {
    is_third(model)
}

/// Returns whether the model accepts functions together with the provider's search.
pub(super) fn takes_functions_beside_search(model: &str) -> bool {
    is_third(model)
}

/// Returns whether the model supports the mode `VALIDATED`, which enforces schemas without forcing a call.
pub(super) fn supports_validated(model: &str) -> bool {
    is_third(model)
}

#[cfg(test)]
mod tests {
    use super::is_third;

    #[test]
    fn model_generation_is_derived_from_the_name() {
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
