//! Finish words: one table of the words with which providers end a response, for all formats.
//!
//! A word means the same in every format, because relays pass the words of other formats on. Where a format has a
//! meaning of its own for a word, its row names the format. Words are compared in lower case, with `_` for `-`.
//!
//! A word without a row is judged by the terms in it ([`TERMS`]): `upstream_error` is a failure. A word with none of
//! them is a normal end if the response has content and the end that its format requires, and an error without content.

use super::Format;
use crate::canonical::Event;
use crate::canonical::answer::FinishOwned;
use json::{JsonStr, RawJson, Writer};

/// Meaning of a finish word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishMeaning {
    /// The model completed its answer.
    Stop,
    /// The model generated a stop sequence.
    StopSequence,
    /// The limit of output tokens was reached.
    Length,
    /// The context window is full.
    ContextFull,
    /// The model calls tools.
    ToolUse,
    /// A content filter stopped the output, or the model refused.
    ContentFilter,
    /// The provider paused the turn.
    Pause,
    /// The provider or the model failed: the response broke off.
    Failed,
    /// The response broke off for lack of capacity.
    Busy,
    /// The provider refuses to continue the conversation as the request has it.
    Refused,
    /// A call that the request did not permit: the response broke off, unless it contains the call.
    Uncalled,
    /// Nothing is known about the word.
    Unknown,
}

impl FinishMeaning {
    /// Returns whether the response broke off. `called` means that it contains a tool call.
    pub const fn breaks_off(self, called: bool) -> bool {
        match self {
            FinishMeaning::Failed | FinishMeaning::Busy | FinishMeaning::Refused => true,
            FinishMeaning::Uncalled => !called,
            _ => false,
        }
    }
}

/// Row of the table.
#[derive(Debug)]
pub struct FinishWord {
    /// Word, in lower case.
    pub word: &'static str,
    /// Format in which the word has this meaning. `None` for all formats.
    pub format: Option<Format>,
    /// Meaning.
    pub meaning: FinishMeaning,
    /// Who documents it, with the date at which that was read.
    pub source: &'static str,
}

const fn row(word: &'static str, meaning: FinishMeaning, source: &'static str) -> FinishWord {
    FinishWord { word, format: None, meaning, source }
}

const fn only(
    format: Format,
    word: &'static str,
    meaning: FinishMeaning,
    source: &'static str,
) -> FinishWord {
    FinishWord { word, format: Some(format), meaning, source }
}

const OPENAI: &str = "OpenAI API reference, 2026-11";
const ANTHROPIC: &str = "Anthropic API reference, 2026-11";
const GOOGLE: &str = "Gemini API and Vertex AI references, FinishReason, 2026-11";
const AWS: &str = "AWS service model, StopReason, 2026-11";
const COHERE: &str = "Cohere API reference, finish_reason, 2026-11";
const TGI: &str = "Hugging Face TGI, FinishReason, 2026-11";
const RELAYS: &str = "relays of other formats";

/// Table of the known words.
#[rustfmt::skip] // a table reads as a table
pub const WORDS: &[FinishWord] = {
    use FinishMeaning::{Busy, ContentFilter, ContextFull, Failed, Length, Pause, Refused, Stop, StopSequence, ToolUse, Uncalled, Unknown};
    &[
        // Normal ends
        row("stop",                          Stop,          OPENAI),
        row("completed",                     Stop,          OPENAI),
        row("end_turn",                      Stop,          ANTHROPIC),
        row("complete",                      Stop,          COHERE),
        row("eos",                           Stop,          "Together AI, 2026-11"),
        row("eos_token",                     Stop,          TGI),
        row("stop_sequence",                 StopSequence,  ANTHROPIC),
        row("tool_calls",                    ToolUse,       OPENAI),
        row("function_call",                 ToolUse,       OPENAI),
        row("tool_use",                      ToolUse,       ANTHROPIC),
        row("tool_call",                     ToolUse,       COHERE),
        row("pause_turn",                    Pause,         ANTHROPIC),
        // Pending: a response that is made in the background
        row("queued",                        Unknown,       OPENAI),
        row("in_progress",                   Unknown,       OPENAI),
        // Limits
        row("length",                        Length,        OPENAI),
        row("incomplete",                    Length,        OPENAI),
        row("max_output_tokens",             Length,        OPENAI),
        row("max_tokens",                    Length,        ANTHROPIC),
        row("model_length",                  Length,        "Mistral AI API reference, 2026-11"),
        row("continuation",                  Length,        GOOGLE),
        // The server stops a model that repeats itself: the text is cut off there.
        row("repetition",                    Length,        "vLLM, FinishReason, 2026-11"),
        row("model_context_window_exceeded", ContextFull,   ANTHROPIC),
        // Filters and refusals
        row("content_filter",                ContentFilter, OPENAI),
        row("refusal",                       ContentFilter, ANTHROPIC),
        row("content_filtered",              ContentFilter, AWS),
        row("guardrail_intervened",          ContentFilter, AWS),
        row("sensitive",                     ContentFilter, "Z.ai API reference, 2026-11"),
        row("error_toxic",                   ContentFilter, COHERE),
        row("safety",                        ContentFilter, GOOGLE),
        row("recitation",                    ContentFilter, GOOGLE),
        row("blocklist",                     ContentFilter, GOOGLE),
        row("prohibited_content",            ContentFilter, GOOGLE),
        row("spii",                          ContentFilter, GOOGLE),
        row("image_safety",                  ContentFilter, GOOGLE),
        row("image_prohibited_content",      ContentFilter, GOOGLE),
        row("image_recitation",              ContentFilter, GOOGLE),
        row("model_armor",                   ContentFilter, GOOGLE),
        row("jailbreak",                     ContentFilter, GOOGLE),
        row("escalation",                    ContentFilter, GOOGLE),
        row("pup_limited_disabled",          ContentFilter, GOOGLE),
        only(Format::Generate, "language",   ContentFilter, GOOGLE),
        // Failures
        row("error",                         Failed,        "OpenRouter and Mistral AI API references, 2026-11"),
        row("network_error",                 Failed,        "Z.ai API reference, 2026-11"),
        row("insufficient_system_resource",  Busy,          "DeepSeek API reference, 2026-11"),
        row("abort",                         Failed,        "vLLM and SGLang, FinishReason, 2026-11"),
        row("aborted",                       Failed,        RELAYS),
        row("timeout",                       Failed,        COHERE),
        row("failed",                        Failed,        OPENAI),
        row("cancelled",                     Failed,        OPENAI),
        row("malformed_tool_use",            Failed,        AWS),
        row("malformed_model_output",        Failed,        AWS),
        row("malformed_function_call",       Failed,        GOOGLE),
        row("malformed_response",            Failed,        GOOGLE),
        row("unexpected_tool_call",          Uncalled,      GOOGLE),
        row("too_many_tool_calls",           Failed,        GOOGLE),
        row("missing_thought_signature",     Refused,       GOOGLE),
        // "All other reasons that stopped the token generation": not the natural stopping point.
        only(Format::Generate, "other",      Failed,        GOOGLE),
        row("image_other",                   Failed,        GOOGLE),
        // The text that a model writes in place of an image is whole.
        row("no_image",                      Unknown,       GOOGLE),
    ]
};

/// Terms that give a word without a row its meaning, in the order in which they are looked for.
#[rustfmt::skip] // a table reads as a table
pub const TERMS: &[(&str, FinishMeaning)] = &[
    ("error",        FinishMeaning::Failed),
    ("fail",         FinishMeaning::Failed),
    ("abort",        FinishMeaning::Failed),
    ("cancel",       FinishMeaning::Failed),
    ("malformed",    FinishMeaning::Failed),
    ("interrupt",    FinishMeaning::Failed),
    ("disconnect",   FinishMeaning::Failed),
    ("exception",    FinishMeaning::Failed),
    ("crash",        FinishMeaning::Failed),
    ("timeout",      FinishMeaning::Failed),
    ("timed_out",    FinishMeaning::Failed),
    ("insufficient", FinishMeaning::Busy),
    ("unavailable",  FinishMeaning::Busy),
    ("overload",     FinishMeaning::Busy),
    ("rate_limit",   FinishMeaning::Busy),
    ("context",      FinishMeaning::ContextFull),
    ("max_",         FinishMeaning::Length),
    ("length",       FinishMeaning::Length),
    ("token_limit",  FinishMeaning::Length),
    ("truncat",      FinishMeaning::Length),
    ("filter",       FinishMeaning::ContentFilter),
    ("safety",       FinishMeaning::ContentFilter),
    ("refus",        FinishMeaning::ContentFilter),
    ("moderation",   FinishMeaning::ContentFilter),
    ("guardrail",    FinishMeaning::ContentFilter),
];

/// Longest word that is compared, in bytes. Longer ones are unknown.
const LONGEST: usize = 64;

/// Returns the meaning of a word in a format.
pub fn meaning(format: Format, word: &str) -> FinishMeaning {
    let mut buffer = [0; LONGEST];
    let Some(folded) = buffer.get_mut(..word.len()) else { return FinishMeaning::Unknown };
    for (to, from) in folded.iter_mut().zip(word.bytes()) {
        *to = if from == b'-' { b'_' } else { from.to_ascii_lowercase() };
    }
    let word = std::str::from_utf8(folded).unwrap_or_default();
    let known = WORDS.iter().find(|row| row.word == word && row.format.is_none_or(|own| own == format));
    let by_term = || TERMS.iter().find(|(term, _)| word.contains(term)).map(|(_, meaning)| *meaning);
    known.map(|row| row.meaning).or_else(by_term).unwrap_or(FinishMeaning::Unknown)
}

/// Words with which most responses end. None means in any format that the response broke off.
const USUAL: [&str; 6] = ["stop", "tool_calls", "length", "end_turn", "tool_use", "STOP"];

/// Returns whether a word of a response that passes unread means that the response broke off.
pub fn breaks_off(format: Format, word: &str) -> bool {
    // Asked for each response: the table is not searched for the usual words.
    !USUAL.contains(&word) && meaning(format, word).breaks_off(false)
}

/// Converts a finish word. `sequence` is the stop sequence, if the provider reports it. `called` means that the response
/// contains a tool call: some providers then report an end without one.
///
/// # Errors
/// Returns [`BrokenOff`] if the word means that the response broke off.
pub fn decode(
    format: Format,
    word: JsonStr<'_>,
    sequence: Option<JsonStr<'_>>,
    called: bool,
) -> Result<FinishOwned, BrokenOff> {
    let meaning = meaning(format, word.escaped());
    if meaning.breaks_off(called) {
        return Err(BrokenOff { word: word.escaped().to_owned(), meaning, reason: String::new() });
    }
    let sequence = || sequence.filter(|text| !text.is_empty()).map(|text| text.escaped().to_owned());
    Ok(match meaning {
        FinishMeaning::StopSequence => FinishOwned::StopSequence(sequence()),
        FinishMeaning::Length => FinishOwned::Length,
        FinishMeaning::ContextFull => FinishOwned::ContextFull,
        FinishMeaning::ToolUse => FinishOwned::ToolUse,
        FinishMeaning::ContentFilter => FinishOwned::ContentFilter,
        FinishMeaning::Pause => FinishOwned::Pause,
        _ if called => FinishOwned::ToolUse,
        FinishMeaning::Stop => match sequence() {
            None => FinishOwned::Stop,
            met => FinishOwned::StopSequence(met),
        },
        _ => FinishOwned::Other(word.escaped().to_owned()),
    })
}

/// End of a response that the provider broke off. It takes the place of a finish reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenOff {
    /// Word of the provider, as the inside of a JSON string.
    word: String,
    meaning: FinishMeaning,
    /// Explanation of the provider, as the inside of a JSON string; may be empty.
    reason: String,
}

impl BrokenOff {
    /// Adds the provider's explanation.
    #[must_use]
    pub(super) fn because(mut self, reason: JsonStr<'_>) -> Self {
        reason.escaped().clone_into(&mut self.reason);
        self
    }

    /// Creates the end of a response for a word that is a failure wherever it stands.
    pub(super) fn new(word: JsonStr<'_>) -> Self {
        let word = word.escaped().to_owned();
        BrokenOff { word, meaning: FinishMeaning::Failed, reason: String::new() }
    }

    /// Returns whether the response is whole if it contains a tool call.
    pub(super) fn is_whole_with_call(&self) -> bool {
        !self.meaning.breaks_off(true)
    }

    /// Emits the error that ends the response.
    pub(super) fn emit(&self, sink: &mut impl FnMut(Event<'_>)) {
        let mut text = Vec::with_capacity(128 + self.word.len() + self.reason.len());
        self.write(&mut text);
        sink(Event::Error(RawJson::from_text(std::str::from_utf8(&text).unwrap_or("{}"))));
    }

    /// Writes the error as an object.
    fn write(&self, text: &mut Vec<u8>) {
        // The types that `wire::error` reads: a failure of the provider, its overload, a fault of the request.
        let kind = match self.meaning {
            FinishMeaning::Busy => "service_unavailable",
            FinishMeaning::Refused => "invalid_request_error",
            _ => "server_error",
        };
        let mut json = Writer::new(text);
        json.begin_object().key("type").string(kind).key("message").pasted(|out| {
            out.extend_from_slice(b"The provider ended the response before it was complete: ");
            out.extend_from_slice(self.word.as_bytes());
            if !self.reason.is_empty() {
                out.extend_from_slice(b": ");
                out.extend_from_slice(self.reason.as_bytes());
            }
        });
        json.end_object();
    }
}

/// Returns the error body for a response that passes unread and has this finish word.
pub fn error_of(format: Format, word: &str) -> Vec<u8> {
    let word = JsonStr::from_escaped(word);
    let mut text = Vec::with_capacity(128);
    decode(format, word, None, false).err().unwrap_or_else(|| BrokenOff::new(word)).write(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_words_are_normal_ends_in_every_format() {
        for (format, word) in Format::ALL.into_iter().flat_map(|format| USUAL.map(|word| (format, word))) {
            assert!(!meaning(format, word).breaks_off(false), "{format}: {word}");
        }
    }
}
