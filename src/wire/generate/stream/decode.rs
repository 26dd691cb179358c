//! From the frames of a stream to events. A whole answer is one frame, and goes the same way.
//!
//! Nothing in a frame says that it is the last one: reasons to finish are kept until the stream closes, because frames
//! behind them still bring usage and grounding.

use std::collections::BTreeMap;

use super::candidate::{self, Call, Candidate, Data, Part};
use super::fast_path::Usual;
use super::partial::Partial;
use crate::canonical::answer::{FinishOwned, MAX_CHOICES};
use crate::canonical::time::unix_seconds;
use crate::canonical::{BlockKind, Delta, Event, Finish, Start, ToolKind, Usage};
use crate::json::{Cursor, JsonError, JsonStr, RawJson};
use crate::wire::codec::{CutText, make_id};
use crate::wire::generate::offsets::Offsets;
use crate::wire::generate::{finish, grounding, logprobs, watch};
use crate::wire::watch::{elements, members};

/// Reads one answer.
#[derive(Debug)]
pub struct Decoder {
    seed: Box<str>,
    started: bool,
    over: bool,
    /// The prompt was refused.
    blocked: bool,
    /// The index of the next block.
    next: u32,
    /// Calls so far that came without an id.
    unnamed: u64,
    choices: BTreeMap<u32, Choice>,
    usual: Usual,
}

/// How far one candidate has come.
#[derive(Debug, Default)]
struct Choice {
    index: u32,
    open: Option<Open>,
    finish: Option<FinishOwned>,
    called: bool,
    partial: Option<Box<Partial>>,
    /// Where the characters of its text stand.
    offsets: Offsets,
    /// The last `groundingMetadata` that had anything in it.
    grounding: String,
}

/// The block that text is added to.
#[derive(Clone, Copy, Debug)]
struct Open {
    block: u32,
    thought: bool,
    sealed: bool,
}

impl Decoder {
    /// Ids are made from the seed where the provider gives none.
    pub fn new(seed: &str) -> Self {
        Decoder {
            seed: seed.into(),
            started: false,
            over: false,
            blocked: false,
            next: 0,
            unnamed: 0,
            choices: BTreeMap::new(),
            usual: Usual::default(),
        }
    }

    /// Whether the end or an error was emitted; later frames are ignored.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Reads the data of one frame, or one element of an array.
    ///
    /// # Errors
    /// It is not JSON.
    pub fn frame(&mut self, data: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        if self.over || (!self.started && !self.start(data, sink)?) {
            return Ok(());
        }
        if let Some((said, text)) = self.usual.read(data) {
            let Decoder { choices, next, .. } = self;
            if let Some(choice) = choices.get_mut(&said.choice) {
                choice.end_call(sink);
                choice.add(text, said.thought, next, sink);
            }
            return Ok(());
        }
        self.settle(sink)?;
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
                    told(usage, sink)?;
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
        self.usual.keep(usual.flatten(), used, data);
        Ok(())
    }

    /// Emits what was left unread: usage, which is in every frame and of which the last one counts.
    ///
    /// # Errors
    /// It is not JSON.
    pub fn settle(&mut self, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        match self.usual.take_usage() {
            Some(usage) => told(RawJson::from_text(usage), sink),
            None => Ok(()),
        }
    }

    /// Emits the start, for which the first frame is read ahead: what names the answer stands at its end. A frame
    /// that says nothing does not begin an answer.
    fn start(&mut self, data: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<bool, JsonError> {
        let mut start = Start::default();
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
                "candidates" | "usageMetadata" | "usage_metadata" | "promptFeedback" | "prompt_feedback" => {
                    known = true;
                }
                "error" => error = true,
                _ => {}
            }
        }
        json.end()?;
        if known && !error {
            self.started = true;
            sink(Event::Start(start));
        }
        Ok(known || error)
    }

    /// The upstream closed: emits what is still to come.
    ///
    /// # Errors
    /// The answer is not complete.
    pub fn finish(&mut self, sink: &mut impl FnMut(Event<'_>)) -> Result<(), CutText> {
        if self.over {
            return Ok(());
        }
        // It fitted into the shape of one that was read.
        let _ = self.settle(sink);
        if self.blocked {
            if self.choices.is_empty() {
                self.choices.entry(0).or_default();
            }
            for choice in self.choices.values_mut() {
                choice.finish.get_or_insert(FinishOwned::ContentFilter);
            }
        }
        if !self.has_reason() {
            return Err(CutText);
        }
        for choice in self.choices.values_mut() {
            choice.end_call(sink);
            choice.cite(&mut self.next, sink);
            choice.close(sink);
            if let Some(finish) = &choice.finish {
                let finish = match finish.borrow() {
                    Finish::Stop if choice.called => Finish::ToolUse,
                    finish => finish,
                };
                sink(Event::Finish { choice: choice.index, finish });
            }
        }
        self.over = true;
        sink(Event::End);
        Ok(())
    }

    /// Whether it was said of each candidate why it ended.
    pub fn has_reason(&self) -> bool {
        !self.choices.is_empty() && self.choices.values().all(|choice| choice.finish.is_some())
    }

    /// Whether an answer has begun.
    pub(in crate::wire::generate) fn has_started(&self) -> bool {
        self.started
    }

    /// What is there is all there is: where no reason was given, none was meant to be.
    pub(in crate::wire::generate) fn is_whole(&mut self) {
        if self.choices.is_empty() && !self.blocked {
            self.choices.entry(0).or_default();
        }
        for choice in self.choices.values_mut() {
            choice.finish.get_or_insert_with(|| FinishOwned::Other(finish::UNSPECIFIED.to_owned()));
        }
    }

    fn candidate(&mut self, read: &Candidate<'_>, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        if read.index >= MAX_CHOICES {
            return Err(JsonError { at: 0, what: "expected the number of a candidate that can be" });
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

/// Emits usage.
fn told(usage: RawJson<'_>, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
    let usage = watch::usage(usage)?;
    if usage != Usage::default() {
        sink(Event::Usage(usage));
    }
    Ok(())
}

fn is_blocked(json: &mut Cursor<'_>) -> Result<bool, JsonError> {
    let mut blocked = false;
    members(json, |key, json| {
        match key.escaped() {
            "blockReason" | "block_reason" => blocked = watch::reason(json.raw()?).is_some(),
            _ => json.skip()?,
        }
        Ok(())
    })?;
    Ok(blocked)
}

impl Choice {
    fn part(
        &mut self,
        part: &Part<'_>,
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
                self.add(text, part.thought, next, sink);
            }
            // A picture of a thought is not part of the answer.
            Data::Inline { .. } | Data::File { .. } if part.thought => return Ok(()),
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
                // Its signature is in it.
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

    /// More text.
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

    /// The open block for text of this kind, opened if need be.
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

    /// A signature on text, or on an empty part at the end: it belongs to the block before it. A block has one.
    fn seal(&mut self, part: &Part<'_>, next: &mut u32, sink: &mut impl FnMut(Event<'_>)) {
        if self.open.is_none_or(|open| open.sealed) {
            self.close(sink);
            self.text(part.thought, next, sink);
        }
        let Some(open) = &mut self.open else { return };
        open.sealed = true;
        sink(Event::Delta { index: open.block, delta: Delta::Seal(part.signature) });
        // More thoughts would be others than those that are signed; text goes on.
        if open.thought {
            self.close(sink);
        }
    }

    fn call(
        &mut self,
        call: &Call<'_>,
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
                sink(Event::Delta { index, delta: Delta::Seal(signature) });
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
        // A call without a name goes on with the one before it; where there is none, it is an empty shell.
        if let (Some(partial), Some(list)) = (&mut self.partial, call.partial) {
            partial.add(list)?;
        }
        if !call.will_continue {
            self.end_call(sink);
        }
        Ok(())
    }

    /// Ends the call whose arguments arrive in parts.
    fn end_call(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        let Some(partial) = self.partial.take() else { return };
        let index = partial.block;
        if !partial.is_empty() {
            let object = partial.json();
            sink(Event::Delta { index, delta: Delta::Object(RawJson::from_text(&object)) });
        }
        sink(Event::BlockStop { index });
    }

    /// A block that comes in one piece.
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
            sink(Event::Delta { index, delta: Delta::Seal(signature) });
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

    /// Emits the citations, on the last text; behind anything else they get a block of their own.
    fn cite(&mut self, next: &mut u32, sink: &mut impl FnMut(Event<'_>)) {
        if self.grounding.is_empty() {
            return;
        }
        let metadata = std::mem::take(&mut self.grounding);
        let offsets = std::mem::take(&mut self.offsets);
        let has_text = offsets.bytes() > 0;
        // It was read once as a part of its frame; grounding that cannot be read is no reason to lose the answer.
        let _ = grounding::read(RawJson::from_text(&metadata), &offsets, &mut |citation| {
            if has_text {
                let index = self.text(false, next, sink);
                sink(Event::Delta { index, delta: Delta::Citation(citation) });
            }
        });
    }
}

/// Arguments: an object, or the text of one, as some proxies send.
fn arguments(args: RawJson<'_>) -> Option<Delta<'_>> {
    match args.text().as_bytes().first() {
        Some(b'{') => Some(Delta::Object(args)),
        Some(b'"') => args.as_str().map(Delta::Arguments),
        _ => None,
    }
}
