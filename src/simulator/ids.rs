//! Identifiers and provider signatures, derived from a counter and hashes, so that equal requests get equal ones.

use base64_simd::{STANDARD, URL_SAFE};

/// Key of all signatures. It is not secret: it only makes signatures recognizable that the simulator did not issue. All
/// simulators share it, so that a conversation can move from one to another, as between accounts of a real provider.
const KEY: u64 = 0x5eed_0f5e_a15e_a1ed;

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const HEX: &[u8; 16] = b"0123456789abcdef";
const BASE36: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Returns a 64-bit hash of bytes. Not collision-resistant against an adversary.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let mut state = bytes.len() as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = chunk.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
        state = combine(state, word);
    }
    let tail = chunks.remainder().iter().fold(1u64, |word, byte| word << 8 | u64::from(*byte));
    combine(state, tail)
}

/// Combines two hashes.
pub(super) fn combine(one: u64, other: u64) -> u64 {
    mix((one.rotate_left(23) ^ other).wrapping_mul(0xff51_afd7_ed55_8ccd))
}

/// Finalizer of splitmix64.
fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Generator of identifiers and other pseudo-random numbers: splitmix64.
#[derive(Debug, Clone)]
pub(super) struct Ids {
    state: u64,
}

impl Ids {
    /// Returns the generator for a request, seeded with its number and body.
    pub(super) fn new(serial: u64, body: &[u8]) -> Ids {
        Ids { state: combine(hash(body), serial) }
    }

    pub(super) fn seeded(seed: u64) -> Ids {
        Ids { state: seed }
    }

    /// Returns the next 64 bits.
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Returns an identifier: `prefix` and `length` letters and digits.
    pub(super) fn base62(&mut self, prefix: &str, length: usize) -> String {
        self.pick(BASE62, prefix, length)
    }

    /// Returns an identifier: `prefix` and `length` lower-case letters and digits.
    pub(super) fn base36(&mut self, prefix: &str, length: usize) -> String {
        self.pick(BASE36, prefix, length)
    }

    /// Returns an identifier: `prefix` and `length` hexadecimal digits.
    pub(super) fn hex(&mut self, prefix: &str, length: usize) -> String {
        self.pick(HEX, prefix, length)
    }

    fn pick(&mut self, alphabet: &[u8], prefix: &str, length: usize) -> String {
        let mut id = String::with_capacity(prefix.len() + length);
        id.push_str(prefix);
        for _ in 0..length {
            let at = (self.next() % alphabet.len() as u64) as usize;
            id.extend(alphabet.get(at).map(|byte| char::from(*byte)));
        }
        id
    }

    fn bytes(&mut self, words: usize) -> Vec<u8> {
        (0..words).flat_map(|_| self.next().to_be_bytes()).collect()
    }
}

/// Returns a signature of a text, as for Anthropic's thinking blocks: base64 of 66 bytes, valid for this text only. Two
/// signatures of one text differ.
pub(super) fn seal(text: &str, nonce: u64) -> String {
    let mut bytes = vec![0x12, 0x40];
    bytes.extend(nonce.to_be_bytes());
    bytes.extend(Ids::seeded(combine(combine(KEY, nonce), hash(text.as_bytes()))).bytes(7));
    STANDARD.encode_to_string(bytes)
}

/// Returns true if a signature is one of this text.
pub(super) fn is_seal(signature: &str, text: &str) -> bool {
    let bytes = STANDARD.decode_to_vec(signature).unwrap_or_default();
    let nonce = bytes.get(2..10).and_then(|nonce| nonce.try_into().ok()).map(u64::from_be_bytes);
    nonce.is_some_and(|nonce| signature == seal(text, nonce))
}

/// Returns an opaque token that is recognizable without further data: `head`, random bytes and an authentication tag.
/// `head` are the first bytes of the real provider's tokens.
fn token(head: &[u8], seed: u64) -> Vec<u8> {
    let mut bytes = head.to_vec();
    bytes.extend(Ids::seeded(seed).bytes(6));
    let tag = combine(KEY, hash(&bytes));
    bytes.extend(tag.to_be_bytes());
    bytes
}

fn is_token(bytes: &[u8]) -> bool {
    match bytes.split_last_chunk::<8>() {
        Some((payload, tag)) => combine(KEY, hash(payload)).to_be_bytes() == *tag,
        None => false,
    }
}

/// First bytes of Gemini's thought signatures.
const THOUGHT: &[u8] = &[0x12, 0x38, 0x0a];
/// First bytes of OpenAI's encrypted content, those of a Fernet token.
const FERNET: &[u8] = &[0x80, 0, 0, 0, 0, 0x6a];

/// Returns an opaque token in standard base64, in the form of Gemini's thought signatures.
pub(super) fn opaque(seed: u64) -> String {
    STANDARD.encode_to_string(token(THOUGHT, seed))
}

/// Returns true if a text is an opaque token of the simulated Gemini, in either base64 alphabet.
pub(super) fn is_opaque(text: &str) -> bool {
    decode_base64(text).is_some_and(|bytes| bytes.starts_with(THOUGHT) && is_token(&bytes))
}

/// Returns an opaque token in the form of OpenAI's `encrypted_content`, in URL-safe base64.
pub(super) fn encrypted(seed: u64) -> String {
    URL_SAFE.encode_to_string(token(FERNET, seed))
}

/// Returns true if a text is encrypted content of the simulated OpenAI.
pub(super) fn is_encrypted(text: &str) -> bool {
    URL_SAFE.decode_to_vec(text).is_ok_and(|bytes| bytes.starts_with(FERNET) && is_token(&bytes))
}

/// Decodes base64 of either alphabet, padded or not. Returns `None` if it is invalid.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let plain: String = text
        .trim_end_matches('=')
        .chars()
        .map(|c| match c {
            '-' => '+',
            '_' => '/',
            other => other,
        })
        .collect();
    base64_simd::STANDARD_NO_PAD.decode_to_vec(plain).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_deterministic_per_request() {
        let id = |serial, body: &str| Ids::new(serial, body.as_bytes()).base62("call_", 24);
        assert_eq!(id(1, "a"), id(1, "a"));
        assert_ne!(id(1, "a"), id(2, "a"));
        assert_ne!(id(1, "a"), id(1, "b"));
        assert_eq!(id(1, "a").len(), 29);
    }

    #[test]
    fn hash_depends_on_every_byte() {
        assert_ne!(hash(b""), hash(b"\0"));
        assert_ne!(hash(b"12345678"), hash(b"12345679"));
        assert_ne!(hash(b"123456789"), hash(b"12345678"));
    }

    #[test]
    fn opaque_tokens_are_recognized() {
        assert!(is_opaque(&opaque(7)) && is_encrypted(&encrypted(7)));
        assert!(!is_opaque(&encrypted(7)) && !is_encrypted(&opaque(7)), "each has its issuer");
        assert!(encrypted(7).starts_with("gAAAAABq"));
        assert!(!is_opaque("AAAA"));
        assert!(!is_opaque("not base64!"));
        assert!(!is_opaque(&STANDARD.encode_to_string([1u8; 60])));
        assert!(is_seal(&seal("a", 1), "a") && is_seal(&seal("", 2), ""));
        assert!(!is_seal(&seal("a", 1), "b") && !is_seal("", "") && !is_seal("gw1.x.Yg", "a"));
        assert_ne!(seal("a", 1), seal("a", 2));
    }
}
