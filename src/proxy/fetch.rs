//! What lies behind an address that somebody gave: a provider's link to what it made, or a client's image.
//!
//! Whoever gives an address decides where this process connects to. Therefore: only http and https, no user and
//! password, the name is resolved once and the connection goes to the very address that was looked at, no network of
//! one's own unless `limits.fetch_allow` names it, each redirect is looked at anew and there are few of them, and there
//! is an end to how much is read and for how long. No credential goes along.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, header};
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};
use url::{Host, Url};

use super::Gateway;
use super::body_memory::{Full, Room};
use super::exchange::{WRITE, listen};
use super::peer::Upstream;
use super::reader::{Read, Reader};
use crate::account::Network;

/// Redirects that are followed: a provider's link may lead over its storage to another region of it.
const REDIRECTS: usize = 3;
/// Longest address that is followed; signed links have some hundred bytes.
const MAX_URL: usize = 8 * 1024;
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// The largest room that is made for an answer before any of it has come.
const AHEAD: usize = 32 << 20;

/// Why nothing was brought.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FetchFault {
    #[error("it is not an http or https address")]
    NoAddress,
    #[error("it leads into a network that the gateway does not connect to")]
    Forbidden,
    #[error("it leads from https to http")]
    Downgrade,
    #[error("it leads on too many times")]
    Redirects,
    #[error("its host cannot be reached")]
    Unreachable(String),
    #[error("it answers with HTTP status {0}")]
    Status(u16),
    #[error("it takes too long")]
    Slow,
    #[error("what lies there is larger than {0} bytes")]
    TooLarge(usize),
    #[error("what lies there is too large together with the others")]
    Together,
    /// Links that are followed, or what is held, are as many as may be.
    #[error("the gateway has too much to do at the moment")]
    Busy,
    #[error("its answer is broken")]
    Broken(String),
}

impl FetchFault {
    /// The name in metrics.
    pub(super) fn label(&self) -> &'static str {
        match self {
            FetchFault::NoAddress => "no_address",
            FetchFault::Forbidden => "forbidden",
            FetchFault::Downgrade => "downgrade",
            FetchFault::Redirects => "redirects",
            FetchFault::Unreachable(_) => "unreachable",
            FetchFault::Status(_) => "status",
            FetchFault::Slow => "slow",
            FetchFault::TooLarge(_) | FetchFault::Together => "too_large",
            FetchFault::Busy => "busy",
            FetchFault::Broken(_) => "broken",
        }
    }

    /// What the log is told beyond what the client is.
    pub(super) fn detail(&self) -> Option<&str> {
        match self {
            FetchFault::Unreachable(detail) | FetchFault::Broken(detail) => Some(detail),
            _ => None,
        }
    }
}

impl From<Full> for FetchFault {
    fn from(full: Full) -> Self {
        match full {
            Full::Room => FetchFault::Together,
            Full::Memory => FetchFault::Busy,
        }
    }
}

/// An answer whose body has not been read.
pub(super) struct Opened {
    /// Its place among those who follow links.
    _place: OwnedSemaphorePermit,
    session: HttpSession,
    reader: Reader,
    until: Instant,
    /// How long it is, where that is said.
    pub(super) length: Option<usize>,
    ended: bool,
}

impl Opened {
    /// The next piece of the body; nothing at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, FetchFault> {
        while !self.ended {
            let read = timeout_at(self.until, self.reader.read(&mut self.session)).await;
            let piece = match read.map_err(|_| FetchFault::Slow)? {
                Read::Piece(piece) => piece,
                Read::Last(piece) => {
                    self.ended = true;
                    piece
                }
                Read::Broken(_, error) => return Err(FetchFault::Broken(error.to_string())),
            };
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }
}

impl Gateway {
    /// Brings what lies behind an address, no more than `most` bytes of it and no more than the request has room for.
    /// It is counted from its first piece on, for as long as it lives.
    pub(super) async fn fetch(&self, url: &str, most: usize, room: &Arc<Room>) -> Result<Bytes, FetchFault> {
        let mut tally = self.memory.tally(room);
        let mut opened = self.open_link(url).await?;
        if opened.length.is_some_and(|length| length > most) {
            return Err(FetchFault::TooLarge(most));
        }
        let mut body = BytesMut::with_capacity(opened.length.unwrap_or(0).min(AHEAD));
        while let Some(piece) = opened.next().await? {
            if body.len() + piece.len() > most {
                return Err(FetchFault::TooLarge(most));
            }
            tally.add(piece.len())?;
            if opened.ended && body.is_empty() {
                return Ok(tally.seal(piece));
            }
            body.extend_from_slice(&piece);
        }
        Ok(tally.seal(body.freeze()))
    }

    /// Asks for what lies behind an address, and follows where it leads. The body is the caller's to read, within
    /// the time that one fetch may take.
    pub(super) async fn open_link(&self, url: &str) -> Result<Opened, FetchFault> {
        let until = Instant::now() + self.limits.fetch_timeout;
        let url = address(url)?;
        let place = timeout_at(until, self.fetches.clone().acquire_owned()).await;
        let Ok(Ok(place)) = place else { return Err(FetchFault::Busy) };
        timeout_at(until, Box::pin(self.follow(url, until, place))).await.map_err(|_| FetchFault::Slow)?
    }

    async fn follow(
        &self,
        mut url: Url,
        until: Instant,
        place: OwnedSemaphorePermit,
    ) -> Result<Opened, FetchFault> {
        for _ in 0..=REDIRECTS {
            let mut session = self.connect_outside(&url).await?;
            let broken = |error: Box<pingora::Error>| FetchFault::Broken(error.to_string());
            session.write_request_header(request(&url)?).await.map_err(broken)?;
            if let HttpSession::H1(h1) = &mut session {
                h1.finish_body().await.map_err(broken)?;
            }
            listen(&mut session).await.map_err(broken)?;
            let head = session.response_header().ok_or_else(|| FetchFault::Broken("no head".to_owned()))?;
            let text = |name| head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
            match head.status.as_u16() {
                200 => {
                    if text(header::CONTENT_ENCODING)
                        .is_some_and(|coding| !coding.eq_ignore_ascii_case("identity"))
                    {
                        return Err(FetchFault::Broken("it is compressed".to_owned()));
                    }
                    let length = text(header::CONTENT_LENGTH).and_then(|length| length.trim().parse().ok());
                    let reader = Reader::new(false);
                    return Ok(Opened { _place: place, session, reader, until, length, ended: false });
                }
                301 | 302 | 303 | 307 | 308 => {
                    let leads = text(header::LOCATION).filter(|to| to.len() <= MAX_URL);
                    let to = leads.and_then(|to| url.join(to).ok());
                    let to = to.ok_or_else(|| FetchFault::Broken("it leads nowhere".to_owned()))?;
                    let to = address(to.as_str())?;
                    if url.scheme() == "https" && to.scheme() == "http" {
                        return Err(FetchFault::Downgrade);
                    }
                    url = to;
                }
                status => return Err(FetchFault::Status(status)),
            }
        }
        Err(FetchFault::Redirects)
    }

    /// A connection to the host of an address, if one may be made.
    async fn connect_outside(&self, url: &Url) -> Result<HttpSession, FetchFault> {
        let allowed = |ip: &IpAddr| {
            is_public(*ip) || self.limits.fetch_allow.iter().any(|network| Network::contains(network, *ip))
        };
        let unreachable = |error: &dyn std::fmt::Display| FetchFault::Unreachable(error.to_string());
        let (ip, name) = match url.host() {
            Some(Host::Ipv4(ip)) => (Some(IpAddr::V4(ip)).filter(allowed), ip.to_string()),
            Some(Host::Ipv6(ip)) => (Some(IpAddr::V6(ip)).filter(allowed), ip.to_string()),
            Some(Host::Domain(name)) => {
                let (found, _) = self.resolver.lookup(name).await.map_err(|error| unreachable(&error))?;
                // What was looked at is what is connected to.
                (found.into_iter().find(allowed), name.to_owned())
            }
            None => return Err(FetchFault::NoAddress),
        };
        let ip = ip.ok_or(FetchFault::Forbidden)?;
        let port = url.port_or_known_default().ok_or(FetchFault::NoAddress)?;
        let tls = url.scheme() == "https";
        let peer = Upstream::outside((ip, port).into(), tls, name);
        let session = self.connections.connect(&peer, CONNECT).await;
        let mut session = session.map_err(|error| unreachable(&error))?;
        session.set_read_timeout(None);
        session.set_write_timeout(Some(WRITE));
        Ok(session)
    }
}

/// An address that may be asked, as far as it alone tells.
fn address(text: &str) -> Result<Url, FetchFault> {
    if text.len() > MAX_URL {
        return Err(FetchFault::NoAddress);
    }
    let mut url = Url::parse(text.trim()).map_err(|_| FetchFault::NoAddress)?;
    let named = url.username().is_empty() && url.password().is_none() && url.host().is_some();
    if !named || !matches!(url.scheme(), "http" | "https") || url.port() == Some(0) {
        return Err(FetchFault::NoAddress);
    }
    url.set_fragment(None);
    Ok(url)
}

fn request(url: &Url) -> Result<Box<RequestHeader>, FetchFault> {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = Method::GET;
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    parts.uri = path.parse().map_err(|_| FetchFault::NoAddress)?;
    let host = match url.port() {
        Some(port) => format!("{}:{port}", url.host_str().unwrap_or_default()),
        None => url.host_str().unwrap_or_default().to_owned(),
    };
    parts.headers.insert(header::HOST, HeaderValue::try_from(host).map_err(|_| FetchFault::NoAddress)?);
    parts.headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    parts.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    parts.headers.insert(header::USER_AGENT, HeaderValue::from_static(super::upstream_route::USER_AGENT));
    parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(Box::new(RequestHeader::from(parts)))
}

/// Whether an address is one of the open internet (IANA's registries of special-purpose addresses). What carries an
/// IPv4 address within is what that one is.
fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_public_4(ip),
        IpAddr::V6(ip) => is_public_6(ip),
    }
}

fn is_public_4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127, ..)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (192, 168, _)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113)
            | (224.., ..)
    )
}

fn is_public_6(ip: Ipv6Addr) -> bool {
    let within = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_4(Ipv4Addr::new(a, b, c, d))
    };
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => within(high, low),
        // Tunnels, benchmarks, documentation and other protocols' addresses.
        [0x2001, 0..0x200, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..0x1000, ..] => false,
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_one_s_own_are_not_the_internet() {
        for inside in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd12:3456::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:a00:1::1",
            "2001:db8::1",
            "2001::1",
            "3fff::1",
            "100::1",
            "::127.0.0.1",
        ] {
            assert!(!is_public(inside.parse().unwrap()), "{inside}");
        }
        for outside in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "192.169.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "64:ff9b::808:808",
            "2a00:1450::1",
            "2002:808:808::1",
        ] {
            assert!(is_public(outside.parse().unwrap()), "{outside}");
        }
    }

    #[test]
    fn only_plain_addresses_of_the_web_are_followed() {
        for bad in [
            "",
            "x",
            "/path",
            "ftp://example.com/a",
            "file:///etc/passwd",
            "data:image/png;base64,AAAA",
            "http://",
            "https://user:secret@example.com/",
            "https://user@example.com/",
            "http://example.com:0/",
            "gopher://example.com/",
            "http://[::1",
            "http://exa mple.com/",
        ] {
            assert_eq!(address(bad).unwrap_err(), FetchFault::NoAddress, "{bad}");
        }
        let url = address(" https://example.com/a%20b?x=1#part ").unwrap();
        assert_eq!(url.as_str(), "https://example.com/a%20b?x=1");
        // Other ways to write an address are that address.
        for loopback in
            ["http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/", "http://[::ffff:7f00:1]/"]
        {
            let ip = match address(loopback).unwrap().host().unwrap().to_owned() {
                Host::Ipv4(ip) => IpAddr::V4(ip),
                Host::Ipv6(ip) => IpAddr::V6(ip),
                Host::Domain(name) => panic!("{loopback} is the name {name}"),
            };
            assert!(!is_public(ip), "{loopback}");
        }
    }
}
