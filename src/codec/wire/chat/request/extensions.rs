//! Members that other providers of chat completions have added to OpenAI's: those that a provider with a closed list of members
//! refuses.

use crate::canonical::{Dialect, RequestFeatures};

/// Members of the top level, as the providers' pages of November 2026 name them (docs/providers.md).
const ADDED: [&str; 38] = [
    "add_generation_prompt",
    "asr_options",
    "cache_control",
    "chat_template_kwargs",
    "continue_final_message",
    "do_sample",
    "enable_search",
    "enable_thinking",
    "guided_json",
    "ignore_eos",
    "include_reasoning",
    "incremental_output",
    "min_p",
    "parameters",
    "plugins",
    "preserve_thinking",
    "prompt_truncate_len",
    "provider",
    "random_seed",
    "reasoning",
    "reasoning_format",
    "reasoning_history",
    "repetition_penalty",
    "request_id",
    "safe_prompt",
    "search_options",
    "stop_token_ids",
    "structured_outputs",
    "thinking",
    "thinking_budget",
    "tool_stream",
    "top_a",
    "top_k",
    "transforms",
    "translation_options",
    "usage",
    "user_id",
    "vl_high_resolution_images",
];

/// Returns whether another provider than OpenAI has added a member.
pub fn is_added(name: &str) -> bool {
    ADDED.binary_search(&name).is_ok()
}

/// Returns whether a provider takes a member of a message, of a call or of its function. Reasoning goes back to providers that
/// want it, under their own name; the rest is for who has added it, or says that it takes everything.
pub fn takes_in_message(name: &str, dialect: &Dialect<'_>) -> bool {
    if !dialect.refuses.intersects(RequestFeatures::MESSAGE_MEMBER) {
        return true;
    }
    let own = dialect.quirks.member("reasoning_content");
    match name {
        // Servers that have renamed the member read the older name, too.
        "reasoning_content" => dialect.reasoning_replay && !dialect.lacks(name),
        "reasoning" => dialect.reasoning_replay && name == own,
        "reasoning_details" | "thinking_blocks" | "provider_specific_fields" | "extra_content" => false,
        _ => true,
    }
}

/// Returns the element that is lost with such a member.
pub fn loss_in_message(name: &str) -> &'static str {
    match name {
        "reasoning_content" | "reasoning" => "thinking_block",
        _ => "thinking_signature",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_members_are_found() {
        assert!(ADDED.is_sorted());
        assert!(is_added("top_k") && is_added("add_generation_prompt") && !is_added("temperature"));
    }
}
