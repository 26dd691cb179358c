//! API keys: generated at random, stored as hashes, found by one lookup.
//!
//! A key looks like `mgw_4JkQ…x1f0c3a9`: a prefix for secret scanners, 32 random bytes in base 62, and a checksum by
//! which a mistyped key is recognized without a lookup.

use std::borrow::{Borrow, Cow};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::Hasher;
use std::sync::{Arc, OnceLock};

use rand::TryRng as _;
use sha2::{Digest as _, Sha256};

use super::previous_key::PreviousKeys;
use super::{AccessKey, Account, AccountRules};
use crate::limits::{LimitRegistry, LimitState, Scope};

/// Prefix of every key.
const PREFIX: &str = "mgw_";
/// Prefix of every token of the admin API.
const ADMIN_PREFIX: &str = "mga_";
/// Number of characters after the prefix from which on a word is redacted as a key or a part of one.
const REDACTED_FROM: usize = 8;
/// Base-62 digits of 32 random bytes.
const RANDOM_DIGITS: usize = 43;
/// Hexadecimal digits of the checksum.
const CHECK_DIGITS: usize = 8;

/// Key hash: SHA-256 of the key's text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Hashes a key.
    pub fn of(key: &str) -> Self {
        KeyHash(Sha256::digest(key.as_bytes()).into())
    }

    /// Parses the 64 hexadecimal digits of keys.toml. Returns `None` if the text is not that.
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

    /// Returns the 64 hexadecimal digits.
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
        // All of it: the author of a configuration that is to be checked can choose hashes that begin alike.
        state.write(&self.0);
    }
}

/// Newly generated key. Its text is shown once and never stored.
pub struct NewKey {
    text: String,
}

impl NewKey {
    /// Generates a key from the operating system's random numbers.
    ///
    /// # Errors
    /// Returns the error of the operating system if it provides none.
    pub fn generate() -> Result<Self, rand::rngs::SysError> {
        Self::with_prefix(PREFIX)
    }

    /// Generates a token of the admin API: a key with a prefix of its own.
    ///
    /// # Errors
    /// Returns the error of the operating system if it provides no random numbers.
    pub fn generate_admin_token() -> Result<Self, rand::rngs::SysError> {
        Self::with_prefix(ADMIN_PREFIX)
    }

    fn with_prefix(prefix: &str) -> Result<Self, rand::rngs::SysError> {
        let mut bytes = [0u8; 32];
        rand::rngs::SysRng.try_fill_bytes(&mut bytes)?;
        Ok(NewKey { text: Self::spell(prefix, bytes) })
    }

    fn spell(prefix: &str, bytes: [u8; 32]) -> String {
        const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let mut number = bytes;
        let mut digits = [b'0'; RANDOM_DIGITS];
        // Long division of the 256-bit number by 62. The number of digits is fixed, so that all keys have the same
        // length.
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
        let body = format!("{prefix}{random}");
        let check = checksum(&body);
        format!("{body}{check}")
    }

    /// Returns the text of the key, which is to be shown once.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the hash, which is what is stored.
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

/// Returns true if a text has the form of a key of this gateway but a wrong checksum: it was mistyped or truncated.
pub fn is_mistyped(text: &str) -> bool {
    if !text.starts_with(PREFIX) {
        return false;
    }
    match text.len().checked_sub(CHECK_DIGITS).and_then(|at| text.split_at_checked(at)) {
        Some((body, check)) => checksum(body) != check,
        None => true,
    }
}

/// Returns the text with each complete or truncated key replaced by the prefix and `***`.
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

/// Known key. There may be a million of them, so what many have in common is shared.
#[derive(Clone, Debug)]
pub struct Key {
    /// Hash of the key's text.
    pub hash: KeyHash,
    /// Name in keys.toml, logs and metrics.
    pub name: Arc<str>,
    /// True if the key is enabled.
    pub enabled: bool,
    /// Expiry in Unix seconds; `None` if it never expires.
    pub expires: Option<i64>,
    /// Rules of the key.
    pub rules: Arc<AccountRules>,
    /// Account that the key belongs to and that pays; `None` if it has none.
    pub account: Option<Arc<Account>>,
    limit_state: OnceLock<Arc<LimitState>>,
}

/// State of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// The key may be used.
    Usable,
    /// The key is disabled.
    Disabled,
    /// The key has expired.
    Expired,
}

impl Key {
    /// Creates an enabled key without expiry and account.
    pub fn new(hash: KeyHash, name: impl Into<Arc<str>>, rules: Arc<AccountRules>) -> Self {
        Key {
            hash,
            name: name.into(),
            enabled: true,
            expires: None,
            rules,
            account: None,
            limit_state: OnceLock::new(),
        }
    }

    /// Returns the owner of what is stored for this key: its account, or its own name if it has none.
    pub fn owner(&self) -> &str {
        self.account.as_ref().map_or(&self.name, |account| &account.name)
    }

    /// Returns the usage of its limits. All keys of this name share it, also across reloads.
    pub fn limit_state(&self, gauges: &LimitRegistry) -> &Arc<LimitState> {
        self.limit_state.get_or_init(|| gauges.state(Scope::Key, &self.name))
    }

    /// Returns the state of the key at `now`, in Unix seconds.
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

/// Table of all keys.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    by_hash: HashSet<ByHash, foldhash::fast::RandomState>,
    /// Access keys by their ids. Most keys have none.
    access_keys: HashMap<Box<str>, AccessKey, foldhash::fast::RandomState>,
    /// Accounts that keys belong to or that have limits, by name. A list has a third of the size of a table.
    accounts: Box<[Arc<Account>]>,
    previous: PreviousKeys,
}

/// Entry that is found by the hash inside the key: a table of pointers has a fifth of the size of a table of hashes.
#[derive(Clone, Debug)]
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
    /// Adds a key. Returns another key with the same hash, if there was one, or one that had it before its rotation.
    pub fn insert(&mut self, key: Key) -> Option<Arc<Key>> {
        let rotated = self.previous.any(key.hash).cloned();
        self.by_hash.replace(ByHash(Arc::new(key))).map(|before| before.0).or(rotated)
    }

    /// Adds an earlier text of a key, which is valid until a time in Unix seconds. Returns the name of the key that has this
    /// text already, if there is one; it is then not added.
    pub fn insert_previous(&mut self, hash: KeyHash, key: Arc<Key>, until: i64) -> Option<Arc<str>> {
        match self.of_hash(hash) {
            Some(other) => Some(other.name.clone()),
            None => self.previous.insert(hash, key, until),
        }
    }

    /// Returns the earlier texts of a key with the ends of their validity in Unix seconds, the latest end first.
    pub fn previous(&self, name: &str) -> Vec<(KeyHash, i64)> {
        self.previous.of(name)
    }

    /// Returns all keys, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Key>> {
        self.by_hash.iter().map(|key| &key.0)
    }

    /// Returns the key with this text; `None` if there is none.
    pub fn find(&self, text: &str) -> Option<&Arc<Key>> {
        self.by_hash.get(&KeyHash::of(text)).map(|key| &key.0)
    }

    /// Returns the key whose text this is, or was before a rotation and is still valid at `now`, in Unix seconds. `None` if
    /// there is none.
    pub fn find_at(&self, text: &str, now: i64) -> Option<&Arc<Key>> {
        self.of_hash_at(KeyHash::of(text), now)
    }

    /// Returns the key whose text has this hash, or had it before a rotation and is still valid at `now`, in Unix seconds.
    /// `None` if there is none.
    pub fn of_hash_at(&self, hash: KeyHash, now: i64) -> Option<&Arc<Key>> {
        self.of_hash(hash).or_else(|| self.previous.find(hash, now))
    }

    /// Returns whether a text is that of a key, or was before a rotation.
    pub fn knows(&self, text: &str) -> bool {
        let hash = KeyHash::of(text);
        self.by_hash.contains(&hash) || self.previous.any(hash).is_some()
    }

    /// Returns the key with this hash; `None` if there is none.
    pub fn of_hash(&self, hash: KeyHash) -> Option<&Arc<Key>> {
        self.by_hash.get(&hash).map(|key| &key.0)
    }

    /// Adds an access key by its id. Returns the name of the key that has the id already, if there is one; the new one
    /// is then not added.
    pub fn insert_access_key(&mut self, id: &str, access: AccessKey) -> Option<Arc<str>> {
        if let Some(other) = self.access_keys.get(id) {
            return Some(other.key.name.clone());
        }
        self.access_keys.insert(id.into(), access);
        None
    }

    /// Returns the access key with this id; `None` if there is none.
    pub fn find_access_key(&self, id: &str) -> Option<&AccessKey> {
        self.access_keys.get(id)
    }

    /// Returns the id of the access key of a key; `None` if it has none.
    pub fn access_key_id(&self, name: &str) -> Option<&str> {
        let mut all = self.access_keys.iter();
        all.find(|(_, access)| *access.key.name == *name).map(|(id, _)| &**id)
    }

    /// Sets the accounts: those of all keys, and those that have limits and no keys yet.
    pub fn set_accounts(&mut self, accounts: impl Iterator<Item = Arc<Account>>) {
        let mut accounts: Box<[Arc<Account>]> = accounts.collect();
        accounts.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.accounts = accounts;
    }

    /// Returns the accounts that files of keys name, ordered by name.
    pub fn accounts(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.accounts.iter()
    }

    /// Returns an account that a file of keys names; `None` if none does.
    pub fn account(&self, name: &str) -> Option<&Arc<Account>> {
        let at = self.accounts.binary_search_by(|account| (*account.name).cmp(name)).ok()?;
        self.accounts.get(at)
    }

    /// Returns true if at least one key belongs to an account.
    pub fn any_account(&self) -> bool {
        self.iter().any(|key| key.account.is_some())
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_generated_has_valid_form_and_hash() {
        let key = NewKey::generate().unwrap();
        assert_eq!(key.text().len(), PREFIX.len() + RANDOM_DIGITS + CHECK_DIGITS);
        assert!(key.text().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
        assert!(!is_mistyped(key.text()));
        assert_eq!(KeyHash::from_hex(&key.hash().to_hex()), Some(key.hash()));
        assert_ne!(key.text(), NewKey::generate().unwrap().text());
        assert_eq!(format!("{key:?}"), "NewKey(***)");
    }

    #[test]
    fn key_encoding_covers_all_random_bytes() {
        assert_eq!(NewKey::spell(PREFIX, [0; 32]).get(4..47), Some("0".repeat(43).as_str()));
        assert_ne!(NewKey::spell(PREFIX, [255; 32]), NewKey::spell(PREFIX, [254; 32]));
    }

    #[test]
    fn key_with_a_typo_is_detected_by_its_checksum() {
        let key = NewKey::generate().unwrap();
        let mut wrong = key.text().to_owned();
        let replacement = if wrong.as_bytes()[10] == b'a' { "b" } else { "a" };
        wrong.replace_range(10..11, replacement);
        assert!(is_mistyped(&wrong));
        assert!(is_mistyped(&key.text()[..30]));
        assert!(!is_mistyped("sk-something-else"));
    }

    #[test]
    fn key_is_redacted_anywhere_in_a_path() {
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
    fn key_lookup_by_text_returns_its_state() {
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

    #[test]
    fn key_is_found_by_its_earlier_text_until_the_end_of_the_grace() {
        let mut keys = Keys::default();
        keys.insert(Key::new(KeyHash::of("new"), "alice", Arc::default()));
        let key = keys.find("new").unwrap().clone();
        assert_eq!(keys.insert_previous(KeyHash::of("old"), key.clone(), 100), None);
        assert_eq!(keys.insert_previous(KeyHash::of("old"), key.clone(), 200).as_deref(), Some("alice"));
        assert_eq!(keys.insert_previous(KeyHash::of("new"), key.clone(), 100).as_deref(), Some("alice"));
        assert_eq!(keys.find_at("old", 99).map(|key| &*key.name), Some("alice"));
        assert!(keys.find_at("old", 100).is_none() && keys.find_at("new", 100).is_some());
        assert!(keys.find("old").is_none() && keys.knows("old") && !keys.knows("other"));
        assert_eq!(keys.previous("alice"), [(KeyHash::of("old"), 100)]);
        assert_eq!(keys.len(), 1, "an earlier text is no key of its own");
        let other = keys.insert(Key::new(KeyHash::of("old"), "bob", Arc::default()));
        assert_eq!(&*other.unwrap().name, "alice");
    }
}
