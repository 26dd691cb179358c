//! Context overflow: recognizes that a provider refused a request because it exceeds the model's context window, and
//! states it in the words that clients of each format recover from.
//!
//! Coding agents compact the conversation and send it again if they recognize the words of their own provider's error:
//! `prompt is too long: 210000 tokens > 200000 maximum` (Anthropic), the code `context_length_exceeded` (OpenAI), `The
//! input token count (N) exceeds the maximum number of tokens allowed (M).` (Gemini).

use std::ops::Range;

use super::Format;
use super::error::ProviderError;
use crate::error::{ApiError, ErrorKind};

/// Parts of error codes and error types that mean a context overflow: OpenAI and servers that imitate it, llama.cpp,
/// Cohere.
const CODES: [&str; 4] = ["context_length", "context_window", "exceed_context_size", "too_many_tokens"];

/// Sentences, in lower case, that mean a context overflow by themselves.
const SENTENCES: [&str; 11] = [
    "prompt is too long",                 // Anthropic, Fireworks
    "prompt too long",                    // Ollama
    "prompt exceeds max length",          // GLM
    "input is too long",                  // Bedrock
    "too many input tokens",              // Bedrock
    "too many tokens",                    // Cohere
    "maximum number of tokens allowed",   // Gemini
    "reduce the length of the messages",  // OpenAI, Groq
    "exceed max message tokens",          // Volcengine Ark
    "`inputs` tokens + `max_new_tokens`", // text-generation-inference, Together
    "context length of only",             // LM Studio
];

/// Names of the window, in lower case. Each means an overflow together with one of [`EXCESS`].
const WINDOWS: [&str; 14] = [
    "context length",     // OpenAI, vLLM, SGLang, DeepSeek, Mistral, OpenRouter
    "context window",     // OpenAI responses, MiniMax
    "context size",       // llama.cpp
    "context limit",      // Anthropic
    "prompt length",      // xAI
    "model length",       // vLLM
    "model token limit",  // Moonshot
    "max_seq_len",        // SiliconFlow
    "max_model_len",      // vLLM
    "input token count",  // Gemini, Vertex AI
    "prompt token count", // GitHub Copilot
    "input length",       // DashScope, Volcengine Ark
    "input tokens",       // vLLM
    "input exceeds",
];

/// Words for an excess, in lower case.
const EXCESS: [&str; 9] = [
    "exceed",
    "too long",
    "too large",
    "longer than",
    "maximum",
    "overflow",
    "less than",
    "supports up to",
    "should be [",
];

/// Texts before the number of the limit, in lower case.
const LIMITS: [&str; 20] = [
    "context length",
    "context window of",
    "context window is",
    "context size",
    "context limit",
    "number of tokens allowed",
    "prompt length is",
    "model length",
    "input length is",
    "input length should be [",
    "token limit",
    "limit of",
    "limit for this model is",
    "max_seq_len",
    "max_model_len",
    "must be <=",
    "supports up to",
    "max input tokens",
    "maximum length",
    "maximum context",
];

/// Bytes before a number in which the text that explains it is searched.
const BEFORE: usize = 40;

/// Returns whether a provider's error with this HTTP status reports a context overflow. A status of 500 counts for
/// servers that use it, and for errors inside a stream, which have none.
pub fn is_overflow(status: u16, error: &ProviderError) -> bool {
    if !matches!(status, 400 | 413 | 422 | 500) {
        return false;
    }
    let has = |text: &str, words: &[&str]| words.iter().any(|word| text.contains(word));
    let named = [&error.code, &error.kind].into_iter().flatten();
    if named.into_iter().any(|name| has(&name.to_ascii_lowercase(), &CODES)) {
        return true;
    }
    let message = error.message.to_ascii_lowercase();
    // The output limit alone is too large: a shorter conversation would not help.
    if message.contains("too large") && (message.contains("max_tokens") || message.contains("max_completion"))
    {
        return false;
    }
    has(&message, &SENTENCES) || (has(&message, &WINDOWS) && has(&message, &EXCESS))
}

/// Restates a context overflow for clients of a format; leaves other errors as they are. `expected` is the estimated
/// number of input tokens, `window` the context window of the model; both are used where the provider's message does
/// not say the number.
pub fn restate(format: Format, error: &mut ApiError, expected: u64, window: Option<u32>) {
    if error.kind != ErrorKind::ContextOverflow {
        return;
    }
    let said = &error.message;
    let sentence = match (format, Counts::read(said).or(expected, window)) {
        // Clients of these formats evaluate the code.
        (Format::Chat | Format::Responses, _) => return,
        (Format::Converse, _) => "Input is too long for requested model.".to_owned(),
        (Format::Messages, Some((tokens, limit))) => {
            format!("prompt is too long: {tokens} tokens > {limit} maximum")
        }
        (Format::Messages, None) => "prompt is too long".to_owned(),
        (Format::Generate, Some((tokens, limit))) => {
            format!(
                "The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit})."
            )
        }
        (Format::Generate, None) => {
            "The input token count exceeds the maximum number of tokens allowed.".to_owned()
        }
    };
    // The provider's sentence follows for people: it often says more.
    error.message = if said.contains(&sentence) {
        return;
    } else if format == Format::Messages {
        format!("{sentence}: {said}").into()
    } else {
        format!("{sentence} {said}").into()
    };
}

/// Numbers of tokens in a provider's message. `None` if it does not say them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Tokens of the request.
    requested: Option<u64>,
    /// Tokens by which the request exceeds the limit.
    excess: Option<u64>,
    /// Context window.
    limit: Option<u64>,
}

impl Counts {
    /// Reads the numbers of a message.
    fn read(message: &str) -> Counts {
        let text = message.to_ascii_lowercase();
        let numbers = numbers(&text);
        let before = |at: usize, end: usize| {
            let from =
                (at.saturating_sub(BEFORE)..=at).find(|from| text.is_char_boundary(*from)).unwrap_or(at);
            text.get(from.max(end)..at).unwrap_or_default()
        };
        let mut counts = Counts::default();
        let (mut compared, mut largest, mut last_end) = (None, 0, 0);
        let mut last = 0;
        for (at, value) in &numbers {
            let between = before(at.start, last_end);
            let words = between.trim_end_matches([' ', '(', ':', '`', '"']);
            let after = text.get(at.end..).unwrap_or_default().trim_start();
            if words.ends_with('>') {
                compared.get_or_insert(*value);
            } else if words.ends_with("by") {
                counts.excess.get_or_insert(*value);
            } else if words.ends_with('+') {
                // Input and output limit together.
                largest = largest.max(last + value);
            } else if LIMITS.iter().any(|limit| between.contains(limit))
                || after.starts_with("maximum")
                || after.starts_with("token context")
            {
                counts.limit.get_or_insert(*value);
                largest = largest.max(*value);
            } else {
                largest = largest.max(*value);
            }
            (last, last_end) = (*value, at.end);
        }
        counts.limit = compared.or(counts.limit);
        counts.requested = Some(largest).filter(|tokens| counts.limit.is_some_and(|limit| *tokens > limit));
        counts
    }

    /// Returns the tokens of the request and the limit, with the estimate and the model's window for what the message
    /// does not say. `None` if one is unknown, or if the estimate is within the limit: such numbers would contradict
    /// the error.
    fn or(self, expected: u64, window: Option<u32>) -> Option<(u64, u64)> {
        let limit = self.limit.or(window.map(u64::from))?;
        let by = self.excess.map(|excess| limit.saturating_add(excess));
        let tokens = self.requested.or(by).unwrap_or(expected);
        (tokens > limit).then_some((tokens, limit))
    }
}

/// Returns the whole numbers of a text that can be counts of tokens, with their places: at least three digits, with or
/// without commas between thousands. Digits inside names, such as those of models and ids, are none.
fn numbers(text: &str) -> Vec<(Range<usize>, u64)> {
    let bytes = text.as_bytes();
    let is_name = |at: Option<usize>| {
        let byte = at.and_then(|at| bytes.get(at));
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = bytes.get(at..).and_then(|rest| rest.iter().position(u8::is_ascii_digit)) {
        let start = at + start;
        let digits = |from: usize| bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
        let mut end = start + digits(start);
        while bytes.get(end) == Some(&b',') && digits(end + 1) == 3 {
            end += 4;
        }
        let value = text.get(start..end).map(|number| number.replace(',', "")).unwrap_or_default();
        if value.len() >= 3
            && !is_name(start.checked_sub(1))
            && !is_name(Some(end))
            && let Ok(value) = value.parse()
        {
            found.push((start..end, value));
        }
        at = end;
    }
    found
}
