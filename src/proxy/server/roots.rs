//! Root certificates for systems without a certificate store, such as an empty container.

use std::io::Write as _;
use std::path::Path;

use crate::ServeError;

/// Files with root certificates on common systems.
const PLACES: [&str; 7] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ca-certificates/extracted/tls-ca-bundle.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
];

/// Writes Mozilla's root certificates to a temporary file and returns its path. `None` if the system has its own.
///
/// Pingora's connector panics if it finds no root certificates.
///
/// # Errors
/// Returns [`ServeError::Io`] if the file cannot be written.
pub(crate) fn file() -> Result<Option<String>, ServeError> {
    let set = |name| std::env::var_os(name).is_some_and(|path| Path::new(&path).exists());
    if set("SSL_CERT_FILE") || set("SSL_CERT_DIR") || PLACES.iter().any(|place| Path::new(place).exists()) {
        return Ok(None);
    }
    let error = |source| ServeError::Io { what: "root certificates".to_owned(), source };
    let mut file =
        tempfile::Builder::new().prefix("model-gateway-roots-").suffix(".pem").tempfile().map_err(error)?;
    file.write_all(bundled().as_bytes()).map_err(error)?;
    // The connector reads the file once, after this function has returned, so it must not be deleted here.
    let (_, path) = file.keep().map_err(|kept| error(kept.error))?;
    tracing::warn!("no root certificates found on this system; using the Mozilla certificates of this build");
    Ok(Some(path.display().to_string()))
}

/// Returns the bundled root certificates as PEM.
fn bundled() -> String {
    let mut pem = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        let body = base64_simd::STANDARD.encode_to_string(certificate);
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in body.as_bytes().chunks(64) {
            pem.push_str(std::str::from_utf8(line).unwrap_or_default());
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    pem
}
