//! Client certificates: what names a client that has authenticated its connection with one.

use std::fmt::Write as _;

use super::Pattern;

/// Kinds of names, each with the prefix that patterns of it have.
pub const CERTIFICATE_NAME_KINDS: [&str; 6] = ["sha256:", "cn:", "dns:", "uri:", "email:", "ip:"];

/// Certificate of a client, verified with the certificate authority of the listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCertificate {
    names: Vec<Box<str>>,
}

impl ClientCertificate {
    /// Creates a certificate with this fingerprint, SHA-256 of its DER encoding.
    pub fn new(fingerprint: &[u8]) -> Self {
        let mut text = "sha256:".to_owned();
        for byte in fingerprint {
            let _ = write!(text, "{byte:02x}");
        }
        ClientCertificate { names: vec![text.into()] }
    }

    /// Adds a name of a kind (`cn`, `dns`, `uri`, `email`, `ip`).
    pub fn add(&mut self, kind: &str, name: &str) {
        self.names.push(format!("{kind}:{name}").into());
    }

    /// Returns the names with their kinds, the fingerprint first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// Returns true if one of the names matches one of the patterns.
    pub fn matches(&self, patterns: &[Pattern]) -> bool {
        patterns.iter().any(|pattern| self.names.iter().any(|name| pattern.matches(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_matches_by_kind_and_pattern() {
        let mut certificate = ClientCertificate::new(&[0xab, 0x01]);
        certificate.add("cn", "alice");
        certificate.add("uri", "spiffe://acme/ns/prod/sa/batch");
        let matches =
            |pattern: &str| certificate.matches(&[Pattern::new("dns:nobody"), Pattern::new(pattern)]);
        for pattern in ["sha256:ab01", "cn:alice", "cn:*", "uri:spiffe://acme/ns/prod/*"] {
            assert!(matches(pattern), "{pattern}");
        }
        // A name of one kind is not taken for one of another.
        for pattern in ["sha256:ab", "dns:alice", "alice", "uri:spiffe://acme/ns/test/*", "email:*"] {
            assert!(!matches(pattern), "{pattern}");
        }
        assert!(!certificate.matches(&[]));
    }
}
