//! Elements of a conversation that stay in their format, but that the canonical model has as several blocks: they are
//! kept whole.

use crate::canonical::{Block, ClientText, MediaSource, Request};
use crate::wire::codec::LossNotes;
use crate::wire::features::carries_envelope;
use crate::wire::{Format, converse, messages};
use json::{JsonStr, RawJson};

/// Adds the client's text to a request that is encoded in the format that it came in, and keeps elements whole that were
/// split.
pub(super) fn keep<'a>(request: &mut Request<'a>, body: &'a str, format: Format, notes: &mut LossNotes) {
    // Cannot fail: the decoder has read the text.
    let Ok(source) = ClientText::read(body) else { return };
    for turn in &mut request.turns {
        drop_envelopes(&mut turn.blocks, notes);
    }
    let name: ElementName = match format {
        Format::Messages => messages::request::split_element,
        Format::Converse => converse::request::split_element,
        Format::Chat | Format::Responses | Format::Generate => {
            request.source = Some(Box::new(source));
            return;
        }
    };
    for turn in &mut request.turns {
        join(&mut turn.blocks, &source, name);
    }
    request.source = Some(Box::new(source));
}

/// Takes out elements of unknown types that carry an envelope of the gateway, which no provider can read: they would be
/// copied with it.
fn drop_envelopes(blocks: &mut Vec<Block<'_>>, notes: &mut LossNotes) {
    blocks.retain_mut(|block| match block {
        Block::ToolResult { content, .. } => {
            drop_envelopes(content, notes);
            true
        }
        Block::Opaque { raw, .. } if carries_envelope(*raw) => {
            notes.lose("thinking_block");
            false
        }
        _ => true,
    });
}

/// Type of an element whose whole text decides whether it is kept.
const DOCUMENT: &str = "document";

/// Returns the name of an element that is kept whole, by its type and its text.
type ElementName = fn(&str, RawJson<'_>) -> Option<&'static str>;

fn join<'a>(blocks: &mut Vec<Block<'a>>, source: &ClientText<'a>, name: ElementName) {
    let mut last = None;
    // Document that is not kept whole: it is not read again for each of its parts.
    let mut passed = None;
    blocks.retain_mut(|block| {
        let part = match block {
            Block::Text { text, .. } => text.escaped(),
            Block::File { source, .. } => place_of(source),
            Block::SearchResult(result) => result.title.escaped(),
            Block::ToolResult { content, .. } => {
                join(content, source, name);
                return true;
            }
            _ => return true,
        };
        // The other blocks of the element follow the first one.
        let start = |raw: RawJson<'_>| raw.text().as_ptr();
        if last.is_some_and(|at| source.around(part).any(|(_, raw)| start(raw) == at)) {
            return false;
        }
        let whole = source.around(part).find_map(|(kind, element)| {
            if passed == Some(start(element)) {
                return None;
            }
            let name = name(kind, element);
            if name.is_none() && kind == DOCUMENT {
                passed = Some(start(element));
            }
            Some((name?, element))
        });
        let Some((name, raw)) = whole else { return true };
        last = Some(start(raw));
        *block = Block::Opaque { name: JsonStr::from_escaped(name), raw };
        true
    });
}

/// Returns the part of the request where media is.
fn place_of<'a>(source: &MediaSource<'a>) -> &'a str {
    match source {
        MediaSource::Base64 { data: part, .. }
        | MediaSource::Url { url: part, .. }
        | MediaSource::Id { id: part }
        | MediaSource::Text { text: part } => part.escaped(),
    }
}
