//! Stream continuation: another provider continues a response that broke off.
//!
//! For routes with continuation, a tap records the forwarded content while it passes (`Transcript`). When the
//! response breaks off, its text becomes the prefill of the next provider ([`Prefill`]), and a `Splice` fits the
//! events of that provider's response to the content that the client has, so that the client receives one response.
//!
//! [`Unfit`] is the reason why a response cannot be continued faithfully.

mod splice;
mod transcript;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

pub use transcript::{Prefill, Unfit};

use super::codecs::{AnyDecoder, AnyEncoder, decode_request};
use super::translated::{Route, TranslationParts};
use super::verbatim::Arrival;
use super::{Exchange, Restore, StreamError, TranslateRequest, Translated};
use crate::canonical::{Block, Event, Finish, OutputFormat, Request, Role, Start, Thinking, Turn, Usage};
use crate::wire::Format;
use crate::wire::codec::ReplyOptions;
use crate::wire::finish_words::error_of;
use crate::wire::watch::{self, FrameClass};
use json::{EscapedString, JsonStr};
use splice::Splice;
use transcript::Transcript;

/// Transcript tap of a translated stream.
#[derive(Debug, Default)]
pub(super) struct TranslatedTap {
    transcript: Transcript,
    splice: Option<Box<Splice>>,
}

impl TranslatedTap {
    /// Passes an event to the client's encoder, unless the splice drops it, and records it.
    #[inline]
    pub(super) fn event(&mut self, event: &Event<'_>, sink: &mut impl FnMut(&Event<'_>)) {
        let TranslatedTap { transcript, splice: seam } = self;
        let mut pass = |event: &Event<'_>| {
            transcript.record(event);
            sink(event);
        };
        match seam {
            None => pass(event),
            Some(seam) => seam.event(event, &mut pass),
        }
    }

    /// Returns the usage of all providers of this response, and whether some of it was counted by the gateway.
    pub(super) fn total(&self, usage: &Usage, counted: bool) -> (Usage, bool) {
        match &self.splice {
            None => (*usage, counted),
            Some(seam) => (seam.total(usage), counted || seam.counted),
        }
    }

    /// Returns true if another provider wrote the start of the response.
    pub(super) fn is_continuation(&self) -> bool {
        self.splice.is_some()
    }

    fn transcript(&self) -> &Transcript {
        &self.transcript
    }
}

/// Transcript tap of a stream that passes unchanged.
#[derive(Debug)]
pub(super) struct VerbatimTap {
    format: Format,
    decoder: AnyDecoder,
    transcript: Transcript,
    /// Whether the last forwarded byte is the `\r` of a possible `\r\n`.
    half_line: bool,
}

impl VerbatimTap {
    pub(super) fn new(format: Format) -> Self {
        VerbatimTap {
            format,
            decoder: AnyDecoder::new(format, "", false),
            transcript: Transcript::default(),
            half_line: false,
        }
    }

    /// Decodes a frame before it passes. Returns `Err` for a frame that clients cannot read and for an error of the
    /// provider; such frames must not be forwarded.
    pub(super) fn frame(&mut self, data: &[u8], first: bool) -> Result<(), StreamError> {
        // A response that cannot be continued needs no transcript: skip the decoding cost for the rest of the stream.
        if self.transcript.unfit().is_some() || self.decoder.is_over() {
            return Ok(());
        }
        let data = json::from_utf8(data).map_err(|error| StreamError::Invalid(error.to_string()))?;
        if data.trim().is_empty() {
            return Ok(());
        }
        // Before it is decoded: a frame that says that the response broke off would end the response for the client.
        let facts = match watch::classify(self.format, data.as_bytes()) {
            FrameClass::Read => watch::frame(self.format, data).ok(),
            FrameClass::Content | FrameClass::ContentAndUsage => None,
        };
        if let Some(word) = facts.and_then(|facts| facts.failure(self.format)) {
            let error = Bytes::from(error_of(self.format, word.escaped()));
            return Err(if first { StreamError::FirstFrame(error) } else { StreamError::Failed(error) });
        }
        let VerbatimTap { decoder, transcript, .. } = self;
        let mut failed = None;
        let read = decoder.frame(data, &mut |event| match event {
            Event::Error(error) => failed = Some(Bytes::copy_from_slice(error.text().as_bytes())),
            event => transcript.record(&event),
        });
        match (failed, read) {
            (Some(error), _) if first => Err(StreamError::FirstFrame(error)),
            (Some(error), _) => Err(StreamError::Failed(error)),
            (None, read) => read.map_err(|error| StreamError::Invalid(error.to_string())),
        }
    }

    /// Records the end of the forwarded bytes.
    pub(super) fn record_forwarded(&mut self, out: &[u8]) {
        if let Some(last) = out.last() {
            self.half_line = *last == b'\r';
        }
    }

    fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// Creates an encoder in the state that the client is in, by replaying the transcript into it.
    fn writer(
        &self,
        client: Format,
        renamed: Option<&EscapedString>,
        reply: &mut ReplyOptions,
    ) -> AnyEncoder {
        let Some(start) = self.transcript.start() else {
            return AnyEncoder::new(client, Arc::new(reply.clone()));
        };
        match renamed {
            Some(name) => reply.model = name.clone(),
            None if start.model.is_empty() => {}
            None => reply.model = EscapedString::from(&*start.model.decode()),
        }
        // Reasoning was forwarded, whether or not the client requested it.
        reply.show_thinking |= self.transcript.has_thoughts();
        let mut encoder = AnyEncoder::new(client, Arc::new(reply.clone()));
        let mut unwanted = BytesMut::new();
        self.transcript.replay(client, &mut |event| encoder.event(event, &mut unwanted));
        encoder.continue_as(&start);
        encoder
    }
}

/// Properties of a request that a continuation needs.
#[derive(Debug)]
pub struct TranscriptLimits {
    /// Maximum number of output tokens; `None` if the client set none.
    pub max_output: Option<u64>,
    /// Reply options for the encoder.
    pub reply: ReplyOptions,
}

/// Reads the request whose response broke off.
///
/// # Errors
/// Returns [`Unfit`] if the request asks for something that a second provider cannot continue.
pub fn transcript_limits(body: &str, ask: &TranslateRequest<'_>) -> Result<TranscriptLimits, Unfit> {
    let request = decode_request(ask.client, body).map_err(|_| Unfit::Request)?;
    let modalities = request.modalities.iter().all(|kind| kind.escaped().eq_ignore_ascii_case("text"));
    // A prefill is plain text: structured output, log probabilities and several choices cannot be spliced.
    let plain = request.choices.is_none_or(|choices| choices <= 1)
        && request.logprobs.is_none()
        && request.output == OutputFormat::Text
        && modalities;
    if !plain {
        return Err(Unfit::Request);
    }
    let max_output = request.max_output;
    Ok(TranscriptLimits { max_output, reply: super::outgoing::reply(&request, body, ask) })
}

/// Prefill state: the beginning of a response that another target is to continue.
#[derive(Clone, Copy, Debug)]
pub struct PrefillState<'a> {
    /// Text of the response so far; may be empty.
    pub prefill: &'a Prefill,
    /// Output tokens left of the client's limit; `None` if the client set none.
    pub remaining_tokens: Option<u64>,
}

impl PrefillState<'_> {
    /// Inserts the prefill into a request: as a last turn of the assistant, or appended to the client's own prefill.
    pub(super) fn put_into<'a>(&self, request: &mut Request<'a>, bump: &'a bumpalo::Bump) {
        // The client's limit covers both parts of the response.
        if self.remaining_tokens.is_some() {
            request.max_output = self.remaining_tokens;
        }
        if self.prefill.is_empty() {
            return;
        }
        // The response has started already; a reasoning model would start it again with reasoning.
        request.thinking = Thinking::Off;
        let text = self.prefill.text();
        let last = request.turns.last_mut().filter(|turn| turn.role == Role::Assistant);
        // Text is not appended to a turn that ends with tool calls: it becomes a turn of its own.
        let last = last.filter(|turn| !matches!(turn.blocks.last(), Some(Block::ToolUse { .. })));
        let Some(turn) = last else {
            let text = JsonStr::from_escaped(bump.alloc_str(text.escaped()));
            let turn = Turn::new(Role::Assistant, vec![Block::text(text)]);
            request.turns.push(Turn { prefix: true, ..turn });
            return;
        };
        turn.prefix = true;
        match turn.blocks.last_mut() {
            Some(Block::Text { text: before, .. }) => {
                let joined = [before.escaped(), text.escaped()].concat();
                *before = JsonStr::from_escaped(bump.alloc_str(&joined));
            }
            _ => turn.blocks.push(Block::text(JsonStr::from_escaped(bump.alloc_str(text.escaped())))),
        }
    }
}

/// Continuation of a broken stream: how another target resumes it.
#[derive(Debug)]
pub struct Continuation<'a> {
    /// Formats of the client and of the next provider.
    pub route: Route,
    /// Form in which the next provider's response arrives.
    pub arrival: Arrival,
    /// Reply options for the encoder.
    pub reply: &'a ReplyOptions,
    /// Adaptations to reverse in the next provider's response.
    pub restore: Restore,
    /// Maximum size of a frame, in bytes: see [`Translated::new`].
    pub limit: usize,
    /// Prefill that was sent to the next provider.
    pub prefill: &'a Prefill,
    /// Whether the provider repeats the prefill at the start of its response.
    pub repeats: bool,
}

impl Exchange {
    /// Starts to record the forwarded content, if a response of this kind can be continued.
    pub fn record_transcript(&mut self) {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.record_transcript(),
            Exchange::Translated(translated) => translated.record_transcript(),
        }
    }

    /// Returns the reason why another provider cannot continue this response; `None` if it can, as far as is known so
    /// far.
    pub fn unfit(&self) -> Option<Unfit> {
        match self {
            Exchange::Verbatim(verbatim) => match verbatim.tap() {
                Some(beside) => beside.transcript().unfit(),
                None => Some(Unfit::Content),
            },
            Exchange::Translated(translated) => match translated.tap() {
                Some(along) => along.transcript().unfit(),
                None => Some(Unfit::Content),
            },
        }
    }

    /// Returns the prefill with which another provider can continue this response, which has broken off.
    ///
    /// # Errors
    /// Returns [`Unfit`] if no provider can continue it.
    pub fn prefill(&self) -> Result<Prefill, Unfit> {
        let (transcript, ended) = match self {
            Exchange::Verbatim(verbatim) => (verbatim.tap().map(VerbatimTap::transcript), false),
            Exchange::Translated(translated) => {
                (translated.tap().map(TranslatedTap::transcript), translated.has_reason())
            }
        };
        let meter = self.meter();
        // With a finish reason the response is complete for the client; a continuation would add text to a finished
        // answer.
        if ended || meter.any_finished() || !meter.finish().is_empty() {
            return Err(Unfit::Ended);
        }
        transcript.ok_or(Unfit::Content)?.prefill()
    }

    /// Continues this response, which has broken off: further input comes from another provider.
    #[must_use]
    pub fn resume(mut self, onward: Continuation<'_>) -> Exchange {
        // Settle the usage of the broken part first: the splice adds it to the usage of the next provider.
        self.cut();
        let (before, counted) = (self.usage(), self.is_counted());
        let Continuation { route, arrival, reply, restore, limit, prefill, repeats } = onward;
        let mut reply = reply.clone();
        let mut before_all = &b""[..];
        let (mut to, transcript) = match self {
            Exchange::Verbatim(verbatim) => {
                // The client knows this response by the provider's id: do not store it under another one.
                reply.store_as = Box::default();
                let (beside, renamed) = verbatim.into_tap();
                match beside {
                    Some(beside) => {
                        // The last forwarded byte is a `\r`. Without its `\n` the next event would start in mid-line
                        // for some clients.
                        if beside.half_line {
                            before_all = b"\n";
                        }
                        let to = beside.writer(route.client, renamed.as_ref(), &mut reply);
                        (to, beside.transcript)
                    }
                    None => (AnyEncoder::new(route.client, Arc::new(reply.clone())), Transcript::default()),
                }
            }
            Exchange::Translated(translated) => {
                let TranslationParts { to, tap: along, reply: former } = translated.into_parts();
                reply.store_as = former.store_as.clone();
                reply.model = former.model.clone();
                let to = to.unwrap_or_else(|| AnyEncoder::new(route.client, former));
                (to, along.map(|along| along.transcript).unwrap_or_default())
            }
        };
        let reply = Arc::new(reply);
        to.set_reply_options(reply.clone());
        let echo = if repeats { Some(prefill) } else { None };
        let seam = Splice::new(&transcript, prefill, echo, before, counted);
        let along = Box::new(TranslatedTap { transcript, splice: Some(Box::new(seam)) });
        let mut translated = Translated::resumed(&route, arrival, reply, restore, limit, to, along);
        translated.insert_bytes(before_all);
        Exchange::Translated(Box::new(translated))
    }

    /// Ends this response, which has broken off, with the finish reason "length", because the client's output limit is
    /// used up. Returns the exchange and the bytes to forward.
    #[must_use]
    pub fn end_at_limit(self, reply: &ReplyOptions, prefill: &Prefill) -> (Exchange, Bytes) {
        let client = match &self {
            Exchange::Verbatim(verbatim) => verbatim.format().unwrap_or(Format::Chat),
            Exchange::Translated(translated) => translated.client(),
        };
        let route = Route { client, provider: client, stream: true };
        let restore = Restore::default();
        let arrival = Arrival::Events;
        let onward = Continuation { route, arrival, reply, restore, limit: 0, prefill, repeats: false };
        let mut exchange = self.resume(onward);
        let mut out = Bytes::new();
        if let Exchange::Translated(translated) = &mut exchange {
            // The splice drops this start event if the client has one already.
            translated.event(&Event::Start(Start::default()));
            translated.event(&Event::Finish { choice: 0, finish: Finish::Length });
            let nothing = Usage { input: Some(0), output: Some(0), ..Usage::default() };
            translated.event(&Event::Usage(nothing));
            translated.event(&Event::End);
            out = translated.take_ready();
        }
        (exchange, out)
    }

    /// Returns the usage of all providers that wrote this response.
    pub fn usage(&self) -> Usage {
        self.total().0
    }

    /// Returns true if the usage contains figures that no provider reported.
    pub fn is_counted(&self) -> bool {
        self.total().1
    }

    fn total(&self) -> (Usage, bool) {
        let meter = self.meter();
        match self {
            Exchange::Translated(translated) => match translated.tap() {
                Some(along) => along.total(meter.usage(), meter.is_counted()),
                None => (*meter.usage(), meter.is_counted()),
            },
            Exchange::Verbatim(_) => (*meter.usage(), meter.is_counted()),
        }
    }

    /// Returns true if content has been forwarded to the client.
    pub fn has_delivered(&self) -> bool {
        let before = match self {
            Exchange::Translated(translated) => translated.tap().is_some_and(TranslatedTap::is_continuation),
            Exchange::Verbatim(_) => false,
        };
        before || self.meter().content_frames() > 0
    }
}
