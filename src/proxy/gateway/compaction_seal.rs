//! Sealed content of compaction items: authenticated encryption under a key of the item's owner, and the secret that
//! the keys are derived from.
//!
//! The secret is random. It is kept with the owners of responses, so that every gateway of a fleet has the same one, also
//! after a restart. Like their entries it expires a month after its last use.

use std::time::{Duration, Instant};

use base64_simd::{STANDARD, URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use rand::Rng as _;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use sha2::{Digest as _, Sha256};

use crate::gateway::stored::unavailable;
use codec::error::ApiError;
use storage::kv::{OwnerStore, StoreKey};

/// Prefix of sealed content: the name and the version of its layout. Base64 (URL-safe, without padding) of nonce,
/// ciphertext and tag follows.
const PREFIX: &str = "gwc1.";
/// Salt of the key derivation (HKDF, RFC 5869): the purpose of the keys.
const PURPOSE: &[u8] = b"model-gateway compaction 1";
/// Length of the secret, in bytes.
const SECRET: usize = 32;
/// Maximum time that a request waits for the secret.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which a known secret is read again, which renews its lifetime.
const FRESH: Duration = Duration::from_secs(3_600);

/// Secret that the keys of all owners are derived from. Read from the store when it is first needed.
#[derive(Default)]
pub(crate) struct CompactionSecret {
    known: Mutex<Option<([u8; SECRET], Instant)>>,
}

impl CompactionSecret {
    /// Returns the secret. The first gateway that needs one makes it.
    ///
    /// # Errors
    /// Returns an error if the store is unavailable.
    pub(crate) async fn get(&self, owners: &dyn OwnerStore) -> Result<[u8; SECRET], ApiError> {
        let known = *self.known.lock();
        if let Some((secret, _)) = known.filter(|(_, read)| read.elapsed() < FRESH) {
            return Ok(secret);
        }
        let proposed = known.map_or_else(random, |(secret, _)| secret);
        // The first claim of a resource wins, so all gateways read the same value afterwards.
        let claimed = owners.claim(store_key(), &STANDARD.encode_to_string(proposed)).within(TIMEOUT).await;
        claimed.map_err(|error| unavailable(&error))?;
        let found = owners.owner(store_key()).within(TIMEOUT).await.map_err(|error| unavailable(&error))?;
        let found = found.and_then(|text| STANDARD.decode_to_vec(text).ok()?.try_into().ok());
        // An entry that was evicted in between is made again by the next request.
        let secret = found.unwrap_or(proposed);
        *self.known.lock() = Some((secret, Instant::now()));
        Ok(secret)
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::rng().fill_bytes(&mut bytes);
    bytes
}

fn store_key() -> StoreKey {
    Sha256::digest(b"secret\0compaction").into()
}

/// Returns whether content has the form of the gateway's own.
pub(crate) fn is_own(sealed: &str) -> bool {
    sealed.starts_with(PREFIX)
}

/// Returns the key of an owner. `None` if the derivation fails, which it does not for keys of this length.
fn key(secret: &[u8; SECRET], owner: &str) -> Option<LessSafeKey> {
    let info = [owner.as_bytes()];
    let derived = Salt::new(HKDF_SHA256, PURPOSE).extract(secret);
    let key = UnboundKey::from(derived.expand(&info, &AES_256_GCM).ok()?);
    Some(LessSafeKey::new(key))
}

/// Seals a text for its owner. `None` if the encryption fails, which it does only for texts of gigabytes.
pub(crate) fn seal(secret: &[u8; SECRET], owner: &str, text: &str) -> Option<String> {
    // Random nonces are safe for billions of texts under one key, and each owner has a key.
    let nonce: [u8; NONCE_LEN] = random();
    let mut bytes = Vec::with_capacity(NONCE_LEN + text.len() + AES_256_GCM.tag_len());
    bytes.extend_from_slice(text.as_bytes());
    let additional = Aad::from(PREFIX.as_bytes());
    let nonce_of = Nonce::assume_unique_for_key(nonce);
    key(secret, owner)?.seal_in_place_append_tag(nonce_of, additional, &mut bytes).ok()?;
    bytes.splice(..0, nonce);
    Some(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode_to_string(bytes)))
}

/// Opens what [`seal`] returned. `None` if the content was changed, or sealed for another owner or with another secret.
pub(crate) fn open(secret: &[u8; SECRET], owner: &str, sealed: &str) -> Option<String> {
    let mut bytes = URL_SAFE_NO_PAD.decode_to_vec(sealed.strip_prefix(PREFIX)?).ok()?;
    let (nonce, content) = bytes.split_first_chunk_mut::<NONCE_LEN>()?;
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let text = key(secret, owner)?.open_in_place(nonce, Aad::from(PREFIX.as_bytes()), content).ok()?;
    std::str::from_utf8(text).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_text_is_opened_by_its_owner_only() {
        let secret = [7; SECRET];
        for text in ["", "a", "Grüße \"😀\"\n", &"long ".repeat(10_000)] {
            let sealed = seal(&secret, "account:ann", text).unwrap();
            assert!(is_own(&sealed));
            assert!(sealed.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)));
            assert_eq!(open(&secret, "account:ann", &sealed).as_deref(), Some(text));
            assert_eq!(open(&secret, "key:ann", &sealed), None);
            assert_eq!(open(&secret, "account:bob", &sealed), None);
            assert_eq!(open(&[8; SECRET], "account:ann", &sealed), None);
            assert_ne!(seal(&secret, "account:ann", text).unwrap(), sealed, "a nonce is used once");
        }
    }

    #[test]
    fn sealed_text_that_was_changed_or_cut_is_not_opened() {
        let secret = [7; SECRET];
        let sealed = seal(&secret, "key:k", "a summary").unwrap();
        for at in 0..sealed.len() {
            assert_eq!(open(&secret, "key:k", &sealed[..at]), None, "cut at {at}");
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(open(&secret, "key:k", &changed), None, "changed at {at}");
        }
        for other in ["gwc1.", "gwc1.AAAA", "gwc2.AAAA", "gAAAAABq", "gw1.x.AAAA"] {
            assert_eq!(open(&secret, "key:k", other), None, "{other}");
        }
    }
}
