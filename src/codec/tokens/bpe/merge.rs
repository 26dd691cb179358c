//! Merges the bytes of a piece to tokens: of all neighbours that form a token together, the pair with the lowest rank is
//! merged first, until no pair forms one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::encoder::{BpeEncoder, NONE};

/// Length of a piece in bytes up to which the next pair is searched among all: for a few pairs that is faster than a
/// heap.
const SHORT: usize = 96;
/// Length in bytes of the parts that longer pieces are cut into. Words are shorter: such pieces are one letter, symbol or
/// space repeated, or a language without spaces and punctuation, and the cut costs at most a token each.
const LONGEST: usize = 1 << 10;

/// Memory for the merges, kept from piece to piece.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    parts: Vec<Part>,
    /// Pairs that form a token: rank in the upper half, index of the left part in the lower one. One number, because the
    /// comparison of pairs takes most of the time.
    heap: BinaryHeap<Reverse<u64>>,
}

/// Token in the making.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// First byte.
    start: u32,
    /// Rank of the token that this part and the next one form.
    rank: u32,
    /// Neighbours, as indices of parts. Only for long pieces.
    next: u32,
    previous: u32,
}

/// Returns the number of tokens of a piece.
#[inline]
pub(super) fn count(encoder: &BpeEncoder, piece: &[u8], scratch: &mut Scratch) -> u64 {
    // Most pieces are one token.
    if piece.len() < 2 || encoder.id(piece).is_some() {
        return 1;
    }
    let (mut tokens, mut last, mut of_last) = (0, &[][..], 0);
    for part in piece.chunks(LONGEST) {
        // A run of one character has equal parts, which are counted once: such runs cost the most merges.
        if part != last {
            of_last = count_part(encoder, part, scratch);
            last = part;
        }
        tokens += of_last;
    }
    tokens
}

fn count_part(encoder: &BpeEncoder, part: &[u8], scratch: &mut Scratch) -> u64 {
    if part.len() <= SHORT { count_short(encoder, part, scratch) } else { count_long(encoder, part, scratch) }
}

fn heap_entry(rank: u32, part: u32) -> Reverse<u64> {
    Reverse(u64::from(rank) << 32 | u64::from(part))
}

fn rank(encoder: &BpeEncoder, piece: &[u8], from: u32, to: Option<u32>) -> u32 {
    let bytes = to.and_then(|to| piece.get(from as usize..to as usize));
    bytes.and_then(|bytes| encoder.id(bytes)).unwrap_or(NONE)
}

/// Returns each byte's position with the rank of the pair that it begins.
fn first_ranks(encoder: &BpeEncoder, piece: &[u8]) -> impl Iterator<Item = (u32, u32)> {
    let pairs = piece.windows(2).map(|pair| match *pair {
        [first, second] => encoder.pair_rank(first, second),
        _ => NONE,
    });
    (0..).zip(pairs.chain([NONE]))
}

/// Counts the tokens of a short piece: the parts are in one list, from which a merged one is removed.
fn count_short(encoder: &BpeEncoder, piece: &[u8], scratch: &mut Scratch) -> u64 {
    let parts = &mut scratch.parts;
    let length = u32::try_from(piece.len()).unwrap_or(u32::MAX);
    parts.clear();
    parts.extend(first_ranks(encoder, piece).map(|(start, rank)| Part { start, rank, next: 0, previous: 0 }));
    loop {
        let lowest = parts.iter().enumerate().min_by_key(|(_, part)| part.rank);
        let Some((at, _)) = lowest.filter(|(_, part)| part.rank != NONE) else { break };
        // There is a part behind it: the last one has no rank.
        parts.remove(at + 1);
        let start_of = |parts: &[Part], at: usize| parts.get(at).map(|part| part.start);
        // The pair of a part ends where the part after the next one starts, and at the end of the piece if there is none.
        for changed in [Some(at), at.checked_sub(1)].into_iter().flatten() {
            let has_next = changed + 1 < parts.len();
            let end = start_of(parts, changed + 2).or(has_next.then_some(length));
            if let Some(part) = parts.get_mut(changed) {
                part.rank = rank(encoder, piece, part.start, end);
            }
        }
    }
    parts.len() as u64
}

/// Counts the tokens of a long piece in n log n: the parts are a linked list, and the pairs lie in a heap.
fn count_long(encoder: &BpeEncoder, piece: &[u8], scratch: &mut Scratch) -> u64 {
    let Scratch { parts, heap } = scratch;
    let length = u32::try_from(piece.len()).unwrap_or(u32::MAX);
    parts.clear();
    heap.clear();
    for (start, rank) in first_ranks(encoder, piece) {
        parts.push(Part { start, rank, next: start + 1, previous: start.wrapping_sub(1) });
        if rank != NONE {
            heap.push(heap_entry(rank, start));
        }
    }
    let mut tokens = u64::from(length);
    let part_at = |parts: &[Part], at: u32| parts.get(at as usize).copied();
    while let Some(Reverse(entry)) = heap.pop() {
        let (lowest, at) = ((entry >> 32) as u32, entry as u32);
        // Entries whose pair has changed since are outdated.
        let Some(left) = part_at(parts, at).filter(|part| part.rank == lowest) else { continue };
        let Some(right) = part_at(parts, left.next) else { continue };
        tokens -= 1;
        if let Some(merged) = parts.get_mut(left.next as usize) {
            merged.rank = NONE;
        }
        if let Some(after) = parts.get_mut(right.next as usize) {
            after.previous = at;
        }
        if let Some(left) = parts.get_mut(at as usize) {
            left.next = right.next;
        }
        for changed in [at, left.previous] {
            let Some(part) = part_at(parts, changed) else { continue };
            let end = part_at(parts, part.next)
                .map(|next| part_at(parts, next.next).map_or(length, |after| after.start));
            let new = rank(encoder, piece, part.start, end);
            if let Some(part) = parts.get_mut(changed as usize) {
                part.rank = new;
            }
            if new != NONE {
                heap.push(heap_entry(new, changed));
            }
        }
    }
    tokens
}
