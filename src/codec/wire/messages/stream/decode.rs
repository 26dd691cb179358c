//! Stream decoder of the messages format: frames to events.

use super::super::content::{Content, OpenBlock};
use super::super::usage::Counts;
use crate::canonical::answer::FinishOwned;
use crate::canonical::{BlockKind, Event, Slots, Start};
use crate::wire::Format;
use crate::wire::codec::CutText;
use crate::wire::finish_words;
use crate::wire::watch::members;
use json::{Cursor, JsonError, JsonStr, RawJson};

/// Decoder of a messages stream.
#[derive(Debug, Default)]
pub struct Decoder {
    seed: Box<str>,
    started: bool,
    over: bool,
    /// Open blocks. More than one only if the provider omitted a stop event.
    open: Slots<OpenBlock>,
    /// Index of the next block in the events.
    next: u32,
    called: bool,
    /// Web searches that were counted, for providers that do not report the count.
    searches: u64,
    /// Number of text characters so far.
    length: u64,
    counts: Counts,
    /// `stop_reason` and `stop_sequence`.
    finish: Option<(String, Option<String>)>,
    /// Whether a guardrail of the platform has replaced the response.
    intervened: bool,
}

/// Result of a guardrail that Bedrock adds to a response of InvokeModel, and its value if the guardrail has intervened.
/// The stop reason does not say it. Source: Amazon Bedrock User Guide, "Use a guardrail with the InvokeModel operation".
const GUARDRAIL_ACTION: &str = "amazon-bedrock-guardrailAction";
const INTERVENED: &str = "INTERVENED";

/// Members of a frame other than a delta.
#[derive(Default)]
struct Frame<'a> {
    kind: JsonStr<'a>,
    index: u64,
    message: Option<RawJson<'a>>,
    block: Option<RawJson<'a>>,
    delta: Option<RawJson<'a>>,
    usage: Option<RawJson<'a>>,
    error: Option<RawJson<'a>>,
}

/// Members of a delta.
#[derive(Clone, Copy, Default)]
struct Piece<'a> {
    kind: JsonStr<'a>,
    text: Option<(Field, JsonStr<'a>)>,
    citation: Option<RawJson<'a>>,
}

/// Member of a delta that holds its text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Text,
    Thinking,
    Arguments,
    Signature,
}

/// Exact beginning of Anthropic's delta frames.
const HEAD: &str = r#"{"type":"content_block_delta","index":"#;

/// Exact continuation of these frames, up to their text.
const KINDS: [(&str, Field); 3] = [
    (r#","delta":{"type":"text_delta","text":"#, Field::Text),
    (r#","delta":{"type":"input_json_delta","partial_json":"#, Field::Arguments),
    (r#","delta":{"type":"thinking_delta","thinking":"#, Field::Thinking),
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

    /// Decodes the data of one event.
    ///
    /// # Errors
    /// Returns [`JsonError`] if the data is not JSON.
    #[inline]
    pub fn frame(&mut self, data: &str, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        if self.over {
            return Ok(());
        }
        if let Some((index, field, text)) = usual(data) {
            let piece = Piece { text: Some((field, text?)), ..Piece::default() };
            return self.piece(index, piece, sink);
        }
        let mut json = Cursor::new(data);
        if let Err(error) = json.begin_object() {
            // Some relays append the terminator of the chat format.
            return if data.trim_ascii() == "[DONE]" { Ok(()) } else { Err(error) };
        }
        let mut frame = Frame::default();
        let mut first = true;
        while let Some(key) = json.next_key()? {
            match key.escaped() {
                "type" => {
                    frame.kind = json.string()?;
                    if first && frame.kind.escaped() == "content_block_delta" {
                        // The rest of a delta is parsed only up to its text.
                        return self.delta_frame(&mut json, sink);
                    }
                }
                "index" => frame.index = json.u64_or_skip()?.unwrap_or_default(),
                "message" => frame.message = Some(json.raw()?),
                "content_block" => frame.block = Some(json.raw()?),
                "delta" => frame.delta = Some(json.raw()?),
                "usage" => frame.usage = Some(json.raw()?),
                "error" => frame.error = Some(json.raw()?).filter(|error| !error.is_null()),
                GUARDRAIL_ACTION => self.guardrail(json.raw()?),
                _ => json.skip()?,
            }
            first = false;
        }
        self.other_frame(data, frame, sink)
    }

    /// Decodes a delta whose type is the first member, the usual order, without reading the whole frame.
    #[inline]
    fn delta_frame<'a>(
        &mut self,
        json: &mut Cursor<'a>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let (mut index, mut piece) = (None, None);
        while let Some(key) = json.next_key()? {
            match key.escaped() {
                "index" => index = json.u64_or_skip()?,
                "delta" => piece = Some(read_piece(json, index.is_some())?),
                _ => json.skip()?,
            }
            if let (Some(index), Some(piece)) = (index, piece) {
                return self.piece(index, piece, sink);
            }
        }
        match piece {
            Some(piece) => self.piece(index.unwrap_or_default(), piece, sink),
            None => Ok(()),
        }
    }

    #[cold]
    fn other_frame<'a>(
        &mut self,
        data: &'a str,
        frame: Frame<'a>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        match frame.kind.escaped() {
            "message_start" => {
                if let Some(message) = frame.message {
                    self.message(message, sink)?;
                }
                self.start(Start::default(), sink);
            }
            "content_block_start" => {
                if let Some(block) = frame.block {
                    self.block_start(frame.index, block, sink)?;
                }
            }
            "content_block_delta" => {
                if let Some(delta) = frame.delta {
                    let piece = read_piece(&mut Cursor::new(delta.text()), false)?;
                    self.piece(frame.index, piece, sink)?;
                }
            }
            "content_block_stop" => self.block_stop(frame.index, sink),
            "message_delta" => {
                if let Some(delta) = frame.delta {
                    members(&mut Cursor::new(delta.text()), |key, json| self.stop_member(key, json))?;
                }
                self.start(Start::default(), sink);
                self.usage(frame.usage, sink)?;
            }
            "message_stop" => self.end(sink),
            "ping" => sink(Event::Ping),
            "error" => self.error(frame.error.unwrap_or(RawJson::from_text(data.trim_ascii())), sink),
            // Imitations of this API omit the type of an error.
            "" if frame.error.is_some() => self.error(frame.error.unwrap_or(RawJson::NULL), sink),
            _ => {}
        }
        Ok(())
    }

    /// Ends the response because the upstream closed the stream. Only `message_stop` completes a response.
    ///
    /// # Errors
    /// Returns [`CutText`] if the stream ended before `message_stop` or an error.
    pub fn finish(&mut self, _sink: &mut impl FnMut(Event<'_>)) -> Result<(), CutText> {
        if self.over { Ok(()) } else { Err(CutText) }
    }

    /// Emits the start of the response, once.
    pub(in super::super) fn start(&mut self, start: Start<'_>, sink: &mut impl FnMut(Event<'_>)) {
        if !std::mem::replace(&mut self.started, true) {
            sink(Event::Start(start));
        }
    }

    fn message(&mut self, message: RawJson<'_>, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        let (mut start, mut usage) = (Start::default(), None);
        members(&mut Cursor::new(message.text()), |key, json| {
            match key.escaped() {
                "id" => start.id = json.raw()?.as_str().unwrap_or_default(),
                "model" => start.model = json.raw()?.as_str().unwrap_or_default(),
                "usage" => usage = Some(json.raw()?),
                _ => json.skip()?,
            }
            Ok(())
        })?;
        // First the usage: an encoder whose format starts with it has it then.
        self.usage(usage, sink)?;
        self.start(start, sink);
        Ok(())
    }

    /// Merges a usage report and emits the result. Reports are merged in the provider's own counts before the
    /// conversion, because a later report may omit the cache counts.
    pub(in super::super) fn usage(
        &mut self,
        usage: Option<RawJson<'_>>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let Some(usage) = usage else { return Ok(()) };
        self.counts.update(&Counts::read(usage)?);
        let mut usage = self.counts.canonical();
        usage.searches = usage.searches.or((self.searches > 0).then_some(self.searches));
        sink(Event::Usage(usage));
        Ok(())
    }

    /// Reads a member that describes the end of the response. If it is repeated, the last value counts.
    pub(in super::super) fn stop_member(
        &mut self,
        key: JsonStr<'_>,
        json: &mut Cursor<'_>,
    ) -> Result<(), JsonError> {
        match key.escaped() {
            "stop_reason" => {
                if let Some(reason) = json.raw()?.as_str() {
                    // The two members may come in any order and in different events; keep the other one.
                    let sequence = self.finish.take().and_then(|(_, sequence)| sequence);
                    self.finish = Some((reason.escaped().to_owned(), sequence));
                }
            }
            "stop_sequence" => {
                if let Some(sequence) = json.raw()?.as_str() {
                    let reason = self.finish.take().map(|(reason, _)| reason).unwrap_or_default();
                    self.finish = Some((reason, Some(sequence.escaped().to_owned())));
                }
            }
            GUARDRAIL_ACTION => self.guardrail(json.raw()?),
            _ => json.skip()?,
        }
        Ok(())
    }

    fn guardrail(&mut self, action: RawJson<'_>) {
        self.intervened |= action.as_str().is_some_and(|action| action.escaped() == INTERVENED);
    }

    /// Opens a block. `index` is the provider's index.
    pub(in super::super) fn block_start(
        &mut self,
        index: u64,
        block: RawJson<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        self.start(Start::default(), sink);
        let content = Content::read(block)?;
        self.called |= content.is_call();
        self.searches += u64::from(content.is_search());
        let open = OpenBlock::begin(&content, &self.seed, &mut self.next, self.length, sink)?;
        self.length += open.length();
        self.open.push(index, open);
        Ok(())
    }

    /// Closes a block.
    pub(in super::super) fn block_stop(&mut self, index: u64, sink: &mut impl FnMut(Event<'_>)) {
        if let Some(open) = self.open.remove(index) {
            open.end(&mut self.next, sink);
        }
    }

    #[inline]
    fn piece(
        &mut self,
        index: u64,
        piece: Piece<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        // Some providers omit `content_block_start`.
        if self.open.get_mut(index).is_none() {
            self.unannounced(index, piece, sink);
        }
        let Some(open) = self.open.get_mut(index) else { return Ok(()) };
        if let Some(citation) = piece.citation {
            return open.cite(citation);
        }
        let Some((field, text)) = piece.text else { return Ok(()) };
        match field {
            Field::Text => self.length += open.text(text, sink),
            Field::Thinking => open.thinking(text, sink),
            Field::Arguments => open.arguments(text, sink),
            Field::Signature => open.signature(text, sink),
        }
        Ok(())
    }

    /// Opens a block for text without `content_block_start`, so that the text is not lost.
    #[cold]
    fn unannounced(&mut self, index: u64, piece: Piece<'_>, sink: &mut impl FnMut(Event<'_>)) {
        let kind = match piece.text {
            Some((Field::Text, _)) => BlockKind::Text,
            Some((Field::Thinking, _)) => BlockKind::Reasoning,
            Some((Field::Arguments | Field::Signature, _)) | None => return,
        };
        self.start(Start::default(), sink);
        self.open.push(index, OpenBlock::begin_bare(kind, &mut self.next, self.length, sink));
    }

    /// Closes all blocks and emits the finish reason, or the error of a response that broke off.
    pub(in super::super) fn end(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        self.over = true;
        let (reason, sequence) = self.finish.take().unwrap_or_default();
        let (reason, sequence) =
            (JsonStr::from_escaped(&reason), sequence.as_deref().map(JsonStr::from_escaped));
        let finish = match self.intervened {
            true => Ok(FinishOwned::ContentFilter),
            false => finish_words::decode(Format::Messages, reason, sequence, self.called),
        };
        let finish = match finish {
            Ok(finish) => finish,
            Err(broken) => return broken.emit(sink),
        };
        self.start(Start::default(), sink);
        // Close blocks whose stop event the provider omitted, because every block of the events must end.
        for open in self.open.drain() {
            open.end(&mut self.next, sink);
        }
        sink(Event::Finish { choice: 0, finish: finish.borrow() });
        sink(Event::End);
    }

    /// Emits the provider's error and ends the response.
    pub(in super::super) fn error(&mut self, error: RawJson<'_>, sink: &mut impl FnMut(Event<'_>)) {
        sink(Event::Error(error));
        self.over = true;
    }
}

/// Parses a delta frame in Anthropic's exact spelling. `None` for any other frame. Most frames match, so this fast path
/// avoids a parser over all members.
#[inline]
fn usual(data: &str) -> Option<(u64, Field, Result<JsonStr<'_>, JsonError>)> {
    let rest = data.strip_prefix(HEAD)?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (index, rest) = rest.split_at_checked(digits)?;
    let (text, field) = KINDS.iter().find_map(|(head, field)| Some((rest.strip_prefix(head)?, *field)))?;
    Some((index.parse().ok()?, field, Cursor::new(text).string()))
}

/// Parses a delta. With `hasty` it stops as soon as type and text are known, which leaves the cursor inside the object.
#[inline]
fn read_piece<'a>(json: &mut Cursor<'a>, hasty: bool) -> Result<Piece<'a>, JsonError> {
    let mut piece = Piece::default();
    json.begin_object()?;
    while let Some(key) = json.next_key()? {
        match key.escaped() {
            "type" => piece.kind = json.string()?,
            "text" => piece.text = json.string_or_null()?.map(|text| (Field::Text, text)),
            "partial_json" => piece.text = json.string_or_null()?.map(|text| (Field::Arguments, text)),
            "thinking" => piece.text = json.string_or_null()?.map(|text| (Field::Thinking, text)),
            "signature" => piece.text = json.string_or_null()?.map(|text| (Field::Signature, text)),
            "citation" => piece.citation = Some(json.raw()?).filter(|citation| !citation.is_null()),
            _ => json.skip()?,
        }
        if hasty && piece.text.is_some() && !piece.kind.is_empty() {
            break;
        }
    }
    // A delta of unknown type may have members with known names; ignore it.
    let known = matches!(
        piece.kind.escaped(),
        "" | "text_delta" | "thinking_delta" | "input_json_delta" | "signature_delta" | "citations_delta"
    );
    Ok(if known { piece } else { Piece::default() })
}
