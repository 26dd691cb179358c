//! Upstream connections: from the pool or new, HTTP/1.1, HTTP/2 or a WebSocket.
//!
//! This replaces Pingora's `connectors::http::Connector`, from the same parts, for three reasons: exchanges over HTTP/1
//! are the gateway's own, so that a head leaves with its body and a silent stream holds no buffer; a pooled connection,
//! which nearly every request uses, does not carry the state of a TLS handshake through every await; and the pool is the
//! gateway's own.

use std::time::Duration;

use pingora::connectors::ConnectorOptions;
use pingora::connectors::http::v2;
use pingora::protocols::http::client::HttpSession;
use pingora::protocols::{ALPN, Stream};
use pingora::upstreams::peer::Peer as _;
use pingora::{Error, ErrorType};

use super::descriptors;
use super::peer::Upstream;
use super::pool::Pool;
use super::provider_http1::Http1Exchange;
use super::provider_session::ProviderSession;
use super::provider_socket::pool::SocketPool;

/// Upstream connections of the process.
pub struct Connections {
    http1: Pool,
    /// Its transport opens the connections of HTTP/1 too: another one would read and hold all root certificates again.
    http2: v2::Connector,
    sockets: SocketPool,
    idle: Duration,
}

impl Connections {
    /// `idle` is the idle time-out of a pooled connection.
    pub fn new(options: ConnectorOptions, idle: Duration) -> Self {
        let http1 = Pool::new(options.keepalive_pool_size, idle);
        Connections {
            http1,
            sockets: SocketPool::new(options.keepalive_pool_size),
            http2: v2::Connector::new(Some(options)),
            idle,
        }
    }

    /// Takes a connection from the pool. `None` if there is none that can take a request.
    pub async fn take_idle(&self, peer: &Upstream) -> Option<ProviderSession> {
        if is_http2(peer)
            && let Ok(Some(session)) = self.http2.reused_http_session(peer).await
        {
            return Some(ProviderSession::Http2(Box::new(session)));
        }
        // ALPN may have selected HTTP/1.1: those connections are in this pool.
        if !is_http2_only(peer)
            && let Some(stream) = self.http1.take(peer.reuse_hash())
        {
            return Some(ProviderSession::Http1(Http1Exchange::new(stream)));
        }
        None
    }

    /// Opens a new connection, TLS handshake included, within this time.
    pub async fn connect(&self, peer: &Upstream, within: Duration) -> pingora::Result<ProviderSession> {
        let peer = &*peer.with_connect_timeout(within);
        if is_http2(peer) {
            // ALPN may still choose HTTP/1.1.
            let session: HttpSession<()> = self.http2.new_http_session(peer).await?;
            return match session {
                HttpSession::H2(session) => Ok(ProviderSession::Http2(Box::new(session))),
                HttpSession::H1(session) => {
                    let stream = unless_reserved(session.into_inner())?;
                    Ok(ProviderSession::Http1(Http1Exchange::new(stream)))
                }
                HttpSession::Custom(()) => Error::e_explain(ErrorType::InternalError, "a custom session"),
            };
        }
        let stream = unless_reserved(self.http2.transport().new_stream(peer).await?)?;
        Ok(ProviderSession::Http1(Http1Exchange::new(stream)))
    }

    /// Opens a new connection for the handshake of a WebSocket: HTTP/1.1, TLS handshake included, within this time.
    pub async fn connect_for_upgrade(&self, peer: &Upstream, within: Duration) -> pingora::Result<Stream> {
        let peer = &*peer.with_connect_timeout(within);
        unless_reserved(self.http2.transport().new_stream(&peer.with_http1()).await?)
    }

    /// Returns the idle WebSockets.
    pub fn sockets(&self) -> &SocketPool {
        &self.sockets
    }

    /// Returns a connection to the pool after its response has been read to the end. One that cannot be reused is
    /// closed.
    pub fn release(&self, session: ProviderSession, peer: &Upstream) {
        match session {
            ProviderSession::Http1(exchange) => {
                if let Some(stream) = exchange.into_reusable() {
                    self.http1.put(peer.reuse_hash(), stream);
                }
            }
            ProviderSession::Http2(session) => {
                self.http2.release_http_session(*session, peer, Some(self.idle))
            }
            ProviderSession::Socket(socket) => self.sockets.put(socket),
        }
    }

    /// Uses HTTP/1.1 for this peer from now on, after it has rejected HTTP/2.
    pub fn prefer_http1(&self, peer: &Upstream) {
        self.http2.prefer_h1(peer);
    }
}

/// Closes a connection that has one of the reserved descriptors.
fn unless_reserved(stream: Stream) -> pingora::Result<Stream> {
    if descriptors::is_reserved(&stream) {
        let error = descriptors::exhausted();
        return Err(Error::because(ErrorType::ConnectError, "too many open descriptors", error));
    }
    Ok(stream)
}

fn is_http2(peer: &Upstream) -> bool {
    peer.get_alpn().is_some_and(|alpn| alpn.get_max_http_version() == 2)
}

fn is_http2_only(peer: &Upstream) -> bool {
    matches!(peer.get_alpn(), Some(ALPN::H2))
}
