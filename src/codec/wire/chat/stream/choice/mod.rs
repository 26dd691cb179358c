//! Decoder state of one choice: the open block, and how a delta extends it.
//!
//! Media, citations and log probabilities are in `attached`. Parsing of the chunk itself does not belong here.

mod attached;

use crate::canonical::answer::FinishOwned;
use crate::canonical::{BlockKind, Delta, Event};
use crate::wire::Format;
use crate::wire::chat::details::{Detail, DetailKind};
use crate::wire::chat::enums::thought_signature;
use crate::wire::finish_words::{self, BrokenOff};
use crate::wire::watch::{elements, members};
use json::{Cursor, JsonError, JsonStr, RawJson, TemplateMatch};

use super::calls::{ChoiceCalls, Fragment};
use super::fast_path::DeltaKind;
use super::ids::IdCounters;
use super::parsed_choice::{ChoiceMembers, DeltaMembers};
use super::tags::Tags;

/// Open block other than a call.
#[derive(Clone, Copy, Debug)]
struct Open {
    index: u32,
    kind: Kind,
    sealed: bool,
    /// Whether its text is the summary of reasoning that arrives encrypted.
    summary: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Refusal,
    Reasoning,
    Sound,
}

/// Decoder state of a choice.
#[derive(Debug, Default)]
pub(super) struct ChoiceDecoder {
    pub(super) index: u32,
    open: Option<Open>,
    calls: ChoiceCalls,
    /// Whether its text has citations.
    cited: bool,
    /// Splitter of reasoning tags. `None` if tags are not expected, or can no longer follow.
    tags: Option<Box<Tags>>,
    /// Whether the current chunk contains its finish reason.
    ending: bool,
    /// Its finish reason, or the end of a response that broke off.
    finish: Option<Result<FinishOwned, BrokenOff>>,
}

impl ChoiceDecoder {
    /// Creates the state. With `tagged`, the text may begin with reasoning between tags.
    pub(super) fn new(index: u32, tagged: bool) -> Self {
        ChoiceDecoder { index, tags: tagged.then(Box::default), ..ChoiceDecoder::default() }
    }

    /// Processes the members of the choice in one chunk.
    pub(super) fn take(
        &mut self,
        said: &ChoiceMembers<'_>,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        match (&said.delta, said.message) {
            (Some(words), _) => self.words(words, ids, sink)?,
            (None, Some(message)) => {
                self.words(&DeltaMembers::read(&mut Cursor::new(message.text()))?, ids, sink)?;
            }
            (None, None) => {}
        }
        if let Some(logprobs) = said.logprobs {
            self.logprobs(logprobs, sink)?;
        }
        if !said.finish.is_empty() && !matches!(self.finish, Some(Err(_))) {
            let finish = finish_words::decode(Format::Chat, said.finish, Some(said.sequence), false);
            // The blocks of a choice that broke off stay open, as those of a stream that is cut: a call that is half
            // written must not look complete.
            self.ending = finish.is_ok();
            self.finish = Some(finish);
        }
        Ok(())
    }

    /// Processes the text of a chunk that matched the template of the last one.
    #[inline]
    pub(super) fn templated_text(
        &mut self,
        what: DeltaKind,
        cast: &TemplateMatch<'_>,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        match what {
            DeltaKind::Content => self.text(Kind::Text, cast.text(), ids, sink),
            DeltaKind::Reasoning => self.text(Kind::Reasoning, cast.text(), ids, sink),
            DeltaKind::Input(fragment) => {
                let fragment = fragment.with_input(cast.value());
                if !fragment.is_void() {
                    self.close(sink);
                    self.calls.take(&fragment, self.index, ids, sink);
                }
            }
        }
    }

    fn words(
        &mut self,
        words: &DeltaMembers<'_>,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        // A delta may have several members. Emit them in the order in which models produce them: reasoning, text,
        // calls.
        self.reasoning(words, ids, sink)?;
        if let Some(content) = words.content {
            match content.as_str() {
                Some(text) => self.text(Kind::Text, text, ids, sink),
                None => self.parts(content, ids, sink)?,
            }
        }
        if let Some(refusal) = words.refusal.and_then(RawJson::as_str) {
            self.text(Kind::Refusal, refusal, ids, sink);
        }
        self.call(words, ids, sink)?;
        if let Some(images) = words.images {
            elements(&mut Cursor::new(images.text()), |json| {
                let image = json.raw()?;
                self.image(image, ids, sink);
                Ok(())
            })?;
        }
        if let Some(audio) = words.audio {
            self.sound(audio, ids, sink)?;
        }
        if let Some(annotations) = words.annotations {
            elements(&mut Cursor::new(annotations.text()), |json| {
                let annotation = json.raw()?;
                self.citation(annotation, ids, sink)
            })?;
        }
        Ok(())
    }

    /// Emits text of one kind, in the open block or a new one.
    #[inline]
    fn text(
        &mut self,
        kind: Kind,
        text: JsonStr<'_>,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        if text.is_empty() {
            return;
        }
        // Only for models with tags; all others pay one comparison.
        if self.tags.is_some() && self.tagged(kind, text, ids, sink) {
            return;
        }
        let index = self.open(kind, ids, sink);
        sink(Event::Delta { index, delta: Delta::Text(text) });
    }

    /// Emits text that may contain tags. Returns true if the text was consumed.
    #[cold]
    fn tagged(
        &mut self,
        kind: Kind,
        text: JsonStr<'_>,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) -> bool {
        if kind != Kind::Text {
            self.untag(ids, sink);
            return false;
        }
        let Some(mut tags) = self.tags.take() else { return false };
        let more = tags.split(text.escaped(), |inside, text| self.tagged_text(inside, text, ids, sink));
        self.tags = more.then_some(tags);
        true
    }

    /// Emits text from inside or behind the tags.
    #[cold]
    fn tagged_text(
        &mut self,
        inside: bool,
        text: &str,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        let index = self.open(if inside { Kind::Reasoning } else { Kind::Text }, ids, sink);
        sink(Event::Delta { index, delta: Delta::Text(JsonStr::from_escaped(text)) });
    }

    /// Ends the search for tags, because something other than text follows, and emits the text that was held back.
    fn untag(&mut self, ids: &mut IdCounters, sink: &mut impl FnMut(Event<'_>)) {
        if let Some((inside, rest)) = self.tags.take().map(|tags| tags.into_rest())
            && !rest.is_empty()
        {
            self.tagged_text(inside, &rest, ids, sink);
        }
    }

    /// Returns the open block of this kind. Opens one if necessary.
    #[inline]
    fn open(&mut self, kind: Kind, ids: &mut IdCounters, sink: &mut impl FnMut(Event<'_>)) -> u32 {
        match self.open {
            // A provider signature ends a reasoning block; later reasoning belongs to a new one.
            Some(open) if open.kind == kind && !(open.sealed && kind == Kind::Reasoning) => open.index,
            _ => self.begin(kind, "", ids, sink),
        }
    }

    fn begin(
        &mut self,
        kind: Kind,
        mime: &str,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) -> u32 {
        self.close(sink);
        self.calls.close_complete(sink);
        let index = ids.next_block();
        self.open = Some(Open { index, kind, sealed: false, summary: false });
        let kind = match kind {
            Kind::Text => BlockKind::Text,
            Kind::Refusal => BlockKind::Refusal,
            Kind::Reasoning => BlockKind::Reasoning,
            Kind::Sound => BlockKind::Media { mime: JsonStr::from_escaped(mime) },
        };
        sink(Event::BlockStart { index, choice: self.index, kind });
        index
    }

    fn close(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        if let Some(open) = self.open.take() {
            sink(Event::BlockStop { index: open.index });
        }
    }

    /// Emits a block with a single delta.
    fn whole(
        &mut self,
        kind: BlockKind<'_>,
        delta: Delta<'_>,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        self.untag(ids, sink);
        self.close(sink);
        // Calls with complete input end here, so that blocks overlap as little as possible.
        self.calls.close_complete(sink);
        let index = ids.next_block();
        sink(Event::BlockStart { index, choice: self.index, kind });
        sink(Event::Delta { index, delta });
        sink(Event::BlockStop { index });
    }

    fn seal(&mut self, seal: &str, sink: &mut impl FnMut(Event<'_>)) -> bool {
        match &mut self.open {
            Some(open) if !open.sealed && matches!(open.kind, Kind::Text | Kind::Reasoning) => {
                // A block has at most one signature.
                open.sealed = true;
                let (index, delta) = (open.index, Delta::Signature(JsonStr::from_escaped(seal)));
                sink(Event::Delta { index, delta });
                true
            }
            _ => false,
        }
    }

    /// Emits reasoning. It has three member names; some providers send the same text under two of them.
    fn reasoning(
        &mut self,
        words: &DeltaMembers<'_>,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let names = [words.reasoning_content, words.reasoning];
        let mut said = names.into_iter().flatten().filter_map(RawJson::as_str);
        let plain = said.find(|text| !text.is_empty());
        let Some(details) = words.details else {
            if let Some(plain) = plain {
                self.text(Kind::Reasoning, plain, ids, sink);
            }
            return Ok(());
        };
        // If the details repeat the plain text exactly, use them: they also mark the boundaries of reasoning blocks.
        let mut rest = plain.map_or("", JsonStr::escaped);
        let mut same = true;
        Detail::each(details, |detail| match rest.strip_prefix(detail.text.escaped()) {
            Some(after) => rest = after,
            None => same = false,
        })?;
        // If they differ, the plain text is emitted, and the details only contribute their signatures.
        let detailed = plain.is_none() || (same && rest.is_empty());
        if let (false, Some(plain)) = (detailed, plain) {
            self.text(Kind::Reasoning, plain, ids, sink);
        }
        Detail::each(details, |detail| {
            if detailed {
                self.text(Kind::Reasoning, detail.text, ids, sink);
            }
            self.detail(&detail, ids, sink);
        })
    }

    /// Emits the provider signature of a detail.
    fn detail(&mut self, detail: &Detail<'_>, ids: &mut IdCounters, sink: &mut impl FnMut(Event<'_>)) {
        if let (Some(open), false) = (&mut self.open, detail.text.is_empty()) {
            open.summary = detail.kind == DetailKind::Summary;
        }
        if !detail.has_signature() {
            return;
        }
        let seal = detail.signature();
        let summary = matches!(self.open, Some(Open { kind: Kind::Reasoning, summary: true, .. }));
        match detail.kind {
            // Encrypted reasoning behind its summary belongs to the same block.
            DetailKind::Encrypted if summary && self.seal(&seal, sink) => {}
            DetailKind::Encrypted => {
                let delta = Delta::Signature(JsonStr::from_escaped(&seal));
                self.whole(BlockKind::Reasoning, delta, ids, sink);
            }
            DetailKind::Text | DetailKind::Summary => {
                self.open(Kind::Reasoning, ids, sink);
                self.seal(&seal, sink);
            }
        }
    }

    /// Emits the content of a message that is a list of parts instead of a string.
    fn parts(
        &mut self,
        content: RawJson<'_>,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        elements(&mut Cursor::new(content.text()), |json| {
            let part = json.raw()?;
            if let Some(text) = part.as_str() {
                self.text(Kind::Text, text, ids, sink);
                return Ok(());
            }
            let (mut image, mut thinking) = (false, None);
            let (mut text, mut refusal) = (JsonStr::default(), JsonStr::default());
            members(&mut Cursor::new(part.text()), |key, json| {
                let value = json.raw()?;
                match key.escaped() {
                    "text" => text = value.as_str().unwrap_or_default(),
                    "refusal" => refusal = value.as_str().unwrap_or_default(),
                    "thinking" => thinking = Some(value),
                    "image_url" => image = true,
                    _ => {}
                }
                Ok(())
            })?;
            if let Some(thinking) = thinking {
                self.thinking(thinking, ids, sink)?;
            }
            self.text(Kind::Text, text, ids, sink);
            self.text(Kind::Refusal, refusal, ids, sink);
            if image {
                self.image(part, ids, sink);
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Emits the `thinking` of a part: a string, or a list of parts with a text each.
    fn thinking(
        &mut self,
        thinking: RawJson<'_>,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        if let Some(text) = thinking.as_str() {
            self.text(Kind::Reasoning, text, ids, sink);
            return Ok(());
        }
        elements(&mut Cursor::new(thinking.text()), |json| {
            members(json, |key, json| {
                let value = json.raw()?;
                if key.is("text") {
                    self.text(Kind::Reasoning, value.as_str().unwrap_or_default(), ids, sink);
                }
                Ok(())
            })
        })?;
        Ok(())
    }

    fn call(
        &mut self,
        words: &DeltaMembers<'_>,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        // One provider puts the signature on the message instead of the call.
        let mut signature = words.extra.map(thought_signature).unwrap_or_default();
        let mut called = false;
        if let Some(calls) = words.calls {
            elements(&mut Cursor::new(calls.text()), |json| {
                let mut fragment = Fragment::read(json)?;
                if fragment.is_void() {
                    return Ok(());
                }
                called = true;
                if fragment.signature.is_empty() {
                    fragment.signature = std::mem::take(&mut signature);
                }
                self.untag(ids, sink);
                self.close(sink);
                self.calls.take(&fragment, self.index, ids, sink);
                Ok(())
            })?;
        }
        if let (false, Some(legacy)) = (called, words.legacy) {
            let fragment = Fragment::read_legacy(legacy)?;
            if !fragment.is_void() {
                self.untag(ids, sink);
                self.close(sink);
                self.calls.take(&fragment, self.index, ids, sink);
            }
        }
        if !signature.is_empty() {
            self.seal(signature.escaped(), sink);
        }
        Ok(())
    }

    /// Closes the blocks of a choice whose finish reason is in this chunk. `sources` are citations of the whole
    /// response.
    pub(super) fn close_finished(
        &mut self,
        sources: Option<RawJson<'_>>,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        if std::mem::replace(&mut self.ending, false) {
            self.untag(ids, sink);
            // Citations in the message are more precise than the list, so the list is the fallback.
            if let (Some(sources), false) = (sources, self.cited) {
                self.sources(sources, ids, sink)?;
            }
            self.close(sink);
            self.calls.close(sink);
        }
        Ok(())
    }

    /// Returns whether the provider has sent a finish reason, or a word that means that the choice broke off.
    pub(super) fn has_finish(&self) -> bool {
        self.finish.is_some()
    }

    /// Returns whether the choice stands in the middle of a call, without a finish reason.
    pub(super) fn is_cut_in_a_call(&self) -> bool {
        self.finish.is_none() && self.calls.is_half()
    }

    /// Returns the end of a choice that broke off.
    pub(super) fn broken_off(&self) -> Option<&BrokenOff> {
        match &self.finish {
            Some(Err(broken)) if !(self.calls.are_whole() && broken.is_whole_with_call()) => Some(broken),
            _ => None,
        }
    }

    /// Closes all blocks and emits the finish reason.
    pub(super) fn end(&mut self, ids: &mut IdCounters, sink: &mut impl FnMut(Event<'_>)) {
        self.untag(ids, sink);
        self.close(sink);
        self.calls.close(sink);
        let said = match self.finish.take() {
            None => FinishOwned::Stop,
            Some(said) => said.unwrap_or(FinishOwned::ToolUse),
        };
        // Some providers report `stop` or nothing although tools are called. Clients would then not run the tools.
        let finish = match said {
            FinishOwned::Stop | FinishOwned::StopSequence(_) if self.calls.any() => FinishOwned::ToolUse,
            said => said,
        };
        sink(Event::Finish { choice: self.index, finish: finish.borrow() });
    }
}
