//! Names in the certificate of a client, read once per connection.

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use pingora::listeners::TlsAccept;
use pingora::protocols::tls::TlsRef;
use sha2::{Digest as _, Sha256};
use x509_parser::extensions::GeneralName;

use routing::account::ClientCertificate;

/// Maximum number of names that are kept of a certificate. They are compared with the patterns of a key.
const MAX_NAMES: usize = 64;

/// Callback after the handshake: reads the client's certificate.
pub(crate) struct ReadIdentity;

#[async_trait]
impl TlsAccept for ReadIdentity {
    async fn handshake_complete_callback(&self, tls: &TlsRef) -> Option<Arc<dyn Any + Send + Sync>> {
        let certificate = tls.peer_certificate_der()?;
        Some(Arc::new(names_of(certificate)))
    }
}

/// Returns the fingerprint and the names of a certificate in DER: its subject's common names, and its alternative names.
fn names_of(der: &[u8]) -> ClientCertificate {
    let mut certificate = ClientCertificate::new(&Sha256::digest(der));
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(der) else { return certificate };
    let mut names: Vec<(&str, String)> = Vec::new();
    for name in parsed.subject().iter_common_name() {
        names.extend(name.as_str().ok().map(|name| ("cn", name.to_owned())));
    }
    let alternatives = parsed.subject_alternative_name().ok().flatten();
    for name in alternatives.iter().flat_map(|extension| &extension.value.general_names) {
        names.extend(match name {
            GeneralName::DNSName(name) => Some(("dns", name.to_ascii_lowercase())),
            GeneralName::URI(name) => Some(("uri", (*name).to_owned())),
            GeneralName::RFC822Name(name) => Some(("email", (*name).to_owned())),
            GeneralName::IPAddress(bytes) => address(bytes).map(|address| ("ip", address.to_string())),
            _ => None,
        });
    }
    for (kind, name) in names.into_iter().take(MAX_NAMES) {
        certificate.add(kind, &name);
    }
    certificate
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    #[test]
    fn certificate_names_have_their_kinds() {
        let mut params = CertificateParams::new(vec!["Client.example".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "alice");
        let text = |text: &str| text.to_owned().try_into().unwrap();
        params.subject_alt_names.extend([
            SanType::URI(text("spiffe://acme/alice")),
            SanType::Rfc822Name(text("alice@acme.example")),
            SanType::IpAddress("2001:db8::1".parse().unwrap()),
        ]);
        let signed = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let certificate = names_of(signed.der());
        let names: Vec<&str> = certificate.names().collect();
        assert!(names[0].starts_with("sha256:") && names[0].len() == 7 + 64, "{names:?}");
        let expected = [
            "cn:alice",
            "dns:client.example",
            "uri:spiffe://acme/alice",
            "email:alice@acme.example",
            "ip:2001:db8::1",
        ];
        let found = expected.iter().all(|name| names.contains(name));
        assert!(found && names.len() == 6, "{names:?}");
    }
}
