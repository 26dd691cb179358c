//! Certificate and key that the gateway presents to a provider (`client_cert`, `client_key`).

use std::path::Path;

use rustls::crypto::ring;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::Vault;
use super::node::{ConfigTable, Value};
use super::secret;
use codec::provider::{BaseUrl, PresentedCertificate, Scheme};

/// Reads the two keys of a provider. `None` if they are not set, cannot be used, which is reported, or secrets are not read.
pub(super) fn read(
    table: &ConfigTable<'_>,
    base: Option<&BaseUrl>,
    folder: &Path,
    vault: &dyn Vault,
) -> Option<PresentedCertificate> {
    let (cert, key) = (table.get("client_cert"), table.get("client_key"));
    if cert.is_some() != key.is_some() {
        table.wrong("only one of client_cert and client_key is set", "set both of them".to_owned());
    }
    let (cert, key) = (cert?, key?);
    if base.is_some_and(|base| base.scheme() == Scheme::Http) {
        cert.wrong("a certificate is presented over TLS only", "give an https base_url".to_owned());
    }
    let chain = read_file(&cert, folder, vault).map(|text| certificates(&text));
    let private = read_file(&key, folder, vault).map(|text| private_key(&text));
    let (chain, private) = chain.zip(private)?;
    if chain.is_none() {
        cert.wrong("the file has no valid certificate", "give a PEM file with the chain".to_owned());
    }
    if private.is_none() {
        key.wrong("the file has no valid private key", "give a PEM file".to_owned());
    }
    let (chain, private) = chain.zip(private)?;
    let identity = PresentedCertificate { chain, key: private };
    if let Err(error) = check_pair(&identity) {
        key.wrong(format!("the key cannot be used with the certificate: {error}"), None);
        return None;
    }
    Some(identity)
}

fn read_file(value: &Value<'_>, folder: &Path, vault: &dyn Vault) -> Option<String> {
    let written = Path::new(value.as_str()?);
    if !vault.reads() {
        return None;
    }
    let text = secret::expand(written, folder, vault)
        .and_then(|path| vault.file(&path).map_err(|error| format!("{}: {error}", path.display())));
    text.map_err(|reason| value.wrong(reason, None)).ok()
}

/// Returns the certificates of a PEM text, DER. `None` if there is none, or one cannot be parsed.
fn certificates(text: &str) -> Option<Vec<Vec<u8>>> {
    let all = CertificateDer::pem_slice_iter(text.as_bytes()).map(|certificate| {
        let certificate = certificate.ok()?;
        x509_parser::parse_x509_certificate(&certificate).ok()?;
        Some(certificate.to_vec())
    });
    all.collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())
}

/// Returns the private key of a PEM text, DER. `None` without one whose kind its DER bytes show.
fn private_key(text: &str) -> Option<Vec<u8>> {
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).ok()?;
    // The connector gets the bytes alone, and panics if they do not show their kind.
    PrivateKeyDer::try_from(key.secret_der()).ok().map(|key| key.secret_der().to_vec())
}

fn check_pair(identity: &PresentedCertificate) -> Result<(), String> {
    let chain = identity.chain.iter().map(|der| CertificateDer::from(der.clone())).collect();
    let key = PrivateKeyDer::try_from(identity.key.clone()).map_err(str::to_owned)?;
    let certified = CertifiedKey::from_der(chain, key, &ring::default_provider());
    certified.map(drop).map_err(|error| error.to_string())
}
