//! Stream decoder: reads frames as events. A whole response is decoded as a single frame.
//!
//! No frame is marked as the last one. Finish reasons are therefore held until the upstream closes the stream,
//! because later frames may still contain usage and grounding.

use std::collections::BTreeMap;

use super::candidate::{self, Candidate, CandidateCall, CandidatePart, Data};
use super::fast_path::FastPath;
use super::frame_members::{emit_usage, is_blocked};
use super::partial::Partial;
use crate::canonical::answer::{FinishOwned, MAX_CHOICES};
use crate::canonical::time::unix_seconds;
use crate::canonical::{BlockKind, Delta, Event, Finish, Start, ToolKind};
use crate::wire::codec::{CutText, make_id};
use crate::wire::finish_words::BrokenOff;
use crate::wire::generate::offsets::Offsets;
use crate::wire::generate::{finish, grounding, logprobs};
use crate::wire::watch::elements;
use json::{Cursor, JsonError, JsonStr, RawJson};

/// Decoder of one stream or one whole response.
#[derive(Debug)]
pub struct Decoder {
    seed: Box<str>,
    started: bool,
    over: bool,
    /// Whether the prompt was blocked.
    blocked: bool,
    /// Canonical index of the next block.
    next: u32,
    /// Number of calls without an id so far.
    unnamed: u64,
    choices: BTreeMap<u32, Choice>,
    usual: FastPath,
}

/// State of one candidate.
#[derive(Debug, Default)]
struct Choice {
    index: u32,
    open: Option<Open>,
    finish: Option<Result<FinishOwned, BrokenOff>>,
    called: bool,
    partial: Option<Box<Partial>>,
    /// Offset table of its text, for grounding.
    offsets: Offsets,
    /// Text of the last `groundingMetadata` that was not empty.
    grounding: String,
}

/// Open text block.
#[derive(Clone, Copy, Debug)]
struct Open {
    block: u32,
    thought: bool,
    sealed: bool,
}

impl Decoder {
    /// Creates the decoder of one stream. Ids that the provider omits are derived from `seed`.
    pub fn new(seed: &str) -> Self {
        Decoder {
            seed: seed.into(),
            started: false,
            over: false,
            blocked: false,
            next: 0,
            unnamed: 0,
            choices: BTreeMap::new(),
            usual: FastPath::default(),
        }
    }

    /// Returns whether the end or an error was emitted. Later frames are ignored.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Decodes the data of one frame, or one element of an array.
    ///
    /// # Errors
    /// Returns [`JsonError`] if the data is not valid JSON, or if a candidate's index is too large.
    pub fn frame(&mut self, data: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        if self.over || (!self.started && !self.start(data, sink)?) {
            return Ok(());
        }
        // Fast path: a frame that matches the template of the last text frame is not parsed.
        if let Some((said, text)) = self.usual.read(data) {
            let Decoder { choices, next, .. } = self;
            if let Some(choice) = choices.get_mut(&said.choice) {
                choice.end_call(sink);
                choice.add(text, said.is_reasoning, next, sink);
            }
            return Ok(());
        }
        self.parse_deferred(sink)?;
        // `Some(None)`: no candidate so far. `None`: the frame does not fit a template.
        let mut usual = Some(None);
        let mut used = None;
        let mut json = Cursor::new(data);
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            match key.escaped() {
                "candidates" => {
                    elements(&mut json, |json| {
                        let candidate = candidate::read(json)?;
                        usual = usual.and_then(|before| before.is_none().then(|| candidate.only_text()));
                        self.candidate(&candidate, sink)
                    })?;
                }
                "usageMetadata" | "usage_metadata" => {
                    let usage = json.raw()?;
                    used = Some(usage);
                    emit_usage(usage, sink)?;
                }
                "promptFeedback" | "prompt_feedback" => {
                    usual = None;
                    self.blocked |= is_blocked(&mut json)?;
                }
                "error" => {
                    let error = json.raw()?;
                    if !error.is_void() {
                        self.over = true;
                        sink(Event::Error(error));
                        return Ok(());
                    }
                }
                _ => json.skip()?,
            }
        }
        json.end()?;
        self.usual.store(usual.flatten(), used, data);
        Ok(())
    }

    /// Emits usage that the fast path left unread. Every frame has usage, and the last one counts.
    ///
    /// # Errors
    /// Returns [`JsonError`] if the usage is not valid JSON.
    pub fn parse_deferred(&mut self, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        match self.usual.take_usage() {
            Some(usage) => emit_usage(RawJson::from_text(usage), sink),
            None => Ok(()),
        }
    }

    /// Emits the start event. The first frame is read ahead for it, because the id and the model follow the
    /// candidates. Returns false if the frame has none of the members that start a response.
    fn start(&mut self, data: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<bool, JsonError> {
        let (mut start, mut usage) = (Start::default(), None);
        let (mut known, mut error) = (false, false);
        let mut json = Cursor::new(data);
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            let value = json.raw()?;
            match key.escaped() {
                _ if value.is_void() => {}
                "responseId" | "response_id" => {
                    (known, start.id) = (true, value.as_str().unwrap_or_default())
                }
                "modelVersion" | "model_version" => {
                    (known, start.model) = (true, value.as_str().unwrap_or_default());
                }
                "createTime" | "create_time" => {
                    let seconds = value.as_str().and_then(|text| unix_seconds(text.escaped()));
                    start.created = seconds.and_then(|seconds| u64::try_from(seconds).ok());
                }
                "usageMetadata" | "usage_metadata" => (known, usage) = (true, Some(value)),
                "candidates" | "promptFeedback" | "prompt_feedback" => known = true,
                "error" => error = true,
                _ => {}
            }
        }
        json.end()?;
        if known && !error {
            self.started = true;
            // First the usage: an encoder whose format starts with it has it then.
            usage.map_or(Ok(()), |usage| emit_usage(usage, sink))?;
            sink(Event::Start(start));
        }
        Ok(known || error)
    }

    /// Ends the stream, because the upstream has closed it: emits citations, the ends of blocks, finish reasons and
    /// the end.
    ///
    /// # Errors
    /// Returns [`CutText`] if a candidate has no finish reason, or if there is no candidate.
    pub fn finish(&mut self, sink: &mut impl FnMut(Event<'_>)) -> Result<(), CutText> {
        if self.over {
            return Ok(());
        }
        // An error is impossible here: the usage has the shape of one that was parsed.
        let _ = self.parse_deferred(sink);
        if self.blocked {
            // A blocked prompt has no candidates: report it as choice 0.
            if self.choices.is_empty() {
                self.choices.entry(0).or_default();
            }
            for choice in self.choices.values_mut() {
                choice.finish.get_or_insert(Ok(FinishOwned::ContentFilter));
            }
        }
        if let Some(broken) = self.choices.values().find_map(Choice::broken_off) {
            self.over = true;
            broken.emit(sink);
            return Ok(());
        }
        if !self.has_reason() {
            return Err(CutText);
        }
        for choice in self.choices.values_mut() {
            choice.end_call(sink);
            choice.cite(&mut self.next, sink);
            choice.close(sink);
            if let Some(finish) = &choice.finish {
                let finish = match finish.as_ref().map(FinishOwned::borrow) {
                    Ok(finish) if finish != Finish::Stop || !choice.called => finish,
                    // The format ends tool calls with `STOP`.
                    _ => Finish::ToolUse,
                };
                sink(Event::Finish { choice: choice.index, finish });
            }
        }
        self.over = true;
        sink(Event::End);
        Ok(())
    }

    /// Returns whether there are candidates and all of them have a finish reason. Not if the response broke off.
    pub fn has_reason(&self) -> bool {
        let has_reason = |choice: &Choice| choice.finish.is_some() && choice.broken_off().is_none();
        !self.choices.is_empty() && self.choices.values().all(has_reason)
    }

    /// Returns whether a start event was emitted.
    pub(in crate::wire::generate) fn has_started(&self) -> bool {
        self.started
    }

    /// Declares the response complete: candidates without a finish reason get `FINISH_REASON_UNSPECIFIED`.
    pub(in crate::wire::generate) fn is_whole(&mut self) {
        if self.choices.is_empty() && !self.blocked {
            self.choices.entry(0).or_default();
        }
        for choice in self.choices.values_mut() {
            choice.finish.get_or_insert_with(|| Ok(FinishOwned::Other(finish::UNSPECIFIED.to_owned())));
        }
    }

    fn candidate(&mut self, read: &Candidate<'_>, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        if read.index >= MAX_CHOICES {
            return Err(JsonError { at: 0, what: "expected a valid candidate index" });
        }
        let choice = self.choices.entry(read.index).or_default();
        choice.index = read.index;
        for part in &read.parts {
            choice.part(part, &mut self.next, &self.seed, &mut self.unnamed, sink)?;
        }
        if let Some(result) = read.logprobs
            && let Some(open) = choice.open.filter(|open| !open.thought)
            && let Some(list) = logprobs::read(result)?
        {
            let delta = Delta::Logprobs(RawJson::from_text(&list));
            sink(Event::Delta { index: open.block, delta });
        }
        if let Some(metadata) = read.grounding.filter(|metadata| metadata.text().len() > 2) {
            metadata.text().clone_into(&mut choice.grounding);
        }
        if let Some(finish) = &read.finish {
            choice.finish = Some(finish.clone());
        }
        Ok(())
    }
}

impl Choice {
    /// Returns whether it has calls, all of them whole.
    fn has_whole_calls(&self) -> bool {
        self.called && self.partial.is_none()
    }

    /// Returns the end of a candidate that broke off.
    fn broken_off(&self) -> Option<&BrokenOff> {
        match &self.finish {
            Some(Err(broken)) if !(self.has_whole_calls() && broken.is_whole_with_call()) => Some(broken),
            _ => None,
        }
    }

    fn part(
        &mut self,
        part: &CandidatePart<'_>,
        next: &mut u32,
        seed: &str,
        unnamed: &mut u64,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        if let Data::Call(call) = &part.data {
            return self.call(call, part.signature, next, seed, unnamed, sink);
        }
        self.end_call(sink);
        match part.data {
            Data::Text(text) if !text.is_empty() => {
                if !part.signature.is_empty() && self.open.is_some_and(|open| open.sealed) {
                    self.close(sink);
                }
                self.add(text, part.is_reasoning, next, sink);
            }
            // Images in thoughts are not part of the response.
            Data::Inline { .. } | Data::File { .. } if part.is_reasoning => return Ok(()),
            Data::Inline { mime, data } => {
                let kind = BlockKind::Media { mime };
                self.whole(kind, Some(Delta::Data(data)), part.signature, next, sink);
                return Ok(());
            }
            Data::File { mime, uri } => {
                let kind = BlockKind::Media { mime };
                self.whole(kind, Some(Delta::Url(uri)), part.signature, next, sink);
                return Ok(());
            }
            Data::Other { name, raw } => {
                // The raw part contains its signature.
                let kind = BlockKind::Opaque { name, raw };
                self.whole(kind, None, JsonStr::default(), next, sink);
                return Ok(());
            }
            Data::Text(_) | Data::None | Data::Call(_) => {}
        }
        if !part.signature.is_empty() {
            self.seal(part, next, sink);
        }
        Ok(())
    }

    /// Emits text, in the open block of its kind or a new one.
    #[inline]
    fn add(&mut self, text: JsonStr<'_>, thought: bool, next: &mut u32, sink: &mut impl FnMut(Event<'_>)) {
        if text.is_empty() {
            return;
        }
        let index = self.text(thought, next, sink);
        sink(Event::Delta { index, delta: Delta::Text(text) });
        if !thought {
            self.offsets.push(text);
        }
    }

    /// Returns the index of the open block for text of this kind. Opens one if necessary.
    #[inline]
    fn text(&mut self, thought: bool, next: &mut u32, sink: &mut impl FnMut(Event<'_>)) -> u32 {
        if let Some(open) = self.open.filter(|open| open.thought == thought) {
            return open.block;
        }
        self.close(sink);
        let kind = if thought { BlockKind::Reasoning } else { BlockKind::Text };
        let block = self.begin(kind, next, sink);
        self.open = Some(Open { block, thought, sealed: false });
        block
    }

    /// Emits the signature of a text part or of an empty last part: it belongs to the preceding block. A block has at
    /// most one.
    fn seal(&mut self, part: &CandidatePart<'_>, next: &mut u32, sink: &mut impl FnMut(Event<'_>)) {
        if self.open.is_none_or(|open| open.sealed) {
            self.close(sink);
            self.text(part.is_reasoning, next, sink);
        }
        let Some(open) = &mut self.open else { return };
        open.sealed = true;
        sink(Event::Delta { index: open.block, delta: Delta::Signature(part.signature) });
        // The signature covers the thoughts so far, so more thoughts need a block of their own. Text continues in its
        // block.
        if open.thought {
            self.close(sink);
        }
    }

    fn call(
        &mut self,
        call: &CandidateCall<'_>,
        signature: JsonStr<'_>,
        next: &mut u32,
        seed: &str,
        unnamed: &mut u64,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        if !call.name.is_empty() {
            self.end_call(sink);
            self.close(sink);
            self.called = true;
            let made;
            let id = if call.id.is_empty() {
                made = make_id("call_", seed, *unnamed);
                *unnamed += 1;
                JsonStr::from_escaped(&made)
            } else {
                call.id
            };
            let kind = BlockKind::ToolUse {
                id,
                name: call.name,
                kind: ToolKind::Function,
                namespace: JsonStr::default(),
            };
            let index = self.begin(kind, next, sink);
            if !signature.is_empty() {
                sink(Event::Delta { index, delta: Delta::Signature(signature) });
            }
            if !call.will_continue && call.partial.is_none() {
                if let Some(delta) = call.args.and_then(arguments) {
                    sink(Event::Delta { index, delta });
                }
                sink(Event::BlockStop { index });
                return Ok(());
            }
            self.partial = Some(Box::new(Partial::new(index)));
        }
        // A call without a name continues the one before it; if there is none, it is ignored.
        if let (Some(partial), Some(list)) = (&mut self.partial, call.partial) {
            partial.add(list)?;
        }
        if !call.will_continue {
            self.end_call(sink);
        }
        Ok(())
    }

    /// Ends the call whose arguments arrive in pieces.
    fn end_call(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        let Some(partial) = self.partial.take() else { return };
        let index = partial.block;
        if !partial.is_empty() {
            let object = partial.json();
            sink(Event::Delta { index, delta: Delta::Object(RawJson::from_text(&object)) });
        }
        sink(Event::BlockStop { index });
    }

    /// Emits a block that arrives as a whole.
    fn whole(
        &mut self,
        kind: BlockKind<'_>,
        delta: Option<Delta<'_>>,
        signature: JsonStr<'_>,
        next: &mut u32,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        self.close(sink);
        let index = self.begin(kind, next, sink);
        if let Some(delta) = delta {
            sink(Event::Delta { index, delta });
        }
        if !signature.is_empty() {
            sink(Event::Delta { index, delta: Delta::Signature(signature) });
        }
        sink(Event::BlockStop { index });
    }

    fn begin(&self, kind: BlockKind<'_>, next: &mut u32, sink: &mut impl FnMut(Event<'_>)) -> u32 {
        let index = *next;
        *next += 1;
        sink(Event::BlockStart { index, choice: self.index, kind });
        index
    }

    fn close(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        if let Some(open) = self.open.take() {
            sink(Event::BlockStop { index: open.block });
        }
    }

    /// Emits the citations, in the last text block if it is still open, otherwise in a text block of their own.
    fn cite(&mut self, next: &mut u32, sink: &mut impl FnMut(Event<'_>)) {
        if self.grounding.is_empty() {
            return;
        }
        let metadata = std::mem::take(&mut self.grounding);
        let offsets = std::mem::take(&mut self.offsets);
        let has_text = offsets.bytes() > 0;
        // The enclosing frame was valid JSON. Unreadable grounding must not fail the response.
        let _ = grounding::read(RawJson::from_text(&metadata), &offsets, &mut |citation| {
            if has_text {
                let index = self.text(false, next, sink);
                sink(Event::Delta { index, delta: Delta::Citation(citation) });
            }
        });
    }
}

/// Returns the arguments of a call: an object, or its text, which some proxies send. Returns `None` for any other
/// value.
fn arguments(args: RawJson<'_>) -> Option<Delta<'_>> {
    match args.text().as_bytes().first() {
        Some(b'{') => Some(Delta::Object(args)),
        Some(b'"') => args.as_str().map(Delta::Arguments),
        _ => None,
    }
}
