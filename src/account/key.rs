//! Keys: made at random, kept as hashes, looked up in one step.
//!
//! A key looks like `mgw_4JkQ…x1f0c3a9`: a prefix that secret scanners can look for, 32 random bytes in base 62, and
//! a checksum by which a mistyped key is told from an unknown one without a look-up.

use std::borrow::{Borrow, Cow};
use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, OnceLock};

use rand::TryRng as _;
use sha2::{Digest as _, Sha256};

use super::limit::LimitState;
use super::limit_registry::{LimitRegistry, Scope};
use super::{Account, AccountRules};

/// What every key begins with.
const PREFIX: &str = "mgw_";
/// Length in characters, behind the prefix, from which on a word is taken for a key or a part of one.
const REDACTED_FROM: usize = 8;
/// Base-62 digits that 32 random bytes take.
const RANDOM_DIGITS: usize = 43;
/// Hexadecimal digits of the checksum.
const CHECK_DIGITS: usize = 8;

/// SHA-256 of a key's text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Hashes a key.
    pub fn of(key: &str) -> Self {
        KeyHash(Sha256::digest(key.as_bytes()).into())
    }

    /// Reads the 64 hexadecimal digits that keys.toml holds.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut hash = [0; 32];
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        for (slot, pair) in hash.iter_mut().zip(digits.chunks(2)) {
            *slot = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(KeyHash(hash))
    }

    /// The 64 hexadecimal digits.
    pub fn to_hex(self) -> String {
        hex(&self.0)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        use fmt::Write as _;
        let _ = write!(out, "{byte:02x}");
        out
    })
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl std::hash::Hash for KeyHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The first bytes of a SHA-256 are as good a hash as any, and nobody can choose them.
        let mut first = [0; 8];
        first.copy_from_slice(self.0.first_chunk::<8>().unwrap_or(&[0; 8]));
        state.write_u64(u64::from_le_bytes(first));
    }
}

/// Hands through the eight bytes that [`KeyHash`] gives.
#[derive(Default)]
pub(super) struct PassThrough(u64);

impl Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// A key that was just made; its text is shown once and kept nowhere.
pub struct NewKey {
    text: String,
}

impl NewKey {
    /// Makes a key from the operating system's random numbers.
    ///
    /// # Errors
    /// The operating system gives none.
    pub fn generate() -> Result<Self, rand::rngs::SysError> {
        let mut bytes = [0u8; 32];
        rand::rngs::SysRng.try_fill_bytes(&mut bytes)?;
        Ok(NewKey { text: Self::spell(bytes) })
    }

    fn spell(bytes: [u8; 32]) -> String {
        const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let mut number = bytes;
        let mut digits = [b'0'; RANDOM_DIGITS];
        for digit in digits.iter_mut().rev() {
            let mut remainder = 0u32;
            for byte in &mut number {
                let value = remainder * 256 + u32::from(*byte);
                *byte = u8::try_from(value / 62).unwrap_or(u8::MAX);
                remainder = value % 62;
            }
            *digit = DIGITS.get(remainder as usize).copied().unwrap_or(b'0');
        }
        let random = String::from_utf8_lossy(&digits);
        let body = format!("{PREFIX}{random}");
        let check = checksum(&body);
        format!("{body}{check}")
    }

    /// The key.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is kept of it.
    pub fn hash(&self) -> KeyHash {
        KeyHash::of(&self.text)
    }
}

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewKey(***)")
    }
}

fn checksum(body: &str) -> String {
    let digest = Sha256::digest(body.as_bytes());
    hex(digest.get(..CHECK_DIGITS / 2).unwrap_or_default())
}

/// Whether a text has the form of a key of this gateway but not its checksum: mistyped or cut.
pub fn is_mistyped(text: &str) -> bool {
    if !text.starts_with(PREFIX) {
        return false;
    }
    match text.len().checked_sub(CHECK_DIGITS).and_then(|at| text.split_at_checked(at)) {
        Some((body, check)) => checksum(body) != check,
        None => true,
    }
}

/// Redacted text: each word that has the form of a key, whole or cut, is replaced by its prefix and `***`.
pub fn redact_keys(text: &str) -> Cow<'_, str> {
    let digits = |rest: &str| rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(PREFIX) {
        let length = digits(after);
        out.push_str(before);
        out.push_str(PREFIX);
        out.push_str(if length >= REDACTED_FROM { "***" } else { after.get(..length).unwrap_or_default() });
        rest = after.get(length..).unwrap_or_default();
    }
    if rest.len() == text.len() {
        return Cow::Borrowed(text);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// A key as it is known. There may be a million of them: what many have in common is shared.
#[derive(Clone, Debug)]
pub struct Key {
    /// What is kept of its text.
    pub hash: KeyHash,
    /// Its name in keys.toml, in logs and metrics.
    pub name: Arc<str>,
    /// Whether it is switched on.
    pub enabled: bool,
    /// When its time is over, in Unix seconds.
    pub expires: Option<i64>,
    /// What it may do.
    pub rules: Arc<AccountRules>,
    /// Whose it is, and who pays.
    pub account: Option<Arc<Account>>,
    gauge: OnceLock<Arc<LimitState>>,
}

/// Whether a key may be used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// It may.
    Usable,
    /// It is switched off.
    Disabled,
    /// Its time is over.
    Expired,
}

impl Key {
    /// A key that is switched on for ever, and nobody's.
    pub fn new(hash: KeyHash, name: impl Into<Arc<str>>, rules: Arc<AccountRules>) -> Self {
        Key {
            hash,
            name: name.into(),
            enabled: true,
            expires: None,
            rules,
            account: None,
            gauge: OnceLock::new(),
        }
    }

    /// Who owns what is kept for this key: its account, or itself where it has none.
    pub fn owner(&self) -> &str {
        self.account.as_ref().map_or(&self.name, |account| &account.name)
    }

    /// How much of its limits is taken: by all keys of this name before and after a reload.
    pub fn gauge(&self, gauges: &LimitRegistry) -> &Arc<LimitState> {
        self.gauge.get_or_init(|| gauges.of(Scope::Key, &self.name))
    }

    /// Whether the key may be used at `now`, in Unix seconds.
    pub fn state(&self, now: i64) -> KeyState {
        if !self.enabled {
            KeyState::Disabled
        } else if self.expires.is_some_and(|end| end <= now) {
            KeyState::Expired
        } else {
            KeyState::Usable
        }
    }
}

/// All keys.
#[derive(Debug, Default)]
pub struct Keys {
    by_hash: HashSet<ByHash, BuildHasherDefault<PassThrough>>,
}

/// A key that is found by its hash, which stands in it: a table of pointers is a fifth of a table of hashes.
#[derive(Debug)]
struct ByHash(Arc<Key>);

impl std::hash::Hash for ByHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash.hash(state);
    }
}

impl PartialEq for ByHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.hash == other.0.hash
    }
}

impl Eq for ByHash {}

impl Borrow<KeyHash> for ByHash {
    fn borrow(&self) -> &KeyHash {
        &self.0.hash
    }
}

impl Keys {
    /// Adds a key; gives the one that had its hash before, if there is one.
    pub fn insert(&mut self, key: Key) -> Option<Arc<Key>> {
        self.by_hash.replace(ByHash(Arc::new(key))).map(|before| before.0)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Key>> {
        self.by_hash.iter().map(|key| &key.0)
    }

    /// The key of this text.
    pub fn find(&self, text: &str) -> Option<&Arc<Key>> {
        self.by_hash.get(&KeyHash::of(text)).map(|key| &key.0)
    }

    /// The key of this hash.
    pub fn of_hash(&self, hash: KeyHash) -> Option<&Arc<Key>> {
        self.by_hash.get(&hash).map(|key| &key.0)
    }

    /// Whether any of them belongs to an account.
    pub fn any_account(&self) -> bool {
        self.iter().any(|key| key.account.is_some())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_has_its_form_and_its_hash() {
        let key = NewKey::generate().unwrap();
        assert_eq!(key.text().len(), PREFIX.len() + RANDOM_DIGITS + CHECK_DIGITS);
        assert!(key.text().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
        assert!(!is_mistyped(key.text()));
        assert_eq!(KeyHash::from_hex(&key.hash().to_hex()), Some(key.hash()));
        assert_ne!(key.text(), NewKey::generate().unwrap().text());
        assert_eq!(format!("{key:?}"), "NewKey(***)");
    }

    #[test]
    fn all_random_bytes_can_be_spelled() {
        assert_eq!(NewKey::spell([0; 32]).get(4..47), Some("0".repeat(43).as_str()));
        assert_ne!(NewKey::spell([255; 32]), NewKey::spell([254; 32]));
    }

    #[test]
    fn a_mistyped_key_is_noticed() {
        let key = NewKey::generate().unwrap();
        let mut wrong = key.text().to_owned();
        let replacement = if wrong.as_bytes()[10] == b'a' { "b" } else { "a" };
        wrong.replace_range(10..11, replacement);
        assert!(is_mistyped(&wrong));
        assert!(is_mistyped(&key.text()[..30]));
        assert!(!is_mistyped("sk-something-else"));
    }

    #[test]
    fn keys_are_redacted_wherever_they_stand() {
        let key = NewKey::generate().unwrap();
        let key = key.text();
        for (text, shown) in [
            (format!("/v1/{key}"), "/v1/mgw_***"),
            (format!("/v1/{key}/x{key}"), "/v1/mgw_***/xmgw_***"),
            (
                format!("/v1beta/models/{}:generateContent", &key[..20]),
                "/v1beta/models/mgw_***:generateContent",
            ),
            ("/v1/models/mgw_small".to_owned(), "/v1/models/mgw_small"),
            ("/v1/models".to_owned(), "/v1/models"),
            ("mgw_".to_owned(), "mgw_"),
        ] {
            assert_eq!(redact_keys(&text), shown, "{text}");
        }
    }

    #[test]
    fn keys_are_found_by_text_and_have_a_state() {
        let key = |text, enabled, expires| Key {
            enabled,
            expires,
            ..Key::new(KeyHash::of(text), "k", Arc::default())
        };
        let mut keys = Keys::default();
        for key in [key("a", true, None), key("b", false, None), key("c", true, Some(100))] {
            assert!(keys.insert(key).is_none());
        }
        assert_eq!(&*keys.insert(key("a", true, None)).unwrap().name, "k", "the same key again");
        assert_eq!(keys.len(), 3);
        assert_eq!(keys.find("a").unwrap().state(0), KeyState::Usable);
        assert_eq!(keys.find("b").unwrap().state(0), KeyState::Disabled);
        assert_eq!(keys.find("c").unwrap().state(99), KeyState::Usable);
        assert_eq!(keys.find("c").unwrap().state(100), KeyState::Expired);
        assert!(keys.find("d").is_none());
    }
}
