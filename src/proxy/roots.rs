//! Root certificates on machines that have none, such as an empty container.

use std::io::Write as _;
use std::path::Path;

use super::ServeError;

/// Where systems keep their root certificates.
const PLACES: [&str; 7] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ca-certificates/extracted/tls-ca-bundle.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
];

/// A file of root certificates to use instead of the system's; nothing where the system has its own.
///
/// Pingora's connector panics without any, so Mozilla's are written to a file of this process.
pub(super) fn file() -> Result<Option<String>, ServeError> {
    let set = |name| std::env::var_os(name).is_some_and(|path| Path::new(&path).exists());
    if set("SSL_CERT_FILE") || set("SSL_CERT_DIR") || PLACES.iter().any(|place| Path::new(place).exists()) {
        return Ok(None);
    }
    let error = |source| ServeError::Io { what: "root certificates".to_owned(), source };
    let mut file =
        tempfile::Builder::new().prefix("model-gateway-roots-").suffix(".pem").tempfile().map_err(error)?;
    file.write_all(bundled().as_bytes()).map_err(error)?;
    // The connector reads it now and never again, but only after this function has returned.
    let (_, path) = file.keep().map_err(|kept| error(kept.error))?;
    tracing::warn!("no root certificates on this system; using Mozilla's, as of this build");
    Ok(Some(path.display().to_string()))
}

fn bundled() -> String {
    use base64::Engine as _;
    let mut pem = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        let body = base64::engine::general_purpose::STANDARD.encode(certificate);
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in body.as_bytes().chunks(64) {
            pem.push_str(std::str::from_utf8(line).unwrap_or_default());
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    pem
}
