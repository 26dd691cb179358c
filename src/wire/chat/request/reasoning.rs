//! Reasoning of earlier answers in an assistant's message: its text under one of three names, and what belongs to its
//! pieces in a list beside it.

use smallvec::SmallVec;

use super::read::{Result, array, broken, object, raw};
use crate::canonical::{Block, Seal};
use crate::json::{Cursor, JsonStr, RawJson};
use crate::wire::chat::details::{Detail, DetailKind};

/// What an assistant's message says of reasoning.
#[derive(Default)]
pub(super) struct Thoughts<'a> {
    pub(super) reasoning_content: Option<RawJson<'a>>,
    pub(super) reasoning: Option<RawJson<'a>>,
    pub(super) details: Option<RawJson<'a>>,
    pub(super) thinking_blocks: Option<RawJson<'a>>,
}

/// A seal of something else than reasoning, and the id of what it belongs to: a call's, `text` or `image_<number>`.
pub(super) struct Elsewhere<'a> {
    pub(super) id: JsonStr<'a>,
    pub(super) seal: Seal<'a>,
}

/// A piece of reasoning as the list has it; fragments of a stream that a client has only strung together are one.
struct Piece<'a> {
    kind: DetailKind,
    index: &'a str,
    text: Vec<JsonStr<'a>>,
    seal: Option<Seal<'a>>,
}

impl<'a> Thoughts<'a> {
    /// The blocks that the message begins with, and the seals that belong elsewhere.
    pub(super) fn read(&self) -> Result<(Vec<Block<'a>>, Vec<Elsewhere<'a>>)> {
        let mut elsewhere = Vec::new();
        let names = [self.reasoning_content, self.reasoning];
        let plain =
            names.into_iter().flatten().find_map(|name| name.as_str().filter(|text| !text.is_empty()));
        let blocks = match (self.details, self.thinking_blocks) {
            (Some(details), _) if details.text().starts_with('[') => {
                let pieces = pieces(details, &mut elsewhere)?;
                blocks(pieces, plain.unwrap_or_default())
            }
            (_, Some(blocks)) if blocks.text().starts_with('[') => thinking_blocks(blocks)?,
            _ => plain
                .map(|text| Block::Reasoning { text: vec![text], seal: None, hidden: false })
                .into_iter()
                .collect(),
        };
        Ok((blocks, elsewhere))
    }
}

fn pieces<'a>(details: RawJson<'a>, elsewhere: &mut Vec<Elsewhere<'a>>) -> Result<SmallVec<[Piece<'a>; 4]>> {
    let mut pieces: SmallVec<[Piece<'a>; 4]> = SmallVec::new();
    Detail::each(details, |detail| {
        let seal = if detail.has_seal() { Some(seal(&detail)) } else { None };
        if detail.kind == DetailKind::Encrypted {
            match seal {
                Some(seal) if seal.issuer.is_some() && !detail.id.is_empty() => {
                    elsewhere.push(Elsewhere { id: detail.id, seal });
                    return;
                }
                // The summary before it is what the client may read of it.
                Some(seal) => match pieces.last_mut() {
                    Some(last) if last.kind == DetailKind::Summary && last.seal.is_none() => {
                        last.seal = Some(seal);
                    }
                    _ => pieces.push(Piece {
                        kind: detail.kind,
                        index: detail.index,
                        text: Vec::new(),
                        seal: Some(seal),
                    }),
                },
                None => {}
            }
            return;
        }
        let text = Some(detail.text).filter(|text| !text.is_empty());
        match pieces.last_mut() {
            Some(last) if last.kind == detail.kind && last.index == detail.index && last.seal.is_none() => {
                last.text.extend(text);
                last.seal = seal;
            }
            _ => pieces.push(Piece {
                kind: detail.kind,
                index: detail.index,
                text: text.into_iter().collect(),
                seal,
            }),
        }
    })
    .map_err(broken)?;
    Ok(pieces)
}

/// The seal of an element: what is in the envelope, or the element itself.
fn seal<'a>(detail: &Detail<'a>) -> Seal<'a> {
    match Seal::read(detail.opaque) {
        Some(seal) if seal.issuer.is_some() => seal,
        _ => Seal { issuer: None, text: detail.seal().into() },
    }
}

/// Pieces with their texts. One of them may have none, because it stands in the plain text; and the plain text may hold
/// what is in no piece.
fn blocks<'a>(pieces: SmallVec<[Piece<'a>; 4]>, plain: JsonStr<'a>) -> Vec<Block<'a>> {
    let mut rest = plain.escaped();
    for text in pieces.iter().rev().flat_map(|piece| piece.text.iter().rev()) {
        match rest.strip_suffix(text.escaped()) {
            Some(before) => rest = before,
            // They do not say the same: the pieces count, because they have the seals.
            None => rest = "",
        }
    }
    let mut rest = Some(JsonStr::from_escaped(rest)).filter(|rest| !rest.is_empty());
    let takes = |piece: &Piece<'_>| piece.kind == DetailKind::Text && piece.text.is_empty();
    let mut blocks = Vec::with_capacity(pieces.len() + 1);
    if let Some(text) = rest
        && !pieces.iter().any(takes)
    {
        blocks.push(Block::Reasoning { text: vec![text], seal: None, hidden: false });
        rest = None;
    }
    for piece in pieces {
        let mut text = piece.text;
        if text.is_empty() && piece.kind == DetailKind::Text {
            text.extend(rest.take());
        }
        let hidden = piece.kind == DetailKind::Encrypted;
        if !text.is_empty() || piece.seal.is_some() {
            blocks.push(Block::Reasoning { text, seal: piece.seal, hidden });
        }
    }
    blocks
}

/// `thinking_blocks`, as another gateway gives them to its clients.
fn thinking_blocks<'a>(list: RawJson<'a>) -> Result<Vec<Block<'a>>> {
    let mut blocks = Vec::new();
    array(&mut Cursor::new(list.text()), "thinking_blocks", |_, json| {
        let (mut text, mut seal, mut hidden) = (JsonStr::default(), JsonStr::default(), false);
        object(json, "thinking_blocks", |key, json| {
            let value = raw(json)?.as_str().unwrap_or_default();
            match key.escaped() {
                "type" => hidden = value.is("redacted_thinking"),
                "thinking" => text = value,
                "signature" | "data" => seal = value,
                _ => {}
            }
            Ok(())
        })?;
        let text: Vec<_> = Some(text).filter(|text| !text.is_empty()).into_iter().collect();
        let seal = Seal::read(seal);
        if !text.is_empty() || seal.is_some() {
            blocks.push(Block::Reasoning { text, seal, hidden });
        }
        Ok(())
    })?;
    Ok(blocks)
}
