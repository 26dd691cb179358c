//! PROXY protocol: the client's address before the first byte of HTTP or TLS.

use std::net::SocketAddr;

use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{NET_KEY, list, setup};
use crate::support::client::Client;
use crate::support::gateway::{Gateway, free_ports};
use crate::support::ports::free_port;
use crate::support::tls::Authority;
use crate::support::{http2, soon};

const V1: &str = "PROXY TCP4 203.0.113.9 127.0.0.1 56324 443\r\n";

/// Returns a version 2 header with this command and source, with an extension behind the addresses.
fn v2(command: u8, source: [u8; 4]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend_from_slice(&[command, 0x11, 0, 12 + 8]);
    header.extend_from_slice(&source);
    header.extend_from_slice(&[127, 0, 0, 1, 0xdc, 4, 1, 0xbb]);
    header.extend_from_slice(&[0xea, 0, 5, 1, b'v', b'p', b'c', b'e']);
    header
}

/// Starts a gateway with a plaintext listener in this mode. Returns its address too.
async fn start(mode: &str, trusted: &str) -> (Gateway, SocketAddr) {
    let addr = free_port();
    let setup = setup().limits("header_timeout = \"500ms\"").server(&format!(
        "trusted_proxies = [\"{trusted}\"]\n[[server.http]]\nlisten = \"{addr}\"\nproxy_protocol = \"{mode}\""
    ));
    (Gateway::start(&setup).await, addr)
}

async fn wait_for_refused(gateway: &Gateway, reason: &str, count: f64) {
    gateway.wait_for_metric("gateway_proxy_headers_refused_total", &[("reason", reason)], count).await;
}

#[tokio::test]
async fn proxy_protocol_names_the_client_of_each_request() {
    let (gateway, addr) = start("required", "127.0.0.0/8").await;
    let v6 = b"PROXY TCP6 2001:db8::7 ::1 1 2\r\n".to_vec();
    for (header, status, client) in [
        (V1.as_bytes().to_vec(), 200, "203.0.113.9"),
        (v6, 200, "2001:db8::7"),
        (v2(0x21, [203, 0, 113, 8]), 200, "203.0.113.8"),
        (v2(0x21, [198, 51, 100, 1]), 403, "198.51.100.1"),
        // The balancer's own connection has its own address.
        (v2(0x20, [203, 0, 113, 8]), 403, "127.0.0.1"),
        (b"PROXY UNKNOWN\r\n".to_vec(), 403, "127.0.0.1"),
    ] {
        let lines = gateway.access_log().len();
        // In one piece with the request; and the next request on the same connection.
        let mut connection = Client::connect(addr).await;
        connection.send([&header[..], &list(&[])].concat()).await;
        assert_eq!(connection.answer().await.status(), status, "{client}");
        assert_eq!(connection.ask(list(&[])).await.status(), status, "{client}");
        // Byte by byte.
        let mut connection = Client::connect(addr).await;
        for byte in &header {
            connection.send([*byte]).await;
        }
        assert_eq!(connection.ask(list(&[])).await.status(), status, "{client}");
        let log = gateway.wait_for_log(lines + 3).await;
        assert!(log[lines..].iter().all(|line| line["client"] == client), "{client}: {log:?}");
    }
    // The other listener expects no header, and does not read one.
    assert_eq!(gateway.ask(list(&[])).await.status(), 403);
    assert_eq!(gateway.ask([V1.as_bytes(), &list(&[])].concat()).await.status(), 400);
    // A trusted proxy behind the balancer names the client in the header of HTTP.
    let mut connection = Client::connect(addr).await;
    let header = b"PROXY TCP4 127.0.0.9 127.0.0.1 1 2\r\n".to_vec();
    connection.send([header, list(&[("x-forwarded-for", "192.0.2.1, 203.0.113.77")])].concat()).await;
    assert_eq!(connection.answer().await.status(), 200);
}

#[tokio::test]
async fn proxy_protocol_precedes_http2_and_tls() {
    let authority = Authority::new();
    let identity = authority.identity(&["gateway.test"]);
    let (plain, ports) = (free_port(), free_ports());
    let setup = setup().file("own.crt", &identity.chain).file("own.key", &identity.key).server(&format!(
        "trusted_proxies = [\"127.0.0.1\"]\n\
         [[server.http]]\nlisten = \"{plain}\"\nproxy_protocol = \"required\"\n\
         [[server.tls]]\nlisten = \"{}\"\ncert = \"own.crt\"\nkey = \"own.key\"\nproxy_protocol = \"required\"",
        ports.tls
    ));
    let mut gateway = Gateway::spawn(&setup, ports);
    gateway.wait_until_ready().await;
    let bearer = format!("Bearer {NET_KEY}");
    let key = [("authorization", &*bearer)];
    for (source, status) in [([203, 0, 113, 8], 200), ([192, 0, 2, 8], 403)] {
        let connect = async |addr| {
            let mut socket = soon(TcpStream::connect(addr)).await.unwrap();
            soon(socket.write_all(&v2(0x21, source))).await.unwrap();
            socket
        };
        let mut client = http2::Client::over(connect(plain).await, "http").await;
        assert_eq!(client.get("/v1/models", &key).await.0.status(), status);
        let name = || ServerName::try_from("gateway.test").unwrap();
        let tls = TlsConnector::from(authority.client(&["h2"]));
        let stream = soon(tls.connect(name(), connect(gateway.tls).await)).await.unwrap();
        let mut client = http2::Client::over(stream, "https").await;
        assert_eq!(client.get("/v1/models", &key).await.0.status(), status);
        let tls = TlsConnector::from(authority.client(&["http/1.1"]));
        let stream = soon(tls.connect(name(), connect(gateway.tls).await)).await.unwrap();
        assert_eq!(Client::over(stream).ask(list(&[])).await.status(), status);
    }
    // A handshake without a header before it.
    let tls = TlsConnector::from(authority.client(&[]));
    let socket = soon(TcpStream::connect(gateway.tls)).await.unwrap();
    assert!(soon(tls.connect(ServerName::try_from("gateway.test").unwrap(), socket)).await.is_err());
    wait_for_refused(&gateway, "missing", 1.0).await;
}

#[tokio::test]
async fn proxy_protocol_required_closes_every_other_connection() {
    let (gateway, addr) = start("required", "127.0.0.0/8").await;
    let slow = V1.as_bytes()[..20].to_vec();
    for (bytes, reason) in [
        (list(&[]), "missing"),
        (b"PROXY TCP4 203.0.113.9 127.0.0.1 1 99999\r\n".to_vec(), "malformed"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff".to_vec(), "malformed"),
        (slow, "timeout"),
    ] {
        let labels = [("reason", reason)];
        let before = gateway.metrics().await.sum("gateway_proxy_headers_refused_total", &labels);
        let mut connection = Client::connect(addr).await;
        connection.send(&bytes).await;
        assert_eq!(connection.closed().await, b"", "{reason}");
        wait_for_refused(&gateway, reason, before + 1.0).await;
    }
    // A byte now and then does not extend the time.
    let mut connection = Client::connect(addr).await;
    soon(async {
        for byte in V1.as_bytes().iter().cycle() {
            if connection.try_send([*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    // A check that connects and closes is not counted.
    let before = gateway.metrics().await.sum("gateway_proxy_headers_refused_total", &[]);
    let mut check = Client::connect(addr).await;
    check.finish_sending().await;
    assert_eq!(check.closed().await, b"");
    gateway.wait_for_metric("gateway_connections", &[], 0.0).await;
    assert_eq!(gateway.metrics().await.sum("gateway_proxy_headers_refused_total", &[]), before);
    drop(gateway);

    let (gateway, addr) = start("required", "192.0.2.0/24").await;
    let mut connection = Client::connect(addr).await;
    let _ = connection.try_send([V1.as_bytes(), &list(&[])].concat()).await;
    assert_eq!(connection.closed().await, b"");
    wait_for_refused(&gateway, "untrusted", 1.0).await;
}

#[tokio::test]
async fn proxy_protocol_optional_reads_headers_of_trusted_proxies_only() {
    let (gateway, addr) = start("optional", "127.0.0.0/8").await;
    for (header, status) in [("", 403), (V1, 200)] {
        let mut connection = Client::connect(addr).await;
        connection.send([header.as_bytes(), &list(&[])].concat()).await;
        assert_eq!(connection.answer().await.status(), status, "{header:?}");
    }
    // Methods that begin like a header, in pieces; and the preface of HTTP/2.
    let mut connection = Client::connect(addr).await;
    connection.send("P").await;
    connection.send("RO / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(connection.answer().await.status(), 405);
    let mut client = http2::Client::connect(addr).await;
    let bearer = format!("Bearer {NET_KEY}");
    assert_eq!(client.get("/v1/models", &[("authorization", &bearer)]).await.0.status(), 403);
    assert_eq!(gateway.metrics().await.sum("gateway_proxy_headers_refused_total", &[]), 0.0);
    drop(gateway);

    let (_gateway, addr) = start("optional", "192.0.2.0/24").await;
    let mut connection = Client::connect(addr).await;
    connection.send([V1.as_bytes(), &list(&[])].concat()).await;
    assert_eq!(connection.answer().await.status(), 400);
    let mut connection = Client::connect(addr).await;
    assert_eq!(connection.ask(list(&[])).await.status(), 403);
}
