//! Token counting for providers that report no usage: once, at the end of a response, with the tokenizer of the model's
//! family. Until then only the start of the response is stored, and a small request.

use std::collections::HashSet;

use bytes::Bytes;
use smallvec::SmallVec;

use super::beginning::StreamPrefix;
use super::codecs::{AnyDecoder, decode_answer, decode_request};
use super::event_stream;
use super::verbatim::{Arrival, StreamError};
use crate::canonical::{Delta, Event as Said};
use crate::tokens::{self, TokenizerFamily};
use crate::wire::Format;
use framing::FrameBuffer;
use framing::json_array::element;
use framing::sse::SseEvent;
use json::{JsonText, Utf8Error};

/// Number of bytes stored of the start of a stream. Later frames are assumed to have the same number of tokens per
/// frame.
const BEGINNING: usize = 8 * 1_024;
/// Maximum size in bytes of a request that is stored as a whole and counted exactly.
const WHOLE: usize = 16 * 1_024;
/// Number of bytes stored of the end of a larger request. The whole request is assumed to have the same number of
/// tokens per byte.
const END: usize = 4 * 1_024;
/// Expected number of request bytes per token.
const EXPECTED: u64 = 4;
/// Number of bytes without a space from which on the content is not text (base64, for example).
const WORDLESS: usize = 1_024;

/// Maximum number of choices of one response whose output is counted: the largest `n` of an API (OpenAI: 128).
const MAX_CHOICES: u64 = 128;

/// Substrings of requests that refer to content outside the request: files, URLs, stored prompts and conversations,
/// tools that the provider runs. The last one, an escape, may hide any of the others.
const ELSEWHERE: [&[u8]; 14] = [
    b"http",
    b"file",
    b"File",
    b"_id\"",
    b"tool",
    b"earch",
    b"cached",
    b"plugin",
    b"prompt",
    b"conversation",
    b"container",
    b"mcp",
    b"gs:",
    b"\\u00",
];

/// Stored part of a request, for token counting.
#[derive(Clone, Debug, Default)]
pub struct CountedRequest(KeptText);

#[derive(Clone, Debug, Default)]
enum KeptText {
    #[default]
    Nothing,
    Whole(SmallVec<[Bytes; 2]>),
    End(Box<[u8]>),
}

impl CountedRequest {
    /// Stores the needed part of a body that is held in pieces.
    pub fn of(pieces: SmallVec<[Bytes; 2]>) -> Self {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        if length <= WHOLE {
            return CountedRequest(if length == 0 { KeptText::Nothing } else { KeptText::Whole(pieces) });
        }
        // Sample the last piece that is long enough: the very last one may have only a few bytes.
        let last = pieces.iter().rev().find(|piece| piece.len() >= END).or(pieces.last());
        let end = last.map(|piece| piece.get(piece.len().saturating_sub(END)..).unwrap_or(piece));
        CountedRequest(KeptText::End(end.unwrap_or_default().into()))
    }

    /// Returns true if the request is stored as a whole and refers to no content elsewhere, so that its size bounds the
    /// input.
    #[cold]
    pub fn is_whole(&self) -> bool {
        let KeptText::Whole(pieces) = &self.0 else { return false };
        let text = pieces.concat();
        !ELSEWHERE.iter().any(|word| memchr::memmem::find(&text, word).is_some())
    }

    /// Returns the number of input tokens. `expected` is the estimate from the number of request bytes.
    #[cold]
    pub fn tokens(&self, family: TokenizerFamily, format: Option<Format>, expected: u64) -> u64 {
        match &self.0 {
            KeptText::Nothing => expected,
            KeptText::Whole(pieces) => {
                let text = pieces.concat();
                let text = json::from_utf8(&text).unwrap_or_default();
                let request = format.and_then(|format| decode_request(format, text).ok());
                request.map_or(expected, |request| tokens::count_request(family, &request))
            }
            KeptText::End(end) => {
                let text = String::from_utf8_lossy(end);
                // Base64 has no spaces. Its bytes say nothing about the tokens of the text.
                let is_text = text.split(' ').all(|word| word.len() < WORDLESS);
                if !is_text || end.is_empty() {
                    return expected;
                }
                // Scale the estimate by the token density of the sample, relative to the 4 bytes per token that it
                // assumes.
                let scaled = expected.saturating_mul(tokens::count_text(family, &text) * EXPECTED);
                scaled.div_ceil(end.len() as u64)
            }
        }
    }
}

/// State for counting the tokens of one exchange.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    pub(super) format: Option<Format>,
    arrival: Arrival,
    pub(super) family: TokenizerFamily,
    /// Expected number of input tokens.
    pub(super) input: u64,
    pub(super) request: CountedRequest,
    /// Number of choices that the client has requested. Output of others is not counted.
    pub(super) choices: u64,
    response: CountedAnswer,
}

#[derive(Clone, Debug, Default)]
enum CountedAnswer {
    #[default]
    Nothing,
    /// Start of a stream.
    Beginning(Box<StreamPrefix>),
    /// Whole document.
    Whole(JsonText),
    /// Size in bytes of a whole response that is not UTF-8.
    Unreadable(usize),
}

impl Counter {
    pub(super) fn new(format: Option<Format>, arrival: Arrival) -> Self {
        let (asked, heard) = (CountedRequest::default(), CountedAnswer::default());
        Counter {
            format,
            arrival,
            family: TokenizerFamily::Other,
            input: 0,
            request: asked,
            choices: u64::MAX,
            response: heard,
        }
    }

    /// Stores a piece of a stream if it belongs to the start.
    #[inline]
    pub(super) fn record_piece(&mut self, piece: &[u8]) {
        match &mut self.response {
            CountedAnswer::Beginning(beginning) if !beginning.is_full() => beginning.push(piece, BEGINNING),
            CountedAnswer::Nothing if self.format.is_some() && self.arrival != Arrival::Whole => {
                self.response = CountedAnswer::Beginning(Box::default());
                self.record_piece(piece);
            }
            CountedAnswer::Beginning(_) | CountedAnswer::Whole(_) | CountedAnswer::Unreadable(_) => {}
            CountedAnswer::Nothing => {}
        }
    }

    /// Checks and stores a whole response.
    pub(super) fn record_whole(&mut self, body: Bytes) -> Result<JsonText, Utf8Error> {
        let length = body.len();
        let text = JsonText::new(body);
        if self.format.is_some() {
            self.response = match &text {
                Ok(text) => CountedAnswer::Whole(text.clone()),
                Err(_) => CountedAnswer::Unreadable(length),
            };
        }
        text
    }

    /// Returns the size of the stored whole response in bytes; 0 for a stream.
    pub(super) fn whole_response_bytes(&self) -> u64 {
        match &self.response {
            CountedAnswer::Whole(body) => body.len() as u64,
            CountedAnswer::Unreadable(bytes) => *bytes as u64,
            CountedAnswer::Nothing | CountedAnswer::Beginning(_) => 0,
        }
    }

    /// Returns the number of input tokens.
    pub(super) fn input(&self) -> u64 {
        self.request.tokens(self.family, self.format, self.input)
    }

    /// Returns the number of output tokens. `frames` is the number of frames with content; each has at least one token.
    #[cold]
    pub(super) fn output(&self, frames: u64) -> u64 {
        let Some(format) = self.format else { return frames };
        let (mut text, mut deltas, mut anything) = (String::new(), 0u64, false);
        // The first choices, as many as were requested, whatever their numbers; blocks of others, and their deltas.
        let mut asked = SmallVec::<[u32; 4]>::new();
        let (mut unasked, mut unasked_deltas) = (HashSet::new(), 0u64);
        let mut hear = |event: Said<'_>| {
            anything |= matches!(event, Said::BlockStart { .. } | Said::Delta { .. });
            if let Said::BlockStart { index, choice, .. } = event
                && !asked.contains(&choice)
            {
                if (asked.len() as u64) < self.choices.min(MAX_CHOICES) {
                    asked.push(choice);
                } else {
                    unasked.insert(index);
                }
            }
            if let Said::Delta { delta, index } = event {
                let content = !matches!(delta, Delta::Signature(_) | Delta::Citation(_) | Delta::Logprobs(_));
                deltas += u64::from(content);
                if !unasked.is_empty() && unasked.contains(&index) {
                    unasked_deltas += u64::from(content);
                    return;
                }
                match delta {
                    Delta::Text(part) | Delta::Arguments(part) => text.push_str(&part.decode()),
                    Delta::Object(object) => text.push_str(object.text()),
                    _ => {}
                }
            }
        };
        // Errors are ignored: content that cannot be decoded adds no tokens.
        match &self.response {
            CountedAnswer::Nothing => {}
            CountedAnswer::Unreadable(_) => return 0,
            CountedAnswer::Whole(body) => {
                let _ = decode_answer(format, body, "", false, &mut hear);
            }
            CountedAnswer::Beginning(beginning) => read(format, self.arrival, &beginning.text(), &mut hear),
        }
        let tokens = if text.is_empty() { 0 } else { tokens::count_text(self.family, &text) };
        let all = match &self.response {
            // Only the start was stored: extrapolate by the number of frames of the whole stream.
            CountedAnswer::Beginning(beginning) if beginning.is_full() && deltas > 0 => {
                tokens.saturating_mul(frames).div_ceil(deltas)
            }
            // The whole response is known and has no content: a provider that refuses ends its response so.
            CountedAnswer::Beginning(beginning) if !beginning.is_full() && !anything => return 0,
            CountedAnswer::Whole(_) if !anything => return 0,
            _ => tokens,
        };
        // Each frame with content has at least one token. Frames are assumed to be of all choices alike.
        let frames_of_asked = match unasked_deltas {
            0 => frames,
            unasked => frames.saturating_mul(deltas.saturating_sub(unasked)).div_ceil(deltas.max(1)),
        };
        all.max(frames_of_asked)
    }
}

/// Decodes the frames at the start of a stream.
fn read(format: Format, arrival: Arrival, bytes: &[u8], hear: &mut impl FnMut(Said<'_>)) {
    let mut hold = FrameBuffer::new(arrival.splitter(), bytes.len());
    let mut decoder = AnyDecoder::new(format, "", false);
    let mut scratch = Vec::new();
    let piece = Bytes::copy_from_slice(bytes);
    let _ = hold.feed(&piece, |source, range| {
        let frame = source.get(range).unwrap_or_default();
        let data = match arrival {
            Arrival::Array => element(frame),
            Arrival::EventStream => event_stream::data(frame, &mut scratch)?,
            Arrival::Events | Arrival::Whole => SseEvent::parse(frame, &mut scratch).data,
        };
        if let Some(data) = data.and_then(|data| std::str::from_utf8(data).ok())
            && !decoder.is_over()
        {
            let _ = decoder.frame(data, hear);
        }
        Ok::<(), StreamError>(())
    });
}
