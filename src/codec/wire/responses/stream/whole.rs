//! Decoder of whole items and whole responses: the `done` events of a stream, whose content replaces omitted deltas,
//! and non-streamed responses.

use super::super::watch;
use super::decode::Decoder;
use super::parse::{ItemMembers, PartMembers, Response};
use super::slot::{BlockContent, ItemBlock, Reasoning};
use crate::canonical::answer::FinishOwned;
use crate::canonical::{BlockKind, Delta, Event, Finish, Usage};
use crate::wire::Format;
use crate::wire::finish_words::{self, BrokenOff};
use crate::wire::watch::elements;
use json::{Cursor, JsonError, JsonStr, RawJson, Writer};

impl Decoder {
    /// Decodes a whole response body.
    pub(in crate::wire::responses) fn whole(
        &mut self,
        body: &str,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let response = Response::read(RawJson::from_text(body))?;
        if response.is_response || response.output.is_some() {
            return self.terminal(&response, "completed", sink);
        }
        if response.error.is_none() && response.message.is_none() {
            return Err(JsonError { at: 0, what: "expected a response" });
        }
        self.error(response.error, [response.code, response.message, response.param], sink);
        Ok(())
    }

    /// Handles a complete item: emits the content that no delta had, and closes its blocks.
    pub(super) fn item_done(
        &mut self,
        at: u64,
        raw: RawJson<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        self.ensure_started(sink);
        if self.slot(at).done {
            return Ok(());
        }
        let item = ItemMembers::read(raw)?;
        match item.kind.escaped() {
            "message" => self.message_done(at, &item, sink)?,
            "reasoning" => self.reasoning_done(at, &item, sink)?,
            "function_call" | "custom_tool_call" => self.call_done(at, &item, sink),
            "image_generation_call" if !item.result.is_empty() => self.image(at, &item, sink),
            _ => {
                self.searches += u64::from(item.kind.is("web_search_call"));
                self.open(at, 0, BlockKind::Opaque { name: item.kind, raw }, sink);
            }
        }
        let slot = self.slot(at);
        slot.done = true;
        slot.close(sink);
        Ok(())
    }

    fn message_done(
        &mut self,
        at: u64,
        item: &ItemMembers<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let Some(content) = item.content else { return Ok(()) };
        // One provider's part indexes do not start at 0, so parts are matched by their order.
        let mut order = 0;
        elements(&mut Cursor::new(content.text()), |json| {
            let part = PartMembers::read(json.raw()?)?;
            if part.is_known() {
                let blocks = &self.slot(at).blocks;
                let next = blocks.last().map_or(0, |block| block.part.saturating_add(1));
                let number = blocks.get(order).map_or(next, |block| block.part);
                self.message_part(at, number, &part, true, sink)?;
                order += 1;
            }
            Ok(())
        })?;
        Ok(())
    }

    fn reasoning_done(
        &mut self,
        at: u64,
        item: &ItemMembers<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let said = self.slot(at).blocks.iter().any(|block| block.filled);
        // The reasoning text if the model shows it, otherwise its summary.
        let texts = [(Reasoning::Content, item.content), (Reasoning::Summary, item.summary)];
        for (which, list) in texts {
            let Some(list) = list.filter(|_| !said) else { continue };
            let (mut found, mut section) = (false, 0);
            elements(&mut Cursor::new(list.text()), |json| {
                let part = PartMembers::read(json.raw()?)?;
                section += 1;
                if !part.text.is_empty() {
                    self.slot(at).reasoning = Some(which);
                    if let Some(block) = self.reasoning(at, which, sink) {
                        block.reason(section, part.text, sink);
                        found = true;
                    }
                }
                Ok(())
            })?;
            if found {
                break;
            }
        }
        if !item.encrypted.is_empty() {
            // Attach the signature to the open reasoning; a block of its own carries it if the reasoning has no text.
            let reasons = |block: &&ItemBlock| block.open && block.holds == BlockContent::Reasoning;
            let block = match self.slot(at).blocks.iter().find(reasons) {
                Some(block) => block.index,
                None => self.open(at, 0, BlockKind::Reasoning, sink).index,
            };
            sink(Event::Delta { index: block, delta: Delta::Signature(item.encrypted) });
        }
        Ok(())
    }

    fn call_done(&mut self, at: u64, item: &ItemMembers<'_>, sink: &mut impl FnMut(Event<'_>)) {
        self.open_call(at, item, sink);
        let Some(block) = self.call(at).filter(|block| !block.filled) else { return };
        let index = block.index;
        block.filled = true;
        match item.object {
            Some(object) => sink(Event::Delta { index, delta: Delta::Object(object) }),
            None if !item.input.is_empty() => {
                sink(Event::Delta { index, delta: Delta::Arguments(item.input) });
            }
            None => {}
        }
    }

    fn image(&mut self, at: u64, item: &ItemMembers<'_>, sink: &mut impl FnMut(Event<'_>)) {
        let mime = match item.output_format.escaped() {
            "jpeg" | "jpg" => "image/jpeg",
            "webp" => "image/webp",
            _ => "image/png",
        };
        let kind = BlockKind::Media { mime: JsonStr::from_escaped(mime) };
        let index = self.open(at, 0, kind, sink).index;
        sink(Event::Delta { index, delta: Delta::Data(item.result) });
    }

    /// Handles the end of a response. `word` is the status that is used if the object has none.
    pub(super) fn terminal(
        &mut self,
        response: &Response<'_>,
        word: &str,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let status = Some(response.status.escaped()).filter(|status| !status.is_empty()).unwrap_or(word);
        let usage = response.usage.map(watch::usage).transpose()?;
        let usage = usage.map(|usage| Usage { tier: response.tier, ..usage });
        let finish = match self.finish_of(status, response.reason) {
            Ok(finish) => finish,
            Err(broken) => {
                // Usage must precede the error: no event may follow an error.
                if let Some(usage) = usage.filter(|_| self.started) {
                    sink(Event::Usage(usage));
                }
                if response.error.is_none() && response.message.is_none() {
                    self.over = true;
                    broken.emit(sink);
                } else {
                    self.error(response.error, [response.code, response.message, response.param], sink);
                }
                return Ok(());
            }
        };
        self.start(response, sink);
        if let Some(output) = response.output {
            self.rest_of(output, sink)?;
        }
        // Close items without an `output_item.done`.
        for item in &mut self.items {
            item.close(sink);
        }
        let usage =
            Usage { searches: Some(self.searches).filter(|count| *count > 0), ..usage.unwrap_or_default() };
        if usage != Usage::default() {
            sink(Event::Usage(usage));
        }
        let finish = match finish.borrow() {
            // The format has no status for tool calls.
            Finish::Stop if self.called => Finish::ToolUse,
            finish => finish,
        };
        sink(Event::Finish { choice: 0, finish });
        sink(Event::End);
        self.over = true;
        Ok(())
    }

    /// Returns the finish reason for a status. `reason` is that of an incomplete response; may be empty.
    fn finish_of(&self, status: &str, reason: JsonStr<'_>) -> Result<FinishOwned, BrokenOff> {
        let word =
            if status == "incomplete" && !reason.is_empty() { reason } else { JsonStr::from_escaped(status) };
        match finish_words::decode(Format::Responses, word, None, false)? {
            // A response that calls itself incomplete is not complete, whatever the reason.
            FinishOwned::Stop | FinishOwned::Other(_) if status == "incomplete" => Err(BrokenOff::new(word)),
            finish => Ok(finish),
        }
    }

    /// Decodes the items that the stream left open, or all items if the stream announced none.
    fn rest_of(&mut self, output: RawJson<'_>, sink: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        let whole = self.items.is_empty();
        let mut at = 0;
        elements(&mut Cursor::new(output.text()), |json| {
            let item = json.raw()?;
            let open = |place: usize| self.items.get(place).is_some_and(|slot| !slot.done);
            if whole || self.place(at).is_some_and(open) {
                self.item_done(at, item, sink)?;
            }
            at += 1;
            Ok(())
        })?;
        Ok(())
    }

    /// Emits an error, flat or nested, as one object. A nested string becomes the `message` of that object.
    pub(super) fn error(
        &mut self,
        nested: Option<RawJson<'_>>,
        flat: [Option<RawJson<'_>>; 3],
        sink: &mut impl FnMut(Event<'_>),
    ) {
        self.over = true;
        if let Some(object) = nested.filter(|error| error.text().starts_with('{')) {
            sink(Event::Error(object));
            return;
        }
        let [code, message, param] = flat;
        let mut text = Vec::new();
        let mut json = Writer::new(&mut text);
        json.begin_object();
        for (name, value) in [("code", code), ("message", message.or(nested)), ("param", param)] {
            if let Some(value) = value {
                json.key(name).raw(value);
            }
        }
        json.end_object();
        sink(Event::Error(RawJson::from_text(std::str::from_utf8(&text).unwrap_or("{}"))));
    }
}
