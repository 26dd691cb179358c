//! Targets for what a connection and a request say about the address of the client.

use std::net::{IpAddr, SocketAddr};

use framing::proxy_header::{MAX_HEADER, ProxyHeader, ProxyHeaderFault, parse};

use crate::{choose, pieces};

/// Returns the result for a header that arrives in these pieces.
fn parsed(pieces: &[&[u8]]) -> Result<Option<ProxyHeader>, ProxyHeaderFault> {
    let mut read = Vec::new();
    for piece in pieces {
        read.extend_from_slice(piece);
        match parse(&read) {
            Ok(None) => {}
            found => return found,
        }
    }
    Ok(None)
}

/// Invariants of the header of the PROXY protocol:
/// * The result does not depend on how the bytes arrive, nor on those behind the header.
/// * A header is at most [`MAX_HEADER`] long, and found with its last byte.
/// * The address of a version 1 header is written in it, and that of a version 2 header stands at its place.
pub fn proxy_header(mut data: &[u8]) {
    let seed = choose(&mut data, 256);
    let found = parse(data);
    assert_eq!(found, parsed(&pieces(data, seed)));
    let Ok(Some(ProxyHeader { source, length })) = found else { return };
    assert!(length <= MAX_HEADER && length <= data.len());
    assert_eq!(parse(&data[..length]), found);
    assert_eq!(parse(&data[..length - 1]), Ok(None));
    let Some(source) = source else { return };
    let is_v1 = data.starts_with(b"PROXY ");
    let expected: SocketAddr = if is_v1 {
        let text = std::str::from_utf8(&data[..length]).expect("a header of version 1 is a text");
        let fields: Vec<&str> = text.trim_end().split(' ').collect();
        SocketAddr::new(fields[2].parse().expect("an address"), fields[4].parse().expect("a port"))
    } else if data[13] == 0x11 {
        let address: [u8; 4] = data[16..20].try_into().expect("four bytes");
        SocketAddr::new(IpAddr::from(address), u16::from_be_bytes([data[24], data[25]]))
    } else {
        let address: [u8; 16] = data[16..32].try_into().expect("sixteen bytes");
        SocketAddr::new(IpAddr::from(address), u16::from_be_bytes([data[48], data[49]]))
    };
    assert_eq!(source, expected);
}

/// Invariants of the client's address behind trusted proxies:
/// * Nothing that a client writes to the left of what the trusted proxy appends changes the result, unless it makes it
///   unknown.
/// * A peer that is not trusted is the client.
#[cfg(feature = "config")]
pub fn forwarded(mut data: &[u8]) {
    use routing::account::{ForwardedHeader, Network, TrustedProxies};

    let header = ForwardedHeader::ALL[choose(&mut data, 2)];
    let networks = vec![Network::parse("10.0.0.0/8").expect("a network")];
    let proxies = TrustedProxies { networks, header };
    let proxy: IpAddr = [10, 0, 0, 1].into();
    let client: IpAddr = [192, 0, 2, 7].into();
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let entry: &[u8] = match header {
        ForwardedHeader::XForwardedFor => b"192.0.2.7",
        ForwardedHeader::Forwarded => b"for=192.0.2.7",
    };
    // As a line of its own, which nothing can spoil.
    let own_line = lines.iter().copied().chain([entry]);
    let own_line: Vec<&[u8]> = own_line.collect();
    assert_eq!(proxies.client(Some(proxy), own_line.iter().copied()), Some(client));
    // At the end of the last line of the client.
    let (last, before) = lines.split_last().expect("at least one line");
    let joined = [last, b", ".as_slice(), entry].concat();
    let mut appended = before.to_vec();
    appended.push(&joined);
    let found = proxies.client(Some(proxy), appended.iter().copied());
    assert!(found == Some(client) || found.is_none() && header == ForwardedHeader::Forwarded, "{found:?}");
    assert_eq!(proxies.client(Some(client), lines.iter().copied()), Some(client));
    let _ = proxies.client(Some(proxy), lines.into_iter());
}
