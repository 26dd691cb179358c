//! Pictures, sound and sources: what an answer has beside its words.

use super::{Choice, Kind, Open};
use crate::canonical::{BlockKind, Citation, Delta, Event, Source};
use crate::json::{Cursor, JsonError, JsonStr, RawJson};
use crate::wire::chat::enums::{image_address, sound_type};
use crate::wire::chat::stream::ids::Ids;
use crate::wire::chat::stream::parsed_choice::read_citation;
use crate::wire::watch::{elements, members};

impl Choice {
    pub(super) fn image(&mut self, image: RawJson<'_>, ids: &mut Ids, sink: &mut impl FnMut(Event<'_>)) {
        let url = image_address(image);
        match Source::from_url(url) {
            _ if url.is_empty() => {}
            Source::Base64 { mime, data } => {
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
        ids: &mut Ids,
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
        // Padding ends a text in base64: what follows is another one.
        if data.escaped().ends_with('=') {
            self.close(sink);
        }
        Ok(())
    }

    pub(super) fn citation(
        &mut self,
        annotation: RawJson<'_>,
        ids: &mut Ids,
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

    /// Sources in a list beside the choices, addresses or objects. Some repeat it in every chunk.
    pub(super) fn sources(
        &mut self,
        list: RawJson<'_>,
        ids: &mut Ids,
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
}
