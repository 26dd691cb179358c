//! RSA keys that sign the assertions of cloud credentials.

use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

use crate::cloud::oauth::{AssertionAlgorithm, AssertionSigner};

/// RSA key.
struct RsaSigner {
    key: RsaKeyPair,
    hash: [u8; 32],
}

impl AssertionSigner for RsaSigner {
    fn sign(&self, algorithm: AssertionAlgorithm, message: &[u8]) -> Option<Vec<u8>> {
        let padding: &'static dyn RsaEncoding = match algorithm {
            AssertionAlgorithm::Rs256 => &RSA_PKCS1_SHA256,
            AssertionAlgorithm::Ps256 => &RSA_PSS_SHA256,
        };
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key.sign(padding, &SystemRandom::new(), message, &mut signature).ok()?;
        Some(signature)
    }

    fn key_hash(&self) -> [u8; 32] {
        self.hash
    }
}

/// Reads an RSA key in PEM (PKCS #8 or PKCS #1), at any place of the text.
///
/// # Errors
/// Returns the reason as the end of a sentence about the key; it contains no part of it.
pub(super) fn rsa_signer(pem: &str) -> Result<Arc<dyn AssertionSigner>, String> {
    if pem.contains("\\n") && !pem.contains('\n') {
        return Err("has the two characters \\n in place of line feeds".to_owned());
    }
    let der = PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|_| "is no private key in PEM (PKCS #8 or PKCS #1)".to_owned())?;
    let parsed = match &der {
        PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
        PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
        _ => return Err("is no RSA key".to_owned()),
    };
    // The reasons of ring are words, such as `TooSmall`.
    let key = parsed.map_err(|reason| format!("is no RSA key of 2048 bits or more ({reason})"))?;
    let hash = Sha256::digest(der.secret_der()).into();
    Ok(Arc::new(RsaSigner { key, hash }))
}
