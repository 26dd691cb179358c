//! Connections to providers: from the pool or new, HTTP/1.1 or HTTP/2.
//!
//! This is what Pingora's `connectors::http::Connector` does, put together anew from the same parts for three reasons:
//! an HTTP/1 connection is wrapped so that a head leaves with its body, the way of a pooled connection, which is nearly
//! every request's, does not carry the state of a TLS handshake through every await, and the pool is our own.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pingora::connectors::http::v2;
use pingora::connectors::{ConnectorOptions, TransportConnector};
use pingora::protocols::ALPN;
use pingora::protocols::http::client::HttpSession;
use pingora::protocols::http::v1::client::HttpSession as Http1Session;
use pingora::upstreams::peer::Peer as _;

use super::coalesce::CoalescingStream;
use super::peer::Upstream;
use super::pool::Pool;

/// All connections to providers.
pub(super) struct Connections {
    transport: TransportConnector,
    http1: Pool,
    http2: v2::Connector,
    idle: Duration,
}

impl Connections {
    /// `idle` is how long an unused connection is kept.
    pub(super) fn new(options: ConnectorOptions, idle: Duration) -> Self {
        let http1 = Pool::new(options.keepalive_pool_size, idle);
        Connections {
            http1,
            transport: TransportConnector::new(Some(options.clone())),
            http2: v2::Connector::new(Some(options)),
            idle,
        }
    }

    /// A connection from the pool. One that can take no request is none: a new one is made.
    pub(super) async fn reused(&self, peer: &Upstream) -> Option<HttpSession> {
        if speaks_http2(peer)
            && let Ok(Some(session)) = self.http2.reused_http_session(peer).await
        {
            return Some(HttpSession::H2(session));
        }
        if !only_http2(peer)
            && let Some(stream) = self.http1.take(peer.reuse_hash())
        {
            return Some(HttpSession::H1(Http1Session::new_with_options(stream, peer)));
        }
        None
    }

    /// A new connection, made within this time.
    pub(super) async fn connect(&self, peer: &Upstream, within: Duration) -> pingora::Result<HttpSession> {
        let peer = &*peer.within(within);
        if speaks_http2(peer) {
            // ALPN may still choose HTTP/1.1.
            return self.http2.new_http_session(peer).await;
        }
        let stream = CoalescingStream::wrap(self.transport.new_stream(peer).await?);
        Ok(HttpSession::H1(Http1Session::new_with_options(stream, peer)))
    }

    /// Gives a connection back whose answer has been read to its end. What cannot be used again is closed.
    pub(super) fn release(&self, session: HttpSession, peer: &Upstream) {
        match session {
            HttpSession::H1(mut session) => {
                session.respect_keepalive();
                // Only closing a connection could have to wait, and then dropping it does: awaiting this would keep
                // room for two kilobytes of state in every request.
                let reuse = tokio::task::unconstrained(session.reuse());
                let reused = std::pin::pin!(reuse).poll(&mut Context::from_waker(Waker::noop()));
                if let Poll::Ready(Some(stream)) = reused {
                    self.http1.put(peer.reuse_hash(), CoalescingStream::wrap(stream));
                }
            }
            HttpSession::H2(session) => self.http2.release_http_session(session, peer, Some(self.idle)),
            HttpSession::Custom(()) => {}
        }
    }

    /// Speaks HTTP/1.1 to this peer from now on: it has asked for it.
    pub(super) fn prefer_http1(&self, peer: &Upstream) {
        self.http2.prefer_h1(peer);
    }
}

fn speaks_http2(peer: &Upstream) -> bool {
    peer.get_alpn().is_some_and(|alpn| alpn.get_max_http_version() == 2)
}

fn only_http2(peer: &Upstream) -> bool {
    matches!(peer.get_alpn(), Some(ALPN::H2))
}
