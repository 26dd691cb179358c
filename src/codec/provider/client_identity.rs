//! Certificate that the gateway presents to a provider.

use std::fmt;

/// Certificate chain and private key, DER.
#[derive(Clone, PartialEq, Eq)]
pub struct PresentedCertificate {
    /// Certificate chain, the gateway's own certificate first.
    pub chain: Vec<Vec<u8>>,
    /// Private key.
    pub key: Vec<u8>,
}

// Without the key, which must not reach a log.
impl fmt::Debug for PresentedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PresentedCertificate({} certificates)", self.chain.len())
    }
}
