//! Stream decoder of the Converse format: frames to events.

use super::super::content::OpenBlock;
use super::super::{citation, usage};
use crate::canonical::{Event, ServiceTier, Slots, Start, Usage};
use crate::wire::Format;
use crate::wire::codec::CutText;
use crate::wire::finish_words::{self, BrokenOff};
use crate::wire::watch::{elements, members};
use json::{Cursor, JsonError, JsonStr, RawJson};

/// Decoder of a Converse stream.
#[derive(Debug, Default)]
pub struct Decoder {
    seed: Box<str>,
    started: bool,
    over: bool,
    /// Open blocks by the provider's index.
    open: Slots<OpenBlock>,
    /// Index of the next block in the events.
    next: u32,
    called: bool,
    /// Number of text characters so far.
    length: u64,
    /// Whether the stop reason has arrived. The usage follows it.
    stopped: bool,
    /// Stop reason that means that the response broke off.
    broken: Option<BrokenOff>,
}

/// Member of a delta that has a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Text,
    Reasoning,
    Input,
}

/// Exact beginning of the frames of deltas, up to the payload of the event.
const DELTA: &str = r#"{"contentBlockDelta":"#;
/// Exact beginning of the payloads of deltas, as Bedrock writes them, up to the index.
const HEAD: &str = r#"{"contentBlockIndex":"#;
/// Exact continuation behind the index, up to the text, and behind the text.
const KINDS: [(&str, Field, &str); 3] = [
    (r#","delta":{"text":"#, Field::Text, "}"),
    (r#","delta":{"toolUse":{"input":"#, Field::Input, "}}"),
    (r#","delta":{"reasoningContent":{"text":"#, Field::Reasoning, "}}"),
];

impl Decoder {
    /// Creates a decoder of one response. Ids that the provider does not supply are made from `seed`.
    pub fn new(seed: &str) -> Self {
        Decoder { seed: seed.into(), ..Decoder::default() }
    }

    /// Returns whether the response has ended, with or without an error. Later frames are ignored.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Returns whether the stop reason has arrived, but not the end of the response. Not if the response broke off.
    pub fn has_reason(&self) -> bool {
        self.stopped && !self.over && self.broken.is_none()
    }

    /// Decodes the data of one event: an object whose only member is named like the event.
    ///
    /// # Errors
    /// Returns [`JsonError`] if the data is not JSON.
    #[inline]
    pub fn frame(&mut self, data: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        if self.over {
            return Ok(());
        }
        if let Some(payload) = data.strip_prefix(DELTA)
            && self.usual_delta(payload, sink)
        {
            return Ok(());
        }
        self.any_frame(data, sink)
    }

    /// Decodes the payload of `contentBlockDelta` if it has Bedrock's exact spelling and its block is open. Returns false
    /// for any other payload, which is decoded as a part of its [`frame`](Self::frame). Nearly all frames of a stream are
    /// such deltas, so this fast path avoids a parser over all members.
    #[inline]
    pub fn usual_delta(&mut self, payload: &str, sink: &mut impl FnMut(Event<'_>)) -> bool {
        let Some((index, field, text)) = usual(payload) else { return false };
        let Some(open) = self.open.get_mut(index) else { return false };
        match field {
            Field::Text => self.length += open.text(text, &mut self.next, sink),
            Field::Reasoning => open.reasoning(text, &mut self.next, sink),
            Field::Input => open.input(text, sink),
        }
        true
    }

    fn any_frame(&mut self, data: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        let mut json = Cursor::new(data);
        json.begin_object()?;
        while let Some(key) = json.next_key()? {
            let value = json.raw()?;
            match key.escaped() {
                "messageStart" => self.start(sink),
                "contentBlockStart" | "contentBlockDelta" => self.block_event(value, sink)?,
                "contentBlockStop" => {
                    let index = index_of(value)?;
                    self.block_stop(index, sink);
                }
                "messageStop" => self.stop(value, sink)?,
                "metadata" => self.metadata(value, sink)?,
                "error" => self.error(value, sink),
                // The whole frame: the name of the exception is the name of its only member.
                name if name.ends_with("Exception") => {
                    self.error(RawJson::from_text(data.trim_ascii()), sink);
                }
                // Events that later versions of the service add.
                _ => {}
            }
            if self.over {
                return Ok(());
            }
        }
        json.end()
    }

    /// Ends the response because the upstream closed the stream.
    ///
    /// # Errors
    /// Returns [`CutText`] if the stream ended before the stop reason or an error. The usage behind the stop reason may
    /// be missing.
    pub fn finish(&mut self, sink: &mut impl FnMut(Event<'_>)) -> Result<(), CutText> {
        if self.over {
            return Ok(());
        }
        if !self.stopped {
            return Err(CutText);
        }
        self.end(sink);
        Ok(())
    }

    /// Emits the start of the response, once. The format names neither an id nor a model.
    pub(in super::super) fn start(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        if !std::mem::replace(&mut self.started, true) {
            sink(Event::Start(Start::default()));
        }
    }

    /// Reads `contentBlockStart` or `contentBlockDelta`. Only blocks of tools and images are announced by a start.
    fn block_event(&mut self, value: RawJson<'_>, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        let (mut index, mut start, mut delta) = (0, None, None);
        members(&mut Cursor::new(value.text()), |key, json| {
            match key.escaped() {
                "contentBlockIndex" => index = json.u64_or_skip()?.unwrap_or_default(),
                "start" => start = Some(json.raw()?),
                "delta" => delta = Some(json.raw()?),
                _ => json.skip()?,
            }
            Ok(())
        })?;
        self.start(sink);
        if self.stopped {
            return Ok(());
        }
        if self.open.get_mut(index).is_none() {
            self.open.push(index, OpenBlock::unknown(self.length));
        }
        let Some(open) = self.open.get_mut(index) else { return Ok(()) };
        if let Some(start) = start {
            self.called |= open.start(start, &self.seed, &mut self.next, sink)?;
        }
        if let Some(delta) = delta {
            self.length += read_delta(open, delta, &mut self.next, sink)?;
        }
        Ok(())
    }

    fn block_stop(&mut self, index: u64, sink: &mut impl FnMut(Event<'_>)) {
        if let Some(open) = self.open.remove(index) {
            open.end(&mut self.next, sink);
        }
    }

    /// Reads a whole block of a response that is no stream.
    pub(in super::super) fn whole_block(
        &mut self,
        block: RawJson<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        self.start(sink);
        let mut open = OpenBlock::unknown(self.length);
        let mut foreign = None;
        members(&mut Cursor::new(block.text()), |key, json| {
            let value = json.raw()?;
            match key.escaped() {
                "text" => drop(open.text(value.as_str().unwrap_or_default(), &mut self.next, sink)),
                "toolUse" => self.called |= open.call(value, &self.seed, &mut self.next, sink)?,
                "toolResult" => open.server("toolResult", value)?,
                "reasoningContent" => read_reasoning(&mut open, value, &mut self.next, sink)?,
                "citationsContent" => read_cited(&mut open, value, &mut self.next, sink)?,
                "image" => open.whole_image(value, &mut self.next, sink)?,
                name => foreign = Some((name, value)),
            }
            Ok(())
        })?;
        self.length += open.length();
        open.end(&mut self.next, sink);
        if let Some((name, _)) = foreign {
            OpenBlock::opaque(JsonStr::from_escaped(name), block, &mut self.next, sink);
        }
        Ok(())
    }

    /// Reads `messageStop`, or the members of a whole response, which have the same names.
    pub(in super::super) fn stop(
        &mut self,
        value: RawJson<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let (mut reason, mut sequence) = (JsonStr::default(), None);
        members(&mut Cursor::new(value.text()), |key, json| {
            match key.escaped() {
                "stopReason" => reason = json.raw()?.as_str().unwrap_or_default(),
                "additionalModelResponseFields" => members(json, |key, json| {
                    let value = json.raw()?;
                    if key.is("stop_sequence") {
                        sequence = value.as_str();
                    }
                    Ok(())
                })?,
                _ => json.skip()?,
            }
            Ok(())
        })?;
        self.start(sink);
        if std::mem::replace(&mut self.stopped, true) {
            return Ok(());
        }
        match finish_words::decode(Format::Converse, reason, sequence, self.called) {
            Ok(finish) => {
                // Close blocks whose stop the provider omitted, because every block of the events must end.
                for open in self.open.drain() {
                    open.end(&mut self.next, sink);
                }
                sink(Event::Finish { choice: 0, finish: finish.borrow() });
            }
            // The error waits for the usage, because no event may follow it.
            Err(broken) => self.broken = Some(broken),
        }
        Ok(())
    }

    /// Reads `metadata`, the last event.
    fn metadata(&mut self, value: RawJson<'_>, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        let (mut usage, mut tier) = (None, None);
        members(&mut Cursor::new(value.text()), |key, json| {
            match key.escaped() {
                "usage" => usage = Some(json.raw()?),
                "serviceTier" => tier = usage::tier(json.raw()?)?,
                _ => json.skip()?,
            }
            Ok(())
        })?;
        self.usage(usage, tier, sink)?;
        // Without a stop reason the response is incomplete, whatever follows.
        if self.stopped {
            self.end(sink);
        }
        Ok(())
    }

    /// Emits a usage report.
    pub(in super::super) fn usage(
        &mut self,
        usage: Option<RawJson<'_>>,
        tier: Option<ServiceTier>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        if let Some(usage) = usage {
            sink(Event::Usage(Usage { tier, ..usage::read(usage)? }));
        }
        Ok(())
    }

    /// Ends the response.
    pub(in super::super) fn end(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        match &self.broken {
            None => sink(Event::End),
            Some(broken) => broken.emit(sink),
        }
        self.over = true;
    }

    /// Emits the provider's error and ends the response.
    pub(in super::super) fn error(&mut self, error: RawJson<'_>, sink: &mut impl FnMut(Event<'_>)) {
        sink(Event::Error(error));
        self.over = true;
    }
}

/// Reads the index, the member and the text of a delta in Bedrock's exact spelling. `None` for any other payload.
#[inline]
fn usual(payload: &str) -> Option<(u64, Field, JsonStr<'_>)> {
    let (index, rest) = leading_index(payload.strip_prefix(HEAD)?)?;
    let (rest, field, end) =
        KINDS.iter().find_map(|(head, field, end)| Some((rest.strip_prefix(head)?, *field, end)))?;
    let mut json = Cursor::new(rest);
    let text = json.string().ok()?;
    rest.get(json.offset()..)?.starts_with(end).then_some((index, field, text))
}

/// Splits off the index at the beginning of a text. `None` if it has none, or one of over nine digits.
#[inline]
fn leading_index(text: &str) -> Option<(u64, &str)> {
    let mut index = 0;
    for (at, byte) in text.bytes().enumerate().take(10) {
        if !byte.is_ascii_digit() {
            return Some((index, text.get(at..)?)).filter(|_| at > 0);
        }
        index = index * 10 + u64::from(byte - b'0');
    }
    None
}

fn index_of(value: RawJson<'_>) -> Result<u64, JsonError> {
    let mut json = Cursor::new(value.text());
    Ok(crate::wire::watch::count_member(&mut json, "contentBlockIndex")?.unwrap_or_default())
}

/// Reads a delta. Returns the number of text characters in it.
fn read_delta(
    open: &mut OpenBlock,
    delta: RawJson<'_>,
    next: &mut u32,
    sink: &mut impl FnMut(Event<'_>),
) -> Result<u64, JsonError> {
    let mut length = 0;
    members(&mut Cursor::new(delta.text()), |key, json| {
        let value = json.raw()?;
        match key.escaped() {
            "text" => length += open.text(value.as_str().unwrap_or_default(), next, sink),
            "toolUse" => members(&mut Cursor::new(value.text()), |key, json| {
                let value = json.raw()?;
                if key.is("input") {
                    open.input(value.as_str().unwrap_or_default(), sink);
                }
                Ok(())
            })?,
            "reasoningContent" => read_reasoning(open, value, next, sink)?,
            "citation" => open.cite(citation::read(value)?, next, sink),
            "toolResult" => open.result(value),
            "image" => {
                if let Some(data) = super::super::content::bytes_of(value)? {
                    open.image(data, sink);
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(length)
}

/// Reads reasoning: of a delta, or the nested form of a whole block.
fn read_reasoning(
    open: &mut OpenBlock,
    value: RawJson<'_>,
    next: &mut u32,
    sink: &mut impl FnMut(Event<'_>),
) -> Result<(), JsonError> {
    let mut signature = JsonStr::default();
    members(&mut Cursor::new(value.text()), |key, json| {
        let value = json.raw()?;
        let text = value.as_str().unwrap_or_default();
        match key.escaped() {
            "text" => open.reasoning(text, next, sink),
            "signature" => signature = text,
            "redactedContent" => open.signature(text, true, next, sink),
            "reasoningText" => read_reasoning(open, value, next, sink)?,
            _ => {}
        }
        Ok(())
    })?;
    // Behind the text: members come in any order, and Bedrock sorts them by name.
    open.signature(signature, false, next, sink);
    Ok(())
}

/// Reads `citationsContent`, which replaces the text block of a cited passage.
fn read_cited(
    open: &mut OpenBlock,
    value: RawJson<'_>,
    next: &mut u32,
    sink: &mut impl FnMut(Event<'_>),
) -> Result<(), JsonError> {
    let mut citations = None;
    members(&mut Cursor::new(value.text()), |key, json| {
        match key.escaped() {
            "content" => {
                elements(json, |json| {
                    members(json, |key, json| {
                        let value = json.raw()?;
                        if key.is("text") {
                            open.text(value.as_str().unwrap_or_default(), next, sink);
                        }
                        Ok(())
                    })
                })?;
            }
            "citations" => citations = Some(json.raw()?),
            _ => json.skip()?,
        }
        Ok(())
    })?;
    if let Some(citations) = citations {
        elements(&mut Cursor::new(citations.text()), |json| {
            open.cite(citation::read(json.raw()?)?, next, sink);
            Ok(())
        })?;
    }
    Ok(())
}
