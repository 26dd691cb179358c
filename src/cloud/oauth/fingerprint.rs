//! Fingerprints of settings.

use std::hash::{Hash, Hasher};

use sha2::{Digest as _, Sha256};

/// Hasher whose result is collision-resistant.
struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        // Not the result: `fingerprint` takes all of it.
        0
    }
}

/// Returns the SHA-256 of settings, secrets included. `kind` separates the types of settings.
pub(crate) fn fingerprint(kind: &str, settings: &impl Hash) -> [u8; 32] {
    let mut hasher = Sha256Hasher(Sha256::new());
    kind.hash(&mut hasher);
    settings.hash(&mut hasher);
    hasher.0.finalize().into()
}
