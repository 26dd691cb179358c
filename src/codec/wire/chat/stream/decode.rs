//! Stream decoder of the chat format: chunks of any provider to events.

use smallvec::SmallVec;

use super::choice::ChoiceDecoder;
use super::fast_path::FastPath;
use super::ids::IdCounters;
use super::parsed_choice::{ChoiceMembers, DeltaMembers};
use crate::canonical::answer::MAX_CHOICES;
use crate::canonical::{Event, Index, IndexKey, ServiceTier, Start, Usage};
use crate::wire::base_resp;
use crate::wire::chat::bare_error::bare_error;
use crate::wire::chat::watch::usage;
use crate::wire::codec::CutText;
use crate::wire::tier_words::TierWords;
use crate::wire::watch::{elements, members};
use json::{Cursor, FrameTemplate, JsonError, JsonStr, RawJson, TemplateParts, ValueKind};

/// Decoder of a chat stream, or of one whole completion.
#[derive(Debug)]
pub struct Decoder {
    ids: IdCounters,
    choices: SmallVec<[ChoiceDecoder; 1]>,
    /// Positions of choices by their index.
    places: Index,
    started: bool,
    over: bool,
    /// Whether the input is one completion, whose `message` takes precedence over a `delta`.
    whole: bool,
    /// Whether texts may begin with reasoning between tags.
    tagged: bool,
    /// Beginning of the last chunk up to the value of `choices`, empty if it contains other facts. Most chunks of a
    /// stream begin alike, so that this part need not be parsed again.
    head: String,
    /// Template of the last chunk that only appended text, and the target of that text. Most chunks differ from the
    /// previous one in a single string.
    mould: FrameTemplate,
    usual: FastPath,
    /// Service tier as the last chunk that has one states it.
    tier: Option<ServiceTier>,
    /// Whether usage with this tier was emitted.
    tier_is_told: bool,
}

/// Members of a chunk besides its choices.
#[derive(Default)]
struct Frame<'a> {
    /// Start of the response, from the members before `choices`.
    start: Start<'a>,
    has_choices: bool,
    usage: Option<RawJson<'a>>,
    usage_elsewhere: Option<RawJson<'a>>,
    error: Option<RawJson<'a>>,
    /// Citations of the whole response.
    citations: Option<RawJson<'a>>,
    /// Positions of the choices whose finish reason is in this chunk.
    ending: SmallVec<[usize; 1]>,
    /// Whether it is an error, which is not in a member `error`.
    is_error: bool,
    /// Number of choices in the chunk.
    choices: usize,
    /// Target and text of the last choice, if it only appends text.
    usual: Option<(FastPath, JsonStr<'a>)>,
    /// Random padding that hides the length of the text.
    padding: JsonStr<'a>,
}

impl<'a> Frame<'a> {
    /// Returns the varying parts of a chunk that only appends text. `None` for any other chunk.
    fn varying(&self) -> Option<(FastPath, TemplateParts<'a>)> {
        let said = [self.usage, self.usage_elsewhere].into_iter().flatten().any(|usage| !usage.is_null());
        let (usual, text) =
            self.usual.filter(|_| self.choices == 1 && !said && self.error.is_none() && !self.is_error)?;
        Some((usual, TemplateParts { text, padding: self.padding, numbers: None }))
    }
}

impl Frame<'_> {
    /// Returns whether the members so far hold no fact, so that the same beginning can be skipped next time.
    fn says_nothing(&self) -> bool {
        let said = [self.usage, self.usage_elsewhere, self.error, self.citations];
        !self.has_choices && !self.is_error && said.iter().all(Option::is_none)
    }
}

impl Decoder {
    /// Creates a decoder of one response. Ids that the provider does not supply are made from `seed`.
    pub fn new(seed: &str) -> Self {
        Decoder {
            ids: IdCounters::new(seed),
            choices: SmallVec::new(),
            places: Index::default(),
            started: false,
            over: false,
            whole: false,
            tagged: false,
            head: String::new(),
            mould: FrameTemplate::default(),
            usual: FastPath::default(),
            tier: None,
            tier_is_told: false,
        }
    }

    /// Sets whether the text of a response may begin with reasoning between `<think>` and `</think>`.
    #[must_use]
    pub fn with_tags(self, tagged: bool) -> Self {
        Decoder { tagged, ..self }
    }

    /// Creates a decoder of one whole completion.
    pub(in crate::wire::chat) fn whole(seed: &str) -> Self {
        Decoder { whole: true, ..Decoder::new(seed) }
    }

    /// Decodes the data of one frame.
    ///
    /// # Errors
    /// Returns [`JsonError`] if the data is not JSON or does not have the shape of this format.
    #[inline]
    pub fn frame(&mut self, data: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        if self.over || data.is_empty() {
            return Ok(());
        }
        // SDKs compare only the beginning of the data.
        if data.starts_with("[DONE]") {
            // A relay whose own source broke off ends its stream all the same. Without a finish reason the text may be
            // whole, half a call is not: the end of the stream reports it as cut.
            if !self.choices.iter().any(ChoiceDecoder::is_cut_in_a_call) {
                self.end(sink);
            }
            return Ok(());
        }
        self.document(data, sink)
    }

    /// Ends the response because the upstream closed the stream.
    ///
    /// # Errors
    /// Returns [`CutText`] if the response is incomplete: a choice has no finish reason.
    pub fn finish(&mut self, sink: &mut impl FnMut(Event<'_>)) -> Result<(), CutText> {
        if self.over {
            return Ok(());
        }
        // Some providers never send `[DONE]`; finish reasons are sufficient.
        let has_broken_off = self.choices.iter().any(|choice| choice.broken_off().is_some());
        if !self.is_finished() && !has_broken_off {
            return Err(CutText);
        }
        self.end(sink);
        Ok(())
    }

    /// Returns whether the response has choices and all of them have a finish reason. Not if it broke off.
    pub fn has_reason(&self) -> bool {
        self.is_finished() && self.choices.iter().all(|choice| choice.broken_off().is_none())
    }

    /// Returns whether the response has choices and all of them have ended.
    fn is_finished(&self) -> bool {
        !self.choices.is_empty() && self.choices.iter().all(ChoiceDecoder::has_finish)
    }

    /// Returns whether the response has ended. Later frames are ignored.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Emits the finish reasons and ends the response. This is delayed until here because most providers send usage
    /// after the finish reason, some send an error after it, and some repeat it.
    pub(in crate::wire::chat) fn end(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        // A lone `[DONE]` is not a response; the missing start is reported as a cut stream.
        if !self.started || self.over {
            return;
        }
        self.over = true;
        if let Some(broken) = self.choices.iter().find_map(ChoiceDecoder::broken_off) {
            broken.emit(sink);
            return;
        }
        if self.tier.is_some() && !self.tier_is_told {
            sink(Event::Usage(Usage { tier: self.tier, ..Usage::default() }));
        }
        self.choices.sort_unstable_by_key(|choice| choice.index);
        for choice in &mut self.choices {
            choice.end(&mut self.ids, sink);
        }
        sink(Event::End);
    }

    /// Decodes one chunk or completion.
    pub(in crate::wire::chat) fn document(
        &mut self,
        text: &str,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        // Fast path: a chunk that differs from the last one only in its text is not parsed at all.
        if let Some(cast) = self.mould.fit(text) {
            let at = self.place(self.usual.choice);
            let Decoder { ids, choices, usual, .. } = self;
            if let Some(choice) = at.and_then(|at| choices.get_mut(at)) {
                choice.templated_text(usual.what, &cast, ids, sink);
            }
            return Ok(());
        }
        let mut frame = Frame::default();
        let mut json;
        // Same beginning as the last chunk: continue behind it, directly at the value of `choices`.
        if !self.head.is_empty() && text.as_bytes().starts_with(self.head.as_bytes()) {
            json = Cursor::resume(text, self.head.len());
            self.choices(text, &mut json, &mut frame, sink)?;
        } else {
            json = Cursor::new(text);
            json.begin_object()?;
        }
        while let Some(key) = json.next_key()? {
            match key.escaped() {
                "choices" => {
                    self.keep_head(&frame, text, json.offset());
                    self.choices(text, &mut json, &mut frame, sink)?;
                }
                "id" => frame.start.id = json.raw()?.as_str().unwrap_or_default(),
                "model" => frame.start.model = json.raw()?.as_str().unwrap_or_default(),
                "created" => frame.start.created = created(&mut json)?,
                "usage" => frame.usage = Some(json.raw()?),
                "service_tier" => {
                    let told = json.raw()?.as_str().and_then(|word| TierWords::OpenAi.told(word));
                    self.tier_is_told &= told.is_none() || told == self.tier;
                    self.tier = told.or(self.tier);
                }
                "citations" => {
                    frame.citations = Some(json.raw()?).filter(|list| list.text().starts_with('['))
                }
                "x_groq" => members(&mut json, |key, json| {
                    let value = json.raw()?;
                    match key.escaped() {
                        "usage" => frame.usage_elsewhere = Some(value),
                        "error" => frame.error = Some(value).filter(|error| !error.is_void()),
                        _ => {}
                    }
                    Ok(())
                })?,
                "error" => frame.error = Some(json.raw()?).filter(|error| !error.is_void()).or(frame.error),
                // A result of MiniMax, which has no choices if it is an error.
                "base_resp" => frame.is_error |= base_resp::is_error(json.raw()?),
                "object" => frame.is_error |= json.raw()?.as_str().is_some_and(|object| object.is("error")),
                "obfuscation" => frame.padding = json.raw()?.as_str().unwrap_or_default(),
                _ => json.skip()?,
            }
        }
        json.end()?;
        self.cast(&frame, text);
        self.rest(&frame, text, sink)
    }

    #[inline]
    fn choices<'a>(
        &mut self,
        text: &'a str,
        json: &mut Cursor<'a>,
        frame: &mut Frame<'a>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        frame.has_choices = true;
        // Choices are emitted while they are parsed, so the start must come first.
        if !self.started {
            self.start(text, json, frame.start, sink)?;
        }
        elements(json, |json| self.choice(json, frame, sink)).map(drop)
    }

    /// Updates the template from a parsed chunk.
    fn cast(&mut self, frame: &Frame<'_>, text: &str) {
        match frame.varying().filter(|_| !self.whole) {
            Some((usual, varying)) => {
                self.usual = usual;
                self.mould.take(text, &varying);
            }
            None => self.mould.clear(),
        }
    }

    /// Returns the position of a choice. Most providers send choices in index order, so the index is tried as position
    /// first.
    #[inline]
    fn place(&self, index: u32) -> Option<usize> {
        let usual = index as usize;
        match self.choices.get(usual) {
            Some(choice) if choice.index == index => Some(usual),
            _ => self.places.first(IndexKey::of(index)),
        }
    }

    fn keep_head(&mut self, frame: &Frame<'_>, text: &str, end: usize) {
        self.head.clear();
        if frame.says_nothing() {
            self.head.push_str(text.get(..end).unwrap_or_default());
        }
    }

    /// Processes the members of a chunk besides its choices, after them.
    #[inline]
    fn rest(
        &mut self,
        frame: &Frame<'_>,
        text: &str,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        for at in &frame.ending {
            let Decoder { ids, choices, .. } = self;
            choices
                .get_mut(*at)
                .map_or(Ok(()), |choice| choice.close_finished(frame.citations, ids, sink))?;
        }
        let is_object = |value: &RawJson<'_>| value.text().starts_with('{');
        let said = frame.usage.filter(is_object).or(frame.usage_elsewhere.filter(is_object));
        if let Some(said) = said {
            let usage = usage(said)?;
            if usage.is_known() {
                sink(Event::Usage(Usage { tier: self.tier, ..usage }));
                self.tier_is_told = true;
            }
        }
        let is_empty = frame.choices == 0 && said.is_none() && frame.error.is_none();
        if frame.error.is_some() || frame.is_error || (is_empty && bare_error(text)?.is_some()) {
            self.over = true;
            // An `error` that is not an object has its details beside it, so pass on the whole chunk.
            let error = frame.error.filter(is_object).unwrap_or(RawJson::from_text(text.trim_ascii()));
            sink(Event::Error(error));
        }
        Ok(())
    }

    /// Emits the start of the response at the first chunk that has a choice. One provider's first chunk has neither
    /// choice nor id. A few providers write `id`, `model` or `created` behind `choices`, so the whole chunk is searched
    /// for them.
    #[cold]
    fn start<'a>(
        &mut self,
        text: &'a str,
        json: &Cursor<'a>,
        mut start: Start<'a>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let mut ahead = json.clone();
        if ahead.kind()? != ValueKind::Array {
            return Ok(());
        }
        ahead.begin_array()?;
        if !ahead.next_element()? {
            return Ok(());
        }
        if start.id.is_empty() || start.model.is_empty() || start.created.is_none() {
            members(&mut Cursor::new(text), |key, json| {
                match key.escaped() {
                    "id" => start.id = json.raw()?.as_str().unwrap_or_default(),
                    "model" => start.model = json.raw()?.as_str().unwrap_or_default(),
                    "created" => start.created = created(json)?,
                    _ => json.skip()?,
                }
                Ok(())
            })?;
        }
        self.started = true;
        sink(Event::Start(start));
        Ok(())
    }

    fn choice<'a>(
        &mut self,
        json: &mut Cursor<'a>,
        frame: &mut Frame<'a>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let mut said = ChoiceMembers::default();
        members(json, |key, json| {
            match key.escaped() {
                "index" => said.index = json.u64_or_skip()?.and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
                "delta" if json.kind()? == ValueKind::Object => said.delta = Some(DeltaMembers::read(json)?),
                "message" => said.message = present(json)?,
                "logprobs" => said.logprobs = present(json)?,
                "finish_reason" => said.finish = word(json)?,
                "stop_reason" | "matched_stop" => said.sequence = word(json)?,
                "usage" => frame.usage_elsewhere = Some(json.raw()?),
                "error" => frame.error = present(json)?.filter(|error| !error.is_void()).or(frame.error),
                _ => json.skip()?,
            }
            Ok(())
        })?;
        // If a completion has both, the message is the complete one.
        if self.whole && said.message.is_some() {
            said.delta = None;
        }
        if said.index >= MAX_CHOICES {
            return Err(JsonError { at: 0, what: "expected a valid choice index" });
        }
        frame.choices += 1;
        frame.usual = FastPath::of(&said)?;
        let known = self.place(said.index);
        // An unknown index begins a new choice, whatever order the provider uses.
        let Decoder { ids, choices, places, tagged, .. } = self;
        let at = known.unwrap_or_else(|| {
            places.push(IndexKey::of(said.index));
            choices.push(ChoiceDecoder::new(said.index, *tagged));
            choices.len() - 1
        });
        if !said.finish.is_empty() {
            frame.ending.push(at);
        }
        match choices.get_mut(at) {
            Some(choice) => choice.take(&said, ids, sink),
            None => Ok(()),
        }
    }
}

/// Reads a creation time (Unix seconds). `None` for 0, which some providers send for "unknown".
fn created(json: &mut Cursor<'_>) -> Result<Option<u64>, JsonError> {
    Ok(json.u64_or_skip()?.filter(|created| *created > 0))
}

/// Reads a value. `None` if it is null.
fn present<'a>(json: &mut Cursor<'a>) -> Result<Option<RawJson<'a>>, JsonError> {
    Ok(Some(json.raw()?).filter(|value| !value.is_null()))
}

/// Reads a string. Empty for any other value and for the string `null`, which some providers send.
fn word<'a>(json: &mut Cursor<'a>) -> Result<JsonStr<'a>, JsonError> {
    Ok(json.raw()?.as_str().filter(|word| word.escaped() != "null").unwrap_or_default())
}
