//! An answer that broke off, and that another provider goes on with.
//!
//! What the client is given is noted while it passes ([`Transcript`]), for routes that want it. When the answer breaks
//! off, its text becomes the beginning that the next provider is given ([`Prefill`]), and the events of that provider's
//! answer are fitted to what the client has ([`Splice`](seam)), so that it sees one answer.
//!
//! Whatever cannot be gone on with faithfully is [`Unfit`].

mod splice;
mod transcript;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

pub use transcript::{Prefill, Unfit};

use super::codecs::{AnyDecoder, AnyEncoder, decode_request};
use super::translated::{Parts, Route};
use super::verbatim::Arrival;
use super::{Exchange, Restore, StreamError, TranslateRequest, Translated};
use crate::canonical::{Block, Event, Finish, OutputFormat, Request, Role, Start, Thinking, Turn, Usage};
use crate::json::{EscapedString, JsonStr};
use crate::wire::Format;
use crate::wire::codec::ReplyOptions;
use splice::Splice;
use transcript::Transcript;

/// Transcript tap of a translated stream.
#[derive(Debug, Default)]
pub(super) struct TranslatedTap {
    transcript: Transcript,
    seam: Option<Box<Splice>>,
}

impl TranslatedTap {
    /// Passes an event on to who writes it, if it has a place.
    #[inline]
    pub(super) fn event(&mut self, event: &Event<'_>, sink: &mut impl FnMut(&Event<'_>)) {
        let TranslatedTap { transcript, seam } = self;
        let mut pass = |event: &Event<'_>| {
            transcript.note(event);
            sink(event);
        };
        match seam {
            None => pass(event),
            Some(seam) => seam.event(event, &mut pass),
        }
    }

    /// What was used in all, and whether some of it was counted.
    pub(super) fn total(&self, usage: &Usage, counted: bool) -> (Usage, bool) {
        match &self.seam {
            None => (*usage, counted),
            Some(seam) => (seam.total(usage), counted || seam.counted),
        }
    }

    /// Whether another provider has written before.
    pub(super) fn goes_on(&self) -> bool {
        self.seam.is_some()
    }

    fn transcript(&self) -> &Transcript {
        &self.transcript
    }
}

/// Transcript tap of a stream that passes unchanged.
#[derive(Debug)]
pub(super) struct VerbatimTap {
    decoder: AnyDecoder,
    transcript: Transcript,
    /// What had passed of a piece when a frame of it did not.
    pub(super) ready: Bytes,
    /// The last byte that passed is the first half of a line end.
    half_line: bool,
}

impl VerbatimTap {
    pub(super) fn new(format: Format) -> Self {
        VerbatimTap {
            decoder: AnyDecoder::new(format, "", false),
            transcript: Transcript::default(),
            ready: Bytes::new(),
            half_line: false,
        }
    }

    /// Reads a frame before it passes. What no client could read, or what is the provider's error, does not.
    pub(super) fn frame(&mut self, data: &[u8], first: bool) -> Result<(), StreamError> {
        if self.transcript.unfit().is_some() || self.decoder.is_over() {
            return Ok(());
        }
        let data = std::str::from_utf8(data).map_err(|error| StreamError::Invalid(error.to_string()))?;
        if data.trim().is_empty() {
            return Ok(());
        }
        let VerbatimTap { decoder, transcript, .. } = self;
        let mut failed = None;
        let read = decoder.frame(data, &mut |event| match event {
            Event::Error(error) => failed = Some(Bytes::copy_from_slice(error.text().as_bytes())),
            event => transcript.note(&event),
        });
        match (failed, read) {
            (Some(error), _) if first => Err(StreamError::FirstFrame(error)),
            (Some(error), _) => Err(StreamError::Failed(error)),
            (None, read) => read.map_err(|error| StreamError::Invalid(error.to_string())),
        }
    }

    /// Takes note of what leaves.
    pub(super) fn passed(&mut self, out: &[u8]) {
        if let Some(last) = out.last() {
            self.half_line = *last == b'\r';
        }
    }

    fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// A writer that is where the client is: it has written what the client has.
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
        // Whatever was asked for, it was shown.
        reply.show_thinking |= self.transcript.has_thoughts();
        let mut encoder = AnyEncoder::new(client, Arc::new(reply.clone()));
        let mut unwanted = BytesMut::new();
        self.transcript.replay(client, &mut |event| encoder.event(event, &mut unwanted));
        encoder.known_as(&start);
        encoder
    }
}

/// What a request has to say about going on with its answer.
#[derive(Debug)]
pub struct TranscriptLimits {
    /// Output tokens at most, if the client said so.
    pub max_output: Option<u64>,
    /// What the answer's encoder is told.
    pub reply: ReplyOptions,
}

/// Reads a request whose answer broke off.
///
/// # Errors
/// It asks for something that a second provider cannot go on with.
pub fn terms(body: &str, ask: &TranslateRequest<'_>) -> Result<TranscriptLimits, Unfit> {
    let request = decode_request(ask.client, body).map_err(|_| Unfit::Request)?;
    let modalities = request.modalities.iter().all(|kind| kind.escaped().eq_ignore_ascii_case("text"));
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
    /// The text; may be empty.
    pub prefill: &'a Prefill,
    /// Output tokens that are left of what the client allows, if it said so.
    pub left: Option<u64>,
}

impl PrefillState<'_> {
    /// Puts it into a request: a last turn of the assistant, or the rest of the one with which the client has begun.
    pub(super) fn put_into<'a>(&self, request: &mut Request<'a>, bump: &'a bumpalo::Bump) {
        if self.left.is_some() {
            request.max_output = self.left;
        }
        if self.prefill.is_empty() {
            return;
        }
        // A model that reasons begins its answers itself; and this one has been begun.
        request.thinking = Thinking::Off;
        let text = self.prefill.text();
        let last = request.turns.last_mut().filter(|turn| turn.role == Role::Assistant);
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
    /// The formats of the client and of the next provider.
    pub route: Route,
    /// How the next provider's answer arrives.
    pub arrival: Arrival,
    /// What the answer's encoder is told.
    pub reply: &'a ReplyOptions,
    /// What must be undone in the next provider's answer.
    pub restore: Restore,
    /// See [`Translated::new`].
    pub limit: usize,
    /// What the next provider was given.
    pub prefill: &'a Prefill,
    /// It repeats that before it goes on.
    pub repeats: bool,
}

impl Exchange {
    /// From now on what the client is given is noted, if that could be gone on with.
    pub fn follow(&mut self) {
        match self {
            Exchange::Verbatim(verbatim) => verbatim.follow(),
            Exchange::Translated(translated) => translated.follow(),
        }
    }

    /// Why another provider cannot go on with this answer; nothing if one can, as far as can be told while it passes.
    pub fn unfit(&self) -> Option<Unfit> {
        match self {
            Exchange::Verbatim(verbatim) => match verbatim.beside() {
                Some(beside) => beside.transcript().unfit(),
                None => Some(Unfit::Content),
            },
            Exchange::Translated(translated) => match translated.along() {
                Some(along) => along.transcript().unfit(),
                None => Some(Unfit::Content),
            },
        }
    }

    /// What another provider is given to go on with this answer, which has broken off.
    ///
    /// # Errors
    /// None can.
    pub fn prefill(&self) -> Result<Prefill, Unfit> {
        let (transcript, ended) = match self {
            Exchange::Verbatim(verbatim) => (verbatim.beside().map(VerbatimTap::transcript), false),
            Exchange::Translated(translated) => {
                (translated.along().map(TranslatedTap::transcript), translated.has_reason())
            }
        };
        let meter = self.meter();
        if ended || meter.any_finished() || !meter.finish().is_empty() {
            return Err(Unfit::Ended);
        }
        transcript.ok_or(Unfit::Content)?.prefill()
    }

    /// Goes on with this answer, which has broken off: what follows comes from another provider.
    #[must_use]
    pub fn go_on(mut self, onward: Continuation<'_>) -> Exchange {
        self.cut();
        let (before, counted) = (self.usage(), self.is_counted());
        let Continuation { route, arrival, reply, restore, limit, prefill, repeats } = onward;
        let mut reply = reply.clone();
        let mut before_all = &b""[..];
        let (mut to, transcript) = match self {
            Exchange::Verbatim(verbatim) => {
                // Its provider has named it; it is not kept under another name.
                reply.keep_as = Box::default();
                let (beside, renamed) = verbatim.into_beside();
                match beside {
                    Some(beside) => {
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
                let Parts { to, along, reply: former } = translated.into_parts();
                reply.keep_as = former.keep_as.clone();
                reply.model = former.model.clone();
                let to = to.unwrap_or_else(|| AnyEncoder::new(route.client, former));
                (to, along.map(|along| along.transcript).unwrap_or_default())
            }
        };
        let reply = Arc::new(reply);
        to.retell(reply.clone());
        let echo = if repeats { Some(prefill) } else { None };
        let seam = Splice::new(&transcript, prefill, echo, before, counted);
        let along = Box::new(TranslatedTap { transcript, seam: Some(Box::new(seam)) });
        let mut translated = Translated::resumed(&route, arrival, reply, restore, limit, to, along);
        translated.say(before_all);
        Exchange::Translated(Box::new(translated))
    }

    /// Ends this answer, which has broken off, as one that has come to its limit: nothing is left of what the client
    /// allows. Gives what leaves.
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
        let mut exchange = self.go_on(onward);
        let mut out = Bytes::new();
        if let Exchange::Translated(translated) = &mut exchange {
            translated.event(&Event::Start(Start::default()));
            translated.event(&Event::Finish { choice: 0, finish: Finish::Length });
            let nothing = Usage { input: Some(0), output: Some(0), ..Usage::default() };
            translated.event(&Event::Usage(nothing));
            translated.event(&Event::End);
            out = translated.take_ready();
        }
        (exchange, out)
    }

    /// What was used in all, by all providers that wrote this answer.
    pub fn usage(&self) -> Usage {
        self.total().0
    }

    /// Whether the usage holds figures that no provider said.
    pub fn is_counted(&self) -> bool {
        self.total().1
    }

    fn total(&self) -> (Usage, bool) {
        let meter = self.meter();
        match self {
            Exchange::Translated(translated) => match translated.along() {
                Some(along) => along.total(meter.usage(), meter.is_counted()),
                None => (*meter.usage(), meter.is_counted()),
            },
            Exchange::Verbatim(_) => (*meter.usage(), meter.is_counted()),
        }
    }

    /// Whether the client has been given any content.
    pub fn has_delivered(&self) -> bool {
        let before = match self {
            Exchange::Translated(translated) => translated.along().is_some_and(TranslatedTap::goes_on),
            Exchange::Verbatim(_) => false,
        };
        before || self.meter().content_frames() > 0
    }
}
