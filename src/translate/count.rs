//! What is counted where a provider does not say what was used: once, when an answer has ended, by the tokenizer of the
//! model's family. Until then only the beginning of the answer is kept, and a request that is not large.

use bytes::Bytes;
use smallvec::SmallVec;

use super::beginning::Beginning;
use super::codecs::{AnyDecoder, decode_answer, decode_request};
use super::verbatim::Arrival;
use crate::canonical::{Delta, Event as Said};
use crate::framing::frame_buffer::FrameTooLarge;
use crate::framing::json_array::{ArraySplitter, element};
use crate::framing::sse::{Event, SseSplitter};
use crate::framing::{FrameBuffer, Splitter};
use crate::tokens::{self, Family};
use crate::wire::Format;

/// Bytes that are kept of the beginning of a stream. What follows is taken to have as many tokens in a frame.
const BEGINNING: usize = 8 * 1_024;
/// A request up to this size is kept as a whole, and counted exactly.
const WHOLE: usize = 16 * 1_024;
/// Bytes that are kept of the end of a larger one. All of it is taken to have as many tokens in a byte.
const END: usize = 4 * 1_024;
/// Bytes of a request that one token is expected to have.
const EXPECTED: u64 = 4;
/// So many bytes without a space are no text.
const WORDLESS: usize = 1_024;

/// Words of requests for more than they hold: files, addresses, kept prompts and conversations, tools that the provider
/// runs. The last ones may hide any of them.
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

/// What is kept of a request.
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
    /// Keeps what is needed of a body that stands in pieces.
    pub fn of(pieces: SmallVec<[Bytes; 2]>) -> Self {
        let length: usize = pieces.iter().map(Bytes::len).sum();
        if length <= WHOLE {
            return CountedRequest(if length == 0 { KeptText::Nothing } else { KeptText::Whole(pieces) });
        }
        let last = pieces.iter().rev().find(|piece| piece.len() >= END).or(pieces.last());
        let end = last.map(|piece| piece.get(piece.len().saturating_sub(END)..).unwrap_or(piece));
        CountedRequest(KeptText::End(end.unwrap_or_default().into()))
    }

    /// Whether all that was asked is in what is kept: nothing in it says that the provider reads or looks for more.
    #[cold]
    pub fn is_whole(&self) -> bool {
        let KeptText::Whole(pieces) = &self.0 else { return false };
        let text = pieces.concat();
        !ELSEWHERE.iter().any(|word| memchr::memmem::find(&text, word).is_some())
    }

    /// The input tokens. `expected` is what they were taken for, by the bytes of the request.
    #[cold]
    pub fn tokens(&self, family: Family, format: Option<Format>, expected: u64) -> u64 {
        match &self.0 {
            KeptText::Nothing => expected,
            KeptText::Whole(pieces) => {
                let text = pieces.concat();
                let text = std::str::from_utf8(&text).unwrap_or_default();
                let request = format.and_then(|format| decode_request(format, text).ok());
                request.map_or(expected, |request| tokens::count_request(family, &request))
            }
            KeptText::End(end) => {
                let text = String::from_utf8_lossy(end);
                let is_text = text.split(' ').all(|word| word.len() < WORDLESS);
                if !is_text || end.is_empty() {
                    return expected;
                }
                let scaled = expected.saturating_mul(tokens::count_text(family, &text) * EXPECTED);
                scaled.div_ceil(end.len() as u64)
            }
        }
    }
}

/// What is needed to count.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    format: Option<Format>,
    arrival: Arrival,
    pub(super) family: Family,
    /// Input tokens that are expected.
    pub(super) input: u64,
    pub(super) asked: CountedRequest,
    heard: CountedAnswer,
}

#[derive(Clone, Debug, Default)]
enum CountedAnswer {
    #[default]
    Nothing,
    /// The beginning of a stream.
    Beginning(Box<Beginning>),
    /// A document.
    Whole(Bytes),
}

impl Counter {
    pub(super) fn new(format: Option<Format>, arrival: Arrival) -> Self {
        let (asked, heard) = (CountedRequest::default(), CountedAnswer::default());
        Counter { format, arrival, family: Family::Other, input: 0, asked, heard }
    }

    /// Keeps a piece of a stream, if it belongs to its beginning.
    #[inline]
    pub(super) fn hear(&mut self, piece: &[u8]) {
        match &mut self.heard {
            CountedAnswer::Beginning(beginning) if !beginning.is_full() => beginning.hear(piece, BEGINNING),
            CountedAnswer::Nothing if self.format.is_some() && self.arrival != Arrival::Whole => {
                self.heard = CountedAnswer::Beginning(Box::default());
                self.hear(piece);
            }
            CountedAnswer::Beginning(_) | CountedAnswer::Whole(_) => {}
            CountedAnswer::Nothing => {}
        }
    }

    /// Keeps a document.
    pub(super) fn hear_whole(&mut self, body: &Bytes) {
        if self.format.is_some() {
            self.heard = CountedAnswer::Whole(body.clone());
        }
    }

    /// Bytes of the document that was heard.
    pub(super) fn heard_bytes(&self) -> u64 {
        match &self.heard {
            CountedAnswer::Whole(body) => body.len() as u64,
            CountedAnswer::Nothing | CountedAnswer::Beginning(_) => 0,
        }
    }

    /// The input tokens.
    pub(super) fn input(&self) -> u64 {
        self.asked.tokens(self.family, self.format, self.input)
    }

    /// The output tokens of what was heard, in so many frames with content, each of which has at least one.
    #[cold]
    pub(super) fn output(&self, frames: u64) -> u64 {
        let Some(format) = self.format else { return frames };
        let (mut text, mut deltas, mut anything) = (String::new(), 0u64, false);
        let mut hear = |event: Said<'_>| {
            anything |= matches!(event, Said::BlockStart { .. } | Said::Delta { .. });
            if let Said::Delta { delta, .. } = event {
                deltas +=
                    u64::from(!matches!(delta, Delta::Seal(_) | Delta::Citation(_) | Delta::Logprobs(_)));
                match delta {
                    Delta::Text(part) | Delta::Arguments(part) => text.push_str(&part.decode()),
                    Delta::Object(object) => text.push_str(object.text()),
                    _ => {}
                }
            }
        };
        // What cannot be read has nothing in it that could be counted.
        match &self.heard {
            CountedAnswer::Nothing => {}
            CountedAnswer::Whole(body) => {
                let body = std::str::from_utf8(body).unwrap_or_default();
                let _ = decode_answer(format, body, "", false, &mut hear);
            }
            CountedAnswer::Beginning(beginning) => read(format, self.arrival, &beginning.text(), &mut hear),
        }
        let tokens = if text.is_empty() { 0 } else { tokens::count_text(self.family, &text) };
        let all = match &self.heard {
            CountedAnswer::Beginning(beginning) if beginning.is_full() && deltas > 0 => {
                tokens.saturating_mul(frames).div_ceil(deltas)
            }
            // All of it is known, and nothing is in it: a provider that refuses ends its answer without any content.
            CountedAnswer::Beginning(beginning) if !beginning.is_full() && !anything => return 0,
            CountedAnswer::Whole(_) if !anything => return 0,
            _ => tokens,
        };
        all.max(frames)
    }
}

/// Reads the frames of the beginning of a stream.
fn read(format: Format, arrival: Arrival, bytes: &[u8], hear: &mut impl FnMut(Said<'_>)) {
    let splitter = match arrival {
        Arrival::Array => Splitter::JsonArray(ArraySplitter::default()),
        Arrival::Events | Arrival::Whole => Splitter::Sse(SseSplitter::default()),
    };
    let mut hold = FrameBuffer::new(splitter, bytes.len());
    let mut decoder = AnyDecoder::new(format, "", false);
    let mut scratch = Vec::new();
    let piece = Bytes::copy_from_slice(bytes);
    let _ = hold.feed(&piece, |source, range| {
        let frame = source.get(range).unwrap_or_default();
        let data = match arrival {
            Arrival::Array => element(frame),
            Arrival::Events | Arrival::Whole => Event::parse(frame, &mut scratch).data,
        };
        if let Some(data) = data.and_then(|data| std::str::from_utf8(data).ok())
            && !decoder.is_over()
        {
            let _ = decoder.frame(data, hear);
        }
        Ok::<(), FrameTooLarge>(())
    });
}
