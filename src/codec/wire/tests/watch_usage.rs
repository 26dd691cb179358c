//! Tests of usage in each format's own counts, before normalization.

use crate::canonical::{Region, ServiceTier, Usage};
use crate::wire::watch::{answer, frame};
use crate::wire::{Format, embeddings};

/// Parses a whole response with this usage object.
fn read(format: Format, usage: &str) -> Usage {
    let key = if format == Format::Generate { "usageMetadata" } else { "usage" };
    let body = format!(r#"{{"choices":[],"content":[],"output":[],"{key}":{usage}}}"#);
    folded(&[answer(format, &body).unwrap().usage.unwrap_or_default()])
}

/// Returns the meter's result for a sequence of usage reports.
fn folded(reports: &[Usage]) -> Usage {
    let mut usage = Usage::default();
    for report in reports {
        usage.update(report);
    }
    // `uncached` does not affect billing.
    Usage { uncached: None, ..usage }
}

fn stream(format: Format, frames: &[&str]) -> Usage {
    let reports: Vec<Usage> = frames.iter().filter_map(|data| frame(format, data).unwrap().usage).collect();
    folded(&reports)
}

fn usage(input: u64, output: u64) -> Usage {
    Usage { input: Some(input), output: Some(output), ..Usage::default() }
}

#[test]
fn usage_of_chat_includes_its_parts() {
    let read = read(
        Format::Chat,
        r#"{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,
            "prompt_tokens_details":{"cached_tokens":80,"audio_tokens":3,"cache_write_tokens":5},
            "completion_tokens_details":{"reasoning_tokens":12,"audio_tokens":2,"image_tokens":1}}"#,
    );
    let expected = Usage {
        cached: Some(80),
        cache_write: Some(5),
        reasoning: Some(12),
        audio_input: Some(3),
        audio_output: Some(2),
        image_output: Some(1),
        ..usage(100, 20)
    };
    assert_eq!(read, expected);
}

#[test]
fn bug_38_usage_zero_is_kept_and_absent_is_none() {
    let read = |text| read(Format::Chat, text);
    assert_eq!(
        read(r#"{"prompt_tokens":1,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":0}}"#),
        Usage { cached: Some(0), ..usage(1, 0) }
    );
    assert_eq!(
        read(
            r#"{"prompt_tokens":1,"completion_tokens":2,"prompt_tokens_details":null,"completion_tokens_details":{}}"#
        ),
        usage(1, 2)
    );
    assert_eq!(
        read(r#"{"prompt_tokens":null,"completion_tokens":"2"}"#),
        Usage::default(),
        "no number, no figure"
    );
    assert_eq!(read("null"), Usage::default());
}

/// xAI's completion tokens exclude reasoning tokens.
#[test]
fn fact_15_usage_deviations_of_providers_are_recognized() {
    let read = |text| read(Format::Chat, text);
    let xai = r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":115,"completion_tokens_details":{"reasoning_tokens":100}}"#;
    assert_eq!(read(xai), Usage { reasoning: Some(100), ..usage(10, 105) });
    let others = r#"{"prompt_tokens":10,"completion_tokens":105,"total_tokens":115,"completion_tokens_details":{"reasoning_tokens":100}}"#;
    assert_eq!(read(others), Usage { reasoning: Some(100), ..usage(10, 105) });
    let more_than_all = r#"{"prompt_tokens":219,"completion_tokens":19,"total_tokens":238,"completion_tokens_details":{"reasoning_tokens":280}}"#;
    assert_eq!(read(more_than_all), Usage { reasoning: Some(280), ..usage(219, 299) });
    let deepseek = r#"{"prompt_tokens":10,"completion_tokens":5,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":2}"#;
    assert_eq!(read(deepseek), Usage { cached: Some(8), ..usage(10, 5) });
    let together = r#"{"prompt_tokens":10,"completion_tokens":5,"cached_tokens":4}"#;
    assert_eq!(read(together), Usage { cached: Some(4), ..usage(10, 5) });
    let mistral =
        r#"{"prompt_tokens":99,"completion_tokens":5,"num_cached_tokens":48,"prompt_audio_seconds":null}"#;
    assert_eq!(read(mistral), Usage { cached: Some(48), ..usage(99, 5) });
    let copilot = r#"{"prompt_tokens":9,"completion_tokens":5,"reasoning_tokens":0}"#;
    assert_eq!(read(copilot), Usage { reasoning: Some(0), ..usage(9, 5) });
    let beside = r#"{"prompt_tokens":99,"completion_tokens":5,"cache_read_input_tokens":40,"cache_creation_input_tokens":2,"server_tool_use_details":{"web_search_requests":3}}"#;
    let expected = Usage { cached: Some(40), cache_write: Some(2), searches: Some(3), ..usage(99, 5) };
    assert_eq!(read(beside), expected);
    let huge = r#"{"prompt_tokens":18446744073709551615,"completion_tokens":18446744073709551615,"total_tokens":1,"completion_tokens_details":{"reasoning_tokens":1}}"#;
    assert_eq!(read(huge), Usage { reasoning: Some(1), ..usage(u64::MAX, u64::MAX) });
}

/// Cumulative usage in every chunk: the last one counts.
#[test]
fn bug_37_usage_is_taken_from_anywhere_and_never_added() {
    let choice = r#"{"choices":[{"delta":{}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#;
    let finish =
        r#"{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#;
    let alone = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}"#;
    let null = r#"{"choices":[],"moderation":{},"usage":null}"#;
    assert_eq!(stream(Format::Chat, &[choice, choice, finish, alone, null, "[DONE]"]), usage(9, 3));
    let groq = r#"{"choices":[{"finish_reason":"stop"}],"x_groq":{"id":"r","usage":{"prompt_tokens":4,"completion_tokens":5}}}"#;
    assert_eq!(stream(Format::Chat, &[groq]), usage(4, 5));
    let kimi = r#"{"choices":[{"finish_reason":"stop","usage":{"prompt_tokens":6,"completion_tokens":7}}]}"#;
    assert_eq!(stream(Format::Chat, &[kimi]), usage(6, 7));
}

#[test]
fn bug_41_usage_of_messages_input_includes_the_cache() {
    let read = |text| read(Format::Messages, text);
    assert_eq!(
        read(
            r#"{"input_tokens":10,"cache_read_input_tokens":200,"cache_creation_input_tokens":30,"output_tokens":5}"#
        ),
        Usage { cached: Some(200), cache_write: Some(30), ..usage(240, 5) }
    );
    assert_eq!(read(r#"{"input_tokens":10,"output_tokens":5}"#), usage(10, 5));
}

#[test]
fn bug_43_usage_cache_parts_are_parts_of_the_sum() {
    let read = |text| read(Format::Messages, text);
    let expected = Usage { cache_write: Some(10), cache_write_1h: Some(20), ..usage(31, 5) };
    assert_eq!(
        read(
            r#"{"input_tokens":1,"output_tokens":5,"cache_creation_input_tokens":30,
            "cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20}}"#
        ),
        expected
    );
    assert_eq!(
        read(
            r#"{"cache_creation":{"ephemeral_1h_input_tokens":20},"cache_creation_input_tokens":30,"input_tokens":1,"output_tokens":5}"#
        ),
        expected
    );
    // A last report with only the total does not double the buckets of the first one. A zero counts.
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1,"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20}}}}"#;
    let delta =
        r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":5,"cache_creation_input_tokens":30}}"#;
    assert_eq!(stream(Format::Messages, &[start, delta]), expected);
    let zero =
        r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":5,"cache_creation_input_tokens":0}}"#;
    assert_eq!(
        stream(Format::Messages, &[start, zero]),
        Usage { cache_write: Some(0), cache_write_1h: Some(0), ..usage(1, 5) }
    );
}

/// The last report replaces earlier ones, and may omit the cache or the input.
#[test]
fn fact_19_usage_of_messages_is_cumulative_over_the_stream() {
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":10,"cache_read_input_tokens":100,"output_tokens":2}}}"#;
    for (delta, input, cached, output) in [
        (r#"{"output_tokens":50}"#, 110, 100, 50),
        (r#"{"input_tokens":12,"output_tokens":50}"#, 112, 100, 50),
        (r#"{"input_tokens":12,"cache_read_input_tokens":0,"output_tokens":50}"#, 12, 0, 50),
        (r#"{"input_tokens":0,"output_tokens":50}"#, 110, 100, 50),
        ("null", 110, 100, 2),
    ] {
        let delta =
            format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{delta}}}"#);
        let expected = Usage { cached: Some(cached), ..usage(input, output) };
        assert_eq!(stream(Format::Messages, &[start, &delta]), expected, "{delta}");
    }
}

#[test]
fn fact_21_usage_of_messages_has_thinking_and_searches() {
    let read = read(
        Format::Messages,
        r#"{"input_tokens":1,"output_tokens":9,"output_tokens_details":{"thinking_tokens":7},
            "server_tool_use":{"web_search_requests":2,"web_fetch_requests":1},"service_tier":"standard"}"#,
    );
    let tier = Some(ServiceTier::Standard);
    assert_eq!(read, Usage { reasoning: Some(7), searches: Some(2), tier, ..usage(1, 9) });
}

#[test]
fn fact_32_usage_of_responses_includes_its_parts() {
    let data = r#"{"type":"response.completed","response":{"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":8},"output_tokens":20,"output_tokens_details":{"reasoning_tokens":15},"total_tokens":120}}}"#;
    let expected = Usage { cached: Some(0), cache_write: Some(8), reasoning: Some(15), ..usage(100, 20) };
    assert_eq!(stream(Format::Responses, &[data]), expected);
    assert_eq!(read(Format::Responses, r#"{"input_tokens":1,"output_tokens":2}"#), usage(1, 2));
    assert_eq!(read(Format::Responses, "null"), Usage::default());
}

#[test]
fn bug_42_usage_of_gemini_output_includes_thoughts() {
    let read = |text| read(Format::Generate, text);
    assert_eq!(
        read(
            r#"{"promptTokenCount":100,"cachedContentTokenCount":60,"candidatesTokenCount":10,"thoughtsTokenCount":30,"totalTokenCount":140}"#
        ),
        Usage { cached: Some(60), reasoning: Some(30), ..usage(100, 40) }
    );
    assert_eq!(
        read(
            r#"{"promptTokenCount":100,"toolUsePromptTokenCount":7,"candidatesTokenCount":10,"totalTokenCount":117}"#
        ),
        usage(107, 10),
        "the prompt of server-side tools"
    );
    assert_eq!(
        read(r#"{"promptTokenCount":10,"thoughtsTokenCount":30,"totalTokenCount":40}"#),
        Usage { reasoning: Some(30), ..usage(10, 30) },
        "nothing but thoughts"
    );
    assert_eq!(
        read(
            r#"{"prompt_token_count":10,"candidates_token_count":30,"thoughts_token_count":20,"total_token_count":40}"#
        ),
        Usage { reasoning: Some(20), ..usage(10, 30) },
        "a version that includes them"
    );
    assert_eq!(
        read(
            r#"{"promptTokenCount":10,"candidatesTokenCount":30,
            "promptTokensDetails":[{"modality":"TEXT","tokenCount":6},{"modality":"AUDIO","tokenCount":4}],
            "candidatesTokensDetails":[{"modality":"IMAGE","tokenCount":29},{"modality":"AUDIO","tokenCount":1}]}"#
        ),
        Usage { audio_input: Some(4), audio_output: Some(1), image_output: Some(29), ..usage(10, 30) }
    );
}

/// An interrupted stream is billed by its last chunk: every chunk has usage.
#[test]
fn bug_44_usage_of_an_interrupted_gemini_stream_is_the_last() {
    let chunk = |n: u64| {
        format!(
            r#"{{"candidates":[{{}}],"usageMetadata":{{"promptTokenCount":9,"candidatesTokenCount":{n}}}}}"#
        )
    };
    let first = r#"{"candidates":[{}],"usageMetadata":{"promptTokenCount":9}}"#;
    assert_eq!(stream(Format::Generate, &[first, &chunk(3), &chunk(8)]), usage(9, 8));
}

#[test]
fn bug_40_usage_update_does_not_erase_known_figures() {
    let mut known = Usage { cached: Some(5), ..usage(10, 20) };
    known.update(&Usage { output: Some(25), ..Usage::default() });
    assert_eq!(known, Usage { cached: Some(5), ..usage(10, 25) });
    known.update(&Usage::default());
    assert_eq!(known, Usage { cached: Some(5), ..usage(10, 25) });
    assert!(known.is_known() && !Usage::default().is_known());
}

/// Embeddings usage has three forms.
#[test]
fn fact_40_usage_of_embeddings_has_input_only() {
    for (body, input) in [
        (r#"{"data":[],"usage":{"prompt_tokens":8,"total_tokens":8}}"#, Some(8)),
        (r#"{"data":[],"usage":{"total_tokens":8}}"#, Some(8)),
        (r#"{"data":[],"usage":{"prompt_tokens":8,"completion_tokens":0,"total_tokens":8}}"#, Some(8)),
        (
            r#"{"embedding":{"values":[]},"usageMetadata":{"promptTokenCount":8,"totalTokenCount":8}}"#,
            Some(8),
        ),
        (r#"{"embeddings":[]}"#, None),
    ] {
        let usage = embeddings::answer(body).unwrap().usage.unwrap_or_default();
        assert_eq!(usage, Usage { input, ..Usage::default() }, "{body}");
    }
}

/// Each format states the tier that served a response in its own place.
#[test]
fn service_tier_of_responses_is_read_in_every_format() {
    use ServiceTier::*;
    let messages = |members: &str| format!(r#"{{"input_tokens":1,"output_tokens":2{members}}}"#);
    for (members, tier, region) in [
        ("", None, None),
        (r#","service_tier":"standard""#, Some(Standard), None),
        (r#","service_tier":"standard","speed":"fast""#, Some(Fast), None),
        (r#","service_tier":"standard","speed":"standard""#, Some(Standard), None),
        (r#","service_tier":"priority","inference_geo":"us""#, Some(Reserved), Some(Some(Region::Us))),
        (r#","service_tier":"batch","inference_geo":"not_available""#, Some(Batch), Some(None)),
        (
            r#","service_tier":"of_tomorrow","inference_geo":"mars""#,
            Some(Unknown),
            Some(Some(Region::Unknown)),
        ),
        (r#","service_tier":null,"speed":null,"inference_geo":null"#, None, None),
    ] {
        let read = read(Format::Messages, &messages(members));
        assert_eq!((read.tier, read.region), (tier, region), "{members}");
    }
    for (members, tier) in [
        (r#""serviceTier":"priority""#, Some(Priority)),
        (r#""trafficType":"ON_DEMAND_FLEX""#, Some(Flex)),
        (r#""trafficType":"PROVISIONED_THROUGHPUT""#, Some(Reserved)),
        (r#""trafficType":"ON_DEMAND""#, Some(Standard)),
        (r#""trafficType":"TRAFFIC_TYPE_UNSPECIFIED""#, None),
        (r#""serviceTier":"flex","trafficType":"ON_DEMAND""#, Some(Flex)),
    ] {
        let text = format!(r#"{{"promptTokenCount":1,"candidatesTokenCount":2,{members}}}"#);
        assert_eq!(read(Format::Generate, &text).traffic, tier, "{members}");
    }
    for (format, body, tier) in [
        (
            Format::Chat,
            r#"{"choices":[{}],"service_tier":"priority","usage":{"prompt_tokens":1}}"#,
            Some(Priority),
        ),
        (Format::Chat, r#"{"choices":[{}],"service_tier":"auto"}"#, None),
        (Format::Chat, r#"{"choices":[{}],"service_tier":null}"#, None),
        (Format::Responses, r#"{"object":"response","service_tier":"default"}"#, Some(Standard)),
        (Format::Responses, r#"{"object":"response","service_tier":"ultrafast"}"#, Some(Ultrafast)),
        (
            Format::Converse,
            r#"{"output":{},"stopReason":"end_turn","serviceTier":{"type":"flex"}}"#,
            Some(Flex),
        ),
    ] {
        assert_eq!(answer(format, body).unwrap().tier, tier, "{format:?} {body}");
    }
    let frame =
        r#"{"type":"response.completed","response":{"service_tier":"flex","usage":{"input_tokens":1}}}"#;
    assert_eq!(crate::wire::watch::frame(Format::Responses, frame).unwrap().tier, Some(Flex));
    let frame = r#"{"metadata":{"usage":{"inputTokens":1},"serviceTier":{"type":"priority"}}}"#;
    assert_eq!(crate::wire::watch::frame(Format::Converse, frame).unwrap().tier, Some(Priority));
}

/// Cached audio and images, and cache writes by lifetime, are parts of their sums.
#[test]
fn usage_details_of_caches_are_read() {
    let read_chat = read(
        Format::Chat,
        r#"{"prompt_tokens":100,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":60,"audio_tokens":50,
            "cached_tokens_details":{"audio_tokens":40,"image_tokens":5},
            "cache_write_tokens":30,"cache_write_tokens_details":{"ttl_30m_tokens":20,"ttl_12h_tokens":10}}}"#,
    );
    let cached = Usage {
        cached: Some(60),
        cached_audio_input: Some(40),
        cached_image_input: Some(5),
        audio_input: Some(50),
        cache_write: Some(20),
        cache_write_12h: Some(10),
        ..usage(100, 1)
    };
    assert_eq!(read_chat, cached);
    let read_responses = read(
        Format::Responses,
        r#"{"input_tokens":100,"output_tokens":1,"input_tokens_details":{"cached_tokens":60,
            "cache_write_tokens":30,"cache_write_tokens_details":{"ttl_12h_tokens":30}}}"#,
    );
    let expected =
        Usage { cached: Some(60), cache_write: Some(0), cache_write_12h: Some(30), ..usage(100, 1) };
    assert_eq!(read_responses, expected);
    let read_gemini = read(
        Format::Generate,
        r#"{"promptTokenCount":100,"candidatesTokenCount":1,"cachedContentTokenCount":60,
            "cacheTokensDetails":[{"modality":"AUDIO","tokenCount":40},{"modality":"TEXT","tokenCount":20}]}"#,
    );
    assert_eq!((read_gemini.cached, read_gemini.cached_audio_input), (Some(60), Some(40)));
}
