//! Which tests show what becomes of each element: the section of the table, the row, and the tests.

/// See the module.
#[rustfmt::skip] // a table reads as a table
pub(crate) const ROWS: &[(u32, &str, &[&str])] = &[
    (1, "system", &[
        "mapping_1_leading_instructions_are_the_system_field",
        "mapping_1_instructions_stand_in_one_place_in_order",
        "mapping_01_leading_instructions_are_joined_and_later_ones_stay_in_place",
        "map_1_instructions_have_the_providers_word_and_place",
    ]),
    (1, "user / assistant", &[
        "map_1_every_role_has_its_turn",
        "mapping_1_turns_alternate_and_empty_ones_are_gone",
        "mapping_1_bug_59_turns_of_one_role_are_joined_and_empty_ones_are_none",
    ]),
    (1, "tool result", &[
        "bug_56_and_client_5_calls_of_items_are_one_message_and_results_follow_at_once",
        "mapping_03_calls_and_results_are_items",
        "mapping_3_results_are_objects",
        "mapping_3_results_of_every_kind",
    ]),
    (2, "text", &[
        "map_1_texts_are_strings_and_parts_are_lists",
        "mapping_02_media_are_found_wherever_they_are",
    ]),
    (2, "image URL", &[
        "map_2_images_are_sent_as_addresses_of_either_kind",
        "mapping_2_images",
        "mapping_2_media_by_address_only_where_it_is_fetched",
        "mapping_02_media_are_written_as_parts",
    ]),
    (2, "image base64", &[
        "map_2_images_are_read_from_data_and_from_addresses",
        "mapping_2_images",
        "mapping_2_media",
        "mapping_2_bytes_in_the_alphabet_for_addresses_reach_other_providers_in_the_usual_one",
    ]),
    (2, "image file id", &[
        "mapping_2_every_source_of_images_and_documents",
        "mapping_02_media_are_found_wherever_they_are",
    ]),
    (2, "detail", &[
        "map_2_images_are_sent_as_addresses_of_either_kind",
        "mapping_02_media_are_written_as_parts",
    ]),
    (2, "PDF base64", &[
        "map_2_files_are_sent_with_a_name_and_text_as_text",
        "mapping_2_files",
        "mapping_02_media_are_written_as_parts",
        "mapping_2_media",
    ]),
    (2, "PDF URL", &[
        "mapping_2_files",
        "mapping_2_media_by_address_only_where_it_is_fetched",
        "mapping_02_media_are_written_as_parts",
    ]),
    (2, "plain text file", &[
        "map_2_files_are_sent_with_a_name_and_text_as_text",
        "mapping_2_files",
    ]),
    (2, "audio in", &[
        "map_2_sound_and_video_are_sent_where_they_can_be",
        "mapping_2_sound_and_video_are_refused",
        "mapping_2_media",
    ]),
    (2, "video", &[
        "map_2_sound_and_video_are_sent_where_they_can_be",
        "mapping_2_sound_and_video_are_refused",
        "mapping_2_media",
    ]),
    (2, "image out", &[
        "map_2_images_and_sound_come_out_as_media",
        "an_image_is_one_chunk_however_it_came",
        "mapping_2_media_has_no_place",
    ]),
    (2, "audio out", &[
        "map_2_images_and_sound_come_out_as_media",
        "mapping_2_media_has_no_place",
    ]),
    (3, "definition", &[
        "map_3_definitions_are_read_and_sent_as_they_were",
        "mapping_3_definitions",
        "mapping_3_declarations",
        "mapping_03_tools_are_flat_and_never_strict_unasked",
    ]),
    (3, "no params", &[
        "mapping_3_definitions",
        "mapping_3_declarations",
        "mapping_03_tools_are_flat_and_never_strict_unasked",
    ]),
    (3, "free-form tool", &[
        "mapping_3_a_tool_with_free_text",
        "compat_tools_with_free_text_are_functions_for_all_of_them",
    ]),
    (3, "name charset", &["mapping_3_the_charset_of_names"]),
    (3, "auto", &[
        "mapping_3_auto_forced_none_and_one",
        "mapping_3_every_choice",
        "mapping_3_every_choice_of_tools",
        "map_3_every_choice_is_read_and_sent",
    ]),
    (3, "forced any", &[
        "mapping_3_auto_forced_none_and_one",
        "mapping_3_every_choice",
        "mapping_3_every_choice_of_tools",
        "map_3_every_choice_is_read_and_sent",
    ]),
    (3, "none", &[
        "mapping_3_auto_forced_none_and_one",
        "bug_57_and_58_choices_are_never_widened",
    ]),
    (3, "one tool", &[
        "mapping_3_auto_forced_none_and_one",
        "mapping_3_every_choice",
        "mapping_3_every_choice_of_tools",
    ]),
    (3, "subset", &[
        "mapping_3_a_subset_of_the_tools",
        "mapping_3_every_choice",
        "mapping_3_every_choice_of_tools",
    ]),
    (3, "parallel off", &[
        "mapping_3_parallel_off",
        "bug_57_and_58_one_call_at_a_time",
    ]),
    (3, "id", &[
        "client_8_ids_stay_as_they_are",
        "bug_10_an_id_is_the_same_on_the_call_and_on_its_result",
        "bug_9_calls_without_ids_get_ids_of_their_own",
        "fact_8_ids_are_of_any_form",
    ]),
    (3, "args", &[
        "mapping_3_arguments_are_objects",
        "mapping_3_arguments_become_objects",
        "map_3_arguments_stay_as_they_are",
        "bug_7_no_arguments_are_an_empty_object",
    ]),
    (3, "text", &[
        "map_3_results_are_text_whatever_they_were",
        "mapping_3_results_are_objects",
        "mapping_3_results_of_every_kind",
        "mapping_03_calls_and_results_are_items",
    ]),
    (3, "error flag", &[
        "mapping_3_results_are_objects",
        "mapping_3_results_of_every_kind",
    ]),
    (3, "image/pdf in result", &[
        "bug_60_images_of_results_follow_in_a_message_of_the_user",
        "bug_60_an_image_in_a_result_is_an_image",
    ]),
    (3, "empty result", &[
        "mapping_3_results_are_objects",
        "mapping_3_results_of_every_kind",
    ]),
    (4, "none", &[
        "mapping_4_efforts_and_budgets",
        "mapping_4_effort_is_a_budget_or_a_word",
        "mapping_4_reasoning_as_the_model_can_be_told",
    ]),
    (4, "minimal", &[
        "mapping_4_efforts_and_budgets",
        "mapping_4_effort_is_a_budget_or_a_word",
        "mapping_4_reasoning_as_the_model_can_be_told",
    ]),
    (4, "low", &[
        "mapping_4_efforts_and_budgets",
        "mapping_4_effort_is_a_budget_or_a_word",
        "mapping_4_reasoning_as_the_model_can_be_told",
    ]),
    (4, "medium", &[
        "mapping_4_efforts_and_budgets",
        "mapping_4_effort_is_a_budget_or_a_word",
        "mapping_4_reasoning_as_the_model_can_be_told",
    ]),
    (4, "high", &[
        "mapping_4_efforts_and_budgets",
        "mapping_4_effort_is_a_budget_or_a_word",
        "mapping_4_reasoning_as_the_model_can_be_told",
    ]),
    (4, "xhigh", &[
        "mapping_4_efforts_and_budgets",
        "mapping_4_effort_is_a_budget_or_a_word",
        "mapping_4_reasoning_as_the_model_can_be_told",
    ]),
    (4, "max", &[
        "mapping_4_efforts_and_budgets",
        "mapping_4_effort_is_a_budget_or_a_word",
        "mapping_4_reasoning_as_the_model_can_be_told",
    ]),
    (4, "any effort → M old models", &[
        "mapping_4_effort_is_a_budget_or_a_word",
        "mapping_4_a_model_that_reasons_is_not_tuned",
        "mapping_4_a_model_that_reasons_by_a_budget_is_not_forced_to_call",
        "bug_68_the_limit_is_raised_above_the_budget",
    ]),
    (4, "any effort → M ≥ 4.6", &[
        "mapping_4_effort_is_a_budget_or_a_word",
        "mapping_4_reasoning_as_the_model_sees_fit_or_not_at_all",
    ]),
    (4, "M enabled budget → C/R", &[
        "map_4_a_provider_is_told_in_its_own_spelling",
        "mapping_04_reasoning_is_asked_for_in_the_providers_words",
    ]),
    (4, "M adaptive + effort → C/R", &[
        "mapping_4_every_spelling_of_reasoning",
        "mapping_04_reasoning_is_asked_for_in_the_providers_words",
    ]),
    (4, "G thinkingBudget −1", &[
        "mapping_4_every_way_to_ask_for_thoughts",
        "mapping_4_reasoning_as_the_model_sees_fit_or_not_at_all",
    ]),
    (4, "C `thinking{type}` / enable_thinking", &["map_4_one_wish_in_many_spellings"]),
    (4, "M thinking", &[
        "fact_23_thinking_with_its_signature_and_redacted_thinking",
        "bug_25_a_signature_comes_before_the_stop_in_an_envelope",
        "bug_25_and_27_what_is_sealed_comes_back_with_its_own_text_from_streams_and_whole_answers",
    ]),
    (4, "M redacted_thinking", &[
        "fact_23_thinking_with_its_signature_and_redacted_thinking",
        "bug_25_and_27_what_is_sealed_comes_back_with_its_own_text_from_streams_and_whole_answers",
    ]),
    (4, "C reasoning_content/reasoning", &[
        "fact_5_reasoning_has_three_names",
        "bug_34_and_35_reasoning_that_nobody_signed_is_shown_and_is_clearly_unsigned",
    ]),
    (4, "R reasoning summary", &[
        "fact_29_reasoning_of_all_three_kinds",
        "mapping_4_reasoning_comes_back_with_its_seal_and_calls_too",
    ]),
    (4, "G thought parts", &[
        "mapping_4_thoughts_are_shown_if_asked_for_and_seals_travel_anyway",
        "fact_35_a_signature_is_kept_wherever_it_stands",
    ]),
    (4, "-thinking", &["suffixes_say_how_much_to_reason"]),
    (4, "-nothinking", &["suffixes_say_how_much_to_reason"]),
    (4, "-thinking-N", &["suffixes_say_how_much_to_reason"]),
    (4, "-thinking-low/-high (also -medium,-minimal,-xhigh,-max,-none)", &["suffixes_say_how_much_to_reason"]),
    (5, "response_format text", &[
        "map_5_the_form_of_the_answer",
        "mapping_5_what_the_answer_must_look_like",
        "mapping_05_the_form_of_the_answer",
    ]),
    (5, "json_object", &[
        "mapping_5_any_json_is_spoken_of_where_the_provider_wants_to_hear_it",
        "map_5_the_form_of_the_answer",
        "mapping_5_client_6_structured_output",
    ]),
    (5, "json_schema{name,schema,strict,description}", &[
        "bug_64_the_form_of_the_answer_is_asked_for_natively",
        "mapping_05_the_form_of_the_answer_is_flat",
        "mapping_5_client_6_structured_output",
        "mapping_5_both_places_of_a_schema",
    ]),
    (6, "temperature", &[
        "mapping_6_what_each_provider_tunes",
        "mapping_6_temperature_ends_at_one",
        "map_6_limits_and_sampling_in_the_models_words",
    ]),
    (6, "top_p", &[
        "mapping_6_what_each_provider_tunes",
        "client_3_a_model_that_refuses_the_pair_gets_one_of_it",
    ]),
    (6, "top_k", &[
        "mapping_6_what_each_provider_tunes",
        "mapping_6_sampling_and_limits",
    ]),
    (6, "max tokens", &[
        "mapping_6_what_each_provider_tunes",
        "mapping_6_a_limit_is_required",
        "mapping_06_figures_are_within_what_the_provider_takes",
    ]),
    (6, "stop", &[
        "mapping_6_what_each_provider_tunes",
        "map_6_more_than_four_sequences_are_refused",
        "mapping_6_stop_sequences",
        "mapping_6_sampling_and_limits",
    ]),
    (6, "penalties, seed, logit_bias, n", &[
        "mapping_6_what_each_provider_tunes",
        "mapping_6_sampling_and_limits",
        "mapping_12_members_without_a_place_are_carried_or_accounted_for",
    ]),
    (6, "logprobs", &[
        "mapping_6_sampling_and_limits",
        "logprobs_have_a_chunk_of_their_own",
        "mapping_06_figures_are_within_what_the_provider_takes",
    ]),
    (6, "user / safety_identifier", &[
        "mapping_6_user_and_tier",
        "map_6_accounts_in_this_formats_words",
    ]),
    (6, "metadata (map)", &[
        "map_6_accounts_in_this_formats_words",
        "mapping_06_and_12_everything_else_has_its_place_or_is_kept_by_name",
    ]),
    (6, "service_tier", &[
        "mapping_6_user_and_tier",
        "map_6_accounts_in_this_formats_words",
    ]),
    (6, "cache hints", &[
        "bug_52_and_59_marks_go_to_providers_that_know_them_and_never_leak",
        "bug_53_at_most_four_marks_and_the_last_ones",
    ]),
    (6, "verbosity", &[
        "map_6_accounts_in_this_formats_words",
        "mapping_06_and_12_everything_else_has_its_place_or_is_kept_by_name",
    ]),
    (6, "store/truncation/conversation", &[
        "mapping_12_members_without_a_place_are_carried_or_accounted_for",
        "mapping_06_and_12_everything_else_has_its_place_or_is_kept_by_name",
    ]),
    (7, "stop", &[
        "mapping_7_every_reason",
        "mapping_7_bug_17_every_reason",
        "mapping_07_every_end_has_its_status",
        "map_7_reasons_have_their_words",
    ]),
    (7, "length", &[
        "mapping_7_every_reason",
        "mapping_7_bug_17_every_reason",
        "mapping_07_every_end_has_its_status",
        "map_7_reasons_have_their_words",
    ]),
    (7, "context full", &[
        "mapping_7_every_reason",
        "mapping_7_bug_17_every_reason",
        "mapping_07_every_end_has_its_status",
        "map_7_reasons_have_their_words",
    ]),
    (7, "tool call", &[
        "mapping_7_every_reason",
        "mapping_7_bug_17_every_reason",
        "mapping_07_every_end_has_its_status",
        "map_7_reasons_have_their_words",
    ]),
    (7, "content filter", &[
        "mapping_7_every_reason",
        "mapping_7_bug_17_every_reason",
        "mapping_07_every_end_has_its_status",
        "map_7_reasons_have_their_words",
    ]),
    (7, "pause", &[
        "mapping_7_every_reason",
        "mapping_7_bug_17_every_reason",
        "mapping_07_every_end_has_its_status",
        "map_7_reasons_have_their_words",
    ]),
    (7, "stop sequence", &[
        "mapping_7_every_reason",
        "mapping_7_bug_17_every_reason",
        "mapping_07_every_end_has_its_status",
        "map_7_reasons_have_their_words",
        "bug_23_a_stop_sequence_is_told_where_the_provider_tells_it",
    ]),
    (7, "malformed call / other failure", &[
        "mapping_7_a_failure_without_a_word_is_an_error_and_one_behind_words_is_an_end",
        "mapping_7_a_missing_signature_is_the_clients_fault",
        "mapping_7_bug_16_reasons_are_words_that_clients_know",
    ]),
    (8, "C", &[
        "chat_totals_include_their_parts",
        "bug_37_usage_counts_wherever_it_stands_and_is_never_added",
    ]),
    (8, "M", &[
        "mapping_8_usage_excludes_the_cache_and_comes_at_the_end",
        "mapping_8_usage_of_a_whole_answer_has_its_buckets",
        "bug_41_messages_input_is_made_to_include_the_cache",
    ]),
    (8, "R", &[
        "mapping_08_usage_has_all_figures",
        "fact_32_responses_totals_include_their_parts",
    ]),
    (8, "G", &[
        "fact_38_mapping_8_usage_is_cumulative_and_thoughts_stand_beside_the_output",
        "mapping_8_audio_and_images_are_counted_apart",
        "bug_42_gemini_output_includes_thoughts_and_cached_is_a_part_of_the_prompt",
    ]),
    (9, "request", &[
        "mapping_9_web_search",
        "mapping_09_a_search_is_the_providers_tool",
        "mapping_09_a_search_in_another_formats_words_is_a_search_here",
        "map_9_a_search_of_the_web_is_read_in_both_spellings_and_sent_in_one",
    ]),
    (9, "domain filters", &[
        "mapping_9_web_search",
        "mapping_09_a_search_is_the_providers_tool",
        "mapping_09_a_search_in_another_formats_words_is_a_search_here",
        "map_9_a_search_of_the_web_is_read_in_both_spellings_and_sent_in_one",
    ]),
    (9, "location", &[
        "mapping_9_web_search",
        "mapping_09_a_search_is_the_providers_tool",
        "mapping_09_a_search_in_another_formats_words_is_a_search_here",
        "map_9_a_search_of_the_web_is_read_in_both_spellings_and_sent_in_one",
    ]),
    (9, "context size", &[
        "mapping_9_web_search",
        "mapping_09_a_search_is_the_providers_tool",
        "mapping_09_a_search_in_another_formats_words_is_a_search_here",
        "map_9_a_search_of_the_web_is_read_in_both_spellings_and_sent_in_one",
    ]),
    (9, "output", &[
        "mapping_9_a_citation_with_an_address_stands_on_its_text",
        "mapping_9_a_cited_block_spans_its_own_characters",
        "mapping_9_bug_69_grounding_becomes_citations_in_characters",
        "mapping_9_bug_69_citations_become_grounding_in_bytes",
        "bug_69_sources_come_in_one_chunk_before_the_end",
    ]),
    (10, "bad request", &["bug_66_every_kind_is_in_the_shape_of_every_format"]),
    (10, "auth", &["bug_66_every_kind_is_in_the_shape_of_every_format"]),
    (10, "forbidden model", &["bug_66_every_kind_is_in_the_shape_of_every_format"]),
    (10, "unknown model/path", &["bug_66_every_kind_is_in_the_shape_of_every_format"]),
    (10, "too large", &["bug_66_every_kind_is_in_the_shape_of_every_format"]),
    (10, "rate", &["bug_66_every_kind_is_in_the_shape_of_every_format"]),
    (10, "upstream error / bad body", &["bug_66_every_kind_is_in_the_shape_of_every_format"]),
    (10, "no channel / overloaded", &["bug_66_every_kind_is_in_the_shape_of_every_format"]),
    (10, "upstream timeout", &["bug_66_every_kind_is_in_the_shape_of_every_format"]),
    (10, "no balance (spec silent)", &["an_empty_balance_is_told_in_every_format_and_credit_mends_it"]),
    (12, "C logit_bias, prediction, store, moderation, prompt_cache_*", &[
        "mapping_12_members_without_a_place_are_carried_or_accounted_for",
        "mapping_12_what_has_no_place_is_accounted_for",
        "mapping_12_members_of_the_format_reach_it_and_those_of_others_do_not",
    ]),
    (12, "C audio/modalities audio, input_audio", &[
        "map_2_files_sound_and_video_are_read",
        "mapping_2_sound_and_video_are_refused",
        "mapping_12_members_without_a_place_are_carried_or_accounted_for",
        "mapping_12_what_has_no_place_is_accounted_for",
        "mapping_12_members_of_the_format_reach_it_and_those_of_others_do_not",
    ]),
    (12, "C logprobs=true", &[
        "mapping_6_sampling_and_limits",
        "mapping_12_members_without_a_place_are_carried_or_accounted_for",
        "mapping_12_what_has_no_place_is_accounted_for",
        "mapping_12_members_of_the_format_reach_it_and_those_of_others_do_not",
    ]),
    (12, "C n>1", &[
        "mapping_6_sampling_and_limits",
        "mapping_12_members_without_a_place_are_carried_or_accounted_for",
        "mapping_12_what_has_no_place_is_accounted_for",
        "mapping_12_members_of_the_format_reach_it_and_those_of_others_do_not",
    ]),
    (12, "C custom (grammar) tool", &[
        "mapping_3_a_tool_with_free_text",
        "map_12_tools_with_free_text_are_called_with_text",
    ]),
    (12, "M mcp_servers, container, context_management, server tools other than web_search", &[
        "mapping_12_other_tools_of_the_provider_go_to_the_same_format_only",
        "mapping_12_members_without_a_place_are_carried_or_accounted_for",
        "mapping_12_what_has_no_place_is_accounted_for",
        "mapping_12_members_of_the_format_reach_it_and_those_of_others_do_not",
    ]),
    (12, "M cache_control, inference_geo, speed, diagnostics, service_tier", &[
        "mapping_6_user_and_tier",
        "bug_52_and_59_marks_go_to_providers_that_know_them_and_never_leak",
        "mapping_12_members_without_a_place_are_carried_or_accounted_for",
        "mapping_12_what_has_no_place_is_accounted_for",
        "mapping_12_members_of_the_format_reach_it_and_those_of_others_do_not",
    ]),
    (12, "M search_result / citations config on documents", &["mapping_12_search_results_are_text_and_the_client_is_told"]),
    (12, "M input_examples, eager_input_streaming, defer_loading", &["mapping_12_members_of_tools_stay_when_a_request_is_said_anew_in_its_own_format"]),
    (12, "R background, conversation, prompt", &[
        "mapping_06_and_12_everything_else_has_its_place_or_is_kept_by_name",
        "mapping_12_members_without_a_place_are_carried_or_accounted_for",
        "mapping_12_what_has_no_place_is_accounted_for",
        "mapping_12_members_of_the_format_reach_it_and_those_of_others_do_not",
    ]),
    (12, "R include, truncation auto, max_tool_calls, metadata", &[
        "mapping_06_and_12_everything_else_has_its_place_or_is_kept_by_name",
        "mapping_12_members_without_a_place_are_carried_or_accounted_for",
        "mapping_12_what_has_no_place_is_accounted_for",
        "mapping_12_members_of_the_format_reach_it_and_those_of_others_do_not",
    ]),
    (12, "R hosted tools file_search, code_interpreter, computer, mcp, shell, image_generation", &["mapping_09_a_search_is_a_search_and_other_hosted_tools_are_named"]),
    (12, "G safetySettings, labels, responseModalities [TEXT], mediaResolution, speechConfig", &[
        "mapping_12_members_without_a_place_are_carried_or_accounted_for",
        "mapping_12_what_has_no_place_is_accounted_for",
        "mapping_12_members_of_the_format_reach_it_and_those_of_others_do_not",
    ]),
    (12, "G cachedContent", &[
        "mapping_12_members_without_a_place_are_carried_or_accounted_for",
        "mapping_12_what_has_no_place_is_accounted_for",
        "mapping_12_members_of_the_format_reach_it_and_those_of_others_do_not",
    ]),
    (12, "G topK, seed, penalties", &["mapping_6_sampling_and_limits"]),
    (12, "G codeExecution, urlContext, googleMaps, fileSearch tools", &[
        "bug_62_web_search_is_a_search_and_other_tools_of_the_provider_are_told",
        "mapping_12_members_without_a_place_are_carried_or_accounted_for",
        "mapping_12_what_has_no_place_is_accounted_for",
        "mapping_12_members_of_the_format_reach_it_and_those_of_others_do_not",
    ]),
];
