//! Certificates of a private certificate authority, and TLS configurations of both sides.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Private certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// Certificate chain with its key, PEM.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "a test's own authority");
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// Returns the authority's certificate, PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Issues a certificate for these names.
    pub(crate) fn identity(&self, names: &[&str]) -> Identity {
        self.sign(CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap())
    }

    /// Issues an expired certificate.
    pub(crate) fn expired(&self, name: &str) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
        self.sign(params)
    }

    /// Issues a certificate for this name with this serial number, by which it can be revoked.
    pub(crate) fn numbered(&self, name: &str, serial: u64) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from(serial));
        params.distinguished_name.push(DnType::CommonName, name);
        self.sign(params)
    }

    /// Returns a revocation list of these serial numbers, PEM.
    pub(crate) fn revocation_list(&self, serials: &[u64]) -> String {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2099, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity { chain: certificate.pem(), key: key.serialize_pem() }
    }

    /// Returns a client configuration that trusts only this authority.
    pub(crate) fn client(&self, alpn: &[&str]) -> Arc<rustls::ClientConfig> {
        self.client_as(alpn, None)
    }

    /// Like `client`, for a client with a certificate.
    pub(crate) fn client_as(&self, alpn: &[&str], identity: Option<&Identity>) -> Arc<rustls::ClientConfig> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        let builder = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder.with_client_auth_cert(identity.certificates(), identity.key()).unwrap(),
        };
        config.alpn_protocols = protocols(alpn);
        Arc::new(config)
    }
}

impl Identity {
    /// Returns the chain.
    pub(crate) fn certificates(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.chain.as_bytes()).map(Result::unwrap).collect()
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }

    /// Returns a server configuration with this certificate.
    pub(crate) fn server(&self, alpn: &[&str]) -> Arc<rustls::ServerConfig> {
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(self.certificates(), self.key())
            .unwrap();
        config.alpn_protocols = protocols(alpn);
        Arc::new(config)
    }
}

impl Identity {
    /// Returns a server configuration with this certificate that requires one of the authority `clients`.
    pub(crate) fn server_for(&self, alpn: &[&str], clients: &Authority) -> Arc<rustls::ServerConfig> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(clients.pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier =
            rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(self.certificates(), self.key())
            .unwrap();
        config.alpn_protocols = protocols(alpn);
        Arc::new(config)
    }
}

fn protocols(names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name.as_bytes().to_vec()).collect()
}
