//! Peers, their pool key, and the errors of connecting.

use std::net::SocketAddr;
use std::sync::Arc;

use pingora::ErrorType;
use pingora::connectors::{ConnectorOptions, TransportConnector};
use pingora::http::RequestHeader;
use pingora::protocols::ALPN;
use pingora::upstreams::peer::{HttpPeer, Peer, PeerOptions};
use pingora::utils::tls::{WrappedX509, parse_x509};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio::time::Duration;
use tokio_rustls::TlsAcceptor;

use super::support::soon;

fn peer(tls: bool) -> HttpPeer {
    HttpPeer::new(SocketAddr::from(([127, 0, 0, 1], 443)), tls, "upstream.example".to_owned())
}

fn transport() -> TransportConnector {
    TransportConnector::new(Some(ConnectorOptions::new(8)))
}

/// A peer has no time-outs, HTTP/1 only, and one stream for each HTTP/2 connection, until it is told otherwise; it
/// verifies certificates. `proxy::peer` sets all but the last.
#[test]
fn peer_defaults_are_unbounded() {
    let options = PeerOptions::new();
    let times = [
        options.connection_timeout,
        options.total_connection_timeout,
        options.read_timeout,
        options.write_timeout,
        options.idle_timeout,
    ];
    assert_eq!(times, [None; 5]);
    assert!(matches!(options.alpn, ALPN::H1));
    assert_eq!(options.max_h2_streams, 1);
    assert!(options.verify_cert && options.verify_hostname);
}

/// A peer resolves a name when it is made, blocks its thread meanwhile, and panics if that fails. `proxy::peer` makes
/// peers of addresses only, `proxy::dns` resolves.
#[test]
fn peer_of_a_name_that_cannot_be_resolved_panics() {
    let made = std::panic::catch_unwind(|| HttpPeer::new("a name without a port", false, String::new()));
    assert!(made.is_err());
}

/// The pool key does not contain root certificates, ALPN or time-outs; it contains the address, TLS, the name and the
/// group key. `proxy::peer` sets a group key for each set of roots, changes time-outs without changing the key, and
/// skips the check of a pooled connection's address.
#[test]
fn pool_key_has_no_roots_but_a_group() {
    let key = |change: &dyn Fn(&mut HttpPeer)| {
        let mut peer = peer(true);
        change(&mut peer);
        peer.reuse_hash()
    };
    let usual = peer(true).reuse_hash();
    let (issuer, _) = authority();
    let roots: Box<[WrappedX509]> = Box::new([WrappedX509::new(issuer.der().to_vec(), parse_x509)]);
    let roots = Arc::from(roots);
    assert_eq!(key(&|peer| peer.options.ca = Some(Arc::clone(&roots))), usual);
    assert_eq!(key(&|peer| peer.options.alpn = ALPN::H2), usual);
    assert_eq!(key(&|peer| peer.options.total_connection_timeout = Some(Duration::from_secs(1))), usual);
    assert_eq!(key(&|peer| peer.options.idle_timeout = Some(Duration::from_secs(1))), usual);
    assert_ne!(key(&|peer| peer.group_key = 1), usual);
    assert_ne!(key(&|peer| peer.sni = "other.example".to_owned()), usual);
    assert_ne!(key(&|peer| peer._address = "127.0.0.2:443".parse().unwrap()), usual);
    assert_ne!(peer(false).reuse_hash(), usual);
}

/// A refused connection is `ConnectRefused`. `proxy::reply` answers it with 502, `proxy::blame` counts it against the
/// provider.
#[tokio::test]
async fn connect_to_a_closed_port_is_refused() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let peer = HttpPeer::new(port, false, String::new());
    let error = soon(transport().new_stream(&peer)).await.unwrap_err();
    assert_eq!(*error.etype(), ErrorType::ConnectRefused);
}

/// `total_connection_timeout` covers the TLS handshake, and its error is `ConnectTimedout`. `proxy::peer` sets it.
#[tokio::test]
async fn connect_time_out_covers_the_handshake() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut peer = HttpPeer::new(listener.local_addr().unwrap(), true, "upstream.example".to_owned());
    peer.options.total_connection_timeout = Some(Duration::from_millis(200));
    let error = soon(transport().new_stream(&peer)).await.unwrap_err();
    assert_eq!(*error.etype(), ErrorType::ConnectTimedout);
}

fn authority() -> (CertifiedIssuer<'static, KeyPair>, KeyPair) {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    (issuer, KeyPair::generate().unwrap())
}

/// Starts a TLS server for this name whose ALPN is this, and returns a peer that trusts it.
async fn tls_upstream(name: &str, alpn: &[u8]) -> (HttpPeer, tokio::task::JoinHandle<()>) {
    let (issuer, key) = authority();
    let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], secret)
        .unwrap();
    config.alpn_protocols = vec![alpn.to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let serving = tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((socket, _)) = listener.accept().await {
            open.push(acceptor.accept(socket).await);
        }
    });
    let mut peer = HttpPeer::new(address, true, name.to_owned());
    let roots: Box<[WrappedX509]> = Box::new([WrappedX509::new(issuer.der().to_vec(), parse_x509)]);
    peer.options.ca = Some(Arc::from(roots));
    (peer, serving)
}

/// The roots of a peer are used, and a certificate of other roots or for another name fails the handshake.
/// `proxy::peer` relies on it for `providers.*.ca`.
#[tokio::test]
async fn connect_verifies_roots_and_name() {
    let (peer, serving) = tls_upstream("upstream.example", b"http/1.1").await;
    soon(transport().new_stream(&peer)).await.unwrap();
    let mut other = peer.clone();
    other.sni = "other.example".to_owned();
    let mut untrusted = peer.clone();
    untrusted.options.ca = None;
    for peer in [other, untrusted] {
        let error = soon(transport().new_stream(&peer)).await.unwrap_err();
        assert_eq!(*error.etype(), ErrorType::TLSHandshakeFailure);
    }
    serving.abort();
}

/// `H2H1` offers both versions, and the server selects; after `prefer_h1` only HTTP/1.1 is offered, to this peer.
/// `proxy::connection` uses it after a provider has rejected HTTP/2.
#[tokio::test]
async fn connect_offers_http1_alone_after_prefer_h1() {
    let (mut peer, serving) = tls_upstream("upstream.example", b"h2").await;
    peer.options.alpn = ALPN::H2H1;
    let transport = transport();
    let stream = soon(transport.new_stream(&peer)).await.unwrap();
    assert!(matches!(stream.selected_alpn_proto(), Some(ALPN::H2)));
    transport.prefer_h1(&peer);
    // A server that speaks only HTTP/2 shares no protocol with it.
    assert!(soon(transport.new_stream(&peer)).await.is_err());
    serving.abort();
}

/// A request head refuses a path and a value with a line end, which would be read as further lines.
/// `proxy::provider_http1` writes both unchecked.
#[test]
fn request_head_has_no_line_end_in_its_parts() {
    for path in ["/x\r\ny: z", "/x\n", "/x y"] {
        let mut head = RequestHeader::build_no_case("POST", b"/", None).unwrap();
        assert!(head.set_raw_path(path.as_bytes()).is_err(), "{path:?}");
        assert!(RequestHeader::build_no_case("POST", path.as_bytes(), None).is_err(), "{path:?}");
    }
    let mut head = RequestHeader::build_no_case("POST", b"/", None).unwrap();
    assert!(head.insert_header("x", "a\r\ny: z").is_err());
}
