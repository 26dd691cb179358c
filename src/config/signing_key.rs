//! RSA keys that sign the assertions of cloud credentials.

use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

use cloud::oauth::{AssertionAlgorithm, AssertionSigner};

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

#[cfg(test)]
mod tests {
    use ring::signature::{
        KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, UnparsedPublicKey,
        VerificationAlgorithm,
    };

    use super::*;

    const RSA_KEY: &str = include_str!("../../tests/support/cloud/rsa_key.pem");

    #[test]
    fn signatures_of_both_algorithms_are_valid() {
        let signer = rsa_signer(RSA_KEY).unwrap();
        let der = PrivateKeyDer::from_pem_slice(RSA_KEY.as_bytes()).unwrap();
        let public = RsaKeyPair::from_pkcs8(der.secret_der()).unwrap().public_key().as_ref().to_vec();
        let algorithms: [(AssertionAlgorithm, &'static dyn VerificationAlgorithm); 2] = [
            (AssertionAlgorithm::Rs256, &RSA_PKCS1_2048_8192_SHA256),
            (AssertionAlgorithm::Ps256, &RSA_PSS_2048_8192_SHA256),
        ];
        for (algorithm, verified) in algorithms {
            let signature = signer.sign(algorithm, b"message").unwrap();
            let key = UnparsedPublicKey::new(verified, &public);
            key.verify(b"message", &signature).unwrap();
            assert!(key.verify(b"another", &signature).is_err());
        }
        assert_eq!(signer.key_hash(), rsa_signer(&format!("# a comment\n{RSA_KEY}")).unwrap().key_hash());
    }

    #[test]
    fn keys_that_cannot_sign_are_refused_in_words() {
        let block =
            |label: &str, body: &str| format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
        for (pem, reason) in [
            (String::new(), "is no private key in PEM (PKCS #8 or PKCS #1)"),
            ("text".to_owned(), "is no private key in PEM (PKCS #8 or PKCS #1)"),
            (RSA_KEY.replace('\n', "\\n"), "has the two characters \\n in place of line feeds"),
            (block("EC PRIVATE KEY", "AQID"), "is no RSA key"),
            (block("PRIVATE KEY", "AQID"), "is no RSA key of 2048 bits or more (InvalidEncoding)"),
        ] {
            assert_eq!(rsa_signer(&pem).err().as_deref(), Some(reason), "{pem}");
        }
    }
}
