//! Decoder of earlier reasoning in an assistant message: its text under one of three names, and its provider signatures
//! in a list beside it.

use smallvec::SmallVec;

use super::read::{Result, array, broken, object, raw};
use crate::canonical::{Block, ProviderSignature};
use crate::wire::chat::details::{Detail, DetailKind};
use json::{Cursor, JsonStr, RawJson};

/// Reasoning members of an assistant message.
#[derive(Default)]
pub(super) struct ReasoningMembers<'a> {
    pub(super) reasoning_content: Option<RawJson<'a>>,
    pub(super) reasoning: Option<RawJson<'a>>,
    pub(super) details: Option<RawJson<'a>>,
    pub(super) thinking_blocks: Option<RawJson<'a>>,
}

/// Provider signature of something other than reasoning, with the id of its block: a call's id, `text` or
/// `image_<number>`.
pub(super) struct DetachedSignature<'a> {
    pub(super) id: JsonStr<'a>,
    pub(super) signature: ProviderSignature<'a>,
}

/// Reasoning block in the list. Stream fragments that a client has only concatenated are joined to one block.
struct Piece<'a> {
    kind: DetailKind,
    index: &'a str,
    text: Vec<JsonStr<'a>>,
    seal: Option<ProviderSignature<'a>>,
}

impl<'a> ReasoningMembers<'a> {
    /// Returns the reasoning blocks of the message, and the provider signatures that belong to other blocks.
    pub(super) fn read(&self) -> Result<(Vec<Block<'a>>, Vec<DetachedSignature<'a>>)> {
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
                .map(|text| Block::Reasoning { text: vec![text], signature: None, hidden: false })
                .into_iter()
                .collect(),
        };
        Ok((blocks, elsewhere))
    }
}

fn pieces<'a>(
    details: RawJson<'a>,
    elsewhere: &mut Vec<DetachedSignature<'a>>,
) -> Result<SmallVec<[Piece<'a>; 4]>> {
    let mut pieces: SmallVec<[Piece<'a>; 4]> = SmallVec::new();
    Detail::each(details, |detail| {
        let seal = if detail.has_signature() { Some(seal(&detail)) } else { None };
        if detail.kind == DetailKind::Encrypted {
            match seal {
                // An envelope with an id is a signature that this gateway put here for another block.
                Some(seal) if seal.issuer.is_some() && !detail.id.is_empty() => {
                    elsewhere.push(DetachedSignature { id: detail.id, signature: seal });
                    return;
                }
                // The summary before encrypted reasoning is its readable form; both are one block.
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
            // Stream fragments of one block: a signature ends the block.
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

/// Returns the provider signature of an element: the content of its envelope, or the element itself.
fn seal<'a>(detail: &Detail<'a>) -> ProviderSignature<'a> {
    match ProviderSignature::read(detail.opaque) {
        Some(seal) if seal.issuer.is_some() => seal,
        _ => ProviderSignature { issuer: None, text: detail.signature().into() },
    }
}

/// Combines the listed blocks with the plain text. One block may lack its text, which is then in the plain text; and
/// the plain text may contain reasoning that no block has.
fn blocks<'a>(pieces: SmallVec<[Piece<'a>; 4]>, plain: JsonStr<'a>) -> Vec<Block<'a>> {
    let mut rest = plain.escaped();
    for text in pieces.iter().rev().flat_map(|piece| piece.text.iter().rev()) {
        match rest.strip_suffix(text.escaped()) {
            Some(before) => rest = before,
            // The two differ: use the blocks, because the provider verifies the signatures against their texts.
            None => rest = "",
        }
    }
    let mut rest = Some(JsonStr::from_escaped(rest)).filter(|rest| !rest.is_empty());
    let takes = |piece: &Piece<'_>| piece.kind == DetailKind::Text && piece.text.is_empty();
    let mut blocks = Vec::with_capacity(pieces.len() + 1);
    if let Some(text) = rest
        && !pieces.iter().any(takes)
    {
        blocks.push(Block::Reasoning { text: vec![text], signature: None, hidden: false });
        rest = None;
    }
    for piece in pieces {
        let mut text = piece.text;
        if text.is_empty() && piece.kind == DetailKind::Text {
            text.extend(rest.take());
        }
        let hidden = piece.kind == DetailKind::Encrypted;
        if !text.is_empty() || piece.seal.is_some() {
            blocks.push(Block::Reasoning { text, signature: piece.seal, hidden });
        }
    }
    blocks
}

/// Decodes `thinking_blocks`, the form that the LiteLLM gateway gives to its clients.
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
        let seal = ProviderSignature::read(seal);
        if !text.is_empty() || seal.is_some() {
            blocks.push(Block::Reasoning { text, signature: seal, hidden });
        }
        Ok(())
    })?;
    Ok(blocks)
}
