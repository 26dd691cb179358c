//! Images, audio, citations and log probabilities of a choice.

use super::{ChoiceDecoder, Kind, Open};
use crate::canonical::{BlockKind, Citation, Delta, Event, MediaSource};
use crate::wire::chat::enums::{image_address, sound_type};
use crate::wire::chat::stream::ids::IdCounters;
use crate::wire::chat::stream::parsed_choice::read_citation;
use crate::wire::watch::{elements, members};
use json::{Cursor, JsonError, JsonStr, RawJson};

impl ChoiceDecoder {
    pub(super) fn image(
        &mut self,
        image: RawJson<'_>,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        let url = image_address(image);
        match MediaSource::from_url(url) {
            _ if url.is_empty() => {}
            MediaSource::Base64 { mime, data } => {
                self.whole(BlockKind::Media { mime }, Delta::Data(data), ids, sink)
            }
            _ => {
                let mime = JsonStr::from_escaped("image/*");
                self.whole(BlockKind::Media { mime }, Delta::Url(url), ids, sink);
            }
        }
    }

    pub(super) fn sound(
        &mut self,
        audio: RawJson<'_>,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let mut data = JsonStr::default();
        members(&mut Cursor::new(audio.text()), |key, json| {
            let value = json.raw()?;
            if key.is("data") {
                data = value.as_str().unwrap_or_default();
            }
            Ok(())
        })?;
        if data.is_empty() {
            return Ok(());
        }
        let index = match self.open {
            Some(Open { index, kind: Kind::Sound, .. }) => index,
            _ => self.begin(Kind::Sound, sound_type(data.escaped()), ids, sink),
        };
        sink(Event::Delta { index, delta: Delta::Data(data) });
        // Base64 padding ends a file: the next data belongs to another one.
        if data.escaped().ends_with('=') {
            self.close(sink);
        }
        Ok(())
    }

    pub(super) fn citation(
        &mut self,
        annotation: RawJson<'_>,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let mut citation = Citation::default();
        read_citation(annotation, &mut citation)?;
        if !citation.url.is_empty() {
            self.cited = true;
            let index = self.open(Kind::Text, ids, sink);
            sink(Event::Delta { index, delta: Delta::Citation(citation) });
        }
        Ok(())
    }

    /// Emits citations from a list beside the choices: URLs or objects. Some providers repeat the list in every chunk.
    pub(super) fn sources(
        &mut self,
        list: RawJson<'_>,
        ids: &mut IdCounters,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        elements(&mut Cursor::new(list.text()), |json| {
            let source = json.raw()?;
            let Some(url) = source.as_str() else { return self.citation(source, ids, sink) };
            if !url.is_empty() {
                self.cited = true;
                let index = self.open(Kind::Text, ids, sink);
                let citation = Citation { url, ..Citation::default() };
                sink(Event::Delta { index, delta: Delta::Citation(citation) });
            }
            Ok(())
        })
        .map(drop)
    }

    /// Emits the log probabilities of the tokens in a chunk.
    pub(super) fn logprobs(
        &mut self,
        logprobs: RawJson<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let Some(Open { index, kind: kind @ (Kind::Text | Kind::Refusal), .. }) = self.open else {
            return Ok(());
        };
        let name = if kind == Kind::Text { "content" } else { "refusal" };
        members(&mut Cursor::new(logprobs.text()), |key, json| {
            let list = json.raw()?;
            // An empty list carries nothing; do not emit an event for it in every chunk.
            let some = list.text().strip_prefix('[').is_some_and(|rest| !rest.trim_start().starts_with(']'));
            if key.is(name) && some {
                sink(Event::Delta { index, delta: Delta::Logprobs(list) });
            }
            Ok(())
        })
    }
}
