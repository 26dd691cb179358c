//! Checks against hostile web pages: a page of another origin can make a browser on the operator's machine send requests
//! to the admin port.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::{HeaderMap, Uri, header};

use super::error::{AdminApiError, ErrorCode};

const SEC_FETCH_MODE: header::HeaderName = header::HeaderName::from_static("sec-fetch-mode");

fn forbidden(message: impl Into<String>) -> AdminApiError {
    AdminApiError::new(ErrorCode::Forbidden, message)
}

/// Refuses a request that names a host other than an IP address, `localhost` or one of `hosts`: by DNS rebinding, a page
/// of another origin could otherwise read the answers. Also refuses requests that a page of another origin has caused
/// (Fetch metadata, and `Origin` for browsers without it). A page that is navigated to (`is_page`) may be linked from
/// anywhere: it answers nothing that the other page could read.
///
/// # Errors
/// Returns the error of a request that is refused.
pub(super) fn check(
    uri: &Uri,
    headers: &HeaderMap,
    hosts: &[String],
    is_page: bool,
) -> Result<(), AdminApiError> {
    let text = |name| headers.get(name).map(|value: &http::HeaderValue| value.to_str().unwrap_or("\u{0}"));
    let host = host(uri, headers)?;
    if !is_known(name_of(host), hosts) {
        return Err(unknown_host(host));
    }
    match text(header::HeaderName::from_static("sec-fetch-site")) {
        None | Some("same-origin" | "none") => {}
        Some(_) if is_page && text(SEC_FETCH_MODE) == Some("navigate") => {}
        Some(_) => return Err(forbidden("requests of pages of another origin are refused")),
    }
    match text(header::ORIGIN) {
        None => Ok(()),
        Some(origin) if origin.split_once("://").is_some_and(|(_, of)| of.eq_ignore_ascii_case(host)) => {
            Ok(())
        }
        Some(_) => Err(forbidden("requests of pages of another origin are refused")),
    }
}

/// Headers of which a browser sends at least one, also with a request of a page to its own origin over HTTP, and a scraper
/// or a probe none. A page can give `accept-language` another value, but not remove it.
const OF_BROWSERS: [&str; 5] =
    ["sec-fetch-site", "sec-fetch-mode", "origin", "accept-language", "upgrade-insecure-requests"];

/// Refuses a request of a browser that names an unknown host, for the paths that scrapers and probes read under any name.
/// By DNS rebinding, a page of another origin could otherwise read the answers.
///
/// # Errors
/// Returns the error of a request that is refused.
pub(super) fn check_browser(uri: &Uri, headers: &HeaderMap, hosts: &[String]) -> Result<(), AdminApiError> {
    let agent =
        headers.get(header::USER_AGENT).is_some_and(|agent| agent.as_bytes().starts_with(b"Mozilla/"));
    if !agent && !OF_BROWSERS.iter().any(|name| headers.contains_key(*name)) {
        return Ok(());
    }
    let host = host(uri, headers)?;
    if is_known(name_of(host), hosts) { Ok(()) } else { Err(unknown_host(host)) }
}

/// Returns the host that a request names. HTTP/2 has it in the URI.
///
/// # Errors
/// Returns the error of a request with several hosts or none.
fn host<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> Result<&'r str, AdminApiError> {
    if headers.get_all(header::HOST).iter().count() > 1 {
        return Err(AdminApiError::new(ErrorCode::Invalid, "the request has several host headers"));
    }
    let of_header = || Some(headers.get(header::HOST)?.to_str().unwrap_or("\u{0}"));
    let host = uri.authority().map(http::uri::Authority::as_str).or_else(of_header);
    host.ok_or_else(|| forbidden("the request names no host"))
}

fn unknown_host(host: &str) -> AdminApiError {
    forbidden(format!("the host {host:?} is not known; name it in admin.hosts of gateway.toml"))
}

/// Host of a request, without its port.
enum HostName<'h> {
    /// Address.
    Address,
    /// Name.
    Name(&'h str),
    /// Neither.
    Malformed,
}

/// Reads `uri-host [ ":" port ]` (RFC 9110, section 7.2), as a whole: what follows an address or a port makes another host of it.
fn name_of(host: &str) -> HostName<'_> {
    let (name, port, is_bracketed) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) => (name, port, true),
            None => return HostName::Malformed,
        },
        None => match host.find(':').and_then(|at| host.split_at_checked(at)) {
            Some((name, port)) => (name, port, false),
            None => (host, "", false),
        },
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.len() <= 5;
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
        return HostName::Malformed;
    }
    if is_bracketed {
        return if name.parse::<Ipv6Addr>().is_ok() { HostName::Address } else { HostName::Malformed };
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.parse::<Ipv4Addr>().is_ok() { HostName::Address } else { HostName::Name(name) }
}

fn is_known(name: HostName<'_>, hosts: &[String]) -> bool {
    match name {
        HostName::Address => true,
        HostName::Name(name) => {
            name.eq_ignore_ascii_case("localhost") || hosts.iter().any(|host| host.eq_ignore_ascii_case(name))
        }
        HostName::Malformed => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(headers: &[(&'static str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        check(&"/admin/v1".parse().unwrap(), &map, &["gateway.example".to_owned()], false).is_ok()
    }

    #[test]
    fn origin_of_a_page_that_is_navigated_to_may_be_another_one() {
        let headers = |mode: &str, origin: Option<&str>| {
            let mut map = HeaderMap::new();
            map.insert("host", "localhost:9090".parse().unwrap());
            map.insert("sec-fetch-site", "cross-site".parse().unwrap());
            map.insert("sec-fetch-mode", mode.parse().unwrap());
            if let Some(origin) = origin {
                map.insert("origin", origin.parse().unwrap());
            }
            map
        };
        let checked = |headers, is_page| check(&"/x".parse().unwrap(), &headers, &[], is_page).is_ok();
        assert!(checked(headers("navigate", None), true));
        assert!(!checked(headers("navigate", None), false));
        for mode in ["no-cors", "cors", "websocket", ""] {
            assert!(!checked(headers(mode, None), true), "{mode}");
        }
        assert!(!checked(headers("navigate", Some("https://hostile.test")), true));
    }

    #[test]
    fn origin_of_hostile_pages_is_refused() {
        for (headers, permitted) in [
            (&[("host", "127.0.0.1:9090")][..], true),
            (&[("host", "[::1]:9090")], true),
            (&[("host", "[::1]")], true),
            (&[("host", "localhost:9090")], true),
            (&[("host", "Gateway.Example")], true),
            (&[("host", "gateway.example.:9090")], true),
            (&[("host", "rebound.test:9090")], false),
            (&[("host", "127.0.0.1.rebound.test")], false),
            (&[("host", "localhost.rebound.test:9090")], false),
            (&[("host", "")], false),
            (&[("host", "[::1].evil")], false),
            (&[("host", "[::1]evil:9090")], false),
            (&[("host", "[::1]:9090.evil")], false),
            (&[("host", "[::1")], false),
            (&[("host", "[127.0.0.1]:9090")], false),
            (&[("host", "[gateway.example]")], false),
            (&[("host", "127.0.0.1:9090.evil")], false),
            (&[("host", "127.0.0.1:9090:1")], false),
            (&[("host", "127.0.0.1:")], true),
            (&[("host", "127.0.0.1.")], true),
            (&[("host", "127.0.0.1..")], false),
            (&[("host", "localhost:9090.evil")], false),
            (&[("host", "::1")], false),
            (&[], false),
            (&[("host", "127.0.0.1:9090"), ("host", "rebound.test")], false),
            (&[("host", "127.0.0.1:9090"), ("origin", "http://127.0.0.1:9090")], true),
            (&[("host", "127.0.0.1:9090"), ("origin", "http://127.0.0.1:8080")], false),
            (&[("host", "127.0.0.1:9090"), ("origin", "http://hostile.test")], false),
            (&[("host", "127.0.0.1:9090"), ("origin", "null")], false),
            (&[("host", "127.0.0.1:9090"), ("sec-fetch-site", "cross-site")], false),
            (&[("host", "127.0.0.1:9090"), ("sec-fetch-site", "same-site")], false),
            (&[("host", "127.0.0.1:9090"), ("sec-fetch-site", "none")], true),
            (&[("host", "127.0.0.1:9090"), ("sec-fetch-site", "same-origin")], true),
        ] {
            assert_eq!(checked(headers), permitted, "{headers:?}");
        }
    }
}
