//! Elements of a conversation that stay in their format, but that the canonical model has as several blocks: they are
//! kept whole.

use crate::canonical::{Block, ClientText, MediaSource, Request};
use crate::json::{JsonStr, RawJson};
use crate::wire::{Format, converse, messages};

/// Adds the client's text to a request that is encoded in the format that it came in, and keeps elements whole that were
/// split.
pub(super) fn keep<'a>(request: &mut Request<'a>, body: &'a str, format: Format) {
    // Cannot fail: the decoder has read the text.
    let Ok(source) = ClientText::read(body) else { return };
    let name: fn(RawJson<'_>) -> Option<&'static str> = match format {
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

fn join<'a>(
    blocks: &mut Vec<Block<'a>>,
    source: &ClientText<'a>,
    name: fn(RawJson<'_>) -> Option<&'static str>,
) {
    let mut last = None;
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
        let whole = source.around(part).find_map(|element| Some((name(element)?, element)));
        let Some((name, raw)) = whole else { return true };
        // The other blocks of the element follow the first one.
        let at = raw.text().as_ptr();
        if last.replace(at) == Some(at) {
            return false;
        }
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
