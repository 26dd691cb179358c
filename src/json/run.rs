//! How far plain text reaches inside a JSON string: the inner loop of every reader in this folder.
//!
//! Most strings end within a few bytes and a few are megabytes of base64, so there are two gaits: eight bytes at a
//! time in a register, which finds a near end exactly, and blocks of sixty-four.

use super::block::{BLOCK, marks, specials_in};

/// Bytes that the register gait tries before the block gait takes over.
const NEAR: usize = 24;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The high bit of each byte of `word` that is `"`, `\` or below 0x20. Bytes above the lowest such byte may be marked
/// wrongly (a borrow runs upwards); the lowest mark is always right.
#[inline]
const fn specials(word: u64) -> u64 {
    let control = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
    control | equal(word, b'"') | equal(word, b'\\')
}

/// The high bit of each byte of `word` that is `byte`; likewise, the lowest mark is always right.
#[inline]
const fn equal(word: u64, byte: u8) -> u64 {
    let zero_where_equal = word ^ (ONES * byte as u64);
    zero_where_equal.wrapping_sub(ONES) & !zero_where_equal & HIGHS
}

/// The number of leading bytes of `bytes` that are plain text: neither `"`, nor `\`, nor below 0x20.
#[inline(always)]
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    let mut done = 0;
    while done < NEAR {
        match word_at(bytes, done) {
            Some(word) => match specials(word) {
                0 => done += 8,
                marks => return done + (marks.trailing_zeros() / 8) as usize,
            },
            None => return done + tail(bytes.get(done..).unwrap_or_default()),
        }
    }
    far(bytes, done)
}

/// From inside a string to the quote that ends it: where that stands. Otherwise where the text ends too early, or where
/// a byte stands that may not be in a string.
#[inline]
pub(super) fn string_end(bytes: &[u8], from: usize) -> Result<usize, usize> {
    let mut at = from;
    while at < from + NEAR {
        let Some(word) = word_at(bytes, at) else { return tail_end(bytes, at) };
        let marks = specials(word);
        if marks == 0 {
            at += 8;
            continue;
        }
        let bits = marks.trailing_zeros() & !7;
        at += (bits / 8) as usize;
        match (word >> bits) as u8 {
            b'"' => return Ok(at),
            b'\\' => break,
            _ => return Err(at),
        }
    }
    far_end(bytes, at)
}

/// The same for what is long, or has escapes in it.
fn far_end(bytes: &[u8], from: usize) -> Result<usize, usize> {
    let (mut at, mut carry) = (from, false);
    let (blocks, rest) = bytes.get(from..).unwrap_or_default().as_chunks::<BLOCK>();
    for block in blocks {
        if let Some(end) = end_in(block, &mut carry) {
            at += end;
            return if bytes.get(at) == Some(&b'"') { Ok(at) } else { Err(at) };
        }
        at += BLOCK;
    }
    // The last ones: with the end of what was before them, whose bits are shifted out.
    let escaped = carry;
    let last = bytes.last_chunk().filter(|_| !rest.is_empty());
    if let Some(marks) = last.map(|block| marks(block).without_first(BLOCK - rest.len())) {
        let ends = marks.ends(&mut carry);
        let end = at + ends.trailing_zeros() as usize;
        if bytes.get(end) == Some(&b'"') {
            return Ok(end);
        }
    }
    // There is no end, or no block. A backslash at the end of a block escapes the byte behind it.
    tail_end(bytes, at - usize::from(escaped))
}

/// Where a string ends or is broken in a block.
#[inline]
fn end_in(block: &[u8; BLOCK], carry: &mut bool) -> Option<usize> {
    let first = specials_in(block).trailing_zeros() as usize;
    let Some(&byte) = block.get(first) else {
        *carry = false;
        return None;
    };
    // Most strings have no escape in their last block.
    if !*carry && byte != b'\\' {
        return Some(first);
    }
    match marks(block).ends(carry) {
        0 => None,
        ends => Some(ends.trailing_zeros() as usize),
    }
}

/// Over the text of a string as long as every escape in it is known and whole: where it stops, which is outside of any
/// escape. What is left of less than a block is not looked at.
pub(super) fn escaped_run(bytes: &[u8], from: usize) -> usize {
    let (mut at, mut carry) = (from, false);
    let (blocks, _) = bytes.get(from..).unwrap_or_default().as_chunks::<BLOCK>();
    for block in blocks {
        let (ends, escaped) = marks(block).ends_and_escaped(&mut carry);
        // Those below the lowest end; all, where there is none.
        let mut left = escaped & (ends.wrapping_sub(1) & !ends);
        while left != 0 {
            let place = at + left.trailing_zeros() as usize;
            if !is_escape(bytes, place) {
                return place - 1;
            }
            left &= left - 1;
        }
        if ends != 0 {
            let end = ends.trailing_zeros();
            return at + end as usize - usize::from(escaped >> end & 1 != 0);
        }
        at += BLOCK;
    }
    at - usize::from(carry)
}

/// Whether what stands here makes a sound escape of the backslash before it.
#[inline]
fn is_escape(bytes: &[u8], at: usize) -> bool {
    match bytes.get(at) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => true,
        Some(b'u') => {
            bytes.get(at + 1..at + 5).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        }
        _ => false,
    }
}

/// Where the text goes on behind a backslash and what it escapes. A line break does not become harmless by being escaped:
/// what is read here is pasted into frames that end with one.
#[inline]
fn escaped(bytes: &[u8], at: usize) -> Result<usize, usize> {
    match bytes.get(at + 1) {
        Some(0..0x20) => Err(at + 1),
        _ => Ok(at + 2),
    }
}

/// The same for the last bytes.
fn tail_end(bytes: &[u8], from: usize) -> Result<usize, usize> {
    let mut at = from;
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok(at),
            Some(b'\\') => at = escaped(bytes, at)?,
            Some(0..0x20) => return Err(at),
            Some(_) => at += 1,
            // A backslash that nothing follows is where it ends.
            None => return Err(if at > bytes.len() { bytes.len().saturating_sub(1) } else { at }),
        }
    }
}

/// Where the first backslash stands.
#[inline]
pub(super) fn backslash(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(word) = word_at(bytes, at) {
        match equal(word, b'\\') {
            0 => at += 8,
            marks => return Some(at + (marks.trailing_zeros() / 8) as usize),
        }
    }
    bytes.get(at..)?.iter().position(|&byte| byte == b'\\').map(|found| at + found)
}

/// The number of leading bytes that are one character each: ASCII, and no backslash.
#[inline]
pub(super) fn single_run(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(word) = word_at(bytes, at) {
        match equal(word, b'\\') | (word & HIGHS) {
            0 => at += 8,
            marks => return at + (marks.trailing_zeros() / 8) as usize,
        }
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(|&byte| byte == b'\\' || !byte.is_ascii()).unwrap_or(rest.len())
}

/// How many characters of UTF-8 begin in these bytes, and whether a backslash is among them.
#[inline]
pub(super) fn characters(bytes: &[u8]) -> (usize, bool) {
    // A byte that continues a character is -128 to -65 as a number with a sign.
    let begins = |byte: u8| u8::from(byte.cast_signed() >= -64);
    // Branch-free over the block, so that it becomes vector code; a block has less than 256 characters.
    let some = |block: &[u8; 32]| {
        let (mut count, mut escapes) = (0u8, 0u8);
        for &byte in block {
            count += begins(byte);
            escapes |= u8::from(byte == b'\\');
        }
        (usize::from(count), escapes != 0)
    };
    let (blocks, rest) = bytes.as_chunks::<32>();
    let (mut count, mut escapes) = (0, false);
    for block in blocks {
        let (more, backslash) = some(block);
        count += more;
        escapes |= backslash;
    }
    if !rest.is_empty() {
        // The last ones in a block of their own: what fills it continues a character and so counts for nothing.
        let mut block = [0x80; 32];
        if let Some(front) = block.get_mut(..rest.len()) {
            front.copy_from_slice(rest);
        }
        let (more, backslash) = some(&block);
        count += more;
        escapes |= backslash;
    }
    (count, escapes)
}

#[inline]
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*eight))
}

/// The last bytes, fewer than eight.
#[inline]
fn tail(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\').unwrap_or(bytes.len())
}

/// Long text: over all blocks without a special byte.
fn clean_blocks(bytes: &[u8], from: usize) -> usize {
    let (blocks, _) = bytes.get(from..).unwrap_or_default().as_chunks::<BLOCK>();
    from + blocks.iter().take_while(|block| specials_in(block) == 0).count() * BLOCK
}

/// Long text.
fn far(bytes: &[u8], from: usize) -> usize {
    let mut done = clean_blocks(bytes, from);
    while let Some(word) = word_at(bytes, done) {
        match specials(word) {
            0 => done += 8,
            marks => return done + (marks.trailing_zeros() / 8) as usize,
        }
    }
    done + tail(bytes.get(done..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_end_of_a_string_is_found(text in "([a-zé]{0,90}(\\\\[\"\\\\n\n]|\\\\u00e9)?){0,4}[\"\u{1}]?[a-z]{0,20}") {
            let bytes = text.as_bytes();
            let mut at = 0;
            let expected = loop {
                at += plain_run(bytes.get(at..).unwrap_or_default());
                match bytes.get(at) {
                    Some(b'"') => break Ok(at),
                    Some(b'\\') if bytes.get(at + 1).is_some_and(|byte| *byte < 0x20) => break Err(at + 1),
                    Some(b'\\') => at += 2,
                    _ => break Err(at),
                }
            };
            prop_assert_eq!(string_end(bytes, 0), expected);
        }

        #[test]
        fn characters_and_backslashes_are_found(text in r"[a-zäß€🌍\\]{0,40}[a-z]{0,100}[ä€\\]{0,40}") {
            let bytes = text.as_bytes();
            prop_assert_eq!(characters(bytes), (text.chars().count(), text.contains('\\')));
            prop_assert_eq!(backslash(bytes), text.find('\\'));
            let special = text.find(|c: char| c == '\\' || !c.is_ascii());
            prop_assert_eq!(single_run(bytes), special.unwrap_or(bytes.len()));
        }

        #[test]
        fn both_gaits_find_the_first_special_byte(
            mut text in proptest::collection::vec(0x20u8..=0xff, 0..400),
            marks in proptest::collection::vec((0usize..400, any::<u8>()), 0..6),
        ) {
            for (at, byte) in marks {
                if let Some(slot) = text.get_mut(at) {
                    *slot = byte;
                }
            }
            for start in [0, 1, 7] {
                let text = text.get(start..).unwrap_or_default();
                prop_assert_eq!(plain_run(text), tail(text));
            }
        }
    }
}
