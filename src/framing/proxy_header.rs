//! Header of the PROXY protocol, versions 1 and 2: the addresses of a connection that a balancer has accepted and passes
//! on.
//!
//! The format is that of the HAProxy project's `proxy-protocol.txt` (2020-03-05). [`parse`] is a pure function of the
//! bytes received so far: the same result for every split of them. Extensions of version 2 (TLVs) are skipped.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// First bytes of a version 1 header.
const V1_PREFIX: &[u8] = b"PROXY ";
/// Maximum length of a version 1 header with its line end (section 2.1).
const V1_MAX: usize = 107;
/// First bytes of a version 2 header (section 2.2).
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Length of the fixed part of a version 2 header: signature, version and command, family, length.
const V2_FIXED: usize = 16;

/// Maximum length of a header, extensions included. The extensions of the known balancers take a few hundred bytes; a
/// client certificate among them takes some kilobytes.
pub const MAX_HEADER: usize = 8 * 1024;

/// Header of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Address and port of the client; `None` for a connection of the balancer's own (`LOCAL`, such as a health check), or
    /// if it does not know the client's address (`UNKNOWN`, or a Unix socket).
    pub source: Option<SocketAddr>,
    /// Length of the header in bytes. What follows is the connection's first data.
    pub length: usize,
}

/// Reason why bytes are not a header of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderFault {
    /// The first bytes are those of neither version.
    #[error("no header of the PROXY protocol")]
    Missing,
    /// The header is longer than [`MAX_HEADER`], or than its version permits.
    #[error("the header is too long")]
    TooLong,
    /// The version is neither 1 nor 2, or the command is unknown.
    #[error("the version or command is unknown")]
    Version,
    /// The transport is not TCP, or the address family is unknown.
    #[error("the address family or transport is not supported")]
    Family,
    /// The addresses or ports are malformed.
    #[error("the addresses are malformed")]
    Addresses,
}

/// Parses the header at the beginning of a connection. Returns `None` if `bytes` are the beginning of a header whose rest
/// is still to come. Decides as early as possible: the first byte that cannot belong to a header is a fault.
///
/// # Errors
/// Returns [`ProxyHeaderFault`] if no continuation of `bytes` is a valid header.
pub fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderFault> {
    if is_prefix(bytes, V1_PREFIX) {
        return parse_v1(bytes);
    }
    if is_prefix(bytes, V2_SIGNATURE) {
        return parse_v2(bytes);
    }
    Err(ProxyHeaderFault::Missing)
}

/// Returns whether `bytes` begin with `start`, as far as they go.
fn is_prefix(bytes: &[u8], start: &[u8]) -> bool {
    let length = bytes.len().min(start.len());
    bytes.get(..length) == start.get(..length)
}

fn parse_v1(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderFault> {
    let window = bytes.get(..bytes.len().min(V1_MAX)).unwrap_or_default();
    let Some(end) = memchr::memchr(b'\n', window) else {
        // A carriage return or a byte that no address has would be found at the end of the line anyhow.
        return if bytes.len() < V1_MAX { Ok(None) } else { Err(ProxyHeaderFault::TooLong) };
    };
    let line = window.get(..end).and_then(|line| line.strip_suffix(b"\r"));
    let line = line.and_then(|line| std::str::from_utf8(line).ok()).ok_or(ProxyHeaderFault::Addresses)?;
    let rest = line.strip_prefix("PROXY ").ok_or(ProxyHeaderFault::Missing)?;
    let length = end + 1;
    let mut fields = rest.split(' ');
    let is_v4 = match fields.next() {
        Some("TCP4") => true,
        Some("TCP6") => false,
        // Whatever follows is ignored (section 2.1).
        Some("UNKNOWN") => return Ok(Some(ProxyHeader { source: None, length })),
        _ => return Err(ProxyHeaderFault::Family),
    };
    let mut address = || -> Option<IpAddr> {
        let text = fields.next()?;
        if is_v4 {
            text.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
        } else {
            text.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
        }
    };
    let (source, destination) = (address(), address());
    let mut port = || fields.next().and_then(port_of);
    let (source_port, destination_port) = (port(), port());
    let end = fields.next().is_none();
    match (source, destination, source_port, destination_port, end) {
        (Some(source), Some(_), Some(port), Some(_), true) => {
            Ok(Some(ProxyHeader { source: Some(SocketAddr::new(source, port)), length }))
        }
        _ => Err(ProxyHeaderFault::Addresses),
    }
}

/// Parses a port: digits without leading zeros.
fn port_of(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let padded = text.len() > 1 && text.starts_with('0');
    if digits && !padded { text.parse().ok() } else { None }
}

fn parse_v2(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderFault> {
    let Some(&command) = bytes.get(V2_SIGNATURE.len()) else { return Ok(None) };
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(ProxyHeaderFault::Version),
    };
    let Some(&family) = bytes.get(V2_SIGNATURE.len() + 1) else { return Ok(None) };
    // Length of the addresses: twice an address and a port. `None`: they are skipped.
    let addresses = match family {
        _ if is_local => None,
        // Unspecified.
        0x00 => None,
        // TCP over IPv4 and IPv6.
        0x11 => Some(12),
        0x21 => Some(36),
        // A Unix stream socket.
        0x31 => None,
        _ => return Err(ProxyHeaderFault::Family),
    };
    let Some(Ok(rest)) = bytes.get(V2_SIGNATURE.len() + 2..V2_FIXED).map(<[u8; 2]>::try_from) else {
        return Ok(None);
    };
    let rest = usize::from(u16::from_be_bytes(rest));
    let length = V2_FIXED + rest;
    if length > MAX_HEADER {
        return Err(ProxyHeaderFault::TooLong);
    }
    if addresses.is_some_and(|addresses| rest < addresses) {
        return Err(ProxyHeaderFault::Addresses);
    }
    let Some(content) = bytes.get(V2_FIXED..length) else { return Ok(None) };
    let source = match addresses {
        Some(12) => source_of::<4>(content, 8),
        Some(_) => source_of::<16>(content, 32),
        None => return Ok(Some(ProxyHeader { source: None, length })),
    };
    let source = source.ok_or(ProxyHeaderFault::Addresses)?;
    Ok(Some(ProxyHeader { source: Some(source), length }))
}

/// Reads the source address from its `N` bytes, and its port at `port`.
fn source_of<const N: usize>(content: &[u8], port: usize) -> Option<SocketAddr>
where
    IpAddr: From<[u8; N]>,
{
    let address: [u8; N] = content.get(..N)?.try_into().ok()?;
    let port: [u8; 2] = content.get(port..port + 2)?.try_into().ok()?;
    Some(SocketAddr::new(IpAddr::from(address), u16::from_be_bytes(port)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a version 2 header.
    fn v2(command: u8, family: u8, content: &[u8]) -> Vec<u8> {
        let mut out = V2_SIGNATURE.to_vec();
        out.extend_from_slice(&[command, family]);
        out.extend_from_slice(&u16::try_from(content.len()).unwrap().to_be_bytes());
        out.extend_from_slice(content);
        out
    }

    fn source(text: &str) -> Option<SocketAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn proxy_header_v1_names_the_client() {
        let longest = "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
                       ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe 65535 65534\r\n";
        let all = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        for (text, expected) in [
            ("PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n", source("192.0.2.7:56324")),
            ("PROXY TCP4 255.255.255.255 0.0.0.0 0 65535\r\n", source("255.255.255.255:0")),
            ("PROXY TCP6 2001:db8::1 ::1 1 2\r\n", source("[2001:db8::1]:1")),
            ("PROXY TCP6 ::ffff:192.0.2.7 ::1 1 2\r\n", source("[::ffff:192.0.2.7]:1")),
            (longest, source(&format!("[{all}]:65535"))),
            ("PROXY UNKNOWN\r\n", None),
            ("PROXY UNKNOWN what ever 1\r\n", None),
        ] {
            let with_data = [text.as_bytes(), b"GET / HTTP/1.1\r\n"].concat();
            let found = parse(&with_data).unwrap().unwrap();
            assert_eq!(found, ProxyHeader { source: expected, length: text.len() }, "{text:?}");
        }
    }

    #[test]
    fn proxy_header_v1_that_is_malformed_is_refused() {
        use ProxyHeaderFault::*;
        for (text, fault) in [
            ("PROXX", Missing),
            ("GET / HTTP/1.1\r\n", Missing),
            ("proxy TCP4", Missing),
            ("PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n", Family),
            ("PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n", Family),
            ("PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n", Family),
            ("PROXY \r\n", Family),
            ("PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n", Addresses),
            ("PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n", Addresses),
            ("PROXY TCP4 1.2.3.4 1.2.3.4 1  2\r\n", Addresses),
            ("PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", Addresses),
            ("PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n", Addresses),
            ("PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n", Addresses),
            ("PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n", Addresses),
            ("PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n", Addresses),
            ("PROXY TCP4 01.2.3.4 1.2.3.4 1 2\r\n", Addresses),
            ("PROXY TCP4 ::1 ::1 1 2\r\n", Addresses),
            ("PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n", Addresses),
            ("PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", Addresses),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(fault), "{text:?}");
        }
        let endless = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; V1_MAX]].concat();
        assert_eq!(parse(&endless[..V1_MAX - 1]), Ok(None));
        assert_eq!(parse(&endless), Err(TooLong));
    }

    #[test]
    fn proxy_header_v2_names_the_client_and_skips_extensions() {
        let v4 = [192, 0, 2, 7, 198, 51, 100, 1, 0xdc, 4, 1, 0xbb];
        let mut v6 = [0; 36];
        v6[..4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
        v6[15] = 1;
        v6[33] = 9;
        // A TLV of Amazon's load balancers: PP2_TYPE_AWS with an endpoint id.
        let tlv = [0xea, 0, 5, 1, b'v', b'p', b'c', b'e'];
        for (header, expected) in [
            (v2(0x21, 0x11, &v4), source("192.0.2.7:56324")),
            (v2(0x21, 0x11, &[&v4[..], &tlv].concat()), source("192.0.2.7:56324")),
            (v2(0x21, 0x21, &v6), source("[2001:db8::1]:9")),
            (v2(0x21, 0x21, &[&v6[..], &tlv].concat()), source("[2001:db8::1]:9")),
            (v2(0x20, 0x00, &[]), None),
            // The balancer's own connection: its addresses are ignored, whatever they are (section 2.2).
            (v2(0x20, 0x11, &v4), None),
            (v2(0x20, 0x7f, &[1, 2]), None),
            (v2(0x21, 0x00, &tlv), None),
            (v2(0x21, 0x31, &[0; 216]), None),
            (
                v2(0x21, 0x11, &[&v4[..], &vec![0; MAX_HEADER - V2_FIXED - 12]].concat()),
                source("192.0.2.7:56324"),
            ),
        ] {
            let length = header.len();
            let with_data = [&header[..], b"\x16\x03\x01"].concat();
            let found = parse(&with_data).unwrap().unwrap();
            assert_eq!(found, ProxyHeader { source: expected, length }, "{header:?}");
        }
    }

    #[test]
    fn proxy_header_v2_that_is_malformed_is_refused() {
        use ProxyHeaderFault::*;
        for (header, fault) in [
            (v2(0x11, 0x11, &[0; 12]), Version),
            (v2(0x22, 0x11, &[0; 12]), Version),
            (v2(0x21, 0x12, &[0; 12]), Family),
            (v2(0x21, 0x22, &[0; 36]), Family),
            (v2(0x21, 0x41, &[0; 36]), Family),
            (v2(0x21, 0x11, &[0; 11]), Addresses),
            (v2(0x21, 0x21, &[0; 35]), Addresses),
            (v2(0x21, 0x11, &[0; MAX_HEADER - V2_FIXED + 1]), TooLong),
            (v2(0x20, 0x00, &[0; 65535]), TooLong),
        ] {
            assert_eq!(parse(&header), Err(fault), "{:?}", &header[..16]);
        }
        let mut quit = V2_SIGNATURE.to_vec();
        quit[9] = b'X';
        assert_eq!(parse(&quit), Err(Missing));
    }

    /// Returns the result for bytes that arrive one after the other, and the number of bytes that it took.
    fn piecewise(bytes: &[u8]) -> (Result<Option<ProxyHeader>, ProxyHeaderFault>, usize) {
        for end in 0..=bytes.len() {
            let result = parse(&bytes[..end]);
            if result != Ok(None) {
                return (result, end);
            }
        }
        (Ok(None), bytes.len())
    }

    fn assert_same_for_every_split(bytes: &[u8]) {
        let whole = parse(bytes);
        let (result, at) = piecewise(bytes);
        // Bytes behind the deciding one change nothing, however many of them have arrived.
        for end in at..=bytes.len() {
            assert_eq!(parse(&bytes[..end]), result, "{end}: {bytes:?}");
        }
        assert_eq!(whole, result, "{bytes:?}");
        if let Ok(Some(header)) = result {
            assert_eq!(header.length, at, "a header is found with its last byte: {bytes:?}");
            assert!(header.length <= MAX_HEADER);
        }
    }

    fn nearly_a_header() -> impl Strategy<Value = Vec<u8>> {
        let v1 =
            "PROXY (TCP4|TCP6|UNKNOWN|X)( [0-9a-f.:]{1,16}){0,2}( [0-9]{1,6}){0,3}(\r\n|\n|\r)?[a-z]{0,9}";
        let v2_parts =
            (0x1f_u8..0x23, prop::sample::select(vec![0_u8, 0x11, 0x12, 0x21, 0x31, 0x40]), 0..48_usize);
        prop_oneof![
            v1.prop_map(String::into_bytes),
            (v2_parts, prop::collection::vec(any::<u8>(), 0..64)).prop_map(
                |((command, family, cut), content)| {
                    let mut bytes = v2(command, family, &content);
                    bytes.extend_from_slice(b"\x16\x03\x01data");
                    bytes.truncate(bytes.len().saturating_sub(cut % 12));
                    bytes
                }
            ),
            prop::collection::vec(any::<u8>(), 0..40),
        ]
    }

    proptest! {
        #[test]
        fn proxy_header_is_the_same_for_every_split(bytes in nearly_a_header()) {
            assert_same_for_every_split(&bytes);
        }

        #[test]
        fn proxy_header_v1_of_any_addresses_is_read(source: [u8; 16], port: u16, v4: bool) {
            let address = if v4 {
                IpAddr::from([source[0], source[1], source[2], source[3]])
            } else {
                IpAddr::from(source)
            };
            let family = if v4 { "TCP4" } else { "TCP6" };
            let text = format!("PROXY {family} {address} {address} {port} 1\r\n");
            let found = parse(text.as_bytes()).unwrap().unwrap();
            prop_assert_eq!(found.source, Some(SocketAddr::new(address, port)));
            assert_same_for_every_split(text.as_bytes());
        }
    }
}
