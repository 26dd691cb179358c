//! Access keys in the form of AWS: an id, which every signed request names, and a secret, with which it is signed.
//!
//! The verification of a signature needs the secret itself, so it cannot be stored as a hash. It is read from where
//! keys.toml says, and never shown.

use std::fmt;
use std::sync::Arc;

use rand::TryRng as _;

use super::Key;

/// Prefix of every id, so that it is not mistaken for one of AWS.
const PREFIX: &str = "MGWA";
/// Number of characters of an id after the prefix. With the prefix an id is as long as one of AWS.
const ID_DIGITS: usize = 16;
/// Number of characters of a secret: as many as one of AWS has.
const SECRET_DIGITS: usize = 40;
/// Lengths of an id in characters (<https://docs.aws.amazon.com/IAM/latest/APIReference/API_AccessKey.html>).
const ID_LENGTH: std::ops::RangeInclusive<usize> = 16..=128;
/// Minimum length of a secret in bytes.
const MIN_SECRET: usize = 16;

/// Access key of a known key.
#[derive(Clone)]
pub struct AccessKey {
    /// Key that a request with this access key has.
    pub key: Arc<Key>,
    secret: Box<str>,
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret must not get into a log.
        f.debug_struct("AccessKey").field("key", &self.key.name).finish_non_exhaustive()
    }
}

impl AccessKey {
    /// Creates the access key of a key.
    pub fn new(key: Arc<Key>, secret: impl Into<Box<str>>) -> Self {
        AccessKey { key, secret: secret.into() }
    }

    /// Returns the secret. Only the code that verifies a signature may call this.
    pub fn expose_secret(&self) -> &str {
        &self.secret
    }

    /// Returns whether a text has the form of an access key id.
    pub fn is_id(text: &str) -> bool {
        let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        ID_LENGTH.contains(&text.len()) && is_word
    }

    /// Returns whether a secret is long enough.
    pub fn is_secret(text: &str) -> bool {
        text.len() >= MIN_SECRET
    }
}

/// Newly generated access key. Its secret is shown once.
pub struct NewAccessKey {
    id: String,
    secret: String,
}

impl NewAccessKey {
    /// Generates an access key from the operating system's random numbers.
    ///
    /// # Errors
    /// Returns the error of the operating system if it provides none.
    pub fn generate() -> Result<Self, rand::rngs::SysError> {
        let id = random(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", ID_DIGITS)?;
        let secret =
            random(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_", SECRET_DIGITS)?;
        Ok(NewAccessKey { id: format!("{PREFIX}{id}"), secret })
    }

    /// Returns the id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the secret, which is to be shown once.
    pub fn secret(&self) -> &str {
        &self.secret
    }
}

impl fmt::Debug for NewAccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewAccessKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Returns random characters of an alphabet, whose length divides 256, so that all are equally likely.
fn random(alphabet: &[u8], length: usize) -> Result<String, rand::rngs::SysError> {
    let mut bytes = vec![0u8; length];
    rand::rngs::SysRng.try_fill_bytes(&mut bytes)?;
    let character = |byte: &u8| alphabet.get(usize::from(*byte) % alphabet.len()).map(|it| char::from(*it));
    Ok(bytes.iter().filter_map(character).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::KeyHash;

    #[test]
    fn access_key_generated_has_valid_form_and_hides_its_secret() {
        let new = NewAccessKey::generate().unwrap();
        assert!(AccessKey::is_id(new.id()) && new.id().len() == 20 && AccessKey::is_secret(new.secret()));
        assert_ne!(new.secret(), NewAccessKey::generate().unwrap().secret());
        assert!(!format!("{new:?}").contains(new.secret()));
        let key = Arc::new(Key::new(KeyHash::of("k"), "k", Arc::default()));
        let known = AccessKey::new(key, new.secret());
        assert!(!format!("{known:?}").contains(new.secret()));
        assert!(!AccessKey::is_id("short") && !AccessKey::is_id("AKIA0000/000000000000"));
    }
}
