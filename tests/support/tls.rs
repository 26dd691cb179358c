//! Certificates of a private certificate authority, and TLS configurations of both sides.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
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

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity { chain: certificate.pem(), key: key.serialize_pem() }
    }

    /// Returns a client configuration that trusts only this authority.
    pub(crate) fn client(&self, alpn: &[&str]) -> Arc<rustls::ClientConfig> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols(alpn);
        Arc::new(config)
    }
}

impl Identity {
    /// Returns a server configuration with this certificate.
    pub(crate) fn server(&self, alpn: &[&str]) -> Arc<rustls::ServerConfig> {
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(self.chain.as_bytes()).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = protocols(alpn);
        Arc::new(config)
    }
}

fn protocols(names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name.as_bytes().to_vec()).collect()
}
