//! Search for the end of plain text in a JSON string: the inner loop of every reader in this module.
//!
//! Most strings end within a few bytes, and a few are megabytes of base64. There are three stages: 16 bytes at a time for
//! a near end (8 bytes in a register, SWAR, at the end of the text), blocks of 64 bytes with the vectors that every
//! processor has, and for long runs the widest vectors of the processor ([`long_run`]).

use super::block::{BLOCK, Baseline, NEAR_BLOCK, Vectors, beyond_ascii, equal, specials};
use super::long_run;

/// Number of bytes that are searched for a near end before the block search starts.
const NEAR: usize = 2 * NEAR_BLOCK;

/// Number of blocks that are searched before the processor's widest vectors are used, so that shorter runs do not pay
/// for the choice of them.
const FEW_BLOCKS: usize = 4;

/// Returns the number of leading bytes that are plain text: not `"`, not `\`, and not below 0x20.
#[inline(always)]
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    let mut done = 0;
    while done < NEAR {
        let Some(near) = bytes.get(done..).and_then(|rest| rest.first_chunk()) else {
            return plain_words(bytes, done);
        };
        match Baseline.first_special(near) {
            NEAR_BLOCK => done += NEAR_BLOCK,
            first => return done + first,
        }
    }
    far(bytes, done)
}

/// Finds the closing quote of a string, from a position inside it. Returns `Err` with the position where the text ends
/// too early, or of a byte that is not allowed in a string.
#[inline]
pub(super) fn string_end(bytes: &[u8], from: usize) -> Result<usize, usize> {
    let mut at = from;
    while at < from + NEAR {
        let Some(near) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else {
            return last_end(bytes, at);
        };
        let first = Baseline.first_special(near);
        at += first;
        if first == NEAR_BLOCK {
            continue;
        }
        match bytes.get(at) {
            Some(b'"') => return Ok(at),
            Some(b'\\') => break,
            _ => return Err(at),
        }
    }
    far_end(bytes, at)
}

/// Same as [`string_end`], for the last bytes of a text, which are fewer than [`NEAR_BLOCK`].
#[inline]
fn last_end(bytes: &[u8], from: usize) -> Result<usize, usize> {
    let at = match word_at(bytes, from).map(specials) {
        Some(0) => from + 8,
        Some(marks) => from + (marks.trailing_zeros() / 8) as usize,
        None => from,
    };
    // Frames of streams end a few bytes behind their last string.
    if bytes.get(at) == Some(&b'"') { Ok(at) } else { tail_end(bytes, at) }
}

/// Same as [`string_end`], for long strings and strings with escapes.
fn far_end(bytes: &[u8], from: usize) -> Result<usize, usize> {
    let mut carry = false;
    let (blocks, rest) = bytes.get(from..).unwrap_or_default().as_chunks::<BLOCK>();
    let (few, many) = blocks.split_at(blocks.len().min(FEW_BLOCKS));
    let mut end = end_in_blocks(Baseline, few, &mut carry);
    if end.is_none() && !many.is_empty() {
        end = long_run::end_in_blocks(many, &mut carry).map(|end| end + FEW_BLOCKS * BLOCK);
    }
    if let Some(end) = end {
        let at = from + end;
        return if bytes.get(at) == Some(&b'"') { Ok(at) } else { Err(at) };
    }
    let at = from + blocks.len() * BLOCK;
    // The rest is shorter than a block: load the last 64 bytes, and shift out the bits of those that were checked
    // before.
    let escaped = carry;
    let last = bytes.last_chunk().filter(|_| !rest.is_empty());
    if let Some(marks) = last.map(|block| Baseline.marks(block).without_first(BLOCK - rest.len())) {
        let ends = marks.ends(&mut carry);
        let end = at + ends.trailing_zeros() as usize;
        if bytes.get(end) == Some(&b'"') {
            return Ok(end);
        }
    }
    // No end found, or the text is shorter than a block. If the last block ended with an escaping backslash, start at
    // that backslash.
    tail_end(bytes, at - usize::from(escaped))
}

/// Returns the offset of the byte that ends or breaks the string; `None` if there is none. `carry` is whether the first
/// byte is escaped; without an end it is set to whether the byte after the blocks is.
#[inline(always)]
pub(super) fn end_in_blocks(
    vectors: impl Vectors,
    blocks: &[[u8; BLOCK]],
    carry: &mut bool,
) -> Option<usize> {
    let mut has_escapes = false;
    for (n, block) in blocks.iter().enumerate() {
        if let Some(end) = end_in(vectors, block, carry, &mut has_escapes) {
            return Some(n * BLOCK + end);
        }
    }
    None
}

/// Returns the offset in a block of the byte that ends or breaks the string; `None` if there is none. `has_escapes` is
/// whether the block before had backslashes, and is set to whether this one has.
#[inline(always)]
fn end_in(
    vectors: impl Vectors,
    block: &[u8; BLOCK],
    carry: &mut bool,
    has_escapes: &mut bool,
) -> Option<usize> {
    // Behind a block with escapes the next one mostly has some too: it is classified once.
    if !*has_escapes {
        let first = vectors.specials_in(block).trailing_zeros() as usize;
        let Some(&byte) = block.get(first) else {
            *carry = false;
            return None;
        };
        // Most strings have no escape in their last block, which saves the masks.
        if !*carry && byte != b'\\' {
            return Some(first);
        }
    }
    let marks = vectors.marks(block);
    *has_escapes = marks.slashes != 0;
    match marks.ends(carry) {
        0 => None,
        ends => Some(ends.trailing_zeros() as usize),
    }
}

/// Skips string text and complete, valid escapes, in whole blocks. Returns the position where it stops, which is never
/// inside an escape. The rest that is shorter than a block is not scanned. Calls `note` for each escape of half
/// a surrogate pair, with where it starts and its UTF-16 unit.
pub(super) fn escaped_run(bytes: &[u8], from: usize, mut note: impl FnMut(usize, u32)) -> usize {
    let (mut at, mut carry) = (from, false);
    let (blocks, _) = bytes.get(from..).unwrap_or_default().as_chunks::<BLOCK>();
    // Wider vectors do not pay here: each escape is checked by itself, which costs more than the masks.
    for block in blocks {
        let (ends, escaped) = Baseline.marks(block).ends_and_escaped(&mut carry);
        // Escaped bytes below the lowest end; all of them if there is no end.
        let mut left = escaped & (ends.wrapping_sub(1) & !ends);
        while left != 0 {
            let place = at + left.trailing_zeros() as usize;
            if !is_escape(bytes, place, &mut note) {
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

/// Returns the UTF-16 unit of hexadecimal digits.
#[cold]
fn unit_of(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |unit, digit| unit << 4 | char::from(*digit).to_digit(16).unwrap_or_default())
}

/// Whether a byte is no hexadecimal digit.
#[allow(clippy::indexing_slicing, reason = "a fault is one of the build")]
static IS_OTHER: [bool; 256] = {
    let mut other = [true; 256];
    let mut byte = 0;
    while byte < other.len() {
        other[byte] = !(byte as u8).is_ascii_hexdigit();
        byte += 1;
    }
    other
};

/// Returns whether these are hexadecimal digits, without a branch for each.
#[inline]
fn are_hexadecimal(digits: &[u8; 4]) -> bool {
    let is_other = |digit: u8| IS_OTHER.get(usize::from(digit)).copied().unwrap_or(true);
    let [first, second, third, fourth] = *digits;
    !(is_other(first) | is_other(second) | is_other(third) | is_other(fourth))
}

/// Returns true if the bytes at `at`, behind a backslash, complete a valid escape.
#[inline]
fn is_escape(bytes: &[u8], at: usize, note: &mut impl FnMut(usize, u32)) -> bool {
    match bytes.get(at) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => true,
        Some(b'u') => {
            let Some(digits) = bytes.get(at + 1..).and_then(|rest| rest.first_chunk::<4>()) else {
                return false;
            };
            if !are_hexadecimal(digits) {
                return false;
            }
            // Of all units only the halves of pairs are of interest: few texts have any.
            if let [b'd' | b'D', ..] = digits {
                note(at.saturating_sub(1), unit_of(digits));
            }
            true
        }
        _ => false,
    }
}

/// Returns the position behind an escape that starts at `at`. Returns `Err` for an escaped control character: an
/// escaped line break still breaks the frame that the string is inserted into.
#[inline]
fn escaped(bytes: &[u8], at: usize) -> Result<usize, usize> {
    match bytes.get(at + 1) {
        Some(0..0x20) => Err(at + 1),
        _ => Ok(at + 2),
    }
}

/// Same as [`string_end`], byte by byte, for the last bytes.
fn tail_end(bytes: &[u8], from: usize) -> Result<usize, usize> {
    let mut at = from;
    loop {
        match bytes.get(at) {
            Some(b'"') => return Ok(at),
            Some(b'\\') => at = escaped(bytes, at)?,
            Some(0..0x20) => return Err(at),
            Some(_) => at += 1,
            // The text ends behind a lone backslash: report the position of the backslash.
            None => return Err(if at > bytes.len() { bytes.len().saturating_sub(1) } else { at }),
        }
    }
}

/// Calls `each` with the position of every byte behind a backslash that escapes it, in their order.
#[inline]
pub(super) fn escaped_bytes(bytes: &[u8], mut each: impl FnMut(usize)) {
    let mut carry = false;
    let mut in_block = |from: usize, block: &[u8; BLOCK]| {
        let (_, mut left) = Baseline.marks(block).ends_and_escaped(&mut carry);
        while left != 0 {
            each(from + left.trailing_zeros() as usize);
            left &= left - 1;
        }
    };
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    for (n, block) in blocks.iter().enumerate() {
        in_block(n * BLOCK, block);
    }
    // Pad the last bytes to a whole block.
    let mut block = [0; BLOCK];
    if let Some(front) = block.get_mut(..rest.len()).filter(|front| !front.is_empty()) {
        front.copy_from_slice(rest);
        in_block(blocks.len() * BLOCK, &block);
    }
}

/// Returns the number of bytes before the first backslash; the length if there is none. Eight at a time, and with vectors in
/// a long text.
#[inline]
pub fn before_backslash(bytes: &[u8]) -> usize {
    /// Number of bytes from which the call of a vectorized search pays off.
    const FEW: usize = 24;
    let mut at = 0;
    while at < FEW {
        let Some(word) = word_at(bytes, at) else {
            let rest = bytes.get(at..).unwrap_or_default();
            return at + rest.iter().position(|&byte| byte == b'\\').unwrap_or(rest.len());
        };
        match equal(word, b'\\') {
            0 => at += 8,
            marks => return at + (marks.trailing_zeros() / 8) as usize,
        }
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + memchr::memchr(b'\\', rest).unwrap_or(rest.len())
}

/// Returns the number of leading bytes that are one character each: ASCII except the backslash.
#[inline]
pub(super) fn single_run(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(word) = word_at(bytes, at) {
        match equal(word, b'\\') | beyond_ascii(word) {
            0 => at += 8,
            marks => return at + (marks.trailing_zeros() / 8) as usize,
        }
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(|&byte| byte == b'\\' || !byte.is_ascii()).unwrap_or(rest.len())
}

/// Counts the UTF-8 characters that start in these bytes, and returns whether there is a backslash among them.
#[inline]
pub(super) fn characters(bytes: &[u8]) -> (usize, bool) {
    // As a signed number, a UTF-8 continuation byte is -128 to -65.
    let begins = |byte: u8| u8::from(byte.cast_signed() >= -64);
    // Branch-free, so that the compiler vectorizes it. A block has at most 32 characters, so a `u8` cannot overflow.
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
        // Pad the last bytes to a whole block with continuation bytes, which do not count as characters.
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

/// Counts the leading plain bytes of the last few (fewer than 8) bytes.
#[inline]
fn tail(bytes: &[u8]) -> usize {
    bytes.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\').unwrap_or(bytes.len())
}

/// Returns the number of leading blocks without a special byte.
#[inline(always)]
pub(super) fn clean_blocks(vectors: impl Vectors, blocks: &[[u8; BLOCK]]) -> usize {
    blocks.iter().take_while(|block| vectors.specials_in(block) == 0).count()
}

/// Continues [`plain_run`] for long text.
fn far(bytes: &[u8], from: usize) -> usize {
    let (blocks, _) = bytes.get(from..).unwrap_or_default().as_chunks::<BLOCK>();
    let (few, many) = blocks.split_at(blocks.len().min(FEW_BLOCKS));
    let mut clean = clean_blocks(Baseline, few);
    if clean == FEW_BLOCKS && !many.is_empty() {
        clean += long_run::clean_blocks(many);
    }
    plain_words(bytes, from + clean * BLOCK)
}

/// Continues [`plain_run`] with SWAR, to the end of the text.
fn plain_words(bytes: &[u8], from: usize) -> usize {
    let mut done = from;
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
    use super::super::block::Words;
    use super::*;
    use proptest::prelude::*;

    /// Bytes that end, break or escape a string.
    fn special() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            2 => proptest::collection::vec(Just(b'\\'), 1..70),
            1 => Just(b"\"".to_vec()),
            1 => Just(b"\\\"".to_vec()),
            1 => Just(b"\\\n".to_vec()),
            1 => (0u8..0x20).prop_map(|byte| vec![byte]),
        ]
    }

    proptest! {
        #[test]
        fn string_end_is_found_or_the_fault_is_located(text in "([a-zé]{0,90}(\\\\[\"\\\\n\n]|\\\\u00e9)?){0,4}[\"\u{1}]?[a-z]{0,20}") {
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
        fn string_end_in_blocks_matches_a_bytewise_search(
            mut text in proptest::collection::vec(0x20u8..=0xff, 0..1_400),
            marks in proptest::collection::vec((0usize..1_400, special()), 0..4),
            start in 0usize..130,
        ) {
            text.iter_mut().filter(|byte| matches!(byte, b'"' | b'\\')).for_each(|byte| *byte = b'a');
            for (at, run) in marks {
                for (slot, byte) in text.iter_mut().skip(at).zip(run) {
                    *slot = byte;
                }
            }
            for start in [0, start, start + 1, text.len()] {
                prop_assert_eq!(string_end(&text, start), tail_end(&text, start), "from {}", start);
            }
            let rest = text.get(start..).unwrap_or_default();
            let (blocks, _) = rest.as_chunks::<BLOCK>();
            let clean = blocks.iter().take_while(|block| tail(*block) == BLOCK).count();
            prop_assert_eq!(clean_blocks(Words, blocks), clean);
            prop_assert_eq!(clean_blocks(Baseline, blocks), clean);
            prop_assert_eq!(long_run::clean_blocks(blocks), clean);
            for carry in [false, true] {
                let (mut plain, mut baseline, mut widest) = (carry, carry, carry);
                let end = end_in_blocks(Words, blocks, &mut plain);
                prop_assert_eq!(end_in_blocks(Baseline, blocks, &mut baseline), end);
                prop_assert_eq!(long_run::end_in_blocks(blocks, &mut widest), end);
                if end.is_none() {
                    prop_assert_eq!((baseline, widest), (plain, plain));
                }
            }
        }

        #[test]
        fn run_counts_characters_and_finds_escaped_bytes(text in r"[a-zäß€🌍\\]{0,40}[a-z]{0,100}[ä€\\]{0,40}") {
            let bytes = text.as_bytes();
            prop_assert_eq!(characters(bytes), (text.chars().count(), text.contains('\\')));
            let (mut found, mut expected, mut is_escaped) = (Vec::new(), Vec::new(), false);
            escaped_bytes(bytes, |at| found.push(at));
            for (at, byte) in bytes.iter().enumerate() {
                if is_escaped {
                    expected.push(at);
                }
                is_escaped = *byte == b'\\' && !is_escaped;
            }
            // Behind the text, if its last backslash escapes nothing.
            found.retain(|at| *at < bytes.len());
            prop_assert_eq!(found, expected);
            let special = text.find(|c: char| c == '\\' || !c.is_ascii());
            prop_assert_eq!(single_run(bytes), special.unwrap_or(bytes.len()));
        }

        #[test]
        fn run_of_plain_bytes_matches_a_bytewise_scan(
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

    // Every length around the stages, with the end at every place of a block.
    #[test]
    fn string_end_is_found_at_every_distance() {
        for length in 0..6 * BLOCK {
            for end in [&b"\""[..], b"\\\"\"", b"\\\\\"", b"\n", b""] {
                let text = [&vec![b'a'; length][..], end, &[b'b'; 70][..]].concat();
                for from in [0, 1, 13] {
                    assert_eq!(string_end(&text, from), tail_end(&text, from), "{length} {end:?} {from}");
                }
                assert_eq!(plain_run(&text), tail(&text), "{length} {end:?}");
            }
        }
    }
}
