//! One choice of an answer: which block is open, and what a delta adds to it.
//!
//! Media and sources are in a file of their own. Here must not live: how a chunk is taken apart.

mod attached;

use crate::canonical::answer::FinishOwned;
use crate::canonical::{BlockKind, Delta, Event};
use crate::json::{Cursor, JsonError, JsonStr, RawJson, TemplateMatch};
use crate::wire::chat::details::{Detail, DetailKind};
use crate::wire::chat::enums::{finish, thought_signature};
use crate::wire::watch::{elements, members};

use super::calls::{Calls, Fragment};
use super::fast_path::What;
use super::ids::Ids;
use super::parsed_choice::{Said, Words};
use super::tags::Tags;

/// A block that is open, beside calls.
#[derive(Clone, Copy, Debug)]
struct Open {
    index: u32,
    kind: Kind,
    sealed: bool,
    /// What it shows is the summary of what comes encrypted.
    summary: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Refusal,
    Reasoning,
    Sound,
}

/// What must be remembered of a choice.
#[derive(Debug, Default)]
pub(super) struct Choice {
    pub(super) index: u32,
    open: Option<Open>,
    calls: Calls,
    /// Its text has sources.
    cited: bool,
    /// What tells reasoning from answer where both are text.
    tags: Option<Box<Tags>>,
    /// The chunk that is being read says why it ended.
    ending: bool,
    finish: Option<FinishOwned>,
}

impl Choice {
    /// `tagged`: its text may begin with reasoning between tags.
    pub(super) fn new(index: u32, tagged: bool) -> Self {
        Choice { index, tags: tagged.then(Box::default), ..Choice::default() }
    }

    /// Takes what a chunk says.
    pub(super) fn take(
        &mut self,
        said: &Said<'_>,
        ids: &mut Ids,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        match (&said.delta, said.message) {
            (Some(words), _) => self.words(words, ids, sink)?,
            (None, Some(message)) => {
                self.words(&Words::read(&mut Cursor::new(message.text()))?, ids, sink)?;
            }
            (None, None) => {}
        }
        if let Some(logprobs) = said.logprobs {
            self.logprobs(logprobs, sink)?;
        }
        if !said.finish.is_empty() {
            self.ending = true;
            self.finish = Some(finish(said.finish, said.sequence));
        }
        Ok(())
    }

    /// Takes the text of a chunk that is like the last one.
    #[inline]
    pub(super) fn usual(
        &mut self,
        what: What,
        cast: &TemplateMatch<'_>,
        ids: &mut Ids,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        match what {
            What::Content => self.text(Kind::Text, cast.text(), ids, sink),
            What::Reasoning => self.text(Kind::Reasoning, cast.text(), ids, sink),
            What::Input(fragment) => {
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
        words: &Words<'_>,
        ids: &mut Ids,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
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

    /// Text of any kind that comes in pieces.
    #[inline]
    fn text(&mut self, kind: Kind, text: JsonStr<'_>, ids: &mut Ids, sink: &mut impl FnMut(Event<'_>)) {
        if text.is_empty() {
            return;
        }
        if self.tags.is_some() && self.tagged(kind, text, ids, sink) {
            return;
        }
        let index = self.open(kind, ids, sink);
        sink(Event::Delta { index, delta: Delta::Text(text) });
    }

    /// Text in which there may be tags; true if that is all there is to it.
    #[cold]
    fn tagged(
        &mut self,
        kind: Kind,
        text: JsonStr<'_>,
        ids: &mut Ids,
        sink: &mut impl FnMut(Event<'_>),
    ) -> bool {
        if kind != Kind::Text {
            self.untag(ids, sink);
            return false;
        }
        let Some(mut tags) = self.tags.take() else { return false };
        let more = tags.split(text.escaped(), |inside, text| self.said(inside, text, ids, sink));
        self.tags = more.then_some(tags);
        true
    }

    /// Text between tags, or behind them.
    #[cold]
    fn said(&mut self, inside: bool, text: &str, ids: &mut Ids, sink: &mut impl FnMut(Event<'_>)) {
        let index = self.open(if inside { Kind::Reasoning } else { Kind::Text }, ids, sink);
        sink(Event::Delta { index, delta: Delta::Text(JsonStr::from_escaped(text)) });
    }

    /// Something follows that is no text: no tag comes any more.
    fn untag(&mut self, ids: &mut Ids, sink: &mut impl FnMut(Event<'_>)) {
        if let Some((inside, rest)) = self.tags.take().map(|tags| tags.into_rest())
            && !rest.is_empty()
        {
            self.said(inside, &rest, ids, sink);
        }
    }

    /// The open block of this kind, opened if need be.
    #[inline]
    fn open(&mut self, kind: Kind, ids: &mut Ids, sink: &mut impl FnMut(Event<'_>)) -> u32 {
        match self.open {
            // What comes behind a seal is another thought.
            Some(open) if open.kind == kind && !(open.sealed && kind == Kind::Reasoning) => open.index,
            _ => self.begin(kind, "", ids, sink),
        }
    }

    fn begin(&mut self, kind: Kind, mime: &str, ids: &mut Ids, sink: &mut impl FnMut(Event<'_>)) -> u32 {
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

    /// A block that begins and ends here.
    fn whole(
        &mut self,
        kind: BlockKind<'_>,
        delta: Delta<'_>,
        ids: &mut Ids,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        self.untag(ids, sink);
        self.close(sink);
        self.calls.close_complete(sink);
        let index = ids.next_block();
        sink(Event::BlockStart { index, choice: self.index, kind });
        sink(Event::Delta { index, delta });
        sink(Event::BlockStop { index });
    }

    fn seal(&mut self, seal: &str, sink: &mut impl FnMut(Event<'_>)) -> bool {
        match &mut self.open {
            Some(open) if !open.sealed && matches!(open.kind, Kind::Text | Kind::Reasoning) => {
                open.sealed = true;
                let (index, delta) = (open.index, Delta::Seal(JsonStr::from_escaped(seal)));
                sink(Event::Delta { index, delta });
                true
            }
            _ => false,
        }
    }

    /// Reasoning has three names; some say the same under two of them.
    fn reasoning(
        &mut self,
        words: &Words<'_>,
        ids: &mut Ids,
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
        // Where the details say exactly the same, they also say where one thought ends and the next begins.
        let mut rest = plain.map_or("", JsonStr::escaped);
        let mut same = true;
        Detail::each(details, |detail| match rest.strip_prefix(detail.text.escaped()) {
            Some(after) => rest = after,
            None => same = false,
        })?;
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

    /// What must come back of a detail, beside its text.
    fn detail(&mut self, detail: &Detail<'_>, ids: &mut Ids, sink: &mut impl FnMut(Event<'_>)) {
        if let (Some(open), false) = (&mut self.open, detail.text.is_empty()) {
            open.summary = detail.kind == DetailKind::Summary;
        }
        if !detail.has_seal() {
            return;
        }
        let seal = detail.seal();
        let summary = matches!(self.open, Some(Open { kind: Kind::Reasoning, summary: true, .. }));
        match detail.kind {
            DetailKind::Encrypted if summary && self.seal(&seal, sink) => {}
            DetailKind::Encrypted => {
                let delta = Delta::Seal(JsonStr::from_escaped(&seal));
                self.whole(BlockKind::HiddenReasoning, delta, ids, sink);
            }
            DetailKind::Text | DetailKind::Summary => {
                self.open(Kind::Reasoning, ids, sink);
                self.seal(&seal, sink);
            }
        }
    }

    /// A list of parts instead of a text.
    fn parts(
        &mut self,
        content: RawJson<'_>,
        ids: &mut Ids,
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

    /// `thinking`: a text, or a list of parts with one each.
    fn thinking(
        &mut self,
        thinking: RawJson<'_>,
        ids: &mut Ids,
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
        words: &Words<'_>,
        ids: &mut Ids,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        // One provider signs the message instead of the call.
        let mut signature = words.extra.map(thought_signature).unwrap_or_default();
        let mut called = false;
        if let Some(calls) = words.calls {
            elements(&mut Cursor::new(calls.text()), |json| {
                let mut fragment = Fragment::read(json)?;
                if fragment.is_void() {
                    return Ok(());
                }
                called = true;
                if fragment.seal.is_empty() {
                    fragment.seal = std::mem::take(&mut signature);
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

    fn logprobs(&mut self, logprobs: RawJson<'_>, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        let Some(Open { index, kind: kind @ (Kind::Text | Kind::Refusal), .. }) = self.open else {
            return Ok(());
        };
        let name = if kind == Kind::Text { "content" } else { "refusal" };
        members(&mut Cursor::new(logprobs.text()), |key, json| {
            let list = json.raw()?;
            let some = list.text().strip_prefix('[').is_some_and(|rest| !rest.trim_start().starts_with(']'));
            if key.is(name) && some {
                sink(Event::Delta { index, delta: Delta::Logprobs(list) });
            }
            Ok(())
        })
    }

    /// Ends the blocks of a choice that ends with this chunk, which may have a list of its sources.
    pub(super) fn settle(
        &mut self,
        sources: Option<RawJson<'_>>,
        ids: &mut Ids,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        if std::mem::replace(&mut self.ending, false) {
            self.untag(ids, sink);
            if let (Some(sources), false) = (sources, self.cited) {
                self.sources(sources, ids, sink)?;
            }
            self.close(sink);
            self.calls.close(sink);
        }
        Ok(())
    }

    /// Whether the provider has said why this choice ended.
    pub(super) fn has_finish(&self) -> bool {
        self.finish.is_some()
    }

    /// Ends the choice.
    pub(super) fn end(&mut self, ids: &mut Ids, sink: &mut impl FnMut(Event<'_>)) {
        self.untag(ids, sink);
        self.close(sink);
        self.calls.close(sink);
        let said = self.finish.take().unwrap_or(FinishOwned::Stop);
        // Some say a plain stop, or nothing, although they call tools.
        let finish = match said {
            FinishOwned::Stop | FinishOwned::StopSequence(_) if self.calls.any() => FinishOwned::ToolUse,
            said => said,
        };
        sink(Event::Finish { choice: self.index, finish: finish.borrow() });
    }
}
