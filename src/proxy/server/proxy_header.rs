//! Header of the PROXY protocol at the beginning of a client connection, before TLS: read and bounded here, parsed by
//! `framing::proxy_header`.

use std::os::fd::AsRawFd as _;
use std::time::Duration;

use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::l4::stream::Stream as TcpStream;
use pingora::protocols::{GetSocketDigest as _, SocketDigest, Stream};
use tokio::io::AsyncReadExt as _;

use config::ProxyProtocol;
use framing::proxy_header::{MAX_HEADER, ProxyHeader, ProxyHeaderFault, parse};
use routing::account::TrustedProxies;

/// Size of one read, in bytes. A header without extensions has at most 107.
const READ: usize = 512;

/// Reason why a connection is closed without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyHeaderRefusal {
    /// The connection does not come from a trusted proxy.
    Untrusted,
    /// The header is missing or malformed.
    Malformed(ProxyHeaderFault),
    /// The header did not arrive in time.
    Timeout,
    /// The connection has ended without a byte, as those of checks by TCP do.
    Closed,
}

impl ProxyHeaderRefusal {
    /// Returns the label of the metric; `None` for a connection that is not counted.
    pub(crate) fn label(self) -> Option<&'static str> {
        match self {
            ProxyHeaderRefusal::Untrusted => Some("untrusted"),
            ProxyHeaderRefusal::Malformed(ProxyHeaderFault::Missing) => Some("missing"),
            ProxyHeaderRefusal::Malformed(_) => Some("malformed"),
            ProxyHeaderRefusal::Timeout => Some("timeout"),
            ProxyHeaderRefusal::Closed => None,
        }
    }
}

/// Reader of the headers of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProxyHeaderReader<'p> {
    /// Whether a connection may begin without a header.
    pub(crate) mode: ProxyProtocol,
    /// Proxies that may send one.
    pub(crate) proxies: &'p TrustedProxies,
    /// Time from the first byte, or from the beginning if a header is required, to the end of the header.
    pub(crate) timeout: Duration,
    /// Time to the first byte of a connection that may have no header.
    pub(crate) idle: Duration,
}

impl ProxyHeaderReader<'_> {
    /// Reads the header. Returns the connection, from then on with the address of the client as that of its peer.
    ///
    /// # Errors
    /// Returns [`ProxyHeaderRefusal`] if the connection must be closed.
    pub(crate) async fn read(self, stream: Stream) -> Result<Stream, ProxyHeaderRefusal> {
        let peer = stream.get_socket_digest();
        let peer = peer.as_ref().and_then(|digest| digest.peer_addr()).and_then(|peer| peer.as_inet());
        let is_optional = self.mode == ProxyProtocol::Optional;
        let is_trusted = peer.is_some_and(|peer| self.proxies.trusts(peer.ip()));
        if !is_trusted && is_optional {
            // What it sends is never taken for a header.
            return Ok(stream);
        }
        let stream = stream.into_any().downcast::<TcpStream>();
        let mut stream = stream.map_err(|_| ProxyHeaderRefusal::Closed)?;
        let mut bytes = Vec::with_capacity(READ);
        if !is_trusted {
            // Only a connection that sends something is one that a client misses.
            let first = tokio::time::timeout(self.timeout, read_more(&mut stream, &mut bytes)).await;
            return Err(first.unwrap_or(Ok(())).err().unwrap_or(ProxyHeaderRefusal::Untrusted));
        }
        if is_optional {
            let first = tokio::time::timeout(self.idle, read_more(&mut stream, &mut bytes)).await;
            first.map_err(|_| ProxyHeaderRefusal::Closed)??;
        }
        let reading = read_header(&mut stream, &mut bytes);
        match tokio::time::timeout(self.timeout, reading).await {
            Err(_) => return Err(ProxyHeaderRefusal::Timeout),
            Ok(Ok(header)) => {
                set_source(&mut stream, &header);
                stream.rewind(bytes.get(header.length..).unwrap_or_default());
            }
            Ok(Err(ProxyHeaderRefusal::Malformed(ProxyHeaderFault::Missing))) if is_optional => {
                stream.rewind(&bytes);
            }
            Ok(Err(refusal)) => return Err(refusal),
        }
        Ok(stream)
    }
}

/// Reads until the header is complete.
async fn read_header(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Result<ProxyHeader, ProxyHeaderRefusal> {
    loop {
        match parse(bytes) {
            Ok(Some(header)) => return Ok(header),
            Ok(None) if bytes.len() < MAX_HEADER => read_more(stream, bytes).await?,
            Ok(None) => return Err(ProxyHeaderRefusal::Malformed(ProxyHeaderFault::TooLong)),
            Err(fault) => return Err(ProxyHeaderRefusal::Malformed(fault)),
        }
    }
}

/// Reads at least one byte.
async fn read_more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Result<(), ProxyHeaderRefusal> {
    bytes.reserve(READ);
    match stream.read_buf(bytes).await {
        Ok(1..) => Ok(()),
        Ok(0) if !bytes.is_empty() => Err(ProxyHeaderRefusal::Malformed(ProxyHeaderFault::Missing)),
        Ok(0) | Err(_) => Err(ProxyHeaderRefusal::Closed),
    }
}

/// Sets the client's address as that of the peer. The local address stays that of the socket, by which the listener is
/// found.
fn set_source(stream: &mut TcpStream, header: &ProxyHeader) {
    let Some(source) = header.source else { return };
    let digest = SocketDigest::from_raw_fd(stream.as_raw_fd());
    let _ = digest.peer_addr.set(Some(SocketAddr::Inet(source)));
    if let Some(before) = stream.get_socket_digest() {
        let _ = digest.local_addr.set(before.local_addr().cloned());
    }
    stream.set_socket_digest(digest);
}
