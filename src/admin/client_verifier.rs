//! Verification of client certificates, for the admin port and for listeners of clients.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};

use config::ClientCertificates;

/// Returns the verifier of client certificates. `read` reads a file.
///
/// # Errors
/// Returns a description with the path if a file cannot be read or used.
pub fn client_verifier(
    clients: &ClientCertificates,
    read: &mut dyn FnMut(&Path) -> Result<Vec<u8>, String>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let path = &clients.authorities;
    let mut roots = RootCertStore::empty();
    for authority in parse_certificates(path, &read(path)?)? {
        roots.add(authority).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let provider = Arc::new(ring::default_provider());
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    if let Some(path) = &clients.revoked {
        let bytes = read(path)?;
        let lists = CertificateRevocationListDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
        let lists = lists.map_err(|error| format!("{}: {error}", path.display()))?;
        if lists.is_empty() {
            return Err(format!("{}: no certificate revocation list", path.display()));
        }
        // A client whose authority has no list is refused: the lists say nothing about its certificate.
        builder = builder.with_crls(lists).only_check_end_entity_revocation();
    }
    if clients.optional {
        builder = builder.allow_unauthenticated();
    }
    builder.build().map_err(|error| format!("{}: {error}", path.display()))
}

/// Parses the certificates of a PEM file.
///
/// # Errors
/// Returns a description with the path if one cannot be parsed, or there is none.
pub fn parse_certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| format!("{}: {error}", path.display()))?;
    if all.is_empty() { Err(format!("{}: no certificate", path.display())) } else { Ok(all) }
}
