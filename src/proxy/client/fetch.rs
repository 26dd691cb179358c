//! Remote media fetcher: downloads what a URL of a provider or a client refers to.
//!
//! The author of a URL decides where this process connects to (server-side request forgery). Therefore: only http and
//! https without user and password; a name is resolved once, and the connection goes to the very address that was
//! checked; private networks only if `limits.fetch_allow` permits them; few redirects, each checked anew; bounds on
//! bytes and time; and no credentials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, header};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};
use url::{Host, Url};

use super::UpstreamClient;
use super::body::{BodyError, OpenResponse};
use super::send::{CallLog, RequestDestination, SendError, UpstreamRequest};
use crate::upstream_route::USER_AGENT;
use codec::provider::Timeouts;
use driver::body_memory::{MemoryExceeded, RequestBudget};
use driver::peer::Upstream;
use routing::account::Network;

/// Redirects that are followed: a provider's link may lead via its storage service to another region.
const REDIRECTS: usize = 3;
/// Longest URL that is fetched, in bytes; signed links have some hundred bytes.
const MAX_URL: usize = 8 * 1024;
/// Connect time-out.
const CONNECT: Duration = Duration::from_secs(5);
/// Largest buffer that is allocated from `content-length` before any of the body has arrived, in bytes.
const MAX_PREALLOCATED: usize = 32 << 20;

/// Reason why a fetch failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchFault {
    #[error("it is not an http or https URL")]
    NoAddress,
    #[error("it is in a network to which the gateway does not connect")]
    Forbidden,
    #[error("it redirects from https to http")]
    Downgrade,
    #[error("it redirects too many times")]
    Redirects,
    #[error("its host is unreachable")]
    Unreachable(String),
    #[error("its host responded with HTTP status {0}")]
    Status(u16),
    #[error("the download timed out")]
    Slow,
    #[error("it is larger than {0} bytes")]
    TooLarge(usize),
    #[error("together with the other media, it exceeds the size limit")]
    TotalTooLarge,
    /// Too many fetches are running, or the memory budget is exhausted.
    #[error("the gateway is overloaded")]
    Busy,
    #[error("its host sent an invalid response")]
    Broken(String),
}

impl FetchFault {
    /// Returns the name in metrics.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            FetchFault::NoAddress => "no_address",
            FetchFault::Forbidden => "forbidden",
            FetchFault::Downgrade => "downgrade",
            FetchFault::Redirects => "redirects",
            FetchFault::Unreachable(_) => "unreachable",
            FetchFault::Status(_) => "status",
            FetchFault::Slow => "slow",
            FetchFault::TooLarge(_) | FetchFault::TotalTooLarge => "too_large",
            FetchFault::Busy => "busy",
            FetchFault::Broken(_) => "broken",
        }
    }

    /// Returns the detail for the log, which the client does not see.
    pub(crate) fn detail(&self) -> Option<&str> {
        match self {
            FetchFault::Unreachable(detail) | FetchFault::Broken(detail) => Some(detail),
            _ => None,
        }
    }
}

impl From<MemoryExceeded> for FetchFault {
    fn from(full: MemoryExceeded) -> Self {
        match full {
            MemoryExceeded::RequestLimit => FetchFault::TotalTooLarge,
            MemoryExceeded::ProcessLimit => FetchFault::Busy,
        }
    }
}

/// Open fetch: the response head has been read, the body has not.
pub(crate) struct OpenFetch {
    /// Permit of `limits.fetches`.
    _permit: OwnedSemaphorePermit,
    response: OpenResponse,
}

impl OpenFetch {
    /// Returns `content-length` in bytes; `None` if it is absent or not a number.
    pub(crate) fn length(&self) -> Option<u64> {
        self.response.length
    }

    /// Reads the next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// Returns [`FetchFault::Slow`] at the deadline of the fetch and [`FetchFault::Broken`] if the body breaks off.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, FetchFault> {
        Ok(self.response.next().await?)
    }
}

impl From<BodyError> for FetchFault {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Timeout | BodyError::LowRate => FetchFault::Slow,
            BodyError::Broken(error) => FetchFault::Broken(error.to_string()),
        }
    }
}

impl From<SendError> for FetchFault {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Timeout => FetchFault::Slow,
            SendError::Resolve(_) | SendError::Connect(_) | SendError::Credential(_) => {
                FetchFault::Unreachable(error.to_string())
            }
            SendError::Connection(_) | SendError::NoHead => FetchFault::Broken(error.to_string()),
        }
    }
}

impl UpstreamClient {
    /// Downloads a URL, at most `most` bytes and within the request's bound (`room`). The body counts towards the
    /// memory budget from its first piece on, for as long as it lives.
    ///
    /// # Errors
    /// Returns [`FetchFault`] if the URL may not be fetched, the fetch fails or a bound is exceeded.
    pub(crate) async fn fetch(
        &self,
        url: &str,
        most: usize,
        room: &Arc<RequestBudget>,
    ) -> Result<Bytes, FetchFault> {
        let mut tally = self.memory.tally(room);
        let mut opened = self.open_url(url).await?;
        let length = opened.length().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        // A declared length saves the download. Without one, the bound below applies to what arrives.
        if length.is_some_and(|length| length > most) {
            return Err(FetchFault::TooLarge(most));
        }
        let capacity = length.unwrap_or(0).min(MAX_PREALLOCATED);
        let body = opened.response.collect::<FetchFault>(capacity, usize::MAX, |collected, piece| {
            if collected + piece > most {
                return Err(FetchFault::TooLarge(most));
            }
            Ok(tally.add(piece)?)
        });
        let body = body.await?;
        Ok(tally.attach_permit(body))
    }

    /// Requests a URL and follows redirects. The caller reads the body, within the deadline of the fetch
    /// (`limits.fetch_timeout`).
    ///
    /// # Errors
    /// Returns [`FetchFault`] if the URL may not be fetched or the status is not 200.
    pub(crate) async fn open_url(&self, url: &str) -> Result<OpenFetch, FetchFault> {
        let until = Instant::now() + self.limits.fetch_timeout;
        let url = address(url)?;
        // The wait for a permit counts too: the caller waits for no longer than `limits.fetch_timeout` in total.
        let place = timeout_at(until, self.fetches.clone().acquire_owned()).await;
        let Ok(Ok(place)) = place else { return Err(FetchFault::Busy) };
        timeout_at(until, Box::pin(self.follow(url, until, place))).await.map_err(|_| FetchFault::Slow)?
    }

    async fn follow(
        &self,
        mut url: Url,
        until: Instant,
        place: OwnedSemaphorePermit,
    ) -> Result<OpenFetch, FetchFault> {
        for _ in 0..=REDIRECTS {
            // Each hop is resolved and checked anew: a redirect may lead from a public host into a private network.
            let mut response = self.request_url(&url, until).await?;
            match response.status {
                200 => {
                    // The request accepts `identity` only: bytes in another coding would be passed on as media.
                    let coding = response.text(&header::CONTENT_ENCODING);
                    if coding.is_some_and(|coding| !coding.eq_ignore_ascii_case("identity")) {
                        return Err(FetchFault::Broken("it is compressed".to_owned()));
                    }
                    response.read_whole();
                    return Ok(OpenFetch { _permit: place, response });
                }
                301 | 302 | 303 | 307 | 308 => url = redirect(&url, &response)?,
                status => return Err(FetchFault::Status(status)),
            }
        }
        Err(FetchFault::Redirects)
    }

    /// Requests a URL once, at an address of its host that was checked.
    async fn request_url(&self, url: &Url, until: Instant) -> Result<OpenResponse, FetchFault> {
        let peer = self.find_public_peer(url).await?;
        let timeout = self.limits.fetch_timeout;
        let request = UpstreamRequest {
            destination: RequestDestination::Address(Arc::new(peer)),
            series: None,
            parts: request_parts(url)?,
            body: None,
            // Only the deadline of the whole fetch bounds its response.
            timeouts: Timeouts {
                connect: CONNECT,
                first_byte: timeout,
                idle: timeout,
                ..Timeouts::default()
            },
            until,
            repeatable: false,
        };
        // Boxed: the state of a connect is large, and a download is rare.
        let sent = Box::pin(self.send(&request, &mut CallLog::default())).await;
        sent.map_err(|error| match error {
            // The deadline of the fetch has cut the connect time-out short.
            SendError::Connect(_) if Instant::now() >= until => FetchFault::Slow,
            error => error.into(),
        })
    }

    /// Resolves the host of a URL to an address that the gateway may connect to.
    ///
    /// # Errors
    /// Returns [`FetchFault::Forbidden`] if all its addresses are private, and [`FetchFault::Unreachable`] if it cannot
    /// be resolved.
    async fn find_public_peer(&self, url: &Url) -> Result<Upstream, FetchFault> {
        let allowed = |ip: &IpAddr| {
            is_public(*ip) || self.limits.fetch_allow.iter().any(|network| Network::contains(network, *ip))
        };
        let (ip, name) = match url.host() {
            Some(Host::Ipv4(ip)) => (Some(IpAddr::V4(ip)).filter(allowed), ip.to_string()),
            Some(Host::Ipv6(ip)) => (Some(IpAddr::V6(ip)).filter(allowed), ip.to_string()),
            Some(Host::Domain(name)) => {
                let found = self.resolver.lookup(name).await;
                let (found, _) = found.map_err(|error| FetchFault::Unreachable(error.to_string()))?;
                // Connect to the address that was checked: a second look-up could return another one (DNS rebinding).
                (found.into_iter().find(allowed), name.to_owned())
            }
            None => return Err(FetchFault::NoAddress),
        };
        let ip = ip.ok_or(FetchFault::Forbidden)?;
        let port = url.port_or_known_default().ok_or(FetchFault::NoAddress)?;
        Ok(Upstream::for_remote_media((ip, port).into(), url.scheme() == "https", name))
    }
}

/// Returns the URL that a redirect leads to.
///
/// # Errors
/// Returns [`FetchFault`] if its location is missing or must not be followed.
fn redirect(from: &Url, response: &OpenResponse) -> Result<Url, FetchFault> {
    let leads = response.text(&header::LOCATION).filter(|to| to.len() <= MAX_URL);
    let to = leads.and_then(|to| from.join(to).ok());
    let to = to.ok_or_else(|| FetchFault::Broken("it redirects without a valid location".to_owned()))?;
    let to = address(to.as_str())?;
    // A signed link would cross the network in clear text.
    if from.scheme() == "https" && to.scheme() == "http" {
        return Err(FetchFault::Downgrade);
    }
    Ok(to)
}

/// Parses a URL and checks what can be checked without a look-up; drops its fragment.
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

fn request_parts(url: &Url) -> Result<Parts, FetchFault> {
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
    parts.headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(parts)
}

/// Whether an IP address is public (IANA's registries of special-purpose addresses). An IPv6 address with an embedded
/// IPv4 address is judged by the latter.
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
            // Shared address space of carriers (RFC 6598).
            | (100, 64..=127, _)
            // Link-local (RFC 3927): clouds have their metadata service, and credentials, at 169.254.169.254.
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
        // NAT64 (RFC 6052) and 6to4 (RFC 3056) embed the IPv4 address that the connection really leads to.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => within(high, low),
        // Ranges for tunnels, benchmarks, documentation and protocol assignments.
        [0x2001, 0..0x200, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..0x1000, ..] => false,
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetch_private_and_reserved_networks_are_not_public() {
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
    fn fetch_url_must_be_plain_http_or_https() {
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
        // Other notations of an IP address are parsed to the same address.
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
