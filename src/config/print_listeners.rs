//! Listeners in effect as TOML.

use std::fmt::Write as _;
use std::path::Path;

use super::print::{span, text};
use super::{ClientCertificates, CorsRule, HttpListener, ProxyProtocol, TlsListener};
use routing::account::{Pattern, TrustedProxies};

// Each structure is taken apart without `..`: a setting that is added and not printed here does not compile.

/// Writes the keys of `[server]` about proxies.
pub(super) fn write_proxies(out: &mut String, proxies: &TrustedProxies) -> std::fmt::Result {
    let TrustedProxies { networks, header } = proxies;
    let networks: Vec<String> = networks.iter().map(|network| format!("\"{network}\"")).collect();
    writeln!(out, "trusted_proxies = [{}]", networks.join(", "))?;
    writeln!(out, "forwarded_header = \"{}\"", header.name())
}

/// Writes the lists of tables in `[server]`.
pub(super) fn write_listeners(
    out: &mut String,
    http: &[HttpListener],
    tls: &[TlsListener],
    cors: &[CorsRule],
) -> std::fmt::Result {
    for HttpListener { listen, proxy_protocol } in http {
        writeln!(out, "\n[[server.http]]\nlisten = \"{listen}\"")?;
        write_protocol(out, *proxy_protocol)?;
    }
    for TlsListener { listen, cert, key, proxy_protocol, clients } in tls {
        writeln!(out, "\n[[server.tls]]\nlisten = \"{listen}\"")?;
        writeln!(out, "cert   = {}", path(cert))?;
        writeln!(out, "key    = {}", path(key))?;
        write_protocol(out, *proxy_protocol)?;
        if let Some(ClientCertificates { authorities, revoked, optional }) = clients {
            writeln!(out, "client_ca = {}", path(authorities))?;
            if let Some(revoked) = revoked {
                writeln!(out, "client_crl = {}", path(revoked))?;
            }
            writeln!(out, "client_certificate = \"{}\"", if *optional { "optional" } else { "required" })?;
        }
    }
    for CorsRule { origins, methods, headers, max_age } in cors {
        writeln!(out, "\n[[server.cors]]\norigins = [{}]", texts(origins.iter().map(Pattern::text)))?;
        writeln!(out, "methods = [{}]", texts(methods.iter().map(String::as_str)))?;
        if let Some(headers) = headers {
            writeln!(out, "headers = [{}]", texts(headers.iter().map(String::as_str)))?;
        }
        writeln!(out, "max_age = {}", span(*max_age))?;
    }
    Ok(())
}

fn write_protocol(out: &mut String, mode: ProxyProtocol) -> std::fmt::Result {
    writeln!(out, "proxy_protocol = \"{}\"", mode.name())
}

fn path(path: &Path) -> String {
    text(&path.display().to_string())
}

fn texts<'t>(all: impl Iterator<Item = &'t str>) -> String {
    all.map(text).collect::<Vec<_>>().join(", ")
}
