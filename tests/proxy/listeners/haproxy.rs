//! PROXY protocol as HAProxy speaks it, in front of the gateway.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use super::{list, setup};
use crate::support::client::Client;
use crate::support::gateway::Gateway;
use crate::support::ports::free_port;
use crate::support::until;

/// HAProxy, which ends with the test.
struct Balancer(Child);

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the program. `None` if this machine does not have it.
fn program() -> Option<&'static str> {
    let found = ["haproxy", "/usr/sbin/haproxy"].into_iter().find(|program| {
        Command::new(program).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    });
    if found.is_none() {
        let required = std::env::var("GATEWAY_REQUIRE_ALL").is_ok_and(|value| value == "1");
        assert!(!required, "haproxy is missing, and GATEWAY_REQUIRE_ALL=1");
        eprintln!("SKIPPED: there is no haproxy on this machine");
    }
    found
}

/// Ways in which HAProxy sends the header: name, options of `server`.
const FORMS: [(&str, &str); 4] = [
    ("v1", "send-proxy"),
    ("v2", "send-proxy-v2"),
    ("v2-extended", "send-proxy-v2 proxy-v2-options crc32c,unique-id"),
    ("v2-ssl", "send-proxy-v2-ssl-cn"),
];

#[tokio::test]
async fn proxy_protocol_of_haproxy_names_the_client() {
    let Some(program) = program() else { return };
    let addr = free_port();
    let setup = setup().server(&format!(
        "trusted_proxies = [\"127.0.0.0/8\"]\n[[server.http]]\nlisten = \"{addr}\"\nproxy_protocol = \"required\""
    ));
    let gateway = Gateway::start(&setup).await;
    // Its own clients name their address with a header too, because all of this is on one machine. Its health checks are
    // connections of its own, with the command LOCAL.
    let mut config =
        "global\n  maxconn 64\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 30s\n  \
                      timeout server 30s\n  unique-id-format %{+X}o%Ts%rt\n"
            .to_owned();
    let mut ports: Vec<SocketAddr> = Vec::new();
    for (name, options) in FORMS {
        let port = free_port();
        config += &format!(
            "listen {name}\n  bind {port} accept-proxy\n  server gateway {addr} {options} check inter 200ms\n"
        );
        ports.push(port);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("haproxy.cfg");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(program);
    command.arg("-f").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    let _balancer = Balancer(command.spawn().unwrap());
    for ((name, _), port) in FORMS.iter().zip(&ports) {
        until(|| std::net::TcpStream::connect(port).is_ok()).await;
        let lines = gateway.access_log().len();
        for (header, status) in [
            ("PROXY TCP4 203.0.113.9 127.0.0.1 56324 443\r\n", 200),
            ("PROXY TCP6 2001:db8::7 ::1 56324 443\r\n", 200),
            ("PROXY TCP4 198.51.100.1 127.0.0.1 56324 443\r\n", 403),
        ] {
            let mut connection = Client::connect(*port).await;
            connection.send([header.as_bytes(), &list(&[])].concat()).await;
            assert_eq!(connection.answer().await.status(), status, "{name}: {header}");
        }
        let log = gateway.wait_for_log(lines + 3).await;
        // Lines are written when a request has ended, which is after its answer.
        let mut clients: Vec<&str> =
            log[lines..].iter().map(|line| line["client"].as_str().unwrap()).collect();
        clients.sort_unstable();
        assert_eq!(clients, ["198.51.100.1", "2001:db8::7", "203.0.113.9"], "{name}");
    }
    // No header of HAProxy's was refused, those of its health checks included.
    assert_eq!(
        gateway.metrics().await.sum("gateway_proxy_headers_refused_total", &[("reason", "malformed")]),
        0.0
    );
}
