//! `model-gateway health`: readiness of a running gateway.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ureq::tls::TlsConfig;

use super::out::say;
use super::{Conf, complain, fail};
use config::{self, AdminTlsSettings};

/// Maximum size of the reason that the gateway gives, in bytes.
const MAX_REASON: u64 = 4096;

#[derive(Debug, Args)]
pub(super) struct HealthArgs {
    #[command(flatten)]
    conf: Conf,
    /// Time-out in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
}

pub(super) fn run(options: &HealthArgs) -> ExitCode {
    let (admin, api) = match config::admin(&options.conf.conf) {
        Ok((admin, api)) => (local(admin), api),
        Err(report) => {
            for problem in &report.problems {
                complain(problem);
            }
            return fail("the configuration is not valid");
        }
    };
    let timeout = Duration::from_secs(options.timeout);
    let answer = match (&api.tls, &api.socket) {
        // This command has no certificate; the socket needs none.
        (Some(AdminTlsSettings { clients: Some(_), .. }), Some(socket)) => {
            socket_readiness(socket, timeout).map_err(|error| format!("{}: {error}", socket.display()))
        }
        (Some(AdminTlsSettings { clients: Some(_), .. }), None) => {
            return fail("the admin port requires client certificates: set admin.socket, which needs none");
        }
        (tls, _) => readiness(admin, tls.is_some(), timeout).map_err(|error| format!("{admin}: {error}")),
    };
    match answer {
        Ok((200, text)) => {
            say!("{}", text.trim_end());
            ExitCode::SUCCESS
        }
        Ok((status, text)) => fail(format_args!("{admin} responds with {status}: {}", text.trim_end())),
        Err(error) => fail(error),
    }
}

/// Returns an address that can be connected to: an unspecified one stands for every address of the machine.
fn local(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Returns the status and the text of `/readyz`.
///
/// # Errors
/// Returns an error if the admin port does not respond in time.
fn readiness(admin: SocketAddr, has_tls: bool, timeout: Duration) -> Result<(u16, String), ureq::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    // The certificate is for the name by which others reach the port; this is the gateway's own machine.
    let tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider).disable_verification(true);
    let agent = ureq::Agent::config_builder()
        .tls_config(tls.build())
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        // The proxy of the environment is for other machines.
        .proxy(None)
        .build()
        .new_agent();
    let mut response =
        agent.get(format!("{}://{admin}/readyz", if has_tls { "https" } else { "http" })).call()?;
    let text = response.body_mut().with_config().limit(MAX_REASON).read_to_vec()?;
    Ok((response.status().as_u16(), String::from_utf8_lossy(&text).into_owned()))
}

/// Returns the status and the text of `/readyz` on the Unix socket.
///
/// # Errors
/// Returns an error if the socket does not respond in time.
fn socket_readiness(socket: &Path, timeout: Duration) -> io::Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(MAX_REASON).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("the response is malformed"))?;
    Ok((status, text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::local;

    #[test]
    fn local_address_can_be_connected_to() {
        for (configured, expected) in [
            ("0.0.0.0:9090", "127.0.0.1:9090"),
            ("[::]:9090", "[::1]:9090"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("10.0.0.7:9", "10.0.0.7:9"),
        ] {
            assert_eq!(local(configured.parse().unwrap()).to_string(), expected);
        }
    }
}
