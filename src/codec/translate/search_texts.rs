//! Search results that a client supplies, for formats without them.

use crate::canonical::{Block, Dialect, Request, SearchResult};
use crate::wire::Format;
use crate::wire::codec::LossNotes;

/// Replaces search results by texts: title, source and content.
pub(super) fn write(request: &mut Request<'_>, dialect: &Dialect<'_>, notes: &mut LossNotes) {
    let takes = match notes.to() {
        Format::Messages => true,
        Format::Converse => notes.from() == Format::Converse || dialect.supports("search_result"),
        Format::Chat | Format::Responses | Format::Generate => false,
    };
    if takes {
        return;
    }
    for block in request.turns.iter_mut().flat_map(|turn| &mut turn.blocks) {
        if let Block::ToolResult { content, .. } = block {
            as_texts(content, notes);
        }
    }
    request.turns.iter_mut().for_each(|turn| as_texts(&mut turn.blocks, notes));
}

fn as_texts(blocks: &mut Vec<Block<'_>>, notes: &mut LossNotes) {
    if !blocks.iter().any(|block| matches!(block, Block::SearchResult(_))) {
        return;
    }
    notes.lose("search_result");
    for block in std::mem::take(blocks) {
        let Block::SearchResult(result) = block else {
            blocks.push(block);
            continue;
        };
        let SearchResult { title, source, texts, cites, cache } = *result;
        if cites {
            notes.lose("citations");
        }
        let texts = [title, source].into_iter().chain(texts).filter(|text| !text.is_empty());
        blocks.extend(texts.map(Block::text));
        if let Some(Block::Text { cache: mark, .. }) = blocks.last_mut() {
            *mark = cache.or(*mark);
        }
    }
}
