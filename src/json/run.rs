//! How far plain text reaches inside a JSON string: the inner loop of every reader in this folder.

/// Bytes that end or interrupt plain text inside a string: the quote, the backslash and raw control characters.
#[allow(clippy::indexing_slicing, reason = "evaluated while compiling")]
const SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut i = 0;
    while i < 0x20 {
        table[i] = true;
        i += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table
};

/// Bytes looked at in one step. Two SSE registers: wide enough to be fast on base64, narrow enough not to waste
/// work on the short strings of a stream frame.
const STEP: usize = 32;

/// The number of leading bytes of `bytes` that are plain text: neither `"`, nor `\`, nor below 0x20.
#[inline]
#[allow(clippy::indexing_slicing, reason = "a byte indexes a table of 256")]
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    let mut done = 0;
    let (blocks, rest) = bytes.as_chunks::<STEP>();
    for block in blocks {
        // Branch-free over the block, so that the compiler turns it into vector compares.
        let mut hit = false;
        for &byte in block {
            hit |= (byte == b'"') | (byte == b'\\') | (byte < 0x20);
        }
        if hit {
            return done + block.iter().position(|&b| SPECIAL[b as usize]).unwrap_or(STEP);
        }
        done += STEP;
    }
    done + rest.iter().position(|&b| SPECIAL[b as usize]).unwrap_or(rest.len())
}
