//! Tests of context overflows, in the words of each provider.

use crate::error::ErrorKind;
use crate::wire::Format;
use crate::wire::error::{ProviderError, body, from_provider};
use crate::wire::overflow::restate;

/// Returns the message for clients of a format, for an error body of a provider. `None` if it is no overflow.
fn told(format: Format, status: u16, provider: &str, expected: u64, window: Option<u32>) -> Option<String> {
    let mut error = from_provider(status, ProviderError::decode(provider.as_bytes()), None);
    if error.kind != ErrorKind::ContextOverflow {
        return None;
    }
    assert_eq!(error.status, 400, "{provider}");
    restate(format, &mut error, expected, window);
    Some(error.message.into_owned())
}

fn of_message(message: &str) -> String {
    serde_json::json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string()
}

/// Sentences of providers, with the tokens and the limit that they say.
const SENTENCES: [(&str, u64, u64); 24] = [
    ("prompt is too long: 210000 tokens > 200000 maximum", 210_000, 200_000),
    (
        "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length or `max_tokens` and try again",
        222_000,
        200_000,
    ),
    (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130500 tokens. Please reduce the length of the messages.",
        130_500,
        128_000,
    ),
    (
        "This model's maximum context length is 8192 tokens, however you requested 10000 tokens (9000 in your prompt; 1000 for the completion). Please reduce your prompt; or completion length.",
        10_000,
        8_192,
    ),
    (
        "This model's maximum context length is 131072 tokens. However, you requested 140000 tokens (132000 in the messages, 8000 in the completion).",
        140_000,
        131_072,
    ),
    (
        "This endpoint's maximum context length is 200000 tokens. However, you requested about 2500021 tokens (2500021 of text input). Please reduce the length of either one.",
        2_500_021,
        200_000,
    ),
    (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        1_200_000,
        1_048_576,
    ),
    (
        "Unable to submit request because the input token count is 1200000 but model only supports up to 1048576.",
        1_200_000,
        1_048_576,
    ),
    (
        "You passed 5000 input tokens and requested 500 output tokens. However, the model's context length is only 4096 tokens, resulting in a maximum input length of 3596.",
        5_000,
        4_096,
    ),
    (
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens.",
        5_000,
        4_096,
    ),
    (
        "request (9,000 tokens) exceeds the available context size (4,096 tokens), try increasing it",
        9_000,
        4_096,
    ),
    (
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        40_000,
        32_768,
    ),
    (
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
        300_000,
        262_144,
    ),
    (
        "This model's maximum prompt length is 131072 but the request contains 150000 tokens.",
        150_000,
        131_072,
    ),
    ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", 5_000, 4_096),
    (
        "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens: 4500 tokens from the input messages and 500 tokens for the completion.",
        5_000,
        4_096,
    ),
    ("length of prompt_tokens (5000) must be less than max_seq_len (4096).", 5_000, 4_096),
    ("prompt token count of 130000 exceeds the limit of 128000", 130_000, 128_000),
    ("The prompt is too long: 140000, model maximum context length: 131071", 140_000, 131_071),
    (
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens and 512 `max_new_tokens`",
        5_000,
        4_097,
    ),
    (
        "too many tokens: size limit exceeded by 25836 tokens. Try using shorter or fewer inputs. The limit for this model is 288000 tokens.",
        313_836,
        288_000,
    ),
    ("Too many input tokens. Max input tokens: 8192, request input token count: 9000", 9_000, 8_192),
    ("Input length 150000 exceeds the maximum length 131072", 150_000, 131_072),
    (
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.",
        5_000,
        4_096,
    ),
];

#[test]
fn overflow_of_every_provider_is_restated_with_its_numbers() {
    for (message, tokens, limit) in SENTENCES {
        let provider = of_message(message);
        for status in [400, 413, 422, 500] {
            let told = |format| told(format, status, &provider, 1, Some(2)).expect(message);
            let sentence = format!("prompt is too long: {tokens} tokens > {limit} maximum");
            let expected = if message == sentence { sentence } else { format!("{sentence}: {message}") };
            assert_eq!(told(Format::Messages), expected);
            let sentence = format!(
                "The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit})."
            );
            let expected = if message == sentence { sentence } else { format!("{sentence} {message}") };
            assert_eq!(told(Format::Generate), expected);
            assert_eq!(told(Format::Chat), message);
            assert_eq!(told(Format::Responses), message);
        }
    }
}

#[test]
fn overflow_without_numbers_has_the_estimate_and_the_window() {
    let window =
        "Your input exceeds the context window of this model. Please adjust your input and try again.";
    let openai =
        serde_json::json!({"error": {"message": window, "type": "invalid_request_error", "param": "input",
        "code": "context_length_exceeded"}})
        .to_string();
    let messages = |expected, limit| told(Format::Messages, 400, &openai, expected, limit).unwrap();
    assert_eq!(
        messages(300_000, Some(272_000)),
        format!("prompt is too long: 300000 tokens > 272000 maximum: {window}")
    );
    // An estimate below the window would contradict the error.
    for (expected, limit) in [(250_000, Some(272_000)), (300_000, None)] {
        assert_eq!(messages(expected, limit), format!("prompt is too long: {window}"));
        assert_eq!(
            told(Format::Generate, 400, &openai, expected, limit).unwrap(),
            format!("The input token count exceeds the maximum number of tokens allowed. {window}")
        );
    }
    let limit = "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]";
    let told_with = |expected| told(Format::Messages, 400, &of_message(limit), expected, Some(1)).unwrap();
    assert_eq!(told_with(130_000), format!("prompt is too long: 130000 tokens > 129024 maximum: {limit}"));
    assert_eq!(told_with(10), format!("prompt is too long: {limit}"));
    // The number is an error code.
    let limit = "invalid params, context window exceeds limit (2013)";
    let told_with = |window| told(Format::Messages, 400, &of_message(limit), 300_000, window).unwrap();
    assert_eq!(
        told_with(Some(204_800)),
        format!("prompt is too long: 300000 tokens > 204800 maximum: {limit}")
    );
    assert_eq!(told_with(None), format!("prompt is too long: {limit}"));
    let excess = "prompt too long; exceeded max context length by 1119046 tokens (ref: 96164522-08b2-4cbf-886e-e5a38961a688)";
    let told_with = |window| told(Format::Messages, 400, &of_message(excess), 10, window).unwrap();
    assert_eq!(
        told_with(Some(1_000_000)),
        format!("prompt is too long: 2119046 tokens > 1000000 maximum: {excess}")
    );
    assert_eq!(told_with(None), format!("prompt is too long: {excess}"));
    let anthropic = "prompt is too long";
    assert_eq!(told(Format::Messages, 400, &of_message(anthropic), 1, None).unwrap(), anthropic);
}

#[test]
fn overflow_is_recognized_by_its_code_or_its_words() {
    for provider in [
        r#"{"error":{"message":"Too long.","code":"context_length_exceeded"}}"#,
        r#"{"error":{"message":"Too long.","type":"exceed_context_size_error","code":400,"n_ctx":4096}}"#,
        r#"{"error":{"code":"1261","message":"Prompt exceeds max length"}}"#,
        r#"{"message":"Input is too long for requested model."}"#,
        r#"{"error":{"message":"invalid params, context window exceeds limit (2013)"}}"#,
        r#"{"object":"error","message":"This model's maximum context length is 4096 tokens.","code":400}"#,
    ] {
        assert!(told(Format::Messages, 400, provider, 1, None).is_some(), "{provider}");
    }
    for (status, provider) in [
        (400, of_message("messages: field required")),
        (
            400,
            of_message(
                "'max_tokens' is too large: 200000. This model's maximum context length is 128000 tokens and your request has 100 input tokens (200000 > 128000 - 100).",
            ),
        ),
        (
            400,
            of_message(
                "max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens for the model",
            ),
        ),
        (400, of_message("The string is too long.")),
        // Rate limits have the same words.
        (429, of_message("Too many tokens, please wait before trying again.")),
        (429, of_message("Limit of input tokens per minute exceeded.")),
        (401, of_message("context_length_exceeded")),
        (503, of_message("maximum context length")),
    ] {
        assert_eq!(told(Format::Messages, status, &provider, 1, None), None, "{provider}");
    }
}

#[test]
fn overflow_has_the_type_and_code_of_every_format() {
    let provider = of_message(SENTENCES[2].0);
    let sent = |format| {
        let mut error = from_provider(400, ProviderError::decode(provider.as_bytes()), None);
        restate(format, &mut error, 0, None);
        serde_json::from_slice::<serde_json::Value>(&body(format, &error, "r")).unwrap()
    };
    assert_eq!(sent(Format::Messages)["error"]["type"], "invalid_request_error");
    for format in [Format::Chat, Format::Responses] {
        assert_eq!(sent(format)["error"]["type"], "invalid_request_error");
        assert_eq!(sent(format)["error"]["code"], "context_length_exceeded");
    }
    assert_eq!(sent(Format::Generate)["error"]["status"], "INVALID_ARGUMENT");
    assert_eq!(sent(Format::Generate)["error"]["code"], 400);
}
