//! Chunks become events, whichever of the many providers has sent them.

use smallvec::SmallVec;

use super::choice::Choice;
use super::fast_path::Usual;
use super::ids::Ids;
use super::parsed_choice::{Said, Words};
use crate::canonical::answer::MAX_CHOICES;
use crate::canonical::{Event, Index, Key, Start, Usage};
use crate::json::{Cursor, FrameTemplate, JsonError, JsonStr, Kind, RawJson, TemplateParts};
use crate::wire::chat::watch::usage;
use crate::wire::codec::CutText;
use crate::wire::watch::{elements, members};

/// Reads the chunks of a stream, or one whole completion.
#[derive(Debug)]
pub struct Decoder {
    ids: Ids,
    choices: SmallVec<[Choice; 1]>,
    /// Where choices stand, by their numbers.
    places: Index,
    /// Usage that came before the answer began.
    early: Option<Usage>,
    started: bool,
    over: bool,
    /// One completion, in which the message counts and not the delta.
    whole: bool,
    /// Texts may begin with reasoning between tags.
    tagged: bool,
    /// How the last chunk began, up to the value of its choices, if nothing before it matters: most chunks of a
    /// stream begin alike.
    head: String,
    /// The last chunk that only added to the answer, and how: most chunks differ from the one before in a text alone.
    mould: FrameTemplate,
    usual: Usual,
}

/// What a chunk says besides its choices.
#[derive(Default)]
struct Frame<'a> {
    /// What the answer begins with, as far as it stands in front of the choices.
    start: Start<'a>,
    has_choices: bool,
    usage: Option<RawJson<'a>>,
    usage_elsewhere: Option<RawJson<'a>>,
    error: Option<RawJson<'a>>,
    /// Sources of the whole answer.
    citations: Option<RawJson<'a>>,
    /// Where the choices stand that end with this chunk.
    ending: SmallVec<[usize; 1]>,
    /// What an error without an `error` is made of.
    message: bool,
    code: bool,
    is_error: bool,
    /// How many choices it has.
    choices: usize,
    /// The only thing that one of them says, if it is a usual one.
    usual: Option<(Usual, JsonStr<'a>)>,
    /// What makes all chunks of a provider equally long.
    padding: JsonStr<'a>,
}

impl<'a> Frame<'a> {
    /// What varies between this chunk and the next one, if it is a usual one.
    fn varying(&self) -> Option<(Usual, TemplateParts<'a>)> {
        let said = [self.usage, self.usage_elsewhere].into_iter().flatten().any(|usage| !usage.is_null());
        let (usual, text) =
            self.usual.filter(|_| self.choices == 1 && !said && self.error.is_none() && !self.is_error)?;
        Some((usual, TemplateParts { text, padding: self.padding, numbers: None }))
    }
}

impl Frame<'_> {
    /// What makes an error without an `error` counts only where there are no choices.
    fn says_nothing(&self) -> bool {
        let said = [self.usage, self.usage_elsewhere, self.error, self.citations];
        !self.has_choices && !self.is_error && said.iter().all(Option::is_none)
    }
}

impl Decoder {
    /// A reader of one answer. Ids that the provider does not give are made from `seed`.
    pub fn new(seed: &str) -> Self {
        Decoder {
            ids: Ids::new(seed),
            choices: SmallVec::new(),
            places: Index::default(),
            early: None,
            started: false,
            over: false,
            whole: false,
            tagged: false,
            head: String::new(),
            mould: FrameTemplate::default(),
            usual: Usual::default(),
        }
    }

    /// Whether the text of an answer may begin with reasoning between `<think>` and `</think>`.
    #[must_use]
    pub fn with_tags(self, tagged: bool) -> Self {
        Decoder { tagged, ..self }
    }

    /// For a whole completion.
    pub(in crate::wire::chat) fn whole(seed: &str) -> Self {
        Decoder { whole: true, ..Decoder::new(seed) }
    }

    /// Reads the data of one frame.
    ///
    /// # Errors
    /// It is not JSON, or not of this format's shape.
    #[inline]
    pub fn frame(&mut self, data: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        if self.over || data.is_empty() {
            return Ok(());
        }
        // SDKs stop at data that begins so.
        if data.starts_with("[DONE]") {
            self.end(sink);
            return Ok(());
        }
        self.document(data, sink)
    }

    /// The upstream has closed the stream.
    ///
    /// # Errors
    /// The answer is not complete: not every choice has a reason why it ended.
    pub fn finish(&mut self, sink: &mut impl FnMut(Event<'_>)) -> Result<(), CutText> {
        if self.over {
            return Ok(());
        }
        // Some never say `[DONE]`.
        if !self.has_reason() {
            return Err(CutText);
        }
        self.end(sink);
        Ok(())
    }

    /// Whether it was said of each choice why it ended.
    pub fn has_reason(&self) -> bool {
        !self.choices.is_empty() && self.choices.iter().all(Choice::has_finish)
    }

    /// Whether the answer has ended; later frames are ignored.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// The reasons why the choices ended are said here and not before: usage follows them at most providers, at some an
    /// error, and some say them more than once.
    pub(in crate::wire::chat) fn end(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        // `[DONE]` and nothing before it is no answer.
        if !self.started || self.over {
            return;
        }
        self.over = true;
        self.choices.sort_unstable_by_key(|choice| choice.index);
        for choice in &mut self.choices {
            choice.end(&mut self.ids, sink);
        }
        sink(Event::End);
    }

    /// Reads a chunk or a completion.
    pub(in crate::wire::chat) fn document(
        &mut self,
        text: &str,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        if let Some(cast) = self.mould.fit(text) {
            let at = self.place(self.usual.choice);
            let Decoder { ids, choices, usual, .. } = self;
            if let Some(choice) = at.and_then(|at| choices.get_mut(at)) {
                choice.usual(usual.what, &cast, ids, sink);
            }
            return Ok(());
        }
        let mut frame = Frame::default();
        let mut json;
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
                "citations" => {
                    frame.citations = Some(json.raw()?).filter(|list| list.text().starts_with('['))
                }
                "x_groq" => members(&mut json, |key, json| {
                    let value = json.raw()?;
                    match key.escaped() {
                        "usage" => frame.usage_elsewhere = Some(value),
                        "error" => frame.error = Some(value).filter(|error| !error.is_null()),
                        _ => {}
                    }
                    Ok(())
                })?,
                "error" => frame.error = Some(json.raw()?).filter(|error| !error.is_null()).or(frame.error),
                "object" => frame.is_error = json.raw()?.as_str().is_some_and(|object| object.is("error")),
                "message" | "detail" => frame.message = !json.raw()?.is_null(),
                "obfuscation" => frame.padding = json.raw()?.as_str().unwrap_or_default(),
                "code" | "type" | "request_id" => frame.code = !json.raw()?.is_null(),
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
        if !self.started {
            self.start(text, json, frame.start, sink)?;
        }
        elements(json, |json| self.choice(json, frame, sink)).map(drop)
    }

    /// Keeps the shape of a chunk that has been read.
    fn cast(&mut self, frame: &Frame<'_>, text: &str) {
        match frame.varying().filter(|_| !self.whole) {
            Some((usual, varying)) => {
                self.usual = usual;
                self.mould.take(text, &varying);
            }
            None => self.mould.clear(),
        }
    }

    /// Where a choice stands: most come in the order of their numbers.
    #[inline]
    fn place(&self, index: u32) -> Option<usize> {
        let usual = index as usize;
        match self.choices.get(usual) {
            Some(choice) if choice.index == index => Some(usual),
            _ => self.places.first(Key::of(index)),
        }
    }

    fn keep_head(&mut self, frame: &Frame<'_>, text: &str, end: usize) {
        self.head.clear();
        if frame.says_nothing() {
            self.head.push_str(text.get(..end).unwrap_or_default());
        }
    }

    /// What a chunk says besides its choices.
    #[inline]
    fn rest(
        &mut self,
        frame: &Frame<'_>,
        text: &str,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        for at in &frame.ending {
            let Decoder { ids, choices, .. } = self;
            choices.get_mut(*at).map_or(Ok(()), |choice| choice.settle(frame.citations, ids, sink))?;
        }
        let is_object = |value: &RawJson<'_>| value.text().starts_with('{');
        let said = frame.usage.filter(is_object).or(frame.usage_elsewhere.filter(is_object));
        if let Some(said) = said {
            let usage = usage(said)?;
            match (self.started, usage.is_known()) {
                (true, true) => sink(Event::Usage(usage)),
                (false, true) => self.early = Some(usage),
                (_, false) => {}
            }
        }
        let unnamed = !frame.has_choices && said.is_none() && frame.message && (frame.code || frame.is_error);
        if frame.error.is_some() || unnamed || frame.is_error {
            self.over = true;
            // Whatever is said beside an error that is no object belongs to it.
            let error = frame.error.filter(is_object).unwrap_or(RawJson::from_text(text.trim_ascii()));
            sink(Event::Error(error));
        }
        Ok(())
    }

    /// Begins the answer with the first chunk that has a choice: one provider's first chunk has none, and no id either.
    /// Few providers write what an answer begins with behind the choices.
    #[cold]
    fn start<'a>(
        &mut self,
        text: &'a str,
        json: &Cursor<'a>,
        mut start: Start<'a>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let mut ahead = json.clone();
        if ahead.kind()? != Kind::Array {
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
        if let Some(usage) = self.early.take() {
            sink(Event::Usage(usage));
        }
        Ok(())
    }

    fn choice<'a>(
        &mut self,
        json: &mut Cursor<'a>,
        frame: &mut Frame<'a>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let mut said = Said::default();
        members(json, |key, json| {
            match key.escaped() {
                "index" => said.index = json.u64_or_skip()?.and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
                "delta" if json.kind()? == Kind::Object => said.delta = Some(Words::read(json)?),
                "message" => said.message = present(json)?,
                "logprobs" => said.logprobs = present(json)?,
                "finish_reason" => said.finish = word(json)?,
                "stop_reason" | "matched_stop" => said.sequence = word(json)?,
                "usage" => frame.usage_elsewhere = Some(json.raw()?),
                "error" => frame.error = present(json)?,
                _ => json.skip()?,
            }
            Ok(())
        })?;
        if self.whole && said.message.is_some() {
            said.delta = None;
        }
        if said.index >= MAX_CHOICES {
            return Err(JsonError { at: 0, what: "expected the number of a choice that can be" });
        }
        frame.choices += 1;
        frame.usual = Usual::of(&said)?;
        let known = self.place(said.index);
        let Decoder { ids, choices, places, tagged, .. } = self;
        let at = known.unwrap_or_else(|| {
            places.push(Key::of(said.index));
            choices.push(Choice::new(said.index, *tagged));
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

/// When the answer was made; some write a zero for nothing.
fn created(json: &mut Cursor<'_>) -> Result<Option<u64>, JsonError> {
    Ok(json.u64_or_skip()?.filter(|created| *created > 0))
}

/// A value that is not null.
fn present<'a>(json: &mut Cursor<'a>) -> Result<Option<RawJson<'a>>, JsonError> {
    Ok(Some(json.raw()?).filter(|value| !value.is_null()))
}

/// A word; some write the word `null`.
fn word<'a>(json: &mut Cursor<'a>) -> Result<JsonStr<'a>, JsonError> {
    Ok(json.raw()?.as_str().filter(|word| word.escaped() != "null").unwrap_or_default())
}
