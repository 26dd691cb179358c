//! Members that other providers of chat completions have added to OpenAI's: those that a provider with a closed list of members
//! refuses.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_members_are_found() {
        assert!(ADDED.is_sorted());
        assert!(is_added("top_k") && is_added("add_generation_prompt") && !is_added("temperature"));
    }
}
