//! TLS: client certificates, and the renewal of certificates on SIGHUP.

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use nix::sys::signal::Signal;

use crate::support::client::{Client, request};
use crate::support::gateway::{Gateway, free_ports};
use crate::support::setup::{KEY, Ports, Setup, key};
use crate::support::tls::{Authority, Identity};
use crate::support::{http2, soon, until};

const BOUND_KEY: &str = "client-key-of-bert-0010";

fn models(key: &str) -> Vec<u8> {
    request("GET", "/v1/models", &[("authorization", &format!("Bearer {key}"))])
}

/// Returns a configuration with a TLS listener that verifies client certificates.
fn setup(ports: &Ports, authority: &Authority, lines: &str) -> Setup {
    let server = authority.identity(&["gateway.test"]);
    let tls = format!(
        "[[server.tls]]\nlisten = \"{}\"\ncert = \"own.crt\"\nkey = \"own.key\"\nclient_ca = \"clients.crt\"\n{lines}",
        ports.tls
    );
    let mut setup = Setup::providers("127.0.0.1:1".parse().unwrap())
        .file("own.crt", &server.chain)
        .file("own.key", &server.key)
        .file("clients.crt", authority.pem())
        .file("clients.crl", &authority.revocation_list(&[13]))
        .server(&tls);
    setup.keys += &key("bert", BOUND_KEY, "certificates = [\"dns:bert.example\", \"cn:robert*\"]");
    setup
}

async fn start(authority: &Authority, lines: &str) -> Gateway {
    let ports = free_ports();
    let mut gateway = Gateway::spawn(&setup(&ports, authority, lines), ports);
    gateway.wait_until_ready().await;
    gateway
}

/// Returns the status of a request, or `None` if the gateway does not accept the connection. With TLS 1.3, a client learns
/// of that after its handshake.
async fn ask(
    gateway: &Gateway,
    authority: &Authority,
    identity: Option<&Identity>,
    key: &str,
) -> Option<u16> {
    let config = authority.client_as(&["http/1.1"], identity);
    let mut client = gateway.connect_tls(config, "gateway.test").await.ok()?.0;
    client.try_send(models(key)).await.ok()?;
    Some(client.try_answer().await?.status())
}

#[tokio::test]
async fn client_certificate_is_required_and_binds_keys() {
    let (authority, other) = (Authority::new(), Authority::new());
    let gateway = start(&authority, "client_crl = \"clients.crl\"").await;
    let bert = authority.numbered("bert.example", 12);
    let robert = authority.numbered("robert.example", 14);
    let carla = authority.numbered("carla.example", 15);
    let failed = "gateway_tls_handshakes_failed_total";
    let before = gateway.metrics().await.sum(failed, &[]);
    for (identity, key, status) in [
        (Some(&bert), BOUND_KEY, Some(200)),
        (Some(&robert), BOUND_KEY, Some(200)),
        (Some(&carla), BOUND_KEY, Some(403)),
        (Some(&carla), KEY, Some(200)),
        (Some(&carla), "no-such-key", Some(401)),
        (None, KEY, None),
        (Some(&other.identity(&["bert.example"])), KEY, None),
        (Some(&authority.expired("bert.example")), KEY, None),
        // Revoked.
        (Some(&authority.numbered("bert.example", 13)), KEY, None),
    ] {
        assert_eq!(ask(&gateway, &authority, identity, key).await, status);
    }
    gateway.wait_for_metric(failed, &[("reason", "failed")], before + 4.0).await;
    // HTTP/2, and the listener without TLS, whose connections have no certificate.
    for (identity, status) in [(&bert, 200), (&carla, 403)] {
        let config = authority.client_as(&["h2"], Some(identity));
        let mut client = http2::Client::connect_tls(gateway.tls, config, "gateway.test").await;
        let bearer = format!("Bearer {BOUND_KEY}");
        assert_eq!(client.get("/v1/models", &[("authorization", &bearer)]).await.0.status(), status);
    }
    let answer = gateway.ask(models(BOUND_KEY)).await;
    assert_eq!(
        (answer.status(), &answer.json()["error"]["code"]),
        (403, &"certificate_not_permitted".into())
    );
    assert_eq!(gateway.ask(models(KEY)).await.status(), 200);
}

#[tokio::test]
async fn client_certificate_that_is_optional_is_verified_if_sent() {
    let (authority, other) = (Authority::new(), Authority::new());
    let gateway = start(&authority, "client_certificate = \"optional\"").await;
    for (identity, key, status) in [
        (None, KEY, Some(200)),
        (None, BOUND_KEY, Some(403)),
        (Some(&authority.identity(&["bert.example"])), BOUND_KEY, Some(200)),
        (Some(&other.identity(&["bert.example"])), KEY, None),
    ] {
        assert_eq!(ask(&gateway, &authority, identity, key).await, status);
    }
}

/// Returns the certificate that a new connection gets.
async fn served(gateway: &Gateway, authority: &Authority, identity: &Identity) -> Vec<u8> {
    let tls = TlsConnector::from(authority.client_as(&[], Some(identity)));
    let socket = soon(TcpStream::connect(gateway.tls)).await.unwrap();
    let stream = soon(tls.connect(ServerName::try_from("gateway.test").unwrap(), socket)).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

async fn wait_for_reload(gateway: &Gateway, result: &str, count: f64) {
    gateway.signal(Signal::SIGHUP);
    gateway.wait_for_metric("gateway_tls_certificate_reloads_total", &[("result", result)], count).await;
}

#[tokio::test]
async fn certificate_is_renewed_without_closing_a_connection() {
    let authority = Authority::new();
    let gateway = start(&authority, "client_crl = \"clients.crl\"").await;
    let (bert, soon_revoked) = (authority.numbered("bert.example", 12), authority.numbered("x.example", 77));
    let first = served(&gateway, &authority, &bert).await;
    let config = authority.client_as(&["http/1.1"], Some(&soon_revoked));
    let mut old: Client = gateway.connect_tls(config, "gateway.test").await.unwrap().0;
    assert_eq!(old.ask(models(KEY)).await.status(), 200);

    let renewed = authority.identity(&["gateway.test"]);
    gateway.replace("own.crt", &renewed.chain);
    gateway.replace("own.key", &renewed.key);
    gateway.replace("clients.crl", &authority.revocation_list(&[13, 77]));
    wait_for_reload(&gateway, "applied", 1.0).await;
    let second = served(&gateway, &authority, &bert).await;
    assert!(second != first && second == renewed.certificates()[0].as_ref());
    assert_eq!(ask(&gateway, &authority, Some(&soon_revoked), KEY).await, None);
    assert_eq!(old.ask(models(KEY)).await.status(), 200);

    // Files that cannot be used leave the certificate in effect.
    let stranger = authority.identity(&["gateway.test"]);
    for (number, (file, text, says)) in [
        ("own.key", stranger.key.as_str(), "own.crt"),
        ("own.key", "nonsense", "own.key"),
        ("own.crt", "", "own.crt: no certificate"),
        ("clients.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "clients.crt"),
        ("clients.crl", "", "clients.crl"),
    ]
    .into_iter()
    .enumerate()
    {
        let before = gateway.read(file);
        gateway.replace(file, text);
        wait_for_reload(&gateway, "refused", number as f64 + 1.0).await;
        assert_eq!(served(&gateway, &authority, &bert).await, second, "{file}");
        let status = gateway.status().await;
        let refused = status["certificates"][0]["refused"].as_str().unwrap().to_owned();
        assert!(refused.contains(says), "{says}: {refused}");
        until(|| gateway.log().contains("the old one stays in effect")).await;
        // Routes and keys are reloaded all the same.
        assert_eq!(status["last_reload"]["result"], "applied", "{status}");
        gateway.replace(file, &before);
    }
    // Nor does one that has expired, with the key that belongs to it.
    let (chain, key) = (gateway.read("own.crt"), gateway.read("own.key"));
    let expired = authority.expired("gateway.test");
    gateway.replace("own.crt", &expired.chain);
    gateway.replace("own.key", &expired.key);
    wait_for_reload(&gateway, "refused", 6.0).await;
    assert_eq!(served(&gateway, &authority, &bert).await, second);
    let status = gateway.status().await;
    let refused = status["certificates"][0]["refused"].as_str().unwrap().to_owned();
    assert!(refused.contains("own.crt: expired at 2020-01-01T00:00:00Z"), "{refused}");
    gateway.replace("own.crt", &chain);
    gateway.replace("own.key", &key);
    gateway.reload("applied").await;
    let status = gateway.status().await;
    assert!(status["certificates"][0].get("refused").is_none(), "{status}");
    let listen = gateway.tls.to_string();
    let name = "gateway_tls_certificate_not_after_timestamp_seconds";
    let not_after = gateway.metrics().await.sum(name, &[("listen", &listen)]);
    let (_, parsed) = x509_parser::parse_x509_certificate(&second).unwrap();
    assert_eq!(not_after, parsed.validity().not_after.timestamp() as f64);
}
