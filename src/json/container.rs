//! Search for the end of a long object or array, in blocks instead of byte by byte.

use super::block::{BLOCK, Vectors, strings};
use super::run::string_end;

/// Maximum nesting depth of skipped values. It is far beyond real documents; the skipping loops do not recurse.
pub(super) const MAX_DEPTH: u32 = 512;

/// Skips whole blocks of an object or array, from a position outside of strings. `depth` is the number of containers open
/// there, at least 1.
///
/// Returns a position outside of strings and the depth there. The end of the container is in the bytes that follow, and
/// so is everything that is not as it must be: a byte-by-byte reader finds the one or the other there.
#[inline(always)]
pub(super) fn skip_blocks(
    vectors: impl Vectors,
    bytes: &[u8],
    mut at: usize,
    mut depth: u32,
) -> (usize, u32) {
    // Last position outside of strings. Within a string the depth does not change.
    let mut outside = at;
    let (mut carry, mut inside) = (false, false);
    while let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk::<BLOCK>()) {
        let marks = vectors.marks(block);
        let quotes = marks.unescaped_quotes(&mut carry);
        let strings = strings(quotes, inside);
        // A backslash outside of a string escapes nothing, and a control character breaks a string.
        if (marks.slashes & !strings) | (marks.controls & strings) != 0 {
            break;
        }
        let brackets = vectors.brackets(block);
        let (opening, closing) = (brackets.opening & !strings, brackets.closing & !strings);
        let (opened, closed) = (opening.count_ones(), closing.count_ones());
        // Rarely the order matters: the container may end in this block, or be nested too deeply.
        if (closed >= depth || depth + opened > MAX_DEPTH) && is_left(opening, closing, depth) {
            break;
        }
        depth = depth + opened - closed;
        inside = strings >> (BLOCK - 1) != 0;
        at += BLOCK;
        if !inside {
            outside = at;
        } else if quotes != 0 {
            // The last quote opens the string that continues behind the block.
            outside = at - 1 - quotes.leading_zeros() as usize;
        } else {
            // A block within one string: it is a long one. If the last byte escapes, start with it.
            match string_end(bytes, at - usize::from(carry)) {
                Ok(end) => (at, outside, inside, carry) = (end + 1, end + 1, false, false),
                Err(_) => break,
            }
        }
    }
    (outside, depth)
}

/// Returns true if the container ends or is nested too deeply at one of these brackets.
fn is_left(opening: u64, closing: u64, depth: u32) -> bool {
    let (mut depth, mut left) = (depth, opening | closing);
    while left != 0 {
        let lowest = left & left.wrapping_neg();
        depth = if opening & lowest != 0 { depth + 1 } else { depth - 1 };
        if depth == 0 || depth > MAX_DEPTH {
            return true;
        }
        left ^= lowest;
    }
    false
}
