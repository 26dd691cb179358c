//! Address of the client behind trusted proxies: `X-Forwarded-For` or `Forwarded` (RFC 7239), read from the right.
//!
//! Each proxy appends the address that it has received a request from. The entries of trusted proxies are true; the first
//! entry from the right that names another host is the client, and everything to the left of it is the client's own
//! claim.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use smallvec::SmallVec;

use super::Network;

/// Header in which the trusted proxies name the client. Only one is read: a proxy that writes one passes the other on as
/// the client has sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

impl ForwardedHeader {
    /// All headers.
    pub const ALL: [ForwardedHeader; 2] = [ForwardedHeader::XForwardedFor, ForwardedHeader::Forwarded];

    /// Returns the name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            ForwardedHeader::XForwardedFor => "x-forwarded-for",
            ForwardedHeader::Forwarded => "forwarded",
        }
    }
}

/// Proxies whose statements about the client are believed. The default trusts none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Networks of the proxies.
    pub networks: Vec<Network>,
    /// Header that they write.
    pub header: ForwardedHeader,
}

impl TrustedProxies {
    /// Returns true if an address is that of a trusted proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }

    /// Returns the address of the client of a connection from `peer`, with the lines of the header from top to bottom.
    ///
    /// A peer that is not trusted is itself the client, whatever the lines say. `None` if a trusted proxy names a client
    /// by something else than an address (`unknown`, or a malformed entry): such a client is in no network.
    pub fn client<'h>(
        &self,
        peer: Option<IpAddr>,
        lines: impl DoubleEndedIterator<Item = &'h [u8]>,
    ) -> Option<IpAddr> {
        let mut address = peer?;
        if !self.trusts(address) {
            return Some(address);
        }
        match self.header {
            ForwardedHeader::XForwardedFor => {
                let entries = lines.rev().flat_map(|line| line.rsplit(|byte| *byte == b','));
                for entry in entries.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty()) {
                    address = node(entry)?;
                    if !self.trusts(address) {
                        break;
                    }
                }
            }
            ForwardedHeader::Forwarded => {
                for line in lines.rev() {
                    for node in forwarded_nodes(line).into_iter().rev() {
                        address = node?;
                        if !self.trusts(address) {
                            return Some(address);
                        }
                    }
                }
            }
        }
        Some(address)
    }
}

/// Parses an address with or without a port: `192.0.2.7`, `192.0.2.7:80`, `2001:db8::1`, `[2001:db8::1]`,
/// `[2001:db8::1]:80`.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let address = if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        IpAddr::V6(inner.parse::<Ipv6Addr>().ok()?)
    } else if let Ok(address) = text.parse::<IpAddr>() {
        address
    } else if let Some((address, port)) = text.split_once(':')
        && let Ok(address) = address.parse::<Ipv4Addr>()
    {
        // The port of a node may be obfuscated: `_` and a name (RFC 7239, section 6.2).
        let obfuscated = port.strip_prefix('_').is_some_and(|name| !name.is_empty());
        (obfuscated || port.parse::<u16>().is_ok()).then_some(IpAddr::V4(address))?
    } else {
        text.parse::<SocketAddr>().ok()?.ip()
    };
    Some(address.to_canonical())
}

/// Addresses of the elements of a line of `Forwarded`.
type Nodes = SmallVec<[Option<IpAddr>; 8]>;

/// Returns the address of each element of a line of `Forwarded`; `None` for an element without an address. A malformed
/// line has one element without an address: an unpaired quote of a client would otherwise hide the entries of the
/// proxies behind it.
fn forwarded_nodes(line: &[u8]) -> Nodes {
    let mut nodes = Nodes::new();
    let mut rest = line.trim_ascii();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(b",") {
            rest = after.trim_ascii_start();
            continue;
        }
        match forwarded_element(rest) {
            Some((node, after)) => {
                nodes.push(node);
                rest = after;
            }
            None => return Nodes::from_slice(&[None]),
        }
    }
    nodes
}

/// Parses one element. Returns its address and what follows it: nothing, or a comma with more. `None` if it is malformed.
fn forwarded_element(line: &[u8]) -> Option<(Option<IpAddr>, &[u8])> {
    let (mut found, mut rest) = (None, line);
    loop {
        let (name, after) = token(rest)?;
        let (value, after) = match after.strip_prefix(b"=")? {
            quoted if quoted.first() == Some(&b'"') => quoted_string(quoted)?,
            plain => token(plain)?,
        };
        if name.eq_ignore_ascii_case(b"for") && found.replace(node(value)).is_some() {
            return None;
        }
        rest = after.trim_ascii_start();
        match rest.split_first() {
            None | Some((b',', _)) => return Some((found.flatten(), rest)),
            Some((b';', after)) => rest = after.trim_ascii_start(),
            Some(_) => return None,
        }
        // A semicolon may end the element.
        if rest.is_empty() || rest.first() == Some(&b',') {
            return Some((found.flatten(), rest));
        }
    }
}

/// Splits a token off (RFC 9110, section 5.6.2), with the colons and brackets that addresses without quotes have in
/// practice. `None` if there is none.
fn token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text
        .iter()
        .position(|byte| !(byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:[]".contains(byte)))
        .unwrap_or(text.len());
    if end == 0 { None } else { text.split_at_checked(end) }
}

/// Splits a quoted string off, without its quotes and with its escapes. `None` if it does not end.
fn quoted_string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = text.strip_prefix(b"\"")?;
    let mut at = 0;
    loop {
        match inner.get(at)? {
            b'"' => return Some((inner.get(..at)?, inner.get(at + 1..)?)),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(header: ForwardedHeader) -> TrustedProxies {
        let networks = ["10.0.0.0/8", "2001:db8:ffff::/48"].iter().filter_map(|text| Network::parse(text));
        TrustedProxies { networks: networks.collect(), header }
    }

    fn client(header: ForwardedHeader, peer: &str, lines: &[&str]) -> Option<String> {
        let lines = lines.iter().map(|line| line.as_bytes());
        proxies(header).client(peer.parse().ok(), lines).map(|address| address.to_string())
    }

    #[test]
    fn client_address_is_the_first_untrusted_from_the_right() {
        for (peer, lines, expected) in [
            ("10.0.0.1", &["192.0.2.7"][..], Some("192.0.2.7")),
            // What the client claims stands to the left of what the proxies say.
            ("10.0.0.1", &["203.0.113.9, 192.0.2.7"], Some("192.0.2.7")),
            ("10.0.0.1", &["10.9.9.9, 192.0.2.7, 10.1.1.1 ,10.2.2.2"], Some("192.0.2.7")),
            ("10.0.0.1", &["10.9.9.9", "192.0.2.7", "10.1.1.1"], Some("192.0.2.7")),
            ("10.0.0.1", &["garbage, 192.0.2.7"], Some("192.0.2.7")),
            ("10.0.0.1", &["garbage", "192.0.2.7:1234"], Some("192.0.2.7")),
            ("10.0.0.1", &["2001:db8::7"], Some("2001:db8::7")),
            ("10.0.0.1", &["[2001:db8::7]"], Some("2001:db8::7")),
            ("10.0.0.1", &["192.0.2.7, [2001:db8:ffff::1]:443"], Some("192.0.2.7")),
            ("10.0.0.1", &["::ffff:192.0.2.7"], Some("192.0.2.7")),
            ("::ffff:10.0.0.1", &["192.0.2.7"], Some("192.0.2.7")),
            // All are trusted: the client is the one farthest away.
            ("10.0.0.1", &["10.3.3.3, 10.1.1.1"], Some("10.3.3.3")),
            ("10.0.0.1", &[], Some("10.0.0.1")),
            ("10.0.0.1", &["", " , ,"], Some("10.0.0.1")),
            // A proxy that does not know the client: it is not taken for the proxy.
            ("10.0.0.1", &["unknown"], None),
            ("10.0.0.1", &["192.0.2.7, unknown"], None),
            ("10.0.0.1", &["192.0.2.7, 010.0.0.1"], None),
            ("10.0.0.1", &["192.0.2.7 10.1.1.1"], None),
            ("10.0.0.1", &["192.0.2.7:"], None),
            ("10.0.0.1", &["192.0.2.7:99999"], None),
            // A peer that is not trusted is the client.
            ("192.0.2.99", &["10.0.0.1"], Some("192.0.2.99")),
            ("192.0.2.99", &["unknown"], Some("192.0.2.99")),
        ] {
            let found = client(ForwardedHeader::XForwardedFor, peer, lines);
            assert_eq!(found.as_deref(), expected, "{peer} {lines:?}");
        }
        assert_eq!(client(ForwardedHeader::XForwardedFor, "no address", &["192.0.2.7"]), None);
    }

    #[test]
    fn client_address_of_forwarded_is_that_of_for() {
        for (lines, expected) in [
            (&["for=192.0.2.7"][..], Some("192.0.2.7")),
            (&["For=\"[2001:db8::7]:4711\""], Some("2001:db8::7")),
            (&["for=192.0.2.7;proto=https;by=203.0.113.43"], Some("192.0.2.7")),
            (&["proto=https; for=192.0.2.7 ;host=\"a,b;c\""], Some("192.0.2.7")),
            (&["for=203.0.113.9, for=192.0.2.7, for=\"10.1.1.1:80\";"], Some("192.0.2.7")),
            (&["for=203.0.113.9", "for=192.0.2.7", "for=10.1.1.1"], Some("192.0.2.7")),
            (&["for=\"192.0.2.7:_port\""], Some("192.0.2.7")),
            (&[",, for=192.0.2.7,"], Some("192.0.2.7")),
            (&[], Some("10.0.0.1")),
            (&["for=unknown"], None),
            (&["for=_hidden"], None),
            (&["proto=https"], None),
            (&["for=192.0.2.7;for=10.1.1.1"], None),
            (&["for = 192.0.2.7"], None),
            (&["192.0.2.7"], None),
            // A quote that the client has opened hides nothing: the line counts as unknown.
            (&["for=\"10.2.2.2, for=192.0.2.7"], None),
            (&["x=\", for=192.0.2.7, for=\"[2001:db8:ffff::1]\""], None),
            (&["for=\"10.2.2.2\\\", for=192.0.2.7"], None),
            // A malformed line of the client does not spoil the lines of the proxies.
            (&["for=\"", "for=192.0.2.7"], Some("192.0.2.7")),
        ] {
            let found = client(ForwardedHeader::Forwarded, "10.0.0.1", lines);
            assert_eq!(found.as_deref(), expected, "{lines:?}");
        }
        // The other header is not read, and the peer must be trusted here too.
        assert_eq!(
            client(ForwardedHeader::Forwarded, "192.0.2.99", &["for=10.0.0.1"]).unwrap(),
            "192.0.2.99"
        );
    }
}
